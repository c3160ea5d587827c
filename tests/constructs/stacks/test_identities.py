"""Permissions that AWS's own list of actions and resources does not know, each accepted for a reason."""

from __future__ import annotations

from typing import Final

import pytest
from aws_cdk import Stack
from aws_cdk import aws_iam as iam

from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.identities import findings
from tests.constructs.support.integrations import WarehouseStack
from tests.constructs.support.shipped import Shipped

pytestmark = pytest.mark.exhaustive

_SENT_TO_MACHINE: Final = (
    "AWS's reference lists no resource for it, and AWS checks the ARN of the state machine that waits "
    "(github.com/aws/aws-cdk/issues/8486; AccessDenied that names it in NOAA-OWP/hydrovis issue 837). A statement that "
    "names the machines is narrower than `*`. To be verified on AWS."
)
ACCEPTED: Final = {
    "dynamodb:ListStreams: takes no resource, got arn:aws:dynamodb:us-east-1:111111111111:table/Some/stream/Some": (
        "The CDK's event source of a stream grants it with the stream's ARN, which allows nothing: Lambda reads the "
        "one stream that its event source mapping names, and lists none."
    ),
} | {
    f"states:{name}: takes no resource, got arn:aws:states:us-east-1:111111111111:stateMachine:Some": _SENT_TO_MACHINE
    for name in ("SendTaskSuccess", "SendTaskFailure", "SendTaskHeartbeat")
}


def test_every_permission_is_known_to_aws_or_accepted_for_a_reason(shipped: Shipped, new_app: AppFactory) -> None:
    clouds = (*shipped.clouds().values(), Cloud(WarehouseStack(new_app(), "Shop")))

    assert {finding for cloud in clouds for finding in findings(cloud)} == set(ACCEPTED)


@pytest.mark.parametrize(
    ("action", "resource", "problem"),
    [
        ("dynamodb:Frobnicate", "arn:aws:dynamodb:us-east-1:111111111111:table/A", "not an action of AWS"),
        ("dynamodb:GetItem", "arn:aws:s3:::bucket", "takes ["),
        ("states:StartExecution", "arn:aws:states:us-east-1:111111111111:execution:A:*", "takes ["),
        ("xray:PutTraceSegments", "arn:aws:s3:::bucket", "takes no resource"),
    ],
)
def test_wrong_permission_is_found(stack: Stack, action: str, resource: str, problem: str) -> None:
    role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    role.add_to_policy(iam.PolicyStatement(actions=[action], resources=[resource]))

    (finding,) = findings(Cloud(stack))

    assert finding.startswith(f"{action}: {problem}")


def test_right_permission_is_not_found(stack: Stack) -> None:
    role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    arn = "arn:aws:dynamodb:us-east-1:111111111111:table/A/index/due"
    role.add_to_policy(iam.PolicyStatement(actions=["dynamodb:Query"], resources=[arn]))

    assert list(findings(Cloud(stack))) == []
