"""Plain data of a deployment: functions, tables, queues, state machines, rules, APIs and roles.

``template`` reads it from a synthesized stack. A test without a stack makes one by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from constructs_lib.testing.names import DeployedResource
from constructs_lib.testing.simulator.deployment.schedules import Cron

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
        log_group: name of its log group; None: the one that Lambda names after it.
        traced: whether the Lambda service sends traces of it.
        may_loop: whether Lambda lets a chain of requests invoke it again and again.
    """

    name: str
    code: Path | str
    handler: str
    environment: Mapping[str, str]
    timeout: int
    role: str
    memory: int = 128
    log_group: str | None = None
    traced: bool = False
    may_loop: bool = False

    @property
    def arn(self) -> str:
        """Its ARN."""
        return arn("lambda", f"function:{self.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSpec:
    """A secondary index: its name, its key, the attributes it holds (None: all), and whether it is a local one."""

    name: str
    keys: tuple[str, ...]
    kinds: tuple[str, ...]
    projected: frozenset[str] | None
    local: bool = False


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
class ExpirationSpec:
    """Objects of a bucket that expire: days after they were written, and what their keys begin with."""

    days: int
    prefix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSpec:
    """A bucket.

    Attributes:
        name: its name.
        expirations: rules of its lifecycle by which objects expire.
        refused: reason for which no object can be put there; None: they can.
    """

    name: str
    expirations: tuple[ExpirationSpec, ...] = ()
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpec:
    """A state machine.

    Attributes:
        name: physical name.
        definition: in Amazon States Language.
        kind: ``STANDARD`` or ``EXPRESS``.
        role: name of its role.
        named: whether the stack gives it its name.
        retained: whether a release that leaves it out, or replaces it, keeps it, with its role.
        logged: whether Step Functions delivers logs of it.
        traced: whether Step Functions sends traces of it.
    """

    name: str
    definition: Mapping[str, Any]
    kind: str
    role: str
    named: bool = False
    retained: bool = False
    logged: bool = False
    traced: bool = False

    @property
    def arn(self) -> str:
        """Its ARN."""
        return arn("states", f"stateMachine:{self.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasSpec:
    """An alias of a state machine.

    Attributes:
        machine: the state machine's ARN.
        name: its own.
        version: the number of the version to which a deployment moves it.
        steps: percentages of new executions that this version gets on the way, one after another.
        pause: seconds between two of them.
    """

    machine: str
    name: str
    version: str
    steps: tuple[int, ...] = ()
    pause: int = 0

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"{self.machine}:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingSpec:
    """A queue whose messages a function receives.

    Attributes:
        queue: its name.
        function: the function's name.
        batch: messages per invocation, at most.
        partial: whether the function names the messages that come again.
        concurrency: invocations at once, at most.
        refused: reason for which no message can be sent there; None: they can.
    """

    queue: str
    function: str
    batch: int
    partial: bool
    concurrency: int = 1_000
    refused: str | None = None


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
        arn: of a function or a queue; or of a topic or a log group, behind which nothing of the stack acts.
        constant: a text that is sent instead of the event.
        paths: for a template: JSON paths of the event by name.
        template: the text that is sent, with ``<name>`` where a value belongs.
        dead_letters: ARN of the queue for events that could not be sent.
        max_age: seconds for which it is tried.
        retries: how often it is tried again.
        group: message group, of a FIFO queue.
        refused: reason for which no event can be sent there; None: they can.
    """

    arn: str
    constant: str | None = None
    paths: Mapping[str, str] = field(default_factory=dict)
    template: str | None = None
    dead_letters: str | None = None
    max_age: int = 86_400
    retries: int = 185
    group: str | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSpec:
    """An EventBridge rule: a pattern, or a schedule.

    Attributes:
        name: its name.
        bus: its bus.
        pattern: of the events that it sends.
        every: seconds between two events of its schedule.
        targets: where it sends them.
        cron: moments of the events of its schedule.
    """

    name: str
    bus: str
    pattern: Mapping[str, Any] | None
    every: int | None
    targets: tuple[TargetSpec, ...]
    cron: Cron | None = None

    @property
    def is_scheduled(self) -> bool:
        """True if it has a schedule."""
        return self.every is not None or self.cron is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncSpec:
    """Retries, maximum age and destination of an asynchronous invocation that fails."""

    retries: int = 2
    max_age: int = 21_600
    on_failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestChecks:
    """Checks of a request that a REST API makes before it invokes a function.

    Attributes:
        keys: API keys of which a request needs one; None: it needs none.
        parameters: those that a request needs, as ``header.X-Name``, ``querystring.name`` or ``path.name``.
        json: types of content that must be JSON; ``$default``: whatever no other one is.
    """

    keys: frozenset[str] | None = None
    parameters: tuple[str, ...] = ()
    json: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSpec:
    """A method of a REST API, or a route of an HTTP API.

    Attributes:
        method: HTTP method; ``ANY``: each.
        path: such as ``/transfers/{saga_id}``; ``$default``: whatever no other route of an HTTP API has.
        function: name of the function behind it.
        authorization: ``AWS_IAM``, ``NONE``, ``COGNITO_USER_POOLS`` or ``CUSTOM``; of an HTTP API ``JWT``.
        scopes: of which a token needs one.
        timeout: milliseconds for which the API waits for the function.
        checks: what a REST API checks before.
        refused: reason for which no request can be sent there; None: they can.
    """

    method: str
    path: str
    function: str
    authorization: str
    scopes: tuple[str, ...] = ()
    timeout: int = 29_000
    checks: RequestChecks = RequestChecks()
    refused: str | None = None

    @property
    def key(self) -> str:
        """Route key of an HTTP API."""
        return self.path if self.path == "$default" else f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSpec:
    """A REST API or an HTTP API.

    Attributes:
        id: its id.
        stage: its stage.
        routes: its methods, or its routes.
        binary: whether bodies reach functions of a REST API in base64.
        http: whether it is an HTTP API, with payload format 2.0.
        stack: name of the stack that has it; of an HTTP API of another app, of the one that has its routes.
    """

    id: str
    stage: str
    routes: tuple[RouteSpec, ...]
    binary: bool = False
    http: bool = False
    stack: str = ""


@dataclass(slots=True, kw_only=True)
class Blueprint:
    """Everything that is deployed.

    Attributes:
        published: numbers of the versions that are published, by their state machines' ARNs.
        roles: statements of each role's policies, by the role's name.
        secrets: ARNs of secrets.
        asynchronous: by function, where it is not the default.
        outputs: of each stack, by the stack's name.
        resources: every resource, for names that people use.
        ignored: types of resources that a simulation does not need.
        refused: functions that cannot be invoked, by name, with the reason.
        left_out: what is not simulated, as a person reads it.
    """

    functions: dict[str, FunctionSpec] = field(default_factory=dict)
    tables: dict[str, TableSpec] = field(default_factory=dict)
    queues: dict[str, QueueSpec] = field(default_factory=dict)
    machines: dict[str, MachineSpec] = field(default_factory=dict)
    published: dict[str, str] = field(default_factory=dict)
    aliases: list[AliasSpec] = field(default_factory=list)
    mappings: list[MappingSpec] = field(default_factory=list)
    streams: list[StreamSpec] = field(default_factory=list)
    rules: list[RuleSpec] = field(default_factory=list)
    buses: set[str] = field(default_factory=lambda: {"default"})
    apis: dict[str, ApiSpec] = field(default_factory=dict)
    buckets: dict[str, BucketSpec] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    asynchronous: dict[str, AsyncSpec] = field(default_factory=dict)
    roles: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    resources: list[DeployedResource] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def leave_out(self, told: str) -> None:
        """Note something that is not simulated."""
        if told not in self.left_out:
            self.left_out.append(told)
