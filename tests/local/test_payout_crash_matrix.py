"""A crash or a lost response around a sample of the calls of a payout, and stops at a sample of its states.

The calls are not listed here: one payout of each path is recorded. Each third of its calls and states is broken in one
way, the ways in turn, each in a payout of its own, all of them in one local AWS; the calls of the model are broken in
every way: the model writes each question into its books before it answers. The simulator breaks every call in every
way (``tests/simulator/test_each_call.py``). Clients repeat, the deployed reconciler recovers what was interrupted, and
then the tables are audited.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final

import pytest

from constructs_lib.testing import HttpResponse, StopAt
from constructs_lib.testing.fault_plan import Action, Attempts, Fault, Moment, Planned
from constructs_lib.testing.fault_schedules import First, Nth
from constructs_lib.testing.faults import RecordedCall
from constructs_lib.testing.invariants import assert_all_hold
from saga_runtime.protocol import RecordAttribute

from .payout_system import (
    ACT,
    AGENT,
    AMOUNT,
    ANALYZE,
    CLAIM,
    FORWARD,
    LOOKERS,
    NOTIFIER,
    OPENING,
    RECOMMEND,
    RELEASE,
    STACK,
    ModelCall,
    Payout,
    PayoutSystem,
)
from .reconcilers import reconciling
from .sampling import each_third, in_turn
from .transfer_system import problem_of
from .two_ledgers import MAIN

CLIENTS = 6
PATIENCE_PER_CELL_SECONDS = 4.0
"""How long a client waits for its payout before it begins the next one: not all at once, on a small machine."""
TOO_LITTLE = 10
CLEAN: Final = {False: "clean-happy", True: "clean-refused"}
ENDS_WITHIN_SECONDS = 300.0
PUT: Final = "dynamodb:PutItem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One call that a payout makes: by whom, which, the how many-th, and in which state of the state machine."""

    caller: str
    call: str
    occurrence: int
    state: str | None

    @property
    def is_of_machine(self) -> bool:
        """True if the state machine makes the call itself."""
        return self.state is not None

    @property
    def is_model(self) -> bool:
        """True if it is the call of the model: the step's first write, into the model's books."""
        return self.caller == RECOMMEND and self.call == PUT and self.occurrence == 1

    @property
    def is_record(self) -> bool:
        """True if it is the write of the recommendation's row."""
        return self.caller == RECOMMEND and self.call == PUT and self.occurrence == 2

    @property
    def is_look(self) -> bool:
        """True if it reads what the agent has spent, which names no payout."""
        return self.caller == ANALYZE and self.call == "dynamodb:GetItem" and self.occurrence == 2

    def __str__(self) -> str:
        function = self.caller.removeprefix(f"{STACK}/").removesuffix("/Function")
        who = f"state {self.state}" if self.state else function
        return f"{who}: {'the model' if self.is_model else self.call}#{self.occurrence}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A state, at which the execution is stopped."""

    state: str

    def __str__(self) -> str:
        return f"state {self.state}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One way to break a call.

    Attributes:
        action: What happens; None for an execution that is stopped.
        moment: Before or after the call (or the state) took effect.
        attempts: Whether an SDK's own retries are hit, too.
    """

    action: Action | None
    moment: Moment
    attempts: Attempts = Attempts.FIRST

    def __str__(self) -> str:
        every = " every attempt" if self.attempts is Attempts.ALL else ""
        return f"{self.action or 'stop'}{every} {self.moment}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One payout with one trouble."""

    name: str
    refused: bool
    point: Point | Stop
    trouble: Trouble
    agent: str

    def __str__(self) -> str:
        return f"[{'refused' if self.refused else 'happy'}] {self.point}, {self.trouble}"

    @property
    def payout(self) -> Payout:
        """The payout."""
        return Payout(name=self.name, agent=self.agent)

    def fault(self, request_id: str) -> Planned:
        """The fault, aimed at this payout and no other."""
        trouble = self.trouble
        if isinstance(self.point, Stop):
            return StopAt(machine=FORWARD, state=self.point.state, moment=trouble.moment, containing=request_id)
        assert trouble.action is not None
        # What these calls name: neither the model nor the ledger knows of a request.
        named = self.payout.payee if self.point.is_model or self.point.call == "dynamodb:BatchGetItem" else request_id
        alone = self.point.occurrence == 1 or self.point.is_record or self.point.is_look
        return Fault(
            function=f"states:{FORWARD}" if self.point.is_of_machine else self.point.caller,
            call=self.point.call,
            action=trouble.action,
            moment=trouble.moment,
            attempts=trouble.attempts,
            containing=self.agent if self.point.is_look else named,
            on=First() if alone else Nth(self.point.occurrence),
        )

    @property
    def expected(self) -> int:
        """Status of the settled answer."""
        refused_or_paid = 402 if self.refused else 200
        if not isinstance(self.point, Stop):
            return refused_or_paid
        after = self.trouble.moment is Moment.AFTER
        # Stopped before its outcome was written anywhere, a saga has none: it is undone, and may be asked for again.
        if self.refused:
            known = STATES_REFUSED[STATES_REFUSED.index("Fence Act") + 1 :]
            return 402 if self.point.state in known[1:] or (self.point.state == known[0] and after) else 500
        paid = self.point.state in {"Notify", "Settle completed"} or (self.point.state == "Act" and after)
        return 200 if paid else 500

    @property
    def model_calls(self) -> int:
        """Number of paid model calls: two if the response was lost on the way into the row."""
        trouble, point = self.trouble, self.point
        if isinstance(point, Stop):
            order = ["Analyze", "Claim", "Recommend"]
            reached = point.state not in order or (point.state == "Recommend" and trouble.moment is Moment.AFTER)
            return 1 if reached else 0
        if point.is_model:
            return 2 if trouble.moment is Moment.AFTER else 1
        # A row that cannot be written is tried again with the same answer, as long as the process lives.
        dies = trouble.action is Action.KILL and trouble.moment is Moment.BEFORE
        return 2 if point.is_record and dies else 1


