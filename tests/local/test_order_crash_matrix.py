"""A crash or a lost response around a sample of the calls of an order: AWS calls, and calls of the payment gateway.

The calls are not listed here: one order of each path is recorded, at AWS and at the gateway. Each third of its calls is
broken in one way, the ways in turn, each in an order of its own, in one local AWS with one gateway. The simulator
breaks every call in every way (``tests/simulator/test_each_call.py``). Clients repeat, the deployed reconcilers recover
what was interrupted, and then the tables and the gateway's own books are audited.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pytest

from constructs_lib.testing import HttpResponse
from constructs_lib.testing import fault_plan as aws_faults
from constructs_lib.testing.fault_schedules import Nth
from constructs_lib.testing.faults import RecordedCall
from constructs_lib.testing.invariants import assert_all_hold, together
from examples.payment_gateway import Action, Moment, Operation, Trouble
from saga_runtime.protocol import RecordAttribute

from .order_system import ASKING, ORDERS, PRICE, OrderSystem, order, until
from .reconcilers import reconciling
from .sampling import each_third, in_turn
from .transfer_system import problem_of

CLIENTS: Final = 8
PATIENCE_PER_CELL_SECONDS: Final = 4.0
"""How long a client waits for its order before it begins the next one: not all at once, on a small machine."""
IN_DOUBT_TRIES: Final = 5
"""Number of invocations of a crashing step before its retries are exhausted: one, and four retries."""
PROVIDER_TRIES: Final = 7
"""Likewise, a step at a provider."""
ENDS_WITHIN_SECONDS: Final = 300.0
GATEWAY: Final = "gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A kind of order whose calls are broken.

    Attributes:
        name: short, for the names of orders.
        stack: which of the systems.
        refused: whether the shelf is empty, so that everything is undone.
        unanswered: whether the first call of the gateway for each thing is never answered, so that it is asked.
    """

    name: str
    stack: str
    refused: bool
    unanswered: bool = False

    @property
    def expected(self) -> int:
        """Status of the answer."""
        return 422 if self.refused else 200

    def troubles(self, request_id: str) -> list[Trouble]:
        """Faults that define the path."""
        if not self.unanswered:
            return []
        return [
            Trouble(on=on, action=Action.DROP, moment=Moment.AFTER, containing=request_id)
            for on in (Operation.CHARGE, Operation.REFUND)
        ]


HAPPY: Final = Path(name="happy", stack=ORDERS, refused=False)
REFUSED: Final = Path(name="refused", stack=ORDERS, refused=True)
ASKED: Final = Path(name="asked", stack=ASKING, refused=True, unanswered=True)
PATHS: Final = (HAPPY, REFUSED, ASKED)
"""The happy path, the longest compensation, and the longest compensation at a gateway that has to be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One call that an order makes: by whom, which, the how many-th, and in which state of the state machine."""

    caller: str
    call: str
    occurrence: int
    state: str | None = None

    @property
    def at_gateway(self) -> bool:
        """True if it is a call of the gateway."""
        return self.caller == GATEWAY

    @property
    def of_powertools(self) -> bool:
        """True if Powertools marks its query as begun: the one call that names neither order nor goods."""
        return "/ValidateFunction/" in self.caller and self.call == "dynamodb:PutItem" and self.occurrence == 1

    def __str__(self) -> str:
        return f"{self.state or self.caller}: {self.call}#{self.occurrence}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One order with one call broken."""

    name: str
    path: Path
    point: Point
    kill: bool
    after: bool
    times: int = 1

    def __str__(self) -> str:
        how = f"{'kill' if self.kill else 'drop'} {'after' if self.after else 'before'}"
        return f"[{self.path.name}] {self.point}, {how}{f' x{self.times}' if self.times > 1 else ''}"

    @property
    def body(self) -> dict[str, object]:
        """The request's body."""
        return order(self.name, card=f"card-{self.name}")

    def troubles(self, request_id: str) -> list[Trouble]:
        """Everything that happens at the gateway: what makes the path what it is, and the cell's own in its place."""
        of_path = self.path.troubles(request_id)
        if not self.point.at_gateway:
            return of_path
        own = self.trouble(request_id)
        return [own, *(trouble for trouble in of_path if (trouble.on, trouble.nth) != (own.on, own.nth))]

    def trouble(self, request_id: str) -> Trouble:
        """Fault of the cell's call of the gateway."""
        return Trouble(
            on=Operation(self.point.call),
            action=Action.KILL if self.kill else Action.DROP,
            moment=Moment.AFTER if self.after else Moment.BEFORE,
            containing=request_id,
            nth=self.point.occurrence,
            times=self.times,
        )

    def faults(self, request_id: str) -> list[aws_faults.Fault]:
        """Faults of AWS calls."""
        point = self.point
        looks_at_goods = "/ValidateFunction/" in point.caller and point.call in {
            "dynamodb:BatchGetItem",
            "dynamodb:UpdateItem",
        }
        containing = None if point.of_powertools else f"goods#{self.name}" if looks_at_goods else request_id
        # What is counted is what contains the text.
        first = 1 if "/ValidateFunction/" in point.caller and point.call == "dynamodb:PutItem" else point.occurrence
        return [
            aws_faults.Fault(
                function=f"states:{point.caller}" if point.state else point.caller,
                call=point.call,
                action=aws_faults.Action.KILL if self.kill else aws_faults.Action.DROP,
                moment=aws_faults.Moment.AFTER if self.after else aws_faults.Moment.BEFORE,
                attempts=aws_faults.Attempts.FIRST if point.state else aws_faults.Attempts.ALL,
                containing=containing,
                on=Nth(first + n),
            )
            for n in range(self.times)
        ]

    @property
    def expected(self) -> int:
        """Status of the settled answer."""
        if self.times == 1:
            return self.path.expected
        # An applied commit makes the saga go forward, however often its function died.
        return 200 if "/UpdateFunction/" in self.point.caller and self.after else 500


