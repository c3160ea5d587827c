"""``cdk-sagas cost``: what a synthesized saga uses and costs. Reads the assembly; needs neither AWS nor the CDK."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Final

from constructs_lib.cli.shared.process import CommandError, add_assembly, is_named
from constructs_lib.saga.cost.assumptions import Assumptions, Source
from constructs_lib.saga.cost.bill import SECONDS_A_DAY
from constructs_lib.saga.cost.estimate import as_json, estimate_of
from constructs_lib.saga.cost.report import report
from constructs_lib.saga.description.assembly import sagas_of
from constructs_lib.saga.description.description import SagaDescription

_BAR: Final = "█"
_EVENTS: Final = ("webhook", "rule", "queue", "fifo", "stream")
_COUNTS: Final = (
    ("--items", "map_items", "items of a map"),
    ("--memory", "memory_mib", "MiB of a function without a declared size"),
    ("--gatekeeper-memory", "gatekeeper_mib", "MiB of the API's function, which waits for an inline saga"),
    ("--gatekeeper-duration", "gatekeeper_ms", "milliseconds of the API's function, without that"),
    ("--item-bytes", "item_bytes", "bytes of an item that a step writes"),
    ("--request-bytes", "request_bytes", "bytes of the request"),
    ("--output-bytes", "output_bytes", "bytes of a step's output"),
    ("--result-bytes", "result_bytes", "bytes of the answer's result"),
    ("--polls", "polls", "how often the client asks for the outcome"),
)
"""Options that are whole numbers, and the assumptions that they replace."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``cost``, and add its options."""
    parser.description = (
        "Counts, from each saga's description in a cloud assembly, what one saga uses, on its happy "
        "path and on its longest compensation, and multiplies with list prices of us-east-1, in dollars. "
        "Nothing is measured. Exit status: 0; 1 the folder is not an assembly, or a saga or step is not in it."
    )
    add_assembly(parser)
    parser.add_argument("--saga", metavar="NAME", help="only this one: its path, or the end of it")
    rate = parser.add_mutually_exclusive_group()
    rate.add_argument("--rate", metavar="N", type=_number, help="sagas a second: adds a month's bill, and the quotas")
    rate.add_argument("--per-day", metavar="N", type=_number, help="the same, as sagas a day")
    parser.add_argument("--compare", action="store_true", help="add the same saga built in other ways")
    parser.add_argument("--json", action="store_true", help="as JSON")
    inputs = parser.add_argument_group("what a description cannot know")
    for option, metavar, what in (
        ("--duration", "[STEP=]MS", "milliseconds of the steps' functions, or of one step's"),
        ("--writes", "[STEP=]N", "items that an atomic step writes, or that one of them writes"),
    ):
        inputs.add_argument(option, metavar=metavar, action="append", default=[], type=_assigned, help=what)
    for option, name, what in _COUNTS:
        inputs.add_argument(option, dest=name, metavar="N", type=int, help=what)
    inputs.add_argument("--retries", metavar="N", type=_number, help="retries per function call, on average")
    inputs.add_argument("--skip", metavar="STEP", action="append", default=[], help="a conditional step to skip")
    begun = inputs.add_mutually_exclusive_group()
    begun.add_argument("--no-api", action="store_true", help="the saga has no TransactionApi")
    begun.add_argument(
        "--event", choices=_EVENTS, help="events of this source begin the saga, through an EventIntake, and no client"
    )


def _number(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}") from None
    if not value.is_finite():
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}")
    return value


def _assigned(text: str) -> tuple[str, int]:
    step, _, value = text.rpartition("=")
    try:
        return step, int(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number or STEP=NUMBER, got {text!r}") from None


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    sagas = _chosen(options)
    per_day = options.rate * SECONDS_A_DAY if options.rate is not None else options.per_day
    try:
        _check_names(options, sagas)
        estimates = [
            estimate_of(saga, _inputs(options, saga), per_day=per_day, compare=options.compare) for saga in sagas
        ]
    except ValueError as error:
        raise CommandError(str(error)) from None
    if options.json:
        sys.stdout.write(json.dumps([as_json(estimate) for estimate in estimates], indent=2) + "\n")
    else:
        sys.stdout.write(report(estimates, bar=_printable(_BAR)))
    return 0


def _chosen(options: argparse.Namespace) -> list[SagaDescription]:
    try:
        sagas = sagas_of(options.assembly)
    except ValueError as error:
        raise CommandError(str(error)) from None
    if not sagas:
        raise CommandError(f"{options.assembly} describes no saga; synthesize an app that has a SagaStateMachine")
    if options.saga is None:
        return sagas
    chosen = [saga for saga in sagas if is_named(saga.name, options.saga)]
    if not chosen:
        names = ", ".join(saga.name for saga in sagas)
        raise CommandError(f"{options.assembly} has no saga {options.saga!r}; it has {names}")
    return chosen


def _check_names(options: argparse.Namespace, sagas: Sequence[SagaDescription]) -> None:
    """Refuse names that no saga has; one that only some have is meant for those."""
    known = {name for saga in sagas for name in _names(saga)}
    named = [*(step for step, _ in (*options.duration, *options.writes) if step), *options.skip]
    for name in named:
        if name not in known:
            raise CommandError(f"no saga has a step {name!r}; the steps are {', '.join(sorted(known))}")


def _names(saga: SagaDescription) -> set[str]:
    return {step.name for step in (*saga.steps, *saga.leaves)}


def _inputs(options: argparse.Namespace, saga: SagaDescription) -> Assumptions:
    names = [*(name for _, name, _ in _COUNTS), "retries"]
    fields = {name: value for name in names if (value := getattr(options, name)) is not None}
    durations, writes = dict(options.duration), dict(options.writes)
    # Without a step's name it is meant for all of them, external ones included.
    if (everywhere := durations.pop("", None)) is not None:
        fields |= {"duration_ms": everywhere, "external_ms": everywhere}
    if (everywhere := writes.pop("", None)) is not None:
        fields["items"] = everywhere
    steps = _names(saga)
    return Assumptions(
        **fields,
        durations={step: value for step, value in durations.items() if step in steps},
        items_of={step: value for step, value in writes.items() if step in steps},
        skip=frozenset(steps.intersection(options.skip)),
        api=not options.no_api and options.event is None,
        event=Source(options.event) if options.event is not None else None,
    )


def _printable(bar: str) -> str:
    """Characters of bars for a terminal that may only support ASCII."""
    try:
        bar.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "#"
    return bar
