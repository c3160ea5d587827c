"""One module writes to DynamoDB; each answer has one meaning there."""

from __future__ import annotations

import ast
import gc
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError

from saga_runtime.errors import Conflict, NotYet, PermanentError, TransientError
from saga_runtime.shared import aws, writes
from saga_runtime.shared.backoff import Backoff, Retry
from saga_runtime.shared.writes import Refused

ROOT = Path(__file__).parents[3]
OPERATIONS = {"put_item", "update_item", "delete_item", "transact_write_items", "batch_write_item"}
PUT: Any = {"Put": {"TableName": "t", "Item": {"id": {"S": "1"}}}}
ITEM = {"id": {"S": "1"}}
NONE, MET, FAILED, BUSY = "None", "TransactionConflict", "ConditionalCheckFailed", "ThrottlingError"


def _error(code: str, status: int = 400, **more: Any) -> ClientError:
    response: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}, **more}
    return ClientError(response, "PutItem")


def _cancelled(*codes: str) -> ClientError:
    reasons = [{"Code": code, **({"Item": ITEM} if code == FAILED else {})} for code in codes]
    return _error("TransactionCanceledException", CancellationReasons=reasons)


REFUSED = _error("ConditionalCheckFailedException", Item=ITEM)
CONFLICT = _error("TransactionConflictException")
THROTTLED = _error("ThrottlingException")
LOST = ReadTimeoutError(endpoint_url="https://dynamodb")
DENIED = _error("AccessDeniedException")


class Database:
    """Answers each call with the next answer; the last one again and again."""

    def __init__(self, answers: Sequence[Exception | None]) -> None:
        self.answers = list(answers)
        self.calls: list[Any] = []

    def _answer(self, **arguments: Any) -> dict[str, Any]:
        self.calls.append(arguments)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer
        return {"Item": ITEM}

    put_item = update_item = delete_item = transact_write_items = get_item = _answer


def _retry(**more: Any) -> Retry:
    return Retry(backoff=Backoff(attempts=3, base_ms=1, cap_ms=1), **more)


def _send(monkeypatch: pytest.MonkeyPatch, retry: Retry | None, *answers: Exception | None) -> tuple[Any, int]:
    database = Database(answers)
    monkeypatch.setattr(aws, "dynamodb", lambda: database)
    try:
        result: Any = writes.write(PUT, retry=retry)
    except (TransientError, ClientError, BotoCoreError) as error:
        result = error
    return result, len(database.calls)


@pytest.mark.parametrize("passes", [CONFLICT, THROTTLED, LOST, _error("InternalServerError", 500)])
def test_what_may_pass_is_sent_again_and_the_last_one_is_raised(
    monkeypatch: pytest.MonkeyPatch, passes: Exception
) -> None:
    assert _send(monkeypatch, _retry(), passes, passes, None) == (None, 3)
    error, calls = _send(monkeypatch, _retry(), passes)
    assert (type(error), calls) == (Conflict if passes is CONFLICT else TransientError, 3)
    assert _send(monkeypatch, None, passes) == (passes, 1)


def test_a_refusal_returns_the_item_that_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _send(monkeypatch, _retry(), REFUSED) == (Refused({0: ITEM}), 1)
    assert _send(monkeypatch, None, REFUSED) == (Refused({0: ITEM}), 1)


def test_a_refused_call_is_raised_unless_an_earlier_one_may_have_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _send(monkeypatch, _retry(), DENIED) == (DENIED, 1)
    assert _send(monkeypatch, _retry(), CONFLICT, DENIED) == (DENIED, 2)
    for may_have_written in (LOST, _error("InternalServerError", 500)):
        error, calls = _send(monkeypatch, _retry(), may_have_written, DENIED)
        assert (type(error), calls) == (TransientError, 2)


def test_a_policy_excludes_failures_and_ends_with_the_invocation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _send(monkeypatch, _retry(throttled=False), THROTTLED)[1] == 1
    assert _send(monkeypatch, _retry(unanswered=False), LOST)[1] == 1
    assert _send(monkeypatch, _retry(throttled=False, unanswered=False), CONFLICT)[1] == 3
    assert _send(monkeypatch, _retry(remaining_ms=lambda: 1_000), CONFLICT)[1] == 1


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ((FAILED, MET, BUSY), Refused({0: ITEM}, frozenset({1}))),
        ((MET, FAILED), Refused({1: ITEM}, frozenset({0}))),
        ((NONE, MET, BUSY), Conflict),
        ((NONE, BUSY), TransientError),
        ((NONE, "ValidationError"), ClientError),
    ],
)
def test_refusals_of_a_transaction_count_before_its_conflicts(
    monkeypatch: pytest.MonkeyPatch, codes: Sequence[str], expected: Any
) -> None:
    monkeypatch.setattr(aws, "dynamodb", lambda: Database([_cancelled(*codes)]))
    if isinstance(expected, Refused):
        assert writes.transact([PUT] * len(codes), retry=_retry()) == expected
        return
    with pytest.raises(expected) as raised:
        writes.transact([PUT] * len(codes), retry=_retry())
    assert type(raised.value) is expected


class Declined(PermanentError):
    """The judge's error."""


