"""Does what its event requests: fail, die, sleep, import, or return a value."""

import os
import sys
import time
from typing import Any


class DeclinedError(Exception):
    """A failure with a name."""


_calls = {"n": 0}


def handler(event: dict[str, Any], context: Any) -> Any:
    _calls["n"] += 1
    do = event.get("do")
    print("worker does", do)
    if do == "fail":
        raise DeclinedError("no funds")
    if do == "fail-as":
        raise type(event["name"], (Exception,), {})("as requested")
    if do == "die":
        os._exit(1)
    if do == "sleep":
        time.sleep(event["seconds"])
    if do == "import":
        __import__(event["module"])
    if do == "ask":
        import boto3

        boto3.client("dynamodb")
        return {"pid": os.getpid(), "processor": time.process_time()}
    if do == "unserializable":
        return {1, 2}
    if do == "stderr":
        sys.stderr.write("late words\n")
    return {
        "did": do,
        "calls": _calls["n"],
        "pid": os.getpid(),
        "remaining": context.get_remaining_time_in_millis(),
        "environment": dict(os.environ),
    }
