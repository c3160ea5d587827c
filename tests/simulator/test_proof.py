"""The proof kit finds what a missing condition breaks, and reports what was enumerated, run, and audited."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aws_cdk import App

from constructs_lib.testing.fault_plan import Fault
from constructs_lib.testing.fault_schedules import Nth
from constructs_lib.testing.faults import RecordedCall
from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.proof import Case, Check, NotProvenError, Proof
from constructs_lib.testing.proof.local import Local, _Ran
from constructs_lib.testing.simulator import (
    Deployment,
    Intent,
    PromiseBrokenError,
    Result,
    Workload,
    World,
    simulate,
    simulation,
)
from constructs_lib.testing.simulator.aws.dynamodb import Condition, Table
from constructs_lib.testing.simulator.aws.dynamodb.trees import Always
from constructs_lib.testing.simulator.checks.effects import audit_failed
from constructs_lib.testing.simulator.checks.requests import Requests
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.promise import result_of
from examples.funds_transfer import stack as funds_transfer
from saga_runtime.idempotency.identity import is_saga_id
from saga_runtime.idempotency.record import RESERVE
from saga_runtime.protocol import Env, LedgerAttribute, RecordAttribute

from .conftest import Deployed
from .examples import EXAMPLES
from .workloads.transfers import LEDGERS, MISSING, Transfers, Weakened

pytestmark = pytest.mark.proof

PARTNER = 2
"""Seed of a transfer to the partner."""
QUICK = 4
"""Seed of one within a ledger, which makes few calls."""


class _Booked(Transfers):
    """Transfers whose books must have what their requests demand, and nothing else."""

    seen: Sequence[Result] = ()

    def audit_results(self, world: World, results: Sequence[Result]) -> Iterable[Invariant]:
        self.seen = results
        requests = {(one.intent.user, one.key): one for one in results}.values()
        moved = sum(one.intent.body["amount"] for one in requests if one.completed and "to_ledger" in one.intent.body)
        a = LedgerAttribute
        entries = [
            int(item[a.AMOUNT]["N"])
            for item in world.table(world.output(LEDGERS[0]))
            if item[a.PK]["S"].startswith("account#") and item[a.KIND]["S"] == "entry"
            if is_saga_id(item[a.ENTRY_ID]["S"].partition("#")[0])  # others opened the accounts
        ]
        told = () if sum(entries) == -moved else (f"{-sum(entries)} left for the partner, and {moved} was requested",)
        yield Invariant(name="the books have what was requested", checked=len(requests), violations=told)


class _Twice(Transfers):
    """Transfers whose request table takes a second reservation of one request in its first half second."""

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        ends = world.kernel.now + SECOND // 2

        def rewrite(_table: Table, text: str, condition: Condition) -> Condition:
            return Always() if text == RESERVE and world.kernel.now < ends else condition

        world.db.rewrite = rewrite


def test_every_check_holds_and_is_reported(deployed: Deployed, tmp_path: Path) -> None:
    with Proof(deployed("funds_transfer"), Transfers(), seeds=(QUICK,), report=tmp_path / "new") as proof:
        crashes = proof.survives_crashes()
        proof.duplicates_are_one()
        proof.retry_completes()
        proof.concurrent_duplicates_are_one(clients=3)

    assert crashes.enumerated == len(crashes.cases) > 70
    assert all(case.hit for case in crashes.cases)
    faults = {case.fault for case in crashes.cases}
    assert faults >= {"none", "kill before", "kill after", "lose answer", "stop", "time out", "hold, in a recovery"}
    document = json.loads((tmp_path / "new" / "proof.json").read_text("utf-8"))
    assert document["holds"]
    assert document["seeds"] == [QUICK]
    assert [check["name"] for check in document["checks"]] == [
        "survives crashes",
        "duplicates are one",
        "a retry completes",
        "concurrent duplicates are one",
    ]
    first = document["checks"][0]
    assert first["enumerated"] == first["run"] == first["hit"] == len(first["cases"])
    assert first["invariants"]["log and ledger agree"] > 0
    assert first["invariants"]["functions write in their commits only"] > 0
    assert first["invariants"]["a failed saga leaves accounts as they were"] > 0
    page = (tmp_path / "new" / "proof.html").read_text("utf-8")
    assert "Every claim holds; nothing was stated about what a request does." in page
    assert not document["stated"]
    assert not [check for check in document["checks"] if "applied" in check["claim"]]
    assert page.count("<h2>") == 4
    assert f"{len(crashes.cases):,}</td>" in page


def test_missing_condition_breaks_the_proof(deployed: Deployed, tmp_path: Path) -> None:
    with (
        pytest.raises(NotProvenError, match=r"survives crashes: .* cases were run") as broken,
        Proof(deployed("funds_transfer"), Weakened(), seeds=(QUICK,), report=tmp_path) as proof,
    ):
        proof.survives_crashes(at_most=40)

    assert "break it\n  seed 4: FundsTransfer-" in str(broken.value)
    document = json.loads((tmp_path / "proof.json").read_text("utf-8"))
    assert not document["holds"]
    assert any(case["violations"] for case in document["checks"][0]["cases"])
    assert "A claim does not hold." in (tmp_path / "proof.html").read_text("utf-8")


def test_second_reservation_breaks_the_proof_of_duplicates(deployed: Deployed) -> None:
    with Proof(deployed("funds_transfer"), _Twice(), seeds=(PARTNER,)) as proof:
        with pytest.raises(NotProvenError):
            proof.concurrent_duplicates_are_one(clients=3)
        assert not proof.checks[0].holds


@pytest.mark.parametrize("name", ["order_processing", "agentic_payout", "wallet"])
def test_duplicates_of_an_example_are_one(name: str, deployed: Deployed) -> None:
    with Proof(deployed(name), EXAMPLES[name].workload(), seeds=(2,)) as proof:
        proof.duplicates_are_one()
        proof.retry_completes()
        proof.concurrent_duplicates_are_one()


def test_requests_result_in_what_the_workload_states(deployed: Deployed) -> None:
    workload = _Booked()
    with Proof(deployed("funds_transfer"), workload, seeds=(5,)) as proof:
        check = proof.survives_random_faults(requests=60)

    assert check.stated
    assert "what its workload states" in check.claim
    assert check.invariants["the books have what was requested"] >= 60
    assert {one.completed for one in workload.seen} <= {True, False, None}
    assert any(one.saga_id and one.completed for one in workload.seen)


class _Unrequested(_Booked):
    """Books that must have one more than the requests demand."""

    def audit_results(self, world: World, results: Sequence[Result]) -> Iterable[Invariant]:
        more = [replace(one, intent=replace(one.intent, body={**one.intent.body, "amount": 7})) for one in results[:1]]
        return super().audit_results(world, [*results, *(replace(one, key="more", completed=True) for one in more)])


def test_request_that_resulted_in_something_else_is_found(deployed: Deployed) -> None:
    with (
        Proof(deployed("funds_transfer"), _Unrequested(), seeds=(5,)) as proof,
        pytest.raises(NotProvenError, match=r"the books have what was requested: .* was requested"),
    ):
        proof.survives_random_faults(requests=1)


class _ToPartner(Transfers):
    """One transfer to the partner, which must have it; to an account that is not there, it is compensated."""

    to = "b"

    def intent(self, number: int, random: Random) -> Intent:
        body = {"from": "a", "to": self.to, "to_ledger": "partner", "amount": 50, "currency": "EUR"}
        return Intent(operation="transfers", body=body)

    def audit(self, world: World) -> Iterable[Invariant]:
        return ()


class _ToMissing(_ToPartner):
    """The one that is compensated."""

    to = MISSING


class _Received(_ToPartner):
    """One that states what the partner's account must have received."""

    def audit_results(self, world: World, results: Sequence[Result]) -> Iterable[Invariant]:
        a = LedgerAttribute
        received = sum(
            int(item[a.AMOUNT]["N"])
            for item in world.table(world.output(LEDGERS[1]))
            if item[a.PK]["S"] == "account#b" and item[a.KIND]["S"] == "entry"
            if is_saga_id(item[a.ENTRY_ID]["S"].partition("#")[0])  # others opened the accounts
        )
        wanted = 50 if results[0].completed else 0
        told = () if received == wanted else (f"b received {received}, not {wanted}",)
        yield Invariant(name="b has what was sent", checked=len(results), violations=told)


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str, str], Deployment]]:
    """Deploys the funds transfer with one expression of a function replaced."""
    with ExitStack() as opened:

        def deploy(file: str, what: str, by: str) -> Deployment:
            folder = tmp_path / "functions"
            shutil.copytree(funds_transfer.FUNCTIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
            code = (folder / file).read_text("utf-8")
            assert code.count(what) == 1
            (folder / file).write_text(code.replace(what, by), "utf-8")
            monkeypatch.setattr(funds_transfer, "FUNCTIONS", folder)
            return simulation.deployed(funds_transfer.FundsTransferStack(App(), "FundsTransfer"), opened)

        yield deploy


def test_compensation_without_writes_is_found(edited: Callable[[str, str, str], Deployment]) -> None:
    refund = 'ledger.refund(call, account=debited["account"], amount=amount, clearing=CLEARING)'
    told = "failed saga leaves accounts as they were: saga .* failed, and changed account a by -50 EUR"
    with (
        Proof(edited("debit.py", refund, "[]"), _ToMissing()) as proof,
        pytest.raises(NotProvenError, match=told),
    ):
        proof.duplicates_are_one()


def test_refund_from_another_clearing_account_is_found(edited: Callable[[str, str, str], Deployment]) -> None:
    told = "failed saga leaves accounts as they were: saga .* failed, and changed clearing account refunds by -50 EUR"
    deployment = edited(
        "debit.py",
        'account=debited["account"], amount=amount, clearing=CLEARING',
        'account=debited["account"], amount=amount, clearing="refunds"',
    )
    with pytest.raises(PromiseBrokenError, match=told):
        simulate(deployment, _ToMissing(), sagas=1).require_kept()


def test_write_of_an_atomic_step_outside_of_its_commit_is_found(
    edited: Callable[[str, str, str], Deployment],
) -> None:
    line = 'amount = Money(wanted["amount"], wanted["currency"])'
    write = (
        f'{line}\n    __import__("boto3").client("dynamodb").update_item('
        f'TableName=__import__("os").environ["{Env.LEDGER_TABLE}"], '
        'Key={"pk": {"S": "paid"}, "sk": {"S": call.key}}, UpdateExpression="SET kind = :k ADD amount :a", '
        'ExpressionAttributeValues={":k": {"S": "paid"}, ":a": {"N": "1"}})'
    )
    told = "functions write in their commits only: .*Credit.* makes dynamodb:UpdateItem outside of its commit"
    with Proof(edited("credit.py", line, write), _ToPartner()) as proof, pytest.raises(NotProvenError, match=told):
        proof.duplicates_are_one()


def test_credit_of_twice_the_amount_is_found_if_it_was_stated(
    edited: Callable[[str, str, str], Deployment], tmp_path: Path
) -> None:
    stack = edited("credit.py", "amount=amount, clearing", "amount=amount + amount, clearing")
    with Proof(stack, _Received()) as stated, pytest.raises(NotProvenError, match="b received 100, not 50"):
        stated.duplicates_are_one()
    with Proof(stack, _ToPartner(), report=tmp_path / "proof") as unstated:
        check = unstated.duplicates_are_one()

    assert "applied" not in check.claim
    assert "nothing was stated about what a request does" in (tmp_path / "proof" / "proof.html").read_text("utf-8")


def test_calls_of_the_recovery_are_broken(deployed: Deployed) -> None:
    with Proof(deployed("funds_transfer"), _Received()) as proof:
        check = proof.survives_crashes(at_most=120)

    callers = "".join({case.caller for case in check.cases if case.fault.endswith("in a recovery")})
    assert all(part in callers for part in ("Reconciler", "TransferRecovery", "RefundFunction"))


def test_stated_result_is_claimed(deployed: Deployed, tmp_path: Path) -> None:
    with Proof(deployed("funds_transfer"), _Received(), report=tmp_path) as proof:
        check = proof.duplicates_are_one()

    assert "is applied once" in check.claim
    assert json.loads((tmp_path / "proof.json").read_text("utf-8"))["stated"]
    assert "Every claim holds.</p>" in (tmp_path / "proof.html").read_text("utf-8")


class _Dying(Transfers):
    """A workload whose audit dies in its fourth run."""

    audits = 0

    def audit(self, world: World) -> Iterable[Invariant]:
        self.audits += 1
        if self.audits > 3:
            raise KeyError("a mistake in the audit")
        return ()


def _report_of(folder: Path) -> tuple[dict[str, Any], str]:
    document: dict[str, Any] = json.loads((folder / "proof.json").read_text("utf-8"))
    return document, (folder / "proof.html").read_text("utf-8")


def test_proof_whose_audit_dies_does_not_hold(deployed: Deployed, tmp_path: Path) -> None:
    with (
        pytest.raises(KeyError),
        Proof(deployed("funds_transfer"), _Dying(), seeds=(QUICK,), report=tmp_path) as proof,
    ):
        proof.survives_crashes(at_most=10)

    document, page = _report_of(tmp_path)
    assert [document["holds"], document["checks"][0]["holds"], document["checks"][0]["finished"]] == [False] * 3
    assert document["ended_by"] == "KeyError: 'a mistake in the audit'"
    assert "The proof is not finished." in page
    assert "KeyError" in page


def test_proof_that_is_refused_a_seed_does_not_hold(deployed: Deployed, tmp_path: Path) -> None:
    class _First(Transfers):
        intents = 0

        def intent(self, number: int, random: Random) -> Intent:
            self.intents += 1
            intent = super().intent(number, random)
            return intent if self.intents <= 2 else replace(intent, body={})

    with (
        pytest.raises(ValueError, match="the request of seed 5 must be settled"),
        Proof(deployed("funds_transfer"), _First(), seeds=(QUICK, 5), report=tmp_path) as proof,
    ):
        proof.duplicates_are_one()

    document, _ = _report_of(tmp_path)
    assert (document["checks"][0]["run"], document["checks"][0]["holds"], document["holds"]) == (1, False, False)


def test_proof_of_a_test_that_dies_does_not_hold(deployed: Deployed, tmp_path: Path) -> None:
    (tmp_path / "proof.html").write_text("Every claim holds.", "utf-8")

    def test() -> None:
        with Proof(deployed("funds_transfer"), Transfers(), seeds=(QUICK,), report=tmp_path) as proof:
            assert not (tmp_path / "proof.html").exists()
            proof.duplicates_are_one()
            raise RuntimeError("between two checks")

    with pytest.raises(RuntimeError):
        test()

    document, page = _report_of(tmp_path)
    assert (document["checks"][0]["holds"], document["holds"]) == (True, False)
    assert "The proof is not finished." in page


def _entry(account: str, amount: int, entry_id: str, counterparty: str = "") -> dict[str, Any]:
    a = LedgerAttribute
    texts = {a.PK: account, a.KIND: "entry", a.ENTRY_ID: entry_id, a.CURRENCY: "EUR", a.COUNTERPARTY: counterparty}
    return {**{name: {"S": text} for name, text in texts.items()}, a.AMOUNT: {"N": str(amount)}}


def test_accounts_of_failed_sagas_are_audited() -> None:
    saga = f"{'a' * 26}-mdwqr4j1"
    debit = _entry("account#a", -5, f"{saga}#Debit"), _entry("clearing#c#01", 5, f"{saga}#Debit", "a")
    back = _entry("account#a", 5, f"{saga}#Debit#undo"), _entry("clearing#c#01", -5, f"{saga}#Debit#undo", "a")
    waits = _entry("clearing#suspense#02", 5, f"{saga}#Debit#undo", "a"), back[1]
    forward = _entry("clearing#suspense#02", 5, f"{saga}#Pay", "a"), _entry("clearing#c#01", -5, f"{saga}#Pay", "a")
    others = _entry("clearing#suspense#02", 5, f"{saga}#Debit#undo", "b"), back[1]
    collected = _entry("collecting#a#1#00", 5, f"{saga}#Credit"), _entry("clearing#c#01", -5, f"{saga}#Credit", "a")

    elsewhere = back[0], _entry("clearing#other#01", -5, f"{saga}#Debit#undo", "a")
    fee = _entry("account#b", -5, f"{saga}#Debit#undo"), _entry("clearing#fees#01", 5, f"{saga}#Debit#undo", "b")
    moved = _entry("clearing#c#01", 5, f"{saga}#Move", "d"), _entry("clearing#d#01", -5, f"{saga}#Move", "c")
    returned = (
        _entry("clearing#d#01", 5, f"{saga}#Move#undo", "c"),
        _entry("clearing#c#01", -5, f"{saga}#Move#undo", "d"),
    )

    def told(*items: dict[str, Any], failed: str = saga) -> list[str]:
        return [one.removeprefix(f"saga {saga} failed, and ") for one in audit_failed([failed], [items]).violations]

    assert told(*debit) == ["changed account a by -5 EUR", "changed clearing account c by +5 EUR"]
    assert told(*debit, failed=saga.replace("a", "b")) == []
    assert told(*debit, *back) == told(*debit, *waits) == told(*moved, *returned) == []
    assert "changed account a by -5 EUR" in told(*debit, *others)
    assert "changed account a by +5 EUR" in told(*debit, *back, *back)
    assert "changed account a by -5 EUR" in told(*debit, *forward)
    assert told(*collected) == ["changed account a by +5 EUR", "changed clearing account c by -5 EUR"]
    assert told(*debit, *elsewhere) == [
        "changed clearing account c by +5 EUR",
        "changed clearing account other by -5 EUR",
    ]
    assert told(*fee) == ["changed account b by -5 EUR", "changed clearing account fees by +5 EUR"]


@pytest.mark.parametrize(("state", "told"), [("OPEN", 1), ("VOIDED", 0), ("EXPIRED", 0)])
def test_hold_of_a_failed_saga_is_found(state: str, told: int) -> None:
    saga, a = f"{'a' * 26}-mdwqr4j1", LedgerAttribute
    texts = {a.PK: "account#a", a.KIND: "hold", a.HOLD_ID: f"{saga}#Hold", a.CURRENCY: "EUR", a.STATE: state}
    hold: dict[str, Any] = {**{name: {"S": text} for name, text in texts.items()}, a.AMOUNT: {"N": "5"}}

    found = audit_failed([saga], [[hold]]).violations

    assert found == (f"saga {saga} failed, and holds 5 EUR of account a",) * told


class _Invalid(Workload):
    """A request that the schema refuses."""

    def intent(self, number: int, random: Random) -> Intent:
        return Intent(operation="transfers", body={})


@pytest.mark.parametrize("check", ["survives_crashes", "duplicates_are_one", "retry_completes"])
def test_request_without_a_settled_response_is_refused(check: str, deployed: Deployed) -> None:
    with (
        Proof(deployed("funds_transfer"), _Invalid()) as proof,
        pytest.raises(ValueError, match="the request of seed 0 must be settled when nothing goes wrong"),
    ):
        getattr(proof, check)()


def test_cases_can_be_drawn(deployed: Deployed, tmp_path: Path) -> None:
    with Proof(deployed("funds_transfer"), Transfers(), seeds=(PARTNER,), report=tmp_path) as proof:
        check = proof.survives_crashes(at_most=5)

    assert len(check.cases) == 6  # and the one in which nothing goes wrong
    assert check.enumerated > 100
    page = (tmp_path / "proof.html").read_text("utf-8")
    assert "(drawn)" in page
    assert page.count('<th scope="row">2</th>') == len(check.cases)  # one table of cases, not one for each call


def test_draw_of_its_own_draws_other_cases_of_the_same_request(deployed: Deployed, tmp_path: Path) -> None:
    with Proof(deployed("funds_transfer"), Transfers(), seeds=(PARTNER,), report=tmp_path) as proof:
        first, again, other = (proof.survives_crashes(at_most=5, draw=draw) for draw in (7, 7, 8))

    assert list(map(str, first.cases)) == list(map(str, again.cases)) != list(map(str, other.cases))
    assert first.enumerated == other.enumerated
    assert "(drawn by 7)" in (tmp_path / "proof.html").read_text("utf-8")
    assert "cases were run, drawn by 8" in str(other)
    document = json.loads((tmp_path / "proof.json").read_text("utf-8"))
    assert [check["draw"] for check in document["checks"]] == [7, 7, 8]


def test_fault_that_does_not_happen_proves_nothing() -> None:
    check = Check(name="n", claim="c", enumerated=1, cases=[Case(seed=0, caller="f", call="a:B", hit=False)])
    with pytest.raises(NotProvenError, match="the fault did not happen"):
        check.require()


class _Scripted(Local):
    """A layer whose runs are given: what each planned fault's runs were like, one after another."""

    def __init__(self, *runs: _Ran) -> None:
        self._runs = iter(runs)

    def _run(self, seed: int, *planned: Any, clients: int = 1, often: int = 1) -> _Ran:
        return next(self._runs)


_SECRET = Fault(function="f", call="secretsmanager:GetSecretValue", action="kill", on=Nth(2))


def _ran(calls: int, *, fired: bool = False) -> _Ran:
    """A run in which the function read the secret so often."""
    call: dict[str, Any] = {"sequence": 1, "at": datetime.now(UTC), "caller": "f", "call": _SECRET.call, "attempt": 1}
    others: dict[str, Any] = {"request_id": None, "execution": None, "state": None, "status": 200, "fault": None}
    made = tuple(RecordedCall(**call, **others, occurrence=number) for number in range(1, calls + 1))
    return _Ran(responses=[(200, "")], fired=fired, calls=made)


@pytest.mark.parametrize(
    ("runs", "hit", "made"),
    [
        ([_ran(2, fired=True)], True, True),
        ([_ran(0), _ran(2, fired=True)], True, True),
        ([_ran(0), _ran(1), _ran(1)], False, False),
        ([_ran(2), _ran(1), _ran(1)], False, True),
        ([_ran(0), _ran(0), _ran(2)], False, True),
    ],
)
def test_fault_must_hit_if_a_run_makes_its_call(runs: list[_Ran], hit: bool, made: bool) -> None:
    """A secret that a process keeps is read in some runs of a request only."""
    case = _Scripted(*runs)._broken(0, _SECRET, _ran(2))

    assert (case.hit, case.made, case.holds) == (hit, made, hit or not made)


def test_another_case_is_drawn_for_a_call_that_no_run_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [replace(_SECRET, on=Nth(number)) for number in (1, 2, 3)]
    local = _Scripted(*[_ran(0)] * 3, _ran(3, fired=True), _ran(3, fired=True))
    monkeypatch.setattr(local, "_recorded", lambda _: (_ran(3), [], []))
    monkeypatch.setattr(local, "_faults", lambda _: faults)

    _, *cases = local.crashes(0, 1, 7).cases

    assert [(case.hit, case.made) for case in cases] == [(False, False), (True, True)]


def test_check_of_calls_that_no_run_made_proves_nothing() -> None:
    settled = {"transfers": Requests(sent=1, settled=1)}
    clean = Case(seed=0, requests=settled)
    missing = Case(seed=0, caller="f", call="a:B", fault="kill", hit=False, made=False)
    check = Check(name="n", claim="c", enumerated=2, cases=[clean, missing], finished=True)
    assert not check.holds
    with pytest.raises(NotProvenError, match="calls of 1 were not made"):
        check.require()

    check.cases.append(replace(missing, hit=True, made=True))
    check.enumerated = 3
    assert check.holds


def test_check_without_all_of_its_cases_does_not_hold() -> None:
    assert not Check(name="n", claim="c").holds
    assert not Check(name="n", claim="c", enumerated=2, cases=[Case(seed=0)]).holds
    assert not Check(name="n", claim="c", enumerated=2, cases=[Case(seed=0)], finished=True).holds
    assert not Check(name="n", claim="c", enumerated=2, drawn=True, cases=[Case(seed=0)]).holds
    settled = Case(seed=0, requests={"transfers": Requests(sent=1, settled=1)})
    assert not Check(name="n", claim="c", enumerated=2, drawn=True, cases=[Case(seed=0)], finished=True).holds
    assert Check(name="n", claim="c", enumerated=2, drawn=True, cases=[settled], finished=True).holds


def test_report_without_a_check_does_not_hold(deployed: Deployed, tmp_path: Path) -> None:
    with Proof(deployed("funds_transfer"), Transfers(), report=tmp_path):
        pass
    assert not json.loads((tmp_path / "proof.json").read_text("utf-8"))["holds"]
    assert "Nothing was run." in (tmp_path / "proof.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": ()}, r"seeds must be one integer or several, as a tuple, got \(\); \(0,\) is one"),
        ({"seeds": 3}, "seeds must be one integer or several, as a tuple, got 3"),
        ({"seeds": "12"}, "seeds must be one integer or several"),
        ({"seeds": (True,)}, "seeds must be one integer or several"),
        ({"seeds": (1, 1)}, "seeds must be different"),
        ({"workload": Transfers}, "workload must be a Workload, got <class .*; derive a class from Workload"),
        ({"stack": "cdk.out"}, "stack must be a Stack, an App, or the Path of an assembly, got 'cdk.out'"),
        ({"report": ""}, "report must be a folder, got ''"),
        ({"report": __file__}, "report must be a folder, got the file .*; name another one"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Proof(**{"stack": Path("nowhere"), "workload": Transfers(), **arguments})


@pytest.mark.parametrize(
    ("check", "arguments", "message"),
    [
        ("survives_crashes", {"at_most": 0}, "at_most must be a whole number from 1 on, got 0; leave it out for all"),
        (
            "survives_crashes",
            {"draw": -1},
            "draw must be a whole number from 0 on, got -1; leave it out",
        ),
        ("survives_random_faults", {"requests": True}, "requests must be a whole number from 1 on, got True"),
        ("concurrent_duplicates_are_one", {"clients": 1}, "clients must be a whole number from 2 on, got 1"),
    ],
)
def test_wrong_numbers_are_refused(check: str, arguments: dict[str, Any], message: str, deployed: Deployed) -> None:
    with Proof(deployed("funds_transfer"), Transfers()) as proof, pytest.raises(ValueError, match=message):
        getattr(proof, check)(**arguments)


def test_proof_outside_of_its_block_is_refused(deployed: Deployed) -> None:
    with pytest.raises(RuntimeError, match="the proof is not open; use it in a with block"):
        Proof(deployed("funds_transfer"), Transfers()).duplicates_are_one()


def _record(saga_id: str) -> dict[str, Any]:
    a = RecordAttribute
    values = {a.SAGA_ID: saga_id, a.STATUS: "COMPLETED", a.EXECUTION_ARN: "arn"}
    return {name: {"S": value} for name, value in values.items()}


def test_result_is_found_by_the_response_where_no_identity_finds_it() -> None:
    saga_id = f"{'a' * 26}-mdwqr4j1"
    intent = Intent(operation="transfers", body={})
    body = json.dumps({"saga_id": saga_id, "status": "COMPLETED"})

    def result(records: dict[str, Any], response: tuple[int, str] | None) -> Result:
        return result_of(intent, "key", records, callers=[], known=(), response=response)

    found = result({"a" * 26: _record(saga_id)}, (200, body))
    assert (found.saga_id, found.completed) == (saga_id, True)
    assert result({}, (200, "{}")).completed is True
    assert result({}, (402, "{}")).completed is False
    assert result({}, None).completed is None


def test_result_of_a_client_without_a_response_is_known(deployed: Deployed) -> None:
    """Every intent that has a record has a result, also one whose client received nothing."""

    class _Kept(_Booked):
        def audit_results(self, world: World, results: Sequence[Result]) -> Iterable[Invariant]:
            found = {item[RecordAttribute.ID]["S"] for item in world.records(world.output("RequestTableName"))}
            recorded = {(one.intent.user, one.key) for one in results if one.completed is not None}
            told = () if len(recorded) == len(found) else (f"{len(recorded)} results, {len(found)} records",)
            yield Invariant(name="each record is a result", checked=len(found), violations=told)

    with Proof(deployed("funds_transfer"), _Kept(), seeds=(7,)) as proof:
        proof.survives_random_faults(requests=100)
