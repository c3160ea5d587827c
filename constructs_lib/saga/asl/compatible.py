"""Test of the rows of a saga that began under another definition."""

from __future__ import annotations

import json
from typing import Final

from constructs_lib.saga.asl.outputs import rows
from constructs_lib.saga.asl.plan import CompiledGroup, Node, SagaPlan, State
from saga_runtime.protocol import NOTHING_STANDS, WAYS_AT, LogAttribute, RecordAttribute, StepStatus

READ_ROWS: Final = "Query log rows"
COMPATIBLE: Final = "Definition compatible?"
RAN_UNDER: Final = f"$record.{RecordAttribute.DEFINITION}.S"
"""Definition of the saga's last owner, in the record that was read."""
_ROWS: Final = 1_000
"""So many rows without outputs fit a state."""


def rows_that_fit(plan: SagaPlan) -> State:
    """Arguments of the query whose pages ``fits`` tests."""
    return rows(plan, LogAttribute.STEP, LogAttribute.SIDE, LogAttribute.STATUS) | {"Limit": _ROWS}


def fits(plan: SagaPlan) -> str:
    """JSONata condition: each row with an effect is of a step of this definition, on its side of the pivot."""
    a = LogAttribute
    sides = json.dumps(
        {
            f"{step.name}[]" if _per_item(node) else step.name: plan.side_of(step).value
            for node in plan.steps
            for step in node.leaves
        },
        sort_keys=True,
    )
    stands = ", ".join(f'"{status}"' for status in StepStatus if status not in NOTHING_STANDS)
    name = f"{a.STEP}.S"
    side = f'$lookup($sides, $contains({name}, "[") ? $substringBefore({name}, "[") & "[]" : {name})'
    return (
        f"($sides := {sides}; $rows := $states.result.Items[{a.STATUS}.S in [{stands}]];"
        f" $count($rows[{side} = {a.SIDE}.S]) = $count($rows))"
    )


def other_names(plan: SagaPlan) -> str:
    """JSONata condition: the saga's last owner ran under another definition, conditions aside."""
    return f'$substring({RAN_UNDER}, 0, {WAYS_AT}) != "{plan.fingerprint[:WAYS_AT]}"'


def same_ways(plan: SagaPlan) -> str:
    """JSONata condition: the saga began by this definition's conditions, and keys of a map's items."""
    return f'$substring({RAN_UNDER}, {WAYS_AT}) = "{plan.fingerprint[WAYS_AT:]}"'


def _per_item(node: Node) -> bool:
    return isinstance(node, CompiledGroup) and node.per_item
