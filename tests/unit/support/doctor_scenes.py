"""Problems of a stack, each with what ``cdk-sagas doctor`` finds and repairs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from constructs_lib.cli.callbacks.forget import forget, rows_named
from constructs_lib.cli.shared.saga import keep_decision
from saga_runtime.callbacks import Failed, Succeeded
from saga_runtime.callbacks.decisions import acknowledgement, conflict_id_of
from saga_runtime.callbacks.rows import Outcome
from saga_runtime.callbacks.sweeper import sweep
from saga_runtime.idempotency.identity import saga_id_of, step_key_of
from saga_runtime.protocol import Env, FailedStatus, Side, StepStatus, TokenAttribute
from saga_runtime.recovery.late_effects import MOST_TRIES, late_name
from saga_runtime.recovery.takeover import CERTAIN_AFTER_MS, recovery_name
from saga_runtime.saga_log.rows import log_key
from saga_runtime.shared import aws
from saga_runtime.shared.arns import execution_of
from saga_runtime.shared.decisions import Audit
from saga_runtime.watch.rows import end_id, found_put
from tests.unit.support.checked_stack import (
    LIMIT,
    SHARD,
    CheckedStack,
    checked_stack_in,
    create_watch_table,
)
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.job_saga import DONE, JOB_ID, REFUSED, STEP, operators_queue, served
from tests.unit.support.manifests import DAYS, TIMEOUT_SECONDS
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
        t.STATUS: {"S": "UNDELIVERED"},
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


def late_behind_the_pivot(stack: CheckedStack) -> None:
    """Refused, then done after all; the saga's direction is not written yet."""
    late_job(stack)
    aws.dynamodb().update_item(
        TableName="log",
        Key=log_key(SAGA_ID, STEP),
        UpdateExpression="SET side = :side",
        ExpressionAttributeValues={":side": {"S": Side.AFTER}},
    )


def late_between_two_pivots(stack: CheckedStack) -> None:
    """The first one is applied."""
    late_job(stack)
    stack.put_row("Announce", StepStatus.DONE)
    aws.dynamodb().update_item(
        TableName="log",
        Key=log_key(SAGA_ID, "Announce"),
        UpdateExpression="SET side = :side",
        ExpressionAttributeValues={":side": {"S": Side.PIVOT}},
    )


def late_and_nothing_undoes_it(stack: CheckedStack) -> None:
    stack.settle()
    late_job(stack, "Announce")


def late_without_record(stack: CheckedStack) -> None:
    stack.forget()
    late_job(stack)


def late_and_its_row_gone(stack: CheckedStack) -> None:
    stack.settle()
    late_job(stack)
    aws.dynamodb().delete_item(TableName="log", Key=log_key(SAGA_ID, STEP))


def late_its_row_gone_and_nothing_undoes_it(stack: CheckedStack) -> None:
    stack.settle()
    late_job(stack, "Announce")
    aws.dynamodb().delete_item(TableName="log", Key=log_key(SAGA_ID, "Announce"))


def late_and_tried_for_long(stack: CheckedStack) -> None:
    late(stack)
    for number in range(1, MOST_TRIES + 1):
        stack.world.executions.start(late_name(SAGA_ID, number), "{}")
        stack.dies(late_name(SAGA_ID, number))


def late_of_a_tombstone(stack: CheckedStack) -> None:
    late(stack)
    stack.remove("input", "response")


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


