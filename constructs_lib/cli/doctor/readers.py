"""Reading the parts of a stack, each as AWS describes it. Changes nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from constructs_lib.cli.doctor.aws import Aws
from constructs_lib.cli.doctor.system import Function, Queue, Rule, Source
from saga_runtime.protocol import LookField


def read_function(aws: Aws, name: str, asks: bool) -> Function:
    """Read a function; with ``asks`` also the destination of events that it could not handle."""
    from botocore.exceptions import ClientError

    client = aws.client("lambda")
    said = client.get_function_configuration(FunctionName=name)
    told = said.get("Environment", {})
    if "Error" in told:  # without the right to use its key, the function is returned without its environment
        raise ClientError({"Error": {"Code": told["Error"].get("ErrorCode", "")}}, "kms:Decrypt, of its environment")
    what = f"concurrency of function {name}"
    concurrency = aws.allowed(what, lambda: client.get_function_concurrency(FunctionName=name)) or {}
    invoked = aws.allowed(f"failures of function {name}", lambda: _invoked(client, name)) if asks else None
    return Function(
        name=said["FunctionName"],
        arn=said["FunctionArn"],
        environment=told.get("Variables", {}),
        at_zero=concurrency.get("ReservedConcurrentExecutions") == 0,
        ends_in=(invoked or {}).get("DestinationConfig", {}).get("OnFailure", {}).get("Destination", ""),
    )


def _invoked(client: Any, name: str) -> Any:
    """Destination of events that a function could not handle; empty without a configuration."""
    try:
        return client.get_function_event_invoke_config(FunctionName=name)
    except client.exceptions.ResourceNotFoundException:
        return {}


def read_rule(aws: Aws, physical: str, buses: Sequence[str]) -> Rule:
    """Read a rule; its id names its bus, or else one of the stack's has it."""
    client = aws.client("events")
    bus, _, name = physical.rpartition("|")
    where, said = _described(client, name, [bus, *(() if bus else buses)])
    pages = client.get_paginator("list_targets_by_rule").paginate(Rule=name, **where)
    targets = [target for page in pages for target in page["Targets"]]
    ends = [target.get("DeadLetterConfig", {}).get("Arn", "") for target in targets]
    return Rule(
        name=name,
        bus=where.get("EventBusName", ""),
        enabled=said.get("State") != "DISABLED",
        scheduled=bool(said.get("ScheduleExpression")),
        looks=not any(f'"{LookField.LOOK}"' in target.get("Input", "") for target in targets),
        targets=tuple(target["Arn"] for target in targets),
        dead_letters=tuple(arn for arn in ends if arn),
    )


def _described(client: Any, name: str, buses: Sequence[str]) -> tuple[dict[str, str], Any]:
    """Find a rule on one of these buses: its bus and its description."""
    bus, *others = buses
    where = {"EventBusName": bus} if bus else {}
    try:
        return where, client.describe_rule(Name=name, **where)
    except client.exceptions.ResourceNotFoundException:
        if not others:
            raise
        return _described(client, name, others)


def read_source(aws: Aws, uuid: str) -> Source:
    """Read the event source mapping of a queue and a function."""
    said = aws.client("lambda").get_event_source_mapping(UUID=uuid)
    return Source(
        uuid=uuid,
        enabled=said.get("State") not in ("Disabled", "Disabling"),
        queue=said.get("EventSourceArn", ""),
        function=said.get("FunctionArn", ""),
    )


def read_queue(aws: Aws, url: str) -> Queue:
    """A queue, and how much is in it; nothing is received."""
    counted = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
    asked = ["QueueArn", "RedrivePolicy", *counted]
    said = aws.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=asked)["Attributes"]
    return Queue(
        url=url,
        arn=said["QueueArn"],
        messages=sum(int(said.get(name, 0)) for name in counted),
        ends_in=str(json.loads(said.get("RedrivePolicy", "{}")).get("deadLetterTargetArn", "")),
    )
