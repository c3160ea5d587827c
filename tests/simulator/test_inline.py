"""Transfers that run inline: Express executions with a Standard one before, during and after them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import (
    Climate,
    Deployment,
    Intent,
    Planned,
    Trouble,
    World,
    break_each_call,
    simulate,
)
from constructs_lib.testing.simulator.aws.dynamodb import Table
from constructs_lib.testing.simulator.aws.dynamodb.values import Item
from constructs_lib.testing.simulator.deployment.blueprint import MachineSpec
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.errors import ServiceError
from saga_runtime.protocol import Env
from tests.sampling import a_third

from .drawn.assembly import drawn_assembly
from .drawn.releases import renamed
from .drawn.sagas import ROUTES, SKIP, DrawnGroup, DrawnSaga, DrawnStep, drawn_inline, way_by
from .drawn.workload import AMOUNT, Drawn
from .examples import assembly_of
from .test_releases import Renaming
from .workloads.orders import Orders
from .workloads.transfers import InlineTransfers

pytestmark = pytest.mark.proof

_MILLISECOND: Final = SECOND // 1_000
_ATTEMPTS: Final = 12
"""Invocations in a row: more than a step before the pivot is tried, and fewer than its compensation is."""


def _transfers(app: Any, run: str) -> object:
    from constructs_lib import Run
    from examples.funds_transfer.stack import FundsTransferStack

    return FundsTransferStack(app, "FundsTransfer", run=Run[run])


def _deployment(run: str) -> Deployment:
    return Deployment.of_assembly(assembly_of(_transfers, run))


@pytest.fixture
def inline() -> Iterator[Deployment]:
    with _deployment("INLINE") as deployment:
        yield deployment


def _standard(deployment: Deployment) -> MachineSpec:
    (found,) = (one for one in deployment.blueprint.machines.values() if "TransferStateMachine" in one.name)
    return found


def _express(deployment: Deployment) -> str:
    (found,) = (one.name for one in deployment.blueprint.machines.values() if "TransferExpress" in one.name)
    return found


def alongside(world: World, requests: str, delay: int) -> None:
    """Start Standard so many milliseconds after each reservation, as a reconciler or a duplicate starts it."""
    seen: set[str] = set()

    def start(execution_arn: str, text: str) -> None:
        machine, _, name = execution_arn.replace(":execution:", ":stateMachine:").rpartition(":")
        with suppress(ServiceError):  # it exists
            world.machines.start(machine, name, text)

    def reserved(_table: Table, _key: object, item: Item | None) -> None:
        if item is None or "input" not in item or item["saga_id"]["S"] in seen:
            return
        seen.add(item["saga_id"]["S"])
        begin = functools.partial(start, item["execution_arn"]["S"], item["input"]["S"])
        world.kernel.after(delay * _MILLISECOND, begin)

    world.db.tables[requests].heard = reserved


class _Alongside(InlineTransfers):
    """Transfers with a Standard execution alongside each Express one.

    Args:
        delay: milliseconds from the reservation to the start of Standard.
        wait: seconds that clients prefer to wait; None: drawn.
    """

    def __init__(self, delay: int, wait: int | None = None) -> None:
        self._delay = delay
        self._wait = wait

    def intent(self, number: int, random: Random) -> Intent:
        intent = super().intent(number, random)
        return intent if self._wait is None else replace(intent, wait=self._wait)

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        alongside(world, world.output("RequestTableName"), self._delay)


def test_inline_transfers_keep_their_promise(inline: Deployment) -> None:
    report = simulate(inline, InlineTransfers(), sagas=200)

    report.require_kept()
    assert report.statuses["COMPLETED"] > 50
    assert report.statuses["FAILED"] > 20


@pytest.mark.parametrize("delay", [0, 60, 250, 1_000])
def test_inline_transfers_keep_their_promise_with_standard_alongside(inline: Deployment, delay: int) -> None:
    report = simulate(inline, _Alongside(delay), sagas=100, seed=delay)

    report.require_kept()


@pytest.mark.parametrize("runs", [("STANDARD", "PREPARED", "INLINE"), ("INLINE", "PREPARED", "STANDARD")], ids="-".join)
def test_switching_in_two_deployments_keeps_the_promise(runs: tuple[str, ...]) -> None:
    with _deployment(runs[0]) as before, _deployment(runs[1]) as between, _deployment(runs[2]) as after:
        report = simulate(before, InlineTransfers(), sagas=100, releases=[between, after])

    report.require_kept()


@pytest.mark.parametrize("runs", [("STANDARD", "INLINE"), ("INLINE", "STANDARD")], ids="-".join)
def test_switching_without_preparing_keeps_the_promise(runs: tuple[str, str]) -> None:
    with _deployment(runs[0]) as before, _deployment(runs[1]) as after:
        report = simulate(before, InlineTransfers(), sagas=100, releases=[after, before, after])

    report.require_kept()


def _without_preparation(inline: Deployment, change: Callable[[str], str]) -> None:
    """Give the Standard machine the definition of one that does not expect Express."""
    prepared = _standard(inline)
    with _deployment("STANDARD") as unprepared:
        definition = json.loads(change(json.dumps(_standard(unprepared).definition)))
    machines = inline.blueprint.machines
    (at,) = (name for name, machine in machines.items() if machine is prepared)
    machines[at] = replace(prepared, definition=definition)


@pytest.mark.parametrize("delay", [0, 60, 250])
def test_standard_machine_that_is_not_prepared_begins_no_saga_of_express(inline: Deployment, delay: int) -> None:
    _without_preparation(inline, lambda definition: definition)

    report = simulate(inline, _Alongside(delay, wait=10), sagas=80, seed=delay)

    report.require_kept()


class _ToPartner(_Alongside):
    """Transfers to the partner's ledger, which have a step before the pivot."""

    def intent(self, number: int, random: Random) -> Intent:
        body = {"from": "a", "to": "b", "amount": 50, "currency": "EUR", "to_ledger": "partner"}
        return replace(super().intent(number, random), body=body)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("guarded", [True, False])
