"""Queues, events, permissions and APIs in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from constructs_lib.testing.simulator.aws.demands import demands_of
from constructs_lib.testing.simulator.aws.events import matches
from constructs_lib.testing.simulator.aws.gateway import Response
from constructs_lib.testing.simulator.aws.roles import Demand, Roles
from constructs_lib.testing.simulator.deployment.blueprint import (
    ApiSpec,
    MappingSpec,
    QueueSpec,
    RouteSpec,
    RuleSpec,
    StreamSpec,
    TableSpec,
    TargetSpec,
)
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.errors import NotSimulatedError, ServiceError
from constructs_lib.testing.simulator.faults.climate import Climate, Event, Trouble
from constructs_lib.testing.simulator.run import START
from constructs_lib.testing.simulator.world import World

from .support import add_function, blueprint, function_arn, world_of

HANDLE = """
import json
import boto3

seen = []

def handler(event, context):
    failures = []
    for record in event["Records"]:
        seen.append(record["body"])
        boto3.client("sqs").send_message(QueueUrl="https://sqs.us-east-1.amazonaws.com/123456789012/out",
                                         MessageBody=record["body"])
        if record["body"] == "bad":
            failures.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failures}
"""


def _queues(**options: Any) -> Any:
    made = blueprint(handle=HANDLE)
    made.queues["dead"] = QueueSpec(name="dead")
    made.queues["out"] = QueueSpec(name="out")
    made.queues["in"] = QueueSpec(
        name="in", visibility=30, dead_letters=made.queues["dead"].arn, max_receives=3, **options
    )
    made.mappings.append(MappingSpec(queue="in", function="handle", batch=5, partial=True))
    return made


def _bodies(world: World, queue: str) -> list[str]:
    return [message.body for message in world.queues.queue(queue).messages]


def test_a_function_receives_the_sent_messages() -> None:
    with world_of(_queues()) as world:
        for body in ("a", "b"):
            world.call("sqs", "SendMessage", {"QueueUrl": world.queues.queue("in").spec.url, "MessageBody": body})
        world.kernel.run(until=START + 10 * SECOND)
        assert sorted(_bodies(world, "out")) == ["a", "b"]
        assert _bodies(world, "in") == []


def test_a_failed_message_is_redelivered_and_dead_lettered() -> None:
    with world_of(_queues()) as world:
        for body in ("bad", "good"):
            world.call("sqs", "SendMessage", {"QueueUrl": world.queues.queue("in").spec.url, "MessageBody": body})
        world.kernel.run(until=START + 600 * SECOND)
        assert sorted(_bodies(world, "out")) == ["bad", "bad", "bad", "good"]
        assert _bodies(world, "dead") == ["bad"]


@pytest.mark.parametrize("character", ["\x00", "\x0b", "\x1f", "\ufffe", "\uffff"], ids=ascii)
def test_a_queue_refuses_characters_that_xml_does_not_have(character: str) -> None:
    with world_of(_queues()) as world:
        url = world.queues.queue("out").spec.url
        world.call("sqs", "SendMessage", {"QueueUrl": url, "MessageBody": "\t\n\r \ud7ff\ue000\ufffd\U0001f4b6"})
        with pytest.raises(ServiceError, match="InvalidMessageContents"):
            world.call("sqs", "SendMessage", {"QueueUrl": url, "MessageBody": f"a{character}b"})
        assert len(_bodies(world, "out")) == 1


CHANGES = """
import boto3

def handler(event, context):
    for number, record in enumerate(event["Records"]):
        change = record["dynamodb"]
        name = change["Keys"]["id"]["S"]
        boto3.client("sqs").send_message(
            QueueUrl="https://sqs.us-east-1.amazonaws.com/123456789012/out",
            MessageBody=f"{record['eventName']} {name} {change.get('NewImage', {}).get('n', {}).get('N')}",
        )
        if name == "bad":
            return {"batchItemFailures": [{"itemIdentifier": change["SequenceNumber"]}]}
        if name == "worse":
            raise RuntimeError("a defect")
    return {"batchItemFailures": []}
