"""Operators ask a deployed function, in their own name; where two are required, one proposes and another confirms."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ClientError, ReadTimeoutError

from constructs_lib.cli.shared import saga as of_one_saga
from handlers import operators as entry
from saga_runtime.idempotency.record import remove_response_update
from saga_runtime.protocol import Direction, Env, ProposalField, RecordAttribute, RecordStatus, SecondPerson
from saga_runtime.recovery import proposals as proposals_module
from saga_runtime.recovery.callers import caller_of, hash_of
from saga_runtime.recovery.hold import hold_key
from saga_runtime.recovery.operators import Operators
from saga_runtime.recovery.proposals import Caller, Proposal
from saga_runtime.recovery.repairs import Repair
from saga_runtime.recovery.resolution import CannotResolve
from saga_runtime.shared import aws
from saga_runtime.shared.clock import moment
from saga_runtime.shared.decisions import Decision
from tests.unit.support import settling
from tests.unit.support.asked_function import (
    ANN,
    BEN,
    EVE,
    FEDERATED,
    OPERATORS,
    AskedFunction,
    asked_function,
)
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.gateway import STEP
from tests.unit.support.operated_saga import LOG_DAYS, WHY, OperatedSaga, operated_saga_in
from tests.unit.support.samples import DAY_MS, NOW_MS, REQUEST_ID, SAGA_ID
from tests.unit.support.wire import Action, Fault, Killed, Moment, before
from tests.unit.support.world import FUNCTION, Context, World

R1 = f"{SAGA_ID}-r1"
APPLIED = ("resolve", STEP, "--applied", "--output", '{"payment": "p"}')
UNDONE = ("resolve", STEP, "--compensation", "--applied")
CONFIRM = ("confirm", "--proposal", "1", "--reason", "I asked, too", "--yes")
ROLE, SESSION = SecondPerson.OTHER_ROLE, SecondPerson.OTHER_SESSION
WRITES = ("TransactWriteItems", "UpdateItem", "StartExecution")


@pytest.fixture
def operated(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[OperatedSaga]:
    """A parked saga with a step in doubt."""
    with operated_saga_in(world, monkeypatch, boto3_session) as made:
        made.cut_off()
        made.park()
        made.shop.pass_every_deadline()
        yield made


@pytest.fixture
def alone(operated: OperatedSaga, monkeypatch: pytest.MonkeyPatch) -> AskedFunction:
    """A function that executes what one operator decides."""
    return asked_function(operated, monkeypatch, None)


@pytest.fixture
def asked(operated: OperatedSaga, monkeypatch: pytest.MonkeyPatch) -> AskedFunction:
    """A function that requires a second person of another role."""
    return asked_function(operated, monkeypatch, ROLE)


def item_of(asked: AskedFunction) -> dict[str, Any]:
    (item,) = asked.operated.world.items("requests")
    return item


def decisions(asked: AskedFunction) -> list[tuple[str, str, int | None, str | None]]:
    return [(one.what, one.who, one.proposal, one.proposed_by) for one in Decision.all_of(item_of(asked))]


def is_carried_out(asked: AskedFunction, confirmed_by: tuple[str, str] = EVE) -> None:
    """The step is done by one decision of two, and one recovery has the saga."""
    said = f"proposed 1: {STEP}: applied"
    assert decisions(asked) == [
        (said, ANN[0], None, None),
        (f"{STEP}: applied", confirmed_by[0], 1, ANN[0]),
        ("resumed", confirmed_by[0], 1, ANN[0]),
    ]
    assert asked.operated.shop.status == "DONE"
    assert asked.operated.owner == (R1, False)
    assert R1 in asked.operated.world.executions.by_name


def refused(asked: AskedFunction, caller: tuple[str, str], *words: str) -> str:
    """Run a command that is refused in one line, after what it shows, and changes nothing."""
    state = asked.operated.state
    status, told = asked.by(caller, *words)
    lines = 4 if told.startswith("proposal ") else 1
    assert (status, told.count("\n"), asked.operated.state) == (1, lines, state), told
    return told


# --- One operator


def test_function_does_what_its_caller_decides(alone: AskedFunction) -> None:
    status, told = alone.by(BEN, *APPLIED)

    assert (status, told) == (0, f"{STEP} happened: its row is DONE\nsaga {SAGA_ID} resumes: started by {R1}\n")
    assert decisions(alone) == [(f"{STEP}: applied", BEN[0], None, None), ("resumed", BEN[0], None, None)]
    assert alone.signed == alone.hashes


def test_function_cancels_in_its_callers_name(
    world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session
) -> None:
    with operated_saga_in(world, monkeypatch, boto3_session) as running:
        function = asked_function(running, monkeypatch, None)

        status, told = function.by(BEN, "cancel")

        assert (status, told.startswith(f"saga {SAGA_ID} is cancelled; ")) == (0, True), told
        assert decisions(function) == [("cancelled", BEN[0], None, None)]


def test_saga_of_another_function_is_decided_with_the_callers_rights(
    alone: AskedFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDK_SAGAS_RECONCILED", "[]")
    monkeypatch.setenv("CDK_SAGAS_OPERATED", "[]")

    assert alone.by(EVE, *APPLIED)[0] == 0

    assert alone.operated.owner == (R1, False)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (
            "AccessDeniedException",
            f"must have saga {SAGA_ID}, got none that its OperatorAccess knows; check the id, and",
        ),
        ("ResourceNotFoundException", "ResourceNotFoundException: no"),
    ],
)
@pytest.mark.parametrize("words", [APPLIED, ("cancel",)])
def test_saga_that_the_function_does_not_know_is_reported_although_tables_may_not_be_read(
    alone: AskedFunction, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: str, told: str
) -> None:
    monkeypatch.setenv("CDK_SAGAS_RECONCILED", "[]")
    monkeypatch.setenv("CDK_SAGAS_OPERATED", "[]")

    def denied(*_: object) -> NoReturn:
        raise ClientError({"Error": {"Code": code, "Message": "no"}}, "GetItem")

    monkeypatch.setattr(of_one_saga, "find_in", denied)

    assert told in refused(alone, EVE, *words)


def test_failure_of_the_function_is_one_line(alone: AskedFunction) -> None:
    alone.fails = True

    assert "failed: Boom: no; what it did is unknown: run cdk-sagas inspect" in refused(alone, EVE, *APPLIED)


def test_confirmation_without_a_second_person_is_refused(alone: AskedFunction) -> None:
    assert "requires no second operator" in refused(alone, EVE, *CONFIRM)


def test_confirmation_without_a_function_is_refused(alone: AskedFunction) -> None:
    del alone.operated.manifests["Shop"]["operators"]

    assert "must have an OperatorAccess" in refused(alone, EVE, *CONFIRM)
    assert "leave --log-table out" in refused(alone, EVE, *CONFIRM, "--log-table", "log")


# --- Who calls

SCOPE = "AKIAAAAAAAAAAAAAAAAA/20260101/eu-west-1/sts/aws4_request"
STRANGERS = (
    ("arn:aws:iam::999999999999:user/eve", "AIDASTRANGER"),
    ("arn:aws:iam::123456789012:user/ops/eve", "AIDAOTHER"),
    ("arn:aws:sts::999999999999:assumed-role/Operator/ann", "AROASTRANGER:ann"),
    ("arn:aws:sts::123456789012:assumed-role/Operators/ann", "AROAOTHER:ann"),
    ("arn:aws-cn:sts::123456789012:assumed-role/Operator/ann", "AROACHINA:ann"),
    ("arn:aws:iam::123456789012:root", "123456789012"),
    FEDERATED,
)


@pytest.mark.parametrize("stranger", STRANGERS, ids=lambda one: one[0])
def test_principal_that_is_not_an_operator_is_refused(asked: AskedFunction, stranger: tuple[str, str]) -> None:
    for words in (APPLIED, ("resolve", "--resume"), ("cancel",)):
        assert "must be an operator of this function" in refused(asked, stranger, *words)
    asked.by(ANN, *APPLIED)

    assert "must be an operator of this function" in refused(asked, stranger, *CONFIRM)
    answer = Operators.from_env().answer(request(repair=Repair.RECONCILE), Caller(arn=stranger[0], user_id=stranger[1]))
    assert list(answer) == ["refused"]


def test_proof_is_of_the_unqualified_function(alone: AskedFunction) -> None:
    alone.by(EVE, "resolve", STEP, "--not-applied")
    event = alone.asked[-1]

    entry.handler(event, Context(invoked_function_arn=f"{FUNCTION}:live"))

    assert alone.signed[-1] == alone.hashes[-1] == hash_of(FUNCTION, event["request"])


def test_request_that_is_not_ascii_is_refused() -> None:
    assert "ASCII" in entry.handler({"request": "\ud800"}, Context())["refused"]


@pytest.mark.parametrize(
    "proof",
    [
        None,
        {},
        {"authorization": "x", "x-amz-date": "20260101T000000Z"},
        {"authorization": "AWS4-HMAC-SHA256 Credential=A/b, SignedHeaders=host;x-amz-date, Signature=" + "0" * 64},
        {
            "authorization": f"AWS4-HMAC-SHA256 Credential={SCOPE},SignedHeaders=host,Signature={'0' * 64}, "
            f"SignedHeaders=host;x-amz-date;x-cdk-sagas-request, Signature={'1' * 64}",
            "x-amz-date": "20260101T000000Z",
        },
    ],
)
def test_proof_that_does_not_cover_the_request_is_refused(alone: AskedFunction, proof: object) -> None:
    with pytest.raises(CannotResolve, match="must prove its identity"):
        caller_of(proof, "F", "{}")

    assert alone.signed == []


def test_proof_is_of_one_request_to_one_function(alone: AskedFunction) -> None:
    alone.by(EVE, *APPLIED)
    event = alone.asked[-1]
    alone.signed.clear()

    caller_of(event["proof"], "F", event["request"])
    caller_of(event["proof"], "F", event["request"] + " ")

    # What is sent to AWS, which compares it with the signature, is never what the caller claims.
    assert len({*alone.signed, *alone.hashes[-1:]}) == 3


def test_proof_that_aws_refuses_is_refused(alone: AskedFunction) -> None:
    alone.refusal = "SignatureDoesNotMatch"

    assert "must prove its identity, got SignatureDoesNotMatch" in refused(alone, EVE, *APPLIED)


# --- What was seen


@pytest.mark.parametrize(("words", "row"), [(APPLIED, "DONE"), (("resolve", "--resume"), "INTENT")])
def test_request_that_comes_again_does_not_resume_another_parking(
    alone: AskedFunction, words: tuple[str, ...], row: str
) -> None:
    alone.by(ANN, *words)
    event = alone.asked[-1]
    alone.operated.park(direction=None, owner=R1)
    state = alone.operated.state

    answer = entry.handler(event, Context())

    assert ("must be as it was seen" in answer["refused"], alone.operated.state) == (True, state)
    assert alone.operated.shop.status == row


def test_request_that_comes_late_does_not_decide_about_another_attempt(asked: AskedFunction) -> None:
    for second in (None, ROLE):
        asked.require(second)
        seen = Operators.from_env().answer(request(do="show", step=STEP), CALLER)["shown"]
        called_again(asked.operated)
        state = asked.operated.state

        answer = Operators.from_env().answer(resolution(seen=seen | {"attempt": "earlier"}), CALLER)
        rowless = Operators.from_env().answer(resolution(seen=seen | {"attempt": None}), CALLER)

        assert "you saw attempt earlier" in answer["refused"]
        assert "has a row by now, and you saw none" in rowless["refused"]
        assert asked.operated.state == state


def test_saga_that_is_parked_again_by_its_owner_is_decided_about_again(alone: AskedFunction) -> None:
    seen = Operators.from_env().answer(request(do="show"), CALLER)["shown"]
    (item,) = alone.operated.world.items("requests")
    aws.dynamodb().put_item(TableName="requests", Item={**item, "parked_at": {"N": str(alone.operated.now + 1)}})

    asks = json.dumps({"do": "resolve", "saga": SAGA_ID, "reason": "y", "resume": True, "seen": seen})

    assert "must be as it was seen" in Operators.from_env().answer(asks, CALLER)["refused"]


def test_request_whose_answer_is_lost_is_sent_once(alone: AskedFunction) -> None:
    answers = alone.invoked

    def lost(sent: AWSPreparedRequest) -> AWSResponse:
        answer = answers(sent)
        if "resolve" in alone.asked[-1]["request"]:
            raise ReadTimeoutError(endpoint_url="lambda")
        return answer

    alone.monkeypatch.setattr(alone, "invoked", lost)

    status, told = alone.by(ANN, "resolve", "--resume")

    assert (status, "was lost" in told, "what it did is unknown: run cdk-sagas inspect" in told) == (1, True, True), (
        told
    )
    assert (len(alone.asked), decisions(alone)) == (2, [("resumed", ANN[0], None, None)])


# --- Two operators


def test_proposal_changes_nothing_but_the_record_and_is_shown(asked: AskedFunction) -> None:
    row = asked.operated.world.items("log")

    status, told = asked.by(ANN, *APPLIED)

    assert status == 0
    assert f'proposed as 1: {STEP}: applied, output {{"payment":"p"}}\n' in told
    assert f"cdk-sagas confirm {SAGA_ID} --proposal 1 --reason WHY --stack Shop" in told
    assert (asked.operated.world.items("log"), asked.operated.owner) == (row, (SAGA_ID, True))
    shown = asked.operated.run("inspect")[1]
    assert "  1  open until" in shown
    assert f"cdk-sagas confirm {SAGA_ID} --proposal 1" in shown
    (view,) = json.loads(asked.operated.run("inspect", "--json")[1])["proposals"]
    assert (view["state"], view["who"], view["why"]) == ("open", ANN[0], WHY)


def test_another_operator_executes_what_was_proposed(asked: AskedFunction) -> None:
    asked.by(ANN, *APPLIED)

    status, told = asked.by(EVE, *CONFIRM)

    assert (status, f"saga {SAGA_ID} resumes: started by {R1}" in told) == (0, True), told
    is_carried_out(asked)
    assert json.loads(asked.operated.run("inspect", "--json")[1])["proposals"][0]["state"] == "confirmed"
    assert f"as {ANN[0]} proposed (1)" in asked.operated.run("inspect")[1]
    assert Decision.all_of(item_of(asked))[1].why == "I asked, too"


@pytest.mark.parametrize(("second", "caller"), [(ROLE, ANN), (ROLE, BEN), (SESSION, ANN)])
def test_the_proposers_principal_is_refused(
    asked: AskedFunction, second: SecondPerson, caller: tuple[str, str]
) -> None:
    asked.require(second)
    asked.by(ANN, *APPLIED)

    assert "must be confirmed by another" in refused(asked, caller, *CONFIRM)


def test_another_session_confirms_where_sessions_are_named_by_others(asked: AskedFunction) -> None:
    asked.require(SESSION)
    asked.by(ANN, *APPLIED)

    assert asked.by(BEN, *CONFIRM)[0] == 0

    is_carried_out(asked, BEN)


def test_a_person_with_two_roles_is_one_person(asked: AskedFunction) -> None:
    asked.require(SESSION)
    asked.by(ANN, *APPLIED)
    asked.monkeypatch.setenv(Env.OPERATORS, f"{OPERATORS} arn:aws:iam::123456789012:role/Admin")

    other = ("arn:aws:sts::123456789012:assumed-role/Admin/ann", "AROAADMIN:ann")

    assert "must be confirmed by another" in refused(asked, other, *CONFIRM)


def test_federated_users_neither_propose_nor_confirm(asked: AskedFunction) -> None:
    asked.monkeypatch.setenv(Env.OPERATORS, f"{OPERATORS} {FEDERATED[0]}")
    assert "must be an IAM user or a role" in refused(asked, FEDERATED, *APPLIED)
    asked.by(ANN, *APPLIED)
    assert "must be an IAM user or a role" in refused(asked, FEDERATED, *CONFIRM)


def test_expired_proposal_is_refused(asked: AskedFunction) -> None:
    asked.by(ANN, *APPLIED)
    asked.operated.world.clock.ms += DAY_MS

    assert "proposal 1 expired" in refused(asked, EVE, *CONFIRM)
    assert asked.by(ANN, *APPLIED)[1].startswith("proposed as 2:")


@pytest.mark.parametrize("number", ["0", "2", "-1"])
def test_unknown_proposal_is_refused(asked: AskedFunction, number: str) -> None:
    asked.by(ANN, *APPLIED)

    told = refused(asked, EVE, "confirm", f"--proposal={number}", "--reason", "x", "--yes")

    assert "proposal must be one of saga" in told


def resumed_and_parked_again(operated: OperatedSaga) -> None:
    """An outcome resumed it, and its recovery parked it."""
    (item,) = operated.world.items("requests")
    aws.dynamodb().put_item(
        TableName="requests", Item={**item, "owner": {"S": R1}, "parked_by": {"S": R1}, "recoveries": {"N": "1"}}
    )
    operated.world.executions.start(R1, operated.record.input)
    operated.world.executions.end(R1, ExecutionStatus.FAILED)


def unparked(operated: OperatedSaga) -> None:
    (item,) = operated.world.items("requests")
    aws.dynamodb().put_item(
        TableName="requests", Item={name: value for name, value in item.items() if name != "parked_by"}
    )


def settled(operated: OperatedSaga) -> None:
    update: Any = settling.settle(
        request_id=REQUEST_ID, execution=operated.record.owner, status=RecordStatus.FAILED, now_ms=operated.now
    )
    aws.dynamodb().update_item(**update)


def of_another_saga(operated: OperatedSaga) -> None:
    (item,) = operated.world.items("requests")
    aws.dynamodb().put_item(TableName="requests", Item={**item, "saga_id": {"S": f"{SAGA_ID[:-1]}z"}})


def called_again(operated: OperatedSaga) -> None:
    """Another attempt has the row."""
    (item,) = operated.world.items("log")
    aws.dynamodb().put_item(TableName="log", Item={**item, "attempt_id": {"S": "another"}})


CHANGES = (resumed_and_parked_again, unparked, settled, of_another_saga, called_again)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("late", [False, True], ids=["before it is read", "after it was read"])
def test_proposal_about_what_has_changed_is_refused(
    asked: AskedFunction, change: Callable[[OperatedSaga], None], late: bool
) -> None:
    asked.by(ANN, *APPLIED)
    row = asked.operated.shop.status
    if late:
        before(asked.operated.world.wire, "TransactWriteItems", lambda: change(asked.operated))
    else:
        change(asked.operated)

    status, told = asked.by(EVE, *CONFIRM)

    assert status == 1, told
    assert (asked.operated.shop.status, len(decisions(asked))) == (row, 1)


def test_row_that_appeared_since_a_proposal_about_none_is_refused(asked: AskedFunction) -> None:
    step = ("resolve", "Announce", "--applied", "--output", "{}")
    assert asked.by(ANN, *step)[0] == 0
    (item,) = asked.operated.world.items("log")
    new = {**item, "step": {"S": "Announce"}}
    before(asked.operated.world.wire, "TransactWriteItems", lambda: aws.dynamodb().put_item(TableName="log", Item=new))

    status, told = asked.by(EVE, *CONFIRM)

    assert (status, "changed since proposal 1" in told) == (1, True), told


@pytest.mark.parametrize("operation", WRITES)
@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_confirmation_that_died_is_repeated(asked: AskedFunction, operation: str, moment: Moment) -> None:
    asked.by(ANN, *APPLIED)
    asked.operated.world.wire.plan(Fault(operation=operation, action=Action.KILL, moment=moment, times=1))
    with contextlib.suppress(Killed):
        asked.by(EVE, *CONFIRM)
    asked.operated.world.clock.ms += DAY_MS if decisions(asked)[1:] else 0

    status, told = asked.by(EVE, *CONFIRM)

    assert (status, "proposal 1 is executed" in told) == (0, True), told
    is_carried_out(asked)


def test_repeated_confirmation_does_not_resume_a_saga_that_is_parked_again(asked: AskedFunction) -> None:
    asked.by(ANN, *APPLIED)
    asked.by(EVE, *CONFIRM)
    asked.operated.park(direction=None, owner=R1)

    assert "was parked again" in refused(asked, EVE, *CONFIRM)


def test_repeated_confirmation_of_a_settled_saga_changes_nothing(asked: AskedFunction) -> None:
    asked.by(ANN, *APPLIED)
    asked.by(EVE, *CONFIRM)
    settled(asked.operated)
    state = asked.operated.state

    status, told = asked.by(EVE, *CONFIRM)

    assert (status, "is settled" in told, asked.operated.state) == (0, True, state)


def test_two_confirmations_at_once_are_one_decision(asked: AskedFunction) -> None:
    asked.by(ANN, *APPLIED)
    before(asked.operated.world.wire, "TransactWriteItems", lambda: asked.by(EVE, *CONFIRM))

    assert asked.by(EVE, *CONFIRM)[0] == 1

    is_carried_out(asked)


def test_two_proposals_at_once_have_two_numbers(asked: AskedFunction) -> None:
    other = ("resolve", STEP, "--not-applied")
    before(asked.operated.world.wire, "UpdateItem", lambda: asked.by(BEN, *other))

    assert asked.by(ANN, *APPLIED)[1].startswith(f"proposed as 2: {STEP}: applied")
    three = ("resolve", "--resume")
    before(asked.operated.world.wire, "UpdateItem", lambda: asked.by(BEN, "resolve", STEP, "--applied"))
    assert asked.by(ANN, *three)[1].startswith("proposed as 4: resume")
    assert [one.number for one in Proposal.all_of(item_of(asked))] == [1, 2, 3, 4]


def test_proposal_whose_answer_was_lost_is_repeated_as_one(asked: AskedFunction) -> None:
    asked.operated.world.wire.plan(Fault(operation="UpdateItem", action=Action.DROP, moment=Moment.AFTER, times=1))

    assert asked.by(ANN, *APPLIED)[1].startswith("proposed as 1:")
    assert asked.by(ANN, *APPLIED)[1].startswith("proposed as 1:")

    assert len(Proposal.all_of(item_of(asked))) == 1


def parked_later(operated: OperatedSaga) -> None:
    (item,) = operated.world.items("requests")
    aws.dynamodb().put_item(TableName="requests", Item={**item, "parked_at": {"N": "5"}})


@pytest.mark.parametrize("change", [resumed_and_parked_again, unparked, settled, of_another_saga, parked_later])
@pytest.mark.parametrize("earlier", [0, 1])
def test_proposal_about_a_record_that_changes_meanwhile_is_refused(
    asked: AskedFunction, change: Callable[[OperatedSaga], None], earlier: int
) -> None:
    if earlier:
        asked.by(BEN, "resolve", "--resume")
    before(asked.operated.world.wire, "UpdateItem", lambda: change(asked.operated))

    assert asked.by(ANN, *APPLIED)[0] == 1

    assert len(Proposal.all_of(item_of(asked))) == earlier


def test_resumption_is_proposed_and_confirmed(asked: AskedFunction) -> None:
    asked.by(ANN, "resolve", "--resume")

    assert asked.by(EVE, *CONFIRM)[0] == 0

    assert [one[0] for one in decisions(asked)] == ["proposed 1: resume", "resumed"]
    assert asked.operated.owner == (R1, False)


ROWS = f"rows of its log were always kept for {LOG_DAYS} days"
STATED = ("resolve", "--resume", "--log-retention-days", str(LOG_DAYS))


def not_read_for_long(operated: OperatedSaga) -> None:
    operated.rows_are_kept_until(operated.now)


def test_statement_about_rows_resumes_the_saga(alone: AskedFunction) -> None:
    not_read_for_long(alone.operated)
    assert "its steps could happen twice" in refused(alone, BEN, "resolve", "--resume")

    assert alone.by(BEN, *STATED)[0] == 0

    assert [one[0] for one in decisions(alone)] == [f"resumed: {ROWS}"]
    assert alone.operated.owner == (R1, False)


def test_statement_about_rows_is_proposed_and_confirmed(asked: AskedFunction) -> None:
    not_read_for_long(asked.operated)
    assert "its steps could happen twice" in refused(asked, ANN, "resolve", "--resume")
    assert f"proposed as 1: resume: {ROWS}\n" in asked.by(ANN, *STATED)[1]

    status, told = asked.by(EVE, *CONFIRM)

    assert (status, f"resume: {ROWS}" in told) == (0, True)
    assert [one[0] for one in decisions(asked)] == [f"proposed 1: resume: {ROWS}", f"resumed: {ROWS}"]
    assert asked.operated.record.log_expires_at == (NOW_MS + LOG_DAYS * DAY_MS) // 1_000


@pytest.mark.parametrize("crash", [Moment.BEFORE, Moment.AFTER])
def test_confirmed_statement_about_rows_that_died_is_repeated(asked: AskedFunction, crash: Moment) -> None:
    not_read_for_long(asked.operated)
    asked.by(ANN, *STATED)
    asked.operated.world.wire.plan(Fault(operation="UpdateItem", action=Action.KILL, moment=crash, times=1))
    with pytest.raises(Killed):
        asked.by(EVE, *CONFIRM)

    assert asked.by(EVE, *CONFIRM)[0] == 0

    assert [one[0] for one in decisions(asked)] == [f"proposed 1: resume: {ROWS}", f"resumed: {ROWS}"]
    assert asked.operated.owner == (R1, False)


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"resume": True, "log_days": "400"}, "log_days must be a whole number, got '400'"),
        ({"resume": True, "log_days": True}, "log_days must be a whole number, got True"),
        (
            {"step": STEP, "applied": True, "compensation": False, "log_days": 400},
            "log_days is part of a request to resume",
        ),
    ],
)
def test_wrong_statement_about_rows_is_refused(alone: AskedFunction, members: dict[str, Any], why: str) -> None:
    seen = Operators.from_env().answer(request(do="show"), CALLER)["shown"] | {"attempt": None}
    asks = json.dumps({"do": "resolve", "saga": SAGA_ID, "reason": "y", "seen": seen, **members})

    answer = Operators.from_env().answer(asks, CALLER)

    assert why in answer["refused"]


def test_resumption_of_a_saga_that_decides_for_itself_is_not_proposed(asked: AskedFunction) -> None:
    unparked(asked.operated)

    assert "is not parked, and decides for itself" in refused(asked, ANN, "resolve", "--resume")


def test_answer_that_cannot_be_written_is_not_proposed(asked: AskedFunction) -> None:
    assert "Chrage has no row" in refused(asked, ANN, "resolve", "Chrage", "--applied")
    assert "you saw attempt" in refused(asked, ANN, *APPLIED, "--attempt", "another")


def effect_came_late(operated: OperatedSaga) -> None:
    """The saga was resumed and settled, and its step was applied late."""
    unparked(operated)
    settled(operated)
    (item,) = operated.world.items("log")
    aws.dynamodb().put_item(TableName="log", Item={**item, "status": {"S": "APPLIED_LATE"}})


def with_another(name: str, value: str) -> Callable[[OperatedSaga], None]:
    """A change of one attribute of the record."""

    def change(operated: OperatedSaga) -> None:
        (item,) = operated.world.items("requests")
        aws.dynamodb().put_item(TableName="requests", Item={**item, name: {"S": value}})

    change.__name__ = name
    return change


def decided_again(operated: OperatedSaga) -> None:
    """Another decision was made."""
    (item,) = operated.world.items("requests")
    made = item["decisions"]["L"]
    aws.dynamodb().put_item(TableName="requests", Item={**item, "decisions": {"L": [*made, made[-1]]}})


def parked_again(operated: OperatedSaga) -> None:
    """Its owner parked it."""
    (item,) = operated.world.items("requests")
    aws.dynamodb().put_item(TableName="requests", Item={**item, "parked_by": item["owner"], "parked_at": {"N": "5"}})


SETTLED_CHANGES = (
    of_another_saga,
    with_another("owner", R1),
    with_another("status", RecordStatus.COMPLETED),
    parked_again,
)


@pytest.mark.parametrize("change", SETTLED_CHANGES)
@pytest.mark.parametrize("earlier", [0, 1])
def test_proposal_about_a_settled_record_that_changes_is_refused(
    asked: AskedFunction, change: Callable[[OperatedSaga], None], earlier: int
) -> None:
    if earlier:
        asked.by(BEN, "resolve", "--resume")
    effect_came_late(asked.operated)
    before(asked.operated.world.wire, "UpdateItem", lambda: change(asked.operated))

    assert asked.by(ANN, *UNDONE)[0] == 1

    assert len(Proposal.all_of(item_of(asked))) == earlier


def test_decision_about_a_settled_record_meanwhile_takes_the_number(asked: AskedFunction) -> None:
    asked.by(BEN, "resolve", "--resume")
    effect_came_late(asked.operated)
    before(asked.operated.world.wire, "UpdateItem", lambda: decided_again(asked.operated))

    status, told = asked.by(ANN, *UNDONE)

    assert (status, told[:14]) == (0, "proposed as 3:"), told


def test_two_proposals_about_a_settled_record_have_two_numbers(asked: AskedFunction) -> None:
    effect_came_late(asked.operated)
    before(asked.operated.world.wire, "UpdateItem", lambda: asked.by(BEN, *UNDONE))

    assert asked.by(ANN, *UNDONE)[1].startswith("proposed as 2:")


@pytest.mark.parametrize("change", SETTLED_CHANGES)
def test_confirmation_about_a_settled_record_that_changes_is_refused(
    asked: AskedFunction, change: Callable[[OperatedSaga], None]
) -> None:
    effect_came_late(asked.operated)
    asked.by(ANN, *UNDONE)
    before(asked.operated.world.wire, "TransactWriteItems", lambda: change(asked.operated))

    assert asked.by(EVE, *CONFIRM)[0] == 1

    assert asked.operated.shop.status == "APPLIED_LATE"


def test_late_effect_of_a_settled_saga_is_undone_by_two(asked: AskedFunction) -> None:
    effect_came_late(asked.operated)

    assert asked.by(ANN, *UNDONE)[1].startswith("proposed as 1:")
    assert asked.by(EVE, *CONFIRM)[0] == 0
    assert asked.by(EVE, *CONFIRM)[0] == 0

    assert asked.operated.shop.status == "COMPENSATED"
    assert asked.by(ANN, *UNDONE)[1] == f"the undo of {STEP} happened: its row was already COMPENSATED\n"


def test_open_proposals_have_room_in_a_record(asked: AskedFunction) -> None:
    big = ("--applied", "--output", json.dumps({"a": "x" * 32_000}))
    for caller, step in ((ANN, STEP), (EVE, "Announce"), (ANN, STEP)):
        assert asked.by(caller, "resolve", step, *big)[0] == 0  # Ann's second is her first
    asked.monkeypatch.setattr(proposals_module, "MOST_BYTES", 65_000)

    assert "open proposals of a saga must have at most 65000 bytes" in refused(asked, ANN, "resolve", "--resume")


def test_closed_proposals_have_no_output_and_take_no_room(asked: AskedFunction) -> None:
    for number in range(1, 6):
        output = json.dumps({"a": "x" * 32_000})
        assert asked.by(ANN, "resolve", STEP, "--applied", "--output", output)[1].startswith(f"proposed as {number}:")
        asked.operated.world.clock.ms += DAY_MS

    outputs = [one.statement.output for one in Proposal.all_of(item_of(asked)) if one.statement is not None]
    assert [output is not None for output in outputs] == [False] * 4 + [True]


def test_decision_keeps_no_output(asked: AskedFunction) -> None:
    asked.by(ANN, "resolve", STEP, "--applied", "--output", '{"iban": "DE00"}')
    asked.by(EVE, *CONFIRM)

    assert "DE00" not in json.dumps(item_of(asked)["decisions"])


def test_number_of_a_removed_proposal_is_never_anothers(asked: AskedFunction) -> None:
    asked.by(ANN, "resolve", "--resume")
    asked.by(EVE, *CONFIRM)
    settled(asked.operated)
    over = remove_response_update(REQUEST_ID, asked.operated.now + 400 * DAY_MS)
    aws.dynamodb().update_item(TableName="requests", **over)
    (item,) = asked.operated.world.items("log")
    aws.dynamodb().put_item(TableName="log", Item={**item, "status": {"S": "APPLIED_LATE"}})

    assert asked.by(ANN, "resolve", STEP, "--compensation", "--applied")[1].startswith("proposed as 3:")

    assert "which has 3, got 1" in refused(asked, EVE, *CONFIRM)
    assert asked.by(EVE, "confirm", "--proposal", "3", "--reason", "x", "--yes")[0] == 0
    assert asked.operated.shop.status == "COMPENSATED"


def test_proposal_is_stored_as_it_is_read(asked: AskedFunction) -> None:
    asked.by(ANN, *APPLIED)
    (stored,) = item_of(asked)[RecordAttribute.PROPOSALS]["L"]

    (proposal,) = Proposal.all_of(item_of(asked))

    assert proposal.stored == stored["M"]
    assert set(stored["M"]) == set(ProposalField) - {ProposalField.LOG_DAYS}


# --- What is confirmed is what was shown


def test_confirmer_sees_what_she_confirms(asked: AskedFunction) -> None:
    asked.by(ANN, *APPLIED)

    told = asked.by(EVE, *CONFIRM)[1]

    assert told.startswith(f"proposal 1 of {ANN[0]}, until ")
    assert f'  what  {STEP}: applied, output {{"payment":"p"}}\n  why   {WHY}\n' in told


@pytest.mark.parametrize(("typed", "status"), [("y\n", 0), ("YES\n", 0), ("\n", 1), ("n\n", 1), ("", 1)])
def test_confirmer_is_asked_on_a_terminal(asked: AskedFunction, typed: str, status: int) -> None:
    asked.by(ANN, *APPLIED)
    terminal = io.StringIO(typed)
    asked.monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    asked.monkeypatch.setattr(sys, "stdin", terminal)

    assert asked.by(EVE, *CONFIRM[:-1])[0] == status

    assert len(decisions(asked)) == (3 if status == 0 else 1)


def test_confirmation_without_a_terminal_or_yes_is_refused(asked: AskedFunction) -> None:
    asked.by(ANN, *APPLIED)
    asked.monkeypatch.setattr(sys, "stdin", io.StringIO())

    assert "use --yes" in refused(asked, EVE, *CONFIRM[:-1])


@pytest.mark.parametrize("why", ["\x1b[2K\x1b[1A", "a\rb", "a\nb", "a\x9b2K", "\u202eb"])
def test_reason_that_could_hide_what_is_proposed_is_refused(asked: AskedFunction, why: str) -> None:
    answer = Operators.from_env().answer(request(do="cancel", reason=f"y{why}z"), CALLER)

    assert "a reason must be printable" in answer["refused"]


def test_reason_in_any_language_is_accepted(asked: AskedFunction) -> None:
    why = "Pourquoi\u202f? L\u2019\u00e9cran \u7b54\u3048\u305f\u3000\u00a0!"

    answer = Operators.from_env().answer(request(do="cancel", reason=why), CALLER)

    assert "a reason must be" not in str(answer)


def test_confirmer_sees_no_character_that_moves_the_cursor(asked: AskedFunction) -> None:
    """As of a proposal that an earlier release took, or that was written into the table."""
    asked.by(ANN, *APPLIED)
    (item,) = asked.operated.world.items("requests")
    entry_ = {**item["proposals"]["L"][0]["M"], "why": {"S": "sure\x1b[2A\x9b2Know\u202e"}}
    aws.dynamodb().put_item(TableName="requests", Item={**item, "proposals": {"L": [{"M": entry_}]}})

    status, told = asked.by(EVE, *CONFIRM)

    assert (status, "sure [2A 2Know" in told, told.isascii() and "\x1b" not in told) == (0, True, True)


@pytest.mark.parametrize("digest", [None, "", "0" * 64])
def test_confirmation_of_what_was_not_shown_is_refused(asked: AskedFunction, digest: str | None) -> None:
    asked.by(ANN, *APPLIED)
    state = asked.operated.state

    answer = Operators.from_env().answer(request(do="confirm", reason="y", proposal=1, digest=digest), CALLER)

    assert ("must be as it was shown" in answer["refused"], asked.operated.state) == (True, state)


def test_repeated_confirmation_about_a_running_saga_starts_nothing(asked: AskedFunction) -> None:
    asked.by(ANN, *APPLIED)
    asked.by(EVE, *CONFIRM)
    (item,) = asked.operated.world.items("requests")
    entry_ = {name: value for name, value in item["proposals"]["L"][0]["M"].items() if name != "parked_at"}
    aws.dynamodb().put_item(TableName="requests", Item={**item, "proposals": {"L": [{"M": entry_}]}})
    asked.operated.world.executions.forget(R1)
    state = asked.operated.state

    status, told = asked.by(EVE, *CONFIRM)

    assert (status, "proposal 1 is executed" in told, asked.operated.state) == (0, True, state)


# --- Repairs


def test_job_of_another_saga_is_not_repaired(alone: AskedFunction) -> None:
    job = f"{SAGA_ID[:-1]}z#{STEP}"

    answer = Operators.from_env().answer(request(repair=Repair.COMPENSATE_LATE, tokens="tokens", job=job), CALLER)

    assert f"job must be one of saga {SAGA_ID}" in answer["refused"]


def test_table_of_no_compensated_job_is_not_read(alone: AskedFunction) -> None:
    """A caller names it: the function reads its own sagas' tables only."""
    asks = request(repair=Repair.COMPENSATE_LATE, tokens="others", job=f"{SAGA_ID}#{STEP}")

    answer = Operators.from_env().answer(asks, CALLER)

    assert f"tokens must be a token table of jobs that saga {SAGA_ID} compensates" in answer["refused"]


