"""``cdk-sagas diff``: compare two systems as far as sagas in flight and retried keys depend on them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from constructs_lib.cli.compared.findings import Finding, of_operations, of_saga, of_stacks
from constructs_lib.cli.compared.system import system_of
from constructs_lib.cli.shared.process import CommandError, is_named
from constructs_lib.saga.description.assembly import sagas_of
from constructs_lib.saga.steps.run import Run
from constructs_lib.saga.validation.definition_file import Definition, changes

_ADDED: Final = "is added: no saga of it is in flight"
_REMOVED: Final = (
    "is removed, or its construct has another id: its running executions continue, no reconciler recovers them, and "
    "its log may be read-only; drain them, or see docs/how-to/recover-a-saga.md#a-state-machine-that-is-gone"
)
_SAME: Final = "is unchanged"
_SURVIVES: Final = "is changed in ways that all sagas in flight can follow"
_PARTLY: Final = "is changed in ways that not all sagas in flight can follow"
_SWITCHED: Final = (
    "switches between run=Run.STANDARD and Run.INLINE at once: deploy Run.PREPARED between, or a saga runs on machines "
    "that do not expect each other"
)
_OPERATION: Final = "is changed in ways that not all retried keys survive"
_STACK: Final = "is changed in ways that not everything in it survives"
_HARMLESS: Final = "is changed in ways that everything in it survives"


class Subject(StrEnum):
    """Subjects of a comparison."""

    SAGA = "saga"
    OPERATION = "operation"
    STACK = "stack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One saga, operation or stack before and after.

    Attributes:
        subject: which of these.
        name: a saga's construct path, or its file's name; an operation's stack and name; a stack's name.
        text: how it is changed.
        changes: findings.
        survives: whether everything that runs survives, and each retried key.
    """

    subject: Subject = Subject.SAGA
    name: str
    text: str
    changes: tuple[Finding, ...] = ()
    survives: bool = True

    @property
    def document(self) -> dict[str, Any]:
        """As JSON."""
        changes = [asdict(one) for one in self.changes]
        return {self.subject.value: self.name, "text": self.text, "survives": self.survives, "changes": changes}

    @property
    def lines(self) -> Iterator[str]:
        """As text."""
        yield f"{'' if self.subject is Subject.SAGA else f'{self.subject} '}{self.name} {self.text}"
        for one in self.changes:
            yield f"  {'note: ' if one.survives else ''}{one.what}: {one.then}; {one.remedy}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``diff``, and add its options."""
    parser.description = (
        "Compares two cloud assemblies as far as sagas in flight, retried keys, callbacks and parked sagas "
        "depend on them: definitions, tables, queues, state machines, operations, reconcilers; or two definition "
        "files. A running execution keeps the definition that it began with; one that is interrupted is recovered "
        "under the new one. Reads files, and calls nothing. Exit status: 0 everything survives; 1 something does not, "
        "or cannot be read."
    )
    for name, text in (("old", "what is deployed"), ("new", "what is to be deployed")):
        parser.add_argument(
            name,
            metavar=name.upper(),
            type=Path,
            help=f"{text}: the folder that cdk synth wrote, or a definition file",
        )
    parser.add_argument("--saga", help="path of one SagaStateMachine, or the end of it; needed if only one is a folder")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    old, new = (_definitions(path, options.saga) for path in (options.old, options.new))
    if options.old.is_dir() != options.new.is_dir() or options.old.is_file():
        old, new = _alone(options.old, old), _alone(options.new, new)
    found = list(_systems(options, old, new) if options.old.is_dir() and options.new.is_dir() else _compared(old, new))
    if options.json:
        sys.stdout.write(json.dumps([one.document for one in found], indent=2) + "\n")
    else:
        for one in found:
            sys.stdout.writelines(f"{line}\n" for line in one.lines)
    return 0 if all(one.survives for one in found) else 1


