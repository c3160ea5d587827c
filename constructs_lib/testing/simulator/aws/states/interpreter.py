"""The interpreter of Amazon States Language, in its JSONata form.

An execution is a task; each branch of a Parallel and each item of a Map is one of its own. A branch that fails stops
its siblings where they are: what they started (an invocation, a child) lives on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from constructs_lib.testing.simulator.aws.states.executions import (
    MOST_BYTES,
    MOST_EVENTS,
    Execution,
    Position,
    json_text,
    timestamp,
)
from constructs_lib.testing.simulator.aws.states.expressions import ExpressionError, Moment, evaluate
from constructs_lib.testing.simulator.aws.states.failures import (
    DATA_LIMIT,
    QUERY,
    RUNTIME,
    StateFailedError,
    delay_of,
    matching,
)
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.checks.trace import Trace
from constructs_lib.testing.simulator.engine.actors import Actor, ActorKind
from constructs_lib.testing.simulator.engine.kernel import MILLISECOND, SECOND, Future, Kernel
from constructs_lib.testing.simulator.errors import NotSimulatedError
from constructs_lib.testing.simulator.faults.climate import HEARTBEAT_MATCHED, LIMIT_MATCHED, Event
from constructs_lib.testing.simulator.faults.weather import Weather

_SMALL: Final = 100_000
"""Bytes: an execution that was given less than this in all has no value that is too large."""


_Branch: TypeAlias = tuple[Mapping[str, Any], Any, Mapping[str, Any]]
"""A flow, its input, and members of its context object."""


class Work(Protocol):
    """Work of Task states."""

    def do(self, state: Mapping[str, Any], arguments: Any, at: Place, patience: tuple[int, int | None]) -> Any:
        """Do it; raises StateFailedError."""

    def token(self, state: Mapping[str, Any], execution: Execution) -> str | None:
        """A new task token, if the state waits for one that is sent back."""


@dataclass(slots=True)
class Scope:
    """Variables of a flow; those of the flow around it are seen, and not assigned."""

    own: dict[str, Any]
    outer: Scope | None = None

    def seen(self) -> dict[str, Any]:
        """All variables."""
        return self.own if self.outer is None else {**self.outer.seen(), **self.own}


@dataclass(slots=True)
class Place:
    """Place of a step: an execution's flow, in a state.

    Attributes:
        execution: the execution.
        actor: what works for it there.
        scope: variables.
        around: further members of the context object, besides those of the execution: the item of a Map.
        position: of the flow.
        states: ``$states`` of the state.
    """

    execution: Execution
    actor: Actor
    scope: Scope
    around: Mapping[str, Any]
    position: Position
    states: dict[str, Any]


class Interpreter:
    """Runs executions.

    Args:
        kernel: keeps the time.
        work: does what Task states do.
        weather: what goes wrong.
        trace: hears of each state.
        coverage: hears of each state.
        stop: ends an execution as aborted or timed out.
    """

    def __init__(
        self, kernel: Kernel, work: Work, weather: Weather, trace: Trace, coverage: Coverage, stop: Any
    ) -> None:
        self._kernel = kernel
        self._work = work
        self._weather = weather
        self._trace = trace
        self._coverage = coverage
        self._stop = stop
        self._matching = partial(
            matching,
            heartbeat_matched=HEARTBEAT_MATCHED in weather.climate.unproven,
            limit_matched=LIMIT_MATCHED in weather.climate.unproven,
        )

    def run(self, execution: Execution, actor: Actor) -> str:
        """Run an execution from its position to its end, in the present task.

        Returns:
            Its output, as text.

        Raises:
            StateFailedError: if it fails.
        """
        position = execution.position
        scope = Scope(position.variables)
        output = self._flow(execution, actor, execution.machine.definition, position, scope, {})
        return json_text(output)

    def _flow(
        self,
        execution: Execution,
        actor: Actor,
        flow: Mapping[str, Any],
        position: Position,
        scope: Scope,
        around: Mapping[str, Any],
    ) -> Any:
        states = flow["States"]
        machine = execution.machine.name
        while True:
            name = position.state
            state = states[name]
            self._coverage.enters(machine, name)
            place = Place(execution, actor, scope, around, position, {})
            place.states = {"input": position.input, "context": self._context(execution, name, around)}
            execution.events += 2
            self._trace.note(actor.name, f"[{name}]")
            self._interrupt(execution)
            if (end := self._weather.interruption(machine, name)) is not None:
                self._stop(execution, "ABORTED" if end is Event.STOP else "TIMED_OUT")
            following, output = self._state(state, place)
            if following is None:
                return output
            self._coverage.moves(machine, name, following)
            position.state, position.input = following, output
            position.branches.clear()
            position.results.clear()

    def _context(self, execution: Execution, name: str, around: Mapping[str, Any]) -> dict[str, Any]:
        state = {"EnteredTime": timestamp(self._kernel.now), "Name": name, "RetryCount": 0}
        return {**execution.context, **around, "State": state}

    def _interrupt(self, execution: Execution) -> None:
        """End the execution here, if that was drawn, its history is full, or its state machine was deleted."""
        if execution.events > MOST_EVENTS:
            raise StateFailedError(RUNTIME, "The execution reached the maximum number of history events", final=True)
        if execution.deleted:
            raise StateFailedError(RUNTIME, f"State machine {execution.machine.name} has been deleted.", final=True)
        if execution.stop_after:
            execution.stop_after -= 1
            if not execution.stop_after:
                self._stop(execution, execution.stop_as)

    def _state(self, state: Mapping[str, Any], place: Place) -> tuple[str | None, Any]:
        """Do what a state does; the name of the next one (None: this was the last), and its input."""
        match state["Type"]:
            case "Task" | "Parallel" | "Map":
                return self._work_state(state, place)
            case "Choice":
                return self._choice(state, place)
            case "Pass":
                return self._done(state, place, default=place.position.input)
            case "Wait":
                self._wait(state, place)
                return self._done(state, place, default=place.position.input)
            case "Succeed":
                return self._done(state, place, default=place.position.input)
            case "Fail":
                values = [str(self._evaluated(state.get(name, ""), place)) for name in ("Error", "Cause")]
                raise StateFailedError(values[0], values[1], final=True)
        raise NotSimulatedError(f"states of type {state['Type']} are not simulated")

    def _evaluated(self, template: Any, place: Place) -> Any:
        moment = Moment(self._kernel.now // MILLISECOND, self._kernel.entropy)
        try:
            return evaluate(template, place.states, place.scope.seen(), moment)
        except ExpressionError as error:
            raise StateFailedError(QUERY, str(error)) from None

    def _done(self, state: Mapping[str, Any], place: Place, *, default: Any) -> tuple[str | None, Any]:
        """Assign and Output of a state that went well: both see the variables as they were."""
        output = self._evaluated(state["Output"], place) if "Output" in state else default
        assigned = self._evaluated(state["Assign"], place) if "Assign" in state else None
        self._check_size(place.execution, output, assigned)
        if assigned:
            place.scope.own.update(assigned)
        return (None if state.get("End") or state["Type"] == "Succeed" else str(state["Next"])), output

    def _check_size(self, execution: Execution, *values: Any) -> None:
        if execution.volume < _SMALL:
            return
        for value in values:
            if value is not None and len(json_text(value).encode()) > MOST_BYTES:
                raise StateFailedError(
                    DATA_LIMIT,
                    "The state/task returned a result with a size exceeding the maximum number of bytes service limit.",
                )

    def _choice(self, state: Mapping[str, Any], place: Place) -> tuple[str | None, Any]:
        for rule in state["Choices"]:
            met = self._evaluated(rule["Condition"], place)
            if not isinstance(met, bool):
                raise StateFailedError(QUERY, f"The condition {rule['Condition']} did not evaluate to a boolean")
            if met:
                return self._done({**rule, "Type": "Choice"}, place, default=place.position.input)
        if "Default" not in state:
            raise StateFailedError("States.NoChoiceMatched", "No choice rule matched")
        chosen = {name: state[name] for name in ("Output", "Assign") if name in state}
        return self._done({**chosen, "Type": "Choice", "Next": state["Default"]}, place, default=place.position.input)

    def _wait(self, state: Mapping[str, Any], place: Place) -> None:
        if "Seconds" not in state:
            raise NotSimulatedError("a Wait state without Seconds is not simulated")
        seconds = self._evaluated(state["Seconds"], place)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= 99_999_999:
            raise StateFailedError(QUERY, f"Seconds must be a number from 0 to 99999999, got {seconds!r}")
        self._kernel.sleep(int(seconds * SECOND))

    # --- States that can fail

    def _work_state(self, state: Mapping[str, Any], place: Place) -> tuple[str | None, Any]:
        retries: dict[int, int] = {}
        context = place.states["context"]
        while True:
            try:
                result = self._result(state, place)
                place.states["result"] = result
                execution = place.execution
                execution.events += 3
                return self._done(state, place, default=result)
            except StateFailedError as failure:
                place.states.pop("result", None)
                rule = self._matching(state.get("Retry"), failure)
                used = retries.get(id(rule), 0)
                if rule is None or used >= int(rule.get("MaxAttempts", 3)):
                    return self._caught(state, place, failure)
                retries[id(rule)] = used + 1
                place.position.branches.clear()
                place.position.results.clear()
                delay = delay_of(rule, used, self._weather.share())
                self._trace.note(place.actor.name, f"[{place.position.state}] {failure.error}: retry in {delay:.1f} s")
                self._kernel.sleep(int(delay * SECOND))
                context["State"]["RetryCount"] += 1
                self._interrupt(place.execution)

    def _caught(self, state: Mapping[str, Any], place: Place, failure: StateFailedError) -> tuple[str | None, Any]:
        rule = self._matching(state.get("Catch"), failure)
        if rule is None:
            raise failure
        self._trace.note(place.actor.name, f"[{place.position.state}] {failure.error}: caught")
        place.states["errorOutput"] = {"Error": failure.error, "Cause": failure.cause}
        return self._done({**rule, "Type": "Catch"}, place, default=place.states["errorOutput"])

    def _result(self, state: Mapping[str, Any], place: Place) -> Any:
        if state["Type"] == "Parallel":
            return self._parallel(state, place)
        if state["Type"] == "Map":
            return self._map(state, place)
        token = self._work.token(state, place.execution)
        if token is not None:
            place.states["context"]["Task"] = {"Token": token}
        arguments = self._evaluated(state.get("Arguments", {}), place)
        self._check_size(place.execution, arguments)
        timeout, heartbeat = (self._seconds(state, name, place) for name in ("TimeoutSeconds", "HeartbeatSeconds"))
        patience = (99_999_999 if timeout is None else timeout) * SECOND
        return self._work.do(state, arguments, place, (patience, None if heartbeat is None else heartbeat * SECOND))

    def _seconds(self, state: Mapping[str, Any], name: str, place: Place) -> int | None:
        if name not in state:
            return None
        found = self._evaluated(state[name], place)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise StateFailedError(QUERY, f"{name} must be a number, got {found!r}")
        return int(found)

    def _parallel(self, state: Mapping[str, Any], place: Place) -> list[Any]:
        given = self._evaluated(state["Arguments"], place) if "Arguments" in state else place.position.input
        flows: list[_Branch] = [(branch, given, {}) for branch in state["Branches"]]
        return self._branches(place, flows, len(flows))

    def _map(self, state: Mapping[str, Any], place: Place) -> list[Any]:
        items = self._evaluated(state["Items"], place) if "Items" in state else place.position.input
        if not isinstance(items, list):
            raise StateFailedError(QUERY, f"Items must be an array, got {type(items).__name__}")
        most = int(self._evaluated(state.get("MaxConcurrency", 0), place)) or len(items)
        flows: list[_Branch] = []
        for index, item in enumerate(items):
            around = {"Map": {"Item": {"Index": index, "Value": item}}}
            given = item
            if "ItemSelector" in state:
                place.states["context"] |= around
                given = self._evaluated(state["ItemSelector"], place)
            flows.append((state["ItemProcessor"], given, around))
        place.states["context"].pop("Map", None)
        return self._branches(place, flows, most)

    def _branches(self, place: Place, flows: list[_Branch], most: int) -> list[Any]:
        """Run branches, so many at once, until all have ended or one has failed."""
        position, execution = place.position, place.execution
        settled: Future[None] = Future(self._kernel)
        strands: list[Actor] = []
        waiting = [number for number in range(len(flows)) if number not in position.results]
        left = len(waiting)

        def begin() -> None:
            number = waiting.pop(0)
            flow, given, around = flows[number]
            at = position.branches.setdefault(number, Position(flow["StartAt"], given))
            actor = Actor(f"{place.actor.name}.{number}", ActorKind.MACHINE, of=place.actor.of, role=place.actor.role)
            strands.append(actor)
            execution.strands.append(actor)
            scope = Scope(at.variables, place.scope)
            inner = {**place.around, **around}
            task = self._kernel.spawn(actor, lambda: self._flow(execution, actor, flow, at, scope, inner))
            task.ended.then(lambda: end(number, task.ended))

        def end(number: int, ended: Future[Any]) -> None:
            nonlocal left
            try:
                position.results[number] = ended.value()
            except StateFailedError as failure:
                for strand in strands:
                    strand.kill()
                settled.fail(StateFailedError(failure.error, failure.cause))
                return
            except Exception as error:  # noqa: BLE001 - a defect of the simulator itself
                settled.fail(error)
                return
            left -= 1
            if waiting:
                begin()
            elif not left:
                settled.set(None)

        if not waiting:
            return [position.results[number] for number in range(len(flows))]
        for _ in range(min(most, len(waiting))):
            begin()
        settled.wait()
        return [position.results[number] for number in range(len(flows))]
