"""``cdk-sagas migrate``: show a migration's progress, move and compare items, and change its phase."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

import boto3

from constructs_lib.cli.shared.aws import add_stack_options, one_line_errors, session_of
from constructs_lib.cli.shared.manifest import read_manifest
from constructs_lib.cli.shared.process import QUIET, CommandError, environment, moment, say
from constructs_lib.cli.shared.saga import audit_of, require_reason_with, say_decisions, time_of
from constructs_lib.cli.shared.terminal import progress, safe
from saga_runtime.errors import Conflict
from saga_runtime.migration.gates import Facts, ahead, back
from saga_runtime.migration.layout import Layout, LayoutChanged
from saga_runtime.migration.progress import Example, Job, Pass, Phase, Progress, Reason
from saga_runtime.migration.store import Store
from saga_runtime.migration.terms import Terms
from saga_runtime.migration.worker import Worker, read_progress
from saga_runtime.protocol import Env
from saga_runtime.shared import aws, clock
from saga_runtime.shared.decisions import Audit

_CHANGES: Final = ("advance", "back")
_ACTIONS: Final = ("status", "backfill", "verify", *_CHANGES)
_WIDTH: Final = 30
_FOREVER_MS: Final = 10**9
_MOST_SKEW_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """A deployed migration.

    Attributes:
        terms: its terms.
        store: its table.
        session: the AWS session.
    """

    terms: Terms
    store: Store
    session: boto3.Session


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``migrate``, and add its options."""
    parser.description = (
        "Works on the Migration of a stack. status shows phase, progress and differences; backfill and "
        "verify run one pass from here, next to the worker; advance and back change the phase by one, if its gate is "
        "open. Exit status: 0 done, or shown; 1 refused, items differ or are left, or AWS refused a call."
    )
    parser.add_argument("action", metavar="|".join(_ACTIONS), choices=_ACTIONS, help="what to do")
    add_stack_options(parser)
    parser.add_argument("--name", help="name of the layout, if the stack has several migrations")
    parser.add_argument(
        "--to", metavar="PHASE", type=int, help="of advance and back: the phase to reach; done if it is there already"
    )
    parser.add_argument("--reason", help="of advance and back, and needed: why; kept with the phase, and shown")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    require_reason_with("advance and back", options.reason, changes=options.action in _CHANGES)
    session = session_of(options)
    with (
        one_line_errors("the migration was not read, or not changed"),
        environment({**QUIET, Env.SERVICE: "cdk-sagas"}),
        aws.clients_of(session),
    ):
        found = _deployed(session, options.stack, options.name)
        try:
            match options.action:
                case "status":
                    return _status(found)
                case "backfill" | "verify":
                    return _pass(found, Job(options.action))
            audit = audit_of(session, options.reason)
            return _change(found, 1 if options.action == "advance" else -1, options.to, audit)
        except LayoutChanged as error:
            raise CommandError(error.message) from None


# -- what is deployed -----------------------------------------------------------------------------------------------


def _deployed(session: boto3.Session, stacks: list[str], name: str | None) -> Deployed:
    manifest = read_manifest(session.client("cloudformation"), stacks)
    workers = [(Terms.from_json(layout), table) for layout, table in manifest.migrations]
    chosen = [(terms, table) for terms, table in workers if name in {None, terms.layout.name}]
    if len(chosen) != 1:
        names = ", ".join(sorted(terms.layout.name for terms, _ in chosen)) or "none"
        raise CommandError(
            f"{manifest.said} must have one Migration{f' named {name}' if name else ''}, got {names}; name the stack "
            "that has it, and choose one with --name"
        )
    ((terms, table),) = chosen
    return Deployed(terms=terms, store=Store(layout=terms.layout, table=table), session=session)