@pytest.mark.parametrize(("judged", "plans"), [(Conflict("met"), 3), (NotYet("later"), 1), (Declined("no"), 1)])
def test_a_plan_is_made_again_while_its_judge_finds_a_conflict(
    monkeypatch: pytest.MonkeyPatch, judged: Any, plans: int
) -> None:
    monkeypatch.setattr(aws, "dynamodb", lambda: Database([_cancelled(FAILED)]))
    made: list[int] = []

    def plan() -> Sequence[Any]:
        made.append(1)
        return [PUT]

    with pytest.raises(type(judged)):
        writes.commit(plan, lambda _: judged, retry=_retry())
    assert len(made) == plans


def test_the_error_of_a_refusal_is_freed_without_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws, "dynamodb", lambda: Database([_cancelled(FAILED)]))
    judged: list[weakref.ref[Exception]] = []

    def judge(_: Refused) -> Declined:
        error = Declined("no")
        judged.append(weakref.ref(error))
        return error

    gc.disable()
    try:
        with suppress(Declined):
            writes.commit(lambda: [PUT], judge, retry=_retry())
        assert [error() for error in judged] == [None]
    finally:
        gc.enable()


def test_an_empty_plan_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws, "dynamodb", lambda: Database([DENIED]))

    assert writes.commit(list, lambda _: None, retry=_retry()) is None


def test_a_read_is_strong_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database([LOST, None])
    monkeypatch.setattr(aws, "dynamodb", lambda: database)

    assert writes.read({"TableName": "t", "Key": ITEM}, retry=_retry()) == ITEM
    assert database.calls == [{"TableName": "t", "Key": ITEM, "ConsistentRead": True}] * 2


def test_no_other_module_calls_an_operation_that_writes() -> None:
    assert {call.partition(":")[0] for call in _calls()} == {"lambda_src/saga_runtime/shared/writes.py"}


def _calls() -> Iterator[str]:
    for folder in ("lambda_src", "constructs_lib"):
        for file in (ROOT / folder).rglob("*.py"):
            name = str(file.relative_to(ROOT))
            if name.startswith(
                ("constructs_lib/testing/", "constructs_lib/cli/init/")
            ):  # what users test with, and own
                continue
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Attribute) and node.attr in OPERATIONS:
                    yield f"{name}:{node.lineno}"


class Batches:
    """Holds the items of any table, and answers for so many keys at once; with an error first, if there is one."""

    def __init__(self, most: int, *errors: Exception) -> None:
        self.most = most
        self.errors = list(errors)
        self.calls: list[list[tuple[str, str]]] = []

    def batch_get_item(self, *, RequestItems: Any) -> Any:  # noqa: N803
        assert all(asked["ConsistentRead"] for asked in RequestItems.values())
        keys = [(table, key["id"]["S"]) for table, asked in RequestItems.items() for key in asked["Keys"]]
        self.calls.append(keys)
        if self.errors:
            raise self.errors.pop(0)
        responses: dict[str, Any] = {table: [] for table in RequestItems}
        unprocessed: dict[str, Any] = {}
        for table, name in keys[: self.most]:
            responses[table].append({"id": {"S": name}})
        for table, name in keys[self.most :]:
            left = unprocessed.setdefault(table, {**RequestItems[table], "Keys": []})
            left["Keys"].append({"id": {"S": name}})
        return {"Responses": responses, "UnprocessedKeys": unprocessed}


def _read_all(monkeypatch: pytest.MonkeyPatch, batches: Batches, **keys: Sequence[str]) -> dict[str, list[str]]:
    monkeypatch.setattr(aws, "dynamodb", lambda: batches)
    asked = {table: [{"id": {"S": name}} for name in names] for table, names in keys.items()}
    found = writes.read_all(asked, retry=_retry())
    return {table: [item["id"]["S"] for item in items] for table, items in found.items()}


def test_keys_that_are_left_unprocessed_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = Batches(2)

    assert _read_all(monkeypatch, batches, t=["1"], u=["1", "2", "3"]) == {"t": ["1"], "u": ["1", "2", "3"]}
    assert batches.calls == [[("t", "1"), ("u", "1"), ("u", "2"), ("u", "3")], [("u", "2"), ("u", "3")]]


def test_a_hundred_keys_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    batches, names = Batches(100), [str(number) for number in range(250)]

    assert _read_all(monkeypatch, batches, t=names) == {"t": names}
    assert list(map(len, batches.calls)) == [100, 100, 50]


def test_a_batch_that_stays_unprocessed_is_a_database_that_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = Batches(0)

    with pytest.raises(TransientError, match="busy"):
        _read_all(monkeypatch, batches, t=["1"])
    assert len(batches.calls) == 3


def test_a_batch_that_failed_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = Batches(1, THROTTLED, LOST)

    assert _read_all(monkeypatch, batches, t=["1"]) == {"t": ["1"]}
    assert len(batches.calls) == 3
    with pytest.raises(ClientError):
        _read_all(monkeypatch, Batches(1, DENIED), t=["1"])


def test_nothing_is_read_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _read_all(monkeypatch, Batches(1), t=[]) == {"t": []}
