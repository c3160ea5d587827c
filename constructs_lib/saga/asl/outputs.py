"""What a saga's steps answered, and where they stand, read from its log."""

from __future__ import annotations

from constructs_lib.saga.asl.plan import SagaPlan, State
from constructs_lib.saga.asl.states import SAGA_ID, call, expression
from saga_runtime.protocol import LogAttribute


def read_outputs(plan: SagaPlan, following: str) -> State:
    """Assign ``$outputs`` from the log: by step, and in a map by step and item key.

    Needed where an execution has not seen them itself: in a recovery, or when a group failed that answered nothing.
    """
    a = LogAttribute
    name = f"{a.STEP.value}.S"
    value = f"$parse({a.OUTPUT.value}.S)"
    answered = f"$states.result.Items[$exists({a.OUTPUT.value})]"
    in_a_map = f'$contains({name}, "[")'
    of_steps = f"{answered}[$not({in_a_map})].{{{name}: {value}}}"
    item_key = f'$substringBefore($substringAfter({name}, "["), "]")'
    grouped = f'$m{{$substringBefore({name}, "["): $merge([$.{{{item_key}: {value}}}])}}'
    of_items = f"($m := {answered}[{in_a_map}]; $exists($m) ? {grouped} : {{}})"
    return {
        **call("aws-sdk:dynamodb:query"),
        "Arguments": rows(plan, a.STEP, a.OUTPUT),
        "Assign": {"outputs": expression(f"$merge([{{}}, {of_steps}, {of_items}])")},
        "Next": following,
    }


def rows(plan: SagaPlan, *attributes: LogAttribute) -> State:
    """Arguments of a query of a saga's rows."""
    names = {f"#{name.value}": name.value for name in attributes}
    return {
        "TableName": plan.log_table,
        "ConsistentRead": True,
        "KeyConditionExpression": "#saga_id = :saga_id",
        "ProjectionExpression": ", ".join(names),
        "ExpressionAttributeNames": {"#saga_id": LogAttribute.SAGA_ID.value, **names},
        "ExpressionAttributeValues": {":saga_id": {"S": expression(SAGA_ID)}},
    }
