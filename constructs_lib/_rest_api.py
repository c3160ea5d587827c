"""REST APIs as all of ours are: regional, throttled, traced, logged without bodies, with problem documents."""

from __future__ import annotations

import json
from typing import Final

from aws_cdk import Acknowledgment, RemovalPolicy, Validations
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_logs as logs
from constructs import Construct

from constructs_lib._arguments import require_between, require_match
from constructs_lib._gateway_problems import add_problem_responses

_STAGE: Final = r"^[A-Za-z0-9_]{1,32}$"
GATEWAY_SECONDS: Final = 29
"""After which the gateway answers by itself, whatever its function does."""

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
    require_between("rate_limit", rate_limit, at_least=1, at_most=10_000)
    require_between("burst_limit", burst_limit, at_least=1, at_most=5_000)


def access_log_of(scope: Construct, removal_policy: RemovalPolicy) -> logs.LogGroup:
    """The log group of an API's accesses."""
    return logs.LogGroup(scope, "AccessLog", retention=logs.RetentionDays.ONE_YEAR, removal_policy=removal_policy)


def rest_api(
    scope: Construct,
    *,
    description: str,
    access_log: logs.LogGroup,
    stage_name: str,
    rate_limit: float,
    burst_limit: int,
    cloud_watch_role: bool,
    removal_policy: RemovalPolicy,
) -> apigateway.RestApi:
    """An API with one stage and no methods."""
    api = apigateway.RestApi(
        scope,
        "RestApi",
        description=description,
        endpoint_types=[apigateway.EndpointType.REGIONAL],
        cloud_watch_role=cloud_watch_role,
        cloud_watch_role_removal_policy=removal_policy if cloud_watch_role else None,
        deploy_options=apigateway.StageOptions(
            stage_name=stage_name,
            access_log_destination=apigateway.LogGroupLogDestination(access_log),
            access_log_format=apigateway.AccessLogFormat.custom(json.dumps(_ACCESS)),
            logging_level=apigateway.MethodLoggingLevel.ERROR,
            data_trace_enabled=False,
            metrics_enabled=True,
            tracing_enabled=True,
            throttling_rate_limit=rate_limit,
            throttling_burst_limit=burst_limit,
        ),
    )
    if cloud_watch_role:
        Validations.of(api).acknowledge(
            Acknowledgment(
                id="AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/"
                "AmazonAPIGatewayPushToCloudWatchLogs]",
                reason="API Gateway writes its logs under one role per account and region; AWS provides this "
                "policy for it, and it allows nothing but writing logs.",
            )
        )
    add_problem_responses(api)
    return api
