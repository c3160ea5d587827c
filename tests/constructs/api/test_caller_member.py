"""The member in which functions find their caller: what reaches the function, and what ends the synth."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import Stack

from constructs_lib import DirectFunction, DirectOperation, IdempotencyTable, KeySource, Operation, Step, TransactionApi
from saga_runtime.http.operation import OperationSettings
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.integrations import own, saga_of
from tests.constructs.support.sagas import FUNCTIONS, saga

SCHEMA = {"type": "object", "additionalProperties": False, "properties": {"amount": {"type": "integer"}}}


def test_both_kinds_of_operation_have_it_in_the_environment(stack: Stack) -> None:
    fn = DirectFunction(stack, "Pay", code=FUNCTIONS, handler="direct.handler")
    direct = DirectOperation(
        fn=fn, requests=IdempotencyTable(stack, "Payments"), previous=None, caller_member="customer_id"
    )
    operations: dict[str, Any] = {
        "orders": Operation(saga=saga(stack), caller_member="customer_id"),
        "payments": direct,
    }
    TransactionApi(stack, "Api", operations=operations)

    cloud = Cloud(stack)
    for path in ("Api/Gatekeeper/orders/Function", "Pay/Function"):
        variables = cloud.one(path).properties["Environment"]["Variables"]
        assert OperationSettings.from_env(variables).caller_member == "customer_id"


def test_an_expression_may_read_it_though_the_schema_has_it_not(stack: Stack) -> None:
    step = Step.atomic("Pay", fn=own(stack, "Pay"), pivot=True, when='$request.customer_id != "guest"')
    made = saga_of(stack, step)
    TransactionApi(
        stack, "Api", operations={"orders": Operation(saga=made, schema=SCHEMA, caller_member="customer_id")}
    )

    with pytest.raises(ValueError, match=r"must read members that the schema of operation orders has, got \$request"):
        TransactionApi(stack, "Other", operations={"orders": Operation(saga=made, schema=SCHEMA)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"caller_member": ""}, "caller_member of operation orders must match .*, got ''; use a name like customer_id"),
        ({"caller_member": " "}, "caller_member of operation orders must match .*, got ' '"),
        ({"caller_member": "a-b"}, "caller_member of operation orders must match .*, got 'a-b'"),
        ({"caller_member": "cdk_sagas_ref"}, "caller_member of operation orders must match"),
        (
            {"caller_member": "amount", "schema": SCHEMA},
            "caller_member of operation orders must not be a member of the schema, got 'amount'; remove it there",
        ),
        (
            {"caller_member": "who", "schema": {"type": "object", "required": ["who"]}},
            "caller_member of operation orders must not be a member of the schema, got 'who'",
        ),
        (
            {"caller_member": "who", "key_source": KeySource.composite("/who/id")},
            "caller_member of operation orders must not be in key_source, got 'who'; leave it out",
        ),
    ],
)
def test_a_member_that_cannot_work_ends_the_synth(stack: Stack, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TransactionApi(stack, "Api", operations={"orders": Operation(saga=saga(stack), **options)})
