"""HttpTransactionApi: operations as routes of an HTTP API, with ``Idempotency-Key``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from aws_cdk import RemovalPolicy
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.api.direct_operation import DirectOperation
from constructs_lib.api.openapi import DEFAULT_STAGE, Front
from constructs_lib.api.operations import Operation, OperationsApi
from constructs_lib.functions.function_options import FunctionOptions
from constructs_lib.functions.runtime_function import RuntimeFunction
from constructs_lib.saga.state_machine import SagaStateMachine
from constructs_lib.shared.types import checked

_ROUTES: Final = (("POST", ""), ("GET", "/{saga_id}"))
_taken: Final[WeakKeyDictionary[apigatewayv2.IHttpApi, dict[str, str]]] = WeakKeyDictionary()
"""By HTTP API, the names of its operations, and what they are of."""


class HttpTransactionApi(OperationsApi):
    """Routes of an HTTP API of yours that start each saga at most once per caller and ``Idempotency-Key``.

    Creates, per operation, the functions of a ``TransactionApi`` and two routes, ``POST /{name}`` and
    ``GET /{name}/{saga_id}``, with payload format 2.0. Stage, throttling, access logs, CORS and custom domain are those
    of the HTTP API.

    Guaranteed and not guaranteed: as of a ``TransactionApi``. An HTTP API joins headers of one name by commas, so a key
    with a comma must be quoted, and its own answers are not problem documents.

    Example::

        api = apigatewayv2.HttpApi(self, "HttpApi")
        HttpTransactionApi(self, "Transfers", api=api, operations={"transfers": Operation(saga=saga)})

    Args:
        scope: parent construct.
        id: construct id.
        api: an HTTP API, of this app or imported.
        operations: by name (lower case, digits, dashes); a saga alone is an operation with all defaults. A
            ``DirectOperation`` answers at once.
        authorizer: IAM by default. With your own, declare where the identity is.
        identity: ``iam``, ``jwt`` (issuer and subject of a JWT or Cognito authorizer), or ``context:<key>`` for one key
            of a Lambda authorizer's context.
        authorization_scopes: OAuth scopes of which a token needs one, for a JWT authorizer; none by default.
        docs_url: address of your documentation of problems, which ends with ``/``, ``#`` or ``=``. A problem's ``type``
            is then this address and its code, which each error also has as a ``Link`` with ``rel="describedby"``. By
            default types are URNs, and there is no link.
        snap_start: whether the functions that answer start from a snapshot of their initialized state; no by default.
        function_options: ``FunctionOptions`` for the functions and log groups of this construct.
        removal_policy: of the log groups; retained by default.

    Attributes:
        api: as given.
        openapi: OpenAPI 3.1 document of the routes, also printed by ``cdk-sagas openapi``.
        routes: by method and path.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        api: apigatewayv2.IHttpApi,
        operations: Mapping[str, Operation | DirectOperation | SagaStateMachine],
        authorizer: apigatewayv2.IHttpRouteAuthorizer | None = None,
        identity: str = "iam",
        authorization_scopes: Sequence[str] = (),
        docs_url: str | None = None,
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
            allowed_origins=(),
            docs_url=docs_url,
            snap_start=snap_start,
            function_options=function_options,
            removal_policy=removal_policy,
        )
        taken = _taken.setdefault(api, {})
        for name in operations:
            if name in taken:
                raise ValueError(
                    f"operations of {self.node.path} must have names of their own in the HTTP API, got {name}, which "
                    f"{taken[name]} has; rename one of them"
                )
            taken[name] = self.node.path
        self.api = api
        self.routes: dict[str, apigatewayv2.HttpRoute] = {}
        self._authorizer = authorizer or authorizers.HttpIamAuthorizer()
        self._route_scope = Construct(self, "Routes")
        self._describe(Front(stage=DEFAULT_STAGE, joins_headers=True))
        self._serve_operations()

    @checked
    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        """Call every operation of this construct (``execute-api:Invoke``), in every stage of the HTTP API."""
        arns = [arn for name in self.operations for arn in self._methods_of(name)]
        return iam.Grant.add_to_principal(grantee=grantee, actions=["execute-api:Invoke"], resource_arns=arns)

    def _methods_of(self, name: str) -> list[str]:
        return [self.routes[f"{method} /{name}{suffix}"].route_arn for method, suffix in _ROUTES]

    def _operation(self, name: str, operation: Operation | DirectOperation) -> RuntimeFunction:
        function = self._function_of(name, operation)
        readers = {"POST": function, "GET": self.status_functions.get(name, function)}
        for method, suffix in _ROUTES:
            path = f"/{name}{suffix}"
            integration = integrations.HttpLambdaIntegration(
                f"{name}-{method}",
                self._invoked(name, readers[method]),
                payload_format_version=apigatewayv2.PayloadFormatVersion.VERSION_2_0,
                scope_permission_to_route=True,
            )
            self.routes[f"{method} {path}"] = apigatewayv2.HttpRoute(
                self._route_scope,
                f"{method}{name}",
                http_api=self.api,
                route_key=apigatewayv2.HttpRouteKey.with_(path, apigatewayv2.HttpMethod[method]),
                integration=integration,
                authorizer=self._authorizer,
                authorization_scopes=self._scopes,
            )
        return function
