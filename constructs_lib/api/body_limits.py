"""Limits of an operation's body: its size, the size from which on it travels by reference, digits of its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constructs_lib.saga.synthesis.expression_scan import looks_into_request, texts_of
from constructs_lib.shared.arguments import require_between
from saga_runtime.protocol import INLINE_BODY_BYTES, MAX_BODY_BYTES, MAX_PAYLOAD_BYTES, Env

if TYPE_CHECKING:
    from constructs_lib.saga.state_machine import SagaStateMachine


def payload_environment(saga: SagaStateMachine) -> dict[str, str]:
    """Environment of a gatekeeper: where large bodies go, and from which size on."""
    if saga.payloads is None:
        return {}
    inline = MAX_BODY_BYTES if looks_into_request(texts_of(saga.steps)) else INLINE_BODY_BYTES
    return {
        Env.PAYLOADS: saga.payloads.bucket.bucket_name,
        Env.INLINE_BODY_BYTES: str(inline),
    }


def require_body_limit(saga: SagaStateMachine, max_body_bytes: int) -> None:
    """Refuse a limit that cannot work: a larger body needs a bucket, and no expression may read it.

    Raises:
        ValueError: naming the limit, its value and the remedy.
    """
    if max_body_bytes <= MAX_BODY_BYTES:
        require_between("max_body_bytes", max_body_bytes, at_least=1, at_most=MAX_BODY_BYTES)
        return
    if saga.payloads is None:
        raise ValueError(
            f"max_body_bytes must be 1 to {MAX_BODY_BYTES}, got {max_body_bytes}; lower it, or give the saga "
            "payloads=PayloadBucket(…), which keeps larger bodies"
        )
    looking = [step.name for step in saga.steps if looks_into_request(texts_of(step))]
    if looking:
        raise ValueError(
            f"max_body_bytes must be 1 to {MAX_BODY_BYTES} where expressions read the request, got "
            f"{max_body_bytes} with {looking}: a larger body travels by reference, and nothing would be found in it; "
            "lower it, or let a step read the request and read its output"
        )
    require_between("max_body_bytes", max_body_bytes, at_least=1, at_most=MAX_PAYLOAD_BYTES)
