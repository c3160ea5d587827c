"""A direct operation that a user writes: a payment between two accounts of the ledger."""

from __future__ import annotations

import json
from typing import Any

import pytest

from saga_runtime import Commit, DirectCall, Ledger, Money, direct_operation
from saga_runtime.http import direct_operation as module
from saga_runtime.protocol import Env, RefusalPolicy
from tests.unit.support.samples import GATEKEEPER_ENV, post
from tests.unit.support.settling import REMEMBER_SECONDS, REPLAY_SECONDS
from tests.unit.support.world import Context, World

LEDGER = Ledger("ledger")
PLANNED: list[DirectCall] = []
"""Calls of the user's function."""
DIRECT_ENV: dict[str, str] = {
    **{
        name: GATEKEEPER_ENV[name]
        for name in (
            Env.PROTOCOL,
            Env.OPERATION,
            Env.IDENTITY,
            Env.REQUEST_TABLE,
            Env.KEY_POLICY,
            Env.IN_PROGRESS_RESPONSE,
            Env.DUE_SHARDS,
            Env.MAX_BODY_BYTES,
        )
    },
    Env.REPLAY_SECONDS: str(REPLAY_SECONDS),
    Env.REMEMBER_SECONDS: str(REMEMBER_SECONDS),
    Env.REFUSAL_POLICY: RefusalPolicy.FINAL,
    Env.FAILURE_STATUS: json.dumps({"InsufficientFunds": 402}),
}


def planned(call: DirectCall) -> Commit:
    """Move the amount, and return it."""
    PLANNED.append(call)
    body = call.request
    amount = Money(body["amount"], body["currency"])
    return Commit(
        writes=LEDGER.transfer(call, source=body["from"], target=body["to"], amount=amount),
        output={"paid": amount.minor_units},
    )


pay = direct_operation(planned)


def deploy(monkeypatch: pytest.MonkeyPatch, **changes: str) -> None:
    """Deploy the operation with these settings."""
    PLANNED.clear()
    for name, value in (*DIRECT_ENV.items(), *((Env[name], value) for name, value in changes.items())):
        monkeypatch.setenv(name, value)
    module.settings.cache_clear()


def send(event: dict[str, Any] | None = None, *, remaining_ms: int = 15_000) -> dict[str, Any]:
    """Send a request to the direct operation; the answer as API Gateway gets it."""
    return pay(event or post(), Context(remaining_ms=remaining_ms))


def told(answer: dict[str, Any]) -> tuple[int, Any]:
    """Status and document of an answer."""
    return answer["statusCode"], json.loads(answer["body"])


def moved(world: World) -> int:
    """Bob's part of alice's 500."""
    balances = world.balances()
    assert balances["alice"] + balances["bob"] == 500
    return balances["bob"]
