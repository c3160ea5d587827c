"""TimeoutReconciler: nothing stays stuck, nothing stays half done."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from aws_cdk import Acknowledgment, ArnFormat, Duration, RemovalPolicy, Stack, Token, Validations
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda_event_sources as event_sources
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from constructs_lib._arguments import require_between, require_seconds
from constructs_lib._reconciler_alarms import ReconcilerAlarms
from constructs_lib.callback_integration import CallbackIntegration
from constructs_lib.runtime_function import RuntimeFunction, own_code
from constructs_lib.saga.checks import leaves_of
from constructs_lib.saga.permissions import grant_send, queues_of
from constructs_lib.saga.state_machine import SagaStateMachine
from constructs_lib.saga.steps import StepKind
from constructs_lib.token_table import TokenTable
from saga_runtime.protocol import DUE_INDEX, Env, ReconciledField, TokenAttribute

_SECONDS: Final = 50
"""Shorter than the minute after which the next look begins: two would do no harm, and twice the work."""
_VISIBLE_AFTER: Final = 6 * _SECONDS
_RECEIVES: Final = 5
_DELIVERIES: Final = 185
"""EventBridge's most: over a day, ever more slowly."""
_AT_ONCE: Final = 10
"""Invocations for status events: Step Functions answers some ten questions a second for long."""
_BAD_ENDS: Final = ["TIMED_OUT", "ABORTED", "FAILED"]
_MAX_ENVIRONMENT_BYTES: Final = 3_072
"""A function's environment holds 4 KB, and not only this."""
_GENERATED: Final = 14
"""What CloudFormation adds to the names of stack and resource when it makes a name: two dashes, twelve characters."""
_LONGEST: Final = {ReconciledField.MACHINE: 80, ReconciledField.OPERATORS: 140}
_LONGEST_TABLE: Final = 255
_HOUR: Final = 3_600
_YEAR: Final = 366 * 86_400


