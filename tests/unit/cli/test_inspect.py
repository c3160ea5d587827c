"""``cdk-sagas inspect`` shows a saga as it is, and what a person can do about it; it changes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest

from constructs_lib.cli.saga.advice import advice
from constructs_lib.cli.saga.inspect import short_output, text_of
from constructs_lib.cli.saga.inspection import ExecutionView, Inspection, StepView, console_link
from constructs_lib.cli.shared.terminal import UNBOUNDED, Screen
from saga_runtime.idempotency.identity import provider_key_of
from saga_runtime.idempotency.record import reserve_put
from saga_runtime.protocol import Direction, LogAttribute, Ran, RecordAttribute, RecordStatus
from saga_runtime.recovery.takeover import Finding
from saga_runtime.shared import aws
from tests.unit.support.gateway import STEP
from tests.unit.support.operated_saga import OperatedSaga, operated_saga_in
from tests.unit.support.samples import NOW_MS, REQUEST_ID, SAGA_ID, reservation_of
from tests.unit.support.settling import settle
from tests.unit.support.sleeps import replace_sleep
from tests.unit.support.world import World

SAGA = "aaaaaaaaaaaaaaaaaaaaaaaaaa-mdwqr4j1"
T = NOW_MS
KEY = "6d0f1a1e-5a3c-5f0b-9a5e-0c1f6f1d7a42"

RAN = ExecutionView(
    name=SAGA, machine="forward", status="SUCCEEDED", started_at=T + 50, stopped_at=T + 2_000, error=None, cause=None
)
QUOTE = StepView(
    step="Quote", status="RECORDED", side="before", output='{"total":"12.00"}', created_at=T + 100, updated_at=T + 100
)
CHARGE = StepView(
    step="Charge",
    status="DONE",
    side="before",
    output='{"payment":"p-1"}',
    attempt="0f3c9a",
    created_at=T + 900,
    updated_at=T + 1_900,
    provider_key=KEY,
)
IN_DOUBT = replace(CHARGE, status="INTENT", output=None, deadline=T + 20_000, certain_at=T + 50_000, updated_at=T + 900)

COMPLETED = Inspection(
    saga_id=SAGA,
    request_id=SAGA[:26],
    operation="orders",
    status="COMPLETED",
    finding=Finding.SETTLED,
    direction=None,
    owner=SAGA,
    recoveries=0,
    definition="d1",
    http_status=200,
    created_at=T,
    updated_at=T + 2_000,
    due_at=None,
    parked_by=None,
    parked_at=None,
    parked_reason={},
    failure={},
    log_table="Log",
    now_ms=T + 60_000,
    executions=(RAN,),
    steps=(QUOTE, CHARGE),
)
PARKED = replace(
    COMPLETED,
    status="IN_PROGRESS",
    finding=Finding.PARKED,
    direction="compensate",
    http_status=None,
    parked_by=SAGA,
    parked_at=T + 30_000,
    now_ms=T + 40_000,
    parked_reason={"step": "Charge", "error": "ManualResolutionRequired", "detail": "the gateway does not know"},
    failure={"step": "Charge", "error": "StepFailed", "detail": "the step could not be completed"},
    executions=(
        replace(RAN, status="FAILED", stopped_at=T + 30_100, error="SagaParked", cause="the saga waits for a person"),
    ),
    steps=(QUOTE, IN_DOUBT, StepView(step="Commit", side="pivot"), StepView(step="Ship[...]", side="after")),
)


def shown(saga: Inspection, *, width: int = 80, unicode: bool = False, full: bool = False) -> str:
    """The text, with the advice that belongs to it."""
    return text_of(saga, advice(saga, ["--table", "Requests"]), Screen(width=width, unicode=unicode), full=full)


def test_a_completed_saga() -> None:
    assert (
        shown(COMPLETED)
        == """\
saga aaaaaaaaaaaaaaaaaaaaaaaaaa-mdwqr4j1
  state       COMPLETED, settled
  operation   orders
  reserved    2023-11-14 22:13:20 UTC
  changed     2023-11-14 22:13:22 UTC
  direction   not decided
  owner       aaaaaaaaaaaaaaaaaaaaaaaaaa-mdwqr4j1
  recoveries  0
  answered    200

