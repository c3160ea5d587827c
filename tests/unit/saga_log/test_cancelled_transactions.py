"""Outcomes of a cancelled transaction, by the reasons that DynamoDB gives for each of its entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from botocore.exceptions import ClientError

from saga_runtime.errors import Conflict, PermanentError, TransientError
from saga_runtime.saga_log.transaction import FirstRefused, commit_first
from saga_runtime.saga_log.write import Write
from saga_runtime.shared import aws
from saga_runtime.shared.backoff import Backoff

FIRST = {"Put": {"TableName": "t", "Item": {"id": {"S": "first"}}}}
PUT = {"Put": {"TableName": "t", "Item": {"id": {"S": "other"}}}}
NONE, CONFLICT, FAILED, THROTTLED = "None", "TransactionConflict", "ConditionalCheckFailed", "ThrottlingError"


class Refused(PermanentError):
    """The write's own refusal."""


class _Client:
    def __init__(self, reasons: Sequence[Mapping[str, Any]]) -> None:
        self.reasons = reasons
        self.calls = 0

    def transact_write_items(self, **_: Any) -> None:
        """Cancel."""
        self.calls += 1
        response: Any = {
            "Error": {"Code": "TransactionCanceledException", "Message": "cancelled"},
            "CancellationReasons": list(self.reasons),
        }
        raise ClientError(response, "TransactWriteItems")


def _commit(monkeypatch: pytest.MonkeyPatch, *codes: str, throttles: bool = True) -> tuple[Any, int]:
    client = _Client([{"Code": code} for code in codes])
    monkeypatch.setattr(aws, "dynamodb", lambda: client)
    writes = [Write(action=PUT, refusal=lambda _: Refused("refused")) for _ in codes[1:]]
    try:
        result: Any = commit_first(
            lambda: (FIRST, writes),
            remaining_ms=lambda: 60_000,
            backoff=Backoff(attempts=2, base_ms=1, cap_ms=1),
            throttles=throttles,
        )
    except Exception as error:  # noqa: BLE001  # the outcome
        result = error
    return result, client.calls


@pytest.mark.parametrize("others", [(CONFLICT, NONE), (FAILED, CONFLICT), (THROTTLED, FAILED)])
def test_the_first_entrys_refusal_decides(monkeypatch: pytest.MonkeyPatch, others: tuple[str, str]) -> None:
    assert _commit(monkeypatch, FAILED, *others) == (FirstRefused(item=None), 1)


@pytest.mark.parametrize("others", [(CONFLICT, FAILED), (FAILED, CONFLICT), (FAILED, THROTTLED), (FAILED, NONE)])
def test_a_refused_write_decides_at_once_despite_conflicts(
    monkeypatch: pytest.MonkeyPatch, others: tuple[str, str]
) -> None:
    result, calls = _commit(monkeypatch, NONE, *others)

    assert (type(result), calls) == (Refused, 1)


def test_a_conflict_of_the_first_entry_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another attempt may be writing the first entry, and may have done just what refuses this write."""
    result, calls = _commit(monkeypatch, CONFLICT, FAILED)

    assert (type(result), calls) == (Conflict, 2)


@pytest.mark.parametrize(("throttles", "calls"), [(True, 2), (False, 1)])
def test_a_throttled_item_is_retried_where_throttles_are(
    monkeypatch: pytest.MonkeyPatch, throttles: bool, calls: int
) -> None:
    result, sent = _commit(monkeypatch, NONE, THROTTLED, throttles=throttles)

    assert isinstance(result, TransientError)
    assert not isinstance(result, Conflict)
    assert sent == calls
