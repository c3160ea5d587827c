"""The REST API: who may call, what is logged, how much is let through."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import App, Duration, NestedStack, Stack, Token
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_cognito as cognito
from aws_cdk import aws_iam as iam

from constructs_lib import (
    CallbackIntegration,
    FunctionOptions,
    IdempotencyTable,
    InProgressResponse,
    KeyPolicy,
    KeySource,
    Operation,
    TransactionApi,
)
from saga_runtime.protocol import Env
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.sagas import saga, step_function

METHOD = "AWS::ApiGateway::Method"
STAGE = "Api/RestApi/DeploymentStage.v1"


def _methods(cloud: Cloud) -> dict[str, Any]:
    """Methods by verb and path."""
    return {m.path.split("/Default/")[-1]: m.properties for m in cloud.of_type(METHOD)}


def test_an_operation_has_these_methods_and_no_other(reference: Cloud) -> None:
    assert set(_methods(reference)) == {"transfers/POST", "transfers/{saga_id}/GET"}


def test_every_method_is_authorized_by_iam(reference: Cloud) -> None:
    assert {method["AuthorizationType"] for method in _methods(reference).values()} == {"AWS_IAM"}


def test_every_method_goes_to_the_gatekeeper(reference: Cloud) -> None:
    for method in _methods(reference).values():
        integration = method["Integration"]
        assert (integration["Type"], integration["IntegrationHttpMethod"]) == ("AWS_PROXY", "POST")
        assert "${Api/Gatekeeper/transfers/Function.Arn}" in integration["Uri"]


def test_the_gatekeepers_timeout_is_shorter_than_the_gateways(reference: Cloud) -> None:
    assert reference.one("Api/Gatekeeper/transfers/Function").properties["Timeout"] < 29


def test_the_gateway_checks_body_and_parameters_too(reference: Cloud) -> None:
    validator = reference.one("Api/RestApi/Default/transfers/Validator", "AWS::ApiGateway::RequestValidator")
    assert validator.properties["ValidateRequestBody"] is True
    assert validator.properties["ValidateRequestParameters"] is True
    for method in _methods(reference).values():
        assert method["RequestValidatorId"] == f"${{{validator.path}}}"
    post = _methods(reference)["transfers/POST"]
    assert post["RequestModels"] == {"application/json": "${Api/RestApi/Default/transfers/Body}"}


def test_post_declares_its_headers_and_the_gateway_requires_none(stack: Stack) -> None:
    made = saga(stack)
    operations = {
        "plain": Operation(saga=made),
        "waits": Operation(saga=made, max_wait=Duration.seconds(5)),
        "natural": Operation(saga=made, key_source=KeySource.natural("/order")),
    }
    TransactionApi(stack, "Api", operations=operations)
    own = apigateway.RestApi(stack, "Own")
    below = own.root.add_resource("pay")
    TransactionApi(stack, "Below", resource=below, operations={"moves": made})
    cloud = Cloud(stack)

    declared = {
        method.path.removesuffix("/POST").rpartition("/")[2]: method.properties.get("RequestParameters", {})
        for method in cloud.of_type(METHOD)
        if method.properties["HttpMethod"] == "POST"
    }
    key = {"method.request.header.Idempotency-Key": False}
    assert declared == {
        "plain": key,
        "waits": {**key, "method.request.header.Prefer": False},
        "natural": {},
        "moves": key,
    }


def test_the_gateways_model_leaves_the_operations_schema_to_the_function(reference: Cloud) -> None:
    model = reference.one("Api/RestApi/Default/transfers/Body", "AWS::ApiGateway::Model").properties
    assert model["Schema"] == {"$schema": "http://json-schema.org/draft-04/schema#"}


def test_a_stage_is_throttled_traced_and_measured_and_logs_no_bodies(reference: Cloud) -> None:
    (setting,) = reference.one(STAGE).properties["MethodSettings"]
    assert (setting["HttpMethod"], setting["ResourcePath"]) == ("*", "/*")
    assert (setting["ThrottlingRateLimit"], setting["ThrottlingBurstLimit"]) == (100, 200)
    assert setting["MetricsEnabled"] is True
    assert setting["LoggingLevel"] == "ERROR"
    assert setting["DataTraceEnabled"] is False
    assert reference.one(STAGE).properties["TracingEnabled"] is True


def test_access_is_logged_as_json_without_the_clients_data(reference: Cloud) -> None:
    access = reference.one(STAGE).properties["AccessLogSetting"]
    fields = json.loads(access["Format"])
    assert {"request_id", "caller", "status", "error"} <= set(fields)
    text = access["Format"].lower()
    assert not [word for word in ("header", "body", "apikey", "accesskey", "token", "sourceip") if word in text]


def test_the_access_log_is_retained_and_expires(reference: Cloud) -> None:
    group = reference.one("Api/AccessLog", "AWS::Logs::LogGroup")
    assert group.properties["RetentionInDays"] == 365
    assert group.raw["DeletionPolicy"] == "Retain"


def test_the_api_is_regional(reference: Cloud) -> None:
    assert reference.one("Api/RestApi").properties["EndpointConfiguration"] == {"Types": ["REGIONAL"]}


def test_the_reference_app_has_a_web_acl_before_its_stage(reference: Cloud) -> None:
    association = reference.one("Api/WebAcl/Association", "AWS::WAFv2::WebACLAssociation").properties
    assert association["WebACLArn"] == "${Api/WebAcl/Acl.Arn}"
    assert association["ResourceArn"].endswith("::/restapis/${Api/RestApi}/stages/${" + STAGE + "}")
    acl = reference.one("Api/WebAcl/Acl", "AWS::WAFv2::WebACL").properties
    assert acl["Scope"] == "REGIONAL"
    assert [rule["Name"] for rule in acl["Rules"]] == ["CommonRules", "KnownBadInputs", "RatePerAddress"]
    assert [rule["Priority"] for rule in acl["Rules"]] == [0, 1, 2]


def test_the_web_acl_rejects_no_body_by_guess_and_no_missing_user_agent(reference: Cloud) -> None:
    """A transfer's text that resembles an attack would be refused with 403 under every retry."""
    rule = reference.one("Api/WebAcl/Acl").properties["Rules"][0]
    overrides = rule["Statement"]["ManagedRuleGroupStatement"]["RuleActionOverrides"]
    assert {override["Name"] for override in overrides if override["ActionToUse"] == {"Count": {}}} == {
        "SizeRestrictions_BODY",
        "CrossSiteScripting_BODY",
        "GenericLFI_BODY",
        "GenericRFI_BODY",
        "EC2MetaDataSSRF_BODY",
        "NoUserAgent_HEADER",
    }


