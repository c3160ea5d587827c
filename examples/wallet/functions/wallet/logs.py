"""The wallet's logger: its lines have no personal data and no secret."""

from __future__ import annotations

from typing import Final

from saga_runtime import masked_logger

logger: Final = masked_logger(fields=["name"])
