"""Steps that run as one: phases in a state machine of their own, parallel branches, a map over items.

A branch never fails; it reports: each step catches inside, and the saga decides when all branches have ended. The
functions of a branch live on when a state machine stops it, so stopping siblings would decide nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from constructs_lib.saga.asl.begin import begin_phase
from constructs_lib.saga.asl.direction import give_up_name, go_again, wait_name
from constructs_lib.saga.asl.ending import FENCED, LOOK_AT_RECORD, park_of, waiting
from constructs_lib.saga.asl.failures import (
    UNEVALUATED,
    broken,
    changed_definition,
    interrupted,
    jsonata_object,
    refused,
    undecided_condition,
)
from constructs_lib.saga.asl.flow import Flow
from constructs_lib.saga.asl.outputs import read_outputs
from constructs_lib.saga.asl.plan import CompiledGroup, Node, SagaPlan, State
from constructs_lib.saga.asl.states import INPUT, machine, step_retries
from constructs_lib.saga.asl.tasks import Exits, phase_through, step_states
from constructs_lib.saga.description.kind import Machine, group_kind
from constructs_lib.saga.description.retry import Retry
from constructs_lib.saga.steps.jsonata import expression
from saga_runtime.protocol import PhaseField, StartField

MARGIN_SECONDS: Final = 10
"""A task waits longer than the phase that it starts may run."""
_CHILD_OUTPUTS: Final = f"{INPUT}.{StartField.OUTPUTS}"


class CompiledGroupKind(ABC):
    """A kind of group: the state of a group."""

    @abstractmethod
    def state(self, plan: SagaPlan, group: CompiledGroup, known: str) -> State:
        """Compile one group: the fields of its state, with what it ends with as ``phase`` in ``Assign``.

        Args:
            plan: the saga.
            group: the group.
            known: JSONata expression of the outputs so far.
        """


def group_states(plan: SagaPlan, flow: Flow, index: int) -> dict[str, State]:
    """A group's state, and the one that decides when all of it is over."""
    group = flow.nodes[index]
    if not isinstance(group, CompiledGroup):
        raise TypeError(f"{group.name} is not a group")
    known = flow.known(index)
    kind = group_kind(group.kind)
    if not isinstance(kind, CompiledGroupKind):
        raise TypeError(f"kind of {group.name} must be a CompiledGroupKind, got {group.kind!r}; make it a GroupOfSteps")
    run = kind.state(plan, group, known)
    over = f"{group.name} - result"
    back = index <= plan.last_pivot
    delegates = plan.standard_arn is not None
    give_up = give_up_name(plan, index) if back else park_of(plan) if delegates else wait_name(group)
    again: State = {} if back and not plan.alongside else go_again(group)
    fenced: State = {"Next": FENCED}
    if plan.alongside:
        fenced = {"Next": LOOK_AT_RECORD, "Assign": {"failure": interrupted(), **again}}
    failed = (
        f"$exists($phase.{PhaseField.FAILURE}) ? $phase.{PhaseField.FAILURE} : {jsonata_object(broken(group.name))}"
    )
    lost, reading, choices, otherwise = give_up, dict[str, State](), list[State](), give_up
    if delegates:
        refused_only = f'$phase.{PhaseField.FAILURE}.kind = "saga-refused"'
        refusal = expression(f"$phase.{PhaseField.FAILURE}")
        choices = [{"Condition": expression(refused_only), "Next": give_up, "Assign": {"failure": refusal, **again}}]
        lost = otherwise = park_of(plan)
    elif back:
        # It answered nothing: what its steps answered before one failed is in the log only.
        named = plan.named_to_undo.intersection(step.name for step in group.leaves)
        lost, reading = read_outputs(plan, named, give_up, label=" (lost)")
    if lost != give_up and kind.machine is Machine.EXPRESS:
        unheard = expression(f'$phase.{PhaseField.FAILURE}.step = "{group.name}"')
        choices = [{"Condition": unheard, "Next": lost, "Assign": {"failure": broken(group.name)}}]
    catch_bad = []
    if kind.per_item:
        bad = refused(plan, group.name, error=kind.refusals[0], detail="the items are not what the step can work on")
        errors = [UNEVALUATED]
        catch_bad = [{"ErrorEquals": errors, "Next": give_up, "Assign": {"failure": bad, **again}}]
    loop: dict[str, State] = {}
    if group.pivot or not (back or delegates):
        loop = waiting(plan, wait_name(group), f"Wait before retrying {group.name}", group.name)
    return {
        **loop,
        **reading,
        group.name: {
            **run,
            "Assign": {
                "phase": expression(run["Assign"]["phase"]),
                flow.variable: expression(_merged(flow, index, run["Assign"]["phase"])),
            },
            "Catch": [
                *catch_bad,
                {"ErrorEquals": ["States.ALL"], "Next": lost, "Assign": {"failure": broken(group.name), **again}},
            ],
            "Next": over,
        },
        over: {
            "Type": "Choice",
            "Choices": [
                {"Condition": expression(f"$phase.{PhaseField.OK}"), "Next": flow.following(index)},
                {"Condition": expression(f"$exists($phase.{PhaseField.FENCED})"), **fenced},
                *choices,
            ],
            "Default": otherwise,
            "Assign": {"failure": expression(failed), **again},
        },
    }


