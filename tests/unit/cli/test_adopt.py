"""``cdk-sagas adopt`` moves a saga whose state machine is gone to another one, once, and never away from its rows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from saga_runtime.protocol import RecordAttribute, RecordStatus, Side, StepStatus
from saga_runtime.recovery.adoption import Target, adopt_update
from saga_runtime.saga_log.rows import row_put
from saga_runtime.shared import aws
from saga_runtime.shared.arns import execution_of
from saga_runtime.shared.decisions import Decision
from tests.unit.recovery.test_retention_traces import pass_days
from tests.unit.support import settling
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.manifests import saga_entry
from tests.unit.support.operated_saga import LOG_DAYS, WHY, OperatedSaga, operated_saga_in
from tests.unit.support.samples import DAY_MS, MACHINE_ARN, RECOVERY_MACHINE_ARN, REQUEST_ID, SAGA_ID
from tests.unit.support.wire import Action, Fault, Killed, Moment, before
from tests.unit.support.world import World

R1, R2 = f"{SAGA_ID}-r1", f"{SAGA_ID}-r2"
NEW, NEW_RECOVERY = f"{MACHINE_ARN}New", f"{MACHINE_ARN}NewRecovery"
ADOPT = ("adopt",)
A = RecordAttribute


@pytest.fixture
def operated(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[OperatedSaga]:
    """A saga with a row, whose machines are gone, and others that write the same log."""
    with operated_saga_in(world, monkeypatch, boto3_session) as made:
        made.saga.update(arn=NEW, recovery=NEW_RECOVERY)
        made.deleted |= {MACHINE_ARN, RECOVERY_MACHINE_ARN}
        made.shop.run()
        yield made


def refused(operated: OperatedSaga, *words: str) -> str:
    """Run ``adopt``; returns its one-line refusal."""
    before = operated.state
    status, told = operated.run(*ADOPT, *words)
    assert (status, told.count("\n"), operated.state) == (1, 1, before), told
    return told


def is_moved(operated: OperatedSaga, owner: str) -> None:
    record = operated.record
    assert (record.execution_arn, record.recovery_machine_arn) == (execution_of(NEW, SAGA_ID), NEW_RECOVERY)
    assert (record.owner, record.parked_by) == (owner, None)
    assert operated.world.executions.by_name[owner].machine == NEW_RECOVERY
    assert operated.world.executions.by_name[owner].input == record.input


# What it does.


def test_a_parked_saga_continues_on_the_other_machine(operated: OperatedSaga) -> None:
    operated.park()

    assert operated.run(*ADOPT) == (0, f"saga {SAGA_ID} is on {NEW_RECOVERY}: started {R1}\n")

    is_moved(operated, R1)
    assert not {A.PARKED_BY, A.PARKED_AT, A.PARKED_REASON} & set(operated.world.items("requests")[0])


def died(operated: OperatedSaga) -> None:
    operated.world.executions.end(SAGA_ID, ExecutionStatus.FAILED)


def forgotten(operated: OperatedSaga) -> None:
    operated.world.executions.forget(SAGA_ID)


def is_being_deleted(operated: OperatedSaga) -> None:
    died(operated)
    operated.deleted.clear()
    operated.deleting |= {MACHINE_ARN}


def lost_its_recovery_machine(operated: OperatedSaga) -> None:
    died(operated)
    operated.deleted.remove(MACHINE_ARN)


@pytest.mark.parametrize("happens", [died, forgotten, is_being_deleted, lost_its_recovery_machine])
def test_an_interrupted_saga_continues_on_the_other_machine(
    operated: OperatedSaga, happens: Callable[[OperatedSaga], None]
) -> None:
    happens(operated)

    assert operated.run(*ADOPT)[0] == 0

    is_moved(operated, R1)


def test_of_a_settled_saga_nothing_but_its_machines_changes(operated: OperatedSaga) -> None:
    settle: Any = settling.settle(
        request_id=REQUEST_ID, execution=SAGA_ID, status=RecordStatus.FAILED, now_ms=operated.now
    )
    aws.dynamodb().update_item(**settle)
    (before,) = operated.world.items("requests")

    assert operated.run(*ADOPT) == (0, f"saga {SAGA_ID} is on {NEW_RECOVERY}\n")

    moved = {A.EXECUTION_ARN: {"S": execution_of(NEW, SAGA_ID)}, A.RECOVERY_MACHINE_ARN: {"S": NEW_RECOVERY}}
    (after,) = operated.world.items("requests")
    (decided,) = Decision.all_of(after)
    assert (decided.what, decided.why, decided.parked_reason) == (f"moved to {NEW_RECOVERY}", WHY, None)
    assert {name: value for name, value in after.items() if name != A.DECISIONS} == before | moved
    assert set(operated.world.executions.by_name) == {SAGA_ID}


def test_the_gatekeeper_starts_no_saga_that_was_moved(operated: OperatedSaga) -> None:
    """A retry finds the name free on the new machine; the saga's owner is another one."""
    forgotten(operated)

    assert operated.run(*ADOPT)[0] == 0

    assert operated.record.owner != SAGA_ID
    assert set(operated.world.executions.by_name) == {R1}


