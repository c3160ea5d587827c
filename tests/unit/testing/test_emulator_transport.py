"""The emulator takes requests over loopback for encrypted ones, and knows the types of its responses."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from ministack.core import iam_evaluator, responses

from constructs_lib.testing.emulator.clock import EmulatorClock
from constructs_lib.testing.emulator.corrections import Emulator
from constructs_lib.testing.emulator.corrections.transport import PROTOCOLS, response_types, secure_transport
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


def emulator(folder: Path) -> Emulator:
    """An emulator that a correction may be installed in."""
    return Emulator(settings=EmulatorSettings(run_folder=folder), clock=EmulatorClock(base=time.time(), speed=1))


def test_a_queue_that_refuses_unencrypted_requests_takes_those_of_an_sdk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(iam_evaluator, "_resolve_condition_key", iam_evaluator._resolve_condition_key)
    assert not send_is_allowed()

    secure_transport(emulator(tmp_path))

    assert send_is_allowed()


def types_of(service: str) -> list[str | None]:
    """Types of the responses of a service that the emulator wrote as JSON, or as XML."""
    return [
        expected(service, written)
        for expected in (responses.expected_success_content_type, responses.expected_error_content_type)
        for written in ("application/json", "application/xml", "text/xml")
    ]


def test_the_type_of_a_response_is_that_of_the_sdks_model_which_is_not_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read: list[str] = []
    model = responses._service_model

    def reading(service: str) -> object:
        read.append(service)
        return model(service)

    monkeypatch.setattr(responses, "_service_model", reading)
    by_models = {service: types_of(service) for service in PROTOCOLS}
    assert set(read) == set(PROTOCOLS)
    read.clear()

    response_types(emulator(tmp_path))

    assert {service: types_of(service) for service in PROTOCOLS} == by_models
    assert read == []
