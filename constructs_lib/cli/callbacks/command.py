"""``cdk-sagas callbacks``: pending, late and dead-lettered jobs, and actions on them: the command and its text."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import boto3
from botocore.exceptions import ClientError

from constructs_lib.cli.callbacks.dead_letters import DeadKind, DeadLetters, DeadMessage, Held
from constructs_lib.cli.callbacks.forget import forget, read_row, rows_named
from constructs_lib.cli.callbacks.rows import JobView, Kind, TokenRows, job_parts
from constructs_lib.cli.shared.aws import (
    NO_RIGHTS,
    add_stack_options,
    one_line_errors,
    options_again,
    session_of,
)
from constructs_lib.cli.shared.manifest import read_manifest
from constructs_lib.cli.shared.process import QUIET, CommandError, environment, is_named, moment, say
from constructs_lib.cli.shared.saga import PLACEHOLDER, audit_of, keep_decision, require_reason_with, to_copy
from constructs_lib.cli.shared.terminal import Line, Screen, safe, whole_seconds
from saga_runtime.callbacks.decisions import CONTRADICTED, acknowledgement, conflict_id_of
from saga_runtime.callbacks.rows import TokenRow
from saga_runtime.callbacks.store import read_token
from saga_runtime.callbacks.task_tokens import settle_row
from saga_runtime.errors import SagaError
from saga_runtime.idempotency.identity import is_saga_id
from saga_runtime.protocol import NOTICE_PREFIX, Env, TokenStatus, UnansweredField
from saga_runtime.recovery.operators_queue import ConflictEntry, acknowledged_in
from saga_runtime.shared import aws, clock
from saga_runtime.shared.decisions import Audit

_NO_TABLE: Final = frozenset({"ResourceNotFoundException", "ValidationException"})
"""No such table; or one that has not the keys, or the index, of a token table."""
_CONFLICT_ID: Final = re.compile(r"^[0-9a-f]{16}$")
_NO_QUEUE: Final = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``callbacks``, and add its options."""
    parser.description = (
        "Lists the jobs of a token table that need attention: pending ones, with their age; late, "
        "contradicted, unknown and undelivered outcomes. With --dead-letters also jobs whose request failed or was "
        "never answered; the messages stay in the queue. Never shows task tokens. Listing changes nothing. "
        "Exit status: 0 listed, or the requested change is made; 1 AWS refused a call, or the change could not be "
        "made."
    )
    add_stack_options(parser)
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
    parser.add_argument(
        "--acknowledge",
        nargs=2,
        metavar=("JOB", "OUTCOME"),
        help="state that this conflicting outcome is handled: its entry is deleted from the operators' queue",
    )
    parser.add_argument(
        "--forget",
        nargs="+",
        metavar=("ID", "OUTCOME"),
        help="state that the outcome of an unknown job is handled: it is not listed any more",
    )
    parser.add_argument(
        "--reason", help="with a change, and needed: why; kept with each saga, and shown by cdk-sagas inspect"
    )


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    acts = _check(options)
    session = session_of(options)
    with _errors(options), aws.clients_of(session):
        audit = audit_of(session, options.reason) if acts else None
        _find_integration(options, session)
        if audit is None:
            return _list(options, session)
        with environment({**QUIET, Env.TOKEN_TABLE: options.tokens}):
            if options.acknowledge is not None:
                return _acknowledge(options, audit)
            if options.forget is not None:
                return _forget(options, session, audit)
            if options.redeliver is not None:
                return _send_again(options, audit)
            return _go_through(options, session, audit)


def _check(options: argparse.Namespace) -> bool:
    """Test whether something is to be changed."""
    if options.saga is not None and not is_saga_id(options.saga):
        raise CommandError(f"not a saga id: {options.saga!r}; give it as the API answered it")
    if options.redeliver is not None and (options.redrive or options.delete_unanswered):
        raise CommandError("--redeliver is about one job of the table; leave --redrive and --delete-unanswered out")
    acts = bool(options.redeliver is not None or options.redrive or options.delete_unanswered)
    if options.acknowledge is not None:
        job, outcome = options.acknowledge
        if acts:
            raise CommandError("--acknowledge is about one outcome of a job; leave the other changes out")
        if not job_parts(job)[0]:
            raise CommandError(f"JOB must be the id of a saga's job, got {job!r}; give it as the entry states it")
        if not _CONFLICT_ID.fullmatch(outcome):
            raise CommandError(
                f"OUTCOME must be 16 hexadecimal digits, got {outcome!r}; give it as its entry states it"
            )
        acts = True
    if options.forget is not None:
        if acts:
            raise CommandError("--forget is about one unknown job; leave the other changes out")
        _check_forget(*options.forget)
        acts = True
    require_reason_with("a change", options.reason, changes=acts)
    return acts


