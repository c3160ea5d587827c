"""SagaStateMachine: declared steps, compiled to a Standard state machine and a saga log."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Final

from aws_cdk import Acknowledgment, ArnFormat, Duration, RemovalPolicy, Stack, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from constructs_lib._arguments import require_between, require_seconds, require_unique
from constructs_lib._tables import StatefulTable
from constructs_lib.idempotency_table import IdempotencyTable
from constructs_lib.payload_bucket import PayloadBucket
from constructs_lib.runtime_function import RuntimeFunction, own_code
from constructs_lib.saga.asl import CompiledStep, GoingOn, Notice, SagaPlan, State, definition_of, recovery_of
from constructs_lib.saga.notices import GoOn, Notify
from constructs_lib.saga.steps import Step
from saga_runtime.protocol import PROTOCOL_VERSION, STATUS_OF_REFUSAL, LogAttribute

_TASK_MARGIN_SECONDS: Final = 10
"""A task waits longer than its function may run: the state machine never gives up on a function that still lives."""
_NOTIFIER_SECONDS: Final = 20
_DAY: Final = 86_400


class SagaLog(StatefulTable):
    """The saga log: one row per saga and step, written in the same transaction as the step's effect."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        encryption_key: kms.IKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(
            scope,
            id,
            partition_key=LogAttribute.SAGA_ID,
            sort_key=LogAttribute.STEP,
            time_to_live=LogAttribute.EXPIRATION,
            encryption_key=encryption_key,
            removal_policy=removal_policy,
        )

    def grant_commit(self, grantee: iam.IGrantable) -> iam.Grant:
        """Write a step's row in a transaction, and read it."""
        return self._grant(grantee, "dynamodb:PutItem", "dynamodb:GetItem")

    def grant_compensate(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read a step's row, bury it, or mark it undone."""
        return self._grant(grantee, "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem")

    def grant_list(self, grantee: iam.IGrantable) -> iam.Grant:
        """List a saga's rows."""
        return self._grant(grantee, "dynamodb:Query")

    def grant_fence(self, grantee: iam.IGrantable) -> iam.Grant:
        """Put tombstones, look at rows, list them: what the state machine does."""
        return self._grant(grantee, "dynamodb:PutItem", "dynamodb:GetItem", "dynamodb:Query")


class SagaStateMachine(Construct):
    """A workflow whose effects happen at most once, and that ends with all of them or with all of them undone.

    Creates a Standard state machine (JSONata, X-Ray tracing, logs without execution data), a second one that takes an
    interrupted saga up again, the saga log (DynamoDB,
    point-in-time recovery, deletion protection, retained), and exact grants: the state machine may invoke the steps'
    functions and write the records that it needs; each function may write its own kind of row.

    Guaranteed: for one request each step's effect happens at most once; the request's record is settled once, by the
    execution that owns it, and as FAILED only when the log says that nothing stands.
    Not guaranteed here: that an execution which times out or is stopped is taken up again by itself; until then
    ``cdk-sagas recover`` does it, as often as you like: no step's effect is repeated.

    The happy path takes one transition per step and one to settle.

    Example::

        saga = SagaStateMachine(self, "Transfer", requests=requests, steps=[Step.atomic("Transfer", fn=move)])

    Args:
        scope: parent construct.
        id: construct id.
        requests: where the requests' records are.
        steps: in order; at least one.
        timeout: of the whole saga; 1 minute to 1 year, 2 hours by default. Where there
            is no way back, a step is retried for some 70 minutes before the saga is parked: leave time for that.
        result: JSONata expression (with or without ``{% %}``) for the answer's ``result``; ``$outputs`` (every step's
            output by the step's name) by default.
        refused_status: HTTP status of a refused saga's stored answer, 422 by default.
        failure_status: HTTP status by error name, e.g. ``{"InsufficientFunds": 402}``.
        on_failed: whom to tell when a saga has failed and nothing of it stands.
        payloads: where requests and outputs live that are too large to travel; without it, they are refused.
        log_retention_days: how long saga log rows are kept; 30 to 3650 days, 400 by default. Must outlast the saga.
        encryption_key: a KMS key of your own for the saga log, instead of the AWS managed one.
        removal_policy: of the saga log and the log group; retained by default.

    Attributes:
        state_machine: the state machine.
        recovery_machine: the state machine that takes an interrupted saga up again.
        notifier: the function that sends notifications, if a step needs it.
        log: the saga log.
        log_group: the state machine's log group.
        requests: as given.
        payloads: as given.
        definition: the definition as data, before it became a string.
        recovery_definition: likewise, of the recovery machine.
        definition_fingerprint: identifies the steps' names, order, kinds and the pivot.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        requests: IdempotencyTable,
        steps: Sequence[Step],
        timeout: Duration | None = None,
        result: str | None = None,
        refused_status: int = STATUS_OF_REFUSAL,
        failure_status: Mapping[str, int] | None = None,
        on_failed: Notify | None = None,
        payloads: PayloadBucket | None = None,
        log_retention_days: int = 400,
        encryption_key: kms.IKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        self.requests = requests
        self.steps = tuple(steps)
        self.payloads = payloads
        self._on_failed = on_failed
        _check_steps(self.steps)
        timeout_seconds = require_seconds("timeout", timeout or Duration.hours(2), at_least=60, at_most=366 * _DAY)
        require_between("log_retention_days", log_retention_days, at_least=30, at_most=3_650)
        if log_retention_days * _DAY < timeout_seconds + requests.retention.to_seconds():
            raise ValueError(
                f"log_retention_days must outlast timeout and the requests' retention, got {log_retention_days} days "
                f"for {timeout_seconds} s + {requests.retention.to_seconds()} s; raise it"
            )
        if payloads is not None and payloads.keep_days < log_retention_days:
            raise ValueError(
                f"keep_days of payloads must outlast log_retention_days, got {payloads.keep_days} for "
                f"{log_retention_days}; raise keep_days or lower log_retention_days"
            )
        _check_statuses(refused_status, failure_status or {}, self.steps)
        self.log = SagaLog(self, "Log", encryption_key=encryption_key, removal_policy=removal_policy)
        self.notifier = self._notifier(removal_policy) if any(step.queue is not None for step in self.steps) else None
        self.definition_fingerprint = _fingerprint(self.steps)
        plan = SagaPlan(
            steps=[self._compiled(step) for step in self.steps],
            request_table=requests.table.table_name,
            log_table=self.log.table.table_name,
            log_days=log_retention_days,
            retention_seconds=int(requests.retention.to_seconds()),
            timeout_seconds=timeout_seconds,
            result=_bare("result", result) if result is not None else "$outputs",
            refused_status=refused_status,
            failure_status=failure_status or {},
            partition=Stack.of(self).partition,
            comment=f"cdk-sagas protocol {PROTOCOL_VERSION}, definition {self.definition_fingerprint}",
            on_failed=_notice(on_failed) if on_failed is not None else None,
            on_error={error: _notice(route) for error, route in self._error_notices().items()},
        )
        self.log_group = logs.LogGroup(
            self, "Logs", retention=logs.RetentionDays.THREE_MONTHS, removal_policy=removal_policy
        )
        self.definition: State = definition_of(plan)
        self.state_machine = self._machine("StateMachine", self.definition)
        self.recovery_definition: State = recovery_of(plan, self.state_machine.state_machine_arn)
        self.recovery_machine = self._machine("Recovery", self.recovery_definition)
        self._grant()

    def grant_start(self, grantee: iam.IGrantable) -> iam.Grant:
        """Start executions of this state machine, and nothing else."""
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["states:StartExecution"],
            resource_arns=[self.state_machine.state_machine_arn],
        )

    def grant_recover(self, grantee: iam.IGrantable) -> iam.Grant:
        """Take a saga over, and start its recovery: what ``cdk-sagas recover`` needs."""
        self.requests.grant_settle(grantee)
        self.grant_start(grantee)
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["states:StartExecution"],
            resource_arns=[self.recovery_machine.state_machine_arn],
        )
        stack = Stack.of(self)
        machines = (self.state_machine, self.recovery_machine)
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["states:DescribeExecution"],
            resource_arns=[
                stack.format_arn(
                    service="states",
                    resource="execution",
                    resource_name=f"{machine.state_machine_name}:*",
                    arn_format=ArnFormat.COLON_RESOURCE_NAME,
                )
                for machine in machines
            ],
        )

    def _machine(self, id: str, definition: State) -> sfn.StateMachine:
        machine = sfn.StateMachine(
            self,
            id,
            state_machine_type=sfn.StateMachineType.STANDARD,
            definition_body=sfn.DefinitionBody.from_string(Stack.of(self).to_json_string(definition)),
            tracing_enabled=True,
            logs=sfn.LogOptions(destination=self.log_group, level=sfn.LogLevel.ALL, include_execution_data=False),
        )
        Validations.of(machine.role).acknowledge(
            Acknowledgment(
                id="AwsSolutions-IAM5[Resource::*]",
                reason="Delivering a state machine's logs and its trace segments are account-wide actions that take "
                "no resource; every other action of this role names its resource.",
            )
        )
        return machine

    def _notifier(self, removal_policy: RemovalPolicy) -> RuntimeFunction:
        notifier = RuntimeFunction(
            self,
            "Notifier",
            code=own_code(),
            handler="handlers.notifier.handler",
            description="Sends the saga's notifications, each under its step key",
            timeout=Duration.seconds(_NOTIFIER_SECONDS),
            removal_policy=removal_policy,
        )
        self.log.grant_commit(notifier)
        for queue in {step.queue.queue_arn: step.queue for step in self.steps if step.queue is not None}.values():
            _grant_send(queue, notifier)
        return notifier

    def _compiled(self, step: Step) -> CompiledStep:
        function: lambda_.IFunction | None = step.function
        seconds = step.function_timeout
        if function is None and self.notifier is not None:
            function, seconds = self.notifier.function, _NOTIFIER_SECONDS
        if function is None:
            raise ValueError(f"step {step.name} runs nothing; make it with Step.atomic(…) or Step.notify(…)")
        return CompiledStep(
            name=step.name,
            function_arn=function.function_arn,
            task_seconds=seconds + _TASK_MARGIN_SECONDS,
            permanent_errors=step.permanent_errors,
            retry=step.retry,
            pivot=step in _pivots(self.steps),
            when=step.when,
            compensate_arn=step.compensate.function_arn if step.compensate is not None else None,
            compensate_task_seconds=step.compensate_timeout + _TASK_MARGIN_SECONDS,
            notice=Notice(queue_url=step.queue.queue_url, message=step.message) if step.queue is not None else None,
            going_on={
                error: GoingOn(output=route.output) for error, route in step.on_error.items() if isinstance(route, GoOn)
            },
        )

    def _error_notices(self) -> dict[str, Notify]:
        notices: dict[str, Notify] = {}
        for step in self.steps:
            for error, route in step.on_error.items():
                if not isinstance(route, Notify):
                    continue
                if notices.setdefault(error, route) is not route:
                    raise ValueError(
                        f"on_error names {error!r} in more than one step, with different notices; share one Notify"
                    )
        return notices

    def _grant(self) -> None:
        forward, recovery = self.state_machine.role, self.recovery_machine.role
        _grant_invoke(forward, self.definition)
        _grant_invoke(recovery, self.recovery_definition)
        queues = [notify.queue for notify in self._error_notices().values()]
        queues += [self._on_failed.queue] if self._on_failed is not None else []
        for role in (forward, recovery):
            self.requests.grant_settle(role)
            self.log.grant_fence(role)
            for queue in {queue.queue_arn: queue for queue in queues}.values():
                _grant_send(queue, role)
        self.grant_start(recovery)
        for step in self.steps:
            if step.function is not None:
                self.log.grant_commit(step.function)
            if step.compensate is not None:
                self.log.grant_compensate(step.compensate)


def _grant_invoke(role: iam.IRole, definition: State) -> None:
    """Invoke the functions that the definition invokes: not every machine reaches every compensation."""
    tasks = (state.get("Arguments", {}) for state in definition["States"].values())
    arns = list(dict.fromkeys(arguments["FunctionName"] for arguments in tasks if "FunctionName" in arguments))
    if arns:
        iam.Grant.add_to_principal(grantee=role, actions=["lambda:InvokeFunction"], resource_arns=arns)


def _grant_send(queue: sqs.IQueue, grantee: iam.IGrantable) -> None:
    """Send, and nothing else: ``grant_send_messages`` allows reading the queue's attributes, too."""
    iam.Grant.add_to_principal(grantee=grantee, actions=["sqs:SendMessage"], resource_arns=[queue.queue_arn])
    if queue.encryption_master_key is not None:
        queue.encryption_master_key.grant(grantee, "kms:Decrypt", "kms:GenerateDataKey")


def _notice(notify: Notify) -> Notice:
    message = _bare("message", notify.message) if notify.message is not None else None
    return Notice(queue_url=notify.queue.queue_url, message=message)


def _pivots(steps: Sequence[Step]) -> list[Step]:
    """The steps after which a saga only goes forward: the declared ones, or the last that mutates."""
    declared = [step for step in steps if step.pivot]
    return declared or [step for step in steps if step.kind.mutates][-1:]


def _check_steps(steps: Sequence[Step]) -> None:
    """Refuse what cannot work."""
    if not steps:
        raise ValueError("steps must name at least one step, got none; add one")
    require_unique("steps", (step.name for step in steps))
    pivots = _pivots(steps)
    if not pivots:
        raise ValueError(f"a saga needs a step that mutates, got {[step.name for step in steps]}; add one")
    if len(pivots) > 1 and any(step.when is None for step in pivots):
        raise ValueError(
            f"of several pivots each must be conditional, got {[step.name for step in pivots]}; "
            "give each a when=… that no other's request meets, or keep pivot=True on one of them"
        )
    last = max(index for index, step in enumerate(steps) if step in pivots)
    for index, step in enumerate(steps):
        if index < last and step not in pivots:
            _check_before_pivot(step, steps[last])
        _check_delays(step)
        if index > last and any(isinstance(route, Notify) for route in step.on_error.values()):
            raise ValueError(
                f"step {step.name} stands behind the pivot {steps[last].name}, where a saga does not fail by a refusal "
                "but waits for a person; remove Notify from its on_error"
            )


def _check_delays(step: Step) -> None:
    """The last attempt of what is in doubt must meet no living predecessor."""
    delays = sum(step.retry.in_doubt_delays)
    longest = max(step.function_timeout, step.compensate_timeout, _NOTIFIER_SECONDS if step.queue is not None else 0)
    if delays <= longest:
        raise ValueError(
            f"retries of step {step.name} must outlast its function when it is in doubt, got delays of "
            f"{delays:g} s for a timeout of {longest} s; "
            "raise Retry(in_doubt_attempts=…) or Retry(in_doubt_interval=…), or lower the timeout"
        )


def _check_before_pivot(step: Step, pivot: Step) -> None:
    if not step.kind.mutates:
        raise ValueError(
            f"step {step.name} sends a message before the pivot {pivot.name}, and a message cannot be taken back; "
            "move it behind the pivot"
        )
    if step.compensate is None:
        raise ValueError(
            f"step {step.name} mutates before the pivot {pivot.name} and has no compensation; "
            "give it compensate=…, or make it the pivot"
        )


def _check_statuses(refused: int, by_error: Mapping[str, int], steps: Sequence[Step]) -> None:
    known = {error for step in steps for error in step.permanent_errors}
    for name in by_error:
        if name not in known:
            raise ValueError(
                f"failure_status must name permanent errors of the steps, got {name!r}; "
                "correct it, or add it to the refusals of the step that raises it"
            )
    for name, status in (("refused_status", refused), *by_error.items()):
        if not 400 <= status <= 499:
            raise ValueError(f"the HTTP status of {name} must be 400 to 499, got {status}; a refusal is the client's")


def _fingerprint(steps: Sequence[Step]) -> str:
    shape = {
        "protocol": PROTOCOL_VERSION,
        "steps": [[step.name, step.kind.value, step.compensate is not None] for step in steps],
        "pivots": [step.name for step in _pivots(steps)],
    }
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode("utf-8")).hexdigest()[:16]


def _bare(name: str, expression: str) -> str:
    text = expression.strip()
    if text.startswith("{%") and text.endswith("%}"):
        text = text[2:-2].strip()
    if not text:
        raise ValueError(f"{name} must be a JSONata expression, got {expression!r}; leave it out for the default")
    return text
