"""A crash or a lost response before and after a sample of the AWS calls of every function and of the state machine.

Covers transfers within one ledger, settled or refused. One clean run of each records its calls. Then each third call is
broken in one way, the ways in turn, in a transfer of its own, several at a time in one deployed system; the simulator
breaks every call in every way (``tests/simulator/test_each_call.py``). A client repeats each request until it is
settled. In the end the invariants must hold of all transfers together, and each transfer was applied once or not at
all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pytest

from constructs_lib.testing import HttpResponse
from constructs_lib.testing.fault_plan import STATES_PREFIX
from constructs_lib.testing.faults import Fault, Nth, RecordedCall
from constructs_lib.testing.invariants import assert_all_hold, audit_sagas
from saga_runtime.idempotency.identity import request_id_of
from saga_runtime.protocol import RecordAttribute

from .sampling import each_third, in_turn
from .transfer_system import TransferSystem, transfer, until

AT_ONCE: Final = 6
TRIES: Final = 5
BALANCE: Final = 1000
CALLERS: Final = {200: ("gatekeeper", "worker", "notifier", "states"), 402: ("gatekeeper", "worker", "states")}
"""Who makes calls, by the status in which a transfer ends: the notice of a failure is the state machine's."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A kind of transfer, and how it must end."""

    name: str
    status: int
    amount: int

    def body(self, case: str) -> dict[str, object]:
        """The request's body for one case, with accounts of its own."""
        return transfer(f"{case}-source", f"{case}-target", self.amount)

    def balances(self, case: str) -> dict[str, int]:
        """Expected final balances of a case's accounts."""
        moved = self.amount if self.status == 200 else 0
        return {f"{case}-source": BALANCE - moved, f"{case}-target": BALANCE + moved}


SCENARIOS: Final = (
    Scenario(name="settled", status=200, amount=100),
    Scenario(name="refused", status=402, amount=BALANCE + 1),
)


@dataclass(frozen=True, kw_only=True)
class Hit:
    """One way to hit one call."""

    call: RecordedCall
    action: Any
    moment: Any
    attempts: Any = "first"

    def fault(self, request_id: str, case: str) -> Fault:
        """The fault, aimed at one case's transfer."""
        # Accounts are read before anything names the saga.
        containing = f"{case}-source" if self.call.call == "dynamodb:BatchGetItem" else request_id
        return Fault(
            function=self.call.caller,
            call=self.call.call,
            moment=self.moment,
            action=self.action,
            attempts=self.attempts,
            on=Nth(self.call.occurrence),
            containing=containing,
        )

    def __str__(self) -> str:
        who = self.call.state or self.call.caller
        return f"{self.action} {self.moment} {self.call.call} #{self.call.occurrence} of {who} ({self.attempts})"


@pytest.fixture
def system(transfer_systems: dict[str, TransferSystem]) -> TransferSystem:
    """The reference app, emptied."""
    emptied = transfer_systems["FundsTransfer"]
    emptied.aws.reset()
    return emptied


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_transfer_survives_faults_at_its_calls(
    system: TransferSystem, scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = _calls_of_a_clean_run(system, scenario)
    hits = [hit for _, hit in in_turn(each_third(calls), _hits)]
    scope, known = system.scope(), len(system.records())
    cases = {f"case-{number:03d}": hit for number, hit in enumerate(hits)}
    for case in cases:
        system.open(*scenario.balances(case), balance=BALANCE)
    system.aws.faults.plan(*(hit.fault(request_id_of(scope, case), case) for case, hit in cases.items()))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = dict(zip(cases, pool.map(lambda case: _settle_and_look(system, scenario, case), cases), strict=True))

    report = system.aws.faults.report()
    with capsys.disabled():
        print(f"\n  {scenario.name}: {len(calls)} calls, {len(hits)} faults enumerated, {report.fired} run")
    report.require_all_fired()
    assert report.fired == len(hits)
    wrong = {str(cases[case]): answer.text for case, answer in answers.items() if answer.status != scenario.status}
    assert not wrong
    assert_all_hold(system.audit())
    expected = Counter({name: held for case in cases for name, held in scenario.balances(case).items()})
    balances = system.balances()
    assert {name: balances[name] for name in expected} == expected
    assert len(system.records()) == len(cases) + known


def _calls_of_a_clean_run(system: TransferSystem, scenario: Scenario) -> Sequence[RecordedCall]:
    """Calls of a transfer: its request, its saga, a duplicate once it is settled, and a status request."""
    system.open(*scenario.balances("warm"), balance=BALANCE)
    _settle_and_look(system, scenario, "warm")
    for case in (f"clean-{number}" for number in range(TRIES)):
        system.open(*scenario.balances(case), balance=BALANCE)
        with system.aws.calls.record() as recording:
            assert system.post(case, scenario.body(case)).status == 202
            until(lambda: not audit_sagas(system.records(), [])[0].violations, "the end of the saga")
            _settle_and_look(system, scenario, case)
        # On a busy machine, an answer may take so long that the SDK asks again.
        if {call.attempt for call in recording.calls} == {1}:
            break
    else:
        raise AssertionError(f"the SDK asked again in each of {TRIES} runs")
    callers = {"states" if call.caller.startswith(STATES_PREFIX) else call.caller for call in recording.calls}
    assert len(callers) == len(CALLERS[scenario.status])
    return recording.calls


def _settle_and_look(system: TransferSystem, scenario: Scenario, case: str) -> HttpResponse:
    """Repeat a request until it is settled, then read its status until it is final; both must agree."""
    answer = system.settle(case, scenario.body(case))
    saga_id = answer.json()["saga_id"]
    seen = until(lambda: (look := system.look(saga_id)).status == 200 and look.json(), f"an answer about {case}")
    assert seen["answer"] == answer.json()
    return answer


def _hits(call: RecordedCall) -> Iterator[Hit]:
    """Every way in which a call can go wrong: a state machine has no process to kill and no SDK of ours."""
    moments = ("before", "after")
    if call.caller.startswith(STATES_PREFIX):
        yield from (Hit(call=call, action="drop", moment=moment) for moment in moments)
        return
    yield from (Hit(call=call, action="kill", moment=moment) for moment in moments)
    for attempts in ("first", "all"):
        yield from (Hit(call=call, action="drop", moment=moment, attempts=attempts) for moment in moments)


def test_the_record_names_its_scope(system: TransferSystem) -> None:
    """The matrix aims by request id, which it derives from the scope: were it another, no fault would fire."""
    system.open("ada", "alan")
    system.settle("k", transfer("ada", "alan"))

    assert system.records()[0][RecordAttribute.ID]["S"] == request_id_of(system.scope(), "k")
