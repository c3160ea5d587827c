"""``cdk-sagas doctor`` finds stuck sagas, writes nothing without ``--repair``, and repairs each finding once."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from constructs_lib.cli.doctor.findings import Finding, Kind, Severity
from constructs_lib.cli.doctor.text import Report, text_of
from constructs_lib.shared.operator_actions import DOCTOR_LOOKS, DOCTOR_REPAIRS
from saga_runtime.callbacks import Failed, Succeeded
from saga_runtime.idempotency.identity import saga_id_of, step_key_of
from saga_runtime.protocol import BadEnd, RecordAttribute, RecordStatus, StepStatus, TokenAttribute
from saga_runtime.recovery.late_effects import MOST_TRIES, late_name
from saga_runtime.recovery.takeover import CERTAIN_AFTER_MS, recovery_name
from saga_runtime.shared import aws
from saga_runtime.shared.arns import execution_of
from saga_runtime.watch.rows import ListRow, end_id, found_put, list_id, list_put
from tests.unit.support.checked_stack import (
    DAYS,
    LIMIT,
    MAPPING,
    READS,
    REMEMBER_SECONDS,
    SCAN,
    SHARD,
    TIMEOUT_SECONDS,
    CheckedStack,
    checked_stack_in,
    create_watch_table,
    definition,
    function_arn,
)
from tests.unit.support.client import remove_response
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.job_saga import DONE, JOB_ID, REFUSED, STEP
from tests.unit.support.samples import (
    DAY_MS,
    MACHINE_ARN,
    NOW_MS,
    RECOVERY_MACHINE_ARN,
    SAGA_ID,
    reservation_of,
)
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import World

ROOT = Path(__file__).parents[3]
R1, R2 = recovery_name(SAGA_ID, 1), recovery_name(SAGA_ID, 2)
L1 = late_name(SAGA_ID, 1)
TABLES = ("--table", "requests", "--log-table", "log", "--token-table", "tokens")


@pytest.fixture
def stack(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[CheckedStack]:
    """A stack with a saga that runs; nothing is wrong."""
    with checked_stack_in(world, monkeypatch, boto3_session) as stack:
        yield stack


# What may be wrong.


def interrupted(stack: CheckedStack) -> None:
    stack.dies()


def unsettled(stack: CheckedStack) -> None:
    stack.dies(status=ExecutionStatus.SUCCEEDED)
    stack.pass_time(2 * CERTAIN_AFTER_MS)
    due_now(stack)


def not_started(stack: CheckedStack) -> None:
    stack.world.executions.forget(SAGA_ID)
    stack.pass_time()


def start_refused(stack: CheckedStack) -> None:
    stack.world.executions.forget(SAGA_ID)
    stack.world.executions.refuses = "StateMachineDoesNotExist"
    stack.pass_time(16 * 60_000)


def started_again(stack: CheckedStack) -> None:
    start_refused(stack)
    stack.world.executions.refuses = None


def still_due(stack: CheckedStack) -> None:
    stack.settle()
    stack.update(due_at={"N": str(stack.world.clock.ms)}, due_shard={"S": SHARD})


def due_now(stack: CheckedStack) -> None:
    stack.update(due_at={"N": str(stack.world.clock.ms)})


def exhausted(stack: CheckedStack) -> None:
    stack.update(recoveries={"N": str(LIMIT)})
    stack.dies()
    stack.pass_time()


def name_expired(stack: CheckedStack) -> None:
    stack.world.executions.forget(SAGA_ID)
    stack.pass_time(89 * DAY_MS)
    due_now(stack)


def rows_gone(stack: CheckedStack) -> None:
    stack.dies()
    stack.pass_time(DAYS * DAY_MS)
    due_now(stack)


def parked(stack: CheckedStack) -> None:
    stack.operated.park()


def machine_gone(stack: CheckedStack) -> None:
    gone = f"{MACHINE_ARN}Gone"
    stack.operated.deleted |= {gone, f"{gone}Recovery"}
    stack.update(execution_arn={"S": execution_of(gone, SAGA_ID)}, recovery_machine_arn={"S": f"{gone}Recovery"})
    stack.pass_time(16 * 60_000)
    due_now(stack)


def machine_gone_and_parked(stack: CheckedStack) -> None:
    stack.operated.park()
    machine_gone(stack)


def recovery_machine_is_being_deleted(stack: CheckedStack) -> None:
    interrupted(stack)
    stack.operated.deleting |= {RECOVERY_MACHINE_ARN}


def owner_unknown(stack: CheckedStack) -> None:
    """A recovery on a machine that was replaced, and whose executions may not be described."""
    stack.update(owner={"S": R1}, recoveries={"N": "1"}, recovery_machine_arn={"S": f"{RECOVERY_MACHINE_ARN}Old"})
    stack.machines[f"{RECOVERY_MACHINE_ARN}Old"] = definition(recovery=True)
    stack.operated.hidden.add(f"{RECOVERY_MACHINE_ARN}Old")
    stack.pass_time(17 * 60_000)


def over_time(stack: CheckedStack) -> None:
    stack.pass_time(TIMEOUT_SECONDS * 1_000 + 1)
    due_now(stack)


def never_due(stack: CheckedStack) -> None:
    stack.remove("due_at", "due_shard")


def in_no_shard(stack: CheckedStack) -> None:
    stack.update(due_shard={"S": "77"})


def rows_end(stack: CheckedStack) -> None:
    stack.pass_time(380 * DAY_MS)
    stack.put_row("Old", StepStatus.DONE, expires_in_ms=20 * DAY_MS)
    due_now(stack)


def unreadable(stack: CheckedStack) -> None:
    item: Any = {"id": {"S": "broken"}, "saga_id": {"S": "broken"}, "due_at": {"N": "1"}, "due_shard": {"S": "00"}}
    aws.dynamodb().put_item(TableName="requests", Item=item)


def late_job(stack: CheckedStack, step: str = STEP, status: StepStatus = StepStatus.APPLIED_LATE) -> None:
    t, now = TokenAttribute, str(stack.world.clock.ms)
    row: dict[str, Any] = {
        t.ID: {"S": f"{SAGA_ID}#{step}"},
        t.STATUS: {"S": "LATE"},
        t.UPDATED_AT: {"N": now},
        t.OUTCOME: {"S": '{"ok":true,"output":"{}"}'},
        t.LOG_TABLE: {"S": "log"},
        t.REQUEST_TABLE: {"S": "requests"},
        t.APPLIED_LATE_AT: {"N": now},
        t.DUE_AT: {"N": now},
        t.DUE_SHARD: {"S": "01"},
    }
    aws.dynamodb().put_item(TableName="tokens", Item=row)
    stack.put_row(step, status)


def late(stack: CheckedStack) -> None:
    stack.settle()
    late_job(stack)


def late_and_nothing_undoes_it(stack: CheckedStack) -> None:
    stack.settle()
    late_job(stack, "Announce")


def late_without_record(stack: CheckedStack) -> None:
    stack.forget()
    late_job(stack)


def late_and_tried_for_long(stack: CheckedStack) -> None:
    late(stack)
    for number in range(1, MOST_TRIES + 1):
        stack.world.executions.start(late_name(SAGA_ID, number), "{}")
        stack.dies(late_name(SAGA_ID, number))


def late_of_a_tombstone(stack: CheckedStack) -> None:
    late(stack)
    stack.remove("input", "body")


def late_and_its_token_gone(stack: CheckedStack) -> None:
    stack.settle()
    stack.put_row(STEP, StepStatus.APPLIED_LATE)


def late_of_a_step_that_nothing_undoes_and_its_token_gone(stack: CheckedStack) -> None:
    stack.settle()
    stack.put_row("Announce", StepStatus.APPLIED_LATE)


def late_tried_for_long_and_its_token_gone(stack: CheckedStack) -> None:
    late_and_tried_for_long(stack)
    aws.dynamodb().delete_item(TableName="tokens", Key={"id": {"S": JOB_ID}})


def contradicted(stack: CheckedStack) -> None:
    stack.job_saga.register()
    stack.job_saga.reports("event-1")
    stack.job_saga.reports("event-2", REFUSED)


def undelivered(stack: CheckedStack) -> None:
    stack.job_saga.register()
    fault = Fault(operation="SendTaskSuccess", action=Action.KILL, moment=Moment.BEFORE, times=1)
    stack.world.wire.plan(fault)
    with pytest.raises(Killed):
        stack.job_saga.reports("event-1")
    stack.pass_time()


def outcome_of_an_unknown_job(stack: CheckedStack) -> None:
    stack.job_saga.reports("event-1", job_id="provider-7")
    stack.pass_time(15 * 60_000)
    due_now(stack)


def outcome_of_an_unknown_saga(stack: CheckedStack) -> None:
    other = saga_id_of(reservation_of(key="other").request_id, NOW_MS)
    stack.job_saga.reports("event-1", job_id=step_key_of(other, STEP))
    stack.pass_time(15 * 60_000)
    due_now(stack)


def answered_and_gone(stack: CheckedStack, outcome: Succeeded | Failed = DONE) -> None:
    """An outcome arrived early; then its saga and its log rows were deleted."""
    stack.put_row(STEP, StepStatus.INTENT)
    stack.job_saga.reports("event-1", outcome)
    early: Any = {":early": {"S": "EARLY"}}
    stack.world.items("tokens")
    aws.dynamodb().update_item(
        TableName="tokens",
        Key={"id": {"S": JOB_ID}},
        UpdateExpression="SET #status = :early",
        ExpressionAttributeNames={"#status": "status"},
        ExpressionAttributeValues=early,
    )
    stack.forget()
    aws.dynamodb().delete_item(TableName="log", Key={"saga_id": {"S": SAGA_ID}, "step": {"S": STEP}})


def refused_and_gone(stack: CheckedStack) -> None:
    answered_and_gone(stack, REFUSED)


def orphaned_wait(stack: CheckedStack) -> None:
    stack.job_saga.register()
    stack.job_saga.compensate()
    stack.settle()


def waits_for_nothing_and_is_due(stack: CheckedStack) -> None:
    """Longer than expected, and its sweeper looks within a minute."""
    orphaned_wait(stack)
    aws.dynamodb().update_item(
        TableName="tokens",
        Key={"id": {"S": JOB_ID}},
        UpdateExpression="SET #dead = :dead",
        ExpressionAttributeNames={"#dead": TokenAttribute.DEAD_LETTERS},
        ExpressionAttributeValues={":dead": {"S": stack.queues["jobs-dead"]}},
    )
    stack.pass_time(11 * 60_000)


def orphaned_wait_that_was_reported(stack: CheckedStack) -> None:
    """A wait without a provider, already reported: the row is not due any more."""
    orphaned_wait(stack)
    aws.dynamodb().update_item(
        TableName="tokens",
        Key={"id": {"S": JOB_ID}},
        UpdateExpression="REMOVE #due_at, #due_shard",
        ExpressionAttributeNames={"#due_at": "due_at", "#due_shard": "due_shard"},
    )


def waits_without_record(stack: CheckedStack) -> None:
    stack.job_saga.register()
    stack.forget()
    aws.dynamodb().delete_item(TableName="log", Key={"saga_id": {"S": SAGA_ID}, "step": {"S": STEP}})


def row_open(stack: CheckedStack) -> None:
    stack.put_row("Charge", StepStatus.INTENT)
    stack.settle()


def record_lost(stack: CheckedStack) -> None:
    stack.put_row("Debit", StepStatus.DONE)
    stack.forget()


def record_lost_in_doubt(stack: CheckedStack) -> None:
    stack.put_row("Charge", StepStatus.UNDOING)
    stack.forget()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A problem.

    Attributes:
        happens: creates the problem.
        found: kinds and severities of the findings, in their order.
        repaired: result of the repair; empty: nothing is repaired.
        left: findings after the repair; None: unchanged.
        deep: whether only a scan of whole tables finds it.
    """

    happens: Callable[[CheckedStack], None]
    found: tuple[tuple[str, str], ...]
    repaired: str = ""
    left: tuple[tuple[str, str], ...] | None = None
    deep: bool = False


