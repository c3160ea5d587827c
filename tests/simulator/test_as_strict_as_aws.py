"""The simulator refuses, leaves and reorders what AWS does, also where no emulator does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import boto3
import pytest
from aws_cdk import App, CfnResource, Fn, Stack
from botocore.exceptions import ClientError, ParamValidationError

from constructs_lib.testing.simulator.aws.dynamodb import DynamoDB
from constructs_lib.testing.simulator.aws.dynamodb.service import Prompt
from constructs_lib.testing.simulator.aws.dynamodb.tables import Index, KeySchema, Table
from constructs_lib.testing.simulator.deployment.blueprint import (
    ApiSpec,
    Blueprint,
    MappingSpec,
    QueueSpec,
    RouteSpec,
    RuleSpec,
    StreamSpec,
    TableSpec,
    TargetSpec,
)
from constructs_lib.testing.simulator.deployment.template import blueprint_of
from constructs_lib.testing.simulator.engine.actors import Actor, ActorKind
from constructs_lib.testing.simulator.engine.kernel import MILLISECOND, SECOND
from constructs_lib.testing.simulator.errors import NotSimulatedError, ServiceError
from constructs_lib.testing.simulator.faults.climate import CALM, Climate, Event, Trouble
from constructs_lib.testing.simulator.run import START
from constructs_lib.testing.simulator.world import World

from .examples import assembly_of
from .support import HOUR, add_machine, blueprint, execute, invoke, world_of

ALWAYS = Climate(troubles={Trouble.THROTTLE: 1.0}, ends=START + HOUR)
"""Each call, or a part of it, is refused for now."""


def _in(made: Blueprint, act: Callable[[World], Any], climate: Climate = CALM, *, seed: str = "1") -> Any:
    """Act as a caller in a world, and return what it made of it."""
    with world_of(made, climate, seed) as world:
        task = world.kernel.spawn(world.actor("caller"), lambda: act(world))
        world.kernel.run(until=START + HOUR)
        return task.ended.value()


def _code(call: Callable[..., Any], **given: Any) -> str:
    with pytest.raises(ClientError) as refused:
        call(**given)
    return str(refused.value.response["Error"]["Code"])


def _client(service: str) -> Any:
    make: Any = boto3.client
    return make(service)


# --- SDK


@pytest.mark.parametrize(
    ("service", "operation", "given"),
    [
        ("sqs", "send_message", {"QueueURL": "https://sqs/1/q", "MessageBody": "x"}),
        ("sqs", "send_message", {"QueueUrl": "https://sqs/1/q", "MessageBody": 1}),
        ("s3", "put_object", {"Bucket": "b", "Key": "k", "IfNotMatch": "*"}),
        ("stepfunctions", "start_execution", {"stateMachineArn": "arn", "input": {}}),
    ],
)
def test_parameters_that_an_sdk_does_not_send_are_refused(service: str, operation: str, given: dict[str, Any]) -> None:
    made = blueprint()
    made.queues["q"] = QueueSpec(name="q")
    made.buckets.append("b")

    def act(_world: World) -> None:
        with pytest.raises(ParamValidationError):
            getattr(_client(service), operation)(**given)

    _in(made, act)


# --- S3

_KEYS = ("s3:GetObject", "s3:PutObject")


def _bucket() -> Blueprint:
    made = blueprint()
    made.buckets.append("b")
    return made


@pytest.mark.parametrize(("lists", "codes"), [(False, ["AccessDenied", "403"]), (True, ["NoSuchKey", "404"])])
def test_who_may_not_list_a_bucket_does_not_learn_that_an_object_is_missing(lists: bool, codes: list[str]) -> None:
    made = _bucket()
    allowed: list[Mapping[str, Any]] = [{"Effect": "Allow", "Action": list(_KEYS), "Resource": "arn:aws:s3:::b/*"}]
    allowed += [{"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": "arn:aws:s3:::b"}] if lists else []
    made.roles["reader"] = allowed

    with world_of(made) as world:
        s3 = _client("s3")
        actor = Actor("reader", ActorKind.OUTSIDE, role="reader")
        calls = (s3.get_object, s3.head_object)
        task = world.kernel.spawn(actor, lambda: [_code(call, Bucket="b", Key="missing") for call in calls])
        world.kernel.run(until=START + HOUR)
        assert task.ended.value() == codes


def test_conditional_put_may_meet_another_one() -> None:
    def act(world: World) -> list[str]:
        world.weather.climate = ALWAYS
        return [_raw(world, "s3", "PutObject", Bucket="b", Key="k", Body=b"", IfNoneMatch="*") for _ in range(50)]

    codes = _in(_bucket(), act)
    assert codes == ["ConditionalRequestConflict"] * 50


def _raw(world: World, service: str, operation: str, **params: Any) -> str:
    """Code of a call that meets no fault on its way."""
    try:
        world.call(service, operation, params)
    except ServiceError as error:
        return error.code
    return "none"


@pytest.mark.parametrize("more", [{"IfMatch": '"1"'}, {"IfNoneMatch": '"1"'}, {"ContentMD5": "x"}])
def test_condition_that_is_not_simulated_is_refused(more: dict[str, str]) -> None:
    with world_of(_bucket()) as world, pytest.raises(NotSimulatedError):
        world.call("s3", "PutObject", {"Bucket": "b", "Key": "k", "Body": b"", **more})


def test_key_has_a_most_length() -> None:
    with world_of(_bucket()) as world:
        assert _raw(world, "s3", "PutObject", Bucket="b", Key="k" * 1_025, Body=b"") == "KeyTooLongError"


def test_version_of_a_secret_is_refused() -> None:
    with world_of(blueprint()) as world:
        world.secrets.put("arn:secret", "first")
        with pytest.raises(NotSimulatedError):
            world.call("secretsmanager", "GetSecretValue", {"SecretId": "arn:secret", "VersionId": "1"})


# --- EventBridge


def _event(detail: str = "{}", **more: str) -> dict[str, str]:
    return {"Source": "s", "DetailType": "t", "Detail": detail, **more}


def test_events_are_refused_one_by_one() -> None:
    with world_of(blueprint()) as world:
        entries = [_event(), _event(Source="aws.s3"), _event("NaN"), {"Source": "s", "Detail": "{}"}]
        answer = world.call("events", "PutEvents", {"Entries": entries})
        codes = [entry.get("ErrorCode") for entry in answer["Entries"]]
        assert codes == [None, "NotAuthorizedForSourceException", "MalformedDetail", "InvalidArgument"]
        assert answer["FailedEntryCount"] == 3
        assert len(world.events.put) == 1


@pytest.mark.parametrize("entries", [[], [_event()] * 11, [_event(json.dumps({"text": "x" * 131_072}))] * 2])
def test_events_of_a_request_have_limits(entries: list[dict[str, str]]) -> None:
    with world_of(blueprint()) as world:
        assert _raw(world, "events", "PutEvents", Entries=entries) == "ValidationException"


def test_some_events_of_a_request_are_refused_for_now() -> None:
    with world_of(blueprint(), ALWAYS) as world:
        answers = [world.call("events", "PutEvents", {"Entries": [_event()] * 3}) for _ in range(20)]
        assert {answer["FailedEntryCount"] for answer in answers} == {0, 1, 2, 3}
        assert sum(3 - answer["FailedEntryCount"] for answer in answers) == len(world.events.put)


@pytest.mark.parametrize(
    ("resource", "ends"), [("events:putEvents", "EventBridge.FailedEntry"), ("aws-sdk:eventbridge:putEvents", None)]
)
def test_refused_event_fails_its_task(resource: str, ends: str | None) -> None:
    made = blueprint()
    task = {
        "Type": "Task",
        "Resource": f"arn:aws:states:::{resource}",
        "Arguments": {"Entries": [{"Source": "s", "DetailType": "t", "Detail": "text"}]},
        "End": True,
    }
    add_machine(made, "m", {"StartAt": "A", "States": {"A": task}})
    with world_of(made) as world:
        assert execute(world, "m").get("error") == ends


# --- Step Functions

_WAIT = {"StartAt": "A", "States": {"A": {"Type": "Wait", "Seconds": 1, "End": True}}}


def test_executions_of_express_machines_are_neither_described_nor_listed() -> None:
    made = blueprint()
    machine = add_machine(made, "m", _WAIT, "EXPRESS")
    with world_of(made) as world:
        execution = world.call("stepfunctions", "StartExecution", {"stateMachineArn": machine})["executionArn"]
        for operation in ("DescribeExecution", "StopExecution", "RedriveExecution"):
            assert _raw(world, "stepfunctions", operation, executionArn=execution) == "InvalidArn"
        assert _raw(world, "stepfunctions", "ListExecutions", stateMachineArn=machine) == "StateMachineTypeNotSupported"


def test_state_machine_starts_no_standard_machine_synchronously() -> None:
    made = blueprint()
    machine = add_machine(made, "child", _WAIT)
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::aws-sdk:sfn:startSyncExecution",
        "Arguments": {"StateMachineArn": machine},
        "End": True,
    }
    add_machine(made, "m", {"StartAt": "A", "States": {"A": task}})
    with world_of(made) as world:
        assert execute(world, "m")["error"] == "StepFunctions.StateMachineTypeNotSupportedException"


def _express(app: App, resource: str) -> None:
    stack = Stack(app, "Express")
    task = {"Type": "Task", "Resource": f"arn:aws:states:::{resource}", "Arguments": {}, "End": True}
    definition = {"QueryLanguage": "JSONata", "StartAt": "A", "States": {"A": task}}
    CfnResource(
        stack,
        "Machine",
        type="AWS::StepFunctions::StateMachine",
        properties={"StateMachineType": "EXPRESS", "RoleArn": "role/r", "DefinitionString": json.dumps(definition)},
    )


@pytest.mark.parametrize("waits", [".sync", ".sync:2", ".waitForTaskToken"])
def test_express_machine_with_a_task_that_waits_is_refused(waits: str) -> None:
    assert blueprint_of(assembly_of(_express, "states:startExecution")).machines
    with pytest.raises(NotSimulatedError, match="a task that waits"):
        blueprint_of(assembly_of(_express, f"states:startExecution{waits}"))


def test_list_of_executions_is_behind() -> None:
    made = blueprint()
    machine = add_machine(made, "m", _WAIT)
    climate = Climate(events={Event.DESCRIBE_BEHIND: 1.0}, ends=START + HOUR)

    def listed(world: World) -> list[str]:
        answer = world.call("stepfunctions", "ListExecutions", {"stateMachineArn": machine})
        return [one["status"] for one in answer["executions"]]

    with world_of(made, climate) as world:
        world.call("stepfunctions", "StartExecution", {"stateMachineArn": machine, "name": "a"})
        seen = [listed(world)]
        for second in (10, 120):
            world.kernel.run(until=START + second * SECOND)
            seen.append(listed(world))
    assert seen == [[], ["RUNNING"], ["SUCCEEDED"]]


def test_asynchronous_express_execution_runs_again_at_once_or_later() -> None:
    made = blueprint()
    machine = add_machine(made, "m", _WAIT, "EXPRESS")
    climate = Climate(events={Event.EXPRESS_TWICE: 1.0}, ends=START + HOUR)
    apart = set()
    for seed in range(10):
        with world_of(made, climate, str(seed)) as world:
            world.call("stepfunctions", "StartExecution", {"stateMachineArn": machine, "input": '{"a": 1}'})
            world.kernel.run(until=START + HOUR)
            first, second = world.machines.executions.values()
            assert first.input == second.input
            assert first.context["Execution"]["Name"] == second.context["Execution"]["Name"]
            apart.add(second.started > (first.stopped or 0))
    assert apart == {False, True}


def test_status_event_has_input_and_output_if_they_are_small_together() -> None:
    made = blueprint()
    made.queues["q"] = QueueSpec(name="q")
    target = TargetSpec(arn=made.queues["q"].arn)
    made.rules.append(
        RuleSpec(name="r", bus="default", pattern={"source": ["aws.states"]}, every=None, targets=(target,))
    )
    add_machine(made, "m", {"StartAt": "A", "States": {"A": {"Type": "Pass", "End": True}}})
    told = {}
    for size in (100_000, 130_000):
        with world_of(made) as world:
            execute(world, "m", "x" * size)
            world.kernel.run(until=world.kernel.now + 10 * SECOND)
            bodies = [json.loads(message.body)["detail"] for message in world.queues.queue("q").messages]
            (ended,) = (detail for detail in bodies if detail["status"] == "SUCCEEDED")
            told[size] = [ended["input"] is not None, ended["output"] is not None]
    assert told == {100_000: [True, True], 130_000: [False, False]}


# --- Lambda and API Gateway


def test_result_that_utf_8_does_not_have_ends_the_process() -> None:
    made = blueprint(half="def handler(event, context):\n    return {'text': '\\ud83d'}\n")
    with world_of(made) as world:
        outcome = world.functions.invoke("half", "{}")
        world.kernel.run(until=world.kernel.now + 60 * SECOND)
        assert outcome.value().error == "Runtime.ExitError"


def test_result_that_utf_8_has_is_a_text() -> None:
    made = blueprint(whole="def handler(event, context):\n    return '\\U0001f600'\n")
    with world_of(made) as world:
        outcome = world.functions.invoke("whole", "{}")
        world.kernel.run(until=world.kernel.now + 60 * SECOND)
        assert json.loads(outcome.value().payload) == "\U0001f600"


def test_asynchronous_invocation_takes_a_megabyte() -> None:
    with world_of(blueprint(same="def handler(event, context):\n    return 1\n")) as world:
        given = {"FunctionName": "same", "Payload": json.dumps("x" * 1_048_576).encode()}
        assert _raw(world, "lambda", "Invoke", InvocationType="Event", **given) == "RequestTooLargeException"


def test_number_that_json_does_not_have_is_not_guessed() -> None:
    made = blueprint(odd="def handler(event, context):\n    return float('nan')\n")
    machine = add_machine(made, "m", {"StartAt": "A", "States": {"A": invoke("odd")}})
    with world_of(made) as world:
        assert _raw(world, "stepfunctions", "StartExecution", stateMachineArn=machine, input="NaN") == (
            "InvalidExecutionInput"
        )
        with pytest.raises(NotSimulatedError):
            execute(world, "m")


def test_request_that_lambda_refuses_is_too_large() -> None:
    made = blueprint(door="def handler(event, context):\n    return {'statusCode': 200}\n")
    route = RouteSpec(method="POST", path="/", function="door", authorization="NONE")
    made.apis["api"] = ApiSpec(id="api", stage="v1", routes=(route,))

    def act(world: World) -> list[int]:
        actor = world.actor("client")
        sizes = (1_000_000, 6_291_456)
        return [world.gateway.send(actor, "POST", "/", body="x" * size).status for size in sizes]

    assert _in(made, act) == [200, 413]


# --- SQS


def test_short_poll_may_find_nothing_and_a_long_one_finds_it() -> None:
    made = blueprint()
    made.queues["q"] = QueueSpec(name="q")
    climate = Climate(events={Event.MESSAGE_LATE: 1.0}, ends=START + HOUR)
    with world_of(made) as world:
        url = made.queues["q"].url
        world.call("sqs", "SendMessage", {"QueueUrl": url, "MessageBody": "m"})
        world.weather.climate = climate
        assert "Messages" not in world.call("sqs", "ReceiveMessage", {"QueueUrl": url})
        assert len(world.call("sqs", "ReceiveMessage", {"QueueUrl": url, "WaitTimeSeconds": 1})["Messages"]) == 1


_SEEN = """
import boto3

