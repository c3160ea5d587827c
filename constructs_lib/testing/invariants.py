"""Invariants of the deployed tables, after any faults: audits of the ledger, of the sagas, and of both together.

Every audit is a pure function over items as DynamoDB returns them, so it runs on local AWS and on an export alike. An
audit reports how many things it checked: with zero it proves nothing.

Example:
    ```python
    entries = read_table(aws.client("dynamodb"), outputs["LedgerTableName"])
    assert_all_hold(audit_ledger(entries))
    ```
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from saga_runtime import AccountState, HoldState
from saga_runtime.idempotency.identity import is_saga_id, request_id_from, step_key_of
from saga_runtime.protocol import (
    SETTLED,
    LedgerAttribute,
    LogAttribute,
    RecordAttribute,
    RecordStatus,
    Side,
    StepStatus,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Item = Mapping[str, Mapping[str, Any]]
"""A DynamoDB item in its typed form: ``{"id": {"S": "…"}}``."""

RECORDS_AND_LOG: Final = "records and log agree"
"""Name of the invariant that is checked of each settled saga."""
_ACCOUNT: Final = "account#"
_COLLECTING: Final = "collecting#"
_ENTRY: Final = "entry"
_TOLD: Final = 20


class InvariantBrokenError(AssertionError):
    """Something does not hold that must always hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """Result of one check of an audit.

    Attributes:
        name: What must hold, in a few words.
        checked: Number of things that were checked.
        violations: One sentence for each that breaks it.
    """

    name: str
    checked: int
    violations: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """True if nothing breaks it."""
        return not self.violations


def assert_all_hold(invariants: Iterable[Invariant]) -> None:
    """Fail unless every invariant holds.

    Raises:
        InvariantBrokenError: If one does not; the message names it and what breaks it.
    """
    broken = [invariant for invariant in invariants if not invariant.holds]
    if broken:
        lines = [
            f"  {invariant.name}: {violation}" for invariant in broken for violation in invariant.violations[:_TOLD]
        ]
        raise InvariantBrokenError("\n".join([f"{len(broken)} invariants are broken:", *lines]))


def read_table(dynamodb: DynamoDBClient, table: str) -> list[Item]:
    """Return every item of a table, read strongly. For audits: it reads the whole table.

    Args:
        dynamodb: A client that may scan.
        table: Name of the table.
    """
    pages = dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
    return [item for page in pages for item in page["Items"]]


def audit_ledger(items: Iterable[Item]) -> list[Invariant]:
    """Audit the items of one ``LedgerTable``.

    What must hold: all entries sum to zero in each unit, and those of each posting do; what has an account's
    entries has its item, whose balance is their sum and never negative, and they form one unbroken chain of sequence
    numbers and balances; what an account holds for others is the sum of its open holds and not more than its balance;
    a capture took its recorded amount and not more than was held; a collecting shard is the sum of its entries, and 0
    when it is closed.

    Args:
        items: Every item of the table. Audit each ledger separately, and combine the results with `together`.
    """
    accounts: dict[str, Item] = {}
    shards: dict[str, Item] = {}
    holds: dict[str, list[Item]] = defaultdict(list)
    entries: dict[str, list[Item]] = defaultdict(list)
    a = LedgerAttribute
    for item in items:
        partition = item[a.PK]["S"]
        match item[a.KIND]["S"]:
            case "account":
                accounts[partition] = item
            case "shard":
                shards[partition] = item
            case "hold":
                holds[partition].append(item)
            case "entry":
                entries[partition].append(item)
    every = [entry for of_one in entries.values() for entry in of_one]
    collecting = [key for key in {*shards, *entries} if key.startswith(_COLLECTING)]
    return [
        _entries_cancel_out(every),
        _postings_cancel_out(every),
        _balances_are_backed(accounts, entries),
        _chains_are_unbroken(accounts, entries),
        _holds_are_backed(accounts, holds, entries),
        *([_shards_are_backed(collecting, shards, entries)] if collecting else []),
    ]


def together(*audits: Iterable[Invariant]) -> list[Invariant]:
    """Return what several audits found as one list: invariants of one name are added up."""
    found: dict[str, Invariant] = {}
    for invariant in (one for audit in audits for one in audit):
        known = found.get(invariant.name, Invariant(name=invariant.name, checked=0))
        found[invariant.name] = Invariant(
            name=invariant.name,
            checked=known.checked + invariant.checked,
            violations=(*known.violations, *invariant.violations),
        )
    return list(found.values())


def audit_sagas(records: Iterable[Item], rows: Iterable[Item]) -> list[Invariant]:
    """Audit request records against the saga log, after every request was driven to its end.

    What must hold: every record is settled; every row's request has a record; a completed saga has an effect and
    compensated none, a failed one left none uncompensated.

    Not for tables from which records have been deleted since: the log is kept for longer.

    Args:
        records: Every item of the ``IdempotencyTable``.
        rows: Every item of the saga's log.
    """
    known = list(records)
    log: dict[str, list[Item]] = defaultdict(list)
    for row in rows:
        log[row[LogAttribute.SAGA_ID]["S"]].append(row)
    return [_every_record_is_settled(known), _no_row_without_record(known, log), _log_agrees(known, log)]


