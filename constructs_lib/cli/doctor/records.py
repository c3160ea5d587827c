"""Request records, all in flight, and those still due: how the doctor reads them, and what it finds. Changes nothing.

A running saga must not be reported as stuck. A finding about an owner requires that two reads,
one after the other, see the same record and the same end of its owner's execution: an execution that settles, parks or
takes over writes the record before it ends, so the second read sees it.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Final

from botocore.exceptions import ClientError

from constructs_lib.cli.doctor.findings import (
    NOBODY_CAME_MS,
    UNKNOWN_DAYS,
    Finding,
    Flight,
    Kind,
    Saga,
    Severity,
    is_held_back,
    of_held_saga,
    unreadable,
)
from constructs_lib.cli.saga.retries import Retrying, read_retries
from constructs_lib.cli.shared.process import json_in, moment
from constructs_lib.cli.shared.reads import UNREADABLE, Aws, Item, all_of, rows_of
from constructs_lib.cli.shared.saga import in_words, to_copy
from saga_runtime.idempotency.identity import request_id_from
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import LogAttribute, RecordAttribute
from saga_runtime.recovery.decisions import Found, Need, kept_until, may_forget
from saga_runtime.recovery.hold import Held, hold_key
from saga_runtime.recovery.repairs import Repair, is_looked_at
from saga_runtime.recovery.running import Running
from saga_runtime.recovery.saga_reconciler import Caretaker, Seen, Served
from saga_runtime.recovery.takeover import Finding as Finds
from saga_runtime.recovery.takeover import Recoverer, recovery_name
from saga_runtime.shared.arns import execution_of, machine_of
from saga_runtime.shared.aws import NO_RIGHTS, error_code
from saga_runtime.shared.decisions import Audit

_LOOKS: Final = 4
"""A saga that moves between so many looks is under way."""
_AT_ONCE: Final = 500
"""Records that are held at once."""
_FOREVER_MS: Final = 10**9
_MOST_HISTORIES: Final = 100
"""Histories that are read in one run: Step Functions answers some 20 a second."""
_MOST_SHARDS: Final = 100
"""Of any index: those of a saga in a stack that was not named are not known."""
_CERTAIN: Final = (Finds.SETTLED, Finds.PARKED, Finds.RUNNING)
"""Decided by the record alone; or nothing is wrong."""


@dataclass(frozen=True, slots=True)
class _InFlight:
    """Facts of a record in progress."""

    machine: str
    created_at: int
    parked: bool

    @classmethod
    def of(cls, record: RequestRecord) -> _InFlight:
        machine = machine_of(record.execution_arn).rpartition(":")[2]
        return cls(machine, record.created_at, record.parked_by is not None)


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
    _in_flight: dict[str, _InFlight] = field(default_factory=dict)
    _money: dict[str, tuple[int, str]] = field(default_factory=dict)
    _gone: dict[str, bool] = field(default_factory=dict)
    _histories: list[str] = field(default_factory=list)
    _not_asked: list[str] = field(default_factory=list)
    _running: Running = field(init=False, repr=False)
    _may_list: bool = True

    def __post_init__(self) -> None:
        self._running = Running(
            step_functions=lambda: self.aws.step_functions, remaining_ms=lambda: _FOREVER_MS, lock=threading.Lock()
        )

    def look(self) -> list[Finding]:
        """Findings from the sparse indexes, due or not; ``overdue`` reports reconcilers that did not check."""
        found: list[Finding] = []
        for table, shards in self._tables().items():
            found += self.look_at(table, list(self.aws.due(table, shards)))
        return found

    def look_at(self, table: str, request_ids: Sequence[str]) -> list[Finding]:
        """Findings of some records of a table."""
        found: list[Finding] = []
        for start in range(0, len(request_ids), _AT_ONCE):
            if start and sys.stderr.isatty():
                sys.stderr.write(f"table {table}: {start:,} of {len(request_ids):,} records\n")
            ids = request_ids[start : start + _AT_ONCE]
            items = self.aws.gathered(f"table {table}", self.aws.read_ids(table, ids))
            self.looked_at += len(items)
            parts = all_of(partial(self._looked_at, table), items)
            found += [one for part in parts for one in part]
            if len(items) < len(ids) and self.aws.was_refused(f"table {table}"):
                break  # the others would be refused, too
        return found

    def homes(self, table: str, saga_ids: Iterable[str]) -> Iterator[Item]:
        """Records that sagas have, or another one under the same key has, read strongly."""
        for item in self.aws.read_ids(table, sorted({request_id_from(saga_id) for saga_id in saga_ids})):
            if RecordAttribute.SAGA_ID in item:
                self.remember(item)
                yield item

    @property
    def flight(self) -> Flight:
        """Sagas in flight, of the records that were read."""
        money: Counter[str] = Counter()
        for saga_id in self._in_flight.keys() & self._money.keys():
            amount, currency = self._money[saga_id]
            money[currency] += amount
        records = list(self._in_flight.values())
        return Flight(
            sagas=len(records),
            parked=sum(record.parked for record in records),
            oldest=min((record.created_at for record in records), default=None),
            money=dict(sorted(money.items())),
            complete=not any(self.aws.was_refused(f"table {saga.served.requests}") for saga in self.sagas),
        )

    @property
    def parked(self) -> dict[str, int]:
        """Numbers of parked sagas by the URL of their operators' queue."""
        counts: Counter[str] = Counter()
        for record in self._in_flight.values():
            if record.parked:
                url = next((saga.served.operators for saga in self.sagas if saga.served.machine == record.machine), "")
                counts[url] += 1
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
            found.append(Finding(Kind.RETRYING, Severity.OK, what, "inspect one by its id", id=some))
        return found

    def attended(self, saga: Saga) -> bool:
        """Test whether a saga's reconciler works, and none of its sagas has been due for long."""
        return saga.attended and (saga.served.requests, saga.served.machine) not in self._overdue

    def saga_at(self, table: str, execution_arn: str) -> Saga:
        """Home of a saga, by the ARN of its first execution; unknown properties are left open."""
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
        return to_copy(words, self.more)

    def release(self, saga_id: str) -> str:
        """The command that ends the hold of one saga, which is of no log."""
        options = zip(self.more[::2], self.more[1::2], strict=True)
        more = [word for name, value in options if name != "--log-table" for word in (name, value)]
        return to_copy(["hold", "off", "--saga", saga_id], more)

    def caretaker(self, saga: Saga, audit: Audit | None = None) -> Caretaker:
        """Reconciler of one saga, used for its assessment; with the author of what it decides, also for repairs."""
        caretaker = Caretaker(served=[saga.served], limit=saga.limit, count=_uncounted, audit=audit)
        return caretaker if audit is not None else replace(caretaker, runs=self._runs)

    def _runs(self, machine_arn: str, name: str) -> bool:
        """Test whether an execution is listed as running: of many, few are left to ask for one by one.

        To describe each of thousands would take the quota from the reconciler, for hours.
        """
        if not self._may_list:
            return False
        try:
            return self._running.includes(machine_arn, name)
        except ClientError as error:
            if error_code(error) not in NO_RIGHTS:
                raise
            self._may_list = False  # each is asked for, as far as that is allowed
            return False

    def _tables(self) -> dict[str, int]:
        shards: dict[str, int] = {}
        for saga in self.sagas:
            shards[saga.served.requests] = max(saga.served.shards, shards.get(saga.served.requests, 0))
        return shards

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
                self._in_flight[found.record.saga_id] = _InFlight.of(found.record)
            yield from self._of_found(self.saga_at(table, found.record.execution_arn), found, item)
        except UNREADABLE as error:
            yield unreadable(table, str(item[a.ID]["S"]), error)

    def _of_found(self, saga: Saga, found: Found, item: Item) -> Iterator[Finding]:
        seen = self._seen(saga, found)
        if seen is None:
            return
        record = seen.found.record
        gone = self._gone_machine(record)
        findings = list(self._about(saga, seen, item, gone))
        held = self._held(saga, record.saga_id) if findings else None
        if (
            gone is None
            and seen.found.is_due(self.now_ms - NOBODY_CAME_MS)
            and record.due_at is not None
            and (held is None or not any(map(is_held_back, findings)))
        ):
            self.nobody_came(saga, record.due_at)
        for one in findings:
            yield one if held is None else of_held_saga(one, held, self.release(record.saga_id))

    def _about(self, saga: Saga, seen: Seen, item: Item, gone: str | None) -> Iterator[Finding]:
        """Findings about one record, as if its saga were not held."""
        record = seen.found.record
        about = RecordFindings(saga=saga, record=record, item=item, now_ms=self.now_ms, command=self.command)
        log = saga.served.log  # of a saga whose state machine is not of the stacks, it is not known
        open_long = log and not record.settled and may_forget(record, self.now_ms)
        if gone is not None:
            yield about.machine_gone(gone)
        if gone is None or record.parked_by is not None:
            yield from (one for one in (about.seen(seen), about.not_due()) if one is not None)
        if open_long and self._rows_end(saga, record):
            yield about.rows_end()
        if seen.finding is Finds.RUNNING and self.now_ms - record.created_at >= NOBODY_CAME_MS:
            yield from self._retrying(about, record)

    def _held(self, saga: Saga, saga_id: str) -> Held | None:
        """The hold of one saga; None: it is not held, or that may not be read."""
        if not saga.hold:
            return None
        item = self.aws.allowed(f"table {saga.hold}", lambda: self.aws.read(saga.hold, hold_key(saga_id)))
        return Held.from_item(item) if item is not None else None

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
        """A deleted state machine of a saga in progress; None: without one, or if it cannot be known."""
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
        before, _ = kept_until(self.now_ms, saga.served.days)
        rows = rows_of(self.aws.dynamodb, saga.served.log, record.saga_id, (LogAttribute.EXPIRATION,))
        return any(int(row[LogAttribute.EXPIRATION]["N"]) < before for row in rows if row)


