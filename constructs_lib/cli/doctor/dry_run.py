"""Asking what the runtime would do, without doing it."""

from __future__ import annotations

from dataclasses import dataclass

from constructs_lib.cli.doctor.aws import Aws
from constructs_lib.cli.doctor.findings import Saga
from saga_runtime.recovery.takeover import Recoverer


@dataclass(frozen=True, slots=True)
class Watcher(Recoverer):
    """Asks what a ``Recoverer`` asks, decides what it decides, and starts nothing."""

    def start(self, machine_arn: str, name: str, start_input: str) -> None:
        """Leave it to others."""


def watcher(aws: Aws, saga: Saga) -> Watcher:
    """One for a saga."""
    return Watcher(table=saga.served.requests, dynamodb=aws.dynamodb, step_functions=aws.step_functions)