STATES_HAPPY: Final = ["Analyze", "Claim", "Recommend", "Act", "Notify", "Settle completed"]
STATES_REFUSED: Final = [
    *(
        "Analyze",
        "Claim",
        "Recommend",
        "Act",
        "Fence Act",
        "Begin compensation at Act",
        "Compensate Claim",
        "Query saga log",
    ),
    *("All compensated?", "Notify failure", "Settle failed"),
]


def troubles(point: Point | Stop) -> Iterator[Trouble]:
    """Every way to break a call, or to stop at a state."""
    for moment in Moment:
        if isinstance(point, Stop):
            yield Trouble(action=None, moment=moment)
            continue
        if not point.is_of_machine:
            yield Trouble(action=Action.KILL, moment=moment)
        # Before: no attempt arrives, so the code is reported. After: the SDK retries, and finds its own write.
        lost = Attempts.ALL if moment is Moment.BEFORE and not point.is_of_machine else Attempts.FIRST
        yield Trouble(action=Action.DROP, moment=moment, attempts=lost)


def points_of(system: PayoutSystem, calls: Sequence[RecordedCall]) -> list[Point]:
    """Every call of a recorded payout."""
    functions = (system.gatekeeper, ANALYZE, CLAIM, RELEASE, RECOMMEND, ACT, NOTIFIER)
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


def recorded(system: PayoutSystem, name: str, *, refused: bool) -> list[Point | Stop]:
    """Calls and states of one payout without faults: accepted, driven to its end, repeated, and its status read."""
    payout = system.ready(Payout(name=name), opening=TOO_LITTLE if refused else OPENING)
    with system.aws.calls.record() as calls:
        saga_id = system.begin(payout.key(), payout.body)
        system.await_end(FORWARD, saga_id)
        assert system.post(payout.key(), payout.body).status == (402 if refused else 200)
        assert system.look(saga_id).status == 200
    states = system.states_of(FORWARD, saga_id)
    assert states == (STATES_REFUSED if refused else STATES_HAPPY)
    return [*points_of(system, calls.calls), *(Stop(state=state) for state in states)]


def cells_of(points: Mapping[bool, Sequence[Point | Stop]]) -> list[Cell]:
    """Troubles of every point, each in a payout of its own."""
    lookers, numbers = iter(LOOKERS), count()
    return [
        Cell(
            name=f"{'r' if refused else 'h'}{next(numbers):03d}x",
            refused=refused,
            point=point,
            trouble=trouble,
            agent=next(lookers) if isinstance(point, Point) and point.is_look else AGENT,
        )
        for refused in points
        for point, trouble in _sample(points[refused])
    ]


