"""Short exchanges with services, whose answers are compared: of the simulator, and of local AWS.

Each is a function of ``Services`` that returns what its calls answered, without names, times and ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from botocore.exceptions import ClientError

WAITING: Final = "arn:aws:states:::sqs:sendMessage.waitForTaskToken"


def _waits(url: str) -> dict[str, Any]:
    body = {"token": "{% $states.context.Task.Token %}", "of": "{% $states.context.Execution.Name %}"}
    task = {"Type": "Task", "Resource": WAITING, "Arguments": {"QueueUrl": url, "MessageBody": body}, "End": True}
    return {"StartAt": "A", "States": {"A": task}}


def _done(_url: str) -> dict[str, Any]:
    return {"StartAt": "A", "States": {"A": {"Type": "Succeed"}}}


def _leaves(url: str) -> dict[str, Any]:
    waits: dict[str, Any] = _waits(url)["States"]["A"]
    del waits["End"]
    return {"StartAt": "A", "States": {"A": {**waits, "Next": "B"}, "B": {"Type": "Pass", "End": True}}}


MACHINES: Final[dict[str, Callable[[str], dict[str, Any]]]] = {"waits": _waits, "done": _done, "leaves": _leaves}
"""State machines by name: from the URL of a queue."""


PATTERN: Final = {
    "source": ["exchange"],
    "detail-type": [{"prefix": "Thing "}],
    "detail": {"state": ["new", "old"], "size": [{"anything-but": ["large"]}], "error": [{"exists": False}]},
}
"""Pattern of the rule that sends events to the queue ``matched``."""
ROUTES: Final = (("POST", "things/{id}"), ("GET", "wrong"), ("GET", "textless"))
"""Methods and paths of the API; the function ``proxied`` is behind them."""
HTTP_ROUTES: Final = {
    "POST /things/{id}": "NONE",
    "POST /things/known": "NONE",
    "ANY /{rest+}": "NONE",
    "GET /raises": "NONE",
    "GET /plain": "NONE",
    "GET /signed": "AWS_IAM",
    "GET /token": "JWT",
}
"""Routes of the HTTP API, and what authorizes a request; the function ``routed`` is behind them."""
Respond: TypeAlias = Callable[[str, str, str], tuple[int, Mapping[str, str], str]]
"""Sends a request: method, path and body to status, headers in lower case and body."""


def received(sqs: Any, url: str) -> str:
    """Receive a message and delete it."""
    (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return str(message["Body"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Services of one side, and resources in them.

    Attributes:
        client: makes a boto3 client.
        ended: waits until an execution has ended, by ARN.
        gone: waits until a machine that was deleted does not exist any more, by ARN.
        moved: waits until an execution that runs has sent its message, by the queue's URL; the message's body.
        plain, fifo: URLs of queues; ``fifo`` does not deduplicate by content.
        table: name of a table with the partition key ``id``.
        bucket: name of a bucket.
        secret: id of a secret with the value ``first``.
        done: ARN of a machine that ends at once.
        waits: ARN of a machine that sends its task token to ``plain``.
        leaves: ARN of such a machine with a state more, which one exchange deletes.
        fails: name of a function that raises an error of the class ``Oops``.
        twice: URL of a queue whose messages are received twice, and then moved to the queue ``dead``.
        dead: URL of its dead-letter queue.
        matched: URL of a queue to which a rule of the default bus sends events of ``PATTERN``.
        request: sends a request to a REST API with ``ROUTES``.
        http_request: sends a request to an HTTP API with ``HTTP_ROUTES``.
    """

    client: Callable[[str], Any]
    ended: Callable[[str], None]
    gone: Callable[[str], None]
    moved: Callable[[str], str]
    plain: str
    fifo: str
    table: str
    bucket: str
    secret: str
    done: str
    waits: str
    leaves: str
    fails: str
    twice: str
    dead: str
    matched: str
    request: Respond
    http_request: Respond


def code_of(call: Callable[..., Any], **given: Any) -> str:
    """Return the error's code of a call; ``none`` if it succeeds."""
    try:
        call(**given)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "none"


