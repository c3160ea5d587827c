"""CallbackIntegration: providers that answer later, early, twice, or never."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as event_sources
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib._arguments import require_between, require_seconds
from constructs_lib._callback_alarms import counted_alarm, depth_alarm, oldest_waiting_alarm
from constructs_lib._served_sagas import MAX_SERVED_BYTES, ServedSaga, served_bytes, served_text
from constructs_lib.runtime_function import RuntimeFunction, own_code
from constructs_lib.saga.functions import facts_of
from constructs_lib.token_table import TokenTable
from saga_runtime.protocol import Env, Metric

CallbackCode = RuntimeFunction | lambda_.IFunction
"""What dispatches or receives: a ``StepFunction``, or a function of the app that runs ``saga_runtime``."""

_VISIBLE_AFTER: Final = 6
"""Times the dispatcher's timeout: what AWS recommends, so that a message does not come back while it is worked on."""
_SETTLED_DOUBT_SECONDS: Final = 40
"""A message comes again when its row's deadline, clock margin and a provider's usual grace have passed: earlier, it
could decide nothing."""
_LONGEST_VISIBILITY: Final = 43_200
_taken: Final[WeakKeyDictionary[lambda_.Function, str]] = WeakKeyDictionary()
"""Paths of the integrations that functions work for: an environment has room for one."""


