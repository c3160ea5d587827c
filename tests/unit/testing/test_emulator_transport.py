"""The emulator takes requests over loopback for encrypted ones."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from ministack.core import iam_evaluator

from constructs_lib.testing.emulator.clock import EmulatorClock
from constructs_lib.testing.emulator.corrections import Emulator
from constructs_lib.testing.emulator.corrections.transport import secure_transport
from constructs_lib.testing.emulator.settings import EmulatorSettings

REFUSES_PLAIN_REQUESTS = (
    '{"Statement": [{"Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": "*",'
    ' "Condition": {"Bool": {"aws:SecureTransport": "false"}}}]}'
)


def send_is_allowed() -> bool:
    context = iam_evaluator.EvalContext(
        principal_arn="arn:aws:iam::000000000000:role/worker",
        principal_type="Role",
        principal_account="000000000000",
        action="sqs:SendMessage",
        resource_arn="arn:aws:sqs:us-east-1:000000000000:queue",
        region="us-east-1",
    )
    return bool(iam_evaluator.resource_policy_allows(REFUSES_PLAIN_REQUESTS, context, True))


def test_a_queue_that_refuses_unencrypted_requests_takes_those_of_an_sdk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(iam_evaluator, "_resolve_condition_key", iam_evaluator._resolve_condition_key)
    assert not send_is_allowed()

    settings = EmulatorSettings(run_folder=tmp_path)
    secure_transport(Emulator(settings=settings, clock=EmulatorClock(base=time.time(), speed=1)))

    assert send_is_allowed()
