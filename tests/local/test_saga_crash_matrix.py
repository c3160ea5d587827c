"""A crash or a lost response around a sample of the AWS calls of a transfer between two ledgers, and of its refund.

The calls are not listed here: one transfer of each path is recorded. Each third of its calls is broken in one way, the
ways in turn, each in a transfer of its own, all of them in one local AWS. The simulator breaks every call in every way
(``tests/simulator/test_each_call.py``). Clients repeat, the deployed reconciler recovers what was interrupted, and then
the tables are audited.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pytest

from constructs_lib.testing import HttpResponse
from constructs_lib.testing.fault_plan import Action, Attempts, Fault, Moment
from constructs_lib.testing.fault_schedules import First, Nth
from constructs_lib.testing.faults import RecordedCall
from constructs_lib.testing.invariants import assert_all_hold, audit_effects, audit_ledger, audit_sagas, together
from saga_runtime.idempotency.identity import request_id_from, step_key_of
from saga_runtime.protocol import RecordAttribute

from .reconcilers import reconciling
from .sampling import each_third, in_turn
from .transfer_system import CURRENCY, POSTING_STEPS, problem_of
from .two_ledgers import (
    CREDIT,
    DEBIT,
    FORWARD,
    MAIN,
    NOTIFIER,
    PARTNER,
    REFUND,
    TwoLedgers,
    Way,
    deployed,
)

SPEED = 6.0
FUNCTION_SECONDS = 120
CLIENTS = 6
PATIENCE_PER_CELL_SECONDS = 6.0
"""How long a client waits for its transfer before it begins the next one: not all at once, on a small machine."""
OPENING, AMOUNT = 1000, 100
IN_DOUBT_TRIES = 5
"""Number of invocations of a crashing step before its retries are exhausted: one, and four retries."""
SERVICE_TRIES = 11
"""How often a state machine calls a service before it gives up: once, and ten retries."""
ENDS_WITHIN_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One call that a transfer makes: by whom, which, the how many-th, and in which state of the state machine."""

    caller: str
    call: str
    occurrence: int
    state: str | None

    @property
    def is_of_machine(self) -> bool:
        """True if the state machine makes the call itself."""
        return self.state is not None

    def __str__(self) -> str:
        function = self.caller.removeprefix("FundsTransfer/").removesuffix("/Function")
        who = f"state {self.state}" if self.state else function
        return f"{who}: {self.call}#{self.occurrence}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One way to break a call.

    Attributes:
        action: What happens.
        moment: Before or after the call took effect.
        attempts: Whether an SDK's own retries are hit, too.
        times: How many calls in a row, from the point on.
    """

    action: Action
    moment: Moment
    attempts: Attempts = Attempts.FIRST
    times: int = 1

    def __str__(self) -> str:
        every = " every attempt" if self.attempts is Attempts.ALL else ""
        return f"{self.action}{every} {self.moment}{f' x{self.times}' if self.times > 1 else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One transfer with one trouble."""

    name: str
    refused: bool
    point: Point
    trouble: Trouble

    def __str__(self) -> str:
        return f"[{'refused' if self.refused else 'happy'}] {self.point}, {self.trouble}"

    @property
    def way(self) -> Way:
        """The transfer."""
        return Way(name=self.name, amount=AMOUNT)

    def faults(self, request_id: str) -> list[Fault]:
        """The faults, aimed at this transfer and no other."""
        # A read of accounts is the one call that names no request.
        account = self.way.target if self.point.caller == CREDIT else self.way.source
        make = partial(
            Fault,
            function=f"states:{FORWARD}" if self.point.is_of_machine else self.point.caller,
            call=self.point.call,
            action=self.trouble.action,
            moment=self.trouble.moment,
            attempts=self.trouble.attempts,
            containing=account if self.point.call == "dynamodb:BatchGetItem" else request_id,
        )
        if self.point.occurrence == 1:
            return [make(on=First(self.trouble.times))]
        return [make(on=Nth(self.point.occurrence + n)) for n in range(self.trouble.times)]

    @property
    def loses_its_reason(self) -> bool:
        """True if the execution dies before it stores its failure: the recovery compensates all the same."""
        deciding = self.point.state in {"Fence Credit", "Begin compensation at Credit"}
        return deciding and self.trouble.moment is Moment.BEFORE and self.trouble.times > 1

    @property
    def expected(self) -> int | None:
        """Status code of the settled response; None for a saga that needs an operator."""
        if self.point.call == "sqs:SendMessage" and self.point.is_of_machine and self.trouble.times > 1:
            return None
        if self.trouble.times == IN_DOUBT_TRIES:
            given_up = self.point.caller == DEBIT or (
                # A credit that crashed after its commit is applied: the saga goes forward.
                self.point.caller == CREDIT and (self.refused or self.trouble.moment is Moment.BEFORE)
            )
            if given_up:
                return 500
        return 500 if self.loses_its_reason else 422 if self.refused else 200