class CallbackIntegration(Construct):
    """A provider that takes jobs now and says later what became of them; a warehouse, a carrier, a person.

    Creates a queue that sagas put jobs into, with a dead-letter queue; a table of who waits (``TokenTable``), unless
    one is given; a function that hands the jobs over (``fn``, or one of its own where nothing is handed over); and
    alarms. What comes back is received by a webhook, by events, by a direct invocation or by an approval page: add what
    the provider offers.

    Guaranteed: a saga that waits is woken exactly once, whatever arrives, in whatever order: early, twice, late,
    contradicting itself. What arrived is kept in the transaction that keeps its effect, or is answered so that it comes
    again. A job that cannot be handed over ends in the dead-letter queue, with an alarm. The receivers may end waits of
    the sagas that use this integration, and of no others.
    Not guaranteed: that the provider answers. Each step declares how long it waits.

    A saga, the integrations that it waits at, and their functions stand in one stack.

    Every function that works for an integration reports its metrics under the integration's name (dimension
    ``service``), so that the alarms count all of them.

    Example::

        warehouse = CallbackIntegration(self, "Warehouse", fn=hand_over)
        warehouse.add_webhook("Webhook", fn=from_warehouse, scheme=StandardWebhooks(secrets=[secret]))
        Step.callback("Pick", via=warehouse, provider=provider, compensate=cancel, expected_duration=Duration.hours(1))

    Args:
        scope: parent construct.
        id: construct id.
        fn: decorated with ``saga_runtime.callback_step``; it hands a job to the provider. Its timeout must be known.
            None: nothing is handed over, a saga only waits for something to happen.
        tokens: a table that integrations share; one of its own by default.
        batch_size: jobs that one invocation gets at most; 1 to 10, 5 by default. The function's timeout must do for all
            of them.
        max_concurrency: invocations at once at most, to spare the provider; 2 to 1000, unlimited by default.
        max_receives: how often a job is tried before it ends in the dead-letter queue; 2 to 100, 5 by default.
        visibility_timeout: after which a job that could not be handed over is tried again; at least 6 times the
            function's timeout, at most 12 hours. By default that, and at least the function's timeout and 40 s: the
            next try can tell what became of the one before it. Raise it for a provider with a long ``grace``.
        oldest_waiting: an alarm tells when a job has been waited for longer than this; 1 minute to 366 days, 1 day by
            default.
        encryption_key: a KMS key of your own for queues, and for the table if it is the integration's.
        removal_policy: of the table and the log groups of its own; retained by default.

    Attributes:
        queue: where sagas put jobs.
        dead_letters: where jobs end that could not be handed over.
        tokens: the token table.
        dispatcher: the function that hands jobs over.
        dispatcher_timeout: its timeout, in seconds.
        dispatcher_facts: its memory and architecture, if they are known.
        visibility_seconds: as ``visibility_timeout``.
        service: the dimension ``service`` of the metrics.
        oldest_waiting_alarm: somebody waits for too long, or nobody measures.
        dead_letters_alarm: a job could not be handed over.
        late_alarm: an outcome came when nobody waited any more.
        conflict_alarm: a provider said two things of one job.
        unknown_alarm: an outcome came for a job that nobody knows.
        signature_alarm: a webhook was not signed as it should be.
        alarms: all of them. They have no actions: add yours.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        fn: CallbackCode | None = None,
        tokens: TokenTable | None = None,
        batch_size: int = 5,
        max_concurrency: int | None = None,
        max_receives: int = 5,
        visibility_timeout: Duration | None = None,
        oldest_waiting: Duration | None = None,
        encryption_key: kms.IKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        require_between("batch_size", batch_size, at_least=1, at_most=10)
        require_between("max_receives", max_receives, at_least=2, at_most=100)
        if max_concurrency is not None:
            require_between("max_concurrency", max_concurrency, at_least=2, at_most=1_000)
        longest_wait = require_seconds(
            "oldest_waiting", oldest_waiting or Duration.days(1), at_least=60, at_most=366 * 86_400
        )
        self._encryption_key = encryption_key
        self._removal_policy = removal_policy
        self._stack = Stack.of(self)
        self._served: dict[str, ServedSaga] = {}
        self._policies: list[iam.Policy] = []
        self._functions: list[lambda_.Function] = []
        self.service = self.node.path.replace("/", "-")
        self.tokens = tokens or TokenTable(self, "Tokens", encryption_key=encryption_key, removal_policy=removal_policy)
        code = fn if fn is not None else self._own_dispatcher()
        self.dispatcher = self._adopt("fn", code)
        self.dispatcher_facts = facts_of(code)
        self.dispatcher_timeout = self.dispatcher_facts.timeout
        if not self.dispatcher_timeout:
            raise ValueError(
                f"the timeout of {self.dispatcher.node.path} cannot be known; give the function one: the queue must "
                "not give a message to a second invocation while the first one lives"
            )
        self.visibility_seconds = _visibility(self.dispatcher_timeout, visibility_timeout)
        self.dispatcher.add_environment(Env.MAX_RECEIVES.value, str(max_receives))
        self.dead_letters = self._queue("DeadLetters", retention=Duration.days(14))
        self.queue = self._queue(
            "Queue",
            retention=Duration.days(4),
            visibility_timeout=Duration.seconds(self.visibility_seconds),
            dead_letters=sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=max_receives),
        )
        self.dispatcher.add_event_source(
            event_sources.SqsEventSource(
                self.queue,
                batch_size=batch_size,
                max_concurrency=max_concurrency,
                report_batch_item_failures=True,
            )
        )
        self._add_alarms(longest_wait)

    @property
    def sweeper(self) -> RuntimeFunction:
        """The function that looks every minute at what is due; integrations that share a table share it."""
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
        saga's log and single request records, ask its operators, and end waits of its state machines.

        Args:
            saga: the saga's path; names the policy.
            log: its saga log.
            requests: where its requests' records are.
            log_days: how long its log's rows are kept.
            operators: its operators' queue.
            machines: ARNs of its state machines that wait at this integration.
            steps: its callback steps by name, with the fields of ``ServedStepField``.

        Raises:
            ValueError: for a saga of another stack, or one that the functions' environment has no room for.
        """
        if Stack.of(log) is not self._stack:
            raise ValueError(
                f"saga {saga} must be in the stack of {self.node.path}, got {Stack.of(log).node.path} and "
                f"{self._stack.node.path}: each needs names of the other; put both into one stack"
            )
        served = ServedSaga(log=log, requests=requests, days=log_days, operators=operators, steps=steps)
        length = served_bytes(self._stack, [*self._served.values(), served])
        if length > MAX_SERVED_BYTES:
            raise ValueError(
                f"{self.node.path} must serve sagas that its functions' environment has room for, got {length} bytes "
                f"with {saga}, the {len(self._served) + 1}., of {MAX_SERVED_BYTES}; make another CallbackIntegration "
                "for some of them; both may share one TokenTable"
            )
        self._served[saga] = served
        for function in self._functions:
            self._tell(function)
        self._policies.append(self._policy(saga, served, machines))

    def _policy(self, saga: str, served: ServedSaga, machines: Sequence[str]) -> iam.Policy:
        """A policy of its own: functions wait for their roles' own ones, and a state machine waits for functions."""
        policy = iam.Policy(self._policy_scope(), saga.replace("/", "-"))
        for statement in _statements(served, machines):
            policy.add_statements(statement)
        policy.attach_to_role(self.tokens.sweeper.role)
        for function in self._functions:
            _attach(policy, function)
        return policy

    def _policy_scope(self) -> Construct:
        found = self.node.try_find_child("Serves")
        return found if isinstance(found, Construct) else Construct(self, "Serves")

    def _adopt(self, name: str, code: CallbackCode) -> lambda_.Function:
        """Let a function work for this integration.

        Raises:
            ValueError: if it is not of this app, or works for another integration.
        """
        function = code.function if isinstance(code, RuntimeFunction) else code
        if not isinstance(function, lambda_.Function):
            raise ValueError(
                f"{name} must be a function of this app, got {function.node.path}, which is imported, or a version or "
                "an alias: its environment cannot be set from here; give a StepFunction or a lambda Function"
            )
        owner = _taken.setdefault(function, self.node.path)
        if owner != self.node.path:
            raise ValueError(
                f"{name} must work for one integration, got {function.node.path} for {owner} and {self.node.path}; "
                "make a function for each: they may share their code"
            )
        if function not in self._functions:
            self._functions.append(function)
            function.add_environment(Env.TOKEN_TABLE.value, self.tokens.table_name)
            function.add_environment(Env.SERVICE.value, self.service)
            self._tell(function)
            self.tokens.grant_receive(function)
            for policy in self._policies:
                _attach(policy, function)
        return function

    def _tell(self, function: lambda_.Function) -> None:
        """Setting a variable again replaces its value."""
        function.add_environment(Env.CALLBACKS.value, served_text(list(self._served.values())))

    def _own_dispatcher(self) -> RuntimeFunction:
        return RuntimeFunction(
            self,
            "Dispatcher",
            code=own_code(),
            handler="handlers.callback_dispatcher.handler",
            description="Writes down who waits for a callback; hands nothing over",
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
        )

    def _add_alarms(self, longest_wait: int) -> None:
        scope = Construct(self, "Alarms")
        sweeper = self.sweeper.node.path.replace("/", "-")
        self.oldest_waiting_alarm = oldest_waiting_alarm(scope, sweeper, longest_wait)
        self.dead_letters_alarm = depth_alarm(
            scope, "DeadLetters", "A job could not be handed over: see cdk-sagas callbacks", self.dead_letters
        )
        self.late_alarm = counted_alarm(
            scope,
            "Late",
            "An outcome came when nobody waited any more: what took effect late is undone by itself",
            [Metric.CALLBACK_LATE, Metric.CALLBACK_APPLIED_LATE],
            [self.service, sweeper],
        )
        self.conflict_alarm = counted_alarm(
            scope,
            "Conflict",
            "A provider said two things of one job: the first one counts, and somebody must ask",
            [Metric.CALLBACK_CONFLICT],
            [self.service],
        )
        self.unknown_alarm = counted_alarm(
            scope,
            "Unknown",
            "An outcome came for a job that nobody knows: it is kept",
            [Metric.CALLBACK_UNKNOWN],
            [self.service],
        )
        self.signature_alarm = counted_alarm(
            scope,
            "Signature",
            "A webhook was not signed as it should be: somebody tries, or a secret was changed",
            [Metric.SIGNATURE_REFUSED],
            [self.service],
        )
        self.alarms: list[cloudwatch.Alarm] = [
            self.oldest_waiting_alarm,
            self.dead_letters_alarm,
            self.late_alarm,
            self.conflict_alarm,
            self.unknown_alarm,
            self.signature_alarm,
        ]