def test_standard_machine_that_is_not_prepared_needs_its_guard(inline: Deployment, guarded: bool, seed: int) -> None:
    """Express applies its pivot and delegates. Standard, whose first step is never invoked, compensates without it."""
    guard = ' and $not($contains($states.context.Execution.Input.definition, \\"+express\\"))'

    def changed(definition: str) -> str:
        assert guard in definition
        return definition if guarded else definition.replace(guard, "")

    _without_preparation(inline, changed)
    standard, express = _standard(inline).name, _express(inline)
    climate = Climate(
        planned=(
            Planned(of=standard, what="lambda:Invoke", nth=1, how=Trouble.LOSE_REQUEST, times=_ATTEMPTS),
            Planned(of=express, what="lambda:Invoke", nth=2, how=Trouble.LOSE_ANSWER, times=_ATTEMPTS),
        )
    )

    report = simulate(inline, _ToPartner(60, wait=10), sagas=1, seed=seed, climate=climate)

    assert bool(report.violated) is not guarded


WAYS: Final = (
    (19, "COMPLETED"),  # within one ledger
    (2, "COMPLETED"),  # to the partner
    (17, "FAILED"),  # refused by the partner
)
"""Seeds whose first intent goes each way."""
_DRAWN: Final = 10
"""Faults of each way in each setting: all of them take minutes."""


@pytest.mark.parametrize(("seed", "status"), WAYS)
def test_inline_saga_keeps_its_promise_whichever_call_breaks(inline: Deployment, seed: int, status: str) -> None:
    _, parts = part = a_third()
    report = break_each_call(inline, _Alongside(250, wait=10), seed=seed, part=part)

    report.require_kept()
    assert max(report.statuses, key=lambda found: report.statuses[found]) == status
    assert report.runs > 70 / parts