# Repeated, interrupted, at once.

WAYS = ((Action.KILL, Moment.BEFORE), (Action.KILL, Moment.AFTER), (Action.DROP, Moment.AFTER))


@pytest.mark.exhaustive
@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize(("action", "moment"), WAYS)
@pytest.mark.parametrize("operation", ["DescribeStateMachine", "GetItem", "UpdateItem", "StartExecution"])
def test_a_move_that_dies_at_any_call_is_finished_by_a_retry(
    operated: OperatedSaga, parked: bool, operation: str, action: Action, moment: Moment
) -> None:
    operated.park() if parked else died(operated)
    operated.world.wire.plan(Fault(operation=operation, action=action, moment=moment, times=1))

    with contextlib.suppress(Killed):
        operated.run(*ADOPT)
    assert operated.world.wire.fired
    operated.world.wire.forget()
    assert operated.run(*ADOPT)[0] == 0

    is_moved(operated, R1)
    assert set(operated.world.executions.by_name) == {SAGA_ID, R1}


def test_two_operators_at_once_start_one_recovery(operated: OperatedSaga) -> None:
    operated.park()
    before(operated.world.wire, "UpdateItem", lambda: operated.run(*ADOPT))

    assert operated.run(*ADOPT)[0] == 0

    is_moved(operated, R1)
    assert set(operated.world.executions.by_name) == {SAGA_ID, R1}


def target() -> Target:
    return Target(forward=NEW, recovery=NEW_RECOVERY, log="log", log_days=LOG_DAYS)


def settled_meanwhile(operated: OperatedSaga) -> None:
    settle: Any = settling.settle(
        request_id=REQUEST_ID, execution=SAGA_ID, status=RecordStatus.FAILED, now_ms=operated.now
    )
    aws.dynamodb().update_item(**settle)


def changed(name: str, value: str) -> Callable[[OperatedSaga], None]:
    def change(operated: OperatedSaga) -> None:
        aws.dynamodb().update_item(
            TableName="requests",
            Key={A.ID: {"S": REQUEST_ID}},
            UpdateExpression="SET #name = :value",
            ExpressionAttributeNames={"#name": name},
            ExpressionAttributeValues={":value": {"S": value}},
        )

    return change


