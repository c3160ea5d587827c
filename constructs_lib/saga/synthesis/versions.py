"""Published versions of a saga's state machines, and the alias by which sagas start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import RemovalPolicy, Stack, Token
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_stepfunctions as sfn

from constructs_lib.saga.steps.versions import Shift, Versions
from constructs_lib.shared.arguments import known_to_differ

PUBLISHED: Final = ", published"
"""In the comment of each definition that is published."""
_MOST_ALARMS: Final = 100


def published(machine: sfn.StateMachine) -> sfn.CfnStateMachineVersion:
    """Publish what is deployed of a state machine, with each deployment that changes it.

    Every version stays until its state machine is deleted. An alias can be turned back to one, and sagas in flight call
    those of their phases: also what a deployment had begun that is rolled back.

    CloudFormation refuses to publish what the latest version holds already, and a version may stay where the template
    has none: the definition must differ from the one that is not published (``PUBLISHED``).
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
        """Have CloudFormation roll a deployment back if one of these alarms goes off while the alias is moved.

        Raises:
            ValueError: as CloudFormation would not check them.
        """
        if not self._versions.gradual:
            raise ValueError(
                f"shift must be {Shift.CANARY} or {Shift.LINEAR} for roll_back_on, got {self._versions.shift}; "
                "CloudFormation checks alarms while it moves an alias step by step only"
            )
        if not alarms:
            raise ValueError("alarms must be at least one, got none; name an alarm, or leave roll_back_on out")
        for number, alarm in enumerate(alarms):
            self._require_here(f"alarms[{number}]", alarm)
        named = list(dict.fromkeys([*self._alarms, *(alarm.alarm_name for alarm in alarms)]))
        if len(named) > _MOST_ALARMS:
            raise ValueError(
                f"alarms must be at most {_MOST_ALARMS} in all, got {len(named)}; combine some in a CompositeAlarm"
            )
        self._alarms = named
        self.resource.deployment_preference = self._preference()

    def _require_here(self, name: str, alarm: cloudwatch.IAlarm) -> None:
        stack, arn = Stack.of(self.resource), alarm.alarm_arn
        # An alarm that is imported by its ARN has its stack's environment.
        region, account = (alarm.env.region, alarm.env.account) if Token.is_unresolved(arn) else arn.split(":")[3:5]
        for what, here, there in (("account", stack.account, account), ("region", stack.region, region)):
            if known_to_differ(here, there):
                raise ValueError(
                    f"{name} must be in {what} {here}, got {there}; "
                    "CloudFormation takes an alarm that it does not find for one that is not on"
                )

    def _preference(self) -> sfn.CfnStateMachineAlias.DeploymentPreferenceProperty:
        return sfn.CfnStateMachineAlias.DeploymentPreferenceProperty(
            state_machine_version_arn=self._version.ref,
            type=self._versions.shift.value,
            percentage=self._versions.percent,
            interval=self._versions.minutes,
            alarms=self._alarms or None,
        )