def _definitions(path: Path, wanted: str | None) -> dict[str, Definition]:
    """Definitions of an assembly's sagas by their paths, or that of a definition file.

    Raises:
        CommandError: naming the path, if it holds none.
    """
    try:
        if path.is_dir():
            documents: Mapping[str, Any] = {saga.name: saga.definition for saga in sagas_of(path)}
        else:
            documents = {path.stem: json.loads(path.read_text("utf-8"))}
        found = {name: Definition.from_document(document) for name, document in documents.items()}
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} must be a cloud assembly or a definition file, got neither: {error}") from None
    if wanted is None or not path.is_dir():
        return found
    chosen = {name: one for name, one in found.items() if is_named(name, wanted)}
    if not chosen:
        raise CommandError(f"{path} must have a saga {wanted!r}, got {', '.join(found) or 'none'}; check its path")
    return chosen


def _alone(path: Path, found: Mapping[str, Definition]) -> dict[str, Definition]:
    """The only definition, under one name on both sides."""
    if len(found) != 1:
        raise CommandError(
            f"{path} must have one saga to compare with a definition file, got {', '.join(found) or 'none'}; "
            "choose one with --saga"
        )
    (definition,) = found.values()
    return {"the saga": definition}


def _systems(
    options: argparse.Namespace, old: Mapping[str, Definition], new: Mapping[str, Definition]
) -> Iterator[Compared]:
    """Compare two assemblies; with ``--saga`` that saga, its operations, and the stacks that it is in."""
    before, after = system_of(options.old), system_of(options.new)
    chosen = {name: saga for name, saga in before.sagas.items() if options.saga is None or name in old}
    both = old.keys() & new.keys()
    yield from _compared(old, new, {name: list(of_saga(before.sagas[name], after.sagas[name])) for name in both})
    machines = {saga.machine for saga in chosen.values()}
    stacks = {stack for saga in chosen.values() for stack in saga.stacks}
    operations: dict[str, list[Finding]] = {}
    for name, operation, finding in of_operations(before, after):
        own = operation.machine in machines if operation.machine else operation.stack in stacks
        if options.saga is None or own:
            operations.setdefault(f"{operation.stack}/{name}", []).append(finding)
    shared: dict[str, list[Finding]] = {}
    for stack, finding in of_stacks(before, after):
        if options.saga is None or stack in stacks:
            shared.setdefault(stack, []).append(finding)
    yield from (_changed(Subject.OPERATION, name, found, _OPERATION) for name, found in sorted(operations.items()))
    yield from (_changed(Subject.STACK, name, found, _STACK) for name, found in sorted(shared.items()))


def _changed(subject: Subject, name: str, found: list[Finding], text: str) -> Compared:
    survives = all(one.survives for one in found)
    return Compared(
        subject=subject,
        name=name,
        text=_HARMLESS if survives else text,
        changes=tuple(dict.fromkeys(found)),
        survives=survives,
    )


def _compared(
    old: Mapping[str, Definition], new: Mapping[str, Definition], others: Mapping[str, Sequence[Finding]] | None = None
) -> Iterator[Compared]:
    """Compare sagas: their definitions, and other changes by path."""
    for name in sorted({*old, *new}):
        if name not in old:
            yield Compared(name=name, text=_ADDED)
            continue
        if name not in new:
            yield Compared(name=name, text=_REMOVED, survives=False)
            continue
        found = [Finding(what=one.what, then=one.then, remedy=one.remedy) for one in changes(old[name], new[name])]
        found.extend((others or {}).get(name, ()))
        switched = {old[name].run, new[name].run} == {Run.STANDARD, Run.INLINE}
        survives = not switched and all(one.survives for one in found)
        followed = _SURVIVES if found or old[name] != new[name] else _SAME
        text = _SWITCHED if switched else followed if survives else _PARTLY
        yield Compared(name=name, text=text, changes=tuple(found), survives=survives)
