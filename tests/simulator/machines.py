"""Assemblies whose state machines another release replaces: the same stack, with other logical ids of them."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any, Final

_MACHINE: Final = "AWS::StepFunctions::StateMachine"
_POLICY: Final = "AWS::IAM::Policy"
_POLICIES: Final = ("DeletionPolicy", "UpdateReplacePolicy")
_AGAIN: Final = "Again"
_RECOVERY: Final = re.compile(r"Recovery[0-9A-F]{8}$")
_REPLACED: Final = 0.04
"""Share of what is simulated under a release that replaces state machines."""


class Deleted(StrEnum):
    """The former state machines that are deleted when a release leaves them out; others are retained."""

    ALL = "all"
    RECOVERIES = "recoveries"
    """Recovery machines: the others may still run, be started and be redriven when their sagas are moved."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """Replacement of all state machines in a last release.

    Attributes:
        deleted: which of the former machines are deleted.
        roles: whether the others have roles of their own. Otherwise roles are updated: the former machines lose rights.
    """

    deleted: Deleted
    roles: bool

    def of(self, versions: Sequence[Path]) -> list[Path]:
        """The versions of an assembly, and one more."""
        former = [deleting(folder, self.deleted) for folder in versions]
        return [*former, with_others(versions[-1], roles=self.roles)]

    def __str__(self) -> str:
        roles = "other" if self.roles else "the same"
        return f"other state machines, with {roles} roles; of the former ones are deleted: {self.deleted}"


def drawn_replacement(seed: int) -> Replacement | None:
    """Draw the replacement of a seed; None: nothing is replaced."""
    random = Random(f"{seed}:machines")
    if random.random() >= _REPLACED:
        return None
    deleted = random.choice((Deleted.ALL, Deleted.ALL, Deleted.RECOVERIES, Deleted.NONE))
    return Replacement(deleted=deleted, roles=random.random() < 0.5)


def with_others(folder: Path, *, roles: bool) -> Path:
    """The assembly with other state machines: each has another logical id; everything else stays, also the logs.

    Args:
        folder: the assembly.
        roles: whether their roles are others, too. Otherwise these are updated: they may not start the former machines.
    """
    return Path(_edited(folder, _renamed_with_roles if roles else _renamed).name)


def deleting(folder: Path, deleted: Deleted) -> Path:
    """The assembly of which some state machines are deleted by a release that leaves them out, instead of retained."""
    if deleted is Deleted.NONE:
        return folder
    return Path(_edited(folder, _all_deleted if deleted is Deleted.ALL else _recoveries_deleted).name)


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


def _all_deleted(text: str) -> str:
    return _deleted(text, _machines_in(text))


def _recoveries_deleted(text: str) -> str:
    return _deleted(text, filter(_RECOVERY.search, _machines_in(text)))


def _deleted(text: str, machines: Iterable[str]) -> str:
    template: Any = json.loads(text)
    for logical_id in machines:
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
