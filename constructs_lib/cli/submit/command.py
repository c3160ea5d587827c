"""The command: options, threads, the file of results, the summary."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Final, TextIO
from urllib.parse import urlsplit

from constructs_lib.cli.shared.aws import add_aws_options, session_of
from constructs_lib.cli.shared.errors import CommandError
from constructs_lib.cli.shared.output import say
from constructs_lib.cli.shared.progress import Progress
from constructs_lib.cli.submit.lines import Line, read_lines
from constructs_lib.cli.submit.outcomes import ACCEPTED, Outcome
from constructs_lib.cli.submit.sending import Patience, Post, Result, SignedPost, deliver

_UNCLEAR_SECONDS: Final = 60.0
_MOST_AT_ONCE: Final = 64
_ATTENTION: Final = 3
_LONGEST_WAIT: Final = 86_400


def add_parser(commands: Any) -> None:
    """Add ``submit`` to the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "submit",
        help="send a file of requests, each under its own key",
        description="Sends each line of a JSON Lines file to an operation, under the key that the line has. To send "
        "the file again, or a part of it, repeats no effect. Each line's outcome: "
        + ", ".join(Outcome)
        + ". Exit status: 0 every line is new, replayed or in progress; 3 others are not; 1 nothing was sent.",
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
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if not 1 <= options.at_once <= _MOST_AT_ONCE:
        raise CommandError(f"--at-once must be 1 to {_MOST_AT_ONCE}, got {options.at_once}; 8 is a usual one")
    if not 0 <= options.wait <= _LONGEST_WAIT:
        raise CommandError(f"--wait must be 0 to {_LONGEST_WAIT} seconds, got {options.wait:g}; 0 does not wait")
    url = _url_of(options)
    headers = _headers(options.header)
    lines = read_lines(options.file, options.key)
    authorized = any(name.lower() == "authorization" for name in headers)
    session = None if authorized else session_of(options)
    if session is not None and session.get_credentials() is None:
        raise CommandError("requests cannot be signed: no credentials; name a profile, or configure the AWS SDK")
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
            counts = submit(lines, SignedPost(session, url, headers), patience, file, at_once=options.at_once)
        except OSError as error:
            say(f"{results} could not be written to its end: {error}; submit the file again\n")
            return _ATTENTION
    for outcome in Outcome:
        if counts[outcome]:
            say(f"{counts[outcome]:>9,} {outcome}\n")
    say(f"{len(lines):>9,} lines; results: {results}\n")
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
    progress = Progress(len(lines))

    def one(line: Line) -> Result:
        return deliver(line, post, patience)

    pool = ThreadPoolExecutor(at_once)
    try:
        for sent in as_completed([pool.submit(one, line) for line in lines]):
            result = sent.result()
            counts[result.outcome] += 1
            results.write(json.dumps(result.to_json(), ensure_ascii=False) + "\n")
            results.flush()
            progress.advance(", ".join(f"{number:,} {outcome}" for outcome, number in sorted(counts.items())))
    finally:
        pool.shutdown(cancel_futures=True)
        progress.end()
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
