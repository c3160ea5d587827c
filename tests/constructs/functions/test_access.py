"""Access of functions to secrets, under keys wherever they are."""

from __future__ import annotations

import pytest
from aws_cdk import Environment, Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_secretsmanager as secretsmanager

from constructs_lib import StripeSignature
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.integrations import SIGNING, integration, job, own, saga_of

DUBLIN = Environment(account="111111111111", region="eu-west-1")
KEY = "arn:aws:kms:eu-west-1:111111111111:key/1234abcd-12ab-34cd-56ef-1234567890ab"


@pytest.mark.parametrize("where", ["imported", "here", "in another stack"])
def test_a_webhook_may_read_its_secret_under_a_key(new_app: AppFactory, where: str) -> None:
    """The policy of an imported key cannot be changed from here, and one in another stack must not name this stack."""
    app = new_app()
    keys, stack = Stack(app, "Keys", env=DUBLIN), Stack(app, "Shop", env=DUBLIN)
    if where == "imported":
        key = kms.Key.from_key_arn(stack, "Key", KEY)
        secret = secretsmanager.Secret.from_secret_attributes(
            stack, "Secret", secret_complete_arn=SIGNING, encryption_key=key
        )
    else:
        scope = stack if where == "here" else keys
        secret = secretsmanager.Secret(scope, "Secret", encryption_key=kms.Key(scope, "Key"))
    via = integration(stack)
    via.add_webhook("Events", fn=own(stack, "Report"), scheme=StripeSignature(secrets=[secret]))

    (decrypts,) = [one for one in Cloud(stack).statements("Report/Role") if "kms:Decrypt" in one.actions]
    assert decrypts.actions == ("kms:Decrypt",)
    assert decrypts.condition == {"StringEquals": {"kms:ViaService": "secretsmanager.eu-west-1.amazonaws.com"}}
    (resource,) = decrypts.resources
    assert {"imported": KEY, "here": "${Key.Arn}"}.get(where, resource) == resource


def test_everything_may_be_under_a_key_of_another_stack(new_app: AppFactory) -> None:
    app = new_app()
    keys, stack = Stack(app, "Keys", env=DUBLIN), Stack(app, "Shop", env=DUBLIN)
    via = integration(stack, encryption_key=kms.Key(keys, "Key"))
    via.add_approval_page("Page")
    saga_of(stack, job(via))

    app.synth()
    assert [stack.node.path for stack in keys.dependencies] == []
    assert [key.node.path for key in stack.dependencies] == ["Keys"]
