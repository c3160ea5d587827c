"""A committed picture of a saga's definition: a change that sagas in flight could not follow is seen at synth."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from constructs_lib.saga.steps.run import Run
from constructs_lib.saga.validation.budget import Finding, Severity
from saga_runtime.protocol import OUTLIVE_EXPRESS_SECONDS

WRITE_VARIABLE: Final = "CDK_SAGAS_WRITE_DEFINITIONS"
"""Environment variable with which a synth writes definition files instead of comparing them."""

Shape = Sequence[Mapping[str, Any]]


def require_file(definition_file: str | Path | None) -> None:
    """Refuse the name of a definition file that is blank, or a folder's.

    Raises:
        ValueError: naming it and the remedy.
    """
    if definition_file is None:
        return
    from aws_cdk import Token  # here: `cdk-sagas diff` compares definitions without the CDK

    if Token.is_unresolved(str(definition_file)):
        raise ValueError("definition_file must be known at synth, got a token; write a path")
    if not str(definition_file).strip() or Path(definition_file).is_dir():
        raise ValueError(
            f"definition_file must name a file, got {str(definition_file)!r}; write 'sagas/transfer.json', for example"
        )


def compare_with_file(path: Path, shape: Shape, ways: Mapping[str, str], run: Run = Run.STANDARD) -> list[Finding]:
    """Hold a definition against the committed one, or write it.

    Args:
        path: the committed file.
        shape: what sagas in flight depend on: each step's name, kind, side of the pivot, compensation, integration.
        ways: what a recovery that goes forward depends on, too: conditions, items and keys, by where they are.
        run: in which type of state machine the saga begins.

    Returns:
        Findings. An error for each step that a saga in flight could not be recovered with: it would be
        parked. A warning where the file is missing, or differs in a way that does no harm.
    """
    if os.environ.get(WRITE_VARIABLE):
        if (switched := _switched(_committed_run(path), run)) is not None:
            return [switched]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_text(shape, ways, run), encoding="utf-8")
        return []
    how = f"run the synth once with {WRITE_VARIABLE}=1 and commit {path.name}"
    if not path.exists():
        message = f"definition_file {path.name} does not exist; {how}"
        return [Finding(id="cdk-sagas-definition-file", severity=Severity.WARNING, message=message)]
    try:
        before = Definition.from_document(json.loads(path.read_text("utf-8")))
    except ValueError:
        message = f"definition_file {path.name} is not one that a synth wrote; {how}"
        return [Finding(id="cdk-sagas-definition-file", severity=Severity.ERROR, message=message)]
    now = Definition.from_document(document_of(shape, ways, run))
    if (switched := _switched(before.run, run)) is not None:
        return [switched]
    incompatible = changes(before, now)
    if incompatible or (before.steps == now.steps and before.run is run):
        return [
            Finding(id=one.id, severity=Severity.ERROR, message=f"{one.what}: {one.then}; {one.remedy}: {how}")
            for one in incompatible
        ]
    message = f"the saga's definition differs from {path.name} in a way that sagas in flight can follow; {how}"
    return [Finding(id="cdk-sagas-definition-file", severity=Severity.WARNING, message=message)]


def document_of(shape: Shape, ways: Mapping[str, str], run: Run) -> dict[str, Any]:
    """Contents of a definition file, as JSON reads them back."""
    document: dict[str, Any] = json.loads(_text(shape, ways, run))
    return document


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Parts of a saga on which sagas in flight depend.

    Attributes:
        steps: name, kind, side of the pivot, compensation and integration of each step, in order.
        ways: conditions, items and keys, by where they are.
        run: in which type of state machine the saga begins.
    """

    steps: Shape
    ways: Mapping[str, str]
    run: Run

    @classmethod
    def from_document(cls, document: Any) -> Definition:
        """Read what a definition file contains.

        Raises:
            ValueError: a synth did not write it.
        """
        try:
            steps: Shape = document["steps"]
            if not all(isinstance(step["name"], str) for step in steps):
                raise TypeError("a step without a name")
            ways = {str(where): str(text) for where, text in document["ways"].items()}
            return cls(steps=steps, ways=ways, run=Run(document.get("run", Run.STANDARD)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a definition must be as a synth writes it, got another form: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that sagas in flight cannot follow.

    Attributes:
        id: of its finding.
        what: the change.
        then: which sagas do not survive it, and what happens to them.
        remedy: how to avoid that.
    """

    id: str
    what: str
    then: str
    remedy: str


_PUT_BACK: Final = "put it back, or wait for them"


def changes(before: Definition, now: Definition) -> list[Change]:
    """Changes that sagas in flight cannot follow: those of steps, or else those of conditions."""
    return list(_incompatible(before.steps, now.steps)) or list(_other_ways(before.ways, now.ways))


def _incompatible(committed: Shape, shape: Shape) -> Iterator[Change]:
    before = {str(step["name"]): step for step in committed}
    now = {str(step["name"]): step for step in shape}
    for name, step in before.items():
        what = _change(step, now.get(name))
        if what is not None:
            yield Change(
                id=f"cdk-sagas-definition-{name}",
                what=f"step {name} {what}",
                then="a saga in flight that has a row of it is parked when it is recovered",
                remedy=_PUT_BACK,
            )
        elif step.get("via") != now[name].get("via"):
            yield Change(
                id=f"cdk-sagas-definition-{name}",
                what=f"step {name} moved from CallbackIntegration {step.get('via')!r} to {now[name].get('via')!r}",
                then="reports of jobs and waits in flight get 503, as the former one does not serve the step any more",
                remedy=f"{_PUT_BACK}, or let another saga begin new requests (docs/how-to/replace-a-saga.md)",
            )
    phases = {step.get("phase") for step in before.values()} - {""}
    for name in now.keys() - before.keys():
        if now[name].get("phase") in phases:
            yield Change(
                id=f"cdk-sagas-definition-{name}",
                what=f"step {name} was added to phase {now[name]['phase']}",
                then="a saga in flight that calls it compensates, or is parked",
                remedy="add it outside of the phase, or wait for them",
            )


def _other_ways(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Change]:
    for where in sorted({*before, *now}):
        if before.get(where) == now.get(where):
            continue
        what = "was removed" if where not in now else "was added" if where not in before else "was changed"
        yield Change(
            id="cdk-sagas-definition-ways",
            what=f"{where} {what}",
            then="a saga in flight that only goes forward is parked when it is recovered",
            remedy=_PUT_BACK,
        )


def _change(before: Mapping[str, Any], now: Mapping[str, Any] | None) -> str | None:
    if now is None:
        return "was removed or renamed"
    for member, what in (
        ("side", "changed its side of the pivot"),
        ("per_item", "moved into or out of a map"),
        ("kind", "changed its kind"),
        ("phase", "moved into or out of a phase"),
    ):
        if before.get(member) != now.get(member):
            return f"{what} from {before.get(member)!r} to {now.get(member)!r}"
    if before.get("compensated") and not now.get("compensated"):
        return "lost its compensation"
    return None


def _text(shape: Shape, ways: Mapping[str, str], run: Run) -> str:
    inline = {"run": run.value} if run is not Run.STANDARD else {}
    return json.dumps({"steps": list(shape), "ways": dict(ways), **inline}, indent=2, sort_keys=True) + "\n"


def _committed_run(path: Path) -> Run | None:
    """The run in a file; None if there is no such file, or if a synth did not write it."""
    try:
        return Run(json.loads(path.read_text("utf-8")).get("run", Run.STANDARD))
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _switched(before: Run | None, now: Run) -> Finding | None:
    """A switch that puts Express executions alongside a Standard machine that does not expect them."""
    if {before, now} != {Run.STANDARD, Run.INLINE}:
        return None
    return Finding(
        id="cdk-sagas-definition-run",
        severity=Severity.ERROR,
        message=f"run must change by way of Run.PREPARED, got {now.value} after {before}; deploy Run.PREPARED, and "
        f"wait for {OUTLIVE_EXPRESS_SECONDS} s: no Express execution may run alongside a Standard machine that does "
        "not expect it",
    )
