"""TransactionApi: operations behind HTTP, with ``Idempotency-Key``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import Acknowledgment, Duration, RemovalPolicy, Validations
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.api.body_limits import payload_environment, require_body_limit
from constructs_lib.api.direct_operation import DirectOperation
from constructs_lib.api.key_sources import key_environment, require_key_members, require_key_policy
from constructs_lib.api.money_field import MoneyField
from constructs_lib.api.openapi import METADATA_TYPE, openapi_of
from constructs_lib.api.schema_form import require_schema, schema_file
from constructs_lib.api.schema_paths import may_have
from constructs_lib.functions.function_options import FunctionOptions
from constructs_lib.functions.runtime_function import RuntimeFunction, name_role, own_code
from constructs_lib.functions.snap_start import from_snapshot
from constructs_lib.monitoring.alarms import Runbook, counted_alarm
from constructs_lib.rest.rest_api import access_log_of, check_stage, rest_api
from constructs_lib.rest.web_acl import WebAcl, check_rate_per_address
from constructs_lib.saga.state_machine import SagaStateMachine
from constructs_lib.saga.synthesis.expression_scan import paths_environment
from constructs_lib.saga.synthesis.inline import express_environment
from constructs_lib.shared.arguments import require_match, require_seconds
from constructs_lib.shared.manifest import Manifest
from constructs_lib.shared.manifest_format import Part
from constructs_lib.shared.service_names import service_of
from constructs_lib.shared.types import check_fields, checked
from saga_runtime.http.key_source import KeySource
from saga_runtime.protocol import (
    OPERATION_PATTERN,
    Env,
    InProgressResponse,
    KeyPolicy,
    Metric,
)

_HANDLER: Final = "handlers.gatekeeper.handler"
_ANY_JSON: Final = {"$schema": "http://json-schema.org/draft-04/schema#"}
_TIMEOUT: Final = Duration.seconds(20)
_LONGEST_TIMEOUT: Final = Duration.seconds(28)
"""API Gateway gives up after 29 s."""
_LONGEST_WAIT_SECONDS: Final = 20
_IDENTITY: Final = r"^(iam|jwt|context:[A-Za-z0-9_.-]{1,64})$"


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


class TransactionApi(Construct):
    """A REST API that starts each saga at most once per caller and ``Idempotency-Key``, or does without a saga.

    Creates a regional REST API with access logs, tracing, throttling and problem documents (RFC 9457), and per
    operation one gatekeeper function that may reserve in the saga's table and start the saga's state machine, and
    nothing else. A ``DirectOperation`` has a function of the user's in its place, which may put and read records.

    Guaranteed: of any number of requests by one caller under one key, one saga starts, or one direct request moves
    something; a duplicate gets the settled answer byte for byte, with ``Idempotent-Replayed: true``; the same key with
    another body is refused (422); one caller never sees another's result.
    Not guaranteed: an answer. A 5xx, or none, promises nothing: repeat the request under the same key. (A 500 with
    ``Idempotent-Replayed: true`` is the settled response of a saga that failed, with no remaining effects.)

    With IAM the caller is the account and the unique id of the IAM user or role, never the session: two hosts under one
    role are one caller. A user of a Cognito identity pool is a caller of its own.

    Example::

        TransactionApi(self, "Api", operations={"transfers": Operation(saga=saga, schema=schema)})

    Args:
        scope: parent construct.
        id: construct id.
        operations: by name (lower case, digits, dashes); a saga alone is an operation with all defaults. A
            ``DirectOperation`` answers at once.
        authorizer: IAM by default. With your own, declare where the identity is.
        identity: ``iam``, ``jwt`` (issuer and subject of a Cognito or JWT authorizer), or ``context:<key>`` for one
            key of a Lambda authorizer's context.
        rate_limit: requests per second, for the whole stage; 100 by default.
        burst_limit: requests at once, for the whole stage; 200 by default.
        waf: whether to put a web ACL (AWS managed rules, a rate limit per address) before the stage.
        rate_per_address: requests per second, over five minutes, above which the web ACL answers an address with 429;
            twice ``rate_limit`` by default, so that only what the stage could not take either is refused.
        stage_name: ``v1`` by default.
        cloud_watch_role: whether this stack sets the role by which API Gateway writes logs. It is a setting of the
            whole account and region, made once per stack and kept when the stack is deleted. ``False`` where another
            stack, deployed before, sets it.
        snap_start: whether the functions that answer start from a snapshot of their initialized state (Lambda
            SnapStart), those of direct operations included; no by default. AWS bills snapshots, and restoring them.
        function_options: ``FunctionOptions`` for the functions and log groups of this construct.
        removal_policy: of the log groups; retained by default.

    Attributes:
        api: the REST API.
        openapi: OpenAPI 3.1 document of the API, also printed by ``cdk-sagas openapi``.
        gatekeepers: the functions that answer, by operation: gatekeepers, and those of direct operations.
        status_functions: the functions that answer ``GET`` of operations with ``max_wait``, by operation.
        access_log: the access log's group.
        start_refused_alarms: by operation of a saga: Step Functions refuses to start its sagas (a permission, a state
            machine or a key that is gone). Requests are recorded and answered 503.
        alarms: all of them. They have no actions: add yours.
        web_acl: the web ACL, if there is one.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        operations: Mapping[str, Operation | DirectOperation | SagaStateMachine],
        authorizer: apigateway.IAuthorizer | None = None,
        identity: str = "iam",
        rate_limit: float = 100,
        burst_limit: int = 200,
        waf: bool = False,
        rate_per_address: float | None = None,
        stage_name: str = "v1",
        cloud_watch_role: bool = True,
        snap_start: bool = False,
        function_options: FunctionOptions | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        if function_options is not None:
            function_options.apply_to(self)
        self.operations = {
            name: Operation(saga=operation) if isinstance(operation, SagaStateMachine) else operation
            for name, operation in operations.items()
        }
        _check(self.operations, authorizer, identity)
        check_stage(stage_name, rate_limit, burst_limit)
        per_address = check_rate_per_address(waf, rate_limit, rate_per_address)
        self._removal_policy = removal_policy
        self._snap_start = snap_start
        self._identity = identity
        self._methods = apigateway.MethodOptions(
            authorization_type=apigateway.AuthorizationType.IAM if authorizer is None else None,
            authorizer=authorizer,
        )
        self.openapi = openapi_of(id, self.operations, identity=identity, stage=stage_name)
        self.node.add_metadata(METADATA_TYPE, json.dumps(self.openapi))
        self.access_log = access_log_of(self, removal_policy)
        self.api = rest_api(
            self,
            description="Each request at most once per Idempotency-Key",
            access_log=self.access_log,
            stage_name=stage_name,
            rate_limit=rate_limit,
            burst_limit=burst_limit,
            cloud_watch_role=cloud_watch_role,
            problems=True,
            removal_policy=removal_policy,
        )
        self._gatekeeper_scope, self._status_scope = Construct(self, "Gatekeeper"), Construct(self, "Status")
        self.status_functions: dict[str, RuntimeFunction] = {}
        self.gatekeepers = {name: self._operation(name, operation) for name, operation in self.operations.items()}
        alarms = Construct(Construct(self, "Alarms"), "StartRefused")
        self.start_refused_alarms = {
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
        self.alarms = list(self.start_refused_alarms.values())
        self.web_acl = (
            WebAcl(
                self,
                "WebAcl",
                stage=self.api.deployment_stage,
                rate_per_address=per_address,
                removal_policy=removal_policy,
            )
            if waf
            else None
        )

    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        """Call every operation of this API's stage (``execute-api:Invoke``)."""
        arns = [
            self.api.arn_for_execute_api(method, f"/{name}{suffix}", self.api.deployment_stage.stage_name)
            for name in self.operations
            for method, suffix in (("POST", ""), ("GET", "/*"))
        ]
        return iam.Grant.add_to_principal(grantee=grantee, actions=["execute-api:Invoke"], resource_arns=arns)

    def _operation(self, name: str, operation: Operation | DirectOperation) -> RuntimeFunction:
        function: RuntimeFunction
        if isinstance(operation, DirectOperation):
            function = operation.serve(self.node.path, name, self._identity)
        else:
            function = self._gatekeeper(name, operation)
        integration = self._integration(name, function)
        status = self.status_functions.get(name)
        collection = self.api.root.add_resource(name)
        # JSON, and nothing more: a request that was recorded under an earlier schema must reach the gatekeeper.
        model = apigateway.CfnModel(
            collection, "Body", rest_api_id=self.api.rest_api_id, content_type="application/json", schema=_ANY_JSON
        )
        if self.api.latest_deployment is not None:
            self.api.latest_deployment.node.add_dependency(model)
        validator = apigateway.RequestValidator(
            collection, "Validator", rest_api=self.api, validate_request_body=True, validate_request_parameters=True
        )
        methods = [
            collection.add_method(
                "POST",
                integration,
                authorization_type=self._methods.authorization_type,
                authorizer=self._methods.authorizer,
                request_models={
                    "application/json": apigateway.Model.from_model_name(collection, "BodyModel", model.ref)
                },
                request_validator=validator,
            ),
            collection.add_resource("{saga_id}").add_method(
                "GET",
                integration if status is None else self._integration(name, status),
                authorization_type=self._methods.authorization_type,
                authorizer=self._methods.authorizer,
                request_parameters={"method.request.path.saga_id": True},
                request_validator=validator,
            ),
        ]
        for method in methods:
            Validations.of(method).acknowledge(
                Acknowledgment(
                    id="AwsSolutions-COG4",
                    reason="Callers are authorized by IAM, or by the authorizer that the application names; "
                    "a Cognito user pool is one choice of several.",
                )
            )
        return function

    def _integration(self, name: str, function: RuntimeFunction) -> apigateway.LambdaIntegration:
        own = function.function
        invoked = from_snapshot(f"the function of operation {name}", own) if self._snap_start else own
        return apigateway.LambdaIntegration(invoked, proxy=True, allow_test_invoke=False)

    def _gatekeeper(self, name: str, operation: Operation) -> RuntimeFunction:
        saga = operation.saga
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
            Env.STATE_MACHINE_ARN: saga.state_machine.state_machine_arn,
            Env.RECOVERY_MACHINE_ARN: saga.recovery_machine.state_machine_arn,
            **express_environment(saga.express_machine),
            Env.DEFINITION: saga.definition_fingerprint,
            Env.KEY_POLICY: operation.key_policy,
            Env.IN_PROGRESS_RESPONSE: operation.in_progress_response,
            Env.DUE_AFTER_SECONDS: str(int(requests.due_after.to_seconds())),
            Env.DUE_SHARDS: str(requests.due_shards),
            Env.MAX_BODY_BYTES: str(operation.max_body_bytes),
            **key_environment(operation.key_source),
            **payload_environment(saga),
            **paths_environment(saga.steps),
            **money,
            **waiting,
        }


def _check(
    operations: Mapping[str, Operation | DirectOperation],
    authorizer: apigateway.IAuthorizer | None,
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
    require_match("identity", identity, _IDENTITY, "use iam, jwt or context:<key>")
    if (authorizer is None) != (identity == "iam"):
        kind = "no authorizer" if authorizer is None else "an authorizer"
        raise ValueError(
            f"identity must fit the authorizer, got identity={identity!r} with {kind}; "
            "use identity='iam' without an authorizer, and 'jwt' or 'context:<key>' with one"
        )


def _check_schema(name: str, operation: Operation, schema: Mapping[str, Any]) -> None:
    """Refuse an invalid schema, and one whose bodies lack what the saga reads."""
    require_schema(f"schema of operation {name}", schema)
    if operation.money is not None:
        operation.money.require_in(schema)
    for read in operation.saga.request_reads:
        if not may_have(schema, read.members):
            raise ValueError(
                f"{read.where} must read members that the schema of operation {name} has, got "
                f"$request.{'.'.join(read.members)} in {read.text!r}; correct it, or add the member to the schema"
            )
