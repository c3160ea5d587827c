"""Hand-written state machines that are watched: the resources, the configuration and the permissions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import (
    Acknowledgment,
    App,
    CfnParameter,
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
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from cdk_nag import AwsSolutionsChecks
from constructs import Construct, IConstruct

from constructs_lib import ExecutionWatch, FailedStatus, Step, StepFunction, TimeoutReconciler, WatchedMachine
from constructs_lib.execution_watch import execution_watch as watched_machines
from saga_runtime.protocol import DUE_INDEX, METRIC_NAMESPACE, Env, Metric
from saga_runtime.watch.decisions import LONGEST_PAUSE_MS
from saga_runtime.watch.rows import Watched, watched_of
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.integrations import own, saga_of

ROLE = "Watch/Function/Role"
IMPORTED = "arn:aws:states:eu-west-1:111111111111:stateMachine:Nightly"


def machine(scope: Construct, id: str = "Import", **options: Any) -> sfn.StateMachine:
    """A hand-written one."""
    body = sfn.DefinitionBody.from_chainable(sfn.Pass(scope, f"{id}Pass"))
    return sfn.StateMachine(scope, id, definition_body=body, **options)


def function(scope: Construct, id: str = "Plain", **options: Any) -> lambda_.Function:
    """A function without this package's environment."""
    return lambda_.Function(
        scope,
        id,
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, context): pass"),
        **options,
    )


def watch_of(scope: Construct, *machines: WatchedMachine, **options: Any) -> ExecutionWatch:
    """The construct that watches them."""
    given = {
        "check_interval": Duration.minutes(1),
        "max_notification_delay": Duration.hours(1),
        "removal_policy": RemovalPolicy.RETAIN,
    }
    return ExecutionWatch(scope, "Watch", machines=machines, **{**given, **options})


