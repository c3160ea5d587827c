"""Queues, rules and secrets behave as on AWS where the bare emulator does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from constructs_lib.testing import LocalAws

from .resources import arn_of_queue, calls_of, create_function, create_queue, messages_left
from .support import Emulators, eventually, run_machine

#: Prints its event; fails the messages that ask for it, dies, or returns what the message asks for.
RECEIVER = """
import json, os
def handler(event, context):
    for record in event["Records"]:
        print(json.dumps(record))
        body = json.loads(record["body"])
        if body == "die":
            os._exit(1)
        if isinstance(body, dict):
            return body["answer"]
    failed = [record["messageId"] for record in event["Records"] if json.loads(record["body"]) == "fail"]
    return {"batchItemFailures": [{"itemIdentifier": one} for one in failed]}
"""
#: Prints the event of a rule, and fails as often as it asks for.
TARGET = """
import json
calls = []
def handler(event, context):
    print(json.dumps(event))
    calls.append(event["id"])
    if calls.count(event["id"]) <= event["detail"].get("fails", 0):
        raise RuntimeError("not yet")
"""
READ_QUEUE = {
    "Effect": "Allow",
    "Action": ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"],
    "Resource": "*",
}
#: Longer than any call takes, however slow the machine: a message that is not deleted stays out of sight.
OUT_OF_SIGHT = 43_200


@pytest.fixture(scope="module")
def fast() -> Iterator[LocalAws]:
    """Corrected local AWS, thirty times faster than real time."""
    with LocalAws(speed=30) as aws:
        yield aws


def subscribe(aws: LocalAws, name: str, *, receives: int = 2, seconds: int = OUT_OF_SIGHT) -> tuple[str, str]:
    """Subscribe a receiver to a queue with dead letters, and return the URLs of both queues.

    Args:
        aws: where.
        name: of the function and of the queue.
        receives: how often a message is received before it becomes a dead letter.
        seconds: of the emulator, after which a message that was received and not deleted is visible again.
    """
    function = create_function(aws, name, RECEIVER, statement=READ_QUEUE)
    return subscribed(aws, function, name, receives=receives, seconds=seconds)[:2]


def subscribed(aws: LocalAws, function: str, name: str, *, receives: int, seconds: int) -> tuple[str, str, str]:
    """Subscribe a function to a new queue: the URLs of the queue and of its dead letters, and the subscription's id."""
    dead = create_queue(aws, f"{name}-dead")
    redrive = json.dumps({"deadLetterTargetArn": arn_of_queue(aws, dead), "maxReceiveCount": receives})
    queue = create_queue(aws, name, VisibilityTimeout=str(seconds), RedrivePolicy=redrive)
    subscription = aws.client("lambda").create_event_source_mapping(
        FunctionName=function,
        EventSourceArn=arn_of_queue(aws, queue),
        FunctionResponseTypes=["ReportBatchItemFailures"],
    )
    return queue, dead, subscription["UUID"]


def send(aws: LocalAws, queue: str, *bodies: Any) -> None:
    """Send messages together, so that they make one batch."""
    entries = [{"Id": str(number), "MessageBody": json.dumps(body)} for number, body in enumerate(bodies)]
    aws.client("sqs").send_message_batch(QueueUrl=queue, Entries=entries)  # type: ignore[arg-type]


def await_empty(aws: LocalAws, queue: str) -> None:
    """Wait until a queue holds nothing."""
    eventually(lambda: True if messages_left(aws, queue) == 0 else None)


def dead_letters(aws: LocalAws, dead: str) -> list[Any]:
    """The bodies of what could not be handled."""
    messages = aws.client("sqs").receive_message(QueueUrl=dead, MaxNumberOfMessages=10).get("Messages", [])
    return [json.loads(message["Body"]) for message in messages]


def received(aws: LocalAws, name: str) -> list[dict[str, Any]]:
    """Every message that a receiver was called with, as often as it was, in the calls that are over."""
    return [json.loads(line) for call in calls_of(aws, name) for line in call.lines if line.startswith("{")]


def show_again(aws: LocalAws, queue: str, message: dict[str, Any]) -> None:
    """Make a message visible now, as if its time were over."""
    aws.client("sqs").change_message_visibility(
        QueueUrl=queue, ReceiptHandle=message["receiptHandle"], VisibilityTimeout=0
    )


