"""Links by which a person approves or rejects: signed, expiring, and of use once.

A link carries its question, its reviewer and its expiry, and a signature over all of it; so a page can show it without
reading anything else, and it cannot be altered. Its holder can read it, and can
decide: send it to the reviewer alone.

A decision is stored before it takes effect, one for each job. A second reviewer, by any link, is shown
the first decision; if its effect was lost, it is applied then, as it was decided.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from saga_runtime.callbacks.rows import Callback, Failed, Succeeded, check_job_id
from saga_runtime.errors import Invalid, ProtocolMismatch, Rejected
from saga_runtime.idempotency.identity import canonical_json
from saga_runtime.protocol import PREVIOUS_SECONDS, Env
from saga_runtime.shared.secrets import SecretKeys, secrets

TOKEN_PARAMETER: Final = "t"  # noqa: S105  # its name in the address
APPROVED: Final = "approved"
REJECTED: Final = "rejected"
MAX_CLAIMS_BYTES: Final = 1_200
"""Then the whole link has less than 2,000 characters, which every mail program and browser takes."""
MAX_REVIEWER: Final = 100
MAX_NOTE: Final = 500
MAX_LIFE: Final = timedelta(days=365)

_NEVER: Final = 2**33
_PURPOSE: Final = b"cdk-sagas approval 1\n"
"""Signed with the rest: the same secret's signature of anything else is not a link's."""


class Job(Protocol):
    """The job of a link: a ``CallbackCall``."""

    @property
    def job_id(self) -> str:
        """The job that waits."""

    @property
    def now_ms(self) -> int:
        """Time of the invocation, epoch milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Contents of a link.

    Attributes:
        job_id: the job that waits for the decision.
        reviewer: who is asked.
        expires: seconds since the epoch at which the link is over.
        title: what is asked.
        details: labels and values, in the order in which they are shown.
    """

    job_id: str
    reviewer: str
    expires: int
    title: str = ""
    details: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Refuse what a page could not show."""
        check_job_id(self.job_id)
        if not self.reviewer.strip() or len(self.reviewer) > MAX_REVIEWER:
            raise Invalid(f"a reviewer has 1 to {MAX_REVIEWER} characters, not all blank, got {len(self.reviewer)}")
        if not 0 <= self.expires < _NEVER:
            raise Invalid(f"a link expires at a time before {_NEVER} (seconds since the epoch), got {self.expires}")

    def encode(self) -> bytes:
        """As it is signed.

        Raises:
            Invalid: if it is too large for a link, or holds a value that is not text.
        """
        details = [[label, value] for label, value in self.details]
        members = {"job": self.job_id, "reviewer": self.reviewer, "expires": self.expires}
        text = canonical_json({**members, "title": self.title, "details": details}).encode("utf-8")
        if len(text) > MAX_CLAIMS_BYTES:
            raise Invalid(
                f"the contents of an approval link may have {MAX_CLAIMS_BYTES} bytes, got {len(text)}; shorten title "
                "and details"
            )
        return text

    @classmethod
    def decode(cls, text: bytes) -> Claims:
        """Read what ``encode`` wrote.

        Raises:
            ValueError: for any other text.
        """
        try:
            members = json.loads(text)
            details = tuple((str(label), str(value)) for label, value in members["details"])
            return cls(
                job_id=str(members["job"]),
                reviewer=str(members["reviewer"]),
                expires=int(members["expires"]),
                title=str(members["title"]),
                details=details,
            )
        except (KeyError, TypeError, ValueError, Invalid, RecursionError) as error:
            raise ValueError(f"not an approval's claims: {type(error).__name__}") from None

    def is_over(self, now_ms: int) -> bool:
        """Test whether the link has expired."""
        return now_ms >= self.expires * 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Decision of a reviewer.

    Attributes:
        approved: or rejected.
        reviewer: who.
        note: the reviewer's reason. Of a rejection it stays in the token table: the client receives
            the refusal, and the note may not be meant for the client.
        at: when, ISO 8601 in UTC.
        event_id: the event that it is.
    """

    approved: bool
    reviewer: str
    note: str
    at: str
    event_id: str

    def encode(self) -> str:
        """As it is stored."""
        return canonical_json({**self.output(), "event_id": self.event_id})

    @classmethod
    def decode(cls, text: str) -> Decision:
        """Read what ``encode`` wrote."""
        members = json.loads(text)
        return cls(
            approved=members["decision"] == APPROVED,
            reviewer=members["reviewer"],
            note=members["note"],
            at=members["at"],
            event_id=members["event_id"],
        )

    def output(self) -> dict[str, str]:
        """The step's output, if it was approved."""
        verdict = APPROVED if self.approved else REJECTED
        return {"decision": verdict, "reviewer": self.reviewer, "note": self.note, "at": self.at}

    def callback(self, job_id: str) -> Callback:
        """Callback with the decision."""
        return Callback(job_id=job_id, event_id=self.event_id, outcome=self.outcome())

    def outcome(self) -> Succeeded | Failed:
        """Outcome of the step."""
        return Succeeded(self.output()) if self.approved else Failed(Rejected.__name__, "a reviewer rejected it")


