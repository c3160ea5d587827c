"""Worst case of a saga compared with its limits: time, history, names, payloads. Pure: data in, data out.

History events follow Step Functions: five for a state that runs a task (entered, scheduled,
started, succeeded, exited), three more for each further attempt, two for any other state, two for each item of a map.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from constructs_lib.saga.asl.states import LONG_ATTEMPTS, LONG_CAP_SECONDS
from constructs_lib.saga.description.description import (
    FunctionDescription,
    SagaDescription,
    StepDescription,
    Wait,
)
from constructs_lib.saga.description.kind import Machine, Mutation, group_kind, plain_kind
from constructs_lib.saga.description.retry import RetryDescription
from saga_runtime.protocol import (
    MAX_EXPRESS_SECONDS,
    MAX_FUNCTION_SECONDS,
    MAX_OUTPUTS_BYTES,
    MAX_SAGA_ID,
    MAX_STATE_PAYLOAD,
    Side,
)

MAX_HISTORY_EVENTS: Final = 25_000
"""Step Functions' quota for one Standard execution."""
MAX_DEDUPLICATION_ID: Final = 128
"""SQS's limit for the deduplication id of a FIFO message."""
_MAX_ITEM_KEY: Final = 64
_LEAST_OUTPUT_BYTES: Final = 200
"""An item's key, and a reference or an id."""
_TASK_MARGIN: Final = 10
_CALL_SECONDS: Final = 30
_TASK_EVENTS: Final = 5
_ATTEMPT_EVENTS: Final = 3
_OTHER_EVENTS: Final = 2
OUTLIVED_SECONDS: Final = MAX_EXPRESS_SECONDS + MAX_FUNCTION_SECONDS + 60
"""For so long after an execution's end a function that it invoked may be at work, or one of an Express phase, which is
not stopped with it."""
_ENDING_SECONDS: Final = 600
"""Direction, log, notice and settle: calls of AWS services, with a few retries."""
_ENDING_EVENTS: Final = 60


class Severity(StrEnum):
    """Severities of findings."""

    ERROR = "error"
    """It cannot work."""
    WARNING = "warning"
    """It may not work; acknowledge it if it is acceptable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the budget that does not hold.

    Attributes:
        id: stable; by it a warning is acknowledged.
        severity: how bad it is.
        message: step, value, remedy.
    """

    id: str
    severity: Severity
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Seconds, and events of the history in which it runs."""

    seconds: float = 0.0
    events: int = 0

    def __add__(self, other: Need) -> Need:
        """Both, one after the other."""
        return Need(seconds=self.seconds + other.seconds, events=self.events + other.events)

    def times(self, number: int, *, at_once: int = 1) -> Need:
        """So many of it, some of them at once."""
        rounds = -(-number // at_once)
        return Need(seconds=self.seconds * rounds, events=self.events * number)


_LOOKS: Final = Need(seconds=2 * (_CALL_SECONDS + _TASK_MARGIN), events=2 * (_TASK_EVENTS + _OTHER_EVENTS))
"""Compensation of a state machine's own writes, without its transaction: a fence, and a read of the row."""


def outlived_with_phases(saga: SagaDescription) -> int:
    """Seconds after an execution's end in which a function of a phase that it started may still be at work.

    Step Functions stops a phase in a state machine of its own with its saga, but only as a best effort
    (docs.aws.amazon.com/step-functions/latest/dg/connect-to-resource.html).
    """
    phases = [step.timeout for step in saga.steps if _machine(step) is Machine.STANDARD]
    return OUTLIVED_SECONDS + max(0, max(phases, default=0) - MAX_EXPRESS_SECONDS)


