"""``cdk-sagas resume``: resume many parked sagas. Shows first, does what was shown, and continues where it stopped."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TextIO

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from constructs_lib.cli.doctor.system import read_switches
from constructs_lib.cli.shared.aws import NO_RIGHTS, add_stack_options, one_line_errors, session_of
from constructs_lib.cli.shared.manifest import Manifest, read_manifest
from constructs_lib.cli.shared.process import CommandError, moment, say
from constructs_lib.cli.shared.reads import Aws
from constructs_lib.cli.shared.saga import (
    FOR_AN_OPERATOR,
    FoundSaga,
    audit_of,
    deployed,
    find_in,
    parked_reason_of,
    require_saga_id,
)
from constructs_lib.cli.shared.terminal import Screen, progress
from saga_runtime.errors import Conflict
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.recovery.decisions import ParkedFor
from saga_runtime.recovery.hold import Held
from saga_runtime.recovery.resolution import CannotResolve
from saga_runtime.recovery.resolver import Resolver
from saga_runtime.recovery.takeover import Finding, MachineGone
from saga_runtime.shared.decisions import Audit

_RATE: Final = 5.0
"""Sagas a second: they start at the providers that were down, all at once."""
_FAILED: Final = "failed"
_FOR_AN_OPERATOR: Final = "needs an operator"
_AGAIN: Final = frozenset({_FAILED, _FOR_AN_OPERATOR})
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
        "what failed. Exit status: 0 shown, or all are done; 1 some failed or need an operator, a reconciler is held, "
        "or AWS refused a call; 130 interrupted."
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the list")
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
    planned = list(_planned(options.file))
    results = options.results or options.file.with_name(f"{options.file.name}.results")
    if results.exists() and results.samefile(options.file):
        raise CommandError(f"--results must be another file than the list, got {results}")
    done, cut_off = _done(results)
    left = [one for one in planned if (one.saga_id, one.parked) not in done]
    before = len(planned) - len(left)
    session = session_of(options)
    with one_line_errors("not every saga was resumed; repeat this"):
        manifest = read_manifest(session.client("cloudformation"), options.stack)
        if not options.yes:
            _require_released(session, manifest)
            return _show(session, manifest, left, before)
        if any(one.second for one in manifest.operators):
            raise CommandError(
                f"{manifest.said} requires a second operator for each decision; propose each with cdk-sagas resolve"
            )
        work = _Work(session=session, manifest=manifest, audit=audit_of(session, options.reason), rate=options.rate)
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


def _planned(file: Path) -> Iterator[Planned]:
    """Sagas of the list, each once.

    Raises:
        CommandError: if the file cannot be read, or a line is neither a saga id nor an object with one.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
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


def _done(results: Path) -> tuple[set[tuple[str, str | None]], bool]:
    """Sagas, each with the execution that had parked it, whose outcome is final; and whether the last line is cut off.

    An outcome is that of one parking: a saga that is listed again, parked by another execution, is another entry. One
    that is listed without an execution is read again each time, because its record knows whether it is parked.

    Raises:
        CommandError: if the file is not readable, or has a line that this command does not write. A line that is cut
            off is that of a process that died: its saga is tried again.
    """
    found: set[tuple[str, str | None]] = set()
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
            (found.discard if outcome in _AGAIN else found.add)((saga_id, parked))
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


def _show(session: boto3.Session, manifest: Manifest, planned: list[Planned], done: int) -> int:
    counts: Counter[str] = Counter()
    screen = Screen.of(sys.stdout)
    for one in planned:
        try:
            found = find_in(session, manifest, one.saga_id)
        except CommandError as error:
            outcome, where = "unknown", str(error)
        else:
            outcome = _outlook(found, one)
            stuck = parked_reason_of(found.record)
            where = ": ".join(part for part in (stuck.get("step"), stuck.get("error")) if part)
            where = where if found.record.parked_by is not None else ""
        counts[outcome] += 1
        say(f"{one.saga_id}  {outcome}{f'  {screen.clean(where)}' if where else ''}\n")
    say(f"{_counted(counts)}; {done:,} done before; nothing was changed: use --yes and --reason\n")
    return 0


