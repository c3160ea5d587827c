"""Replaced, renamed or removed resources: those that hold state stay, unless configured otherwise."""

from __future__ import annotations

from aws_cdk import RemovalPolicy, Stack

from constructs_lib import IdempotencyTable, LedgerTable, SagaStateMachine, Step
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.integrations import WarehouseStack, integration
from tests.constructs.support.sagas import plain_function

STATEFUL = {"AWS::DynamoDB::GlobalTable", "AWS::Logs::LogGroup", "AWS::SQS::Queue", "AWS::SecretsManager::Secret"}


def _policies(cloud: Cloud) -> dict[str, set[str]]:
    return {
        resource.path: {str(resource.raw.get(name)) for name in ("DeletionPolicy", "UpdateReplacePolicy")}
        for resource in cloud.resources.values()
        if resource.type in STATEFUL
    }


def test_tables_logs_secrets_and_queues_with_jobs_and_parked_sagas_are_retained(new_app: AppFactory) -> None:
    found = _policies(Cloud(WarehouseStack(new_app(), "Shop")))

    assert {"Saga/Operators", "Warehouse/Queue", "Warehouse/DeadLetters", "Warehouse/EventDeadLetters"} <= set(found)
    assert {path: policies for path, policies in found.items() if policies != {"Retain"}} == {}


def test_a_test_stack_leaves_nothing_behind_if_all_its_policies_destroy(stack: Stack) -> None:
    policy = RemovalPolicy.DESTROY
    requests = IdempotencyTable(stack, "Requests", removal_policy=policy)
    LedgerTable(stack, "Ledger", removal_policy=policy)
    steps = [Step.atomic("Move", fn=plain_function(stack, "Function"))]
    SagaStateMachine(stack, "Saga", requests=requests, steps=steps, removal_policy=policy)
    integration(stack, removal_policy=policy)

    kept = {path for path, policies in _policies(Cloud(stack)).items() if policies != {"Delete"}}
    assert kept == {"WarehouseHandOver/Logs", "Function/LogGroup"}  # of functions of the test's own
