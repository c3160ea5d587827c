"""Model: a list of parked sagas that one operator proposes to resume, and that another one confirms once.

The function reads the sagas, and makes the item of the list. A confirmation reads the item, and adds its author. Then
each saga is resumed by a request of its own, which reads item and record, resumes by one update, and starts what it
resumed. Each may die in between, its request may be on its way twice, and any operator continues what is confirmed.
Meanwhile an outcome resumes a saga, and the same owner parks it again; another operator resumes it, and its recovery
parks it again; and the list's time passes, and it is proposed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

LISTS: Final = "lambda_src/saga_runtime/recovery/lists.py"
LISTED: Final = "lambda_src/saga_runtime/recovery/listed.py"
PROPOSALS: Final = "lambda_src/saga_runtime/recovery/proposals.py"
RESOLUTION: Final = "lambda_src/saga_runtime/recovery/resolution.py"


class ListCondition(Condition):
    """Conditions of lists."""

    OTHER_PRINCIPAL = Because(
        "two people decide: who proposed does not confirm",
        PROPOSALS,
        "if principal_of(caller.user_id, second) == principal_of(user_id, second):",
    )
    UNEXPIRED = Because("what was true when it was proposed is confirmed soon", LISTS, "AND #expires_at > :now")
    CONFIRMED_ONCE = Because(
        "each saga keeps one author of the confirmation", LISTS, "AND attribute_not_exists(#confirmed_by)"
    )
    MADE_AS_READ = Because(
        "a confirmation is of the proposal that its author read, not of a later one", LISTS, '"#at = :was_at'
    )
    MADE_ONCE = Because(
        "a proposal that is confirmed is not made again",
        LISTS,
        '"attribute_not_exists(#id) OR (attribute_not_exists(#confirmed_by)',
    )
    CONFIRMED = Because("one operator alone resumes nothing", LISTED, 'wrong = "be confirmed" if seen')
    AS_SEEN = Because(
        "two people decided about the saga as it was parked when it was proposed",
        LISTED,
        "if seen.is_of(record, found.record.parked_at):",
    )
    PARKED_THEN = Because(
        "an outcome may resume a saga, and the same owner park it again, after it was read",
        RESOLUTION,
        'PARKED_THEN: Final = "#parked_at = :parked_then"',
    )
    RESUMED_AS_PARKED = Because(
        "two requests start one recovery", RESOLUTION, 'PARKED: Final = f"{OWNED} AND attribute_exists(#parked_by)"'
    )
    CONTINUED = Because(
        "a request that died before its start is repeated, and starts it",
        LISTED,
        "and proposal.is_resumed(found.decisions):",
    )


class ListPromise(StrEnum):
    """Promises of the model."""

    CONFIRMED_ALONE = "CONFIRMED_ALONE"
    CONFIRMED_TOO_LATE = "CONFIRMED_TOO_LATE"
    CONFIRMED_BY_TWO = "CONFIRMED_BY_TWO"
    CONFIRMED_UNREAD = "CONFIRMED_UNREAD"
    PROPOSED_AFTER_IT_WAS_CONFIRMED = "PROPOSED_AFTER_IT_WAS_CONFIRMED"
    RESUMED_UNCONFIRMED = "RESUMED_UNCONFIRMED"
    RESUMED_ANOTHER_OWNER = "RESUMED_ANOTHER_OWNER"
    RESUMED_PARKED_AGAIN = "RESUMED_PARKED_AGAIN"
    RESUMED_BY_TWO_REQUESTS = "RESUMED_BY_TWO_REQUESTS"


C, P = ListCondition, ListPromise


@dataclass(frozen=True, slots=True)
class Saga:
    """A saga's record.

    Attributes:
        owner: how often another execution has become the owner.
        parked_at: how often it was parked before; it is parked since then, if it is.
        parked: whether it is parked.
        resumed: whether the list has resumed it.
        started: whether its owner's execution exists.
    """

    owner: int = 0
    parked_at: int = 0
    parked: bool = True
    resumed: bool = False
    started: bool = True


@dataclass(frozen=True, slots=True)
class Item:
    """The list.

    Attributes:
        by: who proposed it.
        seen: of each saga owner and time of parking; None: it is not in the list.
        made: how often it was proposed again.
        old: whether its time is over.
        confirmed: whether it is confirmed.
    """

    by: str
    seen: tuple[tuple[int, int] | None, ...]
    made: int = 0
    old: bool = False
    confirmed: bool = False


class At(StrEnum):
    """States of a command."""

    CONFIRM = "about to confirm"
    RESUME = "about to resume"
    START = "about to start"


@dataclass(frozen=True, slots=True)
class Command:
    """A request that has read the item, and the saga that it resumes.

    Attributes:
        by: who sent it.
        at: its next write.
        made: of the item that it read.
        saga: number of the saga that it resumes.
        owner: of the record that it read.
    """

    by: str
    at: At
    made: int = 0
    saga: int = 0
    owner: int = 0


@dataclass(frozen=True, slots=True)
class World:
    """The records, the item, and what every request is about to do."""

    sagas: tuple[Saga, ...]
    item: Item | None = None
    commands: tuple[Command, ...] = ()


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListModel(Conditional):
    """The model.

    Attributes:
        people: principals; each may propose, confirm and continue.
        sagas: how many are parked at first.
        at_once: requests in progress.
        parkings: how often a saga is parked again.
        again: how often the list is proposed again.
    """

    people: tuple[str, ...] = ("alice", "bob")
    sagas: int = 1
    at_once: int = 2
    parkings: int = 1
    again: int = 1

    def initial(self) -> World:
        """Parked sagas."""
        return World(sagas=(Saga(),) * self.sagas)

    def at_rest(self, world: World) -> bool:
        """No request runs, every owner is started, and of a confirmed list no saga is left as it was seen."""
        item = world.item
        left = item is not None and item.confirmed and any(map(_as_seen, world.sagas, item.seen))
        return not world.commands and not left and all(saga.started for saga in world.sagas)

    def broken(self, world: World) -> Iterator[str]:
        """Only moves break promises."""
        return iter(())

    def moves(self, world: World) -> Moves:
        """One move of an operator, of a request, of a saga's surroundings, or of time."""
        yield from self._surroundings(world)
        if len(world.commands) < self.at_once:
            for person in self.people:
                yield from self._proposes(world, person)
                yield from self._confirms(world, person)
                yield from self._continues(world, person)
        for command in dict.fromkeys(world.commands):
            ended = _without(world, command)
            yield Move(f"{command.by} dies, {command.at}", ended, fault=True)
            match command.at:
                case At.CONFIRM:
                    yield self._confirmed(world, ended, command)
                case At.RESUME:
                    yield self._resumed(world, ended, command)
                case At.START:
                    yield Move(f"{command.by} starts {command.saga}", _changed(ended, command.saga, started=True))

    def _surroundings(self, world: World) -> Moves:
        for number, saga in enumerate(world.sagas):
            if saga.parked and saga.parked_at < self.parkings:
                yield Move(f"an outcome resumes {number}", _changed(world, number, parked=False), fault=True)
                other = _changed(world, number, parked=False, owner=saga.owner + 1)
                yield Move(f"another operator resumes {number}", other, fault=True)
            if not saga.parked and saga.started and saga.parked_at < self.parkings:
                again = _changed(world, number, parked=True, parked_at=saga.parked_at + 1)
                yield Move(f"{number} is parked again", again, fault=True)
        if world.item is not None and not world.item.old:
            yield Move("the list's time is over", replace(world, item=replace(world.item, old=True)), fault=True)

    def _proposes(self, world: World, person: str) -> Moves:
        """The function reads the sagas, and makes the item: under the same id only what was proposed before."""
        seen = tuple((saga.owner, saga.parked_at) if saga.parked else None for saga in world.sagas)
        item = world.item
        if item is None:
            if any(seen):
                yield Move(f"{person} proposes", replace(world, item=Item(person, seen)), fault=True)
            return
        if (person, seen) != (item.by, item.seen) or item.made >= self.again or not item.old:
            return
        if item.confirmed and self.holds(C.MADE_ONCE):
            return
        breaks = P.PROPOSED_AFTER_IT_WAS_CONFIRMED if item.confirmed else None
        anew = replace(item, made=item.made + 1, old=False)
        yield Move(f"{person} proposes again", replace(world, item=anew), fault=True, breaks=breaks)

    def _confirms(self, world: World, person: str) -> Moves:
        """Read the item, and decide whether it may be confirmed."""
        item = world.item
        if item is None or item.confirmed or item.old:
            return
        alone = person == item.by
        if alone and self.holds(C.OTHER_PRINCIPAL):
            return
        breaks = P.CONFIRMED_ALONE if alone else None
        reads = Command(person, At.CONFIRM, item.made)
        yield Move(f"{person} reads the list, to confirm", _with(world, reads), fault=True, breaks=breaks)

    def _confirmed(self, world: World, ended: World, command: Command) -> Move[World]:
        item, c = world.item, self.holds
        assert item is not None
        unread, twice = item.made != command.made, item.confirmed
        if (unread and c(C.MADE_AS_READ)) or (twice and c(C.CONFIRMED_ONCE)) or (item.old and c(C.UNEXPIRED)):
            return Move(f"{command.by} is refused", ended)
        breaks = None
        if twice:
            breaks = P.CONFIRMED_BY_TWO
        elif unread:
            breaks = P.CONFIRMED_UNREAD
        elif item.old:
            breaks = P.CONFIRMED_TOO_LATE
        after = replace(ended, item=replace(item, confirmed=True))
        return Move(f"{command.by} confirms", after, breaks=breaks)

    def _continues(self, world: World, person: str) -> Moves:
        """Read the item and a record: resume the saga, or start what a request resumed that died."""
        item, c = world.item, self.holds
        if item is None or (not item.confirmed and c(C.CONFIRMED)):
            return
        for number, (saga, seen) in enumerate(zip(world.sagas, item.seen, strict=True)):
            if seen is None:
                continue
            reads = Command(person, At.RESUME, saga=number, owner=saga.owner)
            if not saga.parked and saga.resumed and c(C.CONTINUED):
                if not saga.started:
                    yield Move(f"{person} continues {number}", _with(world, replace(reads, at=At.START)))
            elif saga.parked and (_as_seen(saga, seen) or not c(C.AS_SEEN)):
                yield Move(f"{person} reads {number}, to resume it", _with(world, reads))

    def _resumed(self, world: World, ended: World, command: Command) -> Move[World]:
        """One update of the record; what was seen is of the item."""
        item, saga, c = world.item, world.sagas[command.saga], self.holds
        seen = item.seen[command.saga] if item is not None else None
        assert item is not None
        assert seen is not None
        as_parked = saga.parked and saga.owner == command.owner
        parked_then = saga.parked and saga.parked_at == seen[1]
        if (not as_parked and c(C.RESUMED_AS_PARKED)) or (not parked_then and c(C.PARKED_THEN)):
            return Move(f"{command.by} is refused: {command.saga} has changed", ended)
        breaks = None
        if not item.confirmed:
            breaks = P.RESUMED_UNCONFIRMED
        elif saga.resumed and not saga.parked:
            breaks = P.RESUMED_BY_TWO_REQUESTS
        elif saga.owner != seen[0]:
            breaks = P.RESUMED_ANOTHER_OWNER
        elif saga.parked_at != seen[1]:
            breaks = P.RESUMED_PARKED_AGAIN
        after = _changed(ended, command.saga, owner=min(saga.owner + 1, 3), parked=False, resumed=True, started=False)
        starts = replace(command, at=At.START)
        return Move(f"{command.by} resumes {command.saga}", _with(after, starts), breaks=breaks)


def _as_seen(saga: Saga, seen: tuple[int, int] | None) -> bool:
    return saga.parked and (saga.owner, saga.parked_at) == seen


def _changed(world: World, number: int, **changes: int | bool) -> World:
    # Each change is of the attribute's own type.
    sagas = list(world.sagas)
    sagas[number] = replace(sagas[number], **changes)  # type: ignore[arg-type]
    return replace(world, sagas=tuple(sagas))


def _with(world: World, command: Command) -> World:
    return replace(world, commands=tuple(sorted((*world.commands, command), key=repr)))


def _without(world: World, command: Command) -> World:
    left = list(world.commands)
    left.remove(command)
    return replace(world, commands=tuple(left))
