"""Parts that tables, machines and queues of a stack play in its sagas, read from functions' environments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from constructs_lib.shared.manifest_format import OUTPUT, ManifestField, Part
from constructs_lib.testing.simulator.deployment.blueprint import Blueprint
from saga_runtime.protocol import WAYS_AT, Env, ReconciledField, RefusalPolicy, Side
from saga_runtime.recovery.adoption import Target
from saga_runtime.recovery.resolution import DeclaredStep

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation of a ``TransactionApi`` and the saga behind it.

    Attributes:
        name: its name, which is its path, too.
        requests: table of request records.
        log: table of its saga log.
        machine, recovery: ARNs of its state machines.
    """

    name: str
    requests: str
    log: str
    machine: str
    recovery: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A saga's definition, as far as decisions of operators depend on it.

    Attributes:
        ways: by what its sagas go their way, as of its fingerprint.
        steps: by name.
    """

    ways: str
    steps: Mapping[str, DeclaredStep]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts of what is deployed.

    Attributes:
        operations: each of every API and intake; several may have one name.
        ledgers: tables of ledgers.
        tokens: tables of task tokens.
        operators: URLs of operators' queues, by the forward machine's name.
        log_days: how long rows are kept, by log.
        direct: name of each direct operation, with its table of request records.
        open_refusals: names of those whose refusals are not stored.
        holds: tables of the switches that hold reconcilers.
        outboxes: tables of events that a publisher sweeps.
        targets: state machines that write each log, to which a saga of it can be moved.
        declared: the definition that writes each log.
    """

    operations: tuple[Operation, ...]
    ledgers: tuple[str, ...]
    tokens: tuple[str, ...]
    operators: Mapping[str, str]
    log_days: Mapping[str, int]
    direct: tuple[tuple[str, str], ...]
    open_refusals: tuple[str, ...]
    holds: tuple[str, ...]
    outboxes: tuple[str, ...]
    targets: Mapping[str, Target]
    declared: Mapping[str, Declared] = field(default_factory=dict)

    def with_those_of(self, later: Parts) -> Parts:
        """These parts and those of a later release.

        A saga that no operation starts any more still has its log, its requests, and what it can be moved to.
        """
        moved = [
            replace(one, machine=target.forward, recovery=target.recovery)
            for one in self.operations
            if (target := later.targets.get(one.log)) is not None
        ]
        operations = {(one.name, one.machine): one for one in (*self.operations, *moved, *later.operations)}
        return Parts(
            operations=tuple(operations.values()),
            ledgers=_once((*self.ledgers, *later.ledgers)),
            tokens=_once((*self.tokens, *later.tokens)),
            operators={**self.operators, **later.operators},
            log_days={**self.log_days, **later.log_days},
            direct=_once((*self.direct, *later.direct)),
            open_refusals=_once((*self.open_refusals, *later.open_refusals)),
            holds=_once((*self.holds, *later.holds)),
            outboxes=_once((*self.outboxes, *later.outboxes)),
            targets={**self.targets, **later.targets},
            declared={**self.declared, **later.declared},
        )

    @property
    def requests(self) -> tuple[str, ...]:
        """Tables of request records."""
        return _once((*(operation.requests for operation in self.operations), *(table for _, table in self.direct)))

    @property
    def logs(self) -> tuple[str, ...]:
        """Tables of saga logs."""
        return _once(operation.log for operation in self.operations)

    @property
    def names(self) -> set[str]:
        """Names of operations."""
        return {*(operation.name for operation in self.operations), *(name for name, _ in self.direct)}


def parts_of(blueprint: Blueprint) -> Parts:
    """Find the parts of a blueprint."""
    outputs = [output for stack in blueprint.outputs.values() for output in stack.items()]
    return parts_in([function.environment for function in blueprint.functions.values()], outputs)


def parts_in(environments: Sequence[Mapping[str, str]], outputs: Iterable[tuple[str, str]] = ()) -> Parts:
    """Find the parts that the environments of all functions, and the manifests among the outputs, name."""
    operators, log_days = {}, {}
    for environment in environments:
        for served in json.loads(environment.get(Env.RECONCILED, "[]")):
            operators[served[ReconciledField.MACHINE]] = served[ReconciledField.OPERATORS]
            log_days[served[ReconciledField.LOG]] = served[ReconciledField.DAYS]
    manifests = [json.loads(value) for name, value in outputs if name == OUTPUT]
    sagas = [saga for manifest in manifests for saga in manifest.get(Part.SAGAS, ())]
    logs = {saga[ManifestField.ARN]: saga[ManifestField.LOG] for saga in sagas}
    operations = _once(
        Operation(
            name=environment[Env.OPERATION],
            requests=environment[Env.REQUEST_TABLE],
            # An intake does not read the log of the saga that it begins.
            log=environment.get(Env.LOG_TABLE) or logs[environment[Env.STATE_MACHINE_ARN]],
            machine=environment[Env.STATE_MACHINE_ARN],
            recovery=environment[Env.RECOVERY_MACHINE_ARN],
        )
        for environment in environments
        if Env.STATE_MACHINE_ARN in environment
    )
    direct = _once(
        (environment[Env.OPERATION], environment[Env.REQUEST_TABLE])
        for environment in environments
        if Env.OPERATION in environment and Env.STATE_MACHINE_ARN not in environment
    )
    return Parts(
        operations=operations,
        ledgers=_once(env[Env.LEDGER_TABLE] for env in environments if Env.LEDGER_TABLE in env),
        tokens=_once(env[Env.TOKEN_TABLE] for env in environments if Env.TOKEN_TABLE in env),
        operators=operators,
        log_days=log_days,
        direct=direct,
        open_refusals=_once(
            env[Env.OPERATION] for env in environments if env.get(Env.REFUSAL_POLICY) == RefusalPolicy.OPEN
        ),
        holds=_once(env[Env.HOLD_TABLE] for env in environments if Env.HOLD_TABLE in env),
        outboxes=_once(env[Env.OUTBOX_TABLE] for env in environments if Env.OUTBOX_BUS in env),
        targets={saga[ManifestField.LOG]: _target(saga) for saga in sagas},
        declared={saga[ManifestField.LOG]: _declared(saga) for saga in sagas},
    )


def _target(saga: Mapping[str, Any]) -> Target:
    f = ManifestField
    return Target(forward=saga[f.ARN], recovery=saga[f.RECOVERY], log=saga[f.LOG], log_days=saga[f.DAYS])


def _declared(saga: Mapping[str, Any]) -> Declared:
    f = ManifestField
    steps = {
        step[f.NAME]: DeclaredStep(
            side=Side(step[f.SIDE]),
            external=step.get(f.EXTERNAL, False),
            grace_ms=step.get(f.GRACE, 0) * 1_000,
            log_days=saga[f.DAYS],
            skipped_by=frozenset(step.get(f.SKIPPED_BY, ())),
        )
        for step in saga.get(f.STEPS, ())
        if f.SIDE in step
    }
    return Declared(ways=saga[f.DEFINITION][WAYS_AT:], steps=steps)


def _once(found: Iterable[_Found]) -> tuple[_Found, ...]:
    return tuple(dict.fromkeys(found))
