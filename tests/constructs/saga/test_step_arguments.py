"""Wrong arguments of the kinds of steps, and their messages: the value, and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import pytest
from aws_cdk import Aws, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

from constructs_lib import (
    ContinueWith,
    Effect,
    IdempotencyTable,
    Notify,
    PayloadBucket,
    Provider,
    Retry,
    SagaStateMachine,
    Step,
    StepGroup,
)
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.sagas import plain_function


class Shop:
    """Resources of steps, shared by all cases, since none of them reaches a saga of its own."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.fn = plain_function(stack, "Function")
        self.slow = plain_function(stack, "Slow", timeout=Duration.seconds(60))
        self.endless = plain_function(stack, "Endless", timeout=Duration.seconds(901))
        self.table = dynamodb.TableV2(
            stack, "Table", partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
        )
        self.bus = events.EventBus(stack, "Bus")
        self.fifo = sqs.Queue(stack, "Fifo", fifo=True)
        self.standard = sqs.Queue(stack, "Standard")
        self.requests = IdempotencyTable(stack, "Requests")
        self.sagas = 0
        arn = "arn:aws:lambda:eu-west-1:111111111111:function:theirs"
        self.theirs = lambda_.Function.from_function_arn(stack, "Theirs", arn)

    def atomic(self, name: str = "Move", **options: Any) -> Step:
        return Step.atomic(name, **{"fn": self.fn, **options})

    def external(self, name: str = "Charge", **options: Any) -> Step:
        return Step.external(name, **{"fn": self.fn, "provider": Provider(verify=True), **options})

    def writes(self, name: str = "Mark", **options: Any) -> Step:
        return Step.dynamodb(name, **{"table": self.table, "writes": [PUT], **options})

    def service(self, name: str = "Look", **options: Any) -> Step:
        call = {"service": "s3", "action": "getObject", "parameters": {}, "effect": Effect.READ, "policies": []}
        return Step.service(name, **{**call, **options})

    def event(self, name: str = "Announce", **options: Any) -> Step:
        return Step.event(name, **{"bus": self.bus, "source": "shop", "detail_type": "Paid", **options})

    def saga(self, *steps: Step | StepGroup, **options: Any) -> SagaStateMachine:
        self.sagas += 1
        return SagaStateMachine(
            self.stack, f"Saga{self.sagas}", **{"requests": self.requests, "steps": steps, **options}
        )


ACTIONS = ["ConditionCheck", "Delete", "Put", "Update"]
_PASSED: Mapping[str, Any] = {
    "StartAt": "Inner",
    "States": {"Inner": {"Type": "Pass", "Parameters": {"a": 1}, "End": True}},
}
PUT: Mapping[str, Any] = {"Put": {"Item": {"id": {"S": "x"}}}}
LONG = "R" * 40
Wrong = Callable[[Shop], Any]


@pytest.fixture(scope="module")
def shop(new_app: Callable[[], Any]) -> Shop:
    return Shop(Stack(new_app(), "Test"))


def _refused(wrong: Wrong, message: str, shop: Shop) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 -- the whole message is compared
        wrong(shop)
    assert str(raised.value) == message


# ---- actions of a service -------------------------------------------------------------------------------------------

WRITES = {
    "dynamodb": ("batchExecuteStatement", "batchWriteItem", "createTable", "deleteItem", "executeStatement",
                 "executeTransaction", "putItem", "transactWriteItems", "updateItem"),
    "s3": ("copyObject", "deleteObject", "deleteObjects", "putObject"),
    "sqs": ("deleteMessageBatch", "sendMessage", "sendMessageBatch"),
    "sns": ("publish", "publishBatch"),
    "eventbridge": ("putEvents",),
    "lambda": ("invoke", "invokeAsync"),
    "sfn": ("startExecution", "startSyncExecution"),
    "batch": ("batchDeleteJob",),
}  # fmt: skip
READS = {
    "dynamodb": ("batchGetItem", "describeTable", "getItem", "listTables", "query", "scan", "transactGetItems"),
    "s3": ("getObject", "headObject", "listObjectsV2", "selectObjectContent"),
    "ssm": ("getParameter",),
    "kms": ("decrypt", "verify"),
    "cloudtrail": ("lookupEvents",),
    "example": ("putting", "starter", "executed"),
}


@pytest.mark.parametrize(("service", "action"), [(name, one) for name, actions in WRITES.items() for one in actions])
def test_an_action_that_writes_is_refused_as_a_read(shop: Shop, service: str, action: str) -> None:
    instead = (
        "use Step.dynamodb, which writes the saga log row, too"
        if service == "dynamodb"
        else "declare Effect.IDEMPOTENT if it is, and place it after the pivot, or use Step.external"
    )
    told = f"action of step Look must only read, as its effect declares, got {action!r}; {instead}"
    _refused(lambda s: s.service(service=service, action=action), told, shop)
    if service != "dynamodb":
        shop.service(service=service, action=action, effect=Effect.IDEMPOTENT)


@pytest.mark.parametrize(("service", "action"), [(name, one) for name, actions in READS.items() for one in actions])
def test_an_action_that_may_only_read_is_accepted(shop: Shop, service: str, action: str) -> None:
    assert shop.service(service=service, action=action).direct is not None


# ---- names and conditions, which every kind has ---------------------------------------------------------------------