def _was_deleted(aws: Aws, arn: str) -> bool:
    try:
        return aws.step_functions.describe_state_machine(stateMachineArn=arn).get("status") == "DELETING"
    except ClientError as error:
        if error_code(error) != "StateMachineDoesNotExist":
            raise
        return True


def _uncounted(*_: object) -> None:
    """Discard metrics: a command is not a function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFindings:
    """One record, and how to speak of it.

    Attributes:
        saga: where it is at home.
        record: the record.
        item: the same, as it is stored.
        now_ms: the time.
        command: a command of ours about it, to be copied.
    """

    saga: Saga
    record: RequestRecord
    item: Item
    now_ms: int
    command: Callable[..., str]

    def seen(self, seen: Seen) -> Finding | None:
        """Finding of an assessment: the reconciler's next action, or an operator's. None: all is well."""
        record, need = self.record, seen.decision.need
        match seen.finding:
            case Finds.SETTLED if need is Need.CLEAR:
                what = f"{record.status}, and still due"
                return self._soon(Kind.STILL_DUE, what, "the reconciler clears it", record.due_at)
            case Finds.PARKED:
                return self._parked(seen)
            case Finds.NOT_STARTED if seen.found.is_due(self.now_ms) or record.cancelled:
                # Before it is due, another process is about to start it.
                return self._not_started(seen)
            case Finds.NAME_EXPIRED:
                what = "no execution of its owner's name, and it may have run before"
                return self._for_a_person(Kind.NAME_EXPIRED, what, record.created_at)
            case Finds.OWNER_UNKNOWN:
                # Whether a right is missing here or to the reconciler, too, is not known: nothing is parked by that.
                what = "its owner's execution may not be described: a right is missing, or its record names another "
                what += "recovery machine"
                return replace(self._for_a_person(Kind.NOT_ALLOWED, what, record.updated_at), repair=None)
            case Finds.OWNER_SUCCEEDED:
                what = "in progress although its owner's execution SUCCEEDED: its record was restored, or edited"
                return self._for_a_person(Kind.UNSETTLED, what, record.updated_at)
            case Finds.ROWS_EXPIRED:
                what = "it does not run, and its log may have expired, without which effects could repeat"
                return self._for_a_person(Kind.ROWS_GONE, what, record.created_at)
            case Finds.DEAD if need is Need.PARK:
                what = f"{_count(record.recoveries)} ended without settling it: no more are allowed"
                return self._for_a_person(Kind.EXHAUSTED, what, record.updated_at)
            case Finds.DEAD:
                return self._interrupted(seen)
            case Finds.RUNNING:
                return self._running()
            case _:
                return None

    def machine_gone(self, arn: str) -> Finding:
        """A state machine of a saga in progress was deleted: nothing can start it."""
        return self._about(
            Kind.MACHINE_GONE,
            Severity.OPERATOR,
            f"in progress, and {arn} was deleted: nothing can start it",
            "move it to the saga that writes the same saga log",
            self.record.updated_at,
            command=self.command("adopt", self.record.saga_id),
        )

    def rows_end(self) -> Finding:
        """Rows of its log come near their end."""
        what = "it is open, and rows of its log come near their end"
        return self._soon(Kind.ROWS_END, what, "the reconciler keeps them for longer", self.record.created_at)

    def not_due(self) -> Finding | None:
        """A record in progress that no look would ever find; None: one does."""
        shards = self.saga.served.shards
        if self.record.settled or is_looked_at(self.item, shards):
            return None
        shard = self.item.get(RecordAttribute.DUE_SHARD, {}).get("S", "")
        lacks = [name for name in (RecordAttribute.DUE_AT, RecordAttribute.DUE_SHARD) if name not in self.item]
        what = f"without {' and '.join(lacks)}" if lacks else f"in shard {shard!r}, of {shards} that are checked"
        return self._about(
            Kind.NOT_DUE,
            Severity.REPAIR,
            f"in progress, and {what}: no look ever finds it",
            "--repair makes it due",
            self.record.updated_at,
            repair=Repair.MAKE_DUE,
        )

    def _not_started(self, seen: Seen) -> Finding:
        since = self.record.updated_at
        if self.record.cancelled:
            what = "an operator cancelled it, and it was never started"
            then = "the reconciler hands it to r1, when no Express execution of it can run"
            return self._soon(Kind.INTERRUPTED, what, then, since)
        if seen.found.is_due(self.now_ms - NOBODY_CAME_MS):
            return self._start_refused()
        what = "reserved, and there is no execution of its owner's name"
        return self._soon(Kind.NOT_STARTED, what, "the reconciler starts it", since)

    def _start_refused(self) -> Finding:
        minutes = NOBODY_CAME_MS // 60_000
        return self._about(
            Kind.START_REFUSED,
            Severity.REPAIR,
            f"reserved, due for more than {minutes} min, and never started: its start is refused, or nothing tries it",
            "find start_refused in the gatekeeper's log; --repair starts it, or names the code of the refusal",
            self.record.created_at,
            repair=Repair.RECONCILE,
        )

    def _interrupted(self, seen: Seen) -> Finding:
        record = self.record
        what = f"{self._owner} {seen.status}, and did not settle it"
        then = f"the reconciler hands it to {_tail(recovery_name(record.saga_id, record.recoveries + 1))}"
        if seen.decision.need is Need.NOTHING and record.due_at is not None:
            then += f" at {moment(record.due_at)}"
        return self._soon(Kind.INTERRUPTED, what, then, record.updated_at)

    def _running(self) -> Finding | None:
        deployed, record = self.saga.deployed, self.record
        if record.cancelled:
            what = "an operator cancelled it, and its execution still runs"
            return self._soon(Kind.INTERRUPTED, what, "the reconciler stops it", record.updated_at)
        if deployed is None or self.now_ms - record.created_at <= deployed.timeout_seconds * 1_000:
            return None
        return self._about(
            Kind.OVER_TIME,
            Severity.OK,
            f"in progress for longer than its machine's timeout; {self._owner} runs",
            "nothing, as long as its recoveries progress: check what it waits for",
            record.created_at,
            command=self.command("inspect", record.saga_id),
        )

    def retrying(self, one: Retrying) -> Finding:
        """A task that its owner has retried for long."""
        return self._about(
            Kind.RETRYING,
            Severity.OK,
            f"{one.state}: {one.failed} attempts failed, at last with {one.error}",
            "nothing yet: when the last attempt fails, it compensates or is parked; find the cause",
            one.first_at,
            command=self.command("inspect", self.record.saga_id),
        )

    def _parked(self, seen: Seen) -> Finding:
        record = self.record
        return self._about(
            Kind.PARKED,
            Severity.OPERATOR,
            stuck_in_words(self.item),
            "determine the outcome, then record it: cdk-sagas resolve",
            seen.found.parked_at or record.updated_at,
            command=self.command("inspect", record.saga_id),
        )

    def _for_a_person(self, kind: Kind, what: str, since: int) -> Finding:
        """A saga that the reconciler parks: that notifies the operators, and decides nothing."""
        return self._about(
            kind,
            Severity.OPERATOR,
            what,
            "find out why; the reconciler parks it, and then cdk-sagas resolve --resume resumes it",
            since,
            command=self.command("inspect", self.record.saga_id),
            repair=Repair.RECONCILE if self.saga.served.operators else None,
        )

    def _soon(self, kind: Kind, what: str, then: str, since: int | None) -> Finding:
        return self._about(kind, Severity.SOON, what, then, since, repair=Repair.RECONCILE)

    @property
    def _owner(self) -> str:
        return "its first execution" if self.record.owner == self.record.saga_id else _tail(self.record.owner)

    @property
    def _about(self) -> Callable[..., Finding]:
        return partial(Finding, id=self.record.saga_id, saga_id=self.record.saga_id, saga=self.saga)


def nobody_came(table: str, machine: str, due: list[int]) -> Finding:
    """A finding about a reconciler that has not checked what has been due for long, reported once."""
    sagas = "one saga" if len(due) == 1 else f"{len(due)} sagas"
    what = f"{sagas} of table {table} due for more than {NOBODY_CAME_MS // 60_000} min, and not checked"
    then = "find out why its reconciler does not look: its schedule, its logs, its alarms"
    return Finding(Kind.NOT_MONITORED, Severity.OPERATOR, what, then, min(due), id=machine)


def stuck_in_words(item: Item) -> str:
    """Why a saga is parked, as its record has it."""
    text = str(item.get(RecordAttribute.PARKED_REASON, {}).get("S", ""))
    said = json_in(text) if text else {}
    if not isinstance(said, Mapping):
        return text
    return in_words(said) or "its record has no reason"


def _tail(name: str) -> str:
    """A recovery's name without its saga's."""
    return f"-{name.rpartition('-')[2]}"


def _count(recoveries: int) -> str:
    return "one recovery" if recoveries == 1 else f"{recoveries} recoveries"


@dataclass(frozen=True, slots=True)
class Watcher(Recoverer):
    """Asks what a ``Recoverer`` asks, decides what it decides, and starts nothing."""

    def start(self, machine_arn: str, name: str, start_input: str, *, alias: str | None = None) -> None:
        """Leave it to others."""


def watcher(aws: Aws, saga: Saga) -> Watcher:
    """One for a saga."""
    return Watcher(table=saga.served.requests, dynamodb=aws.dynamodb, step_functions=aws.step_functions)