@pytest.mark.parametrize("delay", [0, 61, 251, 5_000])
@pytest.mark.parametrize("wait", [0, 10])
def test_inline_saga_keeps_its_promise_whichever_drawn_call_breaks(inline: Deployment, wait: int, delay: int) -> None:
    seed, _ = WAYS[delay % len(WAYS)]

    report = break_each_call(inline, _Alongside(delay, wait), seed=seed, drawn=_DRAWN)

    report.require_kept()


@pytest.mark.parametrize(("seed", "status"), WAYS)
@pytest.mark.parametrize("call", ["UpdateItem", "PutItem", "Query"])
def test_what_dynamodb_refuses_express_standard_does(inline: Deployment, call: str, seed: int, status: str) -> None:
    express = _express(inline)
    refused = Planned(of=express, what=f"dynamodb:{call}", nth=1, how=Trouble.LOSE_REQUEST, times=40)
    climate = Climate(planned=(refused,))

    report = simulate(inline, _Alongside(3_600_000, wait=10), sagas=1, seed=seed, climate=climate)

    report.require_kept()
    assert report.statuses == {status: 1}
    assert report.coverage.states[express, "End delegated"] == (1 if report.faults else 0)
    assert report.faults or (call in ("PutItem", "Query") and status == "COMPLETED")


class _Repeated(InlineTransfers):
    """One transfer, which every client sends under the same key. Each duplicate finds it due."""

    def environment(self, function: str) -> Mapping[str, str]:
        return {Env.DUE_AFTER_SECONDS: "0"} if "Gatekeeper" in function else {}

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        self._only = replace(super().intent(0, random), user="ann", key="one", wait=0)

    def intent(self, number: int, random: Random) -> Intent:
        del number, random
        return self._only


@pytest.mark.parametrize(
    ("function", "call", "seed", "status"),
    [
        ("TransferFunction", "TransactWriteItems", 19, "COMPLETED"),
        ("DebitFunction", "TransactWriteItems", 2, "COMPLETED"),
        ("CreditFunction", "TransactWriteItems", 2, "COMPLETED"),
        ("TransferNotifier", "PutItem", 2, "COMPLETED"),
        ("RefundFunction", "PutItem", 17, "FAILED"),
    ],
)
def test_ten_duplicates_start_standard_alongside_a_held_step(
    inline: Deployment, function: str, call: str, seed: int, status: str
) -> None:
    (name,) = (name for name in inline.blueprint.functions if function in name)
    held = Planned(of=name, what=f"dynamodb:{call}", nth=1, how=Trouble.HOLD)

    report = simulate(inline, _Repeated(), sagas=10, seed=seed, climate=Climate(planned=(held,)))

    report.require_kept()
    assert report.statuses == {status: 1}
    assert report.faults == 1
    assert report.coverage.events["SagaRestarted"] > 0


class _Answers(InlineTransfers):
    """Transfers whose stored responses are kept, by request."""

    def __init__(self, wait: int) -> None:
        self._wait = wait
        self.stored: dict[str, tuple[str, str]] = {}
        self.ran: set[str] = set()

    def intent(self, number: int, random: Random) -> Intent:
        return replace(super().intent(number, random), wait=self._wait)

    def audit(self, world: World) -> Iterable[Invariant]:
        for record in world.table(world.output("RequestTableName")):
            self.ran.add(record["ran"]["S"])
            self.stored[record["id"]["S"]] = (record["http_status"]["N"], record["response"]["S"])
        return super().audit(world)


@pytest.mark.parametrize("seed", [19, 2, 17])
@pytest.mark.parametrize("wait", [0, 10])
def test_express_and_standard_store_the_same_response(inline: Deployment, wait: int, seed: int) -> None:
    by_express, by_standard = _Answers(wait), _Answers(wait)
    (gatekeeper,) = (name for name in inline.blueprint.functions if "Gatekeeper" in name)
    call = "stepfunctions:StartSyncExecution" if wait else "stepfunctions:StartExecution"
    refused = Planned(of=gatekeeper, what=call, nth=1, how=Trouble.THROTTLE, times=1 if wait else 3)

    simulate(inline, by_express, sagas=1, seed=seed, climate=Climate()).require_kept()
    simulate(inline, by_standard, sagas=1, seed=seed, climate=Climate(planned=(refused,))).require_kept()

    assert (by_express.ran, by_standard.ran) == ({"EXPRESS"}, {"STANDARD"})
    assert by_express.stored == by_standard.stored


