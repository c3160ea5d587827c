"""One run's services, put together; and what prepares and audits a run does with them."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final
from unittest import mock

import botocore.session

from constructs_lib.testing.invariants import Item
from constructs_lib.testing.names import find, output_of
from constructs_lib.testing.simulator.aws.calls import Calls, DynamoService
from constructs_lib.testing.simulator.aws.dynamodb import DynamoDB, Index, KeySchema, Table
from constructs_lib.testing.simulator.aws.dynamodb.tables import Key
from constructs_lib.testing.simulator.aws.events import Events
from constructs_lib.testing.simulator.aws.functions import Functions
from constructs_lib.testing.simulator.aws.gateway import Gateway
from constructs_lib.testing.simulator.aws.queues import Queues
from constructs_lib.testing.simulator.aws.states import StateMachines, Tasks
from constructs_lib.testing.simulator.aws.storage import Buckets, Secrets
from constructs_lib.testing.simulator.aws.streams import Streams
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.checks.findings import Findings
from constructs_lib.testing.simulator.checks.trace import Trace
from constructs_lib.testing.simulator.deployment.blueprint import REGION, TableSpec
from constructs_lib.testing.simulator.deployment.deployment import Deployment
from constructs_lib.testing.simulator.deployment.images import dataclasses_compiled_once, schemas_compiled_once
from constructs_lib.testing.simulator.deployment.observing import observed
from constructs_lib.testing.simulator.engine.actors import Actor, ActorKind, Request
from constructs_lib.testing.simulator.engine.kernel import SECOND, Kernel
from constructs_lib.testing.simulator.engine.machine import Environment, timed_by, virtual_machine
from constructs_lib.testing.simulator.faults.climate import HOUR, Climate, Event
from constructs_lib.testing.simulator.faults.weather import Weather
from constructs_lib.testing.simulator.outside.internet import Internet
from constructs_lib.testing.simulator.outside.providers import Provider
from constructs_lib.testing.simulator.rollout import Rollout
from saga_runtime.ledger.items import SWEEP
from saga_runtime.protocol import PAYLOAD_KEY_PATTERN, LedgerAttribute, LogAttribute, RecordAttribute, StepStatus
from saga_runtime.saga_log.rows import UNDER_WAY

Changes = Callable[[str], Mapping[str, str]]


def _no_changes(_function: str) -> Mapping[str, str]:
    return {}


_EXPIRY: Final = 1_800 * SECOND
"""Between two sweeps of what has expired."""
_EFFECTS: Final = frozenset(
    {
        "BatchWriteItem",
        "DeleteItem",
        "DeleteObject",
        "PutEvents",
        "PutItem",
        "PutObject",
        "SendMessage",
        "SendMessageBatch",
        "StartExecution",
        "TransactWriteItems",
        "UpdateItem",
    }
)
"""Operations that change something. The purpose of an invocation of another function is not known."""
_PAYLOAD_KEY: Final = re.compile(PAYLOAD_KEY_PATTERN)
_OF_AN_INTAKE: Final = frozenset({"SendMessage"})
"""By which an intake keeps and parks its events."""
STATUS_CHANGE: Final = "Step Functions Execution Status Change"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parking:
    """A saga was parked.

    Attributes:
        parked_at: when; epoch milliseconds.
        error, detail: of the reason that the record keeps.
        in_doubt: log, name and status of each row that was in doubt.
        undisturbed: whether its owner began after the last fault, and had its time: then no fault is the reason.
    """

    parked_at: int
    error: str
    detail: str
    in_doubt: tuple[tuple[str, str, StepStatus], ...]
    undisturbed: bool


class World:
    """Everything that exists in one run.

    Args:
        deployment: what is deployed.
        climate: what goes wrong.
        seed: what everything is drawn from.
        start: when it begins; microseconds since the epoch.
        coverage: counts what is reached.
        environment: ``os.environ`` during the run.
        changes: environment variables of a function that differ from those of the stack.

    Attributes:
        rows_seen: every status that each saga log row has had, in order, by log and key.
        stated: rows of which an operator has stated that their compensation was not applied, by log and key.
        parked_for: each parking of each saga, in order, by its id.
        committing_calls: calls of atomic steps, their compensations, and direct operations.
        uncommitted: effects of these that were not part of a write to a saga log, or to a request table.
        failures: the first failure that each saga's record kept, by the saga's id.
        rollout: deploys releases.
    """

    def __init__(
        self,
        deployment: Deployment,
        climate: Climate,
        seed: str,
        *,
        start: int,
        coverage: Coverage,
        environment: Environment,
        changes: Changes = _no_changes,
    ) -> None:
        blueprint = deployment.blueprint
        self.deployment = deployment
        self.parts = deployment.parts
        self.outputs: dict[str, Mapping[str, str]] = {}
        self.coverage = coverage
        self.kernel = Kernel(start=start, entropy=Random(f"{seed}:entropy"))
        self.weather = Weather(climate, self.kernel, seed)
        self.trace = Trace(self.kernel)
        self.findings = Findings()
        self.calls = Calls(self.kernel, self.weather, deployment.roles, self.trace, self.findings)
        self.db = DynamoDB(lambda: self.kernel.now, self.weather)
        self.rows_seen: dict[tuple[str, Key], list[str]] = {}
        self.stated: set[tuple[str, Key]] = set()
        self.parked_for: dict[str, list[Parking]] = {}
        self.committing_calls = 0
        self.uncommitted: Counter[str] = Counter()
        self.calls.heard = self._called
        self.failures: dict[str, str] = {}
        self.functions = Functions(
            self.kernel, deployment.images, deployment.switch, environment, self.calls, self.weather, self.trace
        )
        self.functions.changes = changes
        self.queues = Queues(self.kernel, self.functions, self.weather, self.trace)
        self.streams = Streams(self.kernel, self.db, self.functions, self.weather, self.trace)
        self.events = Events(self.kernel, self.functions, self.queues, self.weather, self.trace, self._writes)
        tasks = Tasks(self.kernel, self.calls, self.functions, self.weather, self.trace)
        self.machines = StateMachines(
            self.kernel,
            tasks,
            self.weather,
            self.trace,
            coverage,
            lambda detail: self.events.publish("default", "aws.states", STATUS_CHANGE, detail),
        )
        for machine in blueprint.machines.values():
            self.machines.machines[machine.arn] = machine
        for machine_arn, number in blueprint.published.items():
            self.machines.published.publish(machine_arn, number)
        for alias in blueprint.aliases:
            self.machines.published.point(alias.arn, {alias.version: 100})
        self.buckets = Buckets(self.kernel, self.calls.may, self.weather.is_busy)
        self.secrets = Secrets(self.kernel, self.weather.secret_lag)
        self._drawn = Random(f"{seed}:secrets")
        self.internet = Internet(self.kernel, self.weather, self.trace)
        self.gateway = Gateway(self.kernel, self.functions, self.weather, self.trace, blueprint.apis)
        self.calls.services = {
            "dynamodb": DynamoService(self.db),
            "lambda": self.functions,
            "sqs": self.queues,
            "stepfunctions": self.machines,
            "events": self.events,
            "s3": self.buckets,
            "secretsmanager": self.secrets,
        }
        self._sweeps = False
        self.provide(deployment)
        self.connect_services(deployment)
        self.rollout = Rollout(self)

    def _delete_expired(self) -> None:
        """Delete items and objects whose time is over, some sooner and some later."""
        for table in self.db.tables.values():
            for key in table.expired(self.kernel.now):
                if self.weather.deletes_expired(_EXPIRY):
                    self.trace.note(table.name, f"time to live deletes {' '.join(map(str, key))}")
                    table.put(key, None, self.kernel.now)
        for bucket, name in self.buckets.expired():
            if self.weather.deletes_expired(_EXPIRY):
                self.trace.note(bucket, f"its lifecycle deletes {name}")
                del self.buckets.objects[bucket][name]
        self.kernel.after(_EXPIRY, self._delete_expired)

    def _writes(self) -> int:
        """A number that grows with every write, message and start."""
        written = sum(table.writes for table in self.db.tables.values())
        return written - self.calls.scheduled_writes + len(self.machines.executions)

    def _row_written(self, table: Table, key: Key, item: Item | None) -> None:
        status = "(none)" if item is None else str(item[LogAttribute.STATUS]["S"])
        seen = self.rows_seen.setdefault((table.name, key), [])
        if not seen or seen[-1] != status:
            seen.append(status)

    def _called(self, actor: Actor, request: Request) -> None:
        if actor.kind is not ActorKind.FUNCTION:
            return
        atomic, direct = self.functions.is_atomic(actor.of), self.functions.is_direct(actor.of)
        if not (atomic or direct):
            return
        self.committing_calls += 1
        effects = _EFFECTS if atomic else _EFFECTS - _OF_AN_INTAKE
        commits = {*self.parts.logs} if atomic else {*self.parts.requests}
        if request.operation in effects and not (_tables(request.params) & commits or _is_own(request.params)):
            self.uncommitted[f"{actor.of} makes {request.service}:{request.operation} outside of its commit"] += 1

    def _record_written(self, _table: Table, _key: Key, item: Item | None) -> None:
        if item is not None and {RecordAttribute.FAILURE, RecordAttribute.SAGA_ID} <= item.keys():
            self.failures.setdefault(item[RecordAttribute.SAGA_ID]["S"], item[RecordAttribute.FAILURE]["S"])
        if item is None or RecordAttribute.PARKED_BY not in item or RecordAttribute.SAGA_ID not in item:
            return
        parkings = self.parked_for.setdefault(item[RecordAttribute.SAGA_ID]["S"], [])
        parked_at = int(item[RecordAttribute.PARKED_AT]["N"])
        if not parkings or parkings[-1].parked_at != parked_at:
            parkings.append(self._parking(item, parked_at))

    def _parking(self, item: Item, parked_at: int) -> Parking:
        saga_id, owner = item[RecordAttribute.SAGA_ID]["S"], item[RecordAttribute.PARKED_BY]["S"]
        reason = json.loads(item[RecordAttribute.PARKED_REASON]["S"])
        rows = ((log, row) for log in self.parts.logs for row in self.table(log))
        in_doubt = tuple(
            (log, row[LogAttribute.STEP]["S"], StepStatus(row[LogAttribute.STATUS]["S"]))
            for log, row in rows
            if row[LogAttribute.SAGA_ID]["S"] == saga_id and row[LogAttribute.STATUS]["S"] in UNDER_WAY
        )
        owners = [execution for execution in self.machines.executions.values() if execution.name == owner]
        undisturbed = self.rollout.done and any(
            execution.status != "TIMED_OUT" and self.weather.was_over(execution.started) for execution in owners
        )
        return Parking(
            parked_at=parked_at,
            error=str(reason.get("error")),
            detail=str(reason.get("detail")),
            in_doubt=in_doubt,
            undisturbed=undisturbed,
        )

    def rotate(self, secret: str) -> None:
        """Give a secret a new value, if the climate rotates it; the provider learns it up to an hour later."""
        if self.weather.happens(Event.ROTATION, secret):
            lag = int(self.weather.share() ** 3 * HOUR)
            self.trace.note("operator", f"rotates {secret.rpartition(':')[2]}")
            self.secrets.rotate(secret, self._new_secret(), lag=lag)

    def _new_secret(self) -> str:
        return "".join(self._drawn.choices(string.ascii_letters + string.digits, k=64))

    def connect(self, providers: Mapping[str, Provider]) -> None:
        """Let functions reach providers, by the beginning of their URLs."""
        self.internet.providers = dict(providers)

    def provide(self, deployment: Deployment) -> None:
        """Create what a deployment needs first: tables, queues, buckets and secrets that do not exist yet."""
        blueprint = deployment.blueprint
        for spec in blueprint.tables.values():
            if spec.name not in self.db.tables:
                self.db.tables[spec.name] = _table(spec, self.weather.overtakes)
        self.parts = self.parts.with_those_of(deployment.parts)
        for log in self.parts.logs:
            self.db.tables[log].heard = self._row_written
        for requests in self.parts.requests:
            self.db.tables[requests].listeners = [
                *(one for one in self.db.tables[requests].listeners if one != self._record_written),
                self._record_written,
            ]
        for queue in blueprint.queues.values():
            if queue.name not in self.queues.queues:
                self.queues.add(queue)
        for bucket in blueprint.buckets.values():
            self.buckets.add(bucket)
        for secret in blueprint.secrets:
            if secret not in self.secrets.versions:
                self.secrets.put(secret, self._new_secret())
        self.outputs.update(blueprint.outputs)
        expires = any(spec.ttl for spec in blueprint.tables.values())
        if not self._sweeps and (expires or any(bucket.expirations for bucket in blueprint.buckets.values())):
            self._sweeps = True
            self.kernel.after(_EXPIRY, self._delete_expired)

    def connect_services(self, deployment: Deployment) -> None:
        """Let queues and rules of a deployment invoke its functions."""
        blueprint = deployment.blueprint
        for who, role, demand in deployment.demands:
            self.calls.needs(who, role, demand)
        self.functions.asynchronous = dict(blueprint.asynchronous)
        self.functions.refused = dict(blueprint.refused)
        self.queues.refused = {
            mapping.queue: mapping.refused for mapping in blueprint.mappings if mapping.refused is not None
        }
        for mapping in blueprint.mappings:
            self.queues.map(mapping)
        for stream in blueprint.streams:
            self.streams.map(stream)
        self.events.change(blueprint.rules)

    # --- For who prepares a run, acts in it from outside, or audits it

    def actor(self, name: str) -> Actor:
        """Make an actor outside of AWS that may do everything there."""
        return Actor(name, ActorKind.OUTSIDE, on_enter=lambda: self.deployment.switch.to(None))

    def table(self, name: str) -> list[Item]:
        """Every item of a table, by physical name, logical id or construct path."""
        if name not in self.db.tables:
            kinds = ("AWS::DynamoDB::GlobalTable", "AWS::DynamoDB::Table")
            resources = [resource for resource in self.deployment.blueprint.resources if resource.type in kinds]
            for kind in kinds:
                if any(resource.answers_to(name) and resource.type == kind for resource in resources):
                    name = find(resources, name, type=kind).physical_id
        return list(self.db.items(name))

    def records(self, table: str) -> list[Item]:
        """Every request record of a table; what others keep in it is left out."""
        return [item for item in self.db.items(table) if RecordAttribute.SAGA_ID in item]

    def output(self, name: str, stack: str | None = None) -> str:
        """An output of the stack that has it.

        Args:
            name: of the output.
            stack: the stack's name; None: only one has this output.

        Raises:
            KeyError: if no stack has it, or several have.
        """
        return output_of(self.outputs, name, stack)

    def call(self, service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Make a call at once, without faults."""
        return self.calls.direct(service, operation, params)


