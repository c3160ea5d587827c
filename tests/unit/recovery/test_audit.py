"""Every decision of an operator is kept with its saga: who, when, what, why; it is written with what it decides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import boto3
import pytest

from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import RecordAttribute
from saga_runtime.recovery.resolution import CannotResolve, Statement
from saga_runtime.shared import aws
from saga_runtime.shared.decisions import Audit, Decision
from tests.unit.support.gateway import STEP
from tests.unit.support.operated_saga import WHY, OperatedSaga, operated_saga_in
from tests.unit.support.samples import REQUEST_ID, SAGA_ID
from tests.unit.support.wire import Action, Fault, Killed, Moment, before
from tests.unit.support.world import World

AUDIT_MODULE = import_module("saga_runtime.recovery.audit")


@pytest.fixture
def operated(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[OperatedSaga]:
    """A parked saga with a step in doubt, and its operator."""
    with operated_saga_in(world, monkeypatch, boto3_session) as made:
        made.cut_off()
        made.park()
        made.shop.pass_every_deadline()
        yield made


def decisions(operated: OperatedSaga) -> list[Decision]:
    (item,) = operated.world.items("requests")
    return Decision.all_of(item)


def test_an_answer_and_a_resumption_are_kept_in_order(operated: OperatedSaga) -> None:
    operated.resolves(STEP, "--applied")

    answered, resumed = decisions(operated)
    assert (answered.what, resumed.what) == ("Charge: applied", "resumed")
    assert {one.why for one in (answered, resumed)} == {WHY}
    assert {one.who.partition(":iam::")[0] for one in (answered, resumed)} == {"arn:aws:sts::123456789012:user/moto"}
    assert answered.at_ms == operated.now
    told = operated.run("inspect")[1]
    assert "decisions of operators" in told
    assert f"why: {WHY}" in told
    assert [one["what"] for one in json.loads(operated.run("inspect", "--json")[1])["decisions"]] == [
        "Charge: applied",
        "resumed",
    ]


def test_a_repeated_command_adds_no_entry(operated: OperatedSaga) -> None:
    operated.resolves(STEP, "--applied")
    before = decisions(operated)

    operated.resolves(STEP, "--applied", "--reason", "once more")

    assert decisions(operated) == before


def test_an_answer_without_its_entry_is_not_written(operated: OperatedSaga) -> None:
    before = operated.state
    operated.world.wire.plan(Fault(operation="TransactWriteItems", action=Action.KILL))

    with pytest.raises(Killed):
        operated.run("resolve", STEP, "--applied")

    assert operated.state == before


def test_an_answer_about_a_saga_whose_key_is_anothers_is_refused(operated: OperatedSaga) -> None:
    record = operated.record
    change: Any = {"UpdateExpression": "SET saga_id = :other", "ExpressionAttributeValues": {":other": {"S": "other"}}}
    aws.dynamodb().update_item(TableName="requests", Key={RecordAttribute.ID: {"S": REQUEST_ID}}, **change)
    before = operated.state

    with pytest.raises(CannotResolve, match="is another request's by now"):
        operated.resolver.resolve(record, STEP, operated.charge, Statement(applied=True), operated.now)

    assert operated.state == before


@pytest.mark.parametrize("reason", ["", "  ", "x" * 1_001])
def test_a_reason_must_be_one(operated: OperatedSaga, reason: str) -> None:
    refused = operated.is_refused(STEP, "--applied", "--reason", reason)

    assert "--reason: a reason must be 1 to 1000 characters that are not all blank, got" in refused


def test_without_a_reason_nothing_is_decided(operated: OperatedSaga, capsys: pytest.CaptureFixture[str]) -> None:
    from constructs_lib.cli.main import main

    with pytest.raises(SystemExit) as ended:
        main(["resolve", operated.record.saga_id, "--resume", "--stack", "Shop"])

    assert ended.value.code == 2
    assert "--reason" in capsys.readouterr().err


def test_a_takeover_is_kept_with_it(operated: OperatedSaga) -> None:
    aws.dynamodb().update_item(**interrupted())

    assert operated.run("recover", "--reason", "the region works again")[0] == 0

    (taken,) = decisions(operated)
    assert (taken.what, taken.why) == ("taken over", "the region works again")
    assert operated.record.recoveries == 1


def test_a_start_is_kept_before_it(operated: OperatedSaga) -> None:
    aws.dynamodb().update_item(**interrupted())
    operated.world.executions.forget(SAGA_ID)
    operated.world.wire.plan(Fault(operation="StartExecution", action=Action.KILL, times=1))

    with pytest.raises(Killed):
        operated.run("recover")
    assert [one.what for one in decisions(operated)] == [f"started {SAGA_ID}"]
    assert operated.run("recover")[0] == 0

    assert [one.what for one in decisions(operated)] == [f"started {SAGA_ID}"] * 2
    assert SAGA_ID in operated.world.executions.by_name


def test_what_no_record_keeps_is_not_started(operated: OperatedSaga) -> None:
    aws.dynamodb().update_item(**interrupted())
    operated.world.executions.forget(SAGA_ID)
    before(operated.world.wire, "UpdateItem", lambda: operated.run("recover"))

    status, told = operated.run("recover", "--reason", "mine")

    assert (status, "changed meanwhile; repeat this" in told) == (1, True), told
    assert [one.why for one in decisions(operated)] == [WHY]


def test_an_answer_that_is_lost_keeps_one_entry(operated: OperatedSaga) -> None:
    aws.dynamodb().update_item(**interrupted())
    operated.world.executions.forget(SAGA_ID)
    operated.world.wire.plan(Fault(operation="UpdateItem", action=Action.DROP, moment=Moment.AFTER, on=1, times=1))

    operated.run("recover")

    assert len(decisions(operated)) == 1


def test_a_full_list_takes_no_more(operated: OperatedSaga, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AUDIT_MODULE, "MOST_BYTES", 1)
    full, state = f"the decisions about saga {SAGA_ID} must have at most 1 bytes, got 2;", operated.state

    for words in (("resolve", STEP, "--applied"), ("resolve", "--resume")):
        assert full in operated.run(*words)[1]
    assert operated.state == state
    aws.dynamodb().update_item(**interrupted())
    assert full in operated.run("recover")[1]
    assert operated.state[1:] == state[1:]


def interrupted() -> dict[str, Any]:
    """Arguments of the update by which the saga is not parked: its owner died."""
    change = "REMOVE parked_by, parked_at, parked_reason"
    return {"TableName": "requests", "Key": {RecordAttribute.ID: {"S": REQUEST_ID}}, "UpdateExpression": change}


def test_an_author_must_have_a_name() -> None:
    with pytest.raises(ValueError, match="who must name the caller"):
        Audit(who=" ", why=WHY)


def test_decisions_are_measured_as_they_are_stored(operated: OperatedSaga) -> None:
    """A reason in another script takes no more room than its bytes."""
    operated.run("resolve", STEP, "--applied", "--reason", "\N{CLINKING GLASSES}" * 100)

    (item,) = operated.world.items("requests")
    assert 2 * 400 < RequestRecord.from_item(item).decisions_size < 2 * 1_000
