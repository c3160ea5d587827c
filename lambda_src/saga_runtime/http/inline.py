"""Beginning a saga in its Express machine.

An Express execution may be started twice, or alongside the Standard one: rows and record decide. None is started again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from saga_runtime.idempotency.record import AttributeMap
from saga_runtime.protocol import SAGA_DELEGATED, Metric
from saga_runtime.shared import aws, telemetry

_NOT_SENT: Final = (ConnectTimeoutError, EndpointConnectionError, NoCredentialsError)
"""Errors of a call that did not leave. Of an earlier try that did, the Standard execution may run alongside."""
_MARGIN_MS: Final = 3_000
"""Left to the invocation after a synchronous execution: for its response, or for one more call."""


@dataclass(frozen=True, slots=True)
class Begun:
    """Outcome of a start.

    Attributes:
        started: False: Step Functions certainly started nothing.
        settled: attributes of the settled record; None: not settled, or not known to be.
    """

    started: bool
    settled: AttributeMap | None = None


def begin(express_machine_arn: str, saga_id: str, start_input: str) -> Begun:
    """Start an asynchronous Express execution."""
    try:
        aws.step_functions().start_execution(stateMachineArn=express_machine_arn, name=saga_id, input=start_input)
    except (ClientError, BotoCoreError) as error:
        return _not_begun(error, saga_id)
    return Begun(started=True)


def run(express_machine_arn: str, saga_id: str, start_input: str, *, seconds: int, remaining_ms: int) -> Begun:
    """Run a synchronous Express execution, and wait for it for so many seconds, as far as the invocation has them.

    With less than a second for it, an asynchronous execution is started.
    """
    patience = min(seconds, (remaining_ms - _MARGIN_MS) // 1_000)
    if patience < 1:
        return begin(express_machine_arn, saga_id, start_input)
    try:
        ended: Mapping[str, Any] = aws.step_functions_for(patience).start_sync_execution(
            stateMachineArn=express_machine_arn, name=saga_id, input=start_input
        )
    except ReadTimeoutError:
        return Begun(started=True)  # it runs on; if the call was lost, the saga is found due
    except (ClientError, BotoCoreError) as error:
        return _not_begun(error, saga_id)
    if ended["status"] == "SUCCEEDED":
        telemetry.count(Metric.INLINE_SETTLED, saga_id=saga_id)
        return Begun(started=True, settled=json.loads(ended["output"])["record"])
    telemetry.count(Metric.INLINE_DELEGATED, reason=_reason(ended))
    telemetry.event("inline_not_settled", saga_id=saga_id, error=ended.get("error"), cause=ended.get("cause"))
    return Begun(started=True)


def _reason(ended: Mapping[str, Any]) -> str:
    """Name of the error for which an execution did not settle its saga; of one that ran out of time, its status."""
    if ended.get("error") != SAGA_DELEGATED:
        return str(ended.get("error") or ended["status"])
    return str(json.loads(ended["cause"]).get("error", SAGA_DELEGATED))


def _not_begun(error: ClientError | BotoCoreError, saga_id: str) -> Begun:
    """A refusal started nothing; anything else may have, and the saga is found due if it did not."""
    status = error.response["ResponseMetadata"]["HTTPStatusCode"] if isinstance(error, ClientError) else 500
    started = status >= 500 and not isinstance(error, _NOT_SENT)
    fields = {"saga_id": saga_id, "error": type(error).__name__, "code": aws.error_code(error)}
    if started:
        telemetry.count(Metric.START_FAILED)
        telemetry.event("inline_unclear", **fields)
    else:
        telemetry.count(Metric.INLINE_NOT_STARTED)
        telemetry.event("inline_not_started", **fields)
    return Begun(started=started)
