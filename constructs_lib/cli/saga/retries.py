"""Tasks of a running execution that failed and are retried: attempts, last error, next attempt."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from constructs_lib.saga.asl.nested import states_of
from saga_runtime.shared.aws import error_code

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient


_NEWEST: Final = 500
"""Events of a history that are read: enough for the retries of a hundred tasks at once."""
_FAILED: Final = {
    "TaskFailed": "taskFailedEventDetails",
    "TaskStartFailed": "taskStartFailedEventDetails",
    "TaskSubmitFailed": "taskSubmitFailedEventDetails",
    "TaskTimedOut": "taskTimedOutEventDetails",
    "LambdaFunctionFailed": "lambdaFunctionFailedEventDetails",
    "LambdaFunctionTimedOut": "lambdaFunctionTimedOutEventDetails",
}
_ANY: Final = frozenset({"States.ALL", "States.TaskFailed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """A task that failed at least once since its state was entered, and has not succeeded.

    Attributes:
        state: its state.
        failed: attempts that failed; at least so many, if the history is long.
        error, cause: of the last one.
        first_at, last_at: of the first failure that is known, and of the last; epoch milliseconds.
        next_by: when it is tried again at the latest, epoch milliseconds; None: it runs, or is not retried.
        runs: whether its next attempt runs.
    """

    state: str
    failed: int
    error: str
    cause: str
    first_at: int
    last_at: int
    next_by: int | None
    runs: bool


def read_retries(step_functions: SFNClient, execution_arn: str) -> list[Retrying]:
    """Read the retried tasks of a running execution; empty if there is no such execution.

    Raises:
        ClientError: its history or its definition may not be read.
    """
    try:
        history: Any = step_functions.get_execution_history(
            executionArn=execution_arn, reverseOrder=True, maxResults=_NEWEST, includeExecutionData=True
        )
        events = history["events"]
        if not any(event["type"] in _FAILED for event in events):
            return []
        described = step_functions.describe_state_machine_for_execution(executionArn=execution_arn)
    except ClientError as error:
        if error_code(error) != "ExecutionDoesNotExist":
            raise
        return []
    return retries_of(events, json.loads(described["definition"]))


def retries_of(events: Sequence[Mapping[str, Any]], definition: Mapping[str, Any]) -> list[Retrying]:
    """Tasks that are retried, the longest first.

    Args:
        events: of a history, in any order.
        definition: that the execution runs.
    """
    states = dict(states_of(definition))
    by_id = {int(event["id"]): event for event in events}
    # Branches and items interleave; each event names the one before it in its own branch.
    earlier = {int(event.get("previousEventId", 0)) for event in events}
    found = []
    for number, head in by_id.items():
        if number in earlier:
            continue
        chain = list(_chain(head, by_id))
        failures = [event for event in chain if event["type"] in _FAILED]
        state = chain[-1].get("stateEnteredEventDetails", {}).get("name", "")
        if not failures or not state:
            continue
        details = [event.get(_FAILED[event["type"]], {}) for event in failures]
        waits, last_at = head["type"] in _FAILED, _ms(failures[0])
        delay = _delay(states.get(state, {}), [_error(one) for one in details]) if waits else None
        found.append(
            Retrying(
                state=state,
                failed=len(failures),
                error=_error(details[0]),
                cause=str(details[0].get("cause", "")),
                first_at=_ms(failures[-1]),
                last_at=last_at,
                next_by=last_at + delay if delay is not None else None,
                runs=not waits,
            )
        )
    return sorted(found, key=lambda one: (one.first_at, one.state))


def _chain(event: Mapping[str, Any], by_id: Mapping[int, Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """An event and those before it, up to where its state was entered, as far as they are known."""
    current: Mapping[str, Any] | None = event
    while current is not None:
        yield current
        if current["type"].endswith("StateEntered"):
            return
        current = by_id.get(int(current.get("previousEventId", 0)))


def _error(details: Mapping[str, Any]) -> str:
    return str(details.get("error", "States.Timeout"))


def _ms(event: Mapping[str, Any]) -> int:
    return int(event["timestamp"].timestamp() * 1_000)


def _delay(state: Mapping[str, Any], errors: Sequence[str]) -> int | None:
    """Longest time until the next attempt, milliseconds; None without one.

    Args:
        state: as the definition has it.
        errors: of its attempts, the last first.
    """
    retriers = state.get("Retry", ())
    mine = _retrier(retriers, errors[0])
    if mine is None:
        return None
    attempts = sum(_retrier(retriers, error) is mine for error in errors)
    if attempts > mine.get("MaxAttempts", 3):
        return None
    seconds = mine.get("IntervalSeconds", 1) * mine.get("BackoffRate", 2.0) ** (attempts - 1)
    return int(min(seconds, mine.get("MaxDelaySeconds", seconds)) * 1_000)


def _retrier(retriers: Sequence[Mapping[str, Any]], error: str) -> Mapping[str, Any] | None:
    return next((one for one in retriers if error in one["ErrorEquals"] or _ANY & set(one["ErrorEquals"])), None)
