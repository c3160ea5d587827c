"""The simulator finds what a condition prevents, when the condition is gone; and what it found can be read."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from constructs_lib.testing.proof import Proof
from constructs_lib.testing.simulator import Climate, Intent, PromiseBrokenError, Workload, World, simulate
from constructs_lib.testing.simulator.aws.dynamodb import Condition, Table, clauses_of, without
from constructs_lib.testing.simulator.aws.gateway import Response
from constructs_lib.testing.simulator.promise import operators_know
from constructs_lib.testing.simulator.run import _late_effects, _left, simulate_once
from saga_runtime.callbacks.decisions import CONTRADICTED, conflict_id_of
from saga_runtime.callbacks.rows import Outcome
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, REPLAYED_HEADER

from .conftest import Deployed
from .workloads.transfers import Transfers

MOST = 600
"""Sagas within which each must be found."""


class _Weakened(Transfers):
    """Transfers on a database that ignores some clauses of conditions."""

    def __init__(self, table: str, *clauses: str) -> None:
        self._table = table
        self._clauses = clauses

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        world.db.rewrite = self._weakened

    def _weakened(self, table: Table, _text: str, condition: Condition) -> Condition:
        if self._table in table.name:
            for clause in list(clauses_of(condition)):
                if str(clause) in self._clauses:
                    condition = without(condition, clause)
        return condition


@pytest.mark.parametrize(
    ("table", "clauses", "broken"),
    [
        (
            "LogTable",
            ("attribute_not_exists(#saga_id)",),
            {"log and ledger agree", "records and log agree", "each step is done and undone once"},
        ),
        ("Ledger", ("#sequence = :read", "#balance = :before"), {"balances equal their entries"}),
    ],
)
def test_a_violation_without_its_condition_is_found(
    table: str, clauses: tuple[str, ...], broken: Collection[str], deployed: Deployed
) -> None:
    report = simulate(deployed("funds_transfer"), _Weakened(table, *clauses), sagas=MOST)
    assert not report.kept
    assert {finding.kind for finding in report.violated[0].findings} & set(broken)


class _Other(dict[str, str]):
    """Failures, each of which is kept as another one."""

    def setdefault(self, saga_id: str, failure: str = "") -> str:
        return super().setdefault(saga_id, json.dumps({**json.loads(failure), "error": "Other"}))


class _Misrecorded(Transfers):
    """Transfers whose responses have another failure than their records kept."""

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        world.failures = _Other()


def test_response_with_another_failure_is_found(deployed: Deployed) -> None:
    report = simulate(deployed("funds_transfer"), _Misrecorded(), sagas=100)
    assert {finding.kind for finding in report.violated[0].findings} == {"a failure is what was recorded"}


class _Retracting(Transfers):
    """Transfers whose API does not know in a second response what it stated in a first one.

    Args:
        method: of the requests that are answered so.
    """

    def __init__(self, method: str) -> None:
        self._method = method

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        gateway: Any = world.gateway
        send, answered = gateway.send, set()

        def retracts(actor: Any, method: str, path: str, **more: Any) -> Response:
            response: Response = send(actor, method, path, **more)
            key = more["headers"].get(IDEMPOTENCY_KEY_HEADER)
            if method == self._method == "POST" and key in answered:
                return Response(status=409, body=json.dumps({"saga_id": response.json().get("saga_id")}))
            if response.headers.get(REPLAYED_HEADER.lower()):
                answered.add(key)
            if method == self._method == "GET" and response.status == 200 and "answer" in response.json():
                return replace(response, body=json.dumps({**response.json(), "answer": {}}))
            return response

        gateway.send = retracts


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_answer_that_is_taken_back_is_found(method: str, deployed: Deployed) -> None:
    report = simulate(deployed("funds_transfer"), _Retracting(method), sagas=MOST)
    assert "an answer is not taken back" in {finding.kind for finding in report.violated[0].findings}


def test_a_finding_is_reported_with_its_seed(deployed: Deployed) -> None:
    workload = _Weakened("Ledger", "#sequence = :read", "#balance = :before")
    report = simulate(deployed("funds_transfer"), workload, sagas=MOST)
    with pytest.raises(PromiseBrokenError) as broken:
        report.require_kept()
    told = str(broken.value)
    seed, sagas = report.violated[0].seed, report.violated[0].sagas
    assert f"seed={seed}, sagas={sagas}) repeats it" in told
    assert "balances equal their entries" in told
    assert "dynamodb:TransactWriteItems" in told
    again = simulate(deployed("funds_transfer"), workload, sagas=sagas, seed=seed)
    assert again.violated[0].trace == report.violated[0].trace
    assert report.as_json()["violated"][0]["seed"] == seed


@pytest.mark.parametrize(("status", "waits"), [("APPLIED_LATE", True), ("COMPENSATING", True), ("COMPENSATED", False)])
def test_run_does_not_end_before_late_effects_are_compensated(status: str, waits: bool) -> None:
    """Also not when their compensation was interrupted: the reconciler starts another one."""
    rows: Any = [{"saga_id": {"S": "one"}, "step": {"S": "Debit"}, "status": {"S": status}}]
    world: Any = SimpleNamespace(parts=SimpleNamespace(logs=("log",)), table=lambda _: rows)
    assert _late_effects(world) == (["one Debit"] if waits else [])


JOB = "a" * 26 + "-mdwqr4j1#Pick"


@pytest.mark.parametrize(
    ("row_id", "conflict", "entry", "found"),
    [
        (JOB, Outcome.failure("Lost", "-"), None, 1),
        (JOB, Outcome.failure("Lost", "-"), Outcome.failure("Other", "-"), 1),
        (JOB, Outcome.failure("Lost", "-"), Outcome.failure("Lost", "-"), 0),
        (JOB, Outcome.success("{}"), None, 0),
        ("alias#Warehouse#7", Outcome.failure("Lost", "-"), None, 0),
    ],
)
def test_outcome_that_contradicts_and_has_no_entry_is_found(
    row_id: str, conflict: Outcome, entry: Outcome | None, found: int
) -> None:
    conflicts = [] if entry is None else [{"job": JOB, "outcome": conflict_id_of(JOB, entry)}]
    bodies = [json.dumps({"parked_reason": {"error": CONTRADICTED}, "conflict": each}) for each in conflicts]
    queue = SimpleNamespace(messages=[SimpleNamespace(body=body) for body in bodies])
    rows = [{"id": {"S": row_id}, "status": {"S": "DELIVERED"}, "conflict": {"S": conflict.encode()}}]
    assert len(operators_know(_notified(rows, queue, [])).violations) == found


def _notified(rows: list[Any], queue: Any, records: list[Any]) -> Any:
    """A world with rows of a token table, an operators' queue, and records."""
    parts = SimpleNamespace(operators={"m": "url"}, tokens=("tokens",), requests=("requests",))
    queues = SimpleNamespace(queue=lambda _: queue)
    return SimpleNamespace(parts=parts, queues=queues, table=lambda _: rows, records=lambda _: records)


