"""Model: messages that begin an inline saga. Two messages report one order; a third has its key and another request.

The queue delivers each of them as often as it likes, several at once, also after it was deleted. A function reserves
the record, starts an Express execution, and its message is deleted. It may die at any moment, sleep for any time, and
lose any response. Of executions only this matters here: each applies its saga's effect once, settles, delegates or
dies. What two executions of one saga do to each other is in the model of the inline saga.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

INTAKE: Final = "lambda_src/saga_runtime/webhooks/intake.py"
SAGA: Final = "constructs_lib/saga/state_machine.py"


class BegunCondition(Condition):
    """Conditions of messages that begin an inline saga."""

    RESERVES_FIRST = Because(
        "an execution starts after its record was reserved: every other message finds that",
        INTAKE,
        "self._begin(reservation)",
    )
    STARTS_THE_RECORDS = Because(
        "a redelivery starts the saga that the record names, never one of its own",
        INTAKE,
        "elif met is Met.RUNNING_DUE: _start(record)",
    )
    DELETED_AFTER_RECORD = Because(
        "a message is deleted when its record exists: a failure leaves it in the queue",
        INTAKE,
        'except Exception as error: # noqa: BLE001 # whatever it is, the message comes again _failed("queue", error)',
    )
    OTHER_REQUEST_PARKED = Because(
        "a message with the key and another request is parked: a duplicate has the same one",
        INTAKE,
        'if met is Met.OTHER_BODY: return _refused(begin, Begun.PARKED, "KEY_REUSED")',
    )
    RECONCILED = Because(
        "a reconciler finds the saga when it is due: its messages may be deleted before anything was started",
        SAGA,
        "[begun_unreconciled(intake, self.run) for intake in inline]",
    )
    STANDARD_WHEN_DUE = Because(
        "a redelivery of a saga that is due starts Standard",
        INTAKE,
        "elif met is Met.RUNNING_DUE:",
    )
    NOT_BEFORE_DUE = Because(
        "a redelivery starts nothing while Express may be running",
        INTAKE,
        "and not record.express:",
    )
    STANDARD_IF_REFUSED = Because(
        "Standard starts if Step Functions refuses Express",
        INTAKE,
        "begin_express(express, reserved.saga_id, reserved.start_input).started:",
    )


class BegunPromise(StrEnum):
    """Promises that must never be broken."""

    BEGUN_TWICE = "BEGUN_TWICE"
    MESSAGE_LOST = "MESSAGE_LOST"


C, P = BegunCondition, BegunPromise
OTHER: Final = "other"
"""The message with another request."""


class At(StrEnum):
    """Places of an invocation in its work."""

    IDLE = "idle"
    RESERVE = "about to reserve"
    EXPRESS = "about to start Express"
    STANDARD = "about to start Standard"
    PARK = "about to park the message"
    DELETE = "about to delete the message"


@dataclass(frozen=True, slots=True)
class Place:
    """An invocation.

    Attributes:
        at: where it is.
        message: what it received.
        saga: the saga that it would begin, or begins.
        began: whether it started an execution before it reserved.
    """

    at: At = At.IDLE
    message: str = ""
    saga: int = 0
    began: bool = False


IDLE: Final = Place()


class Run(StrEnum):
    """States of a Standard execution, of the forward machine or of a recovery."""

    ABSENT = "absent"
    RUNS = "runs"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class World:
    """Everything.

    Attributes:
        saga: the saga that the record names; 0: there is no record.
        body: the message whose request it has: ``OTHER``, or any of the others.
        settled: whether it is.
        due: whether its ``due_at`` has passed.
        queue: messages that are not deleted.
        parked: whether the message with another request is.
        deleted: messages that were deleted.
        express: sagas of running Express executions, in order.
        standard: Standard executions, by the saga.
        effects: sagas whose effect is applied.
    """

    places: tuple[Place, ...]
    queue: frozenset[str]
    saga: int = 0
    body: str = ""
    settled: bool = False
    due: bool = False
    parked: frozenset[str] = frozenset()
    deleted: frozenset[str] = frozenset()
    express: tuple[int, ...] = ()
    standard: tuple[Run, ...] = (Run.ABSENT, Run.ABSENT)
    effects: frozenset[int] = frozenset()


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunModel(Conditional):
    """The model.

    Attributes:
        places: how many invocations there are at once; each begins a saga of its own.
        messages: what is sent.
        drivers: how many Express executions may run at once: a start whose response is lost is sent again.
    """

    places: int = 2
    messages: tuple[str, ...] = ("m1", "m2")
    drivers: int = 2

    def initial(self) -> World:
        """The messages are in the queue."""
        return World((IDLE,) * self.places, frozenset(self.messages))

    def at_rest(self, world: World) -> bool:
        """Every message is deleted, and the saga is settled."""
        return not world.queue and world.places == (IDLE,) * self.places and world.settled

    def broken(self, world: World) -> Iterator[str]:
        """One saga per key, and no deleted message without a record or a place in the queue of parked ones."""
        if len(world.effects) > 1:
            yield P.BEGUN_TWICE
        for message in world.deleted:
            recorded = world.saga and _same(message, world.body)
            if not recorded and message not in world.parked:
                yield P.MESSAGE_LOST

    def moves(self, world: World) -> Moves:
        """Whatever may happen next."""
        if world.saga and not world.settled and not world.due:
            yield Move("the saga is due", replace(world, due=True))
        for index, place in enumerate(world.places):
            if place.at is At.IDLE:
                for message in sorted(world.queue | world.deleted):
                    redelivered = message in world.deleted
                    got = Place(At.RESERVE, message, index + 1)
                    yield Move(f"{index} receives {message}", _at(world, index, got), fault=redelivered)
            else:
                yield Move(f"{index} dies", _at(world, index), fault=True)
                yield from self._invocation(world, index, place)
        yield from self._executions(world)
        waits = world.due and not world.settled and world.standard[world.saga - 1] is not Run.RUNS
        if waits and self.holds(C.RECONCILED):
            yield Move("the reconciler starts Standard", _standard(world, world.saga, Run.RUNS))

    # -- invocations -----------------------------------------------------------------------------------------------

    def _invocation(self, world: World, index: int, place: Place) -> Moves:
        match place.at:
            case At.RESERVE:
                yield from self._reserve(world, index, place)
            case At.EXPRESS:
                yield from self._express(world, index, place)
            case At.STANDARD:
                started = world
                if world.standard[place.saga - 1] is Run.ABSENT:
                    started = _standard(world, place.saga, Run.RUNS)
                yield Move(f"{index} starts Standard", _to(started, index, place, At.DELETE))
                yield Move(f"{index} cannot start Standard: {place.message} comes again", _at(world, index), fault=True)
            case At.PARK:
                parked = replace(world, parked=world.parked | {place.message})
                yield Move(f"{index} parks {place.message}", _to(parked, index, place, At.DELETE))
            case _:
                done = replace(world, queue=world.queue - {place.message}, deleted=world.deleted | {place.message})
                yield Move(f"{index} deletes {place.message}", _at(done, index))

    def _reserve(self, world: World, index: int, place: Place) -> Moves:
        if not self.holds(C.RESERVES_FIRST) and not place.began:
            began = replace(place, began=True)
            if len(world.express) < self.drivers:
                running = replace(world, express=tuple(sorted((*world.express, place.saga))))
                yield Move(f"{index} starts Express before it reserves", _at(running, index, began))
            return
        failed = _at(world, index)
        if not self.holds(C.DELETED_AFTER_RECORD):
            failed = _to(world, index, place, At.DELETE)
        yield Move(f"{index} cannot reserve: {place.message} comes again", failed, fault=True)
        if not world.saga:
            reserved = replace(world, saga=place.saga, body=place.message)
            yield Move(f"{index} reserves", _to(reserved, index, place, At.DELETE if place.began else At.EXPRESS))
            yield Move(f"{index} reserves, and the response is lost", reserved, fault=True)
            return
        yield Move(f"{index} meets the record", _at(world, index, self._met(world, index, place)))

    def _met(self, world: World, index: int, place: Place) -> Place:
        if not _same(place.message, world.body) and self.holds(C.OTHER_REQUEST_PARKED):
            return replace(place, at=At.PARK)
        if world.settled:
            return replace(place, at=At.DELETE)
        if world.saga == index + 1 and not world.due:
            # Its own: the response was lost. Or an earlier one's of this number, which is a start more.
            return replace(place, at=At.EXPRESS)
        if (world.due and self.holds(C.STANDARD_WHEN_DUE)) or not (world.due or self.holds(C.NOT_BEFORE_DUE)):
            saga = world.saga if self.holds(C.STARTS_THE_RECORDS) else place.saga
            return replace(place, at=At.STANDARD, saga=saga)
        return replace(place, at=At.DELETE)

    def _express(self, world: World, index: int, place: Place) -> Moves:
        if len(world.express) < self.drivers:
            running = replace(world, express=tuple(sorted((*world.express, place.saga))))
            yield Move(f"{index} starts Express", _to(running, index, place, At.DELETE))
            yield Move(f"{index} starts Express, and the response is lost", running, fault=True)
        lost = _to(world, index, place, At.DELETE)
        yield Move(f"{index} gets no response, and Express was not started", lost, fault=True)
        refused = At.STANDARD if self.holds(C.STANDARD_IF_REFUSED) else At.DELETE
        yield Move(f"Express refuses {index}", _to(world, index, place, refused), fault=True)

    # -- executions ------------------------------------------------------------------------------------------------

    def _executions(self, world: World) -> Moves:
        for at, saga in enumerate(world.express):
            if saga in world.express[:at]:
                continue
            ended = replace(world, express=(*world.express[:at], *world.express[at + 1 :]))
            yield Move("Express applies the effect and ends", _applied(ended, saga), fault=True)
            yield Move("Express settles", _settled(_applied(ended, saga), saga))
            yield Move("Express dies", ended, fault=True)
            delegated = _standard(ended, saga, Run.RUNS) if world.standard[saga - 1] is Run.ABSENT else ended
            yield Move("Express delegates", delegated, fault=True)
        for number, run in enumerate(world.standard, 1):
            if run is Run.RUNS:
                ended = _standard(world, number, Run.ENDED)
                yield Move("Standard dies", ended, fault=True)
                yield Move("Standard settles", _settled(_applied(ended, number), number))


def _same(message: str, other: str) -> bool:
    return (message == OTHER) is (other == OTHER)


def _applied(world: World, saga: int) -> World:
    """Its log has a row: a saga's effect is applied once."""
    return replace(world, effects=world.effects | {saga})


def _settled(world: World, saga: int) -> World:
    return replace(world, settled=True) if world.saga == saga else world


def _standard(world: World, saga: int, run: Run) -> World:
    runs = list(world.standard)
    runs[saga - 1] = run
    return replace(world, standard=tuple(runs))


def _at(world: World, index: int, place: Place = IDLE) -> World:
    places = list(world.places)
    places[index] = place
    return replace(world, places=tuple(places))


def _to(world: World, index: int, place: Place, at: At) -> World:
    return _at(world, index, replace(place, at=at))