def phase_definition(plan: SagaPlan, group: CompiledGroup) -> State:
    """The definition of a phase that runs in a state machine of its own."""
    start, states = branch_states(plan, group, 0, _CHILD_OUTPUTS)
    stops = {"Next": _stops_name(group.name), "Assign": {"stopped": changed_definition(group.name)}}
    start, states = begin_phase(group, start, states, stops)
    return machine(plan, f"{plan.comment}, {group.name}", start, states, seconds=group.timeout)


def _merged(flow: Flow, index: int, phase: str) -> str:
    outputs = f"($p := {phase}; $exists($p.{PhaseField.OUTPUTS}) ? $p.{PhaseField.OUTPUTS} : {{}})"
    return flow.with_output(index, outputs)


def joined(plan: SagaPlan, outputs: str) -> str:
    """One answer for all branches: well if all are, else with the first failure.

    In an Express machine that is the first failure in doubt, if there is one: Standard decides about it.
    """
    ok, fenced, failure = PhaseField.OK, PhaseField.FENCED, PhaseField.FAILURE
    first = f"($r.{failure})[0]"
    if plan.standard_arn is not None:
        first = f'($f := [$r.{failure}]; $d := $f[kind != "saga-refused"]; $exists($d) ? $d[0] : $f[0])'
    return (
        f'($r := [$states.result]; $merge([{{"{ok}": $not(false in $r.{ok}), "{PhaseField.OUTPUTS}": {outputs}}}, '
        f'$exists($r.{fenced}) ? {{"{fenced}": true}} : {{}}, '
        f'$exists($r.{failure}) ? {{"{failure}": {first}}} : {{}}]))'
    )


def machine_retries() -> list[State]:
    """Retries of a call that starts a phase in a state machine of its own."""
    return step_retries((), Retry(), no_way_back=False)


def _stops_name(label: str) -> str:
    return f"{label} - failed"


def branch_states(plan: SagaPlan, group: CompiledGroup, number: int, known: str) -> tuple[str, dict[str, State]]:
    """Start and states of one branch."""
    kind = group_kind(group.kind)
    label = group.name if len(group.branches) == 1 else f"{group.name} {number + 1}"
    through, stops, fenced = f"{label} - succeeded", _stops_name(label), f"{label} - fenced"
    flow = Flow(
        nodes=group.branches[number],
        end=through,
        first=f"Select first step of {label}",
        variable="own",
        base=known,
        of_map=group if kind.per_item else None,
        shares=group.max_items if kind.per_item else len(group.branches) if kind.at_once else 0,
    )
    exits = Exits(fenced=fenced, give_up=stops, stuck=stops, outcome=kind.machine is not Machine.EXPRESS)

    def undecided(node: Node) -> State:
        return {"Next": stops, "Assign": {flow.failure: undecided_condition(node.name)}}

    states = flow.choice(-1, undecided)
    for index in range(len(flow.nodes)):
        states |= step_states(plan, flow, index, exits) | flow.choice(index, undecided)
    states |= {
        through: {"Type": "Pass", "Output": phase_through(flow, flow.own_outputs()), "End": True},
        stops: {
            "Type": "Pass",
            "Output": {
                **phase_through(flow, f"$exists({flow.own_outputs()}) ? {flow.own_outputs()} : {{}}"),
                PhaseField.OK: False,
                PhaseField.FAILURE: expression(f"${flow.failure}"),
            },
            "End": True,
        },
        fenced: {
            "Type": "Pass",
            "Output": {PhaseField.OK: False, PhaseField.FENCED: True},
            "End": True,
        },
    }
    return flow.following(-1), states
