"""However a saga of an example is interrupted, the TimeoutReconciler alone ends it correctly within two sweeps.

The interruptions are not listed here. One saga of each way is recorded: at states that it enters, its execution times
out or is stopped, before or after the state, at each third. The simulator does it at every state
(``tests/simulator/test_each_call.py``). The gatekeeper dies between reserve and start, and the
client does not retry. The settle is lost. And the reconciler dies, before or after each call that it makes for a saga:
while it handles its status event, and during a scheduled sweep. No other status event arrives: the rules are disabled,
and sweeps are counted.

Elsewhere: the crash matrices run with status events enabled; ``test_recovery`` stops recoveries at each of their
states; in ``test_reconciler`` reconcilers die while they compensate late effects.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final

import pytest

from constructs_lib.testing.fault_plan import Action, Fault, Moment, StopStatus
from constructs_lib.testing.fault_schedules import Nth
from constructs_lib.testing.invariants import assert_all_hold, together
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import Env
from saga_runtime.recovery.reconciler import served_of

from . import cart_system, payout_system
from .cart_system import CartSystem, cart
from .interruptions import (
    CLIENTS,
    PATIENCE_SECONDS,
    PUT,
    SERVICE_TRIES,
    START,
    Cell,
    Door,
    Interrupted,
    Point,
    Way,
    death,
    never_started,
    points_of,
    stopped,
    unsettled,
    waiting,
)
from .order_system import ORDERS, OrderSystem, order
from .payout_system import Payout, PayoutSystem
from .sampling import each_third, in_turn
from .transfer_system import transfer
from .two_ledgers import FORWARD, MAIN, TwoLedgers, deployed

QUERY: Final = "dynamodb:Query"
LIST: Final = "states:ListExecutions"
LIMIT: Final = 20
"""Recoveries after which a saga is parked: the construct's default."""
MUCH_LATER_MS: Final = 86_400_000
FIRST_PAUSE_MS: Final = 60_000
"""Time until a saga that was taken over for the first time is due again, as the reference states."""
TRIES: Final = 5
LOOKERS: Final = 3
"""Concurrent sweeps while they die one after the other."""
ENDS: Final = tuple((status, moment) for moment in Moment for status in StopStatus)
EXAMPLES: Final = ("transfers", "orders", "payouts", "carts")


class Kind(StrEnum):
    """Action of the reconciler for a saga."""

    TAKE_OVER = "take over"
    START = "start"
    PARK = "park"


class Source(StrEnum):
    """Trigger by which it checks a saga."""

    EVENT = "event"
    SCHEDULE = "schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The reconciler's death at a call for a saga."""

    kind: Kind
    source: Source
    point: Point
    moment: Moment

    def __str__(self) -> str:
        return f"{self.kind} by {self.source}: killed {self.moment} {self.point}"


@dataclass(kw_only=True)
class Run:
    """The interruptions and their results.

    Attributes:
        found: the example and its sagas.
        doors: the states of each way.
        stops: interrupted states, and how.
        cells: sagas that were interrupted; not those at which the reconciler died.
        points: the reconciler's calls, by action.
        deaths: sagas at which the reconciler died.
        parked: records of the sagas that had to be parked, after all sweeps.
        entries: number of operator queue messages, by saga.
        told_again: number of operator queue messages after a saga was parked.
        killed_queries: number of sweeps that died at a query.
        waits: sagas that the test stopped while a step waited, and the step.
        before: status of the executions before any sweep, by interrupted saga.
        forgotten: sagas whose reconciler died, and that would not be checked again soon.
    """

    found: Interrupted
    doors: dict[Way, list[Door]]
    stops: list[tuple[Way, Door, StopStatus, Moment]] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    points: dict[Kind, list[Point]] = field(default_factory=dict)
    deaths: dict[Death, Cell] = field(default_factory=dict)
    parked: dict[Death, RequestRecord] = field(default_factory=dict)
    entries: Counter[str] = field(default_factory=Counter)
    told_again: int = 0
    killed_queries: int = 0
    waits: dict[Cell, str] = field(default_factory=dict)
    before: dict[Cell, str | None] = field(default_factory=dict)
    forgotten: list[str] = field(default_factory=list)


