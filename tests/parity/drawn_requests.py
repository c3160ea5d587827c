"""Random requests: the fake DynamoDB responds as DynamoDB Local does."""

from __future__ import annotations

from contextlib import suppress

import pytest

from constructs_lib.testing.simulator.errors import ServiceError
from tests.parity.mirror import server
from tests.simulator.test_dynamodb_differential import REQUESTS, TABLE, Requests
from tests.unit.support.dynamodb import Database

RUNS = 100


class _More(Requests):
    """The same, with what moto does otherwise: values that an update returns, and sizes."""

    returns = (*Requests.returns, "UPDATED_OLD", "UPDATED_NEW")
    conditions = (*Requests.conditions, "size")


@pytest.mark.parametrize("seed", range(RUNS))
def test_same_requests_have_the_same_responses(seed: int) -> None:
    local = server()
    assert local is not None, "run `make parity`, which runs DynamoDB Local"
    drawn, database = _More(seed), Database([TABLE])
    before = local.compared.total() + local.left_out.total()

    for _ in range(REQUESTS):
        with suppress(ServiceError):  # both refuse it
            database.call(*drawn.request())

    assert local.compared.total() + local.left_out.total() == before + REQUESTS