def troubles(point: Point) -> Iterator[Trouble]:
    """Ways to break a call: of the notice, one that parks the saga; of all others, every one."""
    if point.is_of_machine and point.call == "sqs:SendMessage" and point.state == "Notify failure":
        yield Trouble(action=Action.DROP, moment=Moment.AFTER, times=SERVICE_TRIES)
        return
    for moment in Moment:
        if point.is_of_machine:
            yield Trouble(action=Action.DROP, moment=moment)
            yield Trouble(action=Action.ERROR, moment=moment)
            if point.call != "lambda:Invoke":
                yield Trouble(action=Action.DROP, moment=moment, times=SERVICE_TRIES)
            continue
        yield Trouble(action=Action.KILL, moment=moment)
        yield Trouble(action=Action.DROP, moment=moment)
        yield Trouble(action=Action.DROP, moment=moment, attempts=Attempts.ALL)
        if point.caller in {DEBIT, CREDIT, REFUND} and point.call == "dynamodb:TransactWriteItems":
            yield Trouble(action=Action.KILL, moment=moment, times=IN_DOUBT_TRIES)


def points_of(system: TwoLedgers, calls: Sequence[RecordedCall]) -> list[Point]:
    """Every call of a recorded transfer."""
    functions = (system.gatekeeper, DEBIT, CREDIT, REFUND, NOTIFIER)
    paths = {system.aws.resolve_function(path): path for path in functions}
    machine = "states:" + system.aws.resolve_state_machine(FORWARD).rpartition(":")[2]
    assert {call.caller for call in calls} <= {*paths, machine}
    assert {call.attempt for call in calls} == {1}
    return [
        Point(
            caller=paths.get(call.caller, FORWARD),
            call=call.call,
            occurrence=call.occurrence,
            state=call.state,
        )
        for call in calls
    ]


