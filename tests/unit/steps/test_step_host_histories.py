"""Short histories of the step host, each of which needs one of its conditions to succeed."""

from __future__ import annotations

import io
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from handlers import step_host
from saga_runtime import PermanentError, StepInDoubt, TransientError
from saga_runtime.protocol import OUTPUT_FIELD
from saga_runtime.shared import aws
from tests.unit.steps.test_step_host import TARGETS, Functions
from tests.unit.support.gateway import GRACE_MS, LIFE_MS, REMAINING_MS, UNDO_ASKED, Shop
from tests.unit.support.world import Context, World

Hosted = tuple[Shop, Functions]


@pytest.fixture
def hosted(world: World, monkeypatch: pytest.MonkeyPatch) -> Hosted:
    """A saga, and the functions behind the host."""
    functions = Functions()
    monkeypatch.setattr(aws, "functions", functions.client)
    for variable, name in TARGETS.items():
        monkeypatch.setenv(variable, name)
    return Shop(world, **UNDO_ASKED), functions


def run(shop: Shop) -> Any:
    """Invoke the host's step."""
    return step_host.handler(shop.event(), Context(remaining_ms=REMAINING_MS))[OUTPUT_FIELD]


@pytest.mark.parametrize(
    ("answer", "expected", "status"),
    [
        (ReadTimeoutError(endpoint_url="x"), StepInDoubt, "INTENT"),
        (ClientError({"Error": {"Code": "TooManyRequestsException"}}, "Invoke"), TransientError, "INTENT"),
        ('"done"', StepInDoubt, "INTENT"),
        ({}, StepInDoubt, "INTENT"),
        ({"output": {}, "error": {"name": "Declined", "message": "no"}}, PermanentError, "REFUSED"),
    ],
    ids=["no answer", "throttled", "no object", "no output", "output and error"],
)
def test_a_response_decides_the_error_and_the_row(
    hosted: Hosted, answer: Any, expected: type[Exception], status: str
) -> None:
    shop, functions = hosted
    functions.answers["apply"] = answer
    with pytest.raises(expected):
        run(shop)
    assert shop.status == status


def test_an_interrupted_response_is_not_accepted(hosted: Hosted) -> None:
    """Its answer is whatever was left of it."""
    shop, functions = hosted

    def broken(**_: object) -> dict[str, Any]:
        return {"FunctionError": "Unhandled", "Payload": io.BytesIO(b'{"output": {}}')}

    functions.invoke = broken  # type: ignore[method-assign]
    with pytest.raises(StepInDoubt):
        run(shop)


def test_a_verdict_without_a_reason_is_invalid(hosted: Hosted) -> None:
    """The outcome of a call that crashed is not guessed."""
    shop, functions = hosted
    functions.answers["apply"] = "crash"
    with pytest.raises(StepInDoubt):
        run(shop)
    shop.passes(LIFE_MS + GRACE_MS)
    functions.answers["verify"] = {"verdict": "perhaps"}
    with pytest.raises(StepInDoubt):
        run(shop)
    assert [name for name, _ in functions.sent] == ["apply", "verify"]


def test_the_step_is_verified_by_its_own_function(hosted: Hosted) -> None:
    """The one that acts must not be taken for the one that asks."""
    shop, functions = hosted
    functions.answers["apply"] = "crash"
    with pytest.raises(StepInDoubt):
        run(shop)
    shop.passes(LIFE_MS + GRACE_MS)
    run(shop)
    assert [name for name, _ in functions.sent] == ["apply", "verify"]


def test_the_host_stops_waiting_before_its_own_end(hosted: Hosted) -> None:
    """Otherwise the function's response would not be recorded."""
    shop, functions = hosted
    run(shop)
    assert max(functions.patience_ms) < REMAINING_MS
