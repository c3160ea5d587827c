"""Findings of a saga that no ``TimeoutReconciler`` recovers."""

from __future__ import annotations

from constructs_lib.saga.steps.run import Run
from constructs_lib.saga.validation.budget import Finding, Severity


def unreconciled() -> Finding:
    """The warning of a saga that no reconciler recovers."""
    return Finding(
        id="cdk-sagas-unreconciled",
        severity=Severity.WARNING,
        message="the saga must have a TimeoutReconciler, got none; add one with sagas=[…]: without it an "
        "execution that is interrupted stays so, and unreported, until an operator finds and recovers it",
    )


def begun_unreconciled(intake: str, run: Run) -> Finding:
    """The error of a saga without a reconciler that events begin inline, or began so: they come once after a 2xx."""
    return Finding(
        id="cdk-sagas-inline-unreconciled",
        severity=Severity.ERROR,
        message=f"a saga with run={run.value} that events of {intake} begin must have a reconciler, got none; "
        "add a TimeoutReconciler, or use Run.STANDARD: no client repeats its request, so nothing else starts a saga "
        "whose function died before it started Express, and continues one that Express did not settle",
    )
