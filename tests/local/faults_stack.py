"""The stack that faults are tried on: functions that write to a table, a state machine and an API around them."""

from __future__ import annotations

import json
from typing import Any

_WORKER = """
import boto3, os, time
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

def client(service, attempts):
    return boto3.client(service, config=Config(retries={"mode": "standard", "total_max_attempts": attempts}))

def act(event):
    attempts = event.get("attempts", 3)
    if "operation" in event:
        getattr(client(event["service"], attempts), event["operation"])()
        return
    table, dynamodb = os.environ["TABLE"], client("dynamodb", attempts)
    put = lambda key: {"TableName": table, "Item": {"id": {"S": key}}}
    if "transact" in event:
        dynamodb.transact_write_items(TransactItems=[{"Put": put(key)} for key in event["transact"]])
    else:
        key = event["put"] if "put" in event else "step-" + event["id"] if "id" in event else "from-api"
        dynamodb.put_item(**put(key))

def handler(event, context):
    answer = {"pid": os.getpid(), "request_id": context.aws_request_id}
    try:
        act(event)
    except ClientError as error:
        reasons = [reason["Code"] for reason in error.response.get("CancellationReasons", [])]
        return {"raised": error.response["Error"]["Code"], "code": error.response["Error"]["Code"], "reasons": reasons}
    except BotoCoreError as error:
        return {"raised": type(error).__name__}
    if "together" in event:
        folder, number = event["together"]
        open(os.path.join(folder, context.aws_request_id), "w").close()
        while len(os.listdir(folder)) < number:
            time.sleep(0.01)
    return answer
"""
_IMPORTER = """
import boto3, os
boto3.client("sts").get_caller_identity()

def handler(event, context):
    return {"pid": os.getpid()}
"""
_ROLE = {
    "Type": "AWS::IAM::Role",
    "Properties": {
        "AssumeRolePolicyDocument": {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Principal": {"Service": ["lambda.amazonaws.com", "states.amazonaws.com"]},
                    "Action": "sts:AssumeRole",
                }
            ],
        },
        "Policies": [
            {
                "PolicyName": "Everything",
                "PolicyDocument": {
                    "Version": "2012-10-17",
                    "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}],
                },
            }
        ],
    },
}


def template() -> dict[str, Any]:
    """The CloudFormation template."""
    return {
        "Resources": {
            "Role": _ROLE,
            "Table": {
                "Type": "AWS::DynamoDB::Table",
                "Properties": {
                    "BillingMode": "PAY_PER_REQUEST",
                    "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
                    "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
                },
            },
            "Worker": _function(_WORKER, timeout=200),
            # Three seconds of real time at speed 10: enough to make a call on a busy machine.
            "Hasty": _function(_WORKER, timeout=30),
            "Importer": _function(_IMPORTER, timeout=200),
            "Machine": {
                "Type": "AWS::StepFunctions::StateMachine",
                "Properties": {
                    "RoleArn": {"Fn::GetAtt": ["Role", "Arn"]},
                    "DefinitionString": {"Fn::Sub": json.dumps(_definition())},
                },
            },
            **_api(),
        },
        "Outputs": {
            name: {"Value": {"Ref": name}} for name in ("Table", "Worker", "Hasty", "Importer", "Machine", "Api")
        },
    }


def _function(code: str, *, timeout: int) -> dict[str, Any]:
    return {
        "Type": "AWS::Lambda::Function",
        "Properties": {
            "Runtime": "python3.13",
            "Handler": "index.handler",
            "Role": {"Fn::GetAtt": ["Role", "Arn"]},
            "Timeout": timeout,
            "Code": {"ZipFile": code},
            "Environment": {"Variables": {"TABLE": {"Ref": "Table"}}},
        },
    }


def _definition() -> dict[str, Any]:
    retry = [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "MaxAttempts": 2}]
    task = {"Type": "Task", "Retry": retry, "Output": "{% $states.input %}"}

    def settle(attribute: str) -> dict[str, Any]:
        return {
            "TableName": "${Table}",
            "Key": {"id": {"S": "{% $states.input.id %}"}},
            "UpdateExpression": f"ADD {attribute} :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }

    def branch(state: str) -> dict[str, Any]:
        return {"StartAt": state, "States": {state: {"Type": "Pass", "End": True}}}

    return {
        "QueryLanguage": "JSONata",
        "StartAt": "Step",
        "States": {
            "Step": {
                **task,
                "Resource": "arn:aws:states:::lambda:invoke",
                "Arguments": {"FunctionName": "${Worker}", "Payload": "{% $states.input %}"},
                "Next": "Both",
            },
            "Both": {
                "Type": "Parallel",
                "Branches": [branch("Left"), branch("Right")],
                "Output": "{% $states.input %}",
                "Next": "Settle",
            },
            "Settle": {
                **task,
                "Resource": "arn:aws:states:::dynamodb:updateItem",
                "Arguments": settle("settled"),
                "TimeoutSeconds": 20,
                "Next": "SettleBySdk",
            },
            "SettleBySdk": {
                **task,
                "Resource": "arn:aws:states:::aws-sdk:dynamodb:updateItem",
                "Arguments": settle("settled_by_sdk"),
                "Next": "Done",
            },
            "Done": {"Type": "Succeed"},
        },
    }


def _api() -> dict[str, Any]:
    """A REST API that anybody may call, with one resource that the worker answers."""
    uri = "arn:aws:apigateway:${AWS::Region}:lambda:path/2015-03-31/functions/${Worker.Arn}/invocations"
    return {
        "Api": {"Type": "AWS::ApiGateway::RestApi", "Properties": {"Name": "faults"}},
        "Key": {
            "Type": "AWS::ApiGateway::Resource",
            "Properties": {
                "RestApiId": {"Ref": "Api"},
                "ParentId": {"Fn::GetAtt": ["Api", "RootResourceId"]},
                "PathPart": "k",
            },
        },
        "Post": {
            "Type": "AWS::ApiGateway::Method",
            "Properties": {
                "RestApiId": {"Ref": "Api"},
                "ResourceId": {"Ref": "Key"},
                "HttpMethod": "POST",
                "AuthorizationType": "NONE",
                "Integration": {"Type": "AWS_PROXY", "IntegrationHttpMethod": "POST", "Uri": {"Fn::Sub": uri}},
            },
        },
        "Deployment": {
            "Type": "AWS::ApiGateway::Deployment",
            "DependsOn": ["Post"],
            "Properties": {"RestApiId": {"Ref": "Api"}},
        },
        "Stage": {
            "Type": "AWS::ApiGateway::Stage",
            "Properties": {"RestApiId": {"Ref": "Api"}, "DeploymentId": {"Ref": "Deployment"}, "StageName": "test"},
        },
        "Permission": {
            "Type": "AWS::Lambda::Permission",
            "Properties": {
                "FunctionName": {"Ref": "Worker"},
                "Action": "lambda:InvokeFunction",
                "Principal": "apigateway.amazonaws.com",
            },
        },
    }
