"""The tables: persistent data is encrypted, recoverable, protected and retained, unless configured otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms

from constructs_lib import IdempotencyTable, LedgerTable, SagaStateMachine, Step
from saga_runtime.protocol import (
    DUE_INDEX,
    IN_FLIGHT_ATTRIBUTES,
    RESPONSE_INDEX,
    LedgerAttribute,
    LogAttribute,
    RecordAttribute,
)
from tests.constructs.support.cloud import Cloud, Resource
from tests.constructs.support.sagas import plain_function, saga

TABLE = "AWS::DynamoDB::GlobalTable"
TABLES = ["Ledger/Table", "PartnerLedger/Table", "Requests/Table", "Transfer/Log/Table"]


def _replica(table: Resource) -> Any:
    (replica,) = table.properties["Replicas"]
    return replica


def test_the_reference_app_has_these_tables_and_no_other(reference: Cloud) -> None:
    assert sorted(table.path for table in reference.of_type(TABLE)) == sorted([*TABLES, "Reconciler/Hold/Table"])
    assert not reference.of_type("AWS::DynamoDB::Table")


@pytest.mark.parametrize("path", TABLES)
def test_a_table_survives_its_stack_and_its_replacement(reference: Cloud, path: str) -> None:
    table = reference.one(path, TABLE)
    assert table.raw["DeletionPolicy"] == "Retain"
    assert table.raw["UpdateReplacePolicy"] == "Retain"
    assert _replica(table)["DeletionProtectionEnabled"] is True


@pytest.mark.parametrize("path", TABLES)
def test_a_table_can_be_restored_to_any_second(reference: Cloud, path: str) -> None:
    assert _replica(reference.one(path, TABLE))["PointInTimeRecoverySpecification"] == {
        "PointInTimeRecoveryEnabled": True
    }


@pytest.mark.parametrize("path", TABLES)
def test_a_table_is_encrypted_with_the_aws_managed_key(reference: Cloud, path: str) -> None:
    assert reference.one(path, TABLE).properties["SSESpecification"] == {"SSEEnabled": True, "SSEType": "KMS"}


@pytest.mark.parametrize("path", TABLES)
def test_a_table_is_billed_on_demand(reference: Cloud, path: str) -> None:
    assert reference.one(path, TABLE).properties["BillingMode"] == "PAY_PER_REQUEST"


def _key(*names: str) -> list[dict[str, str]]:
    return [{"AttributeName": n, "KeyType": k} for n, k in zip(names, ("HASH", "RANGE"), strict=False)]


def test_the_request_table_has_the_key_and_the_ttl_that_powertools_expects(reference: Cloud) -> None:
    table = reference.one("Requests/Table").properties
    assert table["KeySchema"] == _key("id") == _key(RecordAttribute.ID)
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expiration", "Enabled": True}
    assert str(RecordAttribute.EXPIRATION) == "expiration"


def test_the_indexes_are_sparse_and_contain_amounts_but_no_requests(reference: Cloud) -> None:
    table = reference.one("Requests/Table").properties
    assert table["GlobalSecondaryIndexes"] == [
        {
            "IndexName": DUE_INDEX,
            "KeySchema": _key(RecordAttribute.DUE_SHARD, RecordAttribute.DUE_AT),
            "Projection": {
                "ProjectionType": "INCLUDE",
                "NonKeyAttributes": list(IN_FLIGHT_ATTRIBUTES),
            },
        },
        {
            "IndexName": RESPONSE_INDEX,
            "KeySchema": _key(RecordAttribute.RESPONSE_SHARD, RecordAttribute.RESPONSE_EXPIRES_AT),
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        },
    ]
    assert not {RecordAttribute.INPUT, RecordAttribute.RESPONSE, RecordAttribute.SCOPE} & set(IN_FLIGHT_ATTRIBUTES)
    types = {a["AttributeName"]: a["AttributeType"] for a in table["AttributeDefinitions"]}
    assert types == {
        RecordAttribute.ID: "S",
        RecordAttribute.DUE_SHARD: "S",
        RecordAttribute.DUE_AT: "N",
        RecordAttribute.RESPONSE_SHARD: "S",
        RecordAttribute.RESPONSE_EXPIRES_AT: "N",
    }


def test_the_saga_log_is_keyed_by_saga_and_step_and_expires(reference: Cloud) -> None:
    table = reference.one("Transfer/Log/Table").properties
    assert table["KeySchema"] == _key(LogAttribute.SAGA_ID, LogAttribute.STEP)
    assert table["TimeToLiveSpecification"] == {"AttributeName": LogAttribute.EXPIRATION, "Enabled": True}


def test_the_ledger_never_expires(reference: Cloud) -> None:
    table = reference.one("Ledger/Table").properties
    assert table["KeySchema"] == _key(LedgerAttribute.PK, LedgerAttribute.SK)
    assert "TimeToLiveSpecification" not in table


@pytest.mark.parametrize("kind", [IdempotencyTable, LedgerTable])
def test_a_customers_key_encrypts_the_table(regional_stack: Stack, kind: type[IdempotencyTable | LedgerTable]) -> None:
    kind(regional_stack, "Mine", encryption_key=kms.Key(regional_stack, "Key"))
    table = Cloud(regional_stack).one("Mine/Table").properties
    assert table["SSESpecification"] == {"SSEEnabled": True, "SSEType": "KMS"}
    assert table["Replicas"][0]["SSESpecification"] == {"KMSMasterKeyId": "${Key.Arn}"}


@pytest.mark.parametrize("kind", [IdempotencyTable, LedgerTable])
def test_a_table_with_a_destroy_policy_can_be_deleted(stack: Stack, kind: type[IdempotencyTable | LedgerTable]) -> None:
    kind(stack, "Mine", removal_policy=RemovalPolicy.DESTROY)
    table = Cloud(stack).one("Mine/Table", TABLE)
    assert table.raw["DeletionPolicy"] == "Delete"
    assert not _replica(table).get("DeletionProtectionEnabled", False)
    assert _replica(table)["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


def _role(stack: Stack) -> iam.Role:
    return iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))


def test_grants_of_the_request_table_are_exact(stack: Stack) -> None:
    requests = IdempotencyTable(stack, "Requests")
    reserving, looking, settling = (
        iam.Role(stack, name, assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        for name in ("Reserving", "Looking", "Settling")
    )
    requests.grant_reserve(reserving)
    requests.grant_look(looking)
    requests.grant_settle(settling)
    cloud, table = Cloud(stack), "${Requests/Table.Arn}"
    assert cloud.permissions("Reserving") == {("dynamodb:PutItem", table)}
    assert cloud.permissions("Looking") == {("dynamodb:GetItem", table)}
    assert cloud.permissions("Settling") == {("dynamodb:UpdateItem", table), ("dynamodb:GetItem", table)}


def test_powertools_is_kept_under_its_own_key_prefix(stack: Stack) -> None:
    IdempotencyTable(stack, "Requests").grant_powertools(_role(stack), key_prefix="notifier")
    (statement,) = Cloud(stack).statements("Role")
    assert set(statement.actions) == {f"dynamodb:{verb}Item" for verb in ("Get", "Put", "Update", "Delete")}
    assert statement.resources == ("${Requests/Table.Arn}",)
    assert statement.condition == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["notifier#*"]}}


def test_the_ledgers_grant_reads_accounts_and_posts_and_nothing_else(stack: Stack) -> None:
    LedgerTable(stack, "Ledger").grant_post(_role(stack))
    assert Cloud(stack).permissions("Role") == {
        (f"dynamodb:{action}", "${Ledger/Table.Arn}") for action in ("BatchGetItem", "PutItem", "UpdateItem")
    }


def test_a_grant_on_a_table_with_a_customers_key_includes_the_key(regional_stack: Stack) -> None:
    ledger = LedgerTable(regional_stack, "Ledger", encryption_key=kms.Key(regional_stack, "Key"))
    ledger.grant_post(_role(regional_stack))
    granted = Cloud(regional_stack).permissions("Role")
    assert ("kms:Decrypt", "${Key.Arn}") in granted
    assert {resource for action, resource in granted if action.startswith("kms:")} == {"${Key.Arn}"}


def test_writers_of_a_saga_log_with_a_customers_key_are_granted_the_key(regional_stack: Stack) -> None:
    SagaStateMachine(
        regional_stack,
        "Saga",
        requests=IdempotencyTable(regional_stack, "Requests"),
        steps=[Step.atomic("Move", fn=plain_function(regional_stack, "Function"))],
        encryption_key=kms.Key(regional_stack, "Key"),
    )
    cloud = Cloud(regional_stack)
    assert ("kms:Decrypt", "${Key.Arn}") in cloud.permissions("Function/ServiceRole")
    assert ("kms:Decrypt", "${Key.Arn}") in cloud.permissions("Saga/StateMachine/Role")


def test_no_grant_reaches_a_whole_table_scan_or_a_delete(stack: Stack) -> None:
    saga(stack)
    actions = {action for statement in Cloud(stack).statements() for action in statement.actions}
    assert not {a for a in actions if a.startswith("dynamodb:") and a.endswith(("Scan", "DeleteItem", "*"))}
