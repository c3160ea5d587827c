"""First state of a state machine: does the saga that it runs have this definition?

Between a reservation and its start, a recovery and the forward machine that it starts, a saga and a phase that it
calls again, another definition may have been deployed. An execution keeps the definition with which it started, so its
first state asks, and no other. That costs no transition: an expression that the state evaluates anyway has no value if
the definition is another one. The error that Step Functions then raises is listed among those that a state may catch
(docs.aws.amazon.com/step-functions, "Handling errors in Step Functions workflows": ``States.QueryEvaluationError``).
Nothing depends on that: an execution that it ends instead is one that was interrupted before its first effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from constructs_lib.saga.asl.compatible import COMPATIBLE, READ_ROWS, fits, rows_that_fit, same_ways
from constructs_lib.saga.asl.direction import compensating
from constructs_lib.saga.asl.ending import FENCED, LOOK_AT_RECORD, look_at_record, mine, park_of
from constructs_lib.saga.asl.failures import DEFINITION_CHANGED, UNEVALUATED, found_at
from constructs_lib.saga.asl.outputs import next_page, pages
from constructs_lib.saga.asl.plan import CompiledGroup, Node, SagaPlan, State
from constructs_lib.saga.asl.states import EXECUTION, INPUT, REQUEST, SAGA_ID, call, now, record_update, refused_write
from constructs_lib.saga.description.kind import group_kind, plain_kind
from constructs_lib.saga.steps.jsonata import bare, expression, is_expression
from saga_runtime.protocol import (
    EXPRESS_MARK,
    OUTLIVE_EXPRESS_SECONDS,
    REFERENCE_FIELD,
    Direction,
    RecordAttribute,
    StartField,
)

SAME_DEFINITION: Final = "Same definition?"
WHOSE_START: Final = "First start?"
OUTLIVE_EXPRESS: Final = "Wait for Express to end"
READ_FIRST: Final = "Read record first"
NOTE_FIRST: Final = "Note first definition"
OTHER_DEFINITION: Final = "End under another definition"
GIVEN: Final = f"{INPUT}.{StartField.DEFINITION}"


def begin_saga(plan: SagaPlan, start: str, states: Mapping[str, State]) -> tuple[str, dict[str, State]]:
    """The forward machine's first state, and all states.

    A first start under another definition than the reservation's notes its own in the record, for a recovery that may
    run under the earlier one again. A start by a recovery ends: that recovery has checked another definition's rows and
    conditions. The next recovery checks this one's. An Express execution delegates.

    A saga for which Express executions are started begins only in machines that expect them; elsewhere it ends at once,
    and a recovery, which needs no such machine, follows. So does a saga whose request travels by reference, because no
    expression of the reservation's definition read it, where one of this definition does: it would find nothing, and a
    map over nothing is done at once.
    """
    fits = f"($exists($begun) or {_given_is(plan)})"
    asks = _asks(plan.steps[0])
    if plan.standard_arn is not None:
        other = found_at(SAME_DEFINITION, DEFINITION_CHANGED, "another definition was deployed since the reservation")
        return _guard(start, states, fits, {"Next": park_of(plan), "Assign": other}, asks=asks)
    first, checked = _outlive_express(plan) if plan.alongside else (NOTE_FIRST, {})
    of_express = f'$contains({GIVEN}, "{EXPRESS_MARK}")'
    begins = f"{EXECUTION} = {SAGA_ID}" + ("" if plan.alongside else f" and $not({of_express})")
    if plan.reads_request:
        begins += f" and $not($exists($parse({REQUEST}).{REFERENCE_FIELD}))"
    beginning: dict[str, State] = {
        WHOSE_START: {
            "Type": "Choice",
            "Choices": [{"Condition": expression(begins), "Next": first}],
            "Default": OTHER_DEFINITION,
        },
        OTHER_DEFINITION: {
            "Type": "Fail",
            "Error": DEFINITION_CHANGED,
            "Cause": "the saga was begun, or is recovered, under another definition; a recovery follows",
        },
    }
    start, guarded = _guard(start, states, fits, {"Next": WHOSE_START}, asks=asks)
    beginning[NOTE_FIRST] = _note_first(plan, start)
    return start, {**guarded, **checked, **beginning}


def _given_is(plan: SagaPlan) -> str:
    """JSONata condition: the saga was reserved under this definition, and for executions as this one."""
    own, of_express = f'"{plan.fingerprint}"', f'"{plan.fingerprint}{EXPRESS_MARK}"'
    if plan.standard_arn is not None:
        return f"{GIVEN} = {of_express}"
    return f"{GIVEN} in [{own}, {of_express}]" if plan.alongside else f"{GIVEN} = {own}"


def _note_first(plan: SagaPlan, start: str) -> State:
    a = RecordAttribute
    return {
        **call("dynamodb:updateItem"),
        "Arguments": record_update(
            plan,
            "SET #definition = :definition, #updated_at = :now",
            names={"#definition": a.DEFINITION, "#updated_at": a.UPDATED_AT},
            values={":definition": {"S": plan.fingerprint}, ":now": now()},
        ),
        "Assign": {"begun": True, "failure": {}},
        "Catch": [refused_write(LOOK_AT_RECORD)],
        "Next": start,
    }


def _outlive_express(plan: SagaPlan) -> tuple[str, dict[str, State]]:
    """Check what Express executions of another definition may have done.

    They, and the functions that they invoked, have ended first. Then the rows decide: none, and the saga begins; all of
    them of steps that this definition has, and it continues by the same conditions, or compensates; else it is parked.

    Returns:
        Name of the first state, and the states.
    """
    back, reading = compensating(plan)
    failure = f"$record.{RecordAttribute.FAILURE}.S"
    direction = f"$record.{RecordAttribute.DIRECTION}.S"
    compatible = {"compatible": expression(fits(plan))}
    return OUTLIVE_EXPRESS, {
        OUTLIVE_EXPRESS: {"Type": "Wait", "Seconds": OUTLIVE_EXPRESS_SECONDS, "Next": READ_FIRST},
        READ_FIRST: look_at_record(plan, READ_ROWS),
        **pages(
            READ_ROWS,
            rows_that_fit(plan),
            {**compatible, "fresh": expression("$states.result.Count = 0")},
            over=COMPATIBLE,
            again=compatible,
        ),
        COMPATIBLE: {
            "Type": "Choice",
            "Choices": [
                {"Condition": expression(f"$not({mine()})"), "Next": FENCED},
                next_page(READ_ROWS, while_="$compatible"),
                {
                    "Condition": expression(f'$compatible and {direction} = "{Direction.COMPENSATE}"'),
                    "Next": back,
                    "Assign": {"failure": expression(f"$parse({failure})")},
                },
                {"Condition": expression(f"$fresh or ($compatible and {same_ways(plan)})"), "Next": NOTE_FIRST},
            ],
            "Default": park_of(plan),
            "Assign": found_at(
                COMPATIBLE, DEFINITION_CHANGED, "the saga began under a definition that does not fit this one"
            ),
        },
        **reading,
    }


def begin_phase(
    group: CompiledGroup, start: str, states: Mapping[str, State], stops: State
) -> tuple[str, dict[str, State]]:
    """First state of a phase, and all states: it begins only for a saga that knows just these steps.

    Args:
        group: the phase.
        start: name of the first state.
        states: the states.
        stops: where it leads otherwise: ``Next`` and ``Assign``.
    """
    return _guard(start, states, f'({GIVEN} = "{group.shape}")', stops, asks=_asks(group.branches[0][0]))


def given_to_phase(group: CompiledGroup, outputs: str) -> str:
    """JSONata expression of a phase's input: the saga's, the outputs so far, and the phase as the saga knows it."""
    own = f'"{StartField.OUTPUTS}": {outputs}, "{StartField.DEFINITION}": "{group.shape}"'
    return f"$merge([{INPUT}, {{{own}}}])"


def given_by_recovery(plan: SagaPlan) -> str:
    """JSONata expression of the input with which a recovery starts the forward machine."""
    return f'$string($merge([{INPUT}, {{"{StartField.DEFINITION}": "{plan.fingerprint}"}}]))'


def _asks(first: Node) -> bool:
    """True if a state of its own asks: branches evaluate nothing first, and a call evaluates its user's expressions."""
    kind = group_kind(first.kind) if isinstance(first, CompiledGroup) else plain_kind(first.kind)
    return kind.asks_first


