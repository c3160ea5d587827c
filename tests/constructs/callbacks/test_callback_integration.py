"""CallbackIntegration: its resources, its permissions, and the configuration of the sagas that it serves."""

from __future__ import annotations

import json
import re
from itertools import count
from typing import Any

import pytest
from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

from constructs_lib import (
    CallbackIntegration,
    IdempotencyTable,
    Step,
    StripeSignature,
    TokenTable,
)
from constructs_lib.shared import operator_actions as granted
from saga_runtime.protocol import DUE_INDEX, METRIC_NAMESPACE, Env, Metric, TokenAttribute
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.integrations import (
    SIGNING,
    WarehouseStack,
    environment,
    integration,
    job,
    own,
    saga_of,
    secret,
)
from tests.constructs.support.sagas import plain_function

ALARM = "AWS::CloudWatch::Alarm"
TOKENS = "${Warehouse/Tokens/Table.Arn}"
LOG = "${Saga/Log/Table.Arn}"
REQUESTS = "${SagaRequests/Table.Arn}"
QUEUE = "${Warehouse/Queue.Arn}"
EVENT_DEAD_LETTERS = "${Warehouse/EventDeadLetters.Arn}"


@pytest.fixture(scope="module")
def warehouse(new_app: AppFactory) -> WarehouseStack:
    return WarehouseStack(new_app(), "Shop")


@pytest.fixture(scope="module")
def cloud(warehouse: WarehouseStack) -> Cloud:
    """Making the template finds cycles: a function that waits for the state machine that waits for it."""
    return Cloud(warehouse)


def properties(stack: Stack, path: str) -> Any:
    return Cloud(stack).one(path).properties


class TestTheQueue:
    def test_is_encrypted_and_refuses_requests_without_tls(self, cloud: Cloud) -> None:
        for name in ("Queue", "DeadLetters", "EventDeadLetters"):
            assert cloud.one(f"Warehouse/{name}").properties["SqsManagedSseEnabled"] is True
            statements = cloud.one(f"Warehouse/{name}/Policy").properties["PolicyDocument"]["Statement"]
            (denied,) = [statement for statement in statements if statement["Effect"] == "Deny"]
            assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}

    def test_is_a_standard_queue_with_four_days_retention_and_five_attempts(self, cloud: Cloud) -> None:
        queue = cloud.one("Warehouse/Queue").properties
        assert "FifoQueue" not in queue
        assert queue["MessageRetentionPeriod"] == 4 * 86_400
        assert queue["RedrivePolicy"] == {"deadLetterTargetArn": "${Warehouse/DeadLetters.Arn}", "maxReceiveCount": 5}

    @pytest.mark.parametrize("name", ["DeadLetters", "EventDeadLetters"])
    def test_has_dead_letters_that_are_kept_for_a_fortnight(self, cloud: Cloud, name: str) -> None:
        assert cloud.one(f"Warehouse/{name}").properties["MessageRetentionPeriod"] == 14 * 86_400

    @pytest.mark.parametrize(
        ("timeout", "expected"), [(1, 41), (3, 43), (8, 48), (15, 90), (300, 1_800)], ids=lambda seconds: f"{seconds} s"
    )
    def test_redelivers_a_message_when_the_next_attempt_can_learn_the_outcome(
        self, stack: Stack, timeout: int, expected: int
    ) -> None:
        made = CallbackIntegration(stack, "Warehouse", fn=own(stack, "HandOver", timeout=Duration.seconds(timeout)))

        assert properties(stack, "Warehouse/Queue")["VisibilityTimeout"] == made.visibility_seconds == expected

    def test_redelivers_a_message_after_its_configured_time(self, stack: Stack) -> None:
        CallbackIntegration(stack, "Warehouse", visibility_timeout=Duration.minutes(10))

        assert properties(stack, "Warehouse/Queue")["VisibilityTimeout"] == 600

    def test_takes_a_key_of_the_customers(self, regional_stack: Stack) -> None:
        key = kms.Key(regional_stack, "Key")
        CallbackIntegration(regional_stack, "Warehouse", encryption_key=key)

        cloud = Cloud(regional_stack)
        for name in ("Queue", "DeadLetters"):
            assert cloud.one(f"Warehouse/{name}").properties["KmsMasterKeyId"] == "${Key.Arn}"
        (replica,) = cloud.one("Warehouse/Tokens/Table").properties["Replicas"]
        assert replica["SSESpecification"] == {"KMSMasterKeyId": "${Key.Arn}"}
        assert ("kms:Decrypt", "${Key.Arn}") in cloud.permissions("Warehouse/Dispatcher/Role")