LATE_BY_PERSON = (("late effect", "person"),)
BEING_UNDONE = (("late effect", "ok"),)
SCENES: dict[str, Scene] = {
    "interrupted": Scene(
        happens=interrupted, found=(("interrupted", "soon"),), repaired=f"handed to {R1}, which is started", left=()
    ),
    "succeeded and did not settle": Scene(
        happens=unsettled,
        found=(("left unsettled", "person"),),
        repaired="parked, and the operators were notified",
        left=(("for operators", "person"), ("parked", "person")),
    ),
    "not started": Scene(happens=not_started, found=(("not started", "soon"),), repaired=f"started {SAGA_ID}", left=()),
    "start refused": Scene(
        happens=start_refused,
        found=(("not monitored", "person"), ("start refused", "repair")),
    ),
    "start refused no more": Scene(
        happens=started_again,
        found=(("not monitored", "person"), ("start refused", "repair")),
        repaired=f"started {SAGA_ID}",
        left=(("not monitored", "person"),),
    ),
    "settled and still due": Scene(
        happens=still_due, found=(("settled, still due", "soon"),), repaired="not due any more", left=()
    ),
    "recoveries spent": Scene(
        happens=exhausted,
        found=(("recoveries spent", "person"),),
        repaired="parked, and the operators were notified",
        left=(("for operators", "person"), ("parked", "person")),
    ),
    "name expired": Scene(
        happens=name_expired,
        found=(("name expired", "person"),),
        repaired="parked, and the operators were notified",
        left=(("for operators", "person"), ("parked", "person")),
    ),
    "rows may be gone": Scene(
        happens=rows_gone,
        found=(("rows may be gone", "person"),),
        repaired="parked, and the operators were notified",
        left=(("for operators", "person"), ("parked", "person")),
    ),
    "parked": Scene(happens=parked, found=(("parked", "person"),)),
    "machine gone": Scene(happens=machine_gone, found=(("machine gone", "person"),)),
    "machine gone, and parked": Scene(
        happens=machine_gone_and_parked, found=(("parked", "person"), ("machine gone", "person"))
    ),
    "recovery machine is being deleted": Scene(
        happens=recovery_machine_is_being_deleted, found=(("machine gone", "person"),)
    ),
    "owner unknown": Scene(
        happens=owner_unknown,
        found=(("not monitored", "person"), ("owner unknown", "person")),
    ),
    "over its timeout": Scene(happens=over_time, found=(("over its timeout", "ok"),)),
    "never due": Scene(
        happens=never_due,
        found=(("never found again", "repair"),),
        repaired="due now: the next look finds it",
        left=(),
        deep=True,
    ),
    "in no shard": Scene(
        happens=in_no_shard,
        found=(("never found again", "repair"),),
        repaired="due now: the next look finds it",
        left=(),
        deep=True,
    ),
    "rows near their end": Scene(
        happens=rows_end,
        found=(("rows near their end", "soon"), ("over its timeout", "ok")),
        repaired="its rows are kept for longer",
        left=(("over its timeout", "ok"),),
    ),
    "unreadable": Scene(happens=unreadable, found=(("unreadable", "person"),)),
    "late": Scene(
        happens=late,
        found=(("late effect", "soon"),),
        repaired=f"being undone by {L1}, which is started",
        left=BEING_UNDONE,
    ),
    "late, and nothing undoes it": Scene(happens=late_and_nothing_undoes_it, found=LATE_BY_PERSON),
    "late, without a record": Scene(happens=late_without_record, found=LATE_BY_PERSON),
    "late, and tried for long": Scene(happens=late_and_tried_for_long, found=LATE_BY_PERSON),
    "late, and its request is removed": Scene(happens=late_of_a_tombstone, found=LATE_BY_PERSON),
    "late, and its token gone": Scene(
        happens=late_and_its_token_gone,
        found=(("late effect", "repair"),),
        repaired=f"being undone by {L1}, which is started",
        left=BEING_UNDONE,
        deep=True,
    ),
    "late, of a step that nothing undoes, and its token gone": Scene(
        happens=late_of_a_step_that_nothing_undoes_and_its_token_gone, found=LATE_BY_PERSON, deep=True
    ),
    "late, tried for long, and its token gone": Scene(
        happens=late_tried_for_long_and_its_token_gone, found=LATE_BY_PERSON, deep=True
    ),
    "contradicted": Scene(happens=contradicted, found=(("contradicted", "person"),), deep=True),
    "undelivered": Scene(
        happens=undelivered, found=(("outcome not delivered", "soon"),), repaired="delivered", left=()
    ),
    "unknown job": Scene(happens=outcome_of_an_unknown_job, found=(("orphaned outcome", "person"),)),
    "unknown saga": Scene(happens=outcome_of_an_unknown_saga, found=(("orphaned outcome", "person"),)),
    "answered and gone": Scene(happens=answered_and_gone, found=(("orphaned outcome", "person"),), deep=True),
    "refused and gone": Scene(happens=refused_and_gone, found=(("orphaned outcome", "ok"),), deep=True),
    "orphaned wait": Scene(happens=orphaned_wait, found=(("orphaned wait", "soon"),)),
    "orphaned wait, and is due": Scene(
        happens=waits_for_nothing_and_is_due,
        found=(("orphaned wait", "soon"),),
        repaired="its dead-letter queue was notified",
        left=(("dead letters", "person"),),
    ),
    "waited for nothing": Scene(happens=orphaned_wait_that_was_reported, found=(("orphaned wait", "ok"),), deep=True),
    "waits without a record": Scene(happens=waits_without_record, found=(("orphaned wait", "soon"),)),
    "row left open": Scene(happens=row_open, found=(("row left open", "person"),), deep=True),
    "record lost": Scene(happens=record_lost, found=(("record lost", "person"),), deep=True),
    "record lost in doubt": Scene(happens=record_lost_in_doubt, found=(("record lost", "person"),), deep=True),
}