# --- The examples


def transfers(system: TwoLedgers) -> Interrupted:
    def own(name: str) -> tuple[str, object]:
        system.add_account(MAIN, f"from-{name}")
        system.add_account(MAIN, f"to-{name}", 0)
        return name, transfer(f"from-{name}", f"to-{name}")

    def partner(name: str, *, closed: bool = False) -> tuple[str, object]:
        return name, system.way(name, closed=closed).body

    ways = [
        Way(name="own", status=200, ask=own, decided="Transfer"),
        Way(name="partner", status=200, ask=partner, decided="Credit"),
        Way(name="refused", status=422, ask=partial(partner, closed=True), decided="Begin compensation at Credit"),
    ]
    # One of two opposite conditions holds: no transfer leads around both pivots.
    # Nothing is deployed meanwhile: test_replaced_saga.py.
    elsewhere = frozenset({"Only forward to Receipt", "First start?", "Note first definition"})
    return Interrupted(system=system, forward=FORWARD, ways=ways, elsewhere=elsewhere)


def orders(system: OrderSystem) -> Interrupted:
    def ask(name: str, *, on_shelf: int | None = None) -> tuple[str, object]:
        return name, order(system.offer(name, 2, on_shelf=on_shelf), card=f"card-{name}")

    ways = [
        Way(name="happy", status=200, ask=ask, decided="UpdateInventory"),
        Way(name="refused", status=422, ask=partial(ask, on_shelf=0), decided="Begin compensation at UpdateInventory"),
    ]
    return Interrupted(system=system, forward=system.forward, ways=ways)


def payouts(system: PayoutSystem) -> Interrupted:
    def ask(name: str, *, opening: int = payout_system.OPENING) -> tuple[str, object]:
        payout = system.ready(Payout(name=name), opening=opening)
        return payout.key(), payout.body

    ways = [
        Way(name="happy", status=200, ask=ask, decided="Act"),
        Way(name="refused", status=402, ask=partial(ask, opening=10), decided="Begin compensation at Act"),
    ]
    return Interrupted(system=system, forward=payout_system.FORWARD, ways=ways)


def carts(system: CartSystem) -> Interrupted:
    def ask(name: str, *, shelf: str = "", stock: int = 1, card: str = "card-1") -> tuple[str, object]:
        return name, cart(system.offer(f"{shelf}{name}", stock), card=card)

    ways = [
        Way(name="happy", status=200, ask=ask),
        Way(name="refused", status=422, ask=partial(ask, shelf="empty-shelf-")),
        Way(name="soldout", status=422, ask=partial(ask, stock=0), rest=True),
        Way(name="declined", status=402, ask=partial(ask, card="card-blocked"), rest=True),
    ]
    # The review of a cart has its own tests; notifications of failures are in other examples; a saga log of several
    # pages is in the tests of long logs.
    # The phase Notify is tried again in the simulation, where its calls break.
    again = {"Retries left for Notify?", "Wait before retrying Notify"}
    elsewhere = frozenset({"FraudReview", "Notify failure", "Query saga log - more", *again})
    return Interrupted(system=system, forward=system.forward, ways=ways, elsewhere=elsewhere)


@pytest.fixture(scope="module", params=EXAMPLES)
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """An example, after everything that there is to interrupt was interrupted."""
    with ExitStack() as stack:
        found = found_of(request, stack)
        assert found.system.user_scope  # once: many threads will ask for it, and for the time
        assert found.system.now_ms()
        yield interrupted(found, queries=request.param == "transfers")


def found_of(request: pytest.FixtureRequest, stack: ExitStack) -> Interrupted:
    """The example; what others deployed is emptied."""
    match request.param:
        case "transfers":
            return transfers(stack.enter_context(deployed(speed=10.0, seconds=200))[0])
        case "orders":
            of_orders: OrderSystem = request.getfixturevalue("order_systems")[ORDERS]
            of_orders.aws.reset()
            of_orders.gateway.reset()
            return orders(of_orders)
        case "payouts":
            of_payouts: PayoutSystem = request.getfixturevalue("payout_system")
            of_payouts.reset()
            return payouts(of_payouts)
        case _:
            return carts(stack.enter_context(cart_system.deployed(concurrency=2)))


