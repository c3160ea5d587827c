"""Properties of a deployed saga from its state machines: its log, its steps."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.saga.asl.ending import SETTLE_COMPLETED
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import CallField, LogAttribute, ProviderField, Side
from saga_runtime.recovery.resolution import DeclaredStep
from saga_runtime.shared.arns import machine_of

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

_ROW_NAME: Final = re.compile(r'^(?:\{%\s*")?([A-Z][A-Za-z0-9]{0,39})(?:\["\s*&.*)?$', re.DOTALL)
"""A row's sort key in a definition: a step's name, or an expression of it and an item's key."""
_MOST_MACHINES: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedStep:
    """A step, as the deployed definition has it.

    Attributes:
        name: its name.
        in_map: whether it runs once per item, and has a row for each.
        declared: what a person's statement about it depends on; None for a step without a function.
    """

    name: str
    in_map: bool
    declared: DeclaredStep | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedSaga:
    """Properties from the deployed definitions.

    Attributes:
        log_table: the saga log.
        log_days: how long its rows are kept; None if no function is configured with it.
        steps: by name, in order.
        has_jobs: whether a step may be applied late: a provider works on it and reports later.
    """

    log_table: str
    log_days: int | None
    steps: Mapping[str, DeployedStep]
    has_jobs: bool = False


def read_definitions(step_functions: SFNClient, record: RequestRecord) -> list[dict[str, Any]]:
    """Definitions of a saga's machines, those of its phases included; the forward machine's first.

    Raises:
        ClientError: if the saga's own machines cannot be described. A machine that only a step names is left out then:
            it may belong to another saga.
    """
    from botocore.exceptions import ClientError

    own = [machine_of(record.execution_arn), record.recovery_machine_arn]
    ahead, known = list(own), set(own)
    found: list[dict[str, Any]] = []
    while ahead and len(found) < _MOST_MACHINES:
        arn = ahead.pop(0)
        try:
            described = step_functions.describe_state_machine(stateMachineArn=arn)
        except ClientError:
            if arn in own:
                raise
            continue
        definition: dict[str, Any] = json.loads(described["definition"])
        found.append(definition)
        for named in _named_machines(definition):
            if named not in known:
                known.add(named)
                ahead.append(named)
    return found


def deployed_saga(definitions: list[dict[str, Any]], log_table: str | None = None) -> DeployedSaga | None:
    """Read definitions.

    Args:
        definitions: as read, those of the saga itself first.
        log_table: the saga log, if it is known already.

    Returns:
        None if they name no saga log.
    """
    table = log_table or _log_table(definitions)
    if table is None:
        return None
    steps: dict[str, DeployedStep] = {}
    for definition in definitions:
        for step in _steps(definition, table):
            there = steps.get(step.name)
            if there is None or (there.declared is None and step.declared is not None):
                steps[step.name] = step
    states = [state for definition in definitions for state in _states(definition)]
    jobs = any(CallField.TOKEN in _payload(s) and CallField.PROVIDER in _payload(s) for s in states)
    days = [step.declared.log_days for step in steps.values() if step.declared is not None]
    return DeployedSaga(log_table=table, log_days=min(days, default=None), steps=steps, has_jobs=jobs)


def always_taken(definition: Mapping[str, Any], log_table: str) -> frozenset[str]:
    """Steps of a forward machine without which no way leads to its completion, and that leave a row.

    Steps in branches, items and phases are left out: of those nothing is claimed.

    Args:
        definition: of the forward machine.
        log_table: the saga log.
    """
    states: Mapping[str, Mapping[str, Any]] = definition.get("States", {})
    of_step: dict[str, set[str]] = {}
    for name, state in states.items():
        if "Branches" not in state and "ItemProcessor" not in state:
            for step in _steps({"States": {name: state}}, log_table):
                of_step.setdefault(step.name, set()).add(name)
    first = str(definition.get("StartAt", ""))
    if not _completes(states, first, without=()):
        return frozenset()  # of another form than any that is known
    return frozenset(step for step, names in of_step.items() if not _completes(states, first, without=names))


def _completes(states: Mapping[str, Mapping[str, Any]], first: str, *, without: Collection[str]) -> bool:
    """Test whether a way leads from a state to the completion that enters none of some states."""
    ahead, seen = [first], set(without)
    while ahead:
        name = ahead.pop()
        if name in seen or name not in states:
            continue
        if name == SETTLE_COMPLETED:
            return True
        seen.add(name)
        state = states[name]
        ahead += [str(state[key]) for key in ("Next", "Default") if key in state]
        ahead += [str(rule["Next"]) for key in ("Choices", "Catch") for rule in state.get(key, ()) if "Next" in rule]
    return False


def _log_table(definitions: list[dict[str, Any]]) -> str | None:
    """The table in the functions' events, or that the state machine queries before it settles."""
    asked: str | None = None
    for definition in definitions:
        for state in _states(definition):
            told = _payload(state).get(CallField.LOG_TABLE)
            if isinstance(told, str):
                return told
            arguments = state.get("Arguments")
            if str(state.get("Resource", "")).endswith(":dynamodb:query") and isinstance(arguments, Mapping):
                names = arguments.get("ExpressionAttributeNames", {})
                if isinstance(names, Mapping) and LogAttribute.SAGA_ID in names.values():
                    asked = asked or arguments.get("TableName")
    return asked


def _states(flow: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for state in flow.get("States", {}).values():
        yield state
        for branch in state.get("Branches", ()):
            yield from _states(branch)
        if "ItemProcessor" in state:
            yield from _states(state["ItemProcessor"])


def _payload(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Event of a function, or message with a token."""
    arguments = state.get("Arguments")
    if not isinstance(arguments, Mapping):
        return {}
    payload = arguments.get("Payload", arguments.get("MessageBody"))
    return payload if isinstance(payload, Mapping) else {}


def _named_machines(definition: Mapping[str, Any]) -> Iterator[str]:
    for state in _states(definition):
        arguments = state.get("Arguments")
        arn = arguments.get("StateMachineArn") if isinstance(arguments, Mapping) else None
        if isinstance(arn, str) and arn.startswith("arn:"):
            yield arn


def _steps(definition: Mapping[str, Any], table: str) -> Iterator[DeployedStep]:
    for state in _states(definition):
        payload = _payload(state)
        if payload.get(CallField.LOG_TABLE) == table and CallField.STEP in payload:
            yield _called(payload)
            continue
        arguments = state.get("Arguments")
        for entry in arguments.get("TransactItems", ()) if isinstance(arguments, Mapping) else ():
            put = entry.get("Put", {}) if isinstance(entry, Mapping) else {}
            if put.get("TableName") == table:
                named = _ROW_NAME.match(str(put.get("Item", {}).get(LogAttribute.STEP, {}).get("S", "")))
                if named is not None:
                    in_map = named.group(0) != named.group(1)
                    yield DeployedStep(name=named.group(1), in_map=in_map, declared=None)


def _called(payload: Mapping[str, Any]) -> DeployedStep:
    f = CallField
    provider = payload.get(f.PROVIDER)
    grace = provider.get(ProviderField.GRACE) if isinstance(provider, Mapping) else 0
    side, days = payload.get(f.SIDE), payload.get(f.LOG_DAYS)
    declared = None
    if side in set(Side) and isinstance(days, int) and isinstance(grace, int):
        declared = DeclaredStep(side=Side(side), external=provider is not None, grace_ms=grace * 1_000, log_days=days)
    return DeployedStep(name=str(payload[f.STEP]), in_map=f.ITEM_KEY in payload, declared=declared)
