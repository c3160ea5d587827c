"""Model of the external step: the provider, the requests that travel to it, and time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Conditional
from tests.specification.external_conditions import ExternalCondition as C
from tests.specification.external_world import (
    IDLE,
    WRITES,
    At,
    Books,
    Invocation,
    Key,
    Life,
    Status,
    World,
)
from tests.specification.states import replace

Moves = Iterator[Move[World]]

_ABOUT_TO_CALL: Final = {
    Key.STEP: frozenset({At.TAKE_OVER, At.CALL, At.WAIT}),
    Key.UNDO: frozenset({At.TAKE_OVER_UNDO, At.CALL_UNDO, At.WAIT_UNDO}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """Capabilities of a provider.

    Attributes:
        idempotent: whether a repeated call under a granted key returns the same outcome. A refused one may be granted
            the next time: that is the harder case.
        verify: whether the outcome of a call can be queried.
        undo_idempotent: as ``idempotent``, for the compensation.
        verify_undo: whether the outcome of a compensation can be queried.
        forgets: whether its keys expire.
    """

    idempotent: bool = False
    verify: bool = False
    undo_idempotent: bool = False
    verify_undo: bool = False
    forgets: bool = False

    def knows(self, key: Key, world: World) -> bool:
        """True if what was granted under a key is remembered."""
        idempotent = self.idempotent if key is Key.STEP else self.undo_idempotent
        return idempotent and key not in world.forgotten

    def can_be_asked(self, key: Key) -> bool:
        """True if the outcome of a call can be queried."""
        return self.verify if key is Key.STEP else self.verify_undo


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside(Conditional):
    """Moves outside of the functions.

    Attributes:
        offers: capabilities of the provider.
    """

    offers: Offers

    # -- requests ---------------------------------------------------------------------------------------------------

    def requests(self, world: World, index: int, who: str) -> Moves:
        """Possible fates of an invocation's requests."""
        invocation = world.invocations[index]
        for key in sorted(set(invocation.sent)):
            left = list(invocation.sent)
            left.remove(key)
            after = replace(invocation, sent=tuple(left))
            if invocation.alive and invocation.at in {At.WAIT, At.WAIT_UNDO}:
                yield from self._answers(world, index, after, key, who)
            else:
                arrived = replace(world.with_invocation(index, after), books=self._granted(world, key))
                yield Move(f"the {key} of {who} arrives late, and is granted", arrived)
                yield Move(f"the {key} of {who} never arrives", world.with_invocation(index, after), fault=True)

    def _answers(self, world: World, index: int, after: Invocation, key: Key, who: str) -> Moves:
        granted = replace(world, books=self._granted(world, key))
        following = At.WRITE_DONE if key is Key.STEP else At.WRITE_UNDONE
        yield Move(
            f"the provider grants the {key} of {who}", granted.with_invocation(index, replace(after, at=following))
        )
        if key is Key.STEP:
            refuses = after.decisive and not self.holds(C.DECLARED_REFUSAL)
            raised = replace(after, at=At.WRITE_FAILED if refuses else At.OVER)
            label = f"the provider grants the {key} of {who}, whose function raises an error of its own"
            yield Move(label, granted.with_invocation(index, raised), fault=True)
        if key is Key.STEP and not (world.books.applied and self.offers.knows(key, world)):
            counts = after.decisive or not self.holds(C.REFUSAL_AFTER_GRACE)
            refused = replace(after, at=At.WRITE_FAILED if counts else At.OVER)
            label = f"the provider refuses the {key} of {who}"
            if not counts:
                label += ": in doubt, a former one may still arrive"
            yield Move(label, world.with_invocation(index, refused), fault=True)

    def _granted(self, world: World, key: Key) -> Books:
        books = world.books
        if key is Key.STEP:
            known = books.applied and self.offers.knows(key, world)
            return books if known else replace(books, applied=min(books.applied + 1, 2))
        if not self.holds(C.UNDO_OWN_KEY) and books.applied and self.offers.knows(Key.STEP, world):
            return books
        known = books.undone and self.offers.knows(key, world)
        return books if known else replace(books, undone=min(books.undone + 1, 2))

    # -- time -------------------------------------------------------------------------------------------------------

    def deadline(self, world: World, index: int, who: str) -> Move[World]:
        """An invocation's deadline: it is dead for certain, or was for long."""
        invocation = world.invocations[index]
        at, label = At.OVER, f"the deadline of {who} passes"
        if invocation.at in WRITES:
            at, label = invocation.at, f"{who} dies, {invocation.at}, which travels"
        elif invocation.at in {At.CALL, At.CALL_UNDO} and not self.holds(C.DEAD_AT_DEADLINE):
            at, label = invocation.at, f"the deadline of {who} passes, but not its thread"
        elif invocation.at is not At.OVER:
            label = f"{who} dies, {invocation.at}"
        dead = world.with_invocation(index, replace(invocation, at=at, life=Life.DEAD))
        return Move(label, replace(dead, dying=(*dead.dying, index)), fault=invocation.at is not At.OVER)

    def time(self, world: World, names: tuple[str, ...]) -> Moves:
        """Graces end in the order of deadlines; windows end."""
        ending = world.dying[:1] if self.holds(C.DEADLINES_GROW) else world.dying
        for index in ending:
            invocation = world.invocations[index]
            if invocation.sent and self.holds(C.TRAVEL_ENDS):
                continue
            gone = world.with_invocation(index, replace(invocation, life=Life.GONE))
            left = tuple(other for other in world.dying if other != index)
            yield Move(f"the grace of {names[index]} passes", replace(gone, dying=left))
        if self.offers.forgets:
            yield from self._forgets(world)

    def _forgets(self, world: World) -> Moves:
        """The window ends. Who repeats a call has seen to it that the call arrives before."""
        key = {Status.INTENT: Key.STEP, Status.COMPENSATING: Key.UNDO}.get(world.row.status)
        if key is None or not self.offers.knows(key, world):
            return
        at_work = any(
            key in invocation.sent or (invocation.alive and invocation.at in _ABOUT_TO_CALL[key])
            for invocation in world.invocations
            if invocation != IDLE
        )
        if not at_work or not self.holds(C.WINDOW_COVERS_CALL):
            label = f"the provider forgets the key of the {key}"
            yield Move(label, replace(world, forgotten=world.forgotten | {key}), fault=True)