def words_of(scene: Scene) -> tuple[str, ...]:
    return ("--deep",) if scene.deep else ()


@pytest.mark.parametrize("deep", [(), ("--deep",)])
def test_a_healthy_stack_has_no_findings(stack: CheckedStack, deep: tuple[str, ...]) -> None:
    stack.job_saga.register()
    stack.put_row("Debit", StepStatus.DONE)

    status, told, _ = stack.run(*deep)

    assert (status, told.splitlines()[-1]) == (0, "nothing found")
    assert "in flight: 1 saga, 0 parked" in told


@pytest.mark.parametrize("scene", SCENES)
def test_a_problem_is_found_without_a_write(stack: CheckedStack, scene: str) -> None:
    SCENES[scene].happens(stack)
    stack.world.wire.forget()
    stored = stack.stored
    stack.world.wire.forget()

    found = stack.finds(*words_of(SCENES[scene]))

    assert set(stack.world.wire.sent) <= READS
    assert tuple((one["kind"], one["severity"]) for one in found) == SCENES[scene].found
    assert all(one["what"] and one["then"] and not one["repaired"] for one in found)
    assert stack.stored == stored


@pytest.mark.parametrize("scene", [name for name, scene in SCENES.items() if scene.deep])
def test_only_a_scan_finds_what_no_index_holds(stack: CheckedStack, scene: str) -> None:
    SCENES[scene].happens(stack)
    stack.world.wire.forget()

    assert stack.kinds() == []
    assert "Scan" not in stack.world.wire.sent


