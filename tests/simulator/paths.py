"""Fixed runs of the examples and of other stacks: each way that a saga goes, and rare paths, by planned faults.

Faults are planned, not drawn: what these runs need of a role's policies does not depend on what other runs draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from constructs_lib.testing.simulator import Climate, Deployment, Event, Planned, Trouble, Workload, World
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.checks.findings import Finding
from constructs_lib.testing.simulator.run import START, RunResult, simulate_once
from constructs_lib.testing.simulator.world import running

from .beyond_examples import scripts, stacks
from .beyond_examples.workloads import Hosted, Operated
from .examples import EXAMPLES
from .workloads.carts import Carts
from .workloads.faces import FacesAndKept
from .workloads.orders import Orders
from .workloads.payouts import Payouts
from .workloads.transfers import Transfers

FOR_LONG: Final = 40
"""Calls in a row: more than every retry makes."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, by parts of names.

    Attributes:
        of: end of the construct's name; of every other actor, its own name.
        what: the call, or the state.
        how: what goes wrong.
        nth: the call to begin with, from 1 on.
        times: how many calls in a row.
    """

    of: str
    what: str
    how: Trouble | Event
    nth: int = 1
    times: int = 1

    def planned(self, deployment: Deployment) -> Planned:
        """The fault of a deployment's function or state machine."""
        blueprint = deployment.blueprint
        names = (*blueprint.functions, *(machine.name for machine in blueprint.machines.values()))
        found = [name for name in names if name.partition("-")[2][:-8] == self.of]
        return Planned(of=found[0] if found else self.of, what=self.what, nth=self.nth, how=self.how, times=self.times)


@dataclass(frozen=True, slots=True)
class Path:
    """A run.

    Attributes:
        seed: of its first intent.
        faults: what goes wrong; every one of them must hit.
        sagas: how many intents there are.
    """

    seed: int
    faults: tuple[Fault, ...] = ()
    sagas: int = 1


_STOP, _DIES, _LOST, _UNHEARD = Event.STOP, Trouble.KILL_AFTER, Trouble.LOSE_REQUEST, Trouble.LOSE_ANSWER


def _unstarted(gatekeeper: str) -> Fault:
    """A gatekeeper that dies when it has recorded a request."""
    return Fault(gatekeeper, "dynamodb:PutItem", _DIES, times=FOR_LONG)


_UNRECONCILED: Final = Fault("ReconcilerFunction", "dynamodb:Query", Trouble.KILL_BEFORE, times=300)
"""A reconciler that dies each time: operators do what it does not."""
_UNRECOVERED: Final = Fault("OrderRecovery", "lambda:Invoke", _LOST, times=FOR_LONG)
_OF_HOSTED: Final = "step host, "

STACKS: Final[Mapping[str, Callable[[Any], object]]] = {
    **{name: example.add for name, example in EXAMPLES.items()},
    f"{_OF_HOSTED}operated": stacks.add_hosted,
    f"{_OF_HOSTED}decided without a row": stacks.add_hosted,
    "carts, operated": stacks.add_operated,
    "carts, cancelled": stacks.add_operated,
}
"""What is added to an app, by the names of ``PATHS``."""

