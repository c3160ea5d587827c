"""``cdk-sagas adopt``: move a saga whose state machine was deleted to another one that writes the same saga log."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from constructs_lib.cli.shared.aws import one_line_errors
from constructs_lib.cli.shared.process import CommandError
from constructs_lib.cli.shared.reads import rows_of
from constructs_lib.cli.shared.saga import FoundSaga, add_reason_option, add_saga_options, audit_of, find_saga
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import RecordAttribute as A
from saga_runtime.recovery.audit import Appended, appended
from saga_runtime.recovery.takeover import MachineGone, may_have_forgotten, recovery_name, what_to_do
from saga_runtime.shared.arns import execution_of, machine_of
from saga_runtime.shared.decisions import Audit
from saga_runtime.shared.expressions import update, when

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient


_ADOPTABLE: Final = frozenset({"PARKED", "NOT_STARTED", "NAME_EXPIRED", "DEAD"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The state machines that a saga is moved to.

    Attributes:
        forward, recovery: their ARNs.
        log: the saga log that both of them write.
        log_days: how long its rows are kept; None: not known.
    """

    forward: str
    recovery: str
    log: str
    log_days: int | None


def adopt_update(
    record: RequestRecord, target: Target, now_ms: int, due_after_ms: int, more: Appended | None = None
) -> dict[str, Any]:
    """Arguments of the ONE conditional update that moves a saga to other state machines.

    A saga in progress gets its next recovery as its owner, and is not parked any more: what its old state machines
    started is fenced. A settled one keeps everything else: only late effects are still compensated.
    """
    as_read = when(
        "#saga_id = :saga_id AND #status = :status AND #owner = :was_owner "
        "AND #execution_arn = :was_execution_arn AND #recovery_machine_arn = :was_recovery_machine_arn "
        f"AND attribute_{'not_' if record.parked_by is None else ''}exists(#parked_by)",
        saga_id={"S": record.saga_id},
        status={"S": record.status},
        was_owner={"S": record.owner},
        was_execution_arn={"S": record.execution_arn},
        was_recovery_machine_arn={"S": record.recovery_machine_arn},
    )
    noted, values = more or ({}, {})
    sets: dict[A, Any] = {
        **noted,
        A.EXECUTION_ARN: {"S": execution_of(target.forward, record.saga_id)},
        A.RECOVERY_MACHINE_ARN: {"S": target.recovery},
    }
    removes: tuple[A, ...] = ()
    if not record.settled:
        removes = (A.PARKED_BY, A.PARKED_AT, A.PARKED_REASON, A.LATE_OUTCOME_AT)
        sets |= {
            A.OWNER: {"S": recovery_name(record.saga_id, record.recoveries + 1)},
            A.RECOVERIES: {"N": str(record.recoveries + 1)},
            A.UPDATED_AT: {"N": str(now_ms)},
            A.DUE_AT: {"N": str(now_ms + due_after_ms)},
        }
    return {"Key": {A.ID: {"S": record.request_id}}, **update(as_read, sets, removes=removes, values=values)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``adopt``, and add its options."""
    parser.description = (
        "Moves a saga to other state machines by one conditional update, and starts its next recovery "
        "there; a parked saga is resumed by that. Refused unless one of its state machines is gone, and the others "
        "write the same saga log: its rows keep steps from happening twice. Repeat it if it was interrupted. Exit "
        "status: 0 it is moved, or was already; 1 anything was refused."
    )
    add_saga_options(parser)
    parser.add_argument(
        "--to",
        metavar="PATH",
        help="path of the SagaStateMachine, or the end of it; needed if several of the stack have the saga's requests",
    )
    add_reason_option(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    with one_line_errors(f"saga {options.saga} was not moved"):
        found = find_saga(options)
        audit = audit_of(found.session, options.reason)
        target = _target(found, options.to)
        try:
            if _is_on(found.record, target):
                started = _repeated(found, target)
            else:
                _require_movable(found, target, options.log_table)
                started = _moved(found, target, audit)
        except (MachineGone, ValueError) as gone:
            raise CommandError(str(gone)) from None
    sys.stdout.write(f"saga {options.saga} is on {target.recovery}{f': started {started}' if started else ''}\n")
    return 0


def _definition(step_functions: SFNClient, arn: str) -> str | None:
    """Read a state machine's definition; None if it was deleted."""
    try:
        described = step_functions.describe_state_machine(stateMachineArn=arn)
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") != "StateMachineDoesNotExist":
            raise
        return None
    return described["definition"] if described.get("status") != "DELETING" else None


def _target(found: FoundSaga, path: str | None) -> Target:
    """Return the state machines that the saga is moved to: those of a saga of the stack on the same request table.

    Raises:
        CommandError: if there is not exactly one, or one of its machines does not exist.
    """
    table = found.recoverer.table
    sagas = [saga for saga in found.manifest.sagas if saga.served.requests == table]
    if path is not None:
        sagas = [saga for saga in sagas if f"/{saga.path}".endswith(f"/{path.strip('/')}")]
    if len(sagas) != 1:
        names = ", ".join(saga.path for saga in sagas) or "none"
        raise CommandError(
            f"{found.manifest.said} must have one saga{f' {path}' if path is not None else ''} of table {table}, got "
            f"{names}; choose one with --to, or name its stack"
        )
    (saga,) = sagas
    for arn in (saga.arn, saga.recovery):
        if _definition(found.step_functions, arn) is None:
            raise CommandError(f"state machine {arn} of {saga.path} must exist, got none; deploy its stack again")
    return Target(forward=saga.arn, recovery=saga.recovery, log=saga.served.log, log_days=saga.served.days)


def _is_on(record: RequestRecord, target: Target) -> bool:
    return (machine_of(record.execution_arn), record.recovery_machine_arn) == (target.forward, target.recovery)


def _require_movable(found: FoundSaga, target: Target, log_table: str | None) -> None:
    """Refuse a saga that its own state machines can end, or whose rows the others would not see."""
    record = found.record
    machines = (machine_of(record.execution_arn), record.recovery_machine_arn)
    left = [text for arn in machines if (text := _definition(found.step_functions, arn)) is not None]
    if len(left) == len(machines):
        raise CommandError(
            f"a state machine of saga {record.saga_id} must be gone, got both of them; use cdk-sagas recover or resolve"
        )
    if any(f'"{target.log}"' not in text for text in left):
        raise CommandError(
            f"the saga log of {target.recovery} must be that of saga {record.saga_id}, got {target.log}, which its "
            "other state machine does not name: without its rows its steps would happen twice"
        )
    _require_log(found, target, log_table)
    if record.settled:
        return
    if may_have_forgotten(record, found.now_ms, target.log_days):
        raise CommandError(
            f"rows of saga {record.saga_id} must be kept, got a saga that is older than its rows: its steps could "
            "happen twice; restore the saga log to a time when they were there, or end the saga by hand"
        )
    if record.parked_by is None:
        owner = found.recoverer.owner(record)
        if what_to_do(record, owner, found.now_ms, log_days=target.log_days) not in _ADOPTABLE:
            raise CommandError(
                f"the owner of saga {record.saga_id} must have ended without settling it, got {owner.status}; wait, or "
                "see cdk-sagas inspect"
            )


def _require_log(found: FoundSaga, target: Target, log: str | None) -> None:
    """Refuse a log without the saga's rows: every step would run again.

    Args:
        found: the saga.
        target: the state machines that it is moved to.
        log: the one that the saga was written to, as far as that is known.
    """
    saga_id = found.record.saga_id
    if log is not None and log != target.log:
        raise CommandError(
            f"the saga log of {target.recovery} must be that of saga {saga_id}, {log}, got {target.log}: without its "
            "rows its steps would happen twice"
        )
    if log is None and not any(rows_of(found.dynamodb, target.log, saga_id)):
        raise CommandError(
            f"log {target.log} must have rows of saga {saga_id}, got none; if its old state machines wrote into this "
            "log, name it with --log-table: none of its steps has begun then"
        )


def _moved(found: FoundSaga, target: Target, audit: Audit) -> str | None:
    """Move the saga, and start its next recovery; the name of that one, if there is one."""
    record, recoverer = found.record, found.recoverer
    name = recovery_name(record.saga_id, record.recoveries + 1)
    noted = appended(audit, f"moved to {target.recovery}", record, found.now_ms)
    update = adopt_update(record, target, found.now_ms, recoverer.due_after_ms, noted)
    if not recoverer.updated(update):
        # Another operator did it in between, or the answer was lost and the update was sent again.
        again = recoverer.read(record.request_id)
        if again is None or again.saga_id != record.saga_id or not _is_on(again, target):
            raise CommandError(
                f"saga {record.saga_id} must be as it was read, got one that changed; repeat this"
            ) from None
        return _repeated(replace(found, record=again), target)
    if record.settled:
        return None
    recoverer.start(target.recovery, name, record.input)
    return name


def _repeated(found: FoundSaga, target: Target) -> str | None:
    """Start what an interrupted call did not; the name of the execution, if there was one to start."""
    return replace(found.recoverer, log_days=target.log_days).recover(found.record, found.now_ms)[1]