@pytest.mark.parametrize("nested", [False, True])
def test_metrics_of_a_web_acl_have_names_that_waf_takes(new_app: Callable[[], App], *, nested: bool) -> None:
    scope: Stack = Stack(new_app(), "Shop")
    scope = NestedStack(scope, "Inner") if nested else scope
    orders = saga(scope)
    for name in ("Our API, v1.2", "Our API; v1.2", "A" * 200):
        TransactionApi(scope, name, operations={"orders": orders}, waf=True)
    acls = [acl.properties for acl in Cloud(scope).of_type("AWS::WAFv2::WebACL")]
    names = [part["VisibilityConfig"]["MetricName"] for acl in acls for part in (acl, *acl["Rules"])]

    assert len(set(names)) == len(names) == 12
    assert [name for name in names if not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", name)] == []


class TestTheRatePerAddress:
    def _rule(self, cloud: Cloud) -> dict[str, Any]:
        (acl,) = cloud.of_type("AWS::WAFv2::WebACL")
        rule: dict[str, Any] = acl.properties["Rules"][-1]
        return rule

    def test_has_the_status_of_the_stages_own_limit_and_a_retry_after(self, reference: Cloud) -> None:
        """A 403 means a lack of permission: its client would abandon a request that may be in progress."""
        answer = self._rule(reference)["Action"]["Block"]["CustomResponse"]
        headers = {header["Name"]: header["Value"] for header in answer["ResponseHeaders"]}
        assert answer["ResponseCode"] == 429
        assert int(headers["Retry-After"]) > 0
        (acl,) = reference.of_type("AWS::WAFv2::WebACL")
        body = acl.properties["CustomResponseBodies"][answer["CustomResponseBodyKey"]]
        problem = json.loads(body["Content"])
        assert body["ContentType"] == "APPLICATION_JSON"
        assert (problem["type"], problem["status"]) == ("urn:cdk-sagas:problem:throttled", 429)

    def test_is_above_the_stages_own_by_default(self, stack: Stack) -> None:
        TransactionApi(stack, "Api", operations={"orders": saga(stack)}, waf=True, rate_limit=30)
        assert self._rule(Cloud(stack))["Statement"]["RateBasedStatement"] == {
            "AggregateKeyType": "IP",
            "Limit": 2 * 30 * 300,  # of WAF's five minutes
        }

    def test_is_configurable(self, stack: Stack) -> None:
        TransactionApi(stack, "Api", operations={"orders": saga(stack)}, waf=True, rate_per_address=7.5)
        assert self._rule(Cloud(stack))["Statement"]["RateBasedStatement"]["Limit"] == 2_250

    def test_of_an_approval_page_is_far_below_its_stages(self, stack: Stack) -> None:
        """The page is open to everybody: one stranger must not use up what reviewers need."""
        made = CallbackIntegration(stack, "Reviewers", fn=step_function(stack))
        made.add_approval_page("Page")
        cloud = Cloud(stack)
        (setting,) = cloud.one("Reviewers/Page/RestApi/DeploymentStage.v1").properties["MethodSettings"]
        limit = self._rule(cloud)["Statement"]["RateBasedStatement"]["Limit"]
        assert (setting["ThrottlingRateLimit"], limit) == (100, 1 * 300)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"rate_per_address": 5}, "waf must be True with rate_per_address, got rate_per_address=5 without it"),
            ({"waf": True, "rate_per_address": 0}, "rate_per_address must be 1 to 100000, got 0"),
            ({"waf": True, "rate_limit": Token.as_number({"Ref": "Rate"})}, "rate_per_address must be given where"),
        ],
        ids=["without a web ACL", "out of range", "of a rate that is a token"],
    )
    def test_is_refused_where_it_could_not_be_applied(
        self, stack: Stack, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ValueError, match=f"^{message}"):
            TransactionApi(stack, "Api", operations={"orders": saga(stack)}, **options)


