"""HTTP interface through which a test plans faults and reads their outcomes.

| request | does |
|---|---|
| `POST /_cdk_sagas/faults` `{"faults": […]}` | adds to the plan: `{"ids": […]}` |
| `GET /_cdk_sagas/faults` | the outcome of each |
| `DELETE /_cdk_sagas/faults` (`{"ids": […]}`) | forgets some, or all |
| `POST /_cdk_sagas/calls` | begins a recording: `{"id": …}` |
| `GET /_cdk_sagas/calls/{id}` | the calls so far |
| `DELETE /_cdk_sagas/calls/{id}` | the calls, and the end of the recording |
"""

from __future__ import annotations

import json
from typing import Any, Final

from constructs_lib.testing.emulator.faults.engine import FaultEngine
from constructs_lib.testing.fault_plan import from_wire

#: Every path of the control; the emulator serves nothing there.
PREFIX: Final = "/_cdk_sagas/"
_FAULTS: Final = f"{PREFIX}faults"
_CALLS: Final = f"{PREFIX}calls"


def control(engine: FaultEngine, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    """Do what a request to the control path asks for, and return HTTP status and body."""
    try:
        content: dict[str, Any] = json.loads(body) if body else {}
        status, answer = _dispatch(engine, method, path, content)
    except (ValueError, TypeError, KeyError) as error:
        status, answer = 400, {"message": f"{error}"}
    return status, json.dumps(answer).encode()


def _dispatch(engine: FaultEngine, method: str, path: str, content: dict[str, Any]) -> tuple[int, Any]:
    match method, path:
        case "POST", path if path == _FAULTS:
            return 200, {"ids": engine.plan([from_wire(wire) for wire in content["faults"]])}
        case "GET", path if path == _FAULTS:
            return 200, {"faults": engine.report()}
        case "DELETE", path if path == _FAULTS:
            engine.clear(content.get("ids"))
            return 200, {}
        case "POST", path if path == _CALLS:
            return 200, {"id": engine.open_recording(content.get("containing"))}
        case "GET" | "DELETE", path if path.startswith(f"{_CALLS}/"):
            return _recording(engine, method, path.removeprefix(f"{_CALLS}/"))
        case _:
            return 404, {"message": f"nothing is at {method} {path}"}


def _recording(engine: FaultEngine, method: str, key: str) -> tuple[int, Any]:
    calls = engine.recorded(key)
    if calls is None:
        return 404, {"message": f"no recording is called {key}; it has ended, or the emulator was reset"}
    if method == "DELETE":
        engine.close_recording(key)
    return 200, {"calls": calls}