def test_a_failed_message_is_retried_and_dead_lettered_alone(fast: LocalAws) -> None:
    """No message becomes visible without a failure: it is received again because it failed."""
    queue, dead = subscribe(fast, "partial")

    def failed(times: int) -> dict[str, Any]:
        """The message that failed, when it has been received so often."""

        def found() -> dict[str, Any] | None:
            seen = [message for message in received(fast, "partial") if json.loads(message["body"]) == "fail"]
            return seen[-1] if len(seen) == times else None

        return eventually(found)

    send(fast, queue, "fail", "well")
    for times in (1, 2):
        message = failed(times)
        # Nothing but the failed message is left of what was sent, and nothing is a dead letter yet.
        eventually(lambda: True if messages_left(fast, queue) == 1 else None)
        assert messages_left(fast, dead) == 0
        show_again(fast, queue, message)
    await_empty(fast, queue)

    assert dead_letters(fast, dead) == ["fail"]
    bodies = [json.loads(message["body"]) for message in received(fast, "partial")]
    assert sorted(bodies) == ["fail", "fail", "well"]


def test_a_batch_of_a_killed_function_is_redelivered(fast: LocalAws) -> None:
    queue, dead = subscribe(fast, "dying", seconds=30)

    send(fast, queue, "die")
    await_empty(fast, queue)

    assert dead_letters(fast, dead) == ["die"]
    # On a slow machine the message is a dead letter before the log of its second call is written.
    eventually(lambda: True if len(calls_of(fast, "dying")) >= 2 else None)
    assert len(calls_of(fast, "dying")) == 2


def client_with(aws: LocalAws, name: str, *statements: dict[str, Any]) -> Any:
    """A client of SQS with these permissions."""
    iam = aws.client("iam")
    iam.create_user(UserName=name)
    document = json.dumps({"Version": "2012-10-17", "Statement": statements})
    iam.put_user_policy(UserName=name, PolicyName="allowed", PolicyDocument=document)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    session = boto3.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name=aws.region)
    return session.client("sqs", endpoint_url=aws.endpoint_url)