executions
  aaaaaaaaaaaaaaaaaaaaaaaaaa-mdwqr4j1
    forward, SUCCEEDED, 2023-11-14 22:13:20 UTC to 22:13:22 UTC, 1.9 s

2023-11-14 22:13:20.100 UTC                                         1.8 s in all
                             0           500 ms       1 s          1.5 s
-----------------------------+-----------+------------+------------+------------
o Quote   RECORDED    +0 ms  *           :            :            :
  ' {"total":"12.00"}
+ Charge  DONE      +800 ms  :           :       ==========================  1 s
  ' {"payment":"p-1"}; the provider's key 6d0f1a1e-5a3c-5f0b-9a5e-0c1f6f1d7a42
"""
    )


def test_a_skipped_step_has_no_advice() -> None:
    """Its saga continued without it: a call would be an effect besides what was done instead."""
    refused = replace(CHARGE, status="REFUSED", output=None, error="SoldOut")
    saga = replace(PARKED, direction="forward", steps=(QUOTE, refused))
    assert [len(one.commands) for one in advice(saga, [])] == [2, 1]

    skipped = replace(saga, steps=(QUOTE, replace(refused, skipped=True)))
    (only,) = advice(skipped, [])
    assert [label for label, _ in only.commands] == ["resume"]


@pytest.mark.parametrize(
    ("more", "cases"),
    [
        ({}, ["continue"]),
        ({"skipped": None}, []),
        ({"skipped": True}, ["undo it", "undone by hand"]),
        ({"instead": "{}"}, ["undo it", "undone by hand"]),
    ],
)
def test_a_late_effect_of_a_saga_that_only_goes_forward(more: dict[str, Any], cases: list[str]) -> None:
    """Compensated, it would keep the saga from ever settling; unless the saga continued without it."""
    late = replace(CHARGE, status="APPLIED_LATE", error="SoldOut", **more)
    about, _ = advice(replace(PARKED, direction="forward", steps=(QUOTE, late)), [])

    assert [case for case, _ in about.commands] == cases


def test_a_late_effect_of_a_saga_that_went_forward_and_ended_is_undone() -> None:
    late = replace(CHARGE, status="APPLIED_LATE", error="SoldOut")
    (about,) = advice(replace(PARKED, finding=Finding.SETTLED, direction="forward", steps=(QUOTE, late)), [])

    assert [case for case, _ in about.commands] == ["undo it", "undone by hand"]


@pytest.mark.parametrize(
    ("side", "status", "direction", "case"),
    [
        ("pivot", "DONE", None, "no, call it again"),
        ("pivot", "TOMBSTONE", None, "no, and it never shall"),
        ("before", "DONE", None, "no, and it never shall"),
        ("pivot", "DONE", "compensate", "no, and it never shall"),
    ],
)
def test_a_step_in_doubt_before_a_pivot_is_called_again_if_another_one_is_applied(
    side: str, status: str, direction: str | None, case: str
) -> None:
    capture = replace(CHARGE, step="Capture", status=status, side=side)
    doubt = replace(CHARGE, status="INTENT", output=None, attempt="a", side="before")
    about, _ = advice(replace(PARKED, direction=direction, steps=(capture, doubt)), [])

    assert [found for found, _ in about.commands] == ["yes, with its output", case]


def test_a_job_that_its_provider_works_on_is_not_called_again() -> None:
    """A second one, at a provider that does not know keys, would be a second effect."""
    working = replace(CHARGE, status="INTENT", output=None, attempt="a", side="after", accepted_at=NOW_MS)
    job, _ = advice(replace(PARKED, direction="forward", steps=(QUOTE, working)), [])

    assert job.text.endswith("While its provider works on it, wait: its outcome resumes the saga.")
    assert [case for case, _ in job.commands] == ["yes, with its output", "no, and it is not at work: call it again"]

    undone, _ = advice(replace(PARKED, steps=(QUOTE, replace(working, status="COMPENSATING"))), [])
    assert "While its provider works on it" not in undone.text


def test_a_saga_whose_log_may_have_expired_is_resumed_by_a_statement_only() -> None:
    """Without its rows its effects could repeat."""
    expired = replace(PARKED, parked_reason={"step": "", "error": "SagaLogExpired", "detail": "gone"}, steps=())
    (only,) = advice(expired, [])

    words = f"cdk-sagas resolve {expired.saga_id} --resume --log-retention-days DAYS --reason WHY"
    assert (only.text.partition(",")[0], only.commands) == (
        "Its log may have expired",
        (("its rows are there", words),),
    )


def test_a_parked_saga_with_a_step_in_doubt() -> None:
    assert (
        shown(PARKED)
        == """\
