"""Recovered sagas: stopped once more, recovered concurrently, met by late attempts.

First interruptions, at every state, are in ``tests/simulator/test_each_call.py``, and on local AWS in
``test_proven_examples``. Of second ones, each run of the tests draws a sixth.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

import pytest

from constructs_lib.testing import Every, Fault, First, Nth, RecordedCall, StopAt
from constructs_lib.testing.fault_plan import Moment
from constructs_lib.testing.faults import Recording
from constructs_lib.testing.invariants import assert_all_hold
from saga_runtime.idempotency.identity import request_id_from
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import Direction, RecordAttribute, RecordStatus
from saga_runtime.recovery.takeover import Finding, Owner, Recoverer, recovery_name
from saga_runtime.shared.arns import execution_of
from saga_runtime.shared.decisions import Decision
from tests.sampling import a_sixth

from .transfer_system import at_once, until
from .two_ledgers import (
    DEBIT,
    FORWARD,
    MAIN,
    PARTNER,
    RECOVERY,
    TRANSACT,
    TwoLedgers,
    Way,
    deployed,
    in_time,
)

pytestmark = pytest.mark.proof

SPEED = 10.0
FUNCTION_SECONDS = 200
CLIENTS = 6
OPENING, AMOUNT = 1000, 100
LONG: Final = 3_600
"""Emulated: what is held back for so long is held back until the plan is cleared."""


@pytest.fixture(scope="module")
def running() -> Iterator[TwoLedgers]:
    with deployed(speed=SPEED, seconds=FUNCTION_SECONDS) as (system, _):
        yield system


@pytest.fixture
def system(running: TwoLedgers) -> TwoLedgers:
    """The reference app, emptied."""
    running.aws.reset()
    return running


def money_of(system: TwoLedgers, way: Way) -> tuple[int, int]:
    """Balances of the two accounts of a transfer."""
    return system.balance(MAIN, way.source), system.balance(PARTNER, way.target)


MOVED: Final = (OPENING - AMOUNT, AMOUNT)
NOT_MOVED: Final = (OPENING, 0)


# --- Stopped at every state


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A saga that is interrupted once.

    Attributes:
        name: A few letters.
        closed: Whether the credit is refused.
        interrupted: State of the forward machine at which its first execution is stopped, and the moment.
    """

    name: str
    closed: bool = False
    interrupted: tuple[str, Moment] | None = None

    def stops(self, request_id: str) -> list[StopAt]:
        """Faults that interrupt the first execution."""
        if self.interrupted is None:
            return []
        state, moment = self.interrupted
        return [StopAt(machine=FORWARD, state=state, moment=moment, containing=request_id)]