def test_dead_letters_are_redriven_as_new_messages_with_permission(fast: LocalAws) -> None:
    sqs, dead = fast.client("sqs"), create_queue(fast, "moved-dead")
    policy = json.dumps({"deadLetterTargetArn": arn_of_queue(fast, dead), "maxReceiveCount": 1})
    queue = create_queue(fast, "moved", VisibilityTimeout="0", RedrivePolicy=policy)
    send(fast, queue, "a")
    sqs.receive_message(QueueUrl=queue)
    assert "Messages" not in sqs.receive_message(QueueUrl=queue)
    source = arn_of_queue(fast, dead)
    take = {"Effect": "Allow", "Action": ["sqs:StartMessageMoveTask", *READ_QUEUE["Action"]], "Resource": source}
    give = {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": arn_of_queue(fast, queue)}

    with pytest.raises(ClientError, match="AccessDenied"):
        client_with(fast, "takes", take).start_message_move_task(SourceArn=source)
    client_with(fast, "moves", take, give).start_message_move_task(SourceArn=source)

    received = sqs.receive_message(QueueUrl=queue, AttributeNames=["All"])["Messages"][0]
    assert json.loads(received["Body"]) == "a"
    assert received["Attributes"]["ApproximateReceiveCount"] == "1"
    assert messages_left(fast, dead) == 0
    assert sqs.list_message_move_tasks(SourceArn=source)["Results"][0]["ApproximateNumberOfMessagesMoved"] == 1
    with pytest.raises(ClientError, match="Dead Letter Queue"):
        sqs.start_message_move_task(SourceArn=arn_of_queue(fast, queue))


def test_the_bare_emulator_moves_no_dead_letters(emulators: Emulators) -> None:
    bare = emulators.without("message-moves").aws
    with pytest.raises(ClientError, match="InvalidAction"):
        bare.client("sqs").start_message_move_task(SourceArn=arn_of_queue(bare, create_queue(bare)))


WRONG_ANSWERS = (
    "text",
    {"batchItemFailures": [{"itemIdentifier": "unknown"}]},
    {"batchItemFailures": [{"itemIdentifier": ""}]},
    {"batchItemFailures": [{"messageId": "wrong key"}]},
)


def test_a_response_that_names_no_message_of_the_batch_fails_all_of_it(fast: LocalAws, emulators: Emulators) -> None:
    def kept(aws: LocalAws) -> list[int]:
        """Number of messages that each invalid response leaves in its queue; none becomes visible without a failure."""
        function = create_function(aws, "wrong", RECEIVER, statement=READ_QUEUE)
        left = []
        for number, wrong in enumerate(WRONG_ANSWERS):
            queue, _, id_ = subscribed(aws, function, f"wrong-{number}", receives=1, seconds=OUT_OF_SIGHT)
            send(aws, queue, {"answer": wrong})
            await_batch(aws, id_)
            left.append(messages_left(aws, queue))
        return left

    assert kept(fast) == [1] * len(WRONG_ANSWERS)
    assert kept(emulators.without("batch-answers", speed=30).aws) == [0] * len(WRONG_ANSWERS)


def await_batch(aws: LocalAws, subscription: str) -> None:
    """Wait until a subscription has been through with its first batch: deleted is then what will be."""

    def told() -> str:
        return aws.client("lambda").get_event_source_mapping(UUID=subscription)["LastProcessingResult"]

    eventually(lambda: None if told() == "No records processed" else True)


@pytest.mark.parametrize("answer", [None, {}, {"batchItemFailures": []}, {"batchItemFailures": None}])
def test_a_response_without_failures_is_a_success(fast: LocalAws, answer: Any) -> None:
    """A message is deleted or stays: none becomes visible without a failure."""
    queue, dead = subscribe(fast, f"none-{len(json.dumps(answer))}", receives=1)

    send(fast, queue, {"answer": answer})
    await_empty(fast, queue)

    assert dead_letters(fast, dead) == []


def test_a_message_is_received_after_its_delay_at_any_speed() -> None:
    """The bare emulator looks once a real second: at this speed, after half an hour.

    How late a message is, is measured in the emulator, from its delay's end until it is received for the first time:
    neither the function that gets it nor this test has a part in that. The best of some messages counts for the
    corrected emulator, which may be kept from its work, and the worst for the bare one, which may look by chance.
    """
    delay_seconds, messages = 900, 4

    def seconds_late(aws: LocalAws) -> list[float]:
        queue, _dead = subscribe(aws, "late")
        for _ in range(messages):
            aws.client("sqs").send_message(QueueUrl=queue, MessageBody='"well"', DelaySeconds=delay_seconds)
            await_empty(aws, queue)
        eventually(lambda: True if len(received(aws, "late")) >= messages else None)
        times = [message["attributes"] for message in received(aws, "late")]
        sent, seen = "SentTimestamp", "ApproximateFirstReceiveTimestamp"
        return [(int(one[seen]) - int(one[sent])) / 1000 - delay_seconds for one in times]

    with LocalAws(speed=1800) as corrected, LocalAws(speed=1800, without=["event-source-time"]) as bare:
        of_corrected, of_bare = seconds_late(corrected), seconds_late(bare)

    assert min(of_corrected) >= 0
    assert min(of_corrected) * 2 < max(of_bare), (of_corrected, of_bare)


def test_a_subscription_needs_permissions_and_a_short_enough_timeout(fast: LocalAws, emulators: Emulators) -> None:
    def code(aws: LocalAws, name: str, **options: Any) -> str:
        function = create_function(aws, name, RECEIVER, **options)
        try:
            aws.client("lambda").create_event_source_mapping(
                FunctionName=function, EventSourceArn=arn_of_queue(aws, create_queue(aws, name))
            )
        except ClientError as error:
            return error.response["Error"]["Message"]
        return "ok"

    denied = {"Effect": "Allow", "Action": "sqs:ReceiveMessage", "Resource": "*"}
    for aws, expected in (
        (fast, ("permissions to call DeleteMessage", "30 seconds is less")),
        (emulators.without("queue-subscription").aws, ("ok", "ok")),
    ):
        assert expected[0] in code(aws, "denied", statement=denied)
        assert expected[1] in code(aws, "slow", timeout=31)
        assert code(aws, "just", timeout=30) == "ok"


def put_rule(aws: LocalAws, name: str, **options: Any) -> None:
    """Create a rule whose target is the function of the same name."""
    events = aws.client("events")
    events.put_rule(Name=name, **options)
    bus = {"EventBusName": options["EventBusName"]} if "EventBusName" in options else {}
    events.put_targets(Rule=name, Targets=[{"Id": "1", "Arn": create_function(aws, name, TARGET)}], **bus)


def put_scans(aws: LocalAws, bus: str, *details: dict[str, Any]) -> None:
    """Put events on a bus, one after the other."""
    for detail in details:
        entry = {"EventBusName": bus, "Source": "carrier", "DetailType": "Scan", "Detail": json.dumps(detail)}
        aws.client("events").put_events(Entries=[entry])


def scans_of(aws: LocalAws, name: str) -> list[dict[str, Any]]:
    """Events of a rule's target, from completed calls."""
    return [json.loads(call.lines[0]) for call in calls_of(aws, name)]


def test_the_target_of_a_rule_that_fails_is_called_again_after_minutes(fast: LocalAws, emulators: Emulators) -> None:
    def parcels(aws: LocalAws, *, calls: int) -> list[str]:
        """Parcels whose events the target received, until an event arrives after so many calls."""
        events = aws.client("events")
        events.create_event_bus(Name="carrier")
        put_rule(aws, "scans", EventBusName="carrier", EventPattern='{"detail-type": ["Scan"]}')
        put_scans(aws, "carrier", {"parcel": "a", "fails": 2}, {"parcel": "b", "fails": 0})
        eventually(lambda: True if len(calls_of(aws, "scans")) >= calls else None)
        put_scans(aws, "carrier", {"parcel": "last"})
        eventually(lambda: True if "last" in [scan["detail"]["parcel"] for scan in scans_of(aws, "scans")] else None)
        scans = scans_of(aws, "scans")
        assert {scan["detail-type"] for scan in scans} == {"Scan"}
        assert len({scan["id"] for scan in scans}) == 3
        return sorted(scan["detail"]["parcel"] for scan in scans)

    assert parcels(fast, calls=4) == ["a", "a", "a", "b", "last"]
    assert parcels(emulators.without("asynchronous-retries", speed=30).aws, calls=2) == ["a", "b", "last"]


def test_an_event_without_an_object_is_refused_and_the_others_are_not(fast: LocalAws, emulators: Emulators) -> None:
    def codes(aws: LocalAws) -> list[str]:
        entries = [{"Source": "a", "DetailType": "b", "Detail": detail} for detail in ("{}", "[1]", "no json", "{}")]
        answer = aws.client("events").put_events(Entries=entries)
        assert answer["FailedEntryCount"] == sum("ErrorCode" in entry for entry in answer["Entries"])
        return [entry.get("ErrorCode", "ok") for entry in answer["Entries"]]

    assert codes(fast) == ["ok", "MalformedDetail", "MalformedDetail", "ok"]
    assert codes(emulators.without("event-entries").aws) == ["ok"] * 4


def test_a_state_machine_sends_the_detail_of_its_event_as_an_object(fast: LocalAws) -> None:
    put_rule(fast, "announced", EventPattern='{"detail-type": ["Announced"]}')
    entry = {"Source": "saga", "DetailType": "Announced", "Detail": {"id": "{% 'x' & 1 %}"}}
    put = {"Type": "Task", "Resource": "arn:aws:states:::events:putEvents", "Arguments": {"Entries": [entry]}}

    assert run_machine(fast, {"Announce": {**put, "End": True}})["output"]["FailedEntryCount"] == 0

    eventually(lambda: True if calls_of(fast, "announced") else None)
    assert json.loads(calls_of(fast, "announced")[0].lines[0])["detail"] == {"id": "x1"}


def test_a_reset_drops_pending_retries() -> None:
    """A call that fails after the reset is retried; one that failed before it would have been retried earlier."""
    with LocalAws(speed=30) as aws:
        put_rule(aws, "failing", EventPattern='{"detail-type": ["Scan"]}')
        put_scans(aws, "default", {"parcel": "before", "fails": 9})
        eventually(lambda: True if calls_of(aws, "failing") else None)

        aws.reset()
        put_scans(aws, "default", {"parcel": "after", "fails": 9})
        eventually(lambda: True if len(calls_of(aws, "failing")) >= 2 else None)

        assert {scan["detail"]["parcel"] for scan in scans_of(aws, "failing")} == {"after"}


def test_a_schedule_fires_every_minute_of_the_emulator_if_it_is_enabled(fast: LocalAws) -> None:
    for name, state in (("silent", "DISABLED"), ("ticking", "ENABLED")):
        put_rule(fast, name, ScheduleExpression="rate(1 minute)", State=state)

    calls = eventually(lambda: found if len(found := calls_of(fast, "ticking")) >= 2 else None)

    first, second = (json.loads(call.lines[0]) for call in calls[:2])
    assert (first["detail-type"], first["source"]) == ("Scheduled Event", "aws.events")
    assert first["time"] != second["time"]
    assert calls_of(fast, "silent") == []


TEMPLATE = {
    "Resources": {
        "Key": {
            "Type": "AWS::SecretsManager::Secret",
            "Properties": {
                "GenerateSecretString": {
                    "PasswordLength": 64,
                    "ExcludePunctuation": True,
                    "SecretStringTemplate": '{"user": "a"}',
                    "GenerateStringKey": "password",
                }
            },
        },
        "Plain": {"Type": "AWS::SecretsManager::Secret", "Properties": {"GenerateSecretString": {}}},
    },
    "Outputs": {"Key": {"Value": {"Ref": "Key"}}, "Plain": {"Value": {"Ref": "Plain"}}},
}


def create_secrets(aws: LocalAws, name: str, template: Any = TEMPLATE) -> dict[str, str]:
    """Create the stack of secrets, and return what refers to them."""
    cloudformation = aws.client("cloudformation")
    cloudformation.create_stack(StackName=name, TemplateBody=json.dumps(template))
    cloudformation.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
    stack = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


def test_a_secret_of_a_stack_is_named_by_its_arn_and_generated_by_its_rules(
    fast: LocalAws, emulators: Emulators
) -> None:
    made = create_secrets(fast, "made")
    client = fast.client("secretsmanager")
    key, plain = (client.get_secret_value(SecretId=made[one])["SecretString"] for one in ("Key", "Plain"))

    assert made["Key"].startswith("arn:aws:secretsmanager:us-east-1:000000000000:secret:")
    assert json.loads(key)["user"] == "a"
    assert json.loads(key)["password"].isalnum()
    assert len(json.loads(key)["password"]) == 64
    assert len(plain) == 32

    bare = emulators.without("secret-reference", "generated-secret").aws
    made = create_secrets(bare, "made")
    assert not made["Key"].startswith("arn:")
    assert bare.client("secretsmanager").get_secret_value(SecretId=made["Plain"]).get("SecretString", "") == ""


def test_a_stack_with_secrets_is_updated_and_deleted(fast: LocalAws) -> None:
    made = create_secrets(fast, "changing")
    cloudformation = fast.client("cloudformation")
    changed = json.loads(json.dumps(TEMPLATE))
    changed["Resources"]["Key"]["Properties"]["Description"] = "other"

    cloudformation.update_stack(StackName="changing", TemplateBody=json.dumps(changed))
    cloudformation.get_waiter("stack_update_complete").wait(StackName="changing", WaiterConfig={"Delay": 1})
    client = fast.client("secretsmanager")
    described = client.describe_secret(SecretId=made["Key"])
    cloudformation.delete_stack(StackName="changing")
    cloudformation.get_waiter("stack_delete_complete").wait(StackName="changing", WaiterConfig={"Delay": 1})

    assert (described["ARN"], described["Description"]) == (made["Key"], "other")
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.get_secret_value(SecretId=made["Key"])


def test_a_new_value_makes_the_old_one_the_previous_and_the_same_again_changes_nothing(
    fast: LocalAws, emulators: Emulators
) -> None:
    def put_twice(aws: LocalAws) -> list[str]:
        client = aws.client("secretsmanager")
        client.create_secret(Name="webhook", SecretString="old")
        put = {"SecretId": "webhook", "SecretString": "new", "ClientRequestToken": "t" * 32}
        found = [client.put_secret_value(**put)["VersionId"], client.put_secret_value(**put)["VersionId"]]
        assert found == ["t" * 32] * 2
        values = []
        for stage in ("AWSCURRENT", "AWSPREVIOUS"):
            try:
                values.append(client.get_secret_value(SecretId="webhook", VersionStage=stage)["SecretString"])
            except client.exceptions.ResourceNotFoundException:
                values.append("none")
        try:
            client.put_secret_value(**{**put, "SecretString": "other"})
            return [*values, "ok"]
        except client.exceptions.ResourceExistsException:
            return [*values, "refused"]

    assert put_twice(fast) == ["new", "old", "refused"]
    assert put_twice(emulators.without("secret-versions").aws) == ["new", "none", "ok"]
