"""Parts of a deployed system: the manifest of its stacks, read with one call for each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from constructs_lib.cli.shared.aws import NO_RIGHTS
from constructs_lib.cli.shared.process import CommandError, json_in
from constructs_lib.shared.manifest_format import OUTPUT, VERSION, VERSION_FIELD, Part, QueueRole
from constructs_lib.shared.manifest_format import ManifestField as F
from saga_runtime.protocol import WAYS_AT, Side
from saga_runtime.recovery.resolution import DeclaredStep, DeployedStep
from saga_runtime.recovery.saga_reconciler import Served, served_of
from saga_runtime.watch.rows import Watched, watched_of

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient


Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedSaga:
    """A saga of the system.

    Attributes:
        path: of its construct.
        arn: of its forward state machine.
        recovery: ARN of its recovery machine.
        served: names of its tables and of its operators' queue.
        remember_seconds: how long a settled record is kept.
        timeout_seconds: of its forward state machine.
        definition: fingerprint of its definition; empty: that is not deployed.
        always: steps that every request takes, and that leave a row.
        steps: by name, in order.
        has_jobs: whether a step may be applied late: a provider works on it and reports later.
    """

    path: str
    arn: str
    recovery: str
    served: Served
    remember_seconds: int
    timeout_seconds: int
    definition: str
    always: frozenset[str]
    steps: Mapping[str, DeployedStep]
    has_jobs: bool

    @property
    def ways(self) -> str | None:
        """By what its sagas go their way; None: that is not known."""
        return self.definition[WAYS_AT:] if self.definition else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciler:
    """A reconciler: its function, the table that may hold it, and the sagas that it serves."""

    function: str
    hold: str
    limit: int
    serves: tuple[Served, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFunction:
    """A function that acts for operators; second: who confirms; empty: no second person is required."""

    function: str
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Integration:
    """A callback integration: its token table, its queue, and the dead-letter queue of that."""

    path: str
    tokens: str
    queue: str
    dead_letters: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """A watch over hand-written state machines: its function and its table."""

    function: str
    table: str
    watched: tuple[Watched, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedRule:
    """A rule; bus: empty for the default one; function: that it calls, empty if it sends to a queue."""

    name: str
    bus: str
    scheduled: bool
    measures: bool
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedSource:
    """Event source mapping of a queue and a function."""

    uuid: str
    queue: str
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Parts of some stacks.

    Attributes:
        stacks: their names.
        sagas: those that run in them.
        reconcilers: may serve sagas of other stacks.
        operators: functions that act for operators.
        sweepers: functions that sweep token tables, by table.
        integrations: of callbacks.
        watches: over hand-written state machines.
        ledgers: tables of ledgers that functions post to.
        migrations: layouts, as the workers have them, and their tables.
        functions: roles by name; empty: a step's, or another one without a name of its own.
        rules, sources: that call them.
        dead_letters: roles of queues by URL.
        taken_back_by: names of the queues that take such messages back, by URL of the dead-letter queue.
        alarms: pages of the runbook by the alarm's name.
    """

    stacks: tuple[str, ...]
    sagas: tuple[DeployedSaga, ...] = ()
    reconcilers: tuple[Reconciler, ...] = ()
    operators: tuple[OperatorFunction, ...] = ()
    sweepers: Mapping[str, str]
    integrations: tuple[Integration, ...] = ()
    watches: tuple[Watch, ...] = ()
    ledgers: tuple[str, ...] = ()
    migrations: tuple[tuple[Any, str], ...] = ()
    functions: Mapping[str, str]
    rules: tuple[DeployedRule, ...] = ()
    sources: tuple[DeployedSource, ...] = ()
    dead_letters: Mapping[str, QueueRole]
    taken_back_by: Mapping[str, str]
    alarms: Mapping[str, str]

    @property
    def served(self) -> tuple[Served, ...]:
        """Sagas of these stacks, and those of other ones that their reconcilers serve."""
        every = (*(saga.served for saga in self.sagas), *(one for each in self.reconcilers for one in each.serves))
        return tuple({(one.requests, one.machine): one for one in every}.values())

    @property
    def requests(self) -> tuple[str, ...]:
        """Request tables of these sagas."""
        return tuple(dict.fromkeys(one.requests for one in self.served))

    @property
    def said(self) -> str:
        """The stacks, in words."""
        return f"stack{'' if len(self.stacks) == 1 else 's'} {', '.join(self.stacks)}"


