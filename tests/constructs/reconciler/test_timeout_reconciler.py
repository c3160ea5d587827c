"""TimeoutReconciler: its resources, its configuration, and its permissions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from aws_cdk import (
    Acknowledgment,
    App,
    Duration,
    Environment,
    NestedStack,
    RemovalPolicy,
    Stack,
    Stage,
    Token,
    Validations,
)
from aws_cdk import aws_kms as kms
from aws_cdk.assertions import Annotations, Match
from cdk_nag import AwsSolutionsChecks
from constructs import Construct, IConstruct

from constructs_lib import IdempotencyTable, SagaStateMachine, Step, StepFunction, TimeoutReconciler
from constructs_lib.reconciler import grants
from constructs_lib.shared.manifest_format import OUTPUT
from saga_runtime.protocol import METRIC_NAMESPACE, Env, Look, LookField, Metric
from saga_runtime.recovery.reconciler import Served, served_of
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.integrations import integration, job, own, saga_of

ROLE = "Reconciler/Function/Role"
DUBLIN = Environment(account="111122223333", region="eu-west-1")


class WatchedStack(Stack):
    """Two sagas with tables of their own, one of them with a job, and a reconciler."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        plain = saga_of(self, Step.atomic("Move", fn=own(self, "Move")), id="Plain")
        warehouse = integration(self)
        shop = saga_of(
            self, job(warehouse, compensate=own(self, "Cancel")), Step.atomic("Pay", fn=own(self, "Pay"), pivot=True)
        )
        self.reconciler = TimeoutReconciler(
            self, "Reconciler", sagas=[plain, shop], max_money_in_flight={"JPY": 0, "EUR": 2**53}
        )


@pytest.fixture(scope="module")
def watched(new_app: AppFactory) -> WatchedStack:
    return WatchedStack(new_app(), "Shop")


@pytest.fixture(scope="module")
def cloud(watched: WatchedStack) -> Cloud:
    return Cloud(watched)


def small(stack: Stack, **options: Any) -> TimeoutReconciler:
    """A reconciler of one saga."""
    return TimeoutReconciler(stack, "Reconciler", sagas=[plain(stack)], **options)


def plain(stack: Stack, id: str = "Saga", **options: Any) -> SagaStateMachine:
    fn = stack.node.try_find_child("Move") or own(stack, "Move")
    assert isinstance(fn, StepFunction)
    return saga_of(stack, Step.atomic("Move", fn=fn), id=id, **options)


def test_has_the_configuration_that_the_runtime_reads(cloud: Cloud) -> None:
    variables = cloud.one("Reconciler/Function/Function").properties["Environment"]["Variables"]

    assert variables[Env.RECOVERIES_LIMIT] == "20"
    assert variables[Env.LONGEST_LOOK] == "900"
    first, second = served_of(variables[Env.RECONCILED])
    assert first == Served(
        machine="${Plain/StateMachine.Name}",
        requests="${PlainRequests/Table}",
        shards=16,
        log="${Plain/Log/Table}",
        days=400,
        operators="${Plain/Operators}",
    )
    assert (second.machine, second.tokens) == ("${Saga/StateMachine.Name}", {"${Warehouse/Tokens/Table}": ("Pick",)})


def test_has_the_permissions_that_it_uses_for_each_saga_and_no_others(cloud: Cloud) -> None:
    permissions = cloud.permissions(ROLE)

    def expected(saga: str) -> set[tuple[str, str]]:
        requests, log = f"${{{saga}Requests/Table.Arn}}", f"${{{saga}/Log/Table.Arn}}"
        execution = "arn:${AWS::Partition}:states:${AWS::Region}:${AWS::AccountId}:execution:"
        machines = (f"{saga}/StateMachine", f"{saga}/Recovery")
        return {
            ("dynamodb:GetItem", requests),
            ("dynamodb:UpdateItem", requests),
            ("dynamodb:Query", f"{requests}/index/due"),
            ("dynamodb:Query", f"{requests}/index/responses"),
            ("dynamodb:Query", log),
            ("dynamodb:UpdateItem", log),
            *(
                (f"sqs:{action}", f"${{{saga}/Operators.Arn}}")
                for action in ("SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility")
            ),
            *(("states:StartExecution", f"${{{machine}}}") for machine in machines),
            *(("states:ListExecutions", f"${{{machine}}}") for machine in machines),
            *(("states:DescribeExecution", f"{execution}${{{machine}.Name}}:*") for machine in machines),
            ("states:StopExecution", f"{execution}${{{machines[0]}.Name}}:*"),
        }

    tokens = "${Warehouse/Tokens/Table.Arn}"
    queue = "${Reconciler/Queue.Arn}"
    own_of_function = {
        (action, resource) for action, resource in permissions if action.startswith(("logs:", "xray:"))
    } | {
        (action, queue)
        for action in (
            "sqs:ReceiveMessage",
            "sqs:DeleteMessage",
            "sqs:GetQueueAttributes",
        )
    }
    late = {("dynamodb:GetItem", tokens), ("dynamodb:Query", f"{tokens}/index/due")}
    hold = {("dynamodb:GetItem", "${Reconciler/Hold/Table.Arn}")}
    assert permissions == expected("Plain") | expected("Saga") | late | hold | own_of_function