class _OrdersAlongside(Orders):
    """Orders, of which each client prefers to wait or not, with a Standard execution alongside each Express one."""

    def intent(self, number: int, random: Random) -> Intent:
        return replace(super().intent(number, random), wait=random.choice((0, 10)))

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        alongside(world, world.output("RequestTableName"), random.choice((0, 60, 250, 1_000, 30_000)))


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Deployment]:
    # Imported here: the CDK takes seconds, and only some tests need it.
    from aws_cdk import App

    from constructs_lib import Run
    from examples.order_processing.stack import OrderProcessingStack

    app = App(outdir=str(tmp_path), analytics_reporting=False)
    OrderProcessingStack(app, "OrderProcessing", run=Run.INLINE)
    app.synth()
    with Deployment.of_assembly(tmp_path) as deployment:
        yield deployment


def test_inline_orders_keep_their_promise(orders: Deployment) -> None:
    report = simulate(orders, _OrdersAlongside(), sagas=60)

    report.require_kept()
    assert {"COMPLETED", "FAILED"} <= set(report.statuses)
    for seed in (0, 1, 6):  # paid for; declined; of unknown goods
        break_each_call(orders, _OrdersAlongside(), seed=seed, drawn=_DRAWN).require_kept()


def test_drawn_inline_sagas_keep_their_promise() -> None:
    sagas = [drawn_inline(seed) for seed in range(4)]
    with Deployment.of_assembly(drawn_assembly(sagas)) as deployment:
        report = simulate(deployment, Drawn(sagas), sagas=120)

    report.require_kept()


class _Skipped(Drawn):
    """Requests whose steps with routes are skipped, by a route that is drawn at each call; Standard runs alongside."""

    def intent(self, number: int, random: Random) -> Intent:
        intent = super().intent(number, random)
        behave = {**intent.body["behave"], "S1": "route", "S2": "route"}
        return replace(intent, body={**intent.body, "behave": behave})

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        (requests,) = world.parts.requests
        alongside(world, requests, random.choice((0, 20, 60, 120)))


SKIPPED: Final = DrawnSaga(
    nodes=(
        DrawnStep(name="S1", kind="atomic", undo=True, route=SKIP),
        DrawnStep(name="S2", kind="asked", undo=True, route=SKIP, when=way_by("S1", "Routed")),
        DrawnStep(name="S3", kind="atomic", undo=True, when=way_by("S1", "Rerouted")),
        DrawnStep(name="S4", kind="atomic", pivot=True),
        DrawnStep(name="S5", kind="atomic", when=way_by("S1", "Routed"), refusable=False),
        DrawnStep(name="S6", kind="both", when=way_by("S1", "Rerouted"), refusable=False),
    ),
    inline=True,
)


def test_inline_saga_takes_one_way() -> None:
    with Deployment.of_assembly(drawn_assembly([SKIPPED])) as deployment:
        report = simulate(deployment, _Skipped([SKIPPED]), sagas=150)

        report.require_kept()
        _continue_by_own_refusals(deployment)

        assert simulate(deployment, _Skipped([SKIPPED]), sagas=150).violated


def _continue_by_own_refusals(deployment: Deployment) -> None:
    """Remove the rule by which an execution continues with the route that the row keeps."""
    for name, machine in deployment.blueprint.machines.items():
        definition = json.loads(json.dumps(machine.definition))
        for at, state in definition["States"].items():
            if any(f"({route})" in at for route in ROUTES) and state["Type"] == "Choice":
                del state["Choices"][0]
        deployment.blueprint.machines[name] = replace(machine, definition=definition)


class _DrawnAlongside(Drawn):
    """Requests to drawn sagas, with a Standard execution alongside each Express one."""

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        for requests in world.parts.requests:
            alongside(world, requests, random.choice((0, 20, 60, 120, 250, 1_000)))


