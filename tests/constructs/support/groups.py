"""Plans of sagas with steps of every kind, alone and in groups; and every machine that is generated of a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from constructs_lib.saga.asl import (
    CompiledGroup,
    CompiledStep,
    Node,
    Notice,
    SagaPlan,
    definition_of,
    phase_definition,
    recovery_of,
)
from constructs_lib.saga.steps.direct import DirectCall, DirectTransaction, Effect
from constructs_lib.saga.steps.routes import ContinueWith
from saga_runtime.saga_log.provider import ProviderSettings
from tests.constructs.support.plans import QUEUE, step
from tests.constructs.support.plans import plan as plain_plan

FORWARD_MACHINE = "arn:aws:states:eu-west-1:111111111111:stateMachine:forward"
OPERATORS = "https://sqs.example/operators"
PROVIDER = ProviderSettings(grace=5, clock_skew=5, window=60, undo_window=60, verify=True, verify_undo=True)
INVALID = {"Invalid": ContinueWith(output={"percent": "0"})}


def plan(*nodes: Node, **options: Any) -> SagaPlan:
    """A plan of steps and groups, with operators."""
    return dataclasses.replace(
        plain_plan(step("Only", pivot=True)), steps=nodes, **{"operators": OPERATORS, "fingerprint": "d", **options}
    )


def external(name: str, *, undo: bool = True, **options: Any) -> CompiledStep:
    """A step at a provider."""
    return step(name, undo=undo, provider=PROVIDER, **options)


def writes(name: str, *, undo: bool = True, **options: Any) -> CompiledStep:
    """A transaction straight from the state machine."""
    put = {"Put": {"Item": {"id": {"S": "{% $step_key %}"}}}}
    delete = {"Delete": {"Key": {"id": {"S": "{% $output.key & $step_key %}"}}}}
    transaction = DirectTransaction(
        table_name="items",
        writes=(put,),
        compensate=(delete,) if undo else (),
        output='{"key": $step_key}',
    )
    return step(name, function_arn="", function=None, transaction=transaction, **options)


def direct(name: str, *, output: str = "{}", when: str | None = None, **fields: Any) -> CompiledStep:
    """A call straight from the state machine: an event by default."""
    entry = {"Detail": '{% $merge([{"who": $request.who}, {"event_id": $step_key}]) %}'}
    event = {"Type": "Task", "Resource": "arn:aws:states:::events:putEvents", "Arguments": {"Entries": [entry]}}
    fields = fields or event | {"TimeoutSeconds": 30}
    state = DirectCall(fields=fields, effect=Effect.IDEMPOTENT, output=output, written={})
    return step(name, direct=state, when=when)


def group(kind: str, name: str, *branches: list[CompiledStep], **options: Any) -> CompiledGroup:
    """A group of steps."""
    own = kind in ("express", "child")
    return CompiledGroup(
        **{
            "name": name,
            "kind": kind,
            "branches": tuple(tuple(branch) for branch in branches),
            "timeout": 300 if own else 0,
            "machine_arn": f"arn:{name}" if own else "",
            "shape": "d",
            **({"items": "$request.items", "key": "$item.sku", "max_items": 3} if kind == "map" else {}),
            **options,
        }
    )


def express(name: str, *steps: CompiledStep, **options: Any) -> CompiledGroup:
    """An Express phase."""
    return group("express", name, list(steps), **options)


def child(name: str, *steps: CompiledStep, **options: Any) -> CompiledGroup:
    """A Standard child."""
    return group("child", name, list(steps), **options)


def parallel(name: str, *branches: list[CompiledStep], **options: Any) -> CompiledGroup:
    """Branches."""
    return group("parallel", name, *branches, **options)


def of_items(name: str, *steps: CompiledStep, **options: Any) -> CompiledGroup:
    """A map."""
    return group("map", name, list(steps), **options)


def machines_of(saga: SagaPlan) -> dict[str, dict[str, Any]]:
    """Every definition that is generated of a plan: forward, recovery, and the phases by their names."""
    phases = [node for node in saga.steps if isinstance(node, CompiledGroup) and node.machine is not None]
    return {
        "forward": definition_of(saga),
        "recovery": recovery_of(saga, FORWARD_MACHINE),
        **{phase.name: phase_definition(saga, phase) for phase in phases},
    }


def every_kind() -> SagaPlan:
    """Every kind of step, each at a valid position."""
    return plan(
        step("Quote", kind="read-only"),
        direct("Look", Type="Task", Resource="arn:aws:states:::aws-sdk:s3:getObject", Arguments={}, TimeoutSeconds=30),
        express(
            "Prepare", step("Reserve", undo=True), step("Rate", when="$exists($request.rate)"), step("Hold", undo=True)
        ),
        parallel(
            "Both",
            [step("Left", undo=True)],
            [external("Right"), step("Further", undo=True, when="$exists($outputs.Right.of)")],
        ),
        of_items("Ship", step("Pack", undo=True), external("Label"), when="$exists($request.items)"),
        writes("Mark"),
        external("Pay", pivot=True),
        child("Fulfil", step("Dispatch"), step("Tell", queue_url=QUEUE)),
        direct("Announce"),
        direct("Pause", Type="Wait", Seconds=2),
        step("Receipt", queue_url=QUEUE),
        on_failed=Notice(queue_url=QUEUE),
    )


def _grouped() -> dict[str, SagaPlan]:
    pay = external("Pay", pivot=True)
    return {
        "every kind": every_kind(),
        "pivot in an express phase": plan(
            step("Reserve", undo=True),
            express("Money", external("Debit"), external("Credit", pivot=True), step("Book")),
            step("Receipt", queue_url=QUEUE),
        ),
        "pivot in a child": plan(child("Money", step("Debit", undo=True), step("Credit", pivot=True), step("Book"))),
        "items from an output, no pivot": plan(
            step("Plan", kind="read-only"),
            of_items(
                "Parcels",
                step("Load", undo=True),
                external("Book", when="$exists($request.book)"),
                items="$outputs.Plan.parcels",
                key="$item.id",
            ),
        ),
        "branches, no pivot": plan(parallel("Both", [step("Left", undo=True)], [step("Right", undo=True)])),
        "groups behind the pivot": plan(
            step("Reserve", undo=True),
            pay,
            express("Quick", step("One")),
            child("Slow", step("Two")),
            parallel("Both", [step("Left")], [writes("Right", undo=False)]),
            of_items("Ship", writes("Pack", undo=False), when="$exists($request.items)"),
        ),
        "skips in groups": plan(
            express("Quick", external("Ask", going_on=INVALID), step("Take", undo=True)),
            parallel(
                "Both", [step("Left", undo=True, going_on=INVALID)], [external("Right", going_on=INVALID), writes("Up")]
            ),
            of_items("Ship", step("Pack", undo=True), external("Label", going_on=INVALID)),
            pay,
        ),
        "transactions in groups": plan(
            writes("First"),
            parallel("Both", [writes("Left"), step("Further", undo=True)], [writes("Right")]),
            of_items("Ship", writes("Pack"), writes("Label")),
            express("Quick", writes("Fast")),
            writes("Last", pivot=True),
        ),
    }


GROUPED: Mapping[str, SagaPlan] = _grouped()