def _outlook(found: FoundSaga, planned: Planned) -> str:
    record = found.record
    if record.settled:
        return "is settled"
    if record.parked_by is None:
        return "is not parked: recovered if it does not run"
    if planned.parked not in (None, record.parked_by):
        return "was parked since it was listed: left alone"
    return _FOR_AN_OPERATOR if _is_doubtful(record) else "is parked: resumed"


def _is_doubtful(record: RequestRecord) -> bool:
    """Test whether a saga was parked because its record may not be true: it was restored, or edited."""
    return parked_reason_of(record).get("error") in (ParkedFor.OWNER_SUCCEEDED, ParkedFor.OWNER_UNKNOWN)


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items())) or "nothing to do"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """Resumes sagas, one after the other."""

    session: boto3.Session
    manifest: Manifest
    audit: Audit
    rate: float

    def all_of(self, planned: list[Planned], file: TextIO) -> Counter[str]:
        """Resume sagas, and write each outcome before the next one begins."""
        counts: Counter[str] = Counter()
        released_at = -math.inf
        try:
            with progress(len(planned)) as bar:
                for one in planned:
                    began = time.monotonic()
                    if began - released_at >= _SWITCHES_READ_SECONDS:
                        _require_released(self.session, self.manifest)
                        released_at = began
                    outcome, detail = self._tried(one)
                    counts[outcome] += 1
                    line = {"saga_id": one.saga_id, "parked": one.parked, "outcome": outcome}
                    line |= {"detail": detail} if detail else {}
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                    bar(advance=1, note=outcome)
                    if one is not planned[-1]:
                        time.sleep(max(1 / self.rate - (time.monotonic() - began), 0))
        except KeyboardInterrupt:
            sys.stderr.write(f"interrupted after {sum(counts.values()):,} of {len(planned):,}; repeat this\n")
            raise
        return counts

    def _held(self, saga_id: str) -> Held | None:
        aws = Aws(session=self.session)
        switches = read_switches(aws, self.manifest, saga_id)
        for refused in aws.denied:
            raise CommandError(f"the saga must be known not to be held, got {refused.id}: {refused.what}")
        return next((one.held for one in switches if one.held is not None), None)

    def _tried(self, planned: Planned) -> tuple[str, str]:
        try:
            return self._resumed(planned)
        except (CommandError, CannotResolve, Conflict, MachineGone, ValueError, BotoCoreError) as refusal:
            return _FAILED, " ".join(str(refusal).split())
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _FATAL:
                raise
            return _FAILED, " ".join(str(error).split())

    def _resumed(self, planned: Planned) -> tuple[str, str]:
        found = find_in(self.session, self.manifest, planned.saga_id)
        record, saga = found.record, deployed(found)
        if record.settled:
            return "settled", record.status
        if (held := self._held(planned.saga_id)) is not None:
            return _FOR_AN_OPERATOR, f"an operator holds it: {held.reason}"
        if record.parked_by is None:
            # Another process resumed it, perhaps this one before it died: what it did not start is started.
            recoverer = replace(found.recoverer, log_days=saga.served.days, audit=self.audit)
            finding, started = recoverer.recover(record, found.now_ms)
            return _ended(finding, started, "recovered")
        if planned.parked not in (None, record.parked_by):
            return "left alone", f"was parked since it was listed, by {record.parked_by}"
        if _is_doubtful(record):
            return _FOR_AN_OPERATOR, f"was parked as {parked_reason_of(record)['error']}: see cdk-sagas inspect"
        resolver = Resolver(
            recoverer=found.recoverer, log_table=saga.served.log, audit=self.audit, log_days=saga.served.days
        )
        resumed = resolver.resume(record, found.now_ms)
        return _ended(resumed.finding, resumed.started, "resumed")


def _ended(finding: Finding, started: str | None, done: str) -> tuple[str, str]:
    """Outcome, and its detail, of a saga that was read and perhaps started."""
    if started is not None:
        return done, started
    return (_FOR_AN_OPERATOR if finding in FOR_AN_OPERATOR else "left alone"), finding.value