def audit_effects(rows: Iterable[Item], ledger: Iterable[Item], *, steps: Collection[str]) -> list[Invariant]:
    """Audit the saga log against the ledgers, whose entries are posted under step keys.

    What must hold: a step has entries exactly when its row's status means that it took effect (``DONE``, or since
    ``COMPENSATED``); its compensation has entries exactly when the row is that; no two sagas of one request have any
    (the second would be right only if it began when the first one's retention was over).

    Args:
        rows: Every item of the saga's log.
        ledger: Every item of the ledgers' tables.
        steps: Names of the steps that post.
    """
    named = [row for row in rows if row[LogAttribute.STEP]["S"] in steps]
    expected = {key for row in named for key in _keys_of(row)}
    posted = {key for key in _entry_ids(ledger) if is_saga_id(key.partition("#")[0])}
    orphans = [f"entry {key} exists, and its row's status excludes it" for key in sorted(posted - expected)]
    missing = [f"the row's status requires the entry {key}, which does not exist" for key in sorted(expected - posted)]
    sagas: dict[str, set[str]] = defaultdict(set)
    for key in posted:
        saga_id = key.partition("#")[0]
        sagas[request_id_from(saga_id)].add(saga_id)
    twice = tuple(f"request {request} took effect as {sorted(ids)}" for request, ids in sagas.items() if len(ids) > 1)
    return [
        Invariant(name="log and ledger agree", checked=len(expected | posted), violations=(*orphans, *missing)),
        Invariant(name="one saga per request took effect", checked=len(sagas), violations=twice),
    ]


def _keys_of(row: Item) -> list[str]:
    saga_id, step = row[LogAttribute.SAGA_ID]["S"], row[LogAttribute.STEP]["S"]
    status = StepStatus(row[LogAttribute.STATUS]["S"])
    if status is StepStatus.DONE:
        return [step_key_of(saga_id, step)]
    if status is StepStatus.COMPENSATED:
        return [step_key_of(saga_id, step), step_key_of(saga_id, step, undo=True)]
    return []


def _entry_ids(ledger: Iterable[Item]) -> set[str]:
    a = LedgerAttribute
    return {item[a.ENTRY_ID]["S"] for item in ledger if item[a.KIND]["S"] == _ENTRY}


def _entries_cancel_out(entries: Sequence[Item]) -> Invariant:
    sums: dict[str, int] = defaultdict(int)
    for entry in entries:
        sums[entry[LedgerAttribute.CURRENCY]["S"]] += _amount(entry)
    violations = tuple(f"all entries in {code} sum to {total}" for code, total in sums.items() if total)
    return Invariant(name="all entries sum to zero", checked=len(entries), violations=violations)


def _postings_cancel_out(entries: Sequence[Item]) -> Invariant:
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for entry in entries:
        sums[entry[LedgerAttribute.ENTRY_ID]["S"], entry[LedgerAttribute.CURRENCY]["S"]] += _amount(entry)
    violations = tuple(f"posting {key} in {code} nets to {total}" for (key, code), total in sums.items() if total)
    return Invariant(name="each posting nets to zero", checked=len(sums), violations=violations)


def _balances_are_backed(accounts: Mapping[str, Item], entries: Mapping[str, Sequence[Item]]) -> Invariant:
    violations = []
    for key, account in accounts.items():
        balance = int(account[LedgerAttribute.BALANCE]["N"])
        backed = sum(_amount(entry) for entry in entries.get(key, ()))
        if balance != backed:
            violations.append(f"{key} has a balance of {balance}, its entries sum to {backed}")
        if balance < 0:
            violations.append(f"{key} has a balance of {balance}")
    violations += [
        f"{key} has {len(of_one)} entries and no item"
        for key, of_one in entries.items()
        if key.startswith(_ACCOUNT) and key not in accounts
    ]
    return Invariant(name="balances equal their entries", checked=len(accounts), violations=tuple(violations))


def _chains_are_unbroken(accounts: Mapping[str, Item], entries: Mapping[str, Sequence[Item]]) -> Invariant:
    a = LedgerAttribute
    violations = []
    checked = 0
    for key, account in accounts.items():
        chain = sorted(entries.get(key, ()), key=lambda entry: int(entry[a.SEQUENCE]["N"]))
        checked += len(chain)
        balance = 0
        for number, entry in enumerate(chain, start=1):
            balance += _amount(entry)
            stored = int(entry[a.SEQUENCE]["N"]), int(entry[a.BALANCE_AFTER]["N"])
            if stored != (number, balance):
                violations.append(f"{key} has (sequence, balance) {stored} where {(number, balance)} follows")
                break
        if int(account[a.SEQUENCE]["N"]) != len(chain):
            violations.append(f"{key} is at sequence {account[a.SEQUENCE]['N']} with {len(chain)} entries")
    return Invariant(name="entries form unbroken chains", checked=checked, violations=tuple(violations))


