"""A saga of a plan, run from its reservation to its end: generated machines, tables in memory.

Its functions are models, or handlers of the runtime, which write the same tables and wait by the same clock.

At every call of a machine its execution can be stopped: before the call takes effect, after it, or so that it takes
effect only when everything else is over. A stopped saga is taken over and recovered, as often as need be.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from unittest.mock import patch

from botocore.exceptions import ClientError

from constructs_lib.saga.asl import CompiledGroup, SagaPlan, definition_of, phase_definition, recovery_of
from constructs_lib.testing.simulator.aws.dynamodb.parsing import condition_of
from saga_runtime.errors import ManualResolutionRequired, PermanentError, ProtocolMismatch, SagaFenced
from saga_runtime.shared import aws, clock
from tests.constructs.support.interpreter import Failure, Run, run
from tests.constructs.support.jsonata import EXECUTION, REQUEST_ID, context
from tests.constructs.support.once import once
from tests.unit.support.memory_dynamodb import MemoryDynamoDB

FORWARD = "arn:aws:states:eu-west-1:111111111111:stateMachine:forward"
MANY_RECOVERIES = 6
RETRIES = 5
_PAUSE_MS = 600_000
_DECIDED = (PermanentError, ProtocolMismatch, SagaFenced, ManualResolutionRequired)
"""What no state tries again."""
Handler = Callable[[Any, Any], Any]
_definition_of = once(definition_of)
_recovery_of = once(lambda plan: recovery_of(plan, FORWARD))
_phase_definition = once(phase_definition)


class Moment(StrEnum):
    """When an execution is stopped at a call."""

    BEFORE = "before"
    AFTER = "after"
    LATE = "and the call arrives last"


class Stopped(BaseException):
    """The execution was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The call at which an execution is stopped, counted from 1 over all executions of the saga."""

    call: int
    moment: Moment


class _Context:
    """Context of a function with a minute left."""

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


class _Store(MemoryDynamoDB):
    """Tables, and the pages of a query for all rows of one partition or of one step."""

    def get_paginator(self, operation: str) -> _Store:
        assert operation == "query"
        return self

    def paginate(self, **arguments: Any) -> Iterable[dict[str, Any]]:
        begins = arguments["ExpressionAttributeValues"].get(":items", {}).get("S", "")
        for row in self.items(arguments["TableName"]):
            if row["step"]["S"].startswith(begins):
                yield {"Items": [row]}


@dataclass(frozen=True, slots=True)
class _Bucket:
    """A payload bucket."""

    objects: dict[str, bytes]

    def put_object(self, **arguments: Any) -> None:
        self.objects[arguments["Key"]] = arguments["Body"]

    def get_object(self, **arguments: Any) -> dict[str, Any]:
        return {"Body": io.BytesIO(self.objects[arguments["Key"]])}


@dataclass(slots=True, kw_only=True)
class Simulation:
    """One saga.

    Attributes:
        plan: its definition; its tables are ``requests`` and ``log``.
        deployed: definition when it is recovered, if that is another one; of several, each time the next one.
        other: another definition that is deployed, and reverted, between starts of executions.
        switches: starts, of any execution, at which the machines have changed to the other definition, or back.
        request: the request's body.
        refused: rows of steps that are refused, e.g. ``Debit`` or ``Pack[a]``.
        stops: calls at which it is stopped.
        page: maximum number of rows that a query reads.
        functions: handlers of the runtime, by the ARN of the function; every other function is a model.
        effects: number of applied effects, by row.
        sent: number of messages, which cannot be compensated.
        traces: states of every execution, by its name.
        told: messages of the operator queue.
    """

    plan: SagaPlan
    deployed: tuple[SagaPlan, ...] = ()
    other: SagaPlan | None = None
    switches: frozenset[int] = frozenset()
    request: Any
    refused: frozenset[str] = frozenset()
    stops: frozenset[Stop] = frozenset()
    page: int = 1_000
    outputs: Callable[[str], Mapping[str, Any]] = lambda row: {"of": row}
    change: Callable[[dict[str, Any]], dict[str, Any]] = lambda definition: definition
    functions: Mapping[str, Handler] = field(default_factory=dict)
    effects: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    traces: dict[str, list[str]] = field(default_factory=dict)
    told: list[Any] = field(default_factory=list)
    calls: int = 0
    now_ms: int = 1_750_000_000_000
    _store: _Store = field(default_factory=_Store)
    _objects: dict[str, bytes] = field(default_factory=dict)
    _late: list[Callable[[], object]] = field(default_factory=list)
    _recoveries: int = 0
    _starts: int = 0

    def run(self) -> Simulation:
        """From the reservation to the end; what travels arrives last."""
        with (
            patch.object(aws, "dynamodb", lambda: self._store),
            patch.object(aws, "s3", lambda: _Bucket(self._objects)),
            patch.object(clock, "now_ms", lambda: self.now_ms),
        ):
            return self._run()

    def resume(self) -> Simulation:
        """Let the parked saga continue, as an operator does."""
        del self._record["parked_by"]
        with (
            patch.object(aws, "dynamodb", lambda: self._store),
            patch.object(aws, "s3", lambda: _Bucket(self._objects)),
            patch.object(clock, "now_ms", lambda: self.now_ms),
        ):
            return self._recover()

    def _run(self) -> Simulation:
        self._reserve()
        self._starts += 1
        self._execute(_definition_of(self._deployed), EXECUTION, defined=self.plan.fingerprint)
        return self._recover()

    def _recover(self) -> Simulation:
        while not (self.settled or self.parked) and self._recoveries < MANY_RECOVERIES:
            self._recoveries += 1
            owner = f"{EXECUTION}-r{self._recoveries}"
            self._record["owner"] = {"S": owner}
            self._starts += 1
            self._execute(_recovery_of(self._deployed), owner)
        self._arrive()
        return self

    @property
    def _deployed(self) -> SagaPlan:
        """The definition of every machine right now."""
        if self.other is not None:
            return self.other if len([n for n in self.switches if n <= self._starts]) % 2 else self.plan
        if not self.deployed or not self._recoveries:
            return self.plan
        return self.deployed[min(self._recoveries, len(self.deployed)) - 1]

    def _arrive(self) -> None:
        """Deliver the requests in transit."""
        while self._late:
            self._late.pop()()

    @property
    def settled(self) -> str | None:
        """Status of the settled record; None before."""
        status: str = self._record["status"]["S"]
        return None if status == "IN_PROGRESS" else status

    @property
    def parked(self) -> bool:
        """True if it waits for a person."""
        return "parked_by" in self._record

    @property
    def direction(self) -> str | None:
        """The direction, if it was decided."""
        direction: str | None = self._record.get("direction", {}).get("S")
        return direction

    @property
    def rows(self) -> dict[str, str]:
        """States of the log's rows."""
        return {row["step"]["S"]: row["status"]["S"] for row in self._store.items("log")}

    @property
    def _record(self) -> dict[str, Any]:
        found = self._store.stored("requests", REQUEST_ID)
        assert found is not None
        return found

    def _reserve(self) -> None:
        fields = {"id": REQUEST_ID, "saga_id": EXECUTION, "owner": EXECUTION, "status": "IN_PROGRESS"}
        record = {name: {"S": value} for name, value in {**fields, "definition": self.plan.fingerprint}.items()}
        self._store.put_item(TableName="requests", Item=record | {"updated_at": {"N": "1"}})

    # -- executions -------------------------------------------------------------------------------------------------

    def _execute(self, definition: dict[str, Any], name: str, **given: Any) -> Run | None:
        """Run an execution to its end; None if it was stopped."""
        definition = self.change(definition)
        resources = _resources_of(definition)

        def answer(state: str, arguments: Any) -> Any:
            return self._call(resources[state], state, arguments, name)

        around = context(request=json.dumps(self.request), execution=name)
        try:
            done = run(definition, answer, request=json.dumps(self.request), given=around, **given)
        except Stopped:
            return None
        finally:
            self.traces.setdefault(name, [])
        self.traces[name] += done.trace
        return done

    def _call(self, resource: str, state: str, arguments: Any, name: str) -> Any:
        self.calls += 1
        waits = self._deployed.outlived_seconds and self._record["definition"]["S"] != self._deployed.fingerprint
        if state == "Query log rows" and waits:
            self._arrive()
        stop = next((stop for stop in self.stops if stop.call == self.calls), None)
        if stop is None:
            return self._effect(resource, state, arguments, name)
        if stop.moment is Moment.AFTER:
            self._silently(lambda: self._effect(resource, state, arguments, name))
        elif stop.moment is Moment.LATE and "xecution" not in resource:
            self._late.append(lambda: self._silently(lambda: self._effect(resource, state, arguments, name)))
        raise Stopped

    @staticmethod
    def _silently(effect: Callable[[], object]) -> None:
        with contextlib.suppress(Failure):
            effect()

    def _effect(self, resource: str, state: str, arguments: Any, name: str) -> Any:
        match resource.removeprefix("arn:aws:states:::"):
            case "lambda:invoke":
                return {"Payload": {"output": self._function(arguments["FunctionName"], arguments["Payload"])}}
            case "sqs:sendMessage.waitForTaskToken":
                return {"output": self._function(f"arn:{arguments['MessageBody']['step']}", arguments["MessageBody"])}
            case "sqs:sendMessage":
                self.told.append(json.loads(arguments["MessageBody"]))
                return {}
            case "events:putEvents":
                self.sent[state] += 1
                return {}
            case "aws-sdk:sfn:startExecution":
                self._starts += 1
                self._execute(
                    _definition_of(self._deployed), name, defined=json.loads(arguments["Input"])["definition"]
                )
                return {}
            case "aws-sdk:sfn:startSyncExecution":
                return self._phase(arguments["StateMachineArn"], json.loads(arguments["Input"]), express=True)
            case "states:startExecution.sync:2":
                return self._phase(arguments["StateMachineArn"], arguments["Input"], express=False)
            case table_call:
                return self._table(table_call, arguments)

    def _phase(self, arn: str, given: Mapping[str, Any], *, express: bool) -> dict[str, Any]:
        self._starts += 1
        group = next(n for n in self._deployed.steps if isinstance(n, CompiledGroup) and n.machine_arn == arn)
        phase = _phase_definition(self._deployed, group)
        told = {"outputs": given["outputs"], "defined": given["definition"]}
        done = self._execute(phase, f"phase {group.name}", **told)
        if done is None:
            raise Stopped
        if done.status == "FAILED":
            if express:
                return {"Status": "FAILED", "Error": done.error, "Cause": ""}
            raise Failure("States.TaskFailed")
        return {"Status": "SUCCEEDED", "Output": json.dumps(done.output)} if express else {"Output": done.output}

    # -- tables -----------------------------------------------------------------------------------------------------

    def _table(self, action: str, arguments: Any) -> Any:
        try:
            match action:
                case "dynamodb:getItem":
                    return self._store.get_item(**arguments)
                case "dynamodb:putItem":
                    return self._store.put_item(**arguments)
                case "dynamodb:updateItem":
                    return self._store.update_item(**arguments)
                case "aws-sdk:dynamodb:query":
                    return self._query(arguments)
        except ClientError:
            raise Failure("DynamoDB.ConditionalCheckFailedException") from None
        raise AssertionError(f"no model of {action}; teach it")

    def _query(self, arguments: Any) -> dict[str, Any]:
        values = arguments["ExpressionAttributeValues"]
        begins = values.get(":items", {}).get("S", "")
        rows = sorted(self._store.items("log"), key=lambda row: str(row["step"]["S"]))
        after = arguments.get("ExclusiveStartKey", {}).get("step", {}).get("S", "")
        rows = [row for row in rows if row["step"]["S"] > after and row["step"]["S"].startswith(begins)]
        limit = min(self.page, arguments.get("Limit", self.page))
        read, left = rows[:limit], rows[limit:]
        names = arguments["ExpressionAttributeNames"]
        text = arguments.get("FilterExpression")
        found = [row for row in read if text is None or condition_of(text).tree.holds(row, names, values)]
        answer: dict[str, Any] = {"Count": len(found)}
        if "ProjectionExpression" in arguments:
            wanted = [names[name.strip()] for name in arguments["ProjectionExpression"].split(",")]
            answer["Items"] = [{name: row[name] for name in wanted if name in row} for row in found]
        if left:
            answer["LastEvaluatedKey"] = {name: read[-1][name] for name in ("saga_id", "step")}
        return answer

    # -- functions --------------------------------------------------------------------------------------------------

    def _function(self, arn: str, call: Mapping[str, Any]) -> Any:
        """Model of a step's function, or of its compensation: the row and the effect at once."""
        if arn in self.functions:
            return self._handled(self.functions[arn], call)
        row = call["step"] if "item_key" not in call else f"{call['step']}[{call['item_key']}]"
        there = self._store.item("log", EXECUTION, row)
        status = there["status"]["S"] if there is not None else None
        if arn.startswith("arn:Undo"):
            return self._undo(row, there)
        if call.get("mode") == "verify":
            if status is None:
                self._write(row, call, "TOMBSTONE")
            return {}
        if status in ("DONE", "RECORDED") and there is not None:
            return json.loads(there["output"]["S"])
        if status == "TOMBSTONE" and there is not None and "output" in there:
            return json.loads(there["output"]["S"])
        if status is not None:
            raise Failure("SagaFenced")
        if row in self.refused:
            raise Failure("Invalid", json.dumps({"errorMessage": "no"}))
        self._write(row, call, "DONE", output={"S": json.dumps(self.outputs(row))})
        self.effects[row] += 1
        return self.outputs(row)

    def _handled(self, handler: Handler, call: Mapping[str, Any]) -> Any:
        """Result of a handler, retried as its state would."""
        tried = 0
        while True:
            try:
                return handler(json.loads(json.dumps(call)), _Context())["output"]
            except Exception as error:  # a state machine takes whatever it is
                tried += 1
                if isinstance(error, _DECIDED) or tried > RETRIES:
                    cause = json.dumps({"errorMessage": str(error), "errorType": type(error).__name__})
                    raise Failure(type(error).__name__, cause) from error
                self.now_ms += _PAUSE_MS

    def _undo(self, row: str, there: Mapping[str, Any] | None) -> dict[str, Any]:
        if there is None:
            self._write(row, {"side": "before"}, "TOMBSTONE")
        elif there["status"]["S"] in ("DONE", "APPLIED_LATE"):
            self._store.put_item(TableName="log", Item={**there, "status": {"S": "COMPENSATED"}})
            self.effects[row] -= 1
        return {}

    def _write(self, row: str, call: Mapping[str, Any], status: str, **more: Any) -> None:
        item = {"saga_id": EXECUTION, "step": row, "status": status, "side": call["side"]}
        times = {"updated_at": {"N": str(self.now_ms)}}
        texts = {name: {"S": value} for name, value in item.items()}
        self._store.put_item(TableName="log", Item=texts | times | more)


def _resources(flow: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, state in flow["States"].items():
        if state["Type"] == "Task":
            yield name, state["Resource"]
        for inner in (*state.get("Branches", ()), *([state["ItemProcessor"]] if "ItemProcessor" in state else ())):
            yield from _resources(inner)


_resources_of = once(lambda definition: dict(_resources(definition)))
