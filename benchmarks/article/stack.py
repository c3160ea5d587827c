"""Stacks of transfers without this library, with what any stack needs and nothing more."""

from __future__ import annotations

import importlib
import shutil
import tempfile
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Final

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

FUNCTIONS: Final = Path(__file__).parent / "functions"
"""A package: its modules import each other."""
RETRIED: Final = [
    "Lambda.ServiceException",
    "Lambda.AWSLambdaException",
    "Lambda.SdkClientException",
    "Lambda.TooManyRequestsException",
]


class Way(StrEnum):
    """Ways to transfer without this library; the value is the module of the function behind the API."""

    ARTICLE = "article"
    POWERTOOLS = "powertools"
    """The same, with Powertools' ``@idempotent`` around the first function and around each step."""
    EXPRESS = "express"
    """The article's, with a synchronous Express execution that nothing continues: the first response has the result."""


class WithoutSagas(Stack):
    """The function behind the API, two steps in a row, two tables."""

    def __init__(self, scope: Construct, id: str, *, way: Way) -> None:
        super().__init__(scope, id)
        self._way = way
        idempotency = self._table("Idempotency")
        accounts = self._table("Accounts")
        environment = {"ACCOUNT_TABLE": accounts.table_name, "IDEMPOTENCY_TABLE": idempotency.table_name}
        machine = self._machine(idempotency, [self._step(name, accounts, environment) for name in ("debit", "credit")])
        front = self._function("Front", f"functions.{way}.handler", environment)
        front.add_environment("STATE_MACHINE_ARN", machine.state_machine_arn)
        machine.grant_start_execution(front)
        machine.grant_start_sync_execution(front)
        for function in self._functions:
            idempotency.grant_read_write_data(function)
        api = apigateway.RestApi(self, "Api", cloud_watch_role=False)
        api.root.add_resource("transfers").add_method(
            "POST", apigateway.LambdaIntegration(front), authorization_type=apigateway.AuthorizationType.IAM
        )
        for name, value in (
            ("ApiId", api.rest_api_id),
            ("ApiStage", api.deployment_stage.stage_name),
            ("RequestTableName", idempotency.table_name),
            ("AccountTableName", accounts.table_name),
            ("StateMachineArn", machine.state_machine_arn),
        ):
            CfnOutput(self, name, value=value)

    def _machine(self, idempotency: dynamodb.TableV2, steps: list[tasks.LambdaInvoke]) -> sfn.StateMachine:
        """The steps, and the state that writes the answer; an Express execution returns it instead."""
        chain = sfn.Chain.start(steps[0]).next(steps[1])
        if self._way is not Way.EXPRESS:
            chain = chain.next(
                tasks.DynamoUpdateItem(
                    self,
                    "Complete",
                    table=idempotency,
                    key={"id": tasks.DynamoAttributeValue.from_string(sfn.JsonPath.string_at("$.key"))},
                    update_expression="SET #status = :completed, #result = :result",
                    expression_attribute_names={"#status": "status", "#result": "result"},
                    expression_attribute_values={
                        ":completed": tasks.DynamoAttributeValue.from_string("COMPLETED"),
                        ":result": tasks.DynamoAttributeValue.from_string(
                            sfn.JsonPath.json_to_string(sfn.JsonPath.object_at("$.request"))
                        ),
                    },
                )
            )
        return sfn.StateMachine(
            self,
            "Machine",
            definition_body=sfn.DefinitionBody.from_chainable(chain),
            state_machine_type=(
                sfn.StateMachineType.EXPRESS if self._way is Way.EXPRESS else sfn.StateMachineType.STANDARD
            ),
        )

    def _step(self, name: str, accounts: dynamodb.TableV2, environment: dict[str, str]) -> tasks.LambdaInvoke:
        module = "steps_powertools" if self._way is Way.POWERTOOLS else "steps"
        function = self._function(name.title(), f"functions.{module}.{name}", environment)
        accounts.grant_read_write_data(function)
        task = tasks.LambdaInvoke(
            self,
            f"{name.title()}Task",
            lambda_function=function,
            payload_response_only=True,
            result_path=sfn.JsonPath.DISCARD,
            retry_on_service_exceptions=False,
        )
        task.add_retry(errors=RETRIED, interval=Duration.seconds(2), max_attempts=3, backoff_rate=2)
        return task

    @property
    def _functions(self) -> list[lambda_.Function]:
        return [child for child in self.node.children if isinstance(child, lambda_.Function)]

    def _table(self, id: str) -> dynamodb.TableV2:
        return dynamodb.TableV2(
            self,
            id,
            partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            time_to_live_attribute="expiration",
            removal_policy=RemovalPolicy.DESTROY,
        )

    def _function(self, id: str, handler: str, environment: dict[str, str]) -> lambda_.Function:
        return lambda_.Function(
            self,
            id,
            code=lambda_.Code.from_asset(str(_asset(powertools=self._way is Way.POWERTOOLS))),
            handler=handler,
            runtime=lambda_.Runtime.PYTHON_3_14,
            architecture=lambda_.Architecture.ARM_64,
            timeout=Duration.seconds(29),
            memory_size=512,
            environment=environment,
        )


@lru_cache(maxsize=2)
def _asset(*, powertools: bool) -> Path:
    """The functions' package, next to the installed Powertools, as users of its layer have it."""
    folder = Path(tempfile.mkdtemp(prefix="cdk-sagas-article-"))
    shutil.copytree(FUNCTIONS, folder / FUNCTIONS.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("aws_lambda_powertools", "jmespath", "typing_extensions") if powertools else ():
        found = Path(str(importlib.import_module(name).__file__))
        if found.name == "__init__.py":
            shutil.copytree(found.parent, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(found, folder)
    return folder
