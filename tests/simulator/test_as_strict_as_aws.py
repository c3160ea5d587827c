"""The simulator refuses, leaves and reorders what AWS does, also where no emulator does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
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
    AsyncSpec,
    Blueprint,
    BucketSpec,
    ExpirationSpec,
    MappingSpec,
    QueueSpec,
    RequestChecks,
    RouteSpec,
    RuleSpec,
    StreamSpec,
    TableSpec,
    TargetSpec,
)
from constructs_lib.testing.simulator.deployment.deployment import Deployment
from constructs_lib.testing.simulator.deployment.template import blueprint_of
from constructs_lib.testing.simulator.engine.actors import Actor, ActorKind
from constructs_lib.testing.simulator.engine.kernel import MILLISECOND, SECOND
from constructs_lib.testing.simulator.errors import NotSimulatedError, ServiceError
from constructs_lib.testing.simulator.faults.climate import CALM, Climate, Event, Trouble
from constructs_lib.testing.simulator.run import START
from constructs_lib.testing.simulator.world import World

from .examples import assembly_of
from .support import HOUR, add_function, add_machine, blueprint, execute, invoke, world_of

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
    made.buckets["b"] = BucketSpec(name="b")

    def act(_world: World) -> None:
        with pytest.raises(ParamValidationError):
            getattr(_client(service), operation)(**given)

    _in(made, act)


# --- S3

_KEYS = ("s3:GetObject", "s3:PutObject")


def _bucket() -> Blueprint:
    made = blueprint()
    made.buckets["b"] = BucketSpec(name="b")
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


# --- Lifecycles

_EXPIRES = ExpirationSpec(days=1, prefix="short/")
DAY = 24 * HOUR


def _keys_at(world: World, moment: int) -> set[str]:
    world.kernel.run(until=moment)
    listed = world.call("s3", "ListObjectsV2", {"Bucket": "b"})
    return {one["Key"] for one in listed.get("Contents", ())}


def _put(world: World, *keys: str) -> None:
    for key in keys:
        world.call("s3", "PutObject", {"Bucket": "b", "Key": key, "Body": b"1"})


def test_object_expires_with_the_midnight_that_follows_its_days() -> None:
    made = blueprint()
    made.buckets["b"] = BucketSpec(name="b", expirations=(_EXPIRES, ExpirationSpec(days=3)))
    with world_of(made, Climate(expiry_lag=0)) as world:
        _put(world, "short/at-midnight")
        world.kernel.run(until=START + HOUR)
        _put(world, "short/later", "short/written-again", "long")
        assert _keys_at(world, START + DAY - SECOND) >= {"short/at-midnight"}
        assert _keys_at(world, START + DAY + HOUR) == {"short/later", "short/written-again", "long"}
        _put(world, "short/written-again")
        assert _keys_at(world, START + 2 * DAY - SECOND) == {"short/later", "short/written-again", "long"}
        assert _keys_at(world, START + 2 * DAY + HOUR) == {"short/written-again", "long"}
        assert _raw(world, "s3", "GetObject", Bucket="b", Key="short/later") == "NoSuchKey"
        assert _keys_at(world, START + 4 * DAY - SECOND) == {"long"}
        assert _keys_at(world, START + 4 * DAY + HOUR) == set()


def test_object_that_has_expired_is_deleted_later() -> None:
    made = blueprint()
    made.buckets["b"] = BucketSpec(name="b", expirations=(_EXPIRES,))
    with world_of(made, Climate(expiry_lag=24 * HOUR)) as world:
        keys = {f"short/{number}" for number in range(100)}
        _put(world, *keys)
        left = [len(_keys_at(world, START + days * DAY + HOUR)) for days in (1, 2, 10)]
        assert left[0] > 90 > left[1] > left[2]


def test_release_gives_a_bucket_a_lifecycle() -> None:
    later = _bucket()
    later.buckets["b"] = BucketSpec(name="b", expirations=(_EXPIRES,))
    with world_of(_bucket(), Climate(expiry_lag=0)) as world, Deployment(later) as release:
        _put(world, "short/object")
        world.provide(release)
        assert _keys_at(world, START + DAY - SECOND) == {"short/object"}
        assert _keys_at(world, START + DAY + HOUR) == set()


def test_releases_begin_no_second_sweep() -> None:
    later = _bucket()
    later.buckets["b"] = BucketSpec(name="b", expirations=(_EXPIRES,))
    moments: list[int] = []
    with world_of(later) as world, Deployment(later) as release, pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.weather, "deletes_expired", lambda _: moments.append(world.kernel.now))
        _put(world, "short/object")
        world.provide(release)
        world.kernel.run(until=START + 2 * DAY - SECOND)
    assert len(moments) == len(set(moments)) == 48


def _lifecycle(app: App, text: str) -> None:
    properties = {"LifecycleConfiguration": {"Rules": json.loads(text)}}
    CfnResource(Stack(app, "Lifecycle"), "Bucket", type="AWS::S3::Bucket", properties=properties)


_ON = {"Status": "Enabled"}


@pytest.mark.parametrize(
    ("rules", "expirations", "refused"),
    [
        ([{**_ON, "ExpirationInDays": 9}], (ExpirationSpec(days=9),), False),
        ([{**_ON, "ExpirationInDays": 9, "Prefix": "a/"}], (ExpirationSpec(days=9, prefix="a/"),), False),
        ([{"Status": "Disabled", "ExpirationInDays": 9, "TagFilters": []}], (), False),
        ([{**_ON, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}], (), False),
        ([{**_ON, "ExpirationInDays": 9, "TagFilters": []}], (ExpirationSpec(days=9),), True),
        ([{**_ON, "Transitions": []}], (), True),
    ],
)
def test_rules_of_a_lifecycle_are_read(rules: Any, expirations: tuple[ExpirationSpec, ...], refused: bool) -> None:
    made = blueprint_of(assembly_of(_lifecycle, json.dumps(rules)))
    (bucket,) = made.buckets.values()
    assert (bucket.expirations, bucket.refused is not None, made.left_out != []) == (expirations, refused, refused)


# --- Secrets

SECRET = "arn:secret"


def _stages(world: World) -> tuple[str, ...]:
    """Values of the current and the previous version, or the code of the error."""
    found = []
    for stage in ("AWSCURRENT", "AWSPREVIOUS"):
        try:
            answer = world.call("secretsmanager", "GetSecretValue", {"SecretId": SECRET, "VersionStage": stage})
            found.append(str(answer["SecretString"]))
        except ServiceError as error:
            found.append(error.code)
    return tuple(found)


def _new_value(world: World, value: str) -> None:
    world.call("secretsmanager", "PutSecretValue", {"SecretId": SECRET, "SecretString": value})


def test_stages_of_a_secret_are_read_as_they_were_for_a_while() -> None:
    climate = Climate(secret_lag=10 * SECOND, ends=START + HOUR)
    seen = set()
    for seed in range(20):
        with world_of(blueprint(), climate, str(seed)) as world:
            world.secrets.put(SECRET, "a")
            assert _stages(world)[0] == "a"
            world.kernel.run(until=START + SECOND)
            _new_value(world, "b")
            for _ in range(11):
                seen.add(_stages(world))
                world.kernel.run(until=world.kernel.now + SECOND)
            assert _stages(world) == ("b", "a")
            for value in "cd":
                _new_value(world, value)
            seen.add(_stages(world))
            world.kernel.run(until=START + HOUR)
            assert _stages(world) == ("d", "c")
            _new_value(world, "e")  # the faults are over
            assert _stages(world) == ("e", "d")
    missing = "ResourceNotFoundException"
    assert seen == {("a", missing), ("b", missing), ("a", "a"), ("b", "a")}


def test_versions_of_a_secret_within_a_day_are_limited() -> None:
    with world_of(blueprint()) as world:
        world.secrets.put(SECRET, "0")
        for number in range(1, 100):
            _new_value(world, str(number))
        given = {"SecretId": SECRET, "SecretString": "100"}
        assert _raw(world, "secretsmanager", "PutSecretValue", **given) == "LimitExceededException"
        assert _stages(world) == ("99", "98")
        world.kernel.run(until=START + DAY)
        for number in range(100, 200):
            _new_value(world, str(number))
        assert _raw(world, "secretsmanager", "PutSecretValue", **given) == "LimitExceededException"


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


# --- Loops

_SENDS = """
import boto3

