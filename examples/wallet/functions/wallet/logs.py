"""Logs without persons and secrets: e-mail addresses and telephone numbers are masked, secrets are left out."""

from __future__ import annotations

import re
from typing import Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

_EMAIL: Final = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}")
_PHONE: Final = re.compile(r"(?<![\w-])\+?[0-9][0-9 ()-]{7,}[0-9](?![\w-])")
_SECRET: Final = re.compile(r"pin|token|password|secret", re.IGNORECASE)
_NAMED: Final = frozenset({"email", "phone_number", "name"})
MASK: Final = "***"


def masked(value: Any) -> Any:
    """A value that may be logged."""
    if isinstance(value, dict):
        return {
            key: MASK if key in _NAMED and item is not None else masked(item)
            for key, item in value.items()
            if not _SECRET.search(str(key))
        }
    if isinstance(value, list | tuple):
        return [masked(item) for item in value]
    if isinstance(value, str):
        return _PHONE.sub(MASK, _EMAIL.sub(MASK, value))
    return value


class MaskingFormatter(LambdaPowertoolsFormatter):
    """Formatter that masks every line."""

    def serialize(self, log: Any) -> str:
        """One line of JSON."""
        return super().serialize(log={key: _masked_field(key, value) for key, value in log.items()})


def _masked_field(key: str, value: Any) -> Any:
    own = {"level", "location", "timestamp", "service", "xray_trace_id"}
    return value if key in own else masked(value)


logger: Final = Logger()
# The runtime made this logger's handler before: its lines are masked, too.
logger.registered_handler.setFormatter(MaskingFormatter())