"""


def _changed(world: World, *items: tuple[str, int]) -> None:
    for name, n in items:
        item = {"id": {"S": name}, "n": {"N": str(n)}}
        world.call("dynamodb", "PutItem", {"TableName": "changed", "Item": item})
    world.kernel.run(until=world.kernel.now + 60 * SECOND)


def _stream(**options: Any) -> Any:
    made = blueprint(handle=CHANGES)
    made.queues["out"] = QueueSpec(name="out")
    made.tables["changed"] = TableSpec(name="changed", keys=("id",), kinds=("S",))
    made.streams.append(StreamSpec(table="changed", function="handle", view="NEW_IMAGE", **options))
    return made


def test_a_function_receives_the_changes_of_a_table_in_their_order() -> None:
    with world_of(_stream(batch=2)) as world:
        _changed(world, ("a", 1), ("a", 1), ("a", 2), ("b", 1))
        world.call("dynamodb", "DeleteItem", {"TableName": "changed", "Key": {"id": {"S": "a"}}})
        world.kernel.run(until=world.kernel.now + 60 * SECOND)

        assert _bodies(world, "out") == ["INSERT a 1", "MODIFY a 2", "INSERT b 1", "REMOVE a None"]
        assert world.streams.waiting() == {}


def test_filters_select_changes() -> None:
    with world_of(_stream(patterns=({"eventName": ["INSERT"]},))) as world:
        _changed(world, ("a", 1), ("a", 2), ("b", 1))
        assert _bodies(world, "out") == ["INSERT a 1", "INSERT b 1"]


@pytest.mark.parametrize("name", ["bad", "worse"])
def test_a_change_that_fails_holds_back_the_others_until_it_is_discarded(name: str) -> None:
    with world_of(_stream(partial=True, retries=2, batch=1)) as world:
        _changed(world, ("a", 1), (name, 1), ("b", 1))
        assert _bodies(world, "out") == ["INSERT a 1", *[f"INSERT {name} 1"] * 3, "INSERT b 1"]


def test_changes_that_are_too_old_are_discarded() -> None:
    with world_of(_stream(partial=True, max_age=60, batch=1)) as world:
        _changed(world, ("bad", 1))
        assert world.streams.waiting() == {"changed": 1}
        world.kernel.run(until=world.kernel.now + 120 * SECOND)
        assert world.streams.waiting() == {}


def test_a_fifo_queue_keeps_the_order_of_a_group_and_drops_repetitions() -> None:
    made = blueprint()
    made.queues["q.fifo"] = QueueSpec(name="q.fifo", fifo=True)
    with world_of(made) as world:
        url = world.queues.queue("q.fifo").spec.url

        def send(body: str, group: str, told: str) -> str:
            params = {"QueueUrl": url, "MessageBody": body, "MessageGroupId": group, "MessageDeduplicationId": told}
            return str(world.call("sqs", "SendMessage", params)["MessageId"])

        first = send("1", "g", "d1")
        assert send("1", "g", "d1") == first
        send("2", "g", "d2")
        send("3", "h", "d3")
        receive = {"QueueUrl": url, "MaxNumberOfMessages": 1}
        got = [world.call("sqs", "ReceiveMessage", receive)["Messages"][0]["Body"] for _ in range(2)]
        assert got == ["1", "3"]  # of the first group nothing, while a message of it is hidden
        with pytest.raises(ServiceError, match="MessageGroupId"):
            world.call("sqs", "SendMessage", {"QueueUrl": url, "MessageBody": "x"})


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ({"source": ["aws.states"]}, True),
        ({"source": ["other"]}, False),
        ({"detail": {"status": ["FAILED", "ABORTED"]}}, True),
        ({"detail": {"status": [{"prefix": "FAI"}], "name": [{"exists": True}]}}, True),
        ({"detail": {"status": [{"anything-but": ["FAILED"]}]}}, False),
        ({"detail": {"missing": [{"exists": False}]}}, True),
    ],
)
def test_patterns_select_events(pattern: dict[str, Any], fits: bool) -> None:
    assert matches(pattern, {"source": "aws.states", "detail": {"status": "FAILED", "name": "run"}}) is fits


def test_an_unknown_pattern_is_reported() -> None:
    with pytest.raises(NotSimulatedError, match="numeric"):
        matches({"detail": {"amount": [{"numeric": [">", 5]}]}}, {"detail": {"amount": 6}})


def test_a_rule_sends_the_text_of_its_template() -> None:
    made = blueprint()
    made.queues["q"] = QueueSpec(name="q")
    target = TargetSpec(arn=made.queues["q"].arn, paths={"n": "$.detail.name"}, template='{"name":<n>,"x":1}')
    rule = RuleSpec(name="rule", bus="default", pattern={"source": ["me"]}, every=None, targets=(target,))
    made.rules.append(rule)
    with world_of(made) as world:
        world.events.publish("default", "me", "Something", {"name": 'a "quoted" one'})
        world.events.publish("default", "you", "Something", {})
        world.kernel.run(until=START + SECOND)
        assert [json.loads(body) for body in _bodies(world, "q")] == [{"name": 'a "quoted" one', "x": 1}]


def test_an_event_that_was_put_reaches_a_queue_and_counts_until_then() -> None:
    made = blueprint()
    made.queues["q"] = QueueSpec(name="q")
    targets = (TargetSpec(arn=made.queues["q"].arn),)
    made.rules += [
        RuleSpec(name=source, bus="default", pattern={"source": [source]}, every=None, targets=targets)
        for source in ("me", "aws.states")
    ]
    climate = Climate(events={Event.EVENT_LOST: 1.0, Event.EVENT_LATE: 1.0}, ends=START + SECOND)
    with world_of(made, climate) as world:
        for rule in made.rules:
            world.events.publish("default", rule.name, "Something", {})
        assert world.events.waiting() == {"me": 1}
        world.kernel.run(until=START + 86_400 * SECOND)
        assert world.events.waiting() == {}
        assert [json.loads(body)["source"] for body in _bodies(world, "q")] == ["me"]


def test_a_schedule_that_finds_nothing_to_do_slows_down() -> None:
    made = blueprint(tick="def handler(event, context):\n    return None\n")
    targets = (TargetSpec(arn=function_arn("tick"), constant="{}"),)
    made.rules.append(RuleSpec(name="rule", bus="default", pattern=None, every=60, targets=targets))
    with world_of(made) as world:
        world.kernel.run(until=START + 3_600 * SECOND)
        assert 4 <= world.functions._numbers["tick"] <= 10


# --- Permissions


@pytest.mark.parametrize(
    ("action", "resource", "allowed"),
    [
        ("dynamodb:PutItem", "arn:aws:dynamodb:r:1:table/t", True),
        ("dynamodb:putitem", "arn:aws:dynamodb:r:1:table/t", True),
        ("dynamodb:DeleteItem", "arn:aws:dynamodb:r:1:table/t", False),
        ("dynamodb:PutItem", "arn:aws:dynamodb:r:1:table/other", False),
        ("sqs:SendMessage", "arn:aws:sqs:r:1:any", True),
        ("sqs:SendMessage", "arn:aws:sqs:r:1:secret", False),
    ],
)
def test_a_role_has_the_permissions_of_its_policies(action: str, resource: str, allowed: bool) -> None:
    statements: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": ["dynamodb:PutItem"], "Resource": "arn:aws:dynamodb:r:1:table/t"},
        {"Effect": "Allow", "Action": "sqs:Send*", "Resource": "*"},
        {"Effect": "Deny", "Action": "sqs:*", "Resource": "arn:aws:sqs:r:1:secret"},
    ]
    assert Roles({"role": statements}).allows("role", Demand(action, resource)) is allowed


@pytest.mark.parametrize(
    ("condition", "context", "allowed"),
    [
        ({"ForAllValues:StringLike": {"k": ["mail#*"]}}, {"k": ("mail#1",)}, True),
        ({"ForAllValues:StringLike": {"k": ["mail#*"]}}, {"k": ("mail#1", "order#1")}, False),
        ({"ForAllValues:StringLike": {"k": ["mail#*"]}}, {}, True),
        ({"StringEqualsIfExists": {"k": "a"}}, {}, True),
        ({"StringEquals": {"k": "a"}}, {}, False),
        ({"StringNotEquals": {"k": "a"}}, {"k": ("b",)}, True),
    ],
)
def test_conditions_count(condition: dict[str, Any], context: dict[str, tuple[str, ...]], allowed: bool) -> None:
    statement = {"Effect": "Allow", "Action": "*", "Resource": "*", "Condition": condition}
    assert Roles({"role": [statement]}).allows("role", Demand("a:B", "arn", tuple(context.items()))) is allowed


def test_a_call_that_its_role_does_not_allow_is_denied_and_found() -> None:
    source = (
        "import boto3\n"
        "def handler(event, context):\n"
        "    boto3.client('sqs').send_message(QueueUrl='https://sqs/1/q', MessageBody='x')\n"
    )
    made = blueprint()
    made.queues["q"] = QueueSpec(name="q")
    made.roles["narrow"] = []
    add_function(made, "send", source, role="narrow")
    with world_of(made) as world:
        outcome = world.functions.invoke("send", "{}")
        world.kernel.run(ended=lambda: outcome.done)
        assert outcome.value().error == "ClientError" or "AccessDenied" in str(outcome.value().error)
        assert "sqs:SendMessage" in world.findings.found[0].text


# --- APIs and secrets

SECRET = "arn:aws:secretsmanager:r:1:secret:signing"


def _api(source: str, climate: Climate) -> list[Response]:
    made = blueprint(door=source)
    routes = (
        RouteSpec(method="GET", path="/things/{id}", function="door", authorization="AWS_IAM"),
        RouteSpec(method="POST", path="/open", function="door", authorization="NONE"),
    )
    made.apis["api"] = ApiSpec(id="api", stage="v1", routes=routes)
    found: list[Response] = []
    with world_of(made, climate) as world:
        actor = world.actor("client")

        def ask() -> None:
            for method, path, user in (
                ("GET", "/things/7?x=1", "ann"),
                ("GET", "/things/7", None),
                ("POST", "/open", None),
                ("GET", "/nothing", "ann"),
            ):
                found.append(world.gateway.send(actor, method, path, user=user))

        world.kernel.spawn(actor, ask)
        world.kernel.run(until=START + 120 * SECOND)
    return found


def test_a_request_becomes_a_proxy_event() -> None:
    source = """
