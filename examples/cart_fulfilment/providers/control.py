"""Starts and stops a provider, subscribes to its events, plans trouble in it, and reads its books."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.request import Request, urlopen

from examples.cart_fulfilment.providers.books import (
    Delivery,
    Effect,
    Job,
    Received,
    read_deliveries,
    read_effects,
    read_jobs,
    read_requests,
)
from examples.cart_fulfilment.providers.troubles import Trouble, TroubleReport

_ROOT: Final = Path(__file__).resolve().parents[3]
_STOP_SECONDS: Final = 5.0
_ADMIN_SECONDS: Final = 10.0


class ProviderStartError(RuntimeError):
    """The provider did not start."""


class Provider:
    """A provider in a process of its own, for as long as the ``with`` block lasts.

    Its books survive a `stop` and a `start`; they are deleted at the end.

    Args:
        kind: ``payments``, ``warehouse`` or ``carrier``.
        speed: how many times faster than real time its time passes: that of ``LocalAws``.
        pace: how many times longer than usual its work takes.
        carrier: of a warehouse: address of the carrier who fetches parcels.
    """

    def __init__(self, kind: str, *, speed: float = 1.0, pace: float = 1.0, carrier: str | None = None) -> None:
        self.kind = kind
        self._folder = tempfile.TemporaryDirectory(prefix=f"{kind}-")
        self._file = Path(self._folder.name) / "books.sqlite"
        self._settings = ("--speed", str(speed), "--pace", str(pace), *(("--carrier", carrier) if carrier else ()))
        self._process: subprocess.Popen[str] | None = None
        self._url = ""

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it, and delete its books."""
        self.stop()
        self._folder.cleanup()

    def start(self) -> None:
        """Start the process; a second time at the same address. The subscription must then be made again.

        Raises:
            ProviderStartError: if it does not start.
        """
        port = self._url.rpartition(":")[2] or "0"
        arguments = ("--child", "--port", port, "--books", str(self._file), *self._settings)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "examples.cart_fulfilment.providers", self.kind, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
        url = self._process.stdout.readline().strip() if self._process.stdout else ""
        if not url:
            self.stop()
            raise ProviderStartError(f"the provider {self.kind} did not start; its output is above")
        self._url = url

    def stop(self) -> None:
        """End the process. Does nothing the second time."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        if not self._url:
            raise RuntimeError(f"the provider {self.kind} is not running; use it in a with block, or call start()")
        return self._url

    def tell(self, url: str, *, secret: str, now_ms: int) -> None:
        """Subscribe a URL to events, with the secret that signs them and the subscriber's time."""
        self._admin("PUT", "address", {"url": url, "secret": secret, "now_ms": now_ms})

    def jobs(self, containing: str = "") -> list[Job]:
        """Jobs in its books, by a part of their reference."""
        return [job for job in read_jobs(self._file) if containing in job.reference]

    def effects(self, containing: str = "") -> list[Effect]:
        """Return the effects, likewise."""
        return [effect for effect in read_effects(self._file) if containing in effect.reference]

    def requests(self, containing: str = "") -> list[Received]:
        """Requests that reached it, likewise."""
        return [request for request in read_requests(self._file) if containing in request.reference]

    def deliveries(self, containing: str = "") -> list[Delivery]:
        """Events, likewise."""
        return [delivery for delivery in read_deliveries(self._file) if containing in delivery.reference]

    def plan(self, *troubles: Trouble) -> None:
        """Plan trouble, in addition to what is planned already."""
        self._admin("POST", "troubles", {"troubles": [trouble.as_json() for trouble in troubles]})

    def report(self) -> list[TroubleReport]:
        """Return the counts of each planned trouble, in the order of planning."""
        found = self._admin("GET", "troubles")["troubles"]
        return [
            TroubleReport(trouble=Trouble.from_json(r["trouble"]), matched=r["matched"], fired=r["fired"])
            for r in found
        ]

    def reset(self) -> None:
        """Forget every planned trouble, and empty the books."""
        self._admin("DELETE", "troubles")
        self._admin("DELETE", "books")

    def _admin(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        # The address is our own process's, on the loopback interface.
        request = Request(f"{self.url}/admin/{path}", data=data, method=method)  # noqa: S310
        with urlopen(request, timeout=_ADMIN_SECONDS) as answer:  # noqa: S310 - address of our own process
            return json.loads(answer.read())
