"""The logs of APIs and state machines: who allows them, what they are called, and what a deleted stack leaves."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import RemovalPolicy, Stack, Stage
from aws_cdk import aws_logs as logs

from constructs_lib import CallbackIntegration, Step, StripeSignature, TransactionApi
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.integrations import own, saga_of, secret
from tests.constructs.support.sagas import plain_function, saga
from tests.constructs.support.shipped import Shipped

STAGE = "AWS::ApiGateway::Stage"
ACCOUNT = "AWS::ApiGateway::Account"
MACHINE = "AWS::StepFunctions::StateMachine"


@pytest.fixture(scope="module")
def cart(shipped: Shipped) -> Cloud:
    return shipped.cloud("cart fulfilment")


def _webhook(stack: Stack, **options: Any) -> None:
    CallbackIntegration(stack, "Warehouse").add_webhook(
        "Webhook", fn=own(stack, "From"), scheme=StripeSignature(secrets=[secret(stack)]), **options
    )


class TestTheAccountsLoggingRole:
    def test_is_set_once_per_stack_and_before_every_stage(self, cart: Cloud) -> None:
        (account,) = cart.of_type(ACCOUNT)
        stages = cart.of_type(STAGE)
        assert len(stages) > 1
        for stage in stages:
            assert account.logical_id in stage.raw["DependsOn"], stage.path

    def test_is_set_before_stages_that_were_declared_without_it(self, stack: Stack) -> None:
        _webhook(stack, cloud_watch_role=False)
        TransactionApi(stack, "Api", operations={"orders": saga(stack)})

        cloud = Cloud(stack)
        (account,) = cloud.of_type(ACCOUNT)
        for stage in cloud.of_type(STAGE):
            assert account.logical_id in stage.raw["DependsOn"], stage.path

    def test_is_unchanged_without_an_api_that_needs_it(self, stack: Stack) -> None:
        _webhook(stack, cloud_watch_role=False)
        TransactionApi(stack, "Api", operations={"orders": saga(stack)}, cloud_watch_role=False)

        assert not Cloud(stack).of_type(ACCOUNT)

    def test_outlives_the_stack_with_any_removal_policy(self, stack: Stack) -> None:
        TransactionApi(stack, "Api", operations={"orders": saga(stack)}, removal_policy=RemovalPolicy.DESTROY)

        cloud = Cloud(stack)
        (account,) = cloud.of_type(ACCOUNT)
        role = cloud.one(account.properties["CloudWatchRoleArn"].removeprefix("${").removesuffix(".Arn}"))
        for kept in (account, role):
            assert (kept.raw["DeletionPolicy"], kept.raw["UpdateReplacePolicy"]) == ("Retain", "Retain"), kept.path

    def test_may_write_logs_and_nothing_else(self, reference: Cloud) -> None:
        (account,) = reference.of_type(ACCOUNT)
        role = reference.one(account.properties["CloudWatchRoleArn"].removeprefix("${").removesuffix(".Arn}"))
        (policy,) = role.properties["ManagedPolicyArns"]
        assert policy.endswith(":iam::aws:policy/service-role/AmazonAPIGatewayPushToCloudWatchLogs")
        assert not list(reference.statements(role.path))


class TestAStagesAccessLog:
    def test_is_named_as_the_gateway_stores_it(self, cart: Cloud) -> None:
        """With ``:*`` at its end the stage would be reported as drifted for ever: aws/aws-cdk#38796."""
        for stage in cart.of_type(STAGE):
            destination = stage.properties["AccessLogSetting"]["DestinationArn"]
            group = stage.path.partition("/RestApi/")[0]
            assert destination == (
                "arn:${AWS::Partition}:logs:${AWS::Region}:${AWS::AccountId}:log-group:${" + group + "/AccessLog}"
            )

    def test_is_named_so_in_apps_without_the_cdks_flag(self, new_app: AppFactory) -> None:
        app = new_app()
        stage = Stage(app, "Old")
        stage.node.set_context("@aws-cdk/aws-apigateway:logGroupDestinationArnWithoutWildcard", False)
        stack = Stack(stage, "Test")
        _webhook(stack)

        (found,) = Cloud(stack).of_type(STAGE)
        assert "log-group:${Warehouse/Webhook/AccessLog}" in found.properties["AccessLogSetting"]["DestinationArn"]


