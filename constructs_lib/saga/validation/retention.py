"""Retention periods, compared with what may still arrive. Pure: data in, data out.

A row of the saga log prevents a repeated effect, or one after the step failed. An actor that finds no row because it
has expired treats the step as new: hence errors. A case that only requires an operator is a
warning. Every rule has its trace in ``tests/unit/recovery/test_retention_traces.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Final

from constructs_lib.saga.description.description import SagaDescription, StepDescription
from constructs_lib.saga.validation.budget import Finding, Severity, outlived_with_phases, tried, undo_tried, worst_case
from saga_runtime.callbacks.saga_writes import LATE_DAYS
from saga_runtime.protocol import EXECUTION_NAME_DAYS
from saga_runtime.recovery.decisions import LONGEST_LOOK_MS, keeps_ahead_days

DAY: Final = 86_400
REDRIVE_DAYS: Final = 14
"""Days after its end in which an execution can be redriven; its timeout restarts."""
HISTORY_DAYS: Final = EXECUTION_NAME_DAYS
"""Days after its end in which Step Functions has an execution's status, so that it can be taken over."""


def retention_findings(saga: SagaDescription) -> Iterator[Finding]:
    """Every memory that ends too soon, of those that are known when a saga is declared."""
    yield from _clients(saga)
    if not saga.log_days:
        return
    yield from _redrives(saga)
    for step in saga.leaves:
        if step.wait is not None and step.wait.messages:
            yield from _messages(saga, step, step.wait.messages)
            yield from _late_answers(saga, step)
    yield from _names(saga)
    for step in saga.leaves:
        yield from _undo_windows(step)


