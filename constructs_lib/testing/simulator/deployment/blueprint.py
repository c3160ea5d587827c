"""Plain data of a deployment: functions, tables, queues, state machines, rules, APIs and roles.

``template`` reads it from a synthesized stack. A test without a stack makes one by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from constructs_lib.testing.names import DeployedResource

ACCOUNT: Final = "123456789012"
REGION: Final = "us-east-1"


def arn(service: str, resource: str, *, region: str = REGION, account: str = ACCOUNT) -> str:
    """The ARN of something in the simulated account."""
    return f"arn:aws:{service}:{region}:{account}:{resource}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSpec:
    """A Lambda function.

    Attributes:
        name: physical name.
        code: folder or zip file that holds it; or the source of one module, ``index``.
        handler: ``module.function``.
        environment: its environment variables.
        timeout: seconds.
        role: name of its role.
        memory: MiB.
    """

    name: str
    code: Path | str
    handler: str
    environment: Mapping[str, str]
    timeout: int
    role: str
    memory: int = 128

    @property
    def arn(self) -> str:
        """Its ARN."""
        return arn("lambda", f"function:{self.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSpec:
    """A global secondary index: its name, its key, and the attributes it holds (None: all)."""

    name: str
    keys: tuple[str, ...]
    kinds: tuple[str, ...]
    projected: frozenset[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """A DynamoDB table: its name, its key, its indexes, and the attribute that holds when an item expires."""

    name: str
    keys: tuple[str, ...]
    kinds: tuple[str, ...]
    indexes: tuple[IndexSpec, ...] = ()
    ttl: str | None = None

    @property
    def arn(self) -> str:
        """Its ARN."""
        return arn("dynamodb", f"table/{self.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """An SQS queue.

    Attributes:
        name: physical name; that of a FIFO queue ends with ``.fifo``.
        fifo: whether it keeps an order.
        visibility: seconds for which a received message is hidden.
        retention: seconds for which a message is kept.
        dead_letters: ARN of the queue for messages that were received too often.
        max_receives: how often is not too often.
        content_deduplication: whether the body identifies a FIFO message without an id of its own.
    """

    name: str
    fifo: bool = False
    visibility: int = 30
    retention: int = 345_600
    dead_letters: str | None = None
    max_receives: int = 0
    content_deduplication: bool = False

    @property
    def arn(self) -> str:
        """Its ARN."""
        return arn("sqs", self.name)

    @property
    def url(self) -> str:
        """Its URL."""
        return f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpec:
    """A state machine: its name, definition, kind (``STANDARD`` or ``EXPRESS``) and role."""

    name: str
    definition: Mapping[str, Any]
    kind: str
    role: str

    @property
    def arn(self) -> str:
        """Its ARN."""
        return arn("states", f"stateMachine:{self.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingSpec:
    """A queue whose messages a function receives."""

    queue: str
    function: str
    batch: int
    partial: bool
    concurrency: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """A table whose changes a function receives.

    Attributes:
        table: its name.
        function: the function's name.
        view: images that a change has.
        batch: changes per invocation.
        partial: whether the function names the first change that comes again.
        patterns: filters, of which a change has to match one; none: every change.
        retries: how often a batch that failed comes again before it is discarded.
        max_age: seconds after which a change is discarded.
    """

    table: str
    function: str
    view: str
    batch: int = 100
    partial: bool = False
    patterns: tuple[Mapping[str, Any], ...] = ()
    retries: float = float("inf")
    max_age: int = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """Target of a rule.

    Attributes:
        arn: of a function, a queue or a bus.
        constant: a text that is sent instead of the event.
        paths: for a template: JSON paths of the event by name.
        template: the text that is sent, with ``<name>`` where a value belongs.
        dead_letters: ARN of the queue for events that could not be sent.
        max_age: seconds for which it is tried.
        retries: how often it is tried again.
        group: message group, of a FIFO queue.
    """

    arn: str
    constant: str | None = None
    paths: Mapping[str, str] = field(default_factory=dict)
    template: str | None = None
    dead_letters: str | None = None
    max_age: int = 86_400
    retries: int = 185
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSpec:
    """An EventBridge rule: a pattern, or seconds between two events of a schedule."""

    name: str
    bus: str
    pattern: Mapping[str, Any] | None
    every: int | None
    targets: tuple[TargetSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncSpec:
    """Retries, maximum age and destination of an asynchronous invocation that fails."""

    retries: int = 2
    max_age: int = 21_600
    on_failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSpec:
    """A method of a REST API.

    Attributes:
        method: HTTP method.
        path: resource path, such as ``/transfers/{saga_id}``.
        function: name of the function behind it.
        authorization: ``AWS_IAM``, ``NONE``, ``COGNITO_USER_POOLS`` or ``CUSTOM``.
    """

    method: str
    path: str
    function: str
    authorization: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSpec:
    """A REST API: its id, its stage, its methods, and whether bodies reach functions in base64."""

    id: str
    stage: str
    routes: tuple[RouteSpec, ...]
    binary: bool = False


@dataclass(slots=True, kw_only=True)
class Blueprint:
    """Everything that is deployed.

    Attributes:
        roles: statements of each role's policies, by the role's name.
        secrets: ARNs of secrets, by logical id.
        asynchronous: by function, where it is not the default.
        outputs: of each stack, by the stack's name.
        resources: every resource, for names that people use.
        ignored: types of resources that a simulation does not need.
    """

    functions: dict[str, FunctionSpec] = field(default_factory=dict)
    tables: dict[str, TableSpec] = field(default_factory=dict)
    queues: dict[str, QueueSpec] = field(default_factory=dict)
    machines: dict[str, MachineSpec] = field(default_factory=dict)
    mappings: list[MappingSpec] = field(default_factory=list)
    streams: list[StreamSpec] = field(default_factory=list)
    rules: list[RuleSpec] = field(default_factory=list)
    buses: set[str] = field(default_factory=lambda: {"default"})
    apis: dict[str, ApiSpec] = field(default_factory=dict)
    buckets: list[str] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    asynchronous: dict[str, AsyncSpec] = field(default_factory=dict)
    roles: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    resources: list[DeployedResource] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=dict)
