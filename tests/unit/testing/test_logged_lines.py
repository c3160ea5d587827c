"""The check of logged lines finds what masking would have changed."""

from __future__ import annotations

import json

import pytest

from tests.local.logged import _is_unmasked


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({"level": "INFO", "message": "mail to aki@example.org"}),
        json.dumps({"level": "INFO", "message": "told", "pin": "1234"}),
        "Traceback: no account of +81 90-1234-5678",
    ],
)
def test_unmasked_line_is_found(line: str) -> None:
    assert _is_unmasked(line)


def test_masked_line_is_not_found() -> None:
    assert not _is_unmasked(json.dumps({"level": "INFO", "service": "Shop-4242424242424242", "message": "done"}))