def _facts(found: Deployed) -> Facts:
    def last(job: Job) -> list[Pass | None]:
        return [
            read_progress(found.store, job, segment, found.terms.segments).last
            for segment in range(found.terms.segments)
        ]

    deployed, unready = _writers(found)
    return Facts(
        phase=found.store.phase(),
        now_ms=_now_ms(found),
        moved=last(Job.BACKFILL),
        compared=last(Job.VERIFY),
        deployed=deployed,
        unready=unready,
    )


def _now_ms(found: Deployed) -> int:
    """Epoch milliseconds by AWS's clock."""
    key = found.store.own("phase")
    return time_of(aws.dynamodb().get_item(TableName=found.store.table, Key=key, ConsistentRead=True))


def _writers(found: Deployed) -> tuple[dict[str, int], dict[str, str]]:
    """When each writer that exists was last deployed, epoch milliseconds; and which ones are not ready, and why."""
    client: Any = found.session.client("lambda")
    deployed: dict[str, int] = {}
    unready: dict[str, str] = {}
    for name in found.terms.writers:
        try:
            aliases = [
                one
                for page in client.get_paginator("list_aliases").paginate(FunctionName=name)
                for one in page["Aliases"]
            ]
            for version in dict.fromkeys(["$LATEST", *(each for one in aliases for each in _versions(one))]):
                described = client.get_function_configuration(FunctionName=name, Qualifier=version)
                modified = int(datetime.fromisoformat(described["LastModified"]).timestamp() * 1_000)
                deployed[name] = max(deployed.get(name, 0), modified)
                problem = _problem(described, found.terms.layout)
                if problem:
                    unready[name if version == "$LATEST" else f"{name}:{version}"] = problem
        except client.exceptions.ResourceNotFoundException:
            continue
    return deployed, unready


def _versions(alias: Mapping[str, Any]) -> list[str]:
    """Versions to which an alias sends requests."""
    weights = (alias.get("RoutingConfig") or {}).get("AdditionalVersionWeights") or {}
    return [alias["FunctionVersion"], *weights]


def _problem(described: Mapping[str, Any], layout: Layout) -> str:
    """Why a version of a function may not run this layout; empty: it does."""
    status = described.get("LastUpdateStatus", "Successful")
    if status != "Successful":
        return f"an update that is {status}; wait for it, or deploy again"
    text = described.get("Environment", {}).get("Variables", {}).get(Env.MIGRATION)
    if text is None:
        return "a version without Migration; deploy it, or remove the alias"
    if Layout.from_env(text).fingerprint != layout.fingerprint:
        return "another layout; deploy this one"
    return ""


# -- status ---------------------------------------------------------------------------------------------------------


def _status(found: Deployed) -> int:
    facts, layout = _facts(found), found.terms.layout
    phase = facts.phase
    since = f", since {moment(phase.changed_at_ms)}" if phase.changed_at_ms else ""
    say(f"migration {layout.name}: phase {phase.number} of {layout.last}{since}\n")
    say(f"  {bar(phase.number, layout.last)}  {layout.describe(phase.number)}\n")
    examples: list[Example] = []
    for job in Job:
        total = found.terms.segments
        progresses = [read_progress(found.store, job, segment, total) for segment in range(total)]
        say(f"{job:9} {line_of(progresses, phase)}\n")
        examples += [example for one in progresses for example in one.examples if one.changes == phase.changes]
    different = [one for one in examples if one.reason is Reason.DIFFERENT]
    left = [one for one in examples if one.reason is not Reason.DIFFERENT]
    for what, those in (("differ", different), ("left", left)):
        if those:
            say(f"{what}: {safe(', '.join(map(str, those)))}\n")
    say_decisions(phase.decisions)
    reasons = ahead(found.terms, facts)
    if not reasons:
        say(f"may advance to {phase.number + 1}: {layout.describe(phase.number + 1)}\n")
    for reason in reasons:
        say(f"not yet: {safe(str(reason))}\n")
    return 1 if different else 0


