"""Pages on an address of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from .chromium import HOST

_ICON: Final = "/favicon.ico"
"""What a browser wants of each host, and a report as a file does not have."""

Function = Callable[[dict[str, Any], None], dict[str, Any]]


@contextmanager
def folder(path: Path) -> Iterator[str]:
    """Serve a folder's files; the value is its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != _ICON:
                super().do_GET()
                return
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing: tests report what is wrong."""

    with _serving(partial(Quiet, directory=str(path))) as address:
        yield address


@contextmanager
def function(handler: Function) -> Iterator[str]:
    """Serve a Lambda function as a REST API does, one request at a time; the value is its address."""
    one = Lock()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == _ICON:
                self.send_error(404)
            else:
                self._answer("")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

        def _answer(self, body: str) -> None:
            event = {
                "httpMethod": self.command,
                "headers": dict(self.headers.items()),
                "queryStringParameters": dict(parse_qsl(urlsplit(self.path).query)) or None,
                "body": body or None,
                "isBase64Encoded": False,
            }
            with one:
                answer = handler(event, None)
            content = answer["body"].encode()
            self.send_response(answer["statusCode"])
            for name, value in {**answer["headers"], "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Print nothing: tests report what is wrong."""

    with _serving(Answer) as address:
        yield address


@contextmanager
def _serving(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer((HOST, 0), handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
