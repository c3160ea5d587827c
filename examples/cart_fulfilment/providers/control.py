"""Starts and stops a provider, subscribes to its events, plans trouble in it, and reads its books."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from constructs_lib.testing.providers.control import ProviderProcess, ProviderStartError
from examples.cart_fulfilment.providers.books import (
    Delivery,
    Effect,
    Job,
    read_deliveries,
    read_effects,
    read_jobs,
)
from examples.cart_fulfilment.providers.troubles import Trouble


class Provider(ProviderProcess[Trouble]):
    """A provider in a process of its own, for as long as the ``with`` block lasts.

    After a `stop` and a `start`, the subscription must be made again.

    Args:
        kind: ``payments``, ``warehouse`` or ``carrier``.
        speed: how many times faster than real time its time passes: that of ``LocalAws``.
        pace: how many times longer than usual its work takes.
        carrier: of a warehouse: address of the carrier who fetches parcels.
    """

    TROUBLE: ClassVar[Any] = Trouble
    ROOT: ClassVar[Path] = Path(__file__).resolve().parents[3]

    def __init__(self, kind: str, *, speed: float = 1.0, pace: float = 1.0, carrier: str | None = None) -> None:
        self.kind = kind
        settings = ("--speed", str(speed), "--pace", str(pace), *(("--carrier", carrier) if carrier else ()))
        super().__init__(kind, "examples.cart_fulfilment.providers", kind, *settings)

    def tell(self, url: str, *, secret: str, now_ms: int) -> None:
        """Subscribe a URL to events, with the secret that signs them and the subscriber's time."""
        self.admin("PUT", "address", {"url": url, "secret": secret, "now_ms": now_ms})

    def jobs(self, containing: str = "") -> list[Job]:
        """Jobs in its books, by a part of their reference."""
        return [job for job in read_jobs(self._file) if containing in job.reference]

    def effects(self, containing: str = "") -> list[Effect]:
        """Return the effects, likewise."""
        return [effect for effect in read_effects(self._file) if containing in effect.reference]

    def deliveries(self, containing: str = "") -> list[Delivery]:
        """Events, likewise."""
        return [delivery for delivery in read_deliveries(self._file) if containing in delivery.reference]


__all__ = ["Provider", "ProviderStartError"]
