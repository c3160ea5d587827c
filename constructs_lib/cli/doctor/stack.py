"""Reads the resources of a deployed stack that the doctor checks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from constructs_lib.cli.doctor.aws import Aws, all_of, refusal_of
from constructs_lib.cli.doctor.findings import RECOVERIES, UNKNOWN_DAYS, Saga
from constructs_lib.cli.doctor.readers import read_function, read_queue, read_rule, read_source
from constructs_lib.cli.doctor.switch import read_switch
from constructs_lib.cli.doctor.system import MOST_SHARDS, Function, Rule, System
from constructs_lib.cli.saga.definition import always_taken, deployed_saga
from constructs_lib.cli.shared.aws import NO_RIGHTS
from constructs_lib.cli.shared.errors import CommandError
from constructs_lib.saga.asl.ending import TELL_OPERATORS
from saga_runtime.protocol import Env
from saga_runtime.recovery.saga_reconciler import Served, served_of

_FORWARD: Final = re.compile(r"cdk-sagas protocol \d+, definition ([0-9a-f]+)")
"""Comment of a saga's forward machine; those of its recovery and of its phases have more."""
_RETENTION: Final = re.compile(r"\+ (\d+)\)")

_STACK: Final = "AWS::CloudFormation::Stack"
FUNCTION: Final = "AWS::Lambda::Function"
_MACHINE: Final = "AWS::StepFunctions::StateMachine"
_QUEUE: Final = "AWS::SQS::Queue"
_RULE: Final = "AWS::Events::Rule"
_BUS: Final = "AWS::Events::EventBus"
_SOURCE: Final = "AWS::Lambda::EventSourceMapping"
_INVOKED: Final = "AWS::Lambda::EventInvokeConfig"
_LOOKED_AT: Final = (FUNCTION, _MACHINE, _QUEUE, _RULE, _BUS, _SOURCE, _INVOKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Properties of a saga's forward machine; empty and None: unknown."""

    name: str
    requests: str
    log: str
    days: int | None
    operators: str
    timeout_seconds: int | None
    remember_seconds: int | None
    arn: str = ""
    definition: str = ""
    always: frozenset[str] = frozenset()


def read_stacks(aws: Aws, names: Sequence[str]) -> System:
    """Read stacks, nested ones included: a saga and its reconciler may be in two.

    Raises:
        CommandError: if there is no such stack, it may not be listed, or none has a saga.
    """
    ids = resources(aws, names)
    asks = bool(ids[_INVOKED])
    functions = _present(
        all_of(lambda one: aws.allowed(f"function {one}", lambda: read_function(aws, one, asks)), ids[FUNCTION])
    )
    functions = [_with_switch(aws, function) for function in functions]
    functions_known = not any(aws.is_unknown(f"function {one}") for one in ids[FUNCTION])
    machines = _present(
        all_of(lambda one: aws.allowed(f"machine {one}", lambda: read_machine(aws, one)), ids[_MACHINE])
    )
    rules = _present(all_of(lambda one: aws.allowed(f"rule {one}", lambda: read_rule(aws, one, ids[_BUS])), ids[_RULE]))
    rules_known = not any(aws.is_unknown(f"rule {one}") for one in ids[_RULE])
    sources = _present(all_of(lambda one: aws.allowed(f"source {one}", lambda: read_source(aws, one)), ids[_SOURCE]))
    sagas = [
        # A reconciler that cannot be read may well work: overdue records show the opposite.
        saga if saga.has_reconciler or functions_known else replace(saga, attended=True)
        for saga in sagas_of(functions, rules, machines, rules_known=rules_known)
    ]
    tokens = {table for saga in sagas for table in saga.served.tokens}
    tokens |= {
        function.environment[Env.TOKEN_TABLE] for function in functions if Env.TOKEN_TABLE in function.environment
    }
    urls = dict.fromkeys([*ids[_QUEUE], *(saga.served.operators for saga in sagas if saga.served.operators)])
    queues = _present(all_of(lambda one: aws.allowed(f"queue {one}", lambda: read_queue(aws, one)), urls))
    said = f"stack{'' if len(names) == 1 else 's'} {', '.join(names)}"
    system = System(
        name=said,
        stacks=tuple(names),
        sagas=tuple(sagas),
        token_tables=tuple(sorted(tokens)),
        functions=tuple(functions),
        rules=tuple(rules),
        sources=tuple(sources),
        queues=tuple(queues),
        functions_known=functions_known,
        rules_known=rules_known,
        ledgers=tuple(
            sorted({one.environment[Env.LEDGER_TABLE] for one in functions if Env.LEDGER_TABLE in one.environment})
        ),
    )
    if not system.tables:
        denied = f", or it may not be read: {aws.denied[0].what}" if aws.denied else ""
        raise CommandError(f"{said} has no saga{denied}; name the stack of a SagaStateMachine")
    return system


def _with_switch(aws: Aws, function: Function) -> Function:
    """A reconciler, and whether it is held."""
    table = function.environment.get(Env.HOLD_TABLE)
    if table is None:
        return function
    switch = aws.allowed(f"table {table}", lambda: read_switch(aws, function.name, table))
    return replace(function, switch=switch)


def check_tables(aws: Aws, tables: Sequence[str]) -> None:
    """Refuse a table that is not there: nothing wrong would be found in it.

    Raises:
        CommandError: naming it.
    """
    from botocore.exceptions import ClientError

    for table in tables:
        try:
            aws.dynamodb.describe_table(TableName=table)
        except ClientError as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            if refusal.gone:
                raise CommandError(
                    f"there is no table {table} in this account and region; name it as DynamoDB lists it"
                ) from None


def named_system(table: str, log: str | None, tokens: Sequence[str], ledgers: Sequence[str] = ()) -> System:
    """Properties of a system of named tables: its reconcilers are unknown."""
    served = Served(machine="", requests=table, shards=MOST_SHARDS, log=log or "", days=UNKNOWN_DAYS, operators="")
    return System(
        name=f"table {table}",
        sagas=(Saga(served=served, shards_known=False, limit_known=False, attended=True),),
        token_tables=tuple(dict.fromkeys(tokens)),
        ledgers=tuple(dict.fromkeys(ledgers)),
    )


def sagas_of(
    functions: Sequence[Function], rules: Sequence[Rule], machines: Sequence[Machine], *, rules_known: bool
) -> list[Saga]:
    """Every saga once: from its reconciler's environment, or else from its machine and its gatekeeper."""
    said = {(machine.requests, machine.name): machine for machine in machines}
    found: dict[tuple[str, str], Saga] = {}
    for function in functions:
        for served in _served_by(function):
            machine = said.get((served.requests, served.machine))
            saga = Saga(
                served=served,
                limit=int(function.environment.get(Env.RECOVERIES_LIMIT, RECOVERIES)),
                has_reconciler=True,
                attended=function.works(rules, known=rules_known),
                held=function.held,
            )
            found[served.requests, served.machine] = saga if machine is None else with_machine(saga, machine)
    for key, saga in _without_reconciler(functions, machines):
        found.setdefault(key, saga)
    return list(found.values())


def _served_by(function: Function) -> tuple[Served, ...]:
    """Sagas of a reconciler; empty for another function."""
    try:
        return served_of(function.environment.get(Env.RECONCILED, "[]"))
    except (LookupError, TypeError, ValueError):
        raise CommandError(
            f"function {function.name} has an unknown format in {Env.RECONCILED}; use the release "
            "of cdk-sagas that deployed it"
        ) from None


def _without_reconciler(
    functions: Sequence[Function], machines: Sequence[Machine]
) -> Iterator[tuple[tuple[str, str], Saga]]:
    shards, logs = {}, {}
    for function in functions:
        environment = function.environment
        if Env.STATE_MACHINE_ARN in environment and Env.REQUEST_TABLE in environment:
            key = environment[Env.REQUEST_TABLE], environment[Env.STATE_MACHINE_ARN].rpartition(":")[2]
            shards[key] = int(environment.get(Env.DUE_SHARDS, MOST_SHARDS))
            logs[key] = environment.get(Env.LOG_TABLE, "")
    said = {(machine.requests, machine.name): machine for machine in machines}
    for key in said.keys() | logs.keys():
        machine = said.get(key)
        served = Served(
            machine=key[1],
            requests=key[0],
            shards=shards.get(key, MOST_SHARDS),
            log=(machine.log if machine is not None else "") or logs.get(key, ""),
            days=machine.days if machine is not None and machine.days else UNKNOWN_DAYS,
            operators=machine.operators if machine is not None else "",
        )
        saga = Saga(served=served, shards_known=key in shards)
        if machine is not None:
            saga = with_machine(saga, machine)
        yield key, saga


def resources(aws: Aws, stacks: Sequence[str]) -> dict[str, list[str]]:
    """Physical ids by type; of types that are checked."""
    found: dict[str, list[str]] = {kind: [] for kind in _LOOKED_AT}
    ahead = list(stacks)
    while ahead:
        name = ahead.pop()
        for page in _pages(aws, name):
            for one in page["StackResourceSummaries"]:
                physical = one.get("PhysicalResourceId")
                if not physical or one["ResourceStatus"] == "DELETE_COMPLETE":
                    continue
                if one["ResourceType"] == _STACK:
                    ahead.append(physical)
                elif physical not in found.get(one["ResourceType"], [physical]):
                    found[one["ResourceType"]].append(physical)
    return found


def _pages(aws: Aws, stack: str) -> Iterator[Any]:
    from botocore.exceptions import ClientError

    try:
        yield from aws.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack)
    except ClientError as error:
        detail: Any = error.response.get("Error", {})
        if detail.get("Code") == "ValidationError":
            raise CommandError(
                f"there is no stack {stack} in this account and region; name it as CloudFormation lists it"
            ) from None
        if detail.get("Code") not in NO_RIGHTS:
            raise
        raise CommandError(
            f"stack {stack} cannot be listed: {detail.get('Code')}: {detail.get('Message')}; "
            "without the right to do so, name its tables with --table, --log-table and --token-table"
        ) from None