def worst_case(saga: SagaDescription) -> Need:
    """Worst case of a saga: every retry, and then every compensation, or the forward path to its end."""
    forward = _sum(_worst(node, _long(node)) for node in saga.steps)
    back = _sum(_undo(node) for node in saga.steps)
    after = _sum(_worst(node, long=True) for node in saga.steps if node.side == Side.AFTER)
    before = _sum(_worst(node, long=False) for node in saga.steps if node.side != Side.AFTER)
    ending = Need(seconds=_ENDING_SECONDS, events=_ENDING_EVENTS)
    turned = before + back
    longest = forward if forward.seconds >= turned.seconds else turned
    return Need(seconds=longest.seconds, events=max((before + after).events, turned.events)) + ending


def happy_path(saga: SagaDescription) -> Need:
    """Usage of a saga without retries, in which every function takes its whole timeout."""
    return _sum(_once(node) for node in saga.steps) + Need(seconds=_CALL_SECONDS, events=_TASK_EVENTS)


def findings_of(saga: SagaDescription) -> Iterator[Finding]:
    """Every line of the budget that does not hold."""
    worst = worst_case(saga)
    yield from _time(saga, worst.seconds)
    yield from _history(saga, worst)
    yield from _names(saga)
    yield from _phases(saga)
    yield from _windows(saga)
    yield from _redeliveries(saga)
    yield from _payloads(saga)
    yield from _shares(saga)


def _time(saga: SagaDescription, worst: float) -> Iterator[Finding]:
    for step in saga.steps:
        longest = _once(step).seconds
        if longest > saga.timeout:
            yield Finding(
                id="cdk-sagas-step-outlasts-saga",
                severity=Severity.ERROR,
                message=f"step {step.name} may take {longest:g} s, the whole saga {saga.timeout} s; "
                "raise the saga's timeout, or lower the step's",
            )
    if worst > saga.timeout:
        yield Finding(
            id="cdk-sagas-timeout",
            severity=Severity.WARNING,
            message=f"the saga may take {worst:g} s with every retry, got a timeout of "
            f"{saga.timeout} s: it would be cut off, and a recovery would begin again; leave timeout out, or raise it",
        )


def _history(saga: SagaDescription, worst: Need) -> Iterator[Finding]:
    for need, severity, when in (
        (happy_path(saga), Severity.ERROR, "when nothing fails"),
        (worst, Severity.WARNING, "at worst"),
    ):
        if need.events > MAX_HISTORY_EVENTS:
            widest = max(saga.steps, key=lambda step: _once(step).events)
            yield Finding(
                id=f"cdk-sagas-history-{severity}",
                severity=severity,
                message=f"the saga's history may have {need.events} events {when}, and Step Functions keeps "
                f"{MAX_HISTORY_EVENTS}; {widest.name} has most of them: lower max_items, or put steps into Step.child",
            )
            return


def _names(saga: SagaDescription) -> Iterator[Finding]:
    for group in saga.steps:
        if not group.max_items:
            continue
        room = MAX_DEDUPLICATION_ID - MAX_SAGA_ID - len("#[]") - _MAX_ITEM_KEY
        for step in group.leaves:
            if plain_kind(step.kind).keyed_message and len(step.name) > room:
                yield Finding(
                    id="cdk-sagas-key-length",
                    severity=Severity.ERROR,
                    message=f"step {step.name} of {group.name} has {len(step.name)} characters, and its step key with "
                    f"an item's key must fit a FIFO deduplication id of {MAX_DEDUPLICATION_ID}; "
                    f"use a name of at most {room}",
                )


def _phases(saga: SagaDescription) -> Iterator[Finding]:
    for group in saga.steps:
        if _machine(group) is None:
            continue
        inside = _sum(_worst(step, long=False) for step in group.leaves)
        if _machine(group) is Machine.STANDARD and group.timeout >= saga.timeout:
            yield Finding(
                id="cdk-sagas-phase-timeout",
                severity=Severity.ERROR,
                message=f"phase {group.name} may take {group.timeout} s, the whole saga {saga.timeout} s; "
                "lower the phase's timeout, or raise the saga's",
            )
        if inside.seconds > group.timeout:
            yield Finding(
                id=f"cdk-sagas-phase-{group.name}",
                severity=Severity.WARNING,
                message=f"the steps of phase {group.name} may take {inside.seconds:g} s with every "
                f"retry, got a timeout of {group.timeout} s: the phase would fail, and its effects would be "
                "compensated; lower timeouts or retries, or take steps out of it",
            )