def _guard(
    start: str, states: Mapping[str, State], fits: str, other: State, *, asks: bool
) -> tuple[str, dict[str, State]]:
    """Lead elsewhere from the first state, unless the definition fits."""
    first = dict(states[start])
    if first["Type"] == "Choice":
        rule = {"Condition": expression(f"$not({fits})"), **other}
        return start, {**states, start: {**first, "Choices": [rule, *first["Choices"]]}}
    if asks:
        return SAME_DEFINITION, {SAME_DEFINITION: _choice(fits, start, other), **states}
    key = "Items" if first["Type"] == "Map" else "Arguments"
    catches = first["Catch"]
    at = next(n for n, catch in enumerate(catches) if {UNEVALUATED, "States.ALL"}.intersection(catch["ErrorEquals"]))
    caught = catches[at]
    unevaluated = {**caught, "ErrorEquals": [UNEVALUATED], "Next": SAME_DEFINITION}
    asked, asks_there = _nothing_unless(fits, first[key])
    if not asks_there:
        raise TypeError(
            f"the first state must evaluate an expression, got {start!r} without one; add a state that asks"
        )
    first |= {
        key: asked,
        "Retry": [{"ErrorEquals": [UNEVALUATED], "MaxAttempts": 0}, *first.get("Retry", ())],
        "Catch": [*catches[:at], unevaluated, *catches[at:]],
    }
    return start, {**states, start: first, SAME_DEFINITION: _choice(fits, caught["Next"], other)}


def _choice(fits: str, following: str, other: State) -> State:
    assigned = {"Assign": other["Assign"]} if "Assign" in other else {}
    return {
        "Type": "Choice",
        "Choices": [{"Condition": expression(fits), "Next": following}],
        "Default": other["Next"],
        **assigned,
    }


def _nothing_unless(fits: str, value: Any) -> tuple[Any, bool]:
    """The value, whose first expression evaluates to nothing unless the definition fits, and whether it has one."""
    if isinstance(value, str) and is_expression(value.strip()):
        return expression(f"({fits} ? ({bare(value)}))"), True
    if isinstance(value, list):
        items = list(value)
        for index, item in enumerate(items):
            items[index], found = _nothing_unless(fits, item)
            if found:
                return items, True
    elif isinstance(value, Mapping):
        fields = dict(value)
        for name, item in fields.items():
            fields[name], found = _nothing_unless(fits, item)
            if found:
                return fields, True
    return value, False