def bar(done: int, total: int) -> str:
    """A bar of what is done.

    >>> bar(7, 14)
    '[###############...............]'
    """
    filled = _WIDTH * min(done, total) // total if total else _WIDTH
    return f"[{'#' * filled}{'.' * (_WIDTH - filled)}]"


def line_of(progresses: Sequence[Progress], phase: Phase) -> str:
    """Progress of a job in all segments, with a bar in proportion to the customers of the pass before."""
    seen = total = left = different = compared = moved = 0
    complete = True
    for one in progresses:
        running = one.cursor is not None and one.changes == phase.changes
        done = one.last if one.last is not None and one.last.changes == phase.changes else None
        shown: Any = one if running or done is None else done
        if not running and done is None:
            complete = False
            total += one.last.seen if one.last is not None else 0
            continue
        complete = complete and not running
        seen, left, different = seen + shown.seen, left + shown.left, different + shown.different
        compared, moved = compared + shown.compared, moved + shown.moved
        total += max(shown.seen, one.last.seen if running and one.last is not None else 0)
    if not seen and not complete:
        return f"{bar(0, 1)}  no pass of phase {phase.number} yet"
    counts = f"{seen} customers, {moved} moved, {left} left, {compared} compared, {different} differ"
    return f"{bar(seen, total)}  {counts}{'' if complete else ', in progress'}"


# -- passes ---------------------------------------------------------------------------------------------------------


def _pass(found: Deployed, job: Job) -> int:
    """Run a pass of each segment, one after the other, and show it as it goes."""
    skew_ms = clock.now_ms() - _now_ms(found)
    if abs(skew_ms) > _MOST_SKEW_MS:
        raise CommandError(
            f"this machine's clock must be within {_MOST_SKEW_MS // 1_000} s of AWS's, got {skew_ms // 1_000} s; "
            "set it, or let the worker run the pass"
        )
    terms = found.terms
    left = different = 0
    for segment in range(terms.segments):
        done = None
        with progress(None) as bar:
            while done is None:  # another run was faster at a page: continue from there
                done = Worker(
                    store=found.store,
                    job=job,
                    segment=segment,
                    segments=terms.segments,
                    remaining_ms=lambda: _FOREVER_MS,
                    report=partial(_show, bar, f"{terms.layout.name} {job} {segment}"),
                ).run()
        left, different = left + done.left, different + done.different
        counts = f"{done.seen} customers, {done.moved} moved, {done.left} left, {done.compared} compared"
        say(f"{job} segment {segment}: {counts}, {done.different} differ\n")
    return 1 if left or different else 0


def _show(bar: Callable[..., None], note: str, progress: Progress) -> None:
    total = max(progress.seen, progress.last.seen if progress.last is not None else 0)
    bar(completed=progress.seen, total=total, note=note)


# -- phases ---------------------------------------------------------------------------------------------------------


def _change(found: Deployed, step: int, to: int | None, audit: Audit) -> int:
    """Change the phase by one; sent again with the phase to reach, it changes nothing more."""
    facts, layout = _facts(found), found.terms.layout
    number = facts.phase.number
    if to is not None and to == number:
        say(f"phase {number} of {layout.last} already: {layout.describe(number)}\n")
        return 0
    if to is not None and to != number + step:
        raise CommandError(f"--to must be {number + step} from phase {number}, got {to}; go one phase at a time")
    reasons = ahead(found.terms, facts) if step > 0 else back(found.terms, facts)
    if reasons:
        for reason in reasons:
            say(f"not yet: {safe(str(reason))}\n")
        return 1
    try:
        changed = found.store.change_phase(facts.phase, facts.phase.number + step, facts.now_ms, audit)
    except Conflict:
        raise CommandError(
            f"the phase must still be {facts.phase.number}, got another one; another operator changed it: see "
            "cdk-sagas migrate status"
        ) from None
    say(f"phase {changed.number} of {layout.last}: {layout.describe(changed.number)}\n")
    say(f"  {bar(changed.number, layout.last)}\n")
    return 0
