"""Operations behind HTTP, and the functions that answer them, whatever kind of API is before them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from constructs_lib.api.body_limits import payload_environment, require_body_limit
from constructs_lib.api.caller_member import caller_environment, require_caller_member
from constructs_lib.api.direct_operation import DirectOperation
from constructs_lib.api.key_sources import key_environment, require_key_members, require_key_policy
from constructs_lib.api.openapi import METADATA_TYPE, Front, openapi_of
from constructs_lib.api.schema_form import require_schema, schema_file
from constructs_lib.api.schema_paths import may_have, may_lead_to
from constructs_lib.functions.function_options import FunctionOptions
from constructs_lib.functions.runtime_function import RuntimeFunction, name_role, own_code
from constructs_lib.functions.snap_start import from_snapshot
from constructs_lib.monitoring.alarms import Runbook, SagaAlarm, counted_alarm, runtime_metric
from constructs_lib.rest.problem_documents import require_docs_url
from constructs_lib.saga.state_machine import SagaStateMachine
from constructs_lib.saga.synthesis.begin import begin_environment
from constructs_lib.shared.accepted import AnyFunction
from constructs_lib.shared.arguments import require_match, require_seconds, require_unique
from constructs_lib.shared.manifest import Manifest
from constructs_lib.shared.manifest_format import Part
from constructs_lib.shared.service_names import service_of
from constructs_lib.shared.stacks import depend_on, require_same_place
from constructs_lib.shared.types import check_fields
from constructs_lib.tables.beginnings import require_one_beginning
from constructs_lib.tables.money_field import MoneyField
from saga_runtime.http.key_source import KeySource
from saga_runtime.idempotency.amounts import tokens_of
from saga_runtime.protocol import (
    OPERATION_PATTERN,
    Env,
    InProgressResponse,
    KeyPolicy,
    Metric,
)

_HANDLER: Final = "handlers.gatekeeper.handler"
_TIMEOUT: Final = Duration.seconds(20)
_LONGEST_TIMEOUT: Final = Duration.seconds(28)
"""API Gateway gives up after 29 s."""
_LONGEST_WAIT_SECONDS: Final = 20
_IDENTITY: Final = r"^(iam|jwt|context:[A-Za-z0-9_.-]{1,64})$"
_ORIGIN: Final = r"^(\*|https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?)$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of the API: ``POST /{name}`` and ``GET /{name}/{saga_id}``.

    Attributes:
        saga: what a request starts.
        schema: JSON schema (draft 7) of a new request's body. A request that was recorded under an earlier schema is
            answered as a duplicate. With ``additionalProperties: false`` a typo in an expression over ``$request`` ends
            the synth.
        key_policy: ``REQUIRED`` (default): a request without ``Idempotency-Key`` is refused. ``OPTIONAL``: it gets a
            generated key, and the metric ``IdempotencyKeyMissing`` counts it; repeating it makes a new request.
        key_source: where a request has its key: ``KeySource.header()`` (default), ``body("/idempotencyKey")``,
            ``natural("/order_id")`` or ``composite("/order_id")``. Requests under natural keys need no header: the same
            id is the same request, and with other content 422.
        caller_member: name of a member, e.g. ``"customer_id"``, that the gatekeeper adds to each request: the caller's
            identity, as the authorizer proved it. Steps and expressions read it in ``request``. A body that has
            such a member itself is refused. None by default: the request is the body.
        in_progress_response: what a duplicate gets while its saga runs: ``CONFLICT`` (409, default) or ``ACCEPTED``
            (202 with the status).
        max_body_bytes: largest body of a new request; 1 to 65,536 bytes, 32,768 by default. Larger ones are refused
            with 413. Up to 3,000,000 bytes if the saga has ``payloads`` and no expression of its steps reads
            ``$request``: a larger body travels by reference, and an expression would find nothing in it.
        max_wait: longest time for which a request with ``Prefer: wait=N`` (RFC 7240) waits for its saga's response; 1 s
            to 20 s in whole seconds. Then 202, as without it. Nothing by default: the header is ignored. A request that
            waits occupies one concurrent execution of the gatekeeper.
        money: where the body has the amount; a ``TimeoutReconciler`` sums what is in flight. Nothing
            by default. No request is refused for it.
    """

    saga: SagaStateMachine
    schema: Mapping[str, Any] | None = None
    key_policy: KeyPolicy = KeyPolicy.REQUIRED
    key_source: KeySource = KeySource.header()  # noqa: RUF009  # immutable
    caller_member: str | None = None
    in_progress_response: InProgressResponse = InProgressResponse.CONFLICT
    max_body_bytes: int = 32_768
    max_wait: Duration | None = None
    money: MoneyField | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        require_key_policy(self.key_source, self.key_policy)
        if self.max_wait is not None:
            require_seconds("max_wait", self.max_wait, at_least=1, at_most=_LONGEST_WAIT_SECONDS)
        require_body_limit(self.saga, self.max_body_bytes)


