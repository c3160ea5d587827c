"""Sagas of an example that are interrupted, all at once, and looks of its reconciler that are counted.

The reconciler's rules are off: every status event is suppressed, and who looks is the test, by calling the deployed
function as its schedule would, or with the message in which a status event would come.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final

from botocore.exceptions import ClientError

from constructs_lib.saga.asl.failures import CONDITION_NOT_BOOLEAN
from constructs_lib.testing import Fault, First, LocalAws, Nth, RecordedCall, StopAt
from constructs_lib.testing.fault_plan import Action, Moment, Planned, StopStatus
from constructs_lib.testing.invariants import Item
from saga_runtime.idempotency.identity import request_id_from
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import Env, RecordAttribute

from .two_ledgers import TwoLedgers, await_quiet, entered_states

CLIENTS: Final = 8
PATIENCE_SECONDS: Final = 300.0
SERVICE_TRIES: Final = 11
"""How often a state machine calls a service before it gives up: once, and ten retries."""
MOST_SWEEPS: Final = 2
STOPS: Final = 10
"""Sagas that are begun, at most, until one is stopped while it waits."""
PUT, UPDATE, START = "dynamodb:PutItem", "dynamodb:UpdateItem", "states:StartExecution"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Course of the sagas of an example without an interruption, for one kind of request.

    Attributes:
        name: one word.
        status: status code of the response.
        ask: prepares what a saga needs; returns its key and its request.
        decided: state after which an interrupted saga still ends with that status; before it, the saga compensates
            (500). None: it depends on more than the state.
        rest: whether it is only interrupted at states that no earlier way enters.
    """

    name: str
    status: int
    ask: Callable[[str], tuple[str, object]]
    decided: str | None = None
    rest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A state of a saga's machine, or of one that it waits for."""

    machine: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One saga that is interrupted.

    Attributes:
        name: unique.
        way: how the saga would run.
        what: the interruption.
        faults: the same as a fault plan for one request id.
        asked_again: whether the client repeats its request until it is accepted.
        whole: whether the saga ends as if it had not been interrupted.
        unstarted: whether no execution is started, so that a sweep has to start one.
    """

    name: str
    way: Way
    what: str
    faults: Callable[[str], Sequence[Planned]]
    asked_again: bool = True
    whole: bool = False
    unstarted: bool = False

    def __str__(self) -> str:
        return f"[{self.way.name}] {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A call that the reconciler makes for one saga: which, and the how many-th such call.

    Attributes:
        call: service and operation.
        occurrence: among those that name the saga.
    """

    call: str
    occurrence: int

    def __str__(self) -> str:
        return f"{self.call}#{self.occurrence}"