@pytest.mark.parametrize("scene", [name for name, scene in SCENES.items() if not scene.deep])
def test_a_scan_finds_once_what_an_index_holds_too(stack: CheckedStack, scene: str) -> None:
    SCENES[scene].happens(stack)

    found = [kind for kind in stack.kinds("--deep") if kind[0] not in ("row left open", "record lost")]

    assert tuple(found) == SCENES[scene].found


@pytest.mark.parametrize("scene", SCENES)
def test_a_problem_is_repaired_once(stack: CheckedStack, scene: str) -> None:
    this, words = SCENES[scene], words_of(SCENES[scene])
    this.happens(stack)
    untouched = stack.stored

    first = stack.finds("--repair", *words)
    after = stack.stored
    left = this.found if this.left is None else this.left
    again = tuple(stack.kinds(*words))
    stack.finds("--repair", *words)

    assert [one["repaired"] for one in first if one["repaired"]] == ([this.repaired] if this.repaired else [])
    assert again == left
    assert stack.stored == after
    assert (after == untouched) == (not this.repaired)


def test_repair_names_the_code_of_a_refused_start(stack: CheckedStack) -> None:
    start_refused(stack)

    (found,) = [one for one in stack.finds("--repair") if one["kind"] == "start refused"]

    assert f"NOT repaired: state machine {MACHINE_ARN} must exist" in found["then"]
    assert (found["severity"], found["repaired"]) == ("person", "")