def test_its_switch_is_a_table_that_is_deleted_with_the_stack(cloud: Cloud) -> None:
    hold = cloud.one("Reconciler/Hold/Table")
    variables = cloud.one("Reconciler/Function/Function").properties["Environment"]["Variables"]

    assert variables[Env.HOLD_TABLE] == "${Reconciler/Hold/Table}"
    assert hold.raw["DeletionPolicy"] == "Delete"


def test_never_reads_a_task_token(cloud: Cloud) -> None:
    tokens = "${Warehouse/Tokens/Table.Arn}"
    (statement,) = [s for s in cloud.statements(ROLE) if ("dynamodb:GetItem", tokens) in s.permissions]

    assert statement.condition == {
        "ForAllValues:StringEquals": {"dynamodb:Attributes": ["id", "log_table", "applied_late_at"]},
        "StringEqualsIfExists": {"dynamodb:Select": "SPECIFIC_ATTRIBUTES"},
    }


def test_receives_events_of_failed_executions_of_its_names_only(cloud: Cloud) -> None:
    rule = cloud.one("Reconciler/Ended").properties

    assert rule["EventPattern"] == {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {
            "status": ["TIMED_OUT", "ABORTED", "FAILED"],
            "stateMachineArn": [
                f"${{{name}}}"
                for name in ("Plain/StateMachine", "Plain/Recovery", "Saga/StateMachine", "Saga/Recovery")
            ],
        },
    }
    (target,) = rule["Targets"]
    assert target["Arn"] == "${Reconciler/Queue.Arn}"
    assert target["DeadLetterConfig"] == {"Arn": "${Reconciler/DeadLetters.Arn}"}
    paths = target["InputTransformer"]["InputPathsMap"]
    assert sorted(paths.values()) == ["$.detail.name", "$.detail.stateMachineArn", "$.detail.status"]
    template = target["InputTransformer"]["InputTemplate"]
    for name in paths:
        template = template.replace(f"<{name}>", json.dumps("x"))
    assert json.loads(template) == {"detail": {"name": "x", "status": "x", "stateMachineArn": "x"}}


def test_patterns_of_as_many_sagas_as_there_is_room_for_are_short_enough(new_app: AppFactory) -> None:
    """EventBridge takes 2,048 characters, unless a quota is raised."""
    stack = Stack(new_app(), "P", env=Environment(account="111122223333", region="ap-southeast-2"))
    requests = IdempotencyTable.from_table_name(stack, "Requests", table_name="requests")
    domain = Construct(stack, "InternationalPaymentsOfMerchants")
    sagas = [
        saga_of(domain, Step.atomic("Move", fn=own(domain, f"F{n}")), id=f"TransferWithFees{n}", requests=requests)
        for n in range(7)
    ]
    TimeoutReconciler(stack, "Reconciler", sagas=sagas)
    cloud = Cloud(stack)
    rules = [rule for rule in cloud.of_type("AWS::Events::Rule") if "EventPattern" in rule.properties]

    machines = [arn for rule in rules for arn in rule.properties["EventPattern"]["detail"]["stateMachineArn"]]
    assert sorted(machines) == sorted(
        f"${{{saga.node.path.removeprefix('P/')}/{machine}}}"
        for saga in sagas
        for machine in ("StateMachine", "Recovery")
    )
    longest = "arn:aws-us-gov:states:ap-southeast-2:111122223333:stateMachine:".ljust(63 + 80, "x")
    for rule in rules:
        text = json.dumps(rule.properties["EventPattern"], separators=(",", ":"))
        assert len(re.sub(r"\$\{[^}]+\}", longest, text)) <= 2_048, rule.path
    for queue in ("Queue", "DeadLetters"):
        allowed = cloud.one(f"Reconciler/{queue}/Policy").properties["PolicyDocument"]["Statement"]
        assert {rule.path for rule in rules} == {
            str(statement["Condition"]["ArnEquals"]["aws:SourceArn"]).removeprefix("${").removesuffix(".Arn}")
            for statement in allowed
            if statement["Effect"] == "Allow"
        }