SCENARIOS: Final = (
    Scenario(name="happy"),
    Scenario(name="refused", closed=True),
    # Its recovery compensates.
    Scenario(name="debited", interrupted=("Debit", Moment.AFTER)),
    # Its recovery goes forward.
    Scenario(name="credited", interrupted=("Credit", Moment.AFTER)),
    # Its recovery finds the direction written.
    Scenario(name="refunding", closed=True, interrupted=("Compensate Debit", Moment.BEFORE)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """One more stop: at which state of which machine, the how many-th time, and when."""

    scenario: Scenario
    machine: str
    state: str
    occurrence: int
    moment: Moment

    def __str__(self) -> str:
        return f"[{self.scenario.name}] {self.moment} {self.machine.rpartition('/')[2]}: {self.state}"

    def planned(self, request_id: str) -> StopAt:
        """The stop, aimed at one saga."""
        return StopAt(
            machine=self.machine,
            state=self.state,
            moment=self.moment,
            on=Nth(self.occurrence),
            containing=request_id,
        )


@dataclass(kw_only=True)
class Stops:
    """Every saga that was stopped a second time, after its recovery.

    Attributes:
        system: the deployed app.
        seen: the states of each scenario, also without a second stop.
        sagas: those that were stopped.
        seconds: duration.
    """

    system: TwoLedgers
    seen: dict[Scenario, list[Stop]]
    sagas: dict[Stop, tuple[Way, str]] = field(default_factory=dict)
    seconds: float = 0.0


def states_seen(system: TwoLedgers, scenario: Scenario) -> list[Stop]:
    """Every state that a scenario's executions enter, before and after; those behind its own interruption."""
    key = f"clean-{scenario.name}"
    way = system.way(key, closed=scenario.closed)
    system.aws.faults.plan(*scenario.stops(system.request_id(key)))
    saga_id = system.begin(key, way.body)
    system.recover_to_the_end(saga_id)
    first = system.states_of(FORWARD, saga_id)
    visited = [(FORWARD, state, 1) for state in first] if scenario.interrupted is None else []
    if scenario.interrupted is not None:
        owner = recovery_name(saga_id, 1)
        visited += [(RECOVERY, state, 1) for state in system.states_of(RECOVERY, owner)]
        if system.status_of(FORWARD, owner) is not None:
            # The state at which the first execution was stopped is treated as reached, before and after.
            visited += [(FORWARD, s, 2 if s in first else 1) for s in system.states_of(FORWARD, owner)]
    return [
        Stop(scenario=scenario, machine=machine, state=state, occurrence=occurrence, moment=moment)
        for machine, state, occurrence in visited
        for moment in Moment
    ]


@pytest.fixture(scope="module")
def stops(running: TwoLedgers) -> Stops:
    """Every saga stopped once more, at each state that its scenario enters, and recovered."""
    system = running
    system.aws.reset()
    seen = {scenario: states_seen(system, scenario) for scenario in SCENARIOS}
    result = Stops(system=system, seen=seen)
    every = enumerated(result)
    started = time.monotonic()

    def run(numbered: tuple[int, Stop]) -> tuple[Stop, tuple[Way, str]]:
        number, stop = numbered
        key = f"s{number:03d}"
        way = system.way(key, closed=stop.scenario.closed)
        request_id = system.request_id(key)
        system.aws.faults.plan(*stop.scenario.stops(request_id), stop.planned(request_id))
        saga_id = system.begin(key, way.body)
        system.recover_to_the_end(saga_id)
        return stop, (way, saga_id)

    with ThreadPoolExecutor(CLIENTS) as pool:
        result.sagas.update(pool.map(run, enumerate(every)))
    result.seconds = time.monotonic() - started
    return result


def enumerated(stops: Stops) -> list[Stop]:
    """Second stops: every state after a first interruption, or the part of them that is drawn."""
    every = [stop for scenario, seen in stops.seen.items() if scenario.interrupted is not None for stop in seen]
    number, parts = a_sixth()
    return every[number::parts]


EXPECTED: Final = {"debited": (500, False), "credited": (200, True), "refunding": (422, False)}
"""The answer's status, and whether the money moved."""


class TestASagaThatIsStoppedAgain:
    def test_is_stopped_before_and_after_states(self, stops: Stops, capsys: pytest.CaptureFixture[str]) -> None:
        every = enumerated(stops)
        report = stops.system.aws.faults.report()

        with capsys.disabled():
            print(f"\nstates x moments: {len(every)} enumerated, {len(stops.sagas)} run", end="")
            print(f", {stops.seconds:.0f} s ", end="")
        report.require_all_fired()
        assert set(every) == set(stops.sagas)

    def test_passes_every_state_that_needs_no_operator(self, stops: Stops) -> None:
        seen = {stop.state for of_one in stops.seen.values() for stop in of_one}
        states = stops.system.aws.client("stepfunctions")
        declared: set[str] = set()
        for machine in (FORWARD, RECOVERY):
            arn = stops.system.aws.resolve_state_machine(machine)
            declared |= set(_states(states.describe_state_machine(stateMachineArn=arn)["definition"]))

        assert declared - seen == {
            # Nothing is deployed meanwhile: tests/local/test_replaced_saga.py.
            *("First start?", "Note first definition", "End under another definition"),
            # The way of one ledger, which is not this system's.
            *(
                "Transfer",
                "Select step after Transfer",
                "Begin compensation at Transfer",
                "Continue forward at Transfer",
            ),
            *("Fence Transfer - read row", "Fence Transfer - applied?"),
            # A debit that fails, and a credit whose retries end although it was applied: in the crash matrix.
            *("Begin compensation at Debit", "Continue forward at Credit"),
            # A write that is refused: tested one by one below.
            *("Read record", "Check owner", "Already settled", "End fenced"),
            *("Notify operators", "Park saga", "End parked"),
            # A forward execution that fails where there is only forward, and another definition: likewise.
            *("Check direction", "Direction is forward?", "Retries left?", "Wait before retry", "Select step to retry"),
            *("Wait for earlier functions to end", "Note definition"),
            # A path without a pivot, and a log of several pages: tested on definitions.
            *("Only forward to Receipt", "Query saga log - more", "Query log rows - more"),
        }

    def test_ends_as_expected_and_moves_its_money_once_or_not_at_all(self, stops: Stops) -> None:
        wrong = []
        for stop, (way, saga_id) in stops.sagas.items():
            status, moved = EXPECTED[stop.scenario.name]
            record, money = stops.system.record(saga_id), money_of(stops.system, way)
            if (record.http_status, money) != (status, MOVED if moved else NOT_MOVED):
                wrong.append(f"{stop}: {record.status}, {record.http_status}, {money}; expected {status}, {moved}")

        assert not wrong, "\n".join(wrong)

    def test_keeps_every_promise_about_ledgers_log_and_records(self, stops: Stops) -> None:
        audit = stops.system.audit()

        assert_all_hold(audit)
        assert all(invariant.checked > len(stops.sagas) / 2 for invariant in audit), audit

    def test_is_notified_once(self, stops: Stops) -> None:
        told = Counter(message["saga_id"] for message in stops.system.messages())

        assert {told[saga_id] for _, saga_id in stops.sagas.values()} == {1}

    def test_needs_no_recovery_more_than_it_was_stopped(self, stops: Stops) -> None:
        for stop, (_, saga_id) in stops.sagas.items():
            assert stops.system.record(saga_id).recoveries <= 2, str(stop)


def _states(definition: str) -> Sequence[str]:
    return list(json.loads(definition)["States"])


# --- Recovered by many, or for nothing


def interrupted(system: TwoLedgers, key: str, state: str, moment: Moment, *, closed: bool = False) -> tuple[Way, str]:
    """A saga whose first execution was stopped."""
    way = system.way(key, closed=closed)
    request_id = system.request_id(key)
    system.aws.faults.plan(StopAt(machine=FORWARD, state=state, moment=moment, containing=request_id))
    saga_id = system.begin(key, way.body)
    assert system.await_end(FORWARD, saga_id) == "ABORTED"
    return way, saga_id


class TestManyRecoveries:
    @pytest.mark.parametrize("many", [2, 5])
    @pytest.mark.parametrize(("state", "status", "money"), [("Debit", 500, NOT_MOVED), ("Credit", 200, MOVED)])
    def test_at_once_are_one(
        self, system: TwoLedgers, many: int, state: str, status: int, money: tuple[int, int]
    ) -> None:
        way, saga_id = interrupted(system, "k", state, Moment.AFTER)
        record = system.record(saga_id)
        recoverer, now_ms = system.recoverer, system.now_ms()

        found = at_once([lambda: recoverer.recover(record, now_ms)] * many)

        assert sorted(found, key=str).count((Finding.DEAD, recovery_name(saga_id, 1))) == 1
        assert found.count((Finding.RUNNING, None)) == many - 1
        ended = system.await_quiet(saga_id)
        assert (ended.http_status, ended.owner, ended.recoveries) == (status, recovery_name(saga_id, 1), 1)
        assert money_of(system, way) == money
        assert_all_hold(system.audit())

    def test_one_after_the_other_while_the_saga_is_being_recovered_change_nothing(self, system: TwoLedgers) -> None:
        _, saga_id = interrupted(system, "k", "Debit", Moment.AFTER)
        (held,) = system.aws.faults.plan(
            Fault(function=f"states:{RECOVERY}", call="lambda:Invoke", action="delay", seconds=LONG)
        )
        system.recover(saga_id)
        before = until(lambda: _directed(system, saga_id), "the direction")

        assert [system.recover(saga_id) for _ in range(3)] == [(Finding.RUNNING, None)] * 3
        assert system.item(saga_id) == before
        system.aws.faults.clear(held)
        assert system.recover_to_the_end(saga_id).http_status == 500

    def test_a_takeover_after_an_outdated_read_is_refused(self, system: TwoLedgers) -> None:
        _, saga_id = interrupted(system, "k", "Debit", Moment.AFTER)
        looked_long_ago = system.record(saga_id)
        request_id = system.request_id("k")
        system.aws.faults.plan(
            StopAt(machine=RECOVERY, state="Fence Credit", moment="before", containing=request_id),
            StopAt(machine=RECOVERY, state="Fence Credit", moment="before", on=Nth(2), containing=request_id),
        )
        for _ in range(2):
            system.recover(saga_id)
            system.await_quiet(saga_id)
        before = system.item(saga_id)

        recoverer = LooksAway.of(system.recoverer)
        assert recoverer.recover(looked_long_ago, system.now_ms()) == (Finding.RUNNING, None)
        assert system.item(saga_id) == before
        assert system.recover_to_the_end(saga_id).http_status == 500


class LooksAway(Recoverer):
    """Takes every owner for dead."""

    def owner(self, record: RequestRecord) -> Owner:
        return Owner("ABORTED")

    @classmethod
    def of(cls, recoverer: Recoverer) -> LooksAway:
        """The same, looking away."""
        return cls(table=recoverer.table, dynamodb=recoverer.dynamodb, step_functions=recoverer.step_functions)


def _directed(system: TwoLedgers, saga_id: str) -> object:
    return system.item(saga_id) if system.record(saga_id).direction is not None else None


class TestARecoveryThatIsNotNeeded:
    @pytest.mark.parametrize("closed", [False, True])
    def test_of_a_settled_saga_changes_nothing(self, system: TwoLedgers, closed: bool) -> None:
        way = system.way("k", closed=closed)
        saga_id = system.drive("k", way.body).json()["saga_id"]
        before = system.item(saga_id), system.rows(), system.ledgers()

        assert system.recover(saga_id) == (Finding.SETTLED, None)
        assert (system.item(saga_id), system.rows(), system.ledgers()) == before

    def test_of_a_running_saga_changes_nothing(self, system: TwoLedgers) -> None:
        way = system.way("k")
        (held,) = system.aws.faults.plan(
            Fault(function=f"states:{FORWARD}", call="lambda:Invoke", action="delay", seconds=LONG)
        )
        saga_id = system.begin("k", way.body)
        before = system.item(saga_id)

        assert system.recover(saga_id) == (Finding.RUNNING, None)
        assert system.item(saga_id) == before
        system.aws.faults.clear(held)
        assert system.drive("k", way.body).status == 200

    def test_of_a_reservation_that_was_never_started_starts_it_with_the_same_bytes(self, system: TwoLedgers) -> None:
        way = system.way("k")
        system.warm_up()
        system.aws.faults.plan(Fault(function=system.gatekeeper, call="states:StartExecution", action="kill"))
        assert system.post("k", way.body).status == 502
        (record,) = map(RequestRecord.from_item, system.records())
        saga_id = record.saga_id

        assert system.recover(saga_id) == (Finding.NOT_STARTED, saga_id)

        arn = execution_of(system.aws.resolve_state_machine(FORWARD), saga_id)
        assert system.aws.client("stepfunctions").describe_execution(executionArn=arn)["input"] == record.input
        assert system.drive("k", way.body).status == 200
        assert (system.record(saga_id).owner, system.record(saga_id).recoveries) == (saga_id, 0)


# --- What comes too late


def delivered(calls: Recording) -> RecordedCall:
    """Wait until the call that was held back has been executed."""
    return until(lambda: next((c for c in calls.calls if c.fault is not None and c.status is not None), None), "it")


def is_delivered(calls: Recording) -> bool:
    """True if the call was already delivered."""
    return any(call.fault is not None and call.status is not None for call in calls)


def fired(system: TwoLedgers, id: str) -> bool:
    """True if a fault has fired."""
    return any(outcome.fired for outcome in system.aws.faults.report().outcomes if outcome.id == id)


@contextmanager
def hasty_debit(system: TwoLedgers) -> Iterator[None]:
    """The debit's function times out before the SDK sends anything again."""
    functions, name = system.aws.client("lambda"), system.aws.resolve_function(DEBIT)
    functions.update_function_configuration(FunctionName=name, Timeout=25)
    try:
        yield
    finally:
        functions.update_function_configuration(FunctionName=name, Timeout=FUNCTION_SECONDS)


class TestADebitThatWakesUp:
    def test_after_its_refund_is_fenced(self, system: TwoLedgers) -> None:
        def refund_and_wake_up(key: str, seconds: float) -> bool | None:
            way = system.way(key, closed=True)
            request_id = system.request_id(key)
            # Its function times out, and is invoked again; the first request travels on.
            system.aws.faults.plan(
                Fault(function=DEBIT, call=TRANSACT, action="delay", seconds=seconds, containing=request_id)
            )
            with hasty_debit(system), system.aws.calls.record() as calls:
                saga_id = system.begin(key, way.body)
                answer = system.drive(key, way.body)
                refunded = money_of(system, way), system.statuses(saga_id)
                is_late = not is_delivered(calls)
                late = delivered(calls)
            if not is_late:
                return None
            assert answer.status == 422
            assert refunded == (NOT_MOVED, {"Debit": "COMPENSATED", "Credit": "TOMBSTONE"})
            assert (late.call, late.status) == (TRANSACT, 400)
            assert (money_of(system, way), system.statuses(saga_id)) == refunded
            return True

        assert in_time(refund_and_wake_up, seconds=90)
        assert_all_hold(system.audit())

    def test_after_a_recovery_wrote_its_tombstone_it_is_fenced(self, system: TwoLedgers) -> None:
        def bury_and_wake_up(key: str, seconds: float) -> bool | None:
            way = system.way(key)
            held = Fault(function=DEBIT, call=TRANSACT, action="delay", seconds=seconds, on=Every(), attempts="all")
            (planned,) = system.aws.faults.plan(replace(held, containing=system.request_id(key)))
            with system.aws.calls.record() as calls:
                saga_id = system.begin(key, way.body)
                until(lambda: fired(system, planned), "the debit")
                system.aws.client("stepfunctions").stop_execution(executionArn=system.arn(FORWARD, saga_id))
                ended = system.recover_to_the_end(saga_id)
                is_late = not is_delivered(calls)
                late = delivered(calls)
            if not is_late:
                return None
            assert (ended.http_status, system.statuses(saga_id)["Debit"]) == (500, "TOMBSTONE")
            assert late.status == 400
            assert money_of(system, way) == NOT_MOVED
            return True

        assert in_time(bury_and_wake_up, seconds=50)
        assert_all_hold(system.audit())


class TestASettleThatComesLate:
    def test_after_a_take_over_is_refused(self, system: TwoLedgers) -> None:
        def take_over_and_settle(key: str, seconds: float) -> tuple[Way, str, RecordedCall] | None:
            way, request_id = system.way(key), system.request_id(key)
            (settle, _) = system.aws.faults.plan(
                Fault(
                    function=f"states:{FORWARD}",
                    call="dynamodb:UpdateItem",
                    action="delay",
                    seconds=seconds,
                    containing=request_id,
                ),
                StopAt(machine=RECOVERY, state="Read direction", moment="before", containing=request_id),
            )
            with system.aws.calls.record() as calls:
                saga_id = system.begin(key, way.body)
                until(lambda: fired(system, settle), "the settle")
                states = system.aws.client("stepfunctions")
                with suppress(states.exceptions.ValidationException):  # too late: it has ended
                    states.stop_execution(executionArn=system.arn(FORWARD, saga_id))
                taken_over = system.recover(saga_id)
                is_late = not is_delivered(calls)
                late = delivered(calls)
            if not is_late:
                return None
            assert taken_over == (Finding.DEAD, recovery_name(saga_id, 1))
            return way, saga_id, late

        way, saga_id, late = in_time(take_over_and_settle, seconds=20)
        assert (late.state, late.status) == ("Settle completed", 500)
        record = system.record(saga_id)
        assert (record.status, record.owner) == (RecordStatus.IN_PROGRESS, recovery_name(saga_id, 1))
        ended = system.recover_to_the_end(saga_id)
        assert (ended.http_status, ended.owner) == (200, recovery_name(saga_id, 2))
        assert money_of(system, way) == MOVED


def forward_that_fails(system: TwoLedgers, key: str) -> tuple[Way, str]:
    """A saga whose recovery went forward, and whose second forward execution failed at its first step for a while.

    The retries of its first step were exhausted twice: seven attempts each.
    """
    way, saga_id = interrupted(system, key, "Credit", Moment.AFTER)
    system.aws.faults.plan(
        Fault(
            function=f"states:{FORWARD}",
            call="lambda:Invoke",
            action="error",
            on=First(14),
            containing=system.request_id(key),
        )
    )
    system.recover(saga_id)
    system.await_quiet(saga_id)
    return way, saga_id


class TestADirection:
    def test_is_written_once_so_a_failing_forward_execution_waits_and_resumes(self, system: TwoLedgers) -> None:
        way, saga_id = forward_that_fails(system, "k")

        record = system.record(saga_id)
        assert record.direction is Direction.FORWARD
        assert (record.status, record.owner) == (RecordStatus.COMPLETED, recovery_name(saga_id, 1))
        assert system.statuses(saga_id) == {
            "Transfer": "TOMBSTONE", "Debit": "DONE", "Credit": "DONE", "Receipt": "DONE",
        }  # fmt: skip
        assert money_of(system, way) == MOVED
        states = system.states_of(FORWARD, record.owner)
        again = [
            *("Debit", "Begin compensation at Debit", "Check direction", "Direction is forward?"),
            *("Retries left?", "Wait before retry", "Select step to retry"),
        ]
        assert states[-18:] == [*again, *again, "Debit", "Credit", "Receipt", "Settle completed"]

    def test_of_a_parked_saga_is_left_to_an_operator(self, system: TwoLedgers) -> None:
        way, saga_id = interrupted(system, "k", "Debit", Moment.AFTER)
        park(system, saga_id)
        before = system.item(saga_id)

        assert system.recover(saga_id) == (Finding.PARKED, None)
        told = recover_by_hand(system, saga_id)

        assert told[0] == 1
        assert f"saga {saga_id} is parked: resolve it with cdk-sagas resolve" in told[1]
        assert system.item(saga_id) == before
        assert system.post("k", way.body).status == 409


def park(system: TwoLedgers, saga_id: str) -> None:
    """Park a saga, with the write of a state machine."""
    key: dict[str, dict[str, str]] = {RecordAttribute.ID: {"S": request_id_from(saga_id)}}
    system.aws.client("dynamodb").update_item(
        TableName=system.outputs["RequestTableName"],
        Key=key,
        UpdateExpression="SET #parked_by = #owner",
        ExpressionAttributeNames={"#parked_by": RecordAttribute.PARKED_BY, "#owner": RecordAttribute.OWNER},
    )


# --- By hand


def recover_by_hand(system: TwoLedgers, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Run the command against local AWS: its status, its output and its errors."""
    stack = () if "--stack" in arguments else ("--stack", system.stack)
    given = {
        "PATH": os.environ["PATH"],
        "AWS_ENDPOINT_URL": system.aws.endpoint_url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": system.aws.region,
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        **environment,
    }
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "constructs_lib.cli",
            "recover",
            *arguments,
            *stack,
            "--reason",
            "its execution died",
        ],
        env=given,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


class TestTheCommand:
    def test_takes_over_interrupted_sagas_and_leaves_settled_ones(self, system: TwoLedgers) -> None:
        way, saga_id = interrupted(system, "k", "Debit", Moment.AFTER)

        first = recover_by_hand(system, saga_id)
        system.await_quiet(saga_id)
        second = recover_by_hand(system, saga_id)

        owner = recovery_name(saga_id, 1)
        assert first == (0, f"saga {saga_id} was interrupted: taken over by {owner}\n", "")
        assert second == (0, f"saga {saga_id} is settled: nothing to do\n", "")
        assert money_of(system, way) == NOT_MOVED
        kept = [(one.what, one.why) for one in Decision.all_of(system.item(saga_id))]
        assert kept == [("taken over", "its execution died")]

    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            (["transfer-17"], "not a saga id: 'transfer-17'; give it as the API answered it"),
            (["a" * 26 + "-abc"], "must have saga " + "a" * 26 + "-abc, got no record of it in "),
            (["a" * 26 + "-abc", "--stack", "elsewhere"], "there is no stack elsewhere"),
        ],
    )
    def test_reports_in_one_line_what_is_wrong(self, system: TwoLedgers, arguments: list[str], complaint: str) -> None:
        status, said, complained = recover_by_hand(system, *arguments)

        assert (status, said) == (1, "")
        assert complained.startswith("cdk-sagas: ")
        assert complaint in complained
        assert complained.count("\n") == 1

    def test_reports_in_one_line_that_there_is_no_endpoint(self, system: TwoLedgers) -> None:
        status, said, complained = recover_by_hand(
            system, "a" * 26 + "-abc", AWS_ENDPOINT_URL="http://127.0.0.1:1", AWS_RETRY_MODE="standard"
        )

        assert (status, said, complained.count("\n")) == (1, "", 1)
        assert "Could not connect to the endpoint URL" in complained

    def test_needs_a_stack(self, system: TwoLedgers) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "constructs_lib.cli", "recover", "x"], capture_output=True, text=True, check=False
        )

        assert done.returncode == 2
        assert "--stack" in done.stderr
