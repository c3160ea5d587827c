"""Operators: they find parked sagas, resolve their steps, resume them, cancel those that run, and hold reconcilers.

They also care for sagas that no reconciler serves since a release: they move them, or recover them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from constructs_lib.testing.invariants import Item
from constructs_lib.testing.simulator.deployment.parts import Operation
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.workload import Workload
from constructs_lib.testing.simulator.world import World
from saga_runtime.errors import Conflict
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import LogAttribute, RecordAttribute, RecordStatus, StepStatus
from saga_runtime.recovery.adoption import Adopter, CannotAdopt
from saga_runtime.recovery.cancel import CannotCancel, cancel
from saga_runtime.recovery.hold import Held, decisions_key, kept, off, on
from saga_runtime.recovery.late_effects import undo_late
from saga_runtime.recovery.resolution import CannotResolve, Statement, Subject
from saga_runtime.recovery.resolver import Resolver
from saga_runtime.recovery.takeover import MachineGone, Recoverer
from saga_runtime.saga_log.rows import UNDER_WAY
from saga_runtime.shared.arns import machine_of
from saga_runtime.shared.decisions import Audit, decided
from saga_runtime.shared.writes import Entry, transact

if TYPE_CHECKING:
    from constructs_lib.testing.simulator.engine.actors import Actor

UNDONE_LATE: Final = frozenset({StepStatus.APPLIED_LATE, StepStatus.COMPENSATING})
"""Statuses of rows of settled sagas whose effects a reconciler compensates."""
_REFUSED: Final = frozenset({StepStatus.REFUSED, StepStatus.APPLIED_LATE})
"""Statuses of rows of steps that were refused, and perhaps done after all."""
_DUE_AFTER_MS: Final = 60_000
_AUDIT: Final = Audit(who="arn:aws:sts::000000000000:assumed-role/operators/simulated", why="the books were read")
_EVERY: Final = 900 * SECOND
_RESUMES_FIRST: Final = 2
"""So often an operator only resumes a saga, before finding out what it cannot decide."""
_RESUMES: Final = 100
"""So often an operator resumes a saga, in a day or more; then it stays parked, which the run reports."""
_CANCELLING_RUNS: Final = 4
"""In one of so many runs, operators cancel sagas."""
_CANCELLATIONS: Final = 6
_HOLDING_RUNS: Final = 4
"""In one of so many runs, operators hold reconcilers, or single sagas."""
_HOLDS: Final = 3
_OF_ONE_SAGA: Final = 0.5
"""Share of the holds that are of one saga."""
_HOLD_LASTS: Final = (2.1, 3.5)
"""Powers of 10 of its seconds: from two minutes, for which no request travels, to an hour."""
_HASTY: Final = 0.1
"""Share of the checks of a saga that runs after which an operator tries to move it all the same."""
_TWO: Final = 0.3
"""Share of the sagas that two operators move at once, each in their own time."""
_SLOW: Final = 120 * SECOND
"""Between the read of a record and its update, at most: a command may be held."""
_RECOVERIES_FIRST: Final = 3
"""So often an operator recovers a saga on machines that a release left out, before deleting them."""
_RELEASED_AGAIN: Final = 60 * SECOND
"""After this time, an operator releases again what could not be released."""


class Operator:
    """Operator of parked sagas.

    Args:
        world: where the sagas are.
        workload: knows what an operator finds out.

    Attributes:
        resumed: how often each saga was resumed.
        reasons: why each of them was parked the last time.
        moved: sagas that were moved to other state machines.
    """

    def __init__(self, world: World, workload: Workload) -> None:
        self.resumed: dict[str, int] = {}
        self.reasons: dict[str, str] = {}
        self.moved: set[str] = set()
        self._recovered: Counter[str] = Counter()
        self._world = world
        self._workload = workload
        self._actor: Actor = world.actor("operator")
        self._active = False
        self._second: Actor = world.actor("second operator")

    def begin(self) -> None:
        """Look now and then, until the run ends."""
        self._world.kernel.after(int((0.2 + self._world.weather.share()) * _EVERY), self._look)

    def _look(self) -> None:
        if not self._active:
            self._active = True
            self._spawn(self._actor, self._care)
        self.begin()

    def begin_to_cancel(self, random: Random, length: int) -> None:
        """Plan the moments at which sagas are cancelled: in some runs, and two of them may be close to each other."""
        if random.randrange(_CANCELLING_RUNS):
            return
        for number in range(_CANCELLATIONS):
            actor, chosen = self._world.actor(f"operator who cancels {number}"), random.getrandbits(32)
            self._world.kernel.after(int(random.random() * length), partial(self._begin_to_cancel, actor, chosen))

    def _begin_to_cancel(self, actor: Actor, chosen: int) -> None:
        self._spawn(actor, partial(self._cancel, actor, chosen))

    def begin_to_hold(self, random: Random, length: int) -> None:
        """Plan the moments at which reconcilers, or one saga, are held, and released: in some runs.

        The run does not end before everything is released.
        """
        if random.randrange(_HOLDING_RUNS) or not self._world.parts.holds:
            return
        for number in range(_HOLDS):
            actor = self._world.actor(f"operator who holds {number}")
            chosen = random.getrandbits(32) if random.random() < _OF_ONE_SAGA else None
            lasts = int(SECOND * 10 ** random.uniform(*_HOLD_LASTS))
            begin = partial(self._spawn, actor, partial(self._hold, actor, chosen, lasts))
            self._world.kernel.after(int(random.random() ** 3 * length), begin)  # most sagas are in progress early

    def _hold(self, actor: Actor, chosen: int | None, lasts: int) -> None:
        """Hold every reconciler, or one saga, as ``cdk-sagas hold on`` does."""
        saga_id = None
        if chosen is not None:
            in_progress = self._in_progress()
            if not in_progress:
                return
            saga_id = str(in_progress[chosen % len(in_progress)][1][RecordAttribute.SAGA_ID]["S"])
        held = Held(since_ms=(self._world.kernel.now + actor.skew) // 1_000, reason=actor.name, who=_AUDIT.who)
        for table in self._world.parts.holds:
            self._switch(actor, table, saga_id, on(table, saga_id, held), "holds")
        self._world.kernel.after(lasts, partial(self._spawn, actor, partial(self._release, actor, saga_id, held)))

    def _release(self, actor: Actor, saga_id: str | None, held: Held) -> None:
        """Release what this operator holds, as ``cdk-sagas hold off`` does, until an answer comes."""
        holds = self._world.parts.holds
        answered = [self._switch(actor, table, saga_id, off(table, saga_id, held), "releases") for table in holds]
        if not all(answered):
            again = partial(self._spawn, actor, partial(self._release, actor, saga_id, held))
            self._world.kernel.after(_RELEASED_AGAIN, again)

    def _switch(self, actor: Actor, table: str, saga_id: str | None, entry: Entry, what: str) -> bool:
        """Set or release a switch, and keep the decision, unless another operator did; whether that is certain."""
        dynamodb, certain = boto3.client("dynamodb"), False
        decision = decided(_AUDIT, what, (self._world.kernel.now + actor.skew) // 1_000)
        try:
            was = dynamodb.get_item(TableName=table, Key=decisions_key(saga_id), ConsistentRead=True).get("Item")
            refused = transact([entry, kept(table, saga_id, was, decision)], client=dynamodb)
            certain = refused is None or 0 in refused.items
            done: object = "done" if refused is None else "another operator does"
        except (ClientError, BotoCoreError) as error:
            done = error
        self._world.trace.note("operator", f"{what} {saga_id or 'every saga'}: {done}")
        return certain

    def _spawn(self, actor: Actor, act: Callable[[], object]) -> None:
        def work() -> None:
            try:
                act()
            except Exception as error:  # noqa: BLE001 - it is a finding, and nothing waits for the operator
                self._world.findings.add("an operator's command ended in an error", repr(error))

        self._world.kernel.spawn(actor, work)

    def _cancel(self, actor: Actor, chosen: int) -> None:
        found = self._in_progress()
        if not found:
            return
        operation, item = found[chosen % len(found)]
        record = RequestRecord.from_item(item)
        now_ms = (self._world.kernel.now + actor.skew) // 1_000
        try:
            done: object = cancel(self._recoverer(operation), operation.log, record, _AUDIT, now_ms)
        except (CannotCancel, MachineGone, ClientError, BotoCoreError) as refusal:
            done = refusal
        self._world.trace.note("operator", f"cancels {record.saga_id}: {done}")

    def _in_progress(self) -> list[tuple[Operation, Mapping[str, Any]]]:
        return [one for one in self._sagas() if one[1][RecordAttribute.STATUS]["S"] == RecordStatus.IN_PROGRESS]

    def _sagas(self) -> Iterator[tuple[Operation, Mapping[str, Any]]]:
        for operation in self._world.parts.operations:
            for item in self._world.records(operation.requests):
                if self._is_of(operation, item):
                    yield operation, item

    def _care(self) -> None:
        """Move and recover what a release left without its reconciler, and resume what is parked.

        A saga that none ever served is left alone: that nothing recovers it is the finding.
        """
        served, once_served = self._world.rollout.latest.parts.operators, self._world.parts.operators
        try:
            for operation, item in self._sagas():
                machine = operation.machine.rpartition(":")[2]
                if machine in once_served and machine not in served:
                    self._care_for(operation, item)
                elif RecordAttribute.PARKED_BY in item:
                    self._resume(operation, item)
        finally:
            self._active = False

    def _care_for(self, operation: Operation, item: Mapping[str, Any]) -> None:
        """Move a saga to the machines of the release, as ``cdk-sagas adopt`` does; if its own exist, continue there.

        These may have lost the right to do so: then they are deleted, and the saga is moved later.
        """
        record = RequestRecord.from_item(item)
        if record.settled and not self._has_late_effects(operation, record):
            return
        if self._runs(record) and self._world.weather.share() > _HASTY:
            return
        if self._world.weather.share() < _TWO:
            self._spawn(self._second, partial(self._adopt, operation, record, self._second))
        if self._adopt(operation, record, self._actor):
            return
        self._recovered[record.saga_id] += 1
        if self._recovered[record.saga_id] > _RECOVERIES_FIRST:
            self._delete(record)
        elif record.parked_by is not None:
            self._resume(operation, item)
        else:
            self._recover(operation, record)

    def _runs(self, record: RequestRecord) -> bool:
        return any(execution.name == record.owner for execution in self._world.machines.running())

    def _delete(self, record: RequestRecord) -> None:
        """Delete the state machines that a saga has."""
        for arn in (machine_of(record.execution_arn), record.recovery_machine_arn):
            self._world.machines.delete(arn)

    def _has_late_effects(self, operation: Operation, record: RequestRecord) -> bool:
        return any(
            row[LogAttribute.SAGA_ID]["S"] == record.saga_id and row[LogAttribute.STATUS]["S"] in UNDONE_LATE
            for row in self._world.db.items(operation.log)
        )

    def _adopt(self, operation: Operation, record: RequestRecord, actor: Actor) -> bool:
        """Move a saga, if it can be; an operator who is refused because no row is there names the log.

        A hasty one chooses any saga of the stack.
        """
        targets, share = self._world.rollout.latest.parts.targets, self._world.weather.share
        now = targets.get(operation.log)
        if targets and share() < _HASTY:
            now = list(targets.values())[int(share() * len(targets))]
        if now is None:
            return False
        now_ms = (self._world.kernel.now + actor.skew) // 1_000
        self._world.kernel.sleep(int(share() ** 6 * _SLOW))
        for log_table in (None, operation.log):
            recoverer = replace(self._recoverer(operation), log_days=now.log_days)
            adopter = Adopter(recoverer=recoverer, target=now, log_table=log_table, audit=_AUDIT)
            try:
                started = adopter.adopt(record, now_ms)
            except (CannotAdopt, MachineGone, ClientError, BotoCoreError) as refusal:
                self._world.trace.note("operator", f"cannot move {record.saga_id}: {refusal}")
                continue
            self.moved.add(record.saga_id)
            self._world.trace.note("operator", f"moves {record.saga_id} to {now.forward}: {started}")
            return True
        return False

    def _recover(self, operation: Operation, record: RequestRecord) -> None:
        """Do what ``cdk-sagas recover`` does."""
        now_ms = (self._world.kernel.now + self._actor.skew) // 1_000
        recoverer = replace(self._recoverer(operation), audit=_AUDIT)
        try:
            done: object = recoverer.recover(record, now_ms)[0]
            if record.settled:
                done = undo_late(recoverer, record, operation.log, now_ms).finding
        except (MachineGone, Conflict, ClientError, BotoCoreError) as refusal:
            done = refusal
        self._world.trace.note("operator", f"recovers {record.saga_id}: {done}")

    def _is_of(self, operation: Operation, item: Mapping[str, Any]) -> bool:
        execution_arn = item[RecordAttribute.EXECUTION_ARN]["S"]  # a direct operation has none
        named = item[RecordAttribute.OPERATION]["S"] == operation.name
        return bool(named and execution_arn and machine_of(execution_arn) == operation.machine)

    def _resume(self, operation: Operation, item: Mapping[str, Any]) -> None:
        record = RequestRecord.from_item(item)
        if self.resumed.get(record.saga_id, 0) >= _RESUMES:
            return
        recoverer = self._recoverer(operation)
        declared = self._world.parts.declared.get(operation.log)
        resolver = Resolver(
            recoverer=recoverer,
            log_table=operation.log,
            audit=_AUDIT,
            log_days=recoverer.log_days,
            ways=declared.ways if declared is not None else None,
        )
        now_ms = (self._world.kernel.now + self._actor.skew) // 1_000
        try:
            if self.resumed.get(record.saga_id, 0) >= _RESUMES_FIRST:
                self._state_what_is_so(resolver, record, operation, now_ms)
            resumed = resolver.resume(record, now_ms)
        except (CannotResolve, MachineGone, ClientError, BotoCoreError) as refusal:
            self._world.trace.note("operator", f"cannot resume {record.saga_id}: {refusal}")
            return
        self.resumed[record.saga_id] = self.resumed.get(record.saga_id, 0) + 1
        self.reasons[record.saga_id] = record.parked_reason or "no reason is recorded"
        self._world.trace.note("operator", f"resumes {record.saga_id}: {resumed.finding}")

    def _recoverer(self, operation: Operation) -> Recoverer:
        dynamodb: Any = boto3.client("dynamodb")
        states: Any = boto3.client("stepfunctions")
        return Recoverer(
            table=operation.requests,
            dynamodb=dynamodb,
            step_functions=states,
            due_after_ms=_DUE_AFTER_MS,
            log_days=self._world.parts.log_days.get(operation.log),
        )

    def _state_what_is_so(self, resolver: Resolver, record: RequestRecord, operation: Operation, now_ms: int) -> None:
        """Resolve every step that is in doubt, or was refused and is needed, as far as its outcome can be found."""
        declared = self._world.parts.declared.get(operation.log)
        for row in self._world.db.items(operation.log):
            if row[LogAttribute.SAGA_ID]["S"] != record.saga_id:
                continue
            name, status = row[LogAttribute.STEP]["S"], StepStatus(row[LogAttribute.STATUS]["S"])
            step, statement = None, None
            if status in UNDER_WAY:
                statement = self._about_doubt(operation, row, status)
            elif status in _REFUSED and declared is not None:
                step = declared.steps.get(name.partition("[")[0])
                statement = self._about_refusal(resolver.subject(record, name, step), row)
            if statement is not None:
                resolver.resolve(record, name, step, statement, now_ms)
                told = f"states {name} of {record.saga_id}: applied={statement.applied}"
                self._world.trace.note("operator", told)

    def _about_doubt(self, operation: Operation, row: Item, status: StepStatus) -> Statement | None:
        applied = self._workload.find_out(self._world, row)
        if applied is None:
            return None
        statement = Statement(applied=applied, undo=status is StepStatus.COMPENSATING)
        if statement.undo and not applied:
            self._world.stated.add((operation.log, (row[LogAttribute.SAGA_ID]["S"], row[LogAttribute.STEP]["S"])))
        return statement

    def _about_refusal(self, subject: Subject, row: Item) -> Statement | None:
        """A saga continues with what was done after its refusal; what was not done is called again."""
        status = StepStatus(row[LogAttribute.STATUS]["S"])
        if not subject.needs_it or not subject.same_ways:
            return None
        if status is StepStatus.APPLIED_LATE:
            return Statement(applied=True)
        return Statement(applied=False) if self._workload.find_out(self._world, row) is False else None
