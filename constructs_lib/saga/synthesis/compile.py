"""From declared steps, which know functions and queues, to the generator's plan and to the saga's description."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from constructs_lib.saga.asl import (
    CompiledGroup,
    CompiledStep,
    Node,
    Notice,
)
from constructs_lib.saga.asl.plan import PHASES_AT
from constructs_lib.saga.description.description import GroupFacts, fields_in
from constructs_lib.saga.description.kind import GroupKind, Machine, group_kind
from constructs_lib.saga.steps.contents import StepContents
from constructs_lib.saga.steps.group import StepGroup
from constructs_lib.saga.steps.jsonata import bare
from constructs_lib.saga.steps.routes import Notify
from constructs_lib.saga.steps.step import Step
from constructs_lib.saga.steps.wait import CallbackVia
from constructs_lib.saga.validation.checks import leaves_of, pivots_of, sides_of
from constructs_lib.shared.accepted import AnyFunction
from saga_runtime.protocol import PROTOCOL_VERSION, WAYS_AT, ServedStepField


def compiled(
    steps: Sequence[Step | StepGroup], notifier: AnyFunction | None, inline: Collection[str] = ()
) -> list[Node]:
    """The steps as the generator sees them.

    Args:
        steps: as declared.
        notifier: the function that sends notifications.
        inline: names of the steps into whose outputs an expression looks: these never travel by reference.
    """
    pivots = {step.name for step in pivots_of(steps)}
    arn = _arns()

    def plain(step: Step) -> CompiledStep:
        return _step(step, notifier, step.name in pivots, step.name in inline, arn)

    shapes = {str(entry["name"]): entry for entry in shape_of(steps)}
    return [_group(node, plain, shapes) if isinstance(node, StepGroup) else plain(node) for node in steps]


def _arns() -> Callable[[AnyFunction], str]:
    """Ask each function for its ARN once: every question crosses to the process in which the CDK runs."""
    known: dict[AnyFunction, str] = {}

    def arn(function: AnyFunction) -> str:
        if function not in known:
            known[function] = function.function_arn
        return known[function]

    return arn


def _group(
    group: StepGroup, plain: Callable[[Step], CompiledStep], shapes: Mapping[str, Mapping[str, Any]]
) -> CompiledGroup:
    steps = list(group.steps)
    return CompiledGroup(
        **fields_in(group, GroupFacts),
        branches=tuple(tuple(plain(step) for step in branch) for branch in group.branches),
        shape=_digest({"steps": [shapes[step.name] for step in steps], "ways": ways_of(steps)})[:16],
    )


def _step(
    step: Step,
    notifier: AnyFunction | None,
    pivot: bool,
    inline: bool,
    arn: Callable[[AnyFunction], str],
) -> CompiledStep:
    function = notifier if step.queue is not None else step.fn
    queue = step.via.queue if step.via is not None else step.queue
    return CompiledStep(
        **fields_in(step, StepContents),
        function_arn=arn(function) if function is not None else "",
        compensate_arn=arn(step.compensate) if step.compensate is not None else None,
        queue_url=queue.queue_url if queue is not None else "",
        pivot=pivot,
        inline=inline,
        going_on=step.going_on,
    )


def error_notices(steps: Sequence[Step]) -> dict[str, Notify]:
    """Notifications by error.

    Raises:
        ValueError: if two steps declare different notifications of one error.
    """
    notices: dict[str, Notify] = {}
    for step in steps:
        for error, route in step.on_error.items():
            if not isinstance(route, Notify):
                continue
            if notices.setdefault(error, route) is not route:
                raise ValueError(
                    f"on_error names {error!r} in more than one step, with different notices; share one Notify"
                )
    return notices


def notice_of(notify: Notify) -> Notice:
    """A notice as the generator sees it."""
    message = bare(notify.message) if notify.message is not None else None
    return Notice(queue_url=notify.queue.queue_url, message=message)


def shape_of(steps: Sequence[Step | StepGroup]) -> list[dict[str, Any]]:
    """Parts that a recovery under another definition depends on: each step's name, kind, side and compensation.

    It contains only what a row could contradict: retries, and groups other than phases, may change at any time.
    """
    sides = sides_of(steps)
    return [
        {
            "name": step.name,
            "kind": step.kind,
            "side": sides[step.name],
            "compensated": step.compensated,
            "per_item": group is not None and group.per_item,
            "phase": node.name if group is not None and group.machine is not None else "",
        }
        for node in steps
        for group in [_kind_of_group(node)]
        for step in node.steps
    ]


def committed_steps(steps: Sequence[Step | StepGroup]) -> list[dict[str, Any]]:
    """Steps as a definition file has them: their shapes, and which integration receives the callbacks of each."""
    places = {step.name: step.via.place for step in leaves_of(steps) if step.via is not None}
    return [entry | ({"via": places[entry["name"]]} if entry["name"] in places else {}) for entry in shape_of(steps)]


def _kind_of_group(node: Step | StepGroup) -> GroupKind | None:
    return group_kind(node.kind) if isinstance(node, StepGroup) else None


def served_steps(steps: Sequence[Step | StepGroup]) -> dict[CallbackVia, dict[str, dict[str, Any]]]:
    """Properties of the steps whose callbacks an integration receives, by integration and name."""
    sides = sides_of(steps)
    served: dict[CallbackVia, dict[str, dict[str, Any]]] = {}
    for step in leaves_of(steps):
        if step.via is not None:
            served.setdefault(step.via, {})[step.name] = {
                ServedStepField.SIDE: sides[step.name],
                ServedStepField.JOB: step.job,
                ServedStepField.UNDO: step.compensated,
            }
    return served


def fingerprint_of(steps: Sequence[Step | StepGroup]) -> str:
    """Identifies a definition, as far as recoveries depend on it.

    From ``PHASES_AT`` on it identifies the names of the steps in phases that may outlive their saga, and from
    ``WAYS_AT`` on by what a saga goes its way.
    """
    phases = sorted(step.name for node in steps if _is_child(node) for step in node.steps)
    items = _compensated_items(steps)
    shape = _digest({"protocol": PROTOCOL_VERSION, "steps": shape_of(steps)} | ({"items": items} if items else {}))
    return shape[:PHASES_AT] + _digest(phases)[: WAYS_AT - PHASES_AT] + _digest(ways_of(steps))[:8]


def _compensated_items(steps: Sequence[Step | StepGroup]) -> dict[str, list[str]]:
    """Items, keys and limits by which a compensation visits a map's steps, whose functions may be at work on others."""
    return {
        step.name: [node.items or "", node.key or "", str(node.max_items)]
        for node in steps
        if isinstance(node, StepGroup) and group_kind(node.kind).per_item
        for step in node.steps
        if step.compensated
    }