def recovery_findings(saga: SagaDescription, *, looked_at_every: int | None) -> Iterator[Finding]:
    """Items that expire before a recovery needs them.

    Args:
        saga: the saga.
        looked_at_every: seconds between two checks of the reconciler; None: recovered by hand.
    """
    if not saga.log_days:
        return
    if looked_at_every is None:
        yield from _recoveries_by_hand(saga)
    else:
        # An event announces an execution's end and may be lost; then the record is found when it is due.
        pause = max(saga.due_after, LONGEST_LOOK_MS // 1_000) + looked_at_every
        for node in saga.steps:
            for step in node.leaves:
                yield from _windows(node, step, pause)
                yield from _undo_windows_of_recoveries(step, pause)


def kept_after_the_end(log_days: int) -> int:
    """Seconds for which a saga's rows are kept after it ended, at least.

    A row is kept for ``log_days`` after it was written, and a reconciler keeps those of an open saga for longer:
    whenever a saga ends, however late, this much is left.
    """
    return keeps_ahead_days(log_days) * DAY


def _clients(saga: SagaDescription) -> Iterator[Finding]:
    worst = worst_case(saga).seconds
    if 0 < saga.remembered < worst:
        yield Finding(
            id="cdk-sagas-retention",
            severity=Severity.WARNING,
            message=f"keys are remembered for {saga.remembered} s after their requests settled, and the saga may be "
            f"tried for {worst:g} s: a client that repeats its request for as long would begin another saga; raise "
            "remember_for of the IdempotencyTable",
        )


def _redrives(saga: SagaDescription) -> Iterator[Finding]:
    need = _last_run(saga)
    if kept_after_the_end(saga.log_days) < need:
        yield Finding(
            id="cdk-sagas-retention-redrive",
            severity=Severity.ERROR,
            message=f"an execution can be redriven for {REDRIVE_DAYS} days after it ended, and runs for its timeout of "
            f"{saga.timeout} s again, and for {outlived_with_phases(saga)} s if it is a recovery, "
            f"{_rows(saga)}: a step would happen once more, or after it was undone; "
            f"{_keep(need)}, or lower the timeout",
        )


def _messages(saga: SagaDescription, step: StepDescription, delivered: int) -> Iterator[Finding]:
    need = _last_run(saga) + delivered
    if kept_after_the_end(saga.log_days) < need:
        yield Finding(
            id=f"cdk-sagas-retention-messages-{step.name}",
            severity=Severity.ERROR,
            message=f"a message of step {step.name} can be delivered for {delivered} s, in its queue and after "
            f"its dead-letter queue, also one of an execution that was redriven ({REDRIVE_DAYS} days, and a timeout of "
            f"{saga.timeout} s), {_rows(saga)}: the job would be dispatched once more, or after it was undone; "
            f"{_keep(need)}, or lower the timeout",
        )


def _late_answers(saga: SagaDescription, step: StepDescription) -> Iterator[Finding]:
    need = saga.replayed + LATE_DAYS * DAY
    if kept_after_the_end(saga.log_days) < need:
        yield Finding(
            id=f"cdk-sagas-retention-late-{step.name}",
            severity=Severity.ERROR,
            message=f"a late effect of step {step.name} is compensated while the request's response is replayed, "
            f"{saga.replayed} s, and {LATE_DAYS} days, {_rows(saga)}: the late effect would be undetected, "
            f"and would remain; {_keep(need)}, or lower replay_for of the IdempotencyTable",
        )


def _names(saga: SagaDescription) -> Iterator[Finding]:
    young = EXECUTION_NAME_DAYS - 1
    if saga.timeout > young * DAY:
        yield Finding(
            id="cdk-sagas-retention-execution-names",
            severity=Severity.WARNING,
            message=f"the saga may run for {saga.timeout} s, and names of executions can be trusted for {young} days: "
            "a recovery of an older saga that was decided and never started needs an operator; lower the timeout, or "
            "put what takes long into a saga of its own",
        )


def _undo_windows(step: StepDescription) -> Iterator[Finding]:
    """The provider forgets the key of an undo that was cut off, and cannot be asked."""
    provider = step.provider
    if provider is None or not provider.undo_window or provider.verify_undo or step.compensation is None:
        return
    # The second call begins when the first one is certainly dead, and must arrive while the key is known.
    never = 2 * (step.compensation.timeout + provider.clock_skew) + provider.grace
    trying = undo_tried(step)
    known = f"and its provider knows the key for {provider.undo_window} s"
    if provider.undo_window < never:
        yield Finding(
            id=f"cdk-sagas-retention-compensation-{step.name}",
            severity=Severity.ERROR,
            message=f"two calls that undo step {step.name} take {never} s, one after the other, {known}: what was "
            "cut off could never be repeated; offer verify_undo, or lower the timeout of its compensation",
        )
    elif provider.undo_window < trying:
        yield Finding(
            id=f"cdk-sagas-retention-compensation-{step.name}",
            severity=Severity.WARNING,
            message=f"the undo of step {step.name} may be tried for {trying:g} s, {known}: what is in doubt after that "
            "waits for a person; offer verify_undo, or try for a shorter time",
        )


def _recoveries_by_hand(saga: SagaDescription) -> Iterator[Finding]:
    need = HISTORY_DAYS * DAY + 2 * saga.timeout + outlived_with_phases(saga)
    if saga.log_days * DAY < need:
        yield Finding(
            id="cdk-sagas-retention-recovery",
            severity=Severity.ERROR,
            message=f"an execution can be taken over for {HISTORY_DAYS} days after it ended, runs for {saga.timeout} s "
            f"before and its recovery after that, and log_retention_days is {saga.log_days}: a recovery would find no "
            f"rows, and repeat or forget what was done; raise it to {ceil(need / DAY)}, or give the saga to a "
            "TimeoutReconciler, which keeps the rows of open sagas",
        )


def _windows(node: StepDescription, step: StepDescription, pause: int) -> Iterator[Finding]:
    """A step in doubt is asked about when its group has ended, or by a recovery."""
    provider = step.provider
    if provider is None or not provider.window or provider.verify:
        return
    alone = tried(step)
    asked = max(alone, tried(node)) + pause
    if alone <= provider.window < asked:
        yield Finding(
            id=f"cdk-sagas-retention-idempotency-window-{step.name}",
            severity=Severity.WARNING,
            message=f"a recovery may ask for step {step.name} {asked:g} s after its first call, and its provider knows "
            f"a key for {provider.window} s: what is in doubt then waits for a person; offer verify, or look more "
            "often (check_interval of the TimeoutReconciler, due_after of the IdempotencyTable)",
        )


def _undo_windows_of_recoveries(step: StepDescription, pause: int) -> Iterator[Finding]:
    provider = step.provider
    if provider is None or not provider.undo_window or provider.verify_undo:
        return
    alone = undo_tried(step)
    if alone <= provider.undo_window < alone + pause:
        yield Finding(
            id=f"cdk-sagas-retention-compensation-{step.name}",
            severity=Severity.WARNING,
            message=f"a recovery may repeat the undo of step {step.name} {alone + pause:g} s after its first call, and "
            f"its provider knows the key for {provider.undo_window} s: what is in doubt then needs an operator; offer "
            "verify_undo, or check more often (check_interval of the TimeoutReconciler, due_after of the "
            "IdempotencyTable)",
        )


def _last_run(saga: SagaDescription) -> int:
    """Seconds after a saga's end in which an execution that an operator redrove may run: a recovery, at most."""
    return REDRIVE_DAYS * DAY + saga.timeout + outlived_with_phases(saga)


def _rows(saga: SagaDescription) -> str:
    return (
        f"and with log_retention_days={saga.log_days} rows are kept for {keeps_ahead_days(saga.log_days)} days after "
        "a saga's end, whenever that is"
    )


def _keep(need: float) -> str:
    """The remedy: half of the days are for what comes after the end (``keeps_ahead_days``)."""
    return f"raise log_retention_days to {2 * ceil(need / DAY)}"
