"""The step host: a function in another language as an external step, and what its answers mean."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from handlers import step_host
from saga_runtime import PermanentError, StepInDoubt, TransientError
from saga_runtime.errors import ProtocolMismatch
from saga_runtime.idempotency.identity import provider_key_of
from saga_runtime.protocol import OUTPUT_FIELD, CallField, Env
from saga_runtime.shared import aws
from saga_runtime.steps.atomic_compensation import CompensationRefused
from tests.unit.support.gateway import GRACE_MS, LIFE_MS, REMAINING_MS, UNDO_ASKED, Shop
from tests.unit.support.samples import SAGA_ID
from tests.unit.support.world import Context, World

TARGETS = {
    Env.STEP_HOST_APPLY: "apply",
    Env.STEP_HOST_VERIFY: "verify",
    Env.STEP_HOST_UNDO: "undo",
    Env.STEP_HOST_VERIFY_UNDO: "verify_undo",
}


class Functions:
    """The functions behind the host: what they were sent, and what they answer next."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.patience_ms: list[int] = []
        self.answers: dict[str, Any] = {
            "apply": {"output": {"payment": "p-1"}},
            "verify": {"verdict": "applied", "output": {"payment": "p-1"}},
            "undo": {"output": {}},
            "verify_undo": {"verdict": "applied"},
        }

    def client(self, patience_ms: int) -> Functions:
        """Replaces ``aws.functions``."""
        self.patience_ms.append(patience_ms)
        return self

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:  # noqa: N803  # AWS's names
        """Invoke one."""
        sent = json.loads(Payload, parse_float=Decimal)
        self.sent.append((FunctionName, sent))
        answer = self.answers[sent["action"]]
        if isinstance(answer, Exception):
            raise answer
        if answer == "crash":
            return {"FunctionError": "Unhandled", "Payload": io.BytesIO(b'{"errorMessage":"secret"}')}
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return {"Payload": io.BytesIO(text.encode())}


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Functions:
    """Four functions."""
    made = Functions()
    monkeypatch.setattr(aws, "functions", made.client)
    for variable, name in TARGETS.items():
        monkeypatch.setenv(variable, name)
    return made


@pytest.fixture
def shop(world: World) -> Shop:
    """For its saga's events and its log."""
    return Shop(world, **UNDO_ASKED)


def run(shop: Shop, **more: Any) -> Any:
    """Invoke the host's step."""
    return step_host.handler(shop.event(**more), Context(remaining_ms=REMAINING_MS))[OUTPUT_FIELD]


def undo(shop: Shop) -> Any:
    """Invoke the host's compensation."""
    return step_host.undo_handler(shop.event(), Context(remaining_ms=REMAINING_MS))


def test_a_function_is_sent_all_that_it_needs_with_exact_numbers(shop: Shop, functions: Functions) -> None:
    request = '{"amount":9007199254740993,"rate":0.10}'
    event = {CallField.REQUEST: request, CallField.ITEM: '{"item":1.50}', CallField.ITEM_KEY: "a"}

    assert run(shop, **event, **{CallField.OUTPUTS: {"Quote": {"price": "1"}}}) == {"payment": "p-1"}

    ((target, sent),) = functions.sent
    key = f"{SAGA_ID}#Charge[a]"
    assert target == "apply"
    assert sent.pop("timeout_seconds") == Decimal("11.25")
    assert sent == {
        "action": "apply",
        "saga_id": SAGA_ID,
        "step": "Charge",
        "key": key,
        "provider_key": provider_key_of(key),
        "request": {"amount": 9007199254740993, "rate": Decimal("0.1")},
        "outputs": {"Quote": {"price": "1"}},
        "item": Decimal("1.5"),
    }


def test_the_host_waits_for_less_time_than_it_has(shop: Shop, functions: Functions) -> None:
    run(shop)

    assert functions.patience_ms == [11_200]


def test_a_compensation_receives_the_steps_output_and_its_own_key(shop: Shop, functions: Functions) -> None:
    run(shop)
    undo(shop)

    target, sent = functions.sent[-1]
    assert (target, sent["output"], sent["key"]) == ("undo", {"payment": "p-1"}, f"{SAGA_ID}#Charge#undo")
    assert shop.status == "COMPENSATED"