def _check_forget(job: str, outcome: str | None = None, *more: str) -> None:
    if more:
        raise CommandError(f"--forget must have ID and OUTCOME, got {len(more) + 2} words; repeat it for each job")
    if not job:
        raise CommandError("ID must be the id of an unknown job, got ''; give it as this command lists it")
    if outcome is not None and not _CONFLICT_ID.fullmatch(outcome):
        raise CommandError(f"OUTCOME must be 16 hexadecimal digits, got {outcome!r}; give it as this command lists it")


def _find_integration(options: argparse.Namespace, session: boto3.Session) -> None:
    """Add the integration's token table and its queues to the options."""
    manifest = read_manifest(session.client("cloudformation"), options.stack)
    path = options.integration
    found = [one for one in manifest.integrations if path is None or is_named(one.path, path)]
    about_a_queue = options.dead_letters or options.redrive or options.delete_unanswered
    if not found or len({one.tokens if not about_a_queue else one.path for one in found}) > 1:
        names = ", ".join(one.path for one in found) or "none"
        raise CommandError(
            f"{manifest.said} must have one CallbackIntegration{f' {path}' if path is not None else ''}, got {names}; "
            "choose one with --integration, or name its stack"
        )
    integration = found[0]
    options.tokens, options.queue, options.dead = integration.tokens, integration.queue, integration.dead_letters
    options.paths = [one.path for one in manifest.integrations if one.tokens == integration.tokens]
    options.path = integration.path if path is not None else None
    options.requests = manifest.requests


@contextmanager
def _errors(options: argparse.Namespace) -> Iterator[None]:
    """Turn AWS's refusals of a wrong name or a missing permission into one line, with the remedy."""
    with one_line_errors("callbacks could not be read"):
        try:
            yield
        except ClientError as error:
            code = aws.error_code(error)
            if code in _NO_TABLE:
                raise CommandError(
                    f"table {options.tokens} must be a token table, got none; deploy its stack"
                ) from None
            if code in _NO_QUEUE:
                raise CommandError(f"queue {options.dead} must exist, got none; deploy its stack") from None
            if code in NO_RIGHTS:
                raise CommandError(
                    f"not allowed: {error.operation_name}; CallbackIntegration.grant_operate grants what this command "
                    "needs"
                ) from None
            raise


def _list(options: argparse.Namespace, session: boto3.Session) -> int:
    unreadable: dict[str, ValueError] = {}
    listing = _listing(options, session, unreadable)
    if options.json:
        say(json.dumps(_document(listing), indent=2) + "\n")
    else:
        say(text_of(listing, Screen.of(sys.stdout)))
    for row_id, error in unreadable.items():
        sys.stderr.write(f"{safe(f'row {row_id} is missing: it cannot be read: {error}')}; see cdk-sagas doctor\n")
    return 1 if unreadable else 0


def _listing(options: argparse.Namespace, session: boto3.Session, unreadable: dict[str, ValueError]) -> Listing:
    tokens = TokenRows(dynamodb=session.client("dynamodb"), table=options.tokens, unreadable=unreadable.__setitem__)
    found = tokens.all() if options.all else tokens.open()
    if unreadable and not found:
        raise CommandError(
            f"table {options.tokens} has an item that is not a row of a token table: {min(unreadable)}: "
            f"{unreadable[min(unreadable)]}; see cdk-sagas doctor"
        )
    rows = _decided(options, [row for row in found if options.saga in (None, row.saga_id)])
    busy, complete, dead = 0, True, None
    if options.dead_letters:
        letters = DeadLetters(sqs=session.client("sqs"), url=options.dead)
        with _let_go(letters):
            messages = [held.shown for held in letters.messages()]
        busy, complete = letters.busy, letters.complete
        dead = sorted((one for one in messages if options.saga in (None, one.saga_id)), key=lambda one: one.sent_at)
    return Listing(
        table=options.tokens,
        now_ms=clock.now_ms(),
        rows=rows,
        dead=dead,
        reasons=_reasons(tokens, dead or []),
        busy=busy,
        complete=complete,
        commands={row.job_id: command for row in rows if (command := _command(options, row))},
    )


