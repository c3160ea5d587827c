"""Ways into operations: browsers, scopes, API keys, an existing REST API, an HTTP API."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_cognito as cognito
from aws_cdk import aws_iam as iam
from aws_cdk.assertions import Annotations, Match
from cdk_nag import AwsSolutionsChecks

from constructs_lib import (
    DirectFunction,
    DirectOperation,
    HttpTransactionApi,
    IdempotencyTable,
    Operation,
    SagaMonitoring,
    SagaStateMachine,
    TransactionApi,
)
from saga_runtime.protocol import Env
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.sagas import FUNCTIONS, saga

METHOD = "AWS::ApiGateway::Method"
ROUTE = "AWS::ApiGatewayV2::Route"
SHOP = "https://shop.example"


def _methods(stack: Stack) -> dict[str, Any]:
    return {method.path.removesuffix("/Resource"): method.properties for method in Cloud(stack).of_type(METHOD)}


class TestBrowsers:
    def test_each_path_answers_a_preflight_without_credentials(self, stack: Stack) -> None:
        TransactionApi(stack, "Api", operations={"moves": saga(stack)}, allowed_origins=[SHOP])

        preflights = {path: method for path, method in _methods(stack).items() if method["HttpMethod"] == "OPTIONS"}

        assert {path.rsplit("/", 2)[-2] for path in preflights} == {"moves", "{saga_id}"}
        for method in preflights.values():
            assert method["AuthorizationType"] == "NONE"
            headers = method["Integration"]["IntegrationResponses"][0]["ResponseParameters"]
            assert headers["method.response.header.Access-Control-Allow-Origin"] == f"'{SHOP}'"
            assert "Idempotency-Key" in headers["method.response.header.Access-Control-Allow-Headers"]

    def test_the_functions_and_the_gateways_own_answers_know_the_origins(self, stack: Stack) -> None:
        api = TransactionApi(
            stack, "Api", operations={"moves": saga(stack)}, allowed_origins=[SHOP, "http://localhost:5173"]
        )

        cloud = Cloud(stack)
        variables = cloud.one("Api/Gatekeeper/moves/Function").properties["Environment"]["Variables"]
        assert variables[Env.ALLOWED_ORIGINS] == f"{SHOP} http://localhost:5173"
        for response in cloud.of_type("AWS::ApiGateway::GatewayResponse"):
            headers = response.properties["ResponseParameters"]
            assert headers["gatewayresponse.header.Access-Control-Allow-Origin"] == "'*'"
        assert AwsSolutionsChecks().validate_scope(api).success or _only_waf(api)

    @pytest.mark.parametrize(
        ("origins", "message"),
        [
            (["shop.example"], "an origin in allowed_origins must match .*, got 'shop.example'; write scheme and host"),
            (["https://shop.example/"], "an origin in allowed_origins must match .*; write scheme and host"),
            (["*", SHOP], r"allowed_origins must be \* alone or origins, got .*; leave out one or the other"),
            ([SHOP, SHOP], "allowed_origins must be unique, got 'https://shop.example' twice"),
            (SHOP, "allowed_origins of TransactionApi Api must be a list of str, got 'https://shop.example'"),
        ],
    )
    def test_a_wrong_origin_is_refused(self, stack: Stack, origins: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            TransactionApi(stack, "Api", operations={"moves": saga(stack)}, allowed_origins=origins)


def _only_waf(api: TransactionApi) -> bool:
    return {violation.rule_name for violation in AwsSolutionsChecks().validate_scope(api).violations} == {
        "AwsSolutions-APIG3"
    }


class TestScopesAndKeys:
    def test_methods_ask_for_scopes_and_for_an_api_key(self, stack: Stack) -> None:
        pool = cognito.UserPool(stack, "Pool")
        authorizer = apigateway.CognitoUserPoolsAuthorizer(stack, "Authorizer", cognito_user_pools=[pool])
        api = TransactionApi(
            stack,
            "Api",
            operations={"moves": saga(stack)},
            authorizer=authorizer,
            identity="jwt",
            authorization_scopes=["pay/write"],
            api_key_required=True,
            allowed_origins=["*"],
        )
        plan = api.api.add_usage_plan("Plan", throttle=apigateway.ThrottleSettings(rate_limit=5, burst_limit=5))
        plan.add_api_stage(stage=api.api.deployment_stage)

        for method in _methods(stack).values():
            asked = method["HttpMethod"] != "OPTIONS"
            assert method.get("AuthorizationScopes") == (["pay/write"] if asked else None)
            assert method.get("ApiKeyRequired", False) is asked

    def test_scopes_without_an_authorizer_are_refused(self, stack: Stack) -> None:
        with pytest.raises(ValueError, match=r"^authorization_scopes must be given with an authorizer, got \['a'\]"):
            TransactionApi(stack, "Api", operations={"moves": saga(stack)}, authorization_scopes=["a"])


class TestAnExistingRestApi:
    def test_operations_are_below_a_resource_and_no_other_api_is_made(self, stack: Stack) -> None:
        own = apigateway.RestApi(stack, "Own", cloud_watch_role=False)

        api = TransactionApi(stack, "Api", resource=own.root.add_resource("pay"), operations={"moves": saga(stack)})

        cloud = Cloud(stack)
        assert [found.path for found in cloud.of_type("AWS::ApiGateway::RestApi")] == ["Own"]
        assert {(m["HttpMethod"], p.split("Default/")[1]) for p, m in _methods(stack).items()} == {
            ("POST", "pay/moves/POST"),
            ("GET", "pay/moves/{saga_id}/GET"),
        }
        assert api.api is own
        assert api.access_log is None

    def test_a_grant_names_the_paths_below_the_resource(self, stack: Stack) -> None:
        own = apigateway.RestApi(stack, "Own", cloud_watch_role=False)
        api = TransactionApi(stack, "Api", resource=own.root.add_resource("pay"), operations={"moves": saga(stack)})
        role = iam.Role(stack, "Client", assumed_by=iam.AccountRootPrincipal())
        api.grant_invoke(role)

        granted = {str(arn).rsplit("/prod", 1)[-1].lstrip("}/") for _, arn in Cloud(stack).permissions("Client")}
        assert any("POST/pay/moves" in arn for arn in granted), granted

    def test_the_stage_of_the_api_has_its_alarms(self, stack: Stack) -> None:
        own = apigateway.RestApi(stack, "Own", cloud_watch_role=False)
        TransactionApi(stack, "Api", resource=own.root, operations={"moves": saga(stack)})

        assert SagaMonitoring(stack, "Monitoring").alarms

    @pytest.mark.parametrize(
        "given",
        [{"rate_limit": 10}, {"burst_limit": 10}, {"waf": True}, {"stage_name": "v2"}, {"cloud_watch_role": False}],
    )
    def test_what_the_api_has_already_is_refused(self, stack: Stack, given: dict[str, Any]) -> None:
        own = apigateway.RestApi(stack, "Own", cloud_watch_role=False)
        name = next(iter(given))

        with pytest.raises(ValueError, match=f"^{name} must not be given with resource, got .*; set it at the API"):
            TransactionApi(stack, "Api", resource=own.root, operations={"moves": saga(stack)}, **given)

    def test_an_imported_api_is_refused_with_the_reason(self, stack: Stack) -> None:
        theirs = apigateway.RestApi.from_rest_api_attributes(
            stack, "Theirs", rest_api_id="abc", root_resource_id="root"
        )

        with pytest.raises(ValueError, match=r"^resource must belong to a RestApi of this app, got one of Test/Theirs"):
            TransactionApi(stack, "Api", resource=theirs.root, operations={"moves": saga(stack)})


class TestAnHttpApi:
    def test_each_operation_has_two_routes_in_the_newer_payload_format(self, stack: Stack) -> None:
        HttpTransactionApi(
            stack, "Api", api=apigatewayv2.HttpApi(stack, "Http"), operations={"moves": Operation(saga=saga(stack))}
        )

        cloud = Cloud(stack)
        routes = {r.properties["RouteKey"]: r.properties["AuthorizationType"] for r in cloud.of_type(ROUTE)}
        assert routes == {"POST /moves": "AWS_IAM", "GET /moves/{saga_id}": "AWS_IAM"}
        formats = {i.properties["PayloadFormatVersion"] for i in cloud.of_type("AWS::ApiGatewayV2::Integration")}
        assert formats == {"2.0"}
        assert not cloud.of_type("AWS::ApiGateway::RestApi")

    def test_a_token_needs_a_scope(self, stack: Stack) -> None:
        pool = cognito.UserPool(stack, "Pool")
        HttpTransactionApi(
            stack,
            "Api",
            api=apigatewayv2.HttpApi(stack, "Http"),
            operations={"moves": saga(stack)},
            authorizer=authorizers.HttpUserPoolAuthorizer("Users", pool),
            identity="jwt",
            authorization_scopes=["pay/write"],
        )

        for route in Cloud(stack).of_type(ROUTE):
            assert (route.properties["AuthorizationType"], route.properties["AuthorizationScopes"]) == (
                "JWT",
                ["pay/write"],
            )

    def test_an_imported_http_api_takes_routes(self, stack: Stack) -> None:
        theirs = apigatewayv2.HttpApi.from_http_api_attributes(stack, "Theirs", http_api_id="abc")

        HttpTransactionApi(stack, "Api", api=theirs, operations={"moves": saga(stack)})

        assert {route.properties["ApiId"] for route in Cloud(stack).of_type(ROUTE)} == {"abc"}

    def test_its_functions_have_alarms(self, stack: Stack) -> None:
        api = HttpTransactionApi(
            stack, "Api", api=apigatewayv2.HttpApi(stack, "Http"), operations={"moves": saga(stack)}
        )

        alarms = {alarm.node.path for alarm in SagaMonitoring(stack, "Monitoring").alarms}
        assert {alarm.node.path for alarm in api.alarms} < alarms
        assert [path for path in alarms if path.startswith("Test/Monitoring/Api/moves/")]

    def test_a_client_is_granted_its_routes(self, stack: Stack) -> None:
        api = HttpTransactionApi(
            stack, "Api", api=apigatewayv2.HttpApi(stack, "Http"), operations={"moves": saga(stack)}
        )
        api.grant_invoke(iam.Role(stack, "Client", assumed_by=iam.AccountRootPrincipal()))

        actions = {action for action, _ in Cloud(stack).permissions("Client")}
        assert actions == {"execute-api:Invoke"}

    def test_a_rest_api_is_refused_by_name(self, stack: Stack) -> None:
        wrong: Any = apigateway.RestApi(stack, "Own", cloud_watch_role=False)

        with pytest.raises(ValueError, match=r"^api of HttpTransactionApi Api must be an? I?HttpApi"):
            HttpTransactionApi(stack, "Api", api=wrong, operations={"moves": saga(stack)})


def test_both_kinds_of_api_may_serve_one_saga(stack: Stack) -> None:
    machine: SagaStateMachine = saga(stack)
    TransactionApi(stack, "Rest", operations={"moves": machine})
    HttpTransactionApi(stack, "Http", api=apigatewayv2.HttpApi(stack, "Api"), operations={"moves": machine})

    assert isinstance(machine.requests, IdempotencyTable)
    assert len(Cloud(stack).of_type(ROUTE)) == 2


def test_an_operation_of_two_apis_that_share_keys_begins_one_thing(stack: Stack) -> None:
    first = saga(stack)
    second = saga(stack, "Other", requests=first.requests)
    TransactionApi(stack, "Rest", operations={"moves": first})

    with pytest.raises(
        ValueError, match=r"^operation moves of Test/Http must begin Test/Saga, as that of another API "
    ):
        HttpTransactionApi(stack, "Http", api=apigatewayv2.HttpApi(stack, "Gateway"), operations={"moves": second})


def test_a_saga_and_the_direct_operation_that_replaces_it_may_share_keys(stack: Stack) -> None:
    before = saga(stack)
    fn = DirectFunction(stack, "Direct", code=FUNCTIONS, handler="direct.handler")
    TransactionApi(stack, "Rest", operations={"moves": before})

    replaced = DirectOperation(fn=fn, requests=before.requests, previous=before)
    HttpTransactionApi(stack, "Http", api=apigatewayv2.HttpApi(stack, "Gateway"), operations={"moves": replaced})


def test_operations_of_one_name_whose_callers_or_tables_differ_share_no_keys(stack: Stack) -> None:
    first = saga(stack)
    second = saga(stack, "Other", requests=first.requests)
    third = saga(stack, "Third", requests=IdempotencyTable(stack, "Requests2"))
    TransactionApi(stack, "Rest", operations={"moves": first})

    HttpTransactionApi(
        stack,
        "Http",
        api=apigatewayv2.HttpApi(stack, "Gateway"),
        operations={"moves": second},
        authorizer=authorizers.HttpUserPoolAuthorizer("Tokens", cognito.UserPool(stack, "Users")),
        identity="jwt",
    )
    TransactionApi(stack, "Other Rest", operations={"moves": third})


def test_a_route_of_an_http_api_is_of_one_operation(stack: Stack) -> None:
    http, machine = apigatewayv2.HttpApi(stack, "Api"), saga(stack)
    HttpTransactionApi(stack, "One", api=http, operations={"moves": machine})

    with pytest.raises(ValueError, match=r"^operations of Test/Two must have names of their own in the HTTP"):
        HttpTransactionApi(stack, "Two", api=http, operations={"moves": machine})


def test_an_api_without_a_stage_is_refused(stack: Stack) -> None:
    own = apigateway.RestApi(stack, "Own", deploy=False)

    with pytest.raises(ValueError, match=r"^resource must belong to a RestApi that has its own stage, got one"):
        TransactionApi(stack, "Api", resource=own.root, operations={"moves": saga(stack)})


def test_an_api_in_place_of_a_resource_is_refused_with_the_remedy(stack: Stack) -> None:
    own: Any = apigateway.RestApi(stack, "Own", cloud_watch_role=False)

    with pytest.raises(ValueError, match=r"got a RestApi; pass its \.root$"):
        TransactionApi(stack, "Api", resource=own, operations={"moves": saga(stack)})


def test_preflights_of_an_api_stay_its_own_with_a_warning(stack: Stack) -> None:
    cors = apigateway.CorsOptions(allow_origins=[SHOP], allow_headers=["Idempotency-Key"])
    own = apigateway.RestApi(stack, "Own", cloud_watch_role=False, default_cors_preflight_options=cors)
    TransactionApi(stack, "Api", resource=own.root, operations={"moves": saga(stack)}, allowed_origins=[SHOP])

    text = Match.string_like_regexp("must allow the header Idempotency-Key")
    warned = Annotations.from_stack(stack).find_warning("*", text)
    assert len(warned) == 2