class TimeoutReconciler(Construct):
    """Takes sagas up again that were interrupted, whatever interrupted them; what no machine can decide, it parks.

    A state machine that times out runs no Catch; one that is stopped neither; a request can be reserved and never
    started; an event can be lost. Creates a function that looks at every request record that is due, by a schedule,
    and at those whose executions ended badly, by Step Functions' status events (through a queue); and alarms.

    Guaranteed: a saga in progress whose owner's execution timed out, was stopped or failed is handed to a recovery by
    one conditional write, or is parked in front of a person after ``recoveries_limit`` of them; a request that was
    reserved and not started is started, by its name and with its stored bytes; what took effect late is undone, of
    settled sagas, too. Every call may be made twice, by two at once, or be the last one of a function that dies: the
    end is the same. Running sagas, those that a person redrives, and parked ones are left alone.
    Not guaranteed: how soon. Status events tell within seconds, if they come; a look finds the rest when it is due:
    young sagas every minute, old ones every quarter of an hour. A recovery that dies is followed by the next one after
    a pause that doubles, from a minute to an hour.

    Saga and reconciler stand in one stack. One reconciler may look after several sagas, with different tables.

    The function reports its metrics under its own path (dimension ``service``).

    Example::

        TimeoutReconciler(self, "Reconciler", sagas=[transfer, order])

    Args:
        scope: parent construct.
        id: construct id.
        sagas: which ones it looks after; each saga needs one reconciler.
        schedule: how often it looks at what is due; whole minutes, 1 to 60, 1 by default.
        recoveries_limit: recoveries of one saga that may die before a person decides; 1 to 100, 20 by default.
        oldest_in_flight: an alarm tells when a saga in progress is older than this; 1 minute to 366 days. By default an
            hour more than the longest ``timeout`` of the sagas.
        oldest_parked: an alarm tells when a saga has waited for a person for longer than this; 1 minute to 366 days,
            1 day by default.
        removal_policy: of the log group; retained by default.

    Attributes:
        function: the function that looks.
        queue: where status events wait for it: names of executions, without their data.
        dead_letters: where status events end that could not be delivered (whole) or handled.
        ended: the rule for status events.
        schedule: the rule that looks at what is due.
        orphans_alarm: a saga was found that nobody looked after. It is taken up again by itself.
        unsettled_alarm: an execution succeeded and left its saga in progress, which cannot be.
        oldest_in_flight_alarm: a saga is in progress for too long, or nobody looks.
        oldest_parked_alarm: a saga waits for a person for too long.
        late_alarm: what took effect late could not be undone: a person has to look.
        dead_letters_alarm: a status event could not be handled; a later look finds its saga nevertheless.
        alarms: all of them. They have no actions: add yours.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        sagas: Sequence[SagaStateMachine],
        schedule: Duration | None = None,
        recoveries_limit: int = 20,
        oldest_in_flight: Duration | None = None,
        oldest_parked: Duration | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        self._check(sagas)
        minutes = require_seconds("schedule", schedule or Duration.minutes(1), at_least=60, at_most=_HOUR)
        if minutes % 60:
            raise ValueError(f"schedule must be whole minutes, got {minutes} s; round it")
        require_between("recoveries_limit", recoveries_limit, at_least=1, at_most=100)
        longest = max(saga.description.timeout for saga in sagas) + _HOUR
        in_flight = require_seconds(
            "oldest_in_flight",
            oldest_in_flight or Duration.seconds(min(longest, _YEAR)),
            at_least=60,
            at_most=_YEAR,
        )
        parked = require_seconds("oldest_parked", oldest_parked or Duration.days(1), at_least=60, at_most=_YEAR)
        self.function = RuntimeFunction(
            self,
            "Function",
            code=own_code(),
            handler="handlers.reconciler.handler",
            description="Takes interrupted sagas up again",
            timeout=Duration.seconds(_SECONDS),
            environment={
                Env.RECONCILED.value: self._told(sagas),
                Env.RECOVERIES_LIMIT.value: str(recoveries_limit),
            },
            removal_policy=removal_policy,
        )
        for saga in sagas:
            self._grant(saga)
            saga.look_after(every=minutes)
        self.dead_letters = self._dead_letters()
        self.queue = self._queue()
        self.ended = self._when_executions_end_badly(sagas)
        self.schedule = events.Rule(
            self,
            "Schedule",
            description="Looks at sagas that are due",
            schedule=events.Schedule.rate(Duration.minutes(minutes // 60)),
            targets=[
                targets.LambdaFunction(self.function.function, retry_attempts=0, max_event_age=Duration.minutes(1))
            ],
        )
        alarms = ReconcilerAlarms(
            self,
            "Alarms",
            service=self.function.node.path.replace("/", "-"),
            dead_letters=self.dead_letters,
            in_flight=in_flight,
            parked=parked,
        )
        self.orphans_alarm = alarms.orphans
        self.unsettled_alarm = alarms.unsettled
        self.oldest_in_flight_alarm = alarms.oldest_in_flight
        self.oldest_parked_alarm = alarms.oldest_parked
        self.late_alarm = alarms.late
        self.dead_letters_alarm = alarms.dead_letters
        self.alarms: list[cloudwatch.Alarm] = alarms.all

    def _check(self, sagas: Sequence[SagaStateMachine]) -> None:
        if not sagas:
            raise ValueError(f"sagas of {self.node.path} must be at least one, got none; name those to look after")
        paths = [saga.node.path for saga in sagas]
        twice = sorted({path for path in paths if paths.count(path) > 1})
        if twice:
            raise ValueError(f"sagas of {self.node.path} must be different ones, got {twice} twice; name each once")
        stack = Stack.of(self)
        for saga in sagas:
            if Stack.of(saga) is not stack:
                raise ValueError(
                    f"saga {saga.node.path} must be in the stack of {self.node.path}, got {Stack.of(saga).node.path}; "
                    "make a TimeoutReconciler in each stack"
                )

    def _told(self, sagas: Sequence[SagaStateMachine]) -> str:
        fields = [_fields(saga) for saga in sagas]
        length = len(_text([{name: self._widest(name, value) for name, value in entry.items()} for entry in fields]))
        if length > _MAX_ENVIRONMENT_BYTES:
            raise ValueError(
                f"{self.node.path} must look after sagas that its function's environment has room for, got "
                f"{len(sagas)} of {length} bytes of {_MAX_ENVIRONMENT_BYTES}; make another TimeoutReconciler for some"
            )
        return _text(fields)

    def _widest(self, name: str, value: Any) -> Any:
        """The value with names that CloudFormation makes as long as they can be."""
        if isinstance(value, dict):
            return {self._widest(name, table): steps for table, steps in value.items()}
        if not isinstance(value, str) or not Token.is_unresolved(value):
            return value
        longest = _LONGEST.get(ReconciledField(name), _LONGEST_TABLE)
        resolved = Stack.of(self).resolve(value)
        if longest == _LONGEST_TABLE and isinstance(resolved, dict) and "Ref" in resolved:
            longest = min(longest, len(Stack.of(self).stack_name) + len(str(resolved["Ref"])) + _GENERATED)
        return "x" * longest

    def _grant(self, saga: SagaStateMachine) -> None:
        """Read what is due, take it over, start it; and nothing else."""
        function = self.function
        saga.requests.grant_settle(function)
        saga.log.grant_list(function)
        _allow(function, ["dynamodb:UpdateItem"], [saga.log.table_arn])
        _allow(function, ["dynamodb:Query"], [f"{saga.requests.table_arn}/index/{DUE_INDEX}"])
        for tokens in _late_tokens(saga):
            _allow_late_jobs(function, tokens)
        grant_send(queues_of([saga.operators]), function)
        machines = (saga.state_machine, saga.recovery_machine)
        _allow(function, ["states:StartExecution"], [machine.state_machine_arn for machine in machines])
        _allow(function, ["states:DescribeExecution"], [self._executions_of(machine) for machine in machines])

    def _executions_of(self, machine: sfn.StateMachine) -> str:
        stack = Stack.of(self)
        name = stack.resolve(machine.state_machine_name)["Fn::GetAtt"][0]
        arn = f"arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>:execution:<{name}.Name>:*"
        Validations.of(self.function.role).acknowledge(
            Acknowledgment(
                id=f"AwsSolutions-IAM5[Resource::{arn}]",
                reason="Executions of this one state machine: their names are made when they start, and whether one "
                "of them still runs is what the reconciler asks.",
            )
        )
        return stack.format_arn(
            service="states",
            resource="execution",
            resource_name=f"{machine.state_machine_name}:*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )

    def _dead_letters(self) -> sqs.Queue:
        return sqs.Queue(
            self,
            "DeadLetters",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),
        )

    def _queue(self) -> sqs.Queue:
        queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(4),
            visibility_timeout=Duration.seconds(_VISIBLE_AFTER),
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=_RECEIVES),
        )
        self.function.function.add_event_source(
            event_sources.SqsEventSource(
                queue, batch_size=10, max_concurrency=_AT_ONCE, report_batch_item_failures=True
            )
        )
        return queue

    def _when_executions_end_badly(self, sagas: Sequence[SagaStateMachine]) -> events.Rule:
        """Of the event only names travel: it holds the execution's input, too."""
        machines = [machine for saga in sagas for machine in (saga.state_machine, saga.recovery_machine)]
        named = {
            name: events.EventField.from_path(f"$.detail.{name}") for name in ("name", "status", "stateMachineArn")
        }
        return events.Rule(
            self,
            "Ended",
            description="Executions of sagas that ended otherwise than well",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={
                    "status": _BAD_ENDS,
                    "stateMachineArn": [machine.state_machine_arn for machine in machines],
                },
            ),
            targets=[
                targets.SqsQueue(
                    self.queue,
                    message=events.RuleTargetInput.from_object({"detail": named}),
                    dead_letter_queue=self.dead_letters,
                    retry_attempts=_DELIVERIES,
                    max_event_age=Duration.days(1),
                )
            ],
        )


