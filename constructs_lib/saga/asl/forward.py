"""The way forward: the saga's steps in order, what gives each of them up, and the choice of the one that follows."""

from __future__ import annotations

from constructs_lib.saga.asl.compensation import give_up_name, giving_up
from constructs_lib.saga.asl.ending import FENCED, GO_ON, SETTLE_COMPLETED, TRY_AGAIN, WAIT, park_of
from constructs_lib.saga.asl.failures import found_at
from constructs_lib.saga.asl.flow import Flow
from constructs_lib.saga.asl.groups import group_states
from constructs_lib.saga.asl.plan import CompiledGroup, SagaPlan, State
from constructs_lib.saga.asl.states import LONG_ATTEMPTS, LONG_CAP_SECONDS, expression
from constructs_lib.saga.asl.tasks import Exits, replayed, step_states


def saga_flow(plan: SagaPlan) -> Flow:
    """The saga's own sequence of steps; behind the last one, it settles."""
    return Flow(nodes=plan.steps, end=SETTLE_COMPLETED)


def forward_states(plan: SagaPlan) -> dict[str, State]:
    """Every step's states, in order."""
    flow = saga_flow(plan)
    states = flow.choice(-1)
    for index, node in enumerate(plan.steps):
        back = index <= plan.last_pivot
        if isinstance(node, CompiledGroup):
            states |= group_states(plan, flow, index)
        else:
            give_up = give_up_name(plan, index) if back else park_of(plan)
            exits = Exits(fenced=FENCED, give_up=give_up, stuck=park_of(plan), no_way_back=not back)
            states |= step_states(plan, flow, index, exits)
        if back:
            outputs = None if isinstance(node, CompiledGroup) else replayed(flow, index)
            states |= giving_up(plan, flow, index, outputs=outputs)
        states |= flow.choice(index)
    return states | _again(plan)


def _again(plan: SagaPlan) -> dict[str, State]:
    """Where there is only forward, what failed is tried again after a while, many times, before a person is asked."""
    back = [{"Condition": expression(f'$again = "{node.name}"'), "Next": node.name} for node in plan.steps]
    return {
        TRY_AGAIN: {
            "Type": "Choice",
            "Choices": [{"Condition": expression(f"$tries <= {LONG_ATTEMPTS}"), "Next": WAIT}],
            "Default": park_of(plan),
            "Assign": found_at(expression("$again"), "StepFailed", "tried again and again, and there is no way back"),
        },
        WAIT: {
            "Type": "Wait",
            "Seconds": expression(f"$min([{LONG_CAP_SECONDS}, 5 * $power(2, $tries)])"),
            "Next": GO_ON,
        },
        GO_ON: {"Type": "Choice", "Choices": back[:-1], "Default": back[-1]["Next"]}
        if len(back) > 1
        else {"Type": "Pass", "Next": back[0]["Next"]},
    }
