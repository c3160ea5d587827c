"""Control of a deployed reconciler: on its schedule, or only when a test invokes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from constructs_lib.testing import LocalAws

RULES: Final = ("ReconcilerEndedRule", "ReconcilerScheduleRule", "ReconcilerMeasureRule")
"""Outputs of an example's stack: the rule for status events, the schedule, and that by which it is measured."""

LONGEST_SECONDS: Final = 900
"""What Lambda gives a function at most."""


def prepare_reconciler(aws: LocalAws, outputs: Mapping[str, str], *, seconds: int | None, reconciled: bool) -> None:
    """Let an example's reconciler run on its schedule, or only when a test invokes it.

    Args:
        aws: where the example is deployed.
        outputs: of the example's stack.
        seconds: timeout of its function, in the emulator's time: a process that starts on a busy machine is slow.
            A sweep that a test invokes may take as long as Lambda allows. None: as deployed.
        reconciled: whether it runs on its schedule; otherwise neither schedules nor status events invoke it, so that
            a test can examine interrupted sagas.
    """
    if seconds is not None:
        name, queue = outputs["ReconcilerName"], outputs["ReconcilerQueueUrl"]
        longest = seconds if reconciled else max(seconds, LONGEST_SECONDS)
        aws.client("lambda").update_function_configuration(FunctionName=name, Timeout=longest)
        attributes = {"VisibilityTimeout": str(6 * longest)}
        aws.client("sqs").set_queue_attributes(QueueUrl=queue, Attributes=attributes)  # type: ignore[arg-type]
    if not reconciled:
        for rule in RULES:
            aws.client("events").disable_rule(Name=outputs[rule])


@contextmanager
def reconciling(aws: LocalAws, *stacks: Mapping[str, str]) -> Iterator[None]:
    """Let the reconcilers of some stacks (their outputs) run on their schedules for a while."""
    events, names = aws.client("events"), [outputs[rule] for outputs in stacks for rule in RULES]
    for name in names:
        events.enable_rule(Name=name)
    try:
        yield
    finally:
        for name in names:
            events.disable_rule(Name=name)