def test_without_asking_there_is_no_web_acl(stack: Stack) -> None:
    TransactionApi(stack, "Api", operations={"orders": saga(stack)})
    assert not [r for r in Cloud(stack).resources.values() if r.type.startswith("AWS::WAF")]


def test_settings_reach_stage_and_gatekeeper(stack: Stack) -> None:
    requests = IdempotencyTable(stack, "Requests", due_shards=3)
    TransactionApi(
        stack,
        "Api",
        operations={
            "orders": Operation(
                saga=saga(stack, requests=requests),
                key_policy=KeyPolicy.OPTIONAL,
                in_progress_response=InProgressResponse.ACCEPTED,
                max_body_bytes=1000,
            )
        },
        rate_limit=7,
        burst_limit=9,
        stage_name="prod",
        cloud_watch_role=False,
    )
    cloud = Cloud(stack)
    (setting,) = cloud.one("Api/RestApi/DeploymentStage.prod").properties["MethodSettings"]
    assert (setting["ThrottlingRateLimit"], setting["ThrottlingBurstLimit"]) == (7, 9)
    variables = cloud.one("Api/Gatekeeper/orders/Function").properties["Environment"]["Variables"]
    assert variables[Env.KEY_POLICY] == "OPTIONAL"
    assert variables[Env.IN_PROGRESS_RESPONSE] == "ACCEPTED"
    assert variables[Env.DUE_SHARDS] == "3"
    assert variables[Env.MAX_BODY_BYTES] == "1000"
    assert not cloud.of_type("AWS::ApiGateway::Account")


def test_a_gatekeeper_that_lets_clients_wait_outlives_the_wait_and_not_the_gateway(stack: Stack) -> None:
    waiting = Operation(saga=saga(stack), max_wait=Duration.seconds(20))
    small = FunctionOptions(memory_mib=256)
    TransactionApi(stack, "Api", operations={"orders": waiting}, function_options=small)

    function = Cloud(stack).one("Api/Gatekeeper/orders/Function").properties
    assert function["MemorySize"] == 256
    assert function["Environment"]["Variables"][Env.MAX_WAIT_SECONDS] == "20"
    assert 20 < function["Timeout"] < 29


