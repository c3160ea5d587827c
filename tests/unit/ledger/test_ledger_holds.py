"""Holds: authorized, captured at most once and never above, or released; whatever comes late, twice or at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from constructs_lib.testing.invariants import assert_all_hold, audit_ledger
from saga_runtime import (
    Account,
    AccountClosed,
    AccountState,
    Clearing,
    CollectingAccounts,
    Commit,
    CurrencyMismatch,
    DirectEntry,
    DuplicatePosting,
    Hold,
    HoldClosed,
    HoldExceeded,
    HoldState,
    HoldUnknown,
    InsufficientFunds,
    Ledger,
    LedgerTerms,
    Money,
    StepCall,
    atomic_step,
    compensation,
)
from saga_runtime.errors import Conflict, Invalid, PermanentError, TransientError
from saga_runtime.ledger.holds import HoldBuilder
from saga_runtime.ledger.items import Leg
from saga_runtime.protocol import Metric
from saga_runtime.shared import aws
from tests.docs.pages import DOCS, snippets
from tests.unit.support.samples import NOW_MS, step_event
from tests.unit.support.world import Context, World

LEDGER = Ledger("ledger", LedgerTerms(holds=True))
MINUTE = timedelta(minutes=1)


def eur(minor: int) -> Money:
    """Euros."""
    return Money(minor, "EUR")


TO_BOB: list[Leg] = [("bob", eur(57)), ("fees", eur(3))]


@pytest.fixture(autouse=True)
def accounts(world: World) -> None:
    """Three accounts."""
    world.open_accounts(alice=500, bob=0, fees=0)
    world.wire.forget()


def authorize(amount: int = 100, key: str = "h-1") -> bool:
    """Hold something of alice."""
    call = DirectEntry(key)
    return LEDGER.commit(lambda: LEDGER.authorize(call, account="alice", amount=eur(amount), expires_in=MINUTE))


def capture(legs: list[Leg] = TO_BOB, key: str = "c-1", hold: str = "h-1") -> bool:
    """Capture a part of it."""
    call = DirectEntry(key)
    return LEDGER.commit(lambda: LEDGER.capture(call, account="alice", hold=hold, legs=legs))


def void(key: str = "v-1", hold: str = "h-1") -> bool:
    """Release it."""
    call = DirectEntry(key)
    return LEDGER.commit(lambda: LEDGER.void(call, account="alice", hold=hold))


def debit(amount: int, key: str = "d-1") -> bool:
    """Take something else from alice."""
    call = DirectEntry(key)
    return LEDGER.commit(lambda: LEDGER.debit(call, account="alice", amount=eur(amount), clearing="fx"))


def alice() -> tuple[int, int]:
    """Balance, and what of it is held."""
    (account,) = LEDGER.accounts("alice")
    return account.balance.minor_units, account.held


def sound(world: World) -> None:
    """The audit passes."""
    assert_all_hold(audit_ledger(world.items("ledger")))


def test_a_held_amount_is_in_the_balance_and_not_available(world: World) -> None:
    assert authorize(100)

    assert alice() == (500, 100)
    with pytest.raises(InsufficientFunds):
        debit(401)
    with pytest.raises(InsufficientFunds):
        authorize(401, key="h-2")
    assert debit(400)
    sound(world)


def test_a_capture_takes_a_part_and_releases_the_rest(world: World) -> None:
    authorize(100)

    assert capture()

    assert world.balances() == {"alice": 440, "bob": 57, "fees": 3}
    assert alice() == (440, 0)
    hold = LEDGER.hold("alice", "h-1")
    assert (hold.state, hold.captured, hold.closed_by) == (HoldState.CAPTURED, 60, "c-1")
    sound(world)


def test_all_that_is_held_can_be_captured_even_if_nothing_else_is_left(world: World) -> None:
    authorize(100)
    debit(400)

    assert capture([("bob", eur(100))])

    assert alice() == (0, 0)
    sound(world)


def test_a_void_releases_everything(world: World) -> None:
    authorize(100)

    assert void()

    assert alice() == (500, 0)
    assert debit(500)
    sound(world)


def test_each_operation_repeated_under_its_id_writes_nothing(world: World) -> None:
    assert (authorize(), authorize()) == (True, False)
    assert (capture(), capture()) == (True, False)
    assert not authorize()
    authorize(key="h-2")
    assert (void(hold="h-2"), void(hold="h-2"), void("v-2", hold="h-2")) == (True, False, False)

    assert world.balances() == {"alice": 440, "bob": 57, "fees": 3}
    sound(world)


@pytest.mark.parametrize(
    "legs",
    [
        [("bob", eur(58)), ("fees", eur(3))],
        [("bob", eur(56)), ("fees", eur(4))],
        [("bob", eur(57)), (Clearing("fees"), eur(3))],
        [("carol", eur(57)), ("fees", eur(3))],
    ],
)
def test_a_capture_of_other_legs_under_the_same_id_is_refused(world: World, legs: list[Leg]) -> None:
    """A caller that repeats it would take its own recipients for paid."""
    world.open_accounts(carol=0)
    authorize()
    capture()

    with pytest.raises(DuplicatePosting, match="hold h-1 was captured with other legs under the id c-1"):
        capture(legs)
    assert not capture(TO_BOB[::-1])

    assert world.balances() == {"alice": 440, "bob": 57, "fees": 3, "carol": 0}
    sound(world)


def test_a_leg_of_the_account_that_holds_is_refused(world: World) -> None:
    """Its net may be a credit, which a collecting account gets in a shard: nothing would be released."""
    shop = CollectingAccounts(prefix="merchant:", unit="EUR", shards=1)
    ledger = Ledger("ledger", LedgerTerms(holds=True, collecting=(shop,)))
    opened = ledger.builder.open_account(account_id="merchant:7", opening=eur(100), now_ms=NOW_MS)
    assert ledger.commit(lambda: opened)
    held = DirectEntry("h-1")
    ledger.commit(lambda: ledger.authorize(held, account="merchant:7", amount=eur(100), expires_in=MINUTE))
    legs: list[Leg] = [("merchant:7", eur(300)), ("alice", eur(-250))]

    with pytest.raises(Invalid, match="legs of a capture must be of other accounts than the one that holds"):
        ledger.commit(lambda: ledger.capture(DirectEntry("c-1"), account="merchant:7", hold="h-1", legs=legs))

    sound(world)


def test_an_authorization_repeated_after_its_hold_has_ended_is_refused(world: World) -> None:
    """Its caller would take for held what others can spend."""
    authorize()
    void()
    with pytest.raises(HoldClosed, match="hold h-1 is voided"):
        authorize()
    authorize(key="h-2")
    world.clock.ms += 60_000
    with pytest.raises(HoldClosed, match="hold h-2 is expired"):
        authorize(key="h-2")
    assert LEDGER.expire("alice", "h-2")
    with pytest.raises(HoldClosed, match="hold h-2 is expired"):
        authorize(key="h-2")

    assert alice() == (500, 0)
    sound(world)


def test_a_void_under_the_id_of_another_holds_capture_adds_up(world: World) -> None:
    def hold(entry: DirectEntry) -> None:
        in_an_hour = timedelta(hours=1)
        LEDGER.commit(lambda: LEDGER.authorize(entry, account="alice", amount=Money(10, "EUR"), expires_in=in_an_hour))

    hold(DirectEntry("h-1"))
    hold(DirectEntry("h-2"))
    both = DirectEntry("both")
    LEDGER.commit(lambda: LEDGER.capture(both, account="alice", hold="h-1", legs=[("bob", Money(10, "EUR"))]))

    LEDGER.commit(lambda: LEDGER.void(both, account="alice", hold="h-2"))

    assert_all_hold(audit_ledger(world.items("ledger")))


def test_another_capture_of_a_captured_hold_is_refused(world: World) -> None:
    authorize()
    capture()

    with pytest.raises(HoldClosed, match="hold h-1 is captured"):
        capture(key="c-2")
    with pytest.raises(HoldClosed, match="hold h-1 is captured"):
        void()

    assert world.telemetry.counts[Metric.LATE_CAPTURE] == 0
    sound(world)


def test_a_capture_above_the_hold_is_refused(world: World) -> None:
    authorize(100)

    with pytest.raises(HoldExceeded, match=r"hold h-1 holds 1\.00 EUR, the capture is of 1\.01 EUR"):
        capture([("bob", eur(100)), ("fees", eur(1))])

    assert alice() == (500, 100)


def test_a_capture_after_a_void_is_refused_and_reported(world: World) -> None:
    authorize()
    void()

    with pytest.raises(HoldClosed, match="hold h-1 is voided"):
        capture()

    assert world.telemetry.counts[Metric.LATE_CAPTURE] == 1
    assert ("late_capture", {"hold": "h-1", "entry": "c-1", "state": "VOIDED"}) in world.telemetry.events
    assert alice() == (500, 0)


def test_a_capture_after_the_expiry_is_refused_and_reported_swept_or_not(world: World) -> None:
    authorize()
    world.clock.ms += 60_000

    with pytest.raises(HoldClosed, match="hold h-1 is expired"):
        capture()
    assert LEDGER.expire("alice", "h-1")
    with pytest.raises(HoldClosed, match="hold h-1 is expired"):
        capture()

    assert world.telemetry.counts[Metric.LATE_CAPTURE] == 2
    assert alice() == (500, 0)
    assert LEDGER.hold("alice", "h-1").state is HoldState.EXPIRED
    sound(world)


def test_a_capture_that_travels_while_its_hold_expires_writes_nothing(world: World) -> None:
    authorize()
    sent = LEDGER.capture(DirectEntry("c-1"), account="alice", hold="h-1", legs=TO_BOB)
    world.clock.ms += 60_000
    assert LEDGER.expire("alice", "h-1")
    debit(500)  # what was released is spent

    with pytest.raises(Conflict):
        LEDGER.commit(lambda: sent)

    assert alice() == (0, 0)
    assert world.balances()["bob"] == 0
    sound(world)


def test_a_hold_expires_once_and_not_before_its_time(world: World) -> None:
    authorize()

    world.clock.ms += 59_999
    assert not LEDGER.expire("alice", "h-1")
    world.clock.ms += 1
    assert (LEDGER.expire("alice", "h-1"), LEDGER.expire("alice", "h-1")) == (True, False)

    assert alice() == (500, 0)
    assert not void()


def test_a_late_authorization_does_not_repeat_an_ended_hold(world: World) -> None:
    (account,) = LEDGER.accounts("alice")
    hold = Hold(account_id="alice", hold_id="h-1", amount=eur(100), expires_at=NOW_MS + 60_000)
    late = HoldBuilder(ledger=LEDGER.builder).authorize(account=account, hold=hold, found=None, now_ms=NOW_MS)
    authorize()
    void()

    with pytest.raises(Conflict):
        LEDGER.commit(lambda: late)

    assert alice() == (500, 0)


def test_another_amount_under_the_id_of_a_hold_is_refused(world: World) -> None:
    authorize(100)

    with pytest.raises(DuplicatePosting, match="holds another amount"):
        authorize(99)


def test_a_hold_that_does_not_exist_is_unknown(world: World) -> None:
    for operation in (capture, void):
        with pytest.raises(HoldUnknown, match="account alice has no hold h-1"):
            operation()


def test_an_account_with_a_hold_is_not_closed(world: World) -> None:
    authorize(500)
    (account,) = LEDGER.accounts("alice")

    with pytest.raises(Invalid, match="move it before closing"):
        LEDGER.builder.close_account(account=account)


@pytest.mark.parametrize(
    ("account", "error"),
    [
        (Account(account_id="alice", balance=eur(99)), InsufficientFunds),
        (Account(account_id="alice", balance=eur(500), held=401), InsufficientFunds),
        (Account(account_id="alice", balance=eur(500), state=AccountState.CLOSED), AccountClosed),
        (Account(account_id="alice", balance=Money(500, "USD")), CurrencyMismatch),
    ],
)
def test_an_amount_that_the_account_forbids_is_not_authorized(account: Account, error: type[PermanentError]) -> None:
    hold = Hold(account_id="alice", hold_id="h-1", amount=eur(100), expires_at=2)

    with pytest.raises(error):
        HoldBuilder(ledger=LEDGER.builder).authorize(account=account, hold=hold, found=None, now_ms=1)


@pytest.mark.parametrize("expires_in", [timedelta(0), timedelta(days=367), timedelta(seconds=-1), 60, None])
def test_a_hold_expires_within_a_year(expires_in: Any) -> None:
    with pytest.raises(Invalid, match="expires_in must be a timedelta of up to 366 days"):
        LEDGER.authorize(DirectEntry("h-1"), account="alice", amount=eur(1), expires_in=expires_in)


def test_a_hold_needs_a_ledger_that_releases_it() -> None:
    with pytest.raises(RuntimeError, match=r"give LedgerTable\(holds=True\)"):
        Ledger("ledger").authorize(DirectEntry("h-1"), account="alice", amount=eur(1), expires_in=MINUTE)


@pytest.mark.parametrize("legs", [[], [("bob", eur(-1))], [("bob", eur(1)), ("fees", eur(-1))], [("bob", 1.5)]])
def test_a_capture_is_of_something(legs: Any) -> None:
    authorize()

    with pytest.raises(Invalid):
        capture(legs)


def test_an_amount_of_nothing_is_not_held() -> None:
    with pytest.raises(Invalid, match="must be positive"):
        authorize(0)


def test_points_can_be_credited_with_a_capture(world: World) -> None:
    authorize()

    capture([("bob", eur(60)), (Clearing("a"), Money(1, "USD")), (Clearing("b"), Money(-1, "USD"))])

    sound(world)


# -- in a saga ---------------------------------------------------------------------------------------------------------


@atomic_step
def hold_step(call: StepCall) -> Commit:
    """Authorize."""
    writes = LEDGER.authorize(call, account="alice", amount=eur(100), expires_in=MINUTE)
    return Commit(writes=writes, output={"hold": call.key})


@compensation
def release_step(call: StepCall, output: Any) -> Commit:
    """Its compensation."""
    return Commit(writes=LEDGER.void(call, account="alice", hold=output["hold"]))


@atomic_step
def capture_step(call: StepCall) -> Commit:
    """Capture what the step before it held."""
    held = call.outputs["Hold"]["hold"]
    return Commit(writes=LEDGER.capture(call, account="alice", hold=held, legs=TO_BOB))


def test_a_saga_holds_and_captures(world: World) -> None:
    output = [hold_step(step_event(step="Hold"), Context())["output"] for _ in range(2)][1]
    for _ in range(2):
        capture_step(step_event(step="Capture", outputs={"Hold": output}), Context())

    assert world.balances() == {"alice": 440, "bob": 57, "fees": 3}
    sound(world)


def test_a_step_whose_hold_has_expired_replays_its_output(world: World) -> None:
    outputs = [hold_step(step_event(step="Hold"), Context())["output"]]
    world.clock.ms += 60_000
    LEDGER.expire("alice", outputs[0]["hold"])

    outputs.append(hold_step(step_event(step="Hold"), Context())["output"])

    assert outputs[0] == outputs[1]


def test_the_compensation_of_a_hold_that_has_expired_is_done(world: World) -> None:
    output = hold_step(step_event(step="Hold"), Context())["output"]
    world.clock.ms += 60_000
    LEDGER.expire("alice", output["hold"])

    for _ in range(2):
        release_step(step_event(step="Hold"), Context())

    assert alice() == (500, 0)
    assert list(world.rows().values()) == ["COMPENSATED"]


# -- at once -----------------------------------------------------------------------------------------------------------


def _outcome(operation: Callable[[], bool]) -> bool | type[BaseException]:
    for _ in range(40):
        try:
            return operation()
        except Conflict:
            continue
        except PermanentError as refusal:
            return type(refusal)
    raise AssertionError("never an outcome")


@pytest.mark.parametrize("round_", range(4))
def test_of_captures_voids_and_the_expiry_at_once_exactly_one_closes_the_hold(world: World, round_: int) -> None:
    authorize()
    world.clock.ms += 59_999
    captures: list[Callable[[], bool]] = [lambda: capture(key="c-1"), lambda: capture(key="c-1")]
    operations: list[Callable[[], bool]] = [
        *captures,
        *(lambda key=key: capture(key=key) for key in ("c-2", "c-3")),
        void,
        lambda: void("v-2"),
    ]
    for _ in range(round_):
        operations.append(operations.pop(0))

    with ThreadPoolExecutor(max_workers=len(operations)) as pool:
        outcomes = list(pool.map(_outcome, operations))

    hold = LEDGER.hold("alice", "h-1")
    assert outcomes.count(True) == 1
    if hold.closed_by == "c-1":
        ours = [outcome for operation, outcome in zip(operations, outcomes, strict=True) if operation in captures]
        assert set(ours) == {True, False}
    assert hold.state in {HoldState.CAPTURED, HoldState.VOIDED}
    assert alice() == ((440, 0) if hold.state is HoldState.CAPTURED else (500, 0))
    sound(world)


def test_holds_and_debits_at_once_never_take_more_than_there_is(world: World) -> None:
    operations = [lambda n=n: authorize(60, f"h-{n}") for n in range(10)]
    operations += [lambda n=n: debit(60, f"d-{n}") for n in range(10)]

    with ThreadPoolExecutor(max_workers=len(operations)) as pool:
        outcomes = list(pool.map(_outcome, operations))

    assert outcomes.count(True) == 500 // 60
    assert set(outcomes) == {True, InsufficientFunds}
    balance, held = alice()
    assert 0 <= held <= balance
    sound(world)


def test_hold_and_accounts_are_read_in_one_call(world: World) -> None:
    """A collecting account is read if it gives, and not if it receives."""
    shop = CollectingAccounts(prefix="merchant:", unit="EUR", shards=1)
    ledger = Ledger("ledger", LedgerTerms(holds=True, collecting=(shop,)))
    opened = ledger.builder.open_account(account_id="merchant:7", opening=eur(50), now_ms=NOW_MS)
    entries: Any = [write.action for write in opened]
    aws.dynamodb().transact_write_items(TransactItems=entries)
    legs: list[Leg] = [("bob", eur(80)), ("merchant:7", eur(-20))]

    def authorizes() -> bool:
        call = DirectEntry("h-1")
        return ledger.commit(lambda: ledger.authorize(call, account="alice", amount=eur(100), expires_in=MINUTE))

    def captures() -> bool:
        return ledger.commit(lambda: ledger.capture(DirectEntry("c-1"), account="alice", hold="h-1", legs=legs))

    for act in (authorizes, captures):
        assert world.calls_of(act) == ["BatchGetItem", "TransactWriteItems"]
    assert world.balances() == {"alice": 440, "bob": 80, "fees": 0, "merchant:7": 30}


def test_amount_of_a_hold_is_checked_before_anything_is_read(world: World) -> None:
    with pytest.raises(Invalid, match="amount"):
        authorize(0)

    assert world.wire.sent == []


# -- the guide's capture behind the pivot ----------------------------------------------------------------------------


@pytest.fixture
def shipped(world: World) -> Callable[[], Any]:
    """The page's own step, which takes of alice, who has a hold, what was shipped."""
    world.open_accounts(merchant=0)
    authorize()
    page = DOCS / "how-to" / "authorize-and-capture.md"
    names: dict[str, Any] = {}
    for shown in snippets():
        if shown.page == page and shown.kind[:1] == ["run"] and "StepCall" in shown.body:
            exec(shown.body, names)
    outputs = {"Authorize": {"hold": "h-1"}, "Ship": {"total": 60}}
    event = step_event(step="Capture", body={"customer": "alice"}, outputs=outputs)
    return lambda: names["capture_or_debit"](event, Context())