@pytest.mark.parametrize(
    "happens",
    [
        settled_meanwhile,
        lambda operated: operated.park(),
        changed(A.OWNER, R1),
        changed(A.SAGA_ID, "another"),
        changed(A.EXECUTION_ARN, execution_of(f"{MACHINE_ARN}Third", SAGA_ID)),
        changed(A.RECOVERY_MACHINE_ARN, f"{MACHINE_ARN}Third"),
    ],
    ids=["settled", "parked", "taken over", "another saga", "moved", "moved otherwise"],
)
def test_a_saga_that_changed_since_it_was_read_is_not_moved(
    operated: OperatedSaga, happens: Callable[[OperatedSaga], None]
) -> None:
    update: Any = adopt_update(operated.record, target(), 1, operated.now, 60_000)
    happens(operated)
    state = operated.state

    with pytest.raises(aws.dynamodb().exceptions.ConditionalCheckFailedException):
        aws.dynamodb().update_item(TableName="requests", **update)

    assert operated.state == state


def test_a_saga_that_is_not_parked_any_more_is_not_moved_as_one_that_is(operated: OperatedSaga) -> None:
    operated.park()
    update: Any = adopt_update(operated.record, target(), 1, operated.now, 60_000)
    aws.dynamodb().update_item(TableName="requests", Key={A.ID: {"S": REQUEST_ID}}, UpdateExpression="REMOVE parked_by")

    with pytest.raises(aws.dynamodb().exceptions.ConditionalCheckFailedException):
        aws.dynamodb().update_item(TableName="requests", **update)


# What it refuses.


def test_a_saga_with_existing_machines_is_not_moved(operated: OperatedSaga) -> None:
    operated.park()
    operated.deleted.clear()

    assert "must be gone, got both of them; use cdk-sagas recover or resolve" in refused(operated)


def test_a_log_without_the_sagas_rows_is_refused(operated: OperatedSaga) -> None:
    operated.park()
    aws.dynamodb().delete_item(TableName="log", Key={"saga_id": {"S": SAGA_ID}, "step": {"S": "Charge"}})

    assert f"log log must have rows of saga {SAGA_ID}, got none" in refused(operated)
    assert "must be that of saga" in refused(operated, "--log-table", "OldLog")
    assert operated.run(*ADOPT, "--log-table", "log")[0] == 0
    is_moved(operated, R1)


def test_another_log_than_the_one_that_the_machine_that_is_left_names_is_refused(operated: OperatedSaga) -> None:
    died(operated)
    operated.deleted.remove(MACHINE_ARN)
    operated.definitions[MACHINE_ARN] = '{"TableName": "OldLog"}'

    assert "must be that of saga" in refused(operated)
    assert "must be that of saga" in refused(operated, "--log-table", "log")


def test_a_saga_that_runs_is_not_moved(operated: OperatedSaga) -> None:
    assert "must have ended without settling it, got RUNNING" in refused(operated)


def test_a_saga_with_a_succeeded_owner_is_not_moved(operated: OperatedSaga) -> None:
    operated.world.executions.end(SAGA_ID, ExecutionStatus.SUCCEEDED)

    assert "must have ended without settling it, got SUCCEEDED" in refused(operated)


@pytest.mark.parametrize("parked", [False, True])
def test_a_saga_with_a_possibly_expired_log_is_not_moved(operated: OperatedSaga, parked: bool) -> None:
    operated.park() if parked else died(operated)
    operated.shop.passes(LOG_DAYS * DAY_MS)

    assert "its steps could happen twice" in refused(operated)


def another(operated: OperatedSaga) -> dict[str, Any]:
    """Another saga of the same stack and request table."""
    sagas: list[dict[str, Any]] = operated.manifests["Shop"]["sagas"]
    sagas.append(saga_entry(path="Shop/Refunds", arn=f"{NEW}2", recovery=f"{NEW_RECOVERY}2", log="other"))
    return sagas[-1]


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (lambda operated: operated.deleted.add(NEW), "must exist, got none; deploy its stack again"),
        (lambda operated: operated.deleting.add(NEW_RECOVERY), "must exist, got none; deploy its stack again"),
        (another, "must have one saga of table requests, got Shop/Transfers, Shop/Refunds; choose one with --to"),
    ],
)
def test_a_target_that_cannot_take_the_saga_is_refused(
    operated: OperatedSaga, happens: Callable[[OperatedSaga], None], why: str
) -> None:
    operated.park()
    happens(operated)

    assert why in refused(operated)