class WatchedStack(Stack):
    """Two machines with functions of different kinds, notified of different ends."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        told: StepFunction = own(self, "Told", timeout=Duration.seconds(30))
        self.watch = watch_of(
            self,
            WatchedMachine(machine=machine(self), on_timeout=told),
            WatchedMachine(
                machine=machine(self, "Export"),
                on_timeout=function(self),
                ends=[FailedStatus.FAILED, FailedStatus.TIMED_OUT],
                grace=Duration.seconds(0),
                attempts=5,
            ),
        )


@pytest.fixture(scope="module")
def watched(new_app: AppFactory) -> WatchedStack:
    return WatchedStack(new_app(), "Shop")


@pytest.fixture(scope="module")
def cloud(watched: WatchedStack) -> Cloud:
    return Cloud(watched)


def variables(cloud: Cloud) -> dict[str, str]:
    """Environment of its function."""
    return dict(cloud.one("Watch/Function/Function").properties["Environment"]["Variables"])


def test_has_the_configuration_that_the_runtime_reads(cloud: Cloud) -> None:
    told = variables(cloud)

    first, second = watched_of(told[Env.WATCHED])
    assert first == Watched(
        machine="${Import}",
        function="${Told/Function.Arn}",
        ends=frozenset({FailedStatus.TIMED_OUT, FailedStatus.ABORTED}),
        grace_ms=900_000,
        lease_ms=90_000,
        attempts=100,
    )
    assert second == Watched(
        machine="${Export}",
        function="${Plain.Arn}",
        ends=frozenset({FailedStatus.TIMED_OUT, FailedStatus.FAILED}),
        grace_ms=0,
        lease_ms=63_000,
        attempts=5,
    )
    assert told[Env.WATCH_TABLE] == "${Watch/Ends/Table}"
    assert (told[Env.WATCH_QUEUE], told[Env.DEAD_LETTERS]) == ("${Watch/Queue}", "${Watch/DeadLetters}")


def test_outlives_every_function_that_it_calls(cloud: Cloud) -> None:
    own_seconds = cloud.one("Watch/Function/Function").properties["Timeout"]

    assert own_seconds == 90
    assert cloud.one("Watch/Queue").properties["VisibilityTimeout"] >= 6 * own_seconds


def test_has_the_permissions_that_it_uses_and_no_others(cloud: Cloud) -> None:
    permissions = cloud.permissions(ROLE)
    execution = "arn:${AWS::Partition}:states:${AWS::Region}:${AWS::AccountId}:execution:"
    table = "${Watch/Ends/Table.Arn}"
    receiving = ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")

    assert permissions == {
        *((action, resource) for action, resource in permissions if action.startswith(("logs:", "xray:"))),
        *((f"sqs:{action}", "${Watch/Queue.Arn}") for action in receiving),
        ("sqs:SendMessage", "${Watch/Queue.Arn}"),
        ("sqs:SendMessage", "${Watch/DeadLetters.Arn}"),
        *((f"dynamodb:{action}", table) for action in ("GetItem", "PutItem", "UpdateItem")),
        ("dynamodb:Query", f"{table}/index/{DUE_INDEX}"),
        *(("states:ListExecutions", f"${{{name}}}") for name in ("Import", "Export")),
        *(("states:DescribeExecution", f"{execution}${{{name}.Name}}:*") for name in ("Import", "Export")),
        ("lambda:InvokeFunction", "${Told/Function.Arn}"),
        ("lambda:InvokeFunction", "${Plain.Arn}"),
    }


def test_receives_events_of_the_selected_ends_and_names_only(cloud: Cloud) -> None:
    heard: dict[str, tuple[list[str], list[str]]] = {}
    for rule in cloud.of_type("AWS::Events::Rule"):
        if "EventPattern" not in rule.properties:
            continue
        detail = rule.properties["EventPattern"]["detail"]
        heard[rule.path] = detail["status"], detail["stateMachineArn"]
        (target,) = rule.properties["Targets"]
        assert target["Arn"] == "${Watch/Queue.Arn}"
        assert target["DeadLetterConfig"] == {"Arn": "${Watch/DeadLetters.Arn}"}
        template = target["InputTransformer"]["InputTemplate"]
        for name in target["InputTransformer"]["InputPathsMap"]:
            template = template.replace(f"<{name}>", json.dumps("x"))
        assert json.loads(template) == {"detail": {"name": "x", "status": "x", "stateMachineArn": "x"}}

    assert heard == {
        "Watch/EndedTimedOut": (["TIMED_OUT"], ["${Import}", "${Export}"]),
        "Watch/EndedAborted": (["ABORTED"], ["${Import}"]),
        "Watch/EndedFailed": (["FAILED"], ["${Export}"]),
    }


def test_looks_by_its_schedule_and_at_one_end_at_a_time(cloud: Cloud) -> None:
    (mapping,) = cloud.of_type("AWS::Lambda::EventSourceMapping")

    assert cloud.one("Watch/Schedule").properties["ScheduleExpression"] == "rate(1 minute)"
    assert mapping.properties["BatchSize"] == 1
    assert mapping.properties["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_keeps_ends_where_they_are_not_lost(cloud: Cloud) -> None:
    table = cloud.one("Watch/Ends/Table")

    assert table.raw["DeletionPolicy"] == "Retain"
    assert table.properties["TimeToLiveSpecification"] == {"AttributeName": "expiration", "Enabled": True}
    (replica,) = table.properties["Replicas"]
    assert replica["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert replica["DeletionProtectionEnabled"] is True
    (index,) = table.properties["GlobalSecondaryIndexes"]
    assert (index["IndexName"], index["Projection"]) == (DUE_INDEX, {"ProjectionType": "KEYS_ONLY"})
    for name in ("Queue", "DeadLetters"):
        assert cloud.one(f"Watch/{name}").properties["SqsManagedSseEnabled"] is True


def test_alarms_use_the_metrics_of_its_function(cloud: Cloud, watched: WatchedStack) -> None:
    alarms = {
        resource.path.rpartition("/")[2]: resource.properties for resource in cloud.of_type("AWS::CloudWatch::Alarm")
    }

    assert len(watched.watch.alarms) == len(alarms) == 4
    ours = {name: alarm for name, alarm in alarms.items() if alarm["Namespace"] == METRIC_NAMESPACE}
    assert {name: alarm["MetricName"] for name, alarm in ours.items()} == {
        "ExecutionFailed": Metric.BAD_ENDS,
        "HandlerFailed": Metric.BAD_ENDS_STUCK,
        "NotificationDelay": Metric.OLDEST_BAD_END,
    }
    for name, alarm in ours.items():
        assert alarm["Dimensions"] == [{"Name": "service", "Value": variables(cloud)[Env.SERVICE]}]
        assert alarm["TreatMissingData"] == ("breaching" if name == "NotificationDelay" else "notBreaching")
    assert ours["NotificationDelay"]["Threshold"] == 3_600


def test_a_machine_of_another_stack_and_an_imported_one_are_watched(new_app: AppFactory) -> None:
    app: App = new_app()
    there = Stack(app, "There")
    stack = Stack(app, "Here")
    imported = sfn.StateMachine.from_state_machine_arn(stack, "Nightly", IMPORTED)
    watch_of(
        stack,
        WatchedMachine(machine=machine(there), on_timeout=own(stack, "Told")),
        WatchedMachine(machine=imported, on_timeout=lambda_.Function.from_function_name(stack, "Named", "named")),
    )
    cloud = Cloud(stack)

    first, second = watched_of(variables(cloud)[Env.WATCHED])
    assert "{'StackName': 'There', " in first.machine
    assert second.machine == IMPORTED
    # Of the imported function nothing is known: it may live for as long as any.
    assert second.lease_ms == 960_000
    assert cloud.one("Watch/Function/Function").properties["Timeout"] == 900
    assert ":execution:Nightly:*" in json.dumps(cloud.template)
    rules = {violation.rule_name for violation in AwsSolutionsChecks().validate_scope(stack).violations}
    assert not {rule for rule in rules if "IAM5" in rule}


def one(stack: Stack, **options: Any) -> WatchedMachine:
    """One machine and its configuration."""
    given: dict[str, Any] = {"machine": machine(stack), "on_timeout": own(stack, "Told"), **options}
    return WatchedMachine(**given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ends": []}, r"ends of Test/Import must be one or more, each once, got \[\]"),
        (
            {"ends": [FailedStatus.FAILED, FailedStatus.FAILED]},
            r"ends of Test/Import must be one or more, each once, got \[",
        ),
        (
            {"ends": ["timed_out", FailedStatus.FAILED]},
            r"ends\[0\] of WatchedMachine must be a FailedStatus, got 'timed_out'; write FailedStatus.TIMED_OUT or",
        ),
        ({"ends": "FAILED"}, r"ends of WatchedMachine must be a list of FailedStatus, got 'FAILED'"),
        (
            {"grace": Duration.seconds(Token.as_number({"Ref": "Grace"}))},
            r"grace must be known at synth, got a token",
        ),
        ({"attempts": 1.5}, r"attempts of WatchedMachine must be an int, got 1.5"),
        ({"attempts": True}, r"attempts of WatchedMachine must be an int, got True"),
        ({"attempts": 0}, r"attempts must be 1 to 1000, got 0"),
        ({"grace": Duration.days(15)}, r"grace must be 0 s to 1209600 s, got 1296000 s"),
    ],
)
def test_a_wrong_argument_is_named_with_the_remedy(stack: Stack, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        one(stack, **options)


def test_a_function_with_too_long_a_timeout_is_refused(stack: Stack) -> None:
    slow = own(stack, "Slow", timeout=Duration.seconds(841))

    with pytest.raises(ValueError, match=r"on_timeout of Test/Import must be at most 840 s, got 841 s: its caller"):
        one(stack, on_timeout=slow)


def test_an_express_machine_and_a_saga_are_refused(stack: Stack) -> None:
    told = own(stack, "Told")
    express = machine(stack, "Express", state_machine_type=sfn.StateMachineType.EXPRESS)
    saga: Any = saga_of(stack, Step.atomic("Move", fn=own(stack, "Move")))

    with pytest.raises(ValueError, match=r"must be a Standard state machine, got the Express one Test/Express: it"):
        WatchedMachine(machine=express, on_timeout=told)
    with pytest.raises(ValueError, match=r"must be an IStateMachine, got a SagaStateMachine; name it in sagas"):
        WatchedMachine(machine=saga, on_timeout=told)
    with pytest.raises(ValueError, match=r"that is not a saga, got Test/Saga/StateMachine; name its saga in sagas"):
        WatchedMachine(machine=saga.state_machine, on_timeout=told)


@pytest.mark.parametrize(
    ("arn", "got"),
    [
        (f"{IMPORTED}:PROD", "'Nightly:PROD'"),
        (f"{IMPORTED}:7", "'Nightly:7'"),
        ("arn:aws:states:eu-west-1:111111111111:stateMachine:", "''"),
        ("arn:aws:states:eu-west-1:111111111111:stateMachine:*", r"'\*'"),
        ("arn:aws:states:eu-west-1:111111111111:stateMachine:" + "x" * 81, "'x{81}'"),
        ("arn:aws:states:eu-west-1:111111111111:execution:Nightly:run", "'arn:aws:states:eu-west-1:.*:run'"),
    ],
)
def test_an_imported_machine_must_not_name_a_version_or_alias(stack: Stack, arn: str, got: str) -> None:
    """Status events and executions name the machine: an alias would match none, without an error."""
    imported = sfn.StateMachine.from_state_machine_arn(stack, "Nightly", arn)

    with pytest.raises(ValueError, match=rf"machine Test/Nightly must be imported by name or ARN .*, got {got}; leave"):
        one(stack, machine=imported)


def test_a_name_that_no_machine_has_is_refused(stack: Stack) -> None:
    with pytest.raises(ValueError, match=r"machine Test/Any must be imported .*, got '\*'; leave"):
        one(stack, machine=sfn.StateMachine.from_state_machine_name(stack, "Any", "*"))


def test_a_machine_that_is_known_at_the_deployment_is_watched(stack: Stack) -> None:
    arn = CfnParameter(stack, "Arn").value_as_string
    name = CfnParameter(stack, "Name").value_as_string
    told = own(stack, "Told")
    machines = [
        sfn.StateMachine.from_state_machine_arn(stack, "ByArn", arn),
        sfn.StateMachine.from_state_machine_name(stack, "ByName", name),
    ]
    watch_of(stack, *(WatchedMachine(machine=found, on_timeout=told) for found in machines))

    first, second = watched_of(variables(Cloud(stack))[Env.WATCHED])
    assert first.machine == "${Arn}"
    assert second.machine.endswith(":stateMachine:${Name}")
    rules = {violation.rule_name for violation in AwsSolutionsChecks().validate_scope(stack).violations}
    assert not {rule for rule in rules if "IAM5" in rule}


def test_a_timeout_known_at_deployment_is_assumed_to_be_the_longest(stack: Stack) -> None:
    slow = function(stack, "Slow", timeout=Duration.seconds(Token.as_number({"Ref": "Slowness"})))
    watched = one(stack, on_timeout=slow)

    assert (watched.function_seconds, watched.lease_seconds) == (840, 960)


def test_an_imported_machine_is_watched_once(stack: Stack) -> None:
    twice = [
        WatchedMachine(
            machine=sfn.StateMachine.from_state_machine_name(stack, name, "nightly"),
            on_timeout=function(stack, f"F{name}"),
        )
        for name in ("One", "Two")
    ]

    with pytest.raises(ValueError, match=r"machines of Test/Watch must be different ones, got Test/Two twice"):
        watch_of(stack, *twice)


def test_a_function_of_another_region_is_refused(regional_stack: Stack) -> None:
    arn = "arn:aws:lambda:us-east-1:111111111111:function:release"
    far = lambda_.Function.from_function_arn(regional_stack, "Far", arn)

    with pytest.raises(ValueError, match=r"on_timeout of machine \w+/Import must be of the region .* got us-east-1;"):
        watch_of(regional_stack, one(regional_stack, on_timeout=far))


def test_a_machine_of_another_stage_or_of_a_nested_stack_is_refused(new_app: AppFactory) -> None:
    app = new_app()
    stack = Stack(app, "Test")
    told = own(stack, "Told")
    staged = machine(Stack(Stage(app, "Prod"), "Other"))
    nested = machine(NestedStack(stack, "Nested"), "Inner")
    inside = NestedStack(stack, "Inside")

    with pytest.raises(ValueError, match=r"machine Prod/Other/Import must be in the stage of Test/A/Watch, got"):
        watch_of(Construct(stack, "A"), WatchedMachine(machine=staged, on_timeout=told))
    with pytest.raises(ValueError, match=r"Test/Nested/Inner must be in the stack of Test/B/Watch, got Test/Nested: a"):
        watch_of(Construct(stack, "B"), WatchedMachine(machine=nested, on_timeout=told))
    with pytest.raises(ValueError, match=r"Test/Import must be in the stack of Test/Inside/Watch, got Test: a nested"):
        watch_of(inside, WatchedMachine(machine=machine(stack), on_timeout=told))


@pytest.mark.parametrize(
    ("seconds", "schedule", "minutes"),
    [(3, 1, 30), (600, 1, 30), (780, 1, 31), (840, 1, 32), (840, 10, 50), (840, 20, 70), (3, 20, 60)],
)
def test_the_age_of_an_end_is_measured_at_least_once_in_the_alarms_period(
    stack: Stack, seconds: int, schedule: int, minutes: int
) -> None:
    """Between two measurings lie a call, the pause after it, and the look that was due just before, and another."""
    slow = function(stack, "Slow", timeout=Duration.seconds(seconds))
    watch_of(stack, one(stack, on_timeout=slow), check_interval=Duration.minutes(schedule))
    period = Cloud(stack).one("Watch/Alarms/NotificationDelay").properties["Period"]

    assert period == minutes * 60
    assert period >= seconds + LONGEST_PAUSE_MS // 1_000 + schedule * 60


def test_machines_and_sagas_are_not_taken_for_each_other(stack: Stack) -> None:
    plain: Any = machine(stack)

    with pytest.raises(ValueError, match=r"machines\[0\] of .* must be a WatchedMachine, got a StateMachine; write Wa"):
        ExecutionWatch(stack, "A", machines=[plain])
    with pytest.raises(ValueError, match=r"sagas\[0\] of .* must be a SagaStateMachine, got a StateMachine; name"):
        TimeoutReconciler(stack, "B", sagas=[plain])


def test_a_machine_is_watched_once_and_where_it_is(new_app: AppFactory) -> None:
    stack = Stack(new_app(), "Test", env=Environment(account="111111111111", region="eu-central-1"))
    mine = one(stack)
    imported = sfn.StateMachine.from_state_machine_arn(stack, "Nightly", IMPORTED)

    with pytest.raises(ValueError, match=r"machines of Test/Watch must be different ones, got Test/Import twice"):
        watch_of(stack, mine, mine)
    stack.node.try_remove_child("Watch")
    with pytest.raises(
        ValueError, match=r"Test/Nightly must be of the region of Test/Watch, eu-central-1, got eu-west"
    ):
        watch_of(stack, WatchedMachine(machine=imported, on_timeout=own(stack, "Other")))


def test_more_machines_than_the_environment_has_room_for_are_refused(stack: Stack) -> None:
    told = own(stack, "Told")
    machines = [WatchedMachine(machine=machine(stack, f"M{number}"), on_timeout=told) for number in range(8)]

    with pytest.raises(ValueError, match=r"room for, got 8 of \d+ bytes of 3072; make another ExecutionWatch"):
        watch_of(stack, *machines)


def test_schedule_and_limit_may_be_chosen(stack: Stack) -> None:
    every, untold = Duration.minutes(5), Duration.minutes(10)
    ExecutionWatch(stack, "Watch", machines=[one(stack)], check_interval=every, max_notification_delay=untold)
    cloud = Cloud(stack)

    assert cloud.one("Watch/Schedule").properties["ScheduleExpression"] == "rate(5 minutes)"
    alarm = cloud.one("Watch/Alarms/NotificationDelay").properties
    assert (alarm["Threshold"], alarm["Period"]) == (600, 1_800)


def test_rare_sweeps_are_not_missing_data(stack: Stack) -> None:
    ExecutionWatch(stack, "Watch", machines=[one(stack)], check_interval=Duration.hours(1))

    assert Cloud(stack).one("Watch/Alarms/NotificationDelay").properties["Period"] == 3 * 3_600


def test_a_reconciler_and_a_watch_query_their_own_machines_only(stack: Stack) -> None:
    saga = saga_of(stack, Step.atomic("Move", fn=own(stack, "Move")))
    TimeoutReconciler(stack, "Reconciler", sagas=[saga])
    ExecutionWatch(stack, "Watch", machines=[one(stack)])
    cloud = Cloud(stack)

    for role in ("Reconciler/Function/Role", "Watch/Function/Role"):
        machines = {resource for action, resource in cloud.permissions(role) if action == "states:DescribeExecution"}
        assert {("Import" in machine) for machine in machines} == {"Watch" in role}


def test_a_watch_of_nothing_is_refused(stack: Stack) -> None:
    with pytest.raises(ValueError, match=r"machines of Test/Watch must be at least one, got none; name"):
        ExecutionWatch(stack, "Watch", machines=[])


def test_a_customers_key_encrypts_both_queues(regional_stack: Stack) -> None:
    key = kms.Key(regional_stack, "Key")
    ExecutionWatch(regional_stack, "Watch", machines=[one(regional_stack)], encryption_key=key)
    cloud = Cloud(regional_stack)

    for name in ("Queue", "DeadLetters"):
        assert cloud.one(f"Watch/{name}").properties["KmsMasterKeyId"] == "${Key.Arn}"
    assert ("kms:GenerateDataKey", "${Key.Arn}") in cloud.permissions("Watch/Function/Role")


def test_is_clean(watched: WatchedStack) -> None:
    result = AwsSolutionsChecks().validate_scope(watched.watch)

    assert not [violation.rule_name for violation in result.violations]


class _Forgetful:
    """``Validations`` that forgets everything."""

    def of(self, _: IConstruct) -> _Forgetful:
        return self

    def acknowledge(self, *acknowledgments: Acknowledgment) -> None:
        """Forget them."""


def test_every_reason_is_needed_and_for_its_own_resource(new_app: AppFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    class _Noted:
        def __init__(self, scope: IConstruct) -> None:
            self._scope = scope

        def acknowledge(self, *acknowledgments: Acknowledgment) -> None:
            given.extend(acknowledgment.id for acknowledgment in acknowledgments)
            Validations.of(self._scope).acknowledge(*acknowledgments)

    class _Noting:
        of = _Noted

    monkeypatch.setattr(watched_machines, "Validations", _Noting)
    WatchedStack(new_app(), "Noted")
    monkeypatch.setattr(watched_machines, "Validations", _Forgetful())
    result = AwsSolutionsChecks().validate_scope(WatchedStack(new_app(), "Noted").watch)

    assert {violation.rule_name for violation in result.violations} == set(given)
    assert len(given) == 2
    assert all(rule.startswith("AwsSolutions-IAM5[Resource::arn:") and rule.endswith(".Name>:*]") for rule in given)
