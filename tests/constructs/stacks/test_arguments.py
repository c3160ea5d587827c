"""Wrong arguments, and their messages: the value, and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_cognito as cognito
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

from constructs_lib import (
    ContinueWith,
    IdempotencyTable,
    LedgerTable,
    Notify,
    Operation,
    Retry,
    SagaStateMachine,
    Step,
    StepFunction,
    TransactionApi,
)
from constructs_lib.functions.bundle import BundleError
from saga_runtime.errors import Invalid
from tests.constructs.support.sagas import FUNCTIONS, plain_function, saga

Wrong = Callable[[Stack], Any]


def _refused(wrong: Wrong, message: str, stack: Stack, error: type[Exception] = ValueError) -> None:
    with pytest.raises(error) as raised:
        wrong(stack)
    assert str(raised.value) == message


def _requests(stack: Stack, **options: Any) -> IdempotencyTable:
    return IdempotencyTable(stack, "Requests", **options)


TABLES: dict[str, tuple[Wrong, str]] = {
    "replayed too shortly": (
        lambda stack: _requests(stack, replay_for=Duration.seconds(59)),
        "replay_for must be 60 s to 31622400 s, got 59 s; choose a duration in that range",
    ),
    "replayed too long": (
        lambda stack: _requests(stack, replay_for=Duration.days(367)),
        "replay_for must be 60 s to 31622400 s, got 31708800 s; choose a duration in that range",
    ),
    "remembered too long": (
        lambda stack: _requests(stack, remember_for=Duration.days(3_651)),
        "remember_for must be 60 s to 315360000 s, got 315446400 s; choose a duration in that range",
    ),
    "remembered for less than replayed": (
        lambda stack: _requests(stack, replay_for=Duration.days(2), remember_for=Duration.days(1)),
        (
            "remember_for must not be shorter than replay_for, got remember_for=86400 s replay_for=172800 s; raise "
            "remember_for or lower replay_for"
        ),
    ),
    "replayed in fractions": (
        lambda stack: _requests(stack, replay_for=Duration.millis(60_500)),
        "replay_for must be a whole number of seconds, got 1 minute 500 millis; round it",
    ),
    "due too early": (
        lambda stack: _requests(stack, due_after=Duration.seconds(4)),
        "due_after must be 5 s to 86400 s, got 4 s; choose a duration in that range",
    ),
    "no shards": (
        lambda stack: _requests(stack, due_shards=0),
        "due_shards must be 1 to 100, got 0; choose a number in that range",
    ),
    "too many shards": (
        lambda stack: _requests(stack, due_shards=101),
        "due_shards must be 1 to 100, got 101; choose a number in that range",
    ),
    "a prefix with a wildcard": (
        lambda stack: _requests(stack).grant_powertools(plain_function(stack, "Function"), key_prefix="*"),
        "key_prefix must match ^[A-Za-z][A-Za-z0-9._-]{0,63}$, got '*'; use letters, digits, dots, dashes, underscores",
    ),
    "a prefix that ends with a newline": (
        lambda stack: _requests(stack).grant_powertools(plain_function(stack, "Function"), key_prefix="a\n"),
        (
            r"key_prefix must match ^[A-Za-z][A-Za-z0-9._-]{0,63}$, got 'a\n'; "
            "use letters, digits, dots, dashes, underscores"
        ),
    ),
    "a prefix of operators' proposals": (
        lambda stack: _requests(stack).grant_powertools(plain_function(stack, "Function"), key_prefix="list"),
        (
            "key_prefix must be none of this library's, got 'list'; use another one: operators' proposals and runs of "
            "jobs have it"
        ),
    ),
    "a prefix of runs of jobs": (
        lambda stack: _requests(stack).grant_powertools(plain_function(stack, "Function"), key_prefix="once"),
        (
            "key_prefix must be none of this library's, got 'once'; use another one: operators' proposals and runs of "
            "jobs have it"
        ),
    ),
    "a key without a region": (
        lambda stack: LedgerTable(stack, "Ledger", encryption_key=kms.Key(stack, "Key")),
        (
            "encryption_key of Test/Ledger needs a stack whose region is known; "
            "give the stack env=Environment(account=…, region=…)"
        ),
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_tables_refuse(stack: Stack, case: str) -> None:
    _refused(*TABLES[case], stack)


def _function(stack: Stack, **options: Any) -> StepFunction:
    return StepFunction(stack, "Move", **{"code": FUNCTIONS, "handler": "plain.handler", **options})


STEP_FUNCTIONS: dict[str, tuple[Wrong, str]] = {
    "a handler without a function": (
        lambda stack: _function(stack, handler="transfer"),
        (
            r"handler must match ^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$, got 'transfer'; "
            'name a module and a function, e.g. "transfer.handler"'
        ),
    ),
    "a handler with a path": (
        lambda stack: _function(stack, handler="src/transfer.handler"),
        (
            r"handler must match ^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$, got 'src/transfer.handler'; "
            'name a module and a function, e.g. "transfer.handler"'
        ),
    ),
    "a timeout beyond Lambda's": (
        lambda stack: _function(stack, timeout=Duration.minutes(16)),
        "timeout must be 1 s to 900 s, got 960 s; choose a duration in that range",
    ),
    "too little memory": (
        lambda stack: _function(stack, memory_mib=64),
        "memory_mib must be 128 to 10240, got 64; choose a number in that range",
    ),
    "no concurrency": (
        lambda stack: _function(stack, reserved_concurrency=0),
        "reserved_concurrency must be 1 to 1000000, got 0; choose a number in that range",
    ),
    "a blank folder": (
        lambda stack: _function(stack, code=" "),
        "code must be the path of a folder, got ' '; name the folder with your functions",
    ),
    "a variable of ours": (
        lambda stack: _function(stack, environment={"CDK_SAGAS_PROTOCOL": "2"}),
        "environment must not set ['CDK_SAGAS_PROTOCOL']; these are set by the construct",
    ),
}


@pytest.mark.parametrize("case", STEP_FUNCTIONS)
def test_step_functions_refuse(stack: Stack, case: str) -> None:
    _refused(*STEP_FUNCTIONS[case], stack)


def test_a_folder_that_does_not_exist_is_refused(stack: Stack) -> None:
    _refused(
        lambda stack: _function(stack, code="nowhere/at/all"),
        "code must be a folder, got nowhere/at/all; create it, or pass the folder with your functions",
        stack,
        BundleError,
    )


RETRIES: dict[str, tuple[dict[str, Any], str]] = {
    "negative attempts": (
        {"transient_attempts": -1},
        "transient_attempts must be 0 to 99, got -1; choose a number in that range",
    ),
    "too many attempts": (
        {"in_doubt_attempts": 100},
        "in_doubt_attempts must be 0 to 99, got 100; choose a number in that range",
    ),
    "no interval": (
        {"transient_interval": 0},
        (
            "transient_interval and transient_cap must be 1 <= interval <= cap <= 86400 seconds, "
            "got interval=0 cap=30; lower the interval or raise the cap"
        ),
    ),
    "an interval above the cap": (
        {"in_doubt_interval": 61},
        (
            "in_doubt_interval and in_doubt_cap must be 1 <= interval <= cap <= 86400 seconds, "
            "got interval=61 cap=60; lower the interval or raise the cap"
        ),
    ),
    "a cap beyond a day": (
        {"transient_cap": 86_401},
        (
            "transient_interval and transient_cap must be 1 <= interval <= cap <= 86400 seconds, "
            "got interval=1 cap=86401; lower the interval or raise the cap"
        ),
    ),
    "a rate below one": (
        {"in_doubt_rate": 0.5},
        "in_doubt_rate must be 1.0 to 10.0, got 0.5; choose a number in that range",
    ),
    "an invalid rate": (
        {"transient_rate": float("nan")},
        "transient_rate must be 1.0 to 10.0, got nan; choose a number in that range",
    ),
}


@pytest.mark.parametrize("case", RETRIES)
def test_retries_refuse(case: str) -> None:
    options, message = RETRIES[case]
    with pytest.raises(ValueError) as raised:  # noqa: PT011  # the whole message is compared
        Retry(**options)
    assert str(raised.value) == message


def _step(stack: Stack, name: str = "Move", **options: Any) -> Step:
    return Step.atomic(name, **{"fn": plain_function(stack, f"{name.strip()}Function"), **options})


STEP_NAME = "a step's name must match ^[A-Z][A-Za-z0-9]{0,39}$, got %r; use PascalCase of at most 40 characters"

STEPS: dict[str, tuple[Wrong, str]] = {
    "a name in lower case": (lambda stack: _step(stack, "move"), STEP_NAME % "move"),
    "a name with a space": (
        lambda stack: Step.atomic("Move it", fn=plain_function(stack, "Function")),
        STEP_NAME % "Move it",
    ),
    "a name that ends with a newline": (lambda stack: _step(stack, "Move\n"), STEP_NAME % "Move\n"),
    "a name that is too long": (lambda stack: _step(stack, "M" * 41), STEP_NAME % ("M" * 41)),
    "a refusal twice": (
        lambda stack: _step(stack, refusals=["Late", "Late"]),
        "refusals of step Move must be unique, got 'Late' twice; rename one of them",
    ),
    "an invalid refusal name": (
        lambda stack: _step(stack, refusals=["too late"]),
        (
            "refusals of step Move must match ^[A-Za-z][A-Za-z0-9_.]{0,99}$, got 'too late'; "
            "give the name of an error class"
        ),
    ),
    "a transient refusal": (
        lambda stack: _step(stack, refusals=["TransientError"]),
        "refusals of step Move must be permanent errors, got 'TransientError', which may pass; remove it",
    ),
    "a fenced refusal": (
        lambda stack: _step(stack, refusals=["SagaFenced"]),
        "refusals of step Move must be permanent errors, got 'SagaFenced', which may pass; remove it",
    ),
    "an empty condition": (
        lambda stack: _step(stack, when="{%  %}"),
        "when of step Move must be a JSONata condition, got ''; leave it out",
    ),
    "a route for an error that may pass": (
        lambda stack: _step(stack, on_error={"KeyError": ContinueWith()}),
        (
            "on_error of step Move must name permanent errors, got 'KeyError'; "
            "add it to refusals, if the step's function raises it as a PermanentError"
        ),
    ),
    "a pivot with a substitute": (
        lambda stack: _step(stack, pivot=True, on_error={"Invalid": ContinueWith()}),
        "step Move is the pivot: a saga cannot continue without it; use ContinueWith on an earlier step",
    ),
    "an imported function without its timeout": (
        lambda stack: _step(
            stack,
            fn=lambda_.Function.from_function_arn(
                stack, "Theirs", "arn:aws:lambda:eu-west-1:111111111111:function:theirs"
            ),
        ),
        (
            "the timeout of fn of step Move cannot be known; "
            "give the function a timeout, or declare fn_timeout for an imported one"
        ),
    ),
    "a timeout that contradicts the function": (
        lambda stack: _step(stack, fn_timeout=Duration.seconds(16)),
        "fn_timeout of step Move is 16 s, but the function's timeout is 15 s; leave fn_timeout out",
    ),
    "a compensation whose timeout is not known": (
        lambda stack: _step(
            stack,
            compensate=lambda_.Function.from_function_arn(
                stack, "Theirs", "arn:aws:lambda:eu-west-1:111111111111:function:theirs"
            ),
        ),
        (
            "the timeout of compensate of step Move cannot be known; "
            "give the function a timeout, or declare compensate_timeout for an imported one"
        ),
    ),
    "a queue that does not deduplicate": (
        lambda stack: Step.notify("Tell", queue=sqs.Queue(stack, "Queue")),
        (
            "a saga's messages need a FIFO queue, got Test/Queue; create it with fifo=True, "
            "which deduplicates what is sent again"
        ),
    ),
    "a notice to a queue that does not deduplicate": (
        lambda stack: Notify(queue=sqs.Queue(stack, "Queue")),
        (
            "a saga's messages need a FIFO queue, got Test/Queue; create it with fifo=True, "
            "which deduplicates what is sent again"
        ),
    ),
    "an empty message": (
        lambda stack: Step.notify("Tell", queue=sqs.Queue(stack, "Queue", fifo=True), message=" "),
        "message of step Tell must be a JSONata expression, got ''",
    ),
}


@pytest.mark.parametrize("case", STEPS)
def test_steps_refuse(stack: Stack, case: str) -> None:
    _refused(*STEPS[case], stack)


@pytest.mark.parametrize("output", [{"amount": 1.5}, {"amount": 10**15}])
def test_a_substitute_refuses_numbers_that_a_state_machine_would_change(output: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        ContinueWith(output=output)


def _saga(stack: Stack, *steps: Step, **options: Any) -> SagaStateMachine:
    return SagaStateMachine(stack, "Saga", **{"requests": _requests(stack), "steps": steps, **options})


SAGAS: dict[str, tuple[Wrong, str]] = {
    "no steps": (_saga, "steps must name at least one step, got none; add one"),
    "a step twice": (
        lambda stack: _saga(stack, step := _step(stack), step),
        "steps must be unique, got 'Move' twice; rename one of them",
    ),
    "two pivots that one request may meet": (
        lambda stack: _saga(stack, _step(stack, "One", pivot=True), _step(stack, "Two", pivot=True)),
        (
            "of several pivots each must be conditional, got ['One', 'Two']; "
            "give each a when=… that no other's request meets, or keep pivot=True on one of them"
        ),
    ),
    "no step that mutates": (
        lambda stack: _saga(stack, Step.notify("Tell", queue=sqs.Queue(stack, "Queue", fifo=True))),
        "a saga needs a step that mutates, got ['Tell']; add one",
    ),
    "no compensation before the pivot": (
        lambda stack: _saga(stack, _step(stack, "Debit"), _step(stack, "Credit")),
        (
            "step Debit mutates before the pivot Credit and has no compensation; "
            "give it compensate=…, or make it the pivot"
        ),
    ),
    "a message before the pivot": (
        lambda stack: _saga(
            stack, Step.notify("Tell", queue=sqs.Queue(stack, "Queue", fifo=True)), _step(stack, "Credit")
        ),
        (
            "step Tell sends a message before the pivot Credit, and a message cannot be taken back; "
            "move it behind the pivot"
        ),
    ),
    "retries that a living attempt outlasts": (
        lambda stack: _saga(stack, _step(stack, retry=Retry(in_doubt_attempts=2))),
        (
            "retries of step Move must outlast its function when it is in doubt, got delays of 6 s "
            "for a timeout of 15 s; "
            "raise Retry(in_doubt_attempts=…) or Retry(in_doubt_interval=…), or lower the timeout"
        ),
    ),
    "a timeout that is too short": (
        lambda stack: _saga(stack, _step(stack), timeout=Duration.seconds(59)),
        "timeout must be 60 s to 31622400 s, got 59 s; choose a duration in that range",
    ),
    "a log that is kept too shortly": (
        lambda stack: _saga(stack, _step(stack), log_retention_days=29),
        "log_retention_days must be 30 to 3650, got 29; choose a number in that range",
    ),
    "a log that the saga outlasts": (
        lambda stack: _saga(stack, _step(stack), log_retention_days=30, timeout=Duration.days(25)),
        (
            "log_retention_days must outlast timeout and the requests' replay_for, got 30 days "
            "for 2160000 s + 604800 s; raise it"
        ),
    ),
    "an empty result": (
        lambda stack: _saga(stack, _step(stack), result="{% %}"),
        "result must be a JSONata expression, got ''; leave it out for the default",
    ),
    "a refusal that is a success": (
        lambda stack: _saga(stack, _step(stack), refused_http_status=200),
        "the HTTP status of refused_http_status must be 400 to 499, got 200; a refusal is the client's",
    ),
    "an error that is the server's": (
        lambda stack: _saga(stack, _step(stack), http_status_by_error={"Invalid": 500}),
        "the HTTP status of Invalid must be 400 to 499, got 500; a refusal is the client's",
    ),
    "one error with two notices": (
        lambda stack: _saga(
            stack,
            _step(stack, "One", compensate=plain_function(stack, "Undo"), on_error={"Invalid": _notify(stack, "A")}),
            _step(stack, "Two", on_error={"Invalid": _notify(stack, "B")}),
        ),
        "on_error names 'Invalid' in more than one step, with different notices; share one Notify",
    ),
}


def _notify(stack: Stack, id: str) -> Notify:
    return Notify(queue=sqs.Queue(stack, id, fifo=True))


@pytest.mark.parametrize("case", SAGAS)
def test_sagas_refuse(stack: Stack, case: str) -> None:
    _refused(*SAGAS[case], stack)


def _api(stack: Stack, **options: Any) -> TransactionApi:
    if "operations" not in options:
        options["operations"] = {"orders": saga(stack)}
    return TransactionApi(stack, "Api", **options)


def _authorizer(stack: Stack) -> apigateway.IAuthorizer:
    pool = cognito.UserPool(stack, "Pool")
    return apigateway.CognitoUserPoolsAuthorizer(stack, "Authorizer", cognito_user_pools=[pool])


OPERATION = "an operation's name must match ^[a-z][a-z0-9-]{0,39}$, got %r; use lower case, digits and dashes"

APIS: dict[str, tuple[Wrong, str]] = {
    "no operations": (
        lambda stack: _api(stack, operations={}),
        "operations must name at least one operation, got none; add one",
    ),
    "an operation in upper case": (
        lambda stack: _api(stack, operations={"Orders": saga(stack)}),
        OPERATION % "Orders",
    ),
    "an operation with a path": (
        lambda stack: _api(stack, operations={"orders/new": saga(stack)}),
        OPERATION % "orders/new",
    ),
    "an operation that ends with a newline": (
        lambda stack: _api(stack, operations={"orders\n": saga(stack)}),
        OPERATION % "orders\n",
    ),
    "an invalid identity": (
        lambda stack: _api(stack, identity="header:X-User"),
        (
            "identity must match ^(iam|jwt|context:[A-Za-z0-9_.-]{1,64})$, got 'header:X-User'; "
            "use iam, jwt or context:<key>"
        ),
    ),
    "a token without an authorizer": (
        lambda stack: _api(stack, identity="jwt"),
        (
            "identity must fit the authorizer, got identity='jwt' with no authorizer; "
            "use identity='iam' without an authorizer, and 'jwt' or 'context:<key>' with one"
        ),
    ),
    "IAM with an authorizer": (
        lambda stack: _api(stack, authorizer=_authorizer(stack)),
        (
            "identity must fit the authorizer, got identity='iam' with an authorizer; "
            "use identity='iam' without an authorizer, and 'jwt' or 'context:<key>' with one"
        ),
    ),
    "a stage with a dash": (
        lambda stack: _api(stack, stage_name="v-1"),
        "stage_name must match ^[A-Za-z0-9_]{1,32}$, got 'v-1'; use letters, digits and underscores",
    ),
    "no requests per second": (
        lambda stack: _api(stack, rate_limit=0),
        "rate_limit must be 1 to 10000, got 0; choose a number in that range",
    ),
    "requests per second without a number": (
        lambda stack: _api(stack, rate_limit=float("nan")),
        "rate_limit must be 1 to 10000, got nan; choose a number in that range",
    ),
    "a burst beyond the account's": (
        lambda stack: _api(stack, burst_limit=5_001),
        "burst_limit must be 1 to 5000, got 5001; choose a number in that range",
    ),
    "an invalid schema": (
        lambda stack: _api(
            stack, operations={"pay": Operation(saga=saga(stack), schema={"properties": {"amount": {"type": "int"}}})}
        ),
        (
            "schema of operation pay must be a JSON schema (draft 7): /properties/amount/type must be one of array, "
            "boolean, integer, null, number, object, string, or a list of them, got 'int'; correct it"
        ),
    ),
    "bodies larger than a state machine takes": (
        lambda stack: Operation(saga=saga(stack), max_body_bytes=65_537),
        (
            "max_body_bytes must be 1 to 65536, got 65537; "
            "lower it, or give the saga payloads=PayloadBucket(…), which keeps larger bodies"
        ),
    ),
    "a wait that the gateway would end": (
        lambda stack: Operation(saga=saga(stack), max_wait=Duration.seconds(21)),
        "max_wait must be 1 s to 20 s, got 21 s; choose a duration in that range",
    ),
}


@pytest.mark.parametrize("case", APIS)
def test_apis_refuse(stack: Stack, case: str) -> None:
    _refused(*APIS[case], stack)


def test_values_cannot_be_changed_afterwards(stack: Stack) -> None:
    from dataclasses import FrozenInstanceError

    for value, name in ((_step(stack), "name"), (Retry(), "in_doubt_cap"), (Operation(saga=saga(stack)), "schema")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, "other")
