"""Tables and their indexes: what is stored, what was stored before, and what an index knows of it yet.

A stored item is never changed in place: a write stores another one. An index that is behind, and
an answer that is on its way, keep it as it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from constructs_lib.testing.simulator.aws.dynamodb.values import Item, Value, kind_of, number
from constructs_lib.testing.simulator.errors import ServiceError, invalid

Key: TypeAlias = tuple[Any, ...]
"""Values of the key attributes: texts, bytes and numbers, so that they compare as DynamoDB compares them."""
_EMPTY: Final[dict[Any, Item]] = {}
_MOST_KEY_BYTES: Final = (2_048, 1_024)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySchema:
    """Key attributes of a table or an index.

    Attributes:
        names: the partition key's, and the sort key's if there is one.
        kinds: their types.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]

    def key_of(self, attributes: Mapping[str, Value], *, of_item: bool) -> Key:
        """The key of an item, or the key that a request gives.

        Raises:
            ServiceError: if it is not a key of this table.
        """
        if not of_item and len(attributes) != len(self.names):
            raise invalid("The provided key element does not match the schema")
        key = []
        for name, kind, most in zip(self.names, self.kinds, _MOST_KEY_BYTES, strict=False):
            value = attributes.get(name)
            if value is None:
                if of_item:
                    raise invalid(f"One or more parameter values were invalid: Missing the key {name} in the item")
                raise invalid("The provided key element does not match the schema")
            if kind not in value:
                if of_item:
                    raise invalid(
                        f"One or more parameter values were invalid: Type mismatch for key {name} expected: {kind} "
                        f"actual: {kind_of(value)}"
                    )
                raise invalid("The provided key element does not match the schema")
            held = value[kind]
            if not held:
                raise invalid(
                    "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain "
                    f"an empty string value. Key: {name}"
                )
            if kind != "N" and len(held) > most:
                raise invalid(
                    f"One or more parameter values were invalid: Size of key has exceeded the maximum size limit of "
                    f"{most} bytes"
                )
            key.append(number(held) if kind == "N" else held)
        return tuple(key)

    def key_in(self, item: Mapping[str, Value]) -> Key | None:
        """The key of an item in a sparse index; None: it is not in there."""
        key = []
        for name, kind in zip(self.names, self.kinds, strict=True):
            value = item.get(name)
            if value is None or kind not in value:
                return None
            key.append(number(value[kind]) if kind == "N" else value[kind])
        return tuple(key)

    def check_index_key(self, item: Mapping[str, Value], index: str) -> None:
        """Refuse an item whose index key is of another type, or empty.

        Raises:
            ServiceError: naming attribute and index.
        """
        for name, kind in zip(self.names, self.kinds, strict=True):
            value = item.get(name)
            if value is None:
                continue
            if kind not in value:
                raise invalid(
                    f"One or more parameter values were invalid: Type mismatch for Index Key {name} Expected: {kind} "
                    f"Actual: {kind_of(value)} IndexName: {index}"
                )
            if not value[kind]:
                raise invalid(
                    "One or more parameter values are not valid. A value specified for a secondary index key is not "
                    f"supported. The AttributeValue for a key attribute cannot contain an empty string value. "
                    f"IndexName: {index}, IndexKey: {name}"
                )


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments at which a read of several items reads them.

    Attributes:
        begun: the first one: what was written before is seen.
        draw: draws one.
    """

    begun: int
    draw: Callable[[], int]


@dataclass(slots=True, kw_only=True)
class Index:
    """A secondary index. A global one learns of a write some time after it; a local one only checks its key.

    Attributes:
        name: its name.
        schema: its key.
        projected: attributes that it holds; None: all.
        local: whether it is a local one.
        overtakes: tests whether a write is known before earlier ones of other items: only those of one item keep their
            order.
    """

    name: str
    schema: KeySchema
    projected: frozenset[str] | None
    local: bool = False
    overtakes: Callable[[], bool] = lambda: False
    _entries: dict[Any, dict[tuple[Any, ...], Item]] = field(default_factory=dict)
    _places: dict[Key, tuple[Any, tuple[Any, ...]]] = field(default_factory=dict)
    _coming: deque[tuple[int, Key, Item | None]] = field(default_factory=deque)

    def learn(self, moment: int, key: Key, item: Item | None) -> None:
        """Hear of a write; it is known later."""
        self._coming.append((moment, key, item))

    def known_at(self, horizon: int) -> None:
        """Know everything that was written until a moment."""
        coming = self._coming
        while coming and coming[0][0] <= horizon:
            _, key, item = coming.popleft()
            self._apply(key, item)
        if not coming:
            return
        left: deque[tuple[int, Key, Item | None]] = deque()
        behind: set[Key] = set()
        for moment, key, item in coming:
            if key not in behind and self.overtakes():
                self._apply(key, item)
            else:
                behind.add(key)
                left.append((moment, key, item))
        self._coming = left

    def partition(self, value: Any) -> Sequence[tuple[Key, Item]]:
        """List what it knows under a partition key, in the order of sort keys: primary keys and items."""
        held = self._entries.get(value, {})
        return [(place[1:], held[place]) for place in sorted(held)]

    def every(self) -> Iterator[Item]:
        """Everything that it knows."""
        for value in sorted(self._entries):
            for _, item in self.partition(value):
                yield item

    def _apply(self, key: Key, item: Item | None) -> None:
        if (former := self._places.pop(key, None)) is not None:
            partition, place = former
            held = self._entries[partition]
            del held[place]
            if not held:
                del self._entries[partition]
        found = self.schema.key_in(item) if item is not None else None
        if item is None or found is None:
            return
        kept = self.projected
        projected = item if kept is None else {name: value for name, value in item.items() if name in kept}
        # Sort keys need not be unique in an index: the primary key distinguishes entries.
        place = (found[1] if len(found) > 1 else 0, *key)
        self._entries.setdefault(found[0], {})[place] = projected
        self._places[key] = (found[0], place)


@dataclass(slots=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        name: its name.
        arn: its ARN.
        schema: its primary key.
        indexes: by name.
        ttl: attribute that holds when an item expires; None: none does.
        locks: items that a transaction in flight holds.
        writes: how many writes there were.
        written: when the last one was.
        heard: is called with every write; None: no call.
        listeners: are called with every write, too: streams.
    """

    name: str
    arn: str
    schema: KeySchema
    indexes: dict[str, Index]
    ttl: str | None = None
    locks: set[Key] = field(default_factory=set)
    writes: int = 0
    written: int = 0
    heard: Callable[[Table, Key, Item | None], None] | None = None
    listeners: list[Callable[[Table, Key, Item | None], None]] = field(default_factory=list)
    _partitions: dict[Any, dict[Any, Item]] = field(default_factory=dict)
    _before: dict[Key, tuple[int, Item | None]] = field(default_factory=dict)

    def get(self, key: Key) -> Item | None:
        """The item under a key."""
        return self._partitions.get(key[0], _EMPTY).get(key[-1])

    def get_as_of(self, key: Key, horizon: int) -> Item | None:
        """The item as a reader sees it who knows writes until a moment; at most one write behind."""
        changed, before = self._before.get(key, (0, None))
        return before if changed > horizon else self.get(key)

    def get_at(self, key: Key, moments: Moments) -> Item | None:
        """The item as one of several that are read, each at its moment."""
        return self.get(key) if self.written <= moments.begun else self.get_as_of(key, moments.draw())

    def put(self, key: Key, item: Item | None, now: int) -> None:
        """Store an item, or remove it."""
        partition = self._partitions.setdefault(key[0], {})
        self._before[key] = (now, partition.get(key[-1]))
        if item is None:
            partition.pop(key[-1], None)
        else:
            partition[key[-1]] = item
        self.writes += 1
        self.written = now
        if self.heard is not None:
            self.heard(self, key, item)
        for listener in self.listeners:
            listener(self, key, item)
        for index in self.indexes.values():
            if not index.local:
                index.learn(now, key, item)

    def partition(self, value: Any) -> Sequence[tuple[Key, Item]]:
        """Items under a partition key, in the order of sort keys."""
        held = self._partitions.get(value, _EMPTY)
        if len(self.schema.names) == 1:
            return [((place,), item) for place, item in held.items()]
        return [((value, place), held[place]) for place in sorted(held)]

    def every(self) -> Iterator[Item]:
        """Every item, in the order of keys."""
        for value in sorted(self._partitions):
            for _, item in self.partition(value):
                yield item

    def partition_as_of(self, value: Any, horizon: int) -> Sequence[tuple[Key, Item]]:
        """Items under a partition key, as a reader sees them who knows writes until a moment; also deleted ones."""
        keys = {*(key for key, _ in self.partition(value)), *(key for key in self._before if key[0] == value)}
        seen = ((key, self.get_as_of(key, horizon)) for key in sorted(keys))
        return [(key, item) for key, item in seen if item is not None]

    def every_as_of(self, horizon: int) -> Iterator[Item]:
        """Every item, as such a reader sees it."""
        for value in sorted({*self._partitions, *(key[0] for key in self._before)}):
            for _, item in self.partition_as_of(value, horizon):
                yield item

    def expired(self, now: int) -> list[Key]:
        """Keys of items whose time is over, though they are still there."""
        if self.ttl is None:
            return []
        seconds = now // 1_000_000
        return [
            self.schema.key_of(item, of_item=True)
            for item in self.every()
            if "N" in item.get(self.ttl, {}) and int(number(item[self.ttl]["N"])) < seconds
        ]

    def check_free(self, key: Key) -> None:
        """Refuse a write of an item that a transaction holds.

        Raises:
            ServiceError: TransactionConflictException.
        """
        if self.locks and key in self.locks:
            raise ServiceError("TransactionConflictException", "Transaction is ongoing for the item")