def _tables(params: Mapping[str, Any]) -> set[str]:
    """Tables that a call of DynamoDB writes to."""
    entries = [entry for item in params.get("TransactItems", ()) for entry in item.values()]
    return {str(one["TableName"]) for one in (params, *entries) if "TableName" in one}


def _is_own(params: Mapping[str, Any]) -> bool:
    """Test whether the library makes a call before a commit, and may make it again.

    It stores a large output under its hash, and sweeps a collecting account that is to be debited.
    """
    if _PAYLOAD_KEY.match(str(params.get("Key"))):
        return True
    puts = [item["Put"]["Item"] for item in params.get("TransactItems", ()) if "Put" in item]
    return any(put.get(LedgerAttribute.ENTRY_ID, {}).get("S", "").startswith(SWEEP) for put in puts)


def _table(spec: TableSpec, overtakes: Callable[[], bool]) -> Table:
    indexes = {
        index.name: Index(
            name=index.name,
            schema=KeySchema(names=index.keys, kinds=index.kinds),
            projected=index.projected,
            local=index.local,
            overtakes=overtakes,
        )
        for index in spec.indexes
    }
    schema = KeySchema(names=spec.keys, kinds=spec.kinds)
    return Table(name=spec.name, arn=spec.arn, schema=schema, indexes=indexes, ttl=spec.ttl)


