"""``make verify-aws``: asks, makes a few resources, checks claims, deletes everything, and writes the page."""

from __future__ import annotations

import argparse
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
from .resources import Account

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / "build"
PAGE: Final = ROOT / "docs" / "verified-on-aws.md"
COST: Final = (
    "About 40 state transitions, 20 queue requests, 2 writes: below 0.01 USD at list prices of us-east-1 "
    "(25 USD per million transitions, 0.40 USD per million queue requests, 0.625 USD per million writes). 5 minutes."
)
PREFIX: Final = "cdk-sagas-verify"


def main() -> int:
    """Verify; the exit status is 1 if a claim is contradicted, a probe failed, or something is left."""
    parser = argparse.ArgumentParser(prog="make verify-aws", description=__doc__)
    parser.add_argument("--account", help="the account's id: confirms without a question")
    parser.add_argument("--destroy", action="store_true", help="only delete what an earlier run left")
    options = parser.parse_args()
    session: Any = boto3.Session()
    try:
        number = session.client("sts").get_caller_identity()["Account"]
    except (BotoCoreError, ClientError) as error:
        sys.stderr.write(f"error: credentials must be those of an AWS account, got {error}; configure a profile\n")
        return 1
    # A journal for each account and region: in another one its resources would be missing, and forgotten.
    journal = BUILD / f"verify-aws-{number}-{session.region_name}.jsonl"
    account = Account(session.client, journal, prefix=f"{PREFIX}-{uuid.uuid4().hex[:8]}")
    if account.left():
        sys.stderr.write(f"an earlier run left {', '.join(f'{one.kind} {one.name}' for one in account.left())}\n")
    if not confirmed(options.account, number, session.region_name, input):
        return 1
    if account.destroy() or options.destroy:
        return _left(account)
    found, failed = verified(account)
    PAGE.write_text(page(found, region=session.region_name, commit=_commit()), encoding="utf-8")
    contradicted = [one for one in found if one.holds is False]
    sys.stdout.write(f"{len(found)} claims, {len(contradicted)} contradicted; {PAGE.relative_to(ROOT)} has all\n")
    return max(_left(account), int(bool(contradicted or failed)))


def confirmed(given: str | None, number: str, region: str | None, ask: Callable[[str], str]) -> bool:
    """Show what will happen, and what it costs; whether the account's id was given."""
    sys.stdout.write(f"Account {number}, region {region}. Makes a queue, a table, a role and state machines named\n")
    sys.stdout.write(f"{PREFIX}-…, and deletes them at the end. {COST}\n")
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
                found += probe(account)
            except (BotoCoreError, ClientError, ValueError, KeyError) as error:
                failed.append(name)
                found.append(Found(claim=f"{name}: every probe runs to its end", observed=repr(error), holds=False))
    finally:
        account.destroy()
    return found, failed


def _left(account: Account) -> int:
    for made in account.left():
        sys.stderr.write(f"error: {made.kind} {made.name} is left; run `make verify-aws DESTROY=1`, or delete it\n")
    return int(bool(account.left()))


def page(found: list[Found], *, region: str | None, commit: str) -> str:
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
