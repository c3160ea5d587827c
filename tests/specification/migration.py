"""Model: one concern of one customer moves from the old item to a new one, and back, while operations run.

A charge and a payment, writers of both releases, workers of every phase, a reader, and operators who change the phase
at any moment. Functions and workers of the phase before live on. Each may die at any moment; what it sent then
travels, and arrives later or never.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

CHANGES: Final = "lambda_src/saga_runtime/migration/changes.py"
MOVES: Final = "lambda_src/saga_runtime/migration/moves.py"
GATES: Final = "lambda_src/saga_runtime/migration/gates.py"
STORE: Final = "lambda_src/saga_runtime/migration/store.py"
PLACES: Final = "lambda_src/saga_runtime/migration/places.py"
OPERATION: Final = "lambda_src/saga_runtime/http/direct_operation.py"


class MigrationCondition(Condition):
    """Conditions of a migration."""

    LEGACY_IS_GONE = Because(
        "nothing moves while code runs that knows no marks",
        GATES,
        'return reasons + _ended(terms, facts, "code that knows no marks")',
    )
    PHASE_BY_ONE = Because("no phase is skipped: each gate is asked", STORE, "if abs(to - read.number) != 1")
    ALL_ARE_OLD = Because(
        "legacy code comes back only when everything is in old items, and no worker of a later phase lives",
        GATES,
        'reasons = _missing(terms, facts) + _ended(terms, facts, "a birth or a worker of phase 2")',
    )
    OP_MARKER = Because(
        "an operation's record is in the transaction of its writes", OPERATION, 'return {"Put": put}, wanted.writes'
    )
    OLD_ASKS_MARK = Because(
        "a write of the old item alone demands that the concern has not moved",
        CHANGES,
        'f"attribute_not_exists({at})" if place is Place.OLD',
    )
    NEW_ASKS_STATE = Because(
        "a write of the new item alone demands that the new item is alone",
        CHANGES,
        "else f\"{at} = {self._use.value({'S': place})}\"",
    )
    DUAL_ASKS_OLD = Because(
        "a write of both items demands the mark on the old one", CHANGES, "old.change(concern.mark, place, change,"
    )
    DUAL_ASKS_NEW = Because(
        "a write of both items demands the place in the new one", CHANGES, "new.change(AT, place, change,"
    )
    MIRROR = Because("in DUAL both items change, by the same", CHANGES, "(place is Place.DUAL and change.changes):")
    COPY_AS_READ = Because(
        "a copy takes what the old item holds: nothing was written since it was read",
        MOVES,
        ".as_read(old, renamed.values())",
    )
    COPY_ASKS_MARK = Because("a concern is copied while it is in the old item alone", MOVES, ".absent(concern.mark)")
    COPY_ASKS_ABSENT = Because("a copy never overwrites a new item", MOVES, "to_new.absent(layout.partition_key)")
    SEAL_ASKS = Because(
        "a new item becomes the only truth while both items are", MOVES, "to_old.equal(concern.mark, _at(Place.DUAL))"
    )
    SEAL_MARKS_OLD = Because(
        "the old item records that it is not the truth any more", MOVES, ".set({concern.mark: _at(Place.NEW)})"
    )
    UNSEAL_AS_READ = Because(
        "values come back as the new item holds them", MOVES, "to_new.equal(AT, _at(Place.NEW)).as_read(kept, renamed)"
    )
    UNSEAL_COPIES = Because(
        "the old item gets the values back: its own are of the past",
        MOVES,
        "to_old.equal(concern.mark, _at(Place.NEW)).set({**back,",
    )
    RETREAT_ASKS = Because(
        "a new item is deleted while both items are the truth", MOVES, "to_new.equal(AT, _at(Place.DUAL)).delete()"
    )
    CONTRACT_ASKS = Because(
        "values leave the old item while the new one is the truth",
        MOVES,
        "to_old.equal(concern.mark, _at(Place.NEW)).remove(list(renamed.values()))",
    )
    READ_ASKS_MARK = Because(
        "a reader takes an old item only if its mark allows it",
        PLACES,
        'if concern.mark in item and item[concern.mark] != {"S": Place.DUAL}',
    )
    GONE_ASKS = Because(
        "a deletion demands each concern where it was read to be: it takes all items, or none",
        CHANGES,
        "old.change(concern.mark, place, demand, concern.attributes,",
    )
    GONE_ASKS_ABSENT = Because(
        "a deletion demands that what it read as absent is absent: its reads are of different moments",
        CHANGES,
        "absent = [one for one in (layout.old_item, *(each.item for each in layout.concerns)) if one not in items]",
    )
    GONE_DEMANDS = Because(
        "a deletion demands the values of the item that decides: nothing came in since they were read",
        CHANGES,
        "new.change(AT, place, demand, {name: name for name in concern.attributes}, guarded=True)",
    )
    BIRTH_ABSENT = Because(
        "a customer is created where it is absent: births of two phases exclude each other",
        CHANGES,
        '"ConditionExpression": "attribute_not_exists(#pk)"',
    )


class MigrationPromise(StrEnum):
    """Promises that must never be broken."""

    MOVED_TWICE = "MOVED_TWICE"
    MONEY_LOST_OR_MADE = "MONEY_LOST_OR_MADE"
    OLD_AND_NEW_DIFFER = "OLD_AND_NEW_DIFFER"
    NEW_ITEM_WITHOUT_A_MARK = "NEW_ITEM_WITHOUT_A_MARK"
    NEGATIVE = "NEGATIVE"
    STALE_READ = "STALE_READ"


C, P = MigrationCondition, MigrationPromise

OPERATIONS: Final = {"charge": +1, "payment": -2}
"""What each adds; the customer begins with 1, so the payment needs the charge."""
BIRTH: Final = "birth"
GONE: Final = "deletion"
TARGETS: Final = ("OLD", "OLD", "DUAL", "NEW", "GONE")
"""Target of each phase: legacy, ready, expand, migrate, contract."""
LEGACY: Final = "LEGACY"


class At(StrEnum):
    """Place of an invocation in its work."""

    IDLE = "idle"
    READ = "about to read"
    SEND = "about to send"
    TRAVELS = "dead, its transaction travels"
    SECOND = "about to read the old item"


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """A writer, a worker, or the reader.

    Attributes:
        does: the operation, or the move.
        phase: the release of a writer, 0 or 1; of a worker 1, or 2 for every later phase.
        saw: what it read.
    """

    at: At = At.IDLE
    does: str = ""
    phase: int = 0
    saw: tuple[object, ...] = ()


IDLE: Final = Slot()
Held = tuple[int | None, str]
"""An item: its value, None if it was removed, and its mark."""


@dataclass(frozen=True, slots=True)
class World:
    """Everything.

    Attributes:
        old: the old item; None before the customer's birth.
        new: the new item; None: absent.
        applied: operations whose record exists.
        counts: how often each operation took effect since the customer's birth, at most 2.
        phase: the phase item.
    """

    old: Held | None
    new: Held | None
    applied: frozenset[str]
    counts: tuple[int, ...]
    phase: int
    writers: tuple[Slot, ...]
    workers: tuple[Slot, ...]
    reader: Slot = IDLE
    deleted: bool = False


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationModel(Conditional):
    """The model.

    Attributes:
        writers: how many writers there are at once.
        workers: likewise, of workers.
        reader: whether there is a reader.
        start: the first phase.
        top: the last one.
        operations: what clients ask for.
        born: whether the customer exists from the start.
        deletion: whether the customer may be deleted, once.
    """

    writers: int = 1
    workers: int = 1
    reader: bool = True
    start: int = 0
    top: int = 4
    operations: tuple[str, ...] = ("charge", "payment")
    born: bool = True
    deletion: bool = False

    def initial(self) -> World:
        """Nothing has moved."""
        old: Held | None = (1, "OLD") if self.born else None
        counts = (0,) * len(self.operations)
        return World(old, None, frozenset(), counts, self.start, (IDLE,) * self.writers, (IDLE,) * self.workers)

    def at_rest(self, world: World) -> bool:
        """Every operation was applied."""
        return world.old is not None and len(world.applied) == len(self.operations)

    @staticmethod
    def truth(world: World) -> int | None:
        """The value by the item that is the truth."""
        if world.old is None:
            return None
        if world.old[1] != "NEW":
            return world.old[0]
        return world.new[0] if world.new is not None else None

    def broken(self, world: World) -> Iterator[str]:
        """Each operation counts once, and the items agree."""
        if world.old is None:
            if world.new is not None:
                yield P.NEW_ITEM_WITHOUT_A_MARK
            return
        pairs = zip(self.operations, world.counts, strict=True)
        wanted = 1 + sum(OPERATIONS[name] * count for name, count in pairs)
        if max(world.counts) > 1:
            yield P.MOVED_TWICE
        if self.truth(world) != wanted:
            yield P.MONEY_LOST_OR_MADE
        if world.old[1] == "DUAL" and (world.new is None or world.new[0] != world.old[0]):
            yield P.OLD_AND_NEW_DIFFER
        if world.old[1] == "OLD" and world.new is not None:
            yield P.NEW_ITEM_WITHOUT_A_MARK
        if (self.truth(world) or 0) < 0:
            yield P.NEGATIVE

    def moves(self, world: World) -> Moves:
        """Whatever may happen next."""
        yield from self._phases(world)
        for index, slot in enumerate(world.writers):
            if slot not in world.writers[:index]:
                yield from self._writer(world, index, slot)
        for index, slot in enumerate(world.workers):
            if slot not in world.workers[:index]:
                yield from self._worker(world, index, slot)
        if self.reader:
            yield from self._reader(world)

    # -- phases ----------------------------------------------------------------------------------------------------

    def _phases(self, world: World) -> Moves:
        steps = (1, -1) if self.holds(C.PHASE_BY_ONE) else (1, -1, 2)
        for step in steps:
            to = world.phase + step
            if not 0 <= to <= self.top:
                continue
            alive = {slot.phase for slot in (*world.writers, *world.workers) if slot.at is not At.IDLE}
            if step == 1 and to == 2 and self.holds(C.LEGACY_IS_GONE) and 0 in alive:
                continue
            unmoved = (world.old is None or world.old[1] == "OLD") and world.new is None
            if to == 0 and self.holds(C.ALL_ARE_OLD) and (not unmoved or max(alive, default=0) >= 2):
                continue
            yield Move(f"the phase changes from {world.phase} to {to}", replace(world, phase=to))

    # -- writers ---------------------------------------------------------------------------------------------------

    def _writer(self, world: World, index: int, slot: Slot) -> Moves:
        if slot.at is At.IDLE:
            yield from self._begins(world, index)
            return
        late = slot.at is At.TRAVELS
        if late:
            yield Move(f"the {slot.does} that travels is lost", _writes(world, index, IDLE))
        else:
            yield Move(f"the {slot.does} dies", _writes(world, index, IDLE), fault=True)
            if slot.at is At.SEND:
                travels = _writes(world, index, replace(slot, at=At.TRAVELS))
                yield Move(f"the {slot.does} dies, its transaction travels", travels, fault=True)
        if slot.at is At.READ and slot.does == GONE:
            finds = replace(slot, at=At.SECOND, saw=(world.new is not None,))
            found = "a" if world.new is not None else "no"
            yield Move(f"the deletion finds {found} new item", _writes(world, index, finds))
            return
        if slot.at in {At.READ, At.SECOND}:
            seen = LEGACY if slot.phase == 0 else world.old[1] if world.old is not None else ""
            if seen:
                saw = (seen, self.truth(world), *slot.saw) if slot.does == GONE else (seen,)
                sends = replace(slot, at=At.SEND, saw=saw)
                yield Move(f"the {slot.does} sees {seen}", _writes(world, index, sends))
            elif world.deleted:
                yield Move(f"the {slot.does} sees no customer", _writes(world, index, IDLE))
            return
        if slot.does == BIRTH:
            yield self._birth(world, index, slot)
            return
        if slot.does == GONE:
            yield self._gone(world, index, slot)
            return
        yield from self._commits(world, index, slot, late=late)

    def _begins(self, world: World, index: int) -> Moves:
        if world.old is None:
            form = TARGETS[world.phase]
            slot = Slot(At.SEND, BIRTH, 0 if world.phase == 0 else 1 if world.phase == 1 else 2, (form,))
            yield Move(f"a birth begins in phase {world.phase}", _writes(world, index, slot))
            return
        if self.deletion and not world.deleted and world.phase:
            yield Move("a deletion begins", _writes(world, index, Slot(At.READ, GONE, 1)))
        for name in self.operations:
            if name in world.applied:
                continue
            if any(other.does == name and other.at is not At.TRAVELS for other in world.writers):
                continue
            begun = Slot(At.READ, name, min(world.phase, 1))
            yield Move(f"the {name} begins on release {begun.phase}", _writes(world, index, begun))

    def _birth(self, world: World, index: int, slot: Slot) -> Move[World]:
        form = slot.saw[0]
        absent = world.old is None and (world.new is None or form == "OLD")
        if not absent and self.holds(C.BIRTH_ABSENT):
            return Move("the birth is refused", _writes(world, index, IDLE))
        if form == "OLD":
            created = replace(world, old=(1, "OLD"))
        elif form == "DUAL":
            created = replace(world, old=(1, "DUAL"), new=(1, "DUAL"))
        else:
            created = replace(world, old=(None, "NEW"), new=(1, "NEW"))
        return Move(f"the customer is born {form}", _writes(created, index, IDLE))

    def _gone(self, world: World, index: int, slot: Slot) -> Move[World]:
        where, value, saw_new = slot.saw
        takes_new = where != "OLD" and saw_new
        refused = _writes(world, index, IDLE)
        if world.old is None or world.deleted:
            return Move("the deletion is refused", refused)
        there = world.old[1] == where and (world.new is not None or not takes_new)
        if self.holds(C.GONE_ASKS) and not there:
            return Move("the deletion is refused", refused)
        if self.holds(C.GONE_ASKS_ABSENT) and world.new is not None and not saw_new:
            return Move("the deletion is refused", refused)
        lost = self.truth(world) != value and (takes_new or where == "OLD")
        if self.holds(C.GONE_DEMANDS) and lost:
            return Move("the deletion is refused", refused)
        left = None if takes_new else world.new
        gone = replace(world, old=None, new=left, counts=(0,) * len(world.counts), deleted=True)
        wrong = P.MONEY_LOST_OR_MADE if lost else None
        return Move(f"the customer is deleted as {where}", _writes(gone, index, IDLE), breaks=wrong)

    def _commits(self, world: World, index: int, slot: Slot, *, late: bool) -> Moves:
        name, where = slot.does, slot.saw[0]
        if name in world.applied and self.holds(C.OP_MARKER):
            yield Move(f"the {name} was done before", _writes(world, index, IDLE))
            return
        after = self._written(world, str(where), OPERATIONS[name])
        if after is None:
            if not late:
                yield Move(
                    f"the {name} is refused and reads again", _writes(world, index, Slot(At.READ, name, slot.phase))
                )
                yield Move(f"the {name} is refused", _writes(world, index, IDLE))
            return
        counts = tuple(min(2, count + (one == name)) for one, count in zip(self.operations, world.counts, strict=True))
        after = replace(after, applied=world.applied | {name}, counts=counts)
        yield Move(f"the {name} commits as {where}{', late' if late else ''}", _writes(after, index, IDLE))
        if not late:
            again = _writes(after, index, replace(slot, at=At.READ))
            yield Move(f"the {name} commits as {where}; the answer is lost, it tries again", again, fault=True)

    def _written(self, world: World, where: str, delta: int) -> World | None:
        """The items after a write of a place; None: refused."""
        old, new = world.old, world.new
        if old is None:
            return None
        if where in {LEGACY, "OLD"}:
            asked = where == "OLD" and self.holds(C.OLD_ASKS_MARK)
            if (asked and old[1] != "OLD") or old[0] is None or old[0] + delta < 0:
                return None
            return replace(world, old=(old[0] + delta, old[1]))
        if where == "NEW":
            if new is None or (new[1] != "NEW" and self.holds(C.NEW_ASKS_STATE)) or (new[0] or 0) + delta < 0:
                return None
            return replace(world, new=((new[0] or 0) + delta, new[1]))
        if new is None and not self.holds(C.DUAL_ASKS_NEW):
            new = (0, "DUAL")  # an update without a condition creates the item
        if new is None or (new[1] != "DUAL" and self.holds(C.DUAL_ASKS_NEW)):
            return None
        if (old[1] != "DUAL" and self.holds(C.DUAL_ASKS_OLD)) or (new[0] or 0) + delta < 0:
            return None
        mirrored = old[0] + delta if old[0] is not None and self.holds(C.MIRROR) else old[0]
        return replace(world, old=(mirrored, old[1]), new=((new[0] or 0) + delta, new[1]))

    # -- workers ---------------------------------------------------------------------------------------------------

    def _worker(self, world: World, index: int, slot: Slot) -> Moves:
        if slot.at is At.IDLE:
            move = _wanted(world, TARGETS[world.phase])
            if move:
                reads = Slot(At.SEND, move, 1 if world.phase < 2 else 2, (world.old, world.new))
                yield Move(f"a worker of phase {world.phase} reads, wants to {move}", _works(world, index, reads))
            return
        late = slot.at is At.TRAVELS
        if late:
            yield Move("the worker's transaction that travels is lost", _works(world, index, IDLE))
        else:
            yield Move("the worker dies", _works(world, index, IDLE), fault=True)
            travels = _works(world, index, replace(slot, at=At.TRAVELS))
            yield Move("the worker dies, its transaction travels", travels, fault=True)
        after = self._moved(world, slot)
        if after is None:
            yield Move(f"the {slot.does} is refused", _works(world, index, IDLE))
        else:
            yield Move(f"{slot.does}{', late' if late else ''}", _works(after, index, IDLE))

    def _moved(self, world: World, slot: Slot) -> World | None:
        """The items after a worker's move; None: refused."""
        old, new = world.old, world.new
        read_old: Held = slot.saw[0]  # type: ignore[assignment]  # a worker saw both items
        read_new: Held | None = slot.saw[1]  # type: ignore[assignment]
        if old is None:
            return None
        match slot.does:
            case "copy":
                unmarked = old[1] == "OLD" or not self.holds(C.COPY_ASKS_MARK)
                as_read = old[0] == read_old[0] or not self.holds(C.COPY_AS_READ)
                absent = new is None or not self.holds(C.COPY_ASKS_ABSENT)
                if not (unmarked and as_read and absent):
                    return None
                return replace(world, old=(old[0], "DUAL"), new=(read_old[0], "DUAL"))
            case "seal":
                if self.holds(C.SEAL_ASKS) and (old[1] != "DUAL" or new is None or new[1] != "DUAL"):
                    return None
                mark = "NEW" if self.holds(C.SEAL_MARKS_OLD) else old[1]
                return replace(world, old=(old[0], mark), new=(new[0] if new is not None else 0, "NEW"))
            case "unseal":
                if old[1] != "NEW" or new is None or new[1] != "NEW" or read_new is None:
                    return None
                if self.holds(C.UNSEAL_AS_READ) and new[0] != read_new[0]:
                    return None
                back = read_new[0] if self.holds(C.UNSEAL_COPIES) else old[0]
                return replace(world, old=(back, "DUAL"), new=(new[0], "DUAL"))
            case "retreat":
                if self.holds(C.RETREAT_ASKS) and (old[1] != "DUAL" or new is None or new[1] != "DUAL"):
                    return None
                return replace(world, old=(old[0], "OLD"), new=None)
        if self.holds(C.CONTRACT_ASKS) and old[1] != "NEW":
            return None
        return replace(world, old=(None, old[1]))

    # -- the reader ------------------------------------------------------------------------------------------------

    def _reader(self, world: World) -> Moves:
        """It tries the new item first. A new item answers at once, with the truth."""
        if world.reader.at is At.IDLE:
            if world.new is None and world.old is not None:
                yield Move("a reader finds no new item", replace(world, reader=Slot(At.SECOND)))
        elif world.old is not None and world.old[1] != "NEW":
            yield Move("it reads the old item", replace(world, reader=IDLE))
        elif self.holds(C.READ_ASKS_MARK):
            yield Move("the mark is NEW: it begins again", replace(world, reader=IDLE))
        else:
            wrong = P.STALE_READ if world.old is None or world.old[0] != self.truth(world) else None
            yield Move("it believes the old item", replace(world, reader=IDLE), breaks=wrong)


def _wanted(world: World, target: str) -> str:
    """The worker's next move; empty: none."""
    if world.old is None:
        return ""
    value, mark = world.old
    if mark == "OLD":
        return "" if target == "OLD" else "copy"
    if mark == "DUAL":
        return {"OLD": "retreat", "DUAL": ""}.get(target, "seal")
    if target in {"OLD", "DUAL"}:
        return "unseal"
    return "contract" if target == "GONE" and value is not None else ""


def _writes(world: World, index: int, slot: Slot) -> World:
    slots = sorted((*world.writers[:index], slot, *world.writers[index + 1 :]), key=repr)
    return replace(world, writers=tuple(slots))


def _works(world: World, index: int, slot: Slot) -> World:
    slots = sorted((*world.workers[:index], slot, *world.workers[index + 1 :]), key=repr)
    return replace(world, workers=tuple(slots))
