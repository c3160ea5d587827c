"""From declared steps to Amazon States Language (JSONata). Pure: plain data in, plain data out.

The happy path is one state per step and one that settles. Everything else hangs off Catch, and costs nothing until it
happens::

    Debit --> Credit (pivot) --> Settle completed
      |          |
      | gives up | gives up --> Fence Credit (tombstone) --> Begin compensation at Credit
      v          (its row is DONE: Forward from Credit)             |
    Begin compensation at Debit (direction) --> Compensate Debit --> ... <---+
                                              |
                                     Query saga log --> Settle failed
"""

from constructs_lib.saga.asl.begin import begin_saga
from constructs_lib.saga.asl.compensation import chain, chain_from
from constructs_lib.saga.asl.ending import fenced_or_parked, settle_completed, settle_failed
from constructs_lib.saga.asl.forward import forward_states, saga_flow
from constructs_lib.saga.asl.groups import phase_definition
from constructs_lib.saga.asl.inline import express, joining
from constructs_lib.saga.asl.plan import (
    CompiledGroup,
    CompiledStep,
    Node,
    Notice,
    SagaPlan,
    State,
)
from constructs_lib.saga.asl.recovery import recovery_of
from constructs_lib.saga.asl.states import machine

__all__ = [
    "CompiledGroup",
    "CompiledStep",
    "Node",
    "Notice",
    "SagaPlan",
    "State",
    "definition_of",
    "phase_definition",
    "recovery_of",
]


def definition_of(plan: SagaPlan) -> State:
    """The forward machine's definition."""
    states = {
        **forward_states(plan),
        **chain(plan),
        **settle_completed(plan),
        **settle_failed(plan, again=chain_from(plan, min(plan.last_pivot, len(plan.steps) - 1))),
        **fenced_or_parked(plan, joining(plan) if plan.alongside else ()),
    }
    start, states = begin_saga(plan, saga_flow(plan).following(-1), states)
    definition = machine(plan, plan.comment, start, states)
    return definition if plan.standard_arn is None else express(definition)
