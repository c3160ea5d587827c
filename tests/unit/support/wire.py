"""The wire between boto3 and the fakes: one call at a time, with faults at chosen calls.

Bare moto is not atomic under threads: more than one conditional put may win. Here every request of every client
passes one lock. Faults strike at the level of a single HTTP request, so that the SDK's own retries are real.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ReadTimeoutError
from moto.core.botocore_stubber import MockRawResponse

SDK_ATTEMPTS = 3
"""How often the runtime's clients send one call; a fault that strikes that often defeats the SDK."""


class Killed(BaseException):
    """The process died here: nothing of the code runs on, ``except Exception`` included."""


class Action(StrEnum):
    """Kinds of faults."""

    KILL = "kill"
    DROP = "drop"
    THROTTLE = "throttle"
    CONFLICT = "conflict"
    DENY = "AccessDeniedException"
    INVALID = "ValidationException"
    MISSING = "ResourceNotFoundException"


class Moment(StrEnum):
    """Time of a fault: before or after the call is applied."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault at the ``on``-th request of an operation from now, and the ``times - 1`` that follow."""

    operation: str
    action: Action
    moment: Moment = Moment.BEFORE
    on: int = 1
    times: int = SDK_ATTEMPTS

    def __str__(self) -> str:
        return f"{self.action} {self.moment} {self.operation} {self.on}"


_JSON: Any = {"Content-Type": "application/x-amz-json-1.0"}
Deliver = Callable[[], AWSResponse | None]
Result = TypeVar("Result")


class Wire:
    """Serializes, records, and disturbs."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.fired: list[Fault] = []
        self._lock = threading.RLock()
        self._seen: Counter[str] = Counter()
        self._plan: list[tuple[Fault, int]] = []

    def plan(self, fault: Fault) -> None:
        """Let a fault strike."""
        with self._lock:
            self._plan.append((fault, self._seen[fault.operation]))

    def disturbs(self, operation: str) -> bool:
        """True if a fault may strike this request of an operation, or a later one."""
        sent = self._seen[operation]
        return any(
            fault.operation == operation and sent - base + 1 < fault.on + fault.times for fault, base in self._plan
        )

    def forget(self) -> None:
        """Forget what was sent and planned."""
        with self._lock:
            self.sent.clear()
            self.fired.clear()
            self._plan.clear()

    def send(self, event_name: str, request: AWSPreparedRequest, deliver: Deliver) -> AWSResponse | None:
        """Deliver one request, or not."""
        operation = event_name.rpartition(".")[2]
        with self._lock:
            self.sent.append(operation)
            self._seen[operation] += 1
            fault = self._due(operation)
            if fault is None:
                return deliver()
            self.fired.append(fault)
            if fault.moment is Moment.AFTER:
                deliver()
            return _strike(fault, request)

    def pass_by(self, operation: str, deliver: Callable[[], Result]) -> Result:
        """Deliver a call that does not go to AWS: recorded and disturbed likewise, but several may be in progress."""
        with self._lock:
            self.sent.append(operation)
            self._seen[operation] += 1
            fault = self._due(operation)
            if fault is not None:
                self.fired.append(fault)
        if fault is None:
            return deliver()
        if fault.moment is Moment.AFTER:
            deliver()
        if fault.action is Action.KILL:
            raise Killed(str(fault))
        raise ConnectionError(str(fault))

    def _due(self, operation: str) -> Fault | None:
        for fault, base in self._plan:
            nth = self._seen[operation] - base
            if fault.operation == operation and fault.on <= nth < fault.on + fault.times:
                return fault
        return None


def before(wire: Wire, operation: str, happens: Callable[[], object], *, on: int = 1) -> None:
    """Call ``happens`` before the n-th request of an operation from now; once."""
    send, seen = wire.send, [0]

    def disturbed(event_name: str, request: Any, deliver: Any) -> Any:
        if event_name.endswith(f".{operation}"):
            seen[0] += 1
            if seen[0] == on:
                setattr(wire, "send", send)  # noqa: B010  # mypy knows it as a method
                meanwhile(happens)
        return send(event_name, request, deliver)

    setattr(wire, "send", disturbed)  # noqa: B010 - mypy refuses to assign to a method


def meanwhile(happens: Callable[[], object]) -> None:
    """Call what another actor does; it is not what the sender of a request does, in whose stack it runs."""
    happens()


def _strike(fault: Fault, request: AWSPreparedRequest) -> AWSResponse:
    match fault.action:
        case Action.KILL:
            raise Killed(str(fault))
        case Action.DROP:
            raise ReadTimeoutError(endpoint_url=request.url)
        case Action.THROTTLE:
            return error_response(request, "ThrottlingException")
        case Action.DENY | Action.INVALID | Action.MISSING:
            return error_response(request, fault.action)
        case Action.CONFLICT:
            if not fault.operation.startswith("Transact"):
                return error_response(request, "TransactionConflictException")
            count = len(body_of(request)["TransactItems"])
            reasons = [{"Code": "TransactionConflict"}, *({"Code": "None"} for _ in range(count - 1))]
            return error_response(request, "TransactionCanceledException", CancellationReasons=reasons)


def body_of(request: AWSPreparedRequest) -> dict[str, Any]:
    """A request's document."""
    body: Any = request.body
    document: dict[str, Any] = json.loads(body)
    return document


def error_response(request: AWSPreparedRequest, code: str, **members: Any) -> AWSResponse:
    """An error of a JSON-speaking service."""
    return response(request, 400, {"__type": code, "message": code, **members})


class Answer(AWSResponse):
    """A success whose document is written out only when its bytes are read.

    Attributes:
        document: what is answered.
    """

    def __init__(self, request: AWSPreparedRequest, document: dict[str, Any]) -> None:
        super().__init__(request.url, 200, _JSON, None)
        self.document = document

    @property
    def content(self) -> bytes:
        """The document as JSON."""
        return json.dumps(self.document).encode()


def response(request: AWSPreparedRequest, status: int, document: dict[str, Any]) -> AWSResponse:
    """An answer of a JSON-speaking service."""
    body: Any = MockRawResponse(json.dumps(document))
    return AWSResponse(request.url, status, _JSON, body)
