"""Invariants of an ended run: the promise, and the responses that clients received."""

from __future__ import annotations

import json
import re
from collections import ChainMap, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from constructs_lib.testing.invariants import Invariant, Item, audit_ledger, audit_sagas, together
from constructs_lib.testing.simulator.aws.gateway import callers_of
from constructs_lib.testing.simulator.checks.effects import audit_commits, audit_failed, failed_in
from constructs_lib.testing.simulator.faults.climate import Event
from constructs_lib.testing.simulator.outside.clients import Fate
from constructs_lib.testing.simulator.workload import Intent, Result
from constructs_lib.testing.simulator.world import Parking, World
from saga_runtime.callbacks.decisions import CONTRADICTED, conflict_id_of
from saga_runtime.callbacks.rows import JobId, Outcome
from saga_runtime.idempotency.identity import is_saga_id, request_id_from, request_id_of, scope_of
from saga_runtime.protocol import (
    NOTICE_PREFIX,
    RESULT_FAILED,
    SAGA_CANCELLED,
    SERVICE_REFUSALS,
    SETTLED,
    CallField,
    Env,
    ErrorName,
    LogAttribute,
    RecordAttribute,
    RecordStatus,
    StepStatus,
    TokenAttribute,
)
from saga_runtime.recovery.decisions import ParkedFor
from saga_runtime.recovery.operators_queue import ConflictEntry

_BROKEN: Final = frozenset(
    {
        "States.DataLimitExceeded",
        "States.IntrinsicFailure",
        "States.NoChoiceMatched",
        "States.ParameterPathFailure",
        "States.QueryEvaluationError",
        "States.Runtime",
    }
)
"""Errors of a definition, whatever else goes wrong: a saga's definition leaves none to its execution."""
CANNOT_BE_ASKED: Final = "cannot be asked"
"""Words of ``ManualResolutionRequired`` where a provider does not report outcomes."""
_NO_REFUSALS: Final = frozenset({SAGA_CANCELLED, *SERVICE_REFUSALS})
"""Errors of settled responses below 500 that no step declares: an operator's, and those of AWS."""
_OPEN: Final = "no settled response"
"""What a request fails with whose saga is parked."""
_BY_RELEASE: Final = (400, 404, 413)
"""Statuses of refusals that another release may lift: by its schema, its operations, and the size that it accepts."""
_SAGA_ID: Final = re.compile(r'"saga_id": ?"(?P<id>[^"]+)"')
_APPLIED = (StepStatus.DONE, StepStatus.COMPENSATED, StepStatus.COMPENSATING, StepStatus.APPLIED_LATE)


def audit(world: World, fates: Sequence[Fate]) -> list[Invariant]:
    """Audit everything that the library promises of any stack."""
    parts = world.parts
    audits: list[Iterable[Invariant]] = []
    for table in parts.requests:
        logs = {operation.log for operation in parts.operations if operation.requests == table}
        rows = [row for log in sorted(logs) for row in world.table(log)]
        audits.append(audit_sagas([record for record in world.records(table) if not is_direct(record)], rows))
    audits.extend(audit_ledger(world.table(ledger)) for ledger in parts.ledgers)
    failed = failed_in(record for table in parts.requests for record in world.records(table))
    return [
        *together(*audits),
        *([audit_failed(failed, map(world.table, parts.ledgers))] if parts.ledgers else []),
        audit_commits(world.committing_calls, world.uncommitted),
        _nothing_runs(world),
        _one_saga_per_request(world),
        _rows_moved_forward(world),
        _definitions_hold(world),
        _parked_for_a_reason(world),
        _failed_as_recorded(world),
        operators_know(world),
        *answers(world, fates),
    ]


def is_direct(record: Item) -> bool:
    """True of the record of a direct operation, which is settled when it is written, and has no rows."""
    return not record[RecordAttribute.EXECUTION_ARN]["S"]


def results(world: World, fates: Sequence[Fate]) -> list[Result]:
    """Find the result of each intent, also of those whose clients received no response."""
    of_tables = {
        table: {item[RecordAttribute.ID]["S"]: item for item in world.records(table)} for table in world.parts.requests
    }
    records = {request: item for found in of_tables.values() for request, item in found.items()}
    return [
        result_of(
            fate.intent,
            fate.key,
            ChainMap(of_tables.get(_requests_behind(world, fate.intent), {}), records),
            callers=callers_of(fate.intent.user),
            known=fate.accepted,
            response=fate.settled[-1] if fate.settled else None,
        )
        for fate in fates
    ]


