"""Texts of clients and providers: with characters that services refuse, empty, or long."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any, Final

REFUSED: Final = "\ufffe\uffff\x01\x0b"
"""Characters that SQS refuses; control characters are escaped in JSON, the others are not."""
_SHORT: Final[tuple[str, ...]] = (*REFUSED, f"a{REFUSED}z", "\x00", '"\\', "\U0001f4b6")
_LONG: Final[tuple[str, ...]] = ("x" * 1_001, REFUSED * 300)
"""Longer than a detail that is kept; a function that refuses with it repeats it."""
_NOTED: Final = 0.3
"""Share of requests with a text."""
_TOLD: Final = 0.3
"""Share of a provider's reports with one."""
_SHORTER: Final = 0.7


def note_of(body: Mapping[str, Any]) -> str | None:
    """The text of a request, drawn from the request itself; None: it has none.

    A request of large outputs has none: outputs repeat it, and all of a saga have a limit.
    """
    random = Random(json.dumps(body))
    if random.random() >= _NOTED or any(word.startswith("large") for word in body["behave"].values()):
        return None
    return _text(random)


def told_text(random: Random) -> str | None:
    """The text of a provider's report; None: an ordinary one."""
    return random.choice(("", _text(random))) if random.random() < _TOLD else None


def _text(random: Random) -> str:
    return random.choice(_SHORT if random.random() < _SHORTER else _LONG)
