"""Recovery of an interrupted saga: decisions (pure), and the two calls that apply them.

Safe at any time, any number of times, by anybody at once: ownership changes by ONE conditional update, the recovery
is started by a derived name, and it decides its direction itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from saga_runtime.errors import Conflict
from saga_runtime.idempotency.record import OWNED, RequestRecord, owned
from saga_runtime.protocol import EXECUTION_NAME_DAYS, OUTLIVE_EXPRESS_SECONDS, RecordAttribute
from saga_runtime.recovery.audit import NOTHING, Appended, appended, decision_update, list_as_read
from saga_runtime.shared import writes
from saga_runtime.shared.arns import execution_of, machine_of
from saga_runtime.shared.decisions import Audit
from saga_runtime.shared.executions import start_execution
from saga_runtime.shared.expressions import Arguments, update

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient

_DAY_MS: Final = 86_400_000
_DAY_SECONDS: Final = 86_400
_RUNNING: Final = frozenset({"RUNNING", "PENDING_REDRIVE"})
_DEAD: Final = frozenset({"TIMED_OUT", "ABORTED", "FAILED"})
_SUCCEEDED: Final = "SUCCEEDED"
CERTAIN_AFTER_MS: Final = 60_000
"""``DescribeExecution`` is eventually consistent: for so long after an execution ended, another may be missing."""


TAKEN_OVER: Final = "taken over"
"""The decision to recover an interrupted saga."""


class MachineGone(RuntimeError):
    """The state machine of a saga was deleted: it cannot be started."""

    def __init__(self, machine_arn: str) -> None:
        super().__init__(
            f"state machine {machine_arn} must exist to start the saga, got none; move the saga to another one with "
            "cdk-sagas adopt"
        )


class Finding(StrEnum):
    """Results of assessing a saga, in the order in which they are tested."""

    SETTLED = "SETTLED"
    """Nothing to do."""
    PARKED = "PARKED"
    """Operator action is required."""
    NOT_STARTED = "NOT_STARTED"
    """Start it, by the same name and with the same stored bytes."""
    NAME_EXPIRED = "NAME_EXPIRED"
    """Too old to distinguish "not started" from "history is gone": operator action is required."""
    RUNNING = "RUNNING"
    """Its owner runs, or succeeded a moment ago."""
    DEAD = "DEAD"
    """Its owner ended without settling: take over."""
    OWNER_UNKNOWN = "OWNER_UNKNOWN"
    """Step Functions refuses to describe its owner's execution, and has for long. An operator decides."""
    OWNER_SUCCEEDED = "OWNER_SUCCEEDED"
    """Its owner settled it, contrary to the record: it was restored, or edited. Operator action is required."""
    ROWS_EXPIRED = "ROWS_EXPIRED"
    """It does not run, and its log may have expired, so effects could repeat: operator action is required."""


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner's execution, as Step Functions reports it.

    Attributes:
        status: its status; None: there is no such execution.
        stopped_at: when it ended, epoch milliseconds; None: it runs, or does not exist.
    """

    status: str | None = None
    stopped_at: int | None = None

    @classmethod
    def from_answer(cls, described: Mapping[str, Any]) -> Owner:
        """Read the answer of ``DescribeExecution``."""
        stopped = described.get("stopDate")
        return cls(str(described["status"]), None if stopped is None else int(stopped.timestamp() * 1_000))


def rows_are_kept_until(record: RequestRecord, log_days: int) -> int:
    """Until when no row of a saga's log is deleted; epoch seconds.

    Each is kept for ``log_days`` after it was written, so none is gone before the saga is as old; a reconciler keeps
    those of an open saga for longer, and records that. The record has priority: it is based on the rows, and
    ``log_days`` may have been others when they were written.
    """
    return record.log_expires_at or record.created_at // 1_000 + log_days * _DAY_SECONDS


def may_have_forgotten(record: RequestRecord, now_ms: int, log_days: int | None) -> bool:
    """Test whether rows of a saga's log may be gone, without which its steps could happen twice.

    Args:
        record: the record.
        now_ms: the time.
        log_days: how long rows are kept; None: not known, and taken to be for ever.
    """
    return log_days is not None and now_ms // 1_000 >= rows_are_kept_until(record, log_days)


def what_to_do(record: RequestRecord, owner: Owner, now_ms: int, *, log_days: int | None = None) -> Finding:
    """Decide what a saga needs.

    Args:
        record: the request record, read strongly; where the owner succeeded, read after that was reported.
        owner: the owner's execution.
        now_ms: the time.
        log_days: how long rows of the saga's log are kept; None: not known.
    """
    if record.settled:
        return Finding.SETTLED
    if record.parked_by is not None:
        return Finding.PARKED
    if owner.status in _RUNNING:
        return Finding.RUNNING
    if owner.status == _SUCCEEDED:
        # An execution succeeds only after its record is settled, or after it has started its successor under the same
        # name. So this is not the record that it settled, and what its steps changed may exist without a row: a
        # further execution would compensate from incomplete rows.
        certain = owner.stopped_at is not None and now_ms - owner.stopped_at >= CERTAIN_AFTER_MS
        return Finding.OWNER_SUCCEEDED if certain else Finding.RUNNING
    # Also of one that seems never to have run: AWS keeps histories for 30 days in accounts that ask for it.
    if may_have_forgotten(record, now_ms, log_days):
        return Finding.ROWS_EXPIRED
    if owner.status is None:
        young = now_ms - record.created_at < (EXECUTION_NAME_DAYS - 1) * _DAY_MS
        return Finding.NOT_STARTED if young else Finding.NAME_EXPIRED
    if owner.status in _DEAD:
        return Finding.DEAD
    raise ValueError(f"an execution's status is one that Step Functions knows, got {owner.status!r}")


def express_ends_in(record: RequestRecord, now_ms: int) -> int:
    """Milliseconds after which no Express execution of a saga, and no function that one invoked, runs any more.

    Args:
        record: of a saga in progress.
        now_ms: the time.
    """
    return max(0, record.created_at + OUTLIVE_EXPRESS_SECONDS * 1_000 - now_ms) if record.express else 0


def recovery_name(saga_id: str, number: int) -> str:
    """Name of a saga's n-th recovery."""
    if number < 1:
        raise ValueError(f"recoveries are numbered from 1, got {number}")
    return f"{saga_id}-r{number}"