def fifo_messages(of: Services) -> Any:
    """Deduplicate, and keep the order of a group."""
    sqs = of.client("sqs")
    for body, told in (("a", "1"), ("again", "1"), ("b", "2")):
        sqs.send_message(QueueUrl=of.fifo, MessageBody=body, MessageGroupId="g", MessageDeduplicationId=told)
    first = sqs.receive_message(QueueUrl=of.fifo, MaxNumberOfMessages=1)["Messages"]
    blocked = sqs.receive_message(QueueUrl=of.fifo, MaxNumberOfMessages=1).get("Messages", [])
    sqs.delete_message(QueueUrl=of.fifo, ReceiptHandle=first[0]["ReceiptHandle"])
    second = sqs.receive_message(QueueUrl=of.fifo, MaxNumberOfMessages=10)["Messages"]
    for message in second:
        sqs.delete_message(QueueUrl=of.fifo, ReceiptHandle=message["ReceiptHandle"])
    return [[message["Body"] for message in found] for found in (first, blocked, second)]


def message_again(of: Services) -> Any:
    """Receive a message again once it is visible."""
    sqs = of.client("sqs")
    sqs.send_message(QueueUrl=of.plain, MessageBody="m")
    seen = []
    for _ in range(2):
        received = sqs.receive_message(QueueUrl=of.plain, AttributeNames=["ApproximateReceiveCount"])["Messages"][0]
        hidden = sqs.receive_message(QueueUrl=of.plain).get("Messages", [])
        seen.append([received["Attributes"]["ApproximateReceiveCount"], len(hidden)])
        sqs.change_message_visibility(QueueUrl=of.plain, ReceiptHandle=received["ReceiptHandle"], VisibilityTimeout=0)
    last = sqs.receive_message(QueueUrl=of.plain)["Messages"][0]
    sqs.delete_message(QueueUrl=of.plain, ReceiptHandle=last["ReceiptHandle"])
    return [seen, len(sqs.receive_message(QueueUrl=of.plain).get("Messages", []))]


def message_without_group(of: Services) -> Any:
    """Refuse a FIFO message without a group, and one without a deduplication id."""
    send = of.client("sqs").send_message
    return [
        code_of(send, QueueUrl=of.fifo, MessageBody="a", MessageDeduplicationId="x"),
        code_of(send, QueueUrl=of.fifo, MessageBody="a", MessageGroupId="g"),
    ]


def message_that_is_refused(of: Services) -> Any:
    """Refuse characters, a size and a delay; of a batch only the message that has one of them."""
    sqs = of.client("sqs")
    characters = ("\x00", "\x0b", "\x1f", "\ufffe", "\uffff", "\t\n\r\x7f\x85\ud7ff\ue000\ufffd\U0010ffff")
    codes = [code_of(sqs.send_message, QueueUrl=of.plain, MessageBody=f"a{character}") for character in characters]
    codes += [code_of(sqs.send_message, QueueUrl=of.plain, MessageBody=body) for body in ("", "x" * 1_048_577)]
    codes.append(code_of(sqs.send_message, QueueUrl=of.fifo, MessageBody="a", MessageGroupId="g", DelaySeconds=1))
    entries = [{"Id": "good", "MessageBody": "b"}, {"Id": "bad", "MessageBody": "\ufffe"}]
    answer = sqs.send_message_batch(QueueUrl=of.plain, Entries=entries)
    bodies = [received(sqs, of.plain) for _ in range(2)]
    large = [{"Id": str(number), "MessageBody": "x" * 600_000} for number in range(2)]
    codes.append(code_of(sqs.send_message_batch, QueueUrl=of.plain, Entries=large))
    return [
        codes,
        [entry["Id"] for entry in answer["Successful"]],
        [[entry["Id"], entry["SenderFault"], entry["Code"]] for entry in answer["Failed"]],
        bodies,
    ]


def execution_of_one_name(of: Services) -> Any:
    """Start an execution again: while it runs with its input and with another one, and once it has ended."""
    states = of.client("stepfunctions")
    start = states.start_execution
    first = start(stateMachineArn=of.waits, name="one", input="{}")["executionArn"]
    of.moved(of.plain)
    same = start(stateMachineArn=of.waits, name="one", input="{}")["executionArn"] == first
    other = code_of(start, stateMachineArn=of.waits, name="one", input='{"a":1}')
    states.stop_execution(executionArn=first, error="Why", cause="because")
    of.ended(first)
    described = states.describe_execution(executionArn=first)
    later = code_of(start, stateMachineArn=of.waits, name="one", input="{}")
    return [same, other, described["status"], described["error"], described["cause"], later]