def test_one_of_several_sagas_is_chosen(operated: OperatedSaga) -> None:
    operated.park()
    another(operated)

    assert "must have one saga fers of table requests, got none" in refused(operated, "--to", "fers")
    assert "was not moved" in refused(operated, "--to", "Refunds")
    assert operated.run(*ADOPT, "--to", "Shop/Transfers")[0] == 0
    is_moved(operated, R1)


# What others do about a machine that is gone.


def test_a_parked_saga_of_a_deleted_machine_stays_parked_with_its_reason(operated: OperatedSaga) -> None:
    operated.park()

    told = operated.is_refused("--resume", "--log-table", "log")

    assert f"state machine {RECOVERY_MACHINE_ARN} must exist to start the saga, got none" in told
    assert "cdk-sagas adopt" in told
    assert A.PARKED_REASON in operated.world.items("requests")[0]


def test_an_interrupted_saga_of_a_deleted_machine_is_unchanged(operated: OperatedSaga) -> None:
    died(operated)
    state = operated.state

    status, told = operated.run("recover", "--log-table", "log")

    assert (status, operated.state) == (1, state)
    assert "must exist to start the saga, got none; move the saga to another one with cdk-sagas adopt" in told


def test_without_its_log_a_saga_of_a_deleted_machine_is_reported(operated: OperatedSaga) -> None:
    for command in ("inspect", "recover"):
        status, told = operated.run(command)
        assert (status, told.count("\n")) == (1, 1)
        assert "move the saga to another one with cdk-sagas adopt" in told


def test_the_row_of_the_saga_is_left_alone(operated: OperatedSaga) -> None:
    operated.park()
    rows = operated.world.items("log")

    operated.run(*ADOPT)

    assert operated.world.items("log") == rows
    assert operated.shop.status == StepStatus.DONE


def kept_for(operated: OperatedSaga, step: str, days: int) -> None:
    """Write a row now, as the former machines do, which keep it for so many days."""
    now_ms = operated.world.clock.ms
    put = row_put("log", SAGA_ID, step, StepStatus.DONE, Side.BEFORE, now_ms, days, f"{SAGA_ID}:{step}", {})
    aws.dynamodb().put_item(TableName="log", Item=put["Put"]["Item"])


@pytest.mark.parametrize(("day", "status"), [(99, 0), (100, 1)])
def test_saga_is_moved_while_rows_of_its_former_machines_are_kept(
    operated: OperatedSaga, day: int, status: int
) -> None:
    """Those kept them for 100 days, the others for 400, and no reconciler extends rows of a saga of neither."""
    operated.park()
    kept_for(operated, "Charge", 100)
    pass_days(operated.world, 30)
    kept_for(operated, "Announce", 100)
    pass_days(operated.world, day - 30)

    exit_status, told = operated.run(*ADOPT)

    assert exit_status == status, told
    assert (operated.record.parked_by is None) is (status == 0)
    kept_until = operated.record.created_at // 1_000 + 100 * 86_400
    assert operated.record.log_expires_at == (kept_until if status == 0 else None)


@pytest.mark.parametrize(("day", "status"), [(29, 0), (30, 1)])
def test_saga_without_a_row_is_moved_for_the_shortest_retention(operated: OperatedSaga, day: int, status: int) -> None:
    operated.park()
    for item in operated.world.items("log"):
        aws.dynamodb().delete_item(TableName="log", Key={"saga_id": item["saga_id"], "step": item["step"]})
    pass_days(operated.world, day)

    exit_status, told = operated.run(*ADOPT, "--log-table", "log")

    assert exit_status == status, told
