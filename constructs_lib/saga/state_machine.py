"""SagaStateMachine: declared steps, compiled to a Standard state machine and a saga log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from aws_cdk import ArnFormat, Duration, RemovalPolicy, Stack, Validations
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from constructs_lib.functions.function_options import FunctionOptions
from constructs_lib.functions.runtime_function import RuntimeFunction, own_code
from constructs_lib.monitoring.alarms import total_of
from constructs_lib.saga.asl import (
    SagaPlan,
)
from constructs_lib.saga.description.description import METADATA_TYPE
from constructs_lib.saga.description.kind import Machine, group_kind
from constructs_lib.saga.steps.group import StepGroup
from constructs_lib.saga.steps.jsonata import bare
from constructs_lib.saga.steps.routes import NOTIFIER, Notify
from constructs_lib.saga.steps.run import Run
from constructs_lib.saga.steps.step import Step
from constructs_lib.saga.steps.versions import Versions
from constructs_lib.saga.synthesis.compile import (
    compiled,
    error_notices,
    notice_of,
    served_steps,
)
from constructs_lib.saga.synthesis.declared import declared_saga
from constructs_lib.saga.synthesis.described_entry import always_taken, steps_entry
from constructs_lib.saga.synthesis.expression_scan import looks_into_request, outputs_looked_into, texts_of
from constructs_lib.saga.synthesis.machines import Machines, Made
from constructs_lib.saga.synthesis.parking import entries_of, operators_of
from constructs_lib.saga.synthesis.permissions import (
    function_grants,
    grant_direct,
    grant_invoke,
    grant_run,
    grant_send,
    grant_tables,
    policies_elsewhere,
    queues_of,
    require_here,
    require_room,
)
from constructs_lib.saga.synthesis.starting import Entrances, ImportedSaga, ISagaStateMachine
from constructs_lib.saga.validation.budget import (
    OUTLIVED_SECONDS,
    Finding,
    Severity,
    outlived_with_phases,
)
from constructs_lib.saga.validation.checks import (
    leaves_of,
)
from constructs_lib.saga.validation.retention import recovery_findings
from constructs_lib.saga.validation.unreconciled import begun_unreconciled, unreconciled
from constructs_lib.shared.accepted import AnyKey
from constructs_lib.shared.at_synth import WhenAllIsKnown, warn_of_size
from constructs_lib.shared.manifest import Manifest
from constructs_lib.shared.manifest_format import Part
from constructs_lib.shared.stacks import require_same_place
from constructs_lib.shared.types import checked
from constructs_lib.tables.interfaces import IIdempotencyTable
from constructs_lib.tables.money_field import MoneyField
from constructs_lib.tables.payload_bucket import PayloadBucket
from constructs_lib.tables.saga_log import SagaLog
from saga_runtime.protocol import PROTOCOL_VERSION, STATUS_OF_REFUSAL

_METRICS_PERIOD: Final = Duration.minutes(5)


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
            name) for the response's ``result``: what clients see. ``{}`` by default: they see no output. One that
            fails to evaluate parks the saga (``ResultFailed``).
        refused_http_status: HTTP status of a refused saga's stored response, 400 to 499; 422 by default.
        http_status_by_error: HTTP status by name of an error that a step can refuse with, e.g.
            ``{"InsufficientFunds": 402}``; 400 to 499.
        on_failed: notification when a saga has failed and is compensated.
        operators: queue that receives an entry for every parked saga; one of the construct's
            own by default. A standard queue of the saga's region.
        definition_file: a committed JSON file, relative to the working directory, with the definition as far as sagas
            in flight depend on it. A change that they could not follow ends the synth and names the step.
            ``CDK_SAGAS_WRITE_DEFINITIONS=1`` writes it.
        run: in which type of state machine a saga begins; ``Run.STANDARD`` by default. ``Run.INLINE`` needs a
            ``definition_file``.
        versions: publishes each definition as a version, and starts sagas by an alias, which a deployment moves step
            by step, and a person turns back. None: sagas start by the state machine, whose newest definition they
            run. For ``Run.STANDARD`` only.
        payloads: where requests and outputs live that are too large to travel; without it, they are refused. Its
            ``keep_days`` must not be less than ``log_retention_days``.
        log_retention_days: how long saga log rows are kept; 30 to 3650 days, 400 by default. Must outlast the saga, and
            half of it what may come after its end: an execution that is redriven, a message, a late outcome.
        encryption_key: a KMS key of your own for the saga log, instead of the AWS managed one.
        function_options: ``FunctionOptions`` for the functions and log groups of this construct.
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
        alias: name of the alias by which sagas start; None: by the state machine itself.
        amounts: where requests of its operations and intakes, declared so far, have their amounts.
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
        requests: IIdempotencyTable,
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
        versions: Versions | None = None,
        log_retention_days: int = 400,
        encryption_key: AnyKey | None = None,
        function_options: FunctionOptions | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        if function_options is not None:
            function_options.apply_to(self)
        require_same_place(self, f"requests of {id}", requests, "create an IdempotencyTable there")
        if payloads is not None:
            require_same_place(self, f"payloads of {id}", payloads, "create a PayloadBucket there")
        declared = declared_saga(
            self,
            requests=requests,
            steps=steps,
            timeout=timeout,
            result=result,
            refused_http_status=refused_http_status,
            http_status_by_error=http_status_by_error or {},
            on_failed=on_failed,
            payloads=payloads,
            definition_file=definition_file,
            run=run,
            log_days=log_retention_days,
        )
        if versions is not None and run is not Run.STANDARD:
            raise ValueError(
                f"versions must be None for run={run.value}, got {versions}; an Express machine leaves every saga of "
                "another definition to the Standard one: leave versions out, or run it as STANDARD"
            )
        self._declared = declared
        self.steps, self.run = declared.steps, run
        self.requests, self.payloads = requests, payloads
        self.request_reads = declared.reads
        self.refusal_statuses = declared.refusal_statuses
        self.definition_fingerprint = declared.description.fingerprint
        self.description = declared.description
        self.log_days = log_retention_days
        self.log = SagaLog(self, "Log", encryption_key=encryption_key, removal_policy=removal_policy)
        self.notifier = self._notifier(removal_policy)
        self.operators, self.parked_alarm = operators_of(self, operators, removal_policy)
        machines = Machines(
            self,
            self._plan(),
            log=self.log,
            inline=run is Run.INLINE,
            removal_policy=removal_policy,
            has_tokens=declared.has_tokens,
            versions=versions,
        )
        self._machines = machines
        self.alias = versions.alias if versions is not None else None
        self.log_group = machines.log_group
        self.phases = {name: made.machine for name, made in machines.phases.items()}
        self.phase_definitions = {name: made.definition for name, made in machines.phases.items()}
        self.state_machine, self.definition = machines.forward.machine, machines.forward.definition
        self._arn = self.state_machine.state_machine_arn
        self.recovery_machine, self.recovery_definition = machines.recovery.machine, machines.recovery.definition
        self.express_machine = machines.express.machine if machines.express is not None else None
        self.express_definition = machines.express.definition if machines.express is not None else None
        self.delegated_alarm = machines.delegated_alarm
        self.node.add_metadata(METADATA_TYPE, self.description.to_json())
        self._report(declared.findings(definition_file))
        self._reconciler: str | None = None
        self._looked_at_every: int | None = None
        self._entrances = Entrances(self)
        self._intakes: list[str] = []
        self.amounts: list[MoneyField] = []
        warn_of_size(Stack.of(self))
        self.node.add_validation(WhenAllIsKnown(self._report_recoveries))
        self._grant()
        self._serve()
        Manifest.of(self).add(
            Part.SAGAS,
            path=self.node.path,
            machine=self.state_machine.state_machine_name,
            arn=self._arn,
            recovery=self.recovery_machine.state_machine_arn,
            requests=requests.table_name,
            shards=requests.due_shards,
            remember=requests.remember_seconds,
            log=self.log.table_name,
            days=log_retention_days,
            operators=self.operators.queue_url,
            timeout=self.description.timeout,
            definition=self.definition_fingerprint,
            steps=steps_entry(steps, self.description),
            always=always_taken(steps, self.description),
        )

    def _plan(self) -> SagaPlan:
        """Everything that the definitions are made of."""
        declared, described = self._declared, self.description
        return SagaPlan(
            steps=compiled(
                self.steps,
                self.notifier.function if self.notifier is not None else None,
                # What an expression reads must not travel by reference: it would find nothing.
                outputs_looked_into(declared.texts, [step.name for step in declared.leaves]),
            ),
            request_table=self.requests.table_name,
            log_table=self.log.table_name,
            log_days=self.log_days,
            replay_seconds=self.requests.replay_seconds,
            remember_seconds=self.requests.remember_seconds,
            timeout_seconds=described.timeout,
            result=bare(declared.result) if declared.result is not None else "{}",
            refused_http_status=declared.refused_http_status,
            http_status_by_error=declared.http_status_by_error,
            partition=Stack.of(self).partition,
            fingerprint=described.fingerprint,
            outlived_seconds=OUTLIVED_SECONDS,
            phases_outlived_seconds=outlived_with_phases(described),
            payloads=self.payloads.bucket.bucket_name if self.payloads is not None else None,
            operators=self.operators.queue_url,
            comment=f"cdk-sagas protocol {PROTOCOL_VERSION}, definition {described.fingerprint}",
            on_failed=notice_of(declared.on_failed) if declared.on_failed is not None else None,
            on_error={error: notice_of(route) for error, route in error_notices(declared.leaves).items()},
            alongside=self.run is not Run.STANDARD,
            reads_request=self.payloads is not None and looks_into_request(texts_of(self.steps)),
        )

    @checked
    def roll_back_on(self, alarms: Sequence[cloudwatch.IAlarm]) -> None:
        """Let CloudFormation roll a deployment back if one of these alarms goes off while it moves the alias.

        The whole stack is rolled back, functions included. An alarm that is on already fails the deployment: choose
        alarms that failures of new sagas set off within ``every``, and not those that wait for a person, such as
        ``parked_alarm``. A saga that fails and is compensated shows in its step function's errors and in the API's
        5xx; not in ``metric_executions_failed``, as its execution succeeds.

        Args:
            alarms: of the same account and region; at most 100 in all.

        Raises:
            ValueError: if the saga has no ``versions``, or its ``shift`` is ``ALL_AT_ONCE``, for which CloudFormation
                checks no alarm; if the list is empty or too long, or one is elsewhere.
        """
        if self._machines.alias is None:
            raise ValueError(
                f"versions must be set for roll_back_on, got None for {self.node.path}; "
                "without an alias a deployment moves all new sagas together"
            )
        self._machines.alias.roll_back_on(alarms)

    def _serve(self) -> None:
        """Register the saga with each integration, so that it receives its callbacks."""
        # Express has no tasks that wait. Of the others all: in flight, a step may wait where an earlier version had it.
        kinds = {node.name: group_kind(node.kind) for node in self.steps if isinstance(node, StepGroup)}
        children = [made for name, made in self.phases.items() if kinds[name].machine is not Machine.EXPRESS]
        machines = [self.state_machine, *children]
        for via, steps in served_steps(self.steps).items():
            via.serve(
                saga=self.node.path,
                log=self.log.table,
                requests=self.requests.table,
                log_days=self.log_days,
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

    def look_after(self, *, reconciler: str, every: int) -> None:
        """Register the reconciler, which recovers this saga and extends its rows while it is open.

        ``TimeoutReconciler`` calls it; an app has no need to.

        Args:
            reconciler: its path.
            every: seconds between two checks.

        Raises:
            ValueError: if it has one: a hold would stop one of the two.
        """
        if self._reconciler is not None:
            raise ValueError(
                f"saga {self.node.path} must be of one TimeoutReconciler, got {self._reconciler} and {reconciler}: a "
                "hold stops only one; leave it out of one of them"
            )
        self._reconciler, self._looked_at_every = reconciler, every

    def begin_by_events(self, *, intake: str, money: MoneyField | None) -> None:
        """Register an intake whose events begin this saga.

        ``EventIntake`` calls it; an app has no need to.

        Args:
            intake: its path.
            money: where a request has its amount.
        """
        self._intakes.append(intake)
        self.amounts += [money] if money is not None else []

    def _report_recoveries(self) -> None:
        """Add findings that depend on the saga's reconciler, which may be declared later."""
        self._report(list(recovery_findings(self.description, looked_at_every=self._looked_at_every)))
        if self._looked_at_every is None:
            inline = self._intakes if self.run is not Run.STANDARD else []
            self._report([begun_unreconciled(intake, self.run) for intake in inline] or [unreconciled()])

    def begin_by_requests(self, arns: Callable[[], Sequence[str]], *, money: MoneyField | None) -> None:
        """Register an operation whose requests begin this saga.

        ``TransactionApi`` and ``HttpTransactionApi`` call it; an app has no need to.

        Args:
            arns: the operation's methods that IAM authorizes.
            money: where a request has its amount.
        """
        self._entrances.add(arns)
        self.amounts += [money] if money is not None else []

    @staticmethod
    @checked
    def from_operation(
        scope: Construct, id: str, *, operation: str, api_id: str, stage_name: str = "v1", resource_path: str = ""
    ) -> ISagaStateMachine:
        """Import a saga of another app, to let callers of this one start it.

        Nothing is created. A saga is started at an operation of its API, and not at its state machine: the operation's
        gatekeeper reserves the request under its key before it starts an execution. An execution without a reservation
        would apply its effects once more with each start, under names of its own, and no record would have its result.

        Guaranteed: of any number of requests by one caller under one key, one saga starts.
        Not guaranteed: that the operation exists, and that it is authorized by IAM.

        Args:
            scope: parent construct.
            id: construct id.
            operation: name of the operation, in this account and region.
            api_id: id of its REST or HTTP API.
            stage_name: name of the stage; ``v1`` by default. ``$default`` for an HTTP API's default stage.
            resource_path: path of the resource below which the operations are, if it is not the API's root.

        Raises:
            ValueError: for a name or id that cannot be one.
        """
        return ImportedSaga(
            scope, id, operation=operation, api_id=api_id, stage_name=stage_name, resource_path=resource_path
        )

    def metric_executions_started(self) -> cloudwatch.Metric:
        """Executions started, recoveries not included: the sum of 5 minutes."""
        return self.state_machine.metric_started(statistic="Sum", period=_METRICS_PERIOD)

    def metric_executions_failed(self) -> cloudwatch.IMetric:
        """Executions that failed, recoveries included: the sum of 5 minutes.

        A refused saga that is compensated settles in an execution that succeeds.
        """
        return self._of_both(lambda machine: machine.metric_failed(statistic="Sum", period=_METRICS_PERIOD), "Failed")

    def metric_executions_timed_out(self) -> cloudwatch.IMetric:
        """Executions that timed out, recoveries included: the sum of 5 minutes."""
        return self._of_both(
            lambda machine: machine.metric_timed_out(statistic="Sum", period=_METRICS_PERIOD), "Timed out"
        )

    def metric_executions_aborted(self) -> cloudwatch.IMetric:
        """Executions that were stopped, recoveries included: the sum of 5 minutes."""
        return self._of_both(lambda machine: machine.metric_aborted(statistic="Sum", period=_METRICS_PERIOD), "Aborted")

    def metric_parked(self) -> cloudwatch.IMetric:
        """Entries in the operators' queue, of all sagas that share it: the maximum of a minute."""
        return entries_of(self.operators)

    def _of_both(self, metric: Callable[[sfn.StateMachine], cloudwatch.Metric], label: str) -> cloudwatch.IMetric:
        return total_of([metric(self.state_machine), metric(self.recovery_machine)], label)

    @checked
    def grant_start(self, grantee: iam.IGrantable) -> iam.Grant:
        """Start sagas, each once per key: call the operations that start this saga (``execute-api:Invoke``).

        Of all APIs of the app that IAM authorizes, those that are declared later included; without one the synth ends
        with an error. Starting the state machine itself is not granted: an execution without a reservation is not
        deduplicated, and applies its effects once more.
        """
        return self._entrances.grant(grantee)

    def _grant_start_execution(self, grantee: iam.IGrantable) -> iam.Grant:
        """Start executions of the forward machine, and nothing else."""
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["states:StartExecution"],
            resource_arns=[self._arn],
        )

    @checked
    def grant_begin(self, grantee: iam.IGrantable, *, waits: bool = False) -> iam.Grant:
        """Begin sagas where they begin: executions of the forward machine, and of an inline saga's Express machine.

        ``TransactionApi`` and ``EventIntake`` call it; an app has no need to, and grants ``grant_start``. Who begins a
        saga must have reserved its request.

        Args:
            grantee: who begins them.
            waits: whether it may also run synchronous ones; only asynchronous ones by default.
        """
        grant = self._grant_start_execution(grantee)
        if self.express_machine is None:
            return grant
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["states:StartExecution", *(["states:StartSyncExecution"] if waits else [])],
            resource_arns=[self.express_machine.state_machine_arn],
        )

    @checked
    def grant_recover(self, grantee: iam.IGrantable) -> iam.Grant:
        """Take a saga over, start its recovery, and compensate late effects: what ``cdk-sagas recover`` needs."""
        Manifest.of(self).grant_read(grantee)
        self.requests.grant_settle(grantee)
        self._grant_start_execution(grantee)
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
        return self._grant_on_executions(grantee, "states:DescribeExecution")

    def _grant_on_executions(self, grantee: iam.IGrantable, *actions: str) -> iam.Grant:
        stack = Stack.of(self)
        machines = (self.state_machine, self.recovery_machine)
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=list(actions),
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

    @checked
    def grant_resolve(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read a saga, record a step's outcome, recover or cancel the saga.

        It is for ``cdk-sagas inspect``, ``resolve``, ``recover`` and ``cancel``.

        An operator's answer changes rows of the saga log: grant it to operators only.
        """
        self.grant_recover(grantee)
        self._grant_on_executions(
            grantee, "states:GetExecutionHistory", "states:DescribeStateMachineForExecution", "states:StopExecution"
        )
        return self.log.grant_resolve(grantee)

    def _notifier(self, removal_policy: RemovalPolicy) -> RuntimeFunction | None:
        """The function that sends the steps' notifications; None if no step has one."""
        queues = [step.queue for step in self._declared.leaves if step.queue is not None]
        if not queues:
            return None
        notifier = RuntimeFunction(
            self,
            "Notifier",
            code=own_code(),
            handler="handlers.notifier.handler",
            description="Sends the saga's notifications, each under its step key",
            timeout=Duration.seconds(NOTIFIER.timeout),
            longest_timeout=Duration.seconds(NOTIFIER.timeout),
            removal_policy=removal_policy,
        )
        self.log.grant_commit(notifier)
        grant_send(queues_of(queues), notifier)
        return notifier

    def _grant(self) -> None:
        machines, leaves = self._machines, self._declared.leaves
        forward, recovery, express = machines.forward, machines.recovery, machines.express
        for made in (forward, recovery):
            grant_invoke(made.role, made.definition)
        notified = {f"on_error {error}": notify.queue for error, notify in error_notices(leaves).items()}
        notified |= {"on_failed": self._declared.on_failed.queue} if self._declared.on_failed is not None else {}
        notified |= {"operators": self.operators}
        grant_send(queues_of(_waited_at(node for node in self.steps if node.name not in self.phases)), forward.role)
        asked = queues_of(notified.values())
        for made in (forward, recovery):
            self._grant_tables(made)
            grant_send(asked, made.role)
        if express is not None:
            grant_invoke(express.role, express.definition)
            self._grant_tables(express)
            grant_send(asked, express.role)
            grant_direct(express.role, leaves)
            self._grant_start_execution(express.role)
        self._grant_start_execution(recovery.role)
        self._grant_phases(forward.role)
        per_item = any(isinstance(node, StepGroup) and group_kind(node.kind).per_item for node in self.steps)
        require_here(self, leaves, notified)
        elsewhere = policies_elsewhere(self, leaves)
        for grant, function in function_grants(leaves, log=self.log, payloads=self.payloads, per_item=per_item):
            grant(elsewhere.get(function, function))
        require_room(elsewhere)
        for made in machines.all if elsewhere else ():
            # Functions of this stack come after their roles' policies: these did before a machine could run them.
            made.machine.node.add_dependency(*elsewhere.values())

    def _grant_phases(self, forward: iam.IRole) -> None:
        for node in self.steps:
            made = self._machines.phases.get(node.name)
            if made is None:
                grant_direct(forward, node.steps)
                continue
            grant_run(forward, made.machine, express=group_kind(node.kind).machine is Machine.EXPRESS)
            grant_invoke(made.role, made.definition)
            grant_direct(made.role, node.steps)
            self._grant_tables(made)
            grant_send(queues_of(_waited_at([node])), made.role)

    def _grant_tables(self, made: Made) -> None:
        grant_tables(made.role, made.definition, self._declared.leaves, requests=self.requests, log=self.log)


def _waited_at(nodes: Iterable[Step | StepGroup]) -> Iterator[sqs.IQueue]:
    """Queues into which these steps put what they wait for."""
    for step in leaves_of(list(nodes)):
        if step.via is not None:
            yield step.via.queue