def take_over_update(record: RequestRecord, now_ms: int, due_after_ms: int, more: Appended = NOTHING) -> dict[str, Any]:
    """Arguments of the ONE conditional update that changes the owner of a saga whose owner is dead, or never starts.

    The record stays in the shard of the sparse index in which its reservation put it.

    Args:
        record: as it was read.
        now_ms: the time.
        due_after_ms: when it is checked again.
        more: what else is assigned, and its values.
    """
    return recovery_update(
        record,
        f"{OWNED} AND attribute_not_exists(#parked_by)",
        now_ms,
        due_after_ms,
        removes=[RecordAttribute.LATE_OUTCOME_AT],
        more=more,
    )


def recovery_update(
    record: RequestRecord,
    condition: str,
    now_ms: int,
    due_after_ms: int,
    *,
    removes: Sequence[RecordAttribute],
    more: Appended = NOTHING,
) -> Arguments:
    """Arguments of an update that makes the next recovery a saga's owner."""
    a = RecordAttribute
    number = record.recoveries + 1
    change = update(
        owned(record.owner, condition),
        {
            a.OWNER: ":new_owner",
            a.RECOVERIES: {"N": str(number)},
            a.UPDATED_AT: {"N": str(now_ms)},
            a.DUE_AT: {"N": str(now_ms + due_after_ms)},
            **more[0],
        },
        removes=removes,
        values={"new_owner": {"S": recovery_name(record.saga_id, number)}, **more[1]},
    )
    return {"Key": {a.ID: {"S": record.request_id}}, **change}


