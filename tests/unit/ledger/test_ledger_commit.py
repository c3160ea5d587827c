"""Postings outside a saga: conflicts are tried again and counted, everything else comes back at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from saga_runtime import AccountClosed, Clearing, DirectEntry, DuplicatePosting, InsufficientFunds, Ledger, Money, Write
from saga_runtime.errors import Conflict, Invalid, PermanentError, TransientError
from saga_runtime.ledger.commit import DIRECT, commit_direct
from saga_runtime.ledger.items import Leg
from saga_runtime.protocol import Metric
from saga_runtime.shared import aws
from saga_runtime.shared.backoff import Backoff
from tests.unit.support.samples import NOW_MS
from tests.unit.support.wire import Action, Fault, Moment
from tests.unit.support.world import World

LEDGER = Ledger("ledger")
TEN = Money(10, "EUR")


@pytest.fixture(autouse=True)
def accounts(world: World) -> None:
    """Two accounts."""
    world.open_accounts(alice=500, bob=0)
    world.wire.forget()


def plan() -> Sequence[Write]:
    """A transfer under one entry id."""
    return LEDGER.transfer(DirectEntry("t-1"), source="alice", target="bob", amount=TEN)


def test_a_conflict_is_retried_after_50_100_and_200_ms_and_more(world: World) -> None:
    world.wire.plan(Fault(operation="TransactWriteItems", action=Action.CONFLICT, times=3))

    assert LEDGER.commit(plan)

    assert world.balances() == {"alice": 490, "bob": 10}
    assert world.telemetry.counts[Metric.CONFLICT] == 3
    assert [0.05 <= world.naps[0] <= 0.075, 0.1 <= world.naps[1] <= 0.15, 0.2 <= world.naps[2] <= 0.3] == [True] * 3


def test_every_conflict_is_counted_the_last_one_too(world: World) -> None:
    world.wire.plan(Fault(operation="TransactWriteItems", action=Action.CONFLICT, times=4))

    with pytest.raises(Conflict):
        LEDGER.commit(plan)

    assert world.telemetry.counts[Metric.CONFLICT] == 4
    assert len(world.naps) == 3
    assert world.balances() == {"alice": 500, "bob": 0}


def test_tries_can_be_configured(world: World) -> None:
    world.wire.plan(Fault(operation="TransactWriteItems", action=Action.CONFLICT, times=1))

    with pytest.raises(Conflict):
        LEDGER.commit(plan, backoff=Backoff(attempts=1))


def test_a_throttle_is_raised_at_once(world: World) -> None:
    world.wire.plan(Fault(operation="TransactWriteItems", action=Action.THROTTLE, times=3))

    with pytest.raises(TransientError) as raised:
        LEDGER.commit(plan)

    assert not isinstance(raised.value, Conflict)
    assert world.telemetry.counts[Metric.CONFLICT] == 0
    assert world.wire.sent.count("TransactWriteItems") == 3  # by the SDK


def test_after_a_lost_response_the_same_entry_id_finds_the_posting(world: World) -> None:
    world.wire.plan(Fault(operation="TransactWriteItems", action=Action.DROP, moment=Moment.AFTER, times=3))

    with pytest.raises(TransientError, match="did not answer"):
        LEDGER.commit(plan)
    with pytest.raises(DuplicatePosting, match="entry t-1 of alice exists"):
        LEDGER.commit(plan)

    assert world.balances() == {"alice": 490, "bob": 10}


@pytest.mark.parametrize(("moved", "refusal"), [(400, InsufficientFunds), (500, AccountClosed)])
def test_a_posting_that_exists_is_never_refused_for_what_it_did(
    world: World, moved: int, refusal: type[PermanentError]
) -> None:
    """Its caller would take the payment for refused, and pay in another way."""
    legs: list[Leg] = [("alice", Money(-moved, "EUR")), (Clearing("fx"), Money(moved, "EUR"))]
    world.wire.plan(Fault(operation="TransactWriteItems", action=Action.DROP, moment=Moment.AFTER, times=3))

    with pytest.raises(TransientError, match="did not answer"):
        LEDGER.commit(lambda: LEDGER.post(DirectEntry("t-1"), legs))
    if refusal is AccountClosed:
        (alice,) = LEDGER.accounts("alice")
        assert LEDGER.commit(lambda: LEDGER.builder.close_account(account=alice))
    with pytest.raises(DuplicatePosting, match="a posting under the id t-1 exists"):
        LEDGER.commit(lambda: LEDGER.post(DirectEntry("t-1"), legs))
    with pytest.raises(refusal):
        LEDGER.commit(lambda: LEDGER.post(DirectEntry("t-2"), legs))


def test_another_posting_under_the_id_of_one_is_refused_for_that(world: World) -> None:
    """They share a clearing account's entry. What no account decides is refused for itself."""
    entry = DirectEntry("t-1")
    LEDGER.commit(lambda: LEDGER.debit(entry, account="alice", amount=TEN, clearing="fx"))

    with pytest.raises(DuplicatePosting):
        LEDGER.debit(entry, account="bob", amount=TEN, clearing="fx")
    with pytest.raises(Invalid, match="net"):
        LEDGER.post(entry, [("alice", TEN)])


