"""Signed HTTP requests, as an API's client sends them: SigV4, one connection per thread kept alive."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """An HTTP answer.

    Attributes:
        status: Status code.
        headers: Headers, names in lower case.
        body: Body as it came.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8")

    def json(self) -> Any:
        """Return the body, read as JSON."""
        return json.loads(self.body)


class _Connection(http.client.HTTPConnection):
    """A connection that is closed with its client, or its thread: tests may turn ``ResourceWarning`` into an error."""

    def __del__(self) -> None:
        self.close()


class HttpClient:
    """Sends requests over connections that stay open, one per thread and host.

    Safe for use by many threads. A connection that the server closed in the meantime is opened again, but a request
    whose answer was lost is never sent twice: whether to repeat it is the caller's decision.

    Args:
        timeout: Seconds after which a request without a response fails.
    """

    def __init__(self, *, timeout: float = 60.0) -> None:
        self._timeout = timeout
        self._connections = threading.local()

    def send(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> HttpResponse:
        """Send a request and return its answer, whatever its status.

        Args:
            method: HTTP method.
            url: Absolute URL.
            headers: Headers to send.
            body: Body to send.

        Raises:
            OSError: If no answer came.
            http.client.HTTPException: If what came is not an answer.
        """
        parts = urlsplit(url)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection = self._connection(parts.netloc)
        try:
            connection.request(method, target, body=body, headers=dict(headers or {}))
            answer = connection.getresponse()
            content = answer.read()
        except BaseException:
            connection.close()
            raise
        received = {name.lower(): value for name, value in answer.getheaders()}
        return HttpResponse(status=answer.status, headers=received, body=content)

    def _connection(self, netloc: str) -> http.client.HTTPConnection:
        pool: dict[str, http.client.HTTPConnection] = self._connections.__dict__.setdefault("pool", {})
        connection = pool.get(netloc)
        if connection is None:
            connection = pool[netloc] = _Connection(netloc, timeout=self._timeout)
        elif connection.sock is not None and _is_closed(connection):
            connection.close()
        return connection


def _is_closed(connection: http.client.HTTPConnection) -> bool:
    """Return whether the server has ended an idle connection: then its socket reads an end of file."""
    connection.sock.setblocking(False)
    try:
        return connection.sock.recv(1, 2) == b""  # 2 is MSG_PEEK: nothing is taken out
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.sock.settimeout(connection.timeout)


def encode(body: object) -> bytes | None:
    """Return a request body: bytes and text as they are, None as none, everything else as JSON."""
    if body is None or isinstance(body, bytes):
        return body
    return body.encode("utf-8") if isinstance(body, str) else json.dumps(body).encode("utf-8")


def signed_headers(
    *,
    method: str,
    url: str,
    headers: Mapping[str, str] | None,
    body: bytes | None,
    access_key_id: str,
    secret_access_key: str,
    region: str,
) -> dict[str, str]:
    """Return the headers of a request with its SigV4 signature for ``execute-api``.

    Args:
        method: HTTP method.
        url: Absolute URL.
        headers: Headers to sign and send.
        body: Body to sign.
        access_key_id: Whose signature.
        secret_access_key: The key's secret.
        region: Region of the API.
    """
    request = AWSRequest(method=method, url=url, data=body or b"", headers=dict(headers or {}))
    SigV4Auth(Credentials(access_key_id, secret_access_key), "execute-api", region).add_auth(request)
    return dict(request.headers.items())
