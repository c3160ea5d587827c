"""Findings about what a stack consists of: who looks, and what is switched off, or full. Pure: data in, data out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from constructs_lib.cli.doctor.findings import Finding, Kind, Severity
from constructs_lib.cli.doctor.system import Function, Queue, Rule, System
from constructs_lib.cli.shared.moments import moment
from saga_runtime.protocol import Env


def part_findings(system: System, more: Sequence[str] = ()) -> Iterator[Finding]:
    """Findings about the resources themselves, whatever their sagas do.

    Args:
        system: what was found of them.
        more: options that every command needs: those by which this account and region were found.
    """
    for one in (*_nobody_looks(system), *_switched_off(system), *_full(system)):
        yield replace(one, command=f"{one.command} {shlex.join(more)}") if one.command and more else one


def _nobody_looks(system: System) -> Iterator[Finding]:
    for function in system.unscheduled:
        yield _of_person(
            Kind.NOT_MONITORED,
            function.name,
            f"no schedule of the stack calls {_role(function)}: it never looks",
            "deploy its schedule again",
        )
    if not system.functions or not system.functions_known:
        return  # only tables were named; or who is a reconciler may not be asked
    for saga in system.sagas:
        if not saga.has_reconciler:
            yield _of_person(
                Kind.NOT_MONITORED,
                saga.served.machine,
                "no reconciler serves this saga: what is interrupted stays so",
                "add a TimeoutReconciler for it to its stack; if another stack has one, name that, too, with --stack",
            )


def _switched_off(system: System) -> Iterator[Finding]:
    for function in system.functions:
        if function.at_zero:
            yield _of_person(
                Kind.THROTTLED,
                function.name,
                f"{_role(function)} has a reserved concurrency of 0: it never runs",
                "give it some, or take the reservation away",
                "aws",
                "lambda",
                "delete-function-concurrency",
                "--function-name",
                function.name,
            )
        if function.switch is not None and function.switch.held is not None:
            held = function.switch.held
            # Which of several stacks has this reconciler is not known, and the others may be held on purpose.
            release = ("cdk-sagas", "hold", "off", "--stack", *system.stacks) if len(system.stacks) == 1 else ()
            yield _of_person(
                Kind.HELD,
                function.name,
                f"it changes nothing since {moment(held.since_ms)}: {held.reason}",
                "release it when what it was held for is done"
                + ("" if release else ": cdk-sagas hold off --stack NAME"),
                *release,
            )
    ours = {function.arn: function for function in system.functions}
    queues = {queue.arn for queue in system.queues}
    for rule in system.rules:
        called = [ours[target] for target in rule.targets if target in ours]
        if not rule.enabled and (called or queues.intersection(rule.targets)):
            yield _disabled(rule, called)
    for source in system.sources:
        if not source.enabled:
            name = source.queue.rpartition(":")[2]
            reader = ours.get(source.function)
            yield _of_person(
                Kind.SOURCE_DISABLED,
                name,
                f"nothing hands the messages of this queue to {_role(reader) if reader else 'its function'}",
                "enable it",
                "aws",
                "lambda",
                "update-event-source-mapping",
                "--enabled",
                "--uuid",
                source.uuid,
            )


def _disabled(rule: Rule, called: list[Function]) -> Finding:
    whom = ", ".join(_role(function) for function in called) or "a queue of the stack"
    bus = ["--event-bus-name", rule.bus] if rule.bus else []
    called_for = "look" if rule.looks else "measure"
    what = f"the schedule by which {whom} should {called_for} is disabled"
    if not rule.scheduled:
        what = f"the rule that notifies {whom} is disabled"
    return _of_person(
        Kind.RULE_DISABLED, rule.name, what, "enable it", "aws", "events", "enable-rule", "--name", rule.name, *bus
    )


def _full(system: System) -> Iterator[Finding]:
    ends = {queue.ends_in for queue in system.queues} | {arn for rule in system.rules for arn in rule.dead_letters}
    ends |= {function.ends_in for function in system.functions}
    operators = {saga.served.operators for saga in system.sagas}
    for queue in system.queues:
        if not queue.messages:
            continue
        if queue.url in operators:
            yield _of_person(
                Kind.FOR_OPERATORS,
                queue.name,
                f"{_entries(queue.messages)} about parked sagas",
                "read them; see to each saga, then delete its entry",
                "aws",
                "sqs",
                "receive-message",
                "--max-number-of-messages",
                "10",
                "--queue-url",
                queue.url,
            )
        elif queue.arn in ends:
            yield _dead_letters(system, queue)


def _dead_letters(system: System, queue: Queue) -> Finding:
    what = f"{_entries(queue.messages)} that could not be delivered or handled"
    tokens = {
        function.environment[Env.TOKEN_TABLE]
        for function in system.functions
        if function.environment.get(Env.DEAD_LETTERS) == queue.url and Env.TOKEN_TABLE in function.environment
    }
    if tokens:
        words = ["cdk-sagas", "callbacks", "--tokens", min(tokens), "--dead-letters", queue.url]
        return _of_person(Kind.DEAD_LETTERS, queue.name, what, "see what they are, and have them tried again", *words)
    readers = {function.arn for function in system.reconcilers}
    events = {source.queue for source in system.sources if source.function in readers}
    if any(other.ends_in == queue.arn and other.arn in events for other in system.queues):
        words = ["aws", "sqs", "purge-queue", "--queue-url", queue.url]
        then = "status events: find out why they failed, then delete them; a check finds their sagas without them"
        return _of_person(Kind.DEAD_LETTERS, queue.name, what, then, *words)
    words = ["aws", "sqs", "start-message-move-task", "--source-arn", queue.arn]
    return _of_person(Kind.DEAD_LETTERS, queue.name, what, "fix why they failed, then redrive them", *words)


def _entries(count: int) -> str:
    return "one message" if count == 1 else f"{count} messages"


def _role(function: Function) -> str:
    """Role of a function, from its environment."""
    environment = function.environment
    if Env.RECONCILED in environment:
        return "the reconciler"
    if Env.WATCH_TABLE in environment:
        return "the watch over state machines"
    if Env.DEAD_LETTERS in environment:
        return "the dispatcher of callbacks"
    if Env.TOKEN_TABLE in environment and Env.INTEGRATION not in environment:
        return "the sweeper of tokens"
    if Env.STATE_MACHINE_ARN in environment:
        return "the gatekeeper"
    return f"the function {function.name}"


def _of_person(kind: Kind, id: str, what: str, then: str, *command: str) -> Finding:
    return Finding(kind=kind, severity=Severity.OPERATOR, id=id, what=what, then=then, command=shlex.join(command))
