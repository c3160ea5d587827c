"""A committed picture of a saga's definition: a change that sagas in flight could not follow is seen at synth."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
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
    if not str(definition_file).strip() or Path(definition_file).is_dir():
        raise ValueError(
            f"definition_file must name a file, got {str(definition_file)!r}; write 'sagas/transfer.json', for example"
        )


def compare_with_file(path: Path, shape: Shape, ways: Mapping[str, str], run: Run = Run.STANDARD) -> list[Finding]:
    """Hold a definition against the committed one, or write it.

    Args:
        path: the committed file.
        shape: what a recovery depends on: each step's name, kind, side of the pivot, compensation.
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
    shape = json.loads(_text(shape, ways, run))["steps"]  # as the file would have it
    how = f"run the synth once with {WRITE_VARIABLE}=1 and commit {path.name}"
    if not path.exists():
        message = f"definition_file {path.name} does not exist; {how}"
        return [Finding(id="cdk-sagas-definition-file", severity=Severity.WARNING, message=message)]
    try:
        document = json.loads(path.read_text("utf-8"))
        committed: Shape = document["steps"]
        before = {str(step["name"]): step for step in committed}
        before_ways = {str(where): str(text) for where, text in document["ways"].items()}
        before_run = Run(document.get("run", Run.STANDARD))
    except (ValueError, KeyError, TypeError, AttributeError):
        message = f"definition_file {path.name} is not one that a synth wrote; {how}"
        return [Finding(id="cdk-sagas-definition-file", severity=Severity.ERROR, message=message)]
    if (switched := _switched(before_run, run)) is not None:
        return [switched]
    incompatible = list(_incompatible(before, shape, how)) or list(_other_ways(before_ways, ways, how))
    same = committed == shape and before_run is run
    if incompatible or same:
        return incompatible
    message = f"the saga's definition differs from {path.name} in a way that sagas in flight can follow; {how}"
    return [Finding(id="cdk-sagas-definition-file", severity=Severity.WARNING, message=message)]


def _incompatible(before: Mapping[str, Mapping[str, Any]], shape: Shape, how: str) -> Iterator[Finding]:
    now = {str(step["name"]): step for step in shape}
    remedy = (
        f"a saga in flight that has a row of it is parked when it is recovered; put it back, or wait for them: {how}"
    )
    for name, step in before.items():
        what = _change(step, now.get(name))
        if what is not None:
            yield Finding(
                id=f"cdk-sagas-definition-{name}",
                severity=Severity.ERROR,
                message=f"step {name} {what}: {remedy}",
            )
    phases = {step.get("phase") for step in before.values()} - {""}
    for name in now.keys() - before.keys():
        if now[name]["phase"] in phases:
            yield Finding(
                id=f"cdk-sagas-definition-{name}",
                severity=Severity.ERROR,
                message=f"step {name} was added to phase {now[name]['phase']}: a saga in flight that calls it "
                f"compensates, or is parked; add it outside of the phase, or wait for them: {how}",
            )


def _other_ways(before: Mapping[str, str], now: Mapping[str, str], how: str) -> Iterator[Finding]:
    for where in sorted({*before, *now}):
        if before.get(where) == now.get(where):
            continue
        what = "was removed" if where not in now else "was added" if where not in before else "was changed"
        yield Finding(
            id="cdk-sagas-definition-ways",
            severity=Severity.ERROR,
            message=f"{where} {what}: a saga in flight that only goes forward is parked when it is recovered; put it "
            f"back, or wait for them: {how}",
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
        if before.get(member) != now[member]:
            return f"{what} from {before.get(member)!r} to {now[member]!r}"
    if before.get("compensated") and not now["compensated"]:
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