@pytest.mark.parametrize("scene", [name for name, scene in SCENES.items() if scene.repaired])
def test_two_concurrent_doctors_do_the_work_of_one(stack: CheckedStack, scene: str) -> None:
    """The other one comes before the first call that writes."""
    this, words = SCENES[scene], words_of(SCENES[scene])
    this.happens(stack)
    others: list[list[dict[str, Any]]] = []
    send = stack.world.wire.send

    def disturbed(event_name: str, request: Any, deliver: Any) -> Any:
        if event_name.rpartition(".")[2] not in READS and not others:
            others.append([])
            others[0] += stack.finds("--repair", *words)
        return send(event_name, request, deliver)

    setattr(stack.world.wire, "send", disturbed)  # noqa: B010  # mypy knows it as a method
    mine = stack.finds("--repair", *words)

    assert [one["repaired"] for one in others[0] if one["repaired"]] == [this.repaired]
    (said,) = [one["repaired"] for one in mine if one["repaired"]]
    assert said in (this.repaired, "done by another process")
    assert tuple(stack.kinds(*words)) == (this.left or ())
    assert stack.item.get(RecordAttribute.RECOVERIES, "0") in ("0", "1", str(LIMIT))
    assert set(stack.world.executions.by_name) <= {SAGA_ID, R1, L1}


NAMED_ONLY = {
    "interrupted": [("interrupted", "soon")],
    "parked": [("parked", "person")],
    "never due": [("never found again", "repair")],
    "recoveries spent": [("interrupted", "soon")],
    "late": [("late effect", "person")],
    "undelivered": [("outcome not delivered", "soon")],
    "orphaned wait": [("orphaned wait", "soon")],
    "row left open": [("row left open", "person")],
    "record lost": [],
    "record lost in doubt": [("record lost", "person")],
}


@pytest.mark.parametrize("scene", NAMED_ONLY)
def test_without_the_right_to_list_the_stack_tables_are_named(stack: CheckedStack, scene: str) -> None:
    SCENES[scene].happens(stack)
    stack.denied.add("ListStackResources")

    assert stack.kinds("--deep", system=TABLES) == NAMED_ONLY[scene]


@pytest.mark.parametrize("happens", [late, row_open])
def test_a_record_that_cannot_be_read_keeps_no_other_from_being_found(
    stack: CheckedStack, happens: Callable[[CheckedStack], None]
) -> None:
    happens(stack)
    stack.remove("execution_arn")
    send(stack, "jobs-dead")

    assert set(stack.kinds("--deep")) == {("dead letters", "person"), ("unreadable", "person")}


def test_rows_that_are_kept_longer_than_records_are_not_a_finding(stack: CheckedStack) -> None:
    record_lost(stack)
    stack.pass_time(REMEMBER_SECONDS * 1_000)

    assert stack.kinds("--deep") == []


def test_a_tombstone_is_not_a_finding(stack: CheckedStack) -> None:
    stack.settle(RecordStatus.COMPLETED)
    stack.dies(status=ExecutionStatus.SUCCEEDED)
    stack.put_row("Debit", StepStatus.DONE)
    stack.pass_time(8 * DAY_MS)
    remove_response(stack.world)

    assert stack.kinds("--deep") == []


def test_a_repair_delivers_an_undelivered_outcome(stack: CheckedStack) -> None:
    undelivered(stack)
    stack.run("--repair")

    assert stack.job_saga.outcome() is not None


# What the stack consists of.


def dead_event(stack: CheckedStack) -> None:
    stack.failures["Dispatcher"] = "jobs"
    send(stack, "jobs")