@dataclass(kw_only=True)
class Interrupted:
    """An example and its interrupted sagas.

    Attributes:
        system: the deployed example; its reconciler does not run on its schedule.
        forward: path of its state machine.
        ways: how its sagas run.
        sagas: saga ids by cell.
        sweeps: by saga, the number of sweeps in which it was due and not settled.
        looks: results and calls of those sweeps.
        looked: number of sweeps that began while a saga was in flight and not parked, including sweeps that died.
        elsewhere: names of states that other tests interrupt.
        settling: states that change the record of an uninterrupted saga of the first way.
    """

    system: TwoLedgers
    forward: str
    ways: Sequence[Way]
    sagas: dict[Cell, str] = field(default_factory=dict)
    sweeps: Counter[str] = field(default_factory=Counter)
    looks: list[tuple[dict[str, Any], list[str]]] = field(default_factory=list)
    looked: Counter[str] = field(default_factory=Counter)
    elsewhere: frozenset[str] = frozenset()
    settling: set[str] = field(default_factory=set)
    _counting: threading.Lock = field(default_factory=threading.Lock)

    @property
    def aws(self) -> LocalAws:
        return self.system.aws

    @property
    def function(self) -> str:
        """The reconciler's function."""
        return self.system.outputs["ReconcilerName"]

    # --- Sagas

    def doors(self) -> dict[Way, list[Door]]:
        """Every state at which a saga of each way is interrupted, as recorded; also of machines that it waits for."""
        names = {way: f"clean-{way.name}" for way in self.ways}
        with self.aws.calls.record() as calls, ThreadPoolExecutor(CLIENTS) as pool:
            sagas = dict(zip(names, pool.map(self._driven, names, names.values()), strict=True))
        first = sagas[self.ways[0]]
        updates = [call for call in calls if call.call == UPDATE and call.execution == first]
        self.settling = {call.state for call in updates if call.state is not None}
        found: dict[Way, list[Door]] = {}
        for way in self.ways:
            known = {door for doors in found.values() for door in doors} if way.rest else set()
            found[way] = [door for door in self._doors_of(sagas[way], calls) if door not in known]
        return found

    def begin(self, cells: Sequence[Cell]) -> None:
        """Begin every cell's saga, and interrupt it."""
        asked = {cell: cell.way.ask(cell.name) for cell in cells}
        self.aws.faults.plan(*(fault for cell in cells for fault in cell.faults(self._request_id(asked[cell][0]))))

        def begin(cell: Cell) -> str:
            key, body = asked[cell]
            if cell.asked_again:
                return self.system.begin(key, body)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while (record := self.system.recoverer.read(self._request_id(key))) is None:
                # On a busy machine the first function may not start in time, and nothing is reserved.
                assert time.monotonic() < deadline, f"{cell}: not reserved"
                self.system.try_post(key, body)
            return record.saga_id

        with ThreadPoolExecutor(CLIENTS) as pool:
            self.sagas |= dict(zip(cells, pool.map(begin, cells), strict=True))

    def quiet(self, cells: Sequence[Cell] | None = None) -> None:
        """Wait until no saga's owner runs."""
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(partial(await_quiet, self.system.recoverer, patience=PATIENCE_SECONDS), self._ids(cells)))

    def open_ones(self, cells: Sequence[Cell] | None = None) -> list[RequestRecord]:
        """Records that are in progress, and not parked."""
        ids = set(self._ids(cells))
        records = [RequestRecord.from_item(item) for item in self._items()]
        return [r for r in records if r.saga_id in ids and not r.settled and r.parked_by is None]

    def await_due(self, cells: Sequence[Cell] | None = None) -> None:
        """Wait until every open saga is due."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any((record.due_at or 0) > self.system.now_ms() for record in self.open_ones(cells)):
            assert time.monotonic() < deadline, self.open_ones(cells)
            time.sleep(0.2)

    # --- Looks

    def look(self) -> dict[str, Any]:
        """Run one sweep, as the schedule does; returns an empty mapping if the process died."""
        self._count([record.saga_id for record in self.open_ones()])
        return self._invoke({})

    def event(self, saga_id: str) -> dict[str, Any]:
        """A status event of a saga's first execution, as it comes out of the queue; empty if the process died."""
        self._count([saga_id])
        body = json.dumps({"detail": {"name": saga_id}})
        return self._invoke({"Records": [{"messageId": saga_id, "body": body}]})

    @property
    def hold_table(self) -> str:
        """Name of the table that holds the pause."""
        return self.environment[Env.HOLD_TABLE]

    @cached_property
    def environment(self) -> dict[str, str]:
        """Environment of the reconciler's function."""
        functions = self.aws.client("lambda")
        return functions.get_function_configuration(FunctionName=self.function)["Environment"]["Variables"]

    def change(self, cell: Cell, update: str, **values: int) -> None:
        """Change a cell's record by hand."""
        self.aws.client("dynamodb").update_item(
            TableName=self.system.outputs["RequestTableName"],
            Key={RecordAttribute.ID: {"S": request_id_from(self.sagas[cell])}},
            UpdateExpression=update,
            ExpressionAttributeValues={f":{name}": {"N": str(value)} for name, value in values.items()},
        )

    def sweep_until_settled(self, cells: Sequence[Cell] | None = None) -> None:
        """Look whenever everything is due, and count."""
        self.quiet(cells)
        for _ in range(MOST_SWEEPS + 1):
            if not self.open_ones(cells):
                return
            self.await_due(cells)
            self.sweeps.update(record.saga_id for record in self.open_ones(cells))
            with self.aws.calls.record() as calls, self.aws.calls.record(containing=self.hold_table) as switch:
                said = self.look()
            assert said.get("complete") is True, said
            assert said["failed"] == 0, said
            made = [call.call for call in calls if call.caller == self.function]
            for call in switch:  # the hold switch is read by time, not by saga
                made.remove(call.call)
            self.looks.append((said, made))
            self.quiet(cells)

    def _count(self, saga_ids: Sequence[str]) -> None:
        with self._counting:
            self.looked.update(saga_ids)

    def _invoke(self, event: Mapping[str, Any]) -> dict[str, Any]:
        answer = self.aws.client("lambda").invoke(FunctionName=self.function, Payload=json.dumps(event))
        said: dict[str, Any] = json.loads(answer["Payload"].read())
        return {} if answer.get("FunctionError") is not None else said

    # --- How they ended

    def untrue(self) -> list[str]:
        """Sagas that did not end, or only after too many looks."""
        cells = {saga_id: cell for cell, saga_id in self.sagas.items()}
        late = [f"{cells[saga_id]}: {times} sweeps" for saga_id, times in self.sweeps.items() if times > MOST_SWEEPS]
        left = [f"{cell}: {self.system.record(id_)}" for id_, cell in cells.items() if not self._is_settled(id_)]
        return [*late, *left]

    def status_of(self, cell: Cell) -> int | None:
        """Status of a saga's answer."""
        return self.system.record(self.sagas[cell]).http_status

    def unasked(self, cells: Sequence[Cell]) -> list[str]:
        """Sagas that were recovered or started outside the test's sweeps."""
        records = [(cell, self.system.record(self.sagas[cell])) for cell in cells]
        needy = [(cell, record) for cell, record in records if record.recoveries or cell.unstarted]
        return [f"{cell}: {r.recoveries} recoveries, and no look" for cell, r in needy if not self.sweeps[r.saga_id]]

    def first_end(self, cell: Cell) -> str | None:
        """Status of a saga's first execution; None without one."""
        return self.system.status_of(self.forward, self.sagas[cell])

    def definitions(self) -> dict[str, dict[str, Any]]:
        """The deployed machine, and those that it waits for, by name; what is EXPRESS is one call of one of them."""
        states = self.aws.client("stepfunctions")
        arns = [machine["stateMachineArn"] for machine in states.list_state_machines()["stateMachines"]]
        found: dict[str, dict[str, Any]] = {}
        ahead = [self.aws.resolve_state_machine(self.forward)]
        while ahead:
            described = states.describe_state_machine(stateMachineArn=ahead.pop())
            if described["name"] not in found and described["type"] != "EXPRESS":
                found[described["name"]] = json.loads(described["definition"])
                ahead += [arn for arn in arns if json.dumps(arn) in described["definition"]]
        return found

    def on_the_way(self) -> set[Door]:
        """States that are entered when no call fails, and those that undo a step: found in the definitions alone.

        States that do not lead to a settled saga are left out: a saga is parked there, or no longer that execution's.
        """
        found: set[Door] = set()
        for machine, definition in self.definitions().items():
            undoing = (name for name in definition["States"] if name.startswith("Compensate "))
            found |= {Door(machine=machine, state=name) for name in {*_without_catch(definition), *undoing}}
        return found

    def waiting(self) -> set[str]:
        """Names of the states that wait for their task token."""
        return {
            name
            for definition in self.definitions().values()
            for name, state in definition["States"].items()
            if str(state.get("Resource", "")).endswith(".waitForTaskToken")
        }

    def stop_while_it_waits(self, cell: Cell, step: str) -> None:
        """Stop a saga's first execution while a step dispatches its job or waits; a child execution keeps running.

        A saga that completed before it was stopped is not interrupted; the cell gets another one.
        """
        states = self.aws.client("stepfunctions")
        for number in range(STOPS):
            if number:
                self.sagas[cell] = self.system.begin(*cell.way.ask(f"{cell.name}-{number}"))
            saga_id, deadline = self.sagas[cell], time.monotonic() + PATIENCE_SECONDS
            while self.system.statuses(saga_id).get(step) is None:
                assert time.monotonic() < deadline, f"{cell}: {self.system.statuses(saga_id)}"
                time.sleep(0.02)
            try:
                states.stop_execution(executionArn=self.system.arn(self.forward, saga_id))
            except ClientError:
                assert self.system.status_of(self.forward, saga_id) == "SUCCEEDED", f"{cell}: {saga_id}"
            else:
                return
        raise AssertionError(f"{cell}: {STOPS} sagas were over before they could be stopped")

    # ---

    def _is_settled(self, saga_id: str) -> bool:
        return self.system.record(saga_id).settled

    def _driven(self, way: Way, name: str) -> str:
        key, body = way.ask(name)
        saga_id = self.system.begin(key, body)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (record := self.system.record(saga_id)).settled or self._runs(saga_id):
            assert time.monotonic() < deadline, f"{name}: {self.system.statuses(saga_id)}"
            time.sleep(0.1)
        assert record.http_status == way.status, f"{name}: {record}"
        return saga_id

    def _runs(self, saga_id: str) -> bool:
        return self.system.status_of(self.forward, saga_id) == "RUNNING"

    def _doors_of(self, saga_id: str, calls: Sequence[RecordedCall]) -> Iterator[Door]:
        """In the order of their first entry. States of branches are known by the calls that they make."""
        states = self.aws.client("stepfunctions")
        found: dict[Door, None] = {}
        for machine in states.list_state_machines()["stateMachines"]:
            # An execution that is EXPRESS has a name of its own: it is the call of a state that is among these.
            executions = states.list_executions(stateMachineArn=machine["stateMachineArn"])["executions"]
            for execution in executions:
                if execution["name"].startswith(saga_id):
                    entered = entered_states(self.aws, execution["executionArn"])
                    found |= {Door(machine=machine["name"], state=state): None for state in entered}
        for call in calls:
            if call.execution is not None and call.execution.startswith(saga_id) and call.state is not None:
                found[Door(machine=call.caller.partition(":")[2], state=call.state)] = None
        yield from found

    def _request_id(self, key: str) -> str:
        return self.system.request_id(key)

    def _ids(self, cells: Sequence[Cell] | None) -> list[str]:
        return [self.sagas[cell] for cell in (self.sagas if cells is None else cells)]

    def _items(self) -> list[Item]:
        return [item for item in self.system.records() if RecordAttribute.SAGA_ID in item]


