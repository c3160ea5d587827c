"""Does what operators ask for with ``cdk-sagas``, in the name of the caller that AWS identifies."""

from __future__ import annotations

from typing import Any

from saga_runtime.recovery.callers import caller_of
from saga_runtime.recovery.operators import Operators
from saga_runtime.recovery.resolution import CannotResolve
from saga_runtime.shared import aws, telemetry


def handler(event: Any, context: Any) -> dict[str, Any]:
    """Execute one request (``request``, text) of the caller that signed ``proof``.

    Returns:
        What was done, or ``refused`` with the reason, or ``unknown``.
    """
    aws.check_protocol()
    try:
        request = event.get("request") if isinstance(event, dict) else None
        if not isinstance(request, str) or not request.isascii():
            return {"refused": "an event must have a request, as ASCII text; use the command cdk-sagas"}
        try:
            # Without the version or the alias by which it is invoked.
            function = ":".join(context.invoked_function_arn.split(":")[:7])
            caller = caller_of(event.get("proof"), function, request)
        except CannotResolve as refusal:
            telemetry.event("operator_refused", reason=str(refusal))
            return {"refused": str(refusal)}
        return Operators.from_env().answer(request, caller)
    finally:
        telemetry.flush()
