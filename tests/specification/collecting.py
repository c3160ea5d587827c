"""Model: a collecting account. Credits go to the shard of their window, sweepers move a shard's money to the account.

Two windows of one shard. A credit that meets a closed shard plans again, for the window of that moment. A sweep closes
a shard when its window is over, or leaves it open when a debit needs the money. Every invocation may die at any moment,
and its transaction may travel; the account may be closed while it holds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

COLLECTING: Final = "lambda_src/saga_runtime/ledger/collecting.py"
WRITES: Final = "lambda_src/saga_runtime/ledger/writes.py"


class CollectingCondition(Condition):
    """Conditions of collecting accounts."""

    ENTRY_ONCE = Because(
        "a payment is written once: who pays has an entry of its id, in no window",
        WRITES,
        'when("attribute_not_exists(#pk)")',
    )
    SHARD_OPEN = Because(
        "a credit that comes late is refused by a closed shard, and planned again",
        COLLECTING,
        "attribute_not_exists(#pk) OR (#state = :state AND",
    )
    SHARD_AS_READ = Because(
        "a sweep moves what the shard holds: no credit came since it was read",
        COLLECTING,
        "#balance = :held AND #sequence = :read",
    )
    SWEEP_OPEN = Because("a shard is closed once", COLLECTING, "AND #sequence = :read AND #state = :open")
    ACCOUNT_AS_READ = Because(
        "the account takes the money on the balance that was read", WRITES, "#sequence = :read AND #balance = :before"
    )
    ONE_TRANSACTION = Because(
        "what leaves the shard arrives in the same transaction",
        COLLECTING,
        "for write in (taken, entry, *given)]",
    )
    SUSPENSE = Because(
        "money that the account cannot take goes to suspense: no shard is stuck",
        COLLECTING,
        "except PermanentError: party = Clearing(suspense)",
    )
    DUE = Because("a shard is found when its window is over", COLLECTING, "**due_fields(shard.partition, shard.due_at)")
    CLOSED_AFTER_ITS_WINDOW = Because(
        "a shard of the present window is never closed: its credits would find no shard",
        COLLECTING,
        "closes = now_ms >= shard.due_at",
    )
    PLANS_AGAIN = Because(
        "a credit is planned for the window of the moment at which it is planned",
        COLLECTING,
        "shards_of(accounts, account_id, window_of(now_ms))[spread",
    )


class CollectingPromise(StrEnum):
    """Promises of the model."""

    CREDITED_TWICE = "CREDITED_TWICE"
    MONEY_LOST_OR_MADE = "MONEY_LOST_OR_MADE"
    MONEY_IN_A_CLOSED_SHARD = "MONEY_IN_A_CLOSED_SHARD"
    SHARD_DIFFERS_FROM_ITS_ENTRIES = "SHARD_DIFFERS_FROM_ITS_ENTRIES"
    ACCOUNT_DIFFERS_FROM_ITS_ENTRIES = "ACCOUNT_DIFFERS_FROM_ITS_ENTRIES"


C, P = CollectingCondition, CollectingPromise


class At(StrEnum):
    """States of an invocation."""

    IDLE = "idle"
    SEND = "about to send"
    HALF = "shard written, account not yet"
    TRAVELS = "dead, its transaction travels"


class Who(StrEnum):
    """Senders of a write."""

    CREDIT = "credit"
    SWEEP = "sweep"
    NEED = "sweep by need"
    DEBIT = "debit"


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard's item and its entries."""

    balance: int = 0
    sequence: int = 0
    open: bool = True
    entries: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """An invocation and what it has read: window, shard, account."""

    at: At = At.IDLE
    window: int = 0
    balance: int = 0
    sequence: int = 0
    main: int = 0
    read: int = 0
    takes: bool = True


IDLE: Final = Place()