def test_the_guides_late_capture_debits_what_has_expired_once(world: World, shipped: Callable[[], Any]) -> None:
    world.clock.ms += 60_000
    with pytest.raises(TransientError):
        shipped()
    LEDGER.expire("alice", "h-1")

    for _ in range(2):
        shipped()

    assert world.balances() == {"alice": 440, "bob": 0, "fees": 30, "merchant": 30}
    sound(world)


def test_the_guides_capture_in_time_is_of_the_hold(world: World, shipped: Callable[[], Any]) -> None:
    shipped()
    world.clock.ms += 60_000
    shipped()

    assert LEDGER.hold("alice", "h-1").state is HoldState.CAPTURED
    assert world.balances() == {"alice": 440, "bob": 0, "fees": 30, "merchant": 30}


@pytest.mark.parametrize("end", [void, capture], ids=["voided", "captured"])
def test_the_guides_late_capture_takes_nothing_of_a_hold_that_ended_otherwise(
    world: World, shipped: Callable[[], Any], end: Callable[[], bool]
) -> None:
    end()
    before = world.balances()

    with pytest.raises(HoldClosed):
        shipped()

    assert world.balances() == before


def test_the_guides_late_capture_succeeds_once_there_is_enough(world: World, shipped: Callable[[], Any]) -> None:
    world.clock.ms += 60_000
    LEDGER.expire("alice", "h-1")
    LEDGER.commit(lambda: LEDGER.transfer(DirectEntry("spent"), source="alice", target="bob", amount=eur(450)))
    with pytest.raises(InsufficientFunds):
        shipped()

    LEDGER.commit(lambda: LEDGER.transfer(DirectEntry("again"), source="bob", target="alice", amount=eur(450)))
    shipped()

    assert world.balances()["merchant"] == 30
