"""Starts and stops a fake provider, plans troubles in it, and reads its journal."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Generic, Self
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from constructs_lib.testing.providers.books import ProviderRequest, read_requests
from constructs_lib.testing.providers.troubles import TroubleOf, TroubleReport

_STOP_SECONDS: Final = 5.0
_ADMIN_SECONDS: Final = 10.0


class ProviderStartError(RuntimeError):
    """The provider did not start."""


class ProviderProcess(Generic[TroubleOf]):
    """A provider in a process of its own, for as long as the ``with`` block lasts.

    Its books survive a ``stop`` and a ``start``; they are deleted at the end, unless a file was given. A subclass
    sets ``TROUBLE``, the class of its troubles, and ``ROOT``, the working directory of its module.

    Args:
        name: name in errors.
        module: module of the process, and its arguments.
        books: file of the books; a temporary one by default.
    """

    TROUBLE: ClassVar[Any]
    ROOT: ClassVar[Path]

    def __init__(self, name: str, *module: str, books: Path | None = None) -> None:
        if books is not None and not isinstance(books, Path):
            raise ValueError(f"books must be a Path, got {books!r}; pass Path({books!r})")
        self.name = name
        self._module = module
        self._folder = None if books else tempfile.TemporaryDirectory(prefix=f"{name.replace(' ', '-')}-")
        self._file = (books or Path(self._folder.name if self._folder else "") / "books.sqlite").resolve()
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
            ProviderStartError: if it does not start.
        """
        port = self._url.rpartition(":")[2] or "0"
        arguments = ("--child", "--port", port, "--books", str(self._file))
        self._process = subprocess.Popen(
            [sys.executable, "-m", *self._module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self.ROOT,
        )
        url = self._process.stdout.readline().strip() if self._process.stdout else ""
        if not url:
            self.stop()
            raise ProviderStartError(f"{self.name} did not start; its output is above")
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
            raise RuntimeError(f"{self.name} is not running; use it in a with block, or call start()")
        return self._url

    def books_file(self) -> Path:
        """File of the books.

        Raises:
            RuntimeError: if it was not started, or its books were deleted at the end of the ``with`` block.
        """
        if not self._file.exists():
            raise RuntimeError(f"{self.name} has no books; read them in the with block, or pass books= to keep them")
        return self._file

    def requests(self, containing: str = "") -> list[ProviderRequest]:
        """Requests that reached it, in order, by a part of their reference."""
        return [one for one in read_requests(self.books_file()) if containing in one.reference]

    def plan(self, *troubles: TroubleOf) -> None:
        """Plan troubles, in addition to those that are planned already."""
        self.admin("POST", "troubles", {"troubles": [trouble.as_json() for trouble in troubles]})

    def report(self) -> list[TroubleReport[TroubleOf]]:
        """Return the counts of each planned trouble, in the order of planning."""
        found = self.admin("GET", "troubles")["troubles"]
        return [
            TroubleReport(trouble=self.TROUBLE.from_json(r["trouble"]), matched=r["matched"], fired=r["fired"])
            for r in found
        ]

    def forget(self, key: str) -> None:
        """Forget an idempotency key, as if its window were over. The books are kept."""
        self.admin("DELETE", f"keys?{urlencode({'key': key})}")

    def reset(self) -> None:
        """Forget every planned trouble, and empty the books."""
        self.admin("DELETE", "troubles")
        self.admin("DELETE", "books")

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to a path for tests."""
        data = None if body is None else json.dumps(body).encode()
        # The address is our own process's, on the loopback interface.
        request = Request(f"{self.url}/admin/{path}", data=data, method=method)  # noqa: S310
        with urlopen(request, timeout=_ADMIN_SECONDS) as answer:  # noqa: S310 - address of our own process
            return json.loads(answer.read())
