"""``cdk-sagas inspect``: a saga's state, and an operator's available actions: the command and its text. Reads only."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from constructs_lib.cli.saga.advice import Advice, advice
from constructs_lib.cli.saga.inspection import ExecutionView, Inspection, StepView, inspect_saga
from constructs_lib.cli.shared.aws import one_line_errors, options_again
from constructs_lib.cli.shared.process import CommandError, json_in, moment, say, time_of_day
from constructs_lib.cli.shared.saga import add_saga_options, deployed, find_saga, in_words
from constructs_lib.cli.shared.terminal import Line, Screen, counted
from constructs_lib.saga.graph.timeline import TimelineRow, duration, timeline
from saga_runtime.payloads.references import is_reference
from saga_runtime.protocol import REFERENCE_FIELD, Ran, StepStatus
from saga_runtime.recovery.takeover import Finding

_FOLLOW_SECONDS: Final = 2.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``inspect``, and add its options."""
    parser.description = (
        "Reads the saga's record, its executions and its log, and draws them. Changes nothing. Shows the "
        "steps' outputs, which may be confidential. Exit status: 0 shown, whatever the saga's status; 1 the saga is "
        "unknown, or AWS refused a call."
    )
    add_saga_options(parser)
    parser.add_argument("--full", action="store_true", help="show outputs whole")
    parser.add_argument(
        "--follow", action="store_true", help="show it again whenever it changed, until it does not run"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead, with everything in it")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    if options.follow and options.json:
        options.misused("--follow shows texts; leave --json out")
    saga = _inspected(options)
    _print(options, saga)
    while options.follow and saga.finding is Finding.RUNNING:
        time.sleep(_FOLLOW_SECONDS)
        before, saga = saga, _inspected(options)
        if _shape(saga) != _shape(before):
            _print(options, saga)
    return 0


def _inspected(options: argparse.Namespace) -> Inspection:
    with one_line_errors(f"saga {options.saga} could not be read"):
        found = find_saga(options)
        try:
            return inspect_saga(found, deployed(found))
        except (KeyError, ValueError) as error:
            why = f"it lacks {error.args[0]}" if isinstance(error, KeyError) else error
            raise CommandError(f"saga {options.saga} has an item that is not a saga's: {why}") from None


def _shape(saga: Inspection) -> object:
    """Everything that changes but the time."""
    retries = [(one.state, one.failed, one.error) for one in saga.retries or ()]
    executions = [(one.name, one.machine, one.status) for one in saga.executions]
    return saga.finding, saga.status, saga.owner, saga.steps, saga.decisions, saga.held, retries, executions


def _print(options: argparse.Namespace, saga: Inspection) -> None:
    advices = advice(saga, options_again(options))
    if options.json:
        document = dataclasses.asdict(saga) | {"advice": [dataclasses.asdict(one) for one in advices]}
        say(json.dumps(document, indent=2) + "\n")
        return
    say(text_of(saga, advices, Screen.of(sys.stdout), full=options.full))


_SHORT_OUTPUT: Final = 160
_SHORT_CAUSE: Final = 200
_PICTURE: Final = 100
"""Columns of a timeline that no terminal reads."""
_NOT_REACHED: Final = "not reached"
_FINDINGS: Final = {
    Finding.SETTLED: "settled",
    Finding.PARKED: "parked: it waits for an operator",
    Finding.NOT_STARTED: "not started",
    Finding.NAME_EXPIRED: "may have run before",
    Finding.RUNNING: "running",
    Finding.DEAD: "interrupted: its owner ended without settling",
    Finding.OWNER_UNKNOWN: "its owner's execution may not be described",
    Finding.OWNER_SUCCEEDED: "in progress although its owner succeeded: restored, or edited",
    Finding.ROWS_EXPIRED: "it does not run, and its log may have expired",
}


def text_of(saga: Inspection, advices: Sequence[Advice], screen: Screen, *, full: bool = False) -> str:
    """The whole text.

    Args:
        saga: the saga.
        advices: what can be done about it.
        screen: what shows it.
        full: whether outputs are shown whole, behind the timeline.
    """
    return screen.text(
        _head(saga, screen),
        _executions(saga, screen),
        _retries(saga, screen),
        _steps(saga, screen),
        *(_outputs(saga, screen) if full else ()),
        _decisions(saga, screen),
        _proposals(saga, screen),
        _next(advices, screen),
    )


def _head(saga: Inspection, screen: Screen) -> Iterator[Line]:
    since = f", {moment(saga.parked_at)}, {duration(saga.now_ms - saga.parked_at)} ago" if saga.parked_at else ""
    facts = {
        "state": f"{saga.status}, {_FINDINGS[saga.finding]}",
        "operation": saga.operation,
        "reserved": moment(saga.created_at),
        "changed": moment(saga.updated_at),
        "direction": saga.direction or "not decided",
        "owner": saga.owner,
        "recoveries": str(saga.recoveries),
        "answered": str(saga.http_status) if saga.http_status is not None else None,
        "parked": f"by {saga.parked_by}{since}" if saga.parked_by is not None else None,
        "reason": _sentence(saga.parked_reason),
        "held": f"since {moment(saga.held.since_ms)} by {saga.held.who}: {saga.held.reason}" if saga.held else None,
        "failure": _sentence(saga.failure),
    }
    yield f"saga {saga.saga_id}"
    for name, fact in facts.items():
        if fact is not None:
            yield from screen.paragraph(fact, 14, f"{name:<12}")


def _sentence(failure: Mapping[str, Any]) -> str | None:
    """A failure in one line; None without one."""
    return (in_words(failure) or json.dumps(failure, sort_keys=True)) if failure else None


def _decisions(saga: Inspection, screen: Screen) -> Iterator[Line]:
    if saga.decisions:
        yield "decisions of operators"
    for one in saga.decisions:
        parked = f" (parked for {one.parked_reason})" if one.parked_reason else ""
        yield f"  {moment(one.at_ms)}  {screen.clean(one.who)}"
        yield f"    {screen.clean(f'{one.what}{parked}')}"
        if one.proposed_by is not None:
            by = screen.clean(one.proposed_by)
            yield f"    as {by} proposed{f' ({one.proposal})' if one.proposal is not None else ''}"
        yield from screen.paragraph(f"why: {one.why}", 4)


def _proposals(saga: Inspection, screen: Screen) -> Iterator[Line]:
    if saga.proposals:
        yield "proposals"
    for one in saga.proposals:
        until = f" until {moment(one.expires_at)}" if one.state == "open" else ""
        yield f"  {one.number}  {one.state}{until}, of {screen.clean(one.who)}"
        yield f"     {screen.clean(one.what)}"
        yield from screen.paragraph(f"why: {one.why}", 5)


def _executions(saga: Inspection, screen: Screen) -> Iterator[Line]:
    yield "executions"
    if not saga.executions:
        yield f"  {_no_execution(saga)}"
        return
    rows = screen.table([(one.name, one.machine, one.status, _lasted(saga, one)) for one in saga.executions])
    for row, one in zip(rows, saga.executions, strict=True):
        yield from row
        yield from _failure(one.error, one.cause, screen)
    if newest := saga.executions[-1].link:
        yield f"  {newest}"


def _failure(error: str | None, cause: str | None, screen: Screen) -> Iterator[Line]:
    """An error and the beginning of its cause."""
    said = ": ".join(part for part in (error, cause) if part)
    return screen.paragraph(said[:_SHORT_CAUSE], 4)


def _retries(saga: Inspection, screen: Screen) -> Iterator[Line]:
    if saga.retries is None or saga.retries:
        yield "retries"
    if saga.retries is None:
        yield "  not allowed: states:GetExecutionHistory, DescribeStateMachineForExecution"
    for one in saga.retries or ():
        ahead = "the next one runs" if one.runs else "no more attempts"
        if one.next_by is not None:
            ahead = f"the next one by {time_of_day(one.next_by)}, in {duration(max(one.next_by - saga.now_ms, 0))}"
        failed = f"{counted(one.failed, 'attempt')} failed since {time_of_day(one.first_at)}; {ahead}"
        yield f"  {screen.clean(one.state)}: {failed}"
        yield from _failure(one.error, one.cause, screen)


def _no_execution(saga: Inspection) -> str:
    if saga.ran == Ran.EXPRESS:
        return "an Express one, of which only its log remains"
    if saga.express:
        return "no Standard one; Step Functions does not list Express ones"
    return "none that Step Functions remembers"


def _lasted(saga: Inspection, one: ExecutionView) -> str:
    end = one.stopped_at if one.stopped_at is not None else saga.now_ms
    until = "until now" if one.stopped_at is None else f"to {time_of_day(one.stopped_at)}"
    return f"{moment(one.started_at)} {until}, {duration(max(end - one.started_at, 0))}"


def _steps(saga: Inspection, screen: Screen) -> list[Line]:
    rows = [_timeline_row(saga, step) for step in saga.steps]
    if not rows:
        return ["no steps yet"]
    # What no terminal reads has a picture of its own width, and its details in one line each.
    width = min(screen.width, max(_PICTURE, max(len(row.step) for row in rows) + _PICTURE // 2))
    details = screen.width if screen.width > width else None
    return [*timeline(rows, width=width, details=details, now_ms=_present(saga), unicode=screen.unicode)]


def _present(saga: Inspection) -> int | None:
    """Up to when the timeline reaches: as long as something is open, and not beyond the end of all activity."""
    if not any(step.open for step in saga.steps):
        return None
    return saga.parked_at if saga.parked_at is not None else saga.now_ms


def _timeline_row(saga: Inspection, step: StepView) -> TimelineRow:
    if step.status is None:
        return TimelineRow(step=step.step, status=_NOT_REACHED)
    return TimelineRow(
        step=step.step,
        status=step.status,
        started_ms=step.created_at,
        ended_ms=None if step.open else step.updated_at,
        detail="; ".join(_details(saga, step)),
    )


def _details(saga: Inspection, step: StepView) -> Iterator[str]:
    if step.deadline is not None:
        yield f"in doubt {'since' if step.deadline <= saga.now_ms else 'until'} {time_of_day(step.deadline)}"
        yield f"attempt {step.attempt}"
    if step.error:
        yield f"{step.error}: {step.detail}" if step.detail else step.error
    if step.status == StepStatus.INTENT and step.accepted_at is not None:
        yield f"its provider took it on at {time_of_day(step.accepted_at)}"
    if step.status == StepStatus.APPLIED_LATE:
        yield "it was applied late"
    if step.passed_over:
        yield f"skipped, with {short_output(step.went_on_with)}"
    if step.output not in (None, "{}") and step.status != StepStatus.TOMBSTONE:
        yield short_output(step.output)
    if step.provider_key is not None and step.status != StepStatus.TOMBSTONE:
        yield f"the provider's key {step.provider_key}"


def short_output(text: str | None) -> str:
    """An output in one line, cut; a stored one as its key."""
    if text is None:
        return "no output"
    found = json_in(text)
    if is_reference(found):
        return f"output stored as {found[REFERENCE_FIELD]}"
    return (
        text if len(text) <= _SHORT_OUTPUT else f"{text[:_SHORT_OUTPUT]}... ({len(text.encode('utf-8'))} bytes; --full)"
    )


def _outputs(saga: Inspection, screen: Screen) -> Iterator[list[Line]]:
    for step in saga.steps:
        if step.output is None:
            continue
        try:
            text = json.dumps(json.loads(step.output), indent=2, ensure_ascii=not screen.unicode)
        except ValueError:
            text = step.output
        indented = ((line, len(line) - len(line.lstrip()) + 2) for line in text.splitlines())
        yield [f"output of {step.step}", *(f"{' ' * indent}{screen.clean(line)}" for line, indent in indented)]


def _next(advices: Sequence[Advice], screen: Screen) -> Iterator[Line]:
    if advices:
        yield "what you can do"
    for one in advices:
        yield from screen.paragraph(one.text, 2)
        for case, command in one.commands:
            yield f"    {case}:"
            yield f"      {command}"
