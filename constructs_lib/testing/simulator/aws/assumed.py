"""Roles of the stack with which services of AWS make calls of their own: logs, traces, polling, children's ends.

Source: the Lambda developer guide ("Lambda execution role", "Using Lambda with Amazon SQS", "… DynamoDB"), the Step
Functions developer guide ("Logging", "X-Ray", "IAM policies for integrated services").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from constructs_lib.testing.simulator.aws.roles import Demand
from constructs_lib.testing.simulator.deployment.blueprint import Blueprint, FunctionSpec, MachineSpec, arn

_LOGS: Final = ("logs:CreateLogStream", "logs:PutLogEvents")
_TRACES: Final = ("xray:PutTraceSegments", "xray:PutTelemetryRecords")
_SAMPLING: Final = ("xray:GetSamplingRules", "xray:GetSamplingTargets")
_DELIVERY: Final = (
    "logs:CreateLogDelivery",
    "logs:GetLogDelivery",
    "logs:UpdateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:DescribeResourcePolicies",
    "logs:DescribeLogGroups",
)
_QUEUE: Final = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes")
_STREAM: Final = ("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator")
"""Its documentation has ``ListStreams``, too, which takes no resource; a mapping names the one stream that it reads."""
_RULE: Final = arn("events", "rule/StepFunctionsGetEventsForStepFunctionsExecutionRule")
_RULED: Final = ("events:PutTargets", "events:PutRule", "events:DescribeRule")
_ENDS: Final = ("states:DescribeExecution", "states:StopExecution")
_WAITED_FOR: Final = (":states:startExecution.sync", ":states:startExecution.sync:2")


def demands_of_invocation(function: FunctionSpec) -> Iterator[Demand]:
    """Demands of the Lambda service when it runs a function; without them, it runs it all the same."""
    group = arn("logs", f"log-group:{function.log_group or f'/aws/lambda/{function.name}'}:*")
    yield from _on(group, _LOGS)
    if function.traced:
        yield from _on("*", _TRACES)


def demands_of_creation(blueprint: Blueprint) -> Iterator[tuple[str, str, Demand]]:
    """Demands without which a resource is not created: its name, its role, and what the role must be allowed."""
    for mapping in blueprint.mappings:
        if (reader := blueprint.functions.get(mapping.function)) is not None:
            for demand in _on(arn("sqs", mapping.queue), _QUEUE):
                yield f"the mapping of {mapping.queue}", reader.role, demand
    for stream in blueprint.streams:
        if (reader := blueprint.functions.get(stream.function)) is not None:
            for demand in _on(f"{stream.table}.StreamArn", _STREAM):
                yield f"the mapping of {stream.table}", reader.role, demand
    for machine in blueprint.machines.values():
        for demand in _of_machine(machine):
            yield machine.name, machine.role, demand


def _of_machine(machine: MachineSpec) -> Iterator[Demand]:
    if machine.logged:
        yield from _on("*", _DELIVERY)
    if machine.traced:
        yield from _on("*", (*_TRACES, *_SAMPLING))
    for child in sorted(set(_waited_for(machine.definition))):
        yield from _on(_RULE, _RULED)
        yield from _on(f"{child.replace(':stateMachine:', ':execution:')}:*", _ENDS)


def _on(resource: str, actions: tuple[str, ...]) -> Iterator[Demand]:
    return (Demand(action, resource) for action in actions)


def _waited_for(definition: Any) -> Iterator[str]:
    """ARNs of the state machines of whose executions a definition awaits the end."""
    if isinstance(definition, dict):
        if str(definition.get("Resource", "")).endswith(_WAITED_FOR):
            yield str(definition["Arguments"]["StateMachineArn"])
        for value in definition.values():
            yield from _waited_for(value)
    elif isinstance(definition, list):
        for value in definition:
            yield from _waited_for(value)
