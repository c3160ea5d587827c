"""State machines of items, as data: which state may follow which, and who may leave it. Pure builders of writes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from saga_runtime.saga_log.write import Write
from saga_runtime.steps.verdict import NotApplied, Verdict
from saga_runtime.versions.errors import InvalidTransition
from saga_runtime.versions.items import HOLDER, STATE, Item, VersionedItem

_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Transitions:
    """The transitions of one kind of item.

    An item is changed only if it is in the transition's state, has the version that was read, and, in a held state, is
    held by the same holder. Its action belongs into the same transaction, or is an external step that begins after it.

    Guaranteed: of all writes that leave one visit of a state, one takes effect. A terminal state is never left.
    Not guaranteed: which operation's it was; see ``VersionedItem``. That the state is the target does not show it.

    Example:
        >>> from saga_runtime import Transitions, VersionedItem
        >>> payments = Transitions(
        ...     initial="pending",
        ...     table={
        ...         "pending": ["processing", "cancelled"],
        ...         "processing": ["completed", "failed"],
        ...         "failed": ["pending"],
        ...         "completed": [],
        ...         "cancelled": [],
        ...     },
        ...     held=["processing"],
        ...     in_doubt=["failed"],
        ... )
        >>> payment = VersionedItem(table="payments", key={"id": {"S": "p-1"}})
        >>> [write] = payments.move(payment, "pending", "processing", expected_version=1, holder="saga-1")

    Attributes:
        table: the states that may follow each state; of a terminal state none.
        initial: the state in which items are created.
        held: states that belong to who set them: entering one needs ``holder``, and only that holder leaves it.
        supervised: transitions out of held states that need no holder, as pairs: a supervisor's.
        in_doubt: states in which an external action may have been applied all the same, e.g. a charge whose answer was
            lost. Leaving one needs the provider's verdict that it was not.

    Raises:
        ValueError: for a state that is not declared, not reachable, or from which no terminal state is reachable; for a
            pair that is not a transition out of a held state; and for a terminal state that is held or in doubt.
    """

    table: Mapping[str, Collection[str]]
    initial: str
    held: Collection[str] = _NONE
    supervised: Collection[tuple[str, str]] = ()
    in_doubt: Collection[str] = _NONE

    def __post_init__(self) -> None:
        for name in ("table", "held", "supervised", "in_doubt"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a collection, got {getattr(self, name)!r}; put it into a list")
        targets = {target for state in self.table for target in self._after(state)}
        unknown = sorted(({*targets, self.initial, *self.held, *self.in_doubt}) - set(self.table))
        if unknown:
            raise ValueError(f"states must be declared in table, got {unknown} without an entry; add them")
        unreachable = sorted(set(self.table) - self._reachable(self.initial) - {self.initial})
        if unreachable:
            raise ValueError(f"states must be reachable from {self.initial}, got {unreachable}; remove or connect them")
        trapped = sorted(s for s in self.table if not any(self.terminal(t) for t in {s, *self._reachable(s)}))
        if trapped:
            raise ValueError(f"a terminal state must be reachable from every state, got {trapped} without one; add one")
        for source, target in self.supervised:
            if source not in self.held or target not in self.table[source]:
                raise ValueError(
                    f"supervised must name transitions out of held states, got {source} to {target}; correct it"
                )
        ended = sorted(state for state in {*self.held, *self.in_doubt} if self.terminal(state))
        if ended:
            raise ValueError(f"held and in_doubt must not name terminal states, got {ended}; leave them out")

    def terminal(self, state: str) -> bool:
        """True if no state follows."""
        return not self.table[state]

    def create(self, item: VersionedItem, values: Item | None = None, *, holder: str | None = None) -> list[Write]:
        """Create an item in the initial state, as version 1.

        Refused with ``ItemExists`` if it exists.

        Args:
            item: the item.
            values: attributes to set, too.
            holder: who holds it, if the initial state is held.

        Raises:
            ValueError: for a holder that is missing or must be left out.
        """
        held = self.initial in self.held
        name = _holder_name(f"for initial {self.initial}", holder, needed=held)
        owned = {HOLDER: {"S": name}} if held else {}
        return item.put_new({**item.checked(values), STATE: {"S": self.initial}, **owned})

    def move(
        self,
        item: VersionedItem,
        source: str,
        target: str,
        *,
        expected_version: int | None = None,
        holder: str | None = None,
        verdict: Verdict | None = None,
        values: Item | None = None,
        conditions: Item | None = None,
        read_now: bool = False,
    ) -> list[Write]:
        """Move an item from one state to another one.

        Refused with ``HeldByAnother`` if the item is as expected and only its holder differs; otherwise, if it is not
        as expected, with ``VersionConflict``, which has the current state and version.

        Args:
            item: the item.
            source: the state that it is in.
            target: the state after it.
            expected_version: the version that was read. It may be left out if ``source`` never comes back: on a cycle
                the state alone does not show which visit of it was meant.
            holder: who enters or leaves a held state: the saga's id, for example.
            verdict: the provider's, to leave a state in doubt; only ``NotApplied`` does.
            values: attributes to set, too.
            conditions: attributes that must have these values, too.
            read_now: whether this very plan has read state and version: then it is made again instead of refused.

        Raises:
            InvalidTransition: if the table has no such transition, or the verdict does not allow it; nothing is sent.
            ValueError: for a version or holder that is missing or must be left out.
        """
        if source not in self.table or target not in self.table[source]:
            raise InvalidTransition(f"{source} cannot become {target}")
        if source in self.in_doubt and not isinstance(verdict, NotApplied):
            raise InvalidTransition(
                f"{source} cannot become {target} while the action may be applied; pass NotApplied()"
            )
        if expected_version is None and source in self._reachable(source):
            raise ValueError(f"expected_version must be given to leave {source}, which comes back; pass what was read")
        leaves = source in self.held and (source, target) not in self.supervised
        name = _holder_name(f"for {source} to {target}", holder, needed=leaves or target in self.held)
        wanted = {STATE: {"S": source}, **item.checked(conditions)}
        changes = {**item.checked(values), STATE: {"S": target}}
        if leaves:
            wanted[HOLDER] = {"S": name}
        if target in self.held:
            changes[HOLDER] = {"S": name}
        remove = [HOLDER] if source in self.held and target not in self.held else []
        return item.change(
            expected_version=expected_version, values=changes, remove=remove, conditions=wanted, read_now=read_now
        )

    def _after(self, state: str) -> Collection[str]:
        after = self.table[state]
        if isinstance(after, str):
            raise ValueError(f"states after {state} must be a collection, got {after!r}; put it into a list")
        return after

    def _reachable(self, state: str) -> set[str]:
        """States that may follow, at once or later."""
        found: set[str] = set()
        ahead = [state]
        while ahead:
            new = set(self._after(ahead.pop())) - found
            found |= new
            ahead += new
        return found


def _holder_name(of: str, holder: str | None, *, needed: bool) -> str:
    """The holder as it is stored: of a member of an enumeration its value, which is not its text.

    Raises:
        ValueError: for a holder that is missing or must be left out.
    """
    if needed != (holder is not None) or (holder is not None and not holder.strip()):
        must = "must name who holds the item" if needed else "must be left out"
        raise ValueError(f"holder {must} {of}, got {holder!r}; correct it")
    return "" if holder is None else str.__str__(holder)
