"""Number of alarms of each construct: the page on deployment has these numbers."""

from __future__ import annotations

import re

import pytest
from aws_cdk import Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_stepfunctions as sfn

from constructs_lib import (
    EventIntake,
    ExecutionWatch,
    IdempotencyTable,
    LedgerTable,
    Outbox,
    StepFunction,
    TimeoutReconciler,
    TransactionApi,
    WatchedMachine,
)
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import ROOT, AppFactory
from tests.constructs.support.integrations import WarehouseStack, integration, own
from tests.constructs.support.sagas import FUNCTIONS, saga


def _alarms(stack: Stack, under: str) -> int:
    return len([alarm for alarm in Cloud(stack).of_type("AWS::CloudWatch::Alarm") if alarm.path.startswith(under)])


@pytest.fixture(scope="module")
def documented() -> dict[str, list[int]]:
    """Numbers in the table, by construct."""
    page = (ROOT / "docs" / "how-to" / "deploy-to-aws.md").read_text(encoding="utf-8")
    rows = page.partition("<!-- alarms -->")[2].partition("\n\n")[0].splitlines()[3:]
    return {row.split("`")[1]: [int(number) for number in re.findall(r"\b\d+\b", row)] for row in rows}


def test_of_each_construct_are_as_many_as_documented(new_app: AppFactory, documented: dict[str, list[int]]) -> None:
    stack = Stack(new_app(), "Test")
    made = saga(stack)
    TransactionApi(stack, "Api", operations={"orders": made, "returns": made})
    TimeoutReconciler(stack, "Plain", sagas=[made], max_money_in_flight={})
    TimeoutReconciler(stack, "Money", sagas=[saga(stack, "Other")], max_money_in_flight={"EUR": 1, "JPY": 1})
    integration(stack)
    intake = StepFunction(stack, "Begin", code=FUNCTIONS, handler="intake.handler")
    EventIntake(stack, "Intake", operation="stripe", fn=intake, requests=IdempotencyTable(stack, "Events"))
    LedgerTable(stack, "Ledger", holds=True)
    LedgerTable(stack, "Plain ledger")
    Outbox(stack, "Outbox", bus=events.EventBus(stack, "Bus"), source="shop")
    nightly = sfn.StateMachine.from_state_machine_name(stack, "Nightly", "nightly")
    ExecutionWatch(stack, "Watch", machines=[WatchedMachine(machine=nightly, on_timeout=own(stack, "Release"))])
    whole = WarehouseStack(new_app(), "Shop")

    assert documented == {
        "SagaStateMachine": [_alarms(stack, "Saga/")],
        "TransactionApi": [_alarms(stack, "Api/") // 2],
        "CallbackIntegration": [
            _alarms(stack, "Warehouse/"),
            _alarms(whole, "Warehouse/Alarms/WebhookFailed"),
            _alarms(whole, "Warehouse/")
            - _alarms(stack, "Warehouse/")
            - _alarms(whole, "Warehouse/Alarms/WebhookFailed"),
        ],
        "EventIntake": [_alarms(stack, "Intake/")],
        "LedgerTable": [_alarms(stack, "Plain ledger/"), _alarms(stack, "Ledger/") - _alarms(stack, "Plain ledger/")],
        "Outbox": [_alarms(stack, "Outbox/")],
        "ExecutionWatch": [_alarms(stack, "Watch/")],
        "TimeoutReconciler": [_alarms(stack, "Plain/"), (_alarms(stack, "Money/") - _alarms(stack, "Plain/")) // 2],
    }
