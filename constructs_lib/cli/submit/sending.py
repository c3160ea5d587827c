"""Sends one request until its outcome is known, as a careful client does."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.cli.submit.lines import Line
from constructs_lib.cli.submit.outcomes import Answer, Outcome, outcome_of
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER

if TYPE_CHECKING:
    import boto3

_TIMEOUT_SECONDS: Final = 35
"""Longer than the 29 s that API Gateway waits for a function."""
_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 30.0

Post = Callable[[Line], Answer | None]
"""Sends a line once; None if no answer came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Outcome of a line, and the answer that has it.

    Attributes:
        line: the line.
        outcome: its outcome.
        answer: the last answer, None if none came.
    """

    line: Line
    outcome: Outcome
    answer: Answer | None

    def to_json(self) -> dict[str, Any]:
        """A line of the file of results."""
        document = {"line": self.line.number, "key": self.line.key, "outcome": self.outcome}
        if self.answer is None:
            return document
        return {**document, "http_status": self.answer.status, "answer": self.answer.document}


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits of how long a line is sent again.

    Attributes:
        unclear_seconds: while no answer is clear.
        settle_seconds: while it is accepted and not settled; 0 does not wait.
    """

    unclear_seconds: float
    settle_seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def deliver(line: Line, post: Post, patience: Patience) -> Result:
    """Send a line until its outcome is known, and settled if that is waited for."""
    began = patience.clock()
    accepted: Outcome | None = None
    unclear, wait = False, _FIRST_WAIT
    while True:
        answer = post(line)
        found = outcome_of(answer) if answer is not None else None
        stored = answer is not None and answer.replayed
        if found in {Outcome.NOT_ACCEPTED, Outcome.REFUSED} and not stored and (unclear or accepted is not None):
            # A refusal of a later attempt states nothing about the earlier ones.
            found = None
        if found is None:
            unclear = unclear or answer is None or answer.status != 429
        elif found in {Outcome.NEW, Outcome.IN_PROGRESS} and not _settled(answer):
            accepted = accepted or found
        else:
            completed = found in {Outcome.NEW, Outcome.REPLAYED}
            return Result(line=line, outcome=accepted if accepted and completed else found, answer=answer)
        limit = patience.settle_seconds if accepted is not None else patience.unclear_seconds
        pause = max(wait * random.uniform(0.5, 1.0), (answer.retry_after if answer is not None else None) or 0.0)
        if patience.clock() - began + pause > limit:
            return Result(line=line, outcome=accepted or Outcome.UNKNOWN, answer=answer)
        patience.sleep(pause)
        wait = min(2 * wait, _LONGEST_WAIT)


def _settled(answer: Answer | None) -> bool:
    return answer is not None and answer.status not in {202, 409}


class SignedPost:
    """Sends lines to an operation, signed by SigV4 unless a header authorizes them. Threads may share it.

    Args:
        session: whose credentials sign.
        url: of the operation.
        headers: further headers.
    """

    def __init__(self, session: boto3.Session | None, url: str, headers: Mapping[str, str]) -> None:
        from botocore.httpsession import URLLib3Session

        self._session = session
        self._url = url
        self._headers = dict(headers)
        self._http = URLLib3Session(timeout=_TIMEOUT_SECONDS, max_pool_connections=64)

    def __call__(self, line: Line) -> Answer | None:
        """Send a line once; None if no answer came."""
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError

        headers = {"Content-Type": "application/json", **self._headers, IDEMPOTENCY_KEY_HEADER: line.key}
        request = AWSRequest(method="POST", url=self._url, data=line.body.encode("utf-8"), headers=headers)
        if self._session is not None:
            credentials: Any = self._session.get_credentials()
            SigV4Auth(credentials.get_frozen_credentials(), "execute-api", self._session.region_name).add_auth(request)
        try:
            answer = self._http.send(request.prepare())
        except BotoCoreError:  # no connection, a timeout, TLS, a proxy
            return None
        received = {name.lower(): value for name, value in answer.headers.items()}
        return Answer(status=answer.status_code, headers=received, text=answer.text)
