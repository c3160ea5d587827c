"""An error of a provider's function is not a refusal unless it is declared: the provider may have acted before."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest

import saga_runtime
from saga_runtime import (
    Account,
    AccountState,
    Begin,
    Clearing,
    CollectingAccounts,
    Declined,
    DirectEntry,
    HoldState,
    Ledger,
    LedgerBuilder,
    LedgerTerms,
    Money,
    NotYet,
    PermanentError,
    Rejected,
    Rounding,
    StepInDoubt,
    Unit,
    account_key,
    check_account_id,
    errors,
    money,
)
from saga_runtime.errors import ProtocolMismatch, SagaFenced
from saga_runtime.idempotency import identity
from saga_runtime.ledger import builder as ledger
from saga_runtime.ledger import errors as ledger_errors
from saga_runtime.ledger import store as ledger_store
from saga_runtime.protocol import PERMANENT_ERRORS, Env, ErrorName
from tests.unit.support.gateway import GRACE_MS, IDEMPOTENT, LIFE_MS, UNDO_ASKED, Shop
from tests.unit.support.samples import NOW_MS
from tests.unit.support.warehouse import Picking
from tests.unit.support.world import World

DOORS: tuple[ModuleType, ...] = (saga_runtime, money, ledger, ledger_errors, ledger_store, identity)
"""The package, and the modules of what it exports whose methods count, too."""
MATCHED = frozenset({*PERMANENT_ERRORS, ErrorName.FENCED, "CardDeclined"})
"""Names that a state machine takes for something else than an outcome in doubt."""
DECLARED: dict[str, Any] = {"refusals": ["CardDeclined"]}
EURO = Money(100, "EUR")
NONE = Money(0, "EUR")
ALICE, BOB = (Account(account_id=name, balance=EURO) for name in ("alice", "bob"))
BOOKS = LedgerBuilder(table="ledger")
BANK = Ledger("ledger", LedgerTerms(holds=True))


class CardDeclined(PermanentError):
    """A refusal that the step declares."""


class Undeclared(PermanentError):
    """A refusal that it does not declare."""


class Elsewhere:
    """Errors of other packages, under names that a state machine matches."""

    Invalid = type("Invalid", (Exception,), {})
    SagaFenced = type("SagaFenced", (Exception,), {})
    CardDeclined = type("CardDeclined", (Exception,), {})


def _raise(error: Exception) -> None:
    raise error


def _raiser(error: Exception) -> Callable[[Any], None]:
    return lambda _: _raise(error)


def _door(name: str) -> Any:
    return getattr(saga_runtime, name)


RAISES: dict[str, Callable[[Any], object]] = {
    # What a function is likely to do with an answer.
    "Money": lambda _: Money(1250, "eur"),
    "Money.of": lambda _: Money.of("12.345", "EUR"),
    "Money.times": lambda _: EURO.times(Decimal("NaN"), rounding=Rounding.UP),
    "Unit": lambda _: Unit("eur", 2),
    "unit_of": lambda _: money.unit_of("eur"),
    "Rounding": lambda _: Rounding("x"),
    "parse_json": lambda _: identity.parse_json("<html>502</html>"),
    "canonical_json": lambda _: identity.canonical_json({"amount": 1.5}),
    # Events that begin something.
    "Begin": lambda _: Begin(key="", request={}),
    "NotYet": lambda _: _raise(NotYet("x")),
    # The ledger.
    "check_account_id": lambda _: check_account_id(""),
    "account_key": lambda _: account_key(""),
    "AccountState": lambda _: AccountState("x"),
    "HoldState": lambda _: HoldState("x"),
    "LedgerFailure": lambda _: ledger_errors.LedgerFailure("x"),
    "Clearing": lambda _: Clearing(""),
    "CollectingAccounts": lambda _: CollectingAccounts(prefix="", unit="EUR"),
    "LedgerTerms": lambda _: LedgerTerms(units=(Unit("POINT", 0), Unit("POINT", 1))),
    "DirectEntry": lambda _: DirectEntry(""),
    "LedgerBuilder.open_account": lambda _: BOOKS.open_account(account_id="", opening=NONE, now_ms=NOW_MS),
    "LedgerBuilder.transfer": lambda _: BOOKS.transfer(
        source=ALICE, target=BOB, amount=Money(101, "EUR"), entry_id="e", now_ms=NOW_MS
    ),
    "LedgerBuilder.debit": lambda _: BOOKS.debit(
        account=ALICE, amount=Money(1, "USD"), clearing="cards", entry_id="e", now_ms=NOW_MS
    ),
    "LedgerBuilder.credit": lambda _: BOOKS.credit(
        account=ALICE, amount=NONE, clearing="cards", entry_id="e", now_ms=NOW_MS
    ),
    "LedgerBuilder.refund": lambda _: BOOKS.refund(
        account=ALICE, account_id="alice", amount=EURO, clearing="c", suspense="c", entry_id="e", now_ms=NOW_MS
    ),
    "LedgerBuilder.refund_and_party": lambda _: BOOKS.refund_and_party(
        account=ALICE, account_id="alice", amount=NONE, clearing="c", suspense="s", entry_id="e", now_ms=NOW_MS
    ),
    "LedgerBuilder.close_account": lambda _: BOOKS.close_account(account=ALICE),
    "LedgerBuilder.post": lambda _: BOOKS.post(legs=[("alice", EURO)], accounts=[ALICE], entry_id="e", now_ms=NOW_MS),
    "LedgerBuilder.account_side": lambda _: BOOKS.account_side(
        ALICE, [Money(-101, "EUR")], counterparty="c", entry_id="e", now_ms=NOW_MS
    ),
    "LedgerBuilder.clearing_side": lambda _: BOOKS.clearing_side(
        Clearing("c"), [EURO], counterparty="c", entry_id="", now_ms=NOW_MS
    ),
    "Ledger.from_env": lambda _: Ledger.from_env(),
    "Ledger.accounts": lambda _: Ledger("ledger").accounts("nobody"),
    "Ledger.transfer": lambda call: Ledger("ledger").transfer(call, source="", target="b", amount=EURO),
    "Ledger.debit": lambda call: Ledger("ledger").debit(call, account="nobody", amount=EURO, clearing="c"),
    "Ledger.credit": lambda call: Ledger("ledger").credit(call, account="nobody", amount=EURO, clearing="c"),
    "Ledger.hold": lambda _: BANK.hold("alice", "h"),
    "Ledger.collected": lambda _: BANK.collected("alice"),
    "Ledger.post": lambda call: BANK.post(call, [("nobody", EURO), (Clearing("c"), -EURO)]),
    "Ledger.commit": lambda call: BANK.commit(lambda: BANK.transfer(call, source="a", target="b", amount=EURO)),
    "Ledger.authorize": lambda call: BANK.authorize(call, account="nobody", amount=EURO, expires_in=timedelta(days=1)),
    "Ledger.capture": lambda call: BANK.capture(call, account="alice", hold="h", legs=[("b", EURO)]),
    "Ledger.void": lambda call: BANK.void(call, account="alice", hold="h"),
    "Ledger.expire": lambda _: BANK.expire("alice", "h"),
    "Ledger.sweep": lambda _: BANK.sweep(""),
    "Ledger.sweep_shard": lambda _: BANK.sweep_shard({}),
    "Ledger.refund": lambda call: Ledger("ledger").refund(call, account="alice", amount=NONE, clearing="c"),
    # Names.
    "scope_of": lambda _: identity.scope_of("", ("iam", "1")),
    "request_id_of": lambda _: identity.request_id_of("", ""),
    "saga_id_of": lambda _: identity.saga_id_of("", 1, "requests"),
    "request_id_from": lambda _: identity.request_id_from(""),
    "row_name_of": lambda _: identity.row_name_of(""),
    "step_key_of": lambda _: identity.step_key_of("", ""),
    "due_shard_of": lambda _: identity.due_shard_of("request", 0),
    "provider_key_of": lambda _: identity.provider_key_of(""),
    "is_saga_id": lambda _: identity.is_saga_id(None),  # type: ignore[arg-type]  # what it refuses
    "is_item_key": lambda _: identity.is_item_key(None),  # type: ignore[arg-type]  # what it refuses
    "fingerprint_of": lambda _: identity.fingerprint_of(None, ""),  # type: ignore[arg-type]  # what it refuses
    # Versions.
    "Backoff": lambda _: _door("Backoff")(attempts=0),
    "VersionedItem": lambda _: _door("VersionedItem")(table="", key={}),
    "Transitions": lambda _: _door("Transitions")(table={}, initial="a"),
    "Outbox": lambda _: _door("Outbox")(table=""),
    "EventExists": _raiser(_door("EventExists")("x")),
    "commit_once": lambda _: _door("commit_once")(None, marker=None, request={}, remember_seconds=0),
    "HeldByAnother": _raiser(_door("HeldByAnother")("x")),
    "ItemExists": _raiser(_door("ItemExists")("x")),
    "InvalidTransition": _raiser(_door("InvalidTransition")("x")),
    "OperationReused": _raiser(_door("OperationReused")("x")),
    "VersionConflict": _raiser(_door("VersionConflict")("x")),
    # The package itself.
    "Accepted": lambda _: _door("Accepted")(job_id=" "),
    "Callback": lambda _: _door("Callback")(job_id="", event_id="1", outcome=None),
    "Commit": lambda _: _door("Commit")(writes=[None] * 100),
    "Failed": lambda _: _door("Failed")("out of stock"),
    "Succeeded": lambda _: _door("Succeeded")({"amount": 10.5}),
    "Write": lambda _: _door("Write")(action={}),
    "WebhookEvent": lambda _: _door("WebhookEvent")(body=b"no JSON", headers={}, query={}, received_at=1).json,
    "approval_link": lambda call: _door("approval_link")(call, reviewer="a", expires=timedelta(days=400)),
    "external_compensation": lambda _: _door("external_compensation")(of=None),
    # Errors of this package, raised by hand, except the refusal that every step knows.
    **{
        name: _raiser(kind("as it is"))
        for name, kind in {name: value for door in (errors, *DOORS) for name, value in vars(door).items()}.items()
        if isinstance(kind, type) and issubclass(kind, Exception) and kind not in (Declined, SagaFenced)
    },
    # Errors of the user's and of other packages.
    "a mistake": _raiser(KeyError("id")),
    "undeclared": _raiser(Undeclared("not in refusals")),
    **{
        f"another package's {kind.__name__}": _raiser(kind())
        for kind in (Elsewhere.Invalid, Elsewhere.SagaFenced, Elsewhere.CardDeclined)
    },
}
QUIET = {
    # Values, types and decorators that check nothing when they are made.
    *(
        "Account",
        "Applied",
        "CallbackCall",
        "Hold",
        "Ledger",
        "LedgerBuilder",
        "NotApplied",
        "Outcome",
        "Pending",
        "Heartbeat",
    ),
    *("ACCOUNT_ID_PATTERN", "EntryCall", "Leg"),
    *("ExternalCall", "StepCall", "Unknown", "Verdict", "atomic_step", "callback_step", "compensation"),
    *("DirectCall", "direct_operation"),
    *("event_operation", "event_receiver", "event_saga", "external_step", "read_only_step", "SignedRequest", "webhook"),
    *("MaskingFormatter", "masked_logger"),
    # The two that are meant for it: the provider's refusal, and the end of a stopped execution.
    *("Declined", "SagaFenced"),
}


def _public(door: ModuleType) -> set[str]:
    """Names of a door's functions and classes, and of the classes' methods."""
    if hasattr(door, "__all__"):
        return set(door.__all__)
    found: set[str] = set()
    for name, value in vars(door).items():
        if name.startswith("_") or not callable(value) or getattr(value, "__module__", "") != door.__name__:
            continue
        found.add(name)
        if inspect.isclass(value):
            found |= {
                f"{name}.{member}"
                for member in vars(value)
                if not member.startswith("_") and callable(getattr(value, member))
            }
    return found


def test_every_public_name_is_called_here_or_declared_to_be_quiet() -> None:
    assert set().union(*map(_public, DOORS)) - RAISES.keys() - QUIET == set()
    assert set().union(*map(_public, DOORS)) >= QUIET


@pytest.fixture(autouse=True)
def _no_ledger(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(Env.LEDGER_TABLE, raising=False)


@pytest.mark.parametrize("name", RAISES)
def test_an_error_of_a_step_after_the_effect_leaves_it_in_doubt(world: World, name: str) -> None:
    shop = _shop(world)
    shop.gateway.afterwards["charge"] = _raised(shop, name)

    assert _error(shop.run) not in MATCHED

    assert shop.status == "INTENT"
    shop.pass_every_deadline()
    assert shop.run()["payment"].startswith("payment of ")
    assert (shop.status, len(shop.gateway.charged)) == ("DONE", 1)


@pytest.mark.parametrize("name", RAISES)
def test_an_error_of_a_repeated_step_after_the_effect_leaves_it_in_doubt(world: World, name: str) -> None:
    """The compensation repeats the call of a provider without status queries, to learn the outcome."""
    shop = _shop(world, **IDEMPOTENT)
    shop.gateway.broken["charge"] = ConnectionError()
    _error(shop.run)
    shop.pass_every_deadline()
    shop.gateway.afterwards["charge"] = _raised(shop, name)

    assert _error(shop.undo) not in MATCHED

    assert shop.status == "INTENT"
    shop.pass_every_deadline()
    shop.undo()
    shop.check()


@pytest.mark.parametrize("name", [*RAISES, "a refusal"])
def test_an_error_of_verify_is_not_an_outcome(world: World, name: str) -> None:
    shop = _shop(world)
    shop.gateway.broken["charge"] = ConnectionError()
    _error(shop.run)
    shop.pass_every_deadline()
    shop.gateway.afterwards["find"] = _raised(shop, name)

    assert _error(shop.run) not in MATCHED

    assert shop.status == "INTENT"
    assert shop.run()["payment"].startswith("payment of ")


@pytest.mark.parametrize("name", [*RAISES, "a refusal"])
def test_an_error_of_a_compensation_refuses_nothing(world: World, name: str) -> None:
    shop = _shop(world)
    shop.run()
    shop.gateway.afterwards["refund"] = _raised(shop, name)

    assert _error(shop.undo) not in MATCHED

    assert shop.status == "COMPENSATING"
    shop.pass_every_deadline()
    shop.undo()
    shop.check()


@pytest.mark.parametrize("name", [*RAISES, "a refusal"])
def test_an_error_of_verify_undo_is_not_an_outcome(world: World, name: str) -> None:
    shop = _shop(world, **UNDO_ASKED)
    shop.run()
    shop.gateway.broken["refund"] = ConnectionError()
    _error(shop.undo)
    shop.pass_every_deadline()
    shop.gateway.afterwards["find_refund"] = _raised(shop, name)

    assert _error(shop.undo) not in MATCHED

    assert shop.status == "COMPENSATING"
    shop.undo()
    shop.check()


@pytest.mark.parametrize("name", RAISES)
def test_an_error_of_a_dispatcher_after_the_job_began_is_in_doubt(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    picking = Picking(world, monkeypatch, **DECLARED)
    warehouse = picking.warehouse
    warehouse.afterwards["pick"] = lambda: RAISES[name](warehouse.seen[-1])

    assert picking.deliver(picking.send()) == [0]

    assert (picking.status, picking.outcome()) == ("INTENT", None)


@pytest.mark.parametrize("name", [*RAISES, "a refusal"])
def test_an_error_of_a_jobs_query_is_not_an_outcome(world: World, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    picking = Picking(world, monkeypatch, **DECLARED)
    warehouse = picking.warehouse
    picking.deliver(picking.send())
    world.clock.ms += LIFE_MS + GRACE_MS
    warehouse.afterwards["find"] = lambda: ALL[name](warehouse.seen[-1])

    assert picking.deliver(picking.send_again()) == [0]

    assert (picking.status, picking.outcome()) == ("INTENT", None)


@pytest.mark.parametrize("name", [*RAISES, "a refusal"])
def test_an_error_of_an_announcement_ends_no_wait(world: World, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    waiting = Picking(world, monkeypatch, job=False)
    waiting.warehouse.afterwards["pick"] = lambda: ALL[name](waiting.warehouse.seen[-1])

    assert waiting.deliver(waiting.send()) == [0]

    assert (waiting.status, waiting.outcome()) == (None, None)


def test_a_declared_refusal_refuses(world: World) -> None:
    shop = _shop(world)
    shop.gateway.meanwhile["charge"] = lambda: _raise(CardDeclined("no funds"))

    assert _error(shop.run) == "CardDeclined"

    assert (shop.status, shop.row["detail"]) == ("REFUSED", "no funds")


def test_declined_needs_no_declaration(world: World) -> None:
    shop = Shop(world)
    shop.gateway.refuses = "no funds"

    assert _error(shop.run) == "Declined"

    assert shop.status == "REFUSED"


def test_rejected_refuses_where_it_is_declared(world: World) -> None:
    shop = Shop(world, refusals=["Rejected"])
    shop.gateway.meanwhile["charge"] = lambda: _raise(Rejected("no"))

    assert _error(shop.run) == "Rejected"


def test_a_ledger_error_is_not_a_refusal_even_if_its_name_is_declared(world: World) -> None:
    shop = Shop(world, refusals=["InsufficientFunds", "Invalid"])
    shop.gateway.afterwards["charge"] = _raised(shop, "LedgerBuilder.transfer")

    with pytest.raises(StepInDoubt, match="raised InsufficientFunds, which is not a refusal"):
        shop.run()

    assert shop.status == "INTENT"


@pytest.mark.parametrize("refusals", ["CardDeclined", [1], {"CardDeclined": True}])
def test_refusals_that_are_not_a_list_of_names_are_rejected(world: World, refusals: object) -> None:
    with pytest.raises(ProtocolMismatch, match="refusals must be a list of error names"):
        Shop(world, refusals=refusals).run()


ALL: dict[str, Callable[[Any], object]] = {**RAISES, "a refusal": lambda _: _raise(CardDeclined("no"))}


def _shop(world: World, **provider: Any) -> Shop:
    return Shop(world, **{**DECLARED, **provider})


def _raised(shop: Shop, name: str) -> Callable[[], object]:
    return lambda: ALL[name](shop.gateway.seen[-1])


def _error(invoke: Callable[[], object]) -> str:
    """Name of what an invocation raises: what a state machine matches."""
    with pytest.raises(Exception) as raised:  # noqa: PT011  # whichever it is
        invoke()
    return type(raised.value).__name__


@pytest.mark.parametrize("code", [404, None, " "])
def test_the_code_of_an_error_is_text(code: Any) -> None:
    with pytest.raises(TypeError, match="code of Wrong must be text that is not blank, got"):
        type("Wrong", (PermanentError,), {"code": code})
