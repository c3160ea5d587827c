"""Responses of a service that a fault makes refuse or fail: each in its own protocol, so that SDKs understand it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from xml.sax.saxutils import escape

from constructs_lib.testing.fault_plan import Action, Fault

_RATE: Final = "Rate exceeded"
_INTERNAL: Final = "The request processing has failed because of an unknown error, exception or failure."

#: Name and HTTP status of each service's throttling error; `ThrottlingException` where none is listed.
_THROTTLES: Final[Mapping[str, tuple[str, int]]] = {
    "dynamodb": ("ProvisionedThroughputExceededException", 400),
    "kinesis": ("ProvisionedThroughputExceededException", 400),
    "lambda": ("TooManyRequestsException", 429),
    "s3": ("SlowDown", 503),
    "sns": ("Throttling", 400),
    "sqs": ("RequestThrottled", 403),
    "sts": ("Throttling", 400),
}
_FAILURES: Final[Mapping[str, str]] = {
    "dynamodb": "InternalServerError",
    "lambda": "ServiceException",
    "s3": "InternalError",
}
#: A shape's namespace, where the service's answers carry one.
_NAMESPACES: Final[Mapping[str, str]] = {
    "dynamodb": "com.amazonaws.dynamodb.v20120810#",
    "sqs": "com.amazonaws.sqs#",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error of a service, before it is put into a protocol.

    Attributes:
        code: Its name.
        message: Its message.
        status: Its HTTP status.
        reasons: The cancellation reasons of a transaction.
    """

    code: str
    message: str
    status: int
    reasons: tuple[dict[str, str], ...] | None = None


def failure_of(fault: Fault, call: str, body: bytes) -> Failure:
    """Return the error with which the service answers a call that is hit by `fault`.

    Args:
        fault: A fault that throttles, conflicts or errs.
        call: Service and operation.
        body: The request.
    """
    service, _, operation = call.partition(":")
    if fault.action == Action.CONFLICT:
        return _conflict(operation, body, fault.items)
    if fault.action == Action.THROTTLE:
        code, status = _THROTTLES.get(service, ("ThrottlingException", 400))
        return Failure(code=code, message=_RATE, status=status)
    return Failure(code=_FAILURES.get(service, "InternalFailure"), message=_INTERNAL, status=500)


def answer(failure: Failure, service: str, *, is_json: bool) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body.

    Args:
        failure: The error.
        service: The service that answers.
        is_json: Whether the request was in a JSON protocol; else XML.
    """
    if not is_json:
        inner = f"<Code>{escape(failure.code)}</Code><Message>{escape(failure.message)}</Message>"
        wrapped = (
            f"<Error>{inner}</Error>"
            if service == "s3"
            else f"<ErrorResponse><Error><Type>Sender</Type>{inner}</Error></ErrorResponse>"
        )
        return failure.status, {"content-type": "text/xml"}, wrapped.encode()
    content: dict[str, Any] = {
        "__type": _NAMESPACES.get(service, "") + failure.code,
        "message": failure.message,
        "Message": failure.message,
    }
    if failure.reasons is not None:
        content["CancellationReasons"] = list(failure.reasons)
    headers = {"content-type": "application/x-amz-json-1.0", "x-amzn-errortype": failure.code}
    if service == "sqs":
        headers["x-amzn-query-error"] = f"{failure.code};Sender"
    return failure.status, headers, json.dumps(content).encode()


def _conflict(operation: str, body: bytes, items: tuple[int, ...] | None) -> Failure:
    ongoing = "Transaction is ongoing for the item"
    if not operation.startswith("Transact"):
        return Failure(code="TransactionConflictException", message=ongoing, status=400)
    count = _transaction_items(body)
    hit = range(count) if items is None else items
    reasons = tuple(
        {"Code": "TransactionConflict", "Message": ongoing} if position in hit else {"Code": "None"}
        for position in range(count)
    )
    codes = ", ".join(reason["Code"] for reason in reasons)
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
    return Failure(code="TransactionCanceledException", message=message, status=400, reasons=reasons)


def _transaction_items(body: bytes) -> int:
    try:
        request = json.loads(body)
    except ValueError:
        return 0
    return len(request.get("TransactItems") or ()) if isinstance(request, dict) else 0
