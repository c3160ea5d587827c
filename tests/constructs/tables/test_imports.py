"""Tables of another stack or app."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import App, Duration, Environment, Stack
from aws_cdk import aws_kms as kms

from constructs_lib import (
    CollectingAccounts,
    IdempotencyTable,
    LedgerTable,
    StepFunction,
    TimeoutReconciler,
    TransactionApi,
    Unit,
)
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.sagas import FUNCTIONS, saga

TABLE = "AWS::DynamoDB::GlobalTable"
ARN = "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table/theirs"
POINTS = Unit("POINT", 0)
SHOPS = [CollectingAccounts(prefix="shop", unit="EUR")]


def test_an_imported_ledger_is_posted_to_as_its_own_app_declares_it(stack: Stack) -> None:
    declared: dict[str, Any] = {"units": [POINTS], "collecting": SHOPS, "holds": True}
    own = LedgerTable(stack, "Own", **declared)
    imported = LedgerTable.from_table_name(stack, "Imported", table_name="theirs", **declared)
    move = StepFunction(stack, "Move", code=FUNCTIONS, handler="plain.handler", environment=imported.environment)
    imported.grant_post(move)

    cloud = Cloud(stack)
    variables = cloud.one("Move/Function").properties["Environment"]["Variables"]
    assert variables["CDK_SAGAS_LEDGER_TABLE"] == "theirs"
    assert variables["CDK_SAGAS_LEDGER_TERMS"] == own.environment["CDK_SAGAS_LEDGER_TERMS"]
    granted = {action for action, arn in cloud.permissions("Move/Role") if arn == ARN}
    assert granted == {"dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}
    assert len(cloud.of_type(TABLE)) == 1


def test_a_saga_begins_on_an_imported_request_table(stack: Stack) -> None:
    requests = IdempotencyTable.from_table_name(stack, "Requests", table_name="theirs", replay_for=Duration.days(2))
    machine = saga(stack, requests=requests)
    TransactionApi(stack, "Api", operations={"moves": machine})
    TimeoutReconciler(stack, "Reconciler", sagas=[machine])

    cloud = Cloud(stack)
    variables = cloud.one("Api/Gatekeeper/moves/Function").properties["Environment"]["Variables"]
    assert variables["CDK_SAGAS_REQUEST_TABLE"] == "theirs"
    assert ("dynamodb:PutItem", ARN) in cloud.permissions("Api/Gatekeeper/moves/Role")
    assert ("dynamodb:Query", f"{ARN}/index/due") in cloud.permissions("Reconciler/Function/Role")
    assert requests.replay_seconds == 2 * 86_400


def test_the_key_of_an_imported_table_is_granted_too(new_app: Callable[[], App]) -> None:
    stack = Stack(new_app(), "Test", env=Environment(account="111111111111", region="eu-west-1"))
    key = kms.Key(stack, "Key")
    ledger = LedgerTable.from_table_name(stack, "Ledger", table_name="theirs", encryption_key=key)
    move = StepFunction(stack, "Move", code=FUNCTIONS, handler="plain.handler", environment=ledger.environment)
    ledger.grant_post(move)

    assert {action for action, _ in Cloud(stack).permissions("Move/Role") if action.startswith("kms:")}


@pytest.mark.parametrize("imports", [LedgerTable.from_table_name, IdempotencyTable.from_table_name])
def test_a_blank_name_is_refused(stack: Stack, imports: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"^table_name of Test/Theirs must be the name of a table, got ' '; pass it"):
        imports(stack, "Theirs", table_name=" ")


def test_times_of_an_imported_table_are_in_range(stack: Stack) -> None:
    with pytest.raises(ValueError, match=r"^remember_for must not be shorter than replay_for"):
        IdempotencyTable.from_table_name(stack, "Theirs", table_name="a", remember_for=Duration.days(1))
