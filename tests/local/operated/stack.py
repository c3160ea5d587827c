"""A saga that needs an operator, and a function that acts for two operators."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import App, CfnOutput
from aws_cdk import aws_iam as iam

from constructs_lib import OperatorAccess, SecondPerson, TimeoutReconciler

from ..parked.stack import ParkedStack

OPERATORS = ("ann", "ben", "victim")


def synthesize(gateway_url: str, folder: Path) -> Path:
    """The assembly."""
    app = App(outdir=str(folder))
    stack = ParkedStack(app, "Parked", gateway_url=gateway_url)
    reconciler = TimeoutReconciler(stack, "Reconciler", sagas=[stack.saga])
    access = OperatorAccess(stack, "Operators", reconciler=reconciler, second_person=SecondPerson.OTHER_ROLE)
    for name in OPERATORS:
        access.grant_operate(iam.User(stack, name, user_name=name))
    CfnOutput(stack, "OperatorsFunctionArn", value=access.function.function.function_arn)
    app.synth()
    return folder