class _Untroubled(_DrawnAlongside):
    """The same, whose steps neither refuse nor fail."""

    def intent(self, number: int, random: Random) -> Intent:
        intent = super().intent(number, random)
        return replace(intent, body={**intent.body, "behave": {}})


GROUPED: Final = DrawnSaga(
    nodes=(
        DrawnGroup(
            name="G1",
            kind="parallel",
            branches=(
                (DrawnStep(name="S1", kind="atomic", undo=True), DrawnStep(name="S2", kind="asked", undo=True)),
                (DrawnStep(name="S3", kind="dynamodb", undo=True),),
            ),
        ),
        DrawnGroup(name="G2", kind="map", branches=((DrawnStep(name="S4", kind="both", undo=True),),)),
        DrawnStep(name="S5", kind="atomic", pivot=True),
        DrawnGroup(
            name="G3",
            kind="parallel",
            branches=(
                (DrawnStep(name="S6", kind="atomic", refusable=False),),
                (DrawnStep(name="S7", kind="atomic", refusable=False),),
            ),
        ),
    ),
    inline=True,
)


def test_branches_and_items_of_an_inline_saga_keep_its_promise() -> None:
    with Deployment.of_assembly(drawn_assembly([GROUPED])) as deployment:
        report = simulate(deployment, _DrawnAlongside([GROUPED], only=[0]), sagas=150)

        report.require_kept()
        assert report.statuses["COMPLETED"] > 50
        assert report.statuses["FAILED"] > 20
        for seed in range(4):
            break_each_call(deployment, _Untroubled([GROUPED], only=[0]), seed=seed, drawn=_DRAWN).require_kept()


def _of_items(limit: int) -> DrawnSaga:
    step = DrawnStep(name="S1", kind="atomic", undo=True)
    items = DrawnGroup(name="G", kind="map", branches=((step,),), max_items=limit)
    return DrawnSaga(nodes=(items, DrawnStep(name="S2", kind="atomic", pivot=True)), inline=True)


class _ThreeItems(Drawn):
    """Requests of three items, with a Standard execution so many milliseconds after each reservation."""

    def __init__(self, saga: DrawnSaga, delay: int) -> None:
        super().__init__([saga], only=[0])
        self._delay = delay

    def intent(self, number: int, random: Random) -> Intent:
        intent = super().intent(number, random)
        items = [{"sku": sku, "amount": AMOUNT} for sku in "abc"]
        body = {**intent.body, "a": True, "b": True, "items": items, "behave": {}}
        return replace(intent, body=body, other_body={**body, "other": True}, wait=0, key=None)

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        (requests,) = world.parts.requests
        alongside(world, requests, self._delay)


def test_standard_of_another_limit_answers_after_the_items_of_express() -> None:
    """The state machines are deployed, the gatekeeper is not yet: no item is applied behind a refusal.

    A saga of more items whose pivot is applied is parked until the earlier limit is deployed again.
    """
    before, after = _of_items(12), _of_items(2)
    with (
        Deployment.of_assembly(drawn_assembly([before])) as deployment,
        Deployment.of_assembly(drawn_assembly([after])) as later,
        Deployment.of_assembly(drawn_assembly([before])) as restored,
    ):
        machines = deployment.blueprint.machines
        for arn, machine in later.blueprint.machines.items():
            if machine.kind != "EXPRESS":
                machines[arn] = replace(machines[arn], definition=machine.definition)
        for delay in (5, 20, 40, 80):
            simulate(deployment, _ThreeItems(before, delay), sagas=15, seed=1, releases=[restored]).require_kept()


def test_renamed_steps_of_inline_sagas_are_applied_under_one_name() -> None:
    sagas = [drawn_inline(seed) for seed in range(3)]
    with (
        Deployment.of_assembly(drawn_assembly(sagas)) as before,
        Deployment.of_assembly(drawn_assembly(sagas, [renamed(saga) for saga in sagas])) as after,
    ):
        report = simulate(before, Renaming(sagas, [before, after]), sagas=60, releases=[after, before, after])

    report.require_kept()
