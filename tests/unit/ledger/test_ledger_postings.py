"""Postings of several legs: all of them or none, one write per account, nothing made and nothing lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from constructs_lib.testing.invariants import assert_all_hold, audit_ledger
from saga_runtime import (
    Account,
    AccountNotFound,
    CapExceeded,
    Clearing,
    CollectingAccounts,
    Commit,
    CurrencyMismatch,
    DirectEntry,
    DuplicatePosting,
    InsufficientFunds,
    Ledger,
    LedgerBuilder,
    LedgerTerms,
    Money,
    StepCall,
    Unit,
    atomic_step,
)
from saga_runtime.errors import Invalid
from saga_runtime.ledger.items import Leg, Party
from tests.unit.support.samples import step_event
from tests.unit.support.world import Context, World

POINT = Unit("POINT", 0)
LEDGER = Ledger("ledger", LedgerTerms(units=(POINT,)))
ISSUANCE = Clearing("issuance")


def eur(minor: int) -> Money:
    """Euros."""
    return Money(minor, "EUR")


def points(count: int) -> Money:
    """Points."""
    return Money(count, POINT)


PAYMENT: list[Leg] = [
    ("customer", eur(-97)),
    ("customer", eur(-3)),
    ("merchant", eur(97)),
    ("fees", eur(3)),
    ("customer.points", points(1)),
    (ISSUANCE, points(-1)),
]
"""A payment of 100: what the customer pays, what the merchant gets, a fee, and a point."""


@pytest.fixture
def accounts(world: World) -> None:
    """The accounts of a payment."""
    world.open_accounts(customer=500, merchant=0, fees=0)
    opened = LEDGER.builder.open_account(account_id="customer.points", opening=points(0), now_ms=1)
    LEDGER.commit(lambda: opened)
    world.wire.forget()


@atomic_step
def pay(call: StepCall) -> Commit:
    """A payment in one step."""
    return Commit(writes=LEDGER.post(call, PAYMENT))


@pytest.mark.usefixtures("accounts")
def test_a_payment_with_fee_and_points_is_one_step(world: World) -> None:
    calls = world.calls_of(lambda: pay(step_event(step="Pay"), Context()))

    assert calls == ["BatchGetItem", "TransactWriteItems"]
    assert world.balances() == {"customer": 400, "merchant": 97, "fees": 3, "customer.points": 1}
    assert_all_hold(audit_ledger(world.items("ledger")))

    pay(step_event(step="Pay"), Context())

    assert world.balances()["customer"] == 400


@pytest.mark.usefixtures("accounts")
def test_two_legs_on_one_account_are_one_write_and_two_numbered_entries(world: World) -> None:
    LEDGER.commit(lambda: LEDGER.post(DirectEntry("p-1"), PAYMENT))

    entries = [
        entry for entry in world.entries() if entry["pk"]["S"] == "account#customer" and "p-1" in entry["sk"]["S"]
    ]
    assert {entry["sk"]["S"]: (entry["amount"]["N"], entry["sequence"]["N"]) for entry in entries} == {
        "entry#p-1": ("-97", "2"),
        "entry2#p-1": ("-3", "3"),
    }
    assert {entry["counterparty"]["S"] for entry in entries} == {"merchant,fees"}


@pytest.mark.usefixtures("accounts")
def test_credits_are_applied_before_debits(world: World) -> None:
    legs: list[Leg] = [("fees", eur(-10)), ("fees", eur(10)), ("customer", eur(-5)), ("merchant", eur(5))]

    LEDGER.commit(lambda: LEDGER.post(DirectEntry("p-1"), legs))

    after = [int(entry["balance_after"]["N"]) for entry in world.entries() if entry["pk"]["S"] == "account#fees"]
    assert sorted(after) == [0, 10]
    assert_all_hold(audit_ledger(world.items("ledger")))


@pytest.mark.usefixtures("accounts")
def test_a_posting_that_one_account_refuses_writes_nothing(world: World) -> None:
    legs: list[Leg] = [("customer", eur(-501)), ("merchant", eur(501))]

    with pytest.raises(InsufficientFunds, match="account customer does not hold the amount"):
        LEDGER.post(DirectEntry("p-1"), legs)

    assert world.balances()["merchant"] == 0


@pytest.mark.usefixtures("accounts")
def test_a_posting_under_the_same_entry_id_is_a_duplicate_with_any_legs(world: World) -> None:
    entry = DirectEntry("p-1")
    LEDGER.commit(lambda: LEDGER.post(entry, PAYMENT))

    with pytest.raises(DuplicatePosting):
        LEDGER.commit(lambda: LEDGER.post(entry, PAYMENT))
    with pytest.raises(DuplicatePosting):
        LEDGER.commit(lambda: LEDGER.post(entry, [("customer", eur(-1)), ("merchant", eur(1))]))

    assert world.balances()["customer"] == 400


@pytest.mark.parametrize(
    ("legs", "message"),
    [
        ([("a", eur(-100)), ("b", eur(97))], r"legs of a posting must net to zero in each unit, got -3 EUR"),
        ([("a", eur(-1)), ("b", points(1))], r"got -1 EUR, \+1 POINT"),
        ([], r"got 0 legs"),
        ([("a", eur(0)), ("b", eur(0))], r"the amount of a leg must not be zero"),
        (
            [("a", eur(1)), ("a", points(1)), (ISSUANCE, eur(-1)), (ISSUANCE, points(-1))],
            r"legs of account a must be in",
        ),
        ([("a", -1.0), ("b", 1.0)], r"a leg must be \(account, Money\), got \('a', -1.0\)"),
        ([("a", -1), ("b", 1)], r"a leg must be \(account, Money\)"),
        ([(5, eur(-1)), ("b", eur(1))], r"a leg must be \(account, Money\)"),
        (["ab", ("b", eur(1))], r"a leg must be \(account, Money\)"),
        ([("a#b", eur(-1)), ("b", eur(1))], r"an account id must match"),
        ([("a", Money(-1, Unit("MILES", 0))), ("b", Money(1, Unit("MILES", 0)))], r"got MILES with 0 places"),
        ([("a", Money(-1, Unit("POINT", 2))), ("b", Money(1, Unit("POINT", 2)))], r"got POINT with 2 places"),
    ],
)
def test_legs_that_are_not_a_posting_are_invalid(legs: Any, message: str) -> None:
    known = [Account(account_id="a", balance=eur(500)), Account(account_id="b", balance=eur(500))]

    with pytest.raises(Invalid, match=message):
        LEDGER.builder.post(legs=legs, accounts=known, entry_id="p-1", now_ms=1)


@pytest.mark.parametrize(
    ("legs", "error"),
    [
        ([("a", eur(-501)), ("b", eur(501))], InsufficientFunds),
        ([("a", eur(-500)), ("a", eur(-1)), ("b", eur(501))], InsufficientFunds),
        ([("a", eur(-100)), ("capped", eur(60)), ("capped", eur(40))], CapExceeded),
        ([("a", points(-1)), ("b", points(1))], CurrencyMismatch),
        ([("a", eur(-1)), ("nobody", eur(1))], AccountNotFound),
    ],
)
def test_the_sum_of_the_legs_decides_about_a_refusal(legs: Any, error: type[Exception]) -> None:
    known = [Account(account_id=name, balance=eur(500)) for name in ("a", "b")]
    known.append(Account(account_id="capped", balance=eur(0), cap=99))

    with pytest.raises(error):
        LEDGER.builder.post(legs=legs, accounts=known, entry_id="p-1", now_ms=1)


def test_an_account_with_changed_decimal_places_is_refused(world: World) -> None:
    old = Ledger("ledger", LedgerTerms(units=(Unit("POINT", 2),)))
    opened = old.builder.open_account(account_id="a", opening=Money(500, Unit("POINT", 2)), now_ms=1)
    old.commit(lambda: opened)

    with pytest.raises(CurrencyMismatch):
        LEDGER.post(DirectEntry("p-1"), [("a", points(-1)), (ISSUANCE, points(1))])


def test_an_account_of_a_unit_that_is_not_declared_is_not_opened() -> None:
    with pytest.raises(Invalid, match=r"got MILES with 0 places; give LedgerTable\(units=…\)"):
        LEDGER.builder.open_account(account_id="a", opening=Money(0, Unit("MILES", 0)), now_ms=1)


AMOUNTS = st.lists(st.integers(min_value=-200, max_value=200).filter(bool), min_size=1, max_size=8)
PARTIES: list[Party] = ["a", "b", "c", Clearing("x"), Clearing("y")]


@given(data=st.data(), amounts=AMOUNTS)
def test_entries_of_any_posting_net_to_zero_and_name_no_item_twice(data: st.DataObject, amounts: list[int]) -> None:
    legs: list[Leg] = [(data.draw(st.sampled_from(PARTIES)), eur(amount)) for amount in amounts]
    if sum(amounts):
        legs.append((Clearing("z"), eur(-sum(amounts))))
    known = [Account(account_id=name, balance=eur(2_000), sequence=7) for name in ("a", "b", "c")]
    builder = LedgerBuilder(table="ledger")
    if len(legs) < 2:
        return

    writes = builder.post(legs=legs, accounts=known, entry_id="p-1", now_ms=1)

    puts = [write.action["Put"]["Item"] for write in writes if "Put" in write.action]
    assert sorted(int(item["amount"]["N"]) for item in puts) == sorted(amount.minor_units for _, amount in legs)
    assert sum(int(item["amount"]["N"]) for item in puts) == 0
    keys = [_key(write.action) for write in writes]
    assert len(keys) == len(set(keys))
    for account in known:
        chain = sorted(
            (int(item["sequence"]["N"]), int(item["balance_after"]["N"]), int(item["amount"]["N"]))
            for item in puts
            if item["pk"]["S"] == f"account#{account.account_id}"
        )
        assert [number for number, _, _ in chain] == list(range(8, 8 + len(chain)))
        assert all(after >= 0 for _, after, _ in chain)


def _key(action: Any) -> tuple[str, str]:
    ((kind, arguments),) = action.items()
    item = arguments["Item"] if kind == "Put" else arguments["Key"]
    return item["pk"]["S"], item["sk"]["S"]


def test_terms_survive_their_environment_variable() -> None:
    terms = LedgerTerms(
        units=(POINT, Unit("REGIONAL:kyoto", 0)),
        collecting=(
            CollectingAccounts(prefix="merchant:", unit=POINT, shards=8),
            CollectingAccounts(prefix="m2:", unit="EUR"),
        ),
        holds=True,
    )

    assert LedgerTerms.from_json(terms.to_json()) == terms
    assert LedgerTerms.from_json("") == LedgerTerms()
    assert terms.unit("POINT") == POINT
    assert terms.unit("EUR") == eur(1).unit
    with pytest.raises(Invalid, match="declare Unit"):
        terms.unit("MILES")


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"units": (POINT, Unit("POINT", 2))}, "units of a ledger must have different codes, got POINT, POINT"),
        ({"units": ("POINT",)}, r"units of a ledger must be Unit\(code, places\), got 'POINT'"),
        (
            {
                "collecting": (
                    CollectingAccounts(prefix="m", unit="EUR"),
                    CollectingAccounts(prefix="merchant:", unit="EUR"),
                )
            },
            "prefixes of collecting accounts must not begin with one another, got 'm' and 'merchant:'",
        ),
        ({"collecting": (CollectingAccounts(prefix="m", unit=Unit("MILES", 0)),)}, "got MILES with 0 places"),
    ],
)
def test_terms_that_contradict_themselves_are_invalid(terms: Any, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        LedgerTerms(**terms)


@pytest.mark.parametrize(
    ("accounts", "message"),
    [
        ({"prefix": ""}, "prefix of collecting accounts must match"),
        ({"prefix": "a#"}, "prefix of collecting accounts must match"),
        ({"prefix": None}, "prefix of collecting accounts must match"),
        ({"shards": 0}, "shards of m must be an integer of 1 to 64, got 0"),
        ({"shards": 65}, "shards of m must be an integer of 1 to 64"),
        ({"shards": 1.0}, "shards of m must be an integer of 1 to 64"),
        ({"unit": "MILES"}, "a unit must be an ISO 4217 currency code or a Unit"),
    ],
)
def test_collecting_accounts_that_cannot_be_are_invalid(accounts: Any, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        CollectingAccounts(**{"prefix": "m", "unit": "EUR", **accounts})


def test_a_ledger_reads_its_terms_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDK_SAGAS_LEDGER_TABLE", "ledger")
    monkeypatch.setenv("CDK_SAGAS_LEDGER_TERMS", LEDGER.terms.to_json())

    assert Ledger.from_env() == LEDGER
