"""A deployed system as the doctor finds it: its parts, who looks, and what has been switched off, or is full."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from constructs_lib.cli.doctor.findings import Finding, Kind, Saga, Severity
from constructs_lib.cli.shared.manifest import DeployedRule, DeployedSource, Manifest, read_manifest
from constructs_lib.cli.shared.process import CommandError, moment
from constructs_lib.cli.shared.reads import Aws, all_of
from constructs_lib.cli.shared.saga import PLACEHOLDER
from constructs_lib.shared.manifest_format import QueueRole
from saga_runtime.recovery.hold import Held, hold_key
from saga_runtime.recovery.repairs import Repair

READ_ENTRIES: Final = (
    "read the others: those of parked sagas stay until these are resolved, the rest are to be acknowledged or deleted"
)
"""What to do about entries for operators that no repair deletes."""
_COUNTED: Final = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """The switch of one reconciler.

    Attributes:
        function: the reconciler.
        table: where the item is that holds it.
        held: since when, and why, it changes nothing; None: it may.
    """

    function: str
    table: str
    held: Held | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue, its ARN, and about how many messages it has, those that are being read included."""

    url: str
    arn: str
    messages: int

    @property
    def name(self) -> str:
        """Its name."""
        return self.arn.rpartition(":")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Resources to check. What could not be read is assumed to work: overdue records show the opposite.

    Attributes:
        manifest: what there is.
        sagas: those of it, and those of other stacks that its reconcilers serve.
        at_zero: functions whose reserved concurrency is 0: they never run.
        switches: what may hold the reconcilers, by function.
        gone: rules that do not exist any more.
        disabled: rules that are disabled.
        unread: event source mappings that are disabled.
        queues: that only operators read.
    """

    manifest: Manifest
    sagas: tuple[Saga, ...]
    at_zero: frozenset[str]
    switches: Mapping[str, Switch]
    gone: frozenset[DeployedRule]
    disabled: frozenset[DeployedRule]
    unread: tuple[DeployedSource, ...]
    queues: tuple[Queue, ...]

    @property
    def token_tables(self) -> tuple[str, ...]:
        """Those of its callbacks, whose sweeper may be in another stack."""
        manifest = self.manifest
        late = (table for served in manifest.served for table in served.tokens)
        return tuple(sorted({*manifest.sweepers, *(one.tokens for one in manifest.integrations), *late}))

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables that are checked."""
        requests = (saga.served.requests for saga in self.sagas)
        return (*requests, *self.token_tables, *(watch.table for watch in self.manifest.watches))

    @property
    def unscheduled(self) -> tuple[str, ...]:
        """Functions that should look by a schedule, and have none."""
        manifest = self.manifest
        looks = (
            *(one.function for one in manifest.reconcilers),
            *(one.function for one in manifest.watches),
            *manifest.sweepers.values(),
        )
        return tuple(function for function in looks if not set(schedules_of(manifest, function)) - self.gone)

    def integration_of(self, tokens: str) -> str:
        """Path of an integration with a token table, if a command has to name one; empty: the stack has just one."""
        several = len(self.manifest.integrations) > 1
        return next((one.path for one in self.manifest.integrations if several and one.tokens == tokens), "")

    def sweeps(self, tokens: str) -> bool:
        """Test whether a token table's sweeper works; one of another stack is assumed to."""
        function = self.manifest.sweepers.get(tokens)
        return function is None or runs(self.manifest, function, self.at_zero, self.gone | self.disabled)


def schedules_of(manifest: Manifest, function: str) -> list[DeployedRule]:
    """Schedules by which a function looks, and does not only measure."""
    return [rule for rule in manifest.rules if rule.scheduled and not rule.measures and rule.function == function]


def runs(manifest: Manifest, function: str, at_zero: frozenset[str], off: frozenset[DeployedRule]) -> bool:
    """Test whether a function runs by a schedule."""
    return function not in at_zero and bool(set(schedules_of(manifest, function)) - off)


