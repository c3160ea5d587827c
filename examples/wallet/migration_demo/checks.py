"""Invariants, checked after every write and at every read."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from examples.wallet.functions.wallet.keys import HISTORY
from examples.wallet.functions.wallet.split.layout import BALANCES, LAYOUT, OLD_FORM, RECORD
from saga_runtime.migration.history import row_id
from saga_runtime.migration.layout import Concern, Place
from saga_runtime.migration.places import place_of, same, truth_of

from .world import WALLET, World

SUM: Final = "balances add up to openings and history"
CUSTOMER: Final = "each customer's balance is its opening and its history"
EQUAL: Final = "old item = new item, while both are the truth"
PLACES: Final = "no new item without a mark, no mark without a new item"
POSITIVE: Final = "no balance below zero"
READS: Final = "a read returns a value that was true while it ran"
ONCE: Final = "what clients were answered is what happened, once"
HISTORIES: Final = "every row of the history is in the new form"
_SHOWN: Final = 5
_KEPT_VALUES: Final = 400
Values = Mapping[str, Any] | None


@dataclass(slots=True)
class Invariant:
    """Numbers of checks and of violations."""

    checked: int = 0
    violated: int = 0
    examples: list[str] = field(default_factory=list)

    def check(self, holds: bool, what: str) -> None:
        """Count one check."""
        self.checked += 1
        if not holds:
            self.violated += 1
            self.examples = [*self.examples, what][:_SHOWN]


class Checks:
    """The invariants of one run. It sees every write at the moment at which it is made."""

    def __init__(self, world: World) -> None:
        self.invariants: dict[str, Invariant] = defaultdict(Invariant)
        self._world = world
        self._items: dict[str, dict[str, Any]] = defaultdict(dict)
        self._rows: dict[str, set[str]] = defaultdict(set)
        self._new_rows: dict[str, set[str]] = defaultdict(set)
        self._moved: dict[tuple[str, str], int] = Counter()
        self._truths: dict[tuple[str, str], deque[tuple[int, Values]]] = defaultdict(lambda: deque(maxlen=_KEPT_VALUES))
        self._total: Counter[str] = Counter()
        self._sums: Counter[str] = Counter()
        self._known: dict[tuple[str, str], int] = Counter()
        self._opening: dict[tuple[str, str], int] = Counter()
        world.written = self.written

    @property
    def customers(self) -> list[str]:
        """Everyone who has an item."""
        return sorted(self._items)

    def opened(self, customer: str) -> None:
        """Take the present balances as openings."""
        self._see(customer, RECORD)
        for unit in BALANCES:
            self._opening[customer, unit] = self.balance(customer, unit)
            self._sums[unit] += self._opening[customer, unit]
        self._note(customer)

    def written(self, keys: list[tuple[str, str]]) -> None:
        """Check what a write touched."""
        customers = {uuid for uuid, _ in keys if not uuid.startswith("migration#")}
        for uuid, type_ in keys:
            if uuid in customers:
                self._see(uuid, type_)
        for customer in sorted(customers):
            self._note(customer)
            self._check(customer)
        for unit in BALANCES:
            expected = self._sums[unit]
            self.invariants[SUM].check(self._total[unit] == expected, f"{unit}: {self._total[unit]}, not {expected}")

    # -- one customer ----------------------------------------------------------------------------------------------

    def _see(self, uuid: str, type_: str) -> None:
        item = self._world.dynamodb.table(WALLET).get((uuid, type_))
        if type_.startswith((OLD_FORM, HISTORY)):
            self._row(uuid, type_, item)
        elif item is None:
            self._items[uuid].pop(type_, None)
        elif type_ == RECORD or type_ in {one.item for one in LAYOUT.concerns}:
            self._items[uuid][type_] = item

    def _row(self, uuid: str, type_: str, item: Any) -> None:
        if item is None:
            return
        id_ = row_id(LAYOUT, item)
        if type_.startswith(HISTORY):
            self._new_rows[uuid].add(id_)
        if id_ not in self._rows[uuid]:
            self._rows[uuid].add(id_)
            self._moved[uuid, item["unit"]["S"]] += int(item["amount"]["N"])
            self._sums[item["unit"]["S"]] += int(item["amount"]["N"])

    def pair(self, customer: str, concern: Concern) -> tuple[Any, Any]:
        """Both items of a concern, as they are."""
        items = self._items[customer]
        return items.get(RECORD), items.get(concern.item)

    def truth(self, customer: str, concern: Concern) -> Values:
        """Values by the item that is the truth."""
        old, new = self.pair(customer, concern)
        found = truth_of(concern, old, is_new=False) if old is not None else None
        return found if found is not None else truth_of(concern, new, is_new=True)

    def place(self, customer: str, concern: Concern) -> Place | None:
        """Place of a concern."""
        return place_of(concern, *self.pair(customer, concern))

    def balance(self, customer: str, unit: str) -> int:
        """A balance."""
        values = self.truth(customer, BALANCES[unit])
        return int(Decimal(values["balance"]["N"])) if values and "balance" in values else 0

    def _note(self, customer: str) -> None:
        """Keep the values for readers, and the totals."""
        for unit in BALANCES:
            now = self.balance(customer, unit)
            self._total[unit] += now - self._known[customer, unit]
            self._known[customer, unit] = now
        for concern in LAYOUT.concerns:
            values, log = self.truth(customer, concern), self._truths[customer, concern.name]
            if not log or log[-1][1] != values:
                log.append((self._world.kernel.now, values))

    def _check(self, customer: str) -> None:
        for concern in LAYOUT.concerns:
            old, new = self.pair(customer, concern)
            place = place_of(concern, old, new)
            if place is Place.DUAL:
                equal = old is not None and new is not None and same(concern, old, new)
                self.invariants[EQUAL].check(equal, f"{customer} {concern.name}")
            fits = (new is not None) == (place in {Place.DUAL, Place.NEW})
            self.invariants[PLACES].check(fits, f"{customer} {concern.name} {place}")
        for unit in BALANCES:
            balance = self._known[customer, unit]
            expected = self._opening[customer, unit] + self._moved[customer, unit]
            self.invariants[CUSTOMER].check(balance == expected, f"{customer}: {balance} {unit}, not {expected}")
            self.invariants[POSITIVE].check(balance >= 0, f"{customer}: {balance} {unit}")

    # -- readers, and the end --------------------------------------------------------------------------------------

    def read(self, customer: str, concern: Concern, values: Values, since: int) -> None:
        """Check what a read returned that began at a moment."""
        log = list(self._truths[customer, concern.name])
        ends = [moment for moment, _ in log[1:]] + [self._world.kernel.now + 1]
        true = [held for (_, held), end in zip(log, ends, strict=True) if end >= since]
        self.invariants[READS].check(values in true, f"{customer} {concern.name}")

    def finish(self, expected: Mapping[tuple[str, str], int]) -> None:
        """Check the end against what clients were answered."""
        for customer in self.customers:
            for unit in BALANCES:
                wanted = self._opening[customer, unit] + expected.get((customer, unit), 0)
                have = self.balance(customer, unit)
                self.invariants[ONCE].check(have == wanted, f"{customer}: {have} {unit}, answered {wanted}")
            left = self._rows[customer] - self._new_rows[customer]
            self.invariants[HISTORIES].check(not left, f"{customer}: {len(left)} rows")

    def rows(self) -> int:
        """Number of rows, each once."""
        return sum(map(len, self._rows.values()))
