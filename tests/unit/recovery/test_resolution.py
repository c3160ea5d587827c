"""An operator's finding about a parked saga is written once, for the state that the operator saw, or not at all."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest

from constructs_lib.cli.shared.saga import time_of
from saga_runtime.protocol import LEAST_LOG_DAYS, Direction, Env, LogAttribute, RecordStatus, Side, StepStatus
from saga_runtime.recovery.resolution import CannotResolve, DeclaredStep, Statement, Subject, decide
from saga_runtime.saga_log.rows import LogRow, done_put
from saga_runtime.shared import aws, clock
from tests.unit.support import resolving, settling
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.gateway import LIFE_MS, STEP
from tests.unit.support.operated_saga import LOG_DAYS, OperatedSaga, operated_saga_in
from tests.unit.support.reconciled import put_row
from tests.unit.support.samples import DAY_MS, NOW_MS, REQUEST_ID, SAGA_ID
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import World

R1 = f"{SAGA_ID}-r1"
GONE_ON = (R1, False)
STILL_PARKED = (SAGA_ID, True)
REFUSED = {"error": "SoldOut", "detail": "no"}


@pytest.fixture
def operated(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[OperatedSaga]:
    """A running saga and its operator."""
    with operated_saga_in(world, monkeypatch, boto3_session) as made:
        yield made


@pytest.mark.parametrize(
    "history",
    [
        history
        for name, history in vars(resolving).items()
        if callable(history) and getattr(history, "__module__", "") == resolving.__name__
        if not name.startswith("_") and name not in {"subject_of", "write_of"}
    ],
    ids=lambda history: history.__name__.replace("_", " "),
)
def test_history(history: Callable[[OperatedSaga], None], operated: OperatedSaga) -> None:
    history(operated)


# --- The right end


def test_an_applied_step_is_compensated_with_the_operators_output(operated: OperatedSaga) -> None:
    operated.cut_off()
    operated.park()
    operated.shop.pass_every_deadline()

    told = operated.resolves(STEP, "--applied", "--output", '{"payment": "payment of it"}')

    assert told == f"Charge happened: its row is DONE\nsaga {SAGA_ID} resumes: started by {R1}\n"
    assert operated.owner == GONE_ON
    assert operated.world.executions.by_name[R1].input == operated.record.input
    assert operated.world.executions.by_name[R1].machine == operated.record.recovery_machine_arn
    operated.shop.undo()
    assert operated.shop.status == "COMPENSATED"
    operated.shop.check()


def test_a_step_that_was_not_applied_never_is(operated: OperatedSaga) -> None:
    operated.never_sent()
    operated.park()
    operated.shop.pass_every_deadline()

    told = operated.resolves(STEP, "--not-applied")

    assert told.startswith("Charge did not happen: its row is TOMBSTONE\n")
    assert operated.owner == GONE_ON
    operated.shop.check()


def test_an_applied_compensation_is_not_repeated(operated: OperatedSaga) -> None:
    operated.shop.run()
    operated.undo_cut_off()
    operated.park()
    operated.shop.pass_every_deadline()

    told = operated.resolves(STEP, "--compensation", "--applied")

    assert told.startswith("the undo of Charge happened: its row is COMPENSATED\n")
    operated.shop.undo()
    operated.shop.check()


@pytest.mark.parametrize(
    ("kept", "before"), [({}, "DONE"), ({"instead": "{}"}, "APPLIED_LATE"), (REFUSED, "APPLIED_LATE")]
)
def test_what_a_saga_does_not_rely_on_stays_a_late_effect(kept: dict[str, Any], before: str) -> None:
    attempt: dict[str, Any] = {"attempt": "one", "deadline": 1, "first_attempt_at": 1, "updated_at": 1}
    row = LogRow(saga_id=SAGA_ID, step="Pick", status=StepStatus.COMPENSATING, output="{}", **attempt, **kept)
    subject = Subject(name="Pick", row=row, side=Side.BEFORE, declared=None, direction=Direction.FORWARD)

    assert decide(subject, Statement(applied=False, undo=True), 2**60).to == before


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("side", [Side.BEFORE, Side.AFTER])
def test_a_step_that_its_saga_has_skipped_is_not_called_again(side: Side, applied: bool) -> None:
    """Its saga continued by ``ContinueWith``, on another way: the step would be an effect besides that."""
    kept: dict[str, Any] = {"attempt": "one", "updated_at": 1, "output": None, **REFUSED}
    row = LogRow(saga_id=SAGA_ID, step="Pick", status=StepStatus.REFUSED, **kept)
    declared = DeclaredStep(side=side, external=True, grace_ms=0, log_days=1, skipped_by=frozenset({"SoldOut"}))
    subject = Subject(name="Pick", row=row, side=side, declared=declared, direction=Direction.FORWARD)

    with pytest.raises(CannotResolve, match="Pick was skipped by its refusal SoldOut"):
        decide(subject, Statement(applied=applied, output="{}" if applied else None), 2**60)

    other = replace(subject, declared=replace(declared, skipped_by=frozenset({"OutOfStock"})))
    assert decide(other, Statement(applied=False), 2**60).to is None


def test_a_compensation_that_was_not_applied_is_retried(operated: OperatedSaga) -> None:
    def dies() -> None:
        raise ConnectionError("cut off")

    operated.shop.run()
    operated.shop.gateway.meanwhile["refund"] = dies
    with pytest.raises(ConnectionError):
        operated.shop.undo()
    operated.park()
    operated.shop.pass_every_deadline()

    operated.resolves(STEP, "--compensation", "--not-applied")

    assert operated.shop.status == "DONE"
    operated.shop.undo()
    assert operated.shop.status == "COMPENSATED"
    operated.shop.check()


def test_a_step_without_compensation_is_recorded_as_compensated_by_hand(operated: OperatedSaga) -> None:
    operated.shop.run()
    operated.park()

    operated.resolves(STEP, "--compensation", "--applied")

    assert (operated.shop.status, operated.owner) == ("COMPENSATED", GONE_ON)


def test_a_step_after_the_pivot_that_was_done_by_hand_is_recorded_as_done(operated: OperatedSaga) -> None:
    operated.shop.gateway.refuses = "the account is closed"
    operated.shop.to_the_end(lambda: operated.shop.run(side="after"))
    operated.park(Direction.FORWARD)

    operated.resolves(STEP, "--applied", "--output", '{"payment": "by hand"}')

    assert operated.shop.run(side="after") == {"payment": "by hand"}


def test_a_refused_step_after_the_pivot_is_called_again_after_a_fix(operated: OperatedSaga) -> None:
    operated.shop.gateway.refuses = "the account is closed"
    operated.shop.to_the_end(lambda: operated.shop.run(side="after"))
    operated.park(Direction.FORWARD)
    operated.shop.gateway.refuses = None

    operated.resolves(STEP, "--not-applied")
    operated.shop.run(side="after")

    assert operated.shop.status == "DONE"
    operated.shop.check()


@pytest.mark.parametrize("answer", [["--applied", "--output", "{}"], ["--not-applied"]])
def test_a_refused_step_of_other_conditions_is_not_decided(operated: OperatedSaga, answer: list[str]) -> None:
    """Its saga may have continued by a ``ContinueWith`` that the deployed definition does not have."""
    operated.shop.gateway.refuses = "the account is closed"
    operated.shop.to_the_end(lambda: operated.shop.run(side="after"))
    operated.park(Direction.FORWARD)
    operated.saga["definition"] = f"{operated.saga['definition']:0<24}01234567"

    told = operated.is_refused(STEP, *answer)

    assert "Charge was refused under other conditions than those of the deployed definition" in told
    assert operated.shop.status == "REFUSED"
    _, advised = operated.run("inspect")
    assert "deploy the definition that it ran under" in " ".join(advised.split())
    assert STEP not in "".join(line for line in advised.splitlines() if "cdk-sagas" in line)


def test_a_refused_step_of_a_definition_that_is_not_deployed_is_not_decided(operated: OperatedSaga) -> None:
    """Nothing is known of its steps, though another saga with these tables may have the same conditions."""
    operated.shop.gateway.refuses = "the account is closed"
    operated.shop.to_the_end(lambda: operated.shop.run(side="after"))
    operated.park(Direction.FORWARD)
    operated.saga["arn"] = f"{operated.saga['arn']}-2"

    told = operated.is_refused(STEP, "--applied", "--output", "{}", "--log-table", "log")

    assert "Charge was refused under other conditions than those of the deployed definition" in told


def test_after_the_pivot_the_saga_goes_forward_before_the_direction_is_set(operated: OperatedSaga) -> None:
    operated.never_sent(side="after")
    operated.park(None)
    operated.shop.pass_every_deadline()

    told = operated.resolves(STEP, "--not-applied")

    assert told.startswith("Charge did not happen: its row is free to be called again\n")
    assert operated.shop.status is None


def test_between_two_pivots_the_saga_goes_forward_if_the_first_one_is_applied(operated: OperatedSaga) -> None:
    operated.never_sent()
    put_row("Capture", StepStatus.DONE, side=Side.PIVOT)
    operated.park(None)
    operated.shop.pass_every_deadline()

    told = operated.resolves(STEP, "--not-applied")

    assert told.startswith("Charge did not happen: its row is free to be called again\n")
    assert operated.shop.status is None


def test_an_item_of_a_map_has_a_row_of_its_own(operated: OperatedSaga) -> None:
    operated.never_sent(step="Ship", side="after", item='{"item":{"sku":"a"}}', item_key="a")
    operated.park(Direction.FORWARD)
    operated.shop.pass_every_deadline()

    told = operated.resolves("Ship[a]", "--applied", "--output", "{}")

    assert told.startswith("Ship[a] happened: its row is DONE\n")


def test_only_resume_needs_no_step(operated: OperatedSaga) -> None:
    operated.shop.run()
    operated.park()

    assert operated.resolves("--resume") == f"saga {SAGA_ID} resumes: started by {R1}\n"
    assert (operated.shop.status, operated.owner) == ("DONE", GONE_ON)


def test_a_step_that_never_began_is_fenced(operated: OperatedSaga) -> None:
    operated.park()

    operated.resolves(STEP, "--not-applied")

    assert operated.shop.status == "TOMBSTONE"
    assert operated.shop.row[LogAttribute.SIDE] == Side.BEFORE


def test_an_applied_step_without_a_row_is_done_with_its_output(operated: OperatedSaga) -> None:
    operated.park()

    operated.resolves(STEP, "--applied", "--output", '{"payment": "payment of it"}')

    assert operated.shop.status == "DONE"
    assert int(operated.shop.row[LogAttribute.EXPIRATION]) == (operated.now + LOG_DAYS * DAY_MS) // 1_000


def test_only_an_operator_takes_over_a_saga_with_an_expired_execution(operated: OperatedSaga) -> None:
    operated.world.executions.forget(SAGA_ID)
    operated.shop.passes(90 * DAY_MS)

    assert operated.run("recover") == (1, f"saga {SAGA_ID} may have run before: operator action required\n")
    assert operated.owner == (SAGA_ID, False)
    operated.resolves("--resume")
    assert operated.owner == GONE_ON
    assert R1 in operated.world.executions.by_name


# --- Repeated, interrupted, at once

OPERATIONS = ("DescribeStateMachine", "GetItem", "UpdateItem", "StartExecution")
WAYS = (
    (Action.KILL, Moment.BEFORE),
    (Action.KILL, Moment.AFTER),
    (Action.DROP, Moment.AFTER),
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("answer", [("--applied", "--output", '{"payment":"payment of it"}'), ("--not-applied",)])
@pytest.mark.parametrize("forward", [False, True])
def test_a_command_that_dies_at_any_call_is_finished_by_a_retry(
    answer: tuple[str, ...], forward: bool, operated: OperatedSaga, world: World
) -> None:
    def prepare() -> None:
        for table, keys in (("log", ("saga_id", "step")), ("requests", ("id",))):
            for item in world.items(table):
                aws.dynamodb().delete_item(TableName=table, Key={key: item[key] for key in keys})
        world.executions.by_name.clear()
        settle_in()

    def settle_in() -> None:
        from saga_runtime.idempotency.record import reserve_put
        from tests.unit.support.samples import reservation_of

        reserve: Any = reserve_put(reservation_of())
        aws.dynamodb().put_item(TableName="requests", **reserve)
        world.executions.start(SAGA_ID, operated.record.input)
        operated.shop.gateway.charged.clear()
        side = {"side": "after" if forward else "before"}
        operated.cut_off(**side) if answer[0] == "--applied" else operated.never_sent(**side)
        operated.park(Direction.FORWARD if forward else Direction.COMPENSATE)
        operated.shop.pass_every_deadline()

    prepare()
    calls = world.calls_of(lambda: operated.resolves(STEP, *answer))
    after = (operated.shop.status, operated.owner, sorted(world.executions.by_name))
    struck = 0
    for index, operation in enumerate(calls):
        for action, moment in WAYS:
            prepare()
            times = 1 if action is Action.KILL else 10
            fault = Fault(
                operation=operation, action=action, moment=moment, on=calls[: index + 1].count(operation), times=times
            )
            world.wire.forget()
            world.wire.plan(fault)
            with contextlib.suppress(Killed):
                operated.run("resolve", STEP, *answer)
            struck += bool(world.wire.fired)
            world.wire.forget()
            operated.resolves(STEP, *answer)
            assert (operated.shop.status, operated.owner, sorted(world.executions.by_name)) == after, str(fault)
    assert struck == len(calls) * len(WAYS)


def test_the_opposite_finding_is_too_late(operated: OperatedSaga) -> None:
    operated.cut_off()
    operated.park()
    operated.shop.pass_every_deadline()
    operated.world.wire.plan(Fault(operation="UpdateItem", action=Action.KILL))
    with pytest.raises(Killed):
        operated.run("resolve", STEP, "--applied")
    operated.world.wire.forget()

    assert "Charge is DONE, which is decided" in operated.is_refused(STEP, "--not-applied")
    assert operated.owner == STILL_PARKED
    operated.resolves(STEP, "--applied")
    assert operated.owner == GONE_ON


def test_a_repetition_with_the_attempt_that_was_seen_is_finished_too(operated: OperatedSaga) -> None:
    operated.cut_off()
    operated.park()
    operated.shop.pass_every_deadline()
    seen = operated.shop.row[LogAttribute.ATTEMPT_ID]
    operated.world.wire.plan(Fault(operation="UpdateItem", action=Action.KILL))
    with pytest.raises(Killed):
        operated.run("resolve", STEP, "--applied", "--attempt", seen)
    operated.world.wire.forget()

    operated.resolves(STEP, "--applied", "--attempt", seen)

    assert operated.owner == GONE_ON


def test_a_second_operator_with_the_same_finding_finds_it_recorded(operated: OperatedSaga) -> None:
    operated.cut_off()
    operated.park()
    operated.shop.pass_every_deadline()
    operated.resolves(STEP, "--applied")

    told = operated.resolves(STEP, "--applied")

    assert told == f"Charge happened: its row was already DONE\nsaga {SAGA_ID} is running\n"
    assert operated.owner == GONE_ON


def test_a_saga_that_was_parked_again_continues_under_the_next_recovery(operated: OperatedSaga) -> None:
    operated.park()
    operated.resolves("--resume")
    operated.park(None, owner=R1)

    operated.resolves("--resume")

    assert operated.owner == (f"{SAGA_ID}-r2", False)


def test_a_travelling_park_of_the_old_owner_parks_nothing(operated: OperatedSaga) -> None:
    operated.park()
    operated.resolves("--resume")

    update: Any = settling.park(request_id=REQUEST_ID, execution=SAGA_ID, now_ms=operated.now)
    with pytest.raises(aws.dynamodb().exceptions.ConditionalCheckFailedException):
        aws.dynamodb().update_item(**update)
    assert operated.owner == GONE_ON


# --- Refused, with nothing written


def test_before_the_deadline_the_refusal_states_the_time_to_wait(operated: OperatedSaga) -> None:
    operated.cut_off()
    operated.park()
    operated.shop.passes(LIFE_MS - 12_500)

    assert "for 13 s; wait" in operated.is_refused(STEP, "--applied")
    assert "for 43 s; wait" in operated.is_refused(STEP, "--not-applied")


def test_without_the_definition_the_longest_grace_counts(operated: OperatedSaga) -> None:
    operated.never_sent()
    operated.park()
    operated.shop.pass_every_deadline()
    operated.saga["arn"] += "New"

    assert "must have the state machine of saga" in operated.is_refused(STEP, "--not-applied")
    assert "for 3570 s; wait" in operated.is_refused(STEP, "--not-applied", "--log-table", "log")
    operated.shop.passes(3_570_000)
    operated.resolves(STEP, "--not-applied", "--log-table", "log")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["Charged", "--not-applied"], "the saga's steps are Charge, Commit, Announce, Ship"),
        (["charge", "--not-applied"], "a step's name must match"),
        (["Ship", "--not-applied"], "step Ship runs once per item"),
        (["Charge[a]", "--not-applied"], "step Charge runs once, not per item"),
        (["Ship[a b]", "--not-applied"], "an item's key must match"),
        (["Commit", "--applied", "--output", "{}"], "its effect and its row are written together"),
        (["Charge", "--applied"], "give its output"),
        (["Charge", "--compensation", "--applied"], "there is nothing to undo"),
        (["Charge", "--applied", "--output", "[1]"], "must be an object"),
        (["Charge", "--applied", "--output", "{'a': 1}"], "not JSON"),
        (["Charge", "--applied", "--output", '{"amount": 1.5}'], "a state machine's numbers are doubles"),
        (["Charge", "--applied", "--output", '{"amount": NaN}'], "not JSON"),
        (["Charge", "--applied", "--output", '{"cdk_sagas_ref": "x"}'], "refers to stored payloads"),
        (["Charge", "--not-applied", "--output", "{}"], "has no output"),
        (["--applied"], "name the step"),
        (["Charge", "--resume"], "--resume decides nothing; leave step out"),
        (["Charge", "--applied", "--log-retention-days", "400"], "is of a saga that is resumed; use it with --resume"),
    ],
)
def test_a_typing_error_is_reported_in_one_line_and_writes_nothing(
    words: list[str], why: str, operated: OperatedSaga
) -> None:
    operated.park()

    assert why in operated.is_refused(*words)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--not-applied"], "Charge is DONE, which is decided"),
        (["--applied", "--output", '{"other": "1"}'], "DONE with another output"),
    ],
)
def test_an_applied_step_cannot_be_recorded_as_not_applied(words: list[str], why: str, operated: OperatedSaga) -> None:
    operated.shop.run()
    operated.park()

    assert why in operated.is_refused(STEP, *words)


def test_an_applied_step_of_a_forward_saga_cannot_be_compensated(operated: OperatedSaga) -> None:
    operated.shop.run()
    operated.park(Direction.FORWARD)

    assert "its saga does not compensate" in operated.is_refused(STEP, "--compensation", "--applied")


def test_a_fenced_step_cannot_be_recorded_as_applied(operated: OperatedSaga) -> None:
    operated.shop.undo()
    operated.park()

    assert "Charge is TOMBSTONE" in operated.is_refused(STEP, "--applied", "--output", "{}")


def test_a_step_refused_before_the_pivot_was_not_applied(operated: OperatedSaga) -> None:
    operated.shop.gateway.refuses = "no credit"
    operated.shop.to_the_end(operated.shop.run)
    operated.park()

    assert "the provider clearly refused" in operated.is_refused(STEP, "--applied")


def test_a_compensating_step_is_only_resolved_by_its_compensation(operated: OperatedSaga) -> None:
    operated.shop.run()
    operated.undo_cut_off()
    operated.park()
    operated.shop.pass_every_deadline()

    assert "--compensation --applied or --compensation --not-applied" in operated.is_refused(STEP, "--applied")
    assert "an undo has no output" in operated.is_refused(STEP, "--compensation", "--applied", "--output", "{}")


def test_a_step_in_doubt_is_not_resolved_by_its_compensation(operated: OperatedSaga) -> None:
    operated.cut_off()
    operated.park()
    operated.shop.pass_every_deadline()

    assert "without --compensation" in operated.is_refused(STEP, "--compensation", "--applied")


def test_a_step_that_read_is_not_decided_about(operated: OperatedSaga) -> None:
    row = done_put(
        table="log",
        saga_id=SAGA_ID,
        step=STEP,
        side=Side.BEFORE,
        attempt="a",
        output="{}",
        now_ms=operated.now,
        keep_days=LOG_DAYS,
    )["Put"]
    row["Item"][LogAttribute.STATUS] = {"S": "RECORDED"}
    aws.dynamodb().put_item(**row)
    operated.park()

    assert "it only read" in operated.is_refused(STEP, "--applied")


def test_a_saga_that_runs_decides_for_itself(operated: OperatedSaga) -> None:
    operated.cut_off()

    assert "is not parked, and decides for itself" in operated.is_refused(STEP, "--applied")  # no word about waiting

    operated.shop.pass_every_deadline()
    assert "is not parked, and decides for itself" in operated.is_refused(STEP, "--applied")
    assert operated.resolves("--resume") == f"saga {SAGA_ID} is running\n"


@pytest.mark.parametrize("settled", [False, True])
def test_a_refused_answer_names_the_decision_that_it_contradicts(operated: OperatedSaga, settled: bool) -> None:
    operated.cut_off()
    operated.park()
    operated.shop.pass_every_deadline()
    operated.resolves(STEP, "--not-applied", "--reason", "not in its books")
    if settled:
        end: Any = settling.settle(request_id=REQUEST_ID, execution=R1, status=RecordStatus.FAILED, now_ms=operated.now)
        aws.dynamodb().update_item(**end)
    known = "nothing is left to decide" if settled else "and decides for itself"

    for words in (("--applied",), ("--compensation", "--applied"), ("--compensation", "--not-applied")):
        told = operated.is_refused(STEP, *words)
        assert known in told
        assert told.endswith(
            f"; the last decision about Charge contradicts this: arn:aws:sts::123456789012:user/moto at "
            f"{clock.moment(operated.now)}: Charge: not applied; why: not in its books; see "
            "docs/how-to/resolve-a-parked-saga.md#the-answer-was-wrong\n"
        )
    assert "contradicts" not in operated.run("resolve", STEP, "--not-applied")[1]
    assert "contradicts" not in operated.is_refused("Commit", "--applied")


def test_a_settled_saga_has_nothing_to_decide(operated: OperatedSaga) -> None:
    settled: Any = settling.settle(
        request_id=REQUEST_ID, execution=SAGA_ID, status=RecordStatus.COMPLETED, now_ms=operated.now
    )
    aws.dynamodb().update_item(**settled)

    assert "is settled as COMPLETED" in operated.is_refused("--resume")
    assert "is settled as COMPLETED" in operated.is_refused(STEP, "--not-applied")


def test_a_saga_with_a_possibly_expired_log_is_not_run_again(operated: OperatedSaga) -> None:
    operated.park()
    operated.shop.passes(LOG_DAYS * DAY_MS)

    assert "its steps could happen twice" in operated.is_refused("--resume")


def not_read_for_long(operated: OperatedSaga, days: int) -> None:
    """A reconciler has read the rows once, when the saga was ten days old, and never again."""
    operated.park()
    operated.rows_are_kept_until(NOW_MS + (10 + LEAST_LOG_DAYS) * DAY_MS)
    operated.shop.passes(days * DAY_MS)


def test_a_saga_whose_rows_were_not_read_for_long_continues_by_a_statement(operated: OperatedSaga) -> None:
    operated.shop.run()
    not_read_for_long(operated, LOG_DAYS - 2)
    assert "--resume --log-retention-days" in operated.is_refused("--resume")

    told = operated.resolves("--resume", "--log-retention-days", str(LOG_DAYS))

    assert told == f"saga {SAGA_ID} resumes: started by {R1}\n"
    assert operated.record.log_expires_at == (NOW_MS + LOG_DAYS * DAY_MS) // 1_000
    assert operated.decisions == [f"resumed: rows of its log were always kept for {LOG_DAYS} days"]
    assert operated.resolves("--resume", "--log-retention-days", str(LOG_DAYS)).endswith("is running\n")


def test_a_saga_that_is_not_parked_yet_continues_by_a_statement(operated: OperatedSaga) -> None:
    operated.shop.run()
    operated.world.executions.end(SAGA_ID, ExecutionStatus.FAILED)
    operated.rows_are_kept_until(NOW_MS + 40 * DAY_MS)
    operated.shop.passes(40 * DAY_MS)
    assert "its steps could happen twice" in operated.is_refused("--resume")

    told = operated.resolves("--resume", "--log-retention-days", str(LOG_DAYS))

    assert told == f"saga {SAGA_ID} was resumed before, and interrupted: taken over by {R1}\n"


@pytest.mark.parametrize(
    ("days", "stated", "why"),
    [
        (LOG_DAYS - 1, LOG_DAYS, "must be kept for a day more, got rows that expire from "),
        (100, 100, "must be kept for a day more"),
        (100, 29, f"must be 30 to {LOG_DAYS}, which is the deployed log_retention_days, got 29"),
        (100, LOG_DAYS + 1, f"got {LOG_DAYS + 1}; give the smallest"),
        (1, 5, "got 5; give the smallest"),
    ],
)
def test_a_statement_by_which_rows_may_be_gone_is_refused(
    operated: OperatedSaga, days: int, stated: int, why: str
) -> None:
    not_read_for_long(operated, days)

    assert why in operated.is_refused("--resume", "--log-retention-days", str(stated))


def test_a_statement_that_is_not_needed_changes_no_end_of_rows(operated: OperatedSaga) -> None:
    operated.shop.run()
    not_read_for_long(operated, 11)
    ends = operated.record.log_expires_at

    operated.resolves("--resume", "--log-retention-days", str(LOG_DAYS))

    assert operated.record.log_expires_at == ends
    assert operated.decisions == ["resumed"]


def test_a_saga_with_kept_rows_continues_at_any_age(operated: OperatedSaga) -> None:
    operated.park()
    operated.shop.passes(LOG_DAYS * DAY_MS)
    operated.rows_are_kept_until(operated.now + LEAST_LOG_DAYS * DAY_MS)

    operated.resolves("--resume")

    assert operated.record.parked_by is None


def test_an_unknown_saga_is_reported(operated: OperatedSaga) -> None:
    aws.dynamodb().delete_item(TableName="requests", Key={"id": {"S": REQUEST_ID}})

    assert "got no record of it in requests" in operated.is_refused("--resume")


# --- The time


def test_the_time_is_that_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(Env.CLOCK, raising=False)
    answer = json.loads('{"ResponseMetadata": {"HTTPHeaders": {"date": "Tue, 14 Nov 2023 22:13:20 GMT"}}}')

    assert time_of(answer) == 1_700_000_000_000
