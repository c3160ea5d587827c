"""Several of everything: in one stack, in one API, in one app, and one function in several sagas."""

from __future__ import annotations

import json

from aws_cdk import Stack
from aws_cdk import aws_sqs as sqs

from constructs_lib import IdempotencyTable, LedgerTable, Notify, Operation, SagaStateMachine, Step, TransactionApi
from examples.funds_transfer.stack import FundsTransferStack
from tests.constructs.support.asl import role_problems
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.sagas import plain_function, saga, step_function


def _types(cloud: Cloud) -> dict[str, int]:
    types = [resource.type for resource in cloud.resources.values()]
    return {name: types.count(name) for name in types}


def test_two_of_every_construct_live_in_one_stack(stack: Stack) -> None:
    for name in ("One", "Other"):
        ledger = LedgerTable(stack, f"{name}Ledger")
        move = step_function(stack, f"{name}Move")
        ledger.grant_post(move)
        requests = IdempotencyTable(stack, f"{name}Requests")
        queue = sqs.Queue(stack, f"{name}Queue", fifo=True)
        subject = SagaStateMachine(
            stack,
            f"{name}Saga",
            requests=requests,
            steps=[Step.atomic("Move", fn=move), Step.notify("Tell", queue=queue)],
            on_failed=Notify(queue=queue),
        )
        TransactionApi(stack, f"{name}Api", operations={"orders": subject}, waf=True)
    types = _types(Cloud(stack))
    assert types["AWS::DynamoDB::GlobalTable"] == 6
    assert types["AWS::StepFunctions::StateMachine"] == 4
    assert types["AWS::Lambda::Function"] == 6
    assert types["AWS::ApiGateway::RestApi"] == 2
    assert types["AWS::WAFv2::WebACL"] == 2


def test_a_function_may_run_steps_of_two_sagas(stack: Stack) -> None:
    move, requests = step_function(stack), IdempotencyTable(stack, "Requests")
    for name in ("One", "Other"):
        SagaStateMachine(stack, name, requests=requests, steps=[Step.atomic("Move", fn=move)])
    cloud = Cloud(stack)
    granted = cloud.permissions("Move/Role")
    for name in ("One", "Other"):
        assert ("dynamodb:PutItem", f"${{{name}/Log/Table.Arn}}") in granted
        assert ("lambda:InvokeFunction", "${Move/Function.Arn}") in cloud.permissions(f"{name}/StateMachine/Role")


def test_a_function_may_run_several_steps_of_one_saga_and_a_compensation(stack: Stack) -> None:
    one = plain_function(stack, "Function")
    SagaStateMachine(
        stack,
        "Saga",
        requests=IdempotencyTable(stack, "Requests"),
        steps=[Step.atomic("First", fn=one, compensate=one), Step.atomic("Second", fn=one)],
    )
    cloud = Cloud(stack)
    for path in ("Saga/StateMachine", "Saga/Recovery"):
        granted = {(a, r) for a, r in cloud.permissions(f"{path}/Role") if r != "*"}
        assert not role_problems(cloud.definition(path), granted)


def test_two_operations_of_one_api_have_a_gatekeeper_each_that_starts_its_own_saga(stack: Stack) -> None:
    requests = IdempotencyTable(stack, "Requests")
    sagas = {name: saga(stack, name.capitalize(), requests=requests) for name in ("orders", "refunds")}
    TransactionApi(stack, "Api", operations={name: Operation(saga=subject) for name, subject in sagas.items()})
    cloud = Cloud(stack)
    for name, other in (("orders", "Refunds"), ("refunds", "Orders")):
        granted = cloud.permissions(f"Api/Gatekeeper/{name}/Role")
        assert ("states:StartExecution", f"${{{name.capitalize()}/StateMachine}}") in granted
        assert not [resource for _, resource in granted if other in resource]
    paths = {m.path.split("/Default/")[-1] for m in cloud.of_type("AWS::ApiGateway::Method")}
    assert paths == {"orders/POST", "orders/{saga_id}/GET", "refunds/POST", "refunds/{saga_id}/GET"}


def test_two_operations_may_start_the_same_saga(stack: Stack) -> None:
    subject = saga(stack)
    TransactionApi(stack, "Api", operations={"orders": subject, "big-orders": subject})
    assert len(Cloud(stack).of_type("AWS::ApiGateway::Method")) == 4


def test_names_that_differ_in_a_dash_do_not_collide(stack: Stack) -> None:
    subject = saga(stack)
    TransactionApi(stack, "Api", operations={"ab": subject, "a-b": subject})
    assert len(Cloud(stack).of_type("AWS::ApiGateway::Method")) == 4


def test_two_stacks_of_one_app_have_the_same_resources_and_share_none(new_app: AppFactory) -> None:
    app = new_app()
    stacks = [FundsTransferStack(app, name) for name in ("One", "Other")]
    one, other = (Cloud(stack) for stack in stacks)
    assert _types(one) == _types(other)
    for cloud in (one, other):
        text = json.dumps(cloud.template)
        assert "Fn::ImportValue" not in text
    assert "One-" not in json.dumps(other.template)


def test_a_saga_may_use_a_request_table_of_another_stack_of_its_app(new_app: AppFactory) -> None:
    app = new_app()
    tables, sagas = Stack(app, "Tables"), Stack(app, "Sagas")
    saga(sagas, requests=IdempotencyTable(tables, "Requests"))
    assert Cloud(sagas).of_type("AWS::StepFunctions::StateMachine")
    assert Cloud(tables).of_type("AWS::DynamoDB::GlobalTable")


def test_the_same_saga_declared_twice_has_the_same_definition(new_app: AppFactory) -> None:
    first, second = (Cloud(FundsTransferStack(new_app(), "FundsTransfer")) for _ in range(2))
    for path in ("Transfer/StateMachine", "Transfer/Recovery"):
        texts = {c.one(path).properties["DefinitionString"] for c in (first, second)}
        assert len(texts) == 1
