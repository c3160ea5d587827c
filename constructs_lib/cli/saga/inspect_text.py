"""A saga as text for a terminal: what it is, its executions, its timeline, what can be done. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from constructs_lib.cli.saga.advice import Advice
from constructs_lib.cli.saga.inspection import ExecutionView, Inspection, StepView
from constructs_lib.cli.shared.moments import moment, time_of_day
from constructs_lib.saga.graph.terminal import clean, pad, widest, wrap
from constructs_lib.saga.graph.timeline import TimelineRow, duration, timeline
from saga_runtime.payloads.references import is_reference
from saga_runtime.protocol import REFERENCE_FIELD, Ran, StepStatus
from saga_runtime.recovery.takeover import Finding

_SHORT_OUTPUT: Final = 160
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


def text_of(
    saga: Inspection, advices: Sequence[Advice], *, width: int = 100, unicode: bool = True, full: bool = False
) -> str:
    """The whole text.

    Args:
        saga: the saga.
        advices: what can be done about it.
        width: columns of the terminal. Commands are never wrapped: they are to be copied.
        unicode: whether the terminal shows more than ASCII.
        full: whether outputs are shown whole, behind the timeline.
    """
    parts = [_head(saga, width, unicode), _executions(saga, width, unicode), _retries(saga, width, unicode)]
    parts.append(_steps(saga, width, unicode))
    if full:
        parts += list(_outputs(saga, unicode))
    parts.append(_decisions(saga, width, unicode))
    parts.append(_next(advices, width))
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(saga: Inspection, width: int, unicode: bool) -> list[str]:
    facts = [("state", f"{saga.status}, {_FINDINGS[saga.finding]}")]
    if saga.operation is not None:
        facts.append(("operation", saga.operation))
    facts.append(("reserved", moment(saga.created_at)))
    facts.append(("changed", moment(saga.updated_at)))
    facts.append(("direction", saga.direction or "not decided"))
    facts.append(("owner", saga.owner))
    facts.append(("recoveries", str(saga.recoveries)))
    if saga.http_status is not None:
        facts.append(("answered", str(saga.http_status)))
    if saga.parked_by is not None:
        since = f", {moment(saga.parked_at)}, {duration(saga.now_ms - saga.parked_at)} ago" if saga.parked_at else ""
        facts.append(("parked", f"by {saga.parked_by}{since}"))
    facts += [
        (name, _sentence(what)) for name, what in (("reason", saga.parked_reason), ("failure", saga.failure)) if what
    ]
    lines = [f"saga {saga.saga_id}"]
    for name, fact in facts:
        first, *rest = [*wrap(clean(fact, unicode=unicode), max(width - 14, 20))] or [""]
        lines += [f"  {name:<12}{first}", *(" " * 14 + line for line in rest)]
    return lines


def _decisions(saga: Inspection, width: int, unicode: bool) -> list[str]:
    lines = ["decisions of operators"] if saga.decisions else []
    for one in saga.decisions:
        parked = f" (parked for {one.parked_reason})" if one.parked_reason else ""
        lines += [f"  {moment(one.at_ms)}  {one.who}", f"    {clean(one.what, unicode=unicode)}{parked}"]
        lines += [f"    {line}" for line in wrap(clean(f"why: {one.why}", unicode=unicode), max(width - 4, 20))]
    return lines


def _sentence(what: object) -> str:
    """A failure in one line: step, error, detail."""
    if not isinstance(what, dict):
        return str(what)
    step, error = what.get("step"), what.get("error")
    where = ": ".join(str(part) for part in (step, error) if part)
    detail = what.get("detail") or what.get("cause")
    return f"{where}, {detail}" if where and detail else where or str(detail or json.dumps(what, sort_keys=True))


def _executions(saga: Inspection, width: int, unicode: bool) -> list[str]:
    if not saga.executions:
        return ["executions", f"  {_no_execution(saga)}"]
    names = widest([one.name for one in saga.executions])
    states = max(len(one.status) for one in saga.executions)
    lines = ["executions"]
    for one in saga.executions:
        lines.append(
            f"  {pad(one.name, names)}  {one.machine:<8}  {one.status:<{states}}  {_lasted(saga, one)}".rstrip()
        )
        said = ": ".join(part for part in (one.error, one.cause) if part)
        lines += [f"    {line}" for line in wrap(clean(said, unicode=unicode)[: width * 2], max(width - 4, 20))]
    newest = saga.executions[-1].link
    return [*lines, f"  {newest}"] if newest else lines


def _retries(saga: Inspection, width: int, unicode: bool) -> list[str]:
    if saga.retries is None:
        return ["retries", "  not allowed: states:GetExecutionHistory, DescribeStateMachineForExecution"]
    lines = ["retries"] if saga.retries else []
    for one in saga.retries:
        attempts = "1 attempt" if one.failed == 1 else f"{one.failed} attempts"
        ahead = "the next one runs" if one.runs else "no more attempts"
        if one.next_by is not None:
            ahead = f"the next one by {time_of_day(one.next_by)}, in {duration(max(one.next_by - saga.now_ms, 0))}"
        failed = f"{attempts} failed since {time_of_day(one.first_at)}; {ahead}"
        lines.append(f"  {clean(one.state, unicode=unicode)}: {failed}")
        said = ": ".join(part for part in (one.error, one.cause) if part)
        lines += [f"    {line}" for line in wrap(clean(said, unicode=unicode)[: width * 2], max(width - 4, 20))]
    return lines


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


def _steps(saga: Inspection, width: int, unicode: bool) -> list[str]:
    rows = [_timeline_row(saga, step) for step in saga.steps]
    return timeline(rows, width=width, now_ms=_present(saga), unicode=unicode) if rows else ["no steps yet"]


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
        yield f"{'in doubt' if step.deadline <= saga.now_ms else 'in doubt until'} {_since(saga, step.deadline)}"
        yield f"attempt {step.attempt}"
    if step.error:
        yield f"{step.error}: {step.detail}" if step.detail else step.error
    if step.status == StepStatus.INTENT and step.accepted_at is not None:
        yield f"its provider took it on at {time_of_day(step.accepted_at)}"
    if step.status == StepStatus.APPLIED_LATE:
        yield "it was applied late, and is compensated"
    if step.passed_over:
        yield f"skipped, with {short_output(step.went_on_with)}"
    if step.output not in (None, "{}") and step.status != StepStatus.TOMBSTONE:
        yield short_output(step.output)
    if step.provider_key is not None and step.status != StepStatus.TOMBSTONE:
        yield f"the provider's key {step.provider_key}"


def _since(saga: Inspection, deadline: int) -> str:
    if deadline > saga.now_ms:
        return time_of_day(deadline)
    return f"since {time_of_day(deadline)}"


def short_output(text: str | None) -> str:
    """An output in one line, cut; a stored one as its key."""
    if text is None:
        return "no output"
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if is_reference(found):
        return f"output stored as {found[REFERENCE_FIELD]}"
    return (
        text if len(text) <= _SHORT_OUTPUT else f"{text[:_SHORT_OUTPUT]}... ({len(text.encode('utf-8'))} bytes; --full)"
    )


def _outputs(saga: Inspection, unicode: bool) -> Iterator[list[str]]:
    for step in saga.steps:
        if step.output is None:
            continue
        try:
            text = json.dumps(json.loads(step.output), indent=2, ensure_ascii=not unicode)
        except ValueError:
            text = step.output
        yield [f"output of {step.step}", *(f"  {clean_line(line, unicode)}" for line in text.splitlines())]


def clean_line(line: str, unicode: bool) -> str:
    """A line of a document as it may go to a terminal, with its indentation."""
    return " " * (len(line) - len(line.lstrip())) + clean(line, unicode=unicode)


def _next(advices: Sequence[Advice], width: int) -> list[str]:
    if not advices:
        return []
    lines = ["what you can do"]
    for one in advices:
        lines += [f"  {line}" for line in wrap(one.text, max(width - 2, 20))]
        lines += [f"    {case}:\n      {command}" for case, command in one.commands]
    return lines