saga aaaaaaaaaaaaaaaaaaaaaaaaaa-mdwqr4j1
  state       IN_PROGRESS, parked: it waits for an operator
  operation   orders
  reserved    2023-11-14 22:13:20 UTC
  changed     2023-11-14 22:13:22 UTC
  direction   compensate
  owner       aaaaaaaaaaaaaaaaaaaaaaaaaa-mdwqr4j1
  recoveries  0
  parked      by aaaaaaaaaaaaaaaaaaaaaaaaaa-mdwqr4j1, 2023-11-14 22:13:50 UTC,
              10 s ago
  reason      Charge: ManualResolutionRequired, the gateway does not know
  failure     Charge: StepFailed, the step could not be completed

executions
  aaaaaaaaaaaaaaaaaaaaaaaaaa-mdwqr4j1
    forward, FAILED, 2023-11-14 22:13:20 UTC to 22:13:50 UTC, 30.1 s
    SagaParked: the saga waits for a person

2023-11-14 22:13:20.100 UTC                                        29.9 s in all
                                   0           10 s        20 s
-----------------------------------+-----------+-----------+--------------------
o Quote      RECORDED       +0 ms  *           :           :
  ' {"total":"12.00"}
? Charge     INTENT       +800 ms  ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~>  29.1 s
  ' in doubt since 22:13:40 UTC; attempt 0f3c9a; the provider's key
    6d0f1a1e-5a3c-5f0b-9a5e-0c1f6f1d7a42
. Commit     not reached           :           :           :
. Ship[...]  not reached           :           :           :

what you can do
  Did Charge happen? Ask the provider; it was given the idempotency key
  6d0f1a1e-5a3c-5f0b-9a5e-0c1f6f1d7a42. OUTPUT is what the step would have
  returned, as JSON: later steps and its compensation read it. A "no" counts
  from 2023-11-14 22:14:10 UTC on, in 10 s: a request may still be on its way.
  Ask then, and inspect again.
    yes, with its output:
      cdk-sagas resolve aaaaaaaaaaaaaaaaaaaaaaaaaa-mdwqr4j1 Charge --applied --output OUTPUT --attempt 0f3c9a \
--reason WHY --table Requests
  If something else stopped it, fix that.
    resume:
      cdk-sagas resolve aaaaaaaaaaaaaaaaaaaaaaaaaa-mdwqr4j1 --resume --reason WHY --table Requests
"""
    )


def test_a_no_is_offered_once_it_counts() -> None:
    young, old = PARKED, replace(PARKED, now_ms=T + 50_000)

    cases = [[case for one in advice(saga, []) for case, _ in one.commands] for saga in (young, old)]

    assert cases == [
        ["yes, with its output", "resume"],
        ["yes, with its output", "no, and it never shall", "resume"],
    ]


def test_a_compensation_in_doubt_is_resolved_as_such() -> None:
    undoing = replace(IN_DOUBT, status="COMPENSATING", output='{"payment":"p-1"}')

    told = shown(replace(PARKED, steps=(undoing,), now_ms=T + 50_000))

    assert (
        told.partition("what you can do\n")[2]
        == """\
  Did the undo of Charge happen? Ask the provider; it was given the idempotency
  key 6d0f1a1e-5a3c-5f0b-9a5e-0c1f6f1d7a42.
    yes:
      cdk-sagas resolve aaaaaaaaaaaaaaaaaaaaaaaaaa-mdwqr4j1 Charge --compensation --applied --attempt 0f3c9a \
--reason WHY --table Requests
    no, undo it again:
      cdk-sagas resolve aaaaaaaaaaaaaaaaaaaaaaaaaa-mdwqr4j1 Charge --compensation --not-applied --attempt 0f3c9a \
--reason WHY --table Requests
  If something else stopped it, fix that.
    resume:
      cdk-sagas resolve aaaaaaaaaaaaaaaaaaaaaaaaaa-mdwqr4j1 --resume --reason WHY --table Requests
