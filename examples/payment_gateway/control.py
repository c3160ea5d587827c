"""Starts and stops a gateway, plans trouble in it, and reads its books."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from constructs_lib.testing.providers.control import ProviderProcess
from examples.payment_gateway.books import Books, read_books
from examples.payment_gateway.troubles import Trouble


class PaymentGateway(ProviderProcess[Trouble]):
    """A payment gateway in a process of its own, for as long as the ``with`` block lasts.

    Example:
        ```python
        with PaymentGateway() as gateway:
            gateway.plan(Trouble(on=Operation.CHARGE, action=Action.HANG, moment=Moment.AFTER))
            ...  # functions that are given gateway.url
            assert len(gateway.books().charges) == 1
        ```

    Args:
        idempotent_for: seconds that an idempotency key is remembered, in the gateway's time.
        speed: how many times faster than real time the gateway's time passes: that of ``LocalAws``.
        books: file of the books; a temporary one by default.
    """

    TROUBLE: ClassVar[Any] = Trouble
    ROOT: ClassVar[Path] = Path(__file__).resolve().parents[2]

    def __init__(self, *, idempotent_for: float = 86_400.0, speed: float = 1.0, books: Path | None = None) -> None:
        settings = ("--idempotent-for", str(idempotent_for), "--speed", str(speed))
        super().__init__("payment gateway", "examples.payment_gateway", *settings, books=books)

    def books(self) -> Books:
        """Contents of its books."""
        return read_books(self._file)
