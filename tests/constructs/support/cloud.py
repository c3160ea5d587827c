"""A synthesized template, made readable: construct paths instead of logical ids, texts instead of intrinsics."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import Stack
from aws_cdk.assertions import Template

PATH_METADATA = "aws:cdk:path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One resource of a template; its properties are flat (see ``Cloud.flat``)."""

    logical_id: str
    path: str
    type: str
    properties: Mapping[str, Any]
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement of an identity policy."""

    role: str
    effect: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    condition: Mapping[str, Any]

    @property
    def permissions(self) -> set[tuple[str, str]]:
        """Every pair of action and resource."""
        return {(action, resource) for action in self.actions for resource in self.resources}


class Cloud:
    """A stack's template."""

    def __init__(self, stack: Stack) -> None:
        self.template: Mapping[str, Any] = Template.from_stack(stack).to_json()
        self._name = stack.node.path
        self._paths = {key: self._path_of(key, raw) for key, raw in self.template["Resources"].items()}
        self.resources = {
            self._paths[key]: Resource(
                logical_id=key,
                path=self._paths[key],
                type=raw["Type"],
                properties=self.flat(raw.get("Properties", {})),
                raw=raw,
            )
            for key, raw in self.template["Resources"].items()
        }

    def _path_of(self, logical_id: str, raw: Mapping[str, Any]) -> str:
        path = str(raw.get("Metadata", {}).get(PATH_METADATA, logical_id))
        return path.removeprefix(f"{self._name}/").removesuffix("/Resource")

    def flat(self, value: Any) -> Any:
        """The value with its intrinsics written as text: ``${Ledger/Table}``, ``${Ledger/Table.Arn}``."""
        if isinstance(value, list):
            return [self.flat(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        if len(value) == 1:
            (name, argument), *_ = value.items()
            if name == "Ref":
                return f"${{{self._paths.get(argument, argument)}}}"
            if name == "Fn::GetAtt":
                return f"${{{self._paths.get(argument[0], argument[0])}.{argument[1]}}}"
            if name == "Fn::Join":
                return str(argument[0]).join(str(self.flat(part)) for part in argument[1])
            if name == "Fn::Sub" and isinstance(argument, str):
                return argument
        return {name: self.flat(item) for name, item in value.items()}

    def of_type(self, type: str) -> list[Resource]:
        """Every resource of a type."""
        return [resource for resource in self.resources.values() if resource.type == type]

    def one(self, path: str, type: str | None = None) -> Resource:
        """The resource at a construct path."""
        resource = self.resources[path]
        assert type is None or resource.type == type, f"{path} is {resource.type}, not {type}"
        return resource

    def statements(self, role: str | None = None) -> Iterator[Statement]:
        """Statements of the roles' own policies, of every role or of the one at a path."""
        for policy in self.of_type("AWS::IAM::Policy"):
            for reference in policy.properties["Roles"]:
                yield from _statements(reference.removeprefix("${").removesuffix("}"), policy.properties, role)
        for holder in self.of_type("AWS::IAM::Role"):
            for inline in holder.properties.get("Policies", []):
                yield from _statements(holder.path, inline, role)

    def permissions(self, role: str) -> set[tuple[str, str]]:
        """Every pair of action and resource that a role is allowed."""
        return {pair for statement in self.statements(role) for pair in statement.permissions}

    def definition(self, path: str) -> dict[str, Any]:
        """A state machine's definition, with tokens as text, in the partition ``aws``."""
        machine = self.one(path, "AWS::StepFunctions::StateMachine")
        text = machine.properties["DefinitionString"].replace("${AWS::Partition}", "aws")
        loaded: dict[str, Any] = json.loads(text)
        return loaded


def _statements(role: str, policy: Mapping[str, Any], wanted: str | None) -> Iterator[Statement]:
    if wanted is not None and role != wanted:
        return
    for statement in policy["PolicyDocument"]["Statement"]:
        yield Statement(
            role=role,
            effect=statement["Effect"],
            actions=_texts(statement["Action"]),
            resources=_texts(statement["Resource"]),
            condition=statement.get("Condition", {}),
        )


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, list) else (value,)