def _fields(saga: SagaStateMachine) -> dict[str, Any]:
    """What the function is told of a saga; names are tokens until the deployment."""
    f = ReconciledField
    return {
        f.MACHINE.value: saga.state_machine.state_machine_name,
        f.REQUESTS.value: saga.requests.table_name,
        f.SHARDS.value: saga.requests.due_shards,
        f.LOG.value: saga.log.table_name,
        f.DAYS.value: saga.log_days,
        f.OPERATORS.value: saga.operators.queue_url,
        f.TOKENS.value: {tokens.table_name: steps for tokens, steps in _late_tokens(saga).items()},
    }


def _late_tokens(saga: SagaStateMachine) -> dict[TokenTable, list[str]]:
    """Steps whose jobs can be undone when they took effect late, by the token table that knows of it."""
    found: dict[TokenTable, list[str]] = {}
    for step in leaves_of(saga.steps):
        if step.wait is None or step.kind is not StepKind.CALLBACK or not step.compensated:
            continue
        if isinstance(step.wait.via, CallbackIntegration):
            found.setdefault(step.wait.via.tokens, []).append(step.name)
    return found


def _text(fields: Sequence[dict[str, Any]]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _allow_late_jobs(grantee: iam.IGrantable, tokens: TokenTable) -> None:
    """Find jobs that took effect late: never a token, with which any wait could be ended."""
    if tokens.encryption_key is not None:
        tokens.encryption_key.grant_decrypt(grantee)
    _allow(grantee, ["dynamodb:Query"], [f"{tokens.table_arn}/index/{DUE_INDEX}"])
    read = [TokenAttribute.ID.value, TokenAttribute.LOG_TABLE.value, TokenAttribute.APPLIED_LATE_AT.value]
    iam.Grant.add_to_principal(
        grantee=grantee,
        actions=["dynamodb:GetItem"],
        resource_arns=[tokens.table_arn],
        conditions={
            "ForAllValues:StringEquals": {"dynamodb:Attributes": read},
            "StringEqualsIfExists": {"dynamodb:Select": "SPECIFIC_ATTRIBUTES"},
        },
    )


def _allow(grantee: iam.IGrantable, actions: list[str], resources: list[str]) -> None:
    iam.Grant.add_to_principal(grantee=grantee, actions=actions, resource_arns=resources)