@pytest.mark.parametrize(("recorded", "noticed", "found"), [(True, True, 0), (True, False, 1), (False, False, 0)])
def test_outcome_that_contradicts_and_has_no_notice_is_found(recorded: bool, noticed: bool, found: int) -> None:
    conflict = Outcome.failure("Lost", "-")
    outcome = conflict_id_of(JOB, conflict)
    body = json.dumps({"parked_reason": {"error": CONTRADICTED}, "conflict": {"job": JOB, "outcome": outcome}})
    notice: Any = {"id": {"S": f"notice#{JOB}#{CONTRADICTED}#{outcome}"}, "status": {"S": "NOTIFIED"}}
    row: Any = {"id": {"S": JOB}, "status": {"S": "DELIVERED"}, "conflict": {"S": conflict.encode()}}
    queue = SimpleNamespace(messages=[SimpleNamespace(body=body)])
    records = [{"saga_id": {"S": JOB.partition("#")[0]}}] if recorded else []
    world = _notified([row, *([notice] if noticed else [])], queue, records)

    assert len(operators_know(world).violations) == found


@pytest.mark.parametrize(("status", "left"), [("NOTICE", ["notice#1"]), ("NOTIFIED", None), ("DELIVERED", None)])
def test_run_does_not_end_before_entries_for_operators_are_sent(status: str, left: list[str] | None) -> None:
    rows = {"tokens": [{"id": {"S": "notice#1"}, "status": {"S": status}}]}
    parts = SimpleNamespace(tokens=("tokens",), logs=(), requests=(), holds=(), outboxes=())
    nothing = SimpleNamespace(running=list, waiting=dict)
    world: Any = SimpleNamespace(
        parts=parts,
        table=lambda name: rows[name],
        rollout=SimpleNamespace(done=True),
        machines=nothing,
        functions=SimpleNamespace(running={}),
        queues=nothing,
        streams=nothing,
        events=nothing,
    )
    assert _left(world, Workload(), []).get("notices") == left