class TestAnApisErrorLog:
    def test_has_the_gateways_name_and_an_expiration_and_precedes_the_stage(self, cart: Cloud) -> None:
        """Otherwise API Gateway would create it, and keep it forever."""
        for stage in cart.of_type(STAGE):
            log = cart.one(stage.path.partition("/RestApi/")[0] + "/ErrorLog", "AWS::Logs::LogGroup")
            api = stage.properties["RestApiId"]
            assert log.properties == {"LogGroupName": f"API-Gateway-Execution-Logs_{api}/v1", "RetentionInDays": 90}
            assert log.logical_id in stage.raw["DependsOn"]
            assert log.raw["DeletionPolicy"] == "Retain"


class TestAStateMachinesLogGroup:
    def _names(self, cloud: Cloud) -> list[Any]:
        groups = {
            destination["CloudWatchLogsLogGroup"]["LogGroupArn"].removeprefix("${").removesuffix(".Arn}")
            for machine in cloud.of_type(MACHINE)
            for destination in machine.properties["LoggingConfiguration"]["Destinations"]
        }
        return [cloud.one(group).raw["Properties"]["LogGroupName"] for group in groups]

    def test_is_where_no_resource_policy_of_the_account_grows_with_it(self, cart: Cloud) -> None:
        """Others are added to one policy of 5,120 characters: aws/aws-cdk#26432."""
        for name in self._names(cart):
            (separator, parts) = name["Fn::Join"]
            assert (separator, parts[0]) == ("", "/aws/vendedlogs/states/")

    def test_has_a_name_that_no_earlier_one_can_have(self, cart: Cloud) -> None:
        """A retained group would be in the way of a saga that is added again, or after a deployment that failed."""
        for name in self._names(cart):
            table = cart.resources[cart.flat(name["Fn::Join"][1][1]).removeprefix("${").removesuffix("}")]
            assert (table.path.rpartition("/")[2], table.type) == ("Table", "AWS::DynamoDB::GlobalTable")
            assert "TableName" not in table.properties

    def test_has_another_name_under_another_logical_id(self, stack: Stack) -> None:
        """CloudFormation then makes a new group before it lets the old one go, or retains it."""
        made = saga_of(stack, *_step(stack, "One"), id="One")
        group = made.log_group.node.default_child
        assert isinstance(group, logs.CfnLogGroup)
        group.override_logical_id("Renamed")

        (name,) = self._names(Cloud(stack))
        assert name["Fn::Join"][1][-1] == "-Renamed"

    def test_has_another_name_under_another_construct_id(self, stack: Stack) -> None:
        saga_of(stack, *_step(stack, "One"), id="One")
        saga_of(stack, *_step(stack, "Two"), id="Two")

        names = [str(name) for name in self._names(Cloud(stack))]
        assert len(set(names)) == len(names) == 2


def _step(stack: Stack, name: str) -> list[Step]:
    return [Step.atomic("Move", fn=plain_function(stack, f"{name}Function"))]


class TestAWebhooksAndAPagesAnswers:
    def test_of_the_gateway_itself_are_two(self, cart: Cloud) -> None:
        """A provider and a browser read the status: each kind of answer would be another resource of 500."""
        by_api: dict[str, set[str]] = {}
        for response in cart.of_type("AWS::ApiGateway::GatewayResponse"):
            by_api.setdefault(response.path.partition("/RestApi/")[0], set()).add(response.properties["ResponseType"])
        assert len(by_api.pop("Api")) > 15
        assert len(by_api) == 4
        assert set(map(frozenset, by_api.values())) == {frozenset({"DEFAULT_4XX", "DEFAULT_5XX"})}