def handler(event, context):
    boto3.client("sqs").send_message(QueueUrl="https://sqs/1/{to}", MessageBody=context.function_name)
"""


def _loop(**functions: str) -> Blueprint:
    """Functions by name and queue, each of which receives from the queue of its name."""
    made = blueprint(**{name: _SENDS.format(to=to) for name, to in functions.items()})
    made.queues["dead"] = dead = QueueSpec(name="dead")
    for name in functions:
        made.queues[name] = QueueSpec(name=name, visibility=1, dead_letters=dead.arn, max_receives=3)
        made.mappings.append(MappingSpec(queue=name, function=name, batch=1, partial=False))
    return made


def _invocations(made: Blueprint, *sent: str) -> tuple[Counter[str], World]:
    """Send messages to queues, and count the invocations of each function."""
    counted: Counter[str] = Counter()
    with world_of(made) as world:
        world.calls.heard = lambda actor, _request: counted.update([actor.of])
        for queue in sent:
            world.call("sqs", "SendMessage", {"QueueUrl": made.queues[queue].url, "MessageBody": "m"})
        world.kernel.run(until=START + 30 * SECOND)
    return counted, world


def test_loop_of_a_function_and_its_queue_is_stopped() -> None:
    counted, world = _invocations(_loop(a="a"), "a")
    assert counted == {"a": 16}
    (message,) = world.queues.queue("dead").messages
    assert message.body == "a"


def test_loop_of_two_functions_is_stopped() -> None:
    assert _invocations(_loop(a="b", b="a"), "a")[0] == {"a": 16, "b": 16}


def test_each_message_has_its_own_chain() -> None:
    assert _invocations(_loop(a="a"), *["a"] * 3)[0] == {"a": 3 * 16}


def test_batch_continues_the_longest_chain() -> None:
    made = _loop(a="a")
    made.mappings = [replace(mapping, batch=2) for mapping in made.mappings]
    counted: Counter[str] = Counter()
    with world_of(made) as world:
        world.calls.heard = lambda actor, _request: counted.update([actor.of])
        url = made.queues["a"].url
        for chain in ({"a": 15}, {"a": 3}):
            sender = world.actor("sender")
            sender.chain = chain
            world.calls.direct("sqs", "SendMessage", {"QueueUrl": url, "MessageBody": "m"}, sender)
        world.kernel.run(until=START + HOUR)
        assert counted == {"a": 1}


def test_function_that_may_loop_is_not_stopped() -> None:
    made = _loop(a="a")
    made.functions["a"] = replace(made.functions["a"], may_loop=True)
    assert _invocations(made, "a")[0]["a"] > 100


def test_loop_by_way_of_a_dead_letter_queue_is_stopped() -> None:
    made = _loop(back="fails")
    add_function(made, "fails", "def handler(event, context):\n    raise RuntimeError\n")
    made.queues["fails"] = QueueSpec(name="fails", visibility=1, dead_letters=made.queues["back"].arn, max_receives=1)
    made.mappings.append(MappingSpec(queue="fails", function="fails", batch=1, partial=False))
    assert _invocations(made, "fails")[0] == {"back": 16}


def test_loop_by_way_of_an_event_is_not_stopped() -> None:
    made = _loop(a="a")
    source = """