def test_the_refusal_of_a_call_that_has_a_row_or_record_reads_no_entries(world: World) -> None:
    call: Any = SimpleNamespace(key="step-key", now_ms=NOW_MS)

    with pytest.raises(InsufficientFunds):
        LEDGER.debit(call, account="bob", amount=TEN, clearing="fx")

    assert world.wire.sent == ["BatchGetItem"]


def test_two_postings_that_meet_on_an_entry_are_refused_before_anything_is_sent(world: World) -> None:
    world.open_accounts(carol=500)
    world.wire.forget()
    entry = DirectEntry("t-1")

    def both() -> Sequence[Write]:
        one, other = (LEDGER.debit(entry, account=name, amount=TEN, clearing="fx") for name in ("alice", "carol"))
        return [*one, *other]

    with pytest.raises(Invalid, match=r"of different items, got number 2 and number 5 of one; .* all their legs"):
        LEDGER.commit(both)

    assert world.wire.sent == ["BatchGetItem"] * 2


def test_a_stale_read_is_read_again(world: World) -> None:
    stale = plan()
    LEDGER.commit(lambda: LEDGER.transfer(DirectEntry("t-0"), source="alice", target="bob", amount=TEN))
    plans = iter([stale])

    assert LEDGER.commit(lambda: next(plans, None) or plan())

    assert world.balances() == {"alice": 480, "bob": 20}
    assert world.telemetry.counts[Metric.CONFLICT] == 1


def test_a_plan_that_refuses_sends_nothing(world: World) -> None:
    def too_much() -> Sequence[Write]:
        return LEDGER.transfer(DirectEntry("t-1"), source="alice", target="bob", amount=Money(501, "EUR"))

    with pytest.raises(InsufficientFunds):
        LEDGER.commit(too_much)

    assert "TransactWriteItems" not in world.wire.sent


def test_a_plan_of_nothing_writes_nothing(world: World) -> None:
    assert not LEDGER.commit(list)
    assert world.wire.sent == []


NONE, CONFLICT, FAILED, THROTTLED = (
    {"Code": code} for code in ("None", "TransactionConflict", "ConditionalCheckFailed", "ThrottlingError")
)


@pytest.mark.parametrize(
    ("reasons", "error"),
    [
        ([CONFLICT, NONE], Conflict),
        ([CONFLICT, FAILED], PermanentError),
        ([FAILED, CONFLICT], PermanentError),
        ([THROTTLED, FAILED], PermanentError),
        ([THROTTLED, CONFLICT], Conflict),
        ([THROTTLED, NONE], TransientError),
    ],
)
def test_a_failed_condition_wins_over_a_conflict_and_a_conflict_over_a_throttle(
    world: World, monkeypatch: pytest.MonkeyPatch, reasons: list[dict[str, str]], error: type[Exception]
) -> None:
    def refuse(**_: Any) -> None:
        response: Any = {"Error": {"Code": aws.TRANSACTION_CANCELED}, "CancellationReasons": reasons}
        raise ClientError(response, "TransactWriteItems")

    monkeypatch.setattr(aws.dynamodb(), "transact_write_items", refuse)
    writes = [Write(action={"Put": {}}, refusal=lambda _: PermanentError("no")) for _ in reasons]

    with pytest.raises(error) as raised:
        commit_direct(lambda: writes, backoff=Backoff(attempts=1))

    assert type(raised.value) is error


def test_a_write_without_a_refusal_is_a_stale_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    response: Any = {"Error": {"Code": aws.TRANSACTION_CANCELED}, "CancellationReasons": [FAILED]}
    monkeypatch.setattr(aws.dynamodb(), "transact_write_items", _raising(ClientError(response, "TransactWriteItems")))

    with pytest.raises(Conflict, match="an item changed"):
        commit_direct(lambda: [Write(action={"Put": {}})], backoff=Backoff(attempts=1))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (aws.TRANSACTION_CONFLICT, Conflict),
        ("ThrottlingException", TransientError),
        ("AccessDeniedException", ClientError),
    ],
)
def test_other_responses_of_the_service(
    world: World, monkeypatch: pytest.MonkeyPatch, code: str, error: type[Exception]
) -> None:
    response: Any = {"Error": {"Code": code}}
    monkeypatch.setattr(aws.dynamodb(), "transact_write_items", _raising(ClientError(response, "TransactWriteItems")))

    with pytest.raises(error) as raised:
        commit_direct(plan, backoff=Backoff(attempts=1))

    assert type(raised.value) is error


def _raising(error: Exception) -> Callable[..., None]:
    def raises(**_: Any) -> None:
        raise error

    return raises


def test_the_default_is_three_more_tries() -> None:
    assert (DIRECT.attempts, [DIRECT.delay_ms(n, 0) for n in (1, 2, 3)]) == (4, [50, 100, 200])
    assert [DIRECT.delay_ms(n, 1) for n in (1, 2, 3)] == [75, 150, 300]


@pytest.mark.parametrize("key", ["", " ", "k" * 256, None])
def test_an_entry_has_an_id(key: Any) -> None:
    with pytest.raises(Invalid, match="an entry's id"):
        DirectEntry(key)
