"""Surroundings of receivers: secrets, a job that waits, and events in the form of API gateways."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import boto3
import pytest
from moto.backends import get_backend
from moto.core.models import DEFAULT_ACCOUNT_ID

from saga_runtime import callbacks
from saga_runtime.callbacks.rows import TokenRow
from saga_runtime.callbacks.store import read_token
from saga_runtime.idempotency.identity import step_key_of
from saga_runtime.protocol import (
    Env,
    RecordStatus,
    SchemeField,
    SchemeKind,
    ServedField,
    ServedStepField,
    Side,
    TokenAttribute,
    TokenStatus,
)
from saga_runtime.shared import aws
from saga_runtime.shared.secrets import secrets
from tests.unit.support.job_saga import reserve
from tests.unit.support.samples import NOW_MS, SAGA_ID
from tests.unit.support.world import World

webhook = import_module("saga_runtime.webhooks.receiver")

SECRET = "whsec_c2VjcmV0IHRoYXQgc2lnbnMgd2ViaG9va3M="
"""One that Stripe's scheme and Standard Webhooks both take."""
JOB_ID = step_key_of(SAGA_ID, "Pick")
WAIT_ID = step_key_of(SAGA_ID, "Review")
TOKEN = "task-token"

_SERVED = [
    {
        ServedField.LOG: "log",
        ServedField.REQUESTS: "requests",
        ServedField.DAYS: 400,
        ServedField.OPERATORS: "",
        ServedField.STEPS: {
            name: {ServedStepField.SIDE: Side.BEFORE, ServedStepField.JOB: job, ServedStepField.UNDO: job}
            for name, job in (("Pick", True), ("Review", False))
        },
    }
]


@dataclass
class Reception:
    """The surroundings of receivers."""

    world: World

    def put_secret(self, name: str, value: str) -> str:
        """Make a secret; its ARN."""
        return self._made_now(_secrets_manager().create_secret(Name=name, SecretString=value))

    def rotate(self, arn: str, value: str) -> None:
        """Give it a new version; the one before stays, as the previous one."""
        self._made_now(_secrets_manager().put_secret_value(SecretId=arn, SecretString=value))

    def restore(self, arn: str, value: str) -> None:
        """Make the version before the current one again."""
        stages = {stage: name for name, version in _versions(arn).items() for stage in version["version_stages"]}
        assert _versions(arn)[stages["AWSPREVIOUS"]]["secret_string"] == value
        _secrets_manager().update_secret_version_stage(
            SecretId=arn,
            VersionStage="AWSCURRENT",
            MoveToVersionId=stages["AWSPREVIOUS"],
            RemoveFromVersionId=stages["AWSCURRENT"],
        )

    @contextmanager
    def previous_stage_lags(self, arn: str) -> Iterator[None]:
        """Read the previous version as it was before the last rotation: an older one, or none."""
        versions = _versions(arn)
        known = sorted(versions.values(), key=lambda version: int(version["createdate"]))
        before = {id(version): list(version["version_stages"]) for version in known}
        for index, version in enumerate(known[:-1]):
            version["version_stages"] = ["AWSPREVIOUS"] if index == len(known) - 3 else []
        yield
        for version in known:
            version["version_stages"] = before[id(version)]

    def _made_now(self, made: Any) -> str:
        """Date a version by the one clock; the fake has a clock of its own."""
        version = _versions(made["ARN"])[made["VersionId"]]
        version["createdate"] = self.world.clock.ms // 1_000
        return str(made["ARN"])

    def wait(
        self, job_id: str = JOB_ID, *, attempt: int = 1, token: str = TOKEN, timeout_seconds: int = 604_800
    ) -> None:
        """Let a state machine wait for a job of a saga in progress."""
        if not self.world.items("requests"):
            reserve()
        waiting = callbacks.Waiting(
            job_id=job_id,
            saga_id=SAGA_ID,
            row_name=job_id.partition("#")[2],
            token=self.world.tasks.wait(token),
            order=f"{0:015d}.{0:06d}.{NOW_MS:015d}.{attempt:06d}",
            log_table="log",
            request_table="requests",
            execution=SAGA_ID,
            heartbeat_seconds=60,
            timeout_seconds=timeout_seconds,
            keep_days=400,
        )
        callbacks.register(waiting)
        self.world.wire.forget()

    def row(self, row_id: str = JOB_ID) -> TokenRow | None:
        """A row of the token table."""
        return read_token(row_id)

    @property
    def outcome(self) -> Any:
        """The outcome that the waiting task received: the error's name, or the output."""
        told = self.world.tasks.woken.get(TOKEN)
        return told and (told.get("error") or json.loads(told["output"])["output"])

    def written(self) -> list[dict[str, Any]]:
        """Everything in all tables, except the writes of ``wait``."""
        items = [item for table in ("tokens", "log", "requests") for item in self.world.items(table)]
        waiting = {TokenStatus.WAITING, RecordStatus.IN_PROGRESS}
        return [item for item in items if item.get(TokenAttribute.STATUS, {}).get("S") not in waiting]


