"""EventIntake: webhooks, events, messages and changes that begin a direct operation, or a saga."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as event_sources
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib.callbacks.receivers import Webhook
from constructs_lib.callbacks.webhook_schemes import WebhookScheme, require_function
from constructs_lib.functions.access import grant_value, poll
from constructs_lib.functions.conflict_backoff import backoff_environment
from constructs_lib.functions.function_options import FunctionOptions
from constructs_lib.functions.handlers import require_made_by
from constructs_lib.functions.runtime_function import StepFunction
from constructs_lib.monitoring.alarms import (
    Runbook,
    SagaAlarm,
    counted_alarm,
    depth_alarm,
    errors_of,
    runtime_metric,
    total_of,
)
from constructs_lib.rest.rest_api import GATEWAY_SECONDS
from constructs_lib.saga.state_machine import SagaStateMachine
from constructs_lib.saga.synthesis.begin import begin_environment
from constructs_lib.shared.arguments import require_match, require_seconds
from constructs_lib.shared.manifest import Manifest
from constructs_lib.shared.manifest_format import Part, QueueRole
from constructs_lib.shared.service_names import service_of
from constructs_lib.shared.stacks import require_same_place, require_same_stack
from constructs_lib.shared.types import checked
from constructs_lib.tables.beginnings import require_one_beginning
from constructs_lib.tables.interfaces import IIdempotencyTable
from constructs_lib.tables.money_field import MoneyField
from saga_runtime.protocol import MAX_MESSAGE_BYTES, OPERATION_PATTERN, Env, Metric
from saga_runtime.shared.backoff import Backoff

_DAY_SECONDS: Final = 86_400
_LEAST_REMEMBERED_DAYS: Final = 30
"""Stripe sends an event again for three days, and for longer by hand."""
_KEPT: Final = Duration.days(14)
"""The longest that SQS keeps a message."""
_KEPT_SECONDS_AT_MOST: Final = 7 * _DAY_SECONDS
"""A standard dead-letter queue goes by the time at which a message was first sent (SQS Developer Guide, "Setting-up
dead-letter queue retention"): the wait counts."""
_RETRY_EVERY: Final = Duration.minutes(5)
_PARK_AFTER: Final = Duration.days(1)
_VISIBLE_AFTER: Final = 6
_SQS_VISIBLE_AFTER: Final = 30
_STREAM_AGE: Final = Duration.hours(12)
"""Half of what DynamoDB keeps a stream's records."""
_DELIVERIES: Final = 185
"""EventBridge's most: over a day, ever more slowly."""
_taken: Final[WeakKeyDictionary[StepFunction, str]] = WeakKeyDictionary()
"""Paths of the intakes that functions serve: an environment has room for one."""


class EventIntake(Construct):
    """Events of a provider, or of a bus, each of which begins one direct operation, or one saga.

    Creates a queue of kept events, which the function works off, a queue of parked events, and alarms. Events arrive by
    a webhook, by an EventBridge rule, from a queue or a table of your own, or from whatever may send to the queue of
    kept events: add what there is.

    Guaranteed: of all events with one business key, the writes of one take effect, in the transaction of the record
    that counts the others as duplicates. A webhook gets a 2xx, and a message is deleted, when its event is applied, a
    duplicate, not of interest, kept or parked; never before. An event for which the plan raises ``NotYet`` is kept, and
    planned again every ``retry_every``, until it is parked after ``park_after``. An event that is refused is parked at
    once, without a record: redriven, it is applied.

    Not guaranteed: order, beyond that. SQS deletes a parked event after 14 days, less the time for which it was kept:
    7 days at least. The alarm is on for as long as there is one.

    Example::

        stripe = EventIntake(self, "Stripe", operation="stripe", fn=credit, requests=requests)
        stripe.add_webhook("Webhook", scheme=StripeSignature(secrets=[secret]))

    Args:
        scope: parent construct.
        id: construct id.
        operation: name in the records: lower case, digits, dashes. It is part of the keys: renamed, every event counts
            as new. Intakes of one operation and one table share their keys, so they begin the same saga.
        fn: made by ``saga_runtime.event_operation``, or by ``event_saga`` if it begins a saga; for this intake only.
            Its timeout must be shorter than the gateway's 29 s. Grant it its own tables, as a step function.
        requests: where the records of a direct operation's events are; ``remember_for`` must be 30 days or more.
        saga: the saga that each event begins, in place of ``requests``: its records are in its own table, for which the
            same holds. An inline saga begins in its Express machine, and needs a ``TimeoutReconciler``.
        money: location of the amount in the ``request`` that the reader returns, of events that begin a saga: so that
            a ``TimeoutReconciler`` counts it among money in flight.
        backoff: tries of a direct operation's transaction that conflicts, as of a ``DirectFunction``.
        retry_every: how often a kept event is planned again; 30 s to 12 h, at least 6 times the function's timeout; 5
            minutes by default, or that.
        park_after: how long an event is kept, at most; 1 to 1000 times ``retry_every``, at most 7 days; 1 day by
            default. An event that is parked then has so much less than 14 days.
        function_options: ``FunctionOptions`` for the functions and log groups of this construct.
        removal_policy: of the queues and the log groups; retained by default.

    Attributes:
        kept: the queue of kept events; one that is sent here is handled at once.
        parked: the queue of parked events.
        function: what reads and plans.
        parked_alarm: an event is parked.
        refused_alarm: an event could not be handled, and will not be without a change, or the function failed as a
            whole; its sender sends it again.
        signature_alarm: a signature was wrong or too old.
        alarms: all of them. They have no actions: add yours.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        operation: str,
        fn: StepFunction,
        requests: IIdempotencyTable | None = None,
        saga: SagaStateMachine | None = None,
        money: MoneyField | None = None,
        backoff: Backoff | None = None,
        retry_every: Duration | None = None,
        park_after: Duration = _PARK_AFTER,
        function_options: FunctionOptions | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        require_match("operation", operation, OPERATION_PATTERN, "use lower case, digits and dashes")
        _require_fitting(id, saga, backoff, money)
        table = saga.requests if saga is not None else requests
        if table is None or (requests is not None and saga is not None):
            given = "neither" if table is None else "both"
            raise ValueError(
                f"EventIntake {id} must have requests or saga, got {given}; give requests for a direct operation, or "
                "the saga that its events begin"
            )
        require_made_by(f"fn of EventIntake {id}", fn, "event_operation" if saga is None else "event_saga")
        if fn.timeout_seconds >= GATEWAY_SECONDS:
            raise ValueError(
                f"the timeout of fn must be shorter than the gateway's {GATEWAY_SECONDS} s, got "
                f"{fn.timeout_seconds} s; lower it"
            )
        tries = backoff_environment(backoff, fn.timeout_seconds)
        least = _LEAST_REMEMBERED_DAYS * _DAY_SECONDS
        if table.remember_seconds < least:
            raise ValueError(
                f"remember_for of requests must be at least {_LEAST_REMEMBERED_DAYS} days for events, got "
                f"{table.remember_seconds} s; raise it: a redelivery after that is applied again"
            )
        shortest = max(30, _VISIBLE_AFTER * fn.timeout_seconds)
        default = Duration.seconds(max(shortest, int(_RETRY_EVERY.to_seconds())))
        retry_seconds = require_seconds("retry_every", retry_every or default, at_least=shortest, at_most=43_200)
        park_seconds = require_seconds(
            "park_after", park_after, at_least=retry_seconds, at_most=min(1_000 * retry_seconds, _KEPT_SECONDS_AT_MOST)
        )
        taken = _taken.get(fn)
        if taken is not None:
            raise ValueError(
                f"fn must serve one EventIntake, got {fn.node.path}, which serves {taken}; make another one"
            )
        super().__init__(scope, id)
        require_same_stack(
            self, f"fn of EventIntake {id}", fn, "its environment names the queues, and the intake invokes the function"
        )
        require_same_place(self, f"requests of EventIntake {id}", table, "create an IdempotencyTable there")
        require_one_beginning(
            f"operation of EventIntake {id}",
            table=table,
            kind="event",
            operation=operation,
            saga=None if saga is None else saga.node.path,
            other="another intake",
        )
        if function_options is not None:
            function_options.apply_to(self)
        _taken[fn] = self.node.path
        self.function = fn
        self._removal_policy = removal_policy
        self._schemes: list[str] = []
        self.parked = sqs.Queue(
            self,
            "Parked",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            max_message_size_bytes=MAX_MESSAGE_BYTES,
            retention_period=_KEPT,
            removal_policy=removal_policy,
        )
        self.kept = sqs.Queue(
            self,
            "Kept",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            max_message_size_bytes=MAX_MESSAGE_BYTES,
            retention_period=_KEPT,
            visibility_timeout=Duration.seconds(retry_seconds),
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.parked, max_receive_count=park_seconds // retry_seconds),
            removal_policy=removal_policy,
        )
        source = poll(self.kept, fn.function, batch_size=10)
        manifest, name = Manifest.of(self), fn.function.function_name
        manifest.add(Part.FUNCTIONS, name=name, role="the event intake")
        manifest.add(Part.SOURCES, uuid=source.event_source_mapping_id, queue=self.kept.queue_name, function=name)
        manifest.add(Part.QUEUES, url=self.parked.queue_url, role=QueueRole.DEAD, queue=self.kept.queue_name)
        table.grant_reserve(fn)
        if saga is None:
            table.grant_look(fn)
        else:
            saga.grant_begin(fn)
            saga.begin_by_events(intake=self.node.path, money=money)
        for queue in (self.kept, self.parked):
            iam.Grant.add_to_principal(grantee=fn, actions=["sqs:SendMessage"], resource_arns=[queue.queue_arn])
        for variable, value in {
            Env.OPERATION: operation,
            Env.REQUEST_TABLE: table.table.table_name,
            Env.DUE_SHARDS: str(table.due_shards),
            Env.KEPT_EVENTS: self.kept.queue_url,
            Env.PARKED_EVENTS: self.parked.queue_url,
            **(_saga_environment(saga, money) if saga is not None else _direct_environment(table)),
            **tries,
        }.items():
            fn.function.add_environment(variable, value)
        alarms = Construct(self, "Alarms")
        self.parked_alarm: cloudwatch.Alarm = depth_alarm(
            alarms,
            "Parked",
            Runbook.EVENT_PARKED,
            "An event was refused, or kept for too long: correct its cause, then redrive it",
            self.parked,
        )
        self.refused_alarm: cloudwatch.Alarm = SagaAlarm(
            alarms,
            "Refused",
            runbook=Runbook.EVENT_REFUSED,
            text="An event could not be handled, and will not be without a change: see the log event receiver_failed",
            metric=self._failures(starts=saga is not None),
        )
        self.signature_alarm: cloudwatch.Alarm = counted_alarm(
            alarms,
            "Signature",
            Runbook.WEBHOOK_SIGNATURE,
            "A signature was wrong or too old: a secret was changed on one side, or requests are forged or copied",
            [Metric.SIGNATURE_REFUSED],
            [service_of(fn)],
        )
        self.alarms = [self.parked_alarm, self.refused_alarm, self.signature_alarm]

    @checked
    def add_webhook(
        self,
        id: str,
        *,
        scheme: WebhookScheme,
        path: str | None = None,
        rate_limit: float = 100,
        burst_limit: int = 200,
        stage_name: str = "v1",
        cloud_watch_role: bool = True,
        web_acl_arn: str | None = None,
        snap_start: bool = False,
    ) -> Webhook:
        """Receive what the provider posts, as ``CallbackIntegration.add_webhook`` does.

        Args:
            id: construct id.
            scheme: how the provider signs; an intake has one.
            path: after the stage, without a slash first; none by default.
            rate_limit: requests per second, for the whole stage; 100 by default. More are refused with 429.
            burst_limit: requests at once, for the whole stage; 200 by default.
            stage_name: ``v1`` by default.
            cloud_watch_role: whether this stack sets API Gateway's role for logs, as for ``TransactionApi``.
            web_acl_arn: a web ACL of your own before the stage; none by default.
            snap_start: as for ``CallbackIntegration.add_webhook``; events of queues and streams start no snapshot.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        require_function(f"the scheme of webhook {id}", scheme, self.function)
        text = scheme.to_json()
        if self._schemes and text not in self._schemes:
            raise ValueError(
                f"scheme of webhook {id} must be that of the intake's other webhook, got another one; make "
                "an EventIntake for each"
            )
        self._schemes.append(text)
        webhook = Webhook(
            self,
            id,
            function=self.function.function,
            path=path,
            rate_limit=rate_limit,
            burst_limit=burst_limit,
            stage_name=stage_name,
            cloud_watch_role=cloud_watch_role,
            web_acl_arn=web_acl_arn,
            snap_start=snap_start,
            removal_policy=self._removal_policy,
        )
        self.function.function.add_environment(Env.WEBHOOK_SCHEME, text)
        for secret in scheme.secrets:
            grant_value(secret, self.function)
        return webhook

    @checked
    def add_event_rule(self, id: str, *, bus: events.IEventBus, pattern: events.EventPattern) -> events.Rule:
        """Receive events of a bus, through the queue of kept events.

        Guaranteed: an event that EventBridge could not deliver for a day is in ``parked``.

        Args:
            id: construct id of the rule.
            bus: where the events come from.
            pattern: which ones.
        """
        rule = events.Rule(
            self,
            id,
            description="Events that begin an operation",
            event_bus=bus,
            event_pattern=pattern,
            targets=[
                targets.SqsQueue(
                    self.kept,
                    dead_letter_queue=self.parked,
                    retry_attempts=_DELIVERIES,
                    max_event_age=Duration.days(1),
                )
            ],
        )
        Manifest.of(self).add(Part.RULES, name=rule.rule_name, bus=bus.event_bus_name, queue=self.kept.queue_name)
        return rule

    @checked
    def add_queue(self, queue: sqs.IQueue, *, batch_size: int = 10) -> None:
        """Receive the messages of a queue of your own, standard or FIFO: each is a JSON object.

        Guaranteed: a message is deleted when its event is applied, a duplicate, not of interest, kept or parked; never
        before. A message that is not a JSON object is parked. One that the function fails on is delivered again, the
        others of its batch do not; in a FIFO queue those behind it in its group wait for it, too.

        Not guaranteed: FIFO's order for an event that is kept, and for one that is redriven.

        Args:
            queue: where the messages come from. It needs a dead-letter queue, and a visibility timeout of 6 times the
                function's timeout (docs.aws.amazon.com/lambda, "Using Lambda with Amazon SQS"). Of an imported queue
                neither can be known here.
            batch_size: messages per call of the function; 1 to 10.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        if not 1 <= batch_size <= 10:
            raise ValueError(f"batch_size must be 1 to 10, got {batch_size}; 10 is the most of a FIFO queue")
        made = queue.node.default_child
        if isinstance(made, sqs.CfnQueue):
            self._require_fit(queue.node.path, made)
        source = poll(queue, self.function.function, batch_size=batch_size)
        Manifest.of(self).add(
            Part.SOURCES,
            uuid=source.event_source_mapping_id,
            queue=queue.queue_name,
            function=self.function.function.function_name,
        )

    def _require_fit(self, path: str, queue: sqs.CfnQueue) -> None:
        least = _VISIBLE_AFTER * self.function.timeout_seconds
        visible = queue.visibility_timeout if queue.visibility_timeout is not None else _SQS_VISIBLE_AFTER
        if visible < least:
            raise ValueError(
                f"visibility_timeout of queue {path} must be at least {least} s, {_VISIBLE_AFTER} times the function's "
                f"timeout, got {visible:.0f} s; raise it: a message would be given to a second function meanwhile"
            )
        if queue.redrive_policy is None:
            raise ValueError(
                f"queue {path} must have a dead-letter queue, got none; add one: SQS deletes a message that the "
                "function fails on when its retention ends"
            )

    @checked
    def add_stream(self, table: dynamodb.ITable, *, batch_size: int = 100) -> None:
        """Receive the changes of a table of your own, each as DynamoDB's stream has it.

        Guaranteed: a change is passed when its event is applied, a duplicate, not of interest, kept or parked; never
        before. One that the function fails on is kept, and does not hold back those behind it. Changes of the 12 hours
        before the deployment are received.

        A change of up to two images of 400 KB fits into a message, compressed. One that should not is named in
        ``parked`` by its keys and its place in the stream, with the reason ``TOO_LARGE``.

        Not guaranteed: order, for an event that is kept. A change that neither the database nor the queues take for 12
        hours, or that the function dies of, is named in ``parked`` by its place in the stream, where it can be read for
        12 hours more.

        Args:
            table: a table with a stream. Of a ``TableV2`` without one, CloudFormation refuses the deployment.
            batch_size: changes per call of the function; 1 to 1,000.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        if not 1 <= batch_size <= 1_000:
            raise ValueError(f"batch_size must be 1 to 1000, got {batch_size}; 100 is a usual one")
        if table.table_stream_arn is None:
            raise ValueError(
                f"table {table.node.path} must have a stream, got none; give it dynamo_stream, with the view that the "
                "function reads"
            )
        self.function.function.add_event_source(
            event_sources.DynamoEventSource(
                table,
                starting_position=lambda_.StartingPosition.TRIM_HORIZON,
                batch_size=batch_size,
                report_batch_item_failures=True,
                max_record_age=_STREAM_AGE,
                on_failure=event_sources.SqsDlq(self.parked),
            )
        )

    def metric_applied(self) -> cloudwatch.Metric:
        """Events applied: the sum of 5 minutes."""
        return self._metric(Metric.EVENT_APPLIED)

    def metric_duplicates(self) -> cloudwatch.Metric:
        """Events that were applied before, they or others with their business key: the sum of 5 minutes."""
        return self._metric(Metric.EVENT_DUPLICATE)

    def metric_kept(self) -> cloudwatch.Metric:
        """Events that need another one first: the sum of 5 minutes."""
        return self._metric(Metric.EVENT_KEPT)

    def metric_parked(self) -> cloudwatch.Metric:
        """Events that were refused, and parked: the sum of 5 minutes."""
        return self._metric(Metric.EVENT_PARKED)

    def metric_refused(self) -> cloudwatch.Metric:
        """Events that could not be handled, and will not be without a change: the sum of 5 minutes."""
        return self._metric(Metric.EVENT_REFUSED)

    def metric_signatures_rejected(self) -> cloudwatch.Metric:
        """Webhooks whose signature was wrong or too old: the sum of 5 minutes."""
        return self._metric(Metric.SIGNATURE_REFUSED)

    def _failures(self, *, starts: bool) -> cloudwatch.IMetric:
        """Refused events and starts, and failures of the function as a whole, which it cannot count."""
        counted = [Metric.EVENT_REFUSED, *([Metric.START_REFUSED] if starts else [])]
        return total_of([*map(self._metric, counted), errors_of(self.function.function)], "Refused")

    def _metric(self, metric: Metric) -> cloudwatch.Metric:
        return runtime_metric(metric, service_of(self.function), "Sum")

    @checked
    def grant_send(self, grantee: iam.IGrantable) -> iam.Grant:
        """Send events to the intake (``sqs:SendMessage`` on ``kept``), each as JSON, as the function reads it.

        The grantee decides what its events report.
        """
        return iam.Grant.add_to_principal(
            grantee=grantee, actions=["sqs:SendMessage"], resource_arns=[self.kept.queue_arn]
        )


def _require_fitting(id: str, saga: SagaStateMachine | None, backoff: Backoff | None, money: MoneyField | None) -> None:
    """Refuse what only a direct operation, or only a saga, has."""
    if saga is not None and backoff is not None:
        raise ValueError(f"EventIntake {id} must not have backoff with saga, got both; leave backoff out")
    if saga is None and money is not None:
        raise ValueError(
            f"EventIntake {id} must not have money without saga, got {money}; leave it out: what a direct operation "
            "moves is never in flight"
        )


def _saga_environment(saga: SagaStateMachine, money: MoneyField | None) -> dict[str, str]:
    stated: dict[str, str] = {Env.MONEY: money.environment_value} if money is not None else {}
    return {**begin_environment(saga), **stated}


def _direct_environment(requests: IIdempotencyTable) -> dict[str, str]:
    return {
        Env.REPLAY_SECONDS: str(requests.replay_seconds),
        Env.REMEMBER_SECONDS: str(requests.remember_seconds),
    }