def _decided(options: argparse.Namespace, rows: Iterable[JobView]) -> list[JobView]:
    """Rows; acknowledged conflicts are not open, so they are last, and left out without ``--all``."""
    open_ones, closed = list[JobView](), list[JobView]()
    for row in rows:
        entry = ConflictEntry(job_id=row.job_id, conflict_id=row.conflict_id)
        tables = [row.request_table] if row.request_table else options.requests
        if row.kind is Kind.CONFLICT and row.conflict_id and acknowledged_in(tables, entry):
            closed.append(dataclasses.replace(row, kind=Kind.ACKNOWLEDGED))
        else:
            open_ones.append(row)
    return [*open_ones, *closed] if options.all else open_ones


def _reasons(tokens: TokenRows, dead: list[DeadMessage]) -> dict[str, str]:
    """Errors of failed dispatches, from the jobs' rows."""
    rows = tokens.of([message.job_id for message in dead if message.job_id])
    return {row.job_id: row.dispatch_error for row in rows if row.dispatch_error}


def _command(options: argparse.Namespace, row: JobView) -> str:
    """Command that compensates a late effect, acknowledges a conflict, or forgets an unknown job; empty: none."""
    if row.kind is Kind.LATE:
        return to_copy(["recover", row.saga_id or "SAGA"], options_again(options))
    if row.kind is Kind.CONFLICT and row.conflict_id:
        about = ["--acknowledge", row.job_id, row.conflict_id]
    elif row.reported_id and row.kind is not Kind.FORGOTTEN:
        about = ["--forget", row.job_id, row.reported_id]
    else:
        return ""
    words = ["callbacks", *about, "--reason", PLACEHOLDER]
    return to_copy(words, options_again(options, "stack", "integration", "profile", "region"))


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


def _go_through(options: argparse.Namespace, session: boto3.Session, audit: Audit) -> int:
    """Put dead jobs back, and delete entries, as the options ask."""
    letters, done = DeadLetters(sqs=session.client("sqs"), url=options.dead), Counter[str]()
    if options.redrive:
        letters.check_source(options.queue)
    try:
        with _let_go(letters):
            for held in letters.messages():
                done[_go_on_with(options, letters, held, audit)] += 1
                if sum(done.values()) % 100 == 0:
                    sys.stderr.write(f"{done['moved']} put back, {done['deleted']} deleted so far\n")
    finally:
        said = [f"{done['moved']} put back", f"{done['deleted']} deleted", f"{done['left'] + done['refused']} left"]
        sys.stdout.write(", ".join(said) + "\n")
    if letters.busy or not letters.complete:
        others = f"{letters.busy} were being read by another process" if letters.busy else "there are more"
        sys.stdout.write(f"{others}: repeat this in two minutes\n")
    return 1 if done["refused"] else 0


def _go_on_with(options: argparse.Namespace, letters: DeadLetters, held: Held, audit: Audit) -> str:
    shown = held.shown
    moves = shown.kind is DeadKind.JOB and options.redrive
    deletes = shown.kind is DeadKind.UNANSWERED and options.delete_unanswered
    if options.saga not in (None, shown.saga_id) or not (moves or deletes):
        return "left"
    try:
        what = "put back" if moves else "deleted as unanswered"
        _keep(options, audit, what, shown.job_id, str(shown.about.get(UnansweredField.REQUEST_TABLE, "")))
    except CommandError as refusal:
        sys.stderr.write(f"{safe(f'job {shown.job_id} is left: {refusal}')}\n")
        return "refused"
    if moves:
        letters.move(held, options.queue)
        return "moved"
    letters.delete(held)
    return "deleted"


def _acknowledge(options: argparse.Namespace, audit: Audit) -> int:
    """Keep the decision that an operator has handled a conflicting outcome.

    The operator names the outcome, so another one that is reported meanwhile is not acknowledged unseen.
    """
    job, outcome = options.acknowledge
    row = _token_of(job, options.tokens)
    if row.conflict is None:
        raise CommandError(f"job {job} must have a conflicting outcome, got none; give its id as the entry states it")
    tables = [row.request_table] if row.request_table else options.requests
    stored = conflict_id_of(job, row.conflict)
    if not acknowledged_in(tables, ConflictEntry(job_id=job, conflict_id=outcome)):
        if outcome != stored and read_token(f"{NOTICE_PREFIX}{job}#{CONTRADICTED}#{outcome}") is None:
            raise CommandError(
                f"OUTCOME must be one that contradicts job {job}, got {outcome}; give it as its entry states it, or "
                f"the stored one, {stored}"
            )
        what = acknowledgement(job, outcome)
        if not keep_decision(audit, what, job, tables, clock.now_ms()):
            raise CommandError(
                f"the record of job {job} must exist, got none: nothing can keep the decision; delete the entry by hand"
            )
    more = "" if outcome == stored else f"; the stored one is {stored}"
    sys.stdout.write(f"job {job}: conflicting outcome {outcome} acknowledged{more}\n")
    return 0


