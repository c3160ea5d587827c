"""Results of the tasks of an interpreted definition, and the records and rows that they read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.constructs.support.interpreter import Answer, Failure, Run
from tests.constructs.support.jsonata import EXECUTION

CONDITION_FAILED = Failure("DynamoDB.ConditionalCheckFailedException")


def refusal(error: str = "Invalid", message: str = "no") -> Failure:
    """A function's exception, as Lambda reports it."""
    cause = {"errorMessage": message, "errorType": error, "requestId": "r", "stackTrace": ["  secret\n"]}
    return Failure(error, json.dumps(cause))


def canceled(*codes: str) -> Failure:
    """A transaction that was canceled."""
    reasons = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{', '.join(codes)}]"
    return Failure("DynamoDb.TransactionCanceledException", reasons)


def answers(by_state: dict[str, Any] | None = None, **others: Any) -> Answer:
    """Answers by state name (``_`` for a space).

    An answer is a result, a failure to raise, a list of these, one for each call (the last one for all further ones),
    or a function of the arguments.
    """
    known = {**(by_state or {}), **{name.replace("_", " "): answer for name, answer in others.items()}}
    numbers: dict[str, int] = {}

    def answer(name: str, arguments: Any) -> Any:
        found = known.get(name, _usual(name))
        if isinstance(found, list):
            number = numbers[name] = numbers.get(name, -1) + 1
            found = found[min(number, len(found) - 1)]
        if isinstance(found, Failure):
            raise found
        return found(arguments) if callable(found) else found

    return answer


def _usual(name: str) -> Any:
    if name == "Query saga log":
        return {"Count": 0}
    if name.startswith("Read output of "):
        return {}
    if name.startswith("Read "):
        return {"Items": []}
    return {"Payload": {"output": {"of": name}}}


def by_item(answer: Any, *, others: Any, key: str = "b") -> Callable[[Any], Any]:
    """One answer for the item of a key, another one for the rest."""

    def of(arguments: Any) -> Any:
        found = answer if arguments["Payload"]["item_key"] == key else others
        if isinstance(found, Failure):
            raise found
        return found

    return of


def row(status: str, output: str = '{"entry": "e"}') -> dict[str, Any]:
    """A row of the saga log, as a read answers it."""
    return {"Item": {"status": {"S": status}, "output": {"S": output}}}


def record(**changes: str) -> dict[str, Any]:
    """The saga's record, as a read answers it."""
    item = {"saga_id": EXECUTION, "owner": EXECUTION, "status": "IN_PROGRESS", "definition": "d", **changes}
    return {"Item": {name: {"S": value} for name, value in item.items()}}


def body(done: Run, state: str = "Settle completed") -> Any:
    """The answer that a settling state stores."""
    return json.loads(done.sent[state]["ExpressionAttributeValues"][":body"]["S"])


def operators_are_told(done: Run) -> dict[str, Any]:
    """The operators' entry of a saga that was parked."""
    assert done.trace[-3:] == ["Notify operators", "Park saga", "End parked"], done.trace
    entry: dict[str, Any] = json.loads(done.sent["Notify operators"]["MessageBody"])
    assert entry["saga_id"] == EXECUTION
    assert (
        json.loads(done.sent["Park saga"]["ExpressionAttributeValues"][":parked_reason"]["S"]) == entry["parked_reason"]
    )
    return entry


def called(done: Run, state: str) -> list[Any]:
    """Arguments of each call that a state made."""
    return [arguments for name, arguments in done.calls if name == state]


def seen_in_the_log(done: Run, state: str) -> dict[str, list[str]]:
    """Steps whose outputs a function was asked to read from the log."""
    seen: dict[str, list[str]] = done.sent[state]["Payload"]["logged"]
    return seen


def keys_called(done: Run, state: str) -> list[str]:
    """Keys of the items that a state's function was called for."""
    return [arguments["Payload"]["item_key"] for arguments in called(done, state)]