def handler(event, context):
    for record in event["Records"]:
        boto3.client("sqs").send_message(QueueUrl="https://sqs/1/out", MessageBody=record["body"])
"""


def test_fifo_message_that_a_function_handled_may_come_again() -> None:
    made = blueprint(seen=_SEEN)
    made.queues["out"], made.queues["in.fifo"] = QueueSpec(name="out"), QueueSpec(name="in.fifo", fifo=True)
    made.mappings.append(MappingSpec(queue="in.fifo", function="seen", batch=1, partial=False))
    climate = Climate(events={Event.MESSAGE_TWICE: 0.5}, ends=START + HOUR)
    with world_of(made, climate) as world:
        for body in "abc":
            given = {"MessageBody": body, "MessageGroupId": "g", "MessageDeduplicationId": body}
            world.call("sqs", "SendMessage", {"QueueUrl": made.queues["in.fifo"].url, **given})
        world.kernel.run(until=START + HOUR)
        bodies = [message.body for message in world.queues.queue("out").messages]
        assert len(bodies) > 3
        assert "".join(dict.fromkeys(bodies)) == "abc"
        assert world.queues.queue("in.fifo").messages == []


def _sources(app: App, name: str, value: str) -> None:
    stack = Stack(app, "Sources")
    CfnResource(stack, "Queue", type="AWS::SQS::Queue")
    key = {"AttributeName": "id", "KeyType": "HASH"}
    CfnResource(
        stack,
        "Table",
        type="AWS::DynamoDB::Table",
        properties={
            "KeySchema": [key],
            "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
            "StreamSpecification": {"StreamViewType": "NEW_IMAGE"},
        },
    )
    for number, arn in enumerate((Fn.get_att("Queue", "Arn"), Fn.get_att("Table", "StreamArn"))):
        CfnResource(
            stack,
            f"Source{number}",
            type="AWS::Lambda::EventSourceMapping",
            properties={"EventSourceArn": arn.to_string(), "FunctionName": "f", name: json.loads(value)},
        )


@pytest.mark.parametrize(
    ("name", "value", "maps", "told"),
    [
        ("Enabled", "false", False, False),
        ("Enabled", "true", True, False),
        ("ParallelizationFactor", "1", True, False),
        ("ParallelizationFactor", "2", True, True),
        ("BisectBatchOnFunctionError", "true", True, True),
    ],
)
def test_options_of_event_sources_count_or_are_listed(name: str, value: str, maps: bool, told: bool) -> None:
    made = blueprint_of(assembly_of(_sources, name, value))
    assert [bool(made.mappings), bool(made.streams)] == [maps, maps]
    assert any("event source Source1: " in text for text in made.left_out) is told


# --- DynamoDB


class _Timing(Prompt):
    """Timing of indexes and reads that are a second behind, and of batches of which the first entry alone is done."""

    def index_lag(self) -> int:
        return 1_000_000

    def unprocessed(self) -> float:
        return 0.67


class _Clock:
    now = 5_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def db(clock: _Clock) -> DynamoDB:
    found = DynamoDB(clock)
    schema = KeySchema(names=("of", "id"), kinds=("S", "S"))
    index = Index(name="i", schema=KeySchema(names=("of", "n"), kinds=("S", "N")), projected=None)
    found.tables["t"] = Table(name="t", arn="arn:t", schema=schema, indexes={"i": index})
    return found


def _item(name: str, n: int = 0) -> dict[str, Any]:
    return {"of": {"S": "p"}, "id": {"S": name}, "n": {"N": str(n)}}


_QUERY = {"KeyConditionExpression": "#of = :of", "ExpressionAttributeNames": {"#of": "of"}}
_OF = {"ExpressionAttributeValues": {":of": {"S": "p"}}}


@pytest.mark.parametrize(("operation", "asked"), [("Query", {**_QUERY, **_OF}), ("Scan", {})])
def test_read_that_is_not_consistent_sees_what_was_there(
    db: DynamoDB, clock: _Clock, operation: str, asked: dict[str, Any]
) -> None:
    def seen(**more: Any) -> list[str]:
        answer: Any = db.call(operation, {"TableName": "t", **asked, **more})
        return [item["id"]["S"] + item["n"]["N"] for item in answer["Items"]]

    for name in ("changed", "deleted"):
        db.put("t", _item(name))
    clock.now += 2_000_000
    db.timing = _Timing()
    db.put("t", _item("changed", 1))
    db.put("t", _item("made"))
    db.call("DeleteItem", {"TableName": "t", "Key": {"of": {"S": "p"}, "id": {"S": "deleted"}}})
    assert seen() == ["changed0", "deleted0"]
    assert seen(ConsistentRead=True) == ["changed1", "made0"]
    clock.now += 2_000_000
    assert seen() == ["changed1", "made0"]


def test_index_may_know_a_later_write_of_another_item_first(db: DynamoDB, clock: _Clock) -> None:
    drawn = iter((False, True, True))
    db.tables["t"].indexes["i"].overtakes = lambda: next(drawn, False)
    for name, n in (("a", 1), ("b", 1), ("a", 2)):
        db.put("t", _item(name, n))
    db.timing = _Timing()

    def seen() -> list[str]:
        answer: Any = db.call("Query", {"TableName": "t", "IndexName": "i", **_QUERY, **_OF})
        return [item["id"]["S"] + item["n"]["N"] for item in answer["Items"]]

    # The second write of a does not overtake the first one.
    assert seen() == ["b1"]
    clock.now += 2_000_000
    assert seen() == ["b1", "a2"]


def test_batch_of_writes_leaves_some_of_them(db: DynamoDB) -> None:
    db.timing = _Timing()
    entries = [{"PutRequest": {"Item": _item(name)}} for name in "abc"]
    answer: Any = db.call("BatchWriteItem", {"RequestItems": {"t": entries}})
    assert answer == {"UnprocessedItems": {"t": entries[1:]}}
    assert db.items("t") == [_item("a")]


def test_batch_of_writes_leaves_what_a_transaction_holds(db: DynamoDB) -> None:
    db.tables["t"].locks.add(("p", "b"))
    entries = [{"PutRequest": {"Item": _item(name)}} for name in "abc"]
    answer: Any = db.call("BatchWriteItem", {"RequestItems": {"t": entries}})
    assert answer == {"UnprocessedItems": {"t": [entries[1]]}}


def test_batch_of_writes_that_is_refused_writes_nothing(db: DynamoDB) -> None:
    entries: list[Any] = [{"PutRequest": {"Item": _item("a")}}, {"PutRequest": {"Item": {"id": {"S": "b"}}}}]
    with pytest.raises(ServiceError, match="Missing the key"):
        db.call("BatchWriteItem", {"RequestItems": {"t": entries}})
    assert db.items("t") == []


def _table() -> Blueprint:
    made = blueprint()
    made.tables["t"] = TableSpec(name="t", keys=("id",), kinds=("S",))
    return made


def test_throttled_transaction_is_cancelled_for_one_of_its_items() -> None:
    put = {"Put": {"TableName": "t", "Item": {"id": {"S": "a"}}}}

    def act(_world: World) -> set[tuple[str, ...]]:
        found: set[tuple[str, ...]] = set()
        for _ in range(20):
            with pytest.raises(ClientError) as refused:
                _client("dynamodb").transact_write_items(TransactItems=[put])
            answer: Any = refused.value.response
            found.add((answer["Error"]["Code"], *(one["Code"] for one in answer.get("CancellationReasons", ()))))
        return found

    found = _in(_table(), act, ALWAYS)
    assert found >= {
        ("TransactionCanceledException", "ThrottlingError"),
        ("TransactionCanceledException", "ProvisionedThroughputExceeded"),
    }


def test_transaction_that_reads_meets_another_one() -> None:
    get = {"Get": {"TableName": "t", "Key": {"id": {"S": "a"}}}}
    climate = Climate(troubles={Trouble.CONFLICT: 1.0}, ends=START + HOUR)
    code = _in(_table(), lambda _: _code(_client("dynamodb").transact_get_items, TransactItems=[get]), climate)
    assert code == "TransactionCanceledException"


_CHANGES = """
import boto3

