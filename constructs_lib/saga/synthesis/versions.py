"""Published versions of a saga's state machines, and the alias by which sagas start."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_stepfunctions as sfn

from constructs_lib.saga.steps.versions import Shift, Versions


def published(machine: sfn.StateMachine) -> sfn.CfnStateMachineVersion:
    """Publish what is deployed of a state machine, with each deployment that changes it.

    Every version stays until its state machine is deleted. An alias can be turned back to one, and sagas in flight call
    those of their phases: also what a deployment had begun that is rolled back.
    """
    resource = machine.node.default_child
    if not isinstance(resource, sfn.CfnStateMachine):
        raise TypeError(f"{machine.node.path} must be one AWS::StepFunctions::StateMachine, got {resource!r}")
    version = sfn.CfnStateMachineVersion(
        machine,
        "Version",
        state_machine_arn=machine.state_machine_arn,
        state_machine_revision_id=resource.attr_state_machine_revision_id,
    )
    version.apply_removal_policy(RemovalPolicy.RETAIN)
    return version


class Alias:
    """The alias of a state machine, which a deployment moves to the version that it publishes.

    Args:
        machine: the state machine.
        version: what it points to in the end.
        versions: its name, and how it is moved.
    """

    def __init__(self, machine: sfn.StateMachine, version: sfn.CfnStateMachineVersion, versions: Versions) -> None:
        self._version = version
        self._versions = versions
        self._alarms: list[str] = []
        self.resource = sfn.CfnStateMachineAlias(
            machine, "Alias", name=versions.alias, deployment_preference=self._preference()
        )

    def roll_back_on(self, alarms: Sequence[cloudwatch.IAlarm]) -> None:
        """Have CloudFormation roll a deployment back if one of these alarms goes off while the alias is moved."""
        self._alarms.extend(alarm.alarm_name for alarm in alarms)
        self.resource.deployment_preference = self._preference()

    def _preference(self) -> sfn.CfnStateMachineAlias.DeploymentPreferenceProperty:
        gradual = self._versions.shift is not Shift.ALL_AT_ONCE
        return sfn.CfnStateMachineAlias.DeploymentPreferenceProperty(
            state_machine_version_arn=self._version.ref,
            type=self._versions.shift.value,
            percentage=self._versions.percent if gradual else None,
            interval=self._versions.minutes if gradual else None,
            alarms=self._alarms or None,
        )
