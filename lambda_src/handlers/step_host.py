"""Runs functions of any language as an external step: the host keeps the saga log, the functions do the work.

A function is called with one JSON object::

    {"action": "apply", "saga_id": "...", "step": "Charge", "key": "...", "provider_key": "...",
     "request": {...}, "outputs": {...}, "item": ..., "timeout_seconds": 8.2, "output": {...}}

``action`` is ``apply``, ``verify``, ``undo`` or ``verify_undo``; ``item`` is null outside a map; ``output`` is what the
step recorded, for ``undo`` and ``verify_undo`` only. What a function answers:

* ``{"output": {...}}``: done;
* ``{"error": {"name": "CardStolen", "message": "..."}}``: a clear refusal, ``Declined`` or a name that the step
  declares;
* to ``verify`` and ``verify_undo``: ``{"verdict": "applied", "output": {...}}``, or a verdict of ``not_applied``,
  ``pending`` or ``unknown``, with a ``reason`` if it likes.

Everything else, a crash and a timeout included, leaves the outcome in doubt.

A function may outlive the host that called it: Lambda does not stop it when its caller dies. The provider's grace must
be as long as the longest timeout of the functions, and as the host's call and the function's request can travel; then
the host's rules hold for them, too. One call per invocation: the client never sends it again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.errors import PermanentError, ProtocolMismatch, StepInDoubt, TransientError
from saga_runtime.idempotency.identity import canonical_json
from saga_runtime.protocol import Env
from saga_runtime.shared import aws
from saga_runtime.steps.external import external_step
from saga_runtime.steps.external_call import ExternalCall, refusal_named
from saga_runtime.steps.external_compensation import external_compensation
from saga_runtime.steps.verdict import Applied, NotApplied, Pending, Unknown, Verdict

_THROTTLED: Final = "TooManyRequestsException"
_PATIENCE_STEP_MS: Final = 100
"""A client is made per patience; rounded down, invocations share a few."""


def _verify(call: ExternalCall) -> Verdict:
    return _verdict_of(call, _invoke(Env.STEP_HOST_VERIFY, "verify", call))


def _verify_undo(call: ExternalCall, output: Any) -> Verdict:
    return _verdict_of(call, _invoke(Env.STEP_HOST_VERIFY_UNDO, "verify_undo", call, output=output))


@external_step(verify=_verify)
def handler(call: ExternalCall) -> Mapping[str, Any]:
    """The step: calls the function that ``CDK_SAGAS_HOST_APPLY`` names."""
    return _output_of(call, _invoke(Env.STEP_HOST_APPLY, "apply", call))


@external_compensation(of=handler, verify_undo=_verify_undo)
def undo_handler(call: ExternalCall, output: Any) -> None:
    """The compensation: calls the function that ``CDK_SAGAS_HOST_UNDO`` names."""
    _output_of(call, _invoke(Env.STEP_HOST_UNDO, "undo", call, output=output))


def _invoke(target: Env, action: str, call: ExternalCall, **more: Any) -> Mapping[str, Any]:
    arn = os.environ.get(target)
    if not arn:
        raise ProtocolMismatch(
            f"step {call.step} was called to {action}, and {target} names no function; give the step host one, or "
            "declare the provider without it"
        )
    patience_ms = int(call.timeout_seconds * 1_000) // _PATIENCE_STEP_MS * _PATIENCE_STEP_MS
    client = aws.functions(max(patience_ms, _PATIENCE_STEP_MS))
    try:
        answer = client.invoke(FunctionName=arn, Payload=_payload(action, call, more).encode("utf-8"))
        body = answer["Payload"].read()
    except ClientError as error:
        if aws.error_code(error) == _THROTTLED:
            raise TransientError(f"the function of step {call.step} was throttled; it did not run") from error
        raise
    except (BotoCoreError, OSError) as error:
        raise StepInDoubt(f"the function of step {call.step} did not answer to {action}") from error
    if answer.get("FunctionError"):
        # Its error contains a trace, and stays in its own log.
        raise StepInDoubt(f"the function of step {call.step} broke off while it was to {action}")
    return _document(call, action, body)


def _payload(action: str, call: ExternalCall, more: Mapping[str, Any]) -> str:
    members = {
        "action": action,
        "saga_id": call.saga_id,
        "step": call.step,
        "key": call.key,
        "provider_key": call.provider_key,
        "timeout_seconds": round(call.timeout_seconds, 3),
        "outputs": dict(call.outputs),
        **more,
    }
    # Request and item hold exact numbers, which the standard encoder does not know.
    exact = f'"request":{canonical_json(call.request)},"item":{canonical_json(call.item)}'
    return f"{json.dumps(members, ensure_ascii=False)[:-1]},{exact}}}"


def _document(call: ExternalCall, action: str, body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, Mapping):
        raise StepInDoubt(f"the function of step {call.step} answered to {action} with no JSON object")
    return document


def _output_of(call: ExternalCall, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    if "error" in answer:
        raise _refusal_of(call, answer["error"])
    output = answer.get("output")
    if not isinstance(output, Mapping):
        raise StepInDoubt(f"the function of step {call.step} answered with neither an output nor an error")
    return output


def _refusal_of(call: ExternalCall, error: Any) -> PermanentError | StepInDoubt:
    name, message = (error.get("name"), error.get("message")) if isinstance(error, Mapping) else (None, None)
    if not isinstance(name, str) or not name.strip():
        return StepInDoubt(f"the function of step {call.step} refused without a name")
    return refusal_named(name, message if isinstance(message, str) and message.strip() else "refused")


def _verdict_of(call: ExternalCall, answer: Mapping[str, Any]) -> Verdict:
    match answer.get("verdict"):
        case "applied":
            output = answer.get("output") or {}
            if isinstance(output, Mapping):
                return Applied(output=output)
        case "not_applied":
            return NotApplied()
        case "pending":
            return Pending()
        case "unknown":
            return Unknown(reason=str(answer.get("reason") or ""))
    raise StepInDoubt(
        f"the function of step {call.step} gave no verdict; answer applied (with the output), not_applied, pending or "
        "unknown"
    )