def interrupted(operated: OperatedSaga) -> None:
    unparked(operated)
    operated.world.executions.forget(SAGA_ID)


def request(**members: Any) -> str:
    return json.dumps({"do": "repair", "saga": SAGA_ID, "reason": "y", **members})


def resolution(**members: Any) -> str:
    asked = {"do": "resolve", "saga": SAGA_ID, "reason": "y", "step": STEP, "applied": True, "compensation": False}
    seen = {"seen": {"owner": SAGA_ID, "parked_at": 1, "attempt": "a"}}
    return json.dumps({name: value for name, value in {**asked, **seen, **members}.items() if value is not None})


CALLER = Caller(arn=EVE[0], user_id=EVE[1])


def test_repair_does_what_the_reconciler_does(alone: AskedFunction) -> None:
    interrupted(alone.operated)

    answer = Operators.from_env().answer(request(repair=Repair.RECONCILE), CALLER)

    assert answer == {"repaired": f"started {SAGA_ID}"}
    assert decisions(alone) == [(f"started {SAGA_ID}", EVE[0], None, None)]


def test_saga_that_is_held_is_not_repaired(alone: AskedFunction) -> None:
    interrupted(alone.operated)
    aws.dynamodb().put_item(TableName="hold", Item=hold_key(SAGA_ID))
    state = alone.operated.state

    answer = Operators.from_env().answer(request(repair=Repair.RECONCILE), CALLER)

    assert (list(answer), alone.operated.state) == (["refused"], state)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "a request must be an object"),
        ('{"do": "delete"}', "a request must ask for"),
        ('{"do": "cancel", "reason": "y"}', "saga must be text"),
        ('{"do": "resolve", "saga": "x", "reason": "y"}', "not a saga id"),
        ('{"do": "resolve", "reason": " "}', "reason must be text"),
        ("[" * 100_000, "a request must be JSON"),
        ('{"do": "cancel", "Reason": "y"}', "must be known, got Reason"),
        ('{"do": ["cancel"]}', "a request must ask for"),
        (resolution(step=None), "step must be text"),
        (resolution(Step="S"), "must be known, got Step"),
        (resolution(resume=True), "leave applied, compensation, step out"),
        (resolution(output=1), "output must be text"),
        (resolution(output="[1]"), "output: "),
        (resolution(output="{"), "output: "),
        (resolution(output="[" * 100_000), "output: "),
        (resolution(output="{}", applied=False), "leave output out"),
        (resolution(seen=None), "seen must have owner and parked_at"),
        (resolution(seen={"owner": SAGA_ID}), "seen must have owner and parked_at"),
        (resolution(seen={"owner": SAGA_ID, "parked_at": 1}), "seen.attempt must be text"),
        (resolution(seen={"owner": SAGA_ID, "parked_at": 1, "attempt": None}), "must be as it was seen"),
        (resolution(seen={"owner": R1, "parked_at": NOW_MS, "attempt": None}), "must be as it was seen"),
        (request(repair="explode"), "explode"),
        (request(repair=Repair.DELIVER), "a repair must be of a saga"),
        (request(repair=Repair.CLEAR, queue="q"), "a queue must be of these sagas' operators"),
        (resolution(applied=1), "applied must be true or false"),
    ],
)
def test_request_of_another_form_is_refused(alone: AskedFunction, text: str, reason: str) -> None:
    answer = Operators.from_env().answer(text, CALLER)

    assert reason in answer["refused"]


