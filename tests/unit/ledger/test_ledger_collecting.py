"""Collecting accounts: credits into shards without a read, sweeps that lose nothing, exact audits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from constructs_lib.cli.trial_balance import add_up
from constructs_lib.testing.invariants import assert_all_hold, audit_ledger
from handlers import ledger_sweeper
from saga_runtime import (
    CapExceeded,
    Clearing,
    CollectingAccounts,
    Commit,
    CurrencyMismatch,
    DirectEntry,
    DuplicatePosting,
    InsufficientFunds,
    Ledger,
    LedgerTerms,
    Money,
    StepCall,
    VersionedItem,
    atomic_step,
    commit_once,
    compensation,
)
from saga_runtime.errors import Conflict, Invalid, TransientError
from saga_runtime.ledger.collecting import sweep_shard
from saga_runtime.ledger.items import CLOSES_AFTER_MS, DAY_MS, Leg, Party, Shard, closes_at, window_of
from saga_runtime.money import MAX_MINOR_UNITS
from saga_runtime.protocol import LEDGER_DUE_SHARDS, Env, Metric
from saga_runtime.shared import aws
from tests.unit.support.samples import NOW_MS, step_event
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import Context, World

SHARDS = 4
TERMS = LedgerTerms(collecting=(CollectingAccounts(prefix="merchant:", unit="EUR", shards=SHARDS),), holds=True)
LEDGER = Ledger("ledger", TERMS)
SHOP = "merchant:7"
TODAY = window_of(NOW_MS)


def eur(minor: int) -> Money:
    """Euros."""
    return Money(minor, "EUR")


@pytest.fixture(autouse=True)
def accounts(world: World) -> None:
    """A customer and a merchant."""
    world.open_accounts(**{"customer": 10_000, SHOP: 0})
    world.wire.forget()


def pay(amount: int = 10, key: str = "p-1") -> bool:
    """A payment of the customer to the merchant."""
    call = DirectEntry(key)
    return LEDGER.commit(lambda: LEDGER.post(call, [("customer", eur(-amount)), (SHOP, eur(amount))]))


def load(amount: int = 10, key: str = "p-1") -> bool:
    """Money for the merchant out of a clearing account: no account is read."""
    call = DirectEntry(key)
    return LEDGER.commit(lambda: LEDGER.credit(call, account=SHOP, amount=eur(amount), clearing="fx"))


def pay_out(amount: int, key: str = "out-1") -> bool:
    """Money of the merchant."""
    call = DirectEntry(key)
    return LEDGER.commit(lambda: LEDGER.debit(call, account=SHOP, amount=eur(amount), clearing="bank"))


def shards(world: World) -> dict[str, dict[str, Any]]:
    """The shards by partition key."""
    return {item["pk"]["S"]: item for item in world.items("ledger") if item["kind"]["S"] == "shard"}


def balances(world: World) -> tuple[int, int]:
    """Balances of the merchant's account and of its shards."""
    return world.balances()[SHOP], sum(int(item["balance"]["N"]) for item in shards(world).values())