PATHS: Final[Mapping[str, tuple[Callable[[], Workload], tuple[Path, ...]]]] = {
    "funds_transfer": (
        Transfers,
        (
            Path(19),  # within one ledger
            Path(2),  # to the partner
            Path(17),  # refused by the partner
            Path(19, (_unstarted("ApiGatekeepertransfersFunction"),)),
            Path(19, (Fault("TransferStateMachine", "lambda:Invoke", _LOST, nth=2, times=FOR_LONG),)),
            Path(19, (Fault("TransferStateMachine", "dynamodb:UpdateItem", _UNHEARD),)),
            Path(2, (Fault("TransferStateMachine", "Credit", _STOP),)),
            # Its recovery cannot undo it, and parks it.
            Path(
                2,
                (
                    Fault("TransferStateMachine", "Credit", _STOP),
                    Fault("TransferRecovery", "lambda:Invoke", _LOST, times=FOR_LONG),
                ),
            ),
            # Each recovery is stopped, until the reconciler parks it.
            Path(
                2,
                (
                    Fault("TransferStateMachine", "Credit", _STOP),
                    Fault("TransferRecovery", "dynamodb:GetItem", _LOST, times=10 * FOR_LONG),
                ),
            ),
        ),
    ),
    "order_processing": (
        Orders,
        (
            Path(0),
            Path(1),  # the card is declined
            Path(6),  # unknown goods
            Path(0, (_unstarted("ApiGatekeeperordersFunction"),)),
            Path(0, (Fault("OrderStateMachine", "ValidateInventory", _STOP),)),
            Path(0, (Fault("OrderStateMachine", "lambda:Invoke", _UNHEARD, nth=3, times=FOR_LONG),)),
            Path(0, (Fault("OrderStateMachine", "lambda:Invoke", _UNHEARD, nth=4, times=FOR_LONG),)),
            Path(0, (Fault("OrderStateMachine", "lambda:Invoke", _UNHEARD, nth=5, times=FOR_LONG),)),
            Path(0, (Fault("ValidateFunction", "dynamodb:BatchGetItem", _LOST, times=FOR_LONG),)),
        ),
    ),
    "agentic_payout": (
        Payouts,
        (
            Path(2),
            Path(0),  # more than the agent may spend
            Path(0, sagas=8),  # an obligation that is asked for again
            Path(2, (_unstarted("ApiGatekeeperpayoutsFunction"),)),
            Path(2, (Fault("PayoutStateMachine", "Analyze", _STOP),)),
            Path(2, (Fault("PayoutStateMachine", "lambda:Invoke", _UNHEARD, nth=4, times=FOR_LONG),)),
            Path(2, (Fault("PayoutStateMachine", "lambda:Invoke", _UNHEARD, nth=5, times=FOR_LONG),)),
        ),
    ),
    "cart_fulfilment": (
        Carts,
        (
            Path(1),
            Path(3),  # the card is declined
            Path(13),  # reviewed
            Path(36),  # reviewed, and not there when it is picked
            Path(1, (_unstarted("InvestigateFunction"),)),
            Path(1, (Fault("CartFulfil", "sqs:SendMessage", _UNHEARD, nth=2, times=FOR_LONG),)),
            Path(1, (Fault("CartStateMachine", "sqs:SendMessage", _UNHEARD, times=FOR_LONG),)),
            Path(1, (Fault("CartStateMachine", "stepfunctions:StartExecution", _UNHEARD, times=FOR_LONG),)),
            Path(1, (Fault("CartStateMachine", "Fulfil - result", _STOP),)),
            Path(1, (Fault("CartStateMachine", "CheckCart", _STOP),)),
            Path(1, (Fault("InvestigationSagaStateMachine", "AskProvider", _STOP),)),
            Path(1, (Fault("InvestigationSagaStateMachine", "lambda:Invoke", _LOST, nth=6, times=FOR_LONG),)),
            Path(1, (Fault("PickFunction", "dynamodb:PutItem", _DIES, nth=2, times=FOR_LONG),)),
            Path(1, (Fault("PickFunction", "http:POST", _LOST, times=FOR_LONG),)),
            Path(1, (Fault("PickEventsFunction", "stepfunctions:SendTaskSuccess", _DIES),)),
            Path(1, (Fault("PaymentEventsFunction", "dynamodb:TransactWriteItems", _DIES, times=FOR_LONG),)),
            Path(1, (Fault("ScanFunction", "dynamodb:TransactWriteItems", _DIES, times=FOR_LONG),)),
            Path(1, (Fault("ScanFunction", "dynamodb:BatchGetItem", _DIES, times=FOR_LONG),)),
            Path(3, (Fault("AuthorizeFunction", "stepfunctions:SendTaskFailure", _DIES, times=FOR_LONG),)),
        ),
    ),
    "wallet": (FacesAndKept, (Path(1, sagas=3),)),
    f"{_OF_HOSTED}operated": (
        lambda: Operated(Hosted()),
        (
            Path(1, sagas=2),  # the second one is refused, and refunded
            Path(1, (Fault("ChargeStepFunction", "lambda:Invoke", _DIES),)),
            Path(1, (Fault("ChargeCompensationFunction", "lambda:Invoke", _DIES),), sagas=2),
            Path(1, (Fault("DeliverStepFunction", "lambda:Invoke", _DIES),)),
            Path(1, (_UNRECONCILED, _unstarted("ApiGatekeeperordersFunction"))),
            # Parked over what was not delivered, over what was charged, and by the operators' own repair.
            Path(
                1,
                (
                    _UNRECONCILED,
                    Fault("DeliverStepFunction", "lambda:Invoke", Trouble.KILL_BEFORE, times=FOR_LONG),
                ),
            ),
            Path(
                1,
                (
                    _UNRECONCILED,
                    Fault("ChargeStepFunction", "lambda:Invoke", _DIES, times=FOR_LONG),
                    Fault("VerifyFunction", "dynamodb:GetItem", _LOST, times=10 * FOR_LONG),
                    _UNRECOVERED,
                ),
            ),
            Path(
                1,
                (
                    _UNRECONCILED,
                    Fault("OrderStateMachine", "Deliver", _STOP),
                    Fault("OrderRecovery", "dynamodb:GetItem", _LOST, times=10 * FOR_LONG),
                ),
            ),
        ),
    ),
    f"{_OF_HOSTED}decided without a row": (
        lambda: Operated(Hosted(), unwritten="Charge"),
        (Path(1, (_UNRECONCILED, Fault("OrderStateMachine", "lambda:Invoke", _LOST, times=FOR_LONG), _UNRECOVERED)),),
    ),
    "carts, operated": (
        lambda: Operated(Carts()),
        (Path(1, (_UNRECONCILED, Fault("CartStateMachine", "Fulfil - result", _STOP))),),
    ),
    "carts, cancelled": (lambda: Operated(Carts(), cancels=True), (Path(13),)),  # while it is reviewed
}