class TestTheDispatcher:
    def test_reports_which_messages_failed_and_not_the_whole_batch(self, cloud: Cloud) -> None:
        (mapping,) = cloud.of_type("AWS::Lambda::EventSourceMapping")
        assert mapping.properties == {
            "BatchSize": 5,
            "EventSourceArn": QUEUE,
            "FunctionName": "${HandOver/Function}",
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
        }

    def test_has_the_configured_concurrency(self, stack: Stack) -> None:
        CallbackIntegration(stack, "Warehouse", batch_size=10, max_concurrency=2, max_receives=7)

        cloud = Cloud(stack)
        (mapping,) = cloud.of_type("AWS::Lambda::EventSourceMapping")
        assert mapping.properties["BatchSize"] == 10
        assert mapping.properties["ScalingConfig"] == {"MaximumConcurrency": 2}
        assert cloud.one("Warehouse/Queue").properties["RedrivePolicy"]["maxReceiveCount"] == 7
        assert environment(cloud, "Warehouse/Dispatcher")[Env.MAX_RECEIVES] == "7"

    def test_is_created_by_default(self, stack: Stack) -> None:
        made = CallbackIntegration(stack, "Carrier")

        own_function = properties(stack, "Carrier/Dispatcher/Function")
        assert own_function["Handler"] == "handlers.callback_dispatcher.handler"
        assert made.dispatcher_timeout == own_function["Timeout"]

    def test_may_be_a_custom_function(self, stack: Stack) -> None:
        made = CallbackIntegration(stack, "Warehouse", fn=plain_function(stack, "Mine", timeout=Duration.seconds(20)))

        variables = properties(stack, "Mine")["Environment"]["Variables"]
        assert variables[Env.TOKEN_TABLE] == "${Warehouse/Tokens/Table}"
        assert (made.dispatcher_timeout, made.dispatcher_facts.timeout) == (20, 20)


class TestTheTokenTable:
    def test_is_encrypted_recoverable_protected_and_retained(self, cloud: Cloud) -> None:
        table = cloud.one("Warehouse/Tokens/Table", "AWS::DynamoDB::GlobalTable")
        (replica,) = table.properties["Replicas"]
        assert table.properties["SSESpecification"] == {"SSEEnabled": True, "SSEType": "KMS"}
        assert replica["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
        assert replica["DeletionProtectionEnabled"] is True
        assert table.raw["DeletionPolicy"] == "Retain"

    def test_is_keyed_by_job_and_expires(self, cloud: Cloud) -> None:
        table = cloud.one("Warehouse/Tokens/Table").properties
        assert table["KeySchema"] == [{"AttributeName": TokenAttribute.ID, "KeyType": "HASH"}]
        expires = {"AttributeName": TokenAttribute.EXPIRATION, "Enabled": True}
        assert table["TimeToLiveSpecification"] == expires

    def test_has_a_sparse_index_that_holds_no_token(self, cloud: Cloud) -> None:
        (index,) = cloud.one("Warehouse/Tokens/Table").properties["GlobalSecondaryIndexes"]
        assert index["IndexName"] == DUE_INDEX
        assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}
        keys = [(key["AttributeName"], key["KeyType"]) for key in index["KeySchema"]]
        assert keys == [(TokenAttribute.DUE_SHARD, "HASH"), (TokenAttribute.DUE_AT, "RANGE")]

    def test_runs_every_minute(self, cloud: Cloud) -> None:
        rule = cloud.one("Warehouse/Tokens/Schedule", "AWS::Events::Rule").properties
        assert rule["ScheduleExpression"] == "rate(1 minute)"
        (target,) = rule["Targets"]
        assert target["Arn"] == "${Warehouse/Tokens/Sweeper/Function.Arn}"
        sweeper = cloud.one("Warehouse/Tokens/Sweeper/Function").properties
        assert sweeper["Timeout"] < 60
        assert sweeper["Environment"]["Variables"][Env.TOKEN_TABLE] == "${Warehouse/Tokens/Table}"

    def test_allows_operators_to_find_rows_and_mark_them_as_reported(self, stack: Stack) -> None:
        TokenTable(stack, "Tokens").grant_operate(own(stack, "Operator"))

        allowed = {pair for pair in Cloud(stack).permissions("Operator/Role") if pair[0].startswith("dynamodb:")}
        assert allowed == {
            *((action, "${Tokens/Table.Arn}") for action in granted.TOKEN_TABLE_ACTIONS),
            ("dynamodb:Query", "${Tokens/Table.Arn}/index/due"),
        }

    def test_is_deleted_with_its_stack_on_request(self, stack: Stack) -> None:
        CallbackIntegration(stack, "Warehouse", removal_policy=RemovalPolicy.DESTROY)

        cloud = Cloud(stack)
        for path in ("Tokens/Table", "Tokens/Sweeper/Logs", "Dispatcher/Logs"):
            assert cloud.one(f"Warehouse/{path}").raw["DeletionPolicy"] == "Delete"


