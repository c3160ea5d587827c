"""Asking what the runtime would do, without doing it."""

from __future__ import annotations

from dataclasses import dataclass

from saga_runtime.recovery import Recoverer

from .doctor_aws import Aws
from .doctor_findings import Saga


@dataclass(frozen=True, slots=True)
class Watcher(Recoverer):
    """Asks what a ``Recoverer`` asks, decides what it decides, and starts nothing."""

    def start(self, machine_arn: str, name: str, start_input: str) -> None:
        """Leave it to others."""


def watcher(aws: Aws, saga: Saga) -> Watcher:
    """One for a saga."""
    return Watcher(table=saga.served.requests, dynamodb=aws.dynamodb, step_functions=aws.step_functions)
