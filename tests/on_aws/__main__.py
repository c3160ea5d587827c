"""``make verify-aws``: asks, makes a few resources, checks claims, deletes everything, and writes the page."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from .claims import BY_HAND, PROBES, Found
from .resources import Account, Made, Place, alone

ROOT: Final = Path(__file__).parents[2]
JOURNAL: Final = ROOT / "build" / "verify-aws-resources.jsonl"
PAGE: Final = ROOT / "docs" / "verified-on-aws.md"
COST: Final = (
    "About 60 state transitions, 30 queue requests, 4 writes, 60 requests for metrics: below 0.01 USD at list prices "
    "of us-east-1 (per million: 25 USD for transitions, 0.40 USD for queue requests, 0.625 USD for writes, 10 USD for "
    "metrics). 7 to 17 minutes."
)
PREFIX: Final = "cdk-sagas-verify"


def main() -> int:
    """Verify; the exit status is 1 if a claim is contradicted, a probe failed, or something is left."""
    parser = argparse.ArgumentParser(prog="make verify-aws", description=__doc__)
    parser.add_argument("--account", help="the account's id: confirms without a question")
    parser.add_argument("--destroy", action="store_true", help="only delete what an earlier run left")
    options = parser.parse_args()
    with alone(JOURNAL) as free:
        if not free:
            sys.stderr.write("error: one verification must run at a time, got a second; wait until the first ends\n")
            return 1
        # botocore reads AWS_DEFAULT_REGION only; the AWS CLI and every other SDK read AWS_REGION.
        return run(boto3.Session(region_name=os.environ.get("AWS_REGION") or None), JOURNAL, PAGE, options)


def run(session: Any, journal: Path, report: Path, options: argparse.Namespace) -> int:
    """Verify with a session; see ``main``.

    Args:
        session: of boto3.
        journal: the file of resources, which no other process uses.
        report: the page's file.
        options: ``account`` and ``destroy``.
    """
    region = session.region_name
    if region is None:
        sys.stderr.write("error: an AWS region must be configured, got none; set AWS_REGION, or AWS_PROFILE\n")
        return 1
    try:
        caller = session.client("sts").get_caller_identity()
    except (BotoCoreError, ClientError) as error:
        sys.stderr.write(f"error: credentials must be those of an AWS account, got {error}; configure a profile\n")
        return 1
    place = Place(account=caller["Account"], region=region, partition=caller["Arn"].split(":")[1])
    account = Account(session.client, place, journal, session=session, prefix=f"{PREFIX}-{uuid.uuid4().hex[:8]}")
    if account.left():
        sys.stderr.write(f"an earlier run left {', '.join(map(_named, account.left()))}\n")
    if not confirmed(options.account, place.account, region, input):
        return 1
    if account.destroy() or options.destroy:
        return _left(account)
    try:
        found, failed = verified(account)
    except (BotoCoreError, ClientError) as error:
        sys.stderr.write(f"error: queue, table and role must be made first, got {error}; allow it, and run again\n")
        _left(account)
        return 1
    report.write_text(page(found, region=region, commit=_commit()), encoding="utf-8")
    contradicted = [one for one in found if one.holds is False]
    sys.stdout.write(f"{len(found)} claims, {len(contradicted)} contradicted; {report.name} has all\n")
    return max(_left(account), int(bool(contradicted or failed)))


def confirmed(given: str | None, number: str, region: str, ask: Callable[[str], str]) -> bool:
    """Show what will happen, and what it costs; whether the account's id was given."""
    sys.stdout.write(
        f"Account {number}, region {region}. Makes a queue, a table, a rule, roles, stacks, state machines\n"
    )
    sys.stdout.write(f"named {PREFIX}-…, and deletes them at the end. {COST}\n")
    answer = given if given is not None else ask("Type the account's id to go: ")
    if answer.strip() != number:
        sys.stderr.write("error: the account's id must be typed; nothing was made\n")
        return False
    return True


def verified(account: Account) -> tuple[list[Found], list[str]]:
    """Run every probe, and delete everything, whatever happens; the findings, and probes that failed."""
    found: list[Found] = []
    failed: list[str] = []
    try:
        account.prepare()
        for name, probe in PROBES.items():
            sys.stdout.write(f"{name} …\n")
            try:
                for one in probe(account):
                    found.append(one)  # noqa: PERF402 - what was found before an error counts
            except Exception as error:  # noqa: BLE001 - it is the probe's outcome; other probes run
                failed.append(name)
                found.append(Found(claim=f"{name}: every probe runs to its end", observed=repr(error), holds=False))
    finally:
        account.destroy()
    return found, failed


def _left(account: Account) -> int:
    for made in account.left():
        sys.stderr.write(f"error: {_named(made)} is left; run `make verify-aws DESTROY=1` there, or delete it\n")
    return int(bool(account.left()))


def _named(made: Made) -> str:
    return f"{made.kind} {made.name} in account {made.account}, region {made.region}"


def page(found: list[Found], *, region: str, commit: str) -> str:
    """The page about a run."""
    rows = "".join(f"| {one.claim} | {one.observed.replace('|', ' ')} | {one.verdict} |\n" for one in found)
    by_hand = "".join(f"- {claim}\n" for claim in BY_HAND)
    return (
        "# Verified on AWS\n\n"
        f"`make verify-aws` on {datetime.now(UTC):%Y-%m-%d}, region {region}, commit `{commit}`.\n\n"
        "| claim | observed | verdict |\n|---|---|---|\n"
        f"{rows}\n## Not automated\n\nThese need a deployed stack:\n\n{by_hand}"
    )


def _commit() -> str:
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
