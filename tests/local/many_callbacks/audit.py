"""Invariants once every job is reported: each saga resumed once, with one outcome, as the warehouse's books show."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from constructs_lib.testing.invariants import Invariant, Item, audit_sagas, read_table
from saga_runtime.callbacks.decisions import Receipt
from saga_runtime.protocol import LogAttribute, OutcomeField, RecordAttribute, StepStatus, TokenAttribute, TokenStatus

from .crowd import GO, PICK, Crowd, Kind, Said, Waiter, output_of

_WAITS: Final = ".waitForTaskToken"
_FIRST: Final = frozenset({Receipt.DELIVERED})
_EITHER: Final = frozenset({Receipt.DELIVERED, Receipt.EARLY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Everything that the emulator knows in the end, by saga.

    Attributes:
        records: the requests' records.
        log: the saga log's rows, by saga and step.
        tokens: rows of both token tables, by id.
        handed_over: how often the warehouse was handed a job, by job.
        executions: statuses of the executions of both machines, by saga.
        woken: how often each waiting task was answered, by saga.
        left: messages in queues in which none must be.
    """

    records: Mapping[str, Item]
    log: Mapping[tuple[str, str], Item]
    tokens: Mapping[str, Item]
    handed_over: Mapping[str, int]
    executions: Mapping[str, list[str]]
    woken: Mapping[str, int]
    left: Mapping[str, int]


def audit(crowd: Crowd) -> list[Invariant]:
    """Audit everything that was ever begun in a system."""
    found = find(crowd)
    said: dict[str, list[Said]] = defaultdict(list)
    for one in crowd.said:
        said[one.waiter.saga_id].append(one)
    audits: dict[str, Callable[[Waiter], Iterator[str]]] = {
        "each saga has one execution, which succeeded": lambda w: _one_execution(w, found),
        "each task that waited was answered once": lambda w: _woken_once(w, found),
        "each saga is completed with one answer, the log's and the token row's": lambda w: _one_answer(
            w, found, said[w.saga_id]
        ),
        "each token row is delivered and holds no payload any more": lambda w: _rows_told(w, found, said[w.saga_id]),
        "each callback counted once": lambda w: _counted_once(w, said[w.saga_id]),
        "the warehouse was handed each job once, or never if it was done before": lambda w: _handed_over(
            w, found, said[w.saga_id]
        ),
        "no receiver failed": lambda w: (
            f"{s.event} of {w.order} failed {s.failures}x" for s in said[w.saga_id] if s.failures
        ),
    }
    dynamodb = crowd.aws.client("dynamodb")
    records = read_table(dynamodb, crowd.outputs["RequestTableName"])
    rows = read_table(dynamodb, crowd.outputs["LogTableName"])
    return [
        *(
            Invariant(
                name=name,
                checked=len(crowd.waiters),
                violations=tuple(line for waiter in crowd.waiters for line in violations(waiter)),
            )
            for name, violations in audits.items()
        ),
        Invariant(
            name="no queue holds what was left",
            checked=len(found.left),
            violations=tuple(f"{queue} holds {number}" for queue, number in found.left.items() if number),
        ),
        *audit_sagas(records, rows),
    ]


def late(crowd: Crowd) -> list[str]:
    """Jobs whose token row is marked undelivered although a task was waiting."""
    rows = read_table(crowd.aws.client("dynamodb"), crowd.outputs["WarehouseTokens"])
    return [row[TokenAttribute.ID]["S"] for row in rows if row[TokenAttribute.STATUS]["S"] == TokenStatus.UNDELIVERED]


def find(crowd: Crowd) -> Found:
    """Read all of it."""
    dynamodb, outputs = crowd.aws.client("dynamodb"), crowd.outputs
    tables = {name: read_table(dynamodb, outputs[name]) for name in _TABLES}
    executions: dict[str, list[str]] = defaultdict(list)
    arns: dict[str, str] = {}
    for machine in ("MachineArn", "RecoveryMachineArn"):
        pages = crowd.aws.client("stepfunctions").get_paginator("list_executions")
        for page in pages.paginate(stateMachineArn=outputs[machine]):
            for one in page["executions"]:
                executions[one["name"]].append(one["status"])
                arns[one["name"]] = one["executionArn"]
    with ThreadPoolExecutor(4) as pool:
        woken = dict(zip(arns, pool.map(lambda arn: _answers_in(crowd, arn), arns.values()), strict=True))
    return Found(
        records={item[RecordAttribute.SAGA_ID]["S"]: item for item in tables["RequestTableName"]},
        log={(item[LogAttribute.SAGA_ID]["S"], item[LogAttribute.STEP]["S"]): item for item in tables["LogTableName"]},
        tokens={
            item[TokenAttribute.ID]["S"]: item for name in ("WarehouseTokens", "PeopleTokens") for item in tables[name]
        },
        handed_over={item["id"]["S"]: int(item["handed_over"]["N"]) for item in tables["BooksTableName"]},
        executions=executions,
        woken=woken,
        left={name: _messages_in(crowd, outputs[name]) for name in _QUEUES},
    )


_TABLES: Final = ("RequestTableName", "LogTableName", "WarehouseTokens", "PeopleTokens", "BooksTableName")
_QUEUES: Final = ("JobsUrl", "DeadLettersUrl", "PeopleDeadLettersUrl", "OperatorsUrl")


