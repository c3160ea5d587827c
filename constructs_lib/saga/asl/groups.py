"""Steps that run as one: phases in a state machine of their own, parallel branches, a map over items.

A branch never fails; it reports: each step catches inside, and the saga decides when all branches have ended. The
functions of a branch live on when a state machine stops it, so stopping siblings would decide nothing.
"""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.asl.begin import begin_phase, given_to_phase
from constructs_lib.saga.asl.direction import give_up_name, go_again, wait_name
from constructs_lib.saga.asl.ending import FENCED, waiting
from constructs_lib.saga.asl.failures import broken, changed_definition, jsonata_object, refused, undecided_condition
from constructs_lib.saga.asl.flow import Flow
from constructs_lib.saga.asl.items import items_of
from constructs_lib.saga.asl.outputs import read_outputs
from constructs_lib.saga.asl.plan import CompiledGroup, GroupKind, Node, SagaPlan, State
from constructs_lib.saga.asl.states import EXECUTION, INPUT, machine, reached_from, step_retries
from constructs_lib.saga.asl.tasks import Exits, phase_through, step_states
from constructs_lib.saga.steps.jsonata import expression
from constructs_lib.saga.steps.retry import Retry
from saga_runtime.protocol import PhaseField, StartField

BAD_ITEMS: Final = "BadItems"
_MARGIN_SECONDS: Final = 10
_CHILD_OUTPUTS: Final = f"{INPUT}.{StartField.OUTPUTS}"


def group_states(plan: SagaPlan, flow: Flow, index: int) -> dict[str, State]:
    """A group's state, and the one that decides when all of it is over."""
    group = flow.nodes[index]
    if not isinstance(group, CompiledGroup):
        raise TypeError(f"{group.name} is not a group")
    known = flow.known(index)
    run = {
        GroupKind.EXPRESS: _express,
        GroupKind.CHILD: _child,
        GroupKind.PARALLEL: _parallel,
        GroupKind.MAP: _map,
    }[group.kind](plan, group, known)
    over = f"{group.name} over?"
    back = index <= plan.last_pivot
    give_up = give_up_name(plan, index) if back else wait_name(group)
    again: State = {} if back else go_again(group)
    failed = (
        f"$exists($phase.{PhaseField.FAILURE}) ? $phase.{PhaseField.FAILURE} : {jsonata_object(broken(group.name))}"
    )
    lost, reading, choices = give_up, dict[str, State](), []
    if back:
        # It answered nothing: what its steps answered before one failed is in the log only.
        named = plan.named_to_undo.intersection(step.name for step in group.leaves)
        lost, reading = read_outputs(plan, named, give_up, label=", lost")
    if lost != give_up and group.kind is GroupKind.EXPRESS:
        unheard = expression(f'$phase.{PhaseField.FAILURE}.step = "{group.name}"')
        choices = [{"Condition": unheard, "Next": lost, "Assign": {"failure": broken(group.name)}}]
    catch_bad = []
    if group.kind is GroupKind.MAP:
        bad = refused(plan, group.name, error=BAD_ITEMS, detail="the items are not what the step can work on")
        errors = ["States.QueryEvaluationError"]
        catch_bad = [{"ErrorEquals": errors, "Next": give_up, "Assign": {"failure": bad, **again}}]
    loop = {} if back and not group.pivot else waiting(plan, wait_name(group), f"{group.name} waits", group.name)
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
                {"Condition": expression(f"$exists($phase.{PhaseField.FENCED})"), "Next": FENCED},
                *choices,
            ],
            "Default": give_up,
            "Assign": {"failure": expression(failed), **again},
        },
    }


def phase_definition(plan: SagaPlan, group: CompiledGroup) -> State:
    """The definition of a phase that runs in a state machine of its own."""
    start, states = _branch(plan, group, 0, _CHILD_OUTPUTS)
    stops = {"Next": _stops_name(group.name), "Assign": {"stopped": changed_definition(group.name)}}
    start, states = begin_phase(group, start, states, stops)
    return machine(plan, f"{plan.comment}, {group.name}", start, states, seconds=group.seconds)


def _merged(flow: Flow, index: int, phase: str) -> str:
    outputs = f"($p := {phase}; $exists($p.{PhaseField.OUTPUTS}) ? $p.{PhaseField.OUTPUTS} : {{}})"
    return flow.with_output(index, outputs)


