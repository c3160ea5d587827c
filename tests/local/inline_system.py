"""The funds transfer, run inline, deployed in local AWS."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from constructs_lib.testing import HttpResponse, LocalAws
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, PREFER_HEADER, RecordAttribute, RecordStatus

from .reconcilers import prepare_reconciler
from .transfer_system import TransferSystem

WAIT_SECONDS: Final = 10
STACK: Final = "FundsTransfer"


@dataclass(frozen=True)
class InlineSystem(TransferSystem):
    """The deployed stack."""

    def ask(self, key: str, body: object, *, wait: bool = True) -> HttpResponse:
        """Send a request once, and prefer to wait for its response."""
        headers = {IDEMPOTENCY_KEY_HEADER: key}
        if wait:
            headers[PREFER_HEADER] = f"wait={WAIT_SECONDS}"
        return self.user().request("POST", self.url, headers=headers, body=body)

    def settle_waiting(self, key: str, body: object) -> HttpResponse:
        """Send a request and prefer to wait; if it is not settled in time, send it until it is."""
        first = self.ask(key, body)
        return first if first.status == 200 else self.settle(key, body)

    def standard_executions(self) -> list[str]:
        """Statuses of all executions of the Standard machine."""
        listed = self.aws.client("stepfunctions").list_executions(stateMachineArn=self.outputs["StateMachineArn"])
        return [execution["status"] for execution in listed["executions"]]

    def in_progress(self) -> int:
        """Count sagas in progress."""
        statuses = [record[RecordAttribute.STATUS]["S"] for record in self.records()]
        return statuses.count(RecordStatus.IN_PROGRESS)

    def ran(self) -> list[str]:
        """Types of the machines that settled the sagas."""
        return sorted(record[RecordAttribute.RAN]["S"] for record in self.records())


def synthesized(run: str) -> Path:
    """The stack's assembly, by the ``Run`` of its saga; synthesized once per run of the tests."""
    return Path(_synthesized(run).name)


@functools.cache
def _synthesized(run: str) -> tempfile.TemporaryDirectory[str]:
    # Imported here: the CDK takes seconds, and only some tests need it.
    from aws_cdk import App, Duration

    from constructs_lib import Run
    from examples.funds_transfer.stack import FundsTransferStack

    folder = tempfile.TemporaryDirectory(prefix="cdk-sagas-test-")
    app = App(outdir=folder.name)
    FundsTransferStack(app, STACK, due_after=Duration.seconds(10), run=Run[run])
    app.synth()
    return folder


@contextmanager
def deployed_inline(*, speed: float, reconciled: bool = False) -> Iterator[InlineSystem]:
    """Local AWS with the stack; its reconciler runs on schedule if requested."""
    with LocalAws(speed=speed, concurrency=4) as aws:
        outputs = aws.deploy(synthesized("INLINE"))[STACK]
        prepare_reconciler(aws, outputs, seconds=None, reconciled=reconciled)
        yield InlineSystem(aws, outputs, speed, STACK)
