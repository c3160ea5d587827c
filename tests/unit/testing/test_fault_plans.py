"""A fault plan: its report, the calls that it selects, and the plans that it refuses."""

from __future__ import annotations

import doctest
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from constructs_lib.testing import fault_plan
from constructs_lib.testing.emulator.faults.answers import failure_of
from constructs_lib.testing.emulator.faults.control import control
from constructs_lib.testing.emulator.faults.engine import Call, FaultEngine, Verdict
from constructs_lib.testing.emulator.faults.operations import call_of, signer_of
from constructs_lib.testing.fault_plan import StopStatus, from_wire, to_wire
from constructs_lib.testing.faults import Action, Attempts, Every, Fault, First, Moment, Nth, Planned, Share, StopAt

PUT = "dynamodb:PutItem"
GOLDEN = [1, 6, 9]


def engine_with(*planned: Planned) -> FaultEngine:
    engine = FaultEngine(lambda: 0.0)
    engine.plan(list(planned))
    return engine


def arrive(
    engine: FaultEngine,
    *,
    caller: str = "gatekeeper",
    call: str = PUT,
    body: bytes = b"",
    logical_id: str | None = None,
    attempt: int = 1,
) -> Verdict:
    return engine.arrive(Call(caller=caller, call=call, body=body, logical_id=logical_id, attempt=attempt))


def hits(engine: FaultEngine, calls: int, **kwargs: Any) -> list[int]:
    """The numbers of the calls that are hit."""
    return [number for number in range(1, calls + 1) if arrive(engine, **kwargs).fault is not None]


def kill(**kwargs: Any) -> Fault:
    return Fault(**{"function": "gatekeeper", "call": PUT, "action": "kill", **kwargs})


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (First(), [1]),
        (First(3), [1, 2, 3]),
        (Nth(1), [1]),
        (Nth(4), [4]),
        (Every(), [1, 2, 3, 4, 5, 6]),
        (Share(1, seed=7), [1, 2, 3, 4, 5, 6]),
    ],
)
def test_a_schedule_selects_its_calls_and_no_others(schedule: First | Nth | Every | Share, expected: list[int]) -> None:
    assert hits(engine_with(kill(on=schedule)), 6) == expected


def test_a_share_selects_the_same_calls_in_every_run() -> None:
    runs = [hits(engine_with(kill(on=Share(0.3, seed=11))), 200) for _ in range(2)]

    assert runs[0] == runs[1]
    assert 35 <= len(runs[0]) <= 85


def test_a_share_selects_the_calls_that_it_always_did() -> None:
    # A changed list would make a run that was reported by its seed impossible to repeat.
    assert hits(engine_with(kill(on=Share(0.3, seed=11))), 20) == GOLDEN


def test_a_share_selects_other_calls_under_another_seed() -> None:
    assert hits(engine_with(kill(on=Share(0.3, seed=1))), 100) != hits(engine_with(kill(on=Share(0.3, seed=2))), 100)


def test_a_share_does_not_depend_on_other_callers() -> None:
    share = Fault(function="*", call="*", action="drop", on=Share(0.5, seed=3))
    alone, crowded = engine_with(share), engine_with(share)

    expected = hits(alone, 50, caller="worker")
    got = []
    for number in range(1, 51):
        hits(crowded, number % 4, caller="gatekeeper")
        hits(crowded, number % 3, caller="worker", call="dynamodb:GetItem")
        got += [number] if arrive(crowded, caller="worker").fault else []

    assert got == expected


@pytest.mark.parametrize(
    ("function", "call", "caller", "made", "matches"),
    [
        ("gatekeeper", PUT, "gatekeeper", PUT, True),
        ("gatekeeper", PUT, "gatekeeper", "dynamodb:GetItem", False),
        ("gatekeeper", PUT, "gatekeeper-2", PUT, False),
        ("gatekeeper", "dynamodb:*", "gatekeeper", "dynamodb:GetItem", True),
        ("gatekeeper", "dynamodb:*", "gatekeeper", "states:StartExecution", False),
        ("gatekeeper", "*", "gatekeeper", "states:StartExecution", True),
        ("*", PUT, "worker", PUT, True),
        ("*", PUT, "states:checkout", PUT, False),
        ("states:*", PUT, "states:checkout", PUT, True),
        ("states:*", PUT, "worker", PUT, False),
        ("states:checkout", PUT, "states:checkout", PUT, True),
    ],
)
def test_a_fault_matches_the_calls_that_it_names(
    function: str, call: str, caller: str, made: str, matches: bool
) -> None:
    assert Fault(function=function, call=call, action="drop").matches(caller, made, b"") is matches


