"""Outputs that an execution has not seen, or that a step sees differently: read from the log.

A function reads them itself, one by one, so no state has to hold them. Its call names those that its step saw.
Expressions need them in ``$outputs``: those that they name are read before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from constructs_lib.saga.asl.flow import Flow
from constructs_lib.saga.asl.items import ITEM_KEY
from constructs_lib.saga.asl.plan import CompiledGroup, CompiledStep, Node, SagaPlan, State
from constructs_lib.saga.asl.states import SAGA_ID, call, row_key
from constructs_lib.saga.steps.jsonata import expression
from saga_runtime.protocol import CallField, LogAttribute, LoggedField, StepStatus

KNOWN_ON_THE_WAY_BACK: Final = "($exists($outputs) ? $outputs : {})"
"""Expression of the outputs there: nothing, if the saga turned round before its first step answered."""
_REST: Final = "rest"
"""Variable with the position at which a query of the log continues; an empty object at its end."""
_OF_SKIPPED: Final = (LogAttribute.STATUS, LogAttribute.ERROR, LogAttribute.SUBSTITUTE)
"""What a row of a skipped step has besides an output; a substitute is another one."""
_ROWS_WITH_OUTPUTS: Final = 3
"""So many rows with outputs fit a state, whatever is in them: an output may double when it is escaped."""


def outputs_in_the_log(plan: SagaPlan, flow: Flow, step: CompiledStep, known: str | None) -> State:
    """Fields of a call by which its function knows the outputs that its step saw.

    Args:
        plan: the plan.
        flow: where the call is made.
        step: whose function it is.
        known: expression of the outputs that are at hand. Those that no row keeps are taken from there.
    """
    seen = list(_seen_by(plan, step))
    own = [leaf for leaf, group in seen if flow.of_map is not None and group is flow.of_map]
    before = [(leaf, group) for leaf, group in seen if leaf not in own]
    told: State = {
        LoggedField.STEPS: [leaf.name for leaf, group in before if leaf.recorded and not _is_map(group)],
        LoggedField.PER_ITEM: [leaf.name for leaf, group in before if leaf.recorded and _is_map(group)],
        LoggedField.OWN: [leaf.name for leaf in own if leaf.recorded],
    }
    instead = {leaf.name: _instead_of(leaf) for leaf, _ in seen if leaf.recorded and leaf.going_on}
    if instead:
        # As text: nothing in an output may be taken for an expression.
        told[LoggedField.INSTEAD] = json.dumps(instead, sort_keys=True)
    unkept = [leaf.name for leaf, _ in seen if not leaf.recorded]
    at_hand = "{}"
    if unkept and known is not None:
        # Nothing that a function found is an empty object, which is nothing to JSONata.
        at_hand = f"$merge([{{}}, $sift({known}, function($v, $k) {{ $k in {json.dumps(unkept)} }})])"
    return {CallField.OUTPUTS: expression(at_hand), CallField.LOGGED: told}


def known_on_the_way_back(group: CompiledGroup | None) -> str:
    """Expression of the outputs in a compensation; in an item of a map, its own ones without the item's key."""
    if group is None:
        return KNOWN_ON_THE_WAY_BACK
    names = json.dumps([step.name for step in group.leaves])
    others = f"$sift($o, function($v, $k) {{ $not($k in {names}) }})"
    own = f"{names}.($v := $lookup($lookup($o, $), $key); $exists($v) ? {{$: $v}} : {{}})"
    return f"($o := {KNOWN_ON_THE_WAY_BACK}; $key := {ITEM_KEY}; $merge([{{}}, {others}, {own}]))"


def read_outputs(
    plan: SagaPlan, names: Iterable[str], following: str, *, label: str = ""
) -> tuple[str, dict[str, State]]:
    """Assign these steps' outputs to ``$outputs``: by step, and of a map's steps by item key.

    Args:
        plan: the plan.
        names: the steps.
        following: the next state.
        label: distinguishes these states from others that read the same.

    Returns:
        Name of the first state, and the states.
    """
    states: dict[str, State] = {}
    for step, group in _placed(plan.steps):
        if step.name in names and step.recorded:
            first = f"Read output of {step.name}{label}"
            states |= (
                _read_items(plan, step, first, following)
                if _is_map(group)
                else {first: _read_one(plan, step, following)}
            )
            following = first
    return following, states


def _read_one(plan: SagaPlan, step: CompiledStep, following: str) -> State:
    found = f"$states.result.Item.{LogAttribute.OUTPUT}.S"
    with_it = f'$merge([$o, {{"{step.name}": $parse({found})}}])'
    outputs = f"($o := {KNOWN_ON_THE_WAY_BACK}; $exists({found}) ? {with_it} : $o)"
    if step.going_on:
        seen = f"$states.result.Item.{_seen_of(step)}"
        with_it = f'$merge([$o, {{"{step.name}": $seen}}])'
        outputs = f"($o := {KNOWN_ON_THE_WAY_BACK}; $seen := {seen}; $exists($seen) ? {with_it} : $o)"
    return {
        **call("dynamodb:getItem"),
        "Arguments": {"TableName": plan.log_table, "Key": row_key(step.name), "ConsistentRead": True},
        "Assign": {"outputs": expression(outputs)},
        "Next": following,
    }


