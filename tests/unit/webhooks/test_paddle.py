"""Paddle's signatures, against the official package: what it accepts, we accept, and vice versa.

Needs a package index, or what was installed before.
"""

from __future__ import annotations

import hmac
import importlib
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from constructs_lib.packages.install import install
from saga_runtime.webhooks.signatures import MAX_SKEW, PaddleScheme, Signature, check_signature

from .test_standard_webhooks import ARN, MARGIN, ages, bodies, printable

LOCK: Final = Path(__file__).resolve().parents[3] / "requirements" / "paddle.txt"
PADDLE: Final = PaddleScheme(secrets=ARN)
_FIVE_MINUTES: Final = 300


@dataclass(frozen=True)
class _Request:
    headers: Mapping[str, str]
    body: bytes


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The package's module of notifications. Its package ``tests`` would hide ours, so it stays out."""
    folder = tmp_path_factory.mktemp("paddle")
    for name, content in install(LOCK.name, LOCK.read_text("utf-8"), None).files.items():
        if name.startswith("paddle_billing/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    sys.path.append(str(folder))
    yield importlib.import_module("paddle_billing.Notifications")
    sys.path.remove(str(folder))


@given(st.data(), printable, bodies, ages)
def test_only_what_paddles_library_accepts_is_valid(
    official: Any, data: st.DataObject, secret: str, body: bytes, age: int
) -> None:
    assume(abs(age - _FIVE_MINUTES) > MARGIN)
    at = int(time.time()) - age
    digest = hmac.digest(secret.encode(), f"{at}:".encode() + body, "sha256").hex()
    header = data.draw(
        st.sampled_from(
            [
                f"ts={at};h1={digest}",
                f"ts={at};h1={'0' * 64};h1={digest}",
                f"h1={digest};ts={at}",
                f"ts={at};h1={digest[:-1]}",
                f"ts={at + 1};h1={digest}",
                f"ts={at}",
            ]
        )
    )
    sent = body if data.draw(st.booleans()) else body + b" "

    request = _Request({"Paddle-Signature": header}, sent)
    accepted = official.Verifier(_FIVE_MINUTES).verify(request, official.Secret(secret))
    found = check_signature(
        PADDLE,
        headers={"paddle-signature": (header,)},
        body=sent,
        keys=[PADDLE.key_of(secret)],
        now_ms=int(time.time() * 1_000),
    )

    if -age <= MAX_SKEW - MARGIN:
        assert (found is Signature.GENUINE) == accepted
    else:
        assert found is not Signature.GENUINE, "we allow less of the future"
