"""Report of what went wrong on local AWS.

Functions that raised or timed out, executions that failed, sagas that are parked or in progress, dead letters, and
faults that did not fire.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from saga_runtime.protocol import LogAttribute, RecordAttribute, RecordStatus

if TYPE_CHECKING:
    from constructs_lib.testing.local_aws import LocalAws
    from constructs_lib.testing.names import DeployedResource

_MOST: Final = 5
"""Findings of a kind that are shown."""
_CAUSE: Final = 600
_TRACE: Final = "Traceback (most recent call last)"
_TIMED_OUT: Final = re.compile(r"Lambda (\S+) timed out after ")
_LIBRARY: Final = re.compile(r"/(site-packages|saga_runtime|python3\.\d+)/|/_worker\.py")
_CODE_FOLDER: Final = re.compile(r'File "[^"]*/code/')
_UNSUCCESSFUL: Final = ("FAILED", "TIMED_OUT", "ABORTED")
_MACHINE: Final = "AWS::StepFunctions::StateMachine"
_TABLES: Final = {"AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable"}
_QUEUE: Final = "AWS::SQS::Queue"

Section = Callable[["LocalAws", str | None], Iterator[str]]


def explain(aws: LocalAws, saga_id: str | None = None) -> str:
    """Explain what went wrong since the last reset, or state the status of one saga.

    Args:
        aws: local AWS.
        saga_id: only what belongs to this saga; everything by default. Functions' logs and messages name none.

    Returns:
        Lines for a person, without an end of line; empty if nothing went wrong, and nothing is in progress.
    """
    sections: dict[str, Section] = {
        "functions that raised": _raised,
        "functions that timed out": _timed_out,
        "executions that did not succeed": _failed,
        "sagas" if saga_id is not None else "parked sagas": _sagas,
        "sagas in progress": _in_progress,
        "dead letters": _dead_letters,
        "faults that did not fire": _silent_faults,
    }
    found: list[str] = []
    for title, section in sections.items():
        lines = list(section(aws, saga_id))
        if lines:
            found += [f"{title}:", *(f"  {line}" for text in lines for line in text.splitlines())]
    return "\n".join(found)


def _raised(aws: LocalAws, _: str | None) -> Iterator[str]:
    for function in aws.functions():
        seen: dict[str, int] = {}
        for log in aws.function_logs(function.name):
            for trace in _traces(log.text):
                seen[trace] = seen.get(trace, 0) + 1
        for trace, times in list(seen.items())[:_MOST]:
            yield f"{_named(function)}{f', {times} times' if times > 1 else ''}:\n{trace}"


def _timed_out(aws: LocalAws, _: str | None) -> Iterator[str]:
    times = Counter(_TIMED_OUT.findall(aws.emulator_log(since_reset=True)))
    for function in aws.functions():
        if (count := times[function.name]) > 0:
            yield f"{_named(function)}{f', {count} times' if count > 1 else ''}"


def _traces(text: str) -> Iterator[str]:
    """The frames of the user's own code, and the error, of each traceback."""
    for document in _documents(text):
        lines = document[document.index(_TRACE) :].splitlines()
        frames: list[str] = []
        error = ""
        for number, line in enumerate(lines[1:], start=1):
            if line.startswith("  File ") and not _LIBRARY.search(line):
                frames += [_CODE_FOLDER.sub('File "', line), *([lines[number + 1]] if number + 1 < len(lines) else [])]
            elif line and not line.startswith(" "):
                error = line
                break
        yield "\n".join([*frames, f"  {error}"])


def _documents(text: str) -> Iterator[str]:
    """Texts with a traceback: of a log event of Powertools its member, else the lines as they are."""
    plain: list[str] = []
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            plain.append(line)
            continue
        for member in ("exception", "stackTrace"):
            value = event.get(member) if isinstance(event, Mapping) else None
            if isinstance(value, str) and _TRACE in value:
                yield value
    rest = "\n".join(plain)
    while _TRACE in rest:
        rest = rest[rest.index(_TRACE) :]
        yield rest
        rest = rest[len(_TRACE) :]


