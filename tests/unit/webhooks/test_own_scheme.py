"""A scheme of the user's own: its function decides, and whatever it does but return True refuses."""

from __future__ import annotations

import hmac
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from saga_runtime import Callback, SignedRequest, WebhookEvent, webhook
from saga_runtime.protocol import Metric, SchemeKind
from saga_runtime.webhooks import signatures
from tests.unit.support.receiving import SECRET, Reception, open_reception, rest_event, sign_by
from tests.unit.support.samples import NOW_MS
from tests.unit.support.world import World

BODY: Final = b'{"amount": 7}'
CHECKS: Final = """
import hmac

from saga_runtime import SignedRequest

def verify(request: SignedRequest) -> bool:
    sent = request.headers.get("X-Bank-Signature", "")
    content = request.headers["x-bank-time"].encode() + b"|" + request.body
    fresh = abs(request.now_ms - int(request.headers["x-bank-time"])) <= 60_000
    fitting = [hmac.compare_digest(hmac.digest(key, content, "sha256").hex(), sent) for key in request.keys]
    return fresh and any(fitting)

def truthy(request):
    return "yes"

def failing(request):
    raise KeyError("x")
"""


@pytest.fixture
def reception(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Reception]:
    """A webhook with a module of checks in its folder."""
    (tmp_path / "bank_checks.py").write_text(CHECKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = open_reception(world, monkeypatch)
    signatures._function.cache_clear()
    yield made
    signatures._function.cache_clear()
    sys.modules.pop("bank_checks", None)


def _check_by(reception: Reception, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    sign_by(monkeypatch, SchemeKind.OWN, reception.put_secret("hook", SECRET), function=f"bank_checks.{function}")


def _signed(*, at: int = NOW_MS, secret: str = SECRET) -> dict[str, Any]:
    digest = hmac.digest(secret.encode(), f"{at}|".encode() + BODY, "sha256").hex()
    return rest_event(BODY, {"X-Bank-Signature": digest, "X-Bank-Time": str(at)})


def _taken(event: dict[str, Any]) -> tuple[int, int]:
    """Status, and how often the webhook's function was called."""
    seen: list[WebhookEvent] = []

    @webhook
    def handler(event: WebhookEvent) -> Callback | None:
        seen.append(event)
        return None

    return handler(event, None)["statusCode"], len(seen)


def test_a_request_that_the_function_accepts_is_read(reception: Reception, monkeypatch: pytest.MonkeyPatch) -> None:
    _check_by(reception, monkeypatch, "verify")

    assert _taken(_signed()) == (200, 1)


@pytest.mark.parametrize("forged", [{"at": NOW_MS - 60_001}, {"secret": "another secret of some length"}])
def test_a_request_that_the_function_refuses_is_not_read(
    reception: Reception, monkeypatch: pytest.MonkeyPatch, forged: dict[str, Any]
) -> None:
    _check_by(reception, monkeypatch, "verify")

    assert _taken(_signed(**forged)) == (401, 0)
    assert reception.world.telemetry.counts[Metric.SIGNATURE_REFUSED] == 1


@pytest.mark.parametrize("function", ["truthy", "failing"])
def test_a_function_that_does_not_return_true_refuses(
    reception: Reception, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    _check_by(reception, monkeypatch, function)

    assert _taken(_signed()) == (401, 0)


def test_headers_that_the_function_does_not_expect_refuse(
    reception: Reception, monkeypatch: pytest.MonkeyPatch
) -> None:
    _check_by(reception, monkeypatch, "verify")

    assert _taken(rest_event(BODY, {})) == (401, 0)
    assert _taken(rest_event(BODY, {"X-Bank-Time": "now"})) == (401, 0)


def test_a_function_that_does_not_exist_fails_the_invocation(
    reception: Reception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the provider sends the event again, once it does."""
    _check_by(reception, monkeypatch, "missing")

    with pytest.raises(AttributeError):
        _taken(_signed())


@pytest.mark.parametrize("function", ["", "verify", "a b.c", ".verify", "checks.", "checks.x-y", "checks.verify\n"])
def test_a_name_that_no_function_has_is_refused(function: str) -> None:
    with pytest.raises(ValueError, match=r"^function must be module.function, got"):
        signatures.OwnScheme(secrets=("arn",), function=function)


def test_keys_are_not_shown() -> None:
    request = SignedRequest(headers={}, body=b"", keys=[b"key of sixteen bytes"], now_ms=1)

    assert "sixteen" not in repr(request)
