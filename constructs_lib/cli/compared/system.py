"""Stacks of a cloud assembly, as they will be deployed: what their manifests name, read from their templates."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from constructs_lib.cli.compared.templates import Template, Templates
from constructs_lib.cli.shared.process import CommandError
from constructs_lib.saga.description.assembly import sagas_of
from constructs_lib.saga.description.description import SagaDescription
from constructs_lib.shared.manifest_format import OUTPUT, VERSION, VERSION_FIELD, Part
from constructs_lib.shared.manifest_format import ManifestField as F
from saga_runtime.protocol import Env

_HEADER: Final = "the header"


class Kind(StrEnum):
    """Resources that keep something between two deployments, apart from those of a saga."""

    LEDGER = "LedgerTable"
    TOKENS = "TokenTable"
    JOBS = "queue of a CallbackIntegration"
    PAYLOADS = "PayloadBucket"
    EVENTS = "queue of an EventIntake"
    OUTBOX = "Outbox"
    WATCH = "table of an ExecutionWatch"


_NAMED_BY_MANIFEST: Final = (
    (Part.LEDGERS, F.TABLE, Kind.LEDGER),
    (Part.TOKENS, F.TABLE, Kind.TOKENS),
    (Part.INTEGRATIONS, F.TABLE, Kind.TOKENS),
    (Part.INTEGRATIONS, F.QUEUE, Kind.JOBS),
    (Part.INTEGRATIONS, F.DEAD_LETTERS, Kind.JOBS),
    (Part.WATCHES, F.TABLE, Kind.WATCH),
)
NAMED_BY_FUNCTION: Final = {
    Env.LEDGER_TABLE: Kind.LEDGER,
    Env.PAYLOADS: Kind.PAYLOADS,
    Env.OUTBOX_TABLE: Kind.OUTBOX,
    Env.KEPT_EVENTS: Kind.EVENTS,
    Env.PARKED_EVENTS: Kind.EVENTS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedSaga:
    """A saga: its resources, each by stack and logical id, and its times in seconds.

    Attributes:
        stacks: its own, and that of its request table.
        days: how long rows of its log are kept.
        reconcilers: functions of those that have it.
        holds: their hold tables.
        called: what its definition and those of its phases name.
        published: whether an alias points to versions of its state machine.
    """

    stacks: frozenset[str]
    requests: str
    log: str
    operators: str
    machine: str
    recovery: str
    shards: int
    days: int
    replayed: int
    remembered: int
    reconcilers: tuple[str, ...]
    holds: tuple[str, ...]
    called: frozenset[str]
    published: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedOperation:
    """An operation, as far as a request's key depends on it, and what it does itself.

    Attributes:
        stack: of its function.
        machine: state machine of its saga; empty if it answers at once.
        identity: where a caller's identity is; empty if events begin it.
        key_source: where a request's key is.
        issuers: of the tokens of its callers.
        authorizers: functions that name its callers, and authorizers of another app.
        shards, replayed, remembered: those of an operation that answers at once, else 0.
    """

    stack: str
    machine: str
    requests: str
    identity: str
    key_source: str
    issuers: str
    authorizers: str
    shards: int
    replayed: int
    remembered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """All stacks of an assembly that have a manifest.

    Attributes:
        stacks: their environments by name.
        sagas: by path.
        operations: by name; several APIs may have one of a name.
        kept: stacks of resources by kind and name.
        used: by function and variable, the resource that it names; empty if it names none.
        expiry: days after which a bucket's objects expire, by bucket.
        indexes: names of a ledger's indexes, by table.
    """

    stacks: dict[str, str] = field(default_factory=dict)
    sagas: dict[str, DescribedSaga] = field(default_factory=dict)
    operations: dict[str, list[DescribedOperation]] = field(default_factory=dict)
    kept: dict[Kind, dict[str, str]] = field(default_factory=lambda: {kind: {} for kind in Kind})
    used: dict[tuple[str, Env], str] = field(default_factory=dict)
    expiry: dict[str, int] = field(default_factory=dict)
    indexes: dict[str, frozenset[str]] = field(default_factory=dict)


def system_of(assembly: Path) -> System:
    """Read an assembly.

    Args:
        assembly: the folder that ``cdk synth`` wrote.

    Raises:
        CommandError: if a stack with sagas has no manifest, or one of another form.
    """
    templates = Templates(assembly)
    system = System()
    described = {saga.name: saga for saga in sagas_of(assembly)}
    manifests = {root.stack: _manifest(assembly, root) for root in templates.roots if OUTPUT in root.outputs}
    for stack, manifest in manifests.items():
        system.stacks[stack] = templates.environments[stack]
        try:
            _add_kept(system, templates, stack, manifest)
            _add_functions(system, templates, stack, manifest)
            system.indexes.update({table: templates.indexes_of(table) for table in system.kept[Kind.LEDGER]})
            for one in manifest.get(Part.SAGAS, ()):
                saga = described[one[F.PATH]]
                system.sagas[saga.name] = _saga(saga, one, templates, stack, manifests.values())
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise _unread(assembly, stack, f"one that lacks {error.args[0]}") from None
    if unnamed := sorted(described.keys() - system.sagas.keys()):
        raise CommandError(
            f"a stack of {assembly} must have saga {unnamed[0]} in its output {OUTPUT}, got none that has; synthesize "
            "the app again with this release of cdk-sagas"
        )
    return system


def _add_kept(system: System, templates: Templates, stack: str, manifest: Mapping[str, Any]) -> None:
    for part, member, kind in _NAMED_BY_MANIFEST:
        for one in manifest.get(part, ()):
            system.kept[kind][one[member]] = templates.stack_of(one[member], stack)


def _add_functions(system: System, templates: Templates, stack: str, manifest: Mapping[str, Any]) -> None:
    """Add what functions name in their environments: operations, and resources that the manifest does not name."""
    for function in dict.fromkeys(one[F.NAME] for one in manifest.get(Part.FUNCTIONS, ())):
        variables = templates.environment_of(function)
        for variable, kind in NAMED_BY_FUNCTION.items():
            named = system.used[function, variable] = variables.get(variable, "")
            if named:
                system.kept[kind][named] = templates.stack_of(named, stack)
                if (days := templates.expiry_of(named)) is not None:
                    system.expiry[named] = days
        if Env.OPERATION in variables and Env.REQUEST_TABLE in variables:
            found = system.operations.setdefault(variables[Env.OPERATION], [])
            operation = _operation(templates, stack, function, variables)
            if operation not in found:  # the function that answers GET has the same variables
                found.append(operation)


def _operation(templates: Templates, stack: str, function: str, env: Mapping[str, str]) -> DescribedOperation:
    machine = env.get(Env.STATE_MACHINE_ARN, "")
    at_once = {} if machine else env
    issuers, authorizers = templates.callers_of(function)
    return DescribedOperation(
        stack=templates.stack_of(function, stack),
        machine=machine,
        requests=env[Env.REQUEST_TABLE],
        identity=env.get(Env.IDENTITY, ""),
        key_source=env.get(Env.KEY_SOURCE, _HEADER),
        issuers=issuers,
        authorizers=authorizers,
        shards=int(at_once.get(Env.DUE_SHARDS, 0)),
        replayed=int(at_once.get(Env.REPLAY_SECONDS, 0)),
        remembered=int(at_once.get(Env.REMEMBER_SECONDS, 0)),
    )


def _saga(
    saga: SagaDescription,
    entry: Mapping[str, Any],
    templates: Templates,
    stack: str,
    manifests: Collection[Mapping[str, Any]],
) -> DescribedSaga:
    reconcilers = [
        one
        for manifest in manifests
        for one in manifest.get(Part.RECONCILERS, ())
        if any(served[F.MACHINE] == entry[F.MACHINE] for served in one[F.SERVES])
    ]
    return DescribedSaga(
        stacks=frozenset({stack, templates.stack_of(entry[F.REQUESTS], stack)}),
        requests=entry[F.REQUESTS],
        log=entry[F.LOG],
        operators=entry[F.OPERATORS],
        machine=entry[F.MACHINE],
        recovery=entry[F.RECOVERY],
        shards=entry[F.SHARDS],
        days=entry[F.DAYS],
        replayed=saga.replayed,
        remembered=saga.remembered,
        reconcilers=tuple(one[F.FUNCTION] for one in reconcilers),
        holds=tuple(one[F.HOLD] for one in reconcilers),
        called=templates.called_by(entry[F.MACHINE]),
        published=templates.has_alias(entry[F.MACHINE]),
    )


def _manifest(assembly: Path, root: Template) -> Mapping[str, Any]:
    try:
        document: Any = json.loads(root.text(root.outputs[OUTPUT]["Value"]))
    except (LookupError, TypeError, ValueError):
        raise _unread(assembly, root.stack, "something else") from None
    if not isinstance(document, Mapping) or document.get(VERSION_FIELD) != VERSION:
        got = document.get(VERSION_FIELD) if isinstance(document, Mapping) else document
        raise _unread(assembly, root.stack, f"version {got}")
    return document


def _unread(assembly: Path, stack: str, got: str) -> CommandError:
    return CommandError(
        f"output {OUTPUT} of stack {stack} in {assembly} must be a manifest of version {VERSION}, got {got}; "
        "synthesize the app of that deployment again with this release of cdk-sagas"
    )
