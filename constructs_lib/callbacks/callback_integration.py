"""CallbackIntegration: providers that answer later, early, twice, or never."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aws_cdk import Acknowledgment, Duration, RemovalPolicy, Stack, Validations
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_destinations as destinations
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib.callbacks.approval_page import ApprovalPage
from constructs_lib.callbacks.functions import CallbackCode, CallbackWorkers, let_sweeper
from constructs_lib.callbacks.receivers import DirectReceiver, Webhook
from constructs_lib.callbacks.subscriptions import ServedSaga
from constructs_lib.callbacks.webhook_schemes import WebhookScheme, require_function
from constructs_lib.functions.access import grant_value, poll
from constructs_lib.functions.function_options import FunctionOptions
from constructs_lib.functions.handlers import handler_of, require_made_by
from constructs_lib.functions.runtime_function import RuntimeFunction, own_code
from constructs_lib.monitoring.alarms import (
    Runbook,
    SagaAlarm,
    counted_alarm,
    depth_alarm,
    errors_of,
    runtime_metric,
    total_of,
)
from constructs_lib.monitoring.queues import let_event_bridge_use
from constructs_lib.rest.rest_api import GATEWAY_SECONDS
from constructs_lib.saga.description.function_facts import facts_of
from constructs_lib.shared.accepted import AnyKey
from constructs_lib.shared.arguments import require_between, require_seconds
from constructs_lib.shared.manifest import Manifest
from constructs_lib.shared.manifest_format import Part, QueueRole
from constructs_lib.shared.operator_actions import DEAD_LETTER_ACTIONS, QUEUE_ACTIONS
from constructs_lib.shared.service_names import service_of
from constructs_lib.shared.stacks import require_same_place
from constructs_lib.shared.types import checked
from constructs_lib.tables.interfaces import ITokenTable
from constructs_lib.tables.token_table import TokenTable
from saga_runtime.protocol import PREVIOUS_SECONDS, Env, Metric, ServedStepField

_DELIVERIES: Final = 185
"""EventBridge's most: over a day, ever more slowly."""
_VISIBLE_AFTER: Final = 6
"""Times the dispatcher's timeout: what AWS recommends, so that a message does not come back while it is worked on."""
_OWN_TIMEOUT: Final = Duration.seconds(15)
_SETTLED_DOUBT_SECONDS: Final = 40
"""A message comes again when its row's deadline, clock margin and a provider's usual grace have passed: earlier, it
could decide nothing."""
_LONGEST_VISIBILITY: Final = 43_200
_KEPT: Final = Duration.days(4)
_DEAD_KEPT: Final = Duration.days(14)


