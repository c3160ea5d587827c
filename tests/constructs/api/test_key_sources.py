"""Key sources of operations: what their functions are given, and what ends the synth."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import Stack

from constructs_lib import (
    DirectFunction,
    DirectOperation,
    IdempotencyTable,
    KeyPolicy,
    KeySource,
    Operation,
    SagaStateMachine,
    TransactionApi,
)
from saga_runtime.http.operation import OperationSettings
from saga_runtime.protocol import Env
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.sagas import FUNCTIONS, saga

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"order_id": {"type": "string"}, "number": {"type": "integer"}, "lines": {"type": "array"}},
}


def _direct(stack: Stack, source: KeySource, **settings: Any) -> DirectOperation:
    fn = DirectFunction(stack, "Pay", code=FUNCTIONS, handler="direct.handler", schema=SCHEMA)
    return DirectOperation(
        fn=fn, requests=IdempotencyTable(stack, "Requests"), previous=None, key_source=source, **settings
    )


def test_functions_read_their_keys_where_the_operation_has_them(stack: Stack) -> None:
    natural, composite = KeySource.natural("/order_id"), KeySource.composite("/number")
    operations: dict[str, Operation | DirectOperation | SagaStateMachine] = {
        "orders": Operation(saga=saga(stack), schema=SCHEMA, key_source=natural),
        "payments": _direct(stack, composite),
    }
    TransactionApi(stack, "Api", operations=operations)
    cloud = Cloud(stack)

    for function, source in (("Api/Gatekeeper/orders/Function", natural), ("Pay/Function", composite)):
        variables = cloud.one(function).properties["Environment"]["Variables"]
        assert OperationSettings.from_env(variables).key_source == source


def test_a_header_needs_no_variable(stack: Stack) -> None:
    TransactionApi(stack, "Api", operations={"transfers": saga(stack)})

    variables = Cloud(stack).one("Api/Gatekeeper/transfers/Function").properties["Environment"]["Variables"]

    assert Env.KEY_SOURCE not in variables
    assert OperationSettings.from_env(variables).key_source == KeySource.header()


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        (KeySource.natural("/order"), "string or integer"),
        (KeySource.natural("/order_id", "/lines"), "string or integer"),
        (KeySource.body("/number"), "string"),
        (KeySource.composite("/order_id/id"), "string or integer"),
    ],
)
def test_a_member_that_no_body_can_have_is_refused(stack: Stack, source: KeySource, kinds: str) -> None:
    expected = rf"key_source of operation \w+ must point to {kinds} in a body that the schema allows"
    with pytest.raises(ValueError, match=expected):
        TransactionApi(
            stack, "Api", operations={"orders": Operation(saga=saga(stack), schema=SCHEMA, key_source=source)}
        )
    with pytest.raises(ValueError, match=expected):
        TransactionApi(stack, "Other", operations={"payments": _direct(stack, source)})


@pytest.mark.parametrize("source", [KeySource.natural("/order_id"), KeySource.composite("/order_id")])
def test_natural_keys_are_never_optional(stack: Stack, source: KeySource) -> None:
    with pytest.raises(ValueError, match=r"key_policy must be REQUIRED with a (natural|composite) key, got OPTIONAL"):
        Operation(saga=saga(stack), key_source=source, key_policy=KeyPolicy.OPTIONAL)
    with pytest.raises(ValueError, match="key_policy must be REQUIRED"):
        _direct(stack, source, key_policy=KeyPolicy.OPTIONAL)