def _visibility(dispatcher_timeout: int, given: Duration | None) -> int:
    least = _VISIBLE_AFTER * dispatcher_timeout
    if given is None:
        return max(least, dispatcher_timeout + _SETTLED_DOUBT_SECONDS)
    return require_seconds("visibility_timeout", given, at_least=least, at_most=_LONGEST_VISIBILITY)


def _attach(policy: iam.Policy, function: lambda_.Function) -> None:
    if function.role is not None:
        policy.attach_to_role(function.role)


def _statements(served: ServedSaga, machines: Sequence[str]) -> list[iam.PolicyStatement]:
    """What it takes to receive a saga's callbacks, and nothing else."""
    statements = [
        iam.PolicyStatement(
            actions=["dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"], resources=[served.log.table_arn]
        ),
        iam.PolicyStatement(actions=["dynamodb:GetItem", "dynamodb:UpdateItem"], resources=[served.requests.table_arn]),
        iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[served.operators.queue_arn]),
        iam.PolicyStatement(
            actions=["states:SendTaskSuccess", "states:SendTaskFailure", "states:SendTaskHeartbeat"],
            resources=list(machines),
        ),
    ]
    keys = (served.log.encryption_key, served.requests.encryption_key, served.operators.encryption_master_key)
    arns = list(dict.fromkeys(key.key_arn for key in keys if key is not None))
    if arns:
        statements.append(
            iam.PolicyStatement(actions=["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey"], resources=arns)
        )
    return statements
