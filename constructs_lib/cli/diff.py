"""``cdk-sagas diff``: compare two definitions as far as sagas in flight depend on them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.cli.shared.errors import CommandError

if TYPE_CHECKING:
    from constructs_lib.saga.validation.definition_file import Change, Definition

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One saga under two definitions.

    Attributes:
        saga: its construct's path, or its file's name.
        text: how it is changed.
        changes: what sagas in flight cannot follow.
        survives: whether all of them can be recovered.
    """

    saga: str
    text: str
    changes: tuple[Change, ...] = ()
    survives: bool = True

    @property
    def document(self) -> dict[str, Any]:
        """As JSON."""
        changes = [{"what": one.what, "then": one.then, "remedy": one.remedy} for one in self.changes]
        return {"saga": self.saga, "text": self.text, "survives": self.survives, "changes": changes}


def add_parser(commands: Any) -> None:
    """Add ``diff`` to the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "diff",
        help="which sagas in flight survive a changed definition",
        description="Compares sagas of two cloud assemblies, or two definition files, as far as sagas in flight depend "
        "on them. A running execution keeps the definition that it began with; one that is interrupted is recovered "
        "under the new one. Reads files, and calls nothing. Exit status: 0 all sagas in flight survive; 1 some do not, "
        "or something cannot be read.",
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
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    old, new = (_definitions(path, options.saga) for path in (options.old, options.new))
    if options.old.is_dir() != options.new.is_dir() or options.old.is_file():
        old, new = _alone(options.old, old), _alone(options.new, new)
    found = list(_compared(old, new))
    if options.json:
        sys.stdout.write(json.dumps([one.document for one in found], indent=2) + "\n")
    else:
        for one in found:
            sys.stdout.write(f"{one.saga} {one.text}\n")
            for change in one.changes:
                sys.stdout.write(f"  {change.what}: {change.then}; {change.remedy}\n")
    return 0 if all(one.survives for one in found) else 1


def _definitions(path: Path, wanted: str | None) -> dict[str, Definition]:
    """Definitions of an assembly's sagas by their paths, or that of a definition file.

    Raises:
        CommandError: naming the path, if it holds none.
    """
    from constructs_lib.saga.description.assembly import sagas_of
    from constructs_lib.saga.validation.definition_file import Definition

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
    end = wanted.strip("/")
    chosen = {name: one for name, one in found.items() if end and f"/{name}".endswith(f"/{end}")}
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


def _compared(old: Mapping[str, Definition], new: Mapping[str, Definition]) -> Iterator[Compared]:
    from constructs_lib.saga.steps.run import Run
    from constructs_lib.saga.validation.definition_file import changes

    for name in sorted({*old, *new}):
        if name not in old:
            yield Compared(saga=name, text=_ADDED)
        elif name not in new:
            yield Compared(saga=name, text=_REMOVED, survives=False)
        elif {old[name].run, new[name].run} == {Run.STANDARD, Run.INLINE}:
            yield Compared(saga=name, text=_SWITCHED, survives=False)
        elif lost := tuple(changes(old[name], new[name])):
            yield Compared(saga=name, text=_PARTLY, changes=lost, survives=False)
        else:
            yield Compared(saga=name, text=_SAME if old[name] == new[name] else _SURVIVES)