def read_manifest(cloudformation: CloudFormationClient, names: Sequence[str]) -> Manifest:
    """Read the manifests of some stacks as one.

    Raises:
        CommandError: if one does not exist, may not be read, has no manifest, or has one of another version.
    """
    stacks = tuple(dict.fromkeys(names))
    blank = [name for name in stacks if not name.strip()]
    if blank:
        raise CommandError(f"--stack must be the name of a stack, got {blank[0]!r}; name it as CloudFormation lists it")
    documents = [_document(_output(cloudformation, name), name) for name in stacks]

    def of(part: Part) -> Iterable[Entry]:
        return (entry for document in documents for entry in document.get(part, ()))

    try:
        return Manifest(
            stacks=stacks,
            sagas=tuple(map(_saga, of(Part.SAGAS))),
            reconcilers=tuple(
                Reconciler(
                    function=one[F.FUNCTION],
                    hold=one[F.HOLD],
                    limit=one[F.LIMIT],
                    serves=served_of(json.dumps(one[F.SERVES])),
                )
                for one in of(Part.RECONCILERS)
            ),
            operators=tuple(
                OperatorFunction(function=one[F.FUNCTION], second=one.get(F.SECOND, "")) for one in of(Part.OPERATORS)
            ),
            sweepers={one[F.TABLE]: one[F.FUNCTION] for one in of(Part.TOKENS)},
            integrations=tuple(
                Integration(path=one[F.PATH], tokens=one[F.TABLE], queue=one[F.QUEUE], dead_letters=one[F.DEAD_LETTERS])
                for one in of(Part.INTEGRATIONS)
            ),
            watches=tuple(
                Watch(function=one[F.FUNCTION], table=one[F.TABLE], watched=watched_of(json.dumps(one[F.WATCHED])))
                for one in of(Part.WATCHES)
            ),
            ledgers=tuple(dict.fromkeys(one[F.TABLE] for one in of(Part.LEDGERS))),
            migrations=tuple((one[F.LAYOUT], one[F.TABLE]) for one in of(Part.MIGRATIONS)),
            functions=_roles(of(Part.FUNCTIONS)),
            rules=tuple(
                DeployedRule(
                    name=one[F.NAME].rpartition("|")[2],  # a rule's id names its bus, if it is not the default one
                    bus=one.get(F.BUS, ""),
                    scheduled=one.get(F.SCHEDULED, False),
                    measures=one.get(F.MEASURES, False),
                    function=one.get(F.FUNCTION, ""),
                )
                for one in of(Part.RULES)
            ),
            sources=tuple(
                DeployedSource(uuid=one[F.UUID], queue=one[F.QUEUE], function=one[F.FUNCTION])
                for one in of(Part.SOURCES)
            ),
            dead_letters={one[F.URL]: QueueRole(one[F.ROLE]) for one in of(Part.QUEUES)},
            taken_back_by={one[F.URL]: one[F.QUEUE] for one in of(Part.QUEUES) if F.QUEUE in one},
            alarms={one[F.NAME]: one[F.RUNBOOK] for one in of(Part.ALARMS)},
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CommandError(
            f"output {OUTPUT} of stack {', '.join(stacks)} must be a manifest of version {VERSION}, got one that lacks "
            f"{error}; deploy the stack again with this release of cdk-sagas"
        ) from None


def _roles(functions: Iterable[Entry]) -> dict[str, str]:
    """Roles by name: a function is registered where it is made, and again where it gets its role."""
    roles: dict[str, str] = {}
    for one in functions:
        roles[one[F.NAME]] = one.get(F.ROLE, "") or roles.get(one[F.NAME], "")
    return roles


def _output(cloudformation: CloudFormationClient, name: str) -> str:
    try:
        (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
    except ClientError as error:
        detail: Any = error.response.get("Error", {})
        if detail.get("Code") == "ValidationError":
            raise CommandError(
                f"there is no stack {name} in this account and region; name it as CloudFormation lists it, a deleted "
                "one by its ARN"
            ) from None
        if detail.get("Code") not in NO_RIGHTS:
            raise
        raise CommandError(
            f"stack {name} cannot be described: {detail.get('Code')}: {detail.get('Message')}; check the "
            "name, because AWS refuses one of no stack in the same way, or ask for cloudformation:DescribeStacks on it"
        ) from None
    for output in stack.get("Outputs", ()):
        if output.get("OutputKey") == OUTPUT:
            return output.get("OutputValue", "")
    raise CommandError(
        f"stack {name} must have the output {OUTPUT}, got none; name the root stack of a SagaStateMachine, deployed "
        "with this release of cdk-sagas"
    )


def _document(text: str, name: str) -> Mapping[str, Any]:
    document = json_in(text)
    if not isinstance(document, Mapping):
        raise CommandError(f"output {OUTPUT} of stack {name} must be a JSON object, got {text[:40]!r}; deploy it again")
    version = document.get(VERSION_FIELD)
    if version != VERSION:
        raise CommandError(
            f"the manifest of stack {name} must have version {VERSION}, got {version}; use the release of cdk-sagas "
            "that deployed it, or deploy it with this one"
        )
    return document


def _saga(one: Entry) -> DeployedSaga:
    steps = [_step(step, one[F.DAYS]) for step in one.get(F.STEPS, ())]
    return DeployedSaga(
        path=one[F.PATH],
        arn=one[F.ARN],
        recovery=one[F.RECOVERY],
        served=Served(
            machine=one[F.MACHINE],
            requests=one[F.REQUESTS],
            shards=one[F.SHARDS],
            log=one[F.LOG],
            days=one[F.DAYS],
            operators=one[F.OPERATORS],
        ),
        remember_seconds=one[F.REMEMBER],
        timeout_seconds=one[F.TIMEOUT],
        definition=one[F.DEFINITION],
        always=frozenset(one.get(F.ALWAYS, ())),
        steps={step.name: step for step in steps},
        has_jobs=any(step.get(F.JOBS, False) for step in one.get(F.STEPS, ())),
    )


def _step(one: Entry, log_days: int) -> DeployedStep:
    declared = None
    if F.SIDE in one:
        declared = DeclaredStep(
            side=Side(one[F.SIDE]),
            external=one.get(F.EXTERNAL, False),
            grace_ms=one.get(F.GRACE, 0) * 1_000,
            log_days=log_days,
            skipped_by=frozenset(one.get(F.SKIPPED_BY, ())),
        )
    return DeployedStep(name=one[F.NAME], in_map=one.get(F.MAP, False), declared=declared)