BASE = {("xray:PutTraceSegments", "*"), ("xray:PutTelemetryRecords", "*")}
ITEMS = ("BatchGetItem", "ConditionCheckItem", "GetItem", "PutItem", "UpdateItem")
RECEIVE = {
    *((f"dynamodb:{action}", table) for table in (TOKENS, LOG) for action in ITEMS),
    ("dynamodb:GetItem", REQUESTS),
    ("dynamodb:UpdateItem", REQUESTS),
    *((f"states:SendTask{what}", "${Saga/StateMachine}") for what in ("Success", "Failure")),
}
HEARTBEAT = {("states:SendTaskHeartbeat", "${Saga/StateMachine}")}
CONSUME = {(f"sqs:{action}", QUEUE) for action in ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")}
LINKS = {("secretsmanager:GetSecretValue", "${Warehouse/Review/Secret}")}
LOST = {(f"sqs:{action}", EVENT_DEAD_LETTERS) for action in ("SendMessage", "GetQueueAttributes", "GetQueueUrl")}
OPERATE = {
    *((action, TOKENS) for action in granted.TOKEN_TABLE_ACTIONS),
    *((action, f"{TOKENS}/index/due") for action in granted.TOKEN_INDEX_ACTIONS),
    *((action, "${Warehouse/DeadLetters.Arn}") for action in granted.DEAD_LETTER_ACTIONS),
    *((action, QUEUE) for action in granted.QUEUE_ACTIONS),
}
"""Which actions these are is held against what the command calls: tests/unit/cli/test_callbacks_command.py."""
FUNCTIONS = {
    "HandOver": RECEIVE | CONSUME | LINKS,
    "FromWarehouse": RECEIVE | HEARTBEAT | {(action, SIGNING) for action, _ in LINKS},
    "FromCarrier": RECEIVE | HEARTBEAT | LOST,
    "Warehouse/Direct": RECEIVE | HEARTBEAT | LOST,
    "Warehouse/Review/Page": RECEIVE | LINKS,
    "Warehouse/Tokens/Sweeper": {
        ("dynamodb:Query", f"{TOKENS}/index/due"),
        ("dynamodb:DeleteItem", TOKENS),
        *((f"dynamodb:{action}", table) for action in ("GetItem", "UpdateItem") for table in (LOG, TOKENS, REQUESTS)),
        *((f"states:SendTask{what}", "${Saga/StateMachine}") for what in ("Success", "Failure")),
        ("sqs:SendMessage", "${Warehouse/DeadLetters.Arn}"),
        ("sqs:SendMessage", "${Saga/Operators.Arn}"),
    },
}


class TestPermissions:
    @pytest.mark.parametrize("function", FUNCTIONS)
    def test_are_these_and_nothing_else(self, cloud: Cloud, function: str) -> None:
        logs = f"${{{function}/Logs.Arn}}"
        base = BASE | {("logs:CreateLogStream", logs), ("logs:PutLogEvents", logs)}
        assert cloud.permissions(f"{function}/Role") == FUNCTIONS[function] | base

    def test_of_a_served_saga_are_in_no_policy_that_a_function_waits_for(self, cloud: Cloud) -> None:
        sweeper, receivers = "Warehouse/Tokens/Sweeper", ("FromWarehouse", "FromCarrier", "Warehouse/Direct")
        of = {"": FUNCTIONS.keys() - {sweeper}, "/Heartbeats": receivers, "/Sweeps": (sweeper,)}
        for name, functions in of.items():
            served = cloud.one(f"Warehouse/Serves/Shop-Saga{name}", "AWS::IAM::Policy")
            for function in cloud.of_type("AWS::Lambda::Function"):
                assert served.logical_id not in function.raw.get("DependsOn", [])
            assert sorted(served.properties["Roles"]) == sorted(f"${{{function}/Role}}" for function in functions)

    def test_have_no_wildcard_where_iam_has_a_resource(self, cloud: Cloud) -> None:
        for statement in cloud.statements():
            assert not [action for action in statement.actions if "*" in action], statement
            if "*" in statement.resources:
                assert {action.split(":")[0] for action in statement.actions} <= {"xray", "logs"}, statement

    def test_include_keys_of_the_saga(self, regional_stack: Stack) -> None:
        key = kms.Key(regional_stack, "Key")
        via = integration(regional_stack)
        requests = IdempotencyTable(regional_stack, "Requests", encryption_key=key)
        saga_of(regional_stack, job(via), requests=requests, encryption_key=key)

        cloud = Cloud(regional_stack)
        (statement,) = [
            statement
            for statement in cloud.one("Warehouse/Serves/Test-Saga").properties["PolicyDocument"]["Statement"]
            if "kms:Decrypt" in statement["Action"]
        ]
        assert statement["Action"] == ["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey"]
        assert statement["Resource"] == "${Key.Arn}"

    def test_to_invoke_directly_name_the_function_and_none_of_its_versions(self, stack: Stack) -> None:
        direct = CallbackIntegration(stack, "Warehouse").add_direct_receiver("Direct")
        direct.grant_invoke(own(stack, "Caller"))

        allowed = Cloud(stack).permissions("Caller/Role")
        assert [pair for pair in allowed if pair[0].startswith("lambda:")] == [
            ("lambda:InvokeFunction", "${Warehouse/Direct/Function.Arn}")
        ]

    def test_of_operators_are_to_look_and_to_have_dead_jobs_retried(self, stack: Stack) -> None:
        CallbackIntegration(stack, "Warehouse").grant_operate(own(stack, "Operator"))

        allowed = {p for p in Cloud(stack).permissions("Operator/Role") if p[0].startswith(("sqs:", "dynamodb:"))}
        assert allowed == OPERATE

    @pytest.mark.parametrize("first", [True, False])
    def test_of_operator_queues_cover_undelivered_outcomes_in_any_order(
        self, regional_stack: Stack, first: bool
    ) -> None:
        key = kms.Key(regional_stack, "Key")
        via, operator = integration(regional_stack), own(regional_stack, "Operator")
        if first:
            via.grant_operate(operator)
        saga_of(regional_stack, job(via), requests=IdempotencyTable(regional_stack, "Requests", encryption_key=key))
        if not first:
            via.grant_operate(operator)

        allowed = Cloud(regional_stack).permissions("Operator/Role")
        assert {p for p in allowed if p[0].startswith(("sqs:", "dynamodb:", "states:", "kms:"))} == {
            *OPERATE,
            *((action, "${Requests/Table.Arn}") for action in granted.REQUEST_TABLE_ACTIONS),
            *((action, "${Saga/StateMachine}") for action in granted.MACHINE_ACTIONS),
            *((f"kms:{action}", "${Key.Arn}") for action in ("Decrypt", "Encrypt", "GenerateDataKey")),
        }

    def test_of_the_sweeper_cover_the_key_of_an_operators_queue(self, regional_stack: Stack) -> None:
        key = kms.Key(regional_stack, "Key")
        operators = sqs.Queue(regional_stack, "People", encryption_master_key=key)
        saga_of(regional_stack, job(integration(regional_stack)), operators=operators)

        allowed = Cloud(regional_stack).permissions("Warehouse/Tokens/Sweeper/Role")
        assert ("sqs:SendMessage", "${People.Arn}") in allowed
        assert {(f"kms:{action}", "${Key.Arn}") for action in ("Decrypt", "GenerateDataKey")} <= set(allowed)

    def test_of_a_shared_sweeper_cover_each_dead_letter_queue_of_jobs(self, regional_stack: Stack) -> None:
        key = kms.Key(regional_stack, "Key")
        tokens = TokenTable(regional_stack, "Tokens")
        warehouse = integration(regional_stack, tokens=tokens, encryption_key=key)
        carrier = integration(regional_stack, "Carrier", tokens=tokens)
        reviewers = integration(regional_stack, "Reviewers", tokens=tokens)
        review = Step.wait_for("Review", via=reviewers, expected_duration=Duration.hours(1), timeout=Duration.days(1))
        pick = job(warehouse, compensate=own(regional_stack, "Cancel"))
        saga_of(regional_stack, review, pick, job(carrier, "Deliver"))

        cloud = Cloud(regional_stack)
        allowed = cloud.permissions("Tokens/Sweeper/Role")
        told = {pair for pair in allowed if pair[0].startswith(("sqs:", "kms:")) and "Operators" not in pair[1]}
        assert told == {
            ("sqs:SendMessage", "${Warehouse/DeadLetters.Arn}"),
            ("sqs:SendMessage", "${Carrier/DeadLetters.Arn}"),
            ("kms:Decrypt", "${Key.Arn}"),
            ("kms:GenerateDataKey", "${Key.Arn}"),
        }

    def test_for_reports_of_jobs_are_in_no_policy_that_a_function_waits_for(self, cloud: Cloud) -> None:
        policy = cloud.one("Warehouse/TellsOfJobs", "AWS::IAM::Policy")
        for function in cloud.of_type("AWS::Lambda::Function"):
            assert policy.logical_id not in function.raw.get("DependsOn", [])

    def test_for_unanswered_jobs_may_be_another_queue(self, stack: Stack) -> None:
        queue = sqs.Queue(stack, "Unanswered")
        warehouse = integration(stack, unanswered=queue)
        saga_of(stack, job(warehouse, compensate=own(stack, "Cancel")))

        cloud = Cloud(stack)
        assert environment(cloud, "WarehouseHandOver")[Env.DEAD_LETTERS] == "${Unanswered}"
        told = {r for a, r in cloud.permissions("Warehouse/Tokens/Sweeper/Role") if a == "sqs:SendMessage"}
        assert "${Unanswered.Arn}" in told
        assert "${Warehouse/DeadLetters.Arn}" not in told

    def test_for_unanswered_jobs_in_a_fifo_queue_are_refused(self, stack: Stack) -> None:
        queue = sqs.Queue(stack, "Unanswered", fifo=True)
        with pytest.raises(
            ValueError, match=r"unanswered of .* must be a standard queue, got .*Unanswered, a FIFO queue"
        ):
            integration(stack, unanswered=queue)

    def test_for_unanswered_jobs_in_an_encrypted_queue_may_use_its_key(self, regional_stack: Stack) -> None:
        key = kms.Key(regional_stack, "QueueKey")
        queue = sqs.Queue(regional_stack, "Unanswered", encryption_master_key=key)
        saga_of(
            regional_stack, job(integration(regional_stack, unanswered=queue), compensate=own(regional_stack, "Cancel"))
        )

        allowed = Cloud(regional_stack).permissions("Warehouse/Tokens/Sweeper/Role")
        assert ("kms:GenerateDataKey", "${QueueKey.Arn}") in allowed


class TestConfiguration:
    def test_of_the_dispatcher_has_the_dead_letter_queue_of_unanswered_jobs(self, cloud: Cloud, stack: Stack) -> None:
        assert environment(cloud, "HandOver")[Env.DEAD_LETTERS] == "${Warehouse/DeadLetters}"
        integration(stack, "Waits")
        assert Env.DEAD_LETTERS not in environment(Cloud(stack), "WaitsHandOver")

    RECEIVERS = ("HandOver", "FromWarehouse", "FromCarrier", "Warehouse/Direct", "Warehouse/Review/Page")

    @pytest.mark.parametrize("function", RECEIVERS)
    def test_is_the_table_and_the_sagas_in_any_order(self, cloud: Cloud, function: str) -> None:
        variables = environment(cloud, function)
        assert variables[Env.TOKEN_TABLE] == "${Warehouse/Tokens/Table}"
        assert json.loads(variables[Env.CALLBACKS]) == [
            {
                "log": "${Saga/Log/Table}",
                "requests": "${SagaRequests/Table}",
                "days": 400,
                "operators": "${Saga/Operators}",
                "steps": {
                    "Pick": {"side": "pivot", "job": True, "undo": True},
                    "Scan": {"side": "after", "job": False, "undo": False},
                },
            }
        ]

    @pytest.mark.parametrize("function", RECEIVERS)
    def test_lets_them_count_under_the_integrations_name(self, cloud: Cloud, function: str) -> None:
        assert environment(cloud, function)[Env.SERVICE] == "Shop-Warehouse"

    def test_is_an_empty_list_before_a_saga_uses_it(self, stack: Stack) -> None:
        CallbackIntegration(stack, "Warehouse")

        assert environment(Cloud(stack), "Warehouse/Dispatcher")[Env.CALLBACKS] == "[]"

    def test_has_room_for_several_sagas_and_reports_when_it_is_full(self, stack: Stack) -> None:
        via = integration(stack)
        requests = IdempotencyTable(stack, "Requests")

        def serve_for_ever() -> None:
            for number in count():
                saga_of(stack, job(via), id=f"Saga{number}", requests=requests)

        with pytest.raises(ValueError, match=r"^Test/Warehouse must serve sagas .* make another CallbackInt") as raised:
            serve_for_ever()

        assert "of 3072 with saga number " in str(raised.value)
        told = json.loads(environment(Cloud(stack), "WarehouseHandOver")[Env.CALLBACKS])
        assert len(told) >= 5
        assert f"saga number {len(told) + 1}, Test/Saga{len(told)};" in str(raised.value)


class TestSharing:
    def test_two_integrations_share_a_table_and_its_sweeper(self, stack: Stack) -> None:
        tokens = TokenTable(stack, "Tokens")
        vias = [integration(stack, name, tokens=tokens) for name in ("Warehouse", "Carrier")]
        saga_of(stack, job(vias[0], compensate=own(stack, "Cancel")), job(vias[1], "Deliver"))

        cloud = Cloud(stack)
        assert {via.sweeper for via in vias} == {tokens.sweeper}
        for via in vias:
            assert environment(cloud, f"{via.node.id}HandOver")[Env.TOKEN_TABLE] == "${Tokens/Table}"
            assert "${Tokens/Sweeper/Role}" in cloud.one(f"{via.node.id}/Serves/Test-Saga/Sweeps").properties["Roles"]

    def test_each_integration_is_configured_with_its_own_steps_only(self, stack: Stack) -> None:
        vias = [integration(stack, name) for name in ("Warehouse", "Carrier")]
        saga_of(stack, job(vias[0], compensate=own(stack, "Cancel")), job(vias[1], "Deliver"))

        cloud = Cloud(stack)
        for name, step in (("Warehouse", "Pick"), ("Carrier", "Deliver")):
            (told,) = json.loads(environment(cloud, f"{name}HandOver")[Env.CALLBACKS])
            assert list(told["steps"]) == [step]

    def test_two_sagas_of_one_integration_each_have_their_policy(self, stack: Stack) -> None:
        via = integration(stack)
        for name in ("One", "Two"):
            saga_of(stack, job(via), id=name)

        cloud = Cloud(stack)
        assert len(json.loads(environment(cloud, "WarehouseHandOver")[Env.CALLBACKS])) == 2
        for name in ("One", "Two"):
            text = json.dumps(cloud.one(f"Warehouse/Serves/Test-{name}").properties)
            assert f"${{{name}/StateMachine}}" in text

    def test_a_table_of_another_stack_serves_integrations_of_this_one(self, new_app: AppFactory) -> None:
        app = new_app()
        tables, shop = Stack(app, "Tables"), Stack(app, "Shop")
        via = integration(shop, tokens=TokenTable(tables, "Tokens"))
        saga_of(shop, job(via))

        assert Cloud(tables).of_type("AWS::DynamoDB::GlobalTable")
        assert "Warehouse/Serves/Shop-Saga" in Cloud(shop).resources
        assert "Warehouse/TellsOfJobs" in Cloud(shop).resources


class TestAlarms:
    @pytest.mark.parametrize(
        ("alarm", "metric"),
        [
            ("UnknownJob", Metric.CALLBACK_UNKNOWN),
            ("SignatureRejected", Metric.SIGNATURE_REFUSED),
            ("Refused", Metric.CALLBACK_REFUSED),
        ],
    )
    def test_cover_the_metrics_of_the_integrations_functions(self, cloud: Cloud, alarm: str, metric: Metric) -> None:
        found = cloud.one(f"Warehouse/Alarms/{alarm}", ALARM).properties
        assert found["Namespace"] == METRIC_NAMESPACE
        assert (found["MetricName"], found["Statistic"]) == (metric, "Sum")
        assert found["Dimensions"] == [{"Name": "service", "Value": "Shop-Warehouse"}]
        assert (found["Threshold"], found["ComparisonOperator"]) == (0, "GreaterThanThreshold")
        assert found["TreatMissingData"] == "notBreaching"

    def test_cover_late_effects_of_any_finder(self, cloud: Cloud) -> None:
        metrics = cloud.one("Warehouse/Alarms/CallbackUndelivered").properties["Metrics"]
        (total,) = [metric for metric in metrics if metric["ReturnData"]]
        parts = {metric["Id"]: metric["MetricStat"]["Metric"] for metric in metrics if not metric["ReturnData"]}
        assert total["Expression"] == " + ".join(f"FILL({name}, 0)" for name in parts)
        assert {(part["MetricName"], part["Dimensions"][0]["Value"]) for part in parts.values()} == {
            (metric, service)
            for metric in (Metric.CALLBACK_LATE, Metric.CALLBACK_APPLIED_LATE)
            for service in ("Shop-Warehouse", "Shop-Warehouse-Tokens-Sweeper")
        } | {(Metric.LATE_OPEN, "Shop-Warehouse-Tokens-Sweeper")}

    def test_cover_contradictions_and_repeated_event_ids(self, cloud: Cloud) -> None:
        metrics = cloud.one("Warehouse/Alarms/CallbackConflict").properties["Metrics"]
        parts = [metric["MetricStat"]["Metric"] for metric in metrics if not metric["ReturnData"]]
        assert [(part["MetricName"], part["Dimensions"][0]["Value"]) for part in parts] == [
            (Metric.CALLBACK_CONFLICT, "Shop-Warehouse"),
            (Metric.EVENT_ID_REUSED, "Shop-Warehouse"),
            (Metric.CONTRADICTIONS, "Shop-Warehouse-Tokens-Sweeper"),
        ]

    def test_cover_overdue_tokens_and_missing_data(self, stack: Stack) -> None:
        CallbackIntegration(stack, "Warehouse", max_wait_age=Duration.minutes(10))

        alarm = properties(stack, "Warehouse/Alarms/CallbackOverdue")
        metric = (alarm["MetricName"], alarm["Threshold"], alarm["Statistic"])
        assert metric == ("AgeOfOldestOverdueCallback", 600, "Maximum")
        assert alarm["Dimensions"] == [{"Name": "service", "Value": "Test-Warehouse-Tokens-Sweeper"}]
        assert alarm["TreatMissingData"] == "breaching"

    def test_measure_under_the_name_that_the_sweeper_has(self, cloud: Cloud) -> None:
        (dimension,) = cloud.one("Warehouse/Alarms/CallbackOverdue").properties["Dimensions"]
        assert environment(cloud, "Warehouse/Tokens/Sweeper")[Env.SERVICE] == dimension["Value"]

    def test_cover_dead_letters(self, cloud: Cloud) -> None:
        alarm = cloud.one("Warehouse/Alarms/DeadLetterQueue").properties
        assert alarm["MetricName"] == "ApproximateNumberOfMessagesVisible"
        assert alarm["Dimensions"] == [{"Name": "QueueName", "Value": "${Warehouse/DeadLetters.QueueName}"}]

    def test_cover_a_webhooks_function_that_cannot_run(self, stack: Stack) -> None:
        """One that cannot be imported, or is ended, counts nothing, and its provider gives up after some days."""
        via, received = CallbackIntegration(stack, "Warehouse"), own(stack, "From")
        scheme = StripeSignature(secrets=[secret(stack)])
        for name in ("One", "Two"):
            via.add_webhook(name, fn=received, scheme=scheme)

        assert [alarm.node.path for alarm in via.alarms[7:]] == ["Test/Warehouse/Alarms/OneFailed"]
        alarm = Cloud(stack).one("Warehouse/Alarms/OneFailed", ALARM).properties
        assert (alarm["MetricName"], alarm["Namespace"], alarm["Threshold"]) == ("Errors", "AWS/Lambda", 0)
        assert alarm["Dimensions"] == [{"Name": "FunctionName", "Value": "${From/Function}"}]

    def test_are_all_in_one_list(self, warehouse: WarehouseStack, cloud: Cloud) -> None:
        made = [alarm for alarm in cloud.of_type(ALARM) if alarm.path.startswith("Warehouse/")]
        assert sorted(alarm.node.path for alarm in warehouse.warehouse.alarms) == sorted(
            f"Shop/{alarm.path}" for alarm in made
        )


class TestArguments:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"batch_size": 0}, "batch_size must be 1 to 10, got 0; choose a number in that range"),
            ({"batch_size": 11}, "batch_size must be 1 to 10, got 11; choose a number in that range"),
            ({"max_receives": 1}, "max_receives must be 2 to 100, got 1; choose a number in that range"),
            ({"max_receives": 101}, "max_receives must be 2 to 100, got 101; choose a number in that range"),
            ({"max_concurrency": 1}, "max_concurrency must be 2 to 1000, got 1; choose a number in that range"),
            ({"max_concurrency": 1_001}, "max_concurrency must be 2 to 1000, got 1001; choose a number in that range"),
            (
                {"visibility_timeout": Duration.seconds(89)},
                "visibility_timeout must be 90 s to 43200 s, got 89 s; choose a duration in that range",
            ),
            (
                {"max_wait_age": Duration.seconds(59)},
                "max_wait_age must be 60 s to 31622400 s, got 59 s; choose a duration in that range",
            ),
        ],
        ids=str,
    )
    def test_out_of_range_are_refused(self, stack: Stack, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            CallbackIntegration(stack, "Warehouse", **options)

    def test_an_imported_function_is_refused_since_it_cannot_be_configured(self, stack: Stack) -> None:
        arn = "arn:aws:lambda:eu-west-1:111111111111:function:mine"
        imported = lambda_.Function.from_function_arn(stack, "Imported", arn)
        with pytest.raises(ValueError, match=r"^fn must be a function of this app, got Test/Imported, which is import"):
            CallbackIntegration(stack, "Warehouse", fn=imported)
        with pytest.raises(ValueError, match=r"^fn of event rule Scans must be a function of this app"):
            CallbackIntegration(stack, "Carrier").add_event_rule(
                "Scans", bus=events.EventBus(stack, "Bus"), pattern=events.EventPattern(source=["a"]), fn=imported
            )

    def test_a_function_whose_timeout_is_unknown_is_refused(self, stack: Stack) -> None:
        nameless = lambda_.Function(
            stack,
            "Mine",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="index.handler",
            code=lambda_.Code.from_inline("def handler(event, context): ..."),
        )
        with pytest.raises(ValueError, match=r"^the timeout of Test/Mine cannot be known; give the function one"):
            CallbackIntegration(stack, "Warehouse", fn=nameless)

    def test_a_function_works_for_one_integration(self, stack: Stack) -> None:
        shared = own(stack, "Shared")
        CallbackIntegration(stack, "Warehouse", fn=shared)
        with pytest.raises(
            ValueError, match=r"^fn must work for one integration, got .* for Test/Warehouse and Test/C"
        ):
            CallbackIntegration(stack, "Carrier", fn=shared)

    def test_a_dispatcher_does_not_receive(self, stack: Stack) -> None:
        made = CallbackIntegration(stack, "Warehouse", fn=(fn := own(stack, "HandOver")))
        with pytest.raises(ValueError, match=r"^fn of webhook Webhook must not be the dispatcher"):
            made.add_webhook("Webhook", fn=fn, scheme=StripeSignature(secrets=[secret(stack)]))

    def test_a_saga_of_another_stack_is_refused(self, new_app: AppFactory) -> None:
        app = new_app()
        via = integration(Stack(app, "Integrations"))
        with pytest.raises(
            ValueError, match=r"^saga Sagas/Saga must be in the stack of Integrations/Warehouse, got Sa"
        ):
            saga_of(Stack(app, "Sagas"), job(via))

    def test_a_request_table_of_another_stack_is_served(self, new_app: AppFactory) -> None:
        app = new_app()
        tables, shop = Stack(app, "Tables"), Stack(app, "Shop")
        saga_of(shop, job(integration(shop)), requests=IdempotencyTable(tables, "Requests"))

        assert "Warehouse/Serves/Shop-Saga" in Cloud(shop).resources

    def test_an_integration_serves_waits_alone(self, stack: Stack) -> None:
        via = CallbackIntegration(stack, "Carrier")
        scan = Step.wait_for("Scan", via=via, expected_duration=Duration.hours(1), timeout=Duration.days(1))
        saga_of(stack, Step.atomic("Ship", fn=own(stack, "Ship")), scan)

        (told,) = json.loads(environment(Cloud(stack), "Carrier/Dispatcher")[Env.CALLBACKS])
        assert told["steps"]["Scan"]["job"] is False

    def test_a_job_without_a_function_to_dispatch_it_is_refused(self, stack: Stack) -> None:
        via = CallbackIntegration(stack, "Carrier")
        with pytest.raises(ValueError, match=r"^Test/Carrier needs fn for \['Pick'\] of saga Test/Saga, got none"):
            saga_of(stack, job(via))