def handler(event, context):
    for record in event["Records"]:
        image = record["dynamodb"]["NewImage"]
        boto3.client("sqs").send_message(QueueUrl="https://sqs/1/out", MessageBody=image["id"]["S"] + image["n"]["N"])
"""


def test_changes_of_two_items_may_come_in_another_order() -> None:
    made = blueprint(changes=_CHANGES)
    made.tables["t"] = TableSpec(name="t", keys=("id",), kinds=("S",))
    made.queues["out"] = QueueSpec(name="out")
    made.streams.append(StreamSpec(table="t", function="changes", view="NEW_IMAGE", batch=1))
    climate = Climate(latency=10 * MILLISECOND, ends=START + HOUR)
    orders = set()
    for seed in range(20):
        with world_of(made, climate, str(seed)) as world:
            for number in range(3):
                for name in "abcd":
                    item = {"id": {"S": name}, "n": {"N": str(number)}}
                    world.call("dynamodb", "PutItem", {"TableName": "t", "Item": item})
            world.kernel.run(until=START + HOUR)
            bodies = [message.body for message in world.queues.queue("out").messages]
            assert len(bodies) == 12
            orders.add(tuple(body[0] for body in bodies))
            for name in "abcd":
                assert [body for body in bodies if body[0] == name] == [f"{name}{number}" for number in range(3)]
    assert len(orders) > 1
