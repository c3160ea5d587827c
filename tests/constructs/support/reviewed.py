"""The part of a template that a person reviews, as text: data, permissions, alarms and state machines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from tests.constructs.support.cloud import Cloud, Resource, Statement
from tests.constructs.support.masked import masked_ids

_ASSET: Final = re.compile(r"\b[0-9a-f]{64}\b")
_STATEFUL: Final = (
    "AWS::DynamoDB::GlobalTable",
    "AWS::KMS::Key",
    "AWS::S3::Bucket",
    "AWS::SecretsManager::Secret",
    "AWS::SQS::Queue",
)


class ReviewExtension(SingleFileSnapshotExtension):
    """A snapshot that is a text file."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


def reviewed(cloud: Cloud, only: str = "") -> str:
    """The stack's data, permissions, alarms and state machines, for a human reader.

    Everything else of a template has assertions of its own (logs, functions, gateways) or is derived.

    Args:
        cloud: the template.
        only: a construct path; resources below it alone.
    """
    chosen = [resource for path, resource in sorted(cloud.resources.items()) if path.startswith(only)]
    lines = [
        "# Stateful resources",
        *(line for r in chosen if r.type in _STATEFUL for line in _resource(r)),
        "",
        "# Permissions",
        *_permissions(cloud, only),
        "",
        "# Alarms",
        *(line for r in chosen if r.type == "AWS::CloudWatch::Alarm" for line in _resource(r)),
        "",
        "# State machines",
        *(line for r in chosen if r.type == "AWS::StepFunctions::StateMachine" for line in _machine(cloud, r)),
    ]
    return masked_ids(_ASSET.sub("<asset>", "\n".join(lines))) + "\n"


def _resource(resource: Resource) -> Iterator[str]:
    kept = resource.raw.get("DeletionPolicy", "Delete"), resource.raw.get("UpdateReplacePolicy", "Delete")
    yield f"{resource.path} ({resource.type}; on deletion {kept[0]}, on replacement {kept[1]})"
    for name, value in sorted(resource.properties.items()):
        if name != "Tags":
            yield f"    {name}: {_brief(value)}"


def _permissions(cloud: Cloud, only: str) -> Iterator[str]:
    by_role: dict[str, list[Statement]] = {}
    for statement in cloud.statements():
        if statement.role.startswith(only):
            by_role.setdefault(statement.role, []).append(statement)
    for role, statements in sorted(by_role.items()):
        yield role
        for statement in sorted(statements, key=lambda s: (s.actions, s.resources)):
            condition = f" if {_brief(statement.condition)}" if statement.condition else ""
            yield f"    {statement.effect} {' '.join(statement.actions)}{condition}"
            yield from (f"        {resource}" for resource in statement.resources)


def _machine(cloud: Cloud, resource: Resource) -> Iterator[str]:
    definition = cloud.definition(resource.path)
    timeout = definition.get("TimeoutSeconds", "none")
    kind = resource.properties.get("StateMachineType", "STANDARD")
    yield f"{resource.path} ({kind}, timeout {timeout} s, starts at {definition['StartAt']})"
    yield from _states(definition["States"], "    ")


def _states(states: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, state in states.items():
        resource = str(state.get("Resource", "")).removeprefix("arn:aws:states:::")
        after = "end" if state.get("End") else state.get("Next", "")
        yield f"{indent}{name}: {' '.join(filter(None, (state['Type'], resource)))}{f' -> {after}' if after else ''}"
        for rule in state.get("Choices", ()):
            yield f"{indent}    if {rule.get('Condition', rule)} -> {rule['Next']}"
        if "Default" in state:
            yield f"{indent}    else -> {state['Default']}"
        for rule in state.get("Retry", ()):
            limits = ", ".join(f"{key} {value}" for key, value in rule.items() if key != "ErrorEquals")
            yield f"{indent}    retry {' '.join(rule['ErrorEquals'])}: {limits}"
        for rule in state.get("Catch", ()):
            yield f"{indent}    catch {' '.join(rule['ErrorEquals'])} -> {rule['Next']}"
        condition = state.get("Arguments", {}) if isinstance(state.get("Arguments"), Mapping) else {}
        for key in ("ConditionExpression", "UpdateExpression", "FilterExpression"):
            if key in condition:
                yield f"{indent}    {key}: {condition[key]}"
        for branch in state.get("Branches", ()):
            yield f"{indent}    branch starts at {branch['StartAt']}"
            yield from _states(branch["States"], f"{indent}        ")
        if "ItemProcessor" in state:
            yield f"{indent}    each item starts at {state['ItemProcessor']['StartAt']}"
            yield from _states(state["ItemProcessor"]["States"], f"{indent}        ")


def _brief(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
