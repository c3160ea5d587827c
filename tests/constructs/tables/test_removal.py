"""Removal of what a stack holds: all of it with one call, protection included."""

from __future__ import annotations

import pytest
from aws_cdk import RemovalPolicies, RemovalPolicy, Stack
from aws_cdk import aws_events as events

from constructs_lib import IdempotencyTable, LedgerTable, Outbox, TokenTable
from examples.funds_transfer.stack import FundsTransferStack
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory

TABLE = "AWS::DynamoDB::GlobalTable"


def _protected(stack: Stack) -> set[tuple[str, bool]]:
    """Deletion policy and protection of the tables of a stack."""
    return {
        (table.raw["DeletionPolicy"], table.properties["Replicas"][0]["DeletionProtectionEnabled"])
        for table in Cloud(stack).of_type(TABLE)
    }


def test_removal_policies_of_a_stack_take_deletion_protection_off(new_app: AppFactory) -> None:
    stack = FundsTransferStack(new_app(), "Transfers")
    RemovalPolicies.of(stack).destroy()

    assert _protected(stack) == {("Delete", False)}


def test_removal_policies_of_a_stack_put_deletion_protection_on(stack: Stack) -> None:
    IdempotencyTable(stack, "Requests", removal_policy=RemovalPolicy.DESTROY)
    RemovalPolicies.of(stack).retain()

    assert _protected(stack) == {("Retain", True)}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(RemovalPolicy.RETAIN, ("Retain", True)), (RemovalPolicy.DESTROY, ("Delete", False))],
)
def test_a_table_is_protected_exactly_if_it_is_retained(
    stack: Stack, policy: RemovalPolicy, expected: tuple[str, bool]
) -> None:
    IdempotencyTable(stack, "Requests", removal_policy=policy)
    TokenTable(stack, "Tokens", removal_policy=policy)
    LedgerTable(stack, "Ledger", removal_policy=policy)
    Outbox(stack, "Outbox", bus=events.EventBus(stack, "Bus"), source="shop", removal_policy=policy)

    assert _protected(stack) == {expected}


def test_no_resource_of_a_stack_outlives_it_but_the_accounts_logging_role(new_app: AppFactory) -> None:
    stack = FundsTransferStack(new_app(), "Transfers")
    RemovalPolicies.of(stack).destroy()

    kept = {r.path for r in Cloud(stack).resources.values() if r.raw.get("DeletionPolicy") not in (None, "Delete")}
    assert kept == set()
