"""Invariants between a provider's books and the saga log, after any faults.

The books are the provider's own: its export, its API, or the file of a simulator. The test converts each effect in them
to a `ProviderEffect`; the audit knows the keys that the steps sent, and calls no service.

Example:
    ```python
    effects = [ProviderEffect(key=charge.idempotency_key, amount=charge.amount) for charge in export]
    assert_all_hold(audit_provider(read_table(dynamodb, log_table), effects, steps=["ProcessPayment"]))
    ```
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from constructs_lib.testing.invariants import Invariant, Item
from saga_runtime.idempotency.identity import provider_key_of, request_id_from, step_key_of
from saga_runtime.protocol import LogAttribute, StepStatus

_IN_DOUBT: Final = (StepStatus.INTENT, StepStatus.COMPENSATING)
"""Statuses of a step whose outcome is unknown."""
_HAPPENED: Final = (StepStatus.DONE, StepStatus.APPLIED_LATE, StepStatus.COMPENSATING, StepStatus.COMPENSATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEffect:
    """Something that a provider did.

    Attributes:
        key: the idempotency key that it was asked for under: `call.provider_key` of the step, or of its compensation.
        amount: how much, in minor units; the same for an effect and for what undoes it. 0 where nothing is counted.
    """

    key: str
    amount: int = 0


def audit_provider(
    rows: Iterable[Item], effects: Iterable[ProviderEffect], *, steps: Collection[str]
) -> list[Invariant]:
    """Audit a provider's books against the saga log, after every request was driven to its end.

    What must hold: no step is in doubt; under each key the provider acted at most once; it acted for a step exactly
    when its row's status means that it took effect (``DONE``, or since ``COMPENSATED``), and for its compensation
    exactly when the row is that; the compensation's amount is the step's; no late effect is left uncompensated; no two
    sagas of one request had an effect (the second would be right only if it began when the first one's retention was
    over).

    Not for a parked saga: one of its rows is in doubt until an operator resolves it.

    Args:
        rows: Every item of the saga's log.
        effects: Everything that the provider did, refused requests left out.
        steps: Names of the steps that act at this provider.
    """
    named = [row for row in rows if row[LogAttribute.STEP]["S"].partition("[")[0] in steps]
    amounts: dict[str, list[int]] = defaultdict(list)
    for effect in effects:
        amounts[effect.key].append(effect.amount)
    return [
        _nothing_is_in_doubt(named),
        _once_per_key(amounts),
        _log_and_books_agree(named, amounts),
        _undone_as_much_as_done(named, amounts),
        _nothing_stands_that_came_late(named),
        _one_saga_per_request(named, amounts),
    ]


def _status(row: Item) -> StepStatus:
    return StepStatus(row[LogAttribute.STATUS]["S"])


def _key(row: Item, *, undo: bool = False) -> str:
    step, _, item_key = row[LogAttribute.STEP]["S"].removesuffix("]").partition("[")
    saga_id: str = row[LogAttribute.SAGA_ID]["S"]
    return provider_key_of(step_key_of(saga_id, step, item_key=item_key or None, undo=undo))


def _told(row: Item) -> str:
    return f"{row[LogAttribute.STEP]['S']} of {row[LogAttribute.SAGA_ID]['S']}"


def _nothing_is_in_doubt(rows: Sequence[Item]) -> Invariant:
    violations = tuple(f"{_told(row)} is {_status(row)}" for row in rows if _status(row) in _IN_DOUBT)
    return Invariant(name="no step at the provider is in doubt", checked=len(rows), violations=violations)


def _nothing_stands_that_came_late(rows: Sequence[Item]) -> Invariant:
    late = [row for row in rows if _status(row) is StepStatus.APPLIED_LATE]
    violations = tuple(f"{_told(row)} took effect after its saga had fenced it, and is not compensated" for row in late)
    return Invariant(name="late effects are compensated", checked=len(rows), violations=violations)


def _once_per_key(amounts: Mapping[str, Sequence[int]]) -> Invariant:
    violations = tuple(
        f"the provider acted {len(found)} times under {key}" for key, found in amounts.items() if len(found) > 1
    )
    return Invariant(name="the provider acted once per key", checked=len(amounts), violations=violations)


def _log_and_books_agree(rows: Sequence[Item], amounts: Mapping[str, Sequence[int]]) -> Invariant:
    expected: dict[str, str] = {}
    for row in rows:
        if _status(row) in _HAPPENED:
            expected[_key(row)] = _told(row)
        if _status(row) is StepStatus.COMPENSATED:
            expected[_key(row, undo=True)] = f"the undo of {_told(row)}"
    known = {_key(row, undo=undo): f"{_told(row)} is {_status(row)}" for row in rows for undo in (False, True)}
    missing = [
        f"{told} took effect, and the provider's books do not have it"
        for key, told in expected.items()
        if key not in amounts
    ]
    orphans = [
        f"the provider acted under {key}, and {known.get(key, 'no row has that key')}"
        for key in amounts
        if key not in expected
    ]
    return Invariant(
        name="log and provider agree", checked=len(expected.keys() | amounts), violations=(*missing, *orphans)
    )


def _undone_as_much_as_done(rows: Sequence[Item], amounts: Mapping[str, Sequence[int]]) -> Invariant:
    undone = [row for row in rows if _status(row) is StepStatus.COMPENSATED]
    sums = {_told(row): (sum(amounts.get(_key(row), ())), sum(amounts.get(_key(row, undo=True), ()))) for row in undone}
    violations = tuple(
        f"{told} was done for {done} and undone for {back}" for told, (done, back) in sums.items() if done != back
    )
    return Invariant(name="what was undone is what was done", checked=len(undone), violations=violations)


def _one_saga_per_request(rows: Sequence[Item], amounts: Mapping[str, Sequence[int]]) -> Invariant:
    sagas: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if _key(row) in amounts:
            saga_id = row[LogAttribute.SAGA_ID]["S"]
            sagas[request_id_from(saga_id)].add(saga_id)
    twice = tuple(f"request {request} took effect as {sorted(ids)}" for request, ids in sagas.items() if len(ids) > 1)
    return Invariant(name="one saga per request reached the provider", checked=len(sagas), violations=twice)