import boto3

def handler(event, context):
    boto3.client("events").put_events(Entries=[{"Source": "s", "DetailType": "t", "Detail": "{}"}])
"""
    add_function(made, "a", source)
    target = TargetSpec(arn=made.queues["a"].arn)
    made.rules.append(RuleSpec(name="r", bus="default", pattern={"source": ["s"]}, every=None, targets=(target,)))
    assert _invocations(made, "a")[0]["a"] > 100


_BY_INVOKE = """
import boto3

def handler(event, context):
    sqs, functions = boto3.client("sqs"), boto3.client("lambda")
    sqs.send_message_batch(QueueUrl="https://sqs/1/out", Entries=[{"Id": "a", "MessageBody": "invoked"}])
    try:
        functions.invoke(FunctionName="a", InvocationType="TYPE", Payload=b"{}")
    except functions.exceptions.ClientError as error:
        sqs.send_message(QueueUrl="https://sqs/1/out", MessageBody=error.response["Error"]["Code"])
"""


@pytest.mark.parametrize(
    ("kind", "ends"), [("RequestResponse", ["RecursiveInvocationException"]), ("Event", ["failure"])]
)
def test_loop_of_invocations_is_stopped(kind: str, ends: list[str]) -> None:
    made = blueprint()
    add_function(made, "a", _BY_INVOKE.replace("TYPE", kind), timeout=30)
    made.queues |= {name: QueueSpec(name=name) for name in ("out", "failed")}
    made.asynchronous["a"] = AsyncSpec(on_failure=made.queues["failed"].arn)
    with world_of(made) as world:
        world.functions.invoke("a", "{}")
        world.kernel.run(until=START + HOUR)
        messages = world.queues.queue("out").messages
        bodies = [message.body for message in messages]
        bodies += ["failure" for _ in world.queues.queue("failed").messages]
    assert bodies == ["invoked"] * 16 + ends
    assert [message.chain for message in messages[:16]] == [{"a": number} for number in range(1, 17)]


_SENDS_AND_FAILS = _SENDS.format(to="out") + "    raise RuntimeError\n"


def test_asynchronous_invocation_continues_its_chain_when_it_is_tried_again() -> None:
    made = blueprint(fails=_SENDS_AND_FAILS)
    made.queues |= {name: QueueSpec(name=name) for name in ("out", "failed")}
    made.asynchronous["fails"] = AsyncSpec(on_failure=made.queues["failed"].arn)
    with world_of(made, Climate(events={Event.EVENT_TWICE: 1.0}, ends=START + 24 * HOUR)) as world:
        world.functions.invoke_later("fails", "{}", chain={"first": 1})
        world.kernel.run(until=START + 20 * HOUR)
        for name, messages in (("out", 6), ("failed", 2)):
            chains = [message.chain for message in world.queues.queue(name).messages]
            assert chains == [{"first": 1, "fails": 1}] * messages


def _looping(app: App, mode: str) -> None:
    properties = {
        "Code": {"ZipFile": ""},
        "Handler": "index.handler",
        "Runtime": "python3.12",
        "Role": "role/r",
        "RecursiveLoop": mode,
    }
    CfnResource(Stack(app, "Looping"), "Function", type="AWS::Lambda::Function", properties=properties)


@pytest.mark.parametrize(("mode", "may"), [("Allow", True), ("Terminate", False)])
def test_template_lets_a_function_loop(mode: str, may: bool) -> None:
    (function,) = blueprint_of(assembly_of(_looping, mode)).functions.values()
    assert function.may_loop is may


# --- What a REST API checks


def _answers(checks: RequestChecks, *requests: dict[str, Any]) -> list[tuple[int, str]]:
    made = blueprint(door="def handler(event, context):\n    return {'statusCode': 200}\n")
    route = RouteSpec(method="POST", path="/{id}", function="door", authorization="NONE", checks=checks)
    made.apis["api"] = ApiSpec(id="api", stage="v1", routes=(route,))

    def act(world: World) -> list[tuple[int, str]]:
        actor, found = world.actor("client"), []
        for request in requests:
            answer = world.gateway.send(actor, "POST", request.pop("path", "/1"), **request)
            found.append((answer.status, answer.body))
        return found

    answers: list[tuple[int, str]] = _in(made, act)
    return answers


def _with(**headers: str) -> dict[str, Any]:
    return {"headers": {name.replace("_", "-"): value for name, value in headers.items()}}


def test_request_needs_an_api_key() -> None:
    answers = _answers(
        RequestChecks(keys=frozenset({"known"})), {}, _with(X_Api_Key="another"), _with(X_Api_Key="known")
    )
    assert answers == [(403, '{"message":"Forbidden"}')] * 2 + [(200, "")]


def test_request_needs_its_parameters() -> None:
    checks = RequestChecks(parameters=("header.X-Name", "path.id", "querystring.q"))
    answers = _answers(
        checks, {}, _with(X_Name=""), {**_with(x_name="1"), "path": "/1?q="}, {**_with(x_name="1"), "path": "/1?q=1"}
    )
    both = '{"message":"Missing required request parameters: [X-Name, q]"}'
    one = '{"message":"Missing required request parameters: [q]"}'
    assert answers == [(400, both), (400, both), (400, one), (200, "")]


def test_body_must_be_json() -> None:
    checks = RequestChecks(json=frozenset({"application/json"}))
    kinds = ("application/json", "Application/JSON; charset=utf-8", "text/plain")
    requests = [{"headers": {"Content-Type": kind}, "body": "{"} for kind in kinds]
    answers = _answers(checks, *requests, {"body": "{"}, {"body": ""}, {"body": "1"})
    refused = (400, '{"message":"Invalid request body"}')
    assert answers == [refused, refused, (200, ""), refused, refused, (200, "")]


def test_body_of_every_type_must_be_json() -> None:
    ((status, _),) = _answers(RequestChecks(json=frozenset({"$default"})), {**_with(Content_Type="a/b"), "body": "{"})
    assert status == 400


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
