"""Next actions of an operator about a saga, with their commands. Pure: data in, data out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from constructs_lib.cli.saga.inspection import Inspection, StepView
from constructs_lib.cli.shared.process import moment
from constructs_lib.cli.shared.saga import to_copy
from constructs_lib.saga.asl.failures import DEFINITION_CHANGED
from constructs_lib.saga.graph.timeline import duration
from saga_runtime.protocol import SAGA_CANCELLED, UNDO_STATE, Direction, Side, StepStatus
from saga_runtime.recovery.decisions import ParkedFor
from saga_runtime.recovery.takeover import Finding

OUTPUT: Final = "OUTPUT"
"""The output in a command that is printed for an operator to complete; it is not JSON, and refused."""
DAYS: Final = "DAYS"
"""The same for a number of days."""
_OUTPUT_IS: Final = f"{OUTPUT} is what the step would have returned, as JSON: later steps and its compensation read it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One thing to do, or to decide.

    Attributes:
        text: what is to be found out or done, in a sentence or two.
        commands: what to run in which case: the case, and the command.
    """

    text: str
    commands: tuple[tuple[str, str], ...] = ()


def advice(saga: Inspection, options: Sequence[str]) -> list[Advice]:
    """Return the available actions.

    Args:
        saga: as it was found.
        options: what every command needs in addition to the saga: the table, perhaps a region.
    """

    def command(*words: str) -> str:
        return to_copy([words[0], saga.saga_id, *words[1:]], options)

    proposed = [
        Advice(
            text=f"{one.who} proposed {one.number}: {one.what}; why: {one.why}. Find out whether it is true; another "
            "operator confirms it.",
            commands=(("it is true", command("confirm", "--proposal", str(one.number))),),
        )
        for one in saga.proposals
        if one.state == "open"
    ]
    return [*proposed, *_about_late_effects(saga, command), *_about_the_saga(saga, command)]


def _about_late_effects(saga: Inspection, command: Callable[..., str]) -> Iterator[Advice]:
    ended = saga.finding is Finding.SETTLED
    for step in saga.steps:
        if step.status != StepStatus.APPLIED_LATE and not (ended and step.status == StepStatus.COMPENSATING):
            continue
        seen = ["--attempt", step.attempt] if step.attempt else []
        if not ended and must_happen(saga, step) and step.instead is None and not step.skipped:
            if step.skipped is None:
                yield Advice(text=_of_other_conditions(step))
                continue
            text = (
                f"{step.step} was applied after a refusal, and the saga only goes forward: let it continue with that."
            )
            yield Advice(text=text, commands=(("continue", command("resolve", step.step, "--applied", *seen)),))
            continue
        yield Advice(
            text=f"{step.step} was applied late. If its compensation can run, let it; if "
            "only you can undo it, undo it by hand and record that.",
            commands=(
                ("undo it", command("recover", "--again")),
                ("undone by hand", command("resolve", step.step, "--compensation", "--applied", *seen)),
            ),
        )


def _about_the_saga(saga: Inspection, command: Callable[..., str]) -> list[Advice]:
    if saga.finding is Finding.SETTLED:
        return []
    if saga.finding is Finding.RUNNING:
        if saga.failure.get("error") == SAGA_CANCELLED and saga.direction is None and saga.owner == saga.saga_id:
            text = "An operator cancelled it, and its execution still runs: its reconciler stops it, or you do."
            return [Advice(text=text, commands=(("stop it", command("cancel")),))]
        if not saga.retries:
            return [Advice(text="Nothing: its owner runs.")]
        names = ", ".join(dict.fromkeys(one.state for one in saga.retries))
        text = f"Its owner retries {names}. Find the cause of the error: when the last attempt fails, it compensates or"
        return [Advice(text=f"{text} is parked.")]
    if saga.finding is Finding.OWNER_SUCCEEDED or saga.parked_reason.get("error") == ParkedFor.OWNER_SUCCEEDED:
        text = (
            "Its owner's execution SUCCEEDED, and an execution succeeds only after it has settled its record. So this "
            "record was restored, or edited, and its effects may exist without a row in its log. Compare its "
            "executions with the ledger and its providers. If effects exist without rows, restore record and log to a "
            "moment after it settled. Resume it only when the log is right: a recovery compensates by the log alone."
        )
        return [Advice(text=text, commands=(("the log is right", command("resolve", "--resume")),))]
    if saga.finding is Finding.NAME_EXPIRED:
        text = "Its owner has no execution, and may have had one. It does not run now; a recovery decides by the rows."
        return [Advice(text=text, commands=(("resume it", command("resolve", "--resume")),))]
    if saga.finding is Finding.ROWS_EXPIRED or saga.parked_reason.get("error") == ParkedFor.ROWS_EXPIRED:
        return [
            Advice(
                text="Its log may have expired, without which its effects could repeat. If the saga is younger than "
                "the smallest log_retention_days that was deployed since it began, its rows are there. Else restore "
                "saga log and request table to one time when its rows were kept: the record, too, has until when they "
                "are. Or end the saga by hand: find its effects, and undo them.",
                commands=(("its rows are there", command("resolve", "--resume", "--log-retention-days", DAYS)),),
            )
        ]
    if saga.finding is Finding.NOT_STARTED and saga.express:
        text = "No Standard execution of it exists. An Express one may run; to recover it is safe all the same."
        return [Advice(text=text, commands=(("recover it", command("recover")),))]
    if saga.finding is not Finding.PARKED:
        return [Advice(text="Its owner does not run.", commands=(("recover it", command("recover")),))]

    found = [Advice(text=_asked(saga, step), commands=tuple(_answers(saga, step, command))) for step in _open(saga)]
    if saga.parked_reason.get("error") == DEFINITION_CHANGED:
        text = (
            f"It ran under definition {saga.definition}, and another one is deployed. Deploy the earlier definition, "
            "resume the saga, let it end, then deploy the other one again."
        )
        return [*found, Advice(text=text, commands=(("the earlier one is deployed", command("resolve", "--resume")),))]
    text = "If something else stopped it, fix that." if found else "Fix what stopped it; nothing is in doubt."
    return [*found, Advice(text=text, commands=(("resume", command("resolve", "--resume")),))]