SCRIPTS: Final[Mapping[str, tuple[Callable[[Any], object], Callable[[World], None], tuple[Fault, ...]]]] = {
    "migration": (stacks.add_migrating, scripts.migrate, ()),
    "watched machine": (
        stacks.add_imports,
        scripts.watch,
        (Fault("ReleaseFunction", "dynamodb:DeleteItem", Trouble.KILL_BEFORE, nth=2, times=1_000),),
    ),
    "ledger": (stacks.add_bank, scripts.bank, ()),
}
"""Stacks without sagas: what is added to an app, what happens, and what goes wrong."""


def play(name: str, deployment: Deployment) -> Iterable[Finding]:
    """Play a script; its findings."""
    _, script, faults = SCRIPTS[name]
    climate = Climate(planned=tuple(fault.planned(deployment) for fault in faults))
    with running(deployment, climate, name, start=START, coverage=Coverage()) as world:
        script(world)
        return world.findings.found


def runs(name: str, deployment: Deployment) -> Iterator[RunResult]:
    """Make the runs of a name of ``PATHS``.

    Raises:
        AssertionError: if a fault hit nothing: the path is not taken any more.
    """
    workload, paths = PATHS[name]
    for path in paths:
        planned = tuple(fault.planned(deployment) for fault in path.faults)
        coverage = Coverage()
        yield simulate_once(
            deployment,
            workload(),
            path.seed,
            sagas=path.sagas,
            coverage=coverage,
            climate=Climate(planned=planned),
        )
        hit = {where for where, _ in coverage.faults}
        assert {f"{one.of} {one.what}" for one in planned} <= hit, (path, hit)