def interrupted(found: Interrupted, *, queries: bool) -> Run:
    """Interrupt everything, and let the reconciler look.

    Args:
        found: the example.
        queries: whether the reconciler dies at its queries, too: they are the same for every example.
    """
    done = Run(found=found, doors=found.doors())
    done.waits = {waiting(found.ways[0], f"waits-{step.lower()}x", step): step for step in waits_of(done)}
    done.cells = [*cells_of(done), *done.waits]
    found.begin(done.cells)
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(found.stop_while_it_waits, done.waits, done.waits.values()))
    found.quiet()
    done.before = {cell: found.first_end(cell) for cell in done.cells}
    samples = record_points(done)
    prepare_deaths(done)
    found.sweep_until_settled([*done.cells, *samples])
    die(done)
    if queries:
        die_at_queries(done)
    found.quiet()
    done.forgotten = forgotten(done)
    make_due(done)
    found.sweep_until_settled()
    resume(done)
    return done


def cells_of(done: Run) -> Iterator[Cell]:
    """States of each way, how it ends there in turn; and what happens before the first state, and at the last."""
    found = done.found
    for way, doors in done.doors.items():
        for number, (door, (status, moment)) in enumerate(in_turn(each_third(doors), lambda _: ENDS)):
            done.stops.append((way, door, status, moment))
            yield stopped(way, f"{way.name}-{status.lower()[:4]}-{number:02d}x", door, status, moment)
    first, gatekeeper = found.ways[0], found.system.gatekeeper
    for call, moment in ((PUT, Moment.AFTER), (START, Moment.BEFORE), (START, Moment.AFTER)):
        yield never_started(first, f"none-{moment}-{call[-4:].lower()}x", gatekeeper, call, moment)
    for moment in Moment:
        yield unsettled(first, f"lost-{moment}x", found.forward, moment)


def waits_of(done: Run) -> list[str]:
    """Steps of the first way that wait for a callback."""
    found = done.found.waiting()
    return [door.state for door in done.doors[done.found.ways[0]] if door.state in found]


# --- The reconciler dies


def record_points(done: Run) -> list[Cell]:
    """Record the reconciler's calls for one saga of each kind, triggered by a status event; returns those sagas."""
    found = done.found
    samples = {kind: victim(done, kind, f"sample-{number}x") for number, kind in enumerate(Kind)}
    found.begin(list(samples.values()))
    found.quiet(list(samples.values()))
    exhaust(found, [samples[Kind.PARK]])
    for kind, cell in samples.items():
        request_id = found.system.record(found.sagas[cell]).request_id
        with found.aws.calls.record(containing=request_id) as calls:
            assert found.event(found.sagas[cell]) == {"batchItemFailures": []}
        done.points[kind] = points_of(calls.calls, found.function)
    unpark(found, [samples[Kind.PARK]])
    return list(samples.values())