def recorded(system: TwoLedgers, name: str, *, closed: bool) -> list[Point]:
    """Calls of one transfer without faults: accepted, driven to its end, repeated, and its status read."""
    way = system.way(name, balance=OPENING, amount=AMOUNT, closed=closed)
    with system.aws.calls.record() as calls:
        saga_id = system.begin(name, way.body)
        system.await_end(FORWARD, saga_id)
        assert system.post(name, way.body).status == (422 if closed else 200)
        assert system.look(saga_id).status == 200
    return points_of(system, calls.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """End of a cell."""

    saga_id: str
    answer: HttpResponse
    look: HttpResponse


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """The matrix after its run."""

    system: TwoLedgers
    points: Mapping[bool, Sequence[Point]]
    cells: Sequence[Cell]
    fired: Mapping[Cell, bool]
    outcomes: Mapping[Cell, Outcome]
    recoveries: Counter[str]
    seconds: float
    messages: Counter[tuple[str, str]]


@pytest.fixture(scope="module")
def matrix() -> Iterator[Matrix]:
    """Every cell, run to its end."""
    with deployed(speed=SPEED, seconds=FUNCTION_SECONDS) as (system, _):
        yield run(system)


def run(system: TwoLedgers) -> Matrix:
    """Break everything, and drive everything to its end."""
    system.await_end(FORWARD, system.saga_of_scope)
    points = {closed: recorded(system, f"clean-{closed}", closed=closed) for closed in (False, True)}
    cells = [
        Cell(name=f"{'r' if closed else 'h'}{number:03d}", refused=closed, point=point, trouble=trouble)
        for closed in (False, True)
        for number, (point, trouble) in enumerate(in_turn(each_third(points[closed]), troubles))
    ]
    started = time.monotonic()
    first_fault: dict[Cell, str] = {}
    for cell in cells:
        system.way(cell.name, balance=OPENING, amount=AMOUNT, closed=cell.refused)
        first_fault[cell] = system.aws.faults.plan(*cell.faults(system.request_id(cell.name)))[0]
    with ThreadPoolExecutor(CLIENTS) as pool, reconciling(system.aws, system.outputs):
        # What takes longest begins first.
        order = sorted(cells, key=lambda cell: -cell.trouble.times)
        begun = dict(zip(order, pool.map(lambda cell: begin(system, cell), order), strict=True))
        until_nothing_is_in_progress(system)
        outcomes = dict(zip(cells, pool.map(lambda cell: ask_again(system, cell, begun[cell]), cells), strict=True))
    report = system.aws.faults.report()
    fired = {outcome.id: outcome.fired > 0 for outcome in report.outcomes}
    return Matrix(
        system=system,
        points=points,
        cells=cells,
        fired={cell: fired[first_fault[cell]] for cell in cells},
        outcomes=outcomes,
        recoveries=system.recoveries(),
        seconds=time.monotonic() - started,
        messages=Counter((m["saga_id"], m.get("status", m["step"])) for m in system.messages()),
    )


def begin(system: TwoLedgers, cell: Cell) -> str:
    """Begin a transfer, and give it some time."""
    saga_id = system.begin(cell.name, cell.way.body)
    # What is known to take long is not waited for.
    deadline = time.monotonic() + (PATIENCE_PER_CELL_SECONDS if cell.trouble.times == 1 else 0)
    while time.monotonic() < deadline and not system.record(saga_id).settled:
        time.sleep(0.15)
    return saga_id


def until_nothing_is_in_progress(system: TwoLedgers) -> None:
    """Wait until every saga is settled or parked."""
    deadline = time.monotonic() + ENDS_WITHIN_SECONDS
    while time.monotonic() < deadline:
        if all(RecordAttribute.DUE_AT not in r or RecordAttribute.PARKED_BY in r for r in system.records()):
            return
        time.sleep(1)
    raise AssertionError(f"sagas are in progress after {ENDS_WITHIN_SECONDS:.0f} s: {in_progress(system)}")


def in_progress(system: TwoLedgers) -> list[str]:
    """Description of each saga that has not ended."""
    ids = [r[RecordAttribute.SAGA_ID]["S"] for r in system.records() if RecordAttribute.DUE_AT in r]
    return [f"{system.record(id_)} {system.states_of(FORWARD, id_)}" for id_ in ids]


def ask_again(system: TwoLedgers, cell: Cell, saga_id: str) -> Outcome:
    """Final response to a client, which retries: its own requests are broken, too."""

    def repeat(send: Callable[[], HttpResponse | None]) -> HttpResponse:
        for _ in range(20):
            answer = send()
            if answer is not None and ("idempotent-replayed" in answer.headers or answer.status < 500):
                return answer
        raise AssertionError(f"{cell}: no answer")

    return Outcome(
        saga_id=saga_id,
        answer=repeat(lambda: system.try_post(cell.name, cell.way.body)),
        look=repeat(lambda: system.look(saga_id)),
    )


def require_none(matrix: Matrix, violations: Sequence[str]) -> None:
    """Fail with the violations."""
    assert not violations, f"{len(violations)} of {len(matrix.cells)} cells:\n" + "\n".join(violations)


class TestTheMatrix:
    def test_breaks_calls_of_both_paths(self, matrix: Matrix, capsys: pytest.CaptureFixture[str]) -> None:
        enumerated = [
            (closed, point, trouble)
            for closed in matrix.points
            for point, trouble in in_turn(each_third(matrix.points[closed]), troubles)
        ]
        ran = [(cell.refused, cell.point, cell.trouble) for cell in matrix.cells if matrix.fired[cell]]

        with capsys.disabled():
            calls = sum(map(len, matrix.points.values()))
            print(f"\n{calls} calls; calls x troubles: {len(enumerated)} enumerated, {len(ran)} run", end="")
            print(f", {matrix.recoveries.total()} recoveries, {matrix.seconds:.0f} s ", end="")
        require_none(matrix, [str(cell) for cell in matrix.cells if not matrix.fired[cell]])
        assert Counter(enumerated) == Counter(ran)

    def test_has_every_function_and_every_service_call_of_both_paths(self, matrix: Matrix) -> None:
        callers = {closed: {point.caller for point in points} for closed, points in matrix.points.items()}
        states = {closed: [p.state for p in points if p.is_of_machine] for closed, points in matrix.points.items()}

        gatekeeper = matrix.system.gatekeeper
        assert callers[False] == {gatekeeper, DEBIT, CREDIT, NOTIFIER, FORWARD}
        assert callers[True] == {gatekeeper, DEBIT, CREDIT, REFUND, FORWARD}
        assert states[False] == ["Debit", "Credit", "Receipt", "Settle completed"]
        assert states[True] == [
            *("Debit", "Credit", "Fence Credit", "Begin compensation at Credit", "Compensate Debit", "Query saga log"),
            *("Notify failure", "Settle failed"),
        ]


class TestWhateverBroke:
    def test_every_request_has_the_undisturbed_response(self, matrix: Matrix) -> None:
        wrong = [
            f"{cell}: {outcome.answer.status}, expected {cell.expected or 409}; {outcome.answer.text}"
            for cell, outcome in matrix.outcomes.items()
            if outcome.answer.status != (cell.expected or 409)
        ]

        require_none(matrix, wrong)

    def test_a_sagas_status_agrees_with_its_response(self, matrix: Matrix) -> None:
        settled = {cell: outcome for cell, outcome in matrix.outcomes.items() if cell.expected is not None}
        wrong = [
            f"{cell}: {outcome.look.text}"
            for cell, outcome in settled.items()
            if outcome.look.json()["answer"] != outcome.answer.json()
            or outcome.answer.json()["saga_id"] != outcome.saga_id
        ]

        require_none(matrix, wrong)

    def test_every_effect_was_applied_once_or_compensated(self, matrix: Matrix) -> None:
        system = matrix.system
        parked = {request_id_from(o.saga_id) for cell, o in matrix.outcomes.items() if cell.expected is None}
        records = [record for record in system.records() if record[RecordAttribute.ID]["S"] not in parked]
        rows = [row for row in system.rows() if request_id_from(row["saga_id"]["S"]) not in parked]
        ledgers = system.ledgers()
        audits = together(
            *(audit_ledger(ledger) for ledger in ledgers),
            audit_sagas(records, rows),
            audit_effects(system.rows(), [item for ledger in ledgers for item in ledger], steps=POSTING_STEPS),
        )

        assert_all_hold(audits)
        assert all(audit.checked > len(matrix.cells) / 2 for audit in audits), audits

    def test_every_account_agrees_with_the_responses(self, matrix: Matrix) -> None:
        main, partner = matrix.system.balances(MAIN), matrix.system.balances(PARTNER)
        moved = {cell: AMOUNT if cell.expected == 200 else 0 for cell in matrix.cells}
        wrong = [
            f"{cell}: {main[cell.way.source]} and {partner[cell.way.target]} {CURRENCY}"
            for cell in matrix.cells
            if (main[cell.way.source], partner[cell.way.target]) != (OPENING - moved[cell], moved[cell])
        ]

        require_none(matrix, wrong)

    def test_the_ledgers_clearing_accounts_mirror_each_other(self, matrix: Matrix) -> None:
        completed = AMOUNT * (1 + sum(cell.expected == 200 for cell in matrix.cells))

        assert matrix.system.clearing(MAIN, "partner-clearing") == completed
        assert matrix.system.clearing(PARTNER, "main-clearing") == -completed

    def test_every_end_was_notified_and_every_receipt_sent_once(self, matrix: Matrix) -> None:
        wrong = []
        for cell, outcome in matrix.outcomes.items():
            receipts = matrix.messages[outcome.saga_id, "Receipt"]
            failures = matrix.messages[outcome.saga_id, "FAILED"]
            # A failure whose settle is interrupted for more than five minutes is sent again: deduplication has ended.
            fine = (receipts, failures) == (1, 0) if cell.expected == 200 else receipts == 0 and failures >= 1
            if cell.expected is not None and not fine:
                wrong.append(f"{cell}: {receipts} receipts, {failures} notices of failure")

        require_none(matrix, wrong)

    def test_no_saga_needed_more_than_two_recoveries(self, matrix: Matrix) -> None:
        assert max(matrix.recoveries.values(), default=0) <= 2

    def test_an_unsendable_notice_parks_the_compensated_saga(self, matrix: Matrix) -> None:
        parked = {cell: o for cell, o in matrix.outcomes.items() if cell.expected is None}

        assert len(parked) == 1
        for outcome in parked.values():
            assert matrix.system.record(outcome.saga_id).parked_by is not None
            assert matrix.system.statuses(outcome.saga_id) == {"Debit": "COMPENSATED", "Credit": "TOMBSTONE"}

    def test_no_response_reveals_internals(self, matrix: Matrix) -> None:
        answers = [answer for outcome in matrix.outcomes.values() for answer in (outcome.answer, outcome.look)]
        internal = ("Traceback", "stackTrace", "errorType", "botocore", "dynamodb", "/var/task", ".py")

        require_none(matrix, [a.text for a in answers if any(word in a.text for word in internal)])

    def test_a_failure_names_its_step_and_no_internals(self, matrix: Matrix) -> None:
        for cell, outcome in matrix.outcomes.items():
            if cell.expected == 500:
                document = problem_of(outcome.answer)
                step = "Debit" if cell.point.caller == DEBIT else "Credit"
                broken = ("StepFailed", step, "the step could not be completed")
                interrupted = ("SagaInterrupted", "", "the request was interrupted")
                told_of = (document["error"], document["step"], document["detail"])
                assert told_of == (interrupted if cell.loses_its_reason else broken), str(cell)

    def test_entries_are_posted_under_step_keys(self, matrix: Matrix) -> None:
        ids = {item["entry_id"]["S"] for ledger in matrix.system.ledgers() for item in ledger if "entry_id" in item}

        for cell, outcome in matrix.outcomes.items():
            debited = step_key_of(outcome.saga_id, "Debit")
            expected = {debited, step_key_of(outcome.saga_id, "Credit")} if cell.expected == 200 else set()
            assert expected <= ids, str(cell)
