"""One stack with many drawn sagas: one synth for all of them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib import (
    CallbackIntegration,
    ContinueWith,
    DirectFunction,
    DirectOperation,
    Effect,
    EventIntake,
    IdempotencyTable,
    Notify,
    Operation,
    PayloadBucket,
    Provider,
    RefusalPolicy,
    Retry,
    Run,
    SagaStateMachine,
    Shift,
    Step,
    StepFunction,
    TimeoutReconciler,
    TokenTable,
    TransactionApi,
    Versions,
)
from constructs_lib.saga.steps.group import StepGroup

from .accounts import Accounts
from .hosts import GRACE, RETRY, Hosts
from .names import DIRECT, OPEN, aside_of, operation_of, queue_of, second_of
from .releases import DrawnRelease, moved_to
from .sagas import JOB_ROUTES, PROVIDERS, ROUTES, SKIP, DrawnSaga, DrawnStep, Node

FUNCTIONS: Final = Path(__file__).parent / "functions"
_DAY: Final = Duration.hours(24)
_LONGEST_WAIT: Final = Duration.hours(1)
_SHORT_EXPRESS: Final = Duration.seconds(45)
_SHORT_CHILD: Final = Duration.minutes(2)
_SHORT_WAITING: Final = Duration.minutes(65)
"""Timeouts that phases may exceed; of one that waits, longer than its wait must be."""
_HEARTBEAT: Final = Duration.minutes(10)
_GRACE: Final = Duration.seconds(10)
_PREFERRED: Final = Duration.seconds(10)
_RECONCILED: Final = 6
"""Sagas that a reconciler has room for."""
_SHARDS: Final = 2
"""Of the requests: each sweep queries all of them, and few requests need few."""
REFUSED: Final = ("InsufficientFunds", "CapExceeded", "HoldClosed")
"""Refusals of steps that post."""
_SCHEMA: Final = {"type": "object"}
GUARANTEES: Final[dict[str, dict[str, Any]]] = {
    "asked": {"verify": True, "verify_undo": True},
    "keyed": {"idempotent_for": _DAY, "compensation_idempotent_for": _DAY},
    "both": {"idempotent_for": _DAY, "compensation_idempotent_for": _DAY, "verify": True, "verify_undo": True},
}
_EXTERNAL: Final = {"asked": "asked", "keyed": "keyed", "both": "asked"}


def _has_id(release: DrawnRelease | None) -> bool:
    """True if the release's saga has the construct id of the first one."""
    return release is not None and release.kind != "replaced"