def victim(done: Run, kind: Kind, name: str) -> Cell:
    """A saga that needs one thing."""
    found = done.found
    way = found.ways[0]
    if kind is Kind.START:
        return never_started(way, name, found.system.gatekeeper, START, Moment.BEFORE)
    doors = done.doors[way]
    return stopped(way, name, doors[len(doors) // 2], StopStatus.ABORTED, Moment.BEFORE)


def exhaust(found: Interrupted, cells: Sequence[Cell]) -> None:
    """As if all of a saga's recoveries had died, and the last of its pauses were over."""
    for cell in cells:
        found.change(cell, "SET recoveries = :limit, due_at = :now", limit=LIMIT, now=found.system.now_ms())


def unpark(found: Interrupted, cells: Sequence[Cell]) -> None:
    """As if a person had found that it may be tried again."""
    for cell in cells:
        now = found.system.now_ms()
        found.change(
            cell, "SET recoveries = :none, due_at = :now REMOVE parked_by, parked_at, parked_reason", none=0, now=now
        )


def prepare_deaths(done: Run) -> None:
    """Sagas for the reconciler to die at, at each call. Until it is their turn, they are not due."""
    found = done.found
    deaths = [
        Death(kind=kind, source=source, point=point, moment=moment)
        for kind in Kind
        for number, point in enumerate(done.points[kind])
        for moment in [list(Moment)[number % 2]]
        for source in [list(Source)[number // 2 % 2]]
    ]
    done.deaths = {each: victim(done, each.kind, f"death-{number:02d}x") for number, each in enumerate(deaths)}
    found.begin(list(done.deaths.values()))
    for cell in done.deaths.values():
        found.change(cell, "SET due_at = :later", later=found.system.now_ms() + MUCH_LATER_MS)


def die(done: Run) -> None:
    """Have the reconciler die, each time for another saga."""
    found = done.found
    found.quiet(list(done.deaths.values()))
    exhaust(found, [cell for each, cell in done.deaths.items() if each.kind is Kind.PARK])
    planned = {each: plan(done, each) for each in done.deaths}
    with ThreadPoolExecutor(LOOKERS) as pool:
        by_event = [found.sagas[cell] for each, cell in done.deaths.items() if each.source is Source.EVENT]
        assert list(pool.map(found.event, by_event)) == [{}] * len(by_event)
        by_schedule = {id_ for each, id_ in planned.items() if each.source is Source.SCHEDULE}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not by_schedule <= fired(done):
            assert time.monotonic() < deadline, found.aws.faults.report().not_fired
            # A sweep may die at one saga while it processes the others, which then wait until they are due again.
            make_due(done)
            list(pool.map(lambda _: found.look(), range(LOOKERS)))


def make_due(done: Run) -> None:
    """Let every open saga be due at which the reconciler dies or died: that it gets due is known of the others."""
    found = done.found
    cells = {found.sagas[cell]: cell for cell in done.deaths.values()}
    for record in found.open_ones(list(done.deaths.values())):
        found.change(cells[record.saga_id], "SET due_at = :now", now=found.system.now_ms())


def forgotten(done: Run) -> list[str]:
    """Sagas that were taken over by a reconciler that then died, and that are not due again within its first pause."""
    soon = done.found.system.now_ms() + FIRST_PAUSE_MS
    taken = [record for record in done.found.open_ones(list(done.deaths.values())) if record.recoveries == 1]
    return [f"{record.saga_id}: {record.due_at}" for record in taken if record.due_at is None or record.due_at > soon]


def plan(done: Run, each: Death) -> str:
    """Plan one death."""
    found, cell = done.found, done.deaths[each]
    request_id = found.system.record(found.sagas[cell]).request_id
    return found.aws.faults.plan(death(found.function, each.point, each.moment, request_id))[0]


def fired(done: Run) -> set[str]:
    """Ids of the faults that hit."""
    return {outcome.id for outcome in done.found.aws.faults.report().outcomes if outcome.fired}


def die_at_queries(done: Run) -> None:
    """Let sweeps die at each third of their queries, which name no saga."""
    found = done.found
    (count,) = {calls.count(QUERY) for _, calls in found.looks}
    chosen = each_third(range(1, count + 1))
    for number, moment in in_turn(chosen, lambda _: Moment):
        fault = Fault(function=found.function, call=QUERY, moment=moment, action=Action.KILL, on=Nth(number))
        done.killed_queries += any(dies(found, fault) for _ in range(TRIES))
    assert done.killed_queries == len(chosen)


def dies(found: Interrupted, fault: Fault) -> bool:
    """True if a sweep dies of a fault: concurrent queries of a dead sweep may match it, too."""
    (planned,) = found.aws.faults.plan(fault)
    died = found.look() == {} and any(o.fired for o in found.aws.faults.report().outcomes if o.id == planned)
    found.aws.faults.clear(planned)
    return died


def resume(done: Run) -> None:
    """Sweep over the parked sagas, then resume them as an operator does."""
    found = done.found
    exhausted = {each: cell for each, cell in done.deaths.items() if each.kind is Kind.PARK}
    done.parked = {each: found.system.record(found.sagas[cell]) for each, cell in exhausted.items()}
    sqs, served = found.aws.client("sqs"), served_of(found.environment[Env.RECONCILED])
    (queue,) = (one.operators for one in served if one.machine.rpartition(":")[2] == forward_of(done))
    entries: dict[str, str] = {}  # by id: on a busy machine one that was received may be visible again meanwhile
    while told := sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages"):
        entries |= {message["MessageId"]: message["Body"] for message in told}
    done.entries.update(saga for saga in found.sagas.values() for body in entries.values() if saga in body)
    for cell in exhausted.values():
        found.change(cell, "SET due_at = :now", now=found.system.now_ms())
    found.look()
    done.told_again = len(sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", []))
    unpark(found, list(exhausted.values()))
    found.sweep_until_settled()


def forward_of(done: Run) -> str:
    """Physical name of the machine in which sagas begin."""
    return done.found.aws.resolve_state_machine(done.found.forward).rpartition(":")[2]


# --- What must be


class TestWhateverInterruptsASaga:
    def test_every_interruption_was_planned_and_fired(self, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
        doors = [(way, door) for way, doors in run.doors.items() for door in doors]
        with capsys.disabled():
            machines = {door.machine for _, door in doors}
            print(f"\n{len(doors)} states of {len(machines)} machines; {len(run.cells)} sagas interrupted", end="")
            print(f", {len(run.deaths)} deaths at {sum(map(len, run.points.values()))} calls", end="")
            print(f", {run.killed_queries} at queries; {max(run.found.sweeps.values())} sweeps at most ", end="")

        run.found.aws.faults.report().require_all_fired()
        stopped_at = Counter((way, door) for way, door, _, _ in run.stops)
        assert stopped_at <= Counter(doors)
        assert stopped_at.total() >= len(doors) / 3
        assert {(status, moment) for _, _, status, moment in run.stops} == set(ENDS)

    def test_is_the_end_of_an_execution_that_then_waits_for_a_sweep(self, run: Run) -> None:
        for cell, (_, door, status, _) in zip(run.cells, run.stops, strict=False):
            # One that waits for another machine ends because that one did, as it may.
            ends = {str(status)} if door.machine == forward_of(run) else {"FAILED", str(status), "SUCCEEDED"}
            assert run.before[cell] in ends, f"{cell}: {run.before[cell]}"
        assert {run.before[cell] for cell in run.waits} <= {"ABORTED"}
        assert run.found.waiting() - run.found.elsewhere == set(run.waits.values())
        rest = run.cells[len(run.stops) : len(run.cells) - len(run.waits)]
        assert [cell.unstarted for cell in rest] == [run.before[cell] is None for cell in rest]
        assert sum(cell.unstarted for cell in rest) == run.found.looks[0][0]["started"] == 2

    def test_is_notified_to_no_reconciler_before_the_tests_sweep(self, run: Run) -> None:
        assert run.found.unasked(run.cells) == []
        assert run.found.sweeps.keys() & {run.found.sagas[cell] for cell in run.cells}

    def test_has_ways_through_every_state_that_the_deployed_machines_name(self, run: Run) -> None:
        on_the_way = run.found.on_the_way()
        entered = {door for doors in run.doors.values() for door in doors}

        assert {door.machine for door in on_the_way} == {door.machine for door in entered}
        assert {door.state for door in on_the_way - entered} == run.found.elsewhere

    def test_loses_settles_and_nothing_else_where_it_is_to_lose_settles(self, run: Run) -> None:
        assert run.found.settling == {"Settle completed"}
        outcomes = run.found.aws.faults.report().outcomes
        lost = {
            outcome.planned.moment: outcome.fired
            for outcome in outcomes
            if isinstance(outcome.planned, Fault) and outcome.planned.is_of_state_machine
        }
        # Once it has settled its saga and the response is lost, the retry is refused: that response may be lost, too.
        assert lost.keys() == set(Moment)
        assert lost[Moment.BEFORE] == SERVICE_TRIES
        assert lost[Moment.AFTER] >= 1

    def test_it_ends_within_two_looks(self, run: Run) -> None:
        assert run.found.untrue() == []
        assert max(run.found.sweeps.values()) >= 1

    def test_every_invariant_holds_and_was_checked(self, run: Run) -> None:
        # Three providers are audited by the same names.
        audit = together(run.found.system.audit())

        assert_all_hold(audit)
        assert [one.name for one in audit if not one.checked] == []
        checked = {invariant.name: invariant.checked for invariant in audit}
        assert checked["no request is left in progress"] >= len(run.found.sagas)

    def test_it_completes_or_compensates_depending_on_its_progress(self, run: Run) -> None:
        expected = {cell: {cell.way.status, 500} for cell in run.found.sagas}
        # Nothing happened to a saga that was never started, and everything to one that only did not settle.
        expected |= {cell: {cell.way.status} for cell in run.found.sagas if cell.whole}
        for cell, (way, door, _, moment) in zip(run.cells, run.stops, strict=False):
            if way.decided is not None:
                states = [each.state for each in run.doors[way]]
                come = (states.index(door.state), moment is Moment.AFTER) >= (states.index(way.decided), True)
                expected[cell] = {way.status if come else 500}
        found = {cell: run.found.status_of(cell) for cell in expected}

        assert [f"{cell}: {found[cell]}" for cell in found if found[cell] not in expected[cell]] == []

    def test_one_recovery_is_enough(self, run: Run) -> None:
        wrong = [str(cell) for cell, id_ in run.found.sagas.items() if run.found.system.record(id_).recoveries > 1]

        assert wrong == []

    def test_an_unstarted_saga_is_started_without_a_recovery(self, run: Run) -> None:
        started = [id_ for cell, id_ in run.found.sagas.items() if not cell.asked_again]

        assert {run.found.system.record(id_).owner for id_ in started} == set(started)


class TestAReconcilerThatDies:
    def test_dies_at_every_call_of_a_sweep(self, run: Run) -> None:
        calls = {kind: [point.call for point in points] for kind, points in run.points.items()}
        # The record, its owner, and the saga's own switch.
        look, update = ["dynamodb:GetItem", "states:DescribeExecution", "dynamodb:GetItem"], "dynamodb:UpdateItem"
        assert calls[Kind.TAKE_OVER] == [*look, update, START]
        assert calls[Kind.START] == [*look, START]
        assert calls[Kind.PARK] == [*look, "sqs:SendMessage", update]
        # A scheduled sweep makes these: per saga, to list what is due, and to list running executions; its reads of
        # switches are not counted.
        said, made = run.found.looks[0]
        needed = Counter(made)
        del needed[QUERY], needed[LIST]
        expected: Counter[str] = Counter()
        for kind, times in ((Kind.TAKE_OVER, said["taken_over"]), (Kind.START, said["started"])):
            without_switch = Counter(calls[kind]) - Counter({"dynamodb:GetItem": 1})
            expected += Counter({call: count * times for call, count in without_switch.items()})
        assert (needed, said["looked_at"]) == (expected, said["taken_over"] + said["started"])

    def test_leaves_no_saga_that_is_never_checked_again(self, run: Run) -> None:
        assert run.forgotten == []

    def test_parks_what_needs_an_operator_and_notifies_at_least_once(self, run: Run) -> None:
        for each, record in run.parked.items():
            assert (record.parked_by, record.recoveries) == (record.owner, LIMIT), str(each)
            # The entry is sent before the record is parked: each look that finds it unparked sends one, at most.
            assert 1 <= run.entries[record.saga_id] <= run.found.looked[record.saga_id], str(each)
        assert run.told_again == 0


def test_the_limit_is_that_of_the_construct(run: Run) -> None:
    assert run.found.environment[Env.RECOVERIES_LIMIT] == str(LIMIT)