def _failed(aws: LocalAws, saga_id: str | None) -> Iterator[str]:
    client = aws.client("stepfunctions")
    for machine in _of(aws, {_MACHINE}):
        shown = 0
        for status in _UNSUCCESSFUL:
            try:
                executions = client.list_executions(stateMachineArn=machine.physical_id, statusFilter=status)
            except client.exceptions.ClientError:
                break  # an Express machine keeps no history
            for execution in executions["executions"]:
                if shown == _MOST or (saga_id is not None and not execution["name"].startswith(saga_id)):
                    continue
                shown += 1
                yield f"{_named(machine)} {execution['name']} {_ending(client, execution['executionArn'])}"


def _ending(client: Any, arn: str) -> str:
    described = client.describe_execution(executionArn=arn)
    history = client.get_execution_history(executionArn=arn, reverseOrder=True, maxResults=100)
    entered = (event.get("stateEnteredEventDetails", {}).get("name") for event in history["events"])
    state = next((name for name in entered if name), "its first state")
    cause = " ".join(str(described.get("cause", "")).split())[:_CAUSE]
    return f"{described['status']} at {state}: {described.get('error', 'no error')} {cause}".rstrip()


def _sagas(aws: LocalAws, saga_id: str | None) -> Iterator[str]:
    a, row = RecordAttribute, LogAttribute
    shown = 0
    for item in _items(aws):
        if a.SAGA_ID not in item or shown == _MOST:
            continue
        own = item[a.SAGA_ID].get("S") == saga_id
        if own and row.STEP in item:
            yield f"step {item[row.STEP]['S']}: {item[row.STATUS]['S']}"
        elif a.SCOPE in item and (own or (saga_id is None and a.PARKED_AT in item)):
            shown += 1
            yield f"{item[a.SAGA_ID]['S']}: {item[a.STATUS]['S']}{_why(item)}"


def _why(item: Mapping[str, Any]) -> str:
    a = RecordAttribute
    why = [f"{name} {item[name].get('S', '')[:_CAUSE]}" for name in (a.PARKED_REASON, a.FAILURE) if name in item]
    return "".join([", parked" if a.PARKED_AT in item else "", *(f", {text}" for text in why)])


def _in_progress(aws: LocalAws, saga_id: str | None) -> Iterator[str]:
    a, row = RecordAttribute, LogAttribute
    steps: dict[str, list[str]] = {}
    sagas: list[str] = []
    for item in _items(aws) if saga_id is None else ():
        saga = item.get(a.SAGA_ID, {}).get("S", "")
        if row.STEP in item:
            steps.setdefault(saga, []).append(f"{item[row.STEP]['S']} {item[row.STATUS]['S']}")
        elif a.SCOPE in item and item[a.STATUS]["S"] == RecordStatus.IN_PROGRESS and a.PARKED_AT not in item:
            sagas.append(saga)
    for saga in sagas[:_MOST]:
        yield f"{saga}: {', '.join(steps.get(saga, ['no step has a row']))}"


def _items(aws: LocalAws) -> Iterator[Mapping[str, Any]]:
    client = aws.client("dynamodb")
    for table in _of(aws, _TABLES):
        for page in client.get_paginator("scan").paginate(TableName=table.name):
            yield from page["Items"]


def _dead_letters(aws: LocalAws, _: str | None) -> Iterator[str]:
    client = aws.client("sqs")
    queues = _of(aws, {_QUEUE})
    attributes = {
        queue.physical_id: client.get_queue_attributes(QueueUrl=queue.physical_id, AttributeNames=["All"])["Attributes"]
        for queue in queues
    }
    dead = {
        json.loads(one["RedrivePolicy"])["deadLetterTargetArn"] for one in attributes.values() if "RedrivePolicy" in one
    }
    for queue in queues:
        of_it = attributes[queue.physical_id]
        number = int(of_it.get("ApproximateNumberOfMessages", 0))
        if number and of_it["QueueArn"] in dead:
            yield f"{_named(queue)}: {number}"


def _silent_faults(aws: LocalAws, _: str | None) -> Iterator[str]:
    for planned in aws.faults.report().not_fired:
        yield str(planned)


def _of(aws: LocalAws, types: set[str]) -> list[DeployedResource]:
    return [resource for resource in aws.resources() if resource.type in types]


def _named(resource: DeployedResource) -> str:
    return resource.path.removesuffix("/Resource") or f"{resource.stack}/{resource.logical_id}"
