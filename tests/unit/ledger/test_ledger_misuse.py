"""Misuse of the ledger: each is refused with an error that names it, and nothing is written."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest

from saga_runtime import (
    Account,
    Clearing,
    CollectingAccounts,
    Commit,
    DirectEntry,
    DuplicatePosting,
    HoldClosed,
    Ledger,
    LedgerTerms,
    Money,
    StepCall,
    Unit,
    atomic_step,
)
from saga_runtime.errors import Invalid
from saga_runtime.ledger.items import DAY_MS, Leg, account_key
from saga_runtime.ledger.sweep import sweep_due
from tests.unit.support.samples import NOW_MS, step_event
from tests.unit.support.world import Context, World

POINT = Unit("POINT", 0)
LEDGER = Ledger(
    "ledger",
    LedgerTerms(units=(POINT,), collecting=(CollectingAccounts(prefix="merchant:", unit="EUR", shards=1),), holds=True),
)
SPREAD = timedelta(minutes=10)


def eur(minor: int) -> Money:
    """Euros."""
    return Money(minor, "EUR")


def pay(entry: DirectEntry, amount: int = 10) -> bool:
    """A payment from alice to bob."""
    return LEDGER.commit(lambda: LEDGER.transfer(entry, source="alice", target="bob", amount=eur(amount)))


@pytest.fixture(autouse=True)
def accounts(world: World) -> None:
    """Two accounts."""
    world.open_accounts(alice=500, bob=0)
    world.wire.forget()


@pytest.mark.parametrize("amount", [1.0, True, Decimal(1), "1", None])
def test_an_amount_that_is_not_an_integer_reaches_no_method(amount: Any) -> None:
    with pytest.raises(Invalid, match="an amount is an integer of minor units, got"):
        Money(amount, "EUR")
    for legs in ([("alice", amount), ("bob", amount)], [("alice", eur(-1)), ("bob", amount)]):
        with pytest.raises(Invalid, match=r"a leg must be \(account, Money\), got"):
            LEDGER.post(DirectEntry("p-1"), legs)
    with pytest.raises(Invalid, match="an amount must be Money, got"):
        LEDGER.transfer(DirectEntry("p-1"), source="alice", target="bob", amount=amount)
    with pytest.raises(Invalid, match="an amount must be Money, got"):
        LEDGER.authorize(DirectEntry("p-1"), account="alice", amount=amount, expires_in=SPREAD)


@pytest.mark.parametrize("code", [None, 5, 1.5, True, b"POINT", ["POINT"], ("POINT",), {"code": "POINT"}, "", " "])
def test_a_unit_of_a_wrong_type_is_refused_wherever_it_is_given(code: Any) -> None:
    with pytest.raises(Invalid, match="the code of a unit must match"):
        Unit(code, 0)
    with pytest.raises(Invalid, match="a unit must be an ISO 4217 currency code or a Unit, got"):
        Money(1, code)
    with pytest.raises(Invalid, match="a unit must be an ISO 4217 currency code or a Unit, got"):
        LEDGER.terms.unit(code)
    with pytest.raises(Invalid, match="a unit must be an ISO 4217 currency code or a Unit, got"):
        CollectingAccounts(prefix="m", unit=code)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"units": POINT}, r"units of a ledger must be a tuple, got Unit"),
        ({"units": [POINT]}, r"units of a ledger must be a tuple, got \[Unit"),
        ({"units": ("POINT",)}, r"units of a ledger must be Unit\(code, places\), got 'POINT'"),
        ({"collecting": ("merchant:",)}, r"collecting of a ledger must be CollectingAccounts\(…\), got 'merchant:'"),
        ({"collecting": "merchant:"}, r"collecting of a ledger must be a tuple, got 'merchant:'"),
        ({"holds": 1}, r"holds of a ledger must be True or False, got 1"),
    ],
)
def test_terms_of_wrong_types_are_refused(terms: Any, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        LedgerTerms(**terms)


def test_legs_that_net_to_zero_in_one_of_two_units_only_are_refused(world: World) -> None:
    legs: list[Leg] = [
        ("alice", eur(-10)), ("bob", eur(10)), ("points", Money(2, POINT)), (Clearing("issuance"), Money(-1, POINT)),
    ]  # fmt: skip
    known = [Account(account_id=name, balance=eur(500)) for name in ("alice", "bob")]
    known.append(Account(account_id="points", balance=Money(0, POINT)))

    with pytest.raises(Invalid, match=r"must net to zero in each unit, got \+1 POINT$"):
        LEDGER.builder.post(legs=legs, accounts=known, entry_id="p-1", now_ms=NOW_MS)


def test_an_account_debited_and_credited_in_one_posting_is_written_once(world: World) -> None:
    legs: list[Leg] = [("alice", eur(-100)), ("bob", eur(40)), ("alice", eur(60))]

    assert LEDGER.commit(lambda: LEDGER.post(DirectEntry("p-1"), legs))

    assert world.balances() == {"alice": 460, "bob": 40}
    assert len(world.entries()) == 2 + 3  # alice's opening, and three legs


class Name(str, Enum):  # noqa: UP042 -- it is what users of earlier Pythons have
    """Names of the user's, as many write them: the text of a member is not its value."""

    SHOP = "merchant:7"
    BOB = "bob"
    FX = "fx"
    PAYMENT = "p-1"
    EUR = "EUR"
    POINT = "POINT"