def _forget(options: argparse.Namespace, session: boto3.Session, audit: Audit) -> int:
    """Close what was reported of an unknown job; its row stays."""
    job, *reported = options.forget
    listed = TokenRows(dynamodb=session.client("dynamodb"), table=options.tokens).due()
    found = rows_named(job, listed, options.paths)
    said = forget(job, found, reported[0] if reported else None, audit, options.path)
    sys.stdout.write(f"{safe(said)}\n")
    return 0


def _keep(options: argparse.Namespace, audit: Audit, what: str, job: str, table: str) -> None:
    """Keep a decision with the saga's record: in the table that the job names, or in one of the stack."""
    keep_decision(audit, f"job {job}: {what}", job, [table] if table else options.requests, clock.now_ms())


def _send_again(options: argparse.Namespace, audit: Audit) -> int:
    """Deliver a job's outcome, as the sweeper does."""
    job = options.redeliver
    row = _token_of(job, options.tokens)
    if row.status is not TokenStatus.DELIVERING:
        raise CommandError(f"job {job} is {row.status}: only DELIVERING outcomes are undelivered")
    _keep(options, audit, "outcome delivered", job, row.request_table)
    try:
        receipt = settle_row(row)
    except SagaError as error:
        raise CommandError(f"the outcome of job {job} was not delivered: {error.message}; repeat this") from None
    told = {"DELIVERED": "delivered", "UNDELIVERED": "no task waited any more"}
    sys.stdout.write(f"job {job}: {told[receipt] if receipt is not None else 'delivered by another process'}\n")
    return 0


def _token_of(job: str, tokens: str) -> TokenRow:
    row = read_row(job)
    if row is None:
        raise CommandError(f"table {tokens} has no job {job}; give its id as this command lists it")
    return row


@contextmanager
def _let_go(letters: DeadLetters) -> Iterator[None]:
    """Release messages that were only read, whatever happens."""
    try:
        yield
    finally:
        letters.let_go()