def open_reception(world: World, monkeypatch: pytest.MonkeyPatch) -> Reception:
    """The environment of functions that receive callbacks, at cold start."""
    for name, value in {Env.TOKEN_TABLE: "tokens", Env.CALLBACKS: json.dumps(_SERVED)}.items():
        monkeypatch.setenv(name, value)
    forget_receivers()
    world.wire.forget()
    return Reception(world)


def forget_receivers() -> None:
    """Cold start."""
    secrets.cache_clear()
    webhook.scheme.cache_clear()


def sign_by(monkeypatch: pytest.MonkeyPatch, kind: SchemeKind, *arns: str, **members: Any) -> None:
    """Let the webhook expect signatures of a kind."""
    fields = {SchemeField.KIND: kind, SchemeField.SECRETS: list(arns), **members}
    monkeypatch.setenv(Env.WEBHOOK_SCHEME, json.dumps(fields))
    webhook.scheme.cache_clear()


def stripe_header(body: bytes, *, at: int, secret: str = SECRET) -> str:
    """Stripe's header, made without Stripe's package: bytes need not be text."""
    digest = hmac.new(secret.encode(), str(at).encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def rest_event(body: bytes | str, headers: dict[str, str], *, base64_encoded: bool = False) -> dict[str, Any]:
    """A ``POST`` in the form of a REST API."""
    return {
        "httpMethod": "POST",
        "path": "/hook",
        "headers": dict(headers),
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "queryStringParameters": None,
        "body": _text(body, base64_encoded=base64_encoded),
        "isBase64Encoded": base64_encoded,
        "requestContext": {"path": "/prod/hook"},
    }


def http_event(body: bytes | str, headers: dict[str, str], *, base64_encoded: bool = False) -> dict[str, Any]:
    """A ``POST`` in the form of an HTTP API or a function URL."""
    return {
        "version": "2.0",
        "rawPath": "/hook",
        "rawQueryString": "source=test",
        "queryStringParameters": {"source": "test"},
        "headers": {name.lower(): value for name, value in headers.items()},
        "body": _text(body, base64_encoded=base64_encoded),
        "isBase64Encoded": base64_encoded,
        "requestContext": {"http": {"method": "POST", "path": "/hook"}},
    }


def _text(body: bytes | str, *, base64_encoded: bool) -> str:
    raw = body.encode() if isinstance(body, str) else body
    return base64.b64encode(raw).decode() if base64_encoded else raw.decode()


def _versions(arn: str) -> dict[str, Any]:
    """Versions of a secret in the fake."""
    versions: dict[str, Any] = get_backend("secretsmanager")[DEFAULT_ACCOUNT_ID]["eu-central-1"].secrets[arn].versions
    return versions


def _secrets_manager() -> Any:
    return boto3.client("secretsmanager", config=aws.CONFIG)
