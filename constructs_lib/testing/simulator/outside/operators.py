"""Operators: they find parked sagas, resolve their steps, and resume them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from constructs_lib.testing.simulator.deployment.parts import Operation
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.workload import Workload
from constructs_lib.testing.simulator.world import World
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import LogAttribute, RecordAttribute, StepStatus
from saga_runtime.recovery.audit import Audit
from saga_runtime.recovery.resolution import CannotResolve, Statement
from saga_runtime.recovery.resolver import Resolver
from saga_runtime.recovery.takeover import Recoverer
from saga_runtime.saga_log.rows import UNDER_WAY
from saga_runtime.shared.arns import machine_of

if TYPE_CHECKING:
    from constructs_lib.testing.simulator.engine.actors import Actor

_DUE_AFTER_MS: Final = 60_000
_AUDIT: Final = Audit(who="arn:aws:sts::000000000000:assumed-role/operators/simulated", why="the books were read")
_EVERY: Final = 900 * SECOND
_RESUMES_FIRST: Final = 2
"""So often an operator only resumes a saga, before finding out what it cannot decide."""


class Operator:
    """Operator of parked sagas.

    Args:
        world: where the sagas are.
        workload: knows what an operator finds out.

    Attributes:
        resumed: how often each saga was resumed.
    """

    def __init__(self, world: World, workload: Workload) -> None:
        self.resumed: dict[str, int] = {}
        self._world = world
        self._workload = workload
        self._actor: Actor = world.actor("operator")
        self._active = False

    def begin(self) -> None:
        """Look now and then, until the run ends."""
        self._world.kernel.after(int((0.2 + self._world.weather.share()) * _EVERY), self._look)

    def _look(self) -> None:
        if not self._active:
            self._active = True
            self._world.kernel.spawn(self._actor, self._resume_all)
        self.begin()

    def _resume_all(self) -> None:
        try:
            for operation in self._world.parts.operations.values():
                for item in self._world.records(operation.requests):
                    if RecordAttribute.PARKED in item and self._is_of(operation, item):
                        self._resume(operation, item)
        finally:
            self._active = False

    def _is_of(self, operation: Operation, item: Mapping[str, Any]) -> bool:
        named = item[RecordAttribute.OPERATION]["S"] == operation.name
        return bool(named and machine_of(item[RecordAttribute.EXECUTION_ARN]["S"]) == operation.machine)

    def _resume(self, operation: Operation, item: Mapping[str, Any]) -> None:
        record = RequestRecord.from_item(item)
        dynamodb: Any = boto3.client("dynamodb")
        states: Any = boto3.client("stepfunctions")
        days = self._world.parts.log_days.get(operation.log)
        recoverer = Recoverer(
            table=operation.requests,
            dynamodb=dynamodb,
            step_functions=states,
            due_after_ms=_DUE_AFTER_MS,
            log_days=days,
        )
        resolver = Resolver(recoverer=recoverer, log_table=operation.log, audit=_AUDIT, log_days=days)
        now_ms = (self._world.kernel.now + self._actor.skew) // 1_000
        try:
            if self.resumed.get(record.saga_id, 0) >= _RESUMES_FIRST:
                self._state_what_is_so(resolver, record, operation, now_ms)
            resumed = resolver.resume(record, now_ms)
        except (CannotResolve, ClientError, BotoCoreError) as refusal:
            self._world.trace.note("operator", f"cannot resume {record.saga_id}: {refusal}")
            return
        self.resumed[record.saga_id] = self.resumed.get(record.saga_id, 0) + 1
        self._world.trace.note("operator", f"resumes {record.saga_id}: {resumed.finding}")

    def _state_what_is_so(self, resolver: Resolver, record: RequestRecord, operation: Operation, now_ms: int) -> None:
        """Resolve every step that is in doubt, as far as its outcome can be found."""
        for row in self._world.db.items(operation.log):
            status = StepStatus(row[LogAttribute.STATUS]["S"])
            if row[LogAttribute.SAGA_ID]["S"] != record.saga_id or status not in UNDER_WAY:
                continue
            applied = self._workload.find_out(self._world, row)
            if applied is not None:
                statement = Statement(applied=applied, undo=status is StepStatus.UNDOING)
                name = row[LogAttribute.STEP]["S"]
                resolver.resolve(record, name, None, statement, now_ms)
                self._world.trace.note("operator", f"states {name} of {record.saga_id}: applied={applied}")