def must_happen(saga: Inspection, step: StepView) -> bool:
    """Test whether the saga only goes forward at this step; of several pivots, one applied and one ahead, too."""
    applied = any(one.side == Side.PIVOT and one.status == StepStatus.DONE for one in saga.steps)
    return saga.direction == Direction.FORWARD or (saga.direction is None and (step.side == Side.AFTER or applied))


def _open(saga: Inspection) -> Iterator[StepView]:
    """Steps that an operator can resolve, those that need an operator first."""
    in_doubt = [step for step in saga.steps if step.open]
    yield from in_doubt
    refused = (step for step in saga.steps if step.status == StepStatus.REFUSED and not step.skipped)
    yield from (step for step in refused if must_happen(saga, step))
    if saga.direction == Direction.COMPENSATE and not in_doubt:
        standing = [step for step in saga.steps if step.status == StepStatus.DONE]
        # Where a compensation stopped the saga, those of other steps have yet to run.
        stopped = str(saga.parked_reason.get("step", "")).removeprefix(UNDO_STATE)
        yield from [step for step in standing if step.step.partition("[")[0] == stopped] or standing


def _of_other_conditions(step: StepView) -> str:
    return (
        f"{step.step} was refused under other conditions than those of the deployed definition: whether the saga "
        "continued without it is not known. To decide about it, deploy the definition that it ran under, and inspect "
        "it again."
    )


def _asked(saga: Inspection, step: StepView) -> str:
    if step.skipped is None:
        return _of_other_conditions(step)
    if step.status == StepStatus.REFUSED:
        text = f"{step.step} was refused, and the saga only goes forward: it can neither be left out nor undone."
        return f"{text} {_OUTPUT_IS}"
    if step.status == StepStatus.DONE:
        return (
            f"{step.step} is applied, and the saga compensates. If its compensation can run now, resume; if only "
            "you can undo it, undo it by hand and record that."
        )
    undo = "the undo of " if step.status == StepStatus.COMPENSATING else ""
    text = f"Did {undo}{step.step} happen? Ask the provider; it was given the idempotency key {step.provider_key}."
    text += "" if undo else f" {_OUTPUT_IS}"
    if not undo and step.accepted_at is not None:
        text += " While its provider works on it, wait: its outcome resumes the saga."
    if step.certain_at is not None and step.certain_at > saga.now_ms:
        left = duration(step.certain_at - saga.now_ms)
        text += (
            f' A "no" counts from {moment(step.certain_at)} on, in {left}: a request may still be on its way. '
            "Ask then, and inspect again."
        )
    return text


def _answers(saga: Inspection, step: StepView, command: Callable[..., str]) -> Iterator[tuple[str, str]]:
    if step.skipped is None:
        return
    seen = ["--attempt", step.attempt] if step.attempt else []
    about = ["--compensation"] if step.status in (StepStatus.COMPENSATING, StepStatus.DONE) else []
    with_output = [] if about else ["--output", OUTPUT]
    yes = command("resolve", step.step, *about, "--applied", *with_output, *seen)
    no = command("resolve", step.step, *about, "--not-applied", *seen)
    if step.status == StepStatus.DONE:
        yield "undone by hand", yes
        return
    if step.status == StepStatus.REFUSED:
        yield "done by hand", yes
        yield "fixed, call it again", no
        return
    yield ("yes" if about else "yes, with its output"), yes
    if step.certain_at is not None and step.certain_at > saga.now_ms:
        return  # what an operator knows of the provider is out of date by now
    if step.status == StepStatus.COMPENSATING:
        yield "no, undo it again", no
        return
    no_more = "no, and it is not at work: " if step.accepted_at is not None else "no, "
    yield f"{no_more}call it again" if must_happen(saga, step) else "no, and it never shall", no
