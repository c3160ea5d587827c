"""``cdk-sagas hold``: keep the reconcilers of a stack from acting, on all sagas or on one, or let them act again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from constructs_lib.cli.doctor.system import Switch, read_switches
from constructs_lib.cli.shared.aws import add_stack_options, one_line_errors, session_of
from constructs_lib.cli.shared.manifest import Manifest, read_manifest
from constructs_lib.cli.shared.process import CommandError, moment, say
from constructs_lib.cli.shared.reads import Aws
from constructs_lib.cli.shared.saga import audit_of, find_in, require_reason_with, require_saga_id, say_decisions
from constructs_lib.cli.shared.terminal import safe
from saga_runtime.protocol import HOLD_DECISIONS, HoldAttribute
from saga_runtime.recovery.hold import HOLD_KEY, Held, decisions_key, kept, off, on
from saga_runtime.shared import clock, writes
from saga_runtime.shared.decisions import Audit, Decision, decided

_LOOKS: Final = 4
_WANTED: Final = {"on": "held for the reason given", "off": "released"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``hold``, and add its options."""
    parser.description = (
        "Puts, or deletes, the item that holds every TimeoutReconciler of the stack, or one saga of it. "
        "While it is held, a reconciler checks and measures, and changes nothing: hold it before tables are restored, "
        "and hold a saga that you examine. No deployment releases it. Exit status: 0 done, or shown; 1 it is held for "
        "another reason, the stack has no reconciler or no such saga, or AWS refused a call."
    )
    parser.add_argument("action", metavar="on|off|status", choices=("on", "off", "status"), help="what to do")
    parser.add_argument("--saga", metavar="SAGA", help="hold this saga only; its id, as in the answer of the API")
    add_stack_options(parser)
    parser.add_argument("--reason", help="with on and off, and needed: why; kept with your identity, and shown")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    saga_id = options.saga
    require_reason_with("on and off", options.reason, changes=options.action != "status")
    if saga_id is not None:
        require_saga_id(saga_id)
    session = session_of(options)
    with one_line_errors("not every reconciler was held, released or looked up"):
        aws = Aws(session=session)
        audit = audit_of(session, options.reason) if options.action != "status" else None
        manifest = read_manifest(aws.client("cloudformation"), options.stack)
        if options.action == "on" and saga_id is not None:
            find_in(session, manifest, saga_id)
        switches = _switches(aws, manifest, saga_id)
        if options.action == "off" and saga_id is not None and all(switch.held is None for switch in switches):
            # Of a saga of another stack, "is not held" would be true and mean nothing.
            find_in(session, manifest, saga_id)
        for switch in switches:
            if audit is not None and (options.action == "on") == (switch.held is None):
                _switch(aws, switch, saga_id, audit)
        found = switches if options.action == "status" else _switches(aws, manifest, saga_id)
        general = [] if saga_id is None else _switches(aws, manifest, None)
        shows = found if options.action == "status" else []
        decisions = {one.table: Decision.all_of(aws.read(one.table, decisions_key(saga_id)) or {}) for one in shows}
        if shows and saga_id is not None and not any(one.held or decisions[one.table] for one in shows):
            find_in(session, manifest, saga_id)
        lists = options.action != "on" and saga_id is None
        single = [one for switch in found for one in _of_single_sagas(aws, switch)] if lists else []
    subject = "" if saga_id is None else f", saga {saga_id},"
    for was, switch in zip(switches, found, strict=True):
        say(f"{switch.function}{subject} {_state(switch)}{_other(options.action, audit, was)}\n")
        say_decisions(decisions.get(switch.table, []))
    for one in general:
        if one.held is not None:
            say(f"{one.function} holds all sagas: it {_state(one)}\n")
    for held, switch in single:
        say(f"{switch.function}, saga {safe(held)}, {_state(switch)}\n")
    if options.action == "on":
        say("looks that are under way end within a minute\n")
    return _status(options.action, audit, found)


def _other(action: str, audit: Audit | None, was: Switch) -> str:
    """Report the hold that a release ended, or whose a hold is."""
    if audit is None or was.held is None:
        return ""
    if action == "off":
        who = was.held.who or "another operator"
        return f"; it was held since {moment(was.held.since_ms)} by {safe(f'{who}: {was.held.reason}')}"
    return "" if was.held.who == audit.who else "; this is not your hold: that operator's release ends it"


def _status(action: str, audit: Audit | None, found: list[Switch]) -> int:
    """Exit status; the hold of another operator is named, and neither taken for this one nor deleted."""
    if audit is not None and action == "on":
        others = [one for one in found if one.held is None or one.held.reason != audit.why]
        remedy = "its operator may release it at any time: agree on one reason"
    else:
        others = [one for one in found if action == "off" and one.held is not None]
        remedy = "it was held again meanwhile: ask its operator"
    for one in others:
        sys.stderr.write(f"{one.function} must be {_WANTED[action]}, got {_state(one)}; {remedy}\n")
    return 1 if others else 0


def _switch(aws: Aws, switch: Switch, saga_id: str | None, audit: Audit) -> None:
    """Hold, or release what was read, and keep the decision: both, or neither."""
    # AWS states whole seconds; two holds for one reason within a second differ in the rest.
    now_ms = aws.now_ms(switch.table) // 1_000 * 1_000 + clock.now_ms() % 1_000
    if switch.held is None:
        what, entry = "held", on(switch.table, saga_id, Held(since_ms=now_ms, reason=audit.why, who=audit.who))
    else:
        what, entry = "released", off(switch.table, saga_id, switch.held)
    for _ in range(_LOOKS):
        was = aws.read(switch.table, decisions_key(saga_id))
        keep = kept(switch.table, saga_id, was, decided(audit, what, now_ms))
        refused = writes.transact([entry, keep], client=aws.dynamodb)
        if refused is None or 0 in refused.items:
            return  # done, or another operator has
    raise CommandError(f"decisions about {switch.function} keep changing; repeat this")


def _switches(aws: Aws, manifest: Manifest, saga_id: str | None) -> list[Switch]:
    """The switches of all reconcilers of some stacks, or those of one saga there."""
    switches = sorted(read_switches(aws, manifest, saga_id), key=lambda one: one.function)
    if aws.denied:
        raise CommandError(f"not every reconciler can be read: {aws.denied[0].what}; {aws.denied[0].then}")
    if not switches:
        raise CommandError(
            f"{manifest.said} must have a TimeoutReconciler of sagas, got none; name the stack that has it"
        )
    return switches


def _of_single_sagas(aws: Aws, switch: Switch) -> Iterator[tuple[str, Switch]]:
    """Sagas of a reconciler that are held, each with its own switch; the table has an item for each."""
    a = HoldAttribute
    pages = aws.client("dynamodb").get_paginator("scan").paginate(TableName=switch.table, ConsistentRead=True)
    for item in sorted((item for page in pages for item in page["Items"]), key=lambda item: str(item[a.ID]["S"])):
        if item[a.ID] != HOLD_KEY[a.ID] and not item[a.ID]["S"].endswith(HOLD_DECISIONS):
            yield item[a.ID]["S"], replace(switch, held=Held.from_item(item))


def _state(switch: Switch) -> str:
    if switch.held is None:
        return "is not held"
    by = f" by {safe(switch.held.who)}" if switch.held.who else ""
    return f"is held since {moment(switch.held.since_ms)}{by}: {safe(switch.held.reason)}"