def test_a_fault_may_be_limited_to_requests_that_contain_a_text() -> None:
    engine = engine_with(kill(containing="key-7", on=Nth(2)))

    found = [n for n in range(1, 7) if arrive(engine, body=b"key-7" if n % 2 else b"key-8").fault]

    assert found == [3]


def test_a_retry_of_the_sdk_belongs_to_the_call_that_it_repeats() -> None:
    engine = engine_with(kill(on=Nth(2)))
    for attempt in (1, 2, 3):
        assert arrive(engine, logical_id="a", attempt=attempt).fault is None

    assert arrive(engine, logical_id="b").fault is not None
    assert engine.report()[0]["matched"] == 2


@pytest.mark.parametrize(("attempts", "hit"), [(Attempts.FIRST, [1]), (Attempts.ALL, [1, 2, 3])])
def test_attempts_select_whether_retries_of_the_sdk_are_hit_too(attempts: Attempts, hit: list[int]) -> None:
    engine = engine_with(kill(action="drop", attempts=attempts))

    assert [n for n in (1, 2, 3) if arrive(engine, logical_id="a", attempt=n).fault] == hit
    outcome = engine.report()[0]
    assert (outcome["fired"], outcome["attempts"]) == (1, len(hit))


def test_where_two_faults_select_one_call_the_first_planned_acts_and_the_other_is_shadowed() -> None:
    engine = engine_with(kill(), kill(action="drop"))

    fault = arrive(engine).fault

    assert fault is not None
    assert fault.action is Action.KILL
    assert [(outcome["fired"], outcome["shadowed"]) for outcome in engine.report()] == [(1, 0), (0, 1)]