def _answers_in(crowd: Crowd, arn: str) -> int:
    """Number of tasks of an execution that resumed because of a callback."""
    history = crowd.aws.client("stepfunctions").get_execution_history(
        executionArn=arn, maxResults=1_000, includeExecutionData=False
    )
    details = [event.get("taskSucceededEventDetails", {}) for event in history["events"]]
    return sum(detail.get("resource", "").endswith(_WAITS) for detail in details)


def _messages_in(crowd: Crowd, url: str) -> int:
    answer = crowd.aws.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    return sum(int(value) for name, value in answer["Attributes"].items() if name.startswith("ApproximateNumberOfMes"))


def _steps_of(waiter: Waiter) -> tuple[str, ...]:
    return (GO, PICK) if waiter.kind.held_back else (PICK,)


def _one_execution(waiter: Waiter, found: Found) -> Iterator[str]:
    statuses = found.executions.get(waiter.saga_id, [])
    if statuses != ["SUCCEEDED"]:
        yield f"{waiter.order} ({waiter.kind}) has executions {statuses}"


def _woken_once(waiter: Waiter, found: Found) -> Iterator[str]:
    tasks, woken = len(_steps_of(waiter)), found.woken.get(waiter.saga_id, 0)
    if woken != tasks:
        yield f"{waiter.order} ({waiter.kind}) has {tasks} waiting tasks that resumed {woken} times"


def _one_answer(waiter: Waiter, found: Found, said: list[Said]) -> Iterator[str]:
    result = json.loads(found.records[waiter.saga_id][RecordAttribute.RESPONSE]["S"]).get("result", {})
    for step in _steps_of(waiter):
        row, token = found.log.get((waiter.saga_id, step)), found.tokens.get(waiter.job(step))
        if row is None or token is None:
            yield f"{waiter.order} ({waiter.kind}) lacks a row of step {step}"
            continue
        status = StepStatus.DONE if step == PICK else StepStatus.RECORDED
        logged = json.loads(row[LogAttribute.OUTPUT]["S"]) if LogAttribute.OUTPUT in row else None
        outcome = json.loads(token[TokenAttribute.OUTCOME]["S"])
        answers = [output_of(waiter, step, one.event) for one in said if one.step == step]
        if row[LogAttribute.STATUS]["S"] != status or logged not in answers:
            yield f"{waiter.order} ({waiter.kind}): step {step} is {row[LogAttribute.STATUS]['S']} with {logged}"
        if result.get(step) != logged or json.loads(outcome[OutcomeField.OUTPUT]) != logged:
            yield f"{waiter.order} ({waiter.kind}): {result.get(step)} in the answer, {logged} in the log, {outcome}"


def _rows_told(waiter: Waiter, found: Found, said: list[Said]) -> Iterator[str]:
    """Differences between a waiter's token row and its expected final state.

    ``EARLY``: the saga log had the outcome before the task registered. Never ``LATE``, although the slower of two
    concurrent senders finds no waiting task.
    """
    a = TokenAttribute
    early = any(one.step == PICK and one.receipt == Receipt.EARLY for one in said)
    allowed = {TokenStatus.DELIVERED}
    if early:
        allowed.add(TokenStatus.EARLY)
    for step in _steps_of(waiter):
        row = found.tokens.get(waiter.job(step), {})
        status = row.get(a.STATUS, {}).get("S")
        left = [name for name in (a.TOKEN, a.DUE_AT, a.CONFLICT, a.APPLIED_LATE_AT) if name in row]
        if status not in (allowed if step == PICK else {TokenStatus.DELIVERED}) or left:
            yield f"{waiter.order} ({waiter.kind}): the row of step {step} is {status} and has {left}"
    if RecordAttribute.DUE_AT in found.records[waiter.saga_id]:
        yield f"{waiter.order} ({waiter.kind}): its record needs an operator"


def _counted_once(waiter: Waiter, said: list[Said]) -> Iterator[str]:
    receipts = [one.receipt for one in said if one.step == PICK]
    counted = [receipt for receipt in receipts if receipt != Receipt.DUPLICATE]
    match waiter.kind:
        case Kind.EARLY:
            expected = frozenset({Receipt.EARLY})
        case Kind.OWN_ID:
            expected = frozenset({Receipt.UNKNOWN})
        case Kind.RACING | Kind.AT_ONCE:
            expected = _EITHER
        case _:
            expected = _FIRST
    if len(counted) != 1 or not expected.issuperset(counted):
        yield f"{waiter.order} ({waiter.kind}) was answered {receipts}"
    wrong = [one.receipt for one in said if one.step == GO and one.receipt != Receipt.DELIVERED]
    if wrong:
        yield f"{waiter.order} ({waiter.kind}): its go was answered {wrong}"


def _handed_over(waiter: Waiter, found: Found, said: list[Said]) -> Iterator[str]:
    early = any(one.step == PICK and one.receipt == Receipt.EARLY for one in said)
    number = found.handed_over.get(waiter.job(), 0)
    if number != (0 if early else 1):
        yield f"{waiter.order} ({waiter.kind}) was dispatched {number} times, {'and was' if early else 'not'} early"