def read_system(aws: Aws, names: Sequence[str]) -> System:
    """Read stacks: a saga and its reconciler may be in two.

    Raises:
        CommandError: if there is no such stack, it may not be described, or none has anything to check.
    """
    manifest = read_manifest(aws.client("cloudformation"), names)
    zeros = all_of(
        lambda one: aws.allowed(f"concurrency of function {one}", lambda: _at_zero(aws, one)), manifest.functions
    )
    at_zero = frozenset(name for name, zero in zip(manifest.functions, zeros, strict=True) if zero)
    states = all_of(lambda rule: aws.allowed(f"rule {rule.name}", lambda: _state(aws, rule)), manifest.rules)
    read = list(zip(manifest.rules, states, strict=True))
    gone = frozenset(rule for rule, state in read if state is None and not aws.is_unknown(f"rule {rule.name}"))
    disabled = frozenset(rule for rule, state in read if state == "DISABLED")
    sources = all_of(lambda one: aws.allowed(f"source {one.uuid}", lambda: _reads(aws, one)), manifest.sources)
    urls = dict.fromkeys([*manifest.dead_letters, *(one.operators for one in manifest.served if one.operators)])
    queues = all_of(lambda url: aws.allowed(f"queue {url}", lambda: _queue(aws, url)), urls)
    switches = {one.function: one for one in read_switches(aws, manifest)}
    system = System(
        manifest=manifest,
        sagas=_sagas(manifest, switches, at_zero, gone | disabled),
        at_zero=at_zero,
        switches=switches,
        gone=gone,
        disabled=disabled,
        unread=tuple(one for one, reads in zip(manifest.sources, sources, strict=True) if reads is False),
        queues=tuple(queue for queue in queues if queue is not None),
    )
    if not system.tables:
        raise CommandError(f"{manifest.said} must have a saga, got none; name the stack of a SagaStateMachine")
    return system


def _sagas(
    manifest: Manifest, switches: Mapping[str, Switch], at_zero: frozenset[str], off: frozenset[DeployedRule]
) -> tuple[Saga, ...]:
    """Every saga once: as its reconciler knows it, or else by its own entry."""
    said = {(one.served.requests, one.served.machine): one for one in manifest.sagas}
    found = {key: Saga(served=one.served, deployed=one) for key, one in said.items()}
    for one in manifest.reconcilers:
        for served in one.serves:
            key = (served.requests, served.machine)
            switch = switches.get(one.function)
            found[key] = Saga(
                served=served,
                deployed=said.get(key),
                limit=one.limit,
                has_reconciler=True,
                attended=runs(manifest, one.function, at_zero, off),
                held=switch is not None and switch.held is not None,
                hold=one.hold,
            )
    return tuple(found.values())


def read_switches(aws: Aws, manifest: Manifest, saga_id: str | None = None) -> list[Switch]:
    """Read the switches of all reconcilers, or those of one saga; those that may not be read are left out."""
    read = all_of(
        lambda one: aws.allowed(f"table {one.hold}", lambda: _switch(aws, one.function, one.hold, saga_id)),
        manifest.reconcilers,
    )
    return [switch for switch in read if switch is not None]


def _switch(aws: Aws, function: str, table: str, saga_id: str | None) -> Switch:
    item = aws.read(table, hold_key(saga_id))
    return Switch(function=function, table=table, held=Held.from_item(item) if item is not None else None)


def _at_zero(aws: Aws, function: str) -> bool:
    said = aws.client("lambda").get_function_concurrency(FunctionName=function)
    return bool(said.get("ReservedConcurrentExecutions") == 0)


def _state(aws: Aws, rule: DeployedRule) -> str:
    bus = {"EventBusName": rule.bus} if rule.bus else {}
    return str(aws.client("events").describe_rule(Name=rule.name, **bus).get("State", ""))


def _reads(aws: Aws, source: DeployedSource) -> bool:
    said = aws.client("lambda").get_event_source_mapping(UUID=source.uuid)
    return str(said.get("State")) not in ("Disabled", "Disabling")


def _queue(aws: Aws, url: str) -> Queue:
    """A queue, and how much is in it; nothing is received."""
    asked = ["QueueArn", *_COUNTED]
    said: Any = aws.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=asked)["Attributes"]
    return Queue(url=url, arn=said["QueueArn"], messages=sum(int(said.get(name, 0)) for name in _COUNTED))


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
        what = f"no schedule of the stack calls {_role(system, function)}: it never looks"
        yield _of_person(Kind.NOT_MONITORED, function, what, "deploy its schedule again")
    what = "no reconciler serves this saga: what is interrupted stays so"
    then = "add a TimeoutReconciler for it to its stack; if another stack has one, name that, too, with --stack"
    for saga in system.sagas:
        if not saga.has_reconciler:
            yield _of_person(Kind.NOT_MONITORED, saga.served.machine, what, then)


