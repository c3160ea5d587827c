"""Starts and stops a gateway, plans trouble in it, and reads its books."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from examples.payment_gateway.books import Books, Received, read_books, read_requests
from examples.payment_gateway.troubles import Trouble, TroubleReport

_ROOT: Final = Path(__file__).resolve().parents[2]
_STOP_SECONDS: Final = 5.0
_ADMIN_SECONDS: Final = 10.0


class GatewayStartError(RuntimeError):
    """The gateway did not start."""


class PaymentGateway:
    """A payment gateway in a process of its own, for as long as the ``with`` block lasts.

    Its books survive a `stop` and a `start`; they are deleted at the end, unless a file was given.

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

    def __init__(self, *, idempotent_for: float = 86_400.0, speed: float = 1.0, books: Path | None = None) -> None:
        self._folder = None if books else tempfile.TemporaryDirectory(prefix="payment-gateway-")
        self._file = books or Path(self._folder.name if self._folder else "") / "books.sqlite"
        self._settings = ("--idempotent-for", str(idempotent_for), "--speed", str(speed))
        self._process: subprocess.Popen[str] | None = None
        self._url = ""

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it, and delete its books unless they were given a file."""
        self.stop()
        if self._folder is not None:
            self._folder.cleanup()

    def start(self) -> None:
        """Start the process; a second time at the same address.

        Raises:
            GatewayStartError: if it does not start.
        """
        port = self._url.rpartition(":")[2] or "0"
        arguments = ("--child", "--port", port, "--books", str(self._file.resolve()), *self._settings)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "examples.payment_gateway", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
        url = self._process.stdout.readline().strip() if self._process.stdout else ""
        if not url:
            self.stop()
            raise GatewayStartError("the payment gateway did not start; its output is above")
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
            raise RuntimeError("the payment gateway is not running; use it in a with block, or call start()")
        return self._url

    def books(self) -> Books:
        """Contents of its books."""
        return read_books(self._file)

    def requests(self) -> list[Received]:
        """Every request that reached it, in order."""
        return read_requests(self._file)

    def plan(self, *troubles: Trouble) -> None:
        """Plan trouble, in addition to what is planned already."""
        self._admin("POST", "troubles", {"troubles": [trouble.as_json() for trouble in troubles]})

    def report(self) -> list[TroubleReport]:
        """Return the outcome of each planned trouble, in the order of planning."""
        found = self._admin("GET", "troubles")["troubles"]
        return [
            TroubleReport(trouble=Trouble.from_json(r["trouble"]), matched=r["matched"], fired=r["fired"])
            for r in found
        ]

    def forget(self, key: str) -> None:
        """Forget an idempotency key, as if its window were over. The books are kept."""
        self._admin("DELETE", f"keys?{urlencode({'key': key})}")

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