class CallbackIntegration(Construct):
    """A provider that accepts jobs and reports their outcomes later: a warehouse, a carrier, a reviewer.

    Creates a queue that sagas send jobs to, with a dead-letter queue; a table of waiting tasks (``TokenTable``), unless
    one is given; a function that dispatches the jobs (``fn``, or one of its own if nothing is dispatched); and
    alarms. Outcomes are received by a webhook, by events, by a direct invocation or by an approval page: add what
    the provider offers.

    Guaranteed: a waiting saga resumes exactly once, whatever arrives, in any order: early, twice, late,
    conflicting. A report is stored in the transaction that stores its effect, or is answered so that it is
    redelivered. A job that cannot be dispatched is dead-lettered, with an alarm. The receivers may end waits of
    the sagas that use this integration, and of no others.
    Not guaranteed: an outcome from the provider. Each step declares how long it waits.

    A saga, its integrations and their functions must be in one stack.

    Every function that works for an integration reports its metrics under the integration's name (dimension
    ``service``), so that the alarms count all of them.

    Example::

        warehouse = CallbackIntegration(self, "Warehouse", fn=hand_over)
        warehouse.add_webhook("Webhook", fn=from_warehouse, scheme=StandardWebhooks(secrets=[secret]))
        Step.callback("Pick", via=warehouse, provider=provider, compensate=cancel, expected_duration=Duration.hours(1))

    Args:
        scope: parent construct.
        id: construct id.
        fn: decorated with ``saga_runtime.callback_step``; it dispatches a job to the provider. Its timeout must be
            known. None: nothing is dispatched, a saga only waits for an occurrence.
        tokens: a table that integrations share; one of its own by default.
        batch_size: jobs that one invocation gets at most; 1 to 10, 5 by default. The function's timeout must do for all
            of them.
        max_concurrency: invocations at once at most, to spare the provider; 2 to 1000, unlimited by default.
        max_receives: how often a job is tried before it ends in the dead-letter queue; 2 to 100, 5 by default.
        visibility_timeout: after which a job that could not be dispatched is retried; at least 6 times the
            function's timeout, at most 12 hours. By default that, and at least the function's timeout and 40 s: the
            next try can determine the outcome of the previous one. Raise it for a provider with a long ``grace``.
        max_wait_age: alarm threshold: wait of an overdue job; 1 minute to 366
            days, 1 hour by default. A wait within its step's heartbeat raises no alarm.
        unanswered: a standard queue for the entries of jobs that their saga abandoned and that the provider never
            reported; ``dead_letters`` by default. Give it one to have them investigated by a saga.
        encryption_key: a KMS key of your own for queues, and for the table if it is the integration's.
        function_options: ``FunctionOptions`` for the functions and log groups of this construct.
        removal_policy: of the table and the log groups of its own; retained by default.

    Attributes:
        queue: where sagas put jobs.
        dead_letters: jobs that could not be dispatched, and without ``unanswered`` an entry for each job that its saga
            abandoned and that the provider never reported.
        tokens: the token table.
        dispatcher: the function that dispatches jobs.
        dispatcher_timeout: its timeout, in seconds.
        dispatcher_facts: its memory and architecture, if they are known.
        dispatcher_handler: what is known of its handler.
        visibility_seconds: as ``visibility_timeout``.
        message_seconds: for how long a message can be delivered: when it is about to leave the dead-letter
            queue, it is redriven, and the queue keeps it for as long as a new one.
        service: the dimension ``service`` of the metrics.
        overdue_callback_alarm: for 15 minutes, a task waits for too long, or an outcome cannot be
            delivered, or there is no data.
        dead_letter_queue_alarm: a job could not be dispatched, or was never reported.
        undelivered_callback_alarm: an outcome arrived when no task waited any more.
        callback_conflict_alarm: a provider reported two outcomes of one job, or used one event id for two things.
        unknown_job_alarm: an outcome arrived for an unknown job.
        signature_alarm: a signature was wrong, or too old.
        refused_alarm: a signed report could not be taken: the function failed, or returned what no job can have.
        approval: the approval page, if one was added.
        event_dead_letter_queue: where events end that could not be delivered or handled, if events are received.
        event_dead_letter_queue_alarm: there is one.
        alarms: all of them, and one of each webhook's function. They have no actions: add yours.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        fn: CallbackCode | None = None,
        tokens: ITokenTable | None = None,
        batch_size: int = 5,
        max_concurrency: int | None = None,
        max_receives: int = 5,
        visibility_timeout: Duration | None = None,
        max_wait_age: Duration | None = None,
        unanswered: sqs.IQueue | None = None,
        encryption_key: AnyKey | None = None,
        function_options: FunctionOptions | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        if function_options is not None:
            function_options.apply_to(self)
        require_made_by(f"fn of CallbackIntegration {id}", fn, "callback_step")
        if tokens is not None:
            require_same_place(self, f"tokens of CallbackIntegration {id}", tokens, "create a TokenTable there")
        require_between("batch_size", batch_size, at_least=1, at_most=10, later=True)
        require_between("max_receives", max_receives, at_least=2, at_most=100, later=True)
        if max_concurrency is not None:
            require_between("max_concurrency", max_concurrency, at_least=2, at_most=1_000, later=True)
        longest_wait = require_seconds(
            "max_wait_age", max_wait_age or Duration.hours(1), at_least=60, at_most=366 * 86_400
        )
        self._encryption_key = encryption_key
        self._removal_policy = removal_policy
        self._hands_over = fn is not None
        self._schemes: dict[lambda_.Function, str] = {}
        self._asynchronous: list[lambda_.Function] = []
        self.service = service_of(self)
        self.tokens: ITokenTable = tokens or TokenTable(
            self, "Tokens", encryption_key=encryption_key, removal_policy=removal_policy
        )
        self.event_dead_letter_queue: sqs.Queue | None = None
        self.event_dead_letter_queue_alarm: cloudwatch.Alarm | None = None
        self.approval: ApprovalPage | None = None
        self._workers = CallbackWorkers(self, "Serves", integration=self.node.path, tokens=self.tokens)
        code = fn if fn is not None else self._own_dispatcher()
        self.dispatcher_facts = facts_of(code)
        self.dispatcher_handler = handler_of(code)
        self.dispatcher_timeout = self.dispatcher_facts.timeout
        self.dispatcher = self._workers.adopt("fn", code)
        if not self.dispatcher_timeout:
            raise ValueError(
                f"the timeout of {self.dispatcher.node.path} cannot be known; give the function one: the queue must "
                "not give a message to a second invocation while the first one lives"
            )
        self.visibility_seconds = _visibility(self.dispatcher_timeout, visibility_timeout)
        self.dispatcher.add_environment(Env.MAX_RECEIVES, str(max_receives))
        self.message_seconds = int(_DEAD_KEPT.to_seconds() + _KEPT.to_seconds())
        self.dead_letters = self._queue("DeadLetters", retention=_DEAD_KEPT)
        self.queue = self._queue(
            "Queue",
            retention=_KEPT,
            visibility_timeout=Duration.seconds(self.visibility_seconds),
            dead_letters=sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=max_receives),
        )
        self._describe(poll(self.queue, self.dispatcher, batch_size=batch_size, max_concurrency=max_concurrency))
        if unanswered is not None and unanswered.fifo:
            raise ValueError(
                f"unanswered of {self.node.path} must be a standard queue, got {unanswered.node.path}, a FIFO queue; "
                "make another one"
            )
        self._unanswered = unanswered or self.dead_letters
        self._tells_of_jobs = False
        self._lets_event_bridge = False
        self._add_alarms(longest_wait)

    def _describe(self, source: lambda_.EventSourceMapping) -> None:
        manifest, name = Manifest.of(self), self.dispatcher.function_name
        manifest.add(Part.FUNCTIONS, name=name, role="the dispatcher of callbacks")
        manifest.add(Part.SOURCES, uuid=source.event_source_mapping_id, queue=self.queue.queue_name, function=name)
        manifest.add(Part.QUEUES, url=self.dead_letters.queue_url, role=QueueRole.JOBS)
        manifest.add(
            Part.INTEGRATIONS,
            path=self.node.path,
            table=self.tokens.table_name,
            queue=self.queue.queue_url,
            dead=self.dead_letters.queue_url,
        )

    @property
    def place(self) -> str:
        """Its path below its stack."""
        return str(self.node.path).removeprefix(f"{Stack.of(self).node.path}/")

    @property
    def sweeper(self) -> RuntimeFunction:
        """The function that looks every minute at what is due; integrations that share a table share it.

        Raises:
            ValueError: if the table is imported: the sweeper is that of its own app.
        """
        if self.tokens.sweeper is None:
            raise ValueError(
                f"tokens of {self.node.path} must be a table of this app for its sweeper, got an imported one; use "
                "tokens.sweeper_role or tokens.service"
            )
        return self.tokens.sweeper

    def serve(
        self,
        *,
        saga: str,
        log: dynamodb.ITableV2,
        requests: dynamodb.ITableV2,
        log_days: int,
        operators: sqs.IQueue,
        machines: Sequence[str],
        steps: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Receive callbacks of a saga's steps. ``SagaStateMachine`` calls it; an app has no need to.

        Every function of the integration, those that are added later included, may read and write single rows of the
        saga's log and single request records, and end waits of its state machines; receivers may extend waits, too.
        The sweeper reads rows of the log, changes request records, notifies operators, and ends waits.

        Args:
            saga: the saga's path; names the policy.
            log: its saga log.
            requests: where its requests' records are.
            log_days: how long its log's rows are kept.
            operators: its operators' queue.
            machines: ARNs of its state machines that wait at this integration.
            steps: its callback steps by name, with the fields of ``ServedStepField``.

        Raises:
            ValueError: for a job that no function would dispatch, a saga of another stack, or one that the functions'
                environment has no room for.
        """
        jobs = [name for name, step in steps.items() if step[ServedStepField.JOB]]
        if jobs and not self._hands_over:
            raise ValueError(
                f"{self.node.path} needs fn for {jobs} of saga {saga}, got none: no function would dispatch the job; "
                "give a function decorated with callback_step, or declare Step.wait_for if no provider works for it"
            )
        served = ServedSaga(log=log, requests=requests, days=log_days, operators=operators, steps=steps)
        self._workers.serve(saga, served, machines)
        if jobs:
            self._let_sweeper_tell_of_jobs()

    @checked
    def add_webhook(
        self,
        id: str,
        *,
        fn: CallbackCode,
        scheme: WebhookScheme,
        path: str | None = None,
        rate_limit: float = 100,
        burst_limit: int = 200,
        stage_name: str = "v1",
        cloud_watch_role: bool = True,
        web_acl_arn: str | None = None,
        snap_start: bool = False,
    ) -> Webhook:
        """Receive what the provider posts to an address of ours.

        Guaranteed: nothing is read of a request, and nothing written, before its signature was found to be genuine and
        young enough. What could not be kept is answered with a 5xx, so that the provider sends it again.

        Args:
            id: construct id.
            fn: decorated with ``saga_runtime.webhook``; returns what an event means. Its timeout must be shorter than
                the gateway's 29 s.
            scheme: how the provider signs.
            path: after the stage, without a slash first; none by default.
            rate_limit: requests per second, for the whole stage; 100 by default. More are refused with 429.
            burst_limit: requests at once, for the whole stage; 200 by default.
            stage_name: ``v1`` by default.
            cloud_watch_role: whether this stack sets API Gateway's role for logs, as for ``TransactionApi``.
            web_acl_arn: a web ACL of your own before the stage; none by default.
            snap_start: whether ``fn`` starts from a snapshot of its initialized state (Lambda SnapStart); no by
                default. AWS bills snapshots, and restoring them.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        seconds = facts_of(fn).timeout
        if seconds >= GATEWAY_SECONDS:
            raise ValueError(
                f"the timeout of fn of webhook {id} must be shorter than the gateway's {GATEWAY_SECONDS} s, got "
                f"{seconds} s: the provider would receive a failure while it continues; lower it"
            )
        require_function(f"the scheme of webhook {id}", scheme, fn)
        function = self._receiver(f"fn of webhook {id}", fn, "webhook")
        text = scheme.to_json()
        if function not in self._schemes:
            self._alarm_failures(id, function)
        if self._schemes.setdefault(function, text) != text:
            raise ValueError(
                f"fn of webhook {id} must check one scheme, got {function.node.path}, which already checks another; "
                "make a function for each: they may share their code"
            )
        webhook = Webhook(
            self,
            id,
            function=function,
            path=path,
            rate_limit=rate_limit,
            burst_limit=burst_limit,
            stage_name=stage_name,
            cloud_watch_role=cloud_watch_role,
            web_acl_arn=web_acl_arn,
            snap_start=snap_start,
            removal_policy=self._removal_policy,
        )
        function.add_environment(Env.WEBHOOK_SCHEME, text)
        for secret in scheme.secrets:
            grant_value(secret, function)
        return webhook

    @checked
    def add_event_rule(
        self, id: str, *, bus: events.IEventBus, pattern: events.EventPattern, fn: CallbackCode
    ) -> events.Rule:
        """Receive events of a bus.

        Guaranteed: an event that EventBridge could not deliver for a day, or that the function could not keep in three
        attempts, is in ``event_dead_letter_queue``, whole.

        Args:
            id: construct id of the rule.
            bus: where the events come from.
            pattern: which ones; several rules may name one function.
            fn: decorated with ``saga_runtime.event_receiver``; returns what an event means.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        function = self._receiver(f"fn of event rule {id}", fn, "event_receiver")
        rule = events.Rule(
            self,
            id,
            description="Events that may report a job's outcome",
            event_bus=bus,
            event_pattern=pattern,
            targets=[
                targets.LambdaFunction(
                    function,
                    dead_letter_queue=self._keep_lost_events_of(function),
                    retry_attempts=_DELIVERIES,
                    max_event_age=Duration.days(1),
                )
            ],
        )
        Manifest.of(self).add(Part.RULES, name=rule.rule_name, bus=bus.event_bus_name, function=function.function_name)
        if self._encryption_key is not None and not self._lets_event_bridge:
            self._lets_event_bridge = True
            let_event_bridge_use(self._encryption_key, self, "an event that it cannot deliver is lost")
        return rule

    @checked
    def add_direct_receiver(self, id: str) -> DirectReceiver:
        """A function that receives outcomes: ``{"job_id", "event_id", "outcome"}``. See its ``grant_invoke``.

        Invoked as an event (asynchronously), it keeps what it could not handle in ``event_dead_letter_queue``.
        """
        receiver = DirectReceiver(self, id, removal_policy=self._removal_policy)
        self._keep_lost_events_of(self._workers.adopt(id, receiver, heartbeats=True))
        return receiver

    @checked
    def add_approval_page(
        self,
        id: str,
        *,
        url: str | None = None,
        previous_for: Duration | None = None,
        rate_limit: float = 100,
        burst_limit: int = 200,
        waf: bool = True,
        rate_per_address: float | None = None,
        stage_name: str = "v1",
        cloud_watch_role: bool = True,
        snap_start: bool = False,
    ) -> ApprovalPage:
        """A page on which people decide; ``fn`` sends them links that ``saga_runtime.approval_link`` makes.

        Args:
            id: construct id.
            url: address of the page, e.g. of a domain that is mapped to the page's ``api``; the API's own by default.
            previous_for: for how long after a rotation of the page's secret links count that its previous version
                signed; 24 hours by default, 0 to 366 days. Links that expire later are void then.
            rate_limit: requests per second of each method; 100 by default.
            burst_limit: requests at once of each method; 200 by default.
            waf: whether to put a web ACL before the stage, as for ``TransactionApi``; yes by default: the page is
                open to everybody, and without it one stranger can use up all of its requests.
            rate_per_address: requests per second of one address; 1 by default.
            stage_name: ``v1`` by default.
            cloud_watch_role: whether this stack sets API Gateway's role for logs, as for ``TransactionApi``.
            snap_start: as for ``add_webhook``, for the page's function.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        if not self._hands_over:
            raise ValueError(
                f"{self.node.path} needs fn for its approval page {id}, got none: no function would send a link; give "
                "a function decorated with callback_step that sends approval_link(…) to the reviewer"
            )
        if self.approval is not None:
            raise ValueError(
                f"{self.node.path} must have one approval page, got {id} and {self.approval.node.id}; use the one "
                "there is: every link names its reviewer"
            )
        self.approval = ApprovalPage(
            self,
            id,
            url=url,
            previous_for=previous_for or Duration.seconds(PREVIOUS_SECONDS),
            rate_limit=rate_limit,
            burst_limit=burst_limit,
            waf=waf,
            rate_per_address=rate_per_address,
            stage_name=stage_name,
            cloud_watch_role=cloud_watch_role,
            encryption_key=self._encryption_key,
            snap_start=snap_start,
            removal_policy=self._removal_policy,
        )
        self._workers.adopt(id, self.approval.page)
        for name, value in self.approval.link_environment().items():
            self.dispatcher.add_environment(name, value)
        grant_value(self.approval.secret, self.dispatcher)
        return self.approval

    def metric_oldest_overdue(self) -> cloudwatch.Metric:
        """Seconds for which the oldest callback has been overdue: the maximum of 5 minutes.

        Of all integrations that share the token table.
        """
        return runtime_metric(Metric.OLDEST_WAITING, self.tokens.service, "Maximum")

    def metric_received(self) -> cloudwatch.Metric:
        """Outcomes of known jobs that were stored: the sum of 5 minutes."""
        return self._metric(Metric.CALLBACK_RECEIVED)

    def metric_duplicates(self) -> cloudwatch.Metric:
        """Outcomes that were known already: the sum of 5 minutes."""
        return self._metric(Metric.CALLBACK_DUPLICATE)

    def metric_early(self) -> cloudwatch.Metric:
        """Outcomes for which no task waited yet: the sum of 5 minutes."""
        return self._metric(Metric.CALLBACK_EARLY)

    def metric_undelivered(self) -> cloudwatch.Metric:
        """Outcomes for which no task waited any more, found on arrival: the sum of 5 minutes."""
        return self._metric(Metric.CALLBACK_LATE)

    def metric_conflicts(self) -> cloudwatch.Metric:
        """Outcomes that contradict the stored one: the sum of 5 minutes."""
        return self._metric(Metric.CALLBACK_CONFLICT)

    def metric_contradictions(self) -> cloudwatch.Metric:
        """Outcomes that contradict those of their jobs, not acknowledged by an operator: the most within 5 minutes.

        Measured by the sweeper, of all integrations that share the token table.
        """
        return runtime_metric(Metric.CONTRADICTIONS, self.tokens.service, "Maximum")

    def metric_late_effects(self) -> cloudwatch.Metric:
        """Late effects of settled sagas, an hour old and not compensated: the most within 5 minutes.

        Measured by the sweeper, of all integrations that share the token table.
        """
        return runtime_metric(Metric.LATE_OPEN, self.tokens.service, "Maximum")

    def metric_unknown_jobs(self) -> cloudwatch.Metric:
        """Outcomes of unknown jobs: the sum of 5 minutes."""
        return self._metric(Metric.CALLBACK_UNKNOWN)

    def metric_refused(self) -> cloudwatch.Metric:
        """Reports that failed, and will again without a change: the sum of 5 minutes."""
        return self._metric(Metric.CALLBACK_REFUSED)

    def metric_signatures_rejected(self) -> cloudwatch.Metric:
        """Webhooks whose signature was wrong or too old: the sum of 5 minutes."""
        return self._metric(Metric.SIGNATURE_REFUSED)

    def metric_dispatch_failed(self) -> cloudwatch.Metric:
        """Jobs that could not be dispatched: the sum of 5 minutes."""
        return self._metric(Metric.DISPATCH_FAILED)

    def _metric(self, metric: Metric) -> cloudwatch.Metric:
        return runtime_metric(metric, self.service, "Sum")

    @checked
    def grant_operate(self, grantee: iam.IGrantable) -> iam.Grant:
        """List waiting and dead-lettered jobs, redrive them, and deliver outcomes.

        Exactly what ``cdk-sagas callbacks`` does, for each saga that the integration serves, now or later. Rows and
        messages hold task tokens, and with them any wait can be ended: grant it to operators only.
        """
        self._workers.let_operate(grantee)
        if self._encryption_key is not None:
            self._encryption_key.grant(grantee, "kms:Decrypt", "kms:GenerateDataKey")
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=list(DEAD_LETTER_ACTIONS),
            resource_arns=[self.dead_letters.queue_arn],
        )
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=list(QUEUE_ACTIONS),
            resource_arns=[self.queue.queue_arn],
        )
        Manifest.of(self).grant_read(grantee)
        return self.tokens.grant_operate(grantee)

    def _receiver(self, name: str, code: CallbackCode, decorator: str) -> lambda_.Function:
        require_made_by(name, code, decorator)
        function = self._workers.adopt(name, code, heartbeats=True)
        if function is self.dispatcher:
            raise ValueError(
                f"{name} must not be the dispatcher, got {function.node.path}: a handler dispatches jobs or receives "
                "their outcomes; make a function for each"
            )
        return function

    def _alarm_failures(self, id: str, function: lambda_.Function) -> None:
        """An alarm of its own: a function that cannot be started, or is ended, counts no report as refused."""
        alarm = SagaAlarm(
            self._alarm_scope,
            f"{id}Failed",
            runbook=Runbook.CALLBACK_REFUSED,
            text="The function of a webhook failed, or ran out of time: its provider's reports may not be stored",
            metric=errors_of(function),
        )
        self.alarms.append(alarm)

    def _keep_lost_events_of(self, function: lambda_.Function) -> sqs.Queue:
        """The queue for events that could not be handled; failures of the function go there too."""
        queue = self.event_dead_letter_queue or self._add_event_dead_letters()
        if function not in self._asynchronous:
            self._asynchronous.append(function)
            function.configure_async_invoke(on_failure=destinations.SqsDestination(queue), retry_attempts=2)
        return queue

    def _add_event_dead_letters(self) -> sqs.Queue:
        queue = self._queue("EventDeadLetters", retention=Duration.days(14))
        Validations.of(queue).acknowledge(
            Acknowledgment(
                id="AwsSolutions-SQS3",
                reason="This queue is the last destination of events that could not be delivered or handled: an alarm "
                "fires when it is not empty, and operators read what is in it.",
            )
        )
        self.event_dead_letter_queue = queue
        Manifest.of(self).add(Part.QUEUES, url=queue.queue_url, role=QueueRole.DEAD)
        self.event_dead_letter_queue_alarm = depth_alarm(
            self._alarm_scope,
            "EventDeadLetterQueue",
            Runbook.EVENT_DEAD_LETTERS,
            "An event could not be delivered, or not be handled",
            queue,
        )
        self.alarms.append(self.event_dead_letter_queue_alarm)
        return queue

    def _let_sweeper_tell_of_jobs(self) -> None:
        """Let the sweeper send entries of unanswered jobs to their queue; the dispatcher records which one.

        In its own policy: the sweeper may be in another stack, which must not depend on this one.
        """
        if self._tells_of_jobs:
            return
        self._tells_of_jobs = True
        self.dispatcher.add_environment(Env.DEAD_LETTERS, self._unanswered.queue_url)
        statements = [iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[self._unanswered.queue_arn])]
        key = self._unanswered.encryption_master_key
        if key is not None:
            actions = ["kms:Decrypt", "kms:GenerateDataKey"]
            statements.append(iam.PolicyStatement(actions=actions, resources=[key.key_arn]))
        let_sweeper(self, "TellsOfJobs", self.tokens, statements)

    def _own_dispatcher(self) -> RuntimeFunction:
        return RuntimeFunction(
            self,
            "Dispatcher",
            code=own_code(),
            handler="handlers.callback_dispatcher.handler",
            description="Registers tasks that wait for a callback; dispatches nothing",
            timeout=_OWN_TIMEOUT,
            longest_timeout=_OWN_TIMEOUT,
            removal_policy=self._removal_policy,
        )

    def _queue(
        self,
        id: str,
        *,
        retention: Duration,
        visibility_timeout: Duration | None = None,
        dead_letters: sqs.DeadLetterQueue | None = None,
    ) -> sqs.Queue:
        key = self._encryption_key
        return sqs.Queue(
            self,
            id,
            encryption=sqs.QueueEncryption.KMS if key is not None else sqs.QueueEncryption.SQS_MANAGED,
            encryption_master_key=key,
            enforce_ssl=True,
            retention_period=retention,
            visibility_timeout=visibility_timeout,
            dead_letter_queue=dead_letters,
            removal_policy=self._removal_policy,
        )

    def _add_alarms(self, longest_wait: int) -> None:
        self._alarm_scope = scope = Construct(self, "Alarms")
        sweeper = self.tokens.service
        # A wait that is overdue for a moment, until its state machine retries, does not alarm.
        self.overdue_callback_alarm = SagaAlarm(
            scope,
            "CallbackOverdue",
            runbook=Runbook.CALLBACK_OVERDUE,
            text=f"A job is overdue, or its outcome not delivered, for more than {longest_wait} s, or there is no "
            "data: see cdk-sagas callbacks",
            metric=runtime_metric(Metric.OLDEST_WAITING, sweeper, "Maximum"),
            above=longest_wait,
            periods=3,
            silence_breaches=True,
        )
        self.dead_letter_queue_alarm = depth_alarm(
            scope,
            "DeadLetterQueue",
            Runbook.CALLBACK_DEAD_LETTERS,
            "A job could not be dispatched, or was never reported: see cdk-sagas callbacks",
            self.dead_letters,
        )
        late = [
            runtime_metric(metric, service, "Sum")
            for metric in (Metric.CALLBACK_LATE, Metric.CALLBACK_APPLIED_LATE)
            for service in (self.service, sweeper)
        ]
        self.undelivered_callback_alarm = SagaAlarm(
            scope,
            "CallbackUndelivered",
            runbook=Runbook.CALLBACK_UNDELIVERED,
            text="An outcome arrived when no task waited any more, or a late effect is not compensated: see cdk-sagas "
            "callbacks",
            # A late effect that nothing compensates stays until an operator has decided about it.
            metric=total_of([*late, self.metric_late_effects()], "CallbackUndelivered"),
        )
        counted = [self._metric(metric) for metric in (Metric.CALLBACK_CONFLICT, Metric.EVENT_ID_REUSED)]
        self.callback_conflict_alarm = SagaAlarm(
            scope,
            "CallbackConflict",
            runbook=Runbook.CALLBACK_CONFLICT,
            text="A provider reported two outcomes of one job, or used one event id twice: ask it which is true",
            # The second outcome stays until an operator acknowledges it.
            metric=total_of([*counted, self.metric_contradictions()], "CallbackConflict"),
        )
        self.unknown_job_alarm = counted_alarm(
            scope,
            "UnknownJob",
            Runbook.CALLBACK_UNKNOWN_JOB,
            "An outcome arrived for an unknown job: it is stored",
            [Metric.CALLBACK_UNKNOWN],
            [self.service],
        )
        self.signature_alarm = counted_alarm(
            scope,
            "SignatureRejected",
            Runbook.WEBHOOK_SIGNATURE,
            "A signature was wrong or too old: a secret was changed on one side, or requests are forged or copied",
            [Metric.SIGNATURE_REFUSED],
            [self.service],
        )
        self.refused_alarm = counted_alarm(
            scope,
            "Refused",
            Runbook.CALLBACK_REFUSED,
            "A provider's report failed, and nothing was stored: see receiver_failed in the logs",
            [Metric.CALLBACK_REFUSED],
            [self.service],
        )
        self.alarms: list[cloudwatch.Alarm] = [
            self.overdue_callback_alarm,
            self.dead_letter_queue_alarm,
            self.undelivered_callback_alarm,
            self.callback_conflict_alarm,
            self.unknown_job_alarm,
            self.signature_alarm,
            self.refused_alarm,
        ]


def _visibility(dispatcher_timeout: int, given: Duration | None) -> int:
    least = _VISIBLE_AFTER * dispatcher_timeout
    if given is None:
        return max(least, dispatcher_timeout + _SETTLED_DOUBT_SECONDS)
    return require_seconds("visibility_timeout", given, at_least=least, at_most=_LONGEST_VISIBILITY)