def _switched_off(system: System) -> Iterator[Finding]:
    for function in system.manifest.functions:
        if function in system.at_zero:
            what = f"{_role(system, function)} has a reserved concurrency of 0: it never runs"
            words = ["aws", "lambda", "delete-function-concurrency", "--function-name", function]
            yield _of_person(Kind.THROTTLED, function, what, "give it some, or take the reservation away", *words)
        switch = system.switches.get(function)
        if switch is not None and switch.held is not None:
            # Which of several stacks has this reconciler is not known, and the others may be held on purpose.
            stacks, held = system.manifest.stacks, switch.held
            what = f"it changes nothing since {moment(held.since_ms)}, by {held.who or 'unknown'}: {held.reason}"
            then = "release it when what it was held for is done"
            words = ["cdk-sagas", "hold", "off", "--reason", PLACEHOLDER, "--stack", *stacks]
            if len(stacks) != 1:
                then, words = f"{then}: cdk-sagas hold off --stack NAME", []
            yield _of_person(Kind.HELD, function, what, then, *words)
    for rule in system.manifest.rules:
        if rule in system.disabled:
            yield _disabled(system, rule)
    for source in system.unread:
        what = f"nothing hands the messages of this queue to {_role(system, source.function)}"
        words = ["aws", "lambda", "update-event-source-mapping", "--enabled", "--uuid", source.uuid]
        yield _of_person(Kind.SOURCE_DISABLED, source.queue, what, "enable it", *words)


def _disabled(system: System, rule: DeployedRule) -> Finding:
    whom = _role(system, rule.function) if rule.function else "a queue of the stack"
    what = f"the schedule by which {whom} should {'measure' if rule.measures else 'look'} is disabled"
    if not rule.scheduled:
        what = f"the rule that notifies {whom} is disabled"
    words = ["aws", "events", "enable-rule", "--name", rule.name]
    words += ["--event-bus-name", rule.bus] if rule.bus else []
    return _of_person(Kind.RULE_DISABLED, rule.name, what, "enable it", *words)


def _full(system: System, parked: Mapping[str, int]) -> Iterator[Finding]:
    for queue in system.queues:
        if not queue.messages:
            continue
        role = system.manifest.dead_letters.get(queue.url)
        if role is not None:
            yield _dead_letters(system, queue, role)
            continue
        sagas = parked.get(queue.url, 0)
        words = ["aws", "sqs", "receive-message", "--max-number-of-messages", "10", "--queue-url", queue.url]
        # As many as parked sagas prove nothing: what each is about is known to its reader only.
        yield Finding(
            Kind.FOR_OPERATORS,
            Severity.REPAIR,
            f"{_entries(queue.messages)}, and {sagas} of its sagas are parked",
            f"--repair deletes those that are over; {READ_ENTRIES}",
            id=queue.name,
            command=shlex.join(words),
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
    back = system.manifest.taken_back_by.get(queue.url)
    if back is None:
        words = ["aws", "sqs", "receive-message", "--max-number-of-messages", "10", "--queue-url", queue.url]
        then = "fix why they failed, invoke the receiver with each, then delete it: docs/runbook/event-dead-letters.md"
        return _of_person(Kind.DEAD_LETTERS, queue.name, what, then, *words)
    # Without a destination SQS moves no message that was sent to this queue itself.
    words = ["aws", "sqs", "start-message-move-task", "--source-arn", queue.arn]
    words += ["--destination-arn", f"{queue.arn.rpartition(':')[0]}:{back}"]
    return _of_person(Kind.DEAD_LETTERS, queue.name, what, "fix why they failed, then redrive them", *words)


def _entries(count: int) -> str:
    return "one message" if count == 1 else f"{count} messages"


def _role(system: System, function: str) -> str:
    """Name by which operators know a function."""
    return system.manifest.functions.get(function) or f"the function {function}"


def _of_person(kind: Kind, id: str, what: str, then: str, *command: str) -> Finding:
    return Finding(kind, Severity.OPERATOR, what, then, id=id, command=shlex.join(command))