def execution_that_is_refused(of: Services) -> Any:
    """Refuse a name, an input, a machine and an execution that do not exist."""
    states = of.client("stepfunctions")
    missing = of.done.rpartition(":")[0] + ":missing"
    execution = of.done.replace(":stateMachine:", ":execution:") + ":missing"
    return [
        code_of(states.start_execution, stateMachineArn=of.done, name="a b"),
        code_of(states.start_execution, stateMachineArn=of.done, input="{"),
        code_of(states.start_execution, stateMachineArn=missing),
        code_of(states.describe_execution, executionArn=execution),
        code_of(states.stop_execution, executionArn=execution),
    ]


def machine_that_is_deleted(of: Services) -> Any:
    """Delete a machine while executions run: they end at their next state, nothing starts it, and then it is gone."""
    states = of.client("stepfunctions")
    start, described = states.start_execution, states.describe_execution
    first, second = (start(stateMachineArn=of.leaves, name=name)["executionArn"] for name in ("one", "two"))
    tokens = {}
    for _ in range(2):
        message = json.loads(of.moved(of.plain))
        tokens[message["of"]] = message["token"]
    deleting = [
        code_of(states.delete_state_machine, stateMachineArn=of.leaves),
        states.describe_state_machine(stateMachineArn=of.leaves)["status"],
        code_of(start, stateMachineArn=of.leaves, name="three"),
        described(executionArn=first)["status"],
        code_of(states.delete_state_machine, stateMachineArn=of.leaves),
        code_of(states.send_task_success, taskToken=tokens["one"], output="{}"),
    ]
    of.ended(first)
    ended = described(executionArn=first)
    deleting += [ended["status"], ended["error"], code_of(states.redrive_execution, executionArn=first)]
    states.stop_execution(executionArn=second)
    of.gone(of.leaves)
    gone = [
        code_of(start, stateMachineArn=of.leaves, name="four"),
        code_of(states.list_executions, stateMachineArn=of.leaves),
        code_of(states.delete_state_machine, stateMachineArn=of.leaves),
        code_of(described, executionArn=first),
    ]
    return [deleting, ended["cause"].split()[-3:], gone]


def task_tokens(of: Services) -> Any:
    """Refuse a token that does not exist or was used, and what is too long or is not JSON."""
    states = of.client("stepfunctions")
    execution = states.start_execution(stateMachineArn=of.waits, name="tokens")["executionArn"]
    token = json.loads(of.moved(of.plain))["token"]
    refused = [
        code_of(states.send_task_success, taskToken="x" * 20, output="{}"),
        code_of(states.send_task_success, taskToken="x" * 20, output="{"),
        code_of(states.send_task_success, taskToken=token, output="{"),
        code_of(states.send_task_success, taskToken=token, output=json.dumps("x" * 262_144)),
        code_of(states.send_task_failure, taskToken=token, error="x" * 257),
        code_of(states.send_task_failure, taskToken=token, cause="x" * 32_769),
        code_of(states.send_task_heartbeat, taskToken=token),
        code_of(states.send_task_success, taskToken=token, output='{"a": 1}'),
    ]
    of.ended(execution)
    described = states.describe_execution(executionArn=execution)
    late = [
        code_of(states.send_task_success, taskToken=token, output="{}"),
        code_of(states.send_task_failure, taskToken=token, error="e"),
        code_of(states.send_task_heartbeat, taskToken=token),
    ]
    return [refused, described["status"], json.loads(described["output"]), late]


def stored_objects(of: Services) -> Any:
    """Put an object only if it does not exist, and read what does not exist."""
    s3 = of.client("s3")
    return [
        code_of(s3.put_object, Bucket=of.bucket, Key="k", Body=b"1", IfNoneMatch="*"),
        code_of(s3.put_object, Bucket=of.bucket, Key="k", Body=b"2", IfNoneMatch="*"),
        s3.get_object(Bucket=of.bucket, Key="k")["Body"].read().decode(),
        code_of(s3.get_object, Bucket=of.bucket, Key="missing"),
        code_of(s3.head_object, Bucket=of.bucket, Key="missing"),
    ]


def secret_versions(of: Services) -> Any:
    """Keep the former version of a secret."""
    secrets = of.client("secretsmanager")
    before = code_of(secrets.get_secret_value, SecretId=of.secret, VersionStage="AWSPREVIOUS")
    secrets.put_secret_value(SecretId=of.secret, SecretString="second")
    values = [
        secrets.get_secret_value(SecretId=of.secret, VersionStage=stage)["SecretString"]
        for stage in ("AWSCURRENT", "AWSPREVIOUS")
    ]
    return [before, values, code_of(secrets.get_secret_value, SecretId="missing")]


