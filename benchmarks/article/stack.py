"""The stack of functions in a row, with what any stack needs and nothing more."""

from __future__ import annotations

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


class ArticleStack(Stack):
    """Gatekeeper, three functions in a row, two tables."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        idempotency = self._table("Idempotency")
        accounts = self._table("Accounts")
        debit = self._function("Debit", "steps.debit")
        credit = self._function("Credit", "steps.credit")
        complete = self._function("Complete", "steps.complete")
        for step in (debit, credit):
            step.add_environment("ACCOUNT_TABLE", accounts.table_name)
            accounts.grant_read_write_data(step)
        complete.add_environment("IDEMPOTENCY_TABLE", idempotency.table_name)
        idempotency.grant_read_write_data(complete)
        chain: sfn.IChainable | None = None
        for name, function in (("DebitTask", debit), ("CreditTask", credit), ("CompleteTask", complete)):
            task = tasks.LambdaInvoke(self, name, lambda_function=function, payload_response_only=True)
            task.add_retry(errors=["States.ALL"], interval=Duration.seconds(2), max_attempts=6, backoff_rate=2)
            chain = task if chain is None else sfn.Chain.start(chain).next(task)
        if chain is None:
            raise AssertionError
        machine = sfn.StateMachine(self, "Machine", definition_body=sfn.DefinitionBody.from_chainable(chain))
        front = self._function("Front", "front.handler")
        front.add_environment("IDEMPOTENCY_TABLE", idempotency.table_name)
        front.add_environment("STATE_MACHINE_ARN", machine.state_machine_arn)
        idempotency.grant_read_write_data(front)
        machine.grant_start_execution(front)
        api = apigateway.RestApi(self, "Api", cloud_watch_role=False)
        api.root.add_resource("transfers").add_method(
            "POST",
            apigateway.LambdaIntegration(front),
            authorization_type=apigateway.AuthorizationType.IAM,
        )
        for name, value in (
            ("ApiId", api.rest_api_id),
            ("ApiStage", api.deployment_stage.stage_name),
            ("RequestTableName", idempotency.table_name),
            ("AccountTableName", accounts.table_name),
            ("StateMachineArn", machine.state_machine_arn),
        ):
            CfnOutput(self, name, value=value)

    def _table(self, id: str) -> dynamodb.TableV2:
        return dynamodb.TableV2(
            self,
            id,
            partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            time_to_live_attribute="expiration",
            removal_policy=RemovalPolicy.DESTROY,
        )

    def _function(self, id: str, handler: str) -> lambda_.Function:
        return lambda_.Function(
            self,
            id,
            code=lambda_.Code.from_asset(str(FUNCTIONS)),
            handler=handler,
            runtime=lambda_.Runtime.PYTHON_3_14,
            architecture=lambda_.Architecture.ARM_64,
            timeout=Duration.seconds(15),
            memory_size=512,
        )
