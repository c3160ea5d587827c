"""Steps that wait: what is put into the queue, what a lost answer leads to, and how late effects are undone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from constructs_lib import ContinueWith
from constructs_lib.saga.asl import (
    CompiledGroup,
    SagaPlan,
    State,
    definition_of,
    phase_definition,
    recovery_of,
)
from saga_runtime.protocol import ErrorName
from tests.constructs.support.answers import answers, body, called, operators_are_told, record, refusal, row
from tests.constructs.support.interpreter import Failure, Run, run
from tests.constructs.support.plans import PLANS, TIMED_OUT, WAITING, job, plan, step, wait

FORWARD_MACHINE = "arn:aws:states:eu-west-1:111111111111:stateMachine:forward"
HEARTBEAT_LOST, TIME_IS_UP = Failure("States.HeartbeatTimeout"), Failure("States.Timeout")
JOBS, PIVOT = PLANS["jobs"], PLANS["a job is the pivot"]
SHIPS = {"output": {"parcel": "p"}}
UNDONE_BY_OTHERS = {"Items": [{"status": {"S": "COMPENSATING"}}], "Count": 1}
LATE = {"Items": [{"status": {"S": "APPLIED_LATE"}}], "Count": 1}


def forward(saga: SagaPlan, **known: Any) -> Run:
    usual = {name: {"output": {"of": name}} for name in ("Pay", "Review", "Ship", "Scan", "Pick")}
    return run(definition_of(saga), answers(usual | {k.replace("_", " "): v for k, v in known.items()}))


def waiting(saga: SagaPlan, name: str) -> State:
    state: State = definition_of(saga)["States"][name]
    return state


# --- Going forward


def test_the_outcome_is_the_steps_output() -> None:
    done = forward(JOBS, Ship=SHIPS)

    assert done.trace == ["Reserve", "Pay", "Review", "Commit", "Ship", "Settle completed"]
    assert body(done)["result"]["Ship"] == {"parcel": "p"}


def test_a_jobs_message_contains_all_that_its_dispatcher_needs() -> None:
    sent = forward(JOBS).sent["Pay"]

    assert sent["QueueUrl"] == WAITING["queue_url"]
    message = sent["MessageBody"]
    assert (message["step"], message["side"], message["request_table"]) == ("Pay", "before", "requests")
    assert message["outputs"] == {"Reserve": {"of": "Reserve"}}
    assert message["wait"] == {"heartbeat": 120, "timeout": 600}
    assert set(message["task"]) == {"started", "redriven", "entered", "retried"}
    assert message["token"]
    assert message["provider"]["verify"] is True


def test_a_job_is_sent_without_characters_that_a_queue_refuses() -> None:
    output = {"of": "\ufffe\uffff\x01\x0b", "n": 999_999_999_999_999, "f": 0.1, "list": [1]}
    sent = forward(JOBS, Reserve={"Payload": {"output": output}}).sent["Pay"]["MessageBody"]

    text = json.dumps(sent, ensure_ascii=False)
    assert not {"\ufffe", "\uffff"} & set(text)
    assert json.loads(sent["outputs"]) == {"Reserve": output}


def test_an_item_is_sent_without_characters_that_a_queue_refuses() -> None:
    item = {"sku": "a", "note": "\ufffe\uffff\x01"}
    group = CompiledGroup(
        name="Each",
        kind="map",
        branches=((job("Pick", undo=True),),),
        items="$outputs.Reserve.items",
        key="$item.sku",
        max_items=3,
    )
    saga = plan(step("Reserve", undo=True), group, step("Commit", pivot=True))
    done = run(
        definition_of(saga), answers({"Reserve": {"Payload": {"output": {"items": [item]}}}, "Pick": {"output": {}}})
    )
    sent = done.sent["Pick"]["MessageBody"]

    assert not {"\ufffe", "\uffff"} & set(json.dumps(sent, ensure_ascii=False))
    assert json.loads(sent["item"]) == {"item": item}
    assert sent["share"] == {"of": 3, "own": [], "left": 1}


def test_a_saga_that_only_waits_has_no_job() -> None:
    assert "provider" not in forward(JOBS).sent["Review"]["MessageBody"]


@pytest.mark.parametrize("name", ["Pay", "Review"])
def test_a_lost_callback_is_queried_as_often_as_time_allows(name: str) -> None:
    state = waiting(JOBS, name)

    assert (state["HeartbeatSeconds"], state["TimeoutSeconds"]) == (120, 600)
    lost, never, *_ = state["Retry"]
    assert (lost["ErrorEquals"], lost["MaxAttempts"]) == (["States.HeartbeatTimeout", "States.Timeout"], 5)
    assert never["MaxAttempts"] == 0
    assert {"JobStillPending", "ManualResolutionRequired", "SagaFenced"} <= set(never["ErrorEquals"])


@pytest.mark.parametrize("name", ["Pay", "Review", "Ship"])
def test_a_dispatchers_word_that_the_time_is_up_is_final(name: str) -> None:
    overdue = "WaitTimedOut" if name == "Review" else "JobStillPending"
    done = run(definition_of(JOBS), answers({"Pay": {"output": {}}, "Review": {"output": {}}, name: Failure(overdue)}))

    assert done.trace.count(name) == 1


# --- Exhausted


@pytest.mark.parametrize(
    "why", [HEARTBEAT_LOST, TIME_IS_UP, Failure("JobStillPending"), Failure("ManualResolutionRequired")]
)
def test_a_job_without_an_outcome_fails_and_its_compensation_queries(why: Failure) -> None:
    done = forward(JOBS, Pay=why)

    assert done.trace[1:5] == ["Pay", "Begin compensation at Pay", "Compensate Pay", "Compensate Reserve"]
    assert "mode" not in done.sent["Compensate Pay"]["Payload"]
    assert body(done, "Settle failed")["error"] == "StepFailed"


def test_a_refused_job_has_its_reason() -> None:
    done = forward(JOBS, Pay=refusal("Declined", "insufficient credit"))

    answer = body(done, "Settle failed")
    assert (answer["error"], answer["detail"]) == ("Declined", "insufficient credit")


@pytest.mark.parametrize("why", [HEARTBEAT_LOST, TIME_IS_UP, refusal(TIMED_OUT, "no event arrived")])
def test_a_wait_that_times_out_is_a_refusal(why: Failure) -> None:
    done = forward(JOBS, Review=why)

    answer = body(done, "Settle failed")
    assert (answer["error"], answer["step"], answer["status"]) == (ErrorName.CALLBACK_TIMED_OUT, "Review", 422)
    assert done.trace[3:6] == ["Begin compensation at Review", "Compensate Pay", "Compensate Reserve"]


@pytest.mark.parametrize("why", [HEARTBEAT_LOST, TIME_IS_UP, refusal(TIMED_OUT)])
def test_a_saga_may_skip_a_wait_that_times_out(why: Failure) -> None:
    done = forward(PLANS["a wait that may be skipped"], Review=why)

    assert body(done)["result"]["Review"] == {"review": "none"}


def test_an_outcome_that_arrives_before_the_skip_is_used() -> None:
    passing = f"Skip Review ({TIMED_OUT})"
    known = {
        passing: Failure("DynamoDB.ConditionalCheckFailedException"),
        f"{passing} - read row": row("RECORDED", '{"ok":1}'),
    }
    done = run(definition_of(PLANS["a wait that may be skipped"]), answers({"Review": TIME_IS_UP, **known}))

    assert body(done)["result"]["Review"] == {"ok": 1}


@pytest.mark.parametrize("error", ["Rejected", "Unclear", TIMED_OUT])
def test_a_refusal_that_arrives_before_the_skip_is_used(error: str) -> None:
    """A recovery, and compensations, go by the row: here it is asked for, and decides by its own name."""
    instead = {"Unclear": {"review": "another"}, TIMED_OUT: {"review": "none"}}
    routes = {name: ContinueWith(output=output) for name, output in instead.items()}
    saga = plan(wait("Review", refusals=("Rejected", *instead), going_on=routes), step("Commit", pivot=True))
    there = {"Item": row("REFUSED")["Item"] | {"error": {"S": error}}}
    met = {f"Skip Review ({way})": Failure("DynamoDB.ConditionalCheckFailedException") for way in instead}
    read = {f"Skip Review ({way}) - read row": there for way in instead}
    done = run(definition_of(saga), answers({"Review": [refusal(TIMED_OUT), refusal(error)], **met, **read}))

    if error in instead:
        assert body(done)["result"]["Review"] == instead[error]
    else:
        assert (body(done, "Settle failed")["error"], "Commit" in done.trace) == (error, False)


def test_a_refused_wait_that_an_operator_recorded_as_done_is_not_asked_for_again() -> None:
    saga = plan(wait("Review", refusals=(TIMED_OUT,), going_on={TIMED_OUT: ContinueWith()}), step("Commit", pivot=True))
    there = {"Item": row("DONE", '{"ok": 1}')["Item"] | {"error": {"S": "Rejected"}}}
    met = {f"Skip Review ({TIMED_OUT})": Failure("DynamoDB.ConditionalCheckFailedException")}
    read = {f"Skip Review ({TIMED_OUT}) - read row": there}
    done = run(definition_of(saga), answers({"Review": refusal(TIMED_OUT), **met, **read}))

    assert done.trace.count("Review") == 1
    assert body(done)["result"]["Review"] == {"ok": 1}


def test_a_saga_that_is_fenced_while_it_waits_touches_nothing() -> None:
    done = forward(JOBS, Pay=Failure("SagaFenced"))

    assert done.trace[-2:] == ["Pay", "End fenced"]


def test_an_unanswered_job_after_the_pivot_is_parked() -> None:
    operated = plan(*JOBS.steps, operators="https://sqs.example/operators")

    entry = operators_are_told(forward(operated, Ship=TIME_IS_UP))

    assert entry["parked_reason"]["step"] == "Ship"


def test_a_pivot_in_doubt_is_verified_by_its_dispatcher() -> None:
    known = {
        "Pay": TIME_IS_UP,
        "Fence Pay": Failure("DynamoDB.ConditionalCheckFailedException"),
        "Fence Pay - read row": [row("INTENT"), row("DONE", '{"of": "Pay"}')],
        "Scan": {"output": {}},
    }
    done = run(definition_of(PIVOT), answers(known))

    assert called(done, "Fence Pay - verify")[0]["Payload"]["mode"] == "verify"
    assert done.status == "SUCCEEDED"
    assert done.trace[-2:] == ["Scan", "Settle completed"]


def test_a_pivot_with_a_late_effect_is_compensated() -> None:
    known = {
        "Pay": TIME_IS_UP,
        "Fence Pay": Failure("DynamoDB.ConditionalCheckFailedException"),
        "Fence Pay - read row": row("APPLIED_LATE"),
    }
    done = run(definition_of(PIVOT), answers(known))

    assert done.trace[-5:] == [
        "Compensate Pay",
        "Compensate Reserve",
        "Query saga log",
        "All compensated?",
        "Settle failed",
    ]


# --- Late


@pytest.mark.parametrize("log", [LATE, UNDONE_BY_OTHERS])
@pytest.mark.parametrize("saga", [JOBS, PIVOT])
def test_an_effect_during_compensation_is_compensated_before_the_settle(saga: SagaPlan, log: dict[str, Any]) -> None:
    known = {"Reserve": refusal(), "Query saga log": [log, {"Items": [], "Count": 0}]}
    done = run(definition_of(saga), answers(known))

    asked = done.trace.index("Query saga log")
    assert done.trace[asked:] == [
        "Query saga log", "All compensated?", "Compensate Pay", "Compensate Reserve", "Query saga log",
        "All compensated?", "Settle failed",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "log",
    [
        {"Items": [{"status": {"S": "APPLIED_LATE"}}, {"status": {"S": "DONE"}}], "Count": 2},
        {"Items": [{"status": {"S": "DONE"}}], "Count": 1},
    ],
)
def test_other_applied_effects_need_an_operator(log: dict[str, Any]) -> None:
    done = run(definition_of(JOBS), answers({"Reserve": refusal(), "Query saga log": log}))

    assert done.trace[-1] == "End parked"


def test_only_late_effects_are_compensated_and_the_record_is_unchanged() -> None:
    done = late(JOBS, {"Read direction": record(status="FAILED")})

    assert done.trace[2:] == ["Compensate late Pay", "Late effects compensated"]
    payload = done.sent["Compensate late Pay"]["Payload"]
    assert (payload["mode"], payload["logged"]["steps"]) == ("late", ["Reserve"])
    assert not [arguments for _, arguments in done.calls if "UpdateExpression" in arguments]


def late(saga: SagaPlan, known: dict[str, Any]) -> Run:
    return run(recovery_of(saga, FORWARD_MACHINE), answers(known), late=True)


def test_an_uncompensated_late_effect_is_reported_to_operators() -> None:
    operated = plan(*JOBS.steps, operators="https://sqs.example/operators")
    done = late(
        operated,
        {"Read direction": {}, "Compensate late Pay": Failure("ManualResolutionRequired", '{"errorMessage": "?"}')},
    )

    assert done.trace[-3:] == ["Compensate late Pay", "Notify operators (late)", "End late not compensated"]
    entry = json.loads(done.sent["Notify operators (late)"]["MessageBody"])
    assert (entry["late"], entry["parked_reason"]["error"]) == (True, "ManualResolutionRequired")


def test_late_jobs_of_a_map_are_compensated_item_by_item() -> None:
    group = CompiledGroup(
        name="Picks",
        kind="map",
        branches=((step("Label", undo=True), job("Pick", undo=True)),),
        items="$request.items",
        key="$item.sku",
    )
    saga = plan(group, step("Commit", pivot=True))
    definition = recovery_of(saga, FORWARD_MACHINE)
    request = json.dumps({"items": [{"sku": "a"}, {"sku": "b"}]})
    known = {"Read direction": record(status="FAILED")}
    done = run(definition, answers(known), request=request, late=True)

    sent = [arguments["Payload"] for name, arguments in done.calls if name == "Compensate late Pick"]
    assert [(payload["item_key"], payload["mode"]) for payload in sent] == [("a", "late"), ("b", "late")]
    assert not called(done, "Compensate late Label")
    assert done.trace[-1] == "Late effects compensated"


def test_a_saga_without_jobs_has_no_way_for_late_effects() -> None:
    names = recovery_of(plan(step("Debit", undo=True), wait("Review"), step("Credit", pivot=True)), FORWARD_MACHINE)

    assert not [name for name in names["States"] if "late" in name.lower()]


def test_a_job_that_nothing_compensates_is_left_to_an_operator() -> None:
    saga = plan(step("Reserve", undo=True), job("Pay", pivot=True))

    assert not [name for name in recovery_of(saga, FORWARD_MACHINE)["States"] if "late" in name.lower()]


# --- In phases and branches


def test_jobs_of_a_child_are_waited_for_in_its_own_history() -> None:
    group = CompiledGroup(
        name="Fulfil",
        kind="child",
        branches=((job("Pick"), wait("Scan")),),
        timeout=3_600,
        machine_arn="arn:f",
        shape="d",
    )
    saga = plan(step("Commit", pivot=True), group)
    phase = phase_definition(saga, group)
    done = run(phase, answers({"Pick": {"output": {"p": 1}}, "Scan": {"output": {"s": 1}}}), outputs={"Commit": {}})

    assert done.output == {"ok": True, "outputs": {"Pick": {"p": 1}, "Scan": {"s": 1}}}


def test_a_branch_with_an_unanswered_job_returns_its_failure() -> None:
    group = CompiledGroup(
        name="Both", kind="parallel", branches=((job("Pick", undo=True),), (step("Label", undo=True),))
    )
    saga = plan(group, step("Commit", pivot=True))
    done = run(definition_of(saga), answers({"Pick": TIME_IS_UP}))

    assert body(done, "Settle failed")["step"] == "Pick"
    assert called(done, "Compensate Pick")
