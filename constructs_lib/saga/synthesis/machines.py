"""State machines of a saga: made of its plan, in an order in which each knows the ARNs that it names."""

from __future__ import annotations

import dataclasses
import json
from typing import Final

from aws_cdk import Acknowledgment, RemovalPolicy, Stack, Validations
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from constructs_lib.functions.function_options import log_group
from constructs_lib.saga.asl import (
    CompiledGroup,
    Node,
    SagaPlan,
    State,
    definition_of,
    phase_definition,
    recovery_of,
)
from constructs_lib.saga.description.kind import Machine
from constructs_lib.saga.steps.versions import Versions
from constructs_lib.saga.synthesis.inline import delegated_alarm
from constructs_lib.saga.synthesis.versions import PUBLISHED, Alias, published
from constructs_lib.shared.at_synth import WhenAllIsKnown
from constructs_lib.tables.saga_log import SagaLog

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One state machine.

    Attributes:
        machine: the construct.
        role: its role.
        definition: its definition as data, before it became a string.
    """

    machine: sfn.StateMachine
    role: iam.IRole
    definition: State


class Machines:
    """State machines of one saga, their roles and definitions, and their log group.

    Args:
        scope: the saga's construct.
        plan: the saga; the ARNs of its phases are filled in.
        log: its saga log.
        inline: whether it begins in an Express machine.
        removal_policy: of the machines, their roles and the log group.
        has_tokens: whether texts of the definitions may hold tokens of any kind, which the CDK has to escape.
        versions: how they are published; None: they are not.

    Attributes:
        log_group: of all of them.
        phases: those of the phases that have one of their own, by the phase's name.
        forward: runs the saga.
        recovery: recovers it.
        express: in which an inline saga begins; None otherwise.
        delegated_alarm: its alarm.
        alias: by which sagas start; None: by the state machine itself.
    """

    def __init__(
        self,
        scope: Construct,
        plan: SagaPlan,
        *,
        log: SagaLog,
        inline: bool,
        removal_policy: RemovalPolicy,
        has_tokens: bool,
        versions: Versions | None,
    ) -> None:
        self._scope = scope
        self._versions = versions
        self._removal_policy = removal_policy
        self._has_tokens = has_tokens
        self.log_group = log_group(
            scope, "Logs", retention=logs.RetentionDays.THREE_MONTHS, removal_policy=removal_policy
        )
        _name_as_vended(self.log_group, log)
        self.phases: dict[str, Made] = {}
        if versions is not None:
            plan = dataclasses.replace(plan, comment=f"{plan.comment}{PUBLISHED}")
        plan = dataclasses.replace(plan, steps=[self._with_machine(plan, node) for node in plan.steps])
        self.forward = self._make("StateMachine", definition_of(plan), _STANDARD)
        arn = self.forward.machine.state_machine_arn
        self.alias = self._alias()
        self.recovery = self._make("Recovery", recovery_of(plan, arn), _STANDARD)
        self.express: Made | None = None
        self.delegated_alarm: cloudwatch.Alarm | None = None
        if inline:
            definition = definition_of(dataclasses.replace(plan, standard_arn=arn))
            self.express = self._make("Express", definition, _INLINE)
            Validations.of(self.express.machine).acknowledge(_LOGS_ERRORS)
            self.delegated_alarm = delegated_alarm(scope, self.express.machine, self.forward.machine)

    @property
    def all(self) -> list[Made]:
        """Every state machine."""
        made = [*self.phases.values(), self.forward, self.recovery]
        return [*made, self.express] if self.express is not None else made

    def _with_machine(self, plan: SagaPlan, node: Node) -> Node:
        """A node with the ARN of its phase's state machine, which is made here."""
        if not isinstance(node, CompiledGroup) or node.machine is None:
            return node
        kind = _PHASE if node.machine is Machine.EXPRESS else _STANDARD
        made = self.phases[node.name] = self._make(node.name, phase_definition(plan, node), kind)
        if self._versions is None:
            return dataclasses.replace(node, machine_arn=made.machine.state_machine_arn)
        return dataclasses.replace(node, machine_arn=published(made.machine).ref)

    def _alias(self) -> Alias | None:
        if self._versions is None:
            return None
        machine = self.forward.machine
        return Alias(machine, published(machine), self._versions)

    def _make(self, id: str, definition: State, kind: _MachineKind) -> Made:
        type_, level = kind
        machine = sfn.StateMachine(
            self._scope,
            id,
            state_machine_type=type_,
            definition_body=sfn.DefinitionBody.from_string(self._text(definition)),
            tracing_enabled=True,
            logs=sfn.LogOptions(destination=self.log_group, level=level, include_execution_data=False),
        )
        role = machine.role
        if self._removal_policy is not RemovalPolicy.DESTROY:
            _outlive_the_stack(machine)
            machine.node.add_validation(WhenAllIsKnown(lambda: _keep_overflow(machine.role)))
        Validations.of(role).acknowledge(_ACCOUNT_WIDE)
        return Made(machine=machine, role=role, definition=definition)

    def _text(self, definition: State) -> str:
        """The definition as CloudFormation gets it.

        Names and ARNs need no escaping, whatever they are at deployment. What users wrote may hold tokens of any kind:
        these the CDK has to escape, which takes it longer than all the rest of a saga.
        """
        if self._has_tokens:
            return Stack.of(self._scope).to_json_string(definition)
        return json.dumps(definition, separators=(",", ":"), ensure_ascii=False)


def _outlive_the_stack(machine: sfn.StateMachine) -> None:
    """Keep a state machine, and its role's rights, when it is replaced or its stack is deleted.

    AWS ends the executions of a state machine that is deleted at their next transition, and forgets them: their sagas
    would be in progress with an unknown state. What a failed deployment has created is deleted.
    """
    for part in (machine, machine.role):
        for node in part.node.find_all():
            if isinstance(node, sfn.CfnStateMachine | iam.CfnRole | iam.CfnPolicy):
                node.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)


def _keep_overflow(role: iam.IRole) -> None:
    """Keep what the CDK made of a role's policy that is too long, where the role is kept: it does so at the end."""
    own = role.node.default_child
    for node in role.node.children:
        policy = node.node.default_child
        if isinstance(own, iam.CfnRole) and isinstance(policy, iam.CfnManagedPolicy):
            policy.cfn_options.deletion_policy = own.cfn_options.deletion_policy
            policy.cfn_options.update_replace_policy = own.cfn_options.update_replace_policy


def _name_as_vended(group: logs.LogGroup, log: SagaLog) -> None:
    """Give a log group a name that no other one, and no earlier one of the same stack, can have.

    Step Functions adds every log group that is not under ``/aws/vendedlogs/`` to a resource policy of the account that
    holds 5,120 characters: after some twenty state machines no other could be created (aws/aws-cdk#26432). The name
    begins with that of the saga log's table, which CloudFormation makes, another one with each creation of the saga: a
    group that was retained with its stack or its saga, or by a deployment that was rolled back, is not in the way. The
    name changes with the logical id, because CloudFormation then makes the new group before the old one goes.
    """
    resource = group.node.default_child
    if isinstance(resource, logs.CfnLogGroup):
        resource.log_group_name = f"/aws/vendedlogs/states/{log.table_name}-{resource.logical_id}"
