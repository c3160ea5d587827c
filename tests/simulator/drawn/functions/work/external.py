"""Steps at a provider: one that can be asked, and one that cannot."""

from __future__ import annotations

from typing import Any

from saga_runtime import (
    Accepted,
    Applied,
    CallbackCall,
    Declined,
    ExternalCall,
    NotApplied,
    Pending,
    Unknown,
    callback_step,
    external_compensation,
    external_step,
)
from saga_runtime.steps.verdict import Verdict

from .behaviour import Refused, after, ask, before, behaviour, output_of, sees_the_same, told_of


def _asked(call: ExternalCall) -> Any:
    return ask("GET", "found", key=call.provider_key, reference=call.key, timeout=call.timeout_seconds)


def _found(call: ExternalCall) -> str:
    return str(_asked(call)["state"])


def find(call: ExternalCall) -> Verdict:
    """Query the outcome of the call under the step's key."""
    match _found(call):
        case "done":
            return Applied(output=output_of(call))
        case "in work":
            return Pending()
        case _:
            return NotApplied()


def find_undo(call: ExternalCall, _output: Any) -> Verdict:
    """Query the outcome of the compensation under its key."""
    match _found(call):
        case "done":
            return Applied()
        case "in work":
            return Pending()
        case _:
            return NotApplied()


def _act(call: ExternalCall) -> dict[str, Any]:
    before(call)
    try:
        ask(
            "POST",
            "act",
            key=call.provider_key,
            reference=call.key,
            timeout=call.timeout_seconds,
            declined=behaviour(call) == "decline",
        )
    except Refused:
        raise Declined(told_of(call, "declined")) from None
    after(call)
    return output_of(call)


def _undo(call: ExternalCall, output: Any) -> None:
    told = "" if sees_the_same(call, output) else "-with-other-outputs"
    ask("POST", "undo", key=f"{call.provider_key}{told}", reference=call.key, timeout=call.timeout_seconds)


act_asked = external_step(verify=find)(_act)
act_keyed = external_step(_act)
undo_asked = external_compensation(of=act_asked, verify_undo=find_undo)(_undo)
undo_keyed = external_compensation(of=act_keyed)(_undo)


def find_job(call: CallbackCall) -> Verdict:
    """Query the outcome of a job, and the provider's own id of it."""
    found = _asked(call)
    match found["state"]:
        case "done":
            return Applied(output=output_of(call), job_id=found["id"])
        case "in work":
            return Pending(job_id=found["id"])
        case "unknown":
            return Unknown(reason=told_of(call, "the books are closed"))
        case _:
            return NotApplied()


@callback_step(verify=find_job)
def begin(call: CallbackCall) -> Accepted | None:
    """Hand the job over, or announce that something is waited for."""
    before(call)
    word, _, size = behaviour(call).partition(" ")
    try:
        found = ask(
            "POST",
            "begin",
            key=call.provider_key,
            reference=call.job_id,
            timeout=call.timeout_seconds,
            declined=word == "decline",
            large=size if word == "large" else "",
        )
    except Refused as refused:
        raise Declined(told_of(call, "declined"), job_id=refused.job_id) from None
    after(call)
    return Accepted(job_id=found["id"]) if found["id"] is not None else None


@external_compensation(of=begin, verify_undo=find_undo)
def cancel(call: ExternalCall, output: Any) -> None:
    """Undo the job."""
    _undo(call, output)