PARTS: dict[str, tuple[Callable[[CheckedStack], object], list[tuple[str, str]], str]] = {
    "a saga without a reconciler": (
        lambda stack: stack.functions.pop("Reconciler"),
        [("not monitored", "person")],
        "add a TimeoutReconciler",
    ),
    "a reconciler that receives events of another saga": (
        lambda stack: stack.functions["Reconciler"].update({"CDK_SAGAS_RECONCILED": "[]"}),
        [("not monitored", "person")],
        "add a TimeoutReconciler",
    ),
    "its schedule disabled": (
        lambda stack: stack.rules["Schedule"].update(State="DISABLED"),
        [("rule disabled", "person")],
        "the schedule by which the reconciler should look is disabled",
    ),
    "the schedule by which it measures disabled": (
        lambda stack: stack.rules["Measure"].update(State="DISABLED"),
        [("rule disabled", "person")],
        "the schedule by which the reconciler should measure is disabled",
    ),
    "its rule for events disabled": (
        lambda stack: stack.rules["Ended"].update(State="DISABLED"),
        [("rule disabled", "person")],
        "the rule that notifies a queue of the stack is disabled",
    ),
    "a rule of a bus of its own disabled": (
        lambda stack: stack.rules["Ended"].update(State="DISABLED", EventBusName="bus-2"),
        [("rule disabled", "person")],
        "aws events enable-rule --name Ended --event-bus-name bus-2",
    ),
    "a rule that is gone": (
        lambda stack: stack.rules["Ended"].update(EventBusName="bus-3"),
        [("not checked", "person")],
        "rule Ended is of the stack, and is not there any more",
    ),
    "the sweeper's schedule disabled": (
        lambda stack: stack.rules["Sweeps"].update(State="DISABLED"),
        [("rule disabled", "person")],
        "the schedule by which the sweeper of tokens should look",
    ),
    "its queue's source disabled": (
        lambda stack: stack.sources[MAPPING].update(State="Disabled"),
        [("source disabled", "person")],
        "nothing hands the messages of this queue to the reconciler",
    ),
    "a function that never runs": (
        lambda stack: stack.at_zero.add("Gatekeeper"),
        [("function at zero", "person")],
        "the gatekeeper has a reserved concurrency of 0",
    ),
    "a dead status event": (
        lambda stack: send(stack, "events-dead"),
        [("dead letters", "person")],
        "aws sqs purge-queue",
    ),
    "a dead job": (
        lambda stack: send(stack, "jobs-dead"),
        [("dead letters", "person")],
        "cdk-sagas callbacks --tokens tokens --dead-letters",
    ),
    "a dead event of a receiver that is called directly": (
        dead_event,
        [("dead letters", "person")],
        "one message that could not be delivered or handled",
    ),
    "a schedule that is gone": (
        lambda stack: stack.rules["Schedule"].update(EventBusName="bus-3"),
        [("not checked", "person"), ("not monitored", "person")],
        "no schedule of the stack calls the reconciler: it never looks",
    ),
    "a schedule that calls another one": (
        lambda stack: stack.rules["Sweeps"]["Targets"].clear(),
        [("not monitored", "person")],
        "no schedule of the stack calls the sweeper of tokens: it never looks",
    ),
    "an entry for operators": (
        lambda stack: send(stack, "operators"),
        [("for operators", "person")],
        "one message about sagas that were left to a person",
    ),
    "a job on its way": (lambda stack: send(stack, "jobs"), [], ""),
    "a right that is missing": (
        lambda stack: stack.denied.add("DescribeRule"),
        [("not checked", "person")],
        "not allowed: DescribeRule",
    ),
    "another right that is missing": (
        lambda stack: stack.denied.add("GetFunctionConcurrency"),
        [("not checked", "person")],
        "function Dispatcher and 3 more",
    ),
}


def send(stack: CheckedStack, name: str) -> None:
    aws.sqs().send_message(QueueUrl=stack.queues[name], MessageBody="{}")


@pytest.mark.parametrize("part", PARTS)
def test_disabled_and_full_resources_are_left_to_an_operator(stack: CheckedStack, part: str) -> None:
    happens, found, says = PARTS[part]
    happens(stack)

    assert stack.kinds() == found
    assert says in " ".join(stack.run()[1].split())
    assert stack.kinds("--repair") == found


@pytest.mark.parametrize("part", list(PARTS)[:3])
@pytest.mark.parametrize("scene", ["interrupted", "not started", "late"])
def test_without_a_running_reconciler_nothing_is_repaired_automatically(
    stack: CheckedStack, part: str, scene: str
) -> None:
    PARTS[part][0](stack)
    SCENES[scene].happens(stack)

    found = dict(stack.kinds())
    repaired = stack.finds("--repair")

    unserved = part != "its schedule disabled"
    assert found.pop(SCENES[scene].found[0][0]) == ("person" if scene == "late" and unserved else "repair")
    assert list(found.values()) == ["person"]
    done = [one["repaired"] for one in repaired if one["repaired"]]
    assert done == ([] if scene == "late" and unserved else [SCENES[scene].repaired])


def test_an_overdue_saga_is_reported_as_not_monitored_and_is_repaired(stack: CheckedStack) -> None:
    stack.dies()
    stack.pass_time(60_000 + 15 * 60_000 + 1)

    assert stack.kinds() == [("not monitored", "person"), ("interrupted", "repair")]


def test_a_recovery_that_has_just_died_is_left_until_the_next_one_is_due(stack: CheckedStack) -> None:
    stack.dies()
    stack.run("--repair")
    stack.dies(R1)

    (finding,) = stack.finds("--repair")

    assert (finding["kind"], finding["severity"]) == ("interrupted", "soon")
    assert finding["what"] == "-r1 FAILED, and did not settle it"
    assert finding["repaired"].startswith("left as it is until 2023-11-14 22:14:20 UTC")
    assert R2 not in stack.world.executions.by_name


def test_a_refused_repair_is_reported_and_blocks_no_other(stack: CheckedStack) -> None:
    stack.dies()
    undelivered(stack)
    stack.denied.add("UpdateItem")

    found = {one["kind"]: one for one in stack.finds("--repair")}

    assert found["interrupted"]["then"] == (
        "NOT repaired, AccessDeniedException: ask for the right to UpdateItem, and repeat this"
    )
    assert (found["interrupted"]["severity"], found["interrupted"]["open"]) == ("person", True)


# Output.


