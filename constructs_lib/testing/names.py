"""Finds what is deployed by the name that a test knows: a physical name, a logical id, a construct path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

#: The L2 construct's path is what people write; the resource inside has one of these appended.
_RESOURCE_SUFFIXES: Final = ("", "/Resource")


class UnknownNameError(LookupError):
    """No deployed resource, or more than one, goes by that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedResource:
    """A resource of a deployed stack.

    Attributes:
        stack: Name of its stack.
        logical_id: Its id in the template.
        path: Its construct path, empty where the template has none.
        type: Its CloudFormation type.
        physical_id: What `Ref` gives: a name, or an ARN for some types.
    """

    stack: str
    logical_id: str
    path: str
    type: str
    physical_id: str

    @property
    def name(self) -> str:
        """The name of the resource, also where its physical id is an ARN."""
        return self.physical_id.rsplit(":", 1)[-1] if self.physical_id.startswith("arn:") else self.physical_id

    def answers_to(self, wanted: str) -> bool:
        """Return whether this resource goes by that name."""
        paths = {f"{wanted}{suffix}" for suffix in _RESOURCE_SUFFIXES}
        return wanted in {self.physical_id, self.name, self.logical_id} or self.path in paths


def find(resources: Iterable[DeployedResource], wanted: str, *, type: str) -> DeployedResource:
    """Return the one resource of a type that goes by a name.

    Args:
        resources: Every deployed resource.
        wanted: Physical name or ARN, logical id, or construct path such as ``Stack/Api/Gatekeeper``.
        type: CloudFormation type.

    Raises:
        UnknownNameError: If none does, or more than one.
    """
    candidates = [resource for resource in resources if resource.type == type]
    found = [resource for resource in candidates if resource.answers_to(wanted)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(sorted(resource.path.removesuffix("/Resource") or resource.name for resource in candidates))
    if not found:
        raise UnknownNameError(f"no {type} goes by {wanted!r}; deployed are: {known or 'none'}")
    raise UnknownNameError(f"{len(found)} of {type} go by {wanted!r}; use the construct path, one of: {known}")


def output_of(outputs: Mapping[str, Mapping[str, str]], name: str, stack: str | None) -> str:
    """Return an output.

    Args:
        outputs: Those of each stack, by the stack's name.
        name: Of the output.
        stack: The stack's name; None: only one has this output.

    Raises:
        KeyError: If no stack has it, or several have.
    """
    found = [one for one, known in outputs.items() if name in known and stack in (None, one)]
    if len(found) > 1:
        raise KeyError(f"stack must be one of {found}, of which each has an output {name}, got None")
    if not found:
        there = {one: sorted(known) for one, known in outputs.items()}
        raise KeyError(f"{stack or 'no stack'} has an output {name}; there are {there}")
    return outputs[found[0]][name]