def _requests_behind(world: World, intent: Intent) -> str:
    """Table of the records of an intent that names its stack: another stack may have the same operation."""
    function = world.gateway.function_of(intent.operation, intent.stack) if intent.stack is not None else None
    spec = world.rollout.latest.blueprint.functions.get(function or "")
    return spec.environment.get(Env.REQUEST_TABLE, "") if spec is not None else ""


def result_of(
    intent: Intent,
    key: str,
    records: Mapping[str, Item],
    *,
    callers: Iterable[tuple[str, ...]],
    known: Collection[str],
    response: tuple[int, str] | None,
) -> Result:
    """Find the result of an intent.

    Args:
        intent: what the client wanted.
        key: the idempotency key that it was sent under.
        records: every request record, by its id.
        callers: identities that the client has, of which the API reads one.
        known: ids of its sagas that responses contained.
        response: status and body of its settled response; None: it received none.
    """
    status, body = response or (None, None)
    named = _SAGA_ID.search(body or "")
    ids = [*map(request_id_from, (*known, *([named["id"]] if named is not None else [])))]
    ids += [request_id_of(scope_of(intent.operation, caller), key) for caller in callers]
    record = next((records[one] for one in ids if one in records), None)
    if record is None:
        return Result(
            intent=intent,
            key=key,
            saga_id=None,
            completed=None if status is None else status < 300,
            status=status,
            body=body,
            unexplained=None if status is None else _unexplained(status, body),
        )
    recorded = record.get(RecordAttribute.HTTP_STATUS, {}).get("N")
    unexplained = _unexplained(int(recorded), record.get(RecordAttribute.RESPONSE, {}).get("S")) if recorded else _OPEN
    return Result(
        intent=intent,
        key=key,
        saga_id=None if is_direct(record) else record[RecordAttribute.SAGA_ID]["S"],
        completed=record[RecordAttribute.STATUS]["S"] == RecordStatus.COMPLETED,
        status=status,
        body=body,
        unexplained=unexplained,
    )


def _unexplained(status: int, body: str | None) -> str | None:
    """Error and step of a settled response that no step declares; None: a step refused, or it is a success."""
    if status < 300:
        return None
    document = json.loads(body) if body else {}
    error = document.get("error", f"status {status}")
    if status < 500 and error not in _NO_REFUSALS:
        return None
    return f"{error} in {document['step']}" if document.get("step") else str(error)


def _nothing_runs(world: World) -> Invariant:
    running = tuple(
        f"execution {execution.name} of {execution.machine.name} runs" for execution in world.machines.running()
    )
    return Invariant(name="nothing runs any more", checked=len(world.machines.executions), violations=running)


def _one_saga_per_request(world: World) -> Invariant:
    """Whatever log they are in: two sagas of one request must not both have an effect."""
    sagas: dict[tuple[str, str], set[str]] = defaultdict(set)
    tables = {operation.log: operation.requests for operation in world.parts.operations}
    for log in world.parts.logs:
        for row in world.table(log):
            saga_id = row[LogAttribute.SAGA_ID]["S"]
            if StepStatus(row[LogAttribute.STATUS]["S"]) in _APPLIED and is_saga_id(saga_id):
                sagas[tables[log], request_id_from(saga_id)].add(f"{log}/{saga_id}")
    violations = tuple(
        f"request {request} took effect as {sorted(found)}" for (_, request), found in sagas.items() if len(found) > 1
    )
    return Invariant(name="a request takes effect as one saga", checked=len(sagas), violations=violations)


def _rows_moved_forward(world: World) -> Invariant:
    """A step took effect once, and was undone once: counted at every write, not from the row that is left.

    A row is done again, and its effect the same, when an operator states that its compensation was not applied.
    """
    violations = []
    for (log, key), statuses in world.rows_seen.items():
        for status in (StepStatus.DONE, StepStatus.COMPENSATED):
            changes = zip(["", *statuses], statuses, strict=False)
            again = StepStatus.COMPENSATING if status is StepStatus.DONE and (log, key) in world.stated else None
            times = sum(after == status and before != again for before, after in changes)
            if times > 1:
                violations.append(f"step {key[-1]} of {key[0]} in {log} became {status} {times} times: {statuses}")
    return Invariant(
        name="each step is done and undone once", checked=len(world.rows_seen), violations=tuple(violations)
    )


