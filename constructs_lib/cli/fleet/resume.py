"""``cdk-sagas resume``: resume many parked sagas. Shows first, does what was shown, and continues where it stopped."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TextIO

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from constructs_lib.cli.doctor.system import read_switches
from constructs_lib.cli.shared.aws import NO_RIGHTS, add_stack_options, one_line_errors, options_again, session_of
from constructs_lib.cli.shared.manifest import Manifest, read_manifest
from constructs_lib.cli.shared.process import CommandError, moment, say
from constructs_lib.cli.shared.reads import Aws
from constructs_lib.cli.shared.saga import FOR_AN_OPERATOR as UNDECIDED
from constructs_lib.cli.shared.saga import Asker, audit_of, deployed, find_in, reason_of, require_saga_id
from constructs_lib.cli.shared.terminal import Screen, progress, safe
from saga_runtime.errors import Conflict
from saga_runtime.recovery.audit import MOST_BEFORE_LISTS
from saga_runtime.recovery.hold import Held
from saga_runtime.recovery.listed import HELD
from saga_runtime.recovery.lists import FOR_AN_OPERATOR, is_doubtful, outlook, stuck_at
from saga_runtime.recovery.resolution import CannotResolve
from saga_runtime.recovery.resolver import Resolver
from saga_runtime.recovery.takeover import Finding, MachineGone
from saga_runtime.shared.aws import error_code
from saga_runtime.shared.decisions import Audit

_RATE: Final = 5.0
"""Sagas a second: they start at the providers that were down, all at once."""
_FAILED: Final = "failed"
_UNKNOWN: Final = "unknown"
_LIST_ID: Final = re.compile(r"[0-9a-f]{32}")
_AGAIN: Final = frozenset({_FAILED, FOR_AN_OPERATOR})
"""Outcomes that are not final: the command, repeated, tries these sagas again."""
_FATAL: Final = frozenset({*NO_RIGHTS, "ExpiredToken", "ExpiredTokenException", "UnrecognizedClientException"})
"""Refusals that every further call would meet."""
_SWITCHES_READ_SECONDS: Final = 10.0
"""For how long a read of the reconcilers' switches is valid, as for a reconciler itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A saga to resume.

    Attributes:
        saga_id: the saga.
        parked: the execution that had parked it when the list was made; empty: it was not parked; None: not known.
    """

    saga_id: str
    parked: str | None = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``resume``, and add its options."""
    parser.description = (
        "Resumes the parked sagas of a list, as cdk-sagas list --lines prints it, or of one id a line. "
        "Without --yes it only shows what it would do. A saga that was parked again since it was listed is left "
        "alone; one whose record was restored or edited needs an operator, and none is resumed while a reconciler of "
        "the stack is held. Each outcome is written to FILE.results; repeated, the command continues, and tries again "
        "what failed. Where the stack requires a second operator, the list is proposed, and --proposal shows, confirms "
        "and resumes it. Exit status: 0 shown, proposed, or all are done; 1 some failed or need an operator, a "
        "reconciler is held, or AWS refused a call; 130 interrupted."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("file", metavar="FILE", nargs="?", type=Path, help="the list")
    what.add_argument("--proposal", metavar="ID", help="a list that another operator proposed")
    add_stack_options(parser)
    parser.add_argument("--yes", action="store_true", help="do it")
    parser.add_argument("--reason", help="with --yes: why; kept with each saga, and shown by cdk-sagas inspect")
    parser.add_argument("--results", metavar="FILE", type=Path, help="outcomes, one JSON object a line (FILE.results)")
    parser.add_argument("--rate", metavar="N", type=float, default=_RATE, help="at most so many sagas a second (5)")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    if options.yes != (options.reason is not None):
        options.misused("--yes and --reason go together: without them nothing is changed")
    if not 0 < options.rate <= 1_000:
        options.misused(f"--rate must be more than 0 and at most 1000, got {options.rate:g}")
    reason = reason_of(options.reason) if options.yes else ""
    listed = options.file if options.file is not None else Path(_require_list_id(options.proposal))
    results = options.results or listed.with_name(f"{listed.name}.results")
    if results.exists() and not results.is_file():
        raise CommandError(f"--results must be a file, got {results}; name one that does not exist")
    if options.file is not None and options.file.exists() and results.exists() and results.samefile(options.file):
        raise CommandError(f"--results must be another file than the list, got {results}")
    planned = list(_planned(options.file)) if options.file is not None else []
    done, cut_off = _done(results)
    session = session_of(options)
    with one_line_errors("not every saga was resumed; repeat this"):
        manifest = read_manifest(session.client("cloudformation"), options.stack)
        asker = Asker.of(session, manifest)
        shown: Mapping[str, Any] = {}
        if options.proposal is not None:
            shown = _ask_about_list(asker, manifest, do="show_list", list=options.proposal)
            planned = [Planned(saga_id=saga_id, parked=owner) for saga_id, owner, _ in shown["list"]]
        left = [one for one in planned if one not in done]
        before = len(planned) - len(left)
        if not options.yes:
            if options.proposal is not None:
                return _show_proposal(shown, left, before)
            _require_released(session, manifest)
            return _show(session, manifest, left, before)
        if options.proposal is not None:
            _ask_about_list(asker, manifest, do="confirm_list", list=options.proposal, reason=reason)
        elif asker is not None and any(one.second for one in manifest.operators):
            return _propose(options, asker, left, reason)
        else:
            asker = None
        audit = audit_of(session, reason)
        work = _Work(
            session=session, manifest=manifest, audit=audit, rate=options.rate, asker=asker, proposal=options.proposal
        )
        try:
            file = results.open("a", encoding="utf-8")
        except OSError as error:
            raise CommandError(
                f"--results must be a file that can be written, got {results}: {error.strerror}"
            ) from None
        with file:
            if cut_off:
                file.write("\n")
            counts = work.all_of(left, file)
    say(f"{_counted(counts)}; {before:,} before; outcomes in {results}\n")
    return 1 if any(counts[outcome] for outcome in _AGAIN) else 0


def _require_list_id(text: str) -> str:
    if not _LIST_ID.fullmatch(text):
        raise CommandError(f"--proposal must be the id of a list, 32 hexadecimal digits, got {text!r}")
    return text


def _ask_about_list(asker: Asker | None, manifest: Manifest, **request: Any) -> Mapping[str, Any]:
    """Ask the function that has a proposed list about it.

    Raises:
        CommandError: if none has it, or it refuses.
    """
    answer = asker.ask(**request) if asker is not None else None
    if answer is None:
        raise CommandError(
            f"{manifest.said} must have list {request['list']}, got none; check its id with its proposer"
        )
    listed: Mapping[str, Any] = answer["listed"]
    return listed


def _propose(options: argparse.Namespace, asker: Asker, planned: list[Planned], reason: str) -> int:
    """Propose to each function the sagas that it knows; what is not proposed is shown."""
    wanted = {one.saga_id: one.parked for one in planned}
    undone = False
    for each in asker.each():
        answer = each.ask(do="propose_list", sagas=list(wanted.items()), reason=reason) if wanted else None
        if answer is None:
            continue
        left = dict(answer["left"])
        undone = undone or FOR_AN_OPERATOR in left.values()
        wanted = {saga_id: wanted[saga_id] for saga_id, what in left.items() if what == _UNKNOWN}
        for saga_id, what in left.items():
            if what != _UNKNOWN:
                say(f"{saga_id}  {what}\n")
        if "listed" in answer:
            told, again = answer["listed"], shlex.join(options_again(options))
            say(
                f"proposed as {told['id']}: {told['sagas']:,} sagas; a second operator shows it, and confirms it with "
                f"--yes and --reason before {moment(told['expires_at'])}:\n"
                f"cdk-sagas resume --proposal {told['id']} {again}\n"
            )
    for saga_id in wanted:
        say(f"{saga_id}  unknown: no function of the stack that acts for operators has it\n")
    return 1 if wanted or undone else 0


def _show_proposal(listed: Mapping[str, Any], left: list[Planned], done: int) -> int:
    """Show a proposed list, and what would be done about each of its sagas now."""
    by = f"confirmed by {listed['confirmed_by']}" if listed["confirmed_by"] else f"until {moment(listed['expires_at'])}"
    say(f"proposed by {safe(listed['who'])}, {safe(by)}\n  why  {safe(listed['why'])}\n")
    outlooks = {saga_id: safe(what) for saga_id, _, what in listed["list"]}
    for one in left:
        say(f"{one.saga_id}  {outlooks[one.saga_id]}\n")
    counts = Counter(outlooks[one.saga_id] for one in left)
    say(f"{_counted(counts)}; {done:,} done before; nothing was changed: use --yes and --reason\n")
    return 0


def _planned(file: Path) -> Iterator[Planned]:
    """Sagas of the list, each once.

    Raises:
        CommandError: if the file cannot be read, or a line is neither a saga id nor an object with one.
    """
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"FILE must be a list of sagas, got {file}: {error}") from None
    seen: set[str] = set()
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line:
            continue
        one: Any = {"saga_id": line}
        if line.startswith("{"):
            try:
                one = json.loads(line)
            except ValueError as error:
                raise CommandError(f"line {number} of {file} must be JSON, got {line[:40]!r}: {error}") from None
        saga_id, parked = one.get("saga_id"), one.get("parked")
        if not isinstance(saga_id, str) or not isinstance(parked, str | None):
            raise CommandError(f"line {number} of {file} must have saga_id and parked as texts, got {line[:80]!r}")
        try:
            require_saga_id(saga_id)
        except CommandError as error:
            raise CommandError(f"line {number} of {file}: {error}") from None
        if saga_id not in seen:
            seen.add(saga_id)
            yield Planned(saga_id=saga_id, parked=parked)