@contextmanager
def running(
    deployment: Deployment,
    climate: Climate,
    seed: str,
    *,
    start: int,
    coverage: Coverage,
    changes: Changes = _no_changes,
) -> Iterator[World]:
    """A world in which things can happen, until the context ends."""
    with ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        environment = stack.enter_context(virtual_machine(seed))
        stack.enter_context(deployment.switch)
        stack.enter_context(_one_client_of_each())
        stack.enter_context(schemas_compiled_once())
        stack.enter_context(dataclasses_compiled_once())
        world = World(
            deployment, climate, seed, start=start, coverage=coverage, environment=environment, changes=changes
        )
        stack.enter_context(timed_by(world.kernel))
        stack.enter_context(world.calls.intercepted())
        stack.enter_context(world.internet.reached())
        stack.enter_context(observed(coverage.observe))
        try:
            yield world
        finally:
            for execution in world.machines.running():
                for strand in execution.strands:
                    strand.kill()
            for actor in (*world.functions.running.values(), *world.functions.left):
                actor.kill()
            deployment.reset()


@contextmanager
def _one_client_of_each() -> Iterator[None]:
    """Make each client once in a process: what a client holds is the same for everybody."""
    make: Any = botocore.session.Session.create_client

    @functools.wraps(make)
    def client(session: Any, service: str, *given: Any, **options: Any) -> Any:
        config = options.get("config")
        told = sorted((name, repr(value)) for name, value in vars(config).items()) if config is not None else ()
        key = (
            session.user_agent_name,  # boto3 gives some clients methods of its own
            service,
            repr(given),
            repr(sorted((n, repr(v)) for n, v in options.items() if n != "config")),
            repr(told),
        )
        if key not in _clients:
            options["region_name"] = options.get("region_name") or REGION
            options["aws_access_key_id"] = options.get("aws_access_key_id") or "simulated"
            options["aws_secret_access_key"] = options.get("aws_secret_access_key") or "simulated"
            made = _clients[key] = make(session, service, *given, **options)
            made.get_paginator = functools.cache(made.get_paginator)  # botocore makes a class for each call
        return _clients[key]

    with mock.patch.object(botocore.session.Session, "create_client", client):
        yield


_clients: dict[Any, Any] = {}