def _definitions_hold(world: World) -> Invariant:
    executions = world.machines.executions.values()
    violations = tuple(
        f"execution {execution.name} of {execution.machine.name} failed with {execution.error}: {execution.cause}"
        for execution in executions
        if execution.status == "FAILED" and execution.error in _BROKEN and not execution.deleted
    )
    return Invariant(name="no definition fails", checked=len(executions), violations=violations)


def _parked_for_a_reason(world: World) -> Invariant:
    """A saga is parked only if no machine could decide it.

    Legitimate: what lasted for longer than all retries and recoveries, an outage or a function that always fails, and
    an outcome that a provider cannot report.
    """
    violations = tuple(
        f"saga {saga_id} was parked ({parking.error}: {parking.detail}), though {why}"
        for saga_id, parkings in world.parked_for.items()
        for parking in parkings
        if (why := _why_decidable(world, parking)) is not None
    )
    return Invariant(name="sagas are parked for a reason", checked=len(world.parked_for), violations=violations)


def _why_decidable(world: World, parking: Parking) -> str | None:
    """Find why a saga need not have been parked; None: it may have to be.

    No record is restored or edited in a run: only a DescribeExecution that is behind may suggest it.
    """
    match parking.error:
        case ParkedFor.OWNER_SUCCEEDED if Event.DESCRIBE_BEHIND not in world.weather.climate.events:
            return "its owner had not settled it"
        case ParkedFor.RECOVERIES_EXHAUSTED if parking.undisturbed:
            return "its last recovery began after the last fault"
        case _ if parking.error == RESULT_FAILED:
            return "all its steps are done; correct the saga's result"
        case ErrorName.UNDECIDED if CANNOT_BE_ASKED in parking.detail:
            for log, name, status in parking.in_doubt:
                step = name.partition("[")[0]
                if f"step {step} " in parking.detail and _can_be_asked(world, log, step, status):
                    return f"the provider of step {step} can be asked"
    return None


def _can_be_asked(world: World, log: str, step: str, status: StepStatus) -> bool:
    """Test whether every version of the step that ran declares that its provider reports the outcome."""
    asked = "verify_undo" if status is StepStatus.COMPENSATING else "verify"
    machines = {id(one.machine): one.machine for one in world.machines.executions.values()}.values()
    declared = [
        payload[CallField.PROVIDER][asked]
        for machine in machines
        for payload in _payloads(machine.definition)
        if payload.get(CallField.STEP) == step and payload.get(CallField.LOG_TABLE) == log
        if CallField.PROVIDER in payload
    ]
    return bool(declared) and all(declared)


