"""Actions and resources that a call of AWS needs, from operation and parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from constructs_lib.testing.simulator.aws.dynamodb.parsing import projection_of
from constructs_lib.testing.simulator.aws.roles import Demand
from constructs_lib.testing.simulator.deployment.blueprint import ACCOUNT, REGION, arn

_IN_TRANSACTIONS: Final = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
    "Get": "GetItem",
}
#: How IAM spells a service, where it is not boto3's name.
PREFIXES: Final = {"stepfunctions": "states"}
_ACTIONS: Final = {
    "lambda:Invoke": "lambda:InvokeFunction",
    "s3:HeadObject": "s3:GetObject",
    "s3:ListObjectsV2": "s3:ListBucket",
    "sqs:SendMessageBatch": "sqs:SendMessage",
    "sqs:DeleteMessageBatch": "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibilityBatch": "sqs:ChangeMessageVisibility",
}
"""Actions that are not named like their operations."""


def demands_of(
    service: str,
    operation: str,
    params: Mapping[str, Any],
    keys_of: Callable[[str], str],
    wanted: Collection[str] = ("dynamodb:LeadingKeys", "dynamodb:Attributes", "dynamodb:Select"),
) -> list[Demand]:
    """Everything that a call needs.

    Args:
        service: boto3's name of it.
        operation: name of the operation.
        params: its parameters.
        keys_of: name of a table's partition key.
        wanted: condition keys whose values matter.
    """
    action = f"{PREFIXES.get(service, service)}:{operation}"
    action = _ACTIONS.get(action, action)
    if service == "dynamodb":
        return list(_of_dynamodb(operation, params, keys_of if wanted else None))
    return [Demand(action, _resource(service, operation, params))] if action not in _FREE else []


_FREE: Final = frozenset({"sts:GetCallerIdentity"})
"""These need no right: https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html"""
_KeysOf = Callable[[str], str] | None
"""Name of a table's partition key; None: no condition reads it, nor any other context key."""


def _of_dynamodb(operation: str, params: Mapping[str, Any], keys_of: _KeysOf) -> Iterator[Demand]:
    if operation in ("TransactWriteItems", "TransactGetItems"):
        for entry in params["TransactItems"]:
            for kind, request in entry.items():
                if kind in _IN_TRANSACTIONS:
                    yield _of_item(_IN_TRANSACTIONS[kind], request, keys_of)
    elif operation in ("BatchGetItem", "BatchWriteItem"):
        for table in params["RequestItems"]:
            yield Demand(f"dynamodb:{operation}", _table_arn(table))
    else:
        yield _of_item(operation, params, keys_of)


def _table_arn(name: str) -> str:
    return name if name.startswith("arn:") else arn("dynamodb", f"table/{name}")


@lru_cache(maxsize=4096)
def _unconditional(operation: str, table: str, index: str | None) -> Demand:
    resource = _table_arn(table)
    return Demand(f"dynamodb:{operation}", resource if index is None else f"{resource}/index/{index}")


def _of_item(operation: str, request: Mapping[str, Any], keys_of: _KeysOf) -> Demand:
    bare = _unconditional(operation, str(request.get("TableName", "")), request.get("IndexName"))
    if keys_of is None:
        return bare
    context: list[tuple[str, tuple[str, ...]]] = []
    partition = keys_of(request["TableName"])
    held = (request.get("Key") or request.get("Item") or {}).get(partition)
    if held is not None:
        context.append(("dynamodb:LeadingKeys", (str(next(iter(held.values()))),)))
    text = request.get("ProjectionExpression")
    if text is not None:
        names = request.get("ExpressionAttributeNames") or {}
        paths = (str(path.elements[0]) for path in projection_of(text).tree)
        context.append(("dynamodb:Attributes", tuple(names.get(path, path) for path in paths)))
        context.append(("dynamodb:Select", ("SPECIFIC_ATTRIBUTES",)))
    return Demand(bare.action, bare.resource, tuple(context))


def _resource(service: str, operation: str, params: Mapping[str, Any]) -> str:
    match service:
        case "sqs":
            return arn("sqs", str(params.get("QueueUrl", "")).rpartition("/")[2])
        case "stepfunctions":
            return _of_states(operation, params)
        case "lambda":
            name = str(params.get("FunctionName", ""))
            return name if name.startswith("arn:") else arn("lambda", f"function:{name}")
        case "s3":
            bucket = f"arn:aws:s3:::{params.get('Bucket', '')}"
            return f"{bucket}/{params['Key']}" if "Key" in params else bucket
        case "secretsmanager":
            name = str(params.get("SecretId", ""))
            return name if name.startswith("arn:") else arn("secretsmanager", f"secret:{name}-Simula")
        case "events":
            buses = {str(entry.get("EventBusName", "default")) for entry in params.get("Entries", ())}
            name = min(buses, default="default")
            return name if name.startswith("arn:") else arn("events", f"event-bus/{name}")
    return "*"


def _of_states(operation: str, params: Mapping[str, Any]) -> str:
    if operation.startswith("SendTask"):
        # Documented without resources, and checked against the state machine's ARN all the same.
        machine = str(params.get("taskToken", "")).partition("|")[0]
        return f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:{machine}"
    named = params.get("stateMachineArn") or params.get("stateMachineAliasArn")
    if named is not None:
        # The state machine's own, also for a version and for an alias of it.
        return ":".join(str(named).split(":")[:7])
    return str(params.get("executionArn") or params.get("activityArn") or "*")
