"""``cdk-sagas callbacks``: pending, late and dead-lettered jobs, and actions on them."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.cli.shared.aws import (
    NO_RIGHTS,
    add_aws_options,
    add_stack_option,
    environment,
    one_line_errors,
    options_again,
    session_of,
)
from constructs_lib.cli.shared.errors import CommandError
from constructs_lib.cli.shared.output import say

if TYPE_CHECKING:
    import boto3

    from constructs_lib.cli.callbacks.dead_letters import DeadLetters, DeadMessage, Held
    from constructs_lib.cli.callbacks.rows import JobView, TokenRows
    from constructs_lib.cli.callbacks.text import Listing
    from saga_runtime.callbacks import Receipt

_NO_TABLE: Final = frozenset({"ResourceNotFoundException", "ValidationException"})
"""No such table; or one that has not the keys, or the index, of a token table."""
_NO_QUEUE: Final = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})


def add_parser(commands: Any) -> None:
    """Add ``callbacks`` to the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "callbacks",
        help="list jobs that sagas wait for and dead ones, and have them tried again",
        description="Lists the jobs of a token table that need attention: pending ones, with their age; late, "
        "contradicted, unknown and undelivered outcomes. With --dead-letters also jobs whose request failed or was "
        "never answered; the messages stay in the queue. Never shows task tokens. Listing changes nothing. "
        "Exit status: 0 listed, or the requested change is made; 1 AWS refused a call, or the change could not be "
        "made.",
    )
    add_stack_option(parser)
    parser.add_argument(
        "--integration",
        metavar="PATH",
        help="path of the CallbackIntegration, or the end of it; needed if the stack has several",
    )
    parser.add_argument("--dead-letters", action="store_true", help="also the jobs in its dead-letter queue")
    parser.add_argument("--saga", metavar="SAGA", help="only what is of this saga")
    parser.add_argument("--all", action="store_true", help="also what is settled, early, or was never answered")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead, with everything in it")
    parser.add_argument("--redrive", action="store_true", help="put dead jobs back into the queue")
    parser.add_argument("--delete-unanswered", action="store_true", help="delete entries of unanswered jobs")
    parser.add_argument("--redeliver", metavar="JOB", help="deliver the outcome of a settling job, now")
    add_aws_options(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    _check(options)
    session = session_of(options)
    with _errors(options):
        _find_integration(options, session)
        if options.redeliver is not None:
            from saga_runtime.protocol import Env

            # The runtime's own log is for CloudWatch; the command prints the same itself.
            with environment({"POWERTOOLS_LOG_LEVEL": "CRITICAL", Env.TOKEN_TABLE: options.tokens}):
                return _send_again(options, session)
        if options.redrive or options.delete_unanswered:
            return _go_through(options, session)
        return _list(options, session)


def _check(options: argparse.Namespace) -> None:
    from saga_runtime.idempotency.identity import is_saga_id

    if options.saga is not None and not is_saga_id(options.saga):
        raise CommandError(f"not a saga id: {options.saga!r}; give it as the API answered it")
    if options.redeliver is not None and (options.redrive or options.delete_unanswered):
        raise CommandError("--redeliver is about one job of the table; leave --redrive and --delete-unanswered out")


def _find_integration(options: argparse.Namespace, session: boto3.Session) -> None:
    """Add the integration's token table and its queues to the options."""
    from constructs_lib.cli.shared.manifest import read_manifest

    manifest = read_manifest(session.client("cloudformation"), options.stack)
    path = options.integration
    found = [one for one in manifest.integrations if path is None or f"/{one.path}".endswith(f"/{path.strip('/')}")]
    if len(found) != 1:
        names = ", ".join(one.path for one in found) or "none"
        raise CommandError(
            f"{manifest.said} must have one CallbackIntegration{f' {path}' if path is not None else ''}, got {names}; "
            "choose one with --integration, or name its stack"
        )
    (integration,) = found
    options.tokens, options.queue, options.dead = integration.tokens, integration.queue, integration.dead_letters


@contextmanager
def _errors(options: argparse.Namespace) -> Iterator[None]:
    """Turn AWS's refusals of a wrong name or a missing permission into one line, with the remedy."""
    from botocore.exceptions import ClientError

    with one_line_errors("callbacks could not be read"):
        try:
            yield
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            if code in _NO_TABLE:
                raise CommandError(
                    f"table {options.tokens} must be a token table, got none; deploy its stack"
                ) from None
            if code in _NO_QUEUE:
                raise CommandError(f"queue {options.dead} must exist, got none; deploy its stack") from None
            if code in NO_RIGHTS:
                raise CommandError(
                    f"not allowed: {_operation(error)}; CallbackIntegration.grant_operate grants what this command "
                    "needs"
                ) from None
            raise


def _operation(error: Any) -> str:
    return str(error.operation_name)


def _list(options: argparse.Namespace, session: boto3.Session) -> int:
    from constructs_lib.cli.callbacks.text import text_of
    from constructs_lib.saga.graph.timeline import can_draw

    listing = _listing(options, session)
    if options.json:
        say(json.dumps(_document(listing), indent=2) + "\n")
        return 0
    width = shutil.get_terminal_size((100, 40)).columns
    say(text_of(listing, width=width, unicode=can_draw(sys.stdout.encoding)))
    return 0


def _listing(options: argparse.Namespace, session: boto3.Session) -> Listing:
    from constructs_lib.cli.callbacks.rows import Kind, TokenRows
    from constructs_lib.cli.callbacks.text import Listing

    tokens = TokenRows(dynamodb=session.client("dynamodb"), table=options.tokens)
    found = tokens.all() if options.all else tokens.open()
    rows = [row for row in found if options.saga in (None, row.saga_id)]
    busy, complete, dead = 0, True, None
    if options.dead_letters:
        letters = _dead_letters(options, session)
        with _let_go(letters):
            messages = [held.shown for held in letters.messages()]
        busy, complete = letters.busy, letters.complete
        dead = sorted((one for one in messages if options.saga in (None, one.saga_id)), key=lambda one: one.sent_at)
    return Listing(
        table=options.tokens,
        now_ms=_now_ms(),
        rows=rows,
        dead=dead,
        reasons=_reasons(tokens, dead or []),
        busy=busy,
        complete=complete,
        commands={row.job_id: _recover(options, row) for row in rows if row.kind is Kind.LATE},
    )


def _reasons(tokens: TokenRows, dead: list[DeadMessage]) -> dict[str, str]:
    """Errors of failed dispatches, from the jobs' rows."""
    rows = tokens.of([message.job_id for message in dead if message.job_id])
    return {row.job_id: row.dispatch_error for row in rows if row.dispatch_error}


def _recover(options: argparse.Namespace, row: JobView) -> str:
    """Command that compensates a late effect."""
    return shlex.join(["cdk-sagas", "recover", row.saga_id or "SAGA", *options_again(options)])


def _document(listing: Listing) -> dict[str, Any]:
    """Everything that was found. It holds no token: none was read."""
    now_ms = listing.now_ms
    rows = [
        dataclasses.asdict(row)
        | {"age_ms": max(now_ms - row.since, 0), "overdue": row.is_overdue(now_ms)}
        | ({"command": listing.commands[row.job_id]} if row.job_id in listing.commands else {})
        for row in listing.rows
    ]
    document: dict[str, Any] = {"table": listing.table, "now": now_ms, "rows": rows}
    if listing.dead is not None:
        dead = [
            dataclasses.asdict(message)
            | {"about": dict(message.about), "reason": listing.reasons.get(message.job_id, "")}
            | {"age_ms": max(now_ms - message.sent_at, 0)}
            for message in listing.dead
        ]
        document |= {"dead": dead, "read_by_others": listing.busy, "complete": listing.complete}
    return document


def _go_through(options: argparse.Namespace, session: boto3.Session) -> int:
    """Put dead jobs back, and delete entries, as the options ask."""
    letters, done = _dead_letters(options, session), Counter[str]()
    if options.redrive:
        letters.check_source(options.queue)
    try:
        with _let_go(letters):
            for held in letters.messages():
                done[_go_on_with(options, letters, held)] += 1
                if sum(done.values()) % 100 == 0:
                    sys.stderr.write(f"{done['moved']} put back, {done['deleted']} deleted so far\n")
    finally:
        said = [f"{done['moved']} put back", f"{done['deleted']} deleted", f"{done['left']} left"]
        sys.stdout.write(", ".join(said) + "\n")
    if letters.busy or not letters.complete:
        others = f"{letters.busy} were being read by another process" if letters.busy else "there are more"
        sys.stdout.write(f"{others}: repeat this in two minutes\n")
    return 0


def _go_on_with(options: argparse.Namespace, letters: DeadLetters, held: Held) -> str:
    from constructs_lib.cli.callbacks.dead_letters import DeadKind

    if options.saga not in (None, held.shown.saga_id):
        return "left"
    if held.shown.kind is DeadKind.JOB and options.redrive:
        letters.move(held, options.queue)
        return "moved"
    if held.shown.kind is DeadKind.UNANSWERED and options.delete_unanswered:
        letters.delete(held)
        return "deleted"
    return "left"


def _send_again(options: argparse.Namespace, session: boto3.Session) -> int:
    """Deliver a job's outcome, as the sweeper does."""
    from saga_runtime.shared import aws

    with aws.clients_of(session):
        receipt = _delivered(options.redeliver, options.tokens)
    told = {"DELIVERED": "delivered", "UNDELIVERED": "no task waited any more"}
    delivered = told[receipt] if receipt is not None else "delivered by another process"
    sys.stdout.write(f"job {options.redeliver}: {delivered}\n")
    return 0


def _delivered(job: str, tokens: str) -> Receipt | None:
    from saga_runtime.callbacks.store import read_token
    from saga_runtime.callbacks.task_tokens import settle_row
    from saga_runtime.errors import SagaError
    from saga_runtime.protocol import TokenStatus

    try:
        row = read_token(job)
    except ValueError as error:
        raise CommandError(f"table {tokens}: {error}") from None
    if row is None:
        raise CommandError(f"table {tokens} has no job {job}; give its id as this command lists it")
    if row.status is not TokenStatus.DELIVERING:
        raise CommandError(f"job {job} is {row.status}: only DELIVERING outcomes are undelivered")
    try:
        return settle_row(row)
    except SagaError as error:
        raise CommandError(f"the outcome of job {job} was not delivered: {error.message}; repeat this") from None


def _dead_letters(options: argparse.Namespace, session: boto3.Session) -> DeadLetters:
    from constructs_lib.cli.callbacks.dead_letters import DeadLetters

    return DeadLetters(sqs=session.client("sqs"), url=options.dead)


@contextmanager
def _let_go(letters: DeadLetters) -> Iterator[None]:
    """Release messages that were only read, whatever happens."""
    try:
        yield
    finally:
        letters.let_go()


def _now_ms() -> int:
    from saga_runtime.shared import clock

    return clock.now_ms()