def _read_items(plan: SagaPlan, step: CompiledStep, first: str, following: str) -> dict[str, State]:
    a, name = LogAttribute, f"{LogAttribute.STEP}.S"
    key = f'$substringBefore($substringAfter({name}, "["), "]")'
    page = f"$states.result.Items[$exists({a.OUTPUT})].{{{key}: $parse({a.OUTPUT}.S)}}"
    read, at_most = [a.STEP, a.OUTPUT], _ROWS_WITH_OUTPUTS
    if step.going_on:
        page = f"$states.result.Items.($seen := {_seen_of(step)}; $exists($seen) ? {{{key}: $seen}} : {{}})"
        read, at_most = [*read, *_OF_SKIPPED], _ROWS_WITH_OUTPUTS // 2
    items = f'$merge([{{}}, $lookup($o, "{step.name}"), {page}])'
    outputs = expression(f'($o := {KNOWN_ON_THE_WAY_BACK}; $merge([$o, {{"{step.name}": {items}}}]))')
    arguments = rows(plan, *read) | {"Limit": at_most}
    arguments["KeyConditionExpression"] += f" AND begins_with(#{a.STEP}, :items)"
    arguments["ExpressionAttributeValues"] |= {":items": {"S": f"{step.name}["}}
    over = f"{first}: all?"
    return pages(first, arguments, {"outputs": outputs}, over=over) | {
        over: {"Type": "Choice", "Choices": [next_page(first)], "Default": following}
    }


def _instead_of(step: CompiledStep) -> dict[str, Any]:
    """The substitute output of each refusal by which a step is skipped."""
    return {error: dict(route.output) for error, route in step.going_on.items()}


def _seen_of(step: CompiledStep) -> str:
    """JSONata, within a row, of what later steps saw of a step that may be skipped; nothing: they saw nothing.

    A provider's refusal is in the row by its name. What the provider did after all is not what the saga relies on.
    """
    a, instead = LogAttribute, json.dumps(_instead_of(step), sort_keys=True)
    refused = f'$exists({a.ERROR}) and {a.STATUS}.S != "{StepStatus.DONE}"'
    own = f"$exists({a.OUTPUT}) ? $parse({a.OUTPUT}.S)"
    return f"($exists({a.SUBSTITUTE}) ? $parse({a.SUBSTITUTE}.S) : {refused} ? $lookup({instead}, {a.ERROR}.S) : {own})"


def pages(first: str, arguments: State, assign: State, *, over: str, again: State | None = None) -> dict[str, State]:
    """Two states that read the log page by page: the first one, and the one that a rule of ``over`` leads back to.

    Args:
        first: name of the first state.
        arguments: of the query.
        assign: what a page is made of.
        over: name of the choice behind each page; one of its rules is ``next_page``.
        again: what every further page is made of, where it differs.
    """
    rest = "$states.result.LastEvaluatedKey"
    told = {_REST: expression(f"$exists({rest}) ? {rest} : {{}}")}
    query = call("aws-sdk:dynamodb:query")
    further = arguments | {"ExclusiveStartKey": expression(f"${_REST}")}
    return {
        first: {**query, "Arguments": arguments, "Assign": assign | told, "Next": over},
        f"{first} - more": {**query, "Arguments": further, "Assign": (again or assign) | told, "Next": over},
    }


def next_page(first: str, *, while_: str = "true") -> State:
    """Rule of a choice: on to the next page, if there is one and it matters."""
    more = f"$exists(${_REST}.{LogAttribute.SAGA_ID}) and {while_}"
    return {"Condition": expression(more), "Next": f"{first} - more"}


def rows(plan: SagaPlan, *attributes: LogAttribute) -> State:
    """Arguments of a query of a saga's rows."""
    names = {f"#{name}": name for name in attributes}
    return {
        "TableName": plan.log_table,
        "ConsistentRead": True,
        "KeyConditionExpression": "#saga_id = :saga_id",
        "ProjectionExpression": ", ".join(names),
        "ExpressionAttributeNames": {"#saga_id": LogAttribute.SAGA_ID, **names},
        "ExpressionAttributeValues": {":saga_id": {"S": expression(SAGA_ID)}},
    }


def _placed(nodes: Iterable[Node]) -> Iterator[tuple[CompiledStep, CompiledGroup | None]]:
    for node in nodes:
        for leaf in node.leaves:
            yield leaf, node if isinstance(node, CompiledGroup) else None


def _seen_by(plan: SagaPlan, step: CompiledStep) -> Iterator[tuple[CompiledStep, CompiledGroup | None]]:
    """Steps whose outputs a step sees: those before it; within a group, those of its own branch."""
    for node in plan.steps:
        if step not in node.leaves:
            yield from _placed([node])
            continue
        if isinstance(node, CompiledGroup):
            branch = next(branch for branch in node.branches if step in branch)
            yield from ((leaf, node) for leaf in branch[: branch.index(step)])
        return


def _is_map(group: CompiledGroup | None) -> bool:
    return group is not None and group.per_item