def _without_catch(definition: Mapping[str, Any]) -> set[str]:
    """States that are reached from the first one as long as nothing fails, and from which a saga can be settled."""
    ahead, seen = [str(definition["StartAt"])], set[str]()
    while ahead:
        if (name := ahead.pop()) not in seen:
            seen.add(name)
            ahead += _next(definition["States"][name])
    settling = {name for name in seen if name.startswith("Settle ") or definition["States"][name]["Type"] == "Succeed"}
    settling |= {name for name in seen if definition["States"][name].get("End")}
    while more := {name for name in seen - settling if settling & set(_next(definition["States"][name]))}:
        settling |= more
    return settling


def _next(state: Mapping[str, Any]) -> list[str]:
    branches = [one for one in state.get("Choices", ()) if CONDITION_NOT_BOOLEAN not in str(one.get("Assign"))]
    return [one[key] for one in (state, *branches) for key in ("Next", "Default") if key in one]


# --- What interrupts


def stopped(way: Way, name: str, door: Door, status: StopStatus, moment: Moment) -> Cell:
    """A saga whose execution ends at a state."""

    def faults(request_id: str) -> Sequence[Planned]:
        stop = StopAt(machine=door.machine, state=door.state, moment=moment, status=status, containing=request_id)
        return [stop]

    what = f"{status} {moment} {door.machine.partition('-')[2]}: {door.state}"
    return Cell(name=name, way=way, what=what, faults=faults)


