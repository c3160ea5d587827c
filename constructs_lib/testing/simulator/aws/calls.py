"""Every call of AWS: scheduling point, fault, permission, service; and the SDK around it.

A caller waits while its request travels; others continue meanwhile. The request of a sender that dies may still arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias
from unittest import mock

from botocore.client import BaseClient
from botocore.exceptions import ConnectionClosedError, ParamValidationError, ReadTimeoutError
from botocore.validate import ParamValidator
from greenlet import getcurrent

from constructs_lib.testing.simulator.aws.demands import demands_of
from constructs_lib.testing.simulator.aws.dynamodb import DynamoDB, Later
from constructs_lib.testing.simulator.aws.roles import Demand, Roles
from constructs_lib.testing.simulator.checks.findings import Findings
from constructs_lib.testing.simulator.checks.trace import Trace
from constructs_lib.testing.simulator.engine.actors import Actor, Request
from constructs_lib.testing.simulator.engine.kernel import MILLISECOND, SECOND, Elapsed, Future, Kernel, Task
from constructs_lib.testing.simulator.errors import NotSimulatedError, ServiceError
from constructs_lib.testing.simulator.faults.climate import Trouble
from constructs_lib.testing.simulator.faults.weather import Weather

_RETRIED_CODES: Final = frozenset(
    {
        "BandwidthLimitExceeded",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "RequestTimeout",
        "RequestTimeoutException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionInProgressException",
    }
)
"""Errors that an SDK retries (botocore's standard mode)."""
_THROTTLES: Final = {
    "dynamodb": "ThrottlingException",
    "lambda": "TooManyRequestsException",
    "sqs": "RequestThrottled",
    "s3": "SlowDown",
}
_WRITES: Final = frozenset({"PutItem", "UpdateItem", "DeleteItem"})
_TRANSACTIONS: Final = frozenset({"TransactWriteItems", "TransactGetItems"})
_MOST_BACKOFF: Final = 20 * SECOND
_DEFAULT_ATTEMPTS: Final = {"dynamodb": 10}
_LEGACY_ATTEMPTS: Final = 5
_RETRIES_TRANSACTION: Final = "ClientRequestToken"


Answer: TypeAlias = dict[str, Any] | Later | Future[dict[str, Any]]
"""An answer that exists, one that exists after some time, or one that comes when another actor has ended."""


class Service(Protocol):
    """A simulated service."""

    def call(self, operation: str, params: Mapping[str, Any], actor: Actor | None) -> Answer:
        """Do what a request asks for; raises ServiceError where it refuses."""


class LostError(Exception):
    """No answer came: the connection broke, or it took too long.

    Attributes:
        late: whether the caller waited for as long as it was ready to.
    """

    def __init__(self, *, late: bool) -> None:
        super().__init__("no answer")
        self.late = late


class Calls:
    """Makes calls.

    Args:
        kernel: keeps the time.
        weather: what goes wrong.
        roles: who may do what.
        trace: hears of each call.
        findings: hears of each call that its role may not make.

    Attributes:
        services: by boto3's name.
        scheduled_writes: how many writes were those of functions that a schedule began.
        heard: called with each request that its sender may make, when it is at its service.
    """

    def __init__(self, kernel: Kernel, weather: Weather, roles: Roles, trace: Trace, findings: Findings) -> None:
        self.services: dict[str, Service] = {}
        self.scheduled_writes = 0
        self.heard: Callable[[Actor, Request], None] = lambda _actor, _request: None
        self._allowed: set[tuple[Any, ...]] = set()
        self._kernel = kernel
        self._weather = weather
        self._roles = roles
        self._former: list[Roles] = []
        self._trace = trace
        self._findings = findings

    @contextmanager
    def intercepted(self) -> Iterator[None]:
        """Let every boto3 client of this process call the simulated services, until the context ends."""

        def make_api_call(client: Any, operation: str, params: Any) -> Any:
            return self._by_sdk(client, operation, params)

        with mock.patch.object(BaseClient, "_make_api_call", make_api_call):
            yield

    def direct(
        self, service: str, operation: str, params: Mapping[str, Any], actor: Actor | None = None
    ) -> dict[str, Any]:
        """Make a call at once, without faults: as the one who prepares or audits a run, or as a service.

        Raises:
            ServiceError: as the service refuses it.
        """
        answer = self._service(service).call(operation, params, actor)
        if isinstance(answer, Future):
            raise NotSimulatedError(f"{service}:{operation} takes time; only a task can wait for it")
        return answer.finish() if isinstance(answer, Later) else answer

    def by_machine(self, actor: Actor, request: Request, patience: int) -> dict[str, Any]:
        """Make a call as a state machine's integration: once, without an SDK.

        Args:
            actor: the execution.
            request: the call.
            patience: microseconds after which its state has timed out.

        Raises:
            ServiceError: as the service refuses it.
            LostError: if no answer came.
        """
        return self._attempt(actor, request, patience)

    def check(self, actor: Actor, request: Request) -> None:
        """Refuse a call that the actor's role may not make.

        Raises:
            ServiceError: AccessDeniedException.
        """
        if actor.role is not None:
            self._check_role(actor, actor.role, request)

    def may(self, actor: Actor | None, demand: Demand) -> bool:
        """Test whether a role allows something on which an answer depends; who has no role may do everything."""
        return actor is None or actor.role is None or self._roles.allows(actor.role, demand)

    def needs(self, who: str, role: str, demand: Demand) -> bool:
        """Test whether a service may do something with a role of the stack; otherwise that is a finding."""
        allowed = self._roles.allows(role, demand)
        if not allowed:
            self._findings.add(
                "permission", f"{who} needs {demand.action} on {demand.resource}, which its role {role} does not allow"
            )
        return allowed

    def uses(self, role: str, demands: Iterable[Demand]) -> None:
        """Let a service do with a role of the stack what it may, and leave the rest."""
        for demand in demands:
            self._roles.allows(role, demand)

    def abandon(self, actor: Actor) -> None:
        """The sender of a request died while it travelled: it may arrive all the same."""
        request, actor.travelling = actor.travelling, None
        if request is not None and self._weather.share() < 0.5:
            self._arrive_later(actor, request)

    # --- As an SDK

    def _by_sdk(self, client: Any, operation: str, params: Any) -> Any:
        traits: _Traits = client.__dict__.get(_TRAITS) or _traits_of(client)
        service = traits.service
        current = getcurrent()
        actor = current.process if isinstance(current, Task) else None
        sent = _translated(client, operation, params) if traits.of_resource else dict(params)
        if service != "dynamodb":  # which checks every member itself
            _validate(client, operation, sent)
        if not isinstance(actor, Actor):
            try:
                return _answered(client, operation, self.direct(service, operation, sent), 0)
            except ServiceError as error:
                raise _client_error(client, operation, error, 0) from None
        if operation == "TransactWriteItems" and _RETRIES_TRANSACTION not in sent:
            sent[_RETRIES_TRANSACTION] = _uuid(self._kernel.entropy.randbytes(16).hex())
        request = Request(service, operation, sent)
        attempts = traits.attempts
        for attempt in range(1, attempts + 1):
            try:
                answer = self._attempt(actor, request, traits.patience)
                return _answered(client, operation, answer, attempt - 1)
            except ServiceError as error:
                retried = error.code in _RETRIED_CODES or error.status >= 500
                if not retried or attempt == attempts:
                    raise _client_error(client, operation, error, attempt - 1) from None
            except LostError as error:
                if attempt == attempts:
                    lost = ReadTimeoutError if error.late else ConnectionClosedError
                    raise lost(endpoint_url=f"https://{service}.simulated") from None
            except NotSimulatedError as error:
                self._kernel.refuse(error)  # the function may handle every exception
                raise
            most = min(_MOST_BACKOFF, SECOND * 2 ** (attempt - 1))
            self._kernel.sleep(int(self._weather.share() * most))
        raise AssertionError("an SDK tries at least once")

    # --- One request

    def _attempt(self, actor: Actor, request: Request, patience: int) -> dict[str, Any]:
        weather = self._weather
        trouble = weather.trouble(actor, request.service, request.operation)
        if trouble is not None:
            return self._troubled(actor, request, trouble, patience)
        travels = weather.latency()
        if travels > patience:
            self._trace.call(actor, request, "travels on after its sender's timeout")
            self._arrive_later(actor, request)
            self._kernel.sleep(patience)
            raise LostError(late=True)
        actor.travelling, actor.sent = request, self._kernel.now
        self._kernel.sleep(travels)
        actor.travelling = None
        return self._arrived(actor, request, patience)

    def _troubled(self, actor: Actor, request: Request, trouble: Trouble, patience: int) -> dict[str, Any]:
        kernel, weather = self._kernel, self._weather
        if trouble is Trouble.HOLD:
            self._trace.call(actor, request, "is held")
            kernel.sleep(weather.long())
            actor.sent = kernel.now
            return self._arrived(actor, request, patience)
        actor.sent = kernel.now
        kernel.sleep(weather.latency())
        match trouble:
            case Trouble.KILL_BEFORE:
                self._trace.call(actor, request, "dies before it")
                actor.kill()
            case Trouble.LOSE_REQUEST:
                self._trace.call(actor, request, "request lost")
                raise LostError(late=False)
            case Trouble.THROTTLE:
                self._trace.call(actor, request, "throttled")
                raise self._throttled(request)
            case Trouble.ERROR_BEFORE:
                self._trace.call(actor, request, "service fails before it")
                raise ServiceError("InternalServerError", "Internal server error", status=500)
            case Trouble.CONFLICT:
                self._trace.call(actor, request, "meets another transaction")
                raise self._conflict(request)
            case Trouble.LATE_REQUEST:
                self._trace.call(actor, request, "travels on after its sender's timeout")
                self._arrive_later(actor, request)
                kernel.sleep(patience)
                raise LostError(late=True)
        try:
            self._arrived(actor, request, patience)
        except ServiceError:
            if trouble is not Trouble.KILL_AFTER and trouble is not Trouble.LOSE_ANSWER:
                raise
        if trouble is Trouble.KILL_AFTER:
            self._trace.call(actor, request, "dies after it")
            actor.kill()
        if trouble is Trouble.LOSE_ANSWER:
            self._trace.call(actor, request, "answer lost")
            raise LostError(late=False)
        self._trace.call(actor, request, "service fails after it")
        raise ServiceError("InternalServerError", "Internal server error", status=500)

    def _arrive_later(self, actor: Actor, request: Request) -> None:
        """Let a request arrive whose sender no longer waits."""

        def arrive() -> None:
            try:
                answer = self._execute(actor, request)
            except ServiceError as error:
                self._trace.call(actor, request, f"arrives late: {error.code}")
                return
            if isinstance(answer, Later):
                self._kernel.after(answer.delay, lambda: void(answer.finish()))
            self._trace.call(actor, request, "arrives late")

        self._kernel.after(self._weather.travel(), arrive)

    def _arrived(self, actor: Actor, request: Request, patience: int) -> dict[str, Any]:
        """A request is at its service while its sender waits."""
        try:
            answer = self._execute(actor, request)
        except ServiceError as error:
            self._trace.call(actor, request, error.code)
            raise
        if isinstance(answer, Future):
            return self._awaited(actor, request, answer, patience)
        if not isinstance(answer, Later):
            self._trace.call(actor, request, "")
            return answer
        finished: list[dict[str, Any]] = []
        self._kernel.after(answer.delay, lambda: finished.append(answer.finish()))
        self._kernel.sleep(answer.delay + MILLISECOND)
        self._trace.call(actor, request, "")
        return finished[0]

    def _awaited(self, actor: Actor, request: Request, answer: Future[dict[str, Any]], patience: int) -> dict[str, Any]:
        """Wait for an answer that takes its time."""
        self._trace.call(actor, request, "waits")
        try:
            return answer.wait(patience)
        except Elapsed:
            self._trace.call(actor, request, "no answer in time")
            raise LostError(late=True) from None

    def _execute(self, actor: Actor, request: Request) -> Answer:
        service = self._service(request.service)
        self.check(actor, request)
        if actor.scheduled and request.operation in _WRITES:
            self.scheduled_writes += 1
        self.heard(actor, request)
        return service.call(request.operation, request.params, actor)

    def change(self, roles: Roles) -> None:
        """Replace the policies: what only the former ones allowed is refused, without a finding."""
        self._former.append(self._roles)
        self._roles = roles
        self._allowed.clear()

    def _check_role(self, actor: Actor, role: str, request: Request) -> None:
        params = request.params
        simple = (role, request.operation, params.get("TableName"), params.get("IndexName"))
        if simple in self._allowed:
            return
        wanted = self._roles.keys(role)
        for demand in demands_of(request.service, request.operation, request.params, self._partition_key, wanted):
            if not self._roles.allows(role, demand):
                if not any(former.allows(role, demand) for former in self._former):
                    self._findings.add(
                        "permission",
                        f"{actor.of} makes {demand.action} on {demand.resource}, which its role {role} does not allow",
                    )
                raise ServiceError(
                    "AccessDeniedException",
                    f"User: {role} is not authorized to perform: {demand.action} on resource: {demand.resource}",
                )
        if simple[2] is not None and not wanted:
            self._allowed.add(simple)

    def _partition_key(self, table: str) -> str:
        dynamodb = self.services["dynamodb"]
        return dynamodb.db.table(table).schema.names[0] if isinstance(dynamodb, DynamoService) else ""

    def _service(self, name: str) -> Service:
        found = self.services.get(name)
        if found is None:
            raise NotSimulatedError(f"the service {name} is not simulated")
        return found

    def _throttled(self, request: Request) -> ServiceError:
        """The error of a call for which a service has no room; DynamoDB has it for an account, a table or an item."""
        if request.service != "dynamodb" or self._weather.share() < 0.5:
            return ServiceError(_THROTTLES.get(request.service, "ThrottlingException"), "Rate exceeded")
        told = "The level of configured provisioned throughput for the table was exceeded"
        if request.operation not in _TRANSACTIONS:
            return ServiceError("ProvisionedThroughputExceededException", told)
        code = self._weather.share()
        return self._refused_at(request, "ThrottlingError" if code < 0.5 else "ProvisionedThroughputExceeded", told)

    def _conflict(self, request: Request) -> ServiceError:
        told = "Transaction is ongoing for the item"
        if request.operation not in _TRANSACTIONS:
            return ServiceError("TransactionConflictException", told)
        return self._refused_at(request, "TransactionConflict", told)

    def _refused_at(self, request: Request, code: str, message: str) -> ServiceError:
        """The error of a transaction for one of its items."""
        from constructs_lib.testing.simulator.aws.dynamodb.transactions import refused_at

        position = int(self._weather.share() * len(request.params["TransactItems"]))
        return refused_at(request.params, position, code, message)


class DynamoService:
    """DynamoDB as a service of a run."""

    def __init__(self, db: DynamoDB) -> None:
        self.db = db

    def call(self, operation: str, params: Mapping[str, Any], actor: Actor | None) -> dict[str, Any] | Later:
        """Do what a request asks for."""
        return self.db.call(operation, params, None if actor is None else actor.sent)


def void(_result: object) -> None:
    """Let a result be."""


_TRAITS: Final = "_simulated_traits"


@dataclass(frozen=True, slots=True)
class _Traits:
    """Values that the simulator reads of a client, once.

    Attributes:
        service: boto3's name of its service.
        of_resource: whether a resource of boto3 translates the values of its calls.
        attempts: how often it sends a call at most.
        patience: microseconds for which it waits for an answer.
    """

    service: str
    of_resource: bool
    attempts: int
    patience: int


def _traits_of(client: Any) -> _Traits:
    service = str(client.meta.service_model.service_name)
    found = _Traits(
        service,
        service == "dynamodb" and _is_of_resource(client),
        _attempts(client, service),
        int(client.meta.config.read_timeout * SECOND),
    )
    client.__dict__[_TRAITS] = found
    return found


def _translated(client: Any, operation: str, params: Any) -> dict[str, Any]:
    """Parameters as they travel: resources of boto3 change them in hooks of their client."""
    model = client.meta.service_model.operation_model(operation)
    # Botocore has no public way.
    return dict(client._emit_api_params(api_params=dict(params), operation_model=model, context={}))  # noqa: SLF001


def _is_of_resource(client: Any) -> bool:
    """True if a resource puts its own translation of values in front of every call."""
    found = client.meta.events._emitter  # noqa: SLF001 - botocore has no other way to ask
    # Botocore has no public way.
    handlers = found._handlers.prefix_search("before-parameter-build.dynamodb")  # noqa: SLF001
    return any(
        "TransformationInjector" in repr(handler) or "copy_dynamodb_params" in repr(handler) for handler in handlers
    )


def _validate(client: Any, operation: str, params: Mapping[str, Any]) -> None:
    """Refuse parameters that the operation does not have, that have another type, or that are missing, as an SDK does.

    Raises:
        ParamValidationError: naming them.
    """
    shape = client.meta.service_model.operation_model(operation).input_shape
    report = _VALIDATOR.validate(params, shape)
    if report.has_errors():
        raise ParamValidationError(report=report.generate_report())


_VALIDATOR: Final = ParamValidator()


def _uuid(drawn: str) -> str:
    """Spell a random UUID (version 4) of 32 hexadecimal digits."""
    return f"{drawn[:8]}-{drawn[8:12]}-4{drawn[13:16]}-{'89ab'[int(drawn[16], 16) & 3]}{drawn[17:20]}-{drawn[20:]}"


def _answered(client: Any, operation: str, answer: dict[str, Any], retries: int) -> dict[str, Any]:
    answer["ResponseMetadata"] = {
        "RequestId": "00000000-0000-4000-8000-000000000000",
        "HTTPStatusCode": 200,
        "HTTPHeaders": {},
        "RetryAttempts": retries,
    }
    if client.__dict__[_TRAITS].of_resource:
        model = client.meta.service_model.operation_model(operation)
        client.meta.events.emit(
            f"after-call.dynamodb.{operation}", http_response=None, parsed=answer, model=model, context={}
        )
    return answer


def _client_error(client: Any, operation: str, error: ServiceError, retries: int) -> Exception:
    parsed = {
        "Error": {"Code": error.code, "Message": error.message},
        "ResponseMetadata": {
            "RequestId": "00000000-0000-4000-8000-000000000000",
            "HTTPStatusCode": error.status,
            "HTTPHeaders": {},
            "RetryAttempts": retries,
        },
        "message": error.message,
        **error.members,
    }
    made: Exception = client.exceptions.from_code(error.code)(parsed, operation)
    return made


def _attempts(client: Any, service: str) -> int:
    """Count the attempts that a client makes at most."""
    retries = client.meta.config.retries or {}
    if "total_max_attempts" in retries:
        return int(retries["total_max_attempts"])
    if "max_attempts" in retries:
        return int(retries["max_attempts"]) + 1
    return 3 if retries.get("mode") in ("standard", "adaptive") else _DEFAULT_ATTEMPTS.get(service, _LEGACY_ATTEMPTS)
