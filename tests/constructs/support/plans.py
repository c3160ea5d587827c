"""Plans of sagas, without the CDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from constructs_lib.saga.asl import CompiledStep, Node, Notice, SagaPlan
from constructs_lib.saga.description.description import FunctionDescription, Wait
from constructs_lib.saga.steps.routes import ContinueWith
from saga_runtime.protocol import PERMANENT_ERRORS, ErrorName
from saga_runtime.saga_log.provider import ProviderSettings

PERMANENT = tuple(PERMANENT_ERRORS)
FUNCTION = FunctionDescription(timeout=15)
QUEUE = "https://sqs.example/queue.fifo"
TO_PARTNER = '$request.to_ledger = "partner"'


def step(name: str, *, undo: bool = False, **options: Any) -> CompiledStep:
    """A compiled step; ``undo`` gives it a compensation."""
    return CompiledStep(
        **{
            "name": name,
            "kind": _kind(options),
            "function_arn": f"arn:{name}",
            "function": FUNCTION,
            "compensate_arn": f"arn:Undo{name}" if undo else None,
            "compensation": FUNCTION if undo else None,
            "recorded": "direct" not in options,
            **options,
        }
    )


def _kind(options: Mapping[str, Any]) -> str:
    """The kind of a step that has these parts."""
    parts = {"transaction": "dynamodb", "direct": "custom", "queue_url": "notify", "provider": "external"}
    if "wait" in options:
        return "callback" if "provider" in options else "wait"
    return next((kind for part, kind in parts.items() if part in options), "atomic")


PROVIDER = ProviderSettings(grace=30, clock_skew=5, verify=True, window=0, verify_undo=True, undo_window=0)
WAITING: dict[str, Any] = {"wait": Wait(heartbeat=120, timeout=600), "queue_url": "https://sqs.example/jobs"}
TIMED_OUT = ErrorName.CALLBACK_TIMED_OUT


def job(name: str, *, undo: bool = False, **options: Any) -> CompiledStep:
    """A step at which a provider works and answers later."""
    return step(name, undo=undo, **{**WAITING, "provider": PROVIDER, **options})


def wait(name: str, **options: Any) -> CompiledStep:
    """A step that waits without a job."""
    return step(name, **{**WAITING, "refusals": (TIMED_OUT,), "function_arn": "", **options})


def plan(*steps: Node, **options: Any) -> SagaPlan:
    """A plan of these steps."""
    return SagaPlan(
        **{
            "steps": steps,
            "request_table": "requests",
            "log_table": "log",
            "log_days": 400,
            "replay_seconds": 604_800,
            "remember_seconds": 400 * 86_400,
            "timeout_seconds": 900,
            "result": "$outputs",
            "http_status_by_error": {"InsufficientFunds": 402},
            "refused_http_status": 422,
            "comment": "test",
            "fingerprint": "d",
            **options,
        }
    )


def _plans() -> dict[str, SagaPlan]:
    receipt = step("Receipt", queue_url=QUEUE)
    return {
        "one step": plan(step("Transfer", pivot=True)),
        "a pivot that can be undone": plan(step("Transfer", pivot=True, undo=True)),
        "several steps": plan(
            step("Reserve", undo=True), step("Debit", undo=True), step("Credit", pivot=True), step("Report")
        ),
        "pivot in the middle": plan(
            step("Debit", undo=True), step("Credit", pivot=True, undo=True), step("Book", undo=True), receipt
        ),
        "conditional steps": plan(
            step("Debit", undo=True, when="$request.debit"),
            step("Check", undo=True, when="$outputs.Debit.large"),
            step("Credit", pivot=True),
        ),
        "two pivots": plan(
            step("Transfer", pivot=True, when=f"$not({TO_PARTNER})"),
            step("Debit", undo=True, when=TO_PARTNER),
            step("Credit", pivot=True, when=TO_PARTNER),
            receipt,
        ),
        "jobs": plan(
            step("Reserve", undo=True), job("Pay", undo=True), wait("Review"), step("Commit", pivot=True), job("Ship")
        ),
        "a job is the pivot": plan(step("Reserve", undo=True), job("Pay", undo=True, pivot=True), wait("Scan")),
        "a wait that may be skipped": plan(
            wait("Review", going_on={TIMED_OUT: ContinueWith(output={"review": "none"})}), step("Commit", pivot=True)
        ),
        "notices of failures": plan(
            step("Debit", undo=True),
            step("Credit", pivot=True),
            on_failed=Notice(queue_url=QUEUE),
            on_error={"InsufficientFunds": Notice(queue_url=QUEUE, message='{"why": $failure.detail}')},
        ),
        "names that look like states": plan(
            step("Park", undo=True),
            step("Fenced", undo=True),
            step("Parked", undo=True),
            step("Compensate", pivot=True),
        ),
    }


PLANS: dict[str, SagaPlan] = _plans()


def with_steps(names: Sequence[str]) -> SagaPlan:
    """Steps with compensations, the last one the pivot."""
    return plan(*(step(name, undo=True) for name in names[:-1]), step(names[-1], pivot=True))
