"""Types of the CDK that arguments accept: an interface, and the classes that Pyright does not take for it.

Some of the CDK's Python classes name a method's argument otherwise than their interface does. Mypy ignores that, and
Pyright does not: it would refuse ``StandardWebhooks(secrets=[secret])``. At run time each is the interface alone, which
is what `types` checks and what errors name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_secretsmanager as secretsmanager

if TYPE_CHECKING:
    from aws_cdk import aws_cloudwatch_actions as actions

    AnyAlarmAction: TypeAlias = (
        cloudwatch.IAlarmAction
        | actions.ApplicationScalingAction
        | actions.AutoScalingAction
        | actions.Ec2Action
        | actions.SnsAction
        | actions.SsmAction
        | actions.SsmIncidentAction
    )
    AnyFunction: TypeAlias = lambda_.IFunction | lambda_.FunctionBase
    AnyKey: TypeAlias = kms.IKey | kms.Key
    AnySecret: TypeAlias = secretsmanager.ISecret | secretsmanager.Secret
else:
    AnyAlarmAction = cloudwatch.IAlarmAction
    AnyFunction = lambda_.IFunction
    AnyKey = kms.IKey
    AnySecret = secretsmanager.ISecret