def read_machine(aws: Aws, arn: str) -> Machine | None:
    """Properties of a saga's forward machine; None: it is another state machine."""
    described = aws.step_functions.describe_state_machine(stateMachineArn=arn)
    machine = machine_said(described["name"], json.loads(described["definition"]))
    return replace(machine, arn=arn) if machine is not None else None


def with_machine(saga: Saga, machine: Machine) -> Saga:
    """Return a saga with its machine's properties."""
    return replace(
        saga,
        timeout_seconds=machine.timeout_seconds,
        remember_seconds=machine.remember_seconds,
        arn=machine.arn,
        definition=machine.definition,
        always=machine.always,
    )


def machine_said(name: str, definition: dict[str, Any]) -> Machine | None:
    """Properties in a definition; None: it is not a saga's forward machine."""
    comment = _FORWARD.fullmatch(str(definition.get("Comment", "")))
    if comment is None:
        return None
    states: Mapping[str, Mapping[str, Any]] = definition["States"]
    asked: list[Any] = [state.get("Arguments") for state in states.values()]
    settles = [
        one for one in asked if isinstance(one, Mapping) and ":settled" in one.get("ExpressionAttributeValues", {})
    ]
    if not settles:
        return None
    kept = _RETENTION.search(str(settles[0]["ExpressionAttributeValues"].get(":expiration", {}).get("N", "")))
    told = states.get(TELL_OPERATORS, {}).get("Arguments", {}).get("QueueUrl", "")
    saga = deployed_saga([definition])
    return Machine(
        name=name,
        requests=str(settles[0]["TableName"]),
        log=saga.log_table if saga is not None else "",
        days=saga.log_days if saga is not None else None,
        operators=str(told),
        timeout_seconds=definition.get("TimeoutSeconds"),
        remember_seconds=int(kept.group(1)) if kept is not None else None,
        definition=comment.group(1),
        always=always_taken(definition, saga.log_table) if saga is not None else frozenset(),
    )


def _present(found: Sequence[Any]) -> list[Any]:
    return [one for one in found if one is not None]