def test_counting_is_exact_when_calls_arrive_at_once() -> None:
    engine = engine_with(kill(on=Nth(500)), kill(on=Nth(777), action="drop"))
    hit: list[Action | str] = []

    def many() -> None:
        for _ in range(100):
            fault = arrive(engine).fault
            if fault is not None:
                hit.append(fault.action)

    threads = [threading.Thread(target=many) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(hit) == ["drop", "kill"]
    assert [outcome["matched"] for outcome in engine.report()] == [1000, 1000]


def test_an_execution_is_stopped_at_the_named_moment_of_the_named_state_only() -> None:
    engine = engine_with(StopAt(machine="checkout", state="Settle", moment="after"))

    def reach(machine: str, state: str, moment: Moment) -> bool:
        return engine.reach(machine, state, moment, execution="e", execution_input="{}") is not None

    assert not reach("checkout", "Settle", Moment.BEFORE)
    assert not reach("checkout", "Charge", Moment.AFTER)
    assert not reach("other", "Settle", Moment.AFTER)
    assert reach("checkout", "Settle", Moment.AFTER)
    assert not reach("checkout", "Settle", Moment.AFTER)


def test_of_two_stops_the_first_one_decides_how_the_execution_ends() -> None:
    engine = engine_with(
        StopAt(machine="checkout", state="Settle", status="TIMED_OUT"), StopAt(machine="checkout", state="Settle")
    )

    stop = engine.reach("checkout", "Settle", Moment.BEFORE, execution="e", execution_input="{}")

    assert stop is not None
    assert stop.status is StopStatus.TIMED_OUT
    assert [outcome["shadowed"] for outcome in engine.report()] == [0, 1]


def test_a_stopped_execution_is_aborted_by_default() -> None:
    assert StopAt(machine="m", state="Settle").status is StopStatus.ABORTED


def test_the_example_of_the_documentation_runs() -> None:
    assert doctest.testmod(fault_plan).failed == 0


def test_an_engine_reads_calls_only_while_faults_or_recordings_are_active() -> None:
    engine = FaultEngine(lambda: 0.0)
    armed = [engine.armed]
    ids = engine.plan([kill()])
    recording = engine.open_recording()
    engine.clear(ids)
    armed.append(engine.armed)
    engine.close_recording(recording)
    armed.append(engine.armed)

    assert armed == [False, True, False]


def test_a_cleared_fault_hits_nothing_and_leaves_the_report() -> None:
    engine = FaultEngine(lambda: 0.0)
    first, second = engine.plan([kill(), kill(on=Every())])
    engine.clear([first])

    assert arrive(engine).fault is not None
    assert [outcome["id"] for outcome in engine.report()] == [second]


@pytest.mark.parametrize(
    "planned",
    [
        kill(),
        Fault(function="f", call=PUT, action="delay", moment="after", seconds=2.5, on=Share(0.25, seed=4)),
        Fault(function="f", call="dynamodb:TransactWriteItems", action="conflict", items=(0, 2), on=Nth(3)),
        Fault(function="states:m", call="*", action="error", moment="after", on=Every(), containing="x"),
        StopAt(machine="m", state="Settle", moment="after", on=Nth(2), containing="k"),
        StopAt(machine="m", state="Settle", status="TIMED_OUT"),
    ],
)
def test_a_plan_survives_the_way_to_the_emulator(planned: Planned) -> None:
    assert from_wire(json.loads(json.dumps(to_wire(planned)))) == planned


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: kill(function=""), "function must name a function like"),
        (lambda: kill(function=" f"), "got ' f'"),
        (lambda: kill(function="states:"), "got 'states:'"),
        (lambda: kill(call="PutItem"), "an operation like \"dynamodb:PutItem\", got 'PutItem'"),
        (lambda: kill(call="dynamodb:putItem"), "got 'dynamodb:putItem'"),
        (lambda: kill(action="explode"), "action must be one of kill, drop, delay, throttle, conflict, error, got"),
        (lambda: kill(moment="during"), "moment must be one of before, after, got 'during'"),
        (lambda: kill(attempts="some"), "attempts must be one of first, all, got 'some'"),
        (lambda: kill(on=3), "on must be First(), Nth(n), Every() or Share(probability, seed), got 3"),
        (lambda: kill(containing=""), "leave it out to match every call"),
        (lambda: kill(action="throttle", moment="after"), "is a refusal, so the call has no effect to be after"),
        (lambda: kill(action="conflict", moment="after"), 'action="conflict" is a refusal'),
        (lambda: kill(action="conflict", call="dynamodb:GetItem"), 'got call="dynamodb:GetItem"; no other call'),
        (lambda: kill(items=(0,)), 'items belong to action="conflict" on a transaction, got action="kill"'),
        (lambda: kill(action="conflict", items=(0,)), "leave items out"),
        (
            lambda: kill(action="conflict", call="dynamodb:TransactWriteItems", items=(1, 1)),
            "items must be different positions from 0 on, got (1, 1)",
        ),
        (lambda: kill(seconds=1), 'seconds belong to action="delay", got action="kill"'),
        (lambda: kill(action="delay", seconds=0), "seconds must be above 0, got 0"),
        (lambda: kill(action="delay", seconds=float("inf")), "seconds must be above 0, got inf"),
        (lambda: kill(function="states:m"), 'no process to kill, got function="states:m"; use StopAt'),
        (lambda: kill(function="states:m", action="delay"), "needs seconds for a state machine"),
        (lambda: kill(function="states:m", action="drop", attempts="all"), "use on=Every()"),
        (lambda: First(0), "times must be a whole number from 1 on, got 0"),
        (lambda: Nth(0), "n must be a whole number from 1 on, got 0; the first call is Nth(1)"),
        (lambda: Nth(True), "got True"),
        (lambda: Share(0, seed=1), "probability must be above 0 and at most 1, got 0; leave the fault out for none"),
        (lambda: Share(1.5, seed=1), "use Every() for all"),
        (lambda: Share(0.5, seed="x"), "seed must be an integer, got 'x'"),  # type: ignore[arg-type]
        (lambda: StopAt(machine="", state="S"), 'machine must name a state machine like "Stack/Checkout/Machine"'),
        (
            lambda: StopAt(machine="m", state="S", status="FAILED"),  # type: ignore[arg-type]
            "status must be one of ABORTED, TIMED_OUT, got 'FAILED'",
        ),
        (lambda: StopAt(machine="states:m", state="S"), 'got "states:m"; drop "states:"'),
        (lambda: StopAt(machine="m", state=" "), "state must be the name of a state, 1 to 80 characters, got ' '"),
    ],
)
def test_a_plan_that_cannot_fire_is_refused_with_value_and_remedy(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match="got") as refused:
        make()

    assert message in str(refused.value)


