"""SagaStateMachine: declared steps, compiled to a Standard state machine and a saga log."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Final

from aws_cdk import Acknowledgment, ArnFormat, Aws, Duration, Fn, RemovalPolicy, Stack, Validations
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from constructs_lib.functions.runtime_function import RuntimeFunction, own_code
from constructs_lib.saga.asl import (
    CompiledGroup,
    Node,
    SagaPlan,
    State,
    definition_of,
    phase_definition,
    recovery_of,
)
from constructs_lib.saga.description.description import METADATA_TYPE, SagaDescription
from constructs_lib.saga.description.function_facts import require_here
from constructs_lib.saga.description.kind import FunctionGrant, Machine, group_kind, plain_kind
from constructs_lib.saga.kinds.notify import NOTIFIER
from constructs_lib.saga.steps.group import StepGroup
from constructs_lib.saga.steps.jsonata import bare
from constructs_lib.saga.steps.routes import Notify
from constructs_lib.saga.steps.run import Run
from constructs_lib.saga.steps.step import Step
from constructs_lib.saga.synthesis.compile import (
    compiled,
    error_notices,
    fingerprint_of,
    notice_of,
    served_steps,
    shape_of,
    ways_of,
)
from constructs_lib.saga.synthesis.describe import describe
from constructs_lib.saga.synthesis.expression_scan import outputs_looked_into, texts_of
from constructs_lib.saga.synthesis.inline import delegated_alarm
from constructs_lib.saga.synthesis.parking import operators_of
from constructs_lib.saga.synthesis.permissions import (
    grant_direct,
    grant_invoke,
    grant_run,
    grant_send,
    grant_tables,
    queues_of,
)
from constructs_lib.saga.validation.budget import (
    OUTLIVED_SECONDS,
    Finding,
    Severity,
    findings_of,
    outlived_with_phases,
    worst_case,
)
from constructs_lib.saga.validation.checks import (
    check_statuses,
    check_steps,
    leaves_of,
)
from constructs_lib.saga.validation.definition_file import compare_with_file
from constructs_lib.saga.validation.expressions import checked_reads
from constructs_lib.saga.validation.inline import check_inline
from constructs_lib.saga.validation.retention import recovery_findings, retention_findings
from constructs_lib.shared.arguments import require_between, require_seconds
from constructs_lib.shared.at_synth import WhenAllIsKnown, warn_of_size
from constructs_lib.shared.types import checked
from constructs_lib.tables.idempotency_table import IdempotencyTable
from constructs_lib.tables.payload_bucket import PayloadBucket
from constructs_lib.tables.saga_log import SagaLog
from saga_runtime.protocol import LEAST_LOG_DAYS, PROTOCOL_VERSION, STATUS_OF_REFUSAL

_HOUR: Final = 3_600
_DAY: Final = 86_400
_UNRESOLVED: Final = "${Token["
_MachineKind = tuple[sfn.StateMachineType, sfn.LogLevel]
_STANDARD: Final[_MachineKind] = (sfn.StateMachineType.STANDARD, sfn.LogLevel.ALL)
_PHASE: Final[_MachineKind] = (sfn.StateMachineType.EXPRESS, sfn.LogLevel.ALL)
_INLINE: Final[_MachineKind] = (sfn.StateMachineType.EXPRESS, sfn.LogLevel.ERROR)
"""Every saga begins in it: each logged state would cost as much as a state."""

_ACCOUNT_WIDE: Final = Acknowledgment(
    id="AwsSolutions-IAM5[Resource::*]",
    reason="Delivering a state machine's logs and its trace segments are account-wide actions that take "
    "no resource; every other action of this role names its resource.",
)
_LOGS_ERRORS: Final = Acknowledgment(
    id="AwsSolutions-SF1",
    reason="Every inline saga begins in this machine, and its saga log keeps what each step did: logging each "
    "state would cost as much as running it. Failures, with their causes, are logged.",
)


class SagaStateMachine(Construct):
    """A workflow whose effects happen at most once, and that ends with all of them or with all of them undone.

    Creates a Standard state machine (JSONata, X-Ray tracing, logs without execution data), a second one that takes an
    interrupted saga up again, the saga log (DynamoDB,
    point-in-time recovery, deletion protection, retained), and exact grants: the state machine may invoke the steps'
    functions and write the records that it needs; each function may write its own kind of row.

    Guaranteed: for one request each step's effect happens at most once; the request's record is settled once, by the
    execution that owns it, and as FAILED only when the log has no remaining effect.
    Not guaranteed here: automatic recovery of an execution that times out or is stopped; a
    ``TimeoutReconciler`` recovers it, or ``cdk-sagas recover``, repeatedly: no step's effect is repeated.

    The happy path takes one transition per step and one to settle.

    Example::

        saga = SagaStateMachine(self, "Transfer", requests=requests, steps=[Step.atomic("Transfer", fn=move)])

    Args:
        scope: parent construct.
        id: construct id.
        requests: where the requests' records are.
        steps: in order; at least one.
        timeout: of the whole saga; 1 minute to 1 year. By default as long as it may take at worst, in full hours, and
            at least 2: where the saga only goes forward, a step is retried for some 70 minutes before it is parked.
        result: JSONata expression (with or without ``{% %}``) over ``$outputs`` (every step's output by the step's
            name) for the response's ``result``: what clients see. ``{}`` by default: they see no output.
        refused_http_status: HTTP status of a refused saga's stored response, 400 to 499; 422 by default.
        http_status_by_error: HTTP status by name of an error that a step can refuse with, e.g.
            ``{"InsufficientFunds": 402}``; 400 to 499.
        on_failed: notification when a saga has failed and is compensated.
        operators: queue that receives an entry for every parked saga; one of the construct's
            own by default. A standard queue.
        definition_file: a committed JSON file, relative to the working directory, with the definition as far as sagas
            in flight depend on it. A change that they could not follow ends the synth and names the step.
            ``CDK_SAGAS_WRITE_DEFINITIONS=1`` writes it.
        run: in which type of state machine a saga begins; ``Run.STANDARD`` by default. ``Run.INLINE`` needs a
            ``definition_file``.
        payloads: where requests and outputs live that are too large to travel; without it, they are refused. Its
            ``keep_days`` must not be less than ``log_retention_days``.
        log_retention_days: how long saga log rows are kept; 30 to 3650 days, 400 by default. Must outlast the saga, and
            half of it what may come after its end: an execution that is redriven, a message, a late outcome.
        encryption_key: a KMS key of your own for the saga log, instead of the AWS managed one.
        removal_policy: of the saga log, the log group, the operators' queue, and of the state machines with their
            roles: executions of a deleted one end at their next state. Retained by default.

    Attributes:
        state_machine: the state machine.
        recovery_machine: the state machine that recovers interrupted sagas.
        notifier: the function that sends notifications, if a step needs it.
        log: the saga log.
        log_days: how long its rows are kept.
        log_group: the state machine's log group.
        requests: as given.
        payloads: as given.
        operators: the operators' queue.
        parked_alarm: alarm while an entry waits in the operators' queue. It has no action: add yours.
        phases: state machines of the phases that have one of their own, by the phase's name.
        phase_definitions: their definitions as data, likewise.
        description: the saga as plain data, which is in the cloud assembly, too.
        run: as given.
        express_machine: the state machine in which an inline saga begins; None otherwise.
        express_definition: its definition as data.
        delegated_alarm: alarm while Express executions leave too many sagas to the Standard machine. It has no action.
        definition: the definition as data, before it became a string.
        recovery_definition: likewise, of the recovery machine.
        refusal_statuses: HTTP statuses with which a refused saga settles.
        request_reads: members of the request that expressions read; an ``Operation`` holds its schema against them.
        definition_fingerprint: identifies the steps' names, order, kinds and the pivot, and the names in phases.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        requests: IdempotencyTable,
        steps: Sequence[Step | StepGroup],
        timeout: Duration | None = None,
        result: str | None = None,
        refused_http_status: int = STATUS_OF_REFUSAL,
        http_status_by_error: Mapping[str, int] | None = None,
        on_failed: Notify | None = None,
        payloads: PayloadBucket | None = None,
        operators: sqs.IQueue | None = None,
        definition_file: str | Path | None = None,
        run: Run = Run.STANDARD,
        log_retention_days: int = 400,
        encryption_key: kms.IKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        node = self.node
        self.requests = requests
        self.steps, self.run = tuple(steps), run
        self.payloads = payloads
        self._on_failed = on_failed
        self._texts = [*texts_of(self.steps), *texts_of(on_failed), result or ""]
        check_steps(self.steps)
        check_inline(self.steps, run, definition_file)
        self.request_reads = checked_reads(self.steps, result=result, on_failed=on_failed)
        leaves = list(leaves_of(self.steps))
        self._require_functions_here(leaves)
        self.definition_fingerprint = fingerprint_of(self.steps)
        described = self._described(node.path, log_retention_days)
        timeout_seconds = (
            require_seconds("timeout", timeout, at_least=60, at_most=366 * _DAY)
            if timeout is not None
            else max(2, ceil(worst_case(described).seconds / _HOUR)) * _HOUR
        )
        require_between("log_retention_days", log_retention_days, at_least=LEAST_LOG_DAYS, at_most=3_650)
        if log_retention_days * _DAY < timeout_seconds + requests.replay_seconds:
            raise ValueError(
                f"log_retention_days must outlast timeout and the requests' replay_for, got {log_retention_days} days "
                f"for {timeout_seconds} s + {requests.replay_seconds} s; raise it"
            )
        if payloads is not None and payloads.keep_days < log_retention_days:
            raise ValueError(
                f"keep_days of payloads must outlast log_retention_days, got {payloads.keep_days} for "
                f"{log_retention_days}; raise keep_days or lower log_retention_days"
            )
        self.refusal_statuses = check_statuses(refused_http_status, http_status_by_error or {}, self.steps)
        self.log_days = log_retention_days
        self.log = SagaLog(self, "Log", encryption_key=encryption_key, removal_policy=removal_policy)
        self.notifier = self._notifier(removal_policy) if any(step.queue is not None for step in leaves) else None
        self.operators, self.parked_alarm = operators_of(self, operators, removal_policy)
        plan = SagaPlan(
            steps=compiled(
                self.steps,
                self.notifier.function if self.notifier is not None else None,
                # What an expression reads must not travel by reference: it would find nothing.
                outputs_looked_into(self._texts, [step.name for step in leaves]),
            ),
            request_table=requests.table_name,
            log_table=self.log.table_name,
            log_days=log_retention_days,
            replay_seconds=requests.replay_seconds,
            remember_seconds=requests.remember_seconds,
            timeout_seconds=timeout_seconds,
            result=bare(result) if result is not None else "{}",
            refused_http_status=refused_http_status,
            http_status_by_error=http_status_by_error or {},
            partition=Stack.of(self).partition,
            fingerprint=self.definition_fingerprint,
            outlived_seconds=OUTLIVED_SECONDS,
            phases_outlived_seconds=outlived_with_phases(described),
            payloads=payloads.bucket.bucket_name if payloads is not None else None,
            operators=self.operators.queue_url,
            comment=f"cdk-sagas protocol {PROTOCOL_VERSION}, definition {self.definition_fingerprint}",
            on_failed=notice_of(on_failed) if on_failed is not None else None,
            on_error={error: notice_of(route) for error, route in error_notices(leaves).items()},
            alongside=run is not Run.STANDARD,
        )
        self.log_group = logs.LogGroup(
            self, "Logs", retention=logs.RetentionDays.THREE_MONTHS, removal_policy=removal_policy
        )
        _name_as_vended(self.log_group)
        self._removal_policy = removal_policy
        self.phase_definitions: dict[str, State] = {}
        self.phases: dict[str, sfn.StateMachine] = {}
        self._roles: dict[str, iam.IRole] = {}
        plan = self._with_phases(plan)
        self.definition: State = definition_of(plan)
        self.state_machine = self._machine("StateMachine", self.definition)
        self._arn = self.state_machine.state_machine_arn
        self.recovery_definition: State = recovery_of(plan, self._arn)
        self.recovery_machine = self._machine("Recovery", self.recovery_definition)
        self.express_definition, self.express_machine, self.delegated_alarm = self._express(plan)
        self.description = dataclasses.replace(described, timeout=timeout_seconds)
        node.add_metadata(METADATA_TYPE, self.description.to_json())
        findings = [*findings_of(self.description), *retention_findings(self.description)]
        if definition_file is not None:
            findings += compare_with_file(Path(definition_file), shape_of(self.steps), ways_of(self.steps), run)
        self._report(findings)
        self._looked_at_every: int | None = None
        warn_of_size(Stack.of(self))
        node.add_validation(WhenAllIsKnown(self._report_recoveries))
        self._grant(leaves)
        self._serve(log_retention_days)

    def _require_functions_here(self, leaves: Sequence[Step]) -> None:
        named: dict[lambda_.IFunction, str] = {}
        for step in leaves:
            if step.function is not None and step.wait is None and step.record:
                named.setdefault(step.function, f"fn of step {step.name}")
            if step.compensate is not None:
                named.setdefault(step.compensate, f"compensate of step {step.name}")
        for function, name in named.items():
            require_here(self, name, function)

    def _described(self, path: str, log_days: int) -> SagaDescription:
        return describe(
            path,
            self.steps,
            timeout=0,
            fingerprint=self.definition_fingerprint,
            tells_of_failure=self._on_failed is not None,
            replayed=self.requests.replay_seconds,
            remembered=self.requests.remember_seconds,
            due_after=int(self.requests.due_after.to_seconds()),
            log_days=log_days,
            inline=self.run is Run.INLINE,
        )

    def _serve(self, log_days: int) -> None:
        """Register the saga with each integration, so that it receives its callbacks."""
        machines = [self.state_machine, *self.phases.values()]
        for via, steps in served_steps(self.steps).items():
            via.serve(
                saga=self.node.path,
                log=self.log.table,
                requests=self.requests.table,
                log_days=log_days,
                operators=self.operators,
                machines=[machine.state_machine_arn for machine in machines],
                steps=steps,
            )

    def _report(self, findings: Sequence[Finding]) -> None:
        """Through the CDK's own validation: an error ends the synth, a warning can be acknowledged by its id."""
        for finding in findings:
            if finding.severity is Severity.ERROR:
                Validations.of(self).add_error(finding.id, finding.message)
            else:
                Validations.of(self).add_warning(finding.id, finding.message)

    def look_after(self, *, every: int) -> None:
        """Register a reconciler, which recovers this saga and extends its rows while it is open.

        ``TimeoutReconciler`` calls it; an app has no need to.

        Args:
            every: seconds between two checks.
        """
        self._looked_at_every = min(every, self._looked_at_every or every)

    def _report_recoveries(self) -> None:
        """Add findings that depend on the saga's reconciler, which may be declared later."""
        self._report(list(recovery_findings(self.description, looked_at_every=self._looked_at_every)))

    def grant_start(self, grantee: iam.IGrantable) -> iam.Grant:
        """Start executions of this state machine, and nothing else."""
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["states:StartExecution"],
            resource_arns=[self._arn],
        )

    def grant_begin(self, grantee: iam.IGrantable) -> iam.Grant:
        """Begin sagas where they begin: ``grant_start``, and of an inline saga executions of its Express machine."""
        grant = self.grant_start(grantee)
        if self.express_machine is None:
            return grant
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["states:StartExecution", "states:StartSyncExecution"],
            resource_arns=[self.express_machine.state_machine_arn],
        )

    def grant_recover(self, grantee: iam.IGrantable) -> iam.Grant:
        """Take a saga over, start its recovery, and compensate late effects: what ``cdk-sagas recover`` needs."""
        self.requests.grant_settle(grantee)
        self.grant_start(grantee)
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["states:StartExecution"],
            resource_arns=[self.recovery_machine.state_machine_arn],
        )
        self.log.grant_query(grantee)
        described = (self.state_machine, self.recovery_machine, *self.phases.values())
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["states:DescribeStateMachine"],
            resource_arns=[machine.state_machine_arn for machine in described],
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

    def grant_resolve(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read a saga, record a step's outcome, and recover the saga: ``inspect``, ``resolve``, ``recover``.

        An operator's answer changes rows of the saga log: grant it to operators only.
        """
        self.grant_recover(grantee)
        return self.log.grant_resolve(grantee)

    def _express(self, plan: SagaPlan) -> tuple[State | None, sfn.StateMachine | None, cloudwatch.Alarm | None]:
        """The definition of the Express machine in which an inline saga begins, the machine, and its alarm."""
        if self.run is not Run.INLINE:
            return None, None, None
        definition = definition_of(dataclasses.replace(plan, standard_arn=self._arn))
        machine = self._machine("Express", definition, kind=_INLINE)
        Validations.of(machine).acknowledge(_LOGS_ERRORS)
        return definition, machine, delegated_alarm(self, machine)

    def _with_phases(self, plan: SagaPlan) -> SagaPlan:
        """The plan with the ARNs of its phases' state machines, which are made here."""
        nodes: list[Node] = []
        for node in plan.steps:
            if isinstance(node, CompiledGroup) and node.machine is not None:
                definition = phase_definition(plan, node)
                kind = _PHASE if node.machine is Machine.EXPRESS else _STANDARD
                machine = self._machine(node.name, definition, kind=kind)
                self.phase_definitions[node.name] = definition
                self.phases[node.name] = machine
                nodes.append(dataclasses.replace(node, machine_arn=machine.state_machine_arn))
            else:
                nodes.append(node)
        return dataclasses.replace(plan, steps=nodes)

    def _machine(self, id: str, definition: State, *, kind: _MachineKind | None = None) -> sfn.StateMachine:
        type_, level = kind or _STANDARD
        machine = sfn.StateMachine(
            self,
            id,
            state_machine_type=type_,
            definition_body=sfn.DefinitionBody.from_string(self._text(definition)),
            tracing_enabled=True,
            logs=sfn.LogOptions(destination=self.log_group, level=level, include_execution_data=False),
        )
        self._roles[id] = machine.role
        if self._removal_policy is not RemovalPolicy.DESTROY:
            _outlive_the_stack(machine)
        Validations.of(self._roles[id]).acknowledge(_ACCOUNT_WIDE)
        return machine

    def _text(self, definition: State) -> str:
        """The definition as CloudFormation gets it.

        Names and ARNs need no escaping, whatever they are at deployment. What users wrote may hold tokens of any kind:
        these the CDK has to escape, which takes it longer than all the rest of a saga.
        """
        leaves = leaves_of(self.steps)
        if any(step.direct or step.transaction for step in leaves) or any(_UNRESOLVED in text for text in self._texts):
            return Stack.of(self).to_json_string(definition)
        return json.dumps(definition, separators=(",", ":"), ensure_ascii=False)

    def _notifier(self, removal_policy: RemovalPolicy) -> RuntimeFunction:
        notifier = RuntimeFunction(
            self,
            "Notifier",
            code=own_code(),
            handler="handlers.notifier.handler",
            description="Sends the saga's notifications, each under its step key",
            timeout=Duration.seconds(NOTIFIER.timeout),
            removal_policy=removal_policy,
        )
        self.log.grant_commit(notifier)
        grant_send(queues_of(step.queue for step in leaves_of(self.steps) if step.queue is not None), notifier)
        return notifier

    def _grant(self, leaves: Sequence[Step]) -> None:
        forward, recovery = self._roles["StateMachine"], self._roles["Recovery"]
        grant_invoke(forward, self.definition)
        grant_invoke(recovery, self.recovery_definition)
        queues = [self.operators, *(notify.queue for notify in error_notices(leaves).values())]
        queues += [self._on_failed.queue] if self._on_failed is not None else []
        grant_send(queues_of(_waited_at(node for node in self.steps if node.name not in self.phases)), forward)
        asked = queues_of(queues)
        for role, definition in ((forward, self.definition), (recovery, self.recovery_definition)):
            self._grant_tables(role, definition)
            grant_send(asked, role)
        if self.express_definition is not None:
            express = self._roles["Express"]
            grant_invoke(express, self.express_definition)
            self._grant_tables(express, self.express_definition)
            grant_send(asked, express)
            grant_direct(express, leaves)
            self.grant_start(express)
        self.grant_start(recovery)
        self._grant_phases(forward)
        for grant, function in self._function_grants(leaves):
            grant(function)

    def _grant_phases(self, forward: iam.IRole) -> None:
        for node in self.steps:
            machine = self.phases.get(node.name)
            if machine is None:
                grant_direct(forward, node.steps)
                continue
            grant_run(forward, machine, express=group_kind(node.kind).machine is Machine.EXPRESS)
            role = self._roles[node.name]
            grant_invoke(role, self.phase_definitions[node.name])
            grant_direct(role, node.steps)
            self._grant_tables(role, self.phase_definitions[node.name])
            grant_send(queues_of(_waited_at([node])), role)

    def _grant_tables(self, role: iam.IRole, definition: State) -> None:
        grant_tables(role, definition, leaves_of(self.steps), requests=self.requests, log=self.log)

    def _function_grants(self, leaves: Sequence[Step]) -> list[FunctionGrant]:
        """Grants of each function, once: one function may run many steps."""
        needed: list[FunctionGrant] = []
        per_item = any(isinstance(node, StepGroup) and group_kind(node.kind).per_item for node in self.steps)
        for step in leaves:
            needed += plain_kind(step.kind).grants(step, self.log)
            asked = step.wait.via.dispatcher if step.wait is not None else step.function
            functions = [function for function in (asked, step.compensate) if function is not None]
            if step.provider is not None and per_item:
                # What items of a map answered is read by the names of their rows, which the function does not know.
                needed += [(self.log.grant_query, function) for function in functions]
            if self.payloads is not None:
                needed += [
                    (grant, function)
                    for function in functions
                    for grant in (self.payloads.grant_read, self.payloads.grant_write)
                ]
        return list(dict.fromkeys(needed))


def _outlive_the_stack(machine: sfn.StateMachine) -> None:
    """Keep a state machine, and its role's rights, when it is replaced or its stack is deleted.

    AWS ends the executions of a state machine that is deleted at their next transition, and forgets them: their sagas
    would be in progress with an unknown state. What a failed deployment has created is deleted.
    """
    for part in (machine, machine.role):
        for node in part.node.find_all():
            if isinstance(node, sfn.CfnStateMachine | iam.CfnRole | iam.CfnPolicy):
                node.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)


def _name_as_vended(group: logs.LogGroup) -> None:
    """Give a log group a name that no other one, and no other deployment of the same stack, can have.

    Step Functions adds every log group that is not under ``/aws/vendedlogs/`` to a resource policy of the account that
    holds 5,120 characters: after some twenty state machines no other could be created (aws/aws-cdk#26432). The name
    changes with the logical id, because CloudFormation then makes the new group before the old one goes. The stack's id
    ends with a UUID that is new with each stack, so a group that an earlier deployment left behind is not in the way.
    """
    resource = group.node.default_child
    if isinstance(resource, logs.CfnLogGroup):
        stack = Fn.select(2, Fn.split("/", Aws.STACK_ID))
        resource.log_group_name = f"/aws/vendedlogs/states/{Aws.STACK_NAME}-{resource.logical_id}-{stack}"


def _waited_at(nodes: Iterable[Step | StepGroup]) -> Iterator[sqs.IQueue]:
    """Queues into which these steps put what they wait for."""
    for step in leaves_of(list(nodes)):
        if step.wait is not None:
            yield step.wait.via.queue