class OperationsApi(Construct):
    """The operations of an API with their functions; the kinds of API extend it.

    Attributes:
        openapi: OpenAPI 3.1 document of the API, also printed by ``cdk-sagas openapi``.
        operations: by name.
        gatekeepers: the functions that answer, by operation: gatekeepers, and those of direct operations.
        status_functions: the functions that answer ``GET`` of operations with ``max_wait``, by operation.
        start_refused_alarms: by operation of a saga: Step Functions refuses to start its sagas (a permission, a state
            machine or a key that is gone). Requests are recorded and answered 503.
        alarms: all of them. They have no actions: add yours.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        operations: Mapping[str, Operation | DirectOperation | SagaStateMachine],
        has_authorizer: bool,
        identity: str,
        authorization_scopes: Sequence[str],
        allowed_origins: Sequence[str],
        docs_url: str | None,
        snap_start: bool,
        function_options: FunctionOptions | None,
        removal_policy: RemovalPolicy,
    ) -> None:
        super().__init__(scope, id)
        if function_options is not None:
            function_options.apply_to(self)
        self.operations = {
            name: Operation(saga=operation) if isinstance(operation, SagaStateMachine) else operation
            for name, operation in operations.items()
        }
        _check(self.operations, has_authorizer, identity)
        if authorization_scopes and not has_authorizer:
            raise ValueError(
                f"authorization_scopes must be given with an authorizer, got {list(authorization_scopes)} with IAM; "
                "give one that checks scopes"
            )
        _check_origins(allowed_origins)
        require_docs_url(docs_url)
        self._scopes = list(authorization_scopes) or None
        self._allowed_origins = list(allowed_origins)
        self._docs_url = docs_url
        self._removal_policy = removal_policy
        self._snap_start = snap_start
        self._identity = identity
        self.status_functions: dict[str, RuntimeFunction] = {}
        self.gatekeepers: dict[str, RuntimeFunction] = {}
        self.start_refused_alarms: dict[str, SagaAlarm] = {}
        self.alarms: list[cloudwatch.Alarm] = []

    def metric_reserved(self, operation: str) -> cloudwatch.Metric:
        """New requests of an operation: the sum of 5 minutes."""
        return self._metric(Metric.RESERVED, operation)

    def metric_replayed(self, operation: str) -> cloudwatch.Metric:
        """Duplicates of an operation that were answered with the stored response: the sum of 5 minutes."""
        return self._metric(Metric.REPLAYED, operation)

    def metric_key_reused(self, operation: str) -> cloudwatch.Metric:
        """Requests to an operation under the key of a request with another body: the sum of 5 minutes."""
        return self._metric(Metric.KEY_REUSED, operation)

    def metric_key_expired(self, operation: str) -> cloudwatch.Metric:
        """Duplicates of an operation that came after their response had expired: the sum of 5 minutes."""
        return self._metric(Metric.KEY_EXPIRED, operation)

    def metric_key_missing(self, operation: str) -> cloudwatch.Metric:
        """Requests to an operation that were accepted without a key: the sum of 5 minutes."""
        return self._metric(Metric.KEY_MISSING, operation)

    def metric_in_progress(self, operation: str) -> cloudwatch.Metric:
        """Duplicates of an operation that found its saga in progress: the sum of 5 minutes."""
        return self._metric(Metric.DUPLICATE_IN_PROGRESS, operation)

    def metric_restarted(self, operation: str) -> cloudwatch.Metric:
        """Sagas of an operation that a duplicate started again: the sum of 5 minutes."""
        return self._metric(Metric.RESTARTED, operation)

    def metric_start_refused(self, operation: str) -> cloudwatch.Metric:
        """Sagas of an operation that Step Functions refused to start: the sum of 5 minutes."""
        return self._metric(Metric.START_REFUSED, operation)

    def _metric(self, metric: Metric, operation: str) -> cloudwatch.Metric:
        if operation not in self.gatekeepers:
            raise ValueError(
                f"operation must be one of {', '.join(self.gatekeepers)}, got {operation!r}; name one of this API"
            )
        return runtime_metric(metric, service_of(self.gatekeepers[operation]), "Sum")

    def _describe(self, front: Front) -> None:
        """Make the document of the API, and keep it in the assembly."""
        self.openapi = openapi_of(
            self.node.id, self.operations, identity=self._identity, front=front, docs_url=self._docs_url
        )
        self.node.add_metadata(METADATA_TYPE, json.dumps(self.openapi))

    def _serve_operations(self) -> None:
        """Create the functions and their routes, and the alarms."""
        for name, operation in self.operations.items():
            self._require_one_beginning(name, operation)
        self._gatekeeper_scope, self._status_scope = Construct(self, "Gatekeeper"), Construct(self, "Status")
        self.gatekeepers.update({name: self._operation(name, operation) for name, operation in self.operations.items()})
        alarms = Construct(Construct(self, "Alarms"), "StartRefused")
        self.start_refused_alarms.update(
            {
                name: counted_alarm(
                    alarms,
                    name,
                    Runbook.START_REFUSED,
                    f"Step Functions refuses to start sagas of {name}, and will until something is changed: see the "
                    "gatekeeper's log event start_refused, and cdk-sagas doctor",
                    [Metric.START_REFUSED],
                    [service_of(gatekeeper)],
                )
                for name, gatekeeper in self.gatekeepers.items()
                if isinstance(self.operations[name], Operation)
            }
        )
        self.alarms.extend(self.start_refused_alarms.values())
        for name, operation in self.operations.items():
            if isinstance(operation, Operation) and self._identity == "iam":
                operation.saga.begin_by_requests(partial(self._methods_of, name), money=operation.money)

    def _require_one_beginning(self, name: str, operation: Operation | DirectOperation) -> None:
        # What replaces a saga continues to answer its keys.
        saga = operation.saga if isinstance(operation, Operation) else operation.previous
        require_one_beginning(
            f"operation {name} of {self.node.path}",
            table=operation.requests if isinstance(operation, DirectOperation) else operation.saga.requests,
            kind=self._identity,
            operation=name,
            saga=None if saga is None else saga.node.path,
            other="another API",
        )

    def _methods_of(self, name: str) -> list[str]:
        """ARNs of an operation's methods."""
        raise NotImplementedError

    def _operation(self, name: str, operation: Operation | DirectOperation) -> RuntimeFunction:
        """Create an operation's function and routes."""
        raise NotImplementedError

    def _function_of(self, name: str, operation: Operation | DirectOperation) -> RuntimeFunction:
        """The function that answers an operation."""
        if not isinstance(operation, DirectOperation):
            return self._gatekeeper(name, operation)
        function = operation.serve(self, name, self._identity)
        for variable, value in self._of_every_response().items():
            function.function.add_environment(variable, value)
        return function

    def _of_every_response(self) -> dict[str, str]:
        """Environment of what functions add to every response."""
        added: dict[str, str] = {}
        if self._allowed_origins:
            added[Env.ALLOWED_ORIGINS] = " ".join(self._allowed_origins)
        if self._docs_url is not None:
            added[Env.DOCS_URL] = self._docs_url
        return added

    def _invoked(self, name: str, function: RuntimeFunction) -> AnyFunction:
        """Target of the gateway: the function, or its snapshot."""
        own = function.function
        return from_snapshot(f"the function of operation {name}", own) if self._snap_start else own

    def _gatekeeper(self, name: str, operation: Operation) -> RuntimeFunction:
        saga = operation.saga
        require_same_place(self, f"saga of operation {name}", saga, "make the API where the saga is")
        depend_on(self, "begins", saga)
        gatekeeper = RuntimeFunction(
            self._gatekeeper_scope,
            name,
            code=own_code(schema_file(operation.schema)),
            handler=_HANDLER,
            description=f"Gatekeeper of {name}: reserves, starts, responds",
            timeout=_TIMEOUT if operation.max_wait is None else _LONGEST_TIMEOUT,
            longest_timeout=_LONGEST_TIMEOUT,
            removal_policy=self._removal_policy,
            environment=self._environment(name, operation),
        )
        name_role(gatekeeper, "the gatekeeper")
        Manifest.of(self).add(
            Part.OPERATIONS,
            name=name,
            requests=saga.requests.table_name,
            path=saga.node.path,
            identity=self._identity,
        )
        saga.requests.grant_reserve(gatekeeper)
        saga.requests.grant_look(gatekeeper)
        saga.log.grant_query(gatekeeper)
        saga.grant_begin(gatekeeper, waits=operation.max_wait is not None)
        if saga.payloads is not None:
            saga.payloads.grant_read(gatekeeper)
            saga.payloads.grant_write(gatekeeper)
        if operation.max_wait is not None:
            self.status_functions[name] = self._status(name, operation)
        return gatekeeper

    def _status(self, name: str, operation: Operation) -> RuntimeFunction:
        """Create a function for ``GET``: clients that wait use up the gatekeeper's concurrency."""
        status = RuntimeFunction(
            self._status_scope,
            name,
            code=own_code(schema_file(operation.schema)),
            handler=_HANDLER,
            description=f"Status of {name}: reads",
            timeout=_TIMEOUT,
            longest_timeout=_LONGEST_TIMEOUT,
            removal_policy=self._removal_policy,
            environment=self._environment(name, operation),
        )
        operation.saga.requests.grant_look(status)
        operation.saga.log.grant_query(status)
        if operation.saga.payloads is not None:
            operation.saga.payloads.grant_read(status)
        return status

    def _environment(self, name: str, operation: Operation) -> dict[str, str]:
        saga = operation.saga
        requests = saga.requests
        money: dict[str, str] = {Env.MONEY: operation.money.environment_value} if operation.money is not None else {}
        wait = operation.max_wait
        waiting: dict[str, str] = {Env.MAX_WAIT_SECONDS: str(int(wait.to_seconds()))} if wait is not None else {}
        return {
            Env.OPERATION: name,
            Env.IDENTITY: self._identity,
            Env.REQUEST_TABLE: requests.table.table_name,
            Env.LOG_TABLE: saga.log.table.table_name,
            **begin_environment(saga),
            Env.KEY_POLICY: operation.key_policy,
            Env.IN_PROGRESS_RESPONSE: operation.in_progress_response,
            Env.DUE_SHARDS: str(requests.due_shards),
            Env.MAX_BODY_BYTES: str(operation.max_body_bytes),
            **key_environment(operation.key_source),
            **caller_environment(operation.caller_member),
            **payload_environment(saga),
            **money,
            **waiting,
            **self._of_every_response(),
        }