"""
    )


def test_a_skipped_step_and_an_output_stored_elsewhere() -> None:
    gift = replace(QUOTE, step="Gift", status="TOMBSTONE", output='{"gift":null}')
    stored = f'{{"cdk_sagas_ref":"{SAGA}/{"a" * 64}"}}'
    ship = replace(CHARGE, step="Ship[sku-1]", output=stored, provider_key=None)

    told = shown(replace(COMPLETED, steps=(gift, ship)), unicode=True, width=140)

    lines = told.split("\n\n")[2].splitlines()
    assert [line for line in lines if line.startswith("  └")] == [
        '  └ skipped, with {"gift":null}',
        f"  └ output stored as {SAGA}/{'a' * 64}",
    ]


def test_an_accepted_job_and_a_late_effect() -> None:
    picked = replace(CHARGE, step="Pick", status="INTENT", output=None, deadline=1, certain_at=2, accepted_at=NOW_MS)
    late = replace(CHARGE, step="Ship", status="APPLIED_LATE", instead='{"ship":null}', attempt="a-1")

    told = shown(replace(COMPLETED, steps=(picked, late)), width=140)
    found = advice(replace(COMPLETED, steps=(picked, late)), [])

    assert "its provider took it on at" in told
    assert "it was applied late" in told
    assert 'skipped, with {"ship":null}' in told
    assert [command for one in found for _, command in one.commands] == [
        f"cdk-sagas recover {SAGA} --again --reason WHY",
        f"cdk-sagas resolve {SAGA} Ship --compensation --applied --attempt a-1 --reason WHY",
    ]


def test_a_late_effect_whose_compensation_does_not_end_is_advised_about() -> None:
    undoing = replace(CHARGE, status="COMPENSATING", attempt="a-1")

    found = advice(replace(COMPLETED, steps=(undoing,)), [])

    assert [command for one in found for _, command in one.commands] == [
        f"cdk-sagas recover {SAGA} --again --reason WHY",
        f"cdk-sagas resolve {SAGA} Charge --compensation --applied --attempt a-1 --reason WHY",
    ]


def test_a_refusal_after_the_pivot_is_resolved_by_an_operator() -> None:
    refused = replace(
        CHARGE, status="REFUSED", output=None, error="Declined", detail="the account is closed", side="after"
    )

    found = advice(replace(PARKED, direction="forward", steps=(refused,)), [])

    assert [case for one in found for case, _ in one.commands] == ["done by hand", "fixed, call it again", "resume"]
    assert "Declined: the account is closed" in shown(replace(PARKED, direction="forward", steps=(refused,)))


def test_an_applied_step_of_a_compensating_saga_may_be_compensated_by_hand() -> None:
    other = replace(CHARGE, step="Reserve")

    stopped = advice(replace(PARKED, steps=(other, CHARGE), parked_reason={"step": "Compensate Charge"}), [])
    unknown = advice(replace(PARKED, steps=(other, CHARGE), parked_reason={}), [])

    assert [one.text.split()[0] for one in stopped] == ["Charge", "If"]
    assert [one.text.split()[0] for one in unknown] == ["Reserve", "Charge", "If"]


@pytest.mark.parametrize(
    ("finding", "commands"),
    [
        (Finding.SETTLED, []),
        (Finding.RUNNING, []),
        (Finding.DEAD, [f"cdk-sagas recover {SAGA} --reason WHY --table 'My table'"]),
        (Finding.NOT_STARTED, [f"cdk-sagas recover {SAGA} --reason WHY --table 'My table'"]),
        (Finding.NAME_EXPIRED, [f"cdk-sagas resolve {SAGA} --resume --reason WHY --table 'My table'"]),
        (Finding.PARKED, [f"cdk-sagas resolve {SAGA} --resume --reason WHY --table 'My table'"]),
    ],
)
def test_the_advice_depends_on_the_findings(finding: Finding, commands: list[str]) -> None:
    found = advice(replace(PARKED, finding=finding, steps=()), ["--table", "My table"])

    assert [command for one in found for _, command in one.commands] == commands


def test_a_saga_without_rows_and_executions() -> None:
    told = shown(replace(COMPLETED, executions=(), steps=()))

    assert "  none that Step Functions remembers\n\nno steps yet\n" in told


def test_a_saga_that_an_express_execution_settled() -> None:
    told = shown(replace(COMPLETED, executions=(), ran=Ran.EXPRESS))

    assert "executions\n  an Express one, of which only its log remains\n" in told


def test_a_saga_that_an_express_execution_may_run() -> None:
    running = replace(
        COMPLETED, executions=(), express=True, status="IN_PROGRESS", finding=Finding.NOT_STARTED, http_status=None
    )
    told = shown(running)

    assert "executions\n  no Standard one; Step Functions does not list Express ones\n" in told
    assert "An Express one may run" in told
    assert f"cdk-sagas recover {SAGA}" in told


def test_a_pipe_gets_lines_that_are_never_wrapped_and_names_that_are_never_cut() -> None:
    item, key = f"Ship[{'k' * 150}]", "the provider's key 6d0f1a1e-5a3c-5f0b-9a5e-0c1f6f1d7a42"
    output = json.dumps({"arn": f"arn:aws:states:{'x' * 110}"})
    cause = "why " * 40

    told = shown(
        replace(
            COMPLETED,
            executions=(replace(RAN, error="X", cause=cause),),
            steps=(replace(CHARGE, step=item, output=output),),
        ),
        width=UNBOUNDED,
    ).splitlines()

    (row,) = (line for line in told if item in line)
    assert f"  ' {output}; {key}" in told
    assert f"    X: {cause.strip()}" in told
    assert f"  {SAGA}  forward  SUCCEEDED  2023-11-14 22:13:20 UTC to 22:13:22 UTC, 1.9 s" in told
    assert max(len(line) for line in told if output not in line) < len(item) + 100 > len(row)


@pytest.mark.parametrize("width", [20, 40, 60, 100, 200])
def test_nothing_but_commands_and_names_is_wider_than_the_terminal(width: int) -> None:
    told = shown(PARKED, width=width).splitlines()

    assert [line for line in told if len(line) > max(width, 40) and SAGA not in line] == []


def test_control_characters_do_not_reach_the_terminal() -> None:
    evil = {"step": "Charge", "error": "X", "detail": "\x1b[2J\x1b]0;owned\x07"}
    cause = replace(PARKED.executions[0], cause="\x1b[31mred")
    step = replace(IN_DOUBT, detail="\x1b[2J", error="E", output='{"a":"\\u001b[2J"}')

    told = shown(replace(PARKED, parked_reason=evil, executions=(cause,), steps=(step,)), full=True)

    assert "\x1b" not in told
    assert "\x07" not in told


def test_a_long_output_is_cut_visibly() -> None:
    text = json.dumps({"a": "x" * 1_000})

    assert short_output(text).endswith(f"... ({len(text)} bytes; --full)")
    assert "x" * 1_000 in shown(replace(COMPLETED, steps=(replace(QUOTE, output=text),)), full=True)


# --- The command, over tables


@pytest.fixture
def operated(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[OperatedSaga]:
    """A running saga and its operator."""
    with operated_saga_in(world, monkeypatch, boto3_session) as made:
        yield made


def document(operated: OperatedSaga) -> dict[str, Any]:
    """Output of ``--json``."""
    status, told = operated.run("inspect", "--json")
    assert status == 0, told
    found: dict[str, Any] = json.loads(told)
    return found


PLACEHOLDER_IS_NO_REASON = "--reason must be yours, got WHY; write one sentence"


def test_the_command_shows_the_parked_saga_and_how_to_resolve_it(operated: OperatedSaga) -> None:
    operated.cut_off()
    operated.park()
    operated.shop.pass_every_deadline()
    before = operated.state

    status, told = operated.run("inspect")

    assert status == 0
    assert "IN_PROGRESS, parked: it waits for an operator" in told
    assert "in doubt since" in told
    (said,) = (line.split() for line in told.splitlines() if " --not-applied" in line)
    assert operated.state == before
    words = [word.replace("WHY", "asked-the-provider") for word in said[3:-2]]
    assert operated.run("resolve", *said[3:-2]) == (
        1,
        "cdk-sagas: --reason must be yours, got WHY; write one sentence\n",
    )
    assert operated.run("resolve", *words)[0] == 0


def test_before_the_deadline_a_step_is_in_doubt_until_then(operated: OperatedSaga) -> None:
    operated.cut_off()
    operated.park()

    _, told = operated.run("inspect")

    assert "in doubt until 22:13:40 UTC" in told


def test_a_step_that_the_manifest_lets_its_saga_skip_is_not_resolved(operated: OperatedSaga) -> None:
    operated.saga["steps"][0]["skipped"] = ["Declined"]
    operated.shop.gateway.refuses = "the account is closed"
    operated.shop.to_the_end(lambda: operated.shop.run(side="after"))
    operated.park(Direction.FORWARD)

    found = document(operated)

    (step,) = (step for step in found["steps"] if step["status"] is not None)
    assert (step["step"], step["error"], step["skipped"]) == (STEP, "Declined", True)
    assert [label for one in found["advice"] for label, _ in one["commands"]] == ["resume"]
    assert "was skipped by its refusal Declined" in operated.is_refused(STEP, "--not-applied")


def test_the_document_has_everything(operated: OperatedSaga) -> None:
    operated.cut_off()
    operated.park()

    found = document(operated)

    (step,) = (step for step in found["steps"] if step["status"] is not None)
    row = operated.shop.row
    assert step == {
        "step": STEP,
        "status": "INTENT",
        "side": "before",
        "output": None,
        "attempt": row[LogAttribute.ATTEMPT_ID],
        "deadline": int(row[LogAttribute.DEADLINE]),
        "certain_at": int(row[LogAttribute.DEADLINE]) + 30_000,
        "first_attempt_at": NOW_MS,
        "error": None,
        "detail": None,
        "skipped": False,
        "accepted_at": None,
        "instead": None,
        "created_at": NOW_MS,
        "updated_at": NOW_MS,
        "provider_key": provider_key_of(f"{SAGA_ID}#{STEP}"),
    }
    assert [(one["name"], one["machine"], one["status"]) for one in found["executions"]] == [
        (SAGA_ID, "forward", "FAILED")
    ]
    assert (found["finding"], found["parked_by"], found["direction"]) == ("PARKED", SAGA_ID, "compensate")
    assert found["log_table"] == "log"
    assert len(found["advice"]) == 2


def test_unreached_steps_are_in_the_definitions_order(operated: OperatedSaga) -> None:
    assert [step["step"] for step in document(operated)["steps"]] == ["Charge", "Commit", "Announce", "Ship[...]"]


def test_the_stuck_step_is_shown(operated: OperatedSaga) -> None:
    operated.park()
    aws.dynamodb().update_item(
        TableName="requests",
        Key={"id": {"S": REQUEST_ID}},
        UpdateExpression="SET #parked_reason = :parked_reason",
        ExpressionAttributeNames={"#parked_reason": RecordAttribute.PARKED_REASON},
        ExpressionAttributeValues={
            ":parked_reason": {"S": '{"step":"Charge","error":"ManualResolutionRequired","detail":"why"}'}
        },
    )

    _, told = operated.run("inspect")
    assert "  reason      Charge: ManualResolutionRequired, why\n" in told

    operated.resolves("--resume")
    assert document(operated)["parked_reason"] == {}


def test_a_recovery_and_its_owner_are_shown(operated: OperatedSaga) -> None:
    operated.park(Direction.COMPENSATE)
    operated.resolves("--resume")

    found = document(operated)

    assert [(one["name"], one["machine"]) for one in found["executions"]] == [
        (SAGA_ID, "forward"),
        (f"{SAGA_ID}-r1", "recovery"),
    ]
    assert (found["finding"], found["recoveries"]) == ("RUNNING", 1)


def test_timeline_of_an_inline_saga_needs_no_execution(operated: OperatedSaga) -> None:
    reserve: Any = reserve_put(replace(reservation_of(), express=True))
    aws.dynamodb().put_item(TableName="requests", Item=reserve["Item"])
    operated.world.executions.by_name.clear()
    operated.shop.run()

    status, told = operated.run("inspect")

    assert status == 0
    assert "no Standard one; Step Functions does not list Express ones" in told
    assert re.search(rf"{STEP} .*DONE", told), told
    found = document(operated)
    assert (found["finding"], found["express"], found["executions"]) == ("NOT_STARTED", True, [])
    assert found["steps"][0]["status"] == "DONE"

    update: Any = settle(
        request_id=REQUEST_ID, execution=SAGA_ID, status=RecordStatus.COMPLETED, now_ms=operated.now, body="{}"
    )
    aws.dynamodb().update_item(**update)
    aws.dynamodb().update_item(
        TableName="requests",
        Key={"id": {"S": REQUEST_ID}},
        UpdateExpression="SET #ran = :ran",
        ExpressionAttributeNames={"#ran": RecordAttribute.RAN},
        ExpressionAttributeValues={":ran": {"S": Ran.EXPRESS}},
    )

    _, told = operated.run("inspect")
    assert "an Express one, of which only its log remains" in told
    assert re.search(rf"{STEP} .*DONE", told), told


def test_a_foreign_item_is_reported_in_one_line(operated: OperatedSaga) -> None:
    aws.dynamodb().put_item(TableName="log", Item={"saga_id": {"S": SAGA_ID}, "step": {"S": "Odd"}})

    status, told = operated.run("inspect")

    assert status == 1
    assert told == f"cdk-sagas: saga {SAGA_ID} has an item that is not a saga's: it lacks created_at\n"


@pytest.mark.parametrize("command", ["inspect", "resolve", "cancel", "recover", "adopt"])
def test_an_unreadable_record_is_reported_in_one_line(operated: OperatedSaga, command: str) -> None:
    (item,) = operated.world.items("requests")
    aws.dynamodb().put_item(
        TableName="requests", Item={name: value for name, value in item.items() if name != "created_at"}
    )

    status, told = operated.run(command, *(["--resume"] if command == "resolve" else []))

    assert (status, told.count("\n")) == (1, 1), told
    assert f"saga {SAGA_ID} must have a readable record, got one in requests that is not:" in told


def test_output_that_is_not_given_is_refused_as_the_reason_is(operated: OperatedSaga) -> None:
    assert "--output: " in operated.run("resolve", STEP, "--applied", "--output", "OUTPUT")[1]


@pytest.mark.parametrize("step", ["", " ", "x" * 1_025])
def test_a_step_without_a_name_is_refused(operated: OperatedSaga, step: str) -> None:
    status, told = operated.run("resolve", step, "--applied")
    assert (status, "STEP must be 1 to 1024 bytes" in told) == (1, True)


def test_what_a_running_saga_retries_is_shown(operated: OperatedSaga) -> None:
    def event(number: int, type_: str, **details: Any) -> dict[str, Any]:
        at = NOW_MS / 1_000 + number
        return {"id": number, "previousEventId": number - 1, "type": type_, "timestamp": at, **details}

    failure = {"error": "Sandbox.Timedout", "cause": "no answer"}
    operated.history = [
        event(3, "TaskFailed", taskFailedEventDetails=failure),
        event(2, "TaskFailed", taskFailedEventDetails=failure),
        event(1, "TaskStateEntered", stateEnteredEventDetails={"name": "Charge"}),
    ]

    _, told = operated.run("inspect")

    assert "Charge: 2 attempts failed since 22:13:22 UTC; the next one by 22:15:23 UTC, in 2 m 3 s" in told
    assert "Sandbox.Timedout: no answer" in told
    assert "Its owner retries Charge." in told
    assert document(operated)["retries"][0]["failed"] == 2


def test_a_saga_is_followed_until_it_does_not_run(operated: OperatedSaga, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = iter([lambda: None, operated.shop.run, operated.park])
    replace_sleep(monkeypatch, lambda _: next(steps)())

    status, told = operated.run("inspect", "--follow")

    assert (status, told.count(f"saga {SAGA_ID}\n")) == (0, 3)
    assert "parked: it waits for an operator" in told
    assert next(steps, None) is None


def test_a_followed_saga_has_no_document(operated: OperatedSaga) -> None:
    with pytest.raises(SystemExit) as ended:
        operated.run("inspect", "--follow", "--json")

    assert ended.value.code == 2


def test_the_latest_execution_has_a_link_into_the_console(operated: OperatedSaga) -> None:
    _, told = operated.run("inspect")

    assert "/states/home?region=eu-central-1#/v2/executions/details/arn:aws:states:eu-central-1:" in told
    assert console_link("arn:aws-cn:states:cn-north-1:111122223333:execution:Shop:a") == ""
