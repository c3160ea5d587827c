"""A small system to develop and test local AWS against: REST API with IAM → function → table → state machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_wafv2 as wafv2
from constructs import Construct

_FUNCTIONS = Path(__file__).parent / "functions"
_PROBLEM = '{"type":"about:blank","title":$context.error.messageString,"status":%d}'


class TargetStack(cdk.Stack):
    """Everything that a normal stack of this library needs from the emulator."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        key = kms.Key(self, "Key", enable_key_rotation=True)
        self.table = dynamodb.TableV2(
            self,
            "Table",
            partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            time_to_live_attribute="expiration",
            encryption=dynamodb.TableEncryptionV2.aws_managed_key(),
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=True,
        )
        self.queue = sqs.Queue(self, "Queue", encryption=sqs.QueueEncryption.KMS, encryption_master_key=key)
        self.function = lambda_.Function(
            self,
            "Front",
            code=lambda_.Code.from_asset(str(_FUNCTIONS), exclude=["__pycache__"]),
            handler="front.handler",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            tracing=lambda_.Tracing.ACTIVE,
            timeout=cdk.Duration.seconds(60),
            log_group=logs.LogGroup(self, "FrontLogs", retention=logs.RetentionDays.ONE_MONTH),
            environment={"TABLE": self.table.table_name},
        )
        self.table.grant(self.function, "dynamodb:PutItem")
        key.grant_encrypt_decrypt(self.function)
        self.worker = lambda_.Function(
            self,
            "Worker",
            code=lambda_.Code.from_asset(str(_FUNCTIONS), exclude=["__pycache__"]),
            handler="worker.handler",
            runtime=lambda_.Runtime.PYTHON_3_13,
            timeout=cdk.Duration.minutes(15),
        )
        lambda_.Function(
            self,
            "Silent",
            code=lambda_.Code.from_inline("def handler(event, context):\n    return event\n"),
            handler="index.handler",
            runtime=lambda_.Runtime.PYTHON_3_13,
        )
        self._api()
        self.machine = self._machine()
        self.function.add_environment("MACHINE", self.machine.state_machine_arn)
        self.machine.grant_start_execution(self.function)

    def _api(self) -> None:
        access_log = logs.LogGroup(self, "AccessLog")
        api = apigateway.RestApi(
            self,
            "Api",
            cloud_watch_role=True,
            binary_media_types=["image/png"],
            deploy_options=apigateway.StageOptions(
                stage_name="prod",
                throttling_rate_limit=500,
                throttling_burst_limit=1000,
                access_log_destination=apigateway.LogGroupLogDestination(access_log),
                access_log_format=apigateway.AccessLogFormat.json_with_standard_fields(
                    caller=True, http_method=True, ip=True, protocol=True, request_time=True, resource_path=True,
                    response_length=True, status=True, user=True,
                ),
                logging_level=apigateway.MethodLoggingLevel.ERROR,
                tracing_enabled=True,
                metrics_enabled=True,
                method_options={"/limited/POST": apigateway.MethodDeploymentOptions(
                    throttling_rate_limit=1, throttling_burst_limit=1,
                )},
            ),
            default_method_options=apigateway.MethodOptions(authorization_type=apigateway.AuthorizationType.IAM),
        )  # fmt: skip
        for response_type, status in (
            (apigateway.ResponseType.ACCESS_DENIED, 403),
            (apigateway.ResponseType.MISSING_AUTHENTICATION_TOKEN, 403),
            (apigateway.ResponseType.INVALID_SIGNATURE, 403),
            (apigateway.ResponseType.THROTTLED, 429),
            (apigateway.ResponseType.REQUEST_TOO_LARGE, 413),
            (apigateway.ResponseType.INTEGRATION_TIMEOUT, 504),
            (apigateway.ResponseType.BAD_REQUEST_BODY, 400),
            (apigateway.ResponseType.DEFAULT_4_XX, 400),
            (apigateway.ResponseType.DEFAULT_5_XX, 500),
        ):
            api.add_gateway_response(
                f"On{response_type.response_type.title().replace('_', '')}",
                type=response_type,
                response_headers={"Content-Type": "'application/problem+json'"},
                templates={"application/json": _PROBLEM % status},
            )
        integration = apigateway.LambdaIntegration(self.function)
        model = api.add_model(
            "Thing",
            content_type="application/json",
            schema=apigateway.JsonSchema(
                type=apigateway.JsonSchemaType.OBJECT,
                required=["id"],
                properties={"id": apigateway.JsonSchema(type=apigateway.JsonSchemaType.STRING)},
            ),
        )
        things = api.root.add_resource("things")
        things.add_method(
            "POST",
            integration,
            request_models={"application/json": model},
            request_validator=api.add_request_validator("Body", validate_request_body=True),
        )
        api.root.add_resource("echo").add_method("POST", integration)
        api.root.add_resource("slow").add_method("POST", integration)
        api.root.add_resource("limited").add_method("POST", integration)
        api.root.add_resource("open").add_method(
            "POST", integration, authorization_type=apigateway.AuthorizationType.NONE
        )
        acl = wafv2.CfnWebACL(
            self,
            "Acl",
            default_action=wafv2.CfnWebACL.DefaultActionProperty(allow={}),
            scope="REGIONAL",
            visibility_config=wafv2.CfnWebACL.VisibilityConfigProperty(
                cloud_watch_metrics_enabled=True, metric_name="acl", sampled_requests_enabled=True
            ),
        )
        wafv2.CfnWebACLAssociation(
            self, "AclOfApi", resource_arn=api.deployment_stage.stage_arn, web_acl_arn=acl.attr_arn
        )
        cdk.CfnOutput(self, "ApiId", value=api.rest_api_id)
        cdk.CfnOutput(self, "TableName", value=self.table.table_name)
        cdk.CfnOutput(self, "QueueUrl", value=self.queue.queue_url)

    def _machine(self) -> sfn.StateMachine:
        definition: dict[str, Any] = {
            "QueryLanguage": "JSONata",
            "StartAt": "Work",
            "TimeoutSeconds": 600,
            "States": {
                "Work": {
                    "Type": "Task",
                    "Resource": "arn:aws:states:::lambda:invoke",
                    "Arguments": {"FunctionName": self.worker.function_arn, "Payload": "{% $states.input %}"},
                    "Output": "{% $states.result.Payload %}",
                    "TimeoutSeconds": 300,
                    "Retry": [{"ErrorEquals": ["Passing"], "IntervalSeconds": 1, "MaxAttempts": 2}],
                    "Catch": [
                        {
                            "ErrorEquals": ["States.ALL"],
                            "Assign": {"error": "{% $states.errorOutput.Error %}"},
                            "Output": {"failed": "{% $states.errorOutput.Error %}"},
                            "Next": "Settle",
                        }
                    ],
                    "Assign": {"error": "none"},
                    "Next": "Settle",
                },
                "Settle": {
                    "Type": "Task",
                    "Resource": "arn:aws:states:::dynamodb:updateItem",
                    "Arguments": {
                        "TableName": self.table.table_name,
                        "Key": {"id": {"S": "{% $states.context.Execution.Input.id %}"}},
                        "UpdateExpression": "SET #s = :s, #e = :e",
                        "ConditionExpression": "attribute_exists(id)",
                        "ExpressionAttributeNames": {"#s": "status", "#e": "error"},
                        "ExpressionAttributeValues": {":s": {"S": "settled"}, ":e": {"S": "{% $error %}"}},
                    },
                    "Output": "{% $states.input %}",
                    "End": True,
                },
            },
        }
        machine = sfn.StateMachine(
            self,
            "Machine",
            definition_body=sfn.DefinitionBody.from_string(cdk.Stack.of(self).to_json_string(definition)),
            tracing_enabled=True,
            logs=sfn.LogOptions(destination=logs.LogGroup(self, "MachineLogs"), level=sfn.LogLevel.ERROR),
        )
        self.worker.grant_invoke(machine)
        self.table.grant(machine, "dynamodb:UpdateItem")
        cdk.CfnOutput(self, "MachineArn", value=machine.state_machine_arn)
        return machine


def synthesize(folder: Path) -> Path:
    """Synthesize the system into a folder and return the folder."""
    app = cdk.App(outdir=str(folder))
    TargetStack(app, "Target")
    app.synth()
    return folder