class DrawnStack(Stack):
    """Drawn sagas, each behind an operation of its own.

    Args:
        scope: an app.
        sagas: what was drawn.
        releases: the change of each saga, if this is a later release.
        shift: how a deployment moves their aliases; None: they have none.
        numbers: the sagas' numbers, in an app of several stacks; the first ones by default.
        first: the stack whose tables this one shares; None: its own ones, and the direct operations.
        tokens: whether stacks share the token table, too.

    Attributes:
        reconciler: of the first sagas.
    """

    def __init__(
        self,
        scope: Construct,
        sagas: Sequence[DrawnSaga],
        releases: Sequence[DrawnRelease] = (),
        shift: str | None = None,
        *,
        numbers: Sequence[int] | None = None,
        first: DrawnStack | None = None,
        tokens: bool = False,
    ) -> None:
        self._numbers = numbers if numbers is not None else range(len(sagas))
        super().__init__(scope, f"Drawn{self._numbers[0] or ''}")
        self._versions = _versions(shift)
        self._definitions = tempfile.TemporaryDirectory(prefix="cdk-sagas-drawn-")
        if first is None:
            self._effects = dynamodb.TableV2(
                self, "Effects", partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
            )
            self._objects = s3.Bucket(self, "Objects")
            self._bus = events.EventBus(self, "Bus")
            self._accounts = Accounts(self, self._bus, FUNCTIONS)
        else:
            self._effects, self._objects, self._bus = first._effects, first._objects, first._bus
            self._accounts = first._accounts
        self._hosts = Hosts(self, FUNCTIONS)
        undelivered = sqs.Queue(self, "Undelivered", fifo=True)
        self._notices = sqs.Queue(
            self, "Notices", fifo=True, dead_letter_queue=sqs.DeadLetterQueue(queue=undelivered, max_receive_count=5)
        )
        self._told = Notify(queue=self._notices)
        self._inline = False
        self._functions: dict[str, StepFunction] = {}
        self._integrations: dict[str, CallbackIntegration] = {}
        self._requests: IdempotencyTable = (
            first._requests if first is not None else IdempotencyTable(self, "Requests", due_shards=_SHARDS)
        )
        self._tokens: TokenTable | None = first._tokens if first is not None else None
        if tokens and first is None:
            self._tokens = TokenTable(self, "Tokens")
        requests = self._requests
        changed = {number: release for number, release in enumerate(releases) if release.kind != "same"}
        made = [
            self._saga(str(number), changed[number].saga if _has_id(changed.get(number)) else saga, requests)
            for number, saga in enumerate(sagas)
        ]
        others = {
            number: self._saga(second_of(number), release.saga, requests)
            for number, release in changed.items()
            if release.kind == "replaced"
        }
        every = [*made, *others.values()]
        self.reconciler, *_ = [
            TimeoutReconciler(self, f"Reconciler{start}", sagas=every[start : start + _RECONCILED])
            for start in range(0, len(every), _RECONCILED)
        ]
        CfnOutput(self, "OperatorsQueueUrl", value=made[0].operators.queue_url)
        operations: dict[str, Operation | DirectOperation] = {
            operation_of(number): _operation(others.get(n, made[n]), changed[n].saga if n in changed else sagas[n])
            for n, number in enumerate(self._numbers)
        }
        for number, release in changed.items():
            name = operation_of(number)
            if release.kind == "stricter":
                operations[name] = _operation(made[number], release.saga, {**_SCHEMA, "required": ["c"]})
            if release.kind == "direct":
                function = self._direct(name)
                operations[name] = DirectOperation(fn=function, requests=requests, previous=made[number])
        for number, other in moved_to(changed).items():
            operations[operation_of(number)] = _operation(made[other], sagas[other])
        started = {**dict(enumerate(made)), **others, **{n: made[to] for n, to in moved_to(changed).items()}}
        for number, saga in enumerate(sagas):
            if saga.queued:
                self._begin_by_messages(number, started[number])
        for name, policy in ((DIRECT, RefusalPolicy.FINAL), (OPEN, RefusalPolicy.OPEN)) if first is None else ():
            operations[name] = DirectOperation(
                fn=self._direct(name), requests=requests, previous=None, refusal_policy=policy
            )
        TransactionApi(self, "Api", operations=operations)
        if first is None:
            CfnOutput(self, "ObjectsName", value=self._objects.bucket_name)
            CfnOutput(self, "EffectsTableName", value=self._effects.table_name)

    def _saga(self, id: str, saga: DrawnSaga, requests: IdempotencyTable) -> SagaStateMachine:
        self._inline = saga.inline
        made = SagaStateMachine(
            self,
            f"Saga{id}",
            requests=requests,
            steps=[self._node(node) for node in saga.nodes],
            on_failed=self._told if saga.announced else None,
            payloads=PayloadBucket(self, f"Payloads{id}") if saga.bucket else None,
            run=Run.INLINE if saga.inline else Run.STANDARD,
            versions=None if saga.inline else self._versions,
            definition_file=Path(self._definitions.name) / f"{id}.json" if saga.inline else None,
        )
        CfnOutput(self, f"Log{self._in_all(id)}", value=made.log.table.table_name)
        return made

    def _in_all(self, id: str) -> str:
        """The id of a saga among those of all stacks."""
        number, second, _ = id.partition("V")
        return f"{self._numbers[int(number)]}{id.removeprefix(number) if second else ''}"

    def _begin_by_messages(self, number: int, saga: SagaStateMachine) -> None:
        """Let messages of a queue begin what clients begin by the API, under the same operation."""
        reader = StepFunction(
            self, f"Reader{number}", code=FUNCTIONS, handler="work.begun.handler", timeout=Duration.seconds(20)
        )
        intake = EventIntake(self, f"Intake{number}", operation=operation_of(number), fn=reader, saga=saga)
        dead = sqs.Queue(self, f"Dead{number}")
        queue = sqs.Queue(
            self,
            f"Queue{number}",
            visibility_timeout=Duration.seconds(6 * reader.timeout_seconds),
            dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=50),
        )
        intake.add_queue(queue)
        parked, failed = aside_of(number)
        CfnOutput(self, queue_of(number), value=queue.queue_url)
        CfnOutput(self, parked, value=intake.parked.queue_url)
        CfnOutput(self, failed, value=dead.queue_url)

    def _direct(self, operation: str) -> DirectFunction:
        environment = {"EFFECTS_TABLE": self._effects.table_name}
        function = DirectFunction(
            self,
            f"{operation.title()}Function",
            code=FUNCTIONS,
            handler="work.direct.handler",
            schema=_SCHEMA,
            environment=environment,
            timeout=Duration.seconds(20),
        )
        self._effects.grant(function, "dynamodb:UpdateItem")
        return function

    def _node(self, node: Node) -> Step | StepGroup:
        if isinstance(node, DrawnStep):
            return self._step(node)
        branches = [[self._step(step) for step in branch] for branch in node.branches]
        match node.kind:
            case "parallel":
                return Step.parallel(node.name, branches=branches, when=node.when)
            case "map":
                return Step.map(
                    node.name,
                    items=node.items,
                    key="$item.sku",
                    steps=branches[0],
                    max_items=node.max_items,
                    when=node.when,
                )
            case "express":
                timeout = _SHORT_EXPRESS if node.short else None
                return Step.express(node.name, steps=branches[0], when=node.when, timeout=timeout)
        waits = any(step.kind in ("job", "wait") for step in node.steps)
        timeout = (_SHORT_WAITING if waits else _SHORT_CHILD) if node.short else Duration.days(2)
        return Step.child(node.name, steps=branches[0], timeout=timeout, when=node.when)

    def _step(self, step: DrawnStep) -> Step:
        more: dict[str, Any] = {"when": step.when}
        plain = self._without_function(step, more)
        if plain is not None:
            return plain
        more |= {"pivot": step.pivot}
        if step.kind == "job":
            return Step.callback(
                step.name,
                via=self._at("job"),
                provider=_provider("both"),
                compensate=self._function("external.cancel", "job") if step.undo else None,
                timeout=_LONGEST_WAIT,
                heartbeat=_HEARTBEAT,
                refusals=[*JOB_ROUTES],
                on_error={error: _instead(error) for error in JOB_ROUTES} if step.route == SKIP else {},
                **more,
            )
        more |= {"refusals": ["SoldOut", *ROUTES], "on_error": self._routes(step)}
        if step.hosted:
            provider = Provider(grace=GRACE, **GUARANTEES[step.kind])
            host = self._hosts.of(step.kind, provider)
            undo = host.compensation if step.undo else None
            return Step.external(step.name, fn=host.step, compensate=undo, provider=provider, retry=RETRY, **more)
        if step.kind in PROVIDERS:
            form = _EXTERNAL[step.kind]
            return Step.external(
                step.name,
                fn=self._function(f"external.act_{form}", step.kind),
                compensate=self._function(f"external.undo_{form}", step.kind) if step.undo else None,
                provider=_provider(step.kind),
                retry=Retry(in_doubt_attempts=3, in_doubt_interval=5, in_doubt_rate=2.0),
                **more,
            )
        if step.posts:
            if step.refusable:
                more["refusals"] += [*REFUSED]
            undo = self._function("posting.undo") if step.undo else None
            return Step.atomic(step.name, fn=self._function("posting.act"), compensate=undo, **more)
        undo = self._function("atomic.undo") if step.undo else None
        return Step.atomic(step.name, fn=self._function("atomic.act"), compensate=undo, **more)

    def _without_function(self, step: DrawnStep, more: dict[str, Any]) -> Step | None:
        """A step that calls no function of its own, reads, or waits; None: it is another one."""
        match step.kind:
            case "notify":
                return Step.notify(step.name, queue=self._notices, **more)
            case "event":
                self._accounts.consume()
                return Step.event(step.name, bus=self._bus, source="drawn", detail_type="Happened", **more)
            case "look up":
                return self._look_up(step)
            case "store":
                return self._store(step)
            case "pause":
                return Step.custom(step.name, state={"Type": "Wait", "Seconds": 2}, **more)
            case "token":
                return self._hosts.waiting(step.name, refusable=step.refusable, **more)
            case "read":
                return Step.read_only(step.name, fn=self._function("atomic.read"), refusals=["SoldOut"], **more)
            case "wait":
                errors = ("WaitTimedOut", *JOB_ROUTES) if step.route == SKIP else ()
                return Step.wait_for(
                    step.name,
                    via=self._at("wait"),
                    timeout=_LONGEST_WAIT,
                    heartbeat=_HEARTBEAT,
                    refusals=["SoldOut"],
                    on_error={error: _instead(error) for error in errors},
                    **more,
                )
            case "dynamodb":
                return Step.dynamodb(
                    step.name,
                    table=self._effects,
                    writes=[_counted(), *([_taken(step.posts)] if step.posts else [])],
                    compensate=[_counted(), *([_put_back(step.posts)] if step.posts else [])] if step.undo else [],
                    output='{"taken": 1}' if step.posts else None,
                    pivot=step.pivot,
                    **more,
                )
        return None

    def _look_up(self, step: DrawnStep) -> Step:
        """A call of a service that reads."""
        return Step.service(
            step.name,
            service="dynamodb",
            action="getItem",
            parameters={"TableName": self._effects.table_name, "Key": {"id": {"S": "{% $step_key %}"}}},
            effect=Effect.READ,
            policies=[iam.PolicyStatement(actions=["dynamodb:GetItem"], resources=[self._effects.table_arn])],
            output=None if self._inline else '{"found": $exists($states.result.Item)}',
            when=step.when,
        )

    def _store(self, step: DrawnStep) -> Step:
        """A call of a service that has the same effect however often it is made."""
        return Step.service(
            step.name,
            service="s3",
            action="putObject",
            parameters={"Bucket": self._objects.bucket_name, "Key": "{% $step_key %}", "Body": "stored"},
            effect=Effect.IDEMPOTENT,
            policies=[iam.PolicyStatement(actions=["s3:PutObject"], resources=[self._objects.arn_for_objects("*")])],
            when=step.when,
        )

    def _routes(self, step: DrawnStep) -> dict[str, Any]:
        match step.route:
            case "notify":
                return {"Routed": self._told}
            case "continue":
                return {error: _instead(error) for error in ROUTES}
        return {}

    def _at(self, mode: str) -> CallbackIntegration:
        """Integration for callbacks: of jobs at a provider, or of waits without a job."""
        if mode not in self._integrations:
            begin = self._function("external.begin", mode)
            integration = CallbackIntegration(self, mode.title(), fn=begin, tokens=self._tokens)
            receiver = integration.add_direct_receiver("Answers")
            CfnOutput(self, f"{mode.title()}ReceiverName", value=receiver.function.function_name)
            self._integrations[mode] = integration
        return self._integrations[mode]

    def _function(self, handler: str, mode: str = "") -> StepFunction:
        name = "".join(part.title() for part in f"{mode}.{handler}".replace("_", ".").split("."))
        posts = handler.startswith("posting")
        if name not in self._functions:
            function = StepFunction(
                self,
                name,
                code=FUNCTIONS,
                handler=f"work.{handler}",
                timeout=Duration.seconds(10),
                environment={
                    "EFFECTS_TABLE": self._effects.table_name,
                    "PROVIDER_MODE": mode,
                    **(self._accounts.environment if posts else {}),
                },
            )
            self._effects.grant(function, "dynamodb:UpdateItem")
            if posts:
                self._accounts.serve(function)
            self._functions[name] = function
        return self._functions[name]


