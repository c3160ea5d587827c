"""AWS inside botocore: canned answers, so that a benchmark measures the caller and nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict

_YEAR_2100 = 4_102_444_800


class _Raw:
    """A response's body, as urllib3 would stream it."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self) -> list[bytes]:
        """The whole body at once."""
        return [self._content]


@dataclass(slots=True)
class AwsStub:
    """Responses of the stub: puts succeed, or find a settled record.

    Attributes:
        known: whether each key is known and settled.
        calls: operations, in order.
    """

    known: bool = False
    calls: list[str] = field(default_factory=list)
    _refusals: dict[bool, bytes] = field(default_factory=dict)
    _cancelled: bytes = b""

    def answer(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        """Answer one request, before it is sent."""
        target = request.headers["X-Amz-Target"]
        operation = (target.decode() if isinstance(target, bytes) else str(target)).rpartition(".")[2]
        self.calls.append(operation)
        if operation == "PutItem" and self.known:
            return response(400, self._refusal(_bytes(request.body)))
        if operation == "TransactWriteItems" and self.known:
            return response(400, self._cancellation(_bytes(request.body)))
        if operation == "StartExecution":
            return response(200, b'{"executionArn": "arn", "startDate": 1.0}')
        return response(200, b"{}")

    def _refusal(self, body: bytes) -> bytes:
        """Return the record that refuses the put: the contents of the first put of its kind, settled.

        Made once: the server's time must not be added to the caller's.
        """
        saga = b'"saga_id"' in body
        if saga not in self._refusals:
            sent = json.loads(body)["Item"]
            item = {name: value for name, value in sent.items() if name not in {"due_at", "due_shard"}}
            settled = (
                {"status": {"S": "COMPLETED"}, "http_status": {"N": "200"}, "body": {"S": '{"ok":true}'}}
                if saga
                else {"status": {"S": "COMPLETED"}, "data": {"S": '{"statusCode": 202}'}}
            )
            document = {
                "__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",
                "message": "The conditional request failed",
                "Item": {**item, **settled, "expiration": {"N": str(_YEAR_2100)}},
            }
            self._refusals[saga] = json.dumps(document).encode("utf-8")
        return self._refusals[saga]

    def _cancellation(self, body: bytes) -> bytes:
        """The cancellation of a transaction whose first put meets the record. Made once, as above."""
        if not self._cancelled:
            first, *others = json.loads(body)["TransactItems"]
            record = {**first["Put"]["Item"], "expiration": {"N": str(_YEAR_2100)}}
            record |= {"owner": {"S": "another invocation"}, "response_expires_at": {"N": str(_YEAR_2100)}}
            document = {
                "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
                "message": "Transaction cancelled",
                "CancellationReasons": [
                    {"Code": "ConditionalCheckFailed", "Item": record},
                    *({"Code": "None"} for _ in others),
                ],
            }
            self._cancelled = json.dumps(document).encode("utf-8")
        return self._cancelled

    def put_before(self, *clients: Any) -> None:
        """Answer what these clients send."""
        for client in clients:
            client.meta.events.register("before-send", self.answer)


def response(status: int, content: bytes) -> AWSResponse:
    """An answer of a JSON-speaking service."""
    headers: Any = HeadersDict({"Content-Type": "application/x-amz-json-1.0", "x-amzn-RequestId": "stub"})
    return AWSResponse("https://stub.invalid/", status, headers, _Raw(content))


def _bytes(body: object) -> bytes:
    return body if isinstance(body, bytes) else str(body).encode("utf-8")