def test_clients_that_wait_leave_the_status_to_a_function_of_its_own(stack: Stack) -> None:
    waiting = Operation(saga=saga(stack), max_wait=Duration.seconds(20))
    api = TransactionApi(stack, "Api", operations={"orders": waiting})

    cloud = Cloud(stack)
    methods = {name: method["Integration"]["Uri"] for name, method in _methods(cloud).items()}
    assert "${Api/Gatekeeper/orders/Function.Arn}" in methods["orders/POST"]
    assert "${Api/Status/orders/Function.Arn}" in methods["orders/{saga_id}/GET"]
    assert list(api.status_functions) == ["orders"]
    granted = {action for action, _ in cloud.permissions("Api/Status/orders/Role")}
    assert granted - {"xray:PutTraceSegments", "xray:PutTelemetryRecords"} == {
        "dynamodb:GetItem",
        "dynamodb:Query",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
    }


def test_a_custom_authorizer_protects_every_method(stack: Stack) -> None:
    pool = cognito.UserPool(stack, "Pool")
    authorizer = apigateway.CognitoUserPoolsAuthorizer(stack, "Authorizer", cognito_user_pools=[pool])
    TransactionApi(stack, "Api", operations={"orders": saga(stack)}, authorizer=authorizer, identity="jwt")
    cloud = Cloud(stack)
    for method in _methods(cloud).values():
        assert method["AuthorizationType"] == "COGNITO_USER_POOLS"
        assert method["AuthorizerId"] == "${Authorizer}"
    assert cloud.one("Api/Gatekeeper/orders/Function").properties["Environment"]["Variables"][Env.IDENTITY] == "jwt"


def test_the_grant_to_invoke_names_the_operations_methods(stack: Stack) -> None:
    api = TransactionApi(stack, "Api", operations={"orders": saga(stack)})
    api.grant_invoke(iam.Role(stack, "Caller", assumed_by=iam.AccountRootPrincipal()))
    granted = Cloud(stack).permissions("Caller")
    assert {action for action, _ in granted} == {"execute-api:Invoke"}
    stage = "${Api/RestApi}/${Api/RestApi/DeploymentStage.v1}"
    assert {resource.split(":")[-1] for _, resource in granted} == {f"{stage}/POST/orders", f"{stage}/GET/orders/*"}


def test_another_schema_changes_nothing_but_the_gatekeepers_code(new_stack: Callable[[], Stack]) -> None:
    def template(schema: dict[str, Any]) -> dict[str, Any]:
        stack = new_stack()
        TransactionApi(stack, "Api", operations={"orders": Operation(saga=saga(stack), schema=schema)})
        cloud = Cloud(stack)
        cloud.one("Api/Gatekeeper/orders/Function").raw["Properties"].pop("Code")
        return {logical_id: resource.raw["Properties"] for logical_id, resource in cloud.resources.items()}

    assert template({"type": "object"}) == template({"type": "array", "maxItems": 3})


def test_each_operation_has_an_alarm_of_starts_that_are_refused(stack: Stack) -> None:
    api = TransactionApi(stack, "Api", operations={"orders": saga(stack), "refunds": saga(stack, "Other")})

    cloud = Cloud(stack)
    for name in ("orders", "refunds"):
        alarm = cloud.one(f"Api/Alarms/StartRefused/{name}", "AWS::CloudWatch::Alarm").properties
        variables = cloud.one(f"Api/Gatekeeper/{name}/Function").properties["Environment"]["Variables"]
        assert (alarm["Namespace"], alarm["MetricName"], alarm["Threshold"]) == ("CdkSagas", "SagaStartRefused", 0)
        assert alarm["Dimensions"] == [{"Name": "service", "Value": variables[Env.SERVICE]}]
    assert api.alarms == [api.start_refused_alarms["orders"], api.start_refused_alarms["refunds"]]


def test_a_deployment_waits_for_methods_and_models(reference: Cloud) -> None:
    (deployment,) = reference.of_type("AWS::ApiGateway::Deployment")
    depends = set(deployment.raw["DependsOn"])
    for kind in (METHOD, "AWS::ApiGateway::Model", "AWS::ApiGateway::RequestValidator"):
        assert {resource.logical_id for resource in reference.of_type(kind)} <= depends, kind
