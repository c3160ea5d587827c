"""Refusals of sagas that cannot run inline: in an Express execution, with a Standard one alongside it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from constructs_lib.saga.description.description import seconds_of
from constructs_lib.saga.description.kind import group_kind
from constructs_lib.saga.steps.group import StepGroup
from constructs_lib.saga.steps.jsonata import OUTPUTS, outputs_named
from constructs_lib.saga.steps.run import Run
from constructs_lib.saga.steps.step import Step
from constructs_lib.saga.validation.checks import leaves_of
from saga_runtime.protocol import MAX_INLINE_SECONDS

_MARGIN_SECONDS: Final = 10
_DIFFERS: Final = re.compile(r"\$(?:now|millis|random|uuid)\b|\$states\b")
"""What may differ between two executions of one saga: time, chance, and their contexts."""
_STATES: Final = ("Pass", "Task")


def check_inline(steps: Sequence[Step | StepGroup], run: Run, definition_file: str | Path | None) -> None:
    """Refuse what an Express execution cannot do, and what two executions of a saga could decide differently.

    Raises:
        ValueError: naming the step, the reason and the remedy.
    """
    if run is Run.STANDARD:
        return
    if definition_file is None:
        raise ValueError(
            f"definition_file must be set for run={run.value}, got None; name a file: it keeps the run that was "
            "deployed, and refuses a switch between STANDARD and INLINE in one deployment"
        )
    kept: list[Step] = []
    for node in steps:
        if isinstance(node, StepGroup):
            _check_group(node, run)
            _check_condition(node.name, node.when, steps, kept, run)
        for step in leaves_of([node]):
            reason = _reason(step, steps)
            if reason is not None:
                raise _refused(step.name, run, *reason)
            _check_condition(step.name, step.when, steps, kept, run)
            if step.recorded:
                kept.append(step)


def _check_group(node: StepGroup, run: Run) -> None:
    """Refuse a group with a state machine of its own, and items that two executions may see differently."""
    if group_kind(node.kind).machine is not None:
        raise _refused(
            node.name,
            run,
            f"is a group of kind {node.kind}, with a state machine of its own",
            "declare its steps one after the other",
        )
    for text in (node.items, node.key):
        if text is not None and (found := _DIFFERS.search(text) or OUTPUTS.search(text)) is not None:
            what = f"has items or keys with {found.group()}, which two executions may see differently"
            raise _refused(node.name, run, what, "take them from the request")


def _reason(step: Step, steps: Sequence[Step | StepGroup]) -> tuple[str, str] | None:
    """Why a step cannot run inline, and what to do."""
    if step.direct is not None and step.direct.output != "{}" and step is not steps[-1]:
        return (
            "has an output that no row keeps, which two executions may give to later steps differently",
            "read it in a Step.read_only with record=True, or leave output out",
        )
    texts = [json.dumps(list(step.transaction.compensate), default=dict)] if step.transaction is not None else []
    undone_by = outputs_named(texts, [leaf.name for leaf in leaves_of(steps)])
    if undone_by:
        return (
            f"compensates by the output of {min(undone_by)}, which another execution may add after it was read",
            "keep what it needs in the step's own output, and read $output",
        )
    if step.wait is not None:
        return "waits for an outcome", "leave run out"
    if not step.recorded and step.direct is None:
        return "reads without recording its output", "set record=True: two executions must see the same output"
    if step.direct is not None:
        text = str(step.direct.fields)
        if step.direct.fields["Type"] not in _STATES or ".waitForTaskToken" in text or ".sync" in text:
            return f"is a state of type {step.direct.fields['Type']} that may wait or fan out", "leave run out"
        if ":activity:" in str(step.direct.fields.get("Resource")):
            return "waits for an activity's worker, which an Express execution cannot", "leave run out"
    call = step.direct.timeout if step.direct is not None and step.direct.fields["Type"] == "Task" else 0
    longest = max(seconds_of(step.function), seconds_of(step.compensation), call)
    if longest > MAX_INLINE_SECONDS - _MARGIN_SECONDS:
        at_most = MAX_INLINE_SECONDS - _MARGIN_SECONDS
        return f"may take {longest} s, more than {at_most} s", "lower its timeout"
    return None


def _check_condition(
    name: str, when: str | None, steps: Sequence[Step | StepGroup], kept: Sequence[Step], run: Run
) -> None:
    if when is None:
        return
    if (found := _DIFFERS.search(when)) is not None:
        raise _refused(
            name, run, f"has a condition with {found.group()}", "take the value from the request or from an output"
        )
    named = outputs_named([when], [leaf.name for leaf in leaves_of(steps)])
    unkept = sorted(named - {other.name for other in kept})
    if unkept:
        raise _refused(
            name,
            run,
            f"has a condition over the output of {unkept[0]}, which no row keeps",
            "name the outputs of earlier steps that are recorded",
        )


def _refused(name: str, run: Run, what: str, remedy: str) -> ValueError:
    return ValueError(
        f"each step must be able to run in an Express execution, got run={run.value} and step {name}, which {what}; "
        f"{remedy}, or use Run.STANDARD"
    )
