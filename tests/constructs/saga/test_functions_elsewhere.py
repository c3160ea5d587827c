"""Functions in other stacks of the app than their saga: what works, and the errors of what does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from aws_cdk import App, Duration, Environment, NestedStack, Stack, Stage
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_cognito as cognito
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib import (
    CallbackIntegration,
    DirectFunction,
    DirectOperation,
    EventIntake,
    HttpTransactionApi,
    IdempotencyTable,
    LedgerTable,
    Migration,
    Notify,
    PayloadBucket,
    Provider,
    SagaStateMachine,
    Step,
    StepFunction,
    StepGroup,
    StepHost,
    StripeSignature,
    TimeoutReconciler,
    TokenTable,
    TransactionApi,
)
from saga_runtime.migration import Concern, Layout
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.integrations import integration, job, saga_of, secret
from tests.constructs.support.sagas import FUNCTIONS, plain_function, saga, step_function

HERE = Environment(account="111111111111", region="eu-west-1")
PROVIDER = Provider(verify=True, verify_undo=True)
BY_KEY = Provider(idempotent_for=Duration.days(1), compensation_idempotent_for=Duration.days(1))
EVERY_KIND = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    """Stacks of one app: functions, what both refer to, and sagas. None is empty."""

    app: App
    functions: Stack
    data: Stack
    sagas: Stack

    def synth(self) -> Cloud:
        """Templates of all stacks; returned is that of the sagas."""
        self.app.synth()
        return Cloud(self.sagas)


@pytest.fixture
def stacks(new_app: AppFactory) -> Stacks:
    app = new_app()
    made = {name: Stack(app, name, env=HERE) for name in ("Functions", "Data", "Sagas")}
    for stack in made.values():
        sqs.Queue(stack, "NotEmpty")
    return Stacks(app=app, functions=made["Functions"], data=made["Data"], sagas=made["Sagas"])


def _every_kind(stacks: Stacks, key: kms.IKey) -> list[Step | StepGroup]:
    far, data = stacks.functions, stacks.data
    step, undo = plain_function(far, "Step"), plain_function(far, "Undo")
    host = StepHost(
        far, "Host", apply=plain_function(far, "Theirs"), undo=plain_function(far, "Their"), provider=BY_KEY
    )
    attribute = dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
    encryption = dynamodb.TableEncryptionV2.customer_managed_key(key)
    table = dynamodb.TableV2(data, "Table", partition_key=attribute, encryption=encryption)
    notices = sqs.Queue(data, "Notices", fifo=True, encryption_master_key=key)
    jobs = integration(stacks.sagas)
    put = {"Put": {"Item": {"id": {"S": "a"}}}}
    return [
        Step.read_only("Quote", fn=step),
        Step.express("Prepare", steps=[Step.atomic("Reserve", fn=step, compensate=undo)]),
        Step.parallel(
            "Both", branches=[[Step.atomic("Left", fn=step, compensate=undo)], [_external("Right", step, undo)]]
        ),
        Step.map("Ship", items="$request.items", key="$item.sku", steps=[_external("Label", step, undo)]),
        Step.dynamodb("Mark", table=table, writes=[put], compensate=[{"Delete": {"Key": {"id": {"S": "a"}}}}]),
        Step.external("Hosted", fn=host.step, compensate=host.compensation, provider=BY_KEY),
        job(jobs, "Pick", compensate=undo),
        Step.wait_for("Answer", via=jobs, expected_duration=Duration.minutes(5), timeout=Duration.hours(1)),
        Step.atomic("Pay", fn=step, pivot=True),
        Step.child("Fulfil", timeout=Duration.minutes(10), steps=[Step.atomic("Dispatch", fn=step)]),
        Step.event("Tell", bus=events.EventBus(data, "Bus"), source="shop", detail_type="Paid"),
        Step.notify("Receipt", queue=notices),
    ]


def _external(name: str, step: lambda_.IFunction, undo: lambda_.IFunction) -> Step:
    return Step.external(name, fn=step, compensate=undo, provider=PROVIDER)


def test_steps_of_every_kind_run_functions_of_another_stack(stacks: Stacks) -> None:
    key = kms.Key(stacks.data, "Key")
    steps = _every_kind(stacks, key)
    assert len(steps) == EVERY_KIND
    made = SagaStateMachine(
        stacks.sagas,
        "Saga",
        requests=IdempotencyTable(stacks.data, "Requests", encryption_key=key),
        steps=steps,
        encryption_key=key,
        payloads=PayloadBucket(stacks.data, "Payloads", encryption_key=key),
        operators=sqs.Queue(stacks.data, "Operators", encryption_master_key=key),
        on_failed=Notify(queue=sqs.Queue(stacks.data, "Failed", fifo=True, encryption_master_key=key)),
    )
    TransactionApi(stacks.sagas, "Api", operations={"orders": made})
    TimeoutReconciler(stacks.sagas, "Reconciler", sagas=[made])
    cloud = stacks.synth()

    policies = [policy for policy in cloud.of_type("AWS::IAM::Policy") if policy.path.startswith("Saga/Grants")]
    assert len(policies) == 4  # step, its compensation, the host, and the host's compensation
    allowed = [statement for policy in policies for statement in policy.properties["PolicyDocument"]["Statement"]]
    log = [one for one in allowed if one["Resource"] == "${Saga/Log/Table.Arn}"]
    assert {action for one in log for action in _listed(one["Action"])} == {
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "dynamodb:Query",
        "dynamodb:UpdateItem",
    }
    assert {action for one in allowed for action in _listed(one["Action"])} >= {"kms:Decrypt", "s3:GetObject"}
    assert [stack.node.id for stack in stacks.functions.dependencies] == []


def _listed(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def test_no_machine_exists_before_the_grants_of_its_functions(stacks: Stacks) -> None:
    far = plain_function(stacks.functions, "Far")
    steps = [Step.child("Inner", timeout=Duration.minutes(10), steps=[Step.atomic("Pay", fn=far)])]
    SagaStateMachine(stacks.sagas, "Saga", requests=IdempotencyTable(stacks.sagas, "Requests"), steps=steps)
    cloud = stacks.synth()

    (policy,) = (one for one in cloud.of_type("AWS::IAM::Policy") if one.path.startswith("Saga/Grants"))
    machines = cloud.of_type("AWS::StepFunctions::StateMachine")
    assert len(machines) == 3
    assert all(policy.logical_id in machine.raw["DependsOn"] for machine in machines)


def test_two_stacks_of_one_class_do_not_replace_each_others_grants(stacks: Stacks) -> None:
    far = plain_function(stacks.functions, "Far")
    names = set()
    for stack in (stacks.sagas, stacks.data):
        steps = [Step.atomic("Pay", fn=far)]
        SagaStateMachine(stack, "Saga", requests=IdempotencyTable(stack, "Requests"), steps=steps)
    stacks.app.synth()
    for stack in (stacks.sagas, stacks.data):
        grants = [one for one in Cloud(stack).of_type("AWS::IAM::Policy") if one.path.startswith("Saga/Grants")]
        names |= {one.properties["PolicyName"] for one in grants}

    assert len(names) == 2, "a role keeps one policy of a name"


def test_two_stacks_may_share_a_token_table_and_its_sweeper(stacks: Stacks) -> None:
    tokens = TokenTable(stacks.data, "Tokens")
    for stack in (stacks.sagas, stacks.functions):
        saga_of(stack, job(integration(stack, tokens=tokens)))
    stacks.app.synth()

    clouds = [Cloud(stack) for stack in (stacks.sagas, stacks.functions)]
    told = [cloud.one("Warehouse/TellsOfJobs").properties["PolicyName"] for cloud in clouds]
    assert told[0] != told[1], "a role keeps one policy of a name"


@pytest.mark.parametrize("functions_nested", [True, False])
def test_function_and_saga_may_be_in_nested_stacks(new_app: AppFactory, functions_nested: bool) -> None:
    app = new_app()
    outer = Stack(app, "Outer", env=HERE)
    inner = NestedStack(outer, "Inner")
    far, near = (inner, outer) if functions_nested else (outer, inner)
    saga_of(near, Step.atomic("Pay", fn=step_function(far).function))
    app.synth()


def test_an_imported_function_and_one_that_writes_no_row_may_be_elsewhere(stacks: Stacks) -> None:
    arn = "arn:aws:lambda:eu-west-1:111111111111:function:theirs"
    theirs = lambda_.Function.from_function_arn(stacks.functions, "Theirs", arn)
    unrecorded = Step.read_only("Look", fn=plain_function(stacks.functions, "Far"), record=False)
    saga_of(stacks.sagas, unrecorded, Step.atomic("Pay", fn=theirs, fn_timeout=Duration.seconds(9)))
    stacks.app.synth()


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_a_cycle_names_the_saga_the_function_and_the_way_out(stacks: Stacks) -> None:
    ledger = LedgerTable(stacks.sagas, "Ledger")
    move = step_function(stacks.functions)
    ledger.grant_post(move)
    saga_of(stacks.sagas, Step.atomic("Pay", fn=move))

    with pytest.raises(
        RuntimeError,
        match=r"Sagas/Saga runs Functions/Move/Function, so nothing in Functions may refer to Sagas: move what it "
        r"refers to into Functions, or into a stack of its own\)",
    ):
        stacks.app.synth()


def test_a_function_of_another_region_is_refused(new_app: AppFactory) -> None:
    app = new_app()
    here = Stack(app, "Sagas", env=HERE)
    there = Stack(app, "Functions", env=Environment(account="111111111111", region="us-east-1"))

    with pytest.raises(
        ValueError,
        match=r"^fn of step Pay must be in the stage, account and region of Sagas/Saga "
        r"\(aws://111111111111/eu-west-1\), got Functions/Move/Function of aws://111111111111/us-east-1; create the "
        r"function there",
    ):
        saga_of(here, Step.atomic("Pay", fn=step_function(there)))


def test_a_function_of_another_stage_is_refused(new_app: AppFactory) -> None:
    app = new_app()
    here, there = (Stack(Stage(app, name, env=HERE), "Shop") for name in ("One", "Two"))

    with pytest.raises(
        ValueError, match=r"^compensate of step Pay must be in the stage, account and region of One/Shop"
    ):
        saga_of(
            here,
            Step.atomic("Pay", fn=step_function(here, "A"), compensate=step_function(there, "B")),
            job(integration(here)),
        )


def _dispatcher(near: Construct, far: Construct) -> None:
    CallbackIntegration(near, "Warehouse", fn=step_function(far))


def _webhook(near: Construct, far: Construct) -> None:
    integration(near).add_webhook("Scans", fn=step_function(far), scheme=StripeSignature(secrets=[secret(near)]))


def _event_rule(near: Construct, far: Construct) -> None:
    pattern = events.EventPattern(source=["shop"])
    integration(near).add_event_rule("Scans", fn=step_function(far), bus=events.EventBus(near, "Bus"), pattern=pattern)


def _intake(near: Construct, far: Construct) -> None:
    fn = StepFunction(far, "Credit", code=FUNCTIONS, handler="intake.handler")
    EventIntake(near, "Intake", operation="stripe", fn=fn, requests=IdempotencyTable(near, "Requests"))


def _authorizer(near: Construct, far: Construct) -> None:
    pools = [cognito.UserPool(far, "Users")]
    users = apigateway.CognitoUserPoolsAuthorizer(far, "Authorizer", cognito_user_pools=pools)
    TransactionApi(near, "Api", operations={"moves": saga(near)}, authorizer=users, identity="jwt")


@pytest.mark.parametrize(
    ("give", "name"),
    [
        (_dispatcher, "fn"),
        (_webhook, "fn of webhook Scans"),
        (_event_rule, "fn of event rule Scans"),
        (_intake, "fn of EventIntake Intake"),
        (_authorizer, "authorizer"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_what_must_be_in_one_stack_is_named(
    stacks: Stacks, give: Callable[[Construct, Construct], None], name: str, turned: bool
) -> None:
    near, far = (stacks.functions, stacks.sagas) if turned else (stacks.sagas, stacks.functions)

    with pytest.raises(
        ValueError, match=rf"^{name} must be in the stack {near.node.id} of {near.node.id}/\w+, got {far.node.id}/"
    ):
        give(near, far)


@pytest.mark.parametrize("turned", [False, True])
def test_an_integration_of_another_stack_than_its_saga_is_refused(stacks: Stacks, turned: bool) -> None:
    near, far = (stacks.functions, stacks.sagas) if turned else (stacks.sagas, stacks.functions)

    with pytest.raises(
        ValueError, match=rf"^saga {near.node.id}/Saga must be in the stack of {far.node.id}/Warehouse, got"
    ):
        saga_of(near, job(integration(far)))


def _direct(scope: Construct, operation: DirectOperation) -> None:
    TransactionApi(scope, "Api", operations={"moves": operation})


def _direct_http(scope: Construct, operation: DirectOperation) -> None:
    api = apigatewayv2.HttpApi(scope, "HttpApi")
    HttpTransactionApi(scope, "Api", api=api, operations={"moves": operation})


def _operation(stacks: Stacks, table: Construct) -> DirectOperation:
    fn = DirectFunction(stacks.functions, "Pay", code=FUNCTIONS, handler="direct.handler")
    return DirectOperation(fn=fn, requests=IdempotencyTable(table, "Requests"), previous=None)


@pytest.mark.parametrize("serve", [_direct, _direct_http])
def test_a_direct_function_elsewhere_with_a_table_of_the_apis_stack_is_refused(
    stacks: Stacks, serve: Callable[[Construct, DirectOperation], None]
) -> None:
    with pytest.raises(
        ValueError,
        match=r"^requests of operation moves must not be in stack Sagas with fn of operation moves in stack Functions, "
        r"got Sagas/Requests: each stack would depend on the other; move it into Functions or into a stack of its own, "
        r"or the function into Sagas",
    ):
        serve(stacks.sagas, _operation(stacks, stacks.sagas))


@pytest.mark.parametrize("serve", [_direct, _direct_http])
def test_a_direct_function_and_its_table_may_be_in_other_stacks(
    stacks: Stacks, serve: Callable[[Construct, DirectOperation], None]
) -> None:
    serve(stacks.sagas, _operation(stacks, stacks.data))
    stacks.app.synth()


def test_writers_of_a_migration_are_elsewhere_only_without_its_table(stacks: Stacks) -> None:
    cash, points = (Concern(name=name, item=f"#{name}", attributes={name: name}) for name in ("cash", "points"))
    layout = Layout(name="split", old_item="customer", groups=((cash,), (points,)))
    text = dynamodb.AttributeType.STRING

    def migrate(id: str, scope: Construct) -> None:
        keys: dict[str, Any] = {
            "partition_key": dynamodb.Attribute(name="pk", type=text),
            "sort_key": dynamodb.Attribute(name="sk", type=text),
        }
        table = dynamodb.TableV2(scope, f"{id}Table", **keys)
        Migration(stacks.sagas, id, table=table, layout=layout, phase=1, writers=[step_function(stacks.functions, id)])

    with pytest.raises(ValueError, match=r"^table of Migration Wrong must not be in stack Sagas with writer Wrong of"):
        migrate("Wrong", stacks.sagas)
    migrate("Right", stacks.data)
    stacks.app.synth()


def test_a_cycle_by_a_reconciler_names_it(stacks: Stacks) -> None:
    made = saga(stacks.sagas, requests=IdempotencyTable(stacks.data, "Requests"))
    TimeoutReconciler(stacks.data, "Reconciler", sagas=[made])

    with pytest.raises(
        RuntimeError, match=r"Data/Reconciler recovers Sagas/Saga, so nothing in Sagas may refer to Data: "
    ):
        stacks.app.synth()


def test_a_cycle_by_an_api_names_it(stacks: Stacks) -> None:
    made = saga(stacks.sagas, requests=IdempotencyTable(stacks.data, "Requests"))
    TransactionApi(stacks.data, "Api", operations={"moves": made})

    with pytest.raises(RuntimeError, match=r"Data/Api begins Sagas/Saga, so nothing in Sagas may refer to Data: "):
        stacks.app.synth()
