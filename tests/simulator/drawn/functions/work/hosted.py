"""Functions behind a step host: they know the provider, and nothing of the saga log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from saga_runtime import PermanentError

from .behaviour import Refused, after, ask, before, behaviour, output_of, sees_the_same

_SECONDS = 3.0
"""For which the provider may be silent."""
_VERDICTS = {"done": "applied", "in work": "pending", "nothing": "not_applied"}


def _call(event: dict[str, Any]) -> Any:
    """The event in the form of a step's call."""
    row = event["key"].partition("#")[2].removesuffix("#undo")
    item = row.partition("[")[2].removesuffix("]")
    names = {"row_name": row, "item_key": item or None}
    return SimpleNamespace(**{name: event.get(name) for name in ("request", "step", "outputs", "item")}, **names)


def _ask(event: dict[str, Any], method: str, path: str, *, told: str = "", declined: bool = False) -> Any:
    key = f"{event['provider_key']}{told}"
    return ask(method, path, key=key, reference=event["key"], timeout=_SECONDS, declined=declined)


def apply(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Act at the provider."""
    call = _call(event)
    try:
        before(call)
        _ask(event, "POST", "act", declined=behaviour(call) == "decline")
    except PermanentError as refusal:
        return {"error": {"name": type(refusal).__name__, "message": str(refusal)}}
    except Refused:
        return {"error": {"name": "Declined", "message": "declined"}}
    after(call)
    return {"output": output_of(call)}


def undo(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Undo it there."""
    _ask(event, "POST", "undo", told="" if sees_the_same(_call(event), event["output"]) else "-with-other-outputs")
    return {"output": {}}


def verify(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Query the outcome of either."""
    verdict = _VERDICTS[_ask(event, "GET", "found")["state"]]
    return {"verdict": verdict, **({"output": output_of(_call(event))} if verdict == "applied" else {})}