def _check(
    operations: Mapping[str, Operation | DirectOperation],
    has_authorizer: bool,
    identity: str,
) -> None:
    if not operations:
        raise ValueError("operations must name at least one operation, got none; add one")
    for name, operation in operations.items():
        require_match("an operation's name", name, OPERATION_PATTERN, "use lower case, digits and dashes")
        if isinstance(operation, Operation) and operation.schema is not None:
            _check_schema(name, operation, operation.schema)
        schema = operation.schema if isinstance(operation, Operation) else operation.fn.schema
        require_key_members(name, operation.key_source, schema)
        require_caller_member(name, operation.caller_member, operation.key_source, schema)
    require_match("identity", identity, _IDENTITY, "use iam, jwt or context:<key>")
    if has_authorizer == (identity == "iam"):
        kind = "an authorizer" if has_authorizer else "no authorizer"
        raise ValueError(
            f"identity must fit the authorizer, got identity={identity!r} with {kind}; "
            "use identity='iam' without an authorizer, and 'jwt' or 'context:<key>' with one"
        )


def _check_schema(name: str, operation: Operation, schema: Mapping[str, Any]) -> None:
    """Refuse an invalid schema, and one whose bodies lack what the saga reads."""
    require_schema(f"schema of operation {name}", schema)
    if operation.money is not None:
        _require_money_in(schema, operation.money)
    for read in operation.saga.request_reads:
        if tuple(read.members[:1]) != (operation.caller_member,) and not may_have(schema, read.members):
            raise ValueError(
                f"{read.where} must read members that the schema of operation {name} has, got "
                f"$request.{'.'.join(read.members)} in {read.text!r}; correct it, or add the member to the schema"
            )


def _require_money_in(schema: Mapping[str, Any], money: MoneyField) -> None:
    """Refuse pointers to what no body can hold."""
    asked = (("amount", money.amount, ["integer", "number", "string"]), ("currency", money.currency, ["string"]))
    for name, pointer, kinds in asked:
        if pointer is not None and not may_lead_to(schema, tokens_of(pointer), kinds):
            raise ValueError(
                f"money's {name} must point to {' or '.join(kinds)} in a body that the schema allows, got "
                f"{pointer!r}; correct the pointer, or the schema"
            )


def _check_origins(origins: Sequence[str]) -> None:
    for origin in origins:
        require_match(
            "an origin in allowed_origins",
            origin,
            _ORIGIN,
            "write scheme and host, e.g. https://shop.example, or *",
        )
    require_unique("allowed_origins", origins)
    if "*" in origins and len(origins) > 1:
        raise ValueError(f"allowed_origins must be * alone or origins, got {list(origins)}; leave out one or the other")
