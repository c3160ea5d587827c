"""Small state machines whose ends are compared: in the simulator, and in local AWS.

The runner replaces ``@NAME`` in a definition: by ARNs of functions and machines, a queue's URL, a table's name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

LAMBDA: Final = "arn:aws:states:::lambda:invoke"
FUNCTIONS: Final = {
    "same": "def handler(event, context):\n    return event\n",
    "fail": "def handler(event, context):\n    raise type(event['error'], (Exception,), {})(event.get('why', 'why'))\n",
    "large": "def handler(event, context):\n    return 'x' * event['size']\n",
    "proxied": (
        "import json\n"
        "def handler(event, context):\n"
        "    if event['httpMethod'] == 'GET':\n"
        "        return {'statusCode': 200, 'body': {}} if event['path'] == '/textless' else {'status': 200}\n"
        "    names = ('httpMethod', 'resource', 'path', 'pathParameters', 'queryStringParameters',\n"
        "             'multiValueQueryStringParameters', 'body', 'isBase64Encoded')\n"
        "    seen = {name: event[name] for name in names}\n"
        "    given = {name.lower(): value for name, value in event['headers'].items()}\n"
        "    seen['headers'] = {name: given.get(name) for name in ('idempotency-key', 'content-type', 'x-absent')}\n"
        "    seen['context'] = {name: event['requestContext'][name] for name in ('stage', 'resourcePath')}\n"
        "    return {'statusCode': 201, 'headers': {'Location': '/there'}, 'body': json.dumps(seen)}\n"
    ),
    "routed": (
        "import json\n"
        "def handler(event, context):\n"
        "    asked = event['requestContext']['http']['method'] + ' ' + event['rawPath']\n"
        "    if asked == 'GET /raises':\n"
        "        raise RuntimeError('why')\n"
        "    if asked == 'GET /plain':\n"
        "        return {'no': 'status'}\n"
        "    names = ('version', 'routeKey', 'rawPath', 'rawQueryString', 'queryStringParameters',\n"
        "             'pathParameters', 'body', 'isBase64Encoded', 'multiValueHeaders')\n"
        "    seen = {name: event.get(name) for name in names}\n"
        "    seen['headers'] = {name: event['headers'].get(name)\n"
        "                       for name in ('idempotency-key', 'content-type', 'x-absent')}\n"
        "    context = event['requestContext']\n"
        "    seen['context'] = {name: context.get(name) for name in ('stage', 'routeKey', 'authorizer')}\n"
        "    seen['http'] = {name: context['http'][name] for name in ('method', 'path', 'protocol')}\n"
        "    return {'statusCode': 201, 'headers': {'Location': '/there'}, 'body': json.dumps(seen)}\n"
    ),
    "ends": "import os\ndef handler(event, context):\n    os._exit(1) if event.get('die') else None\n",
}
"""Functions by name: what each scenario may invoke."""
CHILDREN: Final = {
    "echo": {"StartAt": "A", "States": {"A": {"Type": "Pass", "Output": {"got": "{% $states.input %}"}, "End": True}}},
    "broken": {"StartAt": "A", "States": {"A": {"Type": "Fail", "Error": "Inside", "Cause": "here"}}},
}
"""Machines by name; each is there as a Standard and as an Express one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A state machine and its input.

    Attributes:
        name: its subject.
        states: its states, the first one first.
        given: its input.
        top: further members of the definition.
        differs: reason why local AWS ends otherwise; None: it does not.
    """

    name: str
    states: dict[str, Any]
    given: Any = field(default_factory=dict)
    top: dict[str, Any] = field(default_factory=dict)
    differs: str | None = None

    def definition(self, **names: str) -> dict[str, Any]:
        """The definition with its names filled in."""
        text = json.dumps(self.states)
        for name, value in names.items():
            text = text.replace(f"@{name}@", value)
        return {"QueryLanguage": "JSONata", "StartAt": next(iter(self.states)), "States": json.loads(text), **self.top}


def _task(function: str, payload: Any = None, **more: Any) -> dict[str, Any]:
    arguments = {"FunctionName": f"@{function}@", "Payload": {} if payload is None else payload}
    end = {} if "Next" in more else {"End": True}
    return {"Type": "Task", "Resource": LAMBDA, "Arguments": arguments, **end, **more}


def _call(resource: str, arguments: Any, **more: Any) -> dict[str, Any]:
    end = {} if "Next" in more else {"End": True}
    return {"Type": "Task", "Resource": f"arn:aws:states:::{resource}", "Arguments": arguments, **end, **more}


def _say(output: Any) -> dict[str, Any]:
    return {"Type": "Pass", "Output": output, "End": True}


_ERROR: Final = _say("{% $states.input.Error %}")
_RESULT: Final = "{% $states.result.Payload %}"


def _caught(by: str) -> dict[str, Any]:
    catch = [{"ErrorEquals": [by], "Next": "Caught"}]
    return {"A": _task("fail", {"error": "Oops"}, Catch=catch, Next="Caught"), "Caught": _ERROR}


def _branch(state: dict[str, Any]) -> dict[str, Any]:
    return {"StartAt": "P", "States": {"P": state}}


_PUT: Final = {"TableName": "@TABLE@", "Item": {"id": {"S": "a"}, "n": {"N": "1.50"}}}

SCENARIOS: Final = (
    Scenario(name="a result is the output", states={"A": _task("same", {"x": 1}, Output=_RESULT)}),
    Scenario(name="an output may be text", states={"A": _say("{% 'a' & 'b' %}")}),
    Scenario(
        name="assign sees the variables as they were",
        states={
            "A": {"Type": "Pass", "Assign": {"x": 1}, "Next": "B"},
            "B": {"Type": "Pass", "Assign": {"x": 2, "y": "{% $x %}"}, "Output": "{% $x %}", "Next": "C"},
            "C": _say({"x": "{% $x %}", "y": "{% $y %}", "in": "{% $states.input %}"}),
        },
    ),
    Scenario(
        name="a rule's assign counts, and its state's does not",
        states={
            "A": {
                "Type": "Choice",
                "Choices": [{"Condition": "{% $states.input.n = 1 %}", "Next": "B", "Assign": {"v": "rule"}}],
                "Default": "B",
                "Assign": {"v": "state"},
            },
            "B": _say("{% $v %}"),
        },
        given={"n": 1},
    ),
    Scenario(
        name="a default's assign counts",
        states={
            "A": {
                "Type": "Choice",
                "Choices": [{"Condition": "{% false %}", "Next": "B"}],
                "Default": "B",
                "Assign": {"v": "state"},
            },
            "B": _say("{% $v %}"),
        },
    ),
    Scenario(
        name="no rule fits and there is no default",
        states={"A": {"Type": "Choice", "Choices": [{"Condition": "{% false %}", "Next": "B"}]}, "B": _say(1)},
    ),
    Scenario(name="a failure has its own name", states={"A": {"Type": "Fail", "Error": "Mine", "Cause": "because"}}),
    Scenario(name="an error is caught by its name", states=_caught("Oops")),
    Scenario(name="an error is caught by States.TaskFailed", states=_caught("States.TaskFailed")),
    Scenario(name="an error is caught by States.ALL", states=_caught("States.ALL")),
    Scenario(name="an error is not caught by another's name", states=_caught("Other")),
    Scenario(
        name="a cause is the error's document",
        states={
            "A": _task(
                "fail",
                {"error": "Oops", "why": 'a "quoted" reason'},
                Catch=[{"ErrorEquals": ["Oops"], "Next": "B", "Output": "{% $parse($states.errorOutput.Cause) %}"}],
                Next="B",
            ),
            "B": _say({"type": "{% $states.input.errorType %}", "message": "{% $states.input.errorMessage %}"}),
        },
    ),
    Scenario(
        name="a process that dies is Runtime.ExitError",
        states={
            "A": _task("ends", {"die": True}, Catch=[{"ErrorEquals": ["States.ALL"], "Next": "B"}], Next="B"),
            "B": _ERROR,
        },
    ),
    Scenario(
        name="retries are counted",
        states={
            "A": _task(
                "fail",
                {"error": "Oops"},
                Retry=[{"ErrorEquals": ["Oops"], "IntervalSeconds": 1, "MaxAttempts": 2, "BackoffRate": 1}],
                Catch=[
                    {"ErrorEquals": ["Oops"], "Next": "B", "Output": "{% $states.context.State.RetryCount %}"},
                ],
                Next="B",
            ),
            "B": _say("{% $states.input %}"),
        },
    ),
    Scenario(
        name="a task that takes too long",
        states={
            "A": {
                **_call("sqs:sendMessage.waitForTaskToken", {"QueueUrl": "@QUEUE@", "MessageBody": {"t": 1}}, Next="B"),
                "TimeoutSeconds": 1,
                "Catch": [{"ErrorEquals": ["States.Timeout"], "Next": "B"}],
            },
            "B": _ERROR,
        },
    ),
    Scenario(
        name="branches in order",
        states={
            "A": {
                "Type": "Parallel",
                "Branches": [_branch({"Type": "Wait", "Seconds": 1, "End": True}), _branch(_say(2))],
                "End": True,
            }
        },
        given={"x": 1},
    ),
    Scenario(
        name="a branch that fails",
        states={
            "A": {
                "Type": "Parallel",
                "Branches": [_branch({"Type": "Fail", "Error": "Mine", "Cause": "c"}), _branch(_say(2))],
                "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "B"}],
                "Next": "B",
            },
            "B": _say("{% $states.input %}"),
        },
    ),
    Scenario(
        name="items with their places",
        states={
            "A": {
                "Type": "Map",
                "Items": "{% $states.input.items %}",
                "MaxConcurrency": 2,
                "ItemProcessor": _branch(
                    _say(["{% $states.context.Map.Item.Index %}", "{% $states.context.Map.Item.Value %}"])
                ),
                "End": True,
            }
        },
        given={"items": ["a", "b", "c"]},
    ),
    Scenario(name="numbers of 15 digits", states={"A": _say("{% $string(0.1 + 0.2) %}")}),
    Scenario(name="objects as text", states={"A": _say('{% $string({"a": 1, "b": [true, null, "x"]}) %}')}),
    Scenario(
        name="a large number in a text",
        states={"A": _say("{% $string($parse('12345678901234567')) %}")},
    ),
    Scenario(
        name="text that is not ASCII",
        states={"A": _say('{% $length($string({"a": "é"})) %}')},
    ),
    Scenario(name="a missing value", states={"A": _say("{% $states.input.missing %}")}),
    Scenario(name="null is a value", states={"A": _say("{% $states.input.none %}")}, given={"none": None}),
    Scenario(name="a parsed text", states={"A": _say("{% $parse('{\"a\": [1, 2]}').a[1] %}")}),
    Scenario(name="a sum of seconds", states={"A": _say("{% $min([300, 5 * $power(2, 3)]) %}")}),
    Scenario(
        name="a context that stays",
        states={"A": _say(["{% $states.context.Execution.Input.x %}", "{% $states.context.Execution.RedriveCount %}"])},
        given={"x": 7},
    ),
    Scenario(
        name="a result that is too large",
        states={
            "A": _task("large", {"size": 262_200}, Catch=[{"ErrorEquals": ["States.ALL"], "Next": "B"}], Next="B"),
            "B": _ERROR,
        },
    ),
    Scenario(
        name="an item that is put and got",
        states={
            "A": _call("dynamodb:putItem", _PUT, Next="B"),
            "B": _call(
                "dynamodb:getItem",
                {"TableName": "@TABLE@", "Key": {"id": {"S": "a"}}, "ConsistentRead": True},
                Output="{% $states.result.Item %}",
            ),
        },
    ),
    Scenario(
        name="an item that is not there",
        states={
            "A": _call(
                "dynamodb:getItem",
                {"TableName": "@TABLE@", "Key": {"id": {"S": "none"}}},
                Output="{% $exists($states.result.Item) %}",
            )
        },
    ),
    Scenario(
        name="a condition that is not met",
        states={
            "A": _call(
                "dynamodb:putItem",
                {**_PUT, "ConditionExpression": "attribute_exists(nothing)"},
                Catch=[{"ErrorEquals": ["DynamoDB.ConditionalCheckFailedException"], "Next": "B"}],
                Next="B",
            ),
            "B": _ERROR,
        },
    ),
    Scenario(
        name="a condition that is not met, by the SDK",
        states={
            "A": _call(
                "aws-sdk:dynamodb:putItem",
                {**_PUT, "ConditionExpression": "attribute_exists(nothing)"},
                Catch=[{"ErrorEquals": ["States.ALL"], "Next": "B"}],
                Next="B",
            ),
            "B": _ERROR,
        },
    ),
    Scenario(
        name="a query that counts",
        states={
            "A": _call("dynamodb:putItem", _PUT, Next="B"),
            "B": _call(
                "aws-sdk:dynamodb:query",
                {
                    "TableName": "@TABLE@",
                    "KeyConditionExpression": "id = :id",
                    "ExpressionAttributeValues": {":id": {"S": "a"}},
                    "Select": "COUNT",
                },
                Output=["{% $states.result.Count %}", "{% $exists($states.result.LastEvaluatedKey) %}"],
            ),
        },
    ),
    Scenario(
        name="an update that returns",
        states={
            "A": _call(
                "dynamodb:updateItem",
                {
                    "TableName": "@TABLE@",
                    "Key": {"id": {"S": "u"}},
                    "UpdateExpression": "SET n = if_not_exists(n, :zero) + :one",
                    "ExpressionAttributeValues": {":zero": {"N": "0"}, ":one": {"N": "1"}},
                    "ReturnValues": "ALL_NEW",
                },
                Output="{% $states.result.Attributes %}",
            )
        },
    ),
    Scenario(
        name="a child that succeeds",
        states={
            "A": _call(
                "states:startExecution.sync:2",
                {"StateMachineArn": "@echo@", "Name": "{% $uuid() %}", "Input": {"x": 1}},
                Output="{% $states.result.Output %}",
            )
        },
    ),
    Scenario(
        name="a child that fails",
        states={
            "A": _call(
                "states:startExecution.sync:2",
                {"StateMachineArn": "@broken@", "Name": "{% $uuid() %}", "Input": {}},
                Catch=[{"ErrorEquals": ["States.TaskFailed"], "Next": "B"}],
                Next="B",
            ),
            "B": _ERROR,
        },
    ),
    Scenario(
        name="an Express child that succeeds",
        states={
            "A": _call(
                "aws-sdk:sfn:startSyncExecution",
                {"StateMachineArn": "@echo-express@", "Input": '{"x": 1}'},
                Output=["{% $states.result.Status %}", "{% $parse($states.result.Output) %}"],
            )
        },
    ),
    Scenario(
        name="an Express child that fails",
        states={
            "A": _call(
                "aws-sdk:sfn:startSyncExecution",
                {"StateMachineArn": "@broken-express@", "Input": "{}"},
                Output=["{% $states.result.Status %}", "{% $states.result.Error %}"],
            )
        },
    ),
    Scenario(
        name="a machine that takes too long",
        states={"A": {"Type": "Wait", "Seconds": 600, "End": True}},
        top={"TimeoutSeconds": 1},
    ),
    Scenario(
        name="a message",
        states={"A": _call("sqs:sendMessage", {"QueueUrl": "@QUEUE@", "MessageBody": "m"}, Output=1)},
    ),
)
