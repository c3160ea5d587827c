"""The doctor's read of request records: all in flight, and those still due. Changes nothing.

A running saga must not be reported as stuck. A finding about an owner requires that two reads,
one after the other, see the same record and the same end of its owner's execution: an execution that settles, parks or
takes over writes the record before it ends, so the second read sees it.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any, Final

from constructs_lib.cli.doctor.aws import Aws, Item, all_of
from constructs_lib.cli.doctor.findings import UNKNOWN_DAYS, Finding, Flight, Kind, Saga, Severity
from constructs_lib.cli.doctor.record_findings import (
    NOBODY_CAME_MS,
    UNREADABLE,
    RecordFindings,
    nobody_came,
    unreadable,
)
from constructs_lib.cli.saga.retries import read_retries
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import DUE_INDEX, LogAttribute, RecordAttribute
from saga_runtime.recovery.decisions import Found, kept_until, may_forget
from saga_runtime.recovery.saga_reconciler import Caretaker, Seen, Served
from saga_runtime.recovery.takeover import Finding as Finds
from saga_runtime.shared.arns import execution_of, machine_of
from saga_runtime.shared.aws import error_code

_LOOKS: Final = 4
"""A saga that moves between so many looks is under way."""
_SAID_EVERY: Final = 500
_MOST_HISTORIES: Final = 100
"""Histories that are read in one run: Step Functions answers some 20 a second."""
_MOST_SHARDS: Final = 100
"""Of any index: those of a saga in a stack that was not named are not known."""
_CERTAIN: Final = (Finds.SETTLED, Finds.PARKED, Finds.RUNNING)
"""Decided by the record alone; or nothing is wrong."""


@dataclass(slots=True, kw_only=True)
class Records:
    """The request records of a system.

    Attributes:
        sagas: those that are known.
        more: options that a command needs: the stacks, a profile, a region.
        log: saga log of sagas whose state machine is not of the stacks any more; empty: not known.
        looked_at: how many records were read.
    """

    aws: Aws
    sagas: Sequence[Saga]
    now_ms: int
    more: Sequence[str] = ()
    log: str = ""
    looked_at: int = 0
    _overdue: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    _in_flight: dict[str, RequestRecord] = field(default_factory=dict)
    _money: dict[str, tuple[int, str]] = field(default_factory=dict)
    _gone: dict[str, bool] = field(default_factory=dict)
    _histories: list[str] = field(default_factory=list)
    _not_asked: list[str] = field(default_factory=list)

    def look(self) -> list[Finding]:
        """Findings from the sparse indexes, due or not; ``overdue`` reports reconcilers that did not check."""
        found: list[Finding] = []
        for table, shards in self._tables().items():
            parts = all_of(partial(self._keys, table), range(shards))
            found += self.look_at(table, list(dict.fromkeys(key for part in parts for key in part)))
        return found

    def look_at(self, table: str, request_ids: Sequence[str]) -> list[Finding]:
        """Findings of some records of a table."""
        keys: list[dict[str, dict[str, str]]] = [{RecordAttribute.ID: {"S": request_id}} for request_id in request_ids]
        items = self.aws.gathered(f"table {table}", self.aws.read_all(table, keys))
        self.looked_at += len(items)
        found: list[Finding] = []
        for start in range(0, len(items), _SAID_EVERY):
            if start and sys.stderr.isatty():  # thousands take minutes: executions are asked for one by one
                sys.stderr.write(f"table {table}: {start:,} of {len(items):,} records\n")
            parts = all_of(partial(self._looked_at, table), items[start : start + _SAID_EVERY])
            found += [one for part in parts for one in part]
        return found

    @property
    def flight(self) -> Flight:
        """What is in flight, of the records that were read."""
        money: dict[str, int] = {}
        for saga_id in self._in_flight.keys() & self._money.keys():
            amount, currency = self._money[saga_id]
            money[currency] = money.get(currency, 0) + amount
        records = list(self._in_flight.values())
        return Flight(
            sagas=len(records),
            parked=sum(record.parked_by is not None for record in records),
            oldest=min((record.created_at for record in records), default=None),
            money=dict(sorted(money.items())),
            complete=not any(self.aws.was_refused(f"table {saga.served.requests}") for saga in self.sagas),
        )

    @property
    def parked(self) -> dict[str, int]:
        """Numbers of parked sagas by the URL of their operators' queue."""
        counts: dict[str, int] = {}
        for record in self._in_flight.values():
            if record.parked_by is not None:
                machine = machine_of(record.execution_arn).rpartition(":")[2]
                url = next((saga.served.operators for saga in self.sagas if saga.served.machine == machine), "")
                counts[url] = counts.get(url, 0) + 1
        return counts

    def remember(self, item: Item) -> None:
        """Keep what a saga moves, as its record has it, if it does."""
        a = RecordAttribute
        try:
            self._money[item[a.SAGA_ID]["S"]] = int(Decimal(item[a.AMOUNT]["N"])), str(item[a.CURRENCY]["S"])
        except UNREADABLE:
            return

    def with_money(self, finding: Finding) -> Finding:
        """A finding, with what its saga moves, where that is known."""
        amount, currency = self._money.get(finding.saga_id, (None, ""))
        return replace(finding, amount=amount, currency=currency)

    def nobody_came(self, saga: Saga, due_at: int) -> None:
        """Keep that something of a saga has been due for long."""
        self._overdue.setdefault((saga.served.requests, saga.served.machine), []).append(due_at)

    @property
    def overdue(self) -> list[Finding]:
        """Findings of reconcilers that did not check what has been due for long."""
        found = [nobody_came(table, machine, due) for (table, machine), due in sorted(self._overdue.items())]
        if self._not_asked:
            some = f"{len(self._not_asked)} running sagas"
            what = f"what these retry was not read: of at most {_MOST_HISTORIES} sagas it is"
            found.append(
                Finding(kind=Kind.RETRYING, severity=Severity.OK, id=some, what=what, then="inspect one by its id")
            )
        return found

    def attended(self, saga: Saga) -> bool:
        """Test whether a saga's reconciler works, and nothing of it has been due for long."""
        return saga.attended and (saga.served.requests, saga.served.machine) not in self._overdue

    def saga_of(self, table: str, record: RequestRecord) -> Saga:
        """Home of a record's saga; unknown properties are left open."""
        return self.saga_at(table, record.execution_arn)

    def saga_at(self, table: str, execution_arn: str) -> Saga:
        """The same, by the ARN of the saga's first execution."""
        machine = machine_of(execution_arn).rpartition(":")[2]
        mine = [saga for saga in self.sagas if saga.served.requests == table]
        known = next((saga for saga in mine if saga.served.machine == machine), None)
        if known is not None:
            return known
        shards = max((saga.served.shards for saga in mine), default=_MOST_SHARDS)
        names = Served(machine=machine, requests=table, shards=shards, log=self.log, days=UNKNOWN_DAYS, operators="")
        return Saga(served=names)

    def command(self, *words: str) -> str:
        """A command of ours, to be copied."""
        return shlex.join(["cdk-sagas", *words, *self.more])

    def caretaker(self, saga: Saga) -> Caretaker:
        """Reconciler of one saga, used for its assessment."""
        return Caretaker(served=[saga.served], limit=saga.limit, count=_uncounted)

    def _tables(self) -> dict[str, int]:
        shards: dict[str, int] = {}
        for saga in self.sagas:
            shards[saga.served.requests] = max(saga.served.shards, shards.get(saga.served.requests, 0))
        return shards

    def _keys(self, table: str, shard: int) -> list[str]:
        return self.aws.gathered(f"table {table}", self._keys_of(table, shard))

    def _keys_of(self, table: str, shard: int) -> Iterator[str]:
        a = RecordAttribute
        pages: Any = self.aws.client("dynamodb").get_paginator("query")
        found = pages.paginate(
            TableName=table,
            IndexName=DUE_INDEX,
            KeyConditionExpression="#shard = :shard",
            ProjectionExpression="#id",
            ExpressionAttributeNames={"#shard": a.DUE_SHARD, "#id": a.ID},
            ExpressionAttributeValues={":shard": {"S": f"{shard:02d}"}},
        )
        yield from (str(item[a.ID]["S"]) for page in found for item in page["Items"])

    def _looked_at(self, table: str, item: Item) -> list[Finding]:
        key = item.get(RecordAttribute.SAGA_ID, item[RecordAttribute.ID])
        return self.aws.gathered(f"something of saga {next(iter(key.values()))}", self._of(table, item))

    def _of(self, table: str, item: Item) -> Iterator[Finding]:
        a = RecordAttribute
        try:
            found = Found.from_item(item)
            if found is None:
                return  # another writer's item in the same table, for example Powertools'
            self.remember(item)
            if not found.record.settled:
                self._in_flight[found.record.saga_id] = found.record
            yield from self._of_found(self.saga_of(table, found.record), found, item)
        except UNREADABLE as error:
            yield unreadable(table, str(item[a.ID]["S"]), error)

    def _of_found(self, saga: Saga, found: Found, item: Item) -> Iterator[Finding]:
        seen = self._seen(saga, found)
        if seen is None:
            return
        record = seen.found.record
        gone = self._gone_machine(record)
        if gone is None and seen.found.is_due(self.now_ms - NOBODY_CAME_MS) and record.due_at is not None:
            self.nobody_came(saga, record.due_at)
        about = RecordFindings(saga=saga, record=record, item=item, now_ms=self.now_ms, command=self.command)
        log = saga.served.log  # of a saga whose state machine is not of the stacks, it is not known
        open_long = log and not record.settled and may_forget(record, self.now_ms, saga.served.days)
        if gone is not None:
            yield about.machine_gone(gone)
        if gone is None or record.parked_by is not None:
            yield from (one for one in (about.seen(seen), about.not_due()) if one is not None)
        if open_long and self._rows_end(saga, record):
            yield about.rows_end()
        if seen.finding is Finds.RUNNING and self.now_ms - record.created_at >= NOBODY_CAME_MS:
            yield from self._retrying(about, record)

    def _retrying(self, about: RecordFindings, record: RequestRecord) -> Iterator[Finding]:
        """Tasks that a running owner has retried for long."""
        if len(self._histories) >= _MOST_HISTORIES:
            self._not_asked.append(record.saga_id)
            return
        self._histories.append(record.saga_id)
        machines = [machine_of(record.execution_arn)]
        if record.owner != record.saga_id:  # a recovery that goes forward runs in the forward machine
            machines.insert(0, record.recovery_machine_arn)
        for arn in machines:
            for one in read_retries(self.aws.step_functions, execution_of(arn, record.owner)):
                if self.now_ms - one.first_at >= NOBODY_CAME_MS:
                    yield about.retrying(one)

    def _gone_machine(self, record: RequestRecord) -> str | None:
        """A deleted state machine of a saga in progress; None: there is none, or it cannot be known."""
        if record.settled:
            return None
        machines = (machine_of(record.execution_arn), record.recovery_machine_arn)
        return next((arn for arn in machines if self._is_gone(arn)), None)

    def _is_gone(self, arn: str) -> bool:
        """Test whether a state machine was deleted: asked once, more or less."""
        if arn not in self._gone:
            self._gone[arn] = bool(self.aws.allowed(f"machine {arn}", partial(_was_deleted, self.aws, arn)))
        return self._gone[arn]

    def _seen(self, saga: Saga, found: Found) -> Seen | None:
        """An assessment that was the same twice; None: another process works on it, or its record is gone."""
        caretaker, before = self.caretaker(saga), None
        for _ in range(_LOOKS):
            seen = caretaker.look(saga.served, found, self.now_ms)
            if seen is None or seen.finding in _CERTAIN:
                return seen
            if before is not None and (seen.found, seen.status) == (before.found, before.status):
                return seen
            again = caretaker.read(saga.served.requests, found.record.request_id)
            if again is None:
                return None
            before, found = seen, again
        return None

    def _rows_end(self, saga: Saga, record: RequestRecord) -> bool:
        a = LogAttribute
        before, _ = kept_until(self.now_ms, saga.served.days)
        pages: Any = self.aws.client("dynamodb").get_paginator("query")
        found = pages.paginate(
            TableName=saga.served.log,
            ConsistentRead=True,
            KeyConditionExpression="#saga_id = :saga_id",
            FilterExpression="#expiration < :before",
            ProjectionExpression="#step",
            ExpressionAttributeNames={f"#{name}": name for name in (a.SAGA_ID, a.STEP, a.EXPIRATION)},
            ExpressionAttributeValues={":saga_id": {"S": record.saga_id}, ":before": {"N": str(before)}},
        )
        return any(page["Items"] for page in found)


def _was_deleted(aws: Aws, arn: str) -> bool:
    from botocore.exceptions import ClientError

    try:
        return aws.step_functions.describe_state_machine(stateMachineArn=arn).get("status") == "DELETING"
    except ClientError as error:
        if error_code(error) != "StateMachineDoesNotExist":
            raise
        return True


def _uncounted(*_: object) -> None:
    """Discard metrics: a command is not a function."""
