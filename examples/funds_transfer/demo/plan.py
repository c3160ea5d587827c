"""What the demo sends, and what it breaks: made from a seed, so that a run can be repeated."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from constructs_lib.testing.fault_plan import Fault

CURRENCY: Final = "EUR"
OPENING: Final = 500_000
"""Minor units on each account at the beginning: more than all transfers together could take."""
SMALL_CHANGE: Final = 500
"""What the account has that is to be refused."""
USERS: Final = ("shop", "bank")

_GATEKEEPER: Final = "FundsTransfer/Api/Gatekeeper/transfers/Function"
_WORKER: Final = "FundsTransfer/TransferFunction/Function"
_RICH: Final = tuple(
    "ada alan barbara claude dennis donald edsger frances grace hedy john katherine leslie margaret niklaus tim".split()
)
_POOR: Final = "charlie"
_STRANGER: Final = "nobody"
_MARKED_FROM: Final = 10_001
"""Amounts from here on are used once each: a fault finds the one transfer that it is meant for by its amount."""


class Trouble(StrEnum):
    """What goes wrong in the middle of a transfer."""

    WORKER_KILLED_BEFORE = "worker killed right before its write"
    WORKER_KILLED_AFTER = "worker killed right after its write"
    WRITE_ANSWER_LOST = "answer to the worker's write lost"
    WRITE_CONFLICT = "conflict at the worker's write"
    DOOR_KILLED_AFTER_RESERVE = "gatekeeper killed before its start"
    DOOR_KILLED_AFTER_START = "gatekeeper killed after its start"
    RESERVE_ANSWER_LOST = "answer to the reservation lost"
    RESERVE_UNREACHABLE = "no way to reserve for a while"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One transfer that a user wants, and sends several times at once under one key."""

    user: str
    key: str
    source: str
    target: str
    amount: int
    currency: str = CURRENCY
    copies: int = 3
    expected: int = 200
    imposter: bool = False
    trouble: Trouble | None = None

    @property
    def body(self) -> dict[str, Any]:
        """The request's body."""
        return {"from": self.source, "to": self.target, "amount": self.amount, "currency": self.currency}


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

    opening: Mapping[str, int]
    transfers: tuple[Transfer, ...]
    nonsense: tuple[Nonsense, ...]

    @property
    def faults(self) -> tuple[tuple[Trouble, Fault], ...]:
        """The faults, each aimed at one transfer."""
        return tuple((t.trouble, _fault(t.trouble, t.amount)) for t in self.transfers if t.trouble is not None)


def make_plan(*, transfers: int, seed: int) -> Plan:
    """Make a plan.

    Args:
        transfers: How many keys there are; at least 20.
        seed: The same seed makes the same plan.

    Raises:
        ValueError: If there are too few transfers to show everything.
    """
    if transfers < 20:
        raise ValueError(f"transfers must be at least 20, got {transfers}; fewer cannot show everything")
    chance = random.Random(seed)
    wanted = [_transfer(chance, number) for number in range(transfers)]
    # Both users use this key: two requests, and neither sees the other's.
    wanted[1] = replace(wanted[1], user=USERS[0], key="shared")
    wanted[2] = replace(wanted[2], user=USERS[1], key="shared")
    wanted[3:] = [_marked(chance, number, transfer, transfers) for number, transfer in enumerate(wanted[3:])]
    chance.shuffle(wanted)
    # A start that was lost is found by a duplicate when it is due: begin with those, for they take longest.
    wanted.sort(key=lambda transfer: transfer.trouble is not Trouble.DOOR_KILLED_AFTER_RESERVE)
    return Plan(
        opening={**dict.fromkeys(_RICH, OPENING), _POOR: SMALL_CHANGE},
        transfers=tuple(wanted),
        nonsense=tuple(_nonsense(chance, max(8, transfers // 8))),
    )


def _transfer(chance: random.Random, number: int) -> Transfer:
    source, target = chance.sample(_RICH, 2)
    return Transfer(
        user=chance.choice(USERS),
        key=f"invoice-{number:04d}",
        source=source,
        target=target,
        amount=chance.randint(1, 10_000),
        copies=chance.choice((2, 3, 3, 4)),
    )


def _marked(chance: random.Random, number: int, transfer: Transfer, total: int) -> Transfer:
    """Give every transfer its fate: most are ordinary, some are refused, meet an imposter, or get into trouble."""
    troubles = list(Trouble)
    per_trouble = max(1, total // 60)
    if number < per_trouble * len(troubles):
        return replace(transfer, trouble=troubles[number % len(troubles)], amount=_MARKED_FROM + number)
    fate = number % 10
    if fate == 0:
        return replace(transfer, source=_POOR, amount=SMALL_CHANGE + chance.randint(1, 5_000), expected=402)
    if fate == 1:
        return replace(transfer, target=_STRANGER, expected=404) if number % 20 == 1 else transfer
    if fate in {2, 3}:
        return replace(transfer, imposter=True)
    if number % 40 == 4:
        return replace(transfer, currency="USD", expected=422)
    return transfer


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


def _fault(trouble: Trouble, amount: int) -> Fault:
    at_the_write: dict[str, Any] = {
        "function": _WORKER,
        "call": "dynamodb:TransactWriteItems",
        "containing": f'"-{amount}"',
    }
    # The request travels as text inside the item: only there does a number stand without quotes.
    at_the_door: dict[str, Any] = {"function": _GATEKEEPER, "containing": f":{amount},"}
    reserve = {**at_the_door, "call": "dynamodb:PutItem"}
    start = {**at_the_door, "call": "states:StartExecution"}
    match trouble:
        case Trouble.WORKER_KILLED_BEFORE:
            return Fault(**at_the_write, moment="before", action="kill")
        case Trouble.WORKER_KILLED_AFTER:
            return Fault(**at_the_write, moment="after", action="kill")
        case Trouble.WRITE_ANSWER_LOST:
            return Fault(**at_the_write, moment="after", action="drop")
        case Trouble.WRITE_CONFLICT:
            return Fault(**at_the_write, moment="before", action="conflict")
        case Trouble.DOOR_KILLED_AFTER_RESERVE:
            return Fault(**start, moment="before", action="kill")
        case Trouble.DOOR_KILLED_AFTER_START:
            return Fault(**start, moment="after", action="kill")
        case Trouble.RESERVE_ANSWER_LOST:
            return Fault(**reserve, moment="after", action="drop")
        case Trouble.RESERVE_UNREACHABLE:
            return Fault(**reserve, moment="before", action="throttle", attempts="all")