@pytest.mark.parametrize("name", ["Queue", "DeadLetters"])
def test_only_its_own_rule_sends_to_its_queues(cloud: Cloud, name: str) -> None:
    statements = cloud.one(f"Reconciler/{name}/Policy").properties["PolicyDocument"]["Statement"]

    (allowed,) = (statement for statement in statements if statement["Effect"] == "Allow")
    assert (allowed["Action"], allowed["Principal"]) == ("sqs:SendMessage", {"Service": "events.amazonaws.com"})
    assert allowed["Condition"] == {"ArnEquals": {"aws:SourceArn": "${Reconciler/Ended.Arn}"}}


def test_an_event_is_delivered_for_a_day(cloud: Cloud) -> None:
    (target,) = cloud.one("Reconciler/Ended").properties["Targets"]

    assert target["RetryPolicy"] == {"MaximumRetryAttempts": 185, "MaximumEventAgeInSeconds": 86_400}


def test_looks_every_minute(cloud: Cloud) -> None:
    schedule = cloud.one("Reconciler/Schedule").properties

    assert schedule["ScheduleExpression"] == "rate(1 minute)"
    assert [target["Arn"] for target in schedule["Targets"]] == ["${Reconciler/Function/Function.Arn}"]
    assert cloud.one("Reconciler/Function/Function").properties["Timeout"] < 60


def test_measures_sagas_in_flight_by_a_rule_of_its_own(cloud: Cloud) -> None:
    measure = cloud.one("Reconciler/Measure").properties

    assert measure["ScheduleExpression"] == "rate(5 minutes)"
    (target,) = measure["Targets"]
    assert target["Arn"] == "${Reconciler/Function/Function.Arn}"
    assert json.loads(target["Input"]) == {LookField.LOOK: Look.IN_FLIGHT}
    (look,) = cloud.one("Reconciler/Schedule").properties["Targets"]
    assert "Input" not in look
    assert len([p for p in cloud.of_type("AWS::Lambda::Permission") if "Reconciler/" in p.path]) == 2