def _express(_plan: SagaPlan, group: CompiledGroup, known: str) -> State:
    """The call succeeds even if the execution fails: its status shows that."""
    lost = jsonata_object({PhaseField.OK: False, PhaseField.FAILURE: broken(group.name)})
    answer = f'$states.result.Status = "SUCCEEDED" ? $parse($states.result.Output) : {lost}'
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::aws-sdk:sfn:startSyncExecution",
        "Arguments": {
            "StateMachineArn": group.machine_arn,
            "Input": expression(f"$string({given_to_phase(group, known)})"),
        },
        "TimeoutSeconds": group.seconds + _MARGIN_SECONDS,
        "Retry": _retries(),
        "Assign": {"phase": answer},
    }


def _child(plan: SagaPlan, group: CompiledGroup, known: str) -> State:
    """Each attempt has an execution of its own, by a derived name; the saga log keeps every step single."""
    entered = "$toMillis($states.context.State.EnteredTime)"
    position = [node.name for node in plan.steps].index(group.name)
    name = f'{EXECUTION} & "-{position}-" & $string({entered}) & "-" & $string($states.context.State.RetryCount)'
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::states:startExecution.sync:2",
        "Arguments": {
            "StateMachineArn": group.machine_arn,
            "Name": expression(name),
            "Input": expression(given_to_phase(group, known)),
        },
        "TimeoutSeconds": group.seconds + _MARGIN_SECONDS,
        "Retry": _retries(),
        "Assign": {"phase": "$states.result.Output"},
    }


def _parallel(plan: SagaPlan, group: CompiledGroup, known: str) -> State:
    branches = [_branch(plan, group, number, known) for number in range(len(group.branches))]
    return {
        "Type": "Parallel",
        "Branches": [{"StartAt": start, "States": reached_from(start, states)} for start, states in branches],
        "Assign": {"phase": _joined(f"$merge([{{}}, $r.{PhaseField.OUTPUTS}])")},
    }


def _map(plan: SagaPlan, group: CompiledGroup, known: str) -> State:
    start, states = _branch(plan, group, 0, known)
    by_key = "".join(
        f'"{step.name}": $merge([{{}}, $r[$exists(outputs.{step.name})].{{key: outputs.{step.name}}}]), '
        for step in group.leaves
    ).rstrip(", ")
    return {
        "Type": "Map",
        "Items": expression(items_of(group, known, strict=True)),
        "MaxConcurrency": group.max_concurrency,
        "ItemProcessor": {
            "ProcessorConfig": {"Mode": "INLINE"},
            "StartAt": start,
            "States": reached_from(start, states),
        },
        "Assign": {"phase": _joined(f"{{{by_key}}}")},
    }


def _joined(outputs: str) -> str:
    """One answer for all branches: well if all are, else with the first failure."""
    ok, fenced, failure = PhaseField.OK, PhaseField.FENCED, PhaseField.FAILURE
    return (
        f'($r := [$states.result]; $merge([{{"{ok}": $not(false in $r.{ok}), "{PhaseField.OUTPUTS}": {outputs}}}, '
        f'$exists($r.{fenced}) ? {{"{fenced}": true}} : {{}}, '
        f'$exists($r.{failure}) ? {{"{failure}": ($r.{failure})[0]}} : {{}}]))'
    )


def _retries() -> list[State]:
    return step_retries((), Retry(), no_way_back=False)


def _stops_name(label: str) -> str:
    return f"{label} stops"


def _branch(plan: SagaPlan, group: CompiledGroup, number: int, known: str) -> tuple[str, dict[str, State]]:
    """Start and states of one branch."""
    label = group.name if len(group.branches) == 1 else f"{group.name} {number + 1}"
    through, stops, fenced = f"{label} is through", _stops_name(label), f"{label} is fenced"
    flow = Flow(
        nodes=group.branches[number],
        end=through,
        first=f"Which step of {label} first?",
        variable="own",
        base=known,
        of_map=group if group.kind is GroupKind.MAP else None,
        shares={GroupKind.MAP: group.max_items, GroupKind.PARALLEL: len(group.branches)}.get(group.kind, 0),
    )
    exits = Exits(fenced=fenced, give_up=stops, stuck=stops, outcome=group.kind is not GroupKind.EXPRESS)

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
