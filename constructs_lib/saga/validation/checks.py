"""Refusals of declarations: the problem, the value, the remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from constructs_lib.saga.description.description import seconds_of, sides_in
from constructs_lib.saga.description.kind import Machine, group_kind, plain_kind
from constructs_lib.saga.steps.group import StepGroup
from constructs_lib.saga.steps.routes import Notify
from constructs_lib.saga.steps.step import Step
from constructs_lib.shared.arguments import require_unique
from constructs_lib.shared.types import require_type, shown
from saga_runtime.protocol import Side


def leaves_of(steps: Sequence[Step | StepGroup]) -> Iterator[Step]:
    """Every plain step, in order."""
    for step in steps:
        yield from step.steps


def pivots_of(steps: Sequence[Step | StepGroup]) -> list[Step]:
    """The steps after which a saga only goes forward: the declared ones, or the last that mutates.

    None, if that one runs concurrently with others: then nothing is final before the saga settles.

    Raises:
        ValueError: if the last that mutates has a condition: which requests it decides about is for the declaration.
    """
    declared = [step for step in leaves_of(steps) if step.pivot]
    if declared:
        return declared
    mutating = [(node, step) for node in steps for step in node.steps if step.mutates]
    if not mutating or _runs_at_once(mutating[-1][0]):
        return []
    node, step = mutating[-1]
    if node.when is not None or step.when is not None:
        raise ValueError(
            f"the last step that mutates must be unconditional to be the pivot by default, got {step.name} with "
            f"when={node.when or step.when!r}; name the pivot: pivot=True on {step.name}, or on a step before it"
        )
    return [step]


def sides_of(steps: Sequence[Step | StepGroup]) -> dict[str, Side]:
    """Position of each plain step in its saga, by its name."""
    names = [step.name for step in leaves_of(steps)]
    return sides_in(names, {step.name for step in pivots_of(steps)})


def check_steps(steps: Sequence[Step | StepGroup]) -> None:
    """Refuse what cannot work.

    Raises:
        ValueError: naming the step, the value and the remedy.
    """
    if not steps:
        raise ValueError("steps must name at least one step, got none; add one")
    leaves = list(leaves_of(steps))
    for step in leaves:
        _check_constants(step)
    require_unique("steps", [*(step.name for step in leaves), *(n.name for n in steps if isinstance(n, StepGroup))])
    if not any(step.mutates for step in leaves):
        raise ValueError(f"a saga needs a step that mutates, got {[step.name for step in leaves]}; add one")
    pivots = pivots_of(steps)
    _check_pivots(steps, pivots)
    names = [step.name for step in leaves]
    last = max((names.index(step.name) for step in pivots), default=len(leaves))
    final = "the end (there is no pivot: the last steps that mutate run concurrently with others)"
    if pivots:
        final = f"the pivot {pivots[-1].name}"
    for index, step in enumerate(leaves):
        if index < last and step not in pivots:
            _check_before_pivot(step, final)
        _check_delays(step)
        _check_window(step)
        if index > last and any(isinstance(route, Notify) for route in step.on_error.values()):
            raise ValueError(
                f"step {step.name} is after {final}, where a saga does not fail by a refusal "
                "but waits for a person; remove Notify from its on_error"
            )
    for node in steps:
        if isinstance(node, StepGroup):
            _check_group(node)


def _check_constants(step: Step) -> None:
    """Refuse what a definition cannot hold, before it is measured or compiled."""
    written: dict[str, object] = {}
    if step.direct is not None:
        written |= step.direct.written
    if step.transaction is not None:
        written |= {"writes": step.transaction.writes, "compensate": step.transaction.compensate}
        for name, entries in written.items():
            require_type(name, entries, Sequence[Mapping[str, Mapping[str, Any]]], f"step {step.name}")
    for name, value in written.items():
        try:
            json.dumps(value, default=_as_dict, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name} of step {step.name} must be plain JSON, got {shown(value)}: {error}; write dicts with texts "
                "for keys, lists, texts, finite numbers, booleans and None"
            ) from None


def _as_dict(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"JSON has no {type(value).__name__}")


def _runs_at_once(node: Step | StepGroup) -> bool:
    """Test whether a node's steps run concurrently with others."""
    return isinstance(node, StepGroup) and group_kind(node.kind).at_once