def decide(claims: Claims, *, approved: bool, note: str, attempt: str, now_ms: int) -> Decision:
    """The decision of a link's reviewer, now.

    Args:
        claims: the link's claims.
        approved: or rejected.
        note: why, in the reviewer's words.
        attempt: which attempt at the job waits: if an operator takes a decision back, the next one is another event.
        now_ms: the time, epoch milliseconds.
    """
    identity = canonical_json([claims.job_id, claims.reviewer, attempt])
    return Decision(
        approved=approved,
        reviewer=claims.reviewer,
        note=_tidy(note),
        at=datetime.fromtimestamp(now_ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        event_id=f"approval-{hashlib.sha256(identity.encode()).hexdigest()[:32]}",
    )


def _tidy(note: str) -> str:
    """Without control characters, and no longer than a note may be."""
    lines = note.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(c for c in lines if c == "\n" or unicodedata.category(c) not in ("Cc", "Cs")).strip()[:MAX_NOTE]


def approval_link(
    call: Job,
    *,
    reviewer: str,
    expires: timedelta,
    title: str = "",
    details: Mapping[str, str] | None = None,
) -> str:
    """A link to a page on which a person approves or rejects what a step waits for.

    For a ``callback_step`` function of an integration with an approval page: it sends the link to the reviewer. An
    approval is the step's success, with the output ``{"decision": "approved", "reviewer", "note", "at"}``; a rejection
    is its refusal ``Rejected``, which every ``Step.wait_for`` knows.

    Guaranteed: the first decision on a job counts, by whichever link, and no other. Opening the page decides nothing,
    so a mail program may open it beforehand.

    Not guaranteed: that the reviewer decides. Any holder of the link can; and it can be read, so write nothing
    into it that the reviewer's mail must not hold.

    Args:
        call: what the function was given.
        reviewer: the reviewer's name, 1 to 100 characters; part of the decision.
        expires: how long from now the link can be used: not longer than the step waits, at most 365 days.
        title: the question, as the page's heading.
        details: labels and values for the reviewer. Title and details together have a little over
            1,000 bytes: the whole link must fit into a mail.

    Raises:
        Invalid: if an argument is out of its bounds.
        ProtocolMismatch: if the integration of this function has no approval page.
        TransientError: if Secrets Manager did not answer.
    """
    if not timedelta(seconds=1) <= expires <= MAX_LIFE:
        raise Invalid(f"a link expires after 1 second to {MAX_LIFE.days} days, got {expires}")
    address, secret = os.environ.get(Env.APPROVAL_URL), os.environ.get(Env.APPROVAL_SECRET)
    if not address or not secret:
        raise ProtocolMismatch(
            "this function's integration has no approval page; add one with add_approval_page(...), and deploy"
        )
    claims = Claims(
        job_id=call.job_id,
        reviewer=reviewer,
        expires=call.now_ms // 1_000 + int(expires.total_seconds()),
        title=title,
        details=tuple((details or {}).items()),
    )
    (key, *_) = secrets().keys(_signing(secret))
    return f"{address}?{TOKEN_PARAMETER}={token_of(claims, key)}"


def token_of(claims: Claims, key: bytes) -> str:
    """Claims and their signature, as part of an address."""
    said = claims.encode()
    return f"{_to_text(said)}.{_to_text(_sign(said, key))}"


def claims_of(token: str, keys: Iterable[bytes]) -> Claims | None:
    """Claims of a token; None if none of the keys has signed it."""
    said, _, signature = token.partition(".")
    try:
        text, found = _to_bytes(said), _to_bytes(signature)
        # All of them are tried: the time taken reveals nothing about which key fits.
        fitting = [hmac.compare_digest(_sign(text, key), found) for key in keys]
        return Claims.decode(text) if any(fitting) else None
    except ValueError:  # binascii.Error is one
        return None


def link_claims(token: str) -> Claims | None:
    """Claims of a link made with this function's secret; None if it was made with another, or with none.

    Raises:
        SecretsUnavailable: if Secrets Manager did not answer.
    """
    wanted = _signing(os.environ[Env.APPROVAL_SECRET])
    claims = claims_of(token, secrets().keys(wanted))
    if claims is None and secrets().may_look_anew():
        claims = claims_of(token, secrets().keys(wanted, anew=True))
    return claims


def _signing(secret: str) -> SecretKeys:
    previous = int(os.environ.get(Env.APPROVAL_PREVIOUS_SECONDS, PREVIOUS_SECONDS))
    return SecretKeys(names=(secret,), key_of=_key_of, field=None, previous_seconds=previous)


def _key_of(secret: str) -> bytes:
    return secret.strip().encode("utf-8")


def _sign(said: bytes, key: bytes) -> bytes:
    return hmac.digest(key, _PURPOSE + said, "sha256")


def _to_text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _to_bytes(text: str) -> bytes:
    if not text.isascii() or "=" in text:
        raise binascii.Error("not what _to_text makes")
    standard = text.translate(str.maketrans("-_", "+/"))
    return base64.b64decode(standard + "=" * (-len(text) % 4), validate=True)
