"""Event intakes: queues, permissions, settings and alarms, and what ends the synth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sqs as sqs
from cdk_nag import AwsSolutionsChecks

from constructs_lib import (
    EventIntake,
    IdempotencyTable,
    MoneyField,
    SagaStateMachine,
    StandardWebhooks,
    StepFunction,
    StripeSignature,
)
from saga_runtime.http.starting import SagaSettings
from saga_runtime.idempotency.amounts import MoneyPath
from saga_runtime.protocol import Env
from saga_runtime.webhooks.intake import Settings
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import StackFactory
from tests.constructs.support.sagas import FUNCTIONS, saga


def _function(stack: Stack, id: str = "Credit", **settings: Any) -> StepFunction:
    return StepFunction(stack, id, code=FUNCTIONS, handler="intake.handler", **settings)


def _intake(stack: Stack, **settings: Any) -> EventIntake:
    defaults: dict[str, Any] = {"operation": "stripe"}
    if "fn" not in settings:
        defaults["fn"] = _function(stack)
    if "requests" not in settings:
        defaults["requests"] = IdempotencyTable(stack, "Requests")
    return EventIntake(stack, "Stripe", **{**defaults, **settings})


def _scheme(stack: Stack) -> StripeSignature:
    return StripeSignature(secrets=[secretsmanager.Secret(stack, "Secret")])


@pytest.fixture
def cloud(stack: Stack) -> Cloud:
    """An intake with a webhook and a rule."""
    intake = _intake(stack)
    intake.add_webhook("Webhook", scheme=_scheme(stack))
    bus = events.EventBus(stack, "Bus")
    intake.add_event_rule("Rule", bus=bus, pattern=events.EventPattern(source=["market"]))
    intake.grant_send(iam.Role(stack, "Sender", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com")))
    return Cloud(stack)


def test_its_function_may_put_and_read_records_and_send_to_its_queues_and_no_more(cloud: Cloud) -> None:
    actions = {action for statement in cloud.statements("Credit/Role") for action in statement.actions}

    assert {a for a in actions if a.startswith("dynamodb:")} == {"dynamodb:PutItem", "dynamodb:GetItem"}
    assert {a for a in actions if a.startswith("sqs:")} == {
        "sqs:SendMessage",
        "sqs:ReceiveMessage",
        "sqs:DeleteMessage",
        "sqs:GetQueueAttributes",
    }
    assert {a.partition(":")[0] for a in actions} == {"dynamodb", "logs", "secretsmanager", "sqs", "xray"}


def test_a_sender_may_send_to_the_queue_of_kept_events_only(cloud: Cloud) -> None:
    (statement,) = cloud.statements("Sender")

    assert (set(statement.actions), set(statement.resources)) == ({"sqs:SendMessage"}, {"${Stripe/Kept.Arn}"})


def test_its_function_reads_its_settings_from_the_template(cloud: Cloud) -> None:
    variables = cloud.one("Credit/Function").properties["Environment"]["Variables"]

    settings = Settings.from_env(variables)

    assert (settings.operation, settings.request_table) == ("stripe", "${Requests/Table}")
    assert (settings.kept, settings.parked) == ("${Stripe/Kept}", "${Stripe/Parked}")
    assert Env.WEBHOOK_SCHEME in variables


def test_a_kept_event_is_planned_every_five_minutes_and_parked_after_a_day(cloud: Cloud) -> None:
    kept, parked = cloud.one("Stripe/Kept").properties, cloud.one("Stripe/Parked").properties

    assert kept["VisibilityTimeout"] == 300
    assert kept["RedrivePolicy"] == {"deadLetterTargetArn": "${Stripe/Parked.Arn}", "maxReceiveCount": 288}
    assert kept["MessageRetentionPeriod"] == parked["MessageRetentionPeriod"] == 14 * 86_400
    (mapping,) = cloud.of_type("AWS::Lambda::EventSourceMapping")
    assert mapping.properties["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_events_of_a_bus_come_through_the_same_queue(cloud: Cloud) -> None:
    (target,) = cloud.one("Stripe/Rule").properties["Targets"]

    assert target["Arn"] == "${Stripe/Kept.Arn}"
    assert target["DeadLetterConfig"] == {"Arn": "${Stripe/Parked.Arn}"}


def _counted(alarm: Mapping[str, Any]) -> list[tuple[str, Any]]:
    parts = [part["MetricStat"]["Metric"] for part in alarm["Metrics"] if not part["ReturnData"]]
    return [(part["MetricName"], part["Dimensions"]) for part in parts]


def test_a_function_that_cannot_run_sets_off_an_alarm(cloud: Cloud) -> None:
    """One that cannot be imported, or is ended, counts nothing, and its provider gives up after some days."""
    alarm = cloud.one("Stripe/Alarms/Refused").properties

    assert ("Errors", [{"Name": "FunctionName", "Value": "${Credit/Function}"}]) in _counted(alarm)
    assert alarm["Threshold"] == 0


def test_a_parked_and_a_refused_event_set_off_alarms(cloud: Cloud) -> None:
    alarms = {r.path: r.properties for r in cloud.of_type("AWS::CloudWatch::Alarm")}

    assert set(alarms) == {"Stripe/Alarms/Parked", "Stripe/Alarms/Refused", "Stripe/Alarms/Signature"}
    assert [name for name, _ in _counted(alarms["Stripe/Alarms/Refused"])] == ["EventRefused", "Errors"]
    assert alarms["Stripe/Alarms/Signature"]["MetricName"] == "SignatureRejected"


def test_it_is_clean_to_cdk_nag(new_stack: StackFactory) -> None:
    stack = new_stack()
    _intake(stack).add_webhook("Webhook", scheme=_scheme(stack))

    found = AwsSolutionsChecks().validate_scope(stack).violations
    assert {v.rule_name for v in found if "SMG4" not in v.rule_name} == set()


class TestOfASaga:
    def test_its_function_may_reserve_and_start_and_send_to_its_queues(self, stack: Stack) -> None:
        machine = saga(stack)
        fn = StepFunction(stack, "Begin", code=FUNCTIONS, handler="intake_saga.handler")
        EventIntake(stack, "Orders", operation="orders", fn=fn, saga=machine)
        cloud = Cloud(stack)

        actions = {action for statement in cloud.statements("Begin/Role") for action in statement.actions}
        assert {a for a in actions if a.startswith(("dynamodb:", "states:"))} == {
            "dynamodb:PutItem",
            "states:StartExecution",
        }
        variables = cloud.one("Begin/Function").properties["Environment"]["Variables"]
        settings = Settings.from_env(variables)
        assert isinstance(settings.begins, SagaSettings)
        assert settings.begins.state_machine_arn == "${Saga/StateMachine}"
        assert settings.begins.definition == machine.definition_fingerprint

    def test_its_function_knows_where_the_amount_is(self, stack: Stack) -> None:
        fn = StepFunction(stack, "Begin", code=FUNCTIONS, handler="intake_saga.handler")
        money = MoneyField(amount="/amount", currency_code="EUR")
        EventIntake(stack, "Orders", operation="orders", fn=fn, saga=saga(stack), money=money)

        settings = Settings.from_env(Cloud(stack).one("Begin/Function").properties["Environment"]["Variables"])
        assert isinstance(settings.begins, SagaSettings)
        assert settings.begins.money == MoneyPath(amount=("amount",), code="EUR")

    def test_takes_no_function_that_applies_events_itself(self, stack: Stack) -> None:
        with pytest.raises(ValueError, match="must be decorated with event_saga, got event_operation"):
            EventIntake(stack, "Orders", operation="orders", fn=_function(stack), saga=saga(stack))


class TestWhatEndsTheSynth:
    @pytest.mark.parametrize("both", [True, False])
    def test_requests_and_a_saga_or_neither(self, stack: Stack, both: bool) -> None:
        given: dict[str, Any] = {"requests": IdempotencyTable(stack, "Requests"), "saga": saga(stack)} if both else {}
        with pytest.raises(ValueError, match=r"must have requests or saga, got (both|neither)"):
            EventIntake(stack, "Stripe", operation="stripe", fn=_function(stack), **given)

    def test_an_amount_that_is_never_in_flight(self, stack: Stack) -> None:
        with pytest.raises(ValueError, match="EventIntake Stripe must not have money without saga, got MoneyField"):
            _intake(stack, money=MoneyField(amount="/amount", currency_code="EUR"))

    def test_a_handler_of_another_decorator(self, stack: Stack) -> None:
        fn = StepFunction(stack, "Move", code=FUNCTIONS, handler="direct.handler")
        with pytest.raises(ValueError, match="must be decorated with event_operation, got direct_operation"):
            _intake(stack, fn=fn)

    def test_an_operation_that_begins_two_sagas(self, stack: Stack) -> None:
        first = saga(stack)
        second = saga(stack, "Other", requests=first.requests)

        def intake(number: int, operation: str, of: SagaStateMachine) -> None:
            fn = StepFunction(stack, f"Read{number}", code=FUNCTIONS, handler="intake_saga.handler")
            EventIntake(stack, f"Intake{number}", operation=operation, fn=fn, saga=of)

        for number, (operation, of) in enumerate([("orders", first), ("orders", first), ("refunds", second)]):
            intake(number, operation, of)
        with pytest.raises(
            ValueError,
            match=r"^operation of EventIntake Intake3 must begin \w+/Saga, as .* got \w+/Other; let both begin",
        ):
            intake(3, "orders", second)
        with pytest.raises(ValueError, match=r"must begin \w+/Saga, as .* does, got a direct operation; let both"):
            _intake(stack, operation="orders", requests=first.requests)

    def test_one_function_for_two(self, stack: Stack) -> None:
        intake = _intake(stack)
        with pytest.raises(ValueError, match=r"fn must serve one EventIntake, got .*Credit, which serves .*Stripe"):
            EventIntake(
                stack, "Other", operation="other", fn=intake.function, requests=IdempotencyTable(stack, "Others")
            )

    def test_a_function_that_outlives_the_gateway(self, stack: Stack) -> None:
        with pytest.raises(ValueError, match=r"timeout of fn must be shorter than the gateway's 29 s, got 29 s"):
            _intake(stack, fn=_function(stack, timeout=Duration.seconds(29)))

    def test_keys_that_expire_before_the_last_redelivery(self, stack: Stack) -> None:
        brief = IdempotencyTable(stack, "Brief", replay_for=Duration.days(1), remember_for=Duration.days(29))
        with pytest.raises(ValueError, match=r"remember_for of requests must be at least 30 days for events"):
            _intake(stack, requests=brief)

    @pytest.mark.parametrize("name", ["", " ", "Stripe", "a" * 41])
    def test_a_name_that_is_not_one(self, stack: Stack, name: str) -> None:
        with pytest.raises(ValueError, match="operation must"):
            _intake(stack, operation=name)

    @pytest.mark.parametrize(
        "settings",
        [
            {"retry_every": Duration.seconds(89)},
            {"retry_every": Duration.hours(13)},
            {"park_after": Duration.minutes(4)},
            {"park_after": Duration.days(8)},
        ],
    )
    def test_intervals_that_cannot_work(self, stack: Stack, settings: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"retry_every must be|park_after must be"):
            _intake(stack, **settings)

    def test_two_schemes(self, stack: Stack) -> None:
        intake = _intake(stack)
        intake.add_webhook("Webhook", scheme=_scheme(stack))
        other = StandardWebhooks(secrets=[secretsmanager.Secret(stack, "Other")])
        with pytest.raises(ValueError, match="scheme of webhook Second must be that of the intake's other webhook"):
            intake.add_webhook("Second", scheme=other, cloud_watch_role=False)


class TestItsQueuesAndTables:
    def test_a_fifo_queue_reports_the_messages_to_redeliver(self, stack: Stack) -> None:
        dead = sqs.Queue(stack, "Dead", fifo=True)
        queue = sqs.Queue(
            stack,
            "Orders",
            fifo=True,
            visibility_timeout=Duration.seconds(180),
            dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=5),
        )
        _intake(stack).add_queue(queue)

        (mapping,) = (
            m.properties
            for m in Cloud(stack).of_type("AWS::Lambda::EventSourceMapping")
            if m.properties["EventSourceArn"] == "${Orders.Arn}"
        )
        assert (mapping["BatchSize"], mapping["FunctionResponseTypes"]) == (10, ["ReportBatchItemFailures"])

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"visibility_timeout": Duration.seconds(60)}, "visibility_timeout of queue .*/Orders must be at least"),
            ({}, "visibility_timeout of queue .* got 30 s"),
            ({"visibility_timeout": Duration.hours(1)}, "queue .*/Orders must have a dead-letter queue, got none"),
        ],
    )
    def test_a_queue_that_would_lose_or_repeat_messages_is_refused(
        self, stack: Stack, settings: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            _intake(stack).add_queue(sqs.Queue(stack, "Orders", **settings))

    def test_an_imported_queue_is_used_unchanged(self, stack: Stack) -> None:
        queue = sqs.Queue.from_queue_arn(stack, "Orders", "arn:aws:sqs:eu-central-1:111122223333:orders")
        _intake(stack).add_queue(queue, batch_size=1)

    def test_a_tables_stream_is_read_from_its_start_with_a_filter(self, stack: Stack) -> None:
        _intake(stack).add_stream(_table(stack, dynamo_stream=dynamodb.StreamViewType.NEW_IMAGE))

        (mapping,) = (
            m.properties
            for m in Cloud(stack).of_type("AWS::Lambda::EventSourceMapping")
            if m.properties["EventSourceArn"] == "${Trades.StreamArn}"
        )
        assert mapping["StartingPosition"] == "TRIM_HORIZON"
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert mapping["MaximumRecordAgeInSeconds"] == 43_200
        assert mapping["DestinationConfig"] == {"OnFailure": {"Destination": "${Stripe/Parked.Arn}"}}

    def test_a_table_without_a_stream_is_refused(self, stack: Stack) -> None:
        with pytest.raises(ValueError, match=r"table .*/Trades must have a stream, got none"):
            _intake(stack).add_stream(
                dynamodb.Table.from_table_arn(
                    stack, "Trades", "arn:aws:dynamodb:eu-central-1:111122223333:table/Trades"
                )
            )

    @pytest.mark.parametrize("batch_size", [0, -1, 1_001])
    def test_a_batch_size_that_no_source_has_is_refused(self, stack: Stack, batch_size: int) -> None:
        intake = _intake(stack)
        with pytest.raises(ValueError, match="batch_size must be 1 to 1000"):
            intake.add_stream(_table(stack, dynamo_stream=dynamodb.StreamViewType.NEW_IMAGE), batch_size=batch_size)
        with pytest.raises(ValueError, match="batch_size must be 1 to 10"):
            intake.add_queue(sqs.Queue(stack, "Orders"), batch_size=batch_size)

    def test_their_permissions_are_clean_to_cdk_nag(self, new_stack: StackFactory) -> None:
        stack = new_stack()
        intake = _intake(stack)
        queue = sqs.Queue.from_queue_arn(stack, "Orders", "arn:aws:sqs:eu-central-1:111122223333:orders")
        intake.add_queue(queue)
        intake.add_stream(_table(stack, dynamo_stream=dynamodb.StreamViewType.NEW_IMAGE))

        found = AwsSolutionsChecks().validate_scope(stack).violations
        assert {v.rule_name for v in found if "DDB3" not in v.rule_name} == set()


def _table(stack: Stack, **settings: Any) -> dynamodb.TableV2:
    key = dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
    return dynamodb.TableV2(stack, "Trades", partition_key=key, **settings)
