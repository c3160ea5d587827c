"""TransactionApi: operations behind a REST API, with ``Idempotency-Key``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aws_cdk import Acknowledgment, Duration, RemovalPolicy, Token, Validations
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from constructs_lib.api.direct_operation import DirectOperation
from constructs_lib.api.openapi import Front
from constructs_lib.api.operations import Operation, OperationsApi
from constructs_lib.functions.function_options import FunctionOptions
from constructs_lib.functions.runtime_function import RuntimeFunction
from constructs_lib.rest.rest_api import access_log_of, check_stage, rest_api
from constructs_lib.rest.web_acl import WebAcl, check_rate_per_address
from constructs_lib.saga.state_machine import SagaStateMachine
from constructs_lib.shared.stacks import require_same_stack
from constructs_lib.shared.types import checked
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, PREFER_HEADER

_ANY_JSON: Final = {"$schema": "http://json-schema.org/draft-04/schema#"}
_STAGE_NAME: Final = "v1"
_REQUEST_HEADERS: Final = [
    "Authorization",
    "Content-Type",
    IDEMPOTENCY_KEY_HEADER,
    PREFER_HEADER,
    "X-Amz-Content-Sha256",
    "X-Amz-Date",
    "X-Amz-Security-Token",
    "X-Api-Key",
]
"""Headers that a page may send: those of an operation, and those of its authorization."""
_PREFLIGHT_KEPT: Final = Duration.hours(1)
_PREFLIGHT: Final = (
    "A browser sends a preflight without credentials. The answer names origins, methods and headers, comes from the "
    "gateway itself, and reaches no function."
)


class TransactionApi(OperationsApi):
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
        resource: a resource of an API of this app, below which the operations are: ``api.root``. Stage, throttling,
            logs, web ACL and problem documents are then those of that API. By default the construct creates an API.
        authorizer: IAM by default. With your own, declare where the identity is.
        identity: ``iam``, ``jwt`` (issuer and subject of a Cognito or JWT authorizer), or ``context:<key>`` for one
            key of a Lambda authorizer's context.
        authorization_scopes: OAuth scopes of which an access token needs one, for a Cognito authorizer; none by
            default.
        api_key_required: whether requests need an API key of a usage plan: add one by ``api.add_usage_plan``. No by
            default. A key identifies no caller.
        allowed_origins: origins of web pages whose scripts may call the API (CORS), as ``https://shop.example``, or
            ``*``; none by default.
        docs_url: address of your documentation of problems, which ends with ``/``, ``#`` or ``=``. A problem's ``type``
            is then this address and its code, which each error also has as a ``Link`` with ``rel="describedby"``. By
            default types are URNs, and there is no link.
        rate_limit: requests per second, for the whole stage; 100 by default.
        burst_limit: requests at once, for the whole stage; 200 by default.
        waf: whether to put a web ACL (AWS managed rules, a rate limit per address) before the stage.
        rate_per_address: requests per second, over five minutes, above which the web ACL answers an address with 429;
            twice ``rate_limit`` by default, so that only what the stage could not take either is refused.
        stage_name: ``v1`` by default.
        cloud_watch_role: whether this stack sets the role by which API Gateway writes logs. It is a setting of the
            whole account and region, made once per stack and kept when the stack is deleted. ``False`` where another
            stack, deployed before, sets it.
        declared_responses: whether methods declare the responses of ``openapi`` with their headers, which exports and
            SDKs that API Gateway generates have then. It changes no response. No by default: CloudFormation sends a
            request for each.
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
        resource: apigateway.IResource | None = None,
        authorizer: apigateway.IAuthorizer | None = None,
        identity: str = "iam",
        authorization_scopes: Sequence[str] = (),
        api_key_required: bool = False,
        allowed_origins: Sequence[str] = (),
        docs_url: str | None = None,
        rate_limit: float | None = None,
        burst_limit: int | None = None,
        waf: bool = False,
        rate_per_address: float | None = None,
        stage_name: str | None = None,
        cloud_watch_role: bool | None = None,
        declared_responses: bool = False,
        snap_start: bool = False,
        function_options: FunctionOptions | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(
            scope,
            id,
            operations=operations,
            has_authorizer=authorizer is not None,
            identity=identity,
            authorization_scopes=authorization_scopes,
            allowed_origins=allowed_origins,
            docs_url=docs_url,
            snap_start=snap_start,
            function_options=function_options,
            removal_policy=removal_policy,
        )
        given_authorizer: object = authorizer
        if isinstance(given_authorizer, Construct):
            require_same_stack(
                resource or self, "authorizer", given_authorizer, "an authorizer is a part of its API, which names it"
            )
        self._methods = apigateway.MethodOptions(
            authorization_type=apigateway.AuthorizationType.IAM if authorizer is None else None,
            authorizer=authorizer,
            authorization_scopes=self._scopes,
            api_key_required=api_key_required or None,
        )
        documented = stage = stage_name or _STAGE_NAME
        rate, burst = rate_limit if rate_limit is not None else 100, burst_limit if burst_limit is not None else 200
        check_stage(stage, rate, burst)
        per_address = check_rate_per_address(waf, rate, rate_per_address)
        self.access_log: logs.LogGroup | None = None
        if resource is not None:
            given = {
                "rate_limit": rate_limit,
                "burst_limit": burst_limit,
                "waf": waf or None,
                "stage_name": stage_name,
                "cloud_watch_role": cloud_watch_role,
            }
            self.api = _api_of(resource, given)
            self._root, documented, stage = resource, _stage_of(self.api), self.api.deployment_stage.stage_name
        self._stage = stage
        self._declared_responses = declared_responses
        below = "" if resource is None else resource.path.rstrip("/")
        self._describe(Front(stage=documented, below=below, problems=resource is None, waf=waf))
        if resource is None:
            self.access_log = access_log_of(self, removal_policy)
            self.api = rest_api(
                self,
                description="Each request at most once per Idempotency-Key",
                access_log=self.access_log,
                stage_name=stage,
                rate_limit=rate,
                burst_limit=burst,
                cloud_watch_role=cloud_watch_role is not False,
                problems=True,
                allowed_origins=allowed_origins,
                docs_url=docs_url,
                removal_policy=removal_policy,
            )
            self._root = self.api.root
        self._serve_operations()
        self.web_acl = (
            WebAcl(
                self,
                "WebAcl",
                stage=self.api.deployment_stage,
                rate_per_address=per_address,
                docs_url=docs_url,
                removal_policy=removal_policy,
            )
            if waf
            else None
        )

    @checked
    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        """Call every operation of this API's stage (``execute-api:Invoke``)."""
        stage = self.api.deployment_stage.stage_name
        arns = [arn for name in self.operations for arn in self._arns(name, stage)]
        return iam.Grant.add_to_principal(grantee=grantee, actions=["execute-api:Invoke"], resource_arns=arns)

    def _arns(self, name: str, stage: str) -> list[str]:
        below = self._root.path.rstrip("/")
        return [
            self.api.arn_for_execute_api(method, f"{below}/{name}{suffix}", stage)
            for method, suffix in (("POST", ""), ("GET", "/*"))
        ]

    def _methods_of(self, name: str) -> list[str]:
        # The stage comes after all gatekeepers: a step function that starts a saga must not wait for it.
        return self._arns(name, self._stage)

    def _operation(self, name: str, operation: Operation | DirectOperation) -> RuntimeFunction:
        function = self._function_of(name, operation)
        integration = self._integration(name, function)
        status = self.status_functions.get(name)
        collection = self._root.add_resource(name)
        # JSON, and nothing more: a request that was recorded under an earlier schema must reach the gatekeeper.
        model = apigateway.CfnModel(
            collection, "Body", rest_api_id=self.api.rest_api_id, content_type="application/json", schema=_ANY_JSON
        )
        if self.api.latest_deployment is not None:
            self.api.latest_deployment.node.add_dependency(model)
        validator = apigateway.RequestValidator(
            collection, "Validator", rest_api=self.api, validate_request_body=True, validate_request_parameters=True
        )
        single = collection.add_resource("{saga_id}")
        methods = [
            collection.add_method(
                "POST",
                integration,
                authorization_type=self._methods.authorization_type,
                authorizer=self._methods.authorizer,
                authorization_scopes=self._methods.authorization_scopes,
                api_key_required=self._methods.api_key_required,
                request_models={
                    "application/json": apigateway.Model.from_model_name(collection, "BodyModel", model.ref)
                },
                request_parameters=self._headers_of(name),
                request_validator=validator,
                method_responses=self._responses_of(name, "post"),
            ),
            single.add_method(
                "GET",
                integration if status is None else self._integration(name, status),
                authorization_type=self._methods.authorization_type,
                authorizer=self._methods.authorizer,
                authorization_scopes=self._methods.authorization_scopes,
                api_key_required=self._methods.api_key_required,
                request_parameters={"method.request.path.saga_id": True},
                request_validator=validator,
                method_responses=self._responses_of(f"{name}/{{saga_id}}", "get"),
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
        if self._allowed_origins:
            self._allow_preflight(collection, "POST")
            self._allow_preflight(single, "GET")
        return function

    def _headers_of(self, name: str) -> dict[str, bool]:
        """Headers that an operation reads, as its document has them: none is required by the gateway.

        The gatekeeper answers a request without its key by a problem document of its own.
        """
        parameters = self._documented(name, "post")["parameters"]
        return {f"method.request.header.{each['name']}": False for each in parameters if each["in"] == "header"}

    def _responses_of(self, path: str, method: str) -> list[apigateway.MethodResponse] | None:
        """Responses that a method declares, as its document has them; classes of statuses, as ``4XX``, cannot be."""
        if not self._declared_responses:
            return None
        return [
            apigateway.MethodResponse(
                status_code=status,
                response_parameters={
                    f"method.response.header.{header}": bool(described.get("required"))
                    for header, described in response.get("headers", {}).items()
                },
            )
            for status, response in self._documented(path, method)["responses"].items()
            if status.isdecimal()
        ]

    def _documented(self, path: str, method: str) -> Mapping[str, Any]:
        """An operation of the document."""
        found: Mapping[str, Any] = self.openapi["paths"][f"{self._root.path.rstrip('/')}/{path}"][method]
        return found

    def _allow_preflight(self, resource: apigateway.IResource, verb: str) -> None:
        """Answer a browser that asks whether a page of another origin may call."""
        if resource.node.try_find_child("OPTIONS") is not None:
            Validations.of(self).add_warning(
                "cdk-sagas-own-preflight",
                f"the preflight of {resource.path} must allow the header {IDEMPOTENCY_KEY_HEADER} and {verb}, "
                "and is that of the API that the resource belongs to; acknowledge this if it does",
            )
            return
        preflight = resource.add_cors_preflight(
            allow_origins=self._allowed_origins,
            allow_methods=[verb],
            allow_headers=_REQUEST_HEADERS,
            max_age=_PREFLIGHT_KEPT,
        )
        for rule in ("AwsSolutions-APIG4", "AwsSolutions-COG4"):
            Validations.of(preflight).acknowledge(Acknowledgment(id=rule, reason=_PREFLIGHT))

    def _integration(self, name: str, function: RuntimeFunction) -> apigateway.LambdaIntegration:
        return apigateway.LambdaIntegration(self._invoked(name, function), proxy=True, allow_test_invoke=False)


def _stage_of(api: apigateway.RestApi) -> str:
    """Name of an API's stage, for its document; ``v1`` if only CloudFormation will know it."""
    stage = api.deployment_stage.node.default_child
    # The construct's own name is a token in any case.
    name = stage.stage_name if isinstance(stage, apigateway.CfnStage) else None
    return _STAGE_NAME if name is None or Token.is_unresolved(name) else name


def _api_of(resource: apigateway.IResource, given: Mapping[str, object]) -> apigateway.RestApi:
    """The API of a resource, which has what the construct's own API is made of."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} must not be given with resource, got {value}; set it at the API that the resource belongs to"
            )
    api = resource.api
    if not isinstance(api, apigateway.RestApi):
        raise ValueError(
            f"resource must belong to a RestApi of this app, got one of {api.node.path}, which is imported: its stage "
            "would have to be deployed by hand; create the operations in the app of the API"
        )
    if api.latest_deployment is None:
        raise ValueError(
            f"resource must belong to a RestApi that has its own stage, got one of {api.node.path} with deploy=False; "
            "leave deploy out"
        )
    return api
