"""Failures of states, and the names that match them.

Sources: Amazon States Language, "Errors"; the Step Functions guide's "Handling errors"; for a lost heartbeat the
recordings of AWS, in which history and error have ``States.Timeout``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

ALL: Final = "States.ALL"
TASK_FAILED: Final = "States.TaskFailed"
TIMEOUT: Final = "States.Timeout"
HEARTBEAT: Final = "States.HeartbeatTimeout"
QUERY: Final = "States.QueryEvaluationError"
DATA_LIMIT: Final = "States.DataLimitExceeded"
RUNTIME: Final = "States.Runtime"


class StateFailedError(Exception):
    """A state failed.

    Attributes:
        error: name of the error.
        cause: what is known of it.
        heartbeat: whether it is a heartbeat that was lost.
        final: whether neither Retry nor Catch sees it.
    """

    def __init__(self, error: str, cause: str = "", *, heartbeat: bool = False, final: bool = False) -> None:
        super().__init__(f"{error}: {cause}")
        self.error = error
        self.cause = cause
        self.heartbeat = heartbeat
        self.final = final


def matching(
    rules: Sequence[Mapping[str, Any]] | None,
    failure: StateFailedError,
    *,
    heartbeat_matched: bool,
    limit_matched: bool = False,
) -> Mapping[str, Any] | None:
    """The first rule of a Retry or Catch that matches a failure.

    Args:
        rules: of the definition.
        failure: what happened.
        heartbeat_matched: whether ``States.HeartbeatTimeout`` matches a lost heartbeat.
        limit_matched: whether wildcards match ``States.DataLimitExceeded``.
    """
    if failure.final:
        return None
    for rule in rules or ():
        if any(_matches(name, failure, heartbeat_matched, limit_matched) for name in rule["ErrorEquals"]):
            return rule
    return None


def _matches(name: str, failure: StateFailedError, heartbeat_matched: bool, limit_matched: bool) -> bool:
    if name == failure.error:
        return True
    never = failure.error == RUNTIME or (failure.error == DATA_LIMIT and not limit_matched)
    if name == ALL:
        return not never
    if name == TASK_FAILED:
        return not never and failure.error != TIMEOUT
    return name == HEARTBEAT and failure.heartbeat and heartbeat_matched


def delay_of(rule: Mapping[str, Any], retries: int, drawn: float) -> float:
    """Seconds before a retry.

    Args:
        rule: the Retry's rule.
        retries: how often it was used before.
        drawn: a random number in [0, 1), for jitter.
    """
    delay = float(rule.get("IntervalSeconds", 1)) * float(rule.get("BackoffRate", 2.0)) ** retries
    delay = min(delay, float(rule.get("MaxDelaySeconds", delay)))
    return delay * drawn if rule.get("JitterStrategy") == "FULL" else delay