import json
def handler(event, context):
    told = [event["httpMethod"], event["pathParameters"], event["queryStringParameters"],
            event["requestContext"]["identity"].get("caller")]
    return {"statusCode": 200, "headers": {"X-Seen": "1"}, "body": json.dumps(told)}
"""
    responses = _api(source, Climate())
    assert [response.status for response in responses] == [200, 403, 200, 403]
    assert responses[0].json() == ["GET", {"id": "7"}, {"x": "1"}, "AIDAann"]
    assert responses[0].headers == {"x-seen": "1"}
    assert responses[2].json() == ["POST", None, None, None]


def test_an_api_with_binary_types_passes_bodies_in_base64() -> None:
    source = """
import base64
def handler(event, context):
    assert event["isBase64Encoded"]
    return {"statusCode": 200, "body": base64.b64decode(event["body"]).decode()}
"""
    made = blueprint(door=source)
    route = RouteSpec(method="POST", path="/", function="door", authorization="NONE")
    made.apis["api"] = ApiSpec(id="api", stage="v1", binary=True, routes=(route,))
    found: list[Response] = []
    with world_of(made) as world:
        actor = world.actor("client")
        world.kernel.spawn(actor, lambda: found.append(world.gateway.send(actor, "POST", "/", body="grüezi")))
        world.kernel.run(until=START + 120 * SECOND)
    assert [response.body for response in found] == ["grüezi"]


def test_provider_signs_with_the_former_secret_until_it_learns_the_new_one() -> None:
    made = blueprint()
    made.secrets.append(SECRET)
    with world_of(made, Climate(events={Event.ROTATION: 1.0}, ends=START + 60 * SECOND)) as world:
        former = world.secrets.signing(SECRET)
        world.rotate(SECRET)
        versions = world.secrets.versions[SECRET]
        assert versions["AWSPREVIOUS"].text == former == world.secrets.signing(SECRET)
        world.kernel.run(until=START + 3_600 * SECOND)
        assert world.secrets.signing(SECRET) == versions["AWSCURRENT"].text != former
        world.rotate(SECRET)  # the faults are over
        assert world.secrets.signing(SECRET) == versions["AWSCURRENT"].text


def test_provider_that_learns_of_an_earlier_secret_late_signs_with_the_latest() -> None:
    made = blueprint()
    made.secrets.append(SECRET)
    with world_of(made) as world:
        world.secrets.rotate(SECRET, "second", lag=60 * SECOND)
        world.kernel.run(until=START + SECOND)
        world.secrets.rotate(SECRET, "third", lag=SECOND)
        world.kernel.run(until=START + 120 * SECOND)
        assert world.secrets.signing(SECRET) == "third"


def test_a_secrets_version_has_the_time_of_its_creation() -> None:
    made = blueprint()
    made.secrets.append(SECRET)
    with world_of(made) as world:
        before = world.secrets.call("GetSecretValue", {"SecretId": SECRET}, None)
        world.kernel.run(until=START + 60 * SECOND)
        world.secrets.put(SECRET, "new")
        current = world.secrets.call("GetSecretValue", {"SecretId": SECRET}, None)
        previous = world.secrets.call("GetSecretValue", {"SecretId": SECRET, "VersionStage": "AWSPREVIOUS"}, None)
    assert previous["SecretString"] == before["SecretString"]
    assert previous["CreatedDate"] == before["CreatedDate"]
    assert (current["CreatedDate"] - previous["CreatedDate"]).total_seconds() == 60


@pytest.mark.parametrize("source", ["def handler(event, context):\n    return 1\n", "raise ValueError('broken')\n"])
def test_a_function_without_a_response_is_a_502(source: str) -> None:
    assert _api(source, Climate())[0].status == 502


def test_a_function_that_takes_too_long_is_a_504() -> None:
    source = "import time\ndef handler(event, context):\n    time.sleep(14)\n    return {'statusCode': 200}\n"
    assert _api(source, Climate())[0].status == 200
    made = blueprint()
    add_function(made, "door", source.replace("14", "40"), timeout=60)
    made.apis["api"] = ApiSpec(
        id="api", stage="v1", routes=(RouteSpec(method="POST", path="/", function="door", authorization="NONE"),)
    )
    seen: list[int] = []
    with world_of(made) as world:
        actor = world.actor("client")
        world.kernel.spawn(actor, lambda: seen.append(world.gateway.send(actor, "POST", "/").status))
        world.kernel.run(until=START + 120 * SECOND)
    assert seen == [504]


# --- Faults at calls

CALL = """
import boto3
from botocore.config import Config