def _unknown(_machine_arn: str, _name: str) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recoverer:
    """Applies decisions.

    Attributes:
        table: the request table.
        dynamodb: client of DynamoDB.
        step_functions: client of Step Functions.
        due_after_ms: when the record is checked again after a takeover.
        log_days: how long rows of the saga's log are kept; None: not known, so that age blocks nothing.
        runs: whether an execution of a state machine is known to run; it is not asked for then.
        audit: the operator whose decision everything is that is done, and why; None: the system itself.
    """

    table: str
    dynamodb: DynamoDBClient
    step_functions: SFNClient
    due_after_ms: int = 60_000
    log_days: int | None = None
    runs: Callable[[str, str], bool] = _unknown
    audit: Audit | None = None

    def read(self, request_id: str) -> RequestRecord | None:
        """The request record, read strongly."""
        found = self.dynamodb.get_item(
            TableName=self.table, Key={RecordAttribute.ID: {"S": request_id}}, ConsistentRead=True
        )
        return RequestRecord.from_item(found["Item"]) if "Item" in found else None

    def owner(self, record: RequestRecord) -> Owner:
        """Ask Step Functions for the owner's execution.

        A recovery that goes forward starts the forward machine under its own name, and ends. The recovery is asked for
        first: once it has ended, what it started is there.
        """
        forward = machine_of(record.execution_arn)
        machines = [forward] if record.owner == record.saga_id else [record.recovery_machine_arn, forward]
        if any(self.runs(machine, record.owner) for machine in machines):
            return Owner("RUNNING")
        found = Owner()
        for machine in machines:
            described = self.described(execution_of(machine, record.owner))
            found = described if described.status is not None else found
            if found.status in _RUNNING:
                break
        return found

    def described(self, execution_arn: str) -> Owner:
        """Ask Step Functions for one execution."""
        try:
            return Owner.from_answer(self.step_functions.describe_execution(executionArn=execution_arn))
        except self.step_functions.exceptions.ExecutionDoesNotExist:
            return Owner()

    def recover(self, record: RequestRecord, now_ms: int) -> tuple[Finding, str | None]:
        """Check a saga, and do what it needs.

        A cancelled saga that was never started is not started: a recovery takes it over, once no Express execution of
        it can run. Whatever still starts the first execution finds it fenced, as one that is redriven does.

        Returns:
            What was found, and the name of the execution that was started, if one was.

        Raises:
            MachineGone: if it would have to be started, and its state machine was deleted. Nothing was written.
            Conflict: an operator starts it, and it changed meanwhile. Nothing was written.
        """
        owner = self.owner(record)
        if record.cancelled and owner.status in _RUNNING:
            self.stop(record)
            owner = self.owner(record)
        if owner.status == _SUCCEEDED:
            # It may have settled since the record was read; or another recovery owns it by now.
            again = self.read(record.request_id)
            if again is None or again.saga_id != record.saga_id:
                return Finding.SETTLED, None
            if again.owner != record.owner:
                return Finding.RUNNING, None
            record = again
        finding = what_to_do(record, owner, now_ms, log_days=self.log_days)
        if finding is Finding.NOT_STARTED:
            if not record.cancelled:
                if not self.begins_owner(record, now_ms):
                    raise Conflict(f"saga {record.saga_id} changed meanwhile; repeat this")
                return finding, record.owner
            if express_ends_in(record, now_ms):
                return finding, None
        elif finding is not Finding.DEAD:
            return finding, None
        self.require_machine(record.recovery_machine_arn)
        taken = take_over_update(record, now_ms, self.due_after_ms, self.noted(TAKEN_OVER, record, now_ms))
        if not self.updated(taken):
            return Finding.RUNNING, None  # another process took it over, settled or parked it in between
        name = recovery_name(record.saga_id, record.recoveries + 1)
        self.start(record.recovery_machine_arn, name, record.input)
        return finding, name

    def updated(self, arguments: Mapping[str, Any]) -> bool:
        """Test whether a conditional update of a record was applied."""
        return writes.write({"Update": {"TableName": self.table, **arguments}}, client=self.dynamodb) is None

    def require_machine(self, machine_arn: str) -> None:
        """Require that executions of a state machine can be started, before anything is written that relies on it.

        Raises:
            MachineGone: if it does not exist, or is being deleted.
        """
        if self.definition(machine_arn) is None:
            raise MachineGone(machine_arn)

    def definition(self, machine_arn: str) -> str | None:
        """Read a state machine's definition; None if it does not exist, or is being deleted."""
        try:
            described = self.step_functions.describe_state_machine(stateMachineArn=machine_arn)
        except self.step_functions.exceptions.StateMachineDoesNotExist:
            return None
        return described["definition"] if described.get("status") != "DELETING" else None

    def stop(self, record: RequestRecord) -> None:
        """Stop the saga's first execution, which its record names; a recovery follows.

        One that has ended, or was never started, is left alone. Nothing depends on the stop: it ends what would only
        wait or be fenced. It gives no error and no cause, for which an encrypted execution would need its role's key
        (API reference of ``StopExecution``).
        """
        try:
            self.step_functions.stop_execution(executionArn=record.execution_arn)
        except self.step_functions.exceptions.ExecutionDoesNotExist:
            return

    def noted(self, what: str, record: RequestRecord, now_ms: int) -> Appended:
        """Assignments that an update adds to record an operator's decision; none without an operator."""
        return appended(self.audit, what, record, now_ms) if self.audit is not None else NOTHING

    def begins_owner(self, record: RequestRecord, now_ms: int) -> bool:
        """Start the owner's execution: the first one, as the reservation would have, or a recovery.

        Returns, and raises, as ``begins``.
        """
        if record.owner == record.saga_id:
            machine = machine_of(record.execution_arn)
            return self.begins(machine, record.owner, record.input, record, now_ms, alias=record.alias)
        return self.begins(record.recovery_machine_arn, record.owner, record.input, record, now_ms)

    def begins(
        self,
        machine_arn: str,
        name: str,
        start_input: str,
        record: RequestRecord,
        now_ms: int,
        *,
        alias: str | None = None,
    ) -> bool:
        """Start an execution that no update decides about: of an operator's decision, the record keeps it first.

        Returns:
            False: an operator starts it, and the record changed since it was read: nothing is written, nor started.

        Raises:
            MachineGone: as ``start``; nothing was written.
        """
        decided_before = name == record.owner != record.saga_id  # by the update that made this recovery the owner
        if self.audit is not None and not decided_before:
            self.require_machine(machine_arn)
            if not self.keeps(self.audit, f"started {name}", record, now_ms):
                return False
        self.start(machine_arn, name, start_input, alias=alias)
        return True

    def keeps(self, audit: Audit, what: str, record: RequestRecord, now_ms: int) -> bool:
        """Append a decision that no update executes, before it is executed: what no record keeps does not happen.

        Returns:
            False: the record changed since it was read, and keeps nothing.
        """
        return self.updated(decision_update(audit, what, record, now_ms, list_as_read(record)))

    def start(self, machine_arn: str, name: str, start_input: str, *, alias: str | None = None) -> None:
        """Start an execution by name, with the stored bytes; one that exists already was started by another process.

        Raises:
            MachineGone: if the state machine does not exist, or is being deleted.
        """
        try:
            start_execution(self.step_functions, machine_arn, name, start_input, alias=alias)
        except self.step_functions.exceptions.ExecutionAlreadyExists:
            return
        except (
            self.step_functions.exceptions.StateMachineDoesNotExist,
            self.step_functions.exceptions.StateMachineDeleting,
        ):
            raise MachineGone(machine_arn) from None
