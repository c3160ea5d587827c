"""A client of a provider: one request per call, no retries, no interpretation of an unclear outcome.

The saga retries: it asks first for the outcome of a call that was cut off.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

from saga_runtime import Applied, NotApplied, Pending, StepInDoubt
from saga_runtime.steps.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A provider's response."""

    status: int
    document: Any

    @property
    def code(self) -> str:
        """Code of an error."""
        return str(self.document.get("error", {}).get("code", ""))


@dataclass(frozen=True, slots=True)
class Client:
    """One provider.

    Attributes:
        name: as a person calls it.
        url: where it listens, without a slash at the end.
    """

    name: str
    url: str

    @classmethod
    def from_env(cls, name: str, variable: str) -> Client:
        """The provider that the function's environment names."""
        return cls(name, os.environ[variable].rstrip("/"))

    def post(self, path: str, *, key: str, body: dict[str, Any], timeout: float) -> Answer:
        """Ask for something to be done, under a key."""
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        return self._send("POST", path, headers=headers, body=json.dumps(body), timeout=timeout)

    def found(self, path: str, *, key: str, reference: str, timeout: float) -> tuple[list[dict[str, Any]], bool]:
        """Return the effects under a key, and whether a request is in progress.

        Raises:
            StepInDoubt: if the provider's response does not contain them.
        """
        answer = self._send("GET", f"{path}?{urlencode({'key': key, 'reference': reference})}", timeout=timeout)
        if answer.status != 200:
            raise self.in_doubt(answer)
        return answer.document["found"], answer.document["in_work"]

    def has_done(self, *, key: str, reference: str, timeout: float) -> Verdict:
        """Test whether something happened under a key: what an undo needs to know."""
        found, in_work = self.found("/effects", key=key, reference=reference, timeout=timeout)
        if found:
            return Applied()
        return Pending() if in_work else NotApplied()

    def in_doubt(self, answer: Answer) -> StepInDoubt:
        """Return the error for an answer that leaves the outcome open."""
        return StepInDoubt(f"{self.name} answered {answer.status} {answer.code}")

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
            # The outcome is unknown: even a refused connection is not an answer of the provider.
            raise StepInDoubt(f"{self.name} did not answer") from None
        finally:
            connection.close()