def _holds_are_backed(
    accounts: Mapping[str, Item], holds: Mapping[str, Sequence[Item]], entries: Mapping[str, Sequence[Item]]
) -> Invariant:
    a = LedgerAttribute
    violations = []
    for key, account in accounts.items():
        held, balance = int(account[a.HELD]["N"]), int(account[a.BALANCE]["N"])
        expected = sum(_amount(hold) for hold in holds.get(key, ()) if hold[a.STATE]["S"] == HoldState.OPEN)
        if held != expected:
            violations.append(f"{key} holds {held}, its open holds sum to {expected}")
        if held > balance:
            violations.append(f"{key} holds {held} of a balance of {balance}")
        for hold in holds.get(key, ()):
            captured = int(hold[a.CAPTURED]["N"]) if a.CAPTURED in hold else 0
            by = hold[a.CLOSED_BY]["S"] if hold[a.STATE]["S"] == HoldState.CAPTURED else None
            posted = -sum(_amount(entry) for entry in entries.get(key, ()) if entry[a.ENTRY_ID]["S"] == by)
            if captured > _amount(hold) or captured != posted:
                violations.append(
                    f"hold {hold[a.HOLD_ID]['S']} of {key} captured {captured}, its entries sum to {posted}"
                )
    return Invariant(name="holds are backed by their accounts", checked=len(accounts), violations=tuple(violations))


def _shards_are_backed(
    keys: Sequence[str], shards: Mapping[str, Item], entries: Mapping[str, Sequence[Item]]
) -> Invariant:
    a = LedgerAttribute
    violations = []
    for key in sorted(keys):
        shard, of_one = shards.get(key), entries.get(key, ())
        if shard is None:
            violations.append(f"{key} has entries and no shard")
            continue
        stored = int(shard[a.BALANCE]["N"]), int(shard[a.SEQUENCE]["N"])
        backed = sum(_amount(entry) for entry in of_one), len(of_one)
        if stored != backed:
            violations.append(f"{key} has (balance, entries) {stored}, its entries give {backed}")
        if stored[0] and shard[a.STATE]["S"] == AccountState.CLOSED:
            violations.append(f"{key} is closed with {stored[0]} in it")
    return Invariant(name="collecting shards equal their entries", checked=len(keys), violations=tuple(violations))


def _every_record_is_settled(records: Sequence[Item]) -> Invariant:
    a = RecordAttribute
    settled = set(SETTLED)
    violations = tuple(
        f"record {record[a.ID]['S']} is {record[a.STATUS]['S']}{' and parked' if a.PARKED_BY in record else ''}"
        for record in records
        if record[a.STATUS]["S"] not in settled
    )
    return Invariant(name="no request is left in progress", checked=len(records), violations=violations)


def _no_row_without_record(records: Sequence[Item], log: Mapping[str, Sequence[Item]]) -> Invariant:
    known = {record[RecordAttribute.ID]["S"] for record in records}
    violations = tuple(
        f"saga {saga_id} has rows and its request no record"
        for saga_id in sorted(log)
        if request_id_from(saga_id) not in known
    )
    return Invariant(name="every logged saga has a record", checked=len(log), violations=violations)


def _log_agrees(records: Sequence[Item], log: Mapping[str, Sequence[Item]]) -> Invariant:
    violations = []
    settled = 0
    for record in records:
        status = RecordStatus(record[RecordAttribute.STATUS]["S"])
        if status is RecordStatus.IN_PROGRESS:
            continue
        settled += 1
        saga_id = record[RecordAttribute.SAGA_ID]["S"]
        found = log.get(saga_id, ())
        rows = [StepStatus(row[LogAttribute.STATUS]["S"]) for row in found]
        counted = {StepStatus(row[LogAttribute.STATUS]["S"]) for row in found if not _may_be_passed_over(row)}
        stands = StepStatus.DONE in counted and not {StepStatus.COMPENSATED, StepStatus.REFUSED} & counted
        agrees = stands if status is RecordStatus.COMPLETED else StepStatus.DONE not in rows
        if not agrees or StepStatus.APPLIED_LATE in rows:
            violations.append(f"saga {saga_id} is {status}, its rows are {', '.join(rows) or 'none'}")
    return Invariant(name=RECORDS_AND_LOG, checked=settled, violations=tuple(violations))


def _may_be_passed_over(row: Item) -> bool:
    """Test whether a completed saga may lack the step because it skipped it: the row records a refusal.

    If the step took effect after that, it was undone, and the row keeps the refusal, or what the saga saw instead. A
    pivot is never skipped.
    """
    if LogAttribute.SUBSTITUTE in row:
        return True
    status = StepStatus(row[LogAttribute.STATUS]["S"])
    refused = status is StepStatus.REFUSED or (LogAttribute.ERROR in row and status is not StepStatus.DONE)
    return refused and Side(row[LogAttribute.SIDE]["S"]) is not Side.PIVOT


def _amount(entry: Item) -> int:
    return int(entry[LedgerAttribute.AMOUNT]["N"])
