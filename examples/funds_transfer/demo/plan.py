"""Requests and faults of the demo: made from a seed, so that a run can be repeated."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any, Final

from constructs_lib.testing.fault_plan import Planned
from saga_runtime.idempotency.identity import request_id_of

from .accounts import CURRENCY, MAIN, PARTNER, Opening
from .trouble import Trouble, faults_of

OPENING: Final = 500_000
"""Minor units on each account at the beginning: more than all transfers together could take."""
SMALL_CHANGE: Final = 500
"""What the accounts have that are to be refused, and what the full account's cap is."""
USERS: Final = ("shop", "bank")
SMALLEST: Final = 36
"""Fewer transfers cannot show everything."""

_RICH: Final = tuple(
    "ada alan barbara claude dennis donald edsger frances grace hedy john katherine leslie margaret niklaus tim".split()
)
_ABROAD: Final = tuple("adele bjarne brian guido james ken larry linus radia robin".split())
_POOR: Final = "charlie"
_STRANGER: Final = "nobody"
_CLOSED: Final = "closed-shop"
_FULL: Final = "full-shop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One transfer that a user wants, and sends several times at once under one key.

    Attributes:
        user: Who wants it.
        key: Its Idempotency-Key.
        source: Account in the main ledger.
        target: Account in the ledger that it goes to.
        amount: Minor units.
        currency: Of the amount.
        to_partner: Whether it goes to the partner's ledger.
        copies: How many are sent at once.
        expected: Status of the settled answer.
        refunded: Whether its debit is refunded.
        closed_meanwhile: Whether its source is closed between debit and refund, which thus goes to suspense.
        imposter: Whether another body is sent under its key.
        waits: Whether its user prefers to wait for the settled answer.
        troubles: What goes wrong.
    """

    user: str
    key: str
    source: str
    target: str
    amount: int
    currency: str = CURRENCY
    to_partner: bool = False
    copies: int = 3
    expected: int = 200
    refunded: bool = False
    closed_meanwhile: bool = False
    imposter: bool = False
    waits: bool = False
    troubles: tuple[Trouble, ...] = ()

    @property
    def body(self) -> dict[str, Any]:
        """The request's body."""
        body = {"from": self.source, "to": self.target, "amount": self.amount, "currency": self.currency}
        return {**body, "to_ledger": PARTNER} if self.to_partner else body

    @property
    def takes_long(self) -> bool:
        """True if it continues only when its record is due."""
        return any(trouble.takes_long for trouble in self.troubles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nonsense:
    """A request that must be turned away at the door."""

    user: str
    key: str | None
    body: bytes
    expected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that a run does."""

    accounts: tuple[Opening, ...]
    transfers: tuple[Transfer, ...]
    nonsense: tuple[Nonsense, ...]

    def faults(self, scopes: Mapping[str, str]) -> list[tuple[Trouble, Planned]]:
        """The faults, each aimed at one transfer by the id that its request will have.

        Args:
            scopes: Scope of each user's requests.
        """
        return [
            fault for t in self.transfers if t.troubles for fault in faults_of(t, request_id_of(scopes[t.user], t.key))
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fate:
    """Route and end of a planned transfer."""

    target: str | None = None
    to_partner: bool = False
    expected: int = 200
    refunded: bool = False
    poor: bool = False
    imposter: bool = False
    currency: str = CURRENCY
    closed_meanwhile: bool = False
    troubles: tuple[Trouble, ...] = ()


_HERE = _Fate()
_OTHER_BODY = _Fate(imposter=True)
_TOO_POOR = _Fate(poor=True, expected=402)
_TO_NOBODY = _Fate(target=_STRANGER, expected=404)
_DOLLARS = _Fate(currency="USD", expected=422)
_THERE = _Fate(to_partner=True)
_TO_CLOSED = replace(_THERE, target=_CLOSED, expected=422, refunded=True)
_TO_FULL = replace(_THERE, target=_FULL, expected=422, refunded=True)
_TO_NOBODY_THERE = replace(_THERE, target=_STRANGER, expected=404, refunded=True)
_TOO_POOR_THERE = replace(_THERE, poor=True, expected=402)
_INTERRUPTED = replace(_THERE, expected=500, refunded=True)
"""Stopped before the credit was decided: a recovery gives the money back."""

_ORDINARY: Final = (
    *(_OTHER_BODY, _THERE, _TOO_POOR, _TO_CLOSED, _TO_NOBODY, _TO_FULL, _HERE, _THERE, _TOO_POOR_THERE, _HERE),
    *(_THERE, _HERE, _DOLLARS, _HERE, _TO_NOBODY_THERE, _HERE, _THERE, _HERE, replace(_THERE, imposter=True), _HERE),
)


def _with(fate: _Fate, *troubles: Trouble) -> _Fate:
    return replace(fate, troubles=troubles)


_HERE_IN_TROUBLE: Final = tuple(
    _with(_HERE, trouble)
    for trouble in (
        *(Trouble.WORKER_KILLED_BEFORE, Trouble.WORKER_KILLED_AFTER, Trouble.WRITE_ANSWER_LOST, Trouble.WRITE_CONFLICT),
        *(Trouble.DOOR_KILLED_AFTER_RESERVE, Trouble.DOOR_KILLED_AFTER_START),
        *(Trouble.RESERVE_ANSWER_LOST, Trouble.RESERVE_UNREACHABLE),
    )
)
_THERE_IN_TROUBLE: Final = (
    _with(_THERE, Trouble.DEBIT_KILLED_AT_READ, Trouble.CREDIT_KILLED_AT_READ, Trouble.NOTIFIER_KILLED_AT_LOOK),
    _with(_THERE, Trouble.DEBIT_KILLED_AT_WRITE, Trouble.CREDIT_KILLED_AT_WRITE, Trouble.NOTIFIER_KILLED_AT_SEND),
    _with(_THERE, Trouble.NOTIFIER_KILLED_AT_WRITE),
    _with(_TO_CLOSED, Trouble.CREDIT_KILLED_AT_LOOK, Trouble.REFUND_KILLED_AT_LOOK),
    _with(_TO_FULL, Trouble.REFUND_KILLED_AT_READ),
    _with(_TO_NOBODY_THERE, Trouble.REFUND_KILLED_AT_WRITE),
    _with(_TOO_POOR_THERE, Trouble.DEBIT_KILLED_AT_LOOK),
    _with(_HERE, Trouble.STOPPED_AFTER_TRANSFER),
    _with(replace(_INTERRUPTED, refunded=False), Trouble.STOPPED_BEFORE_DEBIT),
    _with(_INTERRUPTED, Trouble.STOPPED_AFTER_DEBIT),
    _with(replace(_INTERRUPTED, closed_meanwhile=True), Trouble.STOPPED_AFTER_DEBIT, Trouble.REFUND_HELD_BACK),
    _with(_THERE, Trouble.STOPPED_AFTER_CREDIT),
    _with(_THERE, Trouble.STOPPED_BEFORE_RECEIPT),
    _with(_THERE, Trouble.STOPPED_BEFORE_SETTLING),
    _with(_TO_CLOSED, Trouble.STOPPED_BEFORE_UNDO, Trouble.RECOVERY_STOPPED_AFTER_UNDO),
    _with(_TO_FULL, Trouble.STOPPED_BEFORE_SETTLING_A_FAILURE),
)


def make_plan(*, transfers: int, seed: int) -> Plan:
    """Make a plan.

    Args:
        transfers: How many keys there are; at least 36.
        seed: The same seed makes the same plan.

    Raises:
        ValueError: If there are too few transfers to show everything.
    """
    if transfers < SMALLEST:
        raise ValueError(f"transfers must be at least {SMALLEST}, got {transfers}; fewer cannot show everything")
    chance = random.Random(seed)
    troubled = _HERE_IN_TROUBLE * max(1, transfers // 100) + _THERE_IN_TROUBLE * max(1, transfers // 150)
    # Both users use the key of the first two: two requests, and neither sees the other's.
    fates = cycle(_ORDINARY)
    every = [_HERE, _HERE, *troubled, *(next(fates) for _ in range(transfers - 2 - len(troubled)))]
    wanted = [_transfer(chance, number, fate) for number, fate in enumerate(every)]
    wanted[:2] = [replace(t, user=user, key="shared") for t, user in zip(wanted[:2], USERS, strict=True)]
    chance.shuffle(wanted)
    # What waits until its record is due takes longest: it begins first.
    wanted.sort(key=lambda transfer: not transfer.takes_long)
    return Plan(
        accounts=tuple(_accounts(wanted)),
        transfers=tuple(wanted),
        nonsense=tuple(_nonsense(chance, max(8, transfers // 8))),
    )


def _transfer(chance: random.Random, number: int, fate: _Fate) -> Transfer:
    source, target = chance.sample(_RICH, 2)
    if fate.to_partner:
        target = chance.choice(_ABROAD)
    if fate.troubles and fate.to_partner:
        # Accounts that no other transfer uses: a fault at the read of one meets no other, and one can be closed.
        source, target = f"customer-{number:04d}", f"merchant-{number:04d}"
    elif fate.poor:
        source = _POOR
    return Transfer(
        user=chance.choice(USERS),
        key=f"invoice-{number:04d}",
        source=source,
        target=fate.target or target,
        amount=chance.randint(1, 10_000) + (SMALL_CHANGE if fate.poor or fate.target == _FULL else 0),
        currency=fate.currency,
        to_partner=fate.to_partner,
        # A client that waits for long asks often.
        copies=2 if any(trouble.takes_long for trouble in fate.troubles) else chance.choice((2, 3, 3, 4)),
        expected=fate.expected,
        refunded=fate.refunded,
        closed_meanwhile=fate.closed_meanwhile,
        imposter=fate.imposter,
        waits=number % 2 == 0 and not fate.troubles,
        troubles=fate.troubles,
    )


def _accounts(transfers: list[Transfer]) -> Iterator[Opening]:
    """The accounts of both ledgers, some of which take nothing."""
    yield from (Opening(ledger=MAIN, name=name, balance=OPENING) for name in _RICH)
    yield Opening(ledger=MAIN, name=_POOR, balance=SMALL_CHANGE)
    yield from (Opening(ledger=PARTNER, name=name) for name in _ABROAD)
    yield Opening(ledger=PARTNER, name=_CLOSED, closed=True)
    yield Opening(ledger=PARTNER, name=_FULL, balance=SMALL_CHANGE, cap=SMALL_CHANGE)
    for transfer in transfers:
        if transfer.troubles and transfer.to_partner:
            enough = 0 if transfer.expected == 402 else transfer.amount
            yield Opening(ledger=MAIN, name=transfer.source, balance=enough)
            if transfer.target not in {_CLOSED, _FULL, _STRANGER}:
                yield Opening(ledger=PARTNER, name=transfer.target)


def _nonsense(chance: random.Random, count: int) -> Iterator[Nonsense]:
    fine = '{"from":"ada","to":"alan","amount":100,"currency":"EUR"}'
    bodies = (
        "not JSON at all",
        '{"from":"ada","to":"alan","amount":12.5,"currency":"EUR"}',
        '{"from":"ada","to":"alan","amount":-100,"currency":"EUR"}',
        '{"from":"ada","to":"alan","amount":100}',
        '{"from":"ada","to":"alan","amount":"100","currency":"EUR"}',
        '{"from":"ada","to":"alan","amount":100,"amount":900,"currency":"EUR"}',
        "[]",
        "",
    )
    for number in range(count):
        user = chance.choice(USERS)
        if number % 2:
            body = bodies[number // 2 % len(bodies)]
            yield Nonsense(user=user, key=f"nonsense-{number}", body=body.encode(), expected=400)
        elif number % 8 == 6:
            yield Nonsense(user=user, key=f"nonsense-{number}", body=fine.encode() + b" " * 70_000, expected=413)
        else:
            yield Nonsense(user=user, key=None, body=fine.encode(), expected=400)