def handler(event, context):
    config = Config(retries={"mode": "standard", "total_max_attempts": 2})
    client = boto3.client("sqs", config=config)
    client.send_message(QueueUrl="https://sqs/1/q", MessageBody="x")
    return "sent"
"""


@pytest.mark.parametrize(
    ("trouble", "error", "messages"),
    [
        (Trouble.KILL_BEFORE, "Runtime.ExitError", (0, 0)),
        (Trouble.KILL_AFTER, "Runtime.ExitError", (1, 1)),
        (Trouble.LOSE_REQUEST, "ConnectionClosedError", (0, 0)),
        (Trouble.LOSE_ANSWER, "ConnectionClosedError", (2, 2)),
        (Trouble.THROTTLE, "ClientError", (0, 0)),
        (Trouble.ERROR_BEFORE, "ClientError", (0, 0)),
        (Trouble.ERROR_AFTER, "ClientError", (2, 2)),
        (Trouble.LATE_REQUEST, "ReadTimeoutError", (2, 2)),
    ],
)
def test_each_fault_has_its_effect(trouble: Trouble, error: str, messages: tuple[int, int]) -> None:
    made = blueprint()
    made.queues["q"] = QueueSpec(name="q")
    add_function(made, "call", CALL, timeout=300)
    climate = Climate(troubles={trouble: 1.0}, ends=START + 86_400 * SECOND)
    with world_of(made, climate) as world:
        outcome = world.functions.invoke("call", "{}")
        world.kernel.run(until=START + 3_600 * SECOND)
        least, most = messages
        assert outcome.value().error == error or error == "ClientError"
        assert least <= len(_bodies(world, "q")) <= most
        assert sum(world.weather.hit.values()) >= 1


def test_a_request_may_arrive_when_its_sender_is_dead() -> None:
    made = blueprint()
    made.queues["q"] = QueueSpec(name="q")
    add_function(made, "call", CALL, timeout=2)
    climate = Climate(troubles={Trouble.LATE_REQUEST: 1.0}, ends=START + 86_400 * SECOND)
    with world_of(made, climate) as world:
        outcome = world.functions.invoke("call", "{}")
        world.kernel.run(ended=lambda: outcome.done)
        assert outcome.value().error == "Sandbox.Timedout"
        world.kernel.run(until=START + 3_600 * SECOND)
        assert len(_bodies(world, "q")) == 1


def test_time_to_live_deletes_expired_items_late_and_no_others() -> None:
    made = blueprint(handle=HANDLE)
    made.tables["t"] = TableSpec(name="t", keys=("id",), kinds=("S",), ttl="until")
    hour, begin = 3_600 * SECOND, START // SECOND
    with world_of(made, Climate(expiry_lag=24 * hour)) as world:
        for number in range(100):
            until = {"until": {"N": str(begin + (3_600 if number % 2 else 10**9))}}
            world.db.put("t", {"id": {"S": str(number)}, **(until if number else {})})
        left = []
        for hours in (1, 12, 24 * 14):
            world.kernel.run(until=START + hours * hour)
            left.append(len(world.table("t")))
        assert left[0] == 100
        assert 50 < left[1] < 100
        assert left[2] == 50


@pytest.mark.parametrize("operation", ["SendMessage", "DeleteMessage", "ChangeMessageVisibility"])
def test_batch_of_messages_needs_the_permission_of_one(operation: str) -> None:
    """Source: Amazon SQS API reference, ``AddPermission``."""
    params = {"QueueUrl": "https://sqs.us-east-1.amazonaws.com/123456789012/queue", "Entries": []}
    (of_batch,) = demands_of("sqs", f"{operation}Batch", params, str)
    (of_one,) = demands_of("sqs", operation, params, str)
    assert (of_batch.action, of_batch.resource) == (of_one.action, of_one.resource)
    assert of_one.action == f"sqs:{operation}"