def pages_of_objects(of: Services) -> Any:
    """List objects page by page, and none."""
    s3 = of.client("s3")
    for key in ("page/a", "page/b"):
        s3.put_object(Bucket=of.bucket, Key=key, Body=b"")
    first = s3.list_objects_v2(Bucket=of.bucket, Prefix="page/", MaxKeys=1)
    second = s3.list_objects_v2(Bucket=of.bucket, Prefix="page/", ContinuationToken=first["NextContinuationToken"])
    none = s3.list_objects_v2(Bucket=of.bucket, Prefix="none/")
    pages = [[found["Key"] for found in page["Contents"]] for page in (first, second)]
    return [pages, first["IsTruncated"], second["IsTruncated"], "Contents" in none]


def machine_of_another_kind(of: Services) -> Any:
    """Refuse to start a Standard machine synchronously."""
    return code_of(of.client("stepfunctions").start_sync_execution, stateMachineArn=of.done)


def refused_entries(of: Services) -> Any:
    """Refuse events whose detail is not a JSON object, and take the others of their request."""
    details = ('{"n": 1}', '"text"', "{")
    entries = [{"Source": "another", "DetailType": "Thing", "Detail": detail} for detail in details]
    answer = of.client("events").put_events(Entries=entries)
    return [answer["FailedEntryCount"], [entry.get("ErrorCode") for entry in answer["Entries"]]]


def refused_receives(of: Services) -> Any:
    """Refuse an invalid receipt handle, and to receive more messages than ten."""
    sqs = of.client("sqs")
    return [
        code_of(sqs.delete_message, QueueUrl=of.plain, ReceiptHandle="nonsense"),
        code_of(sqs.receive_message, QueueUrl=of.plain, MaxNumberOfMessages=11),
    ]


def hidden_messages(of: Services) -> Any:
    """Refuse to hide a message for more than twelve hours, or one that is not in flight."""
    sqs = of.client("sqs")
    sqs.send_message(QueueUrl=of.plain, MessageBody="m")
    receipt = sqs.receive_message(QueueUrl=of.plain)["Messages"][0]["ReceiptHandle"]
    hide = sqs.change_message_visibility
    seconds = (43_201, 0, 10)
    codes = [code_of(hide, QueueUrl=of.plain, ReceiptHandle=receipt, VisibilityTimeout=each) for each in seconds]
    sqs.delete_message(QueueUrl=of.plain, ReceiptHandle=receipt)
    return codes


def expired_receipt(of: Services) -> Any:
    """Refuse to delete a FIFO message that is visible again."""
    sqs = of.client("sqs")
    sqs.send_message(QueueUrl=of.fifo, MessageBody="e", MessageGroupId="e", MessageDeduplicationId="e")
    first = sqs.receive_message(QueueUrl=of.fifo)["Messages"][0]["ReceiptHandle"]
    sqs.change_message_visibility(QueueUrl=of.fifo, ReceiptHandle=first, VisibilityTimeout=0)
    refused = code_of(sqs.delete_message, QueueUrl=of.fifo, ReceiptHandle=first)
    again = sqs.receive_message(QueueUrl=of.fifo).get("Messages", [])
    for message in again:
        sqs.delete_message(QueueUrl=of.fifo, ReceiptHandle=message["ReceiptHandle"])
    return [refused, len(again)]


def refused_batch_of_writes(of: Services) -> Any:
    """Refuse one item twice, in a batch of writes and in a transaction that reads."""
    dynamodb = of.client("dynamodb")
    put = {"PutRequest": {"Item": {"id": {"S": "batch"}}}}
    get = {"Get": {"TableName": of.table, "Key": {"id": {"S": "batch"}}}}
    return [
        code_of(dynamodb.batch_write_item, RequestItems={of.table: [put, put]}),
        code_of(dynamodb.transact_get_items, TransactItems=[get, get]),
        dynamodb.batch_write_item(RequestItems={of.table: [put]})["UnprocessedItems"],
    ]


def _put(of: Services, key: str, **more: Any) -> dict[str, Any]:
    return {"Put": {"TableName": of.table, "Item": {"id": {"S": key}, "v": {"S": key}}, **more}}


