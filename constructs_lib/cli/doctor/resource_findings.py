"""Findings about what a stack consists of: who looks, and what is switched off, or full. Pure: data in, data out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from constructs_lib.cli.doctor.findings import Finding, Kind, Repair, Severity
from constructs_lib.cli.doctor.stack import Queue, System
from constructs_lib.cli.shared.manifest import DeployedRule
from constructs_lib.cli.shared.moments import moment
from constructs_lib.shared.manifest_format import QueueRole


def part_findings(
    system: System, more: Sequence[str] = (), *, parked: Mapping[str, int] | None = None
) -> Iterator[Finding]:
    """Findings about the resources themselves, whatever their sagas do.

    Args:
        system: what was found of them.
        more: options that every command needs: those by which this account and region were found.
        parked: numbers of parked sagas by the URL of their operators' queue.
    """
    for one in (*_nobody_looks(system), *_switched_off(system), *_full(system, parked or {})):
        yield replace(one, command=f"{one.command} {shlex.join(more)}") if one.command and more else one


def _nobody_looks(system: System) -> Iterator[Finding]:
    for function in system.unscheduled:
        yield _of_person(
            Kind.NOT_MONITORED,
            function,
            f"no schedule of the stack calls {_role(system, function)}: it never looks",
            "deploy its schedule again",
        )
    for saga in system.sagas:
        if not saga.has_reconciler:
            yield _of_person(
                Kind.NOT_MONITORED,
                saga.served.machine,
                "no reconciler serves this saga: what is interrupted stays so",
                "add a TimeoutReconciler for it to its stack; if another stack has one, name that, too, with --stack",
            )


def _switched_off(system: System) -> Iterator[Finding]:
    for function in system.manifest.functions:
        if function in system.at_zero:
            yield _of_person(
                Kind.THROTTLED,
                function,
                f"{_role(system, function)} has a reserved concurrency of 0: it never runs",
                "give it some, or take the reservation away",
                "aws",
                "lambda",
                "delete-function-concurrency",
                "--function-name",
                function,
            )
        switch = system.switches.get(function)
        if switch is not None and switch.held is not None:
            # Which of several stacks has this reconciler is not known, and the others may be held on purpose.
            stacks = system.manifest.stacks
            release = ("cdk-sagas", "hold", "off", "--stack", *stacks) if len(stacks) == 1 else ()
            yield _of_person(
                Kind.HELD,
                function,
                f"it changes nothing since {moment(switch.held.since_ms)}: {switch.held.reason}",
                "release it when what it was held for is done"
                + ("" if release else ": cdk-sagas hold off --stack NAME"),
                *release,
            )
    for rule in system.manifest.rules:
        if rule in system.disabled:
            yield _disabled(system, rule)
    for source in system.unread:
        yield _of_person(
            Kind.SOURCE_DISABLED,
            source.queue,
            f"nothing hands the messages of this queue to {_role(system, source.function)}",
            "enable it",
            "aws",
            "lambda",
            "update-event-source-mapping",
            "--enabled",
            "--uuid",
            source.uuid,
        )


def _disabled(system: System, rule: DeployedRule) -> Finding:
    whom = _role(system, rule.function) if rule.function else "a queue of the stack"
    what = f"the schedule by which {whom} should {'measure' if rule.measures else 'look'} is disabled"
    if not rule.scheduled:
        what = f"the rule that notifies {whom} is disabled"
    bus = ["--event-bus-name", rule.bus] if rule.bus else []
    return _of_person(
        Kind.RULE_DISABLED, rule.name, what, "enable it", "aws", "events", "enable-rule", "--name", rule.name, *bus
    )


def _full(system: System, parked: Mapping[str, int]) -> Iterator[Finding]:
    for queue in system.queues:
        if not queue.messages:
            continue
        role = system.manifest.dead_letters.get(queue.url)
        if role is not None:
            yield _dead_letters(system, queue, role)
            continue
        sagas = parked.get(queue.url, 0)
        # Parked sagas are findings of their own: the queue is not their list.
        more = queue.messages > sagas
        then = "--repair deletes those about sagas that are not parked any more; read the others, then delete them"
        words = ["aws", "sqs", "receive-message", "--max-number-of-messages", "10", "--queue-url", queue.url]
        yield Finding(
            kind=Kind.FOR_OPERATORS,
            severity=Severity.REPAIR if more else Severity.OK,
            id=queue.name,
            what=f"{_entries(queue.messages)}, and {sagas} of its sagas are parked",
            then=then if more else "nothing: --repair deletes them when their sagas are resolved",
            command=shlex.join(words) if more else "",
            repair=Repair.CLEAR,
            table=queue.url,
        )


def _dead_letters(system: System, queue: Queue, role: QueueRole) -> Finding:
    what = f"{_entries(queue.messages)} that could not be delivered or handled"
    if role is QueueRole.JOBS:
        stacks = [word for stack in system.manifest.stacks for word in ("--stack", stack)]
        words = ["cdk-sagas", "callbacks", *stacks]
        return _of_person(Kind.DEAD_LETTERS, queue.name, what, "see what they are, and have them tried again", *words)
    if role is QueueRole.EVENTS:
        words = ["aws", "sqs", "purge-queue", "--queue-url", queue.url]
        then = "status events: find out why they failed, then delete them; a check finds their sagas without them"
        return _of_person(Kind.DEAD_LETTERS, queue.name, what, then, *words)
    words = ["aws", "sqs", "start-message-move-task", "--source-arn", queue.arn]
    return _of_person(Kind.DEAD_LETTERS, queue.name, what, "fix why they failed, then redrive them", *words)


def _entries(count: int) -> str:
    return "one message" if count == 1 else f"{count} messages"


def _role(system: System, function: str) -> str:
    """Name by which operators know a function."""
    return system.manifest.functions.get(function) or f"the function {function}"


def _of_person(kind: Kind, id: str, what: str, then: str, *command: str) -> Finding:
    return Finding(kind=kind, severity=Severity.OPERATOR, id=id, what=what, then=then, command=shlex.join(command))