def cells_of(path: Path, points: Sequence[Point]) -> Iterator[Cell]:
    """One way to break each third call of a path, the ways in turn."""
    for number, (point, (kill, after, times)) in enumerate(in_turn(each_third(points), partial(_ways, path))):
        name = f"{path.name}-{number:03d}"
        yield Cell(name=name, path=path, point=point, kill=kill, after=after, times=times)


def _ways(path: Path, point: Point) -> Iterator[tuple[bool, bool, int]]:
    """Every way to break a call: whether its process is killed, whether after the call, and how often."""
    tries = tries_of(path, point)
    for after in (False, True):
        if tries > 1:
            yield True, after, tries
        for kill in (False,) if point.state else (False, True):
            yield kill, after, 1


def tries_of(path: Path, point: Point) -> int:
    """Number of times a call is broken until its step's retries are exhausted; 1 for a call that is broken once.

    The charge and the pivot, where the order would have completed: exhausted retries lead to the compensation.
    """
    if path is not HAPPY:
        return 1
    if point.at_gateway:
        return PROVIDER_TRIES
    return IN_DOUBT_TRIES if "/UpdateFunction/" in point.caller else 1


def aws_points(system: OrderSystem, calls: Sequence[RecordedCall]) -> list[Point]:
    """The recorded calls of one system, without those of others."""
    callers = {system.aws.resolve_function(path): path for path in system.functions}
    callers["states:" + system.aws.resolve_state_machine(system.forward).rpartition(":")[2]] = system.forward
    own = [call for call in calls if call.caller in callers]
    assert {call.attempt for call in own} == {1}
    return [
        Point(caller=callers[call.caller], call=call.call, occurrence=call.occurrence, state=call.state) for call in own
    ]


def recorded(system: OrderSystem, path: Path) -> list[Point]:
    """Calls of one order: accepted, driven to its end, repeated, and its status read; then those of the gateway.

    Where the gateway is queried, only the two functions that query it behave differently than on the other paths. The
    number of reads of the row while they wait depends on time: only the first one is broken.
    """
    # What starts only now would not be the same in every order.
    offer(system, path, f"{path.name}-warm")
    system.drive(f"{path.name}-warm", order(f"{path.name}-warm"))
    name = f"{path.name}-clean"
    offer(system, path, name)
    body = order(name, card=f"card-{name}")
    system.gateway.plan(*path.troubles(system.request_id(name)))
    with system.aws.calls.record() as calls:
        saga_id = system.begin(name, body)
        until(lambda: system.status_of(system.forward, saga_id) not in {None, "RUNNING"}, "the end of the order")
        assert system.post(name, body).status == path.expected
        assert system.look(saga_id).status == 200
    points = aws_points(system, calls.calls)
    if path.unanswered:
        paying = {system.function("Charge"), system.function("Refund")}
        points = [p for p in points if p.caller in paying and (p.occurrence == 1 or p.call == "dynamodb:UpdateItem")]
    counted: Counter[str] = Counter()
    for request in system.gateway.requests():
        if request.reference == saga_id:
            counted[request.operation] += 1
            points.append(Point(caller=GATEWAY, call=request.operation, occurrence=counted[request.operation]))
    return points