def sweep(world: World) -> int:
    """One run of the sweeper."""
    swept = ledger_sweeper.handler({}, Context(remaining_ms=240_000))["swept"]
    assert world.telemetry.counts[Metric.SUSPENDED] in {0, 1}
    return swept


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment of the sweeper."""
    monkeypatch.setenv(Env.LEDGER_TERMS, TERMS.to_json())


def sound(world: World) -> None:
    """Both audits pass."""
    items = world.items("ledger")
    assert_all_hold(audit_ledger(items))
    assert add_up(items).wrong == []


def test_a_credit_reads_nothing_and_writes_a_shard_of_the_day(world: World) -> None:
    calls = world.calls_of(load)

    assert calls == ["TransactWriteItems"]
    ((partition, shard),) = shards(world).items()
    assert partition.startswith(f"collecting#{SHOP}#{TODAY}#")
    assert (shard["balance"], shard["sequence"], shard["state"]) == ({"N": "10"}, {"N": "1"}, {"S": "OPEN"})
    assert int(shard["due_at"]["N"]) == closes_at(TODAY)
    assert balances(world) == (0, 10)
    sound(world)


def test_a_payment_reads_only_the_account_that_pays(world: World) -> None:
    read: list[str] = []
    whole = aws.dynamodb().batch_get_item

    def spied(**arguments: Any) -> Any:
        read.extend(key["pk"]["S"] for key in arguments["RequestItems"]["ledger"]["Keys"])
        return whole(**arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aws.dynamodb(), "batch_get_item", spied)
        pay()

    assert read == ["account#customer"]


def test_credits_are_spread_over_the_shards_by_their_ids(world: World) -> None:
    for number in range(40):
        load(1, f"p-{number}")

    assert len(shards(world)) == SHARDS
    assert LEDGER.collected(SHOP) == eur(40)
    sound(world)


def test_two_legs_of_one_posting_are_one_write_of_the_shard(world: World) -> None:
    legs: list[Leg] = [(SHOP, eur(100)), (SHOP, eur(-3)), ("customer", eur(-97))]

    LEDGER.commit(lambda: LEDGER.post(DirectEntry("p-1"), legs))

    ((_, shard),) = shards(world).items()
    assert (shard["balance"], shard["sequence"]) == ({"N": "97"}, {"N": "2"})
    sound(world)


def test_a_window_that_is_over_is_swept_into_the_account_and_closed(world: World) -> None:
    for number in range(10):
        load(1, f"p-{number}")
    world.clock.ms = closes_at(TODAY) - 1
    assert sweep(world) == 0

    world.clock.ms += 1
    assert sweep(world) == len(shards(world))

    assert balances(world) == (10, 0)
    assert {item["state"]["S"] for item in shards(world).values()} == {"CLOSED"}
    assert not any("due_at" in item for item in shards(world).values())
    assert sweep(world) == 0
    assert world.telemetry.measured[Metric.OLDEST_UNSWEPT] == 0
    sound(world)


def test_a_credit_after_its_window_is_planned_for_the_next(world: World) -> None:
    call = DirectEntry("p-1")
    late = LEDGER.credit(call, account=SHOP, amount=eur(10), clearing="fx")
    load(1, "p-1-of-the-same-shard" if _same_shard("p-1", "p-1-of-the-same-shard") else _twin("p-1"))
    world.clock.ms = closes_at(TODAY)
    sweep(world)

    with pytest.raises(Conflict, match="the window of a collecting account was closed"):
        LEDGER.commit(lambda: late)
    load(10, "p-1")

    assert balances(world) == (1, 10)
    sound(world)


def test_a_sweep_that_travels_while_a_credit_arrives_writes_nothing_and_loses_nothing(world: World) -> None:
    load(10, "p-1")
    (item,) = shards(world).values()
    (account,) = LEDGER.accounts(SHOP)
    now_ms = world.clock.ms
    sent, _ = sweep_shard(
        LEDGER.builder, shard=Shard.from_item(item), account=account, suspense="suspense", now_ms=now_ms
    )
    load(5, _twin("p-1"))

    with pytest.raises(Conflict):
        LEDGER.commit(lambda: sent)
    assert balances(world) == (0, 15)
    assert LEDGER.sweep(SHOP)
    with pytest.raises(Conflict):
        LEDGER.commit(lambda: sent)

    assert balances(world) == (15, 0)
    sound(world)


def _same_shard(one: str, other: str) -> bool:
    return _shard_of(one) == _shard_of(other)


def _shard_of(key: str) -> str:
    writes = LEDGER.credit(DirectEntry(key), account=SHOP, amount=eur(1), clearing="fx")
    (shard,) = [write.action["Update"] for write in writes if "Update" in write.action]
    return str(shard["Key"]["pk"]["S"])


def _twin(key: str) -> str:
    """Another id of the same shard."""
    return next(f"twin-{n}" for n in range(1_000) if _same_shard(key, f"twin-{n}"))


def test_a_debit_that_the_account_does_not_cover_sweeps_first_and_leaves_the_window_open(world: World) -> None:
    for number in range(10):
        pay(10, f"p-{number}")

    assert pay_out(95)

    assert sum(balances(world)) == 5
    assert {item["state"]["S"] for item in shards(world).values()} == {"OPEN"}
    load(1, "p-later")
    with pytest.raises(InsufficientFunds):
        pay_out(7, "out-2")
    sound(world)


def test_the_window_before_is_swept_by_need_too(world: World) -> None:
    load(10)
    world.clock.ms = NOW_MS + DAY_MS

    assert LEDGER.collected(SHOP) == eur(10)
    assert pay_out(10)


def test_a_hold_on_a_collecting_account_sweeps_first(world: World) -> None:
    load(10)
    call = DirectEntry("h-1")

    LEDGER.commit(lambda: LEDGER.authorize(call, account=SHOP, amount=eur(10), expires_in=timedelta(hours=1)))

    assert balances(world) == (10, 0)
    sound(world)


@pytest.mark.parametrize("gone", ["closed", "unknown", "full"])
def test_an_unpostable_credit_is_posted_to_suspense(world: World, gone: str) -> None:
    account = "merchant:8" if gone == "unknown" else SHOP
    if gone == "full":
        load(MAX_MINOR_UNITS - 9, "p-0")
        LEDGER.sweep(SHOP)
    LEDGER.commit(lambda: LEDGER.credit(DirectEntry("p-1"), account=account, amount=eur(10), clearing="fx"))
    if gone == "closed":
        LEDGER.commit(lambda: LEDGER.builder.close_account(account=LEDGER.accounts(SHOP)[0]))
    world.clock.ms = closes_at(TODAY)

    sweep(world)

    waiting = [entry for entry in world.entries() if entry["pk"]["S"].startswith("clearing#suspense#")]
    assert [(entry["amount"]["N"], entry["counterparty"]["S"]) for entry in waiting] == [("10", account)]
    assert world.telemetry.counts[Metric.SUSPENDED] == 1
    assert (Metric.SUSPENDED, {"service": "ledger"}) in world.telemetry.events, "the alarm is the table's"
    assert not any(int(item["balance"]["N"]) for item in shards(world).values())
    sound(world)


@pytest.mark.parametrize(("action", "times"), [(Action.KILL, 1), (Action.DROP, 3)])
def test_what_goes_to_suspense_is_counted_though_no_answer_comes(world: World, action: Action, times: int) -> None:
    LEDGER.commit(lambda: LEDGER.credit(DirectEntry("p-1"), account="merchant:8", amount=eur(10), clearing="fx"))
    world.clock.ms = closes_at(TODAY)
    world.wire.plan(Fault(operation="TransactWriteItems", action=action, moment=Moment.AFTER, times=times))

    with suppress(Killed):
        sweep(world)
    world.wire.forget()
    sweep(world)

    waiting = [entry for entry in world.entries() if entry["pk"]["S"].startswith("clearing#suspense#")]
    assert [entry["amount"]["N"] for entry in waiting] == ["10"]
    assert world.telemetry.counts[Metric.SUSPENDED] == 1
    assert ("posted_to_suspense", {"amount": "10", "unit": "EUR"}) in world.telemetry.events


def test_a_debit_that_sweeps_counts_what_goes_to_suspense_for_the_table(world: World) -> None:
    plain = Ledger("ledger")
    plain.commit(lambda: plain.builder.open_account(account_id="merchant:8", opening=eur(50), cap=100, now_ms=1))
    LEDGER.commit(lambda: LEDGER.credit(DirectEntry("p-1"), account="merchant:8", amount=eur(80), clearing="fx"))

    with pytest.raises(InsufficientFunds):
        LEDGER.debit(DirectEntry("out-1"), account="merchant:8", amount=eur(60), clearing="bank")

    assert (Metric.SUSPENDED, {"service": "ledger"}) in world.telemetry.events


def test_a_refund_to_a_collecting_account_reads_its_shard_only(world: World) -> None:
    call = DirectEntry("r-1")

    sent = world.calls_of(
        lambda: LEDGER.commit(lambda: LEDGER.refund(call, account=SHOP, amount=eur(10), clearing="fx"))
    )

    assert sent == ["BatchGetItem", "TransactWriteItems"]
    assert balances(world) == (0, 10)
    sound(world)


@pytest.mark.parametrize("collected", [1, MAX_MINOR_UNITS])
def test_a_refund_that_a_shard_does_not_take_waits_in_suspense(world: World, collected: int) -> None:
    """The shard collects what was declared before, or is full."""
    load(collected)
    unit = "EUR" if collected > 1 else "USD"
    after = Ledger(
        "ledger", LedgerTerms(collecting=(CollectingAccounts(prefix="merchant:", unit=unit, shards=SHARDS),))
    )
    given = Money(1, unit)
    back = compensation(
        lambda call, _: Commit(writes=after.refund(_as(call), account=SHOP, amount=given, clearing="fx"))
    )
    atomic_step(lambda _: Commit())(step_event(), Context())

    back(step_event(), Context())

    assert list(world.rows().values()) == ["COMPENSATED"]
    assert balances(world) == (0, collected)
    waits = [entry for entry in world.entries() if entry["pk"]["S"].startswith("clearing#suspense#")]
    assert [(entry["counterparty"]["S"], entry["amount"]["N"]) for entry in waits] == [(SHOP, "1")]
    assert (Metric.SUSPENDED, {"service": "ledger"}) in world.telemetry.events
    sound(world)


def _as(call: StepCall) -> DirectEntry:
    """An entry that goes to the shard of ``p-1``."""
    return DirectEntry(_twin("p-1"), time_ms=call.now_ms)


def test_a_collecting_account_has_no_cap_and_one_unit() -> None:
    for wrong in ({"cap": 100}, {"opening": Money(0, "USD")}):
        with pytest.raises(Invalid, match="a collecting account must be kept in EUR and have no cap, got 'merchant:9'"):
            LEDGER.builder.open_account(**{"account_id": "merchant:9", "opening": eur(0), "now_ms": 1, **wrong})  # type: ignore[arg-type]


def test_a_credit_in_another_unit_is_refused(world: World) -> None:
    with pytest.raises(CurrencyMismatch, match="account merchant:7 is kept in EUR, the amount is in USD"):
        LEDGER.credit(DirectEntry("p-1"), account=SHOP, amount=Money(1, "USD"), clearing="fx")


def test_a_shard_takes_no_other_unit_when_the_declaration_changes(world: World) -> None:
    load(10)
    dollars = Ledger(
        "ledger", LedgerTerms(collecting=(CollectingAccounts(prefix="merchant:", unit="USD", shards=SHARDS),))
    )
    call = DirectEntry(_twin("p-1"))

    with pytest.raises(CurrencyMismatch, match="account merchant:7 collects EUR, not USD"):
        dollars.commit(lambda: dollars.credit(call, account=SHOP, amount=Money(1, "USD"), clearing="fx"))

    assert dollars.sweep(SHOP)
    assert balances(world) == (10, 0)


def test_a_shard_is_swept_though_its_account_collects_no_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    load(10)
    monkeypatch.setenv(Env.LEDGER_TERMS, LedgerTerms(holds=True).to_json())
    world.clock.ms = closes_at(TODAY)

    sweep(world)

    assert balances(world) == (10, 0)


def test_a_shard_holds_no_more_than_an_amount_can(world: World) -> None:
    load(MAX_MINOR_UNITS, "p-1")

    with pytest.raises(CapExceeded, match="may not collect more than"):
        load(1, _twin("p-1"))


def test_only_collecting_accounts_have_collected_amounts() -> None:
    with pytest.raises(Invalid, match="account customer must be a collecting account"):
        LEDGER.collected("customer")
    assert not LEDGER.sweep("customer")


def test_shards_of_two_units_are_not_added_up(world: World) -> None:
    LEDGER.commit(lambda: LEDGER.credit(DirectEntry("p-1"), account=SHOP, amount=eur(10), clearing="fx"))
    other = Ledger("ledger", LedgerTerms(collecting=(CollectingAccounts(prefix="merchant:", unit="USD"),)))

    with pytest.raises(Invalid, match="amounts must be Money of one unit"):
        other.collected(SHOP)


def test_many_shards_are_read_in_several_calls(world: World) -> None:
    wide = Ledger("ledger", LedgerTerms(collecting=(CollectingAccounts(prefix="merchant:", unit="EUR", shards=64),)))

    assert world.calls_of(lambda: wide.collected(SHOP)) == ["BatchGetItem"] * 2


def test_sweep_reads_shard_and_account_at_once(world: World) -> None:
    LEDGER.commit(lambda: LEDGER.credit(DirectEntry("p-1"), account=SHOP, amount=eur(10), clearing="fx"))
    (held,) = [shard for shard in LEDGER._shards(SHOP, NOW_MS) if shard.balance.minor_units]

    assert world.calls_of(lambda: LEDGER.sweep_shard(held.key)) == ["BatchGetItem", "TransactWriteItems"]


def test_nothing_is_swept_of_a_shard_that_was_never_credited(world: World) -> None:
    shard = Shard(account_id=SHOP, window=TODAY, number=0, balance=eur(0))

    assert not LEDGER.sweep_shard(shard.key)
    assert sweep_shard(LEDGER.builder, shard=shard, account=None, suspense="suspense", now_ms=NOW_MS) == ([], None)


def test_windows_are_days_and_close_a_quarter_of_an_hour_after() -> None:
    assert TODAY == "2023-11-14"
    assert closes_at(TODAY) == 1_700_006_400_000 + CLOSES_AFTER_MS
    assert window_of(closes_at(TODAY)) == "2023-11-15"


# -- the sweeper -------------------------------------------------------------------------------------------------------


def test_the_sweeper_releases_expired_holds(world: World) -> None:
    for number, minutes in enumerate((1, 2)):
        call = DirectEntry(f"h-{number}")
        expires_in = timedelta(minutes=minutes)
        LEDGER.commit(
            lambda call=call, expires_in=expires_in: LEDGER.authorize(  # type: ignore[misc]
                call, account="customer", amount=eur(10), expires_in=expires_in
            )
        )
    world.clock.ms += 60_000

    assert sweep(world) == 1

    assert LEDGER.accounts("customer")[0].held == 10
    sound(world)


def test_a_failure_blocks_no_other_and_its_age_is_reported(world: World) -> None:
    for number in range(8):
        load(1, f"p-{number}")
    world.clock.ms = closes_at(TODAY) + 7_200_000
    whole = len(shards(world))
    world.wire.plan(Fault(operation="TransactWriteItems", action=Action.THROTTLE, times=3))

    assert sweep(world) == whole - 1

    assert world.telemetry.measured[Metric.OLDEST_UNSWEPT] == 7_200
    assert sweep(world) == 1
    assert world.telemetry.measured[Metric.OLDEST_UNSWEPT] == 0


def test_a_sweeper_without_time_reports_what_it_leaves(world: World) -> None:
    load()
    world.clock.ms = closes_at(TODAY) + 5_000

    assert ledger_sweeper.handler({}, Context(remaining_ms=4_999)) == {"swept": 0}

    assert world.telemetry.measured[Metric.OLDEST_UNSWEPT] == 5


def test_a_sweeper_without_time_reports_the_oldest_of_every_partition(world: World) -> None:
    for number in range(LEDGER_DUE_SHARDS):
        due_at = NOW_MS - number * 1_000
        item = {"pk": f"shard#{number}", "sk": "shard", "due_shard": f"{number:02d}"}
        typed: Any = {name: {"S": value} for name, value in item.items()} | {"due_at": {"N": str(due_at)}}
        aws.dynamodb().put_item(TableName="ledger", Item=typed)

    assert ledger_sweeper.handler({}, Context(remaining_ms=4_999)) == {"swept": 0}

    assert world.telemetry.measured[Metric.OLDEST_UNSWEPT] == LEDGER_DUE_SHARDS - 1


# -- at once -----------------------------------------------------------------------------------------------------------


@atomic_step
def credit_step(call: StepCall) -> Commit:
    """A credit in a saga."""
    return Commit(writes=LEDGER.credit(call, account=SHOP, amount=eur(10), clearing="fx"))


def test_a_saga_credits_once(world: World) -> None:
    for _ in range(3):
        credit_step(step_event(step="Credit"), Context())

    assert balances(world) == (0, 10)
    sound(world)


def test_a_saga_that_is_retried_a_day_later_credits_once(world: World) -> None:
    world.wire.plan(Fault(operation="TransactWriteItems", action=Action.DROP, moment=Moment.AFTER, times=24))
    with pytest.raises(TransientError):
        credit_step(step_event(step="Credit"), Context())
    world.wire.forget()
    world.clock.ms += DAY_MS

    credit_step(step_event(step="Credit"), Context())

    assert balances(world) == (0, 10)


def test_a_payment_that_is_sent_again_a_day_later_is_a_duplicate_by_the_side_that_pays(world: World) -> None:
    pay()
    world.clock.ms += DAY_MS

    with pytest.raises(Exception, match="entry p-1 of customer exists"):
        pay()

    assert sum(balances(world)) == 10


@pytest.mark.parametrize("giver", ["customer", Clearing("fx")])
@pytest.mark.parametrize("order", [1, -1])
def test_a_payment_repeated_after_its_window_closed_is_a_duplicate(world: World, giver: Party, order: int) -> None:
    entry = DirectEntry("p-1", time_ms=NOW_MS)
    legs: list[Leg] = [(SHOP, eur(10)), (giver, eur(-10))]
    LEDGER.commit(lambda: LEDGER.post(entry, legs))
    world.clock.ms = closes_at(TODAY)
    sweep(world)

    with pytest.raises(DuplicatePosting):
        LEDGER.commit(lambda: LEDGER.post(entry, legs[::order]))
    marker = VersionedItem(table="ledger", key={"pk": {"S": "op#1"}, "sk": {"S": "marker"}})
    with pytest.raises(DuplicatePosting):
        commit_once(lambda: Commit(writes=LEDGER.post(entry, legs[::order])), marker=marker, request={})

    assert balances(world) == (10, 0)
    sound(world)


def test_credits_sweeps_and_debits_at_once_lose_nothing(world: World) -> None:
    def credit(number: int) -> None:
        _persist(lambda: load(1, f"p-{number}"))

    def need(number: int) -> None:
        _persist(lambda: LEDGER.sweep(SHOP))
        with suppress(InsufficientFunds):
            _persist(lambda: pay_out(2, f"out-{number}"))

    with ThreadPoolExecutor(max_workers=12) as pool:
        list(pool.map(credit, range(60)))
        done = [*pool.map(need, range(6)), *pool.map(credit, range(60, 90))]

    assert done
    banked = [entry for entry in world.entries() if entry["pk"]["S"].startswith("clearing#bank#")]
    assert sum(balances(world)) == 90 - sum(int(entry["amount"]["N"]) for entry in banked)
    sound(world)


def _persist(operation: Any) -> Any:
    for _ in range(60):
        try:
            return operation()
        except Conflict:
            continue
    raise AssertionError("never an outcome")


def test_a_payment_to_clearing_and_collecting_alone_reads_nothing(world: World) -> None:
    legs: list[Leg] = [(Clearing("fx"), eur(-100)), (SHOP, eur(97)), (Clearing("fees"), eur(3))]

    assert world.calls_of(lambda: LEDGER.commit(lambda: LEDGER.post(DirectEntry("p-1"), legs))) == [
        "TransactWriteItems"
    ]
