"""The way forward: the saga's steps in order, what gives each of them up, and the choice of the one that follows."""

from __future__ import annotations

from dataclasses import replace

from constructs_lib.saga.asl.direction import alongside_states, direct, give_up_name, giving_up, go_again
from constructs_lib.saga.asl.ending import (
    FENCED,
    GO_ON,
    LOOK_AT_DIRECTION,
    LOOK_AT_RECORD,
    ONLY_FORWARD,
    SETTLE_COMPLETED,
    TRY_AGAIN,
    WAIT,
    look_at_record,
    park_of,
    waiting,
    who_settled,
)
from constructs_lib.saga.asl.failures import (
    CONDITION_NOT_BOOLEAN,
    NEITHER,
    found_at,
    interrupted,
    undecided_condition,
)
from constructs_lib.saga.asl.flow import Flow, only_forward_name
from constructs_lib.saga.asl.groups import group_states
from constructs_lib.saga.asl.plan import CompiledGroup, Node, SagaPlan, State
from constructs_lib.saga.asl.tasks import Exits, replayed, step_states
from constructs_lib.saga.steps.jsonata import expression
from saga_runtime.protocol import Direction


def saga_flow(plan: SagaPlan) -> Flow:
    """The saga's own sequence of steps; behind the last one, it settles."""
    return Flow(nodes=plan.steps, end=SETTLE_COMPLETED, last_pivot=plan.last_pivot)


def forward_states(plan: SagaPlan) -> dict[str, State]:
    """Every step's states, in order."""
    flow = saga_flow(plan)

    def undecided(node: Node) -> State:
        failure = {"failure": undecided_condition(node.name), **_again(plan, node)}
        index = list(plan.steps).index(node)
        if index <= plan.last_pivot:
            return {"Next": give_up_name(plan, index), "Assign": failure}
        stuck = found_at(node.name, CONDITION_NOT_BOOLEAN, NEITHER)
        return {"Next": park_of(plan), "Assign": {**failure, **stuck}}

    states = flow.choice(-1, undecided)
    for index, node in enumerate(plan.steps):
        back = index <= plan.last_pivot
        if isinstance(node, CompiledGroup):
            states |= group_states(plan, flow, index)
        else:
            give_up = give_up_name(plan, index) if back else park_of(plan)
            states |= step_states(plan, flow, index, _exits(plan, node, give_up, back=back))
        if back:
            outputs = None if isinstance(node, CompiledGroup) else replayed(flow, index)
            states |= giving_up(plan, flow, index, outputs=outputs)
        states |= flow.choice(index, undecided)
    # On a path without a pivot no row records that the saga only goes forward from here: the record does.
    around = {only_forward_name(node): node.name for node in plan.steps[plan.last_pivot + 1 :]}
    states |= {name: direct(plan, Direction.FORWARD, following) for name, following in around.items()}
    if plan.alongside:
        states |= alongside_states(plan, flow)
    return states | _only_forward(plan)


def _exits(plan: SagaPlan, node: Node, give_up: str, *, back: bool) -> Exits:
    exits = Exits(fenced=FENCED, give_up=give_up, stuck=park_of(plan), no_way_back=not back)
    if not plan.alongside:
        return exits
    again = _again(plan, node)
    return replace(
        exits,
        fenced=LOOK_AT_RECORD,
        notes=again,
        fenced_notes={"failure": interrupted(), **again},
        in_doubt=park_of(plan) if plan.standard_arn is not None else None,
    )


def _again(plan: SagaPlan, node: Node) -> State:
    """Assignment of the failed node, which may be tried again."""
    return go_again(node) if plan.alongside else {}


def _only_forward(plan: SagaPlan) -> dict[str, State]:
    """A step before the pivot failed, and the saga may only go forward because another run passed the pivot.

    The step is retried many times before the saga is parked.
    """
    if not plan.pivots:
        return {}
    nodes = plan.steps[: plan.last_pivot + 1]
    back = [{"Condition": expression(f'$again = "{node.name}"'), "Next": node.name} for node in nodes]
    return {
        LOOK_AT_DIRECTION: look_at_record(plan, ONLY_FORWARD),
        ONLY_FORWARD: who_settled(plan, goes_on_at=TRY_AGAIN if plan.standard_arn is None else park_of(plan)),
        **waiting(plan, TRY_AGAIN, WAIT, GO_ON),
        GO_ON: {"Type": "Choice", "Choices": back, "Default": nodes[-1].name},
    }
