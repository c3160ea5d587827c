"""Step Functions: what runs side by side in an execution: the branches of a Parallel, the items of a Map."""

from __future__ import annotations

import contextvars
import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from ministack.services import stepfunctions as states

from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace
from constructs_lib.testing.emulator.corrections.jsonata import is_jsonata
from constructs_lib.testing.emulator.corrections.stepfunctions import Halt, HaltedError, check_halts, halts


def parallel_branches(_emulator: Emulator) -> None:
    """Parallel takes Arguments, Output and Assign; branches have their own variables; a failure stops the siblings.

    The emulator ignores the three fields, lets branches overwrite each other's context, and waits for the siblings
    of a failed branch, which then complete: more permissive than AWS, which stops them at once. Functions continue.

    A model: an answer to a task of a stopped branch is refused from the moment at which its sibling failed; whether AWS
    takes it for a while is not documented.
    """

    def make_run(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(machine: Any, start: Any, data: Any, execution: Any, context: dict[str, Any]) -> Any:
            inner = {**context, "variables": dict(context.get("variables", {}))}
            return original(machine, start, data, execution, inner)

        return run

    replace(states, "_run_sub_machine", make_run)
    replace(states, "_run_parallel_branches", lambda _original: _run_branches)


def _run_branches(state: dict[str, Any], raw_input: Any, execution: Any, context: dict[str, Any]) -> Any:
    jsonata = is_jsonata(state, context)
    if jsonata:
        effective = states._apply_jsonata_arguments(state, raw_input, context)
    else:
        effective = states._apply_parameters(state, states._apply_input_path(state, raw_input, context), context)

    def run_branch(branch: dict[str, Any]) -> Any:
        return states._run_sub_machine(branch["States"], branch["StartAt"], effective, execution, context)

    branches: list[dict[str, Any]] = state["Branches"]
    results = _SideBySide(run_branch, branches, at_once=len(branches), error="States.BranchFailed").run()
    if jsonata:
        output = states._apply_jsonata_output(state, raw_input, context, result=results, default=results)
        states._apply_state_assign(state, raw_input, context, result=results)
    else:
        selected = states._apply_result_selector(state, results)
        output = states._apply_output_path(state, states._apply_result_path(state, raw_input, selected), context)
    return output, states._next_or_end(state)


def map_items(_emulator: Emulator) -> None:
    """A failed item of an inline Map stops the others at once. Maps of the other language keep the emulator's way.

    The emulator waits for the others, which then complete: more permissive than AWS, and a failure is as late as the
    slowest of them.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(state: dict[str, Any], raw_input: Any, execution: Any, context: dict[str, Any]) -> Any:
            processor = state.get("ItemProcessor") or {}
            distributed = (processor.get("ProcessorConfig") or {}).get("Mode") == "DISTRIBUTED"
            if distributed or "Items" not in state or not is_jsonata(state, context):
                return original(state, raw_input, execution, context)
            return _run_items(state, processor, raw_input, execution, context)

        return run

    replace(states, "_run_map_items", make)


def _run_items(
    state: dict[str, Any], processor: dict[str, Any], raw_input: Any, execution: Any, context: dict[str, Any]
) -> Any:
    items: list[Any] = states._jsonata_state_field(state, "Items", "array", raw_input, context)
    limit = state.get("MaxConcurrency", 0)
    if isinstance(limit, str):
        limit = states._jsonata_state_field(state, "MaxConcurrency", "number", raw_input, context)
    at_once = int(limit) or len(items)

    def run_item(numbered: tuple[int, Any]) -> Any:
        index, item = numbered
        inner = copy.deepcopy(context)
        inner["Map"] = {"Item": {"Index": index, "Value": item}}
        selector = state.get("ItemSelector")
        data = states._apply_jsonata_template(selector, raw_input, inner) if selector else item
        return states._run_sub_machine(processor["States"], processor["StartAt"], data, execution, inner)

    numbered = list(enumerate(items))
    results = _SideBySide(run_item, numbered, at_once=at_once, error="States.MapFailed").run()
    output = states._apply_jsonata_output(state, raw_input, context, result=results, default=results)
    states._apply_state_assign(state, raw_input, context, result=results)
    return output, states._next_or_end(state)


class _SideBySide:
    """Tasks that run in parallel in one attempt of a state: all succeed, or the first failure stops the rest."""

    def __init__(self, run_one: Callable[[Any], Any], given: Sequence[Any], *, at_once: int, error: str) -> None:
        self._run_one = run_one
        self._given = given
        self._at_once = at_once
        self._error = error
        self._results: list[Any] = [None] * len(given)
        self._failed = Halt()
        self._settled = threading.Condition()
        self._next = 0
        self._unfinished = len(given)
        self._failure: Exception | None = None

    def run(self) -> list[Any]:
        """Run everything, each in a thread, and return the results in order.

        Raises:
            HaltedError: If the execution, or the branch around all this, ended.
            _ExecutionError: The first failure.
        """
        for _ in range(min(self._at_once, len(self._given))):
            within = contextvars.copy_context()
            threading.Thread(target=within.run, args=(self._work,), daemon=True).start()
        with self._settled:
            self._settled.wait_for(lambda: self._unfinished == 0 or self._failure is not None)
        if isinstance(self._failure, states._ExecutionError | HaltedError):
            raise self._failure
        if self._failure is not None:
            raise states._ExecutionError(self._error, str(self._failure))
        return self._results

    def _work(self) -> None:
        halts.set((*halts.get(), self._failed))
        while (index := self._take()) is not None:
            failure: Exception | None = None
            try:
                check_halts()
                self._results[index] = self._run_one(self._given[index])
            except Exception as error:  # noqa: BLE001 - raised again by the thread that waits
                failure = error
            self._settle(failure)

    def _take(self) -> int | None:
        with self._settled:
            index, self._next = self._next, self._next + 1
        return index if index < len(self._given) else None

    def _settle(self, failure: Exception | None) -> None:
        with self._settled:
            self._unfinished -= 1
            if failure is not None and self._failure is None:
                self._failure = failure
                self._failed.set()
            self._settled.notify_all()


CORRECTIONS: Final[tuple[Correction, ...]] = (
    parallel_branches,
    map_items,
)