def _windows(saga: SagaDescription) -> Iterator[Finding]:
    for step in saga.leaves:
        provider = step.provider
        if provider is not None and provider.window and not provider.verify:
            trying = tried(step)
            if trying > provider.window:
                yield Finding(
                    id=f"cdk-sagas-idempotency-window-{step.name}",
                    severity=Severity.WARNING,
                    message=f"step {step.name} may be tried for {trying:g} s, and its provider knows a key for "
                    f"{provider.window} s: what is in doubt after that waits for a person; offer verify, or try for a "
                    "shorter time",
                )


def _redeliveries(saga: SagaDescription) -> Iterator[Finding]:
    for step in saga.leaves:
        if step.wait is None or not step.wait.redelivery or step.function is None:
            continue
        doubt, again = step.function.timeout + step.doubt, step.wait.redelivery
        if doubt > again:
            yield Finding(
                id=f"cdk-sagas-redelivery-{step.name}",
                severity=Severity.WARNING,
                message=f"a request of step {step.name} may be on its way for {doubt} s, and its queue delivers the "
                f"job again after {again} s: what comes in between decides nothing, and brings the job "
                "nearer to the dead letters; raise visibility_timeout of the CallbackIntegration, or lower the grace",
            )


def _payloads(saga: SagaDescription) -> Iterator[Finding]:
    """Payloads, of which only the parts in the definition are known; outputs are limited at run time."""
    for step in saga.leaves:
        if step.constant > MAX_STATE_PAYLOAD:
            yield Finding(
                id=f"cdk-sagas-payload-{step.name}",
                severity=Severity.ERROR,
                message=f"step {step.name} sends {step.constant} bytes from the definition, and a state may "
                f"have {MAX_STATE_PAYLOAD}; send less, or a reference",
            )
    together = sum(step.instead * max(node.max_items, 1) for node in saga.steps for step in node.leaves)
    if together > MAX_OUTPUTS_BYTES:
        largest = max(saga.leaves, key=lambda step: step.instead)
        yield Finding(
            id="cdk-sagas-outputs",
            severity=Severity.WARNING,
            message=f"outputs of ContinueWith may have {together} bytes together, and all outputs of a saga "
            f"{MAX_OUTPUTS_BYTES}: a later step would be refused; {largest.name} has most of them: shorten its output",
        )


def _shares(saga: SagaDescription) -> Iterator[Finding]:
    """Each of a map's items has an equal share of the room for outputs."""
    for group in saga.steps:
        if not group.max_items:
            continue
        room = MAX_OUTPUTS_BYTES // group.max_items // len(list(group.leaves))
        if room < _LEAST_OUTPUT_BYTES:
            yield Finding(
                id=f"cdk-sagas-share-{group.name}",
                severity=Severity.WARNING,
                message=f"{group.name} takes {group.max_items} items, so each of its steps may answer {room} bytes for "
                f"one, the item's key of up to {_MAX_ITEM_KEY} characters included; lower max_items, or return less",
            )


def _machine(node: StepDescription) -> Machine | None:
    """Type of the state machine of a group's own."""
    return group_kind(node.kind).machine if node.branches else None


def tried(node: StepDescription) -> float:
    """Seconds for which a step or a group may be tried."""
    return _worst(node, _long(node)).seconds


def undo_tried(step: StepDescription) -> float:
    """Seconds for which a step's compensation may be tried; 0 if nothing undoes it."""
    return _undo(step).seconds


def _sum(needs: Iterator[Need]) -> Need:
    return sum(needs, start=Need())


def _long(node: StepDescription) -> bool:
    return node.side == Side.AFTER