def transactions(of: Services) -> Any:
    """Cancel for a condition, repeat by a token, and refuse one item twice."""
    dynamodb = of.client("dynamodb")
    write = dynamodb.transact_write_items
    free = {"ConditionExpression": "attribute_not_exists(id)", "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    write(TransactItems=[_put(of, "a", **free)], ClientRequestToken="token-1")
    repeated = code_of(write, TransactItems=[_put(of, "a", **free)], ClientRequestToken="token-1")
    other = code_of(write, TransactItems=[_put(of, "b")], ClientRequestToken="token-1")
    twice = code_of(write, TransactItems=[_put(of, "c"), _put(of, "c")])
    try:
        write(TransactItems=[_put(of, "d"), _put(of, "a", **free)])
        reasons: Any = "none"
    except dynamodb.exceptions.TransactionCanceledException as error:
        reasons = [(reason["Code"], reason.get("Item")) for reason in error.response["CancellationReasons"]]
    left = "Item" in dynamodb.get_item(TableName=of.table, Key={"id": {"S": "d"}})
    return json.loads(json.dumps([repeated, other, twice, reasons, left]))


def conditional_put(of: Services) -> Any:
    """Return the item that refused a put."""
    dynamodb = of.client("dynamodb")
    item = {"id": {"S": "p"}, "v": {"N": "1.50"}}
    given = {"TableName": of.table, "Item": item, "ConditionExpression": "attribute_not_exists(id)"}
    dynamodb.put_item(**given)
    try:
        dynamodb.put_item(**given, ReturnValuesOnConditionCheckFailure="ALL_OLD")
    except dynamodb.exceptions.ConditionalCheckFailedException as error:
        return error.response["Item"]
    return "none"


def invocations(of: Services) -> Any:
    """Return a function's error, and refuse one that does not exist."""
    functions = of.client("lambda")
    answer = functions.invoke(FunctionName=of.fails, Payload=b'{"error": "Oops", "why": "so"}')
    document = json.loads(answer["Payload"].read())
    missing = code_of(functions.invoke, FunctionName="missing")
    return [answer["FunctionError"], document["errorType"], document["errorMessage"], missing]


def unread_payload(of: Services) -> Any:
    """Refuse a payload that is not JSON."""
    return code_of(of.client("lambda").invoke, FunctionName=of.fails, Payload=b"{")


def dead_letters(of: Services) -> Any:
    """Move a message to the dead-letter queue once it was received too often."""
    sqs = of.client("sqs")
    sent = sqs.send_message(QueueUrl=of.twice, MessageBody="m", MessageAttributes={"a": _text("1")})["MessageId"]
    counts = []
    for _ in range(2):
        (message,) = sqs.receive_message(QueueUrl=of.twice, AttributeNames=["ApproximateReceiveCount"])["Messages"]
        counts.append(message["Attributes"]["ApproximateReceiveCount"])
        sqs.change_message_visibility(QueueUrl=of.twice, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    third = sqs.receive_message(QueueUrl=of.twice).get("Messages", [])
    (moved,) = sqs.receive_message(QueueUrl=of.dead, MessageAttributeNames=["All"])["Messages"]
    sqs.delete_message(QueueUrl=of.dead, ReceiptHandle=moved["ReceiptHandle"])
    return [counts, third, moved["Body"], moved["MessageId"] == sent, moved["MessageAttributes"]["a"]["StringValue"]]


def _text(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


def matched_events(of: Services) -> Any:
    """Send events that match a pattern to a queue, and no others."""
    told: list[tuple[str, str, dict[str, Any]]] = [
        ("exchange", "Thing made", {"n": 1, "state": "new", "size": "small"}),
        ("another", "Thing made", {"n": 2, "state": "new", "size": "small"}),
        ("exchange", "A thing made", {"n": 3, "state": "new", "size": "small"}),
        ("exchange", "Thing made", {"n": 4, "state": "lost", "size": "small"}),
        ("exchange", "Thing made", {"n": 5, "state": "new", "size": "large"}),
        ("exchange", "Thing made", {"n": 6, "state": "new", "size": "small", "error": None}),
        ("exchange", "Thing made", {"n": 7, "state": "new"}),
        ("exchange", "Thing lost", {"n": 8, "state": ["old", "lost"], "size": ["small"]}),
    ]
    entries = [{"Source": source, "DetailType": kind, "Detail": json.dumps(detail)} for source, kind, detail in told]
    answer = of.client("events").put_events(Entries=entries)
    events = [json.loads(of.moved(of.matched)) for _ in range(2)]
    left = of.client("sqs").receive_message(QueueUrl=of.matched).get("Messages", [])
    members = sorted({member for event in events for member in event})
    return [answer["FailedEntryCount"], sorted(event["detail"]["n"] for event in events), len(left), members]


def proxied_request(of: Services) -> Any:
    """Give a function a request as a proxy event, and return its response."""
    status, headers, body = of.request("POST", "/things/a-b?x=1&x=2&y=", '{"n": 1}')
    return [status, headers.get("location"), json.loads(body)]


def refused_requests(of: Services) -> Any:
    """Refuse a path without a method, a response without a status, and one whose body is not a text."""
    return [of.request("GET", path, "")[0] for path in ("/missing", "/wrong", "/textless")]


def routed_request(of: Services) -> Any:
    """Give a function a request to an HTTP API in payload format 2.0, and return its response."""
    status, headers, body = of.http_request("POST", "/things/a-b?x=1&x=2&y=", '{"n": 1}')
    return [status, headers.get("location"), json.loads(body)]


def selected_routes(of: Services) -> Any:
    """Select the route that fits best: a full match, then one with parameters, then a greedy one."""
    sent = (("POST", "/things/known"), ("POST", "/things/other"), ("PUT", "/things/known"), ("GET", "/a/b"))
    answers = [json.loads(of.http_request(method, path, "")[2]) for method, path in sent]
    return [[answer["routeKey"], answer["pathParameters"], answer["body"]] for answer in answers]


def unauthorized_requests(of: Services) -> Any:
    """Refuse a request that is not signed, and one without a token."""
    return [of.http_request("GET", path, "")[0] for path in ("/signed", "/token")]


def results_without_status(of: Services) -> Any:
    """Respond with a result that has no status, and for a function that failed."""
    return [of.http_request("GET", path, "")[::2] for path in ("/plain", "/raises")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """An exchange.

    Attributes:
        act: makes the calls.
        answers: of AWS, as documented or recorded, of local AWS and of the simulator.
        differs: reason why local AWS answers otherwise; None: it does not.
    """

    act: Callable[[Services], Any]
    answers: Any
    differs: str | None = None

    def __str__(self) -> str:
        return self.act.__name__


_OLD: Final = {"id": {"S": "a"}, "v": {"S": "a"}}
EXCHANGES: Final = (
    Exchange(act=fifo_messages, answers=[["a"], [], ["b"]]),
    Exchange(act=message_again, answers=[[["1", 0], ["2", 0]], 0]),
    Exchange(act=message_without_group, answers=["MissingParameter", "InvalidParameterValue"]),
    Exchange(
        act=message_that_is_refused,
        answers=[
            [
                *5 * ["InvalidMessageContents"],
                "none",
                "MissingParameter",
                *2 * ["InvalidParameterValue"],
                "AWS.SimpleQueueService.BatchRequestTooLong",
            ],
            ["good"],
            [["bad", True, "InvalidMessageContents"]],
            ["a\t\n\r\x7f\x85\ud7ff\ue000\ufffd\U0010ffff", "b"],
        ],
    ),
    Exchange(
        act=execution_of_one_name,
        answers=[True, "ExecutionAlreadyExists", "ABORTED", "Why", "because", "ExecutionAlreadyExists"],
    ),
    Exchange(
        act=execution_that_is_refused,
        answers=[
            *("InvalidName", "InvalidExecutionInput", "StateMachineDoesNotExist"),
            *("ExecutionDoesNotExist", "ExecutionDoesNotExist"),
        ],
    ),
    Exchange(
        act=machine_that_is_deleted,
        answers=[
            [
                *("none", "DELETING", "StateMachineDeleting", "RUNNING", "none", "none"),
                *("FAILED", "States.Runtime", "ExecutionNotRedrivable"),
            ],
            ["has", "been", "deleted."],
            ["StateMachineDoesNotExist", "StateMachineDoesNotExist", "none", "ExecutionDoesNotExist"],
        ],
    ),
    Exchange(
        act=task_tokens,
        answers=[
            ["InvalidToken", "InvalidOutput", "InvalidOutput", *3 * ["ValidationException"], "none", "none"],
            "SUCCEEDED",
            {"a": 1},
            ["TaskTimedOut", "TaskTimedOut", "TaskTimedOut"],
        ],
    ),
    Exchange(act=pages_of_objects, answers=[[["page/a"], ["page/b"]], True, False, False]),
    Exchange(act=machine_of_another_kind, answers="StateMachineTypeNotSupported"),
    Exchange(act=refused_entries, answers=[2, [None, "MalformedDetail", "MalformedDetail"]]),
    Exchange(act=refused_receives, answers=["ReceiptHandleIsInvalid", "InvalidParameterValue"]),
    Exchange(
        act=hidden_messages,
        answers=["InvalidParameterValue", "none", "MessageNotInflight"],
        differs="local AWS hides it all the same; SQS documents 12 hours, and MessageNotInflight",
    ),
    Exchange(
        act=expired_receipt,
        answers=["InvalidParameterValue", 1],
        differs="local AWS deletes the message; SQS refuses a receipt handle of a FIFO queue that has expired",
    ),
    Exchange(act=refused_batch_of_writes, answers=["ValidationException", "ValidationException", {}]),
    Exchange(act=stored_objects, answers=["none", "PreconditionFailed", "1", "NoSuchKey", "404"]),
    Exchange(
        act=secret_versions,
        answers=["ResourceNotFoundException", ["second", "first"], "ResourceNotFoundException"],
    ),
    Exchange(
        act=transactions,
        answers=[
            "none",
            "IdempotentParameterMismatchException",
            "ValidationException",
            [["None", None], ["ConditionalCheckFailed", _OLD]],
            False,
        ],
    ),
    Exchange(act=conditional_put, answers={"id": {"S": "p"}, "v": {"N": "1.5"}}),
    Exchange(act=invocations, answers=["Unhandled", "Oops", "so", "ResourceNotFoundException"]),
    Exchange(
        act=unread_payload,
        answers="InvalidRequestContentException",
        differs="local AWS invokes the function; Lambda documents InvalidRequestContentException",
    ),
    Exchange(act=dead_letters, answers=[["1", "2"], [], "m", True, "1"]),
    Exchange(
        act=matched_events,
        answers=[
            *(0, [1, 8], 0),
            ["account", "detail", "detail-type", "id", "region", "resources", "source", "time", "version"],
        ],
    ),
    Exchange(
        act=proxied_request,
        answers=[
            201,
            "/there",
            {
                "httpMethod": "POST",
                "resource": "/things/{id}",
                "path": "/things/a-b",
                "pathParameters": {"id": "a-b"},
                "queryStringParameters": {"x": "2", "y": ""},
                "multiValueQueryStringParameters": {"x": ["1", "2"], "y": [""]},
                "body": '{"n": 1}',
                "isBase64Encoded": False,
                "headers": {"idempotency-key": "k", "content-type": "application/json", "x-absent": None},
                "context": {"stage": "v1", "resourcePath": "/things/{id}"},
            },
        ],
        differs="queryStringParameters has the first of several values; API Gateway documents the last one",
    ),
    Exchange(act=refused_requests, answers=[403, 502, 502]),
    Exchange(
        act=routed_request,
        answers=[
            201,
            "/there",
            {
                "version": "2.0",
                "routeKey": "POST /things/{id}",
                "rawPath": "/things/a-b",
                "rawQueryString": "x=1&x=2&y=",
                "queryStringParameters": {"x": "1,2", "y": ""},
                "pathParameters": {"id": "a-b"},
                "body": '{"n": 1}',
                "isBase64Encoded": False,
                "multiValueHeaders": None,
                "headers": {"idempotency-key": "k", "content-type": "application/json", "x-absent": None},
                "context": {"stage": "$default", "routeKey": "POST /things/{id}", "authorizer": None},
                "http": {"method": "POST", "path": "/things/a-b", "protocol": "HTTP/1.1"},
            },
        ],
    ),
    Exchange(
        act=selected_routes,
        answers=[
            ["POST /things/known", None, None],
            ["POST /things/{id}", {"id": "other"}, None],
            ["ANY /{rest+}", {"rest": "things/known"}, None],
            ["ANY /{rest+}", {"rest": "a/b"}, None],
        ],
    ),
    Exchange(act=unauthorized_requests, answers=[403, 401]),
    Exchange(
        act=results_without_status,
        answers=[(200, '{"no": "status"}'), (500, '{"message":"Internal Server Error"}')],
        differs="local AWS sends an error of the function as 502, with its text",
    ),
)