def contradicted_and_its_entry_gone(stack: CheckedStack) -> None:
    """No operator reads the entry in time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(Env.CALLBACKS, json.dumps([served(operators=(queue := operators_queue()))]))
        contradicted(stack)
    sweep(remaining_ms=lambda: 60_000)
    aws.sqs().purge_queue(QueueUrl=queue)


def contradicted_and_acknowledged_without_an_entry(stack: CheckedStack) -> None:
    contradicted_and_its_entry_gone(stack)
    _acknowledge(stack)


def contradicted_and_acknowledged(stack: CheckedStack) -> None:
    contradicted(stack)
    _acknowledge(stack)


def _acknowledge(stack: CheckedStack) -> None:
    what = acknowledgement(JOB_ID, conflict_id_of(JOB_ID, Outcome.of(REFUSED)))
    audit = Audit(who="arn:aws:iam::111111111111:user/ann", why="refunded by hand")
    assert keep_decision(audit, what, JOB_ID, ["requests"], stack.world.clock.ms)


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


def contradicted_of_an_unknown_job(stack: CheckedStack) -> None:
    stack.job_saga.reports("event-2", REFUSED, "provider-7")
    outcome_of_an_unknown_job(stack)


def forgotten(stack: CheckedStack) -> None:
    outcome_of_an_unknown_job(stack)
    audit = Audit(who="arn:aws:iam::111111111111:user/ann", why="of the test environment")
    assert "forgotten" in forget("provider-7", rows_named("provider-7", [], [""]), None, audit, None)


def outcome_of_an_unknown_saga(stack: CheckedStack) -> None:
    other = saga_id_of(reservation_of(key="other").request_id, NOW_MS, "requests")
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
        ExpressionAttributeNames={"#dead": TokenAttribute.DEAD_LETTER_QUEUE_URL},
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
    stack.put_row("Charge", StepStatus.COMPENSATING)
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


LATE_BY_OPERATOR = (("late effect", "operator"),)
BEING_UNDONE = (("late effect", "ok"),)
SCENES: dict[str, Scene] = {
    "interrupted": Scene(
        happens=interrupted, found=(("interrupted", "soon"),), repaired=f"handed to {R1}, which is started", left=()
    ),
    "succeeded and did not settle": Scene(
        happens=unsettled,
        found=(("execution unsettled", "operator"),),
        repaired="parked, and the operators were notified",
        left=(("parked", "operator"), ("for operators", "repair")),
    ),
    "not started": Scene(happens=not_started, found=(("not started", "soon"),), repaired=f"started {SAGA_ID}", left=()),
    "start refused": Scene(
        happens=start_refused,
        found=(("not monitored", "operator"), ("start refused", "repair")),
    ),
    "start refused no more": Scene(
        happens=started_again,
        found=(("not monitored", "operator"), ("start refused", "repair")),
        repaired=f"started {SAGA_ID}",
        left=(("not monitored", "operator"),),
    ),
    "settled and still due": Scene(
        happens=still_due, found=(("settled, still indexed", "soon"),), repaired="not due any more", left=()
    ),
    "recoveries exhausted": Scene(
        happens=exhausted,
        found=(("recoveries exhausted", "operator"),),
        repaired="parked, and the operators were notified",
        left=(("parked", "operator"), ("for operators", "repair")),
    ),
    "name expired": Scene(
        happens=name_expired,
        found=(("name expired", "operator"),),
        repaired="parked, and the operators were notified",
        left=(("parked", "operator"), ("for operators", "repair")),
    ),
    "saga log expired": Scene(
        happens=rows_gone,
        found=(("saga log expired", "operator"),),
        repaired="parked, and the operators were notified",
        left=(("parked", "operator"), ("for operators", "repair")),
    ),
    "parked": Scene(happens=parked, found=(("parked", "operator"),)),
    "machine gone": Scene(happens=machine_gone, found=(("machine gone", "operator"),)),
    "machine gone, and parked": Scene(
        happens=machine_gone_and_parked, found=(("parked", "operator"), ("machine gone", "operator"))
    ),
    "recovery machine is being deleted": Scene(
        happens=recovery_machine_is_being_deleted, found=(("machine gone", "operator"),)
    ),
    "owner unknown": Scene(
        happens=owner_unknown,
        found=(("not monitored", "operator"), ("owner unknown", "operator")),
    ),
    "over its timeout": Scene(happens=over_time, found=(("over its timeout", "ok"),)),
    "never due": Scene(
        happens=never_due,
        found=(("missing from index", "repair"),),
        repaired="due now: the next look finds it",
        left=(),
        deep=True,
    ),
    "in no shard": Scene(
        happens=in_no_shard,
        found=(("missing from index", "repair"),),
        repaired="due now: the next look finds it",
        left=(),
        deep=True,
    ),
    "saga log expiring": Scene(
        happens=rows_end,
        found=(("saga log expiring", "soon"), ("over its timeout", "ok")),
        repaired="its rows are kept for longer",
        left=(("over its timeout", "ok"),),
    ),
    "unreadable": Scene(happens=unreadable, found=(("unreadable", "operator"),)),
    "late": Scene(
        happens=late,
        found=(("late effect", "soon"),),
        repaired=f"being undone by {L1}, which is started",
        left=BEING_UNDONE,
    ),
    "late, and its saga may need it": Scene(happens=late_behind_the_pivot, found=BEING_UNDONE),
    "late, and a pivot is applied": Scene(happens=late_between_two_pivots, found=BEING_UNDONE),
    "late, and nothing undoes it": Scene(happens=late_and_nothing_undoes_it, found=LATE_BY_OPERATOR),
    "late, without a record": Scene(happens=late_without_record, found=LATE_BY_OPERATOR),
    "late, and its row gone": Scene(happens=late_and_its_row_gone, found=LATE_BY_OPERATOR),
    "late, its row gone, and nothing undoes it": Scene(
        happens=late_its_row_gone_and_nothing_undoes_it, found=LATE_BY_OPERATOR
    ),
    "late, and tried for long": Scene(happens=late_and_tried_for_long, found=LATE_BY_OPERATOR),
    "late, and its request is removed": Scene(happens=late_of_a_tombstone, found=LATE_BY_OPERATOR),
    "late, and its token gone": Scene(
        happens=late_and_its_token_gone,
        found=(("late effect", "repair"),),
        repaired=f"being undone by {L1}, which is started",
        left=BEING_UNDONE,
        deep=True,
    ),
    "late, of a step that nothing undoes, and its token gone": Scene(
        happens=late_of_a_step_that_nothing_undoes_and_its_token_gone, found=LATE_BY_OPERATOR, deep=True
    ),
    "late, tried for long, and its token gone": Scene(
        happens=late_tried_for_long_and_its_token_gone, found=LATE_BY_OPERATOR, deep=True
    ),
    "contradicted, and its entry gone": Scene(
        happens=contradicted_and_its_entry_gone, found=(("contradicted", "operator"),)
    ),
    "contradicted, its entry gone, and acknowledged": Scene(
        happens=contradicted_and_acknowledged_without_an_entry, found=()
    ),
    "contradicted": Scene(happens=contradicted, found=(("contradicted", "operator"),), deep=True),
    "contradicted, and acknowledged": Scene(happens=contradicted_and_acknowledged, found=(), deep=True),
    "undelivered": Scene(
        happens=undelivered, found=(("outcome not delivered", "soon"),), repaired="delivered", left=()
    ),
    "unknown job": Scene(happens=outcome_of_an_unknown_job, found=(("orphaned outcome", "operator"),)),
    "unknown job, and contradicted": Scene(
        happens=contradicted_of_an_unknown_job, found=(("orphaned outcome", "operator"),)
    ),
    "unknown job, and forgotten": Scene(happens=forgotten, found=(), deep=True),
    "unknown saga": Scene(happens=outcome_of_an_unknown_saga, found=(("orphaned outcome", "operator"),)),
    "answered and gone": Scene(happens=answered_and_gone, found=(("orphaned outcome", "operator"),), deep=True),
    "refused and gone": Scene(happens=refused_and_gone, found=(("orphaned outcome", "ok"),), deep=True),
    "orphaned wait": Scene(happens=orphaned_wait, found=(("orphaned wait", "soon"),)),
    "orphaned wait, and is due": Scene(
        happens=waits_for_nothing_and_is_due,
        found=(("orphaned wait", "soon"),),
        repaired="its dead-letter queue was notified",
        left=(("dead letters", "operator"),),
    ),
    "waited for nothing": Scene(happens=orphaned_wait_that_was_reported, found=(("orphaned wait", "ok"),), deep=True),
    "waits without a record": Scene(happens=waits_without_record, found=(("orphaned wait", "soon"),)),
    "row in doubt": Scene(happens=row_open, found=(("row in doubt", "operator"),), deep=True),
    "record lost": Scene(happens=record_lost, found=(("record lost", "operator"),), deep=True),
    "record lost in doubt": Scene(happens=record_lost_in_doubt, found=(("record lost", "operator"),), deep=True),
}


def words_of(scene: Scene) -> tuple[str, ...]:
    return ("--full-scan",) if scene.deep else ()


def send(stack: CheckedStack, name: str) -> None:
    aws.sqs().send_message(QueueUrl=stack.queues[name], MessageBody="{}")


END = f"{MACHINE_ARN.replace(':stateMachine:', ':execution:').replace('Transfers', 'Reports')}:night"


def watches(stack: CheckedStack) -> None:
    create_watch_table()
    watched: list[Any] = []
    stack.manifests["Shop"]["watches"] = [{"function": "Watcher", "table": "watch", "watched": watched}]
    stack.manifests["Shop"].setdefault("rules", []).append(
        {"name": "Watches", "scheduled": True, "function": "Watcher"}
    )
    stack.rules["Watches"] = {"State": "ENABLED"}


def keeps(stack: CheckedStack, **values: dict[str, str]) -> None:
    """An end of an execution is kept."""
    found = found_put(
        id=end_id(END, 0), end=FailedStatus.TIMED_OUT, started_at=0, stopped_at=NOW_MS, not_before=NOW_MS, now_ms=NOW_MS
    )
    item: Any = {**found["Item"], **values}
    aws.dynamodb().put_item(TableName="watch", Item={name: value for name, value in item.items() if value})
