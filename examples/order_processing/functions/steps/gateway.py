"""A client of the payment gateway: one request per call, no retries, no interpretation of an unclear outcome.

The saga retries: it asks first for the outcome of a call that was cut off.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

from saga_runtime import StepInDoubt


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The gateway's response."""

    status: int
    document: Any

    @property
    def code(self) -> str:
        """Code of an error."""
        return str(self.document.get("error", {}).get("code", ""))


@dataclass(frozen=True, slots=True)
class Gateway:
    """The gateway.

    Attributes:
        url: where it listens, without a slash at the end.
    """

    url: str

    @classmethod
    def from_env(cls) -> Gateway:
        """The gateway that the function's environment names."""
        return cls(os.environ["PAYMENT_GATEWAY_URL"].rstrip("/"))

    def post(self, path: str, *, key: str, body: dict[str, Any], timeout: float) -> Answer:
        """Ask for something to be done, under a key."""
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        return self._send("POST", path, headers=headers, body=json.dumps(body), timeout=timeout)

    def find(self, path: str, *, key: str, reference: str, timeout: float) -> Answer:
        """Ask what was done under a key."""
        return self._send("GET", f"{path}?{urlencode({'key': key, 'reference': reference})}", timeout=timeout)

    def _send(
        self, method: str, path: str, *, timeout: float, headers: dict[str, str] | None = None, body: str | None = None
    ) -> Answer:
        parts = urlsplit(self.url)
        connection_to = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = connection_to(parts.netloc, timeout=timeout)
        try:
            connection.request(method, parts.path + path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return Answer(status=answer.status, document=json.loads(answer.read()))
        except (OSError, HTTPException, ValueError):
            # The outcome is unknown: even a refused connection is not an answer of the gateway.
            raise StepInDoubt("the payment gateway did not answer") from None
        finally:
            connection.close()