def _worst(node: StepDescription, long: bool) -> Need:
    """A node, tried as often as it may be."""
    if not node.branches:
        return _attempts(node, node.function, long=long)
    inside = _inside(node, lambda step: _worst(step, long=False))
    if _machine(node) is not None:
        inside = Need(seconds=min(inside.seconds, node.timeout + _TASK_MARGIN), events=_TASK_EVENTS)
    rounds = 1 + (LONG_ATTEMPTS if long else 0)
    waits = sum(min(5 * 2**n, LONG_CAP_SECONDS) for n in range(1, rounds))
    return inside.times(rounds) + Need(seconds=waits, events=rounds * 3 * _OTHER_EVENTS)


def _once(node: StepDescription) -> Need:
    """A node, tried once."""
    if not node.branches:
        events = _TASK_EVENTS if plain_kind(node.kind).runs_task else _OTHER_EVENTS
        return Need(seconds=_longest(node, node.function), events=events)
    inside = _inside(node, _once)
    if _machine(node) is not None:
        return Need(seconds=min(inside.seconds, node.timeout), events=_TASK_EVENTS + _OTHER_EVENTS)
    return inside + Need(events=2 * _OTHER_EVENTS)


def _inside(group: StepDescription, need: Callable[[StepDescription], Need]) -> Need:
    branches = [_sum(need(step) for step in branch) for branch in group.branches]
    if group.max_items:
        return (branches[0] + Need(events=_OTHER_EVENTS)).times(group.max_items, at_once=group.max_concurrency)
    return Need(
        seconds=max(branch.seconds for branch in branches),
        events=sum(branch.events for branch in branches),
    )


def _undo(node: StepDescription) -> Need:
    if not node.branches:
        undo = _attempts(node, node.compensation, long=True) if node.compensated else Need()
        by_machine = plain_kind(node.kind).mutation is Mutation.BY_MACHINE
        return undo + _LOOKS if node.compensated and by_machine else undo
    needs = [_undo(step) for step in node.leaves]
    together = _sum(iter(needs))
    return together.times(node.max_items, at_once=node.max_concurrency) if node.max_items else together


def _waits(wait: Wait) -> Need:
    """A step that waits: its outcome is lost repeatedly, and one attempt has a heartbeat until its end.

    At worst a second attempt begins shortly before the time is up, and lasts as long again. Every further one is failed
    because the time is up, or misses its heartbeat if no dispatcher receives its message.
    """
    seconds = 2 * wait.timeout + (wait.attempts - 1) * wait.heartbeat
    return Need(seconds=seconds, events=_TASK_EVENTS + 1 + (_ATTEMPT_EVENTS + 1) * wait.attempts)


def _attempts(step: StepDescription, function: FunctionDescription | None, *, long: bool) -> Need:
    """Both classes of failures have retries of their own; at worst, one comes after the other."""
    if not step.retried:
        return _once(step)
    delays = [delay for retry in (step.retry.transient, step.retry.in_doubt) for delay in _delays(retry, long=long)]
    attempts = len(delays) + 1
    if step.wait is not None and function is step.function:
        # Apart from the wait, only sending the job to the queue is retried.
        asked = Need(seconds=attempts * _CALL_SECONDS + sum(delays), events=_ATTEMPT_EVENTS * len(delays))
        return _waits(step.wait) + asked
    return Need(
        seconds=attempts * (_longest(step, function) + _TASK_MARGIN) + sum(delays),
        events=_TASK_EVENTS + _ATTEMPT_EVENTS * (attempts - 1),
    )


def _delays(retry: RetryDescription, *, long: bool) -> list[float]:
    if not long:
        return list(retry.delays)
    longer = dataclasses.replace(
        retry, attempts=max(retry.attempts, LONG_ATTEMPTS), cap=max(retry.cap, LONG_CAP_SECONDS)
    )
    return list(longer.delays)


def _longest(step: StepDescription, function: FunctionDescription | None) -> float:
    if step.wait is not None and function is step.function:
        return step.wait.timeout
    return function.timeout if function is not None else (step.timeout or _CALL_SECONDS)