def test_saga_that_no_table_has_is_unknown(alone: AskedFunction) -> None:
    of_another_saga(alone.operated)

    assert Operators.from_env().answer(request(repair=Repair.RECONCILE), CALLER) == {"unknown": True}


def test_each_request_is_logged_without_its_reason(alone: AskedFunction, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[dict[str, Any]] = []
    monkeypatch.setattr("saga_runtime.shared.telemetry.event", lambda name, **fields: logged.append({name: fields}))
    asked = [request(repair=Repair.RECONCILE), json.dumps({"do": "show", "saga": "x" * 300, "reason": "secret"}), "[]"]

    answers = [Operators.from_env().answer(text, CALLER) for text in asked]

    saga_id = json.loads(asked[0])["saga"]
    assert [next(iter(answer)) for answer in answers] == ["repaired", "refused", "refused"]
    assert [one["operator_asked"] for one in logged if "operator_asked" in one] == [
        {"who": CALLER.arn, "asked": "repair", "saga_id": saga_id, "outcome": "repaired"},
        {"who": CALLER.arn, "asked": "show", "saga_id": "x" * 200, "outcome": "refused"},
        {"who": CALLER.arn, "outcome": "refused"},
    ]


def test_direction_of_the_saga_is_kept(asked: AskedFunction) -> None:
    asked.by(ANN, *APPLIED)
    asked.by(EVE, *CONFIRM)

    assert asked.operated.record.direction is Direction.COMPENSATE


# --- Proposals that follow each other


def test_of_two_proposals_about_a_step_the_later_one_is_confirmed(asked: AskedFunction) -> None:
    asked.by(ANN, "resolve", STEP, "--not-applied")
    asked.by(ANN, *APPLIED)

    told = refused(asked, EVE, *CONFIRM)
    assert f"proposal 1 must be the latest about the same step, got 2 by {ANN[0]}: {STEP}: applied" in told
    state = asked.operated.run("inspect")[1]
    assert ("1  replaced, of" in state, "2  open until" in state) == (True, True), state

    assert asked.by(EVE, "confirm", "--proposal", "2", "--reason", "I asked, too", "--yes")[0] == 0
    assert asked.operated.shop.status == "DONE"


def test_refused_confirmation_names_the_decision_that_it_contradicts(asked: AskedFunction) -> None:
    asked.by(ANN, *APPLIED)
    asked.by(ANN, "resolve", STEP, "--not-applied")
    assert "contradicts" not in refused(asked, BEN, *CONFIRM), "nothing is decided yet"
    asked.by(EVE, "confirm", "--proposal", "2", "--reason", "not in its books", "--yes")
    at = moment(asked.operated.now)

    told = refused(asked, BEN, *CONFIRM)

    assert told.endswith(
        f"; the last decision about {STEP} contradicts this: {EVE[0]} at {at}: {STEP}: not applied; why: not in its "
        "books; see docs/how-to/resolve-a-parked-saga.md#the-answer-was-wrong\n"
    )


@pytest.mark.parametrize("second", [None, ROLE])
def test_refused_answer_names_the_decision_to_whom_the_tables_are_closed(
    asked: AskedFunction, monkeypatch: pytest.MonkeyPatch, second: SecondPerson | None
) -> None:
    asked.require(None)
    asked.by(EVE, "resolve", STEP, "--not-applied", "--reason", "not in its books")
    at = moment(asked.operated.now)
    asked.require(second)

    def denied(*_: object, **__: object) -> NoReturn:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetItem")

    monkeypatch.setattr(of_one_saga, "find_in", denied)
    told = refused(asked, BEN, *APPLIED)

    assert told.endswith(
        f"; the last decision about {STEP} contradicts this: {EVE[0]} at {at}: {STEP}: not applied; why: not in its "
        "books; see docs/how-to/resolve-a-parked-saga.md#the-answer-was-wrong\n"
    )
    assert told.count("the last decision") == 1


def test_refused_confirmation_to_resume_names_no_decision(asked: AskedFunction) -> None:
    asked.by(ANN, "resolve", "--resume")
    asked.by(ANN, "resolve", STEP, "--not-applied")
    asked.by(EVE, "confirm", "--proposal", "2", "--reason", "I asked, too", "--yes")

    assert "contradicts" not in refused(asked, BEN, *CONFIRM)


def test_proposal_about_another_step_replaces_none(asked: AskedFunction) -> None:
    asked.by(ANN, *APPLIED)
    asked.by(ANN, "resolve", "--resume")

    assert asked.by(EVE, *CONFIRM)[0] == 0


def test_proposal_for_another_reason_is_another_one(asked: AskedFunction) -> None:
    asked.by(ANN, *APPLIED)
    assert asked.by(ANN, *APPLIED, "--reason", "the provider's second answer")[1].startswith("proposed as 2:")


def test_confirmer_sees_each_character_of_an_output(asked: AskedFunction) -> None:
    asked.by(ANN, "resolve", STEP, "--applied", "--output", '{"payment": "1\x9b2J\u200b9\u202e😀"}')
    shown = r'output {"payment":"1\u009b2J\u200b9\u202e\ud83d\ude00"}'

    assert shown in asked.operated.run("inspect")[1].replace("\n", "").replace("       ", "")
    told = asked.by(EVE, *CONFIRM)[1]

    assert (told.count(shown), told.isascii()) == (2, True), told


def test_proposal_to_resume_is_about_one_parking(asked: AskedFunction) -> None:
    asked.by(ANN, "resolve", "--resume")
    (item,) = asked.operated.world.items("requests")
    aws.dynamodb().put_item(TableName="requests", Item={**item, "parked_at": {"N": "5"}})

    assert f"saga {SAGA_ID} changed since proposal 1" in refused(asked, EVE, *CONFIRM)


@pytest.mark.parametrize("words", [APPLIED, ("resolve", "--resume")], ids=["an answer", "to resume"])
def test_proposal_is_not_executed_about_a_parking_that_came_meanwhile(
    asked: AskedFunction, words: tuple[str, ...]
) -> None:
    asked.by(ANN, *words)
    row = asked.operated.shop.status

    operation = "TransactWriteItems" if words is APPLIED else "UpdateItem"
    before(asked.operated.world.wire, operation, lambda: parked_later(asked.operated))

    status, told = asked.by(EVE, *CONFIRM)

    assert (status, asked.operated.shop.status, asked.operated.owner[1]) == (1, row, True), told


def test_what_is_decided_about_one_saga_has_room_after_proposals_and_lists(
    asked: AskedFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.by(ANN, *APPLIED)
    monkeypatch.setattr(proposals_module, "MOST_BEFORE_PROPOSALS", 1)

    assert "must have at most 1 bytes" in refused(asked, BEN, "resolve", "--resume")
    assert asked.by(EVE, *CONFIRM)[0] == 0