def test_a_message_of_a_dead_function_is_redelivered_and_dead_lettered(cloud: Cloud) -> None:
    queue = cloud.one("Reconciler/Queue").properties
    (mapping,) = cloud.of_type("AWS::Lambda::EventSourceMapping")[-1:]

    assert queue["VisibilityTimeout"] >= 6 * cloud.one("Reconciler/Function/Function").properties["Timeout"]
    assert queue["RedrivePolicy"] == {"deadLetterTargetArn": "${Reconciler/DeadLetters.Arn}", "maxReceiveCount": 5}
    assert mapping.properties["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    for name in ("Queue", "DeadLetters"):
        assert cloud.one(f"Reconciler/{name}").properties["SqsManagedSseEnabled"] is True
        statements = cloud.one(f"Reconciler/{name}/Policy").properties["PolicyDocument"]["Statement"]
        assert any(s["Condition"] == {"Bool": {"aws:SecureTransport": "false"}} for s in statements)


def alarms_of(cloud: Cloud) -> dict[str, Mapping[str, Any]]:
    """Properties of the reconciler's alarms, by id."""
    return {
        resource.path.rpartition("/")[2]: resource.properties
        for resource in cloud.of_type("AWS::CloudWatch::Alarm")
        if resource.path.startswith("Reconciler/")
    }


def test_alarms_cover_the_metrics_of_its_function(cloud: Cloud, watched: WatchedStack) -> None:
    alarms = alarms_of(cloud)

    assert len(watched.reconciler.alarms) == len(alarms) == 14
    told = cloud.one("Reconciler/Function/Function").properties["Environment"]["Variables"][Env.SERVICE]
    metrics = {name: alarm["MetricName"] for name, alarm in alarms.items() if alarm["Namespace"] == METRIC_NAMESPACE}
    assert metrics == {
        "RecoveryRate": Metric.RECOVERIES,
        "ExecutionUnsettled": Metric.UNSETTLED,
        "InFlightAge": Metric.OLDEST_IN_FLIGHT,
        "ParkedAge": Metric.OLDEST_PARKED,
        "UnreconciledSagas": Metric.UNATTENDED,
        "EUR": Metric.MONEY_IN_FLIGHT,
        "JPY": Metric.MONEY_IN_FLIGHT,
        "LateEffect": Metric.LATE_STANDS,
        "RequestRecordMissing": Metric.RECORD_MISSING,
        "ReconcileFailures": Metric.RECONCILE_FAILED,
        "Incomplete": Metric.LOOK_INCOMPLETE,
        "Overdue": Metric.OLDEST_OVERDUE,
        "Held": Metric.HOLD_AGE,
    }
    for name in metrics:
        dimensions = {dimension["Name"]: dimension["Value"] for dimension in alarms[name]["Dimensions"]}
        money = {"currency": name} if len(name) == 3 else {}
        assert dimensions == {"service": told, **money}
        assert (alarms[name]["ComparisonOperator"], alarms[name]["Period"]) == ("GreaterThanThreshold", 900)
    assert {alarms[name]["Statistic"] for name in ("InFlightAge", "ParkedAge", "UnreconciledSagas", "EUR", "JPY")} == {
        "Maximum"
    }
    assert {alarms[name]["Statistic"] for name in ("RecoveryRate", "RequestRecordMissing")} == {"Sum"}


def test_an_alarm_is_on_above_its_limit(cloud: Cloud, watched: WatchedStack) -> None:
    thresholds = {name: alarm["Threshold"] for name, alarm in alarms_of(cloud).items()}

    longest = max(saga.description.timeout for saga in _sagas(watched))
    assert thresholds == {
        "RecoveryRate": 20,
        "ExecutionUnsettled": 0,
        "InFlightAge": longest + 3_600,
        "ParkedAge": 86_400,
        "UnreconciledSagas": 0,
        "EUR": 2**53,
        "JPY": 0,
        "LateEffect": 0,
        "RequestRecordMissing": 0,
        "ReconcileFailures": 0,
        "Incomplete": 0,
        "Overdue": 900,
        "Held": 4 * 3_600,
        "DeadLetterQueue": 0,
    }
    assert list(watched.reconciler.money_alarms) == ["EUR", "JPY"]


def test_missing_data_of_every_sweep_and_measurement_raises_an_alarm(cloud: Cloud) -> None:
    """A function that fails, is throttled or is never invoked emits no data."""
    silent = {name for name, alarm in alarms_of(cloud).items() if alarm["TreatMissingData"] == "breaching"}

    assert silent == {"InFlightAge", "ParkedAge", "ReconcileFailures"}


@pytest.mark.parametrize("name", ["ReconcileFailures", "Incomplete", "Overdue"])
def test_one_failed_sweep_raises_no_alarm(cloud: Cloud, name: str) -> None:
    assert alarms_of(cloud)[name]["Statistic"] == "Minimum"


def test_rare_sweeps_are_not_missing_data(stack: Stack) -> None:
    small(stack, check_interval=Duration.minutes(30), metrics_interval=Duration.minutes(60))
    alarms = alarms_of(Cloud(stack))

    assert (alarms["ReconcileFailures"]["Period"], alarms["InFlightAge"]["Period"]) == (90 * 60, 180 * 60)
    assert (alarms["Incomplete"]["Period"], alarms["Overdue"]["Period"]) == (90 * 60, 90 * 60)
    assert alarms["Overdue"]["Threshold"] == 90 * 60
    assert alarms["RecoveryRate"]["Period"] == 900


def _sagas(stack: Stack) -> list[SagaStateMachine]:
    return [construct for construct in stack.node.find_all() if isinstance(construct, SagaStateMachine)]


def test_limits_are_configurable(stack: Stack) -> None:
    small(
        stack,
        check_interval=Duration.minutes(5),
        metrics_interval=Duration.minutes(2),
        longest_interval=Duration.hours(1),
        max_recoveries=3,
        recovery_rate_threshold=7,
        max_in_flight_age=Duration.minutes(10),
        max_parked_age=Duration.hours(1),
        longest_hold=Duration.minutes(30),
        removal_policy=RemovalPolicy.DESTROY,
    )
    cloud = Cloud(stack)

    assert cloud.one("Reconciler/Schedule").properties["ScheduleExpression"] == "rate(5 minutes)"
    assert cloud.one("Reconciler/Measure").properties["ScheduleExpression"] == "rate(2 minutes)"
    assert cloud.one("Reconciler/Alarms/RecoveryRate").properties["Threshold"] == 7
    variables = cloud.one("Reconciler/Function/Function").properties["Environment"]["Variables"]
    assert variables[Env.RECOVERIES_LIMIT] == "3"
    assert variables[Env.LONGEST_LOOK] == "3600"
    assert cloud.one("Reconciler/Alarms/InFlightAge").properties["Threshold"] == 600
    assert cloud.one("Reconciler/Alarms/ParkedAge").properties["Threshold"] == 3_600
    assert cloud.one("Reconciler/Alarms/Held").properties["Threshold"] == 1_800
    assert cloud.one("Reconciler/Function/Logs").raw["DeletionPolicy"] == "Delete"


def test_has_the_retention_and_the_number_of_shards(stack: Stack) -> None:
    requests = IdempotencyTable(stack, "Requests", due_shards=4)
    saga = plain(stack, requests=requests, log_retention_days=60)
    TimeoutReconciler(stack, "Reconciler", sagas=[saga])
    variables = Cloud(stack).one("Reconciler/Function/Function").properties["Environment"]["Variables"]

    (served,) = served_of(variables[Env.RECONCILED])
    assert (served.days, served.shards) == (60, 4)


def test_customer_managed_keys_are_granted_for_what_they_encrypt(regional_stack: Stack) -> None:
    key = kms.Key(regional_stack, "Key")
    requests = IdempotencyTable(regional_stack, "Requests", encryption_key=key)
    saga = plain(regional_stack, requests=requests, encryption_key=key)
    TimeoutReconciler(regional_stack, "Reconciler", sagas=[saga])

    assert ("kms:Decrypt", "${Key.Arn}") in Cloud(regional_stack).permissions(ROLE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_recoveries": 0}, r"max_recoveries must be 1 to 100, got 0"),
        ({"max_recoveries": 1.5}, r"max_recoveries of .* must be an int, got 1.5; pass an int"),
        ({"recovery_rate_threshold": True}, r"recovery_rate_threshold of .* must be an int, got True"),
        ({"max_recoveries": 101}, r"max_recoveries must be 1 to 100, got 101"),
        ({"check_interval": Duration.seconds(30)}, r"check_interval must be 60 s to 3600 s, got 30 s"),
        ({"check_interval": Duration.seconds(90)}, r"check_interval must be whole minutes, got 90 s; round it"),
        ({"max_in_flight_age": Duration.seconds(59)}, r"max_in_flight_age must be 60 s to 31622400 s, got 59 s"),
        ({"max_parked_age": Duration.days(367)}, r"max_parked_age must be 60 s to 31622400 s"),
        ({"metrics_interval": Duration.minutes(61)}, r"metrics_interval must be 60 s to 3600 s, got 3660 s"),
        ({"recovery_rate_threshold": 0}, r"recovery_rate_threshold must be 1 to 1000000, got 0"),
        (
            {"max_money_in_flight": {"eur": 1}},
            r"max_money_in_flight must be an ISO 4217 code or a Unit, got 'eur'",
        ),
        (
            {"max_money_in_flight": {"POINT": 1}},
            r"a currency of max_money_in_flight must be an ISO 4217 code or a Unit",
        ),
        (
            {"max_money_in_flight": {"EUR": Token.as_number({"Ref": "Most"})}},
            r"max_money_in_flight\['EUR'\] must be 0 to \d+ minor units, got a token, which only the",
        ),
        (
            {"max_money_in_flight": {"EUR": -1}},
            r"max_money_in_flight\['EUR'\] must be 0 to 9007199254740992",
        ),
        ({"max_money_in_flight": {"EUR": 2**53 + 1}}, r"got 9007199254740993; metrics are doubles"),
        ({"max_money_in_flight": {"EUR": 1.5}}, r"must be an int, got 1.5; pass"),
        ({"max_money_in_flight": {"EUR": True}}, r"must be an int, got True; pass"),
        ({"max_money_in_flight": {978: 1}}, r"max_money_in_flight of .* must be a str or an? Unit, got 978"),
        ({"max_money_in_flight": 5}, r"max_money_in_flight of .* must be a dict or None, got 5; pass a dict$"),
    ],
)
def test_a_wrong_argument_is_named_with_the_remedy(stack: Stack, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(stack, **options)


def test_needs_a_saga_and_each_once(stack: Stack) -> None:
    saga = plain(stack)

    with pytest.raises(ValueError, match=r"sagas of Test/None must be at least one, got none"):
        TimeoutReconciler(stack, "None", sagas=[])
    with pytest.raises(ValueError, match=r"sagas of Test/Twice must be different ones, got \['Test/Saga'\] twice"):
        TimeoutReconciler(stack, "Twice", sagas=[saga, saga])


@pytest.mark.parametrize("reconciled", [False, True])
def test_saga_without_a_reconciler_is_a_warning(stack: Stack, reconciled: bool) -> None:
    saga = plain(stack)
    if reconciled:
        TimeoutReconciler(stack, "Reconciler", sagas=[saga])

    found = Annotations.from_stack(stack).find_warning(
        f"/{saga.node.path}", Match.string_like_regexp("the saga must have a TimeoutReconciler, got none")
    )

    assert bool(found) is not reconciled


def test_a_saga_has_one_reconciler(stack: Stack) -> None:
    saga = plain(stack)
    TimeoutReconciler(stack, "First", sagas=[saga])

    expected = "saga Test/Saga must be of one TimeoutReconciler, got Test/First and Test/Second: a hold stops only one"
    with pytest.raises(ValueError, match=expected):
        TimeoutReconciler(stack, "Second", sagas=[saga])


def across(app: App, there: Environment | None = None, here: Environment | None = None) -> tuple[Stack, Stack]:
    """A saga with a job, and its reconciler in another stack of the app."""
    first, second = Stack(app, "There", env=there), Stack(app, "Here", env=here)
    saga = saga_of(
        first,
        job(integration(first), compensate=own(first, "Cancel")),
        Step.atomic("Pay", fn=own(first, "Pay"), pivot=True),
    )
    TimeoutReconciler(second, "Reconciler", sagas=[saga])
    return first, second


@pytest.mark.parametrize("references", ["strong", "weak"])
@pytest.mark.parametrize("env", [None, Environment(account="111122223333", region="eu-central-1")])
def test_a_saga_of_another_stack_is_reconciled(new_app: AppFactory, env: Environment | None, references: str) -> None:
    app = new_app()
    app.node.set_context("@aws-cdk/core:defaultCrossStackReferences", references)
    first, second = across(app, env, env)

    result = AwsSolutionsChecks().validate_scope(second)
    assert not [violation.rule_name for violation in result.violations]
    there, here = (app.synth().get_stack_by_name(stack.stack_name) for stack in (first, second))
    assert [asset.id for asset in here.dependencies if asset.id == "There"] == ["There"]
    outputs, text = there.template["Outputs"], json.dumps(here.template)
    exports = {output["Export"]["Name"] for output in outputs.values() if "Export" in output}
    others = {name for name, output in outputs.items() if "Export" not in output} - {OUTPUT}
    assert exports == set(re.findall(r'"Fn::ImportValue": "([^"]+)"', text))
    assert others == set(re.findall(r'"OutputName": "([^"]+)"', text))
    assert bool(others) == (references == "weak")
    rule = next(r["Properties"] for r in here.template["Resources"].values() if "EventPattern" in r["Properties"])
    assert len(rule["EventPattern"]["detail"]["stateMachineArn"]) == 2
    assert "Here" not in json.dumps(there.template), "the saga's stack does not depend on the reconciler's"


@pytest.mark.parametrize(
    ("there", "here"),
    [
        (
            Environment(account="111122223333", region="eu-west-1"),
            Environment(account="111122223333", region="eu-west-2"),
        ),
        (
            Environment(account="111122223333", region="eu-west-1"),
            Environment(account="999922223333", region="eu-west-1"),
        ),
        (Environment(account="111122223333", region="eu-west-1"), None),
    ],
)
def test_a_saga_elsewhere_is_refused(new_app: AppFactory, there: Environment, here: Environment | None) -> None:
    with pytest.raises(
        ValueError,
        match=r"saga There/Saga must be in the stage, account and region of Here/Reconciler \(.*\), got aws://111122223333/"
        r"eu-west-1; make a TimeoutReconciler where the saga is",
    ):
        across(new_app(), there, here)


def test_a_saga_of_another_stage_is_refused(new_app: AppFactory) -> None:
    app = new_app()
    saga = plain(Stack(Stage(app, "Test"), "There"))

    with pytest.raises(ValueError, match=r"saga Test/There/Saga must be in the stage, account and region of Here/"):
        TimeoutReconciler(Stack(app, "Here"), "Reconciler", sagas=[saga])


def test_a_saga_of_a_nested_stack_is_refused(stack: Stack) -> None:
    saga = plain(NestedStack(stack, "Nested"))

    with pytest.raises(ValueError, match=r"must be in the stack of Test/Reconciler, got Test/Nested: a nested"):
        TimeoutReconciler(stack, "Reconciler", sagas=[saga])


def test_a_key_of_ones_own_encrypts_both_queues_and_lets_event_bridge_in(stack: Stack) -> None:
    key = kms.Key(stack, "Key", enable_key_rotation=True)
    small(stack, encryption_key=key)
    cloud = Cloud(stack)

    for name in ("Queue", "DeadLetters"):
        assert cloud.one(f"Reconciler/{name}").properties["KmsMasterKeyId"] == "${Key.Arn}"
        assert "SqsManagedSseEnabled" not in cloud.one(f"Reconciler/{name}").properties
    statements = cloud.one("Key").properties["KeyPolicy"]["Statement"]
    services = [statement for statement in statements if "Service" in statement["Principal"]]
    assert services == [
        {
            "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
            "Condition": {"StringEquals": {"aws:SourceAccount": "${AWS::AccountId}"}},
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Resource": "*",
        }
    ]
    assert ("kms:Decrypt", "${Key.Arn}") in cloud.permissions(ROLE)
    assert not AwsSolutionsChecks().validate_scope(stack).violations
    assert not Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("cdk-sagas-imported-key"))