def _done(results: Path) -> tuple[set[Planned], bool]:
    """Sagas whose outcome is final; and whether the last line is cut off.

    An outcome is that of one parking: a saga that is listed again, parked by another execution, is another entry. One
    that is listed without an execution is read again each time, because its record knows whether it is parked.

    Raises:
        CommandError: if the file is not readable, or has a line that this command does not write. A line that is cut
            off is that of a process that died: its saga is tried again.
    """
    found: set[Planned] = set()
    if not results.exists():
        return found, False
    try:
        text = results.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--results must be outcomes of this command, got {results}: {error}") from None
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            one: Any = json.loads(line)
        except ValueError:
            if line.startswith("{"):
                continue
            one = None
        written: Any = one if isinstance(one, dict) else {}
        saga_id, parked, outcome = written.get("saga_id"), written.get("parked", 0), written.get("outcome")
        if not (isinstance(saga_id, str) and isinstance(parked, str | None) and isinstance(outcome, str)):
            raise CommandError(
                f"--results must be outcomes of this command, got line {number} of {results}: {line[:80]!r}; name "
                "another file"
            )
        if parked:
            (found.discard if outcome in _AGAIN else found.add)(Planned(saga_id=saga_id, parked=parked))
    return found, text != "" and not text.endswith("\n")