def test_members_of_an_enumeration_are_their_values(world: World) -> None:
    """Their money would be in other accounts than that of plain texts, and in other entries."""
    world.open_accounts(**{"merchant:7": 0})
    price = Money(10, Name.EUR)
    legs: list[Leg] = [
        ("alice", -price - price),
        (Name.SHOP, price),
        (Name.BOB, Money(6, "EUR")),
        (Clearing(Name.FX), eur(4)),
    ]

    LEDGER.commit(lambda: LEDGER.post(DirectEntry(Name.PAYMENT), legs))

    assert LEDGER.sweep(Name.SHOP)
    assert world.balances() == {"alice": 480, "bob": 6, "merchant:7": 10}
    assert any(item["pk"]["S"].startswith("clearing#fx#") for item in world.items("ledger"))
    with pytest.raises(DuplicatePosting):
        LEDGER.commit(lambda: LEDGER.post(DirectEntry("p-1"), legs))
    held = LEDGER.authorize(DirectEntry(Name.BOB), account=Name.BOB, amount=eur(6), expires_in=SPREAD)
    assert LEDGER.commit(lambda: held)
    assert LEDGER.hold("bob", "bob").amount == eur(6)
    opening = LEDGER.builder.open_account(account_id=Name.FX, opening=eur(0), now_ms=NOW_MS)
    assert opening[0].key == account_key("fx")
    assert (str(Money(1, Name.EUR)), str(Money(1, Unit(Name.POINT, 0)))) == ("0.01 EUR", "1 POINT")


def test_writes_that_can_be_read_once_are_all_committed(world: World) -> None:
    entry = DirectEntry("p-1")

    def made() -> Any:
        return iter(LEDGER.transfer(entry, source="alice", target="bob", amount=eur(10)))

    assert LEDGER.commit(made)
    assert world.balances() == {"alice": 490, "bob": 10}


def test_a_posting_of_two_postings_on_one_account_is_refused(world: World) -> None:
    @atomic_step
    def twice(call: StepCall) -> Commit:
        other = DirectEntry(f"{call.key}:2")
        legs: list[Leg] = [("alice", eur(-1)), ("bob", eur(1))]
        return Commit(writes=[*LEDGER.post(call, legs), *LEDGER.post(other, legs)])

    with pytest.raises(Invalid, match="must be of different items, got number 0 and number 4 of one"):
        twice(step_event(step="Pay"), Context())

    assert "TransactWriteItems" not in world.wire.sent
    assert world.balances() == {"alice": 500, "bob": 0}


@pytest.mark.parametrize(("payees", "fits"), [(98, True), (99, False), (400, False)])
def test_a_posting_fits_into_one_transaction_with_its_steps_row(payees: int, fits: bool) -> None:
    # alice's account and entry, and an entry of each payee: 2 + 97 writes are all that fits together with the row.
    legs: list[Leg] = [("alice", eur(1 - payees)), *((Clearing(f"c-{n}"), eur(1)) for n in range(payees - 1))]

    if fits:
        assert len(Commit(writes=LEDGER.post(DirectEntry("p-1"), legs)).writes) == 99
        return
    with pytest.raises(Invalid, match=rf"a posting must have at most 99 writes, .* got {payees + 1}; split it"):
        LEDGER.post(DirectEntry("p-1"), legs)


def test_a_capture_fits_into_one_transaction_with_its_steps_row(world: World) -> None:
    LEDGER.commit(lambda: LEDGER.authorize(DirectEntry("h-1"), account="alice", amount=eur(400), expires_in=SPREAD))
    legs: list[Leg] = [(Clearing(f"c-{n}"), eur(1)) for n in range(97)]

    assert len(LEDGER.capture(DirectEntry("c-1"), account="alice", hold="h-1", legs=legs[:-1])) == 99
    with pytest.raises(Invalid, match=r"a posting must have at most 99 writes, .* got 100; split it"):
        LEDGER.capture(DirectEntry("c-1"), account="alice", hold="h-1", legs=legs)


