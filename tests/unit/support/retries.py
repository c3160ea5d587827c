"""Fewer tries than in earnest."""

from __future__ import annotations

import sys

import pytest

from saga_runtime.shared.backoff import Backoff, Retry


def try_only(monkeypatch: pytest.MonkeyPatch, attempts: int) -> None:
    """Let writers of callbacks try so often in all."""
    retry = Retry(backoff=Backoff(attempts=attempts))
    for name, module in list(sys.modules.items()):
        if name.startswith("saga_runtime.") and hasattr(module, "PATIENT"):
            monkeypatch.setattr(module, "PATIENT", retry)
