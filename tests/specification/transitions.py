"""Model: transitions of one payment, by workers, an operator, a customer and a supervisor.

A payment is pending; a worker processes it, and completes or fails what it began; an operator has a failed one tried
again, a customer cancels a pending one, a supervisor fails one whose worker is late. Each transition has an action that
must happen once, for the operation that succeeded. Answers are lost, requests travel, processes die.

Forms of an operation: with an id whose marker is in the transaction, and on condition of the version that was read
(``MARKER``); and the naive ones, which know the state only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

TRANSITIONS = "lambda_src/saga_runtime/versions/transitions.py"
ITEMS = "lambda_src/saga_runtime/versions/items.py"
ONCE = "lambda_src/saga_runtime/versions/once.py"


class TransitionCondition(Condition):
    """Conditions of transitions."""

    FROM_STATE = Because("an item leaves the state that it is in", TRANSITIONS, 'wanted = {STATE: {"S": source}')
    VERSION_AS_READ = Because(
        "on a cycle a state comes back, and a version does not: what travels does not arrive a cycle later",
        TRANSITIONS,
        "and source in self._reachable(source):",
    )
    HOLDER = Because(
        "only who set a held state leaves it: a late worker does not end its successor's attempt",
        TRANSITIONS,
        'wanted[HOLDER] = {"S": name}',
    )
    MARKER_DECIDES = Because(
        "an operation that is refused was done before if its marker exists, whatever the state is",
        ONCE,
        "return _found(result.item or {}, fingerprint, writer)",
    )
    TRANSITION_MARKER_ABSENT = Because(
        "an operation's marker is written where there was none before",
        ONCE,
        '"ConditionExpression": "attribute_not_exists(#key)",',
    )
    VERDICT_FIRST = Because(
        "a state that an external action may have outlived is left when its provider reports that it was not applied",
        TRANSITIONS,
        "if source in self.in_doubt and not isinstance(verdict, NotApplied):",
    )


class TransitionPromise(StrEnum):
    """Promises that must never be broken."""

    TRANSITION_TWICE = "TRANSITION_TWICE"
    ACTION_TWICE = "ACTION_TWICE"
    ACTION_LOST = "ACTION_LOST"
    SUCCESS_OF_ANOTHER = "SUCCESS_OF_ANOTHER"
    CONFLICT_BUT_MOVED = "CONFLICT_BUT_MOVED"
    ENDED_BY_ANOTHER = "ENDED_BY_ANOTHER"
    LEFT_A_TERMINAL_STATE = "LEFT_A_TERMINAL_STATE"
    CHARGED_TWICE = "CHARGED_TWICE"


C, P = TransitionCondition, TransitionPromise
TABLE: Final = {
    "pending": ("processing", "cancelled"),
    "processing": ("completed", "failed"),
    "failed": ("pending",),
    "completed": (),
    "cancelled": (),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """An operation: who does it, and what it changes; ``after`` is the operation that it needs."""

    who: str
    source: str
    target: str
    after: str = ""
    supervised: bool = False


KINDS: Final = {
    "start 1": Kind("worker 1", "pending", "processing"),
    "fail 1": Kind("worker 1", "processing", "failed", after="start 1"),
    "complete 1": Kind("worker 1", "processing", "completed", after="start 1"),
    "try again": Kind("operator", "failed", "pending"),
    "start 2": Kind("worker 2", "pending", "processing"),
    "complete 2": Kind("worker 2", "processing", "completed", after="start 2"),
    "give up": Kind("supervisor", "processing", "failed", supervised=True),
    "cancel": Kind("customer", "pending", "cancelled"),
    "cancel, too": Kind("support", "pending", "cancelled"),
}


class Form(StrEnum):
    """Form of an operation."""

    MARKER = "a marker, and the version"
    STATE = "the state; the action in the transaction"
    ARTICLE = "the state; the action after the update"


class At(StrEnum):
    """Place of an operation in its work."""

    IDLE = "not begun"
    SEND = "about to send"
    ACT = "moved, about to act"
    SUCCESS = "reported as moved"
    BEFORE = "reported as moved before"
    CONFLICT = "reported as a conflict"


_REPORTED: Final = {At.SUCCESS, At.BEFORE, At.CONFLICT}


@dataclass(frozen=True, slots=True)
class Place:
    """An operation: the version that it expects, and that of what travels; how often it moved, and acted."""

    at: At = At.IDLE
    expected: int = 0
    travels: int = 0
    moved: int = 0
    acted: int = 0


@dataclass(frozen=True, slots=True)
class World:
    """The payment, and its operations.

    Attributes:
        charge: what the provider did at the last attempt: nothing, charged unknown to its worker, or charged.
        charges: how often the customer was charged; two are twice.
    """

    places: tuple[Place, ...]
    state: str = "pending"
    holder: str = ""
    version: int = 1
    left_terminal: bool = False
    charge: bool = False
    charges: int = 0


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionModel(Conditional):
    """The model.

    Attributes:
        form: of all operations.
        kinds: the operations that there are.
        charges: whether starting makes a provider charge, whose answer may be lost before the payment fails.
    """

    form: Form = Form.MARKER
    kinds: tuple[str, ...] = ("start 1", "fail 1", "try again", "start 2", "complete 2")
    charges: bool = False

    def initial(self) -> World:
        """Pending."""
        return World((Place(),) * len(self.kinds))

    def at_rest(self, world: World) -> bool:
        """Every operation has its answer, or has not begun."""
        return all(place.at is At.IDLE or place.at in _REPORTED for place in world.places)

    def broken(self, world: World) -> Iterator[str]:
        """Results of an operation are true of it, and its action happened once."""
        for place in world.places:
            if place.moved > 1:
                yield P.TRANSITION_TWICE
            if place.acted > 1:
                yield P.ACTION_TWICE
            if place.at in {At.SUCCESS, At.BEFORE} and not place.moved:
                yield P.SUCCESS_OF_ANOTHER
            if place.at in {At.SUCCESS, At.BEFORE} and place.moved and not place.acted:
                yield P.ACTION_LOST
            if place.at is At.CONFLICT and place.moved:
                yield P.CONFLICT_BUT_MOVED
        if world.left_terminal:
            yield P.LEFT_A_TERMINAL_STATE
        if world.charges > 1:
            yield P.CHARGED_TWICE

    def moves(self, world: World) -> Moves:
        """Whatever may happen next."""
        for index, place in enumerate(world.places):
            name = self.kinds[index]
            if place.travels:
                yield self._arrives(world, index, name, place)
            match place.at:
                case At.IDLE:
                    if self._may_begin(world, name):
                        begun = replace(place, at=At.SEND, expected=world.version)
                        yield Move(f"{KINDS[name].who} begins: {name}", _at(world, index, begun))
                case At.SEND:
                    yield from self._send(world, index, name, place)
                case At.ACT:
                    acted = replace(place, at=At.SUCCESS, acted=min(2, place.acted + 1))
                    yield Move(f"{name}: acts", _at(world, index, acted))
                    again = replace(place, at=At.SEND)
                    yield Move(f"{name}: dies before it acts, and comes again", _at(world, index, again), fault=True)
                case At.SUCCESS | At.BEFORE | At.CONFLICT:
                    pass
        if self.charges and world.state == "processing" and not world.charge:
            charged = replace(world, charge=True, charges=min(2, world.charges + 1))
            yield Move("the provider charges, and its answer is lost", charged)

    def _may_begin(self, world: World, name: str) -> bool:
        """A worker ends, in one way, what it began; a failed charge is verified first."""
        kind = KINDS[name]
        by_name = dict(zip(self.kinds, world.places, strict=True))
        if self.charges and kind.source == "failed" and world.charge and self.holds(C.VERDICT_FIRST):
            return False
        if not kind.after:
            return True
        others = [other for other in self.kinds if KINDS[other].after == kind.after and other != name]
        begun = kind.after in by_name and by_name[kind.after].at is At.SUCCESS
        return begun and all(by_name[other].at is At.IDLE for other in others)

    def _arrives(self, world: World, index: int, name: str, place: Place) -> Move[World]:
        landed = self._landed(world, index, name, place.travels)
        if landed is None:
            return Move(f"what {name} sent is refused", _at(world, index, replace(place, travels=0)))
        after, breaks = landed
        arrived = replace(after.places[index], travels=0)
        return Move(f"what {name} sent arrives", _at(after, index, arrived), breaks=breaks)

    def _send(self, world: World, index: int, name: str, place: Place) -> Moves:
        landed = self._landed(world, index, name, place.expected)
        if landed is not None:
            after, breaks = landed
            then = At.ACT if self.form is Form.ARTICLE else At.SUCCESS
            moved_on = _at(after, index, replace(after.places[index], at=then))
            change = f"{name}: {world.state} to {after.state}"
            yield Move(change, moved_on, breaks=breaks)
            yield Move(f"{change}, and the answer is lost", after, fault=True, breaks=breaks)
        else:
            mine = place.moved > 0 and self.holds(C.MARKER_DECIDES)
            if self.form is not Form.MARKER:
                mine = world.state == KINDS[name].target
            answer = At.BEFORE if mine else At.CONFLICT
            yield Move(f"{name} is refused in {world.state}: {answer}", _at(world, index, replace(place, at=answer)))
        if not place.travels:
            travels = replace(place, travels=place.expected)
            yield Move(f"{name} sends, which travels, and sends again", _at(world, index, travels), fault=True)

    def _landed(self, world: World, index: int, name: str, expected: int) -> tuple[World, str | None] | None:
        """With the transition, and what it breaks; None if it is refused."""
        kind, place = KINDS[name], world.places[index]
        marked = self.form is Form.MARKER
        another = kind.source == "processing" and not kind.supervised and world.holder != kind.who
        if marked and place.moved and self.holds(C.TRANSITION_MARKER_ABSENT):
            return None
        if world.state != kind.source and self.holds(C.FROM_STATE):
            return None
        if marked and expected != world.version and self.holds(C.VERSION_AS_READ):
            return None
        if another and self.holds(C.HOLDER):
            return None
        acted = place.acted if self.form is Form.ARTICLE else min(2, place.acted + 1)
        moved = replace(place, moved=min(2, place.moved + 1), acted=acted)
        after = replace(
            _at(world, index, moved),
            state=kind.target,
            holder=kind.who if kind.target == "processing" else "",
            version=world.version + 1,
            left_terminal=world.left_terminal or not TABLE[world.state],
            charge=world.charge and kind.target != "processing",
        )
        return after, P.ENDED_BY_ANOTHER if another else None


def _at(world: World, index: int, place: Place) -> World:
    places = list(world.places)
    places[index] = place
    return replace(world, places=tuple(places))
