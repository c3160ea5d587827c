"""Behaviour of a function, which its request names by the step's row or name."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

from saga_runtime import Money, PermanentError, StepCall, StepInDoubt, TransientError

AMOUNT = 123_456_789_012_345_678
"""Of every request and item."""
_ONE = "one"
_INSTEAD = "instead"
_OWN = {"of", _INSTEAD}
"""Members of a step's output, or of its substitute output."""
_ITEMS = 2
"""Items of an output, at most: those of a map behind it."""
_NOTE = 8
"""Characters of the request's text in an output, at most: all outputs of a saga have a limit."""
_LONG = 1_000
_TIMES = 40
"""So often a refusal repeats a long text: a state machine's error has 32,768 characters at most."""


class SoldOut(PermanentError):
    """A refusal that ends the saga."""


class Routed(PermanentError):
    """A refusal that the step may have a route for."""


class Rerouted(PermanentError):
    """Another one: a call of the same step may be refused for another reason."""


def told_of(call: StepCall, default: str) -> str:
    """The text of a refusal: the request's, if it has one."""
    note = str(call.request.get("note", ""))
    return note * (_TIMES if len(note) > _LONG else 1) if note.strip() else default


def behaviour(call: StepCall) -> str:
    """The function's behaviour: a word, or nothing."""
    told = call.request.get("behave", {})
    return str(told.get(call.row_name) or told.get(call.step) or "")


def is_exact(call: StepCall) -> bool:
    """True if the request's number, and the item's, came whole; JSONata keeps 15 digits."""
    numbers = [call.request["amount"], *([call.item.get("amount", AMOUNT)] if call.item is not None else [])]
    return all(number == AMOUNT for number in numbers)


def is_whole(call: StepCall) -> bool:
    """True if no output of an earlier step came as a reference to what is stored."""
    return "cdk_sagas_ref" not in json.dumps(dict(call.outputs))


def output_of(call: StepCall) -> dict[str, Any]:
    """The step's output, always the same: in a map, and behind it, it has what the step saw of earlier ones."""
    word, _, size = behaviour(call).partition(" ")
    if word == "large":
        return {"of": call.row_name, "items": [], "pad": "x" * int(size)}
    seen = _seen(call)
    noted = {"note": str(call.request["note"])[:_NOTE]} if "note" in call.request else {}
    if call.item_key is not None:
        return {"of": call.row_name, "saw": seen, **noted}
    seen = {name: form for name, form in seen.items() if form != _ONE}
    items = [{"sku": item["sku"], **noted} for item in call.request["items"][:_ITEMS]]
    return {"of": call.row_name, "items": items, **({"saw": seen} if seen else {}), **noted}


def sees_the_same(call: StepCall, output: Any) -> bool:
    """True if a compensation sees each output as its step saw it; the output of a job is its provider's."""
    saw = output.get("saw", {}) if isinstance(output, Mapping) else {}
    seen = _seen(call) if saw else {}
    # What no row keeps may be missing, and is one output.
    return all(seen.get(name, form if form == _ONE else None) == form for name, form in saw.items())


def _seen(call: StepCall) -> dict[str, str]:
    """Form of each output of an earlier step: one, a substitute output, or so many by item key."""
    return {name: _form(output) for name, output in call.outputs.items()}


def _form(output: Any) -> str:
    if isinstance(output, Mapping) and _INSTEAD in output:
        return f"{_INSTEAD} {output[_INSTEAD]}"
    return f"{len(output)} by key" if _is_by_key(output) else _ONE


def _is_by_key(output: Any) -> bool:
    members = output.values() if isinstance(output, Mapping) else ()
    return bool(members) and all(isinstance(member, Mapping) and _OWN.intersection(member) for member in members)


def before(call: StepCall) -> None:
    """Run the behaviour before the effect."""
    match behaviour(call):
        case "refuse":
            raise SoldOut(told_of(call, "sold out"))
        case "route":
            raise random.choice((Routed, Rerouted))(told_of(call, "routed"))
        case "crash" if random.random() < 0.7:
            raise KeyError("a mistake")
        case "busy" if random.random() < 0.7:
            raise TransientError("busy")
        case "slow":
            time.sleep(random.random() * 12)


def after(call: StepCall) -> None:
    """Run the behaviour between a provider's response and the function's."""
    match behaviour(call):
        case "mistake" if random.random() < 0.7:
            Money(1_250, "eur")
        case "unreadable" if random.random() < 0.7:
            json.loads("<html>502</html>")
        case "late":
            time.sleep(random.random() * 12)


class Refused(Exception):
    """The provider refused.

    Attributes:
        job_id: of a job, the provider's own id, if it has one.
    """

    def __init__(self, job_id: str | None) -> None:
        super().__init__(job_id)
        self.job_id = job_id


def ask(
    method: str, path: str, *, key: str, reference: str, timeout: float, declined: bool = False, large: str = ""
) -> Any:
    """Send a request to the provider, which declines if asked to, or reports an output of so many bytes."""
    mode = os.environ["PROVIDER_MODE"]
    told = ("&declined=yes" if declined else "") + (f"&large={large}" if large else "")
    connection = HTTPConnection("provider.example.com", timeout=timeout)
    try:
        connection.request(method, f"/{mode}/{path}?key={quote(key)}&reference={quote(reference)}{told}", body="")
        answer = connection.getresponse()
        document = json.loads(answer.read())
    except OSError:
        raise StepInDoubt("the provider did not answer") from None
    finally:
        connection.close()
    if answer.status == 402:
        raise Refused(document.get("id"))
    if answer.status != 200:
        raise StepInDoubt(f"the provider answered {answer.status}")
    return document