def test_the_table_is_aligned_fits_and_has_the_worst_and_the_oldest_first(stack: CheckedStack) -> None:
    parked(stack)
    stack.rules["Schedule"]["State"] = "DISABLED"
    stack.update(amount={"N": "12345"}, currency={"S": "EUR"})
    undelivered(stack)

    status, told, errors = stack.run()

    assert (status, errors) == (1, "")
    assert (
        told
        == f"""\
stack Shop, 2023-11-14 22:14:20 UTC
checked: 1 saga, 1 record, 1 token table
in flight: 1 saga, 1 parked, the oldest for 1 m
money in flight, in minor units: EUR 12,345

needs an operator (2)
  rule disabled          Schedule
      the schedule by which the reconciler should look is disabled
      -> enable it
         aws events enable-rule --name Schedule
  parked                 {SAGA_ID}       2023-11-14 22:13:20  1 m
      its record has no reason
      it moves EUR 12,345, in minor units
      -> determine the outcome, then record it: cdk-sagas resolve
         cdk-sagas inspect {SAGA_ID} --table requests

repaired soon (1)
  outcome not delivered  {JOB_ID}  2023-11-14 22:13:20  1 m
      done, and it is not delivered
      it moves EUR 12,345, in minor units
      -> the sweeper of tokens delivers it

needs an operator: 2; repaired soon: 1; 2 left to do
"""
    )


@pytest.mark.parametrize("width", ["60", "80", "100", "200"])
def test_no_line_but_a_command_is_wider_than_the_terminal(
    stack: CheckedStack, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    for happens in (interrupted, undelivered, row_open, lambda stack: send(stack, "events-dead")):
        happens(stack)
    monkeypatch.setenv("COLUMNS", width)

    lines = stack.run("--deep")[1].splitlines()

    assert max(len(line) for line in lines if not line.startswith("         ")) <= int(width)
    assert {JOB_ID, SAGA_ID} <= {word for line in lines for word in line.split()}


def test_colours_are_for_terminals_only() -> None:
    finding = Finding(kind=Kind.PARKED, severity=Severity.PERSON, id="x\x1b[31m", what="y", then="z", since=0)
    report = Report(system="stack Shop", now_ms=0, sagas=[], records=0, findings=[finding])

    plain, painted = text_of(report), text_of(report, colour=True)

    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain != painted


def test_the_document_has_everything(stack: CheckedStack) -> None:
    stack.dies()
    stack.update(amount={"N": "12345"}, currency={"S": "EUR"})

    document = json.loads(stack.run("--json")[1])

    (finding,) = document.pop("findings")
    assert document == {
        "system": "stack Shop",
        "now": NOW_MS,
        "sagas": ["Transfers"],
        "records": 1,
        "token_tables": ["tokens"],
        "deep": False,
        "repair": False,
        "in_flight": {"sagas": 1, "parked": 0, "oldest": NOW_MS, "money": {"EUR": 12345}, "complete": True},
        "totals": {"person": 0, "repair": 0, "soon": 1, "ok": 0},
    }
    assert finding == {
        "kind": "interrupted",
        "severity": "soon",
        "id": SAGA_ID,
        "what": "its first execution FAILED, and did not settle it",
        "then": "the reconciler hands it to -r1",
        "since": NOW_MS,
        "command": "",
        "saga_id": SAGA_ID,
        "table": "",
        "amount": 12345,
        "currency": "EUR",
        "repaired": "",
        "machine": "Transfers",
        "request_table": "requests",
        "age_ms": 0,
        "open": False,
    }


def test_each_field_of_a_finding_is_in_the_reference(stack: CheckedStack) -> None:
    stack.dies()
    reference = (ROOT / "docs/reference/command.md").read_text("utf-8")
    table = reference.partition("<!-- document: finding -->")[2].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]

    (finding,) = stack.finds()

    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == finding.keys()


# Options, errors, rights.


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--stack", "Shop", "--table", "requests"),
        ("--stack", "Shop", "--log-table", "log"),
        ("--stack", "Shop", "--token-table", "tokens"),
        ("--stack", "Shop", "--rate", "5"),
        ("--stack", "Shop", "--deep", "--rate", "0"),
    ],
)
def test_wrong_options_are_refused_with_a_status_of_their_own(stack: CheckedStack, words: tuple[str, ...]) -> None:
    status, out, err = stack.run(system=words)

    assert (status, out) == (2, "")
    assert "error: " in err
    assert stack.world.wire.sent == []


@pytest.mark.parametrize(
    ("system", "denied", "says"),
    [
        (("--stack", "Bar"), "", "there is no stack Bar in this account and region"),
        (("--stack", "Shop"), "ListStackResources", "name its tables with --table, --log-table and --token-table"),
        (("--table", "nowhere"), "", "there is no table nowhere in this account and region"),
        (("--table", "requests", "--log-table", "nowhere"), "", "there is no table nowhere"),
        (("--table", "requests", "--token-table", "nowhere"), "", "there is no table nowhere"),
        (("--table", ""), "", "Parameter validation failed: Invalid length for parameter TableName"),
        (("--stack", "Shop", "--stack", "Bar"), "", "there is no stack Bar in this account and region"),
    ],
)
def test_a_failed_start_is_reported_in_one_line(
    stack: CheckedStack, system: tuple[str, ...], denied: str, says: str
) -> None:
    stack.denied.add(denied)

    status, out, err = stack.run(system=system)

    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("cdk-sagas: ")
    assert says in err


def test_nested_stacks_are_checked(stack: CheckedStack) -> None:
    stack.nested = True
    stack.dies()

    assert stack.kinds() == [("interrupted", "soon")]


def test_the_environment_and_the_clients_of_the_process_are_as_they_were(stack: CheckedStack) -> None:
    stack.dies()
    variables, mine = dict(os.environ), aws.dynamodb()

    stack.run("--repair")

    assert dict(os.environ) == variables
    assert aws.dynamodb().meta.region_name == mine.meta.region_name
    assert R1 in stack.world.executions.by_name


