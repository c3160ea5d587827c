"""Operations that answer at once: one function, one transaction, no state machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from constructs_lib.api.caller_member import caller_environment
from constructs_lib.api.key_sources import key_environment, require_key_policy
from constructs_lib.api.schema_form import require_schema, schema_file
from constructs_lib.functions.conflict_backoff import backoff_environment
from constructs_lib.functions.function_options import FunctionOptions, options_ahead
from constructs_lib.functions.handlers import require_made_by
from constructs_lib.functions.runtime_function import RuntimeFunction, user_code
from constructs_lib.saga.state_machine import SagaStateMachine
from constructs_lib.shared.arguments import require_between, require_match, require_seconds
from constructs_lib.shared.stacks import refer_to, require_same_place
from constructs_lib.shared.types import check_fields, checked, shown
from constructs_lib.tables.interfaces import IIdempotencyTable
from constructs_lib.tables.payload_bucket import PayloadBucket
from saga_runtime.http.key_source import KeySource
from saga_runtime.protocol import MAX_BODY_BYTES, Env, InProgressResponse, KeyPolicy, RefusalPolicy
from saga_runtime.shared.backoff import Backoff

_LONGEST_SECONDS: Final = 28
"""API Gateway gives up after 29 s."""
_LONGEST_SENDER_SECONDS: Final = 900
_OURS: Final = (
    Env.OPERATION,
    Env.IDENTITY,
    Env.REQUEST_TABLE,
    Env.KEY_POLICY,
    Env.KEY_SOURCE,
    Env.CALLER_MEMBER,
    Env.IN_PROGRESS_RESPONSE,
    Env.DUE_SHARDS,
    Env.MAX_BODY_BYTES,
    Env.REPLAY_SECONDS,
    Env.REMEMBER_SECONDS,
    Env.REFUSAL_POLICY,
    Env.FAILURE_STATUS,
    Env.PAYLOADS,
    Env.CONFLICT_BACKOFF,
    Env.ALLOWED_ORIGINS,
)
"""Variables that the API sets."""
_ERROR_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
_DEFAULT_TIMEOUT: Final = Duration.seconds(15)


class DirectFunction(RuntimeFunction):
    """The function of a direct operation: a folder of Python, merged with the runtime and a schema into one asset.

    Creates what ``StepFunction`` creates. The handler is made by ``direct_operation``.

    Example::

        pay = DirectFunction(self, "Pay", code="functions", handler="pay.handler", environment=ledger.environment)
        ledger.grant_post(pay)

    Args:
        scope: parent construct.
        id: construct id.
        code: folder with the function's Python files, relative to the working directory or absolute.
        handler: ``module.function`` in that folder, made by ``direct_operation``. Read, not imported.
        requirements: file of further packages, each pinned with hashes, as of a ``StepFunction``.
        schema: JSON schema (draft 7) of a new request's body. A request that was recorded under an earlier schema is
            answered as a duplicate.
        environment: environment variables, e.g. ``ledger.environment``.
        timeout: 1 s to 28 s, 15 s by default: API Gateway waits for 29 s.
        backoff: tries of a transaction that conflicts with another one, and their delays. By default 8 tries, 20 ms to
            1 s apart with full jitter. The delays must leave the function a second. What DynamoDB throttles is not
            tried again: 503 with ``Retry-After``.
        memory_mib: 128 to 10240, 512 by default.
        architecture: arm64 by default.
        reserved_concurrency: at least 1; unreserved by default.
        log_retention: three months by default.
        function_options: ``FunctionOptions`` for this function alone: VPC, layers, runtime version.
        removal_policy: of the log group; retained by default.

    Attributes:
        schema: the schema that it was given.
        operation: the path of the ``TransactionApi`` and the name of the operation that it serves; None: none yet.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
        constructs_lib.functions.bundle.BundleError: if the folder does not exist or would hide a part of the runtime.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        code: str | Path,
        handler: str,
        requirements: str | Path | None = None,
        schema: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
        backoff: Backoff | None = None,
        memory_mib: int | None = None,
        architecture: lambda_.Architecture | None = None,
        reserved_concurrency: int | None = None,
        log_retention: logs.RetentionDays | None = None,
        function_options: FunctionOptions | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        timeout = timeout or options_ahead(scope, function_options).timeout or _DEFAULT_TIMEOUT
        require_seconds("timeout", timeout, at_least=1, at_most=_LONGEST_SECONDS)
        taken = sorted(set(environment or {}) & set(_OURS))
        if taken:
            raise ValueError(f"environment must not set {taken}; these are set by the TransactionApi")
        variables: dict[str, str] = {**(environment or {}), **backoff_environment(backoff, int(timeout.to_seconds()))}
        if schema is not None:
            require_schema(f"schema of DirectFunction {id}", schema)
        super().__init__(
            scope,
            id,
            code=user_code(scope, code, requirements, architecture, function_options, schema_file(schema)),
            handler=handler,
            description=f"Direct operation {handler}",
            environment=variables,
            timeout=timeout,
            memory_mib=memory_mib,
            architecture=architecture,
            reserved_concurrency=reserved_concurrency,
            log_retention=log_retention,
            function_options=function_options,
            removal_policy=removal_policy,
        )
        self._read_handler(f"DirectFunction {id}", Path(code), handler, environment or {})
        require_made_by(f"handler of DirectFunction {id}", self, "direct_operation")
        self.schema = schema
        self.operation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectOperation:
    """An operation that is one function and one transaction: 200 with the result in the first response.

    Attributes:
        fn: the function; it serves this operation only.
        requests: where the requests' records are. An operation that was a saga's, or becomes one, keeps its table and
            its name: then either release answers what the other recorded. Its keys must be remembered for 15 minutes or
            more: a request may travel for so long.
        previous: the saga that the operation was before, as long as one of its sagas may be in progress; on the same
            table. None: the operation never was a saga's, or all of its sagas have settled. A synth does not see what
            is deployed, so there is no default: the sagas of a state machine that is removed stay in progress for ever,
            and so do their keys.
        refusal_policy: ``FINAL`` (default): a refusal is stored, and answers every request under its key. ``OPEN``:
            nothing is stored, and the same key may be tried again. An open refusal means that nothing has moved yet: a
            copy of the request that is still travelling may move it.
        http_status_by_error: HTTP status by error name, e.g. ``{"InsufficientFunds": 402}``; 422 for others.
        key_policy: ``REQUIRED`` (default) or ``OPTIONAL``, as of an ``Operation``.
        key_source: where a request has its key, as of an ``Operation``.
        caller_member: member of ``DirectCall.request`` that has the caller's identity, as of an ``Operation``.
        in_progress_response: response to a duplicate of a saga's request while that saga runs: ``CONFLICT`` (409,
            default) or ``ACCEPTED`` (202 with the status). A direct operation is never in progress itself.
        max_body_bytes: largest body of a new request; 1 to 65,536 bytes, 32,768 by default.
        payloads: the payload bucket of the saga that the operation was before: its large responses are read from it,
            for as long as they are replayed. That of ``previous`` by default.
    """

    fn: DirectFunction
    requests: IIdempotencyTable
    previous: SagaStateMachine | None
    refusal_policy: RefusalPolicy = RefusalPolicy.FINAL
    http_status_by_error: Mapping[str, int] | None = None
    key_policy: KeyPolicy = KeyPolicy.REQUIRED
    key_source: KeySource = KeySource.header()  # noqa: RUF009  # immutable
    caller_member: str | None = None
    in_progress_response: InProgressResponse = InProgressResponse.CONFLICT
    max_body_bytes: int = 32_768
    payloads: PayloadBucket | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        require_key_policy(self.key_source, self.key_policy)
        require_between("max_body_bytes", self.max_body_bytes, at_least=1, at_most=MAX_BODY_BYTES)
        for name, status in (self.http_status_by_error or {}).items():
            require_match(
                "an error's name in http_status_by_error", name, _ERROR_NAME, "use the name of a Python class"
            )
            if type(status) is not int or not 400 <= status <= 499:
                raise ValueError(
                    f"the HTTP status of {name} must be 400 to 499, got {shown(status)}; a refusal is the client's"
                )
        if self.previous is not None:
            self._check_previous(self.previous)
        if self.requests.remember_seconds < _LONGEST_SENDER_SECONDS:
            raise ValueError(
                f"remember_for of requests must be at least {_LONGEST_SENDER_SECONDS} s for a direct operation, got "
                f"{self.requests.remember_seconds} s; raise it: a request may travel for longer, and move money again"
            )

    def _check_previous(self, saga: SagaStateMachine) -> None:
        if saga.requests is not self.requests:
            raise ValueError(
                f"requests must be the table of previous, {saga.requests.node.path}, got {self.requests.node.path}; "
                "pass that one: on another table a retry of a recorded request is a new one, and moves money again"
            )
        if self.payloads is not None and self.payloads is not saga.payloads:
            raise ValueError(
                f"payloads must be the bucket of previous, got {self.payloads.node.path}; leave it out: responses of "
                f"{saga.node.path} are read from its own bucket"
            )

    def serve(self, api: Construct, name: str, identity: str) -> DirectFunction:
        """Make the function serve an operation: its settings, and its grants.

        Args:
            api: the API.
            name: of the operation.
            identity: where the caller's identity is.

        Raises:
            ValueError: if the function serves another operation, or is in another stack than the API, which has the
                operation's table.
        """
        if self.fn.operation is not None:
            raise ValueError(
                f"fn of operation {name} must serve one operation, got {self.fn.node.path}, which serves "
                f"{self.fn.operation}; give each operation a DirectFunction of its own"
            )
        named = {"requests": self.requests, "payloads": self.payloads, "previous": self.previous}
        refer_to(
            api,
            f"fn of operation {name}",
            self.fn,
            {f"{argument} of operation {name}": construct for argument, construct in named.items()},
        )
        require_same_place(api, f"requests of operation {name}", self.requests, "create an IdempotencyTable there")
        self.fn.operation = f"{api.node.path}/{name}"
        self.requests.grant_reserve(self.fn)
        self.requests.grant_look(self.fn)
        variables: dict[str, str] = {
            Env.OPERATION: name,
            Env.IDENTITY: identity,
            Env.REQUEST_TABLE: self.requests.table.table_name,
            Env.KEY_POLICY: self.key_policy,
            Env.IN_PROGRESS_RESPONSE: self.in_progress_response,
            Env.DUE_SHARDS: str(self.requests.due_shards),
            Env.MAX_BODY_BYTES: str(self.max_body_bytes),
            Env.REPLAY_SECONDS: str(self.requests.replay_seconds),
            Env.REMEMBER_SECONDS: str(self.requests.remember_seconds),
            Env.REFUSAL_POLICY: self.refusal_policy,
            Env.FAILURE_STATUS: json.dumps(
                dict(self.http_status_by_error or {}), sort_keys=True, separators=(",", ":")
            ),
        }
        variables |= key_environment(self.key_source) | caller_environment(self.caller_member)
        payloads = self.previous.payloads if self.previous is not None else self.payloads
        if payloads is not None:
            payloads.grant_read(self.fn)
            variables[Env.PAYLOADS] = payloads.bucket.bucket_name
        for variable, value in variables.items():
            self.fn.function.add_environment(variable, value)
        return self.fn
