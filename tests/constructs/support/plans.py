"""Plans of sagas, without the CDK."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from constructs_lib.saga.asl import CompiledStep, Node, Notice, SagaPlan
from constructs_lib.saga.retry import Retry
from saga_runtime.protocol import PERMANENT_ERRORS

PERMANENT = tuple(error.value for error in PERMANENT_ERRORS)
QUEUE = "https://sqs.example/queue.fifo"
TO_PARTNER = '$request.to_ledger = "partner"'


def step(name: str, *, undo: bool = False, **options: Any) -> CompiledStep:
    """A compiled step; ``undo`` gives it a compensation."""
    return CompiledStep(
        **{
            "name": name,
            "function_arn": f"arn:{name}",
            "task_seconds": 25,
            "permanent_errors": PERMANENT,
            "retry": Retry(),
            "compensate_arn": f"arn:Undo{name}" if undo else None,
            "compensate_task_seconds": 25 if undo else 0,
            **options,
        }
    )


def plan(*steps: Node, **options: Any) -> SagaPlan:
    """A plan of these steps."""
    return SagaPlan(
        **{
            "steps": steps,
            "request_table": "requests",
            "log_table": "log",
            "log_days": 400,
            "retention_seconds": 604_800,
            "timeout_seconds": 900,
            "result": "$outputs",
            "failure_status": {"InsufficientFunds": 402},
            "refused_status": 422,
            "comment": "test",
            **options,
        }
    )


def _plans() -> dict[str, SagaPlan]:
    receipt = step("Receipt", notice=Notice(queue_url=QUEUE))
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
