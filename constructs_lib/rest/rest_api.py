"""REST APIs as all of ours are: regional, throttled, logged without bodies, with problem documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from aws_cdk import Acknowledgment, ArnFormat, RemovalPolicy, Stack, Validations
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from constructs_lib.functions.function_options import log_group
from constructs_lib.rest.problem_documents import add_default_responses, add_problem_responses
from constructs_lib.shared.arguments import require_between, require_match
from constructs_lib.shared.service_names import service_of

_STAGE: Final = r"^[A-Za-z0-9_]{1,32}$"
_LOGGING: Final = "CdkSagasApiLogging"
GATEWAY_SECONDS: Final = 29
"""Seconds after which the gateway responds, whatever its function does."""

_ACCESS: Final = {
    "request_id": "$context.requestId",
    "time": "$context.requestTimeEpoch",
    "method": "$context.httpMethod",
    "resource": "$context.resourcePath",
    "status": "$context.status",
    "caller": "$context.identity.caller",
    "latency_ms": "$context.responseLatency",
    "response_bytes": "$context.responseLength",
    "error": "$context.error.responseType",
}


def check_stage(stage_name: str, rate_limit: float, burst_limit: int) -> None:
    """Refuse what no stage could have.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """
    require_match("stage_name", stage_name, _STAGE, "use letters, digits and underscores")
    require_between("rate_limit", rate_limit, at_least=1, at_most=10_000, later=True)
    require_between("burst_limit", burst_limit, at_least=1, at_most=5_000, later=True)


def access_log_of(scope: Construct, removal_policy: RemovalPolicy) -> logs.LogGroup:
    """The log group of an API's accesses."""
    return log_group(scope, "AccessLog", retention=logs.RetentionDays.ONE_YEAR, removal_policy=removal_policy)


def rest_api(
    scope: Construct,
    *,
    description: str,
    access_log: logs.LogGroup,
    stage_name: str,
    rate_limit: float,
    burst_limit: int,
    cloud_watch_role: bool,
    problems: bool,
    allowed_origins: Sequence[str] = (),
    docs_url: str | None = None,
    binary: bool = False,
    tracing: bool = True,
    removal_policy: RemovalPolicy,
) -> apigateway.RestApi:
    """An API with one stage and no methods.

    Args:
        scope: parent construct.
        description: of the API.
        access_log: the access log's group.
        stage_name: of its stage.
        rate_limit: requests per second.
        burst_limit: requests at once.
        cloud_watch_role: whether the stack sets the account's role for logs of API Gateway.
        problems: whether each refusal of the gateway itself has a problem document of its own. Each is a resource of
            the stack; without them, there are two for all.
        allowed_origins: origins of pages whose scripts may read the gateway's own answers.
        docs_url: address that documents problems; their codes follow it.
        binary: whether bodies reach the function byte for byte. Without it, API Gateway makes UTF-8 text of them
            (https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-payload-encodings-workflow.html).
        tracing: whether the stage sends traces to X-Ray. Each has the request's address, its query included
            (https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-understanding-xray-traces.html).
        removal_policy: of the log of its errors.
    """
    api = apigateway.RestApi(
        scope,
        "RestApi",
        # CloudWatch's metrics of a REST API are by its name, which need not be unique.
        rest_api_name=service_of(scope),
        description=description,
        endpoint_types=[apigateway.EndpointType.REGIONAL],
        cloud_watch_role=False,
        binary_media_types=["*/*"] if binary else None,
        deploy_options=apigateway.StageOptions(
            stage_name=stage_name,
            access_log_destination=apigateway.LogGroupLogDestination(access_log),
            access_log_format=apigateway.AccessLogFormat.custom(json.dumps(_ACCESS)),
            logging_level=apigateway.MethodLoggingLevel.ERROR,
            data_trace_enabled=False,
            metrics_enabled=True,
            tracing_enabled=tracing,
            throttling_rate_limit=rate_limit,
            throttling_burst_limit=burst_limit,
        ),
    )
    stage = api.deployment_stage.node
    stage.add_dependency(
        _account_logging(scope, set_role=cloud_watch_role), _error_log(scope, api, stage_name, removal_policy)
    )
    if isinstance(stage.default_child, apigateway.CfnStage):
        # API Gateway stores the ARN without `:*` at its end: with it, drift is reported for ever (aws/aws-cdk#38796).
        stage.default_child.add_property_override("AccessLogSetting.DestinationArn", _arn_of(access_log))
    (add_problem_responses if problems else add_default_responses)(api, allowed_origins, docs_url)
    return api


def _error_log(
    scope: Construct, api: apigateway.RestApi, stage_name: str, removal_policy: RemovalPolicy
) -> logs.LogGroup:
    """The group in which the gateway logs its errors, by a name of its own; left to it, it would be kept for ever."""
    return log_group(
        scope,
        "ErrorLog",
        name=f"API-Gateway-Execution-Logs_{api.rest_api_id}/{stage_name}",
        retention=logs.RetentionDays.THREE_MONTHS,
        removal_policy=removal_policy,
    )


def _account_logging(scope: Construct, *, set_role: bool) -> Construct:
    """Dependency of a stack's stages: API Gateway refuses a stage that logs until its account has a role for it.

    The role is a setting of the whole account and region. It is kept when the stack is deleted, whatever else is not:
    stages of other stacks log under it.
    """
    stack = Stack.of(scope)
    found = stack.node.try_find_child(_LOGGING)
    logging = found if isinstance(found, Construct) else Construct(stack, _LOGGING)
    if set_role and logging.node.try_find_child("Role") is None:
        role = iam.Role(
            logging,
            "Role",
            assumed_by=iam.ServicePrincipal("apigateway.amazonaws.com"),
            description="Writes the logs of every API of the account and region",
            managed_policies=[
                iam.ManagedPolicy.from_aws_managed_policy_name("service-role/AmazonAPIGatewayPushToCloudWatchLogs")
            ],
        )
        role.apply_removal_policy(RemovalPolicy.RETAIN)
        account = apigateway.CfnAccount(logging, "Account", cloud_watch_role_arn=role.role_arn)
        account.apply_removal_policy(RemovalPolicy.RETAIN)
        Validations.of(role).acknowledge(
            Acknowledgment(
                id="AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/"
                "AmazonAPIGatewayPushToCloudWatchLogs]",
                reason="API Gateway writes its logs under one role per account and region; AWS provides this "
                "policy for it, and it allows nothing but writing logs.",
            )
        )
    return logging


def _arn_of(group: logs.LogGroup) -> str:
    return Stack.of(group).format_arn(
        service="logs",
        resource="log-group",
        resource_name=group.log_group_name,
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