def _require_released(session: boto3.Session, manifest: Manifest) -> None:
    """Refuse while a reconciler is held: tables are being restored, and what is parked there may not be true.

    Raises:
        CommandError: naming the reconciler, or the switch that cannot be read.
    """
    aws = Aws(session=session)
    switches = read_switches(aws, manifest)
    for refused in aws.denied:
        raise CommandError(f"reconcilers must be known not to be held, got {refused.id}: {refused.what}")
    for switch in switches:
        if switch.held is not None:
            raise CommandError(
                f"no reconciler of {manifest.said} may be held, got {switch.function}, held since "
                f"{moment(switch.held.since_ms)}: {switch.held.reason}; repeat this when it is released"
            )


def _hold_of(session: boto3.Session, manifest: Manifest, saga_id: str) -> Held | None:
    """The hold of one saga.

    Raises:
        CommandError: if that cannot be read.
    """
    aws = Aws(session=session)
    switches = read_switches(aws, manifest, saga_id)
    for refused in aws.denied:
        raise CommandError(f"the saga must be known not to be held, got {refused.id}: {refused.what}")
    return next((one.held for one in switches if one.held is not None), None)


def _held_by(held: Held) -> str:
    return f"an operator holds it: {held.reason}"


def _show(session: boto3.Session, manifest: Manifest, planned: list[Planned], done: int) -> int:
    counts: Counter[str] = Counter()
    screen = Screen.of(sys.stdout)
    for one in planned:
        try:
            found = find_in(session, manifest, one.saga_id)
            held = None if found.record.settled else _hold_of(session, manifest, one.saga_id)
        except CommandError as error:
            outcome, where = "unknown", str(error)
        else:
            stuck = stuck_at(found.record)
            where = ": ".join(part for part in (stuck.get("step"), stuck.get("error")) if part)
            where = where if found.record.parked_by is not None else ""
            outcome = outlook(found.record, one.parked)
            if held is not None:
                outcome, where = FOR_AN_OPERATOR, _held_by(held)
        counts[outcome] += 1
        say(f"{one.saga_id}  {outcome}{f'  {screen.clean(where)}' if where else ''}\n")
    say(f"{_counted(counts)}; {done:,} done before; nothing was changed: use --yes and --reason\n")
    return 0


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items())) or "nothing to do"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """Resumes sagas, one after the other; those of a proposed list by asking the function that has it."""

    session: boto3.Session
    manifest: Manifest
    audit: Audit
    rate: float
    asker: Asker | None = None
    proposal: str | None = None

    def all_of(self, planned: list[Planned], file: TextIO) -> Counter[str]:
        """Resume sagas, and write each outcome before the next one begins."""
        counts: Counter[str] = Counter()
        released_at = -math.inf
        try:
            with progress(len(planned)) as bar:
                for one in planned:
                    began = time.monotonic()
                    # A function that is asked reads the switches itself.
                    if self.asker is None and began - released_at >= _SWITCHES_READ_SECONDS:
                        _require_released(self.session, self.manifest)
                        released_at = began
                    outcome, detail = self._tried(one)
                    if outcome == HELD:
                        raise CommandError(f"no saga may be held, got all, {detail}; repeat this when it is released")
                    counts[outcome] += 1
                    line = {"saga_id": one.saga_id, "parked": one.parked, "outcome": outcome}
                    line |= {"detail": detail} if detail else {}
                    _keep(line, file)
                    bar(advance=1, note=outcome)
                    if one is not planned[-1]:
                        time.sleep(max(1 / self.rate - (time.monotonic() - began), 0))
        except KeyboardInterrupt:
            sys.stderr.write(f"interrupted after {sum(counts.values()):,} of {len(planned):,}; repeat this\n")
            raise
        return counts

    def _tried(self, planned: Planned) -> tuple[str, str]:
        try:
            return self._resumed(planned)
        except (CommandError, CannotResolve, Conflict, MachineGone, ValueError, BotoCoreError) as refusal:
            return _FAILED, " ".join(str(refusal).split())
        except ClientError as error:
            if error_code(error) in _FATAL:
                raise
            return _FAILED, " ".join(str(error).split())

    def _resumed(self, planned: Planned) -> tuple[str, str]:
        if self.asker is not None:
            answer = self.asker.ask(do="resume_listed", list=self.proposal, saga=planned.saga_id)
            return (str(answer["outcome"]), str(answer["detail"])) if answer is not None else (_FAILED, "unknown list")
        found = find_in(self.session, self.manifest, planned.saga_id)
        record, saga = found.record, deployed(found)
        if record.settled:
            return "settled", record.status
        if (held := _hold_of(self.session, self.manifest, planned.saga_id)) is not None:
            return FOR_AN_OPERATOR, _held_by(held)
        if record.parked_by is None:
            # Another process resumed it, perhaps this one before it died: what it did not start is started.
            recoverer = replace(found.recoverer, log_days=saga.served.days, audit=self.audit)
            finding, started = recoverer.recover(record, found.now_ms)
            return _ended(finding, started, "recovered")
        if planned.parked not in (None, record.parked_by):
            return "left alone", f"was parked since it was listed, by {record.parked_by}"
        if is_doubtful(record):
            return FOR_AN_OPERATOR, f"was parked as {stuck_at(record)['error']}: see cdk-sagas inspect"
        resolver = Resolver(
            recoverer=found.recoverer,
            log_table=saga.served.log,
            audit=self.audit,
            log_days=saga.served.days,
            most=MOST_BEFORE_LISTS,
        )
        resumed = resolver.resume(record, found.now_ms)
        return _ended(resumed.finding, resumed.started, "resumed")


def _keep(line: Mapping[str, Any], file: TextIO) -> None:
    """Write an outcome down, before the next saga begins.

    Raises:
        CommandError: with the outcome, if the file cannot be written.
    """
    try:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        raise CommandError(
            f"--results must be a file that can be written, got {file.name}: {error.strerror}; saga {line['saga_id']} "
            f"is the last one: {line['outcome']}; make room, and repeat this"
        ) from None


def _ended(finding: Finding, started: str | None, done: str) -> tuple[str, str]:
    """Outcome, and its detail, of a saga that was read and perhaps started."""
    if started is not None:
        return done, started
    return (FOR_AN_OPERATOR if finding in UNDECIDED else "left alone"), finding.value