def _versions(shift: str | None) -> Versions | None:
    if shift is None:
        return None
    if shift == Shift.ALL_AT_ONCE:
        return Versions()
    return Versions(shift=Shift(shift), percent=30, every=Duration.minutes(2))


def _provider(kind: str) -> Provider:
    return Provider(grace=_GRACE, **GUARANTEES[kind])


def _instead(error: str) -> ContinueWith:
    return ContinueWith(output={"instead": error, "items": [{"sku": "a"}, {"sku": "b"}]})


def _counted() -> dict[str, Any]:
    return {
        "Update": {
            "Key": {"id": {"S": "{% $step_key %}"}},
            "UpdateExpression": "ADD times :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }
    }


def _taken(stock: str) -> dict[str, Any]:
    return {
        "Update": {
            "Key": {"id": {"S": stock}},
            "UpdateExpression": "ADD pieces :less",
            "ConditionExpression": "pieces > :none",
            "ExpressionAttributeValues": {":less": {"N": "-1"}, ":none": {"N": "0"}},
        }
    }


def _put_back(stock: str) -> dict[str, Any]:
    return {
        "Update": {
            "Key": {"id": {"S": stock}},
            "UpdateExpression": "ADD pieces :taken",
            "ExpressionAttributeValues": {":taken": {"N": "{% $string($output.taken) %}"}},
        }
    }


def _operation(saga: SagaStateMachine, drawn: DrawnSaga, schema: dict[str, Any] = _SCHEMA) -> Operation:
    wait = _PREFERRED if drawn.inline else None
    return Operation(saga=saga, schema=schema, max_wait=wait, max_body_bytes=drawn.body)
