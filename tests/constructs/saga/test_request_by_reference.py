"""A request that travels by reference, as an earlier release's expressions left it, under one that reads it."""

from __future__ import annotations

import pytest
from aws_cdk import Stack

from constructs_lib import IdempotencyTable, PayloadBucket, SagaStateMachine, Step
from constructs_lib.saga.asl import SagaPlan, definition_of
from constructs_lib.saga.asl.begin import WHOSE_START
from saga_runtime.protocol import WAYS_AT
from tests.constructs.support.groups import of_items, plan
from tests.constructs.support.plans import step
from tests.constructs.support.sagas import plain_function
from tests.constructs.support.simulation import Simulation

REFERENCE = {"cdk_sagas_ref": f"{'a' * 26}/{'0' * 64}"}
ITEMS = {"items": [{"sku": "a"}, {"sku": "b"}]}


def _made(ways: str, *, alongside: bool = False) -> SagaPlan:
    return plan(
        step("Credit", pivot=True),
        of_items("All", step("Pay"), key="$item.sku"),
        fingerprint=f"{'shape':{WAYS_AT}}{ways}",
        outlived_seconds=1_260,
        payloads="bucket",
        reads_request=True,
        alongside=alongside,
    )


@pytest.mark.parametrize("alongside", [False, True])
def test_a_saga_does_not_begin_where_expressions_would_find_nothing_in_its_request(*, alongside: bool) -> None:
    """A map over the items of nothing would complete the saga without a payment."""
    began, deployed = _made("earlier", alongside=alongside), _made("later", alongside=alongside)

    saga = Simulation(plan=began, other=deployed, switches=frozenset({1}), request=REFERENCE).run()

    assert (saga.settled, +saga.effects) == ("FAILED", {})


def test_a_saga_begins_with_a_request_that_travels_inline() -> None:
    saga = Simulation(plan=_made("earlier"), other=_made("later"), switches=frozenset({1}), request=ITEMS).run()

    assert (saga.settled, +saga.effects) == ("COMPLETED", {"Credit": 1, "Pay[a]": 1, "Pay[b]": 1})


@pytest.mark.parametrize(
    ("when", "bucket", "asks"), [("true", True, False), ("$request.a", True, True), ("$request.a", False, False)]
)
def test_a_saga_asks_if_an_expression_reads_what_may_travel_by_reference(
    stack: Stack, when: str, *, bucket: bool, asks: bool
) -> None:
    fn = plain_function(stack, "Move")
    saga = SagaStateMachine(
        stack,
        "Transfer",
        requests=IdempotencyTable(stack, "Requests"),
        steps=[Step.atomic("Move", fn=fn, pivot=True, when=when)],
        payloads=PayloadBucket(stack, "Payloads") if bucket else None,
    )

    choice = definition_of(saga._plan())["States"][WHOSE_START]

    assert ("cdk_sagas_ref" in choice["Choices"][0]["Condition"]) is asks