_HEADINGS: Final = {
    Kind.LATE: "late: a late effect that is not compensated",
    Kind.CONFLICT: "conflict: the provider reported two outcomes; the first is kept; ask it",
    Kind.UNKNOWN: "unknown: outcome stored until a job with this id registers",
    Kind.DELIVERING: "settling: outcome recorded, not yet delivered",
    Kind.WAITING: "waiting",
    Kind.UNANSWERED: "unanswered: the wait ended without an outcome",
    Kind.EARLY: "early: outcome recorded before a task waited",
    Kind.SETTLED: "settled",
    Kind.ACKNOWLEDGED: "acknowledged: a conflict that an operator has handled; the first outcome is kept",
    Kind.FORGOTTEN: "forgotten: an unknown job's outcome that an operator has closed",
}
_DEAD_HEADINGS: Final = {
    DeadKind.JOB: "dead: dispatch failed; --redrive retries it",
    DeadKind.UNANSWERED: "never answered: the saga gave the job up; ask the provider, then --delete-unanswered",
    DeadKind.UNREADABLE: "unreadable: no message of a saga",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Rows and messages that were found.

    Attributes:
        rows: of the token table.
        dead: of the dead-letter queue; None: it was not read.
        reasons: errors of failed dispatches, by job.
        busy: how many dead messages another process was reading.
        complete: whether all other dead messages were read.
        commands: what to run about a job, by job.
    """

    table: str
    now_ms: int
    rows: Sequence[JobView]
    dead: Sequence[DeadMessage] | None
    reasons: dict[str, str]
    busy: int
    complete: bool
    commands: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    job: str
    facts: tuple[str, ...]
    below: tuple[str, ...]
    command: str = ""


def text_of(listing: Listing, screen: Screen) -> str:
    """The whole text."""
    parts: list[Iterable[Line]] = [[f"table {listing.table}, {moment(listing.now_ms)}"]]
    for kind, heading in _HEADINGS.items():
        found = [_row(listing, row) for row in listing.rows if row.kind is kind]
        if found:
            parts.append(_section(_counted(listing, kind, heading, len(found)), found, screen))
    for dead_kind, heading in _DEAD_HEADINGS.items():
        dead = [_dead(listing, message) for message in listing.dead or () if message.kind is dead_kind]
        if dead:
            parts.append(_section(f"{heading} ({len(dead)})", dead, screen))
    return screen.text(*parts, *(screen.paragraph(note) for note in _notes(listing)))


def _section(heading: str, lines: Sequence[_Line], screen: Screen) -> Iterator[Line]:
    """A heading, and a row for each job."""
    yield from screen.paragraph(heading, style="bold")
    for row, line in zip(screen.table([(line.job, *line.facts) for line in lines]), lines, strict=True):
        yield from row
        for sentence in line.below:
            yield from screen.paragraph(sentence, 4)
        if line.command:
            yield f"      {line.command}"


def _counted(listing: Listing, kind: Kind, heading: str, count: int) -> str:
    overdue = sum(row.is_overdue(listing.now_ms) for row in listing.rows if row.kind is kind)
    return f"{heading} ({count}{f', {overdue} overdue' if overdue else ''})"


def _notes(listing: Listing) -> Iterator[str]:
    if not listing.rows and not listing.dead:
        yield "nothing waits, and nothing is dead" if listing.dead is not None else "nothing waits"
    if listing.busy:
        yield (
            f"{listing.busy} dead messages were being read by another process, a redrive or a listing, and may be "
            "missing here; list again in two minutes"
        )
    if not listing.complete:
        yield "there are more dead messages than were read"


def _row(listing: Listing, row: JobView) -> _Line:
    facts = (moment(row.since), whole_seconds(listing.now_ms - row.since), _expected(listing.now_ms, row))
    return _Line(job=row.job_id, facts=facts, below=tuple(_below(row)), command=listing.commands.get(row.job_id, ""))


def _expected(now_ms: int, row: JobView) -> str:
    if row.kind is not Kind.WAITING or row.expected_at is None:
        return ""
    if row.is_overdue(now_ms):
        return f"OVERDUE by {whole_seconds(now_ms - row.expected_at)}"
    return f"in time for {whole_seconds(row.expected_at - now_ms)}"


def _below(row: JobView) -> Iterator[str]:
    if row.dispatches:
        yield _dispatches(row.dispatches, row.dispatch_error)
    if row.kind is Kind.WAITING and row.heartbeat_at is not None:
        yield f"last heartbeat {moment(row.heartbeat_at)}"
    if row.kind is Kind.UNANSWERED and row.reported_unanswered_at is not None:
        yield f"its dead-letter queue was notified {moment(row.reported_unanswered_at)}"
    if row.outcome:
        told = {True: ", delivered", False: ", and no task waited any more", None: ""}[row.told]
        yield f"{row.outcome}{told}{f' (event {row.event_id})' if row.event_id else ''}"
    if row.conflict:
        yield f"and then: {row.conflict}"
    if row.kind is Kind.FORGOTTEN and row.decisions:
        yield f"forgotten by {row.decisions[-1].who}: {row.decisions[-1].why}"


def _dispatches(count: int, error: str) -> str:
    times = "one delivery" if count == 1 else f"{count} deliveries"
    return f"{times} failed{f', the last one by {error}' if error else ''}"


def _dead(listing: Listing, message: DeadMessage) -> _Line:
    f = UnansweredField
    since, below = message.sent_at, []
    if message.kind is DeadKind.UNANSWERED:
        about = message.about
        since = int(about.get(f.WAITING_SINCE, 0)) or since
        states = [f"its row {about.get(f.LOG_STATUS) or 'gone'}", f"its saga {about.get(f.RECORD_STATUS) or 'gone'}"]
        taken = int(about.get(f.ACCEPTED_AT, 0))
        states.append(f"taken on by its provider {moment(taken)}" if taken else "never known to be taken on")
        below.append(", ".join(states))
        if failed := int(about.get(f.FAILED_DISPATCHES, 0)):
            below.append(_dispatches(failed, str(about.get(f.DISPATCH_ERROR, ""))))
    elif reason := listing.reasons.get(message.job_id):
        below.append(reason)
    facts = (moment(since), whole_seconds(listing.now_ms - since), _received(message.receives))
    return _Line(job=message.job_id or f"message {message.message_id}", facts=facts, below=tuple(below))


def _received(count: int) -> str:
    return "received once" if count == 1 else f"received {count} times"