@dataclass(frozen=True, slots=True)
class World:
    """Shards of two windows, the account, and everything else that holds money.

    Attributes:
        main, sequence, total, open: the account's item and what its entries sum to.
        credited: how often each credit was written; counted to two.
        clock: the present window.
    """

    shards: tuple[Shard, Shard] = (Shard(), Shard())
    main: int = 0
    sequence: int = 0
    total: int = 0
    open: bool = True
    suspense: int = 0
    paid_out: int = 0
    credited: tuple[int, ...] = ()
    clock: int = 0
    places: tuple[Place, ...] = ()


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectingModel(Conditional):
    """The model.

    Attributes:
        credits: credits of different payments, of 1 each.
        others: further invocations; each place is used again and again.
        closes: whether the account may be closed.
    """

    credits: int = 2
    others: tuple[Who, ...] = (Who.SWEEP, Who.SWEEP)
    closes: bool = False

    def initial(self) -> World:
        """Nothing was paid."""
        return World(credited=(0,) * self.credits, places=(IDLE,) * (self.credits + len(self.others)))

    def at_rest(self, world: World) -> bool:
        """Every payment was credited, and the window that is over holds no money."""
        passed = world.shards[0]
        swept = not passed.entries or not passed.open
        idle = all(place.at is At.IDLE for place in world.places)
        return world.clock == 1 and all(world.credited) and swept and idle

    def broken(self, world: World) -> Iterator[str]:
        """Promises that items and entries break."""
        half = sum(place.balance for place in world.places if place.at is At.HALF)
        kept = world.main + world.suspense + world.paid_out + sum(shard.balance for shard in world.shards)
        if max(world.credited) > 1:
            yield P.CREDITED_TWICE
        if sum(world.credited) != kept + half:
            yield P.MONEY_LOST_OR_MADE
        for shard in world.shards:
            if not shard.open and shard.balance:
                yield P.MONEY_IN_A_CLOSED_SHARD
            if (shard.balance, shard.sequence) != (shard.total, shard.entries):
                yield P.SHARD_DIFFERS_FROM_ITS_ENTRIES
        if world.main != world.total:
            yield P.ACCOUNT_DIFFERS_FROM_ITS_ENTRIES

    def moves(self, world: World) -> Moves:
        """One move of one invocation, of time, or of the account's owner."""
        if world.clock == 0:
            yield Move("the window passes", replace(world, clock=1))
        if self.closes and world.open and not world.main:
            yield Move("the account is closed", replace(world, open=False))
        kinds = (Who.CREDIT,) * self.credits + self.others
        for index, (who, place) in enumerate(zip(kinds, world.places, strict=True)):
            for label, now, after, fault in self._ways(world, who, place, index):
                places = (*world.places[:index], now, *world.places[index + 1 :])
                name = f"{who} {index}" if who is Who.CREDIT else who
                yield Move(f"{name}: {label}", replace(after, places=places), fault=fault)

    def _ways(self, world: World, who: Who, place: Place, index: int) -> Iterator[tuple[str, Place, World, bool]]:
        if place.at is At.IDLE:
            for label, planned in self._plans(world, who, index):
                yield label, planned, world, False
            return
        if place.at is At.HALF:
            yield "writes the account", IDLE, self._given(world, place), False
            yield "dies before it writes the account", IDLE, world, True
            return
        if place.at is At.TRAVELS:
            yield "of the dead: its transaction is lost", IDLE, world, False
        else:
            yield "dies", IDLE, world, True
            yield "dies, and its transaction travels", replace(place, at=At.TRAVELS), world, True
        if not self._lands(world, who, place, index):
            yield "is refused, and plans again", IDLE, world, False
            return
        after = self._applied(world, who, place, index)
        if who in {Who.SWEEP, Who.NEED} and not self.holds(C.ONE_TRANSACTION):
            yield "writes the shard", replace(place, at=At.HALF), after, False
            return
        if who in {Who.SWEEP, Who.NEED}:
            after = self._given(after, place)
        yield "commits", IDLE, after, False
        if place.at is At.SEND:
            yield "commits; the answer is lost, and it sends again", place, after, True

    # -- what an invocation decides by what it reads ----------------------------------------------------------------

    def _plans(self, world: World, who: Who, index: int) -> Iterator[tuple[str, Place]]:
        read = Place(At.SEND, main=world.main, read=world.sequence, takes=world.open)
        if who is Who.CREDIT:
            if not world.credited[index]:
                window = world.clock if self.holds(C.PLANS_AGAIN) else 0
                yield f"plans for window {window}", replace(read, window=window)
        elif who is Who.DEBIT:
            if world.main:
                yield "plans", read
        else:
            for window, shard in enumerate(world.shards):
                over = window < world.clock or not self.holds(C.CLOSED_AFTER_ITS_WINDOW)
                due = shard.entries and shard.open and over and self.holds(C.DUE)
                needed = shard.balance and shard.open and world.open
                if not (due if who is Who.SWEEP else needed) or not (world.open or self.holds(C.SUSPENSE)):
                    continue
                yield (
                    f"reads {shard.balance} in window {window}",
                    replace(read, window=window, balance=shard.balance, sequence=shard.sequence),
                )

    # -- what DynamoDB does -----------------------------------------------------------------------------------------

    def _lands(self, world: World, who: Who, place: Place, index: int) -> bool:
        shard = world.shards[place.window]
        account_as_read = (place.read, place.takes) == (world.sequence, world.open) or not self.holds(C.ACCOUNT_AS_READ)
        if who is Who.CREDIT:
            return (not world.credited[index] or not self.holds(C.ENTRY_ONCE)) and (
                shard.open or not self.holds(C.SHARD_OPEN)
            )
        if who is Who.DEBIT:
            return account_as_read
        shard_as_read = (place.balance, place.sequence) == (shard.balance, shard.sequence)
        moves_nothing = not place.balance or not place.takes
        return (
            (shard_as_read or not self.holds(C.SHARD_AS_READ))
            and (shard.open or not self.holds(C.SWEEP_OPEN))
            and (moves_nothing or account_as_read)
        )

    def _applied(self, world: World, who: Who, place: Place, index: int) -> World:
        if who is Who.DEBIT:
            after = place.main - 1
            return replace(
                world, main=after, sequence=world.sequence + 1, total=world.total - 1, paid_out=world.paid_out + 1
            )
        shard = world.shards[place.window]
        if who is Who.CREDIT:
            shard = replace(
                shard,
                balance=shard.balance + 1,
                sequence=shard.sequence + 1,
                entries=shard.entries + 1,
                total=shard.total + 1,
            )
            credited = list(world.credited)
            credited[index] = min(credited[index] + 1, 2)
            world = replace(world, credited=tuple(credited))
        else:
            moved = 1 if place.balance else 0
            shard = replace(
                shard,
                balance=0,
                sequence=place.sequence + moved,
                open=who is Who.NEED,
                entries=shard.entries + moved,
                total=shard.total - place.balance,
            )
        first, second = world.shards
        return replace(world, shards=(shard, second) if place.window == 0 else (first, shard))

    @staticmethod
    def _given(world: World, place: Place) -> World:
        if not place.balance:
            return world
        if not place.takes:
            return replace(world, suspense=world.suspense + place.balance)
        return replace(
            world,
            main=place.main + place.balance,
            sequence=world.sequence + 1,
            total=world.total + place.balance,
        )
