"""LedgerTable: what it declares reaches functions, and the sweeper comes with holds and collecting accounts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_kms as kms
from cdk_nag import AwsSolutionsChecks

from constructs_lib import CollectingAccounts, LedgerTable, MoneyField, StepFunction, Unit
from constructs_lib.monitoring.alarms import Runbook
from saga_runtime import LedgerTerms
from saga_runtime.idempotency.amounts import MoneyPath, StatedMoney
from saga_runtime.protocol import DUE_INDEX, Env, LedgerAttribute, Metric
from tests.constructs.support.cloud import Cloud

POINT = Unit("POINT", 0)
MERCHANTS = CollectingAccounts(prefix="merchant:", unit="JPY", shards=8)


def test_a_plain_ledger_has_a_table_and_its_alarm(stack: Stack) -> None:
    ledger = LedgerTable(stack, "Ledger")

    assert list(Cloud(stack).resources) == ["Ledger/Table", "Ledger/Suspense"]
    assert ledger.sweeper is None
    assert list(ledger.environment) == [Env.LEDGER_TABLE]


def test_units_alone_need_no_sweeper(stack: Stack) -> None:
    ledger = LedgerTable(stack, "Ledger", units=[POINT])

    assert list(Cloud(stack).resources) == ["Ledger/Table", "Ledger/Suspense"]
    assert LedgerTerms.from_json(ledger.environment[Env.LEDGER_TERMS]) == LedgerTerms(units=(POINT,))


@pytest.mark.parametrize("declared", [{"holds": True}, {"collecting": [MERCHANTS]}])
def test_due_items_have_an_index_and_a_sweep_every_5_minutes(stack: Stack, declared: dict[str, Any]) -> None:
    ledger = LedgerTable(stack, "Ledger", **declared)
    cloud = Cloud(stack)

    table = cloud.one("Ledger/Table").properties
    (index,) = table["GlobalSecondaryIndexes"]
    assert (index["IndexName"], index["Projection"]) == (DUE_INDEX, {"ProjectionType": "KEYS_ONLY"})
    assert [key["AttributeName"] for key in index["KeySchema"]] == [LedgerAttribute.DUE_SHARD, LedgerAttribute.DUE_AT]
    function = cloud.one("Ledger/Sweeper/Function/Function").properties
    assert function["Handler"] == "handlers.ledger_sweeper.handler"
    assert function["Timeout"] == 240
    assert json.loads(function["Environment"]["Variables"][Env.LEDGER_TERMS]) == json.loads(ledger.terms.to_json())
    assert cloud.one("Ledger/Sweeper/Schedule").properties["ScheduleExpression"] == "rate(5 minutes)"
    assert ledger.sweeper is not None


def test_the_sweeper_may_read_and_write_items_and_query_the_index_and_nothing_else(stack: Stack) -> None:
    LedgerTable(stack, "Ledger", holds=True)

    allowed = {
        permission
        for statement in Cloud(stack).statements(None)
        for permission in statement.permissions
        if permission[0].startswith("dynamodb:")
    }
    assert {action for action, _ in allowed} == {
        "dynamodb:BatchGetItem",
        "dynamodb:PutItem",
        "dynamodb:Query",
        "dynamodb:UpdateItem",
    }
    assert {resource for action, resource in allowed if action == "dynamodb:Query"} == {
        f"${{Ledger/Table.Arn}}/index/{DUE_INDEX}"
    }


def test_cdk_nag_finds_nothing(stack: Stack) -> None:
    ledger = LedgerTable(stack, "Ledger", units=[POINT], collecting=[MERCHANTS], holds=True)
    move = StepFunction(stack, "Move", code="examples/funds_transfer/functions", handler="transfer.handler")
    ledger.grant_post(move)

    result = AwsSolutionsChecks().validate_scope(stack)

    assert [violation.rule_name for violation in result.violations] == []


def test_the_ids_of_the_sweeper_are_stable(stack: Stack) -> None:
    LedgerTable(stack, "Ledger", holds=True)

    assert {path for path in Cloud(stack).resources if "AllowEventRule" not in path} == {
        "Ledger/Suspense",
        "Ledger/Table",
        "Ledger/Sweeper/Function/Function",
        "Ledger/Sweeper/Function/Function/EventInvokeConfig",
        "Ledger/Sweeper/Function/Logs",
        "Ledger/Sweeper/Function/Role",
        "Ledger/Sweeper/Function/Role/DefaultPolicy",
        "Ledger/Sweeper/Schedule",
        "Ledger/Sweeper/Unswept",
    }


def test_silence_of_the_sweeper_is_alarming(stack: Stack) -> None:
    LedgerTable(stack, "Ledger", holds=True)
    cloud = Cloud(stack)

    unswept = cloud.one("Ledger/Sweeper/Unswept").properties
    assert (unswept["MetricName"], unswept["Threshold"], unswept["TreatMissingData"]) == (
        Metric.OLDEST_UNSWEPT,
        3_600,
        "breaching",
    )
    service = cloud.one("Ledger/Sweeper/Function/Function").properties["Environment"]["Variables"][Env.SERVICE]
    assert unswept["Dimensions"] == [{"Name": "service", "Value": service}]


@pytest.mark.parametrize("declared", [{}, {"holds": True}, {"collecting": [MERCHANTS]}])
def test_every_ledger_has_an_alarm_on_its_suspense_account(stack: Stack, declared: dict[str, Any]) -> None:
    ledger = LedgerTable(stack, "Ledger", **declared)
    StepFunction(
        stack,
        "PayOut",
        code="examples/funds_transfer/functions",
        handler="transfer.handler",
        environment=ledger.environment,
    )

    alarm = Cloud(stack).one("Ledger/Suspense").properties
    environment = Cloud(stack).one("PayOut/Function").properties["Environment"]["Variables"]
    assert (alarm["MetricName"], alarm["Threshold"], alarm["TreatMissingData"]) == (
        Metric.SUSPENDED,
        0,
        "notBreaching",
    )
    assert alarm["Dimensions"] == [{"Name": "service", "Value": environment[Env.LEDGER_TABLE]}]
    assert ledger.suspense_alarm.runbook is Runbook.LEDGER_SUSPENSE


def test_the_sweeper_uses_the_key_of_the_table(regional_stack: Stack) -> None:
    LedgerTable(regional_stack, "Ledger", holds=True, encryption_key=kms.Key(regional_stack, "Key"))

    actions = {action for statement in Cloud(regional_stack).statements(None) for action in statement.actions}
    assert {"kms:Decrypt", "kms:GenerateDataKey*"} <= actions


def test_a_function_receives_every_declared_setting(stack: Stack) -> None:
    ledger = LedgerTable(stack, "Ledger", units=[POINT], collecting=[MERCHANTS], holds=True)
    StepFunction(
        stack,
        "Move",
        code="examples/funds_transfer/functions",
        handler="transfer.handler",
        environment=ledger.environment,
    )

    variables = Cloud(stack).one("Move/Function").properties["Environment"]["Variables"]
    assert LedgerTerms.from_json(variables[Env.LEDGER_TERMS]) == ledger.terms


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"units": [POINT, Unit("POINT", 2)]}, "units of a ledger must have different codes, got POINT, POINT"),
        ({"collecting": [CollectingAccounts(prefix="m", unit=POINT)]}, r"got POINT with 0 places; give LedgerTable"),
        (
            {"collecting": [MERCHANTS, CollectingAccounts(prefix="m", unit="EUR")]},
            "prefixes of collecting accounts must not begin with one another, got 'm' and 'merchant:'",
        ),
        (
            {"units": [Unit(f"REGIONAL:{number:04d}", 0) for number in range(150)]},
            r"at most 2048 bytes together in a function's environment, got \d+; give units in the functions' code",
        ),
    ],
)
def test_a_wrong_declaration_is_named_with_the_remedy(stack: Stack, declared: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LedgerTable(stack, "Ledger", **declared)


@pytest.mark.parametrize("declared", [{"units": ["POINT"]}, {"collecting": ["merchant:"]}, {"holds": "yes"}])
def test_a_declaration_of_a_wrong_type_is_refused(stack: Stack, declared: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(declared))):
        LedgerTable(stack, "Ledger", **declared)


def test_money_in_flight_is_known_by_unit() -> None:
    named = MoneyPath.from_json(MoneyField(amount="/amount", currency="/unit", units=[POINT]).environment_value)
    fixed = MoneyPath.from_json(MoneyField(amount="/amount", currency_code=POINT).environment_value)

    assert named.read({"amount": 5, "unit": "POINT"}) == StatedMoney(amount=5, currency="POINT")
    assert named.read({"amount": 5, "unit": "EUR"}) == StatedMoney(amount=5, currency="EUR")
    assert named.read({"amount": 5, "unit": "MILES"}) is None
    assert fixed.read({"amount": 5}) == StatedMoney(amount=5, currency="POINT")
