"""Reads of operations and of the worker, and the phase item. Reads are strong."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from saga_runtime.errors import Conflict, Invalid, TransientError
from saga_runtime.migration.changes import (
    Change,
    CustomerUnknown,
    Value,
    born,
    gone,
    require_changes,
    require_values,
    writes_of,
)
from saga_runtime.migration.layout import LEGACY, Concern, Layout, LayoutChanged
from saga_runtime.migration.places import Item, truth_of
from saga_runtime.migration.progress import Phase
from saga_runtime.protocol import Env, MigrationAttribute
from saga_runtime.saga_log.write import Write
from saga_runtime.shared import aws, clock, writes
from saga_runtime.shared.backoff import Backoff
from saga_runtime.shared.decisions import Audit, Decision, decided, grown, stored

Items = Mapping[str, Item]
"""Items of one customer by sort key."""
BACKOFF: Final = Backoff()
_MOST_KEYS: Final = 100
"""Of one ``BatchGetItem``."""
LAYOUT_MS: Final = 60_000
"""For how long a process trusts that its layout is the one in use: shorter than any ``ended_after``."""
_trusted: Final[dict[tuple[str, str, str], int]] = {}
"""When each layout was compared with its phase item, by this process."""


def forget_layouts() -> None:
    """Compare each layout again: for tests."""
    _trusted.clear()


_A: Final = MigrationAttribute


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A migration's table.

    Attributes:
        layout: the migration.
        table: the table's name.

    Raises:
        Invalid: if one is not of its type, or the table's name is blank.
    """

    layout: Layout
    table: str

    def __post_init__(self) -> None:
        layout, table = cast("object", self.layout), cast("object", self.table)
        if not isinstance(layout, Layout):
            raise Invalid(f"layout must be a Layout, got {type(layout).__name__}; pass Layout(…)")
        if not isinstance(table, str) or not table.strip():
            raise Invalid(f"table must be the table's name, got {table!r}; read {Env.MIGRATION_TABLE}")

    # -- for operations --------------------------------------------------------------------------------------------

    def items(self, customer: str, concerns: Iterable[str]) -> Items:
        """The old item and the new items of concerns, by sort key; absent ones are left out.

        Raises:
            Invalid: if the customer is not a key, or there is no such concern.
            TransientError: if DynamoDB leaves keys out again and again.
        """
        self.layout.require_customer(customer)
        given = cast("object", concerns)
        if not isinstance(given, Iterable) or isinstance(given, str | bytes):
            raise Invalid(f"concerns must be names of concerns, got {given!r}; pass a list of them")
        types = [self.layout.old_item, *(self.layout.concern(name).item for name in concerns)]
        found = self._batch([self._key(customer, type_) for type_ in dict.fromkeys(types)])
        return {item[self.layout.sort_key]["S"]: item for item in found}

    def writes(self, customer: str, changes: Mapping[str, Change]) -> list[Write]:
        """Read where the concerns are, and return the writes of an operation's changes.

        Raises: as ``writes_of``.
        """
        require_changes(changes)
        self.layout.require_customer(customer)
        wanted = {name: change for name, change in changes.items() if change.counts}
        if not wanted:
            return []
        self._trust()
        return writes_of(self.layout, self.table, customer, self.items(customer, wanted), wanted)

    def born(self, customer: str, values: Mapping[str, Mapping[str, Value]]) -> list[Write]:
        """Read the phase, and return the writes that create a customer in its form.

        Raises: as ``changes.born``, and ``LayoutChanged`` as ``phase``.
        """
        require_values(values)
        self.layout.require_customer(customer)
        return born(self.layout, self.table, customer, self.phase().number, values)

    def gone(self, customer: str, demands: Mapping[str, Change] | None = None) -> list[Write]:
        """Read where the concerns are, and return the writes that delete a customer.

        Args:
            customer: partition key.
            demands: by name of the concern, changes that only demand: values without which the customer stays.

        Raises: as ``changes.gone``, and ``LayoutChanged`` as ``phase``.
        """
        demanded = {} if demands is None else demands
        require_changes(demanded)
        self.layout.require_customer(customer)
        self._trust()
        names = [one.name for one in self.layout.concerns]

        def planned() -> list[Write]:
            return gone(self.layout, self.table, customer, self.items(customer, names), demanded)

        for _ in range(BACKOFF.attempts - 1):
            with contextlib.suppress(Conflict):  # a birth or a move was between the reads of two items
                return planned()
        return planned()

    def read(self, customer: str, name: str, *, new_first: bool = False) -> dict[str, Any]:
        """Read the values of one concern from an item that is the truth by its own mark.

        Args:
            customer: partition key.
            name: of the concern.
            new_first: which item to try first: ``Layout.reads_new_first``. A wrong hint costs one read.

        Raises:
            CustomerUnknown: if neither item exists.
            Conflict: if the concern moved between all reads.
            LayoutChanged: as ``phase``.
        """
        self.layout.require_customer(customer)
        concern = self.layout.concern(name)
        self._trust()
        for _ in range(BACKOFF.attempts):
            absent = 0
            for is_new in (new_first, not new_first):
                item = self._get(customer, concern.item if is_new else self.layout.old_item)
                absent += item is None
                values = truth_of(concern, item, is_new=is_new)
                if values is not None:
                    return values
            if absent == 2 and not self.items(customer, [name]):
                raise CustomerUnknown("there is no such customer")
        raise Conflict("a concern moved between reads")

    # -- for the worker --------------------------------------------------------------------------------------------

    def pair(self, customer: str, concern: Concern) -> tuple[Item | None, Item | None]:
        """Both items of a concern, as they were at one moment.

        Raises:
            ClientError: if a writer held one of them, or AWS refused the call.
        """
        keys = [self._key(customer, type_) for type_ in (self.layout.old_item, concern.item)]
        entries: Any = [{"Get": {"TableName": self.table, "Key": key}} for key in keys]
        old, new = aws.dynamodb().transact_get_items(TransactItems=entries)["Responses"]
        return old.get("Item"), new.get("Item")

    def stored(self, keys: Iterable[Item]) -> list[Item]:
        """Those items of some keys that exist, read strongly.

        Raises:
            TransientError: as ``items``.
        """
        wanted = list({_text(key): key for key in keys}.values())
        return [item for at in range(0, len(wanted), _MOST_KEYS) for item in self._batch(wanted[at : at + _MOST_KEYS])]

    # -- the phase -------------------------------------------------------------------------------------------------

    def phase(self) -> Phase:
        """The phase; ``LEGACY`` without an item.

        Raises:
            LayoutChanged: if this layout is not the one that phase 1 began with.
        """
        item: Any = self._get(self.own_partition, _A.PHASE)
        if item is None:
            return Phase()
        phase = Phase(
            number=int(item[_A.PHASE]["N"]),
            changed_at_ms=int(item[_A.CHANGED_AT]["N"]),
            changes=int(item[_A.CHANGES]["N"]),
            layout=item[_A.LAYOUT]["S"],
            decisions=tuple(Decision.all_of(item)),
        )
        if phase.number != LEGACY and phase.layout != self.layout.fingerprint:
            raise LayoutChanged(
                f"layout of migration {self.layout.name} must be the one of phase 1, {phase.layout[:8]}, got "
                f"{self.layout.fingerprint[:8]}; deploy that one again, and return to phase 0 with it to change it"
            )
        return phase

    def change_phase(self, read: Phase, to: int, now_ms: int, audit: Audit) -> Phase:
        """Change the phase by one, if it is as it was read, and keep who did it, when and why.

        Args:
            read: the phase item.
            to: the phase.
            now_ms: epoch milliseconds by AWS's clock: an operator's may be wrong.
            audit: who changes it, and why.

        Raises:
            ValueError: if it is not a step of one, or there is no such phase.
            Conflict: another operator changed it.
            LayoutChanged: likewise, with another layout.
        """
        if abs(to - read.number) != 1 or not LEGACY <= to <= self.layout.last:
            raise ValueError(f"phase must change by one, to {LEGACY} to {self.layout.last}, got {read.number} to {to}")
        layout = self.layout.fingerprint
        decisions = grown(read.decisions, decided(audit, f"phase {read.number} to {to}", now_ms))
        changed = Phase(number=to, changed_at_ms=now_ms, changes=read.changes + 1, layout=layout, decisions=decisions)
        first = read == Phase()
        put: dict[str, Any] = {
            "TableName": self.table,
            "Item": {
                **self.own(_A.PHASE),
                _A.PHASE: {"N": str(to)},
                _A.CHANGED_AT: {"N": str(changed.changed_at_ms)},
                _A.CHANGES: {"N": str(changed.changes)},
                _A.LAYOUT: {"S": layout},
                _A.DECISIONS: stored(decisions),
            },
            "ConditionExpression": "attribute_not_exists(#changes)" if first else "#changes = :changes",
            "ExpressionAttributeNames": {"#changes": _A.CHANGES},
            **({} if first else {"ExpressionAttributeValues": {":changes": {"N": str(read.changes)}}}),
        }
        if writes.write({"Put": put}) is not None and self.phase() != changed:
            raise Conflict("the phase was changed meanwhile")
        return changed

    @property
    def own_partition(self) -> str:
        """Partition key of the migration's own items."""
        return self.layout.own_partition

    def own(self, name: str) -> dict[str, Any]:
        """Key of one of the migration's own items."""
        return self._key(self.own_partition, name)

    def _batch(self, keys: Sequence[Any], **settings: Any) -> list[Item]:
        """Items of up to 100 keys that exist."""
        left, found = list(keys), []
        for failures in range(1, BACKOFF.attempts + 1):
            request: Any = {self.table: {"Keys": left, "ConsistentRead": True, **settings}}
            answer: Any = aws.dynamodb().batch_get_item(RequestItems=request)
            found += answer["Responses"].get(self.table, [])
            left = answer.get("UnprocessedKeys", {}).get(self.table, {}).get("Keys", [])
            if not left:
                return found
            time.sleep(BACKOFF.delay_ms(failures, random.random()) / 1_000)
        raise TransientError("the database is busy")

    def _trust(self) -> None:
        """Compare the layout with that of the phase, once a minute: the items do not show a layout.

        Raises: as ``phase``.
        """
        which, now_ms = (self.table, self.layout.name, self.layout.fingerprint), clock.now_ms()
        if not 0 <= now_ms - _trusted.get(which, -LAYOUT_MS) < LAYOUT_MS:
            self.phase()
            _trusted[which] = now_ms

    def _get(self, customer: str, type_: str) -> Item | None:
        key = self._key(customer, type_)
        return aws.dynamodb().get_item(TableName=self.table, Key=key, ConsistentRead=True).get("Item")

    def _key(self, customer: str, type_: str) -> dict[str, Any]:
        return {self.layout.partition_key: {"S": customer}, self.layout.sort_key: {"S": type_}}


def _text(key: Item) -> str:
    return json.dumps(key, sort_keys=True)