def test_the_runtime_works_with_the_clients_of_the_session_that_it_is_given() -> None:
    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="eu-north-1")
    with aws.clients_of(session):
        regions = {client().meta.region_name for client in (aws.dynamodb, aws.step_functions, aws.sqs, aws.s3)}

    assert regions == {"eu-north-1"}
    assert aws.dynamodb.cache_info().currsize == 0


def test_a_stack_without_a_saga_is_refused(stack: CheckedStack) -> None:
    for parts in (stack.functions, stack.machines):
        parts.clear()

    assert "stack Shop has no saga" in stack.run()[2]


def test_each_call_has_its_permission_and_those_are_in_the_guide() -> None:
    guide = (ROOT / "docs/how-to/find-what-is-stuck.md").read_text("utf-8")
    policies = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", guide, re.DOTALL)]

    assert [tuple(policy["Statement"][0]["Action"]) for policy in policies] == [DOCTOR_LOOKS, DOCTOR_REPAIRS]
    assert {action.partition(":")[2] for action in DOCTOR_LOOKS} == READS


def test_a_scan_announces_its_size_and_keeps_to_its_rate(stack: CheckedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    monkeypatch.setattr(SCAN, "_PAGE", 10)
    monkeypatch.setattr(SCAN, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=naps.append))
    for number in range(30):
        stack.put_row(f"Step{number}", StepStatus.READ)

    _, _, errors = stack.run("--deep", "--rate", "2")

    assert re.search(r"reads table log whole: about 30 items, [0-9]+ read units, [0-9]+ s", errors)
    assert re.findall(r"table log: (\d+) %, ([0-9,]+) items", errors) == [("33", "10"), ("66", "20"), ("100", "30")]
    # The page after the last item is empty: a full page does not show that it was the last one.
    assert len(naps) == 3
    assert all(nap > 0 for nap in naps)


# State machines that are not sagas.

END = f"{MACHINE_ARN.replace(':stateMachine:', ':execution:').replace('Transfers', 'Reports')}:night"


def watches(stack: CheckedStack) -> None:
    create_watch_table()
    stack.functions["Watcher"] = {"CDK_SAGAS_WATCH_TABLE": "watch"}
    stack.rules["Watches"] = {
        "State": "ENABLED",
        "ScheduleExpression": "rate(1 minute)",
        "Targets": [{"Arn": function_arn("Watcher")}],
    }


def keeps(stack: CheckedStack, **values: dict[str, str]) -> None:
    """An end of an execution is kept."""
    found = found_put(
        id=end_id(END, 0), end=BadEnd.TIMED_OUT, started_at=0, stopped_at=NOW_MS, not_before=NOW_MS, now_ms=NOW_MS
    )
    item: Any = {**found["Item"], **values}
    aws.dynamodb().put_item(TableName="watch", Item={name: value for name, value in item.items() if value})


ENDS: dict[str, tuple[dict[str, dict[str, str]], int, list[tuple[str, str]], bool]] = {
    "not notified yet": ({}, 0, [], False),
    "notified in vain": (
        {"attempt": {"N": "2"}, "error": {"S": "Unhandled"}},
        0,
        [("end not notified", "soon")],
        False,
    ),
    "due for long": ({}, 15 * 60_000, [("not monitored", "person")], False),
    "stuck": (
        {"status": {"S": "STUCK"}, "error": {"S": "Unhandled"}, "due_at": {}, "due_shard": {}, "not_before": {}},
        0,
        [("end stuck", "person")],
        True,
    ),
    "told": ({"status": {"S": "TOLD"}, "due_at": {}, "due_shard": {}, "not_before": {}}, 0, [], True),
}


@pytest.mark.parametrize("end", ENDS)
def test_failures_of_watched_machines_without_a_notification_are_found(stack: CheckedStack, end: str) -> None:
    values, later_ms, found, deep = ENDS[end]
    watches(stack)
    keeps(stack, **values)
    stack.pass_time(later_ms)
    due_now(stack)
    stack.world.wire.forget()

    assert stack.kinds(*(["--deep"] if deep else [])) == found
    assert set(stack.world.wire.sent) <= READS


def test_a_list_that_was_not_read_for_long_is_reported(stack: CheckedStack) -> None:
    watches(stack)
    machine = MACHINE_ARN.replace("Transfers", "Reports")
    told: dict[str, Any] = {"machine": machine, "function": "f", "ends": ["TIMED_OUT"]}
    told |= {"grace": 1, "lease": 1, "attempts": 1, "longest": 0}
    stack.functions["Watcher"]["CDK_SAGAS_WATCHED"] = json.dumps([told])
    row = ListRow(id=list_id(machine, BadEnd.TIMED_OUT), known_until=NOW_MS, certain_until=NOW_MS, due_at=NOW_MS)
    aws.dynamodb().put_item(TableName="watch", Item=list_put(row)["Item"])

    assert stack.kinds() == []
    stack.pass_time(15 * 60_000)
    due_now(stack)
    assert stack.kinds() == [("not monitored", "person")]


def test_a_stack_of_watched_machines_alone_is_checked(stack: CheckedStack) -> None:
    stack.functions.clear()
    stack.machines.clear()
    watches(stack)

    assert stack.kinds() == []
