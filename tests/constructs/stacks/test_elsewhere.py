"""Tables, sagas and functions of another account, region or stage: refused where they are named.

The CDK gives a table of another region a name, by which a function or a state machine finds none where it runs.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from aws_cdk import App, Environment, Stack, Stage
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sqs as sqs

from constructs_lib import (
    CallbackIntegration,
    DirectFunction,
    DirectOperation,
    EventIntake,
    IdempotencyTable,
    IIdempotencyTable,
    LedgerTable,
    Notify,
    OperatorAccess,
    PayloadBucket,
    SagaStateMachine,
    StandardWebhooks,
    Step,
    StepFunction,
    TimeoutReconciler,
    TokenTable,
    TransactionApi,
)
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.sagas import FUNCTIONS, plain_function, saga, step_function

HERE = Environment(account="111111111111", region="eu-west-1")
ELSEWHERE = {
    "region": Environment(account="111111111111", region="us-east-1"),
    "account": Environment(account="222222222222", region="eu-west-1"),
    "unknown": None,
}


def _saga_on(here: Stack, requests: IIdempotencyTable, payloads: PayloadBucket | None = None) -> None:
    steps = [Step.atomic("Move", fn=plain_function(here, "Move"))]
    SagaStateMachine(here, "Saga", requests=requests, steps=steps, payloads=payloads)


def _direct(here: Stack, requests: IdempotencyTable) -> None:
    fn = DirectFunction(here, "Direct", code=FUNCTIONS, handler="direct.handler")
    operation = DirectOperation(fn=fn, requests=requests, previous=None)
    TransactionApi(here, "Api", operations={"moves": operation})


def _intake(here: Stack, requests: IdempotencyTable) -> None:
    fn = StepFunction(here, "Intake", code=FUNCTIONS, handler="intake.handler")
    EventIntake(here, "Events", operation="stripe", fn=fn, requests=requests)


def _table(there: Stack) -> dynamodb.TableV2:
    key = dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
    return dynamodb.TableV2(there, "Theirs", table_name="theirs", partition_key=key)


def _transaction(here: Stack, table: dynamodb.TableV2) -> None:
    writes = [{"Put": {"Item": {"id": {"S": "a"}}}}]
    steps = [Step.dynamodb("Mark", table=table, writes=writes)]
    SagaStateMachine(here, "Saga", requests=IdempotencyTable(here, "Requests"), steps=steps)


def _dispatch(here: Stack, tokens: TokenTable) -> None:
    CallbackIntegration(here, "Carrier", fn=step_function(here), tokens=tokens)


USES: dict[str, tuple[str, Callable[[Stack, Stack], object]]] = {
    "requests of a saga": ("requests of Saga", lambda here, there: _saga_on(here, IdempotencyTable(there, "R"))),
    "requests imported elsewhere": (
        "requests of Saga",
        lambda here, there: _saga_on(here, IdempotencyTable.from_table_name(there, "R", table_name="theirs")),
    ),
    "payloads of a saga": (
        "payloads of Saga",
        lambda here, there: _saga_on(here, IdempotencyTable(here, "R"), PayloadBucket(there, "P")),
    ),
    "requests of a direct operation": (
        "requests of operation moves",
        lambda here, there: _direct(here, IdempotencyTable(there, "R")),
    ),
    "requests of an intake": (
        "requests of EventIntake Events",
        lambda here, there: _intake(here, IdempotencyTable(there, "R")),
    ),
    "saga of an operation": (
        "saga of operation moves",
        lambda here, there: TransactionApi(here, "Api", operations={"moves": saga(there)}),
    ),
    "tokens": ("tokens of CallbackIntegration Carrier", lambda here, there: _dispatch(here, TokenTable(there, "T"))),
    "a function that posts": (
        "grantee of Ledger.grant_post",
        lambda here, there: LedgerTable(here, "Ledger").grant_post(step_function(there)),
    ),
    "a reconciler": (
        "reconciler of Operators",
        lambda here, there: OperatorAccess(
            here, "Operators", reconciler=TimeoutReconciler(there, "Reconciler", sagas=[saga(there)])
        ),
    ),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("place", ELSEWHERE)
def test_what_cannot_be_reached_is_refused(new_app: AppFactory, use: str, place: str) -> None:
    app: App = new_app()
    here, there = Stack(app, "Here", env=HERE), Stack(app, "There", env=ELSEWHERE[place])
    name, make = USES[use]

    with pytest.raises(
        ValueError,
        match=rf"^{name} must be in the stage, account and region of Here/\w+ "
        r"\(aws://111111111111/eu-west-1\), got There/.* of aws://.*/.*; .+",
    ):
        make(here, there)


@pytest.mark.parametrize("use", USES)
def test_what_is_in_another_stage_is_refused(new_app: AppFactory, use: str) -> None:
    app: App = new_app()
    here, there = Stack(app, "Here", env=HERE), Stack(Stage(app, "Beta"), "There", env=HERE)
    name, make = USES[use]

    with pytest.raises(ValueError, match=rf"^{name} must be in the stage, account and region of Here/"):
        make(here, there)


@pytest.mark.parametrize("use", [use for use in USES if use != "a reconciler"])
def test_another_stack_in_the_same_place_is_taken(new_app: AppFactory, use: str) -> None:
    app: App = new_app()

    USES[use][1](Stack(app, "Here", env=HERE), Stack(app, "There", env=HERE))


@pytest.mark.parametrize("place", ["account", "region"])
def test_a_table_that_a_state_would_not_find_is_refused(new_app: AppFactory, place: str) -> None:
    app: App = new_app()
    here, there = Stack(app, "Here", env=HERE), Stack(app, "There", env=ELSEWHERE[place])

    with pytest.raises(ValueError, match=rf"^table of step Mark must be of the {place} of Here/Saga, .*, got .*; .+"):
        _transaction(here, _table(there))


def _queue(there: Stack, region: str, account: str = "111111111111", *, fifo: bool = True) -> sqs.IQueue:
    return sqs.Queue.from_queue_attributes(
        there, "Q", queue_arn=f"arn:aws:sqs:{region}:{account}:notices{'.fifo' * fifo}", fifo=fifo
    )


def _notifies(here: Stack, queue: sqs.IQueue, *, route: str) -> None:
    notify = Notify(queue=queue) if queue.fifo else None
    on_error = {"InsufficientFunds": notify} if notify and route == "on_error InsufficientFunds" else None
    steps = [Step.atomic("Move", fn=plain_function(here, "Move"), pivot=True, on_error=on_error)]
    steps += [Step.notify("Receipt", queue=queue)] if route == "step Receipt" else []
    SagaStateMachine(
        here,
        "Saga",
        requests=IdempotencyTable(here, "Requests"),
        steps=steps,
        on_failed=notify if route == "on_failed" else None,
        operators=queue if route == "operators" else None,
    )


@pytest.mark.parametrize("route", ["step Receipt", "on_error InsufficientFunds", "on_failed", "operators"])
def test_a_queue_of_another_region_is_refused(new_app: AppFactory, route: str) -> None:
    """Step Functions calls the services of its own region."""
    app: App = new_app()
    here, other = Stack(app, "Here", env=HERE), Stack(app, "Other", env=HERE)
    fifo = route != "operators"

    with pytest.raises(
        ValueError, match=rf"^queue of {route} must be of the region of Here/Saga, eu-west-1, got us-east-1; .+"
    ):
        _notifies(here, _queue(here, "us-east-1", fifo=fifo), route=route)
    _notifies(other, _queue(other, "eu-west-1", "222222222222", fifo=fifo), route=route)


@pytest.mark.parametrize("place", ["account", "region"])
def test_a_bus_that_a_state_would_not_find_is_refused(new_app: AppFactory, place: str) -> None:
    """The state has its name, which means another bus there, or none."""
    app: App = new_app()
    here, there = Stack(app, "Here", env=HERE), Stack(app, "There", env=ELSEWHERE[place])
    bus = events.EventBus(there, "Bus", event_bus_name="orders")
    steps = [
        Step.atomic("Move", fn=plain_function(here, "Move"), pivot=True),
        Step.event("Announce", bus=bus, source="shop", detail_type="Moved"),
    ]

    with pytest.raises(ValueError, match=rf"^bus of step Announce must be of the {place} of Here/Saga, .*, got .*; .+"):
        SagaStateMachine(here, "Saga", requests=IdempotencyTable(here, "Requests"), steps=steps)


def test_a_table_of_another_stack_is_written(new_app: AppFactory) -> None:
    app: App = new_app()

    _transaction(Stack(app, "Here", env=HERE), _table(Stack(app, "There", env=HERE)))


def _hook(here: Stack, secret: secretsmanager.ISecret, *, of_intake: bool) -> None:
    scheme = StandardWebhooks(secrets=[secret])
    if of_intake:
        fn = StepFunction(here, "Intake", code=FUNCTIONS, handler="intake.handler")
        intake = EventIntake(here, "Events", operation="stripe", fn=fn, requests=IdempotencyTable(here, "Requests"))
        intake.add_webhook("Webhook", scheme=scheme)
    else:
        integration = CallbackIntegration(here, "Carrier", fn=step_function(here))
        integration.add_webhook("Webhook", fn=step_function(here, "Receiver"), scheme=scheme)


@pytest.mark.parametrize("of_intake", [False, True])
@pytest.mark.parametrize("imported", [False, True])
def test_secret_of_another_region_is_refused(new_app: AppFactory, *, of_intake: bool, imported: bool) -> None:
    """The webhook's function asks the Secrets Manager of its own region, which has none of that name."""
    app: App = new_app()
    here, near = Stack(app, "Here", env=HERE), Stack(app, "Near", env=HERE)
    there = Stack(app, "There", env=ELSEWHERE["region"])
    arn = "arn:aws:secretsmanager:us-east-1:111111111111:secret:theirs-AbCdEf"
    secret = (
        secretsmanager.Secret.from_secret_complete_arn(here, "Secret", arn)
        if imported
        else secretsmanager.Secret(there, "Secret", secret_name="made")
    )

    with pytest.raises(
        ValueError,
        match=r"^secret \w+/Secret must be of the region of Here/.+, eu-west-1, got us-east-1; replicate it",
    ):
        _hook(here, secret, of_intake=of_intake)
    _hook(near, secretsmanager.Secret(here, "Own"), of_intake=of_intake)