def _check_pivots(steps: Sequence[Step | StepGroup], pivots: Sequence[Step]) -> None:
    for node in steps:
        for step in node.steps:
            if step.pivot and _runs_at_once(node):
                raise ValueError(
                    f"step {step.name} of {node.name} cannot be the pivot: others run concurrently; "
                    "name a step behind it, or none"
                )
            if step.pivot and len(pivots) > 1 and isinstance(node, StepGroup):
                raise ValueError(f"step {step.name} of {node.name} must be the only pivot, got {len(pivots)}; keep one")
            if step.pivot and step.when is not None and isinstance(node, StepGroup):
                raise ValueError(
                    f"step {step.name} of {node.name} must be unconditional to be the pivot, got when={step.when!r}; "
                    f"give the condition to {node.name}, or put the step behind it"
                )
            if step.pivot and not step.mutates:
                raise ValueError(f"step {step.name} changes nothing and cannot be the pivot; choose one that mutates")
    if len(pivots) > 1 and any(step.when is None for step in pivots):
        raise ValueError(
            f"of several pivots each must be conditional, got {[step.name for step in pivots]}; "
            "give each a when=… that no other's request meets, or keep pivot=True on one of them"
        )


def _check_group(group: StepGroup) -> None:
    machine = group_kind(group.kind).machine
    for step in group.steps:
        if machine is Machine.EXPRESS and plain_kind(step.kind).own_state and step.direct is not None:
            text = json.dumps(step.direct.fields)
            if ".waitForTaskToken" in text or ".sync" in text:
                raise ValueError(
                    f"step {step.name} of {group.name} waits for something, which an Express phase cannot; "
                    "put it into the saga or into Step.child"
                )
        if machine is Machine.EXPRESS and step.wait is not None:
            raise ValueError(
                f"step {step.name} of {group.name} waits for an answer, which an Express phase cannot; "
                "put it into the saga or into Step.child"
            )
        if machine is Machine.STANDARD and step.wait is not None and step.wait.timeout >= group.timeout:
            raise ValueError(
                f"step {step.name} may wait for {step.wait.timeout} s, and its phase {group.name} takes "
                f"{group.timeout} s; raise the phase's timeout, or lower the step's"
            )
        longest = seconds_of(step.function) or (step.direct.timeout if step.direct is not None else 0)
        if machine is Machine.EXPRESS and longest > group.timeout:
            raise ValueError(
                f"step {step.name} may take {longest} s, and its Express phase {group.name} {group.timeout} s; "
                "lower its timeout, or put it into the saga"
            )


def _check_delays(step: Step) -> None:
    """The last attempt of what is in doubt must meet no living predecessor."""
    delays = sum(step.retry.in_doubt_delays)
    announced = step.wait is not None and not step.job  # to announce a wait twice does no harm
    own = 0 if announced else seconds_of(step.function)
    longest = max(own, seconds_of(step.compensation)) + step.doubt
    if delays <= longest:
        more = " and its provider's grace" if step.provider is not None else ""
        raise ValueError(
            f"retries of step {step.name} must outlast its function{more} when it is in doubt, got delays of "
            f"{delays:g} s for a timeout of {longest} s; "
            "raise Retry(in_doubt_attempts=…) or Retry(in_doubt_interval=…), or lower the timeout"
        )


def _check_window(step: Step) -> None:
    """A key that the provider forgets before a second call could be over is never repeated."""
    provider = step.provider
    if provider is None or provider.verify or not provider.window:
        return
    call = seconds_of(step.function) + step.doubt
    if provider.window <= 2 * call:
        raise ValueError(
            f"idempotent_for of step {step.name} must be longer than two calls with their grace, got "
            f"{provider.window} s for {call} s each: the provider would have forgotten "
            "the key before a call could be repeated; declare verify, or lower the timeout"
        )


def _check_before_pivot(step: Step, final: str) -> None:
    if step.only_forward:
        what = "sends a message" if plain_kind(step.kind).sends else "acts"
        raise ValueError(
            f"step {step.name} {what} before {final}, and "
            f"{'a message' if what != 'acts' else 'that'} cannot be taken back; move it behind the pivot"
        )
    if step.mutates and not step.compensated:
        raise ValueError(
            f"step {step.name} mutates before {final} and has no compensation; "
            "give it compensate=…, or make it the pivot"
        )


def check_statuses(refused: int, by_error: Mapping[str, int], steps: Sequence[Step | StepGroup]) -> frozenset[int]:
    """Refuse HTTP statuses outside the range of refusals, and names that no step raises.

    Returns:
        The statuses.

    Raises:
        ValueError: naming the value and the remedy.
    """
    known = {error for step in leaves_of(steps) for error in step.permanent_errors}
    known |= {error for node in steps if isinstance(node, StepGroup) for error in group_kind(node.kind).refusals}
    for name in by_error:
        if name not in known:
            raise ValueError(
                f"http_status_by_error must name permanent errors of the steps, got {name!r}; "
                "correct it, or add it to the refusals of the step that raises it"
            )
    for name, status in (("refused_http_status", refused), *by_error.items()):
        if not 400 <= status <= 499:
            raise ValueError(
                f"the HTTP status of {name} must be 400 to 499, got {shown(status)}; a refusal is the client's"
            )
    return frozenset({refused, *by_error.values()})