def test_a_posting_repeated_under_another_step_key_needs_a_name_of_its_own(world: World) -> None:
    """A step key names a posting of its step; the payment's own name makes it one in all steps and sagas."""

    @atomic_step
    def pays(call: StepCall) -> Commit:
        entry = DirectEntry(f"payment-{call.request['payment']}")
        return Commit(writes=LEDGER.transfer(entry, source="alice", target="bob", amount=eur(10)))

    request = {"payment": "77"}
    pays(step_event(step="Pay", body=request), Context())
    pays(step_event(step="Pay", body=request), Context())  # a retry replays its row
    with pytest.raises(DuplicatePosting):
        pays(step_event(step="PayAgain", body=request), Context())

    assert world.balances() == {"alice": 490, "bob": 10}


def test_a_capture_repeated_under_another_step_key_is_refused(world: World) -> None:
    LEDGER.commit(lambda: LEDGER.authorize(DirectEntry("h-1"), account="alice", amount=eur(100), expires_in=SPREAD))
    legs: list[Leg] = [("bob", eur(40))]
    LEDGER.commit(lambda: LEDGER.capture(DirectEntry("c-1"), account="alice", hold="h-1", legs=legs))

    with pytest.raises(HoldClosed):
        LEDGER.capture(DirectEntry("c-2"), account="alice", hold="h-1", legs=legs)

    assert world.balances() == {"alice": 460, "bob": 40}


@pytest.mark.parametrize("key", ["é" * 128, "🪙" * 64, "\ud800", "k" * 256])
def test_an_entrys_id_fits_into_a_key_in_utf_8(key: str) -> None:
    with pytest.raises(Invalid, match="an entry's id must have 1 to 255 bytes of UTF-8 that are not all blank, got"):
        DirectEntry(key)


def test_the_longest_id_is_stored(world: World) -> None:
    assert pay(DirectEntry("🪙" * 63 + "abc"))

    assert world.balances() == {"alice": 490, "bob": 10}


@pytest.mark.parametrize("legs", [None, 5, "ab", {"alice": 1}, iter([("alice", eur(-1)), ("bob", eur(1))])])
def test_legs_are_a_list(world: World, legs: Any) -> None:
    LEDGER.commit(lambda: LEDGER.authorize(DirectEntry("h-1"), account="alice", amount=eur(100), expires_in=SPREAD))

    with pytest.raises(Invalid, match=r"legs must be a list of \(account, Money\), got"):
        LEDGER.post(DirectEntry("p-1"), legs)
    with pytest.raises(Invalid, match=r"legs must be a list of \(account, Money\), got"):
        LEDGER.capture(DirectEntry("c-1"), account="alice", hold="h-1", legs=legs)


@pytest.mark.parametrize("key", ["sweep#collecting#merchant:7#2023-11-14#00#1", "open#carol"])
def test_an_entry_may_not_have_the_id_of_the_ledgers_own_entries(key: str) -> None:
    with pytest.raises(Invalid, match=r"an entry's id must not begin with open# or sweep#, got"):
        DirectEntry(key)


@pytest.mark.parametrize("time_ms", [1.0, True, "1", Decimal(1), -1, NOW_MS * 1_000])
def test_the_time_of_an_entry_is_epoch_milliseconds_and_not_ahead(world: World, time_ms: Any) -> None:
    with pytest.raises(Invalid, match="time_ms of an entry must be epoch milliseconds up to now, got"):
        DirectEntry("p-1", time_ms)


def test_an_entry_that_is_kept_posts_at_the_time_of_each_try(world: World) -> None:
    """A credit that names a window which is closed by now would be planned for it again and again."""
    merchants = LEDGER.builder.open_account(account_id="merchant:7", opening=eur(0), now_ms=NOW_MS)
    LEDGER.commit(lambda: merchants)
    first, kept = DirectEntry("p-1"), DirectEntry("p-2")
    legs: list[Leg] = [("alice", eur(-1)), ("merchant:7", eur(1))]
    LEDGER.commit(lambda: LEDGER.post(first, legs))
    closed_at = world.clock.ms = world.clock.ms + 2 * DAY_MS
    assert sweep_due(LEDGER, remaining_ms=lambda: 60_000) == 1

    assert kept.now_ms == closed_at
    assert LEDGER.commit(lambda: LEDGER.post(kept, legs))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("",), "table of a Ledger must be a table's name, got ''"),
        ((None,), "table of a Ledger must be a table's name, got None"),
        (("ledger", (POINT,)), r"terms of a Ledger must be LedgerTerms\(…\), got \(Unit"),
    ],
)
def test_a_ledger_of_wrong_types_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        Ledger(*arguments)
