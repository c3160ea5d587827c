"""Fixtures of the unit tests: the runtime on serialized fakes, without sleeping."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.client import BaseClient
from hypothesis import HealthCheck, settings
from moto.core.botocore_stubber import BotocoreStubber

from tests.unit.support.executions import Executions
from tests.unit.support.quick_moto import OneClientOfEach, at_once, mocked, without_detours
from tests.unit.support.samples import GATEKEEPER_ENV
from tests.unit.support.sleeps import replace_sleep
from tests.unit.support.wire import Wire
from tests.unit.support.world import Clock, Telemetry, World, forget_cached, replace_surroundings

settings.register_profile(
    "unit", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=2_000, stateful_step_count=80)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "unit"))

REGION = "eu-central-1"


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the code under test wanted to sleep; it does not."""
    wanted: list[float] = []
    replace_sleep(monkeypatch, wanted.append)
    return wanted


SESSION = boto3.Session(aws_access_key_id="unit", aws_secret_access_key="unit", region_name=REGION)


@pytest.fixture(scope="session")
def clients() -> OneClientOfEach:
    """The clients of all tests."""
    return OneClientOfEach(SESSION)


@pytest.fixture
def boto3_session(clients: OneClientOfEach, monkeypatch: pytest.MonkeyPatch) -> boto3.Session:
    """One session for all tests, whose clients have tried nothing again yet."""
    clients.rest()
    monkeypatch.setattr(SESSION, "client", clients.client)
    return SESSION


@pytest.fixture(scope="session")
def quick_moto() -> Iterator[None]:
    """moto without detours."""
    with without_detours():
        yield


@pytest.fixture
def world(
    monkeypatch: pytest.MonkeyPatch, naps: list[float], boto3_session: boto3.Session, quick_moto: None
) -> Iterator[World]:
    """The runtime's surroundings, empty."""
    for name, value in {**GATEKEEPER_ENV, "AWS_DEFAULT_REGION": REGION, "AWS_REGION": REGION}.items():
        monkeypatch.setenv(name, value)
    made = World(wire=Wire(), executions=Executions(), clock=Clock(), telemetry=Telemetry(), naps=naps)
    deliver = BotocoreStubber.__call__

    def send(stubber: Any, event_name: str, request: AWSPreparedRequest, **rest: Any) -> AWSResponse | None:
        def to_fake() -> AWSResponse | None:
            if event_name.endswith(".StartExecution"):
                return made.executions.answer(request)
            if ".SendTask" in event_name:
                return made.tasks.answer(event_name.rpartition(".")[2], request)
            if event_name.startswith("before-send.dynamodb."):
                return made.database.answer(event_name.rpartition(".")[2], request)
            return deliver(stubber, event_name, request, **rest)

        return made.wire.send(event_name, request, to_fake)

    monkeypatch.setattr(BotocoreStubber, "__call__", send)
    monkeypatch.setattr(BaseClient, "_make_request", at_once(made.wire))
    replace_surroundings(monkeypatch, made.clock, made.telemetry)
    random.seed(1)  # what a test draws (pauses, the shard to begin with) is the same each time that it runs
    forget_cached()
    with mocked():
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", boto3_session)
        yield made
    forget_cached()