def ways_of(steps: Sequence[Step | StepGroup]) -> dict[str, str]:
    """Texts that decide which effects a saga has, or an output on which that may depend.

    These are conditions, items of maps and their keys, and outputs in place of a refused step's. A step that only reads
    counts, too, if its output is recorded: conditions may depend on it.

    Returns:
        The texts, by the name of the step or group, and the argument: ``Ship items``.
    """
    return {
        f"{name} {argument}": text
        for name, texts in _deciding(steps)
        for argument, text in texts.items()
        if text is not None
    }


def _deciding(steps: Sequence[Step | StepGroup]) -> Iterator[tuple[str, dict[str, str | None]]]:
    for node in steps:
        deciding = [step for step in node.steps if _decides(step)]
        if deciding and isinstance(node, StepGroup):
            yield node.name, {"when": node.when, "items": node.items, "key": node.key}
        for step in deciding:
            instead = {
                f"on_error {error}": json.dumps(dict(route.output), sort_keys=True)
                for error, route in step.going_on.items()
            }
            yield step.name, {"when": step.when, **instead}


def _decides(step: Step) -> bool:
    return step.mutates or step.only_forward or step.recorded


def _is_child(node: Step | StepGroup) -> bool:
    return isinstance(node, StepGroup) and group_kind(node.kind).machine is Machine.STANDARD


def _digest(document: object) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode("utf-8")).hexdigest()