def _payloads(flow: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Arguments of every function that a flow calls."""
    for state in flow["States"].values():
        payload = state.get("Arguments", {})
        if isinstance(payload, Mapping) and isinstance(payload.get("Payload"), Mapping):
            yield payload["Payload"]
        for inner in (*state.get("Branches", ()), *([state["ItemProcessor"]] if "ItemProcessor" in state else ())):
            yield from _payloads(inner)


def _failed_as_recorded(world: World) -> Invariant:
    """A failed saga's response has the error of the first failure that its record kept.

    Not after a cancellation: an execution that fails of its own at that moment settles with its own error.
    """
    records = [item for table in world.parts.requests for item in world.records(table)]
    failed = {
        item[RecordAttribute.SAGA_ID]["S"]: json.loads(item[RecordAttribute.RESPONSE]["S"])
        for item in records
        if item[RecordAttribute.STATUS]["S"] == RecordStatus.FAILED and RecordAttribute.RESPONSE in item
    }
    violations = tuple(
        f"saga {saga_id} failed with {kept['error']}, and its response has {failed[saga_id].get('error')}"
        for saga_id, kept in ((found, json.loads(text)) for found, text in world.failures.items() if found in failed)
        if kept["error"] not in (SAGA_CANCELLED, failed[saga_id].get("error"))
    )
    return Invariant(name="a failure is what was recorded", checked=len(failed), violations=violations)


def operators_know(world: World) -> Invariant:
    """Each failure that contradicts a job's success has an entry in an operators' queue, which nothing deletes here.

    No operator acknowledges it, so its notice stays, too, as long as its saga has a record. A success that contradicts
    a failure is a late effect: its entry is deleted once it is compensated.
    """
    queues = [world.queues.queue(url) for url in set(world.parts.operators.values())]
    entries = [ConflictEntry.from_body(message.body) for queue in queues for message in queue.messages]
    known = {(entry.job_id, entry.conflict_id) for entry in entries if entry is not None}
    stored = {
        (row[TokenAttribute.ID]["S"], conflict_id_of(row[TokenAttribute.ID]["S"], outcome))
        for table in world.parts.tokens
        for row in world.table(table)
        if TokenAttribute.CONFLICT in row and JobId.parse(row[TokenAttribute.ID]["S"]) is not None
        if not (outcome := Outcome.decode(row[TokenAttribute.CONFLICT]["S"])).ok
    }
    sagas = {record[RecordAttribute.SAGA_ID]["S"] for table in world.parts.requests for record in world.records(table)}
    notices = {row[TokenAttribute.ID]["S"] for table in world.parts.tokens for row in world.table(table)}
    unknown = [f"outcome {outcome} of job {job} contradicts, and has no entry" for job, outcome in stored - known]
    forgotten = [
        f"outcome {outcome} of job {job} contradicts, and has no notice"
        for job, outcome in stored
        if job.partition("#")[0] in sagas and f"{NOTICE_PREFIX}{job}#{CONTRADICTED}#{outcome}" not in notices
    ]
    violations = (*sorted(unknown), *sorted(forgotten))
    return Invariant(name="operators know what contradicts", checked=len(stored), violations=violations)


def answers(world: World, fates: Sequence[Fate]) -> Iterator[Invariant]:
    """Check what clients were answered against what is recorded."""
    records = {
        item[RecordAttribute.SAGA_ID]["S"]: item for table in world.parts.requests for item in world.records(table)
    }
    changed, untrue, recorded, taken_back = [], [], [], []
    for fate in fates:
        answers = set(fate.settled)
        if fate.intent.operation in world.parts.open_refusals:
            # A refusal that is not stored is of its own attempt: another one may be refused otherwise, or applied.
            answers = {(status, body) for status, body in answers if status < 400}
        if len(answers) > 1:
            changed.append(f"key {fate.key} was answered {sorted(answers)}")
        for status, body in answers:
            said = _said(status, body, records, fate)
            if said is not None:
                untrue.append(said)
        taken_back += list(_taken_back(fate, answers))
        refused = [
            status
            for status in fate.refused
            if status not in _BY_RELEASE or not world.rollout.begun or status in fate.refused_again
        ]
        if refused and not fate.settled and fate.accepted:
            recorded.append(f"key {fate.key} was refused with {refused}, and is recorded as {sorted(fate.accepted)}")
    yield Invariant(name="an answer stays what it was", checked=len(fates), violations=tuple(changed))
    yield Invariant(name="an answer is not taken back", checked=len(fates), violations=tuple(taken_back))
    yield Invariant(name="an answer is what is recorded", checked=len(fates), violations=tuple(untrue))
    yield Invariant(name="what was refused is not recorded", checked=len(fates), violations=tuple(recorded))


def _taken_back(fate: Fate, answers: Collection[tuple[int, str]]) -> Iterator[str]:
    """Find what contradicts settled answers: a saga in progress afterwards, and another answer in its status."""
    for settled, later in fate.taken_back:
        if settled in answers:
            yield f"key {fate.key} was answered {settled}, and then {later.status} {later.body}"
    for status, body in answers:
        for seen in fate.seen:
            if "answer" in seen and (seen["http_status"], seen["answer"]) != (status, json.loads(body)):
                yield f"key {fate.key} was answered {status} {body}, and its status was {seen}"


def _said(status: int, body: str, records: dict[str, Item], fate: Fate) -> str | None:
    """Find what is wrong with a settled answer; None: it is right."""
    for saga_id in sorted(fate.accepted):
        record = records.get(saga_id)
        if record is None:
            continue
        stored = RecordStatus(record[RecordAttribute.STATUS]["S"])
        if stored not in SETTLED:
            return f"key {fate.key} was answered {status}, and saga {saga_id} is {stored}"
        if (status < 300) != (stored is RecordStatus.COMPLETED):
            return f"key {fate.key} was answered {status} {body}, and saga {saga_id} is {stored}"
    return None