def never_started(way: Way, name: str, gatekeeper: str, call: str, moment: Moment) -> Cell:
    """A saga that was reserved before its gatekeeper died; the client does not retry."""

    def faults(request_id: str) -> Sequence[Planned]:
        return [Fault(function=gatekeeper, call=call, moment=moment, action=Action.KILL, containing=request_id)]

    what = f"gatekeeper killed {moment} {call}"
    # If the process dies after the start, the execution runs, and no sweep is needed.
    unstarted = not (call == START and moment is Moment.AFTER)
    return Cell(name=name, way=way, what=what, faults=faults, asked_again=False, whole=True, unstarted=unstarted)


def waiting(way: Way, name: str, step: str) -> Cell:
    """A saga whose execution the test stops while a step waits."""
    return Cell(name=name, way=way, what=f"stopped while it waits: {step}", faults=lambda _: ())


def unsettled(way: Way, name: str, machine: str, moment: Moment) -> Cell:
    """A saga whose settle is lost as often as its state machine tries, forward or compensating."""

    def faults(request_id: str) -> Sequence[Planned]:
        return [
            Fault(
                function=f"states:{machine}",
                call=UPDATE,
                moment=moment,
                action=Action.DROP,
                on=First(SERVICE_TRIES),
                containing=request_id,
            )
        ]

    return Cell(name=name, way=way, what=f"settle dropped {moment}", faults=faults, whole=True)


# --- A reconciler that dies


def points_of(calls: Sequence[RecordedCall], function: str) -> list[Point]:
    """Calls of one sweep for the only due saga, without queries of the index."""
    own = [call for call in calls if call.caller == function and call.call != "dynamodb:Query"]
    return [Point(call=call.call, occurrence=call.occurrence) for call in own]


def death(function: str, point: Point, moment: Moment, request_id: str) -> Fault:
    """The reconciler's death at a call that it makes for one saga."""
    return Fault(
        function=function,
        call=point.call,
        moment=moment,
        action=Action.KILL,
        on=Nth(point.occurrence),
        containing=request_id,
    )