def test_a_conflict_names_a_reason_for_every_item_of_the_transaction() -> None:
    call = "dynamodb:TransactWriteItems"
    fault = Fault(function="f", call=call, action="conflict", items=(1,))

    failure = failure_of(fault, call, json.dumps({"TransactItems": [{}, {}, {}]}).encode())

    assert failure.code == "TransactionCanceledException"
    assert [reason["Code"] for reason in failure.reasons or ()] == ["None", "TransactionConflict", "None"]
    assert failure.message.endswith("[None, TransactionConflict, None]")


@pytest.mark.parametrize(
    ("service", "method", "path", "query", "headers", "body", "expected"),
    [
        ("dynamodb", "POST", "/", "", {"x-amz-target": "DynamoDB_20120810.PutItem"}, b"{}", PUT),
        ("states", "POST", "/", "", {"x-amz-target": "AWSStepFunctions.StartExecution"}, b"", "states:StartExecution"),
        (
            "sts",
            "POST",
            "/",
            "",
            {"content-type": "application/x-www-form-urlencoded; charset=utf-8"},
            b"Action=AssumeRole&Version=2011-06-15",
            "sts:AssumeRole",
        ),
        ("lambda", "POST", "/2015-03-31/functions/f/invocations", "", {}, b"{}", "lambda:Invoke"),
        ("s3", "GET", "/", "", {}, b"", "s3:ListBuckets"),
        ("s3", "PUT", "/bucket/a/b", "", {}, b"x", "s3:PutObject"),
        ("s3", "PUT", "/bucket/a/b", "", {"x-amz-copy-source": "c/d"}, b"", "s3:CopyObject"),
        ("s3", "PUT", "/bucket/a", "partNumber=1&uploadId=u", {}, b"x", "s3:UploadPart"),
        ("s3", "GET", "/bucket/a", "tagging", {}, b"", "s3:GetObjectTagging"),
        ("nowhere", "GET", "/", "", {}, b"", "nowhere:Unknown"),
    ],
)
def test_the_operation_is_read_from_the_request(
    service: str, method: str, path: str, query: str, headers: dict[str, str], body: bytes, expected: str
) -> None:
    assert call_of(service, method, path, query, headers, body) == expected


def test_the_signer_is_read_from_the_signature_whether_in_a_header_or_in_the_query() -> None:
    header = signer_of({"authorization": "AWS4-HMAC-SHA256 Credential=ASIAX/20260101/us-east-1/sqs/aws4_request"}, "")
    query = signer_of({}, "X-Amz-Credential=ASIAX%2F20260101%2Fus-east-1%2Fsqs%2Faws4_request")

    assert header is not None
    assert header == query
    assert (header.access_key_id, header.service) == ("ASIAX", "sqs")
    assert signer_of({}, "") is None


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "/_cdk_sagas/faults", b"{", 400, ""),
        ("POST", "/_cdk_sagas/faults", b"{}", 400, "faults"),
        ("GET", "/_cdk_sagas/calls/recording-9", b"", 404, "no recording is called recording-9"),
        ("GET", "/_cdk_sagas/nothing", b"", 404, "nothing is at GET /_cdk_sagas/nothing"),
    ],
)
def test_the_control_path_refuses_unknown_input(method: str, path: str, body: bytes, status: int, message: str) -> None:
    got, content = control(FaultEngine(lambda: 0.0), method, path, body)

    assert got == status
    assert message in json.loads(content)["message"]
