"""Migration: its worker's settings and rights, its writers, its schedules and alarms, and what ends the synth."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from cdk_nag import AwsSolutionsChecks
from syrupy.assertion import SnapshotAssertion

from constructs_lib import Migration, StepFunction
from saga_runtime.migration import Concern, History, Layout, Store
from saga_runtime.migration.terms import Terms
from saga_runtime.protocol import Env, Metric
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.masked import masked_ids
from tests.constructs.support.reviewed import ReviewExtension, reviewed
from tests.constructs.support.sagas import FUNCTIONS

GOLDEN = Path(__file__).parents[1] / "golden" / "logical_ids_migration.json"
LAYOUT = Layout(
    name="split",
    old_item="customer",
    groups=((Concern(name="POINT", item="BALANCE#POINT", attributes={"balance": "point"}),),),
)
TABLE = "${Customers.Arn}"


def _migration(stack: Stack, *, key: kms.IKey | None = None, **settings: Any) -> Migration:
    text = dynamodb.AttributeType.STRING
    table = dynamodb.TableV2(
        stack,
        "Customers",
        partition_key=dynamodb.Attribute(name="pk", type=text),
        sort_key=dynamodb.Attribute(name="sk", type=text),
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        encryption=dynamodb.TableEncryptionV2.customer_managed_key(key) if key is not None else None,
    )
    pay = StepFunction(stack, "Pay", code=FUNCTIONS, handler="direct.handler")
    given: dict[str, Any] = {"layout": LAYOUT, "phase": 1, "writers": [pay], **settings}
    return Migration(stack, "Split", table=table, **given)


def test_the_template_is_the_reviewed_one(stack: Stack, snapshot: SnapshotAssertion) -> None:
    _migration(stack)

    assert reviewed(Cloud(stack)) == snapshot(extension_class=ReviewExtension, name="migration")


def test_logical_ids_are_for_ever(stack: Stack) -> None:
    _migration(stack, segments=2)
    found = {masked_ids(r.logical_id): f"{r.type} {r.path}" for r in Cloud(stack).resources.values()}
    if os.environ.get("CDK_SAGAS_WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")

    assert found == json.loads(GOLDEN.read_text("utf-8"))


def test_cdk_nag_finds_nothing(stack: Stack) -> None:
    _migration(stack)

    assert [violation.rule_name for violation in AwsSolutionsChecks().validate_scope(stack).violations] == []


def test_worker_and_writers_read_the_settings_of_the_template(stack: Stack) -> None:
    _migration(stack, segments=3, clean_for=Duration.hours(2))
    cloud = Cloud(stack)

    variables = cloud.one("Split/Worker/Function").properties["Environment"]["Variables"]
    terms = Terms.from_json(json.loads(variables[Env.MIGRATION]))
    assert (terms.layout, terms.most_phase, terms.segments, terms.clean_for_seconds) == (LAYOUT, 1, 3, 7_200)
    assert terms.writers == ("${Pay/Function}",)
    writers = cloud.one("Pay/Function").properties["Environment"]["Variables"]
    assert Layout.from_env(writers[Env.MIGRATION]) == LAYOUT
    assert Store(layout=LAYOUT, table=writers[Env.MIGRATION_TABLE]).table == "${Customers}"


@pytest.mark.parametrize("order", [None, "ms"])
def test_histories_are_in_the_template(stack: Stack, order: str | None) -> None:
    history = History(old_prefix="tx#", new_prefix="h#", id_attribute="op", order_attribute=order)
    layout = replace(LAYOUT, histories=(history,))
    _migration(stack, layout=layout)

    writers = Cloud(stack).one("Pay/Function").properties["Environment"]["Variables"]
    assert Layout.from_env(writers[Env.MIGRATION]) == layout


def test_worker_and_writers_may_use_items_of_the_table_and_nothing_else(stack: Stack) -> None:
    _migration(stack)
    cloud = Cloud(stack)

    def allowed(role: str) -> set[tuple[str, str]]:
        return {
            permission
            for statement in cloud.statements(role)
            for permission in statement.permissions
            if permission[0].startswith("dynamodb:")
        }

    written = {("dynamodb:" + name, TABLE) for name in ("GetItem", "BatchGetItem", "PutItem", "UpdateItem")}
    written |= {("dynamodb:ConditionCheckItem", TABLE)}
    assert allowed("Pay/Role") == written
    assert allowed("Split/Worker/Role") == written | {("dynamodb:Scan", TABLE), ("dynamodb:DeleteItem", TABLE)}


def test_own_key_is_granted(regional_stack: Stack) -> None:
    _migration(regional_stack, key=kms.Key(regional_stack, "Key"))

    actions = {a for s in Cloud(regional_stack).statements("Split/Worker/Role") for a in s.actions}
    assert {"kms:Decrypt", "kms:GenerateDataKey*"} <= actions


def test_each_job_runs_for_each_segment(stack: Stack) -> None:
    _migration(stack, segments=2)
    cloud = Cloud(stack)

    rules = {path: r.properties for path, r in cloud.resources.items() if r.type == "AWS::Events::Rule"}
    assert {path: rule["ScheduleExpression"] for path, rule in rules.items()} == {
        "Split/Backfill0": "rate(5 minutes)",
        "Split/Backfill1": "rate(5 minutes)",
        "Split/Verify0": "rate(1 hour)",
        "Split/Verify1": "rate(1 hour)",
    }
    inputs = {path: json.loads(rule["Targets"][0]["Input"]) for path, rule in rules.items()}
    assert inputs["Split/Verify1"] == {"job": "verify", "segment": "1"}


def test_difference_sets_off_its_alarm(stack: Stack) -> None:
    migration = _migration(stack)

    alarm = Cloud(stack).one("Split/Different").properties
    assert (alarm["MetricName"], alarm["Threshold"]) == (Metric.MIGRATION_DIFFERENCE, 0)
    assert migration.alarms == [
        migration.difference_alarm,
        migration.failed_alarm,
        migration.failed_hourly_alarm,
        migration.not_compared_alarm,
    ]


def test_failed_and_missing_runs_set_off_alarms(stack: Stack) -> None:
    _migration(stack)
    cloud = Cloud(stack)

    read = ("Namespace", "MetricName", "Statistic", "Period", "EvaluationPeriods", "TreatMissingData")
    assert [
        tuple(cloud.one(f"Split/{alarm}").properties[name] for name in read) for alarm in ("Failed", "FailedHourly")
    ] == [
        ("AWS/Lambda", "Errors", "Sum", 300, 3, "breaching"),
        ("AWS/Lambda", "Errors", "Sum", 3_600, 3, "notBreaching"),
    ]


def test_schedule_of_comparisons_that_does_not_run_sets_off_an_alarm(stack: Stack) -> None:
    _migration(stack, segments=2)
    alarm = Cloud(stack).one("Split/NotCompared").properties

    assert (alarm["Threshold"], alarm["EvaluationPeriods"], alarm["TreatMissingData"]) == (0, 3, "breaching")
    expression, *runs = alarm["Metrics"]
    assert expression["Expression"] == "IF(FILL(m0, 0) < 1, 1, 0) + IF(FILL(m1, 0) < 1, 1, 0)"
    read = [
        (
            run["MetricStat"]["Metric"]["MetricName"],
            run["MetricStat"]["Metric"]["Dimensions"][0]["Value"],
            run["MetricStat"]["Period"],
        )
        for run in runs
    ]
    assert read == [("TriggeredRules", f"${{Split/Verify{segment}}}", 3_600) for segment in range(2)]


def test_writer_that_deletes_customers_is_named(stack: Stack) -> None:
    migration = _migration(stack)
    (pay,) = (child for child in stack.node.children if isinstance(child, StepFunction))
    other = StepFunction(stack, "Other", code=FUNCTIONS, handler="direct.handler")

    migration.grant_delete(pay)

    actions = {action for statement in Cloud(stack).statements("Pay/Role") for action in statement.actions}
    assert "dynamodb:DeleteItem" in actions
    with pytest.raises(ValueError, match="writer must be one of the writers of Migration Split, got"):
        migration.grant_delete(other)
    with pytest.raises(ValueError, match="writer"):
        migration.grant_delete("Pay")  # type: ignore[arg-type]


def test_writer_of_two_migrations_ends_the_synth(stack: Stack) -> None:
    _migration(stack)
    (pay,) = (child for child in stack.node.children if isinstance(child, StepFunction))
    table = stack.node.find_child("Customers")
    assert isinstance(table, dynamodb.TableV2)

    with pytest.raises(ValueError, match="writers of Migration More must be of no other one, got"):
        Migration(stack, "More", table=table, layout=LAYOUT, phase=1, writers=[pay])


def test_writer_that_is_named_twice_is_one(stack: Stack) -> None:
    pay = StepFunction(stack, "Charge", code=FUNCTIONS, handler="direct.handler")
    _migration(stack, writers=[pay, pay])

    variables = Cloud(stack).one("Split/Worker/Function").properties["Environment"]["Variables"]
    assert Terms.from_json(json.loads(variables[Env.MIGRATION])).writers == ("${Charge/Function}",)


def _wide(attributes: int) -> Layout:
    named = {f"attribute_{number:03d}": f"old_attribute_{number:03d}" for number in range(attributes)}
    return Layout(name="wide", old_item="customer", groups=((Concern(name="A", item="A", attributes=named),),))


def test_environment_without_room_ends_the_synth(stack: Stack) -> None:
    with pytest.raises(ValueError, match=r"at most 3072 bytes in a function's environment, got \d+; shorten names"):
        _migration(stack, layout=_wide(80))


def test_environment_with_room_is_synthesized(stack: Stack) -> None:
    _migration(stack, layout=_wide(55))

    Cloud(stack)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"phase": -1}, "phase must be"),
        ({"phase": 9}, "phase must be"),
        ({"phase": "1"}, "phase of Migration Split must be"),
        ({"segments": 0}, "segments must be"),
        ({"segments": 9}, "segments must be"),
        ({"writers": []}, "writers of Migration Split must name a function"),
        ({"ended_after": Duration.minutes(14)}, "ended_after must be"),
        ({"clean_for": Duration.days(31)}, "clean_for must be"),
        ({"layout": "split"}, "layout of Migration Split must be"),
        ({"writers": ["Pay"]}, "writers"),
    ],
)
def test_wrong_argument_ends_the_synth(stack: Stack, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        _migration(stack, **settings)