def offer(system: OrderSystem, path: Path, name: str) -> None:
    """Goods of an order's own; where it is refused, the shelf is empty."""
    system.offer(name, 2, on_shelf=0 if path.refused else 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """End of one cell."""

    saga_id: str
    answer: HttpResponse
    look: HttpResponse | None


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """The matrix after its run."""

    systems: Mapping[str, OrderSystem]
    points: Mapping[Path, Sequence[Point]]
    cells: Sequence[Cell]
    fired: Mapping[Cell, bool]
    outcomes: Mapping[Cell, Outcome]
    recoveries: Counter[str]
    seconds: float
    notices: Counter[tuple[str, str]]

    def system(self, cell: Cell) -> OrderSystem:
        """The system in which a cell ran."""
        return self.systems[cell.path.stack]


@pytest.fixture(scope="module")
def matrix(order_systems: dict[str, OrderSystem]) -> Matrix:
    """Every cell, run to its end."""
    systems = order_systems
    for system in systems.values():
        assert system.user_scope  # once: many threads will ask for it
    systems[ORDERS].aws.reset()
    systems[ORDERS].gateway.reset()
    started = time.monotonic()
    run = Run(systems)
    looked_after = reconciling(systems[ORDERS].aws, *(system.outputs for system in systems.values()))
    with ThreadPoolExecutor(1) as beside, ThreadPoolExecutor(CLIENTS) as pool, looked_after:
        # Where the gateway is asked, most of the time is spent waiting.
        asked = beside.submit(run.begin_asked)
        run.begin_others(pool)
        asked.result()
        until_nothing_is_in_progress(systems)
        cells = list(run.begun)
        answers = pool.map(lambda cell: ask_again(systems, cell, run.begun[cell]), cells)
        outcomes = dict(zip(cells, answers, strict=True))
    return Matrix(
        systems=systems,
        points=run.points,
        cells=cells,
        fired=run.fired(),
        outcomes=outcomes,
        recoveries=sum((system.recoveries() for system in systems.values()), Counter()),
        seconds=time.monotonic() - started,
        notices=Counter((m["order"], m["status"]) for system in systems.values() for m in system.messages()),
    )


class Run:
    """Records the paths, plans what is to break, and begins the orders.

    Args:
        systems: the deployed stacks, by name.
    """

    def __init__(self, systems: Mapping[str, OrderSystem]) -> None:
        self._systems = systems
        self._planned: dict[Cell, str] = {}
        self.points: dict[Path, list[Point]] = {}
        self.begun: dict[Cell, str] = {}

    def begin_asked(self) -> None:
        """Begin the orders whose gateway is asked."""
        for cell in self._cells_of(ASKED):
            self.begun[cell] = begin(self._systems, cell)

    def begin_others(self, pool: ThreadPoolExecutor) -> None:
        """Begin all others: first those that must be alone, then those that take longest."""
        cells = [*self._cells_of(HAPPY), *self._cells_of(REFUSED)]
        begin_cell = partial(begin, self._systems)
        # A call that meets two faults is broken by one of them: the other would have been counted, and never fire.
        for cell in cells:
            if cell.point.of_powertools:
                self._begin_alone(cell)
        long = [cell for cell in cells if cell.times > 1 and cell not in self.begun]
        self.begun |= dict(zip(long, pool.map(begin_cell, long), strict=True))
        short = [cell for cell in cells if cell not in self.begun]
        self.begun |= dict(zip(short, pool.map(begin_cell, short), strict=True))

    def fired(self) -> dict[Cell, bool]:
        """Fired faults, by cell."""
        system = self._systems[ORDERS]
        at_aws = {outcome.id: outcome.fired > 0 for outcome in system.aws.faults.report().outcomes}
        at_gateway = {repr(report.trouble): report.fired > 0 for report in system.gateway.report()}
        return {
            cell: at_gateway[repr(cell.trouble(self._system(cell).request_id(cell.name)))]
            if cell.point.at_gateway
            else at_aws[self._planned[cell]]
            for cell in self.begun
        }

    def _system(self, cell: Cell) -> OrderSystem:
        return self._systems[cell.path.stack]

    def _cells_of(self, path: Path) -> list[Cell]:
        self.points[path] = recorded(self._systems[path.stack], path)
        cells = list(cells_of(path, self.points[path]))
        for cell in cells:
            system = self._system(cell)
            request_id = system.request_id(cell.name)
            offer(system, path, cell.name)
            system.gateway.plan(*cell.troubles(request_id))
            if not cell.point.at_gateway and not cell.point.of_powertools:
                self._planned[cell] = system.aws.faults.plan(*cell.faults(request_id))[0]
        return cells

    def _begin_alone(self, cell: Cell) -> None:
        """Begin an order whose broken call names neither order nor goods, while no other cell makes such a call."""
        system = self._system(cell)
        self._planned[cell] = system.aws.faults.plan(*cell.faults(""))[0]
        saga_id = self.begun[cell] = system.begin(cell.name, cell.body)
        until(lambda: "ValidateInventory" in system.statuses(saga_id), f"{cell}: the first step")


def begin(systems: Mapping[str, OrderSystem], cell: Cell) -> str:
    """Begin an order, and give it some time."""
    system = systems[cell.path.stack]
    saga_id = system.begin(cell.name, cell.body)
    # What is known to take long is not waited for.
    quick = cell.times == 1 and not cell.point.at_gateway and not cell.path.unanswered
    deadline = time.monotonic() + (PATIENCE_PER_CELL_SECONDS if quick else 0)
    while time.monotonic() < deadline and not system.record(saga_id).settled:
        time.sleep(0.4)
    return saga_id


def until_nothing_is_in_progress(systems: Mapping[str, OrderSystem]) -> None:
    """Wait until every saga is settled."""
    deadline = time.monotonic() + ENDS_WITHIN_SECONDS
    while time.monotonic() < deadline:
        if not any(RecordAttribute.DUE_AT in record for system in systems.values() for record in system.records()):
            return
        time.sleep(2)
    left = [
        f"{record[RecordAttribute.SAGA_ID]['S']} {record.get(RecordAttribute.PARKED_BY)}"
        for system in systems.values()
        for record in system.records()
        if RecordAttribute.DUE_AT in record
    ]
    raise AssertionError(f"sagas are in progress after {ENDS_WITHIN_SECONDS:.0f} s: {left}")


def ask_again(systems: Mapping[str, OrderSystem], cell: Cell, saga_id: str) -> Outcome:
    """Final response to a client, which retries: its own requests are broken, too."""
    system = systems[cell.path.stack]
    answer = system.replayed(cell.name, cell.body)
    if cell.point.caller != system.gatekeeper:
        return Outcome(saga_id=saga_id, answer=answer, look=None)
    for _ in range(20):
        look = system.look(saga_id)
        if look.status == 200:
            return Outcome(saga_id=saga_id, answer=answer, look=look)
    raise AssertionError(f"{cell}: no answer")


def require_none(matrix: Matrix, violations: Sequence[str]) -> None:
    """Fail with the violations."""
    assert not violations, f"{len(violations)} of {len(matrix.cells)} cells:\n" + "\n".join(violations)


class TestTheMatrix:
    def test_breaks_calls_of_every_path(self, matrix: Matrix, capsys: pytest.CaptureFixture[str]) -> None:
        enumerated = [replace(cell, name="") for path in PATHS for cell in cells_of(path, matrix.points[path])]
        ran = [replace(cell, name="") for cell in matrix.cells if matrix.fired[cell]]

        with capsys.disabled():
            at_gateway = [point for points in matrix.points.values() for point in points if point.at_gateway]
            calls = sum(map(len, matrix.points.values()))
            print(f"\n{calls} calls, {len(at_gateway)} of them at the gateway; calls x troubles: ", end="")
            print(f"{len(enumerated)} enumerated, {len(ran)} run, {matrix.recoveries.total()} recoveries, ", end="")
            print(f"{matrix.seconds:.0f} s ", end="")
        require_none(matrix, [str(cell) for cell in matrix.cells if not matrix.fired[cell]])
        assert Counter(enumerated) == Counter(ran)

    def test_has_every_function_and_every_call_of_the_gateway(self, matrix: Matrix) -> None:
        callers = {path.name: {point.caller for point in points} for path, points in matrix.points.items()}
        asked = {path.name: [p.call for p in points if p.at_gateway] for path, points in matrix.points.items()}
        system = matrix.systems[ORDERS]
        functions = {name: system.function(name) for name in ("Validate", "Reserve", "Charge", "Update")}

        always = {system.gatekeeper, system.forward, GATEWAY, *functions.values()}
        notifier = f"{ORDERS}/Order/Notifier/Function"
        assert callers["happy"] == {*always, notifier, system.function("Shipment")}
        assert callers["refused"] == {*always, system.function("Release"), system.function("Refund")}
        assert asked == {
            "happy": ["charge"],
            "refused": ["charge", "refund"],
            "asked": ["charge", "find-charge", "refund", "find-refund"],
        }


class TestWhateverBroke:
    def test_every_request_has_the_undisturbed_response(self, matrix: Matrix) -> None:
        wrong = [
            f"{cell}: {outcome.answer.status}, expected {cell.expected}; {outcome.answer.text}"
            for cell, outcome in matrix.outcomes.items()
            if outcome.answer.status != cell.expected
        ]

        require_none(matrix, wrong)

    def test_no_order_needed_more_than_two_recoveries(self, matrix: Matrix) -> None:
        assert max(matrix.recoveries.values(), default=0) <= 2

    def test_an_orders_status_agrees_with_its_response(self, matrix: Matrix) -> None:
        wrong = [
            f"{cell}: {outcome.answer.text}"
            for cell, outcome in matrix.outcomes.items()
            if (outcome.look is not None and outcome.look.json()["answer"] != outcome.answer.json())
            or outcome.answer.json()["saga_id"] != outcome.saga_id
        ]

        require_none(matrix, wrong)

    def test_everything_that_must_hold_does(self, matrix: Matrix) -> None:
        audits = together(*(system.audit() for system in matrix.systems.values()))

        assert_all_hold(audits)
        completed = sum(cell.expected == 200 for cell in matrix.cells)
        assert all(audit.checked >= completed for audit in audits), audits

    def test_every_card_was_charged_once_and_refunded_unless_completed(self, matrix: Matrix) -> None:
        wrong = []
        for cell, outcome in matrix.outcomes.items():
            books = matrix.system(cell).books(outcome.saga_id)
            taken = PRICE if cell.expected == 200 else 0
            if len(books.charges) > 1 or len(books.refunds) > 1 or books.taken != taken:
                wrong.append(f"{cell}: {books}")

        require_none(matrix, wrong)

    def test_goods_left_the_shelf_exactly_for_the_orders_that_completed(self, matrix: Matrix) -> None:
        wrong = []
        for cell in matrix.cells:
            expected = (1, 0, 1) if cell.expected == 200 else (2, 0, 0 if cell.path.refused else 2)
            found = matrix.system(cell).goods(cell.name)
            if found != expected:
                wrong.append(f"{cell}: {found}, expected {expected}")

        require_none(matrix, wrong)

    def test_every_customer_was_notified_and_of_a_completed_order_once(self, matrix: Matrix) -> None:
        wrong = []
        for cell, outcome in matrix.outcomes.items():
            completed, failed = (matrix.notices[outcome.saga_id, status] for status in ("COMPLETED", "FAILED"))
            fine = (completed, failed) == (1, 0) if cell.expected == 200 else completed == 0 and failed >= 1
            if not fine:
                wrong.append(f"{cell}: {completed} confirmations, {failed} notices of failure")

        require_none(matrix, wrong)

    def test_a_refusal_names_its_reason_and_a_crash_reveals_no_internals(self, matrix: Matrix) -> None:
        for cell, outcome in matrix.outcomes.items():
            if cell.expected != 200:
                error = problem_of(outcome.answer)["error"]
                assert error == ("NotOnShelf" if cell.expected == 422 else "StepFailed"), str(cell)

    def test_no_response_reveals_internals(self, matrix: Matrix) -> None:
        answers = [answer for o in matrix.outcomes.values() for answer in (o.answer, o.look) if answer is not None]
        internal = ("Traceback", "stackTrace", "errorType", "botocore", "dynamodb", "/var/task", ".py")

        require_none(matrix, [a.text for a in answers if any(word in a.text for word in internal)])
