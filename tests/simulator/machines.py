"""Assemblies whose state machines another release replaces: the same stack, with other logical ids of them."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

_MACHINE: Final = "AWS::StepFunctions::StateMachine"
_POLICY: Final = "AWS::IAM::Policy"
_POLICIES: Final = ("DeletionPolicy", "UpdateReplacePolicy")
_AGAIN: Final = "Again"
_REPLACED: Final = 0.15
"""Share of what is simulated under a release that replaces state machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """Replacement of all state machines in a last release.

    Attributes:
        deleted: whether the former machines are deleted, instead of retained.
        roles: whether the others have roles of their own. Otherwise roles are updated: the former machines lose rights.
    """

    deleted: bool
    roles: bool

    def of(self, versions: Sequence[Path]) -> list[Path]:
        """The versions of an assembly, and one more."""
        former = [deleting(folder) if self.deleted else folder for folder in versions]
        return [*former, with_others(versions[-1], roles=self.roles)]

    def __str__(self) -> str:
        former = "deleted" if self.deleted else "retained"
        return f"other state machines, with {'other' if self.roles else 'the same'} roles; the former are {former}"


def drawn_replacement(seed: int) -> Replacement | None:
    """Draw the replacement of a seed; None: there is none."""
    random = Random(f"{seed}:machines")
    if random.random() >= _REPLACED:
        return None
    return Replacement(deleted=random.random() < 0.7, roles=random.random() < 0.5)


def with_others(folder: Path, *, roles: bool) -> Path:
    """The assembly with other state machines: each has another logical id; everything else stays, also the logs.

    Args:
        folder: the assembly.
        roles: whether their roles are others, too. Otherwise these are updated: they may not start the former machines.
    """
    return Path(_edited(folder, _renamed_with_roles if roles else _renamed).name)


def deleting(folder: Path) -> Path:
    """The assembly whose state machines are deleted by a release that leaves them out, instead of retained."""
    return Path(_edited(folder, _deleted).name)


def _renamed(text: str) -> str:
    for logical_id in _machines_in(text):
        text = text.replace(f'"{logical_id}"', f'"{logical_id}{_AGAIN}"')
    return text


def _renamed_with_roles(text: str) -> str:
    resources: dict[str, Any] = json.loads(text).get("Resources", {})
    roles = {resources[machine]["Properties"]["RoleArn"]["Fn::GetAtt"][0] for machine in _machines_in(text)}
    policies = {
        name
        for name, resource in resources.items()
        if resource["Type"] == _POLICY and {role["Ref"] for role in resource["Properties"]["Roles"]} <= roles
    }
    for logical_id in roles | policies:
        text = text.replace(f'"{logical_id}"', f'"{logical_id}{_AGAIN}"')
    return _renamed(text)


def _deleted(text: str) -> str:
    template: Any = json.loads(text)
    for logical_id in _machines_in(text):
        template["Resources"][logical_id] |= dict.fromkeys(_POLICIES, "Delete")
    return json.dumps(template)


def _machines_in(text: str) -> Iterator[str]:
    resources: dict[str, Any] = json.loads(text).get("Resources", {})
    return (logical_id for logical_id, resource in resources.items() if resource["Type"] == _MACHINE)


@functools.cache
def _edited(folder: Path, edit: Callable[[str], str]) -> tempfile.TemporaryDirectory[str]:
    made = tempfile.TemporaryDirectory(prefix="cdk-sagas-machines-")
    for file in folder.iterdir():
        copy = Path(made.name) / file.name
        if file.name.endswith(".template.json"):
            copy.write_text(edit(file.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            copy.symlink_to(file.resolve())
    return made
