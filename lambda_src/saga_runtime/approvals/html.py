"""The pages on which a person approves or rejects: plain HTML, readable on a phone, light and dark, without scripts.

Everything that is not a constant of this module is escaped where it enters.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from html import escape
from typing import Final

from saga_runtime.approvals.links import MAX_NOTE, Claims, Decision
from saga_runtime.callbacks.decisions import Receipt
from saga_runtime.http.response import HttpAnswer

_STYLE: Final = """
:root{color-scheme:light dark;--page:#f4f5f7;--card:#fff;--ink:#1b1f27;--soft:#5a6270;--line:#d9dde4;--field:#fff;
--yes:#17693f;--yes-ink:#fff;--no:#b3261e;--focus:#1f6feb;--ok:#e5f4eb;--ok-ink:#135231;--bad:#fbe9e7;--bad-ink:#8c1d18}
@media (prefers-color-scheme:dark){:root{--page:#111418;--card:#1b2027;--ink:#eceff3;--soft:#a7b0bd;--line:#363d48;
--field:#12161b;--yes:#5fd39a;--yes-ink:#0a2416;--no:#ff9d94;--focus:#7ab0ff;--ok:#12301f;--ok-ink:#a5e8c3;
--bad:#3a1714;--bad-ink:#ffc4be}}
*{box-sizing:border-box}
body{margin:0;padding:1.25rem;background:var(--page);color:var(--ink);font:1rem/1.5 system-ui,sans-serif}
main{max-width:32rem;margin:0 auto;padding:1.5rem;background:var(--card);
border:1px solid var(--line);border-radius:.75rem}
@media (min-width:40rem){body{padding-top:4rem}main{padding:2rem}}
h1{margin:0 0 .5rem;font-size:1.4rem;line-height:1.3;overflow-wrap:anywhere}
p{margin:0 0 1rem;overflow-wrap:anywhere}p:last-child{margin-bottom:0}
.soft{color:var(--soft)}
dl{margin:1.25rem 0;border-top:1px solid var(--line)}dl:last-child{margin-bottom:0}
dl div{display:grid;grid-template-columns:clamp(5rem,30%,9rem) minmax(0,1fr);gap:.75rem;padding:.6rem 0;
border-bottom:1px solid var(--line)}
dt{color:var(--soft);overflow-wrap:anywhere}
dd{margin:0;font-weight:500;overflow-wrap:anywhere;white-space:pre-line;unicode-bidi:isolate}
label{display:block;margin:0 0 .35rem;font-weight:600}label span{font-weight:400;color:var(--soft)}
textarea{width:100%;min-height:5rem;padding:.6rem .7rem;font:inherit;color:inherit;background:var(--field);
border:1px solid var(--soft);border-radius:.5rem;resize:vertical}
.choices{display:flex;flex-wrap:wrap;gap:.75rem;margin:1.25rem 0 .75rem}
button{flex:1 1 9rem;min-height:3rem;padding:.6rem 1rem;font:inherit;font-weight:600;border:2px solid;
border-radius:.5rem;cursor:pointer}
.yes{color:var(--yes-ink);background:var(--yes);border-color:var(--yes)}
.no{color:var(--no);background:transparent;border-color:var(--no)}
:focus-visible{outline:3px solid var(--focus);outline-offset:2px}
.told{margin-top:1rem;padding:.6rem .8rem;border-radius:.5rem;font-weight:600}
.ok{background:var(--ok);color:var(--ok-ink)}.bad{background:var(--bad);color:var(--bad-ink)}
blockquote{margin:0 0 1rem;padding:.1rem 0 .1rem .9rem;border-left:3px solid var(--line);white-space:pre-line;
overflow-wrap:anywhere;unicode-bidi:isolate}
"""
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode("utf-8")).digest()).decode("ascii")
_DIRECTIONS: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_HEADERS: Final = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
}
_LATE: Final = frozenset({Receipt.APPLIED_LATE, Receipt.CONFLICT, Receipt.UNKNOWN})
_TOO_LATE: Final = "is recorded, but it came too late: this was settled without it."
_UNHEARD: Final = (
    "is recorded. Nothing waits for it now: it counts if this continues, not if this was settled without it."
)
"""The next attempt may be on its way, or a recovery: then the saga continues with it."""


def ask_page(claims: Claims, *, closes_at: int, status: int = 200, complaint: str = "") -> HttpAnswer:
    """The question, and the two buttons. Showing it decides nothing.

    Args:
        claims: the link's claims.
        closes_at: until when it can decide, epoch milliseconds.
        status: of the answer.
        complaint: what was wrong with the request.
    """
    until = _moment(datetime.fromtimestamp(closes_at // 1_000, UTC))
    form = (
        '<form method="post">'
        f'<label for="note">Note <span>(optional, up to {MAX_NOTE} characters)</span></label>'
        f'<textarea id="note" name="note" maxlength="{MAX_NOTE}" rows="3"></textarea>'
        '<div class="choices">'
        '<button class="yes" name="decision" value="approve">Approve</button>'
        '<button class="no" name="decision" value="reject">Reject</button>'
        "</div></form>"
        '<p class="soft">You can decide once, and cannot take it back here.</p>'
    )
    told = f'<p class="told bad" role="alert">{escape(complaint)}</p>' if complaint else ""
    asked = f'<p class="soft">Asked of <bdi>{escape(claims.reviewer)}</bdi>. Open until {until}.</p>'
    return _page(status, _title(claims), told + asked + _details(claims) + form)


def decided_page(claims: Claims, decision: Decision, receipt: Receipt) -> HttpAnswer:
    """The answer to a decision."""
    if status := _without_task(receipt):
        return _over(claims, 200, f"Your decision {status}")
    verb, tone = ("Approved", "ok") if decision.approved else ("Rejected", "bad")
    told = f'<p class="told {tone}" role="status">{verb}. Thank you; you can close this page.</p>'
    return _page(200, _title(claims), told + _note(decision) + _details(claims))


def used_page(claims: Claims, decision: Decision, receipt: Receipt | None = None) -> HttpAnswer:
    """It was decided before. The note is shown to its own reviewer only: it may not be meant for others."""
    if status := _without_task(receipt):
        return _over(claims, 409, f"A decision {status}")
    verb, tone = ("approved", "ok") if decision.approved else ("rejected", "bad")
    when = _moment(datetime.fromisoformat(decision.at))
    told = f"Already decided: {verb} by <bdi>{escape(decision.reviewer)}</bdi>"
    body = f'<p class="told {tone}" role="status">{told}</p><p class="soft">{when}</p>'
    note = _note(decision) if decision.reviewer == claims.reviewer else ""
    return _page(409, _title(claims), body + note + _details(claims))


def settled_page(claims: Claims) -> HttpAnswer:
    """It was settled in another way than by a decision here."""
    return _over(claims, 409, "Already decided: this was settled in another way.")


def closed_page(claims: Claims) -> HttpAnswer:
    """Nothing waits for the decision any more."""
    return _over(claims, 410, "This is closed: the time to decide is over.")


def unknown_page(claims: Claims) -> HttpAnswer:
    """No task has ever waited for the decision, according to the tables."""
    told = '<p class="told bad" role="status">Nothing waits for this decision. It is not recorded here.</p>'
    return _page(404, _title(claims), told)


def expired_page() -> HttpAnswer:
    """The link is over; it shows nothing of what it was for."""
    return _page(410, "This link has expired", "<p>Ask the sender of the message for a new one.</p>")


def forged_page() -> HttpAnswer:
    """Not a link of this page; it shows nothing."""
    body = "<p>It may have been cut off on its way. Open it from the message again, or ask for a new one.</p>"
    return _page(403, "This link is not valid", body)


def refused_page(status: int, title: str, body: str, headers: dict[str, str] | None = None) -> HttpAnswer:
    """A request that no browser sends, or that could not be answered now."""
    return _page(status, title, f"<p>{escape(body)}</p>", headers)


def _without_task(receipt: Receipt | None) -> str:
    """Status of a decision that no task has received; empty: one has, or will."""
    if receipt is Receipt.UNDELIVERED:
        return _UNHEARD
    return _TOO_LATE if receipt in _LATE else ""


def _over(claims: Claims, status: int, text: str) -> HttpAnswer:
    """Nothing can be decided here any more."""
    return _page(status, _title(claims), f'<p class="told bad" role="status">{text}</p>' + _details(claims))


def _title(claims: Claims) -> str:
    return claims.title.strip() or "Your approval is needed"


def _details(claims: Claims) -> str:
    rows = "".join(
        f"<div><dt><bdi>{escape(label)}</bdi></dt><dd>{escape(value)}</dd></div>" for label, value in claims.details
    )
    return f"<dl>{rows}</dl>" if rows else ""


def _note(decision: Decision) -> str:
    return f"<blockquote>{escape(decision.note)}</blockquote>" if decision.note else ""


def _without_direction(text: str) -> str:
    """Text without characters that change its direction: what a tab shows cannot be isolated by an element."""
    return "".join(character for character in text if character not in _DIRECTIONS)


def _moment(moment: datetime) -> str:
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"


def _page(status: int, title: str, body: str, headers: dict[str, str] | None = None) -> HttpAnswer:
    """A whole page; ``title`` is text, ``body`` is HTML."""
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(_without_direction(title))}</title><style>{_STYLE}</style></head>"
        f"<body><main><h1><bdi>{escape(title)}</bdi></h1>{body}</main></body></html>"
    )
    return HttpAnswer(
        status=status, body=html, content_type="text/html; charset=utf-8", headers={**_HEADERS, **(headers or {})}
    )