def _sample(points: Sequence[Point | Stop]) -> Iterator[tuple[Point | Stop, Trouble]]:
    """Each third point in one way, the ways in turn; the model and the write of its answer in every way."""
    whole = [point for point in points if isinstance(point, Point) and (point.is_model or point.is_record)]
    yield from ((point, trouble) for point in whole for trouble in troubles(point))
    yield from in_turn(each_third([point for point in points if point not in whole]), troubles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """End of one cell."""

    saga_id: str
    answer: HttpResponse
    look: HttpResponse | None


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """The matrix after its run, with the final contents of the tables."""

    system: PayoutSystem
    points: Mapping[bool, Sequence[Point | Stop]]
    cells: Sequence[Cell]
    fired: Mapping[Cell, bool]
    outcomes: Mapping[Cell, Outcome]
    recoveries: Counter[str]
    seconds: float
    messages: Counter[tuple[str, str]]
    calls: Mapping[str, Sequence[ModelCall]]
    recommended: Mapping[str, Mapping[str, Any]]
    balances: Mapping[str, int]


@pytest.fixture(scope="module")
def matrix(payout_system: PayoutSystem) -> Matrix:
    """Every cell, run to its end."""
    payout_system.reset()
    return run(payout_system)


def run(system: PayoutSystem) -> Matrix:
    """Break everything, and drive everything to its end."""
    system.await_end(FORWARD, system.saga_of_scope)
    points = {refused: recorded(system, CLEAN[refused], refused=refused) for refused in (False, True)}
    cells = cells_of(points)
    started = time.monotonic()
    planned: dict[Cell, str] = {}
    for cell in cells:
        system.ready(cell.payout, opening=TOO_LITTLE if cell.refused else OPENING)
        (planned[cell],) = system.aws.faults.plan(cell.fault(system.request_id(cell.payout.key())))
    with ThreadPoolExecutor(CLIENTS) as pool, reconciling(system.aws, system.outputs):
        # What waits for the reconciler begins first.
        order = sorted(cells, key=lambda cell: isinstance(cell.point, Point))
        begun = dict(zip(order, pool.map(lambda cell: begin(system, cell), order), strict=True))
        until_nothing_is_in_progress(system)
        outcomes = dict(zip(cells, pool.map(lambda cell: ask_again(system, cell, begun[cell]), cells), strict=True))
    fired = {outcome.id: outcome.fired > 0 for outcome in system.aws.faults.report().outcomes}
    calls: dict[str, list[ModelCall]] = {}
    for call in system.model_calls():
        calls.setdefault(call.payee, []).append(call)
    return Matrix(
        system=system,
        points=points,
        cells=cells,
        fired={cell: fired[planned[cell]] for cell in cells},
        outcomes=outcomes,
        recoveries=system.recoveries(),
        seconds=time.monotonic() - started,
        messages=Counter((m["saga_id"], m.get("status", m["step"])) for m in system.messages()),
        calls=calls,
        recommended=system.recorded(),
        balances=system.balances(MAIN),
    )


def begin(system: PayoutSystem, cell: Cell) -> str:
    """Begin a payout, and give it some time."""
    saga_id = system.begin(cell.payout.key(), cell.payout.body)
    deadline = time.monotonic() + (0 if isinstance(cell.point, Stop) else PATIENCE_PER_CELL_SECONDS)
    while time.monotonic() < deadline and not system.record(saga_id).settled:
        time.sleep(0.25)
    return saga_id


def until_nothing_is_in_progress(system: PayoutSystem) -> None:
    """Wait until every saga is settled or parked."""
    deadline = time.monotonic() + ENDS_WITHIN_SECONDS
    while time.monotonic() < deadline:
        open_ones = [r for r in system.records() if RecordAttribute.DUE_AT in r and RecordAttribute.PARKED_BY not in r]
        if not open_ones:
            return
        time.sleep(1)
    ids = [r[RecordAttribute.SAGA_ID]["S"] for r in system.records() if RecordAttribute.DUE_AT in r]
    require_none = [f"{system.record(id_)} {system.states_of(FORWARD, id_)}" for id_ in ids]
    raise AssertionError(f"sagas are in progress after {ENDS_WITHIN_SECONDS:.0f} s: {require_none}")


def ask_again(system: PayoutSystem, cell: Cell, saga_id: str) -> Outcome:
    """Final response to a client, which retries: its own requests are broken, too."""

    def repeat(send: Callable[[], HttpResponse | None]) -> HttpResponse:
        for _ in range(20):
            answer = send()
            if answer is not None and ("idempotent-replayed" in answer.headers or answer.status < 500):
                return answer
        raise AssertionError(f"{cell}: no answer")

    def look() -> HttpResponse | None:
        try:
            return system.look(saga_id)
        except OSError:
            return None

    return Outcome(
        saga_id=saga_id,
        answer=repeat(partial(system.try_post, cell.payout.key(), cell.payout.body)),
        # Status requests concern the gatekeeper alone: made for the payouts at which the gatekeeper is broken.
        look=repeat(look) if isinstance(cell.point, Point) and cell.point.caller == system.gatekeeper else None,
    )


def require_none(matrix: Matrix, violations: Sequence[str]) -> None:
    """Fail with the violations."""
    assert not violations, f"{len(violations)} of {len(matrix.cells)} cells:\n" + "\n".join(violations)


class TestTheMatrix:
    def test_breaks_calls_and_stops_at_states(self, matrix: Matrix, capsys: pytest.CaptureFixture[str]) -> None:
        enumerated = [
            (refused, point, trouble) for refused in matrix.points for point, trouble in _sample(matrix.points[refused])
        ]
        ran = [(cell.refused, cell.point, cell.trouble) for cell in matrix.cells if matrix.fired[cell]]

        with capsys.disabled():
            points = [point for of_path in matrix.points.values() for point in of_path]
            calls = sum(isinstance(point, Point) for point in points)
            paid_for = sum(map(len, matrix.calls.values()))
            print(f"\n{calls} calls and {len(points) - calls} states; x troubles: {len(enumerated)} enumerated", end="")
            print(f", {len(ran)} run, {matrix.recoveries.total()} recoveries, {matrix.seconds:.0f} s", end="")
            print(f"; {paid_for} model calls, {len(matrix.recommended)} recorded ", end="")
        require_none(matrix, [str(cell) for cell in matrix.cells if not matrix.fired[cell]])
        assert Counter(enumerated) == Counter(ran)

    def test_has_every_function_of_both_paths_and_the_model(self, matrix: Matrix) -> None:
        calls = {
            refused: [point for point in points if isinstance(point, Point)]
            for refused, points in matrix.points.items()
        }

        callers = {refused: {point.caller for point in of_path} for refused, of_path in calls.items()}
        gatekeeper = matrix.system.gatekeeper
        assert callers[False] == {gatekeeper, ANALYZE, CLAIM, RECOMMEND, ACT, NOTIFIER, FORWARD}
        assert callers[True] == {gatekeeper, ANALYZE, CLAIM, RECOMMEND, ACT, RELEASE, FORWARD}
        for of_path in calls.values():
            assert sum(point.is_model for point in of_path) == sum(point.is_record for point in of_path) == 1
            assert sum(point.is_look for point in of_path) == 1


class TestWhateverBroke:
    def test_every_request_has_the_undisturbed_response_or_is_compensated(self, matrix: Matrix) -> None:
        wrong = [
            f"{cell}: {outcome.answer.status}, expected {cell.expected}; {outcome.answer.text}"
            for cell, outcome in matrix.outcomes.items()
            if outcome.answer.status != cell.expected
        ]

        require_none(matrix, wrong)

    def test_a_sagas_status_agrees_with_its_response(self, matrix: Matrix) -> None:
        looked = [(cell, o.answer.json(), o.look) for cell, o in matrix.outcomes.items() if o.look is not None]
        wrong = [f"{cell}: {look.text}" for cell, answer, look in looked if look.json()["answer"] != answer]

        assert looked
        require_none(matrix, wrong)

    def test_every_response_names_its_saga(self, matrix: Matrix) -> None:
        assert all(outcome.answer.json()["saga_id"] == outcome.saga_id for outcome in matrix.outcomes.values())

    def test_every_effect_was_applied_once_or_compensated(self, matrix: Matrix) -> None:
        audits = matrix.system.audit()

        assert_all_hold(audits)
        assert all(audit.checked > len(matrix.cells) / 3 for audit in audits), audits

    def test_every_payee_holds_the_first_recommendation(self, matrix: Matrix) -> None:
        """The ledger, the answer and the record of the recommendation, of which no two calls give the same."""
        wrong = []
        for cell, outcome in matrix.outcomes.items():
            paid = cell.expected == 200
            recorded_amount = int(matrix.recommended[outcome.saga_id]["amount"]) if paid else 0
            answered = int(outcome.answer.json()["result"]["amount"]) if paid else 0
            payout, balances = cell.payout, matrix.balances
            opening = TOO_LITTLE if cell.refused else OPENING
            found = {recorded_amount, answered, balances[payout.payee], opening - balances[payout.payer]}
            if len(found) != 1:
                wrong.append(f"{cell}: {sorted(found)}")

        require_none(matrix, wrong)

    def test_every_saga_has_at_most_one_recommendation_and_it_was_paid_for(self, matrix: Matrix) -> None:
        wrong = []
        for cell, outcome in matrix.outcomes.items():
            calls = {call.id: call.answer["amount"] for call in matrix.calls.get(cell.payout.payee, ())}
            found = matrix.recommended.get(outcome.saga_id)
            kept = found is None or calls.get(found["model_call"]) == int(found["amount"])
            if not kept or len(calls) != cell.model_calls:
                wrong.append(f"{cell}: {len(calls)} model calls, expected {cell.model_calls}; recorded: {found}")

        require_none(matrix, wrong)

    def test_the_model_is_paid_for_twice_only_after_a_lost_response(self, matrix: Matrix) -> None:
        twice = {str(cell.point) for cell in matrix.cells if len(matrix.calls.get(cell.payout.payee, ())) > 1}

        assert twice == {"Recommend: the model#1", f"Recommend: {PUT}#2"}

    def test_amounts_spent_equal_amounts_paid(self, matrix: Matrix) -> None:
        paid: Counter[str] = Counter({AGENT: 0})
        for cell in matrix.cells:
            paid[cell.agent] += matrix.balances[cell.payout.payee]
        paid[AGENT] += matrix.balances[f"to-{CLEAN[False]}"]

        assert +paid == matrix.system.spent()

    def test_every_intent_is_paid_or_free_again(self, matrix: Matrix) -> None:
        controls = matrix.system.controls()
        wrong = []
        for cell in matrix.cells:
            claim = controls.get(f"claim#{cell.payout.intent.obligation}")
            state = claim["state"]["S"] if claim else "RELEASED"
            if state != ("PAID" if cell.expected == 200 else "RELEASED"):
                wrong.append(f"{cell}: {state}")

        require_none(matrix, wrong)

    def test_every_end_was_notified_and_every_receipt_sent_once(self, matrix: Matrix) -> None:
        wrong = []
        for cell, outcome in matrix.outcomes.items():
            receipts = matrix.messages[outcome.saga_id, "Notify"]
            failures = matrix.messages[outcome.saga_id, "FAILED"]
            # A failure whose settle is interrupted for more than five minutes is sent again: deduplication has ended.
            fine = (receipts, failures) == (1, 0) if cell.expected == 200 else receipts == 0 and failures >= 1
            if not fine:
                wrong.append(f"{cell}: {receipts} receipts, {failures} notices of failure")

        require_none(matrix, wrong)

    def test_no_saga_needed_more_than_one_recovery(self, matrix: Matrix) -> None:
        assert max(matrix.recoveries.values()) == 1

    def test_no_response_reveals_internals(self, matrix: Matrix) -> None:
        answers = [answer for o in matrix.outcomes.values() for answer in (o.answer, o.look) if answer is not None]
        internal = ("Traceback", "stackTrace", "errorType", "botocore", "dynamodb", "/var/task", ".py")

        require_none(matrix, [a.text for a in answers if any(word in a.text for word in internal)])

    def test_a_compensated_payout_states_its_reason(self, matrix: Matrix) -> None:
        for cell, outcome in matrix.outcomes.items():
            if cell.expected != 200:
                error = problem_of(outcome.answer)["error"]
                assert error == ("InsufficientFunds" if cell.expected == 402 else "SagaInterrupted"), str(cell)


def test_every_amount_is_one_of_the_model() -> None:
    """The share that the stand-in may cut is wide enough that no two recommendations are equal by chance."""
    assert AMOUNT // 10 >= 10_000