def test_the_policy_of_an_imported_key_is_left_to_its_owner_with_a_warning(stack: Stack) -> None:
    arn = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    small(stack, encryption_key=kms.Key.from_key_arn(stack, "Key", arn))

    (warning,) = Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("encryption_key"))
    assert "let events.amazonaws.com use kms:Decrypt and kms:GenerateDataKey" in str(warning.entry.data)
    assert "cdk-sagas-imported-key]" in str(warning.entry.data)


def test_more_sagas_than_the_environment_has_room_for_are_refused(stack: Stack) -> None:
    sagas = [plain(stack, f"Saga{number}") for number in range(9)]

    with pytest.raises(ValueError, match=r"room for, got 9 of \d+ bytes of 3072; make another TimeoutReconciler"):
        TimeoutReconciler(stack, "Reconciler", sagas=sagas)


def test_is_clean(watched: WatchedStack) -> None:
    result = AwsSolutionsChecks().validate_scope(watched)

    assert not [violation.rule_name for violation in result.violations]


class _Forgetful:
    """``Validations`` that forgets everything."""

    def of(self, _: IConstruct) -> _Forgetful:
        return self

    def acknowledge(self, *acknowledgments: Acknowledgment) -> None:
        """Forget them."""


def test_every_reason_is_needed_and_for_its_own_resource(
    new_app: AppFactory, watched: WatchedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []

    class _Noted:
        def __init__(self, scope: IConstruct) -> None:
            self._scope = scope

        def acknowledge(self, *acknowledgments: Acknowledgment) -> None:
            given.extend(acknowledgment.id for acknowledgment in acknowledgments)
            Validations.of(self._scope).acknowledge(*acknowledgments)

    class _Noting:
        of = _Noted

    monkeypatch.setattr(grants, "Validations", _Noting)
    small(Stack(new_app(), "Noted"))
    monkeypatch.setattr(grants, "Validations", _Forgetful())
    stack = Stack(new_app(), "Noted")
    small(stack)
    result = AwsSolutionsChecks().validate_scope(stack)

    assert {violation.rule_name for violation in result.violations} == set(given)
    assert len(given) == 2
    assert all(rule.startswith("AwsSolutions-IAM5[Resource::arn:") and rule.endswith(".Name>:*]") for rule in given)
