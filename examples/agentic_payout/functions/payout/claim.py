"""Claim an intent: of all requests for the same payout, under any keys and by any agents, one continues."""

from __future__ import annotations

from typing import Any

from saga_runtime import Commit, StepCall, atomic_step, compensation

from .controls import ClaimState, Controls
from .intent import Intent

controls = Controls.from_env()


@atomic_step
def handler(call: StepCall) -> Commit:
    """Claim it, before the model's call costs money."""
    intent = Intent.of_request(call.request)
    writes, version = controls.claim(call, intent, agent=call.request["agent"])
    return Commit(writes=writes, output={"claim": intent.obligation, "version": str(version)})


@compensation
def release(call: StepCall, claimed: dict[str, Any]) -> Commit:
    """Give it back: the payout was refused, and may be asked for again."""
    version = int(claimed["version"])
    return Commit(writes=controls.conclude(call, claimed["claim"], ClaimState.RELEASED, version=version))
