"""SagaStateMachine: declared steps, compiled to a Standard state machine and a saga log."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Final

from aws_cdk import Acknowledgment, Duration, RemovalPolicy, Stack, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from constructs_lib._arguments import require_between, require_seconds, require_unique
from constructs_lib._tables import StatefulTable
from constructs_lib.idempotency_table import IdempotencyTable
from constructs_lib.saga.asl import CompiledStep, SagaPlan, State, definition_of
from constructs_lib.saga.steps import Step
from saga_runtime.protocol import PROTOCOL_VERSION, STATUS_OF_REFUSAL, LogAttribute

_TASK_MARGIN_SECONDS: Final = 10
"""A task waits longer than its function may run: the state machine never gives up on a function that still lives."""
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

    Creates a Standard state machine (JSONata, X-Ray tracing, logs without execution data), the saga log (DynamoDB,
    point-in-time recovery, deletion protection, retained), and exact grants: the state machine may invoke the steps'
    functions and write the records that it needs; each function may write its own kind of row.

    Guaranteed: for one request each step's effect happens at most once; the request's record is settled once, by the
    execution that owns it, and as FAILED only when the log says that nothing stands.
    Not guaranteed here: that an execution which times out or is stopped is taken up again.

    The happy path takes one transition per step and one to settle.

    Example::

        saga = SagaStateMachine(self, "Transfer", requests=requests, steps=[Step.atomic("Transfer", fn=move)])

    Args:
        scope: parent construct.
        id: construct id.
        requests: where the requests' records are.
        steps: in order; at least one.
        timeout: of the whole saga; 1 minute to 1 year, 1 hour by default.
        result: JSONata expression (with or without ``{% %}``) for the answer's ``result``; ``$outputs`` (every step's
            output by the step's name) by default.
        refused_status: HTTP status of a refused saga's stored answer, 422 by default.
        failure_status: HTTP status by error name, e.g. ``{"InsufficientFunds": 402}``.
        log_retention_days: how long saga log rows are kept; 30 to 3650 days, 400 by default. Must outlast the saga.
        encryption_key: a KMS key of your own for the saga log, instead of the AWS managed one.
        removal_policy: of the saga log and the log group; retained by default.

    Attributes:
        state_machine: the state machine.
        log: the saga log.
        log_group: the state machine's log group.
        requests: as given.
        definition: the definition as data, before it became a string.
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
        log_retention_days: int = 400,
        encryption_key: kms.IKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        self.requests = requests
        self.steps = tuple(steps)
        pivot = _check_steps(self.steps)
        timeout_seconds = require_seconds("timeout", timeout or Duration.hours(1), at_least=60, at_most=366 * _DAY)
        require_between("log_retention_days", log_retention_days, at_least=30, at_most=3_650)
        if log_retention_days * _DAY < timeout_seconds + requests.retention.to_seconds():
            raise ValueError(
                f"log_retention_days must outlast timeout and the requests' retention, got {log_retention_days} days "
                f"for {timeout_seconds} s + {requests.retention.to_seconds()} s; raise it"
            )
        _check_statuses(refused_status, failure_status or {})
        self.log = SagaLog(self, "Log", encryption_key=encryption_key, removal_policy=removal_policy)
        self.definition_fingerprint = _fingerprint(self.steps, pivot)
        self.definition: State = definition_of(
            SagaPlan(
                steps=[_compiled(step) for step in self.steps],
                pivot=pivot,
                request_table=requests.table.table_name,
                log_table=self.log.table.table_name,
                log_days=log_retention_days,
                retention_seconds=int(requests.retention.to_seconds()),
                timeout_seconds=timeout_seconds,
                result=_bare(result) if result is not None else "$outputs",
                refused_status=refused_status,
                failure_status=failure_status or {},
                comment=f"cdk-sagas protocol {PROTOCOL_VERSION}, definition {self.definition_fingerprint}",
            )
        )
        self.log_group = logs.LogGroup(
            self, "Logs", retention=logs.RetentionDays.THREE_MONTHS, removal_policy=removal_policy
        )
        self.state_machine = sfn.StateMachine(
            self,
            "StateMachine",
            state_machine_type=sfn.StateMachineType.STANDARD,
            definition_body=sfn.DefinitionBody.from_string(Stack.of(self).to_json_string(self.definition)),
            tracing_enabled=True,
            logs=sfn.LogOptions(destination=self.log_group, level=sfn.LogLevel.ALL, include_execution_data=False),
        )
        self._grant()

    def grant_start(self, grantee: iam.IGrantable) -> iam.Grant:
        """Start executions of this state machine, and nothing else."""
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["states:StartExecution"],
            resource_arns=[self.state_machine.state_machine_arn],
        )

    def _grant(self) -> None:
        role = self.state_machine.role
        functions = [step.function for step in self.steps]
        functions += [step.compensate for step in self.steps if step.compensate is not None]
        iam.Grant.add_to_principal(
            grantee=role,
            actions=["lambda:InvokeFunction"],
            resource_arns=list(dict.fromkeys(function.function_arn for function in functions)),
        )
        self.requests.grant_settle(role)
        self.log.grant_fence(role)
        for step in self.steps:
            self.log.grant_commit(step.function)
            if step.compensate is not None:
                self.log.grant_compensate(step.compensate)
        Validations.of(role).acknowledge(
            Acknowledgment(
                id="AwsSolutions-IAM5[Resource::*]",
                reason="Delivering a state machine's logs and its trace segments are account-wide actions that take "
                "no resource; every other action of this role names its resource.",
            )
        )


def _check_steps(steps: Sequence[Step]) -> int:
    """Refuse what cannot work; returns the index of the pivot."""
    if not steps:
        raise ValueError("steps must name at least one step, got none; add one")
    require_unique("steps", (step.name for step in steps))
    pivots = [index for index, step in enumerate(steps) if step.pivot]
    if len(pivots) > 1:
        names = [steps[index].name for index in pivots]
        raise ValueError(f"at most one step may be the pivot, got {names}; keep pivot=True on one of them")
    pivot = pivots[0] if pivots else len(steps) - 1
    for index, step in enumerate(steps):
        if index < pivot and step.compensate is None:
            raise ValueError(
                f"step {step.name} mutates before the pivot {steps[pivot].name} and has no compensation; "
                "give it compensate=…, or make it the pivot"
            )
        delays = sum(step.retry.in_doubt_delays)
        if delays <= step.function_timeout:
            raise ValueError(
                f"retries of step {step.name} must outlast its function when it is in doubt, got delays of "
                f"{delays:g} s for a timeout of {step.function_timeout} s; "
                "raise Retry(in_doubt_attempts=…) or Retry(in_doubt_interval=…), or lower the timeout"
            )
    return pivot


def _check_statuses(refused: int, by_error: Mapping[str, int]) -> None:
    for name, status in (("refused_status", refused), *by_error.items()):
        if not 400 <= status <= 499:
            raise ValueError(f"the HTTP status of {name} must be 400 to 499, got {status}; a refusal is the client's")


def _compiled(step: Step) -> CompiledStep:
    return CompiledStep(
        name=step.name,
        function_arn=step.function.function_arn,
        task_seconds=step.function_timeout + _TASK_MARGIN_SECONDS,
        permanent_errors=step.permanent_errors,
        retry=step.retry,
        when=step.when,
        compensate_arn=step.compensate.function_arn if step.compensate is not None else None,
        compensate_task_seconds=step.compensate_timeout + _TASK_MARGIN_SECONDS,
    )


def _fingerprint(steps: Sequence[Step], pivot: int) -> str:
    shape = {
        "protocol": PROTOCOL_VERSION,
        "steps": [[step.name, step.kind.value, step.compensate is not None] for step in steps],
        "pivot": steps[pivot].name,
    }
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode("utf-8")).hexdigest()[:16]


def _bare(expression: str) -> str:
    text = expression.strip()
    if text.startswith("{%") and text.endswith("%}"):
        text = text[2:-2].strip()
    if not text:
        raise ValueError(f"result must be a JSONata expression, got {expression!r}; leave it out for all outputs")
    return text
