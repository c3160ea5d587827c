"""Every service: requests are treated as encrypted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ministack.core import iam_evaluator

from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace

_KEY: Final = "aws:securetransport"


def secure_transport(_emulator: Emulator) -> None:
    """A request over loopback is treated as one over TLS.

    The SDKs speak TLS with AWS and plain HTTP with the emulator, which therefore lets a policy that refuses
    unencrypted requests (``enforce_ssl=True``) refuse all of them. AWS refuses a client that speaks plain HTTP there;
    the emulator cannot test that.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def resolve(key: str, context: Any) -> Any:
            return "true" if key.lower() == _KEY else original(key, context)

        return resolve

    replace(iam_evaluator, "_resolve_condition_key", make)


CORRECTIONS: Final[tuple[Correction, ...]] = (secure_transport,)