KINDS: dict[str, Callable[..., Step | StepGroup]] = {
    "atomic": lambda s, name, **o: s.atomic(name, **o),
    "external": lambda s, name, **o: s.external(name, **o),
    "read-only": lambda s, name, **o: Step.read_only(name, fn=s.fn, **o),
    "dynamodb": lambda s, name, **o: s.writes(name, **o),
    "service": lambda s, name, **o: s.service(name, **o),
    "event": lambda s, name, **o: s.event(name, **o),
    "custom": lambda s, name, **o: Step.custom(name, state={"Type": "Pass"}, **o),
    "notify": lambda s, name, **o: Step.notify(name, queue=s.fifo, **o),
    "express": lambda s, name, **o: Step.express(name, steps=[s.atomic()], **o),
    "child": lambda s, name, **o: Step.child(name, steps=[s.atomic()], timeout=Duration.minutes(9), **o),
    "parallel": lambda s, name, **o: Step.parallel(name, branches=[[s.atomic("A")], [s.atomic("B")]], **o),
    "map": lambda s, name, **o: Step.map(name, items="$request.i", key="$item.k", steps=[s.atomic()], **o),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["", " ", "move", "Mo ve", "Move\n", "M" * 41, "1Move", "Möve", "Undo-Move", "A?"])