def test_without_faults_nothing_fails(deployed: Deployed) -> None:
    report = simulate(deployed("funds_transfer"), Transfers(), sagas=50, climate=Climate())
    report.require_kept()
    assert report.checked["records and log agree"] >= 50
    assert report.as_json()["invariants"] == report.checked
    shown = " ".join(str(report).split())
    assert all(f"{name} ({count})" in shown for name, count in report.checked.items())
    assert report.faults == 0
    assert report.parked == 0
    assert report.coverage.faults == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sagas": 0}, "sagas must be a whole number from 1 on, got 0"),
        ({"sagas": True}, "sagas must be a whole number from 1 on, got True"),
        ({"seed": "1"}, "seed must be an integer, got '1'"),
        (
            {"stack": "cdk.out"},
            "stack must be a Stack, an App, or the Path of an assembly, got 'cdk.out'; pass",
        ),
        ({"workload": Transfers}, "workload must be a Workload, got <class .*; derive a class from Workload"),
        ({"workload": Workload()}, "workload must have an intent, got <.*; write intent.number, random. in its class"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(**{"stack": Path("nowhere"), "workload": Transfers(), **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"operation": 3}, "operation of an Intent must be text, got 3"),
        ({"user": " "}, "user of an Intent must be text, got ' '"),
        ({"key": ""}, "key of an Intent must be text, got ''"),
        ({"body": "{}"}, "body of an Intent must be a JSON object, got '{}'; pass a dict"),
        ({"other_body": []}, r"other_body of an Intent must be a JSON object, got \[\]; pass a dict"),
    ],
)
def test_an_intent_that_cannot_be_sent_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Intent(**{"operation": "transfers", "body": {}, **arguments})


async def _later(*_: object) -> Any:
    """Answer a workload's question too late."""


@pytest.mark.parametrize(
    ("method", "answer", "message"),
    [
        ("intent", {"operation": "transfers"}, "an Intent, got {'operation': 'transfers'}; return Intent(operation=…"),
        ("intent", _later, "an Intent, got <coroutine object _later at 0x…>; write def, not async def"),
        ("providers", None, "providers by URL, got None; return {'https://bank.example': …}"),
        (
            "providers",
            {"https://bank.example": None},
            "the beginning of a URL with a provider, got {'https://bank.example': None}; a provider has the method",
        ),
        ("audit", None, "invariants, got None; return a list, or yield each of them"),
        ("audit", ["balanced"], "invariants, got 'balanced'; write Invariant(name=…, checked=…, violations=(…))"),
        ("audit_results", 3, "invariants, got 3; return a list, or yield each of them"),
    ],
)
def test_a_wrong_answer_of_a_workload_is_refused(method: str, answer: Any, message: str, deployed: Deployed) -> None:
    asked = answer if answer is _later else lambda *_: answer
    workload = type("Mine", (Transfers,), {method: asked})()

    with pytest.raises(ValueError, match=rf"^{method} of Mine must return ") as raised:
        simulate(deployed("funds_transfer"), workload, sagas=1)
    assert message in re.sub("0x[0-9a-f]+", "0x…", str(raised.value))
    with (
        Proof(deployed("funds_transfer"), workload) as proof,
        pytest.raises(ValueError, match=rf"^{method} of Mine must return "),
    ):
        proof.duplicates_are_one()


def test_a_run_continues_behind_the_real_clock(deployed: Deployed) -> None:
    import time

    began = time.monotonic()
    result = simulate_once(deployed("funds_transfer"), Transfers(), 3, sagas=10, coverage=_coverage(), traced=True)
    assert result.virtual > 20 * (time.monotonic() - began) * 1_000_000 or result.virtual > 60_000_000
    assert any("[Select first step]" in line for line in result.trace)


def _coverage() -> Any:
    from constructs_lib.testing.simulator.checks.coverage import Coverage

    return Coverage()