def test_a_refusal_keeps_the_name_that_the_function_gave(shop: Shop, functions: Functions) -> None:
    functions.answers["apply"] = {"error": {"name": "CardStolen", "message": "reported as stolen"}}

    for _ in range(2):
        with pytest.raises(PermanentError, match="reported as stolen") as refused:
            run(shop, **{CallField.PROVIDER: {**shop.provider, "refusals": ["CardStolen"]}})
        assert type(refused.value).__name__ == "CardStolen"

    assert (shop.status, len(functions.sent)) == ("REFUSED", 1)


IN_DOUBT = [
    "crash",
    "no json",
    "[]",
    {},
    {"output": []},
    {"output": {"amount": 1.5}},
    {"error": "Declined"},
    {"error": {"name": "", "message": "x"}},
    {"error": {"name": "States.ALL", "message": "x"}},
    {"error": {"name": "SagaFenced", "message": "x"}},
    {"error": {"name": "TransientError", "message": "x"}},
    {"error": {"name": "Invalid", "message": "x"}},
    {"error": {"name": "CardStolen", "message": "not declared"}},
    ReadTimeoutError(endpoint_url="x"),
]


@pytest.mark.parametrize("answer", IN_DOUBT, ids=str)
def test_an_unclear_response_leaves_the_outcome_open(shop: Shop, functions: Functions, answer: Any) -> None:
    functions.answers["apply"] = answer

    with pytest.raises(StepInDoubt) as doubt:
        run(shop)

    assert shop.status == "INTENT"
    assert "secret" not in doubt.value.message


def test_a_throttled_invocation_is_transient(shop: Shop, functions: Functions) -> None:
    functions.answers["apply"] = ClientError({"Error": {"Code": "TooManyRequestsException"}}, "Invoke")

    with pytest.raises(TransientError):
        run(shop)


@pytest.mark.parametrize(
    ("verdict", "status", "error"),
    [
        ({"verdict": "applied", "output": {"payment": "p-1"}}, "DONE", None),
        ({"verdict": "not_applied"}, "DONE", None),
        ({"verdict": "pending"}, "INTENT", "StepInDoubt"),
        ({"verdict": "unknown", "reason": "archived"}, "INTENT", "ManualResolutionRequired"),
        ({"verdict": "maybe"}, "INTENT", "StepInDoubt"),
        ({"output": {}}, "INTENT", "StepInDoubt"),
        ({"verdict": "applied", "output": "p-1"}, "INTENT", "StepInDoubt"),
    ],
)
def test_a_crashed_function_is_verified_later(
    shop: Shop, functions: Functions, verdict: Any, status: str, error: str | None
) -> None:
    crashes(functions, "apply", lambda: run(shop))
    shop.passes(LIFE_MS + GRACE_MS)
    functions.answers["verify"] = verdict

    raised = outcome_of(lambda: run(shop))

    assert (shop.status, raised) == (status, error)


def crashes(functions: Functions, action: str, invoke: Callable[[], Any]) -> None:
    """One invocation in which the function crashes."""
    usual, functions.answers[action] = functions.answers[action], "crash"
    with pytest.raises(StepInDoubt):
        invoke()
    functions.answers[action] = usual


def outcome_of(invoke: Callable[[], Any]) -> str | None:
    """The name of the error, if there is one."""
    try:
        invoke()
    except Exception as error:  # noqa: BLE001  # the name is what the test is about
        return type(error).__name__
    return None


def test_a_crashed_compensation_is_verified_later(shop: Shop, functions: Functions) -> None:
    run(shop)
    crashes(functions, "undo", lambda: undo(shop))
    shop.passes(LIFE_MS)

    undo(shop)

    assert (functions.sent[-1][0], shop.status) == ("verify_undo", "COMPENSATED")


def test_a_refused_compensation_is_retried(shop: Shop, functions: Functions) -> None:
    run(shop)
    functions.answers["undo"] = {"error": {"name": "AccountClosed", "message": "closed"}}

    with pytest.raises(CompensationRefused, match="closed"):
        undo(shop)


@pytest.mark.parametrize("missing", [Env.STEP_HOST_APPLY])
def test_a_host_without_a_function_names_it(
    shop: Shop, functions: Functions, missing: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(missing)

    with pytest.raises(ProtocolMismatch, match=missing):
        run(shop)

    assert functions.sent == []


def test_a_function_is_never_invoked_twice_by_the_client(world: World) -> None:
    client = aws.functions(7_500)

    config: Any = client.meta.config
    assert config.retries["total_max_attempts"] == 1
    assert config.read_timeout == 7.5