def test_every_kind_refuses_an_invalid_name(shop: Shop, kind: str, name: str) -> None:
    with pytest.raises(ValueError, match=r"name must match \^\[A-Z\]\[A-Za-z0-9\]\{0,39\}\$, got .*; use PascalCase"):
        KINDS[kind](shop, name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when", ["", "  ", "{% %}"])
def test_every_kind_refuses_a_blank_condition(shop: Shop, kind: str, when: str) -> None:
    with pytest.raises(ValueError, match=r"^when of .*Any must be a JSONata condition, got ''; leave it out$"):
        KINDS[kind](shop, "Any", when=when)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_takes_a_condition_with_or_without_its_delimiters(shop: Shop, kind: str) -> None:
    assert KINDS[kind](shop, "Any", when="{% $request.a %}").when == "$request.a"
    assert KINDS[kind](shop, "Any", when="$request.a").when == "$request.a"


@pytest.mark.parametrize("kind", ["atomic", "external", "read-only"])
@pytest.mark.parametrize("argument", ["refusals", "transient"])
@pytest.mark.parametrize("name", ["", " ", "Sold out", "1Error", "E" * 101])
def test_names_of_errors_are_names(shop: Shop, kind: str, argument: str, name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{argument} of step Any must match .*; give the name of an error class$"):
        KINDS[kind](shop, "Any", **{argument: [name]})


@pytest.mark.parametrize(
    "error",
    [
        "SagaFenced",
        "StepInDoubt",
        "ManualResolutionRequired",
        "TransientError",
        "Conflict",
        "States.ALL",
        "States.TaskFailed",
        "States.Timeout",
    ],
)
def test_a_transient_error_cannot_be_a_refusal(shop: Shop, error: str) -> None:
    message = f"refusals of step Move must be permanent errors, got '{error}', which may pass; remove it"
    _refused(lambda s: s.atomic(refusals=[error]), message, shop)


@pytest.mark.parametrize(
    "error", ["SagaFenced", "StepInDoubt", "ManualResolutionRequired", "States.ALL", "States.Timeout", "Invalid"]
)
def test_errors_in_doubt_and_refusals_are_not_transient(shop: Shop, error: str) -> None:
    message = f"transient of step Move must be errors of your own that pass, got '{error}'; remove it"
    _refused(lambda s: s.atomic(transient=[error]), message, shop)


def test_a_refusal_of_your_own_is_not_transient_as_well(shop: Shop) -> None:
    message = "transient of step Move must be errors of your own that pass, got 'SoldOut'; remove it"
    _refused(lambda s: s.atomic(refusals=["SoldOut"], transient=["SoldOut"]), message, shop)


# ---- providers ------------------------------------------------------------------------------------------------------

PROVIDERS: dict[str, tuple[dict[str, Any], str]] = {
    "neither a key nor a question": (
        {},
        (
            "a provider needs idempotent_for or verify, got neither: a call that was cut off could never be decided; "
            "declare what the provider offers"
        ),
    ),
    "a grace of hours": (
        {"verify": True, "grace": Duration.seconds(3_601)},
        "grace must be 0 s to 3600 s, got 3601 s; choose a duration in that range",
    ),
    "clocks that are far apart": (
        {"verify": True, "max_clock_skew": Duration.seconds(61)},
        "max_clock_skew must be 0 s to 60 s, got 61 s; choose a duration in that range",
    ),
    "a window of seconds": (
        {"idempotent_for": Duration.seconds(59)},
        "idempotent_for must be 60 s to 31622400 s, got 59 s; choose a duration in that range",
    ),
    "an undo's window of seconds": (
        {"verify": True, "compensation_idempotent_for": Duration.seconds(59)},
        "compensation_idempotent_for must be 60 s to 31622400 s, got 59 s; choose a duration in that range",
    ),
    "short keys": (
        {"verify": True, "max_key_length": 35},
        (
            "max_key_length must be 36 or more, got 35: a shorter key would not be one step's alone; "
            "ask the provider for longer ones"
        ),
    ),
    "no keys": (
        {"verify": True, "max_key_length": 0},
        "max_key_length must be 1 to 1024, got 0; choose a number in that range",
    ),
}


@pytest.mark.parametrize("case", PROVIDERS)
def test_providers_refuse(shop: Shop, case: str) -> None:
    options, message = PROVIDERS[case]
    _refused(lambda _: Provider(**options), message, shop)


@pytest.mark.parametrize(
    "options", [{"verify": True}, {"idempotent_for": Duration.seconds(60)}, {"verify": True, "max_key_length": 36}]
)
def test_a_provider_that_offers_one_of_the_two_is_enough(options: dict[str, Any]) -> None:
    assert Provider(**options).grace.to_seconds() == 30


# ---- each kind ------------------------------------------------------------------------------------------------------

_WAITING = "arn:aws:states:::sqs:sendMessage.waitForTaskToken"
_NESTED = {"StartAt": "Inner", "States": {"Inner": {"Type": "Task", "Resource": "arn:x", "End": True}}}

STEPS: dict[str, tuple[Wrong, str]] = {
    "a compensation at a provider that nothing could decide": (
        lambda s: s.external(compensate=s.fn),
        (
            "the compensation of step Charge could never be decided when it is cut off: its provider has neither "
            "compensation_idempotent_for nor verify_undo; declare what the provider offers"
        ),
    ),
    "an imported function at a provider": (
        lambda s: s.external(fn=s.theirs),
        (
            "the timeout of fn of step Charge cannot be known; give the function a timeout, or declare "
            "fn_timeout for an "
            "imported one"
        ),
    ),
    "a function that may run for longer than Lambda lets it": (
        lambda s: Step.read_only("Quote", fn=s.endless),
        "fn_timeout of step Quote must be 1 s to 900 s, got 901 s; choose a duration in that range",
    ),
    "another timeout than the function's": (
        lambda s: Step.read_only("Quote", fn=s.slow, fn_timeout=Duration.seconds(59)),
        "fn_timeout of step Quote is 59 s, but the function's timeout is 60 s; leave fn_timeout out",
    ),
    "a read with a substitute": (
        lambda s: Step.read_only("Quote", fn=s.fn, on_error={"Invalid": ContinueWith()}),
        "step Quote only reads, and has nothing that ContinueWith could fence; let its function return another output",
    ),
    "a read by an imported function": (
        lambda s: Step.read_only("Quote", fn=s.theirs),
        (
            "the timeout of fn of step Quote cannot be known; give the function a timeout, or declare "
            "fn_timeout for an "
            "imported one"
        ),
    ),
    "no writes": (lambda s: s.writes(writes=[]), "step Mark must write something, got no writes; name at least one"),
    "too many writes": (
        lambda s: s.writes(writes=[PUT] * 100),
        "writes of step Mark may have 99 entries in addition to the log row, got 100; split the step",
    ),
    "too many writes to undo": (
        lambda s: s.writes(compensate=[PUT] * 100),
        "compensate of step Mark may have 99 entries in addition to the log row, got 100; split the step",
    ),
    "an invalid write": (
        lambda s: s.writes(writes=[{"Get": {}}]),
        f"writes[0] of step Mark must have one of {ACTIONS}, got ['Get']; write one action per entry",
    ),
    "two writes in one": (
        lambda s: s.writes(writes=[{"Put": {}, "Delete": {}}]),
        f"writes[0] of step Mark must have one of {ACTIONS}, got ['Delete', 'Put']; write one action per entry",
    ),
    "an empty write": (
        lambda s: s.writes(compensate=[{}]),
        f"compensate[0] of step Mark must have one of {ACTIONS}, got []; write one action per entry",
    ),
    "an attribute value that is a number": (
        lambda s: s.writes(writes=[{"Put": {"Item": {"id": {"S": "x"}, "amount": {"N": 1.5}}}}]),
        (
            "writes[0]['Put']['Item']['amount']['N'] of step Mark must be a number as text, got 1.5; write it so, or "
            "in {% %}"
        ),
    ),
    "a number that is not a number": (
        lambda s: s.writes(writes=[{"Put": {"Item": {"id": {"S": "x"}, "amount": {"N": "1,5"}}}}]),
        (
            "writes[0]['Put']['Item']['amount']['N'] of step Mark must be a number as text, got '1,5'; write it so, or "
            "in {% %}"
        ),
    ),
    "an attribute value without its type": (
        lambda s: s.writes(compensate=[{"Delete": {"Key": {"id": "x"}}}]),
        (
            "compensate[0]['Delete']['Key']['id'] of step Mark must be an attribute value, got 'x'; write one type, "
            'like {"S": "text"}'
        ),
    ),
    "an attribute value of two types": (
        lambda s: s.writes(writes=[{"Put": {"Item": {"id": {"S": "x", "N": "1"}}}}]),
        (
            "writes[0]['Put']['Item']['id'] of step Mark must be an attribute value, got {'S': 'x', 'N': '1'}; write "
            'one type, like {"S": "text"}'
        ),
    ),
    "an attribute value in a list of another": (
        lambda s: s.writes(writes=[{"Put": {"Item": {"id": {"M": {"a": {"L": [{"S": "x"}, {"BOOL": "no"}]}}}}}}]),
        (
            "writes[0]['Put']['Item']['id']['M']['a']['L'][1]['BOOL'] of step Mark must be True or False, got 'no'; "
            "write it so, or in {% %}"
        ),
    ),
    "an empty set": (
        lambda s: s.writes(writes=[{"Put": {"Item": {"id": {"SS": []}}}}]),
        ("writes[0]['Put']['Item']['id']['SS'] of step Mark must be a list of texts, got []; write it so, or in {% %}"),
    ),
    "a set of numbers": (
        lambda s: s.writes(writes=[{"Put": {"Item": {"id": {"NS": ["1", 2]}}}}]),
        (
            "writes[0]['Put']['Item']['id']['NS'] of step Mark must be a list of numbers as texts, got ['1', 2]; write "
            "it so, or in {% %}"
        ),
    ),
    "no attribute values": (
        lambda s: s.writes(writes=[{"Put": {"Item": {}}}]),
        "writes[0]['Put']['Item'] of step Mark must be a dict of attribute values, got {}; pass one",
    ),
    "a key without attribute values": (
        lambda s: s.writes(writes=[{"Update": {"Key": "x", "UpdateExpression": "SET a = b"}}]),
        "writes[0]['Update']['Key'] of step Mark must be a dict of attribute values, got 'x'; pass one",
    ),
    "no key": (
        lambda s: s.writes(writes=[{"Delete": {"Key": None}}]),
        "writes[0]['Delete']['Key'] of step Mark must be a dict of attribute values, got None; pass one",
    ),
    "digits of another script": (
        lambda s: s.writes(writes=[{"Delete": {"Key": {"id": {"N": "\u0661"}}}}]),
        (
            "writes[0]['Delete']['Key']['id']['N'] of step Mark must be a number as text, got '\u0661'; write it so, "
            "or in {% %}"
        ),
    ),
    "a member of no write": (
        lambda s: s.writes(writes=[{"Put": {"Item": {"id": {"S": "x"}}, "ConditionExpresion": "a = b"}}]),
        "writes[0]['Put'] of step Mark must have members that DynamoDB knows, got ['ConditionExpresion']; remove them",
    ),
    "two writes of one item": (
        lambda s: s.writes(
            writes=[PUT, {"Delete": {"Key": {"id": {"S": "y"}}}}, {"Delete": {"Key": {"id": {"S": "x"}}}}]
        ),
        "writes of step Mark must be of different items, got 0 and 2 of one; write both in one Update",
    ),
    "two puts of one item": (
        lambda s: s.writes(writes=[PUT, PUT]),
        "writes of step Mark must be of different items, got 0 and 1 of one; write both in one Update",
    ),
    "two writes of one expression's item": (
        lambda s: s.writes(compensate=[{"Delete": {"Key": {"id": {"S": "{% $output.a %}"}}}}] * 2),
        "compensate of step Mark must be of different items, got 0 and 1 of one; write both in one Update",
    ),
    "a table of its own": (
        lambda s: s.writes(writes=[{"Put": {"TableName": "t"}}]),
        "writes[0]['Put'] of step Mark must not name a table, got 't'; remove TableName",
    ),
    "a write that is not a dict": (
        lambda s: s.writes(writes=[PUT, {"Put": 5}]),
        "writes[1]['Put'] of step Mark must be a dict, got 5; pass a dict",
    ),
    "a write without what it writes": (
        lambda s: s.writes(writes=[{"Update": {"Key": {"id": {"S": "a"}}, "ConditionExpression": "x"}}]),
        "writes[0]['Update'] of step Mark must have ['UpdateExpression'], got ['ConditionExpression', 'Key']; add them",
    ),
    "a blank output of writes": (
        lambda s: s.writes(output="{% %}"),
        "output of step Mark must be a JSONata expression, got '{% %}'; leave it out",
    ),
    "an invalid service": (
        lambda s: s.service(service="S3"),
        (
            "service of step Look must match ^[a-z][a-z0-9]*$, got 'S3'; "
            "write it as in aws-sdk:<service>:<action>, e.g. s3"
        ),
    ),
    "a blank service": (
        lambda s: s.service(service=""),
        "service of step Look must match ^[a-z][a-z0-9]*$, got ''; write it as in aws-sdk:<service>:<action>, e.g. s3",
    ),
    "an invalid action": (
        lambda s: s.service(action="GetObject"),
        "action of step Look must match ^[a-z][A-Za-z0-9]*$, got 'GetObject'; write it in camelCase, e.g. getObject",
    ),
    "writes without their row": (
        lambda s: s.service(service="dynamodb", action="putItem", effect=Effect.IDEMPOTENT),
        "step Look writes to DynamoDB without its saga log row; use Step.dynamodb, which writes both at once",
    ),
    "a call without end": (
        lambda s: s.service(timeout=Duration.seconds(0)),
        "timeout of step Look must be 1 s to 86400 s, got 0 s; choose a duration in that range",
    ),
    "a blank output of a call": (
        lambda s: s.service(output=" "),
        "output of step Look must be a JSONata expression, got ' '; leave it out",
    ),
    "an event from nowhere": (
        lambda s: s.event(source=" "),
        "source of step Announce must have 1 to 128 characters, got ' '; choose a name",
    ),
    "an event of AWS": (
        lambda s: s.event(source="aws.orders"),
        "source of step Announce must not begin with aws., got 'aws.orders'; use a name like shop.orders",
    ),
    "an event of no type": (
        lambda s: s.event(detail_type=""),
        "detail_type of step Announce must have 1 to 128 characters, got ''; choose a name",
    ),
    "an event of a long type": (
        lambda s: s.event(detail_type="t" * 129),
        f"detail_type of step Announce must have 1 to 128 characters, got '{'t' * 129}'; choose a name",
    ),
    "a blank detail": (
        lambda s: s.event(detail=""),
        "detail of step Announce must be a JSONata expression, got ''; leave it out",
    ),
    "a choice of your own": (
        lambda s: Step.custom("Mine", state={"Type": "Choice"}),
        "state of step Mine must be one of ['Map', 'Parallel', 'Pass', 'Task', 'Wait'], got Type 'Choice'",
    ),
    "a state of no type": (
        lambda s: Step.custom("Mine", state={}),
        "state of step Mine must be one of ['Map', 'Parallel', 'Pass', 'Task', 'Wait'], got Type None",
    ),
    "a state with a next state": (
        lambda s: Step.custom("Mine", state={"Type": "Pass", "Next": "There", "Catch": []}),
        "state of step Mine must not have ['Catch', 'Next']: the saga decides where it leads; remove it",
    ),
    "fields of JSONPath": (
        lambda s: Step.custom("Mine", state={"Type": "Pass", "ResultPath": None, "InputPath": "$"}),
        (
            "state of step Mine must be in JSONata, got ['InputPath', 'ResultPath'] of JSONPath; use Arguments, Output "
            "and Assign"
        ),
    ),
    "fields of JSONPath in a state inside": (
        lambda s: Step.custom("Mine", state={"Type": "Map", "ItemProcessor": _PASSED}),
        (
            "state 'Inner' of step Mine must be in JSONata, got ['Parameters'] of JSONPath; use Arguments, Output and "
            "Assign"
        ),
    ),
    "a state in JSONPath": (
        lambda s: Step.custom("Mine", state={"Type": "Pass", "QueryLanguage": "JSONPath"}),
        "state of step Mine must be in JSONata, got 'JSONPath'; rewrite it",
    ),
    "a task without a timeout": (
        lambda s: Step.custom("Mine", state={"Type": "Task", "Resource": "arn:x"}),
        "state of step Mine is a Task and needs TimeoutSeconds, got 0: a task without one can hang for a year; add it",
    ),
    "a task inside without a timeout": (
        lambda s: Step.custom("Mine", state={"Type": "Parallel", "Branches": [_NESTED]}),
        (
            "state 'Inner' of step Mine is a Task and needs TimeoutSeconds, got 0: a task without one can "
            "hang for a year; "
            "add it"
        ),
    ),
    "a task for each item without a timeout": (
        lambda s: Step.custom("Mine", state={"Type": "Map", "ItemProcessor": _NESTED}),
        (
            "state 'Inner' of step Mine is a Task and needs TimeoutSeconds, got 0: a task without one can "
            "hang for a year; "
            "add it"
        ),
    ),
    "a callback without a heartbeat": (
        lambda s: Step.custom("Mine", state={"Type": "Task", "Resource": _WAITING, "TimeoutSeconds": 60}),
        (
            "state of step Mine waits for a callback and needs HeartbeatSeconds, got none: a callback that is "
            "lost would "
            "be noticed at its timeout only; add it"
        ),
    ),
    "a state that is not JSON": (
        lambda s: Step.custom("Mine", state={"Type": "Pass", "Output": {1, 2}}),
        "state of step Mine must be plain JSON: Object of type set is not JSON serializable",
    ),
    "a blank output of a state": (
        lambda s: Step.custom("Mine", state={"Type": "Pass"}, output=""),
        "output of step Mine must be a JSONata expression, got ''; leave it out",
    ),
}


@pytest.mark.parametrize("case", STEPS)
def test_steps_refuse(shop: Shop, case: str) -> None:
    _refused(*STEPS[case], shop)


# ---- groups ---------------------------------------------------------------------------------------------------------


def _map(shop: Shop, **options: Any) -> StepGroup:
    return Step.map(
        "Ship",
        **{"items": "$request.i", "key": "$item.k", "steps": [shop.atomic("Pack", compensate=shop.fn)], **options},
    )


GROUPS: dict[str, tuple[Wrong, str]] = {
    "a phase of nothing": (
        lambda s: Step.express("Quick", steps=[]),
        "Quick must hold at least one step in every branch, got an empty one; add a step",
    ),
    "a branch of nothing": (
        lambda s: Step.parallel("Both", branches=[[s.atomic()], []]),
        "Both must hold at least one step in every branch, got an empty one; add a step",
    ),
    "one branch": (
        lambda s: Step.parallel("Both", branches=[[s.atomic()]]),
        "Both needs two branches or more, got 1; put the steps into the saga",
    ),
    "a group in a group": (
        lambda s: Step.express("Quick", steps=[_map(s)]),  # type: ignore[list-item]
        (
            "steps[0] of step Quick must be a Step, got a StepGroup; "
            "put one next to the other: a group holds plain steps only"
        ),
    ),
    "an Express phase of six minutes": (
        lambda s: Step.express("Quick", steps=[s.atomic()], timeout=Duration.minutes(6)),
        "timeout of Quick must be 1 s to 300 s, got 360 s; choose a duration in that range",
    ),
    "a child of seconds": (
        lambda s: Step.child("Slow", steps=[s.atomic()], timeout=Duration.seconds(59)),
        "timeout of Slow must be 60 s to 31622400 s, got 59 s; choose a duration in that range",
    ),
    "no items at a time": (
        lambda s: _map(s, max_concurrency=0),
        "max_concurrency of Ship must be 1 to 40, got 0; choose a number in that range",
    ),
    "too many items at a time": (
        lambda s: _map(s, max_concurrency=41),
        "max_concurrency of Ship must be 1 to 40, got 41; choose a number in that range",
    ),
    "no items": (
        lambda s: _map(s, max_items=0),
        "max_items of Ship must be 1 to 1000, got 0; choose a number in that range",
    ),
    "too many items": (
        lambda s: _map(s, max_items=1_001),
        "max_items of Ship must be 1 to 1000, got 1001; choose a number in that range",
    ),
    "items from nowhere": (
        lambda s: _map(s, items=" "),
        "items of Ship must be a JSONata expression, got ''; write one",
    ),
    "items without a key": (
        lambda s: _map(s, key="{% %}"),
        "key of Ship must be a JSONata expression, got ''; write one",
    ),
}


@pytest.mark.parametrize("case", GROUPS)
def test_groups_refuse(shop: Shop, case: str) -> None:
    _refused(*GROUPS[case], shop)


# ---- sagas ----------------------------------------------------------------------------------------------------------

WAIT_6_MINUTES = {"Type": "Wait", "Seconds": 360}
QUEUED = {"Type": "Task", "Resource": _WAITING, "TimeoutSeconds": 60, "HeartbeatSeconds": 30}

SAGAS: dict[str, tuple[Wrong, str]] = {
    "a group with a step's name": (
        lambda s: s.saga(s.atomic("Quick", pivot=True), Step.express("Quick", steps=[s.atomic()])),
        "steps must be unique, got 'Quick' twice; rename one of them",
    ),
    "a step in two groups": (
        lambda s: s.saga(Step.express("A", steps=[s.atomic()]), Step.express("B", steps=[s.atomic()])),
        "steps must be unique, got 'Move' twice; rename one of them",
    ),
    "nothing that mutates": (
        lambda s: s.saga(s.service(), Step.read_only("Quote", fn=s.fn)),
        "a saga needs a step that mutates, got ['Look', 'Quote']; add one",
    ),
    "a pivot in parallel with others": (
        lambda s: s.saga(Step.parallel("Both", branches=[[s.atomic("A", pivot=True)], [s.atomic("B")]])),
        "step A of Both cannot be the pivot: others run concurrently; name a step behind it, or none",
    ),
    "a pivot for each item": (
        lambda s: s.saga(_map(s, steps=[s.atomic("Pack", pivot=True)])),
        "step Pack of Ship cannot be the pivot: others run concurrently; name a step behind it, or none",
    ),
    "a pivot in a phase next to another one": (
        lambda s: s.saga(
            s.atomic("A", pivot=True, when="$request.a"),
            Step.express("Quick", steps=[s.atomic("B", pivot=True, when="$request.b")]),
        ),
        "step B of Quick must be the only pivot, got 2; keep one",
    ),
    "a pivot by default that not every request meets": (
        lambda s: s.saga(s.atomic("Debit", compensate=s.fn), s.atomic("Fee", when="$request.fee"), s.event()),
        (
            "the last step that mutates must be unconditional to be the pivot by default, got Fee with "
            "when='$request.fee'; name the pivot: pivot=True on Fee, or on a step before it"
        ),
    ),
    "a pivot by default in a phase that not every request meets": (
        lambda s: s.saga(
            s.atomic("Debit", compensate=s.fn), Step.express("Quick", steps=[s.atomic("Fee")], when="$request.fee")
        ),
        (
            "the last step that mutates must be unconditional to be the pivot by default, got Fee with "
            "when='$request.fee'; name the pivot: pivot=True on Fee, or on a step before it"
        ),
    ),
    "a pivot in a phase that not every request meets": (
        lambda s: s.saga(Step.express("Quick", steps=[s.atomic("Fee", pivot=True, when="$request.fee")])),
        (
            "step Fee of Quick must be unconditional to be the pivot, got when='$request.fee'; "
            "give the condition to Quick, or put the step behind it"
        ),
    ),
    "parameters that are not JSON": (
        lambda s: s.saga(s.service(parameters={"Bucket": "b", "Keys": {1}}), s.atomic()),
        (
            "parameters of step Look must be plain JSON, got {'Bucket': 'b', 'Keys': {1}}: JSON has no set; "
            "write dicts with texts for keys, lists, texts, finite numbers, booleans and None"
        ),
    ),
    "writes that are not JSON": (
        lambda s: s.saga(s.writes(writes=[{"Delete": {"Key": "{% $k %}", "ConditionExpression": b""}}])),
        (
            "writes of step Mark must be plain JSON, got "
            "({'Delete': {'Key': '{% $k %}', 'ConditionExpression': b''}…: JSON has no bytes; write dicts with texts "
            "for keys, lists, texts, finite numbers, booleans and None"
        ),
    ),
    "a compensation of a text": (
        lambda s: s.saga(s.writes(compensate=[{"Delete": "it"}])),
        "compensate[0]['Delete'] of step Mark must be a dict, got 'it'; pass a dict",
    ),
    "a read of no table": (
        lambda s: s.saga(s.service(service="dynamodb", action="getItem", parameters={"Key": {}}), s.atomic()),
        "arguments of state Look must have TableName, got ['Key']; add it",
    ),
    "a transaction of nothing": (
        lambda s: s.saga(
            s.atomic(),
            Step.custom(
                "Look",
                state={
                    "Type": "Task",
                    "Resource": "arn:aws:states:::dynamodb:transactWriteItems",
                    "Arguments": {},
                    "TimeoutSeconds": 5,
                },
            ),
        ),
        "arguments of state Look must have TransactItems, got []; add it",
    ),
    "an event before the pivot": (
        lambda s: s.saga(s.event(), s.atomic()),
        (
            "step Announce sends a message before the pivot Move, and a message cannot be taken back; "
            "move it behind the pivot"
        ),
    ),
    "an act before the pivot": (
        lambda s: s.saga(s.service("Act", effect=Effect.IDEMPOTENT), s.atomic()),
        "step Act acts before the pivot Move, and that cannot be taken back; move it behind the pivot",
    ),
    "an act of your own before the pivot": (
        lambda s: s.saga(Step.custom("Mine", state={"Type": "Pass"}, effect=Effect.IDEMPOTENT), s.atomic()),
        "step Mine acts before the pivot Move, and that cannot be taken back; move it behind the pivot",
    ),
    "writes before the pivot that nothing undoes": (
        lambda s: s.saga(s.writes(), s.atomic()),
        "step Mark mutates before the pivot Move and has no compensation; give it compensate=…, or make it the pivot",
    ),
    "a charge before the pivot that nothing undoes": (
        lambda s: s.saga(s.external(), s.atomic()),
        "step Charge mutates before the pivot Move and has no compensation; give it compensate=…, or make it the pivot",
    ),
    "a step in a phase that nothing undoes": (
        lambda s: s.saga(Step.express("Quick", steps=[s.atomic("A"), s.atomic("B")])),
        "step A mutates before the pivot B and has no compensation; give it compensate=…, or make it the pivot",
    ),
    "branches that nothing undoes": (
        lambda s: s.saga(Step.parallel("Both", branches=[[s.atomic("A")], [s.atomic("B")]])),
        (
            "step A mutates before the end (there is no pivot: the last steps that mutate run concurrently with "
            "others) and has no compensation; give it compensate=…, or make it the pivot"
        ),
    ),
    "a notice behind the pivot": (
        lambda s: s.saga(s.atomic(pivot=True), s.atomic("Book", on_error={"Invalid": Notify(queue=s.fifo)})),
        (
            "step Book is after the pivot Move, where a saga does not fail by a refusal "
            "but waits for a person; remove Notify from its on_error"
        ),
    ),
    "a name of step and error together that no state may have": (
        lambda s: s.saga(
            s.atomic(
                LONG,
                compensate=s.fn,
                refusals=["NotEnoughSeatsInTheTrain"],
                on_error={"NotEnoughSeatsInTheTrain": ContinueWith()},
            ),
            s.atomic(),
        ),
        (
            f"a state's name must have at most 80 characters, got 'Skip {LONG} (NotEnoughSeatsInTheTrain) - read row' "
            "(83); shorten the step's name, or the error's, in it"
        ),
    ),
    "a name of an error that no state may have": (
        lambda s: s.saga(
            s.atomic(refusals=["E" * 74], on_error={"E" * 74: Notify(queue=s.fifo)}),
        ),
        (
            f"a state's name must have at most 80 characters, got 'Notify {'E' * 74}' "
            "(81); shorten the step's name, or the error's, in it"
        ),
    ),
    "a callback in an Express phase": (
        lambda s: s.saga(Step.express("Quick", steps=[Step.custom("Mine", state=QUEUED), s.atomic()])),
        (
            "step Mine of Quick waits for something, which an Express phase cannot; "
            "put it into the saga or into Step.child"
        ),
    ),
    "a callback inside a state in an Express phase": (
        lambda s: s.saga(
            Step.express(
                "Quick",
                steps=[
                    Step.custom(
                        "Mine",
                        state={"Type": "Map", "ItemProcessor": {"StartAt": "In", "States": {"In": QUEUED}}},
                    ),
                    s.atomic(),
                ],
            )
        ),
        (
            "step Mine of Quick waits for something, which an Express phase cannot; "
            "put it into the saga or into Step.child"
        ),
    ),
    "a long wait in an Express phase": (
        lambda s: s.saga(Step.express("Quick", steps=[Step.custom("Mine", state=WAIT_6_MINUTES), s.atomic()])),
        "step Mine may take 360 s, and its Express phase Quick 300 s; lower its timeout, or put it into the saga",
    ),
    "a slow function in an Express phase": (
        lambda s: s.saga(
            Step.express(
                "Quick",
                timeout=Duration.seconds(59),
                steps=[s.atomic(fn=s.slow, retry=Retry(in_doubt_attempts=8))],
            )
        ),
        "step Move may take 60 s, and its Express phase Quick 59 s; lower its timeout, or put it into the saga",
    ),
    "retries that end before the provider's grace": (
        lambda s: s.saga(s.external(retry=Retry(), provider=Provider(verify=True, grace=Duration.seconds(10)))),
        (
            "retries of step Charge must outlast its function and its provider's grace when it is in doubt, "
            "got delays of "
            "30 s for a timeout of 30 s; raise Retry(in_doubt_attempts=…) or Retry(in_doubt_interval=…), "
            "or lower the timeout"
        ),
    ),
    "a key that is forgotten too early": (
        lambda s: s.saga(s.external(provider=Provider(idempotent_for=Duration.seconds(100)))),
        (
            "idempotent_for of step Charge must be longer than two calls with their grace, got 100 s for 50 s each: "
            "the provider would have forgotten the key before a call could be repeated; declare verify, or lower the "
            "timeout"
        ),
    ),
    "items of a result that is not kept": (
        lambda s: s.saga(
            Step.read_only("Quote", fn=s.fn, record=False),
            _map(s, items="$outputs.Quote.items"),
            s.atomic(),
        ),
        (
            "items of Ship must be a JSONata expression that can work, got '$outputs.Quote.items', where the output of "
            "step Quote is not recorded; let a Step.read_only answer it, and read its output, which is recorded"
        ),
    ),
    "items of a call that is not kept": (
        lambda s: s.saga(s.service(), _map(s, items="$outputs.Look.items"), s.atomic()),
        (
            "items of Ship must be a JSONata expression that can work, got '$outputs.Look.items', where the output of "
            "step Look is not recorded; let a Step.read_only answer it, and read its output, which is recorded"
        ),
    ),
    "operators at a FIFO queue": (
        lambda s: s.saga(s.atomic(), operators=s.fifo),
        (
            "operators must be a standard queue, got the FIFO queue Test/Fifo: an entry that comes twice does no harm, "
            "and one that is not deduplicated is never lost; give a standard queue"
        ),
    ),
    "a status of an error that no step raises": (
        lambda s: s.saga(s.atomic(), http_status_by_error={"InvalidMapItems": 400}),
        (
            "http_status_by_error must name permanent errors of the steps, got 'InvalidMapItems'; "
            "correct it, or add it to the refusals of the step that raises it"
        ),
    ),
    "payloads that are forgotten before the log": (
        lambda s: s.saga(
            s.atomic(), payloads=PayloadBucket(s.stack, "Payloads", keep_days=430), log_retention_days=431
        ),
        (
            "keep_days of payloads must outlast log_retention_days, got 430 for 431; "
            "raise keep_days or lower log_retention_days"
        ),
    ),
}


@pytest.mark.parametrize("case", SAGAS)
def test_sagas_refuse(shop: Shop, case: str) -> None:
    _refused(*SAGAS[case], shop)


class Name(str, Enum):  # noqa: UP042 -- it is what users of earlier Pythons have
    """Names of the user's: the text of a member is not its value."""

    MOVE = "Move"
    BOTH = "Both"
    SOLD_OUT = "SoldOut"


def test_members_of_an_enumeration_are_names_by_their_values(new_app: AppFactory) -> None:
    def definition(move: str, both: str, sold_out: str) -> Any:
        stack = Stack(new_app(), "Test")
        fn = plain_function(stack, "Function")
        route = {sold_out: ContinueWith(output={"left": 0})}
        steps: list[Step | StepGroup] = [
            Step.atomic(move, fn=fn, compensate=fn, refusals=[sold_out], on_error=route),
            Step.parallel(both, branches=[[Step.atomic(name, fn=fn, compensate=fn)] for name in ("One", "Two")]),
        ]
        SagaStateMachine(stack, "Saga", requests=IdempotencyTable(stack, "Requests"), steps=steps)
        return [machine.properties for machine in Cloud(stack).of_type("AWS::StepFunctions::StateMachine")]

    assert definition(Name.MOVE, Name.BOTH, Name.SOLD_OUT) == definition("Move", "Both", "SoldOut")


def test_arguments_of_a_users_state_may_be_an_expression(shop: Shop) -> None:
    call = {"Type": "Task", "Resource": "arn:aws:states:::dynamodb:getItem", "TimeoutSeconds": 5}
    made = shop.saga(Step.custom("Look", state={**call, "Arguments": "{% $request %}"}), shop.atomic())
    assert made.definition["States"]["Look"]["Arguments"].endswith("; $request) %}")


def test_the_status_of_bad_items_may_be_chosen_where_there_is_a_map(shop: Shop) -> None:
    made = shop.saga(_map(shop), shop.atomic(), http_status_by_error={"InvalidMapItems": 400, "Declined": 402})
    assert "400" in str(made.definition["States"]["Ship"]["Catch"][0]["Assign"]["failure"]["status"])


FITS: dict[str, Callable[[Shop], Sequence[Step | StepGroup]]] = {
    "retries that outlast the grace": lambda s: [
        s.external(retry=Retry(), provider=Provider(verify=True, grace=Duration.seconds(9)))
    ],
    "a key that is known for longer than two calls": lambda s: [
        s.external(provider=Provider(idempotent_for=Duration.seconds(101)))
    ],
    "reads and waits before the pivot": lambda s: [
        s.service(), Step.custom("Pause", state={"Type": "Wait", "Seconds": 2}), s.atomic(),
    ],
    "a callback in a child": lambda s: [
        s.atomic(pivot=True),
        Step.child("Slow", timeout=Duration.hours(1), steps=[Step.custom("Mine", state=QUEUED)]),
    ],
    "items of a step whose name begins like that of a result that is not kept": lambda s: [
        s.service(), Step.read_only("LookUp", fn=s.fn), _map(s, items="$outputs.LookUp.items"), s.atomic(),
    ],
    "a pivot in a phase": lambda s: [
        Step.child("Slow", timeout=Duration.hours(1), steps=[s.atomic("A", compensate=s.fn), s.atomic("B", pivot=True)])
    ],
}  # fmt: skip


@pytest.mark.parametrize("case", FITS)
def test_values_just_inside_the_bounds_are_accepted(shop: Shop, case: str) -> None:
    assert shop.saga(*FITS[case](shop)).definition["States"]


_NAMED: Final = {"id": {"S": "{% $uuid() %}"}}


@pytest.mark.parametrize(
    "writes",
    [
        [{"Put": {"Item": "{% $request.item %}"}}, {"Delete": {"Key": "{% $request.key %}"}}],
        [{"Put": {"Item": {"id": "{% $request.id %}", "n": {"N": "{% $string($request.n) %}"}}}}],
        [{"Put": {"Item": {"id": {"S": "x"}, "all": {"M": {"a": {"NULL": True}, "b": {"BOOL": False}}}}}}],
        [{"Put": {"Item": {"id": {"N": "-1.5e3"}, "s": {"NS": ["1", "{% $request.n %}"]}, "b": {"B": "AA=="}}}}],
        [{"Put": {"Item": {"id": {"S": "x"}, "l": {"L": []}, "m": {"M": {}}, "n": {"L": "{% $request.l %}"}}}}],
        [{"Put": {"Item": {"id": {"S": "x"}, "n": {"N": Aws.ACCOUNT_ID}}}}],
        [{"Delete": {"Key": _NAMED}}, {"Delete": {"Key": _NAMED}}],
        [
            {"Delete": {"Key": {"id": {"S": "x"}, "at": {"N": "1"}}}},
            {"Delete": {"Key": {"id": {"S": "x"}, "at": {"N": "2"}}}},
        ],
        [{"Delete": {"Key": {"at": {"S": "x"}}}}, PUT],
        [PUT, {"Put": {"Item": {"id": {"S": "x"}, "more": {"S": "y"}}}}],
    ],
)
def test_writes_that_dynamodb_may_accept_are_accepted(shop: Shop, writes: Sequence[Mapping[str, Any]]) -> None:
    """Writes whose items cannot be compared: their keys are not known here, or are made by chance."""
    assert shop.writes(writes=writes).transaction is not None
