"""``cdk-sagas submit``: a file of requests, each sent under its own key until its outcome is known.

Its options, its file of lines, outcomes of answers, and sending as a careful client does.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TextIO
from urllib.parse import urlsplit

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError, ClientError
from botocore.httpsession import URLLib3Session

from constructs_lib.cli.shared.aws import add_aws_options, session_of
from constructs_lib.cli.shared.process import CommandError, say
from constructs_lib.cli.shared.terminal import progress
from saga_runtime.errors import SagaError
from saga_runtime.http.response import Problem
from saga_runtime.idempotency.identity import canonical_json, is_saga_id, parse_json
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, MAX_KEY_LENGTH, PROBLEM_TYPES, REPLAYED_HEADER

_UNCLEAR_SECONDS: Final = 60.0
_MOST_AT_ONCE: Final = 64
_ATTENTION: Final = 3
_MOST_SECONDS: Final = 86_400


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``submit``, and add its options."""
    parser.description = (
        "Sends each line of a JSON Lines file to an operation, under the key that the line has. To send "
        "the file again, or a part of it, repeats no effect. Each line's outcome: "
        + ", ".join(Outcome)
        + ". Exit status: 0 every line is new, replayed or in progress; 3 others are not; 1 nothing was sent."
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="JSON Lines: one request body per line")
    parser.add_argument("--api", metavar="URL", required=True, help="address of the API with its stage, https://…/v1")
    parser.add_argument("--operation", metavar="NAME", required=True, help="the operation: the path behind the stage")
    parser.add_argument(
        "--key", metavar="POINTER", required=True, help="JSON Pointer to the member that is the key, like /id"
    )
    parser.add_argument(
        "--results", metavar="FILE", type=Path, help="one JSON object per line; FILE.results by default"
    )
    parser.add_argument(
        "--wait", metavar="SECONDS", type=float, default=0.0, help="how long to wait for each to settle (0)"
    )
    parser.add_argument("--at-once", metavar="N", type=int, default=8, help="requests at once (8)")
    parser.add_argument(
        "--header",
        metavar="NAME:VALUE",
        action="append",
        default=[],
        help="a further header; with Authorization, requests are not signed",
    )
    add_aws_options(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    if not 1 <= options.at_once <= _MOST_AT_ONCE:
        raise CommandError(f"--at-once must be 1 to {_MOST_AT_ONCE}, got {options.at_once}; 8 is a usual one")
    if not 0 <= options.wait <= _MOST_SECONDS:
        raise CommandError(f"--wait must be 0 to {_MOST_SECONDS} seconds, got {options.wait:g}; 0 does not wait")
    url = _url_of(options)
    headers = _headers(options.header)
    lines = read_lines(options.file, options.key)
    authorized = any(name.lower() == "authorization" for name in headers)
    session = None if authorized else session_of(options)
    if session is not None and session.get_credentials() is None:
        raise CommandError("requests cannot be signed: no credentials; name a profile, or configure the AWS SDK")
    post = SignedPost(session, url, headers)
    try:
        post.require_signature()
    except Unsigned as error:
        raise CommandError(f"requests cannot be signed: {error}; renew your credentials; nothing was sent") from None
    results = options.results or options.file.with_name(f"{options.file.name}.results")
    if results.resolve() == options.file.resolve():
        raise CommandError(f"--results must be another file than the requests', got {results}; name another one")
    patience = Patience(unclear_seconds=_UNCLEAR_SECONDS, settle_seconds=options.wait)
    try:
        file = results.open("w", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{results} cannot be written: {error}; nothing was sent") from None
    with file:
        try:
            counts = submit(lines, post, patience, file, at_once=options.at_once)
        except OSError as error:
            say(f"{results} could not be written to its end: {error}; submit the file again\n")
            return _ATTENTION
    for outcome in Outcome:
        if counts[outcome]:
            say(f"{counts[outcome]:>9,} {outcome}\n")
    say(f"{len(lines):>9,} lines; results: {results}\n")
    if post.unsigned:
        remedy = "renew your credentials, and submit the file again"
        sys.stderr.write(f"not every request could be signed: {post.unsigned}; {remedy}\n")
    return 0 if set(counts) <= ACCEPTED else _ATTENTION


def submit(lines: Sequence[Line], post: Post, patience: Patience, results: TextIO, *, at_once: int) -> Counter[Outcome]:
    """Send all lines, several at once, and write each result as it is known.

    Args:
        lines: what to send.
        post: sends a line once.
        patience: how long each is sent again.
        results: where a JSON object per line goes.
        at_once: how many threads send.
    """
    counts: Counter[Outcome] = Counter()
    pool = ThreadPoolExecutor(at_once)
    with progress(len(lines)) as bar:
        try:
            for sent in as_completed([pool.submit(deliver, line, post, patience) for line in lines]):
                result = sent.result()
                counts[result.outcome] += 1
                results.write(result.written + "\n")
                results.flush()
                bar(advance=1, note=", ".join(f"{number:,} {outcome}" for outcome, number in sorted(counts.items())))
        finally:
            pool.shutdown(cancel_futures=True)
    return counts


def _url_of(options: argparse.Namespace) -> str:
    parts = urlsplit(options.api)
    if parts.scheme not in {"https", "http"} or not parts.netloc:
        raise CommandError(f"--api must be an https address with its stage, got {options.api!r}")
    if not options.operation.strip("/ "):
        raise CommandError("--operation must be the operation's path, got a blank")
    return f"{options.api.rstrip('/')}/{options.operation.strip('/ ')}"


def _headers(given: Sequence[str]) -> dict[str, str]:
    headers = {}
    for text in given:
        name, found, value = text.partition(":")
        if not found or not name.strip() or not value.strip():
            raise CommandError(f"--header must be NAME:VALUE, got {name.strip()!r}")
        headers[name.strip()] = value.strip()
    return headers


_SHOWN: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One request.

    Attributes:
        number: of the line, from 1.
        key: its idempotency key.
        body: its text, byte for byte as in the file.
    """

    number: int
    key: str
    body: str


def read_lines(path: Path, pointer: str) -> list[Line]:
    """Read and check the whole file, before anything is sent. Blank lines are skipped.

    Args:
        path: the file.
        pointer: JSON Pointer (RFC 6901) to the member that is the key: text, or an integer.

    Raises:
        CommandError: the file cannot be read; a line is not a JSON object, or has no key; two lines of one key differ.
    """
    members = _members(pointer)
    try:
        texts = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} cannot be read: {error}") from None
    lines: list[Line] = []
    first: dict[str, tuple[int, str]] = {}
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            continue
        where = f"line {number} of {path}"
        try:
            document = parse_json(text)
            canonical = canonical_json(document)
        except (SagaError, ValueError) as error:
            raise CommandError(f"{where} must be a JSON object: {error}") from None
        if not isinstance(document, dict):
            raise CommandError(f"{where} must be a JSON object, got {type(document).__name__}")
        key = _key(document, members, pointer, where)
        seen, before = first.setdefault(key, (number, canonical))
        if before != canonical:
            raise CommandError(f"lines {seen} and {number} must be equal under key {key}, or have keys of their own")
        lines.append(Line(number=number, key=key, body=text.strip()))
    return lines


def _members(pointer: str) -> list[str]:
    if not pointer.startswith("/") or not pointer[1:]:
        raise CommandError(f"--key must be a JSON Pointer to a member, like /id, got {pointer!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def _key(document: Any, members: list[str], pointer: str, where: str) -> str:
    found = document
    for member in members:
        found = found.get(member) if isinstance(found, dict) else None
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise CommandError(f"{where} must have text or an integer at {pointer}, got {type(found).__name__}")
    key = str(found)
    if not (key.isascii() and key.isprintable() and key.strip() and len(key) <= MAX_KEY_LENGTH):
        raise CommandError(
            f"{where} must have 1 to {MAX_KEY_LENGTH} printable ASCII characters at {pointer}, got {key[:_SHOWN]!r}"
        )
    return key


class Outcome(StrEnum):
    """Outcome of a line."""

    NEW = "new"
    """It was recorded by this run."""
    REPLAYED = "replayed"
    """It was completed before; the stored response came."""
    IN_PROGRESS = "in progress"
    """An earlier request under its key is being processed."""
    REFUSED = "refused"
    """It is settled with an error, and has no effect."""
    EXPIRED = "expired"
    """It was settled long ago, and the response is no longer stored."""
    OTHER_BODY = "other body"
    """Its key belongs to another request."""
    NOT_ACCEPTED = "not accepted"
    """This attempt recorded nothing."""
    UNKNOWN = "unknown"
    """No answer was both clear and an operation's. Submit again: under the same key, nothing is repeated."""


ACCEPTED: Final = frozenset({Outcome.NEW, Outcome.REPLAYED, Outcome.IN_PROGRESS})
"""Outcomes that need no attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP answer.

    Attributes:
        status: status code.
        headers: names in lower case.
        text: the body.
    """

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def replayed(self) -> bool:
        """True for a stored response."""
        return self.headers.get(REPLAYED_HEADER.lower(), "").lower() == "true"

    @property
    def problem(self) -> str:
        """Code of the problem document; empty for another body.

        A ``type`` is the code after a fixed beginning, or after the API's ``docs_url``, which ends with ``/``, ``#`` or
        ``=``: characters that no code has.
        """
        document = self.document
        kind = document.get("type") if isinstance(document, dict) else None
        return re.split(r"[/#=]", kind.removeprefix(PROBLEM_TYPES))[-1] if isinstance(kind, str) else ""

    @property
    def of_operation(self) -> bool:
        """True for the body of a request that an operation has recorded: any other address may answer 200, too."""
        document = self.document
        if not isinstance(document, dict):
            return False
        saga_id, status = document.get("saga_id"), document.get("status")
        return isinstance(saga_id, str) and is_saga_id(saga_id) and isinstance(status, str)

    @property
    def document(self) -> Any:
        """The body, read as JSON; its text if it is not JSON."""
        try:
            return json.loads(self.text)
        except ValueError:
            return self.text

    @property
    def retry_after(self) -> float | None:
        """Seconds that the server asks a client to wait."""
        wanted = self.headers.get("retry-after", "")
        return float(wanted) if wanted.isdigit() else None


def outcome_of(answer: Answer) -> Outcome | None:
    """The outcome that an answer to a first attempt means; None if it means nothing, and the request is sent again."""
    if 200 <= answer.status < 300 and not answer.of_operation:
        return Outcome.UNKNOWN  # at once: an address that is not an operation's may do something at each request
    if answer.replayed:
        return Outcome.REPLAYED if answer.status < 400 else Outcome.REFUSED
    if answer.status in {200, 201, 202}:
        return Outcome.NEW
    match answer.status, answer.problem:
        case 409, Problem.IN_PROGRESS:
            return Outcome.IN_PROGRESS
        case 410, Problem.KEY_EXPIRED:
            return Outcome.EXPIRED
        case 422, Problem.KEY_REUSED:
            return Outcome.OTHER_BODY
        case 507, _:
            return Outcome.EXPIRED
        case _, "saga-refused" | "saga-failed":
            return Outcome.REFUSED
        case 429, _:
            return None
    if 300 <= answer.status < 500:
        return Outcome.NOT_ACCEPTED
    return None


_TIMEOUT_SECONDS: Final = 35
"""Longer than the 29 s that API Gateway waits for a function."""
_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 30.0

Post = Callable[[Line], Answer | None]
"""Sends a line once; None if no answer came. Raises ``Unsigned``."""


class Unsigned(Exception):
    """No credentials sign a request any more: it was not sent, and neither would the next one be."""


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

    @property
    def written(self) -> str:
        """A line of the file of results. It has the answer as it came: read as floats, amounts would lose digits."""
        known: dict[str, Any] = {"line": self.line.number, "key": self.line.key, "outcome": self.outcome}
        if self.answer is None:
            return json.dumps(known, ensure_ascii=False)
        head = json.dumps({**known, "http_status": self.answer.status}, ensure_ascii=False)
        text, document = self.answer.text, self.answer.document
        if document is text or "\n" in text or "\r" in text:  # no JSON, or not in one line
            text = json.dumps(document, ensure_ascii=False)
        return f'{head[:-1]}, "answer": {text}}}'


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
    """Send a line until its outcome is known, and settled if that is waited for; or nothing signs it any more."""
    began = patience.clock()
    accepted: Outcome | None = None
    answer: Answer | None = None
    unclear, wait = False, _FIRST_WAIT
    while True:
        try:
            answer = post(line)
        except Unsigned:
            return Result(line=line, outcome=accepted or Outcome.UNKNOWN, answer=answer)
        found = outcome_of(answer) if answer is not None else None
        stored = answer is not None and answer.replayed
        if found in {Outcome.NOT_ACCEPTED, Outcome.REFUSED} and not stored and (unclear or accepted is not None):
            # A refusal of a later attempt states nothing about the earlier ones.
            found = None
        if found is Outcome.UNKNOWN and accepted is not None:
            found = None  # a page that something before the operation has sent
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

    Attributes:
        unsigned: why a request could not be signed; empty: each was.
    """

    def __init__(self, session: boto3.Session | None, url: str, headers: Mapping[str, str]) -> None:
        self._session = session
        self._url = url
        self._headers = dict(headers)
        self._http = URLLib3Session(timeout=_TIMEOUT_SECONDS, max_pool_connections=64)
        self.unsigned = ""

    def require_signature(self) -> None:
        """Sign a request that is not sent.

        Raises:
            Unsigned: if credentials have expired, or cannot be had.
        """
        self._sign(AWSRequest(method="POST", url=self._url, data=b""))

    def __call__(self, line: Line) -> Answer | None:
        """Send a line once; None if no answer came.

        Raises:
            Unsigned: nothing was sent.
        """
        headers = {"Content-Type": "application/json", **self._headers, IDEMPOTENCY_KEY_HEADER: line.key}
        request = AWSRequest(method="POST", url=self._url, data=line.body.encode("utf-8"), headers=headers)
        self._sign(request)
        try:
            answer = self._http.send(request.prepare())
        except BotoCoreError:  # no connection, a timeout, TLS, a proxy
            return None
        received = {name.lower(): value for name, value in answer.headers.items()}
        return Answer(status=answer.status_code, headers=received, text=answer.text)

    def _sign(self, request: AWSRequest) -> None:
        if self._session is None:
            return
        try:
            credentials: Any = self._session.get_credentials()
            SigV4Auth(credentials.get_frozen_credentials(), "execute-api", self._session.region_name).add_auth(request)
        except (BotoCoreError, ClientError, RuntimeError) as error:  # the last one, of botocore: they are expired
            self.unsigned = " ".join(str(error).split())
            raise Unsigned(self.unsigned) from None
