"""``python -m examples.funds_transfer.demo``: money moves once, over HTTP, whatever breaks."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from constructs_lib.testing import LocalAws
from constructs_lib.testing.invariants import read_table
from saga_runtime.idempotency.identity import scope_of

from .accounts import LEDGERS, MAIN, open_accounts
from .checks import check
from .client import Clients, GaveUpError
from .closing import Closing
from .evidence import Evidence
from .notices import drain
from .patience import give_time
from .plan import USERS, Plan, make_plan
from .report import Report, render
from .screen import Progress, Style, say
from .trouble import FUNCTIONS

SPEED: Final = 6.0
"""Local AWS runs faster than real time: what is reconciled after a minute is reconciled after ten seconds."""
_SLOTS: Final = 8
_SANDBOXES: Final = 3
"""Of each function: more would only wait for a processor."""
_COPIES: Final = 4
_ROOT: Final = Path(__file__).resolve().parents[3]
_REPORT: Final = Path("build/demo-report.json")

T = TypeVar("T")

Outputs = Mapping[str, str]


def main(arguments: Sequence[str] | None = None, *, meddle: Callable[[LocalAws, Outputs], None] | None = None) -> int:
    """Run the demo.

    Args:
        arguments: Command line arguments; those of the process by default.
        meddle: Called between the last answer and the audit: what a test breaks there must be noticed.

    Returns:
        Exit status: 0 if every invariant holds.
    """
    options = _parse(arguments)
    style = Style.of(sys.stdout)
    plan = make_plan(transfers=options.transfers, seed=options.seed)
    with tempfile.TemporaryDirectory(prefix="cdk-sagas-demo-") as folder:
        _step(style, "synthesizing", lambda: _synthesize(folder))
        with LocalAws(speed=options.speed, concurrency=_SANDBOXES) as aws:
            outputs = _step(style, "deploying to local AWS", lambda: aws.deploy(folder)["FundsTransfer"])
            _step(style, f"opening {len(plan.accounts)} accounts", lambda: open_accounts(aws, outputs, plan.accounts))
            give_time(aws, outputs, FUNCTIONS)
            report = run(aws, outputs, plan, speed=options.speed, style=style, meddle=meddle)
    say(render(report, style))
    options.report.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text(json.dumps(report.to_json(), indent=2) + "\n", encoding="utf-8")
    say(f"report: {options.report}")
    say("more: make demo-wallet (answers at once), make demo-migration (a table is split), make gallery (all)")
    return 0 if report.holds else 1


def run(
    aws: LocalAws,
    outputs: Outputs,
    plan: Plan,
    *,
    speed: float,
    style: Style,
    meddle: Callable[[LocalAws, Outputs], None] | None = None,
) -> Report:
    """Send everything that a plan holds, wait until all is settled, and check what must hold.

    Args:
        aws: Local AWS with the stack deployed and the accounts open.
        outputs: The stack's outputs.
        plan: What to send.
        speed: How many times faster than real time local AWS runs.
        style: How progress is shown.
        meddle: Called between the last answer and the audit.
    """
    users = {name: aws.create_api_user(name, api_id=outputs["ApiId"]) for name in USERS}
    scopes = {name: _scope_of(aws, name) for name in USERS}
    progress = Progress(sys.stdout, style, len(plan.transfers) + len(plan.nonsense))
    url = f"{aws.api_url(outputs['ApiId'], outputs['ApiStage'])}/transfers"
    clients = Clients(users, url, speed=speed, heard=progress.heard)
    faults = plan.faults(scopes)
    aws.faults.plan(*(fault for _, fault in faults))
    copies = sum(transfer.copies for transfer in plan.transfers)
    say(f"  sending {len(plan.transfers)} transfers, {copies} copies in all, {len(faults)} faults planned")
    closing = [transfer.source for transfer in plan.transfers if transfer.closed_meanwhile]
    started = time.monotonic()
    with Closing(aws, table=outputs[LEDGERS[MAIN]], accounts=closing):
        _drive(clients, plan, progress)
    seconds = time.monotonic() - started
    if meddle is not None:
        meddle(aws, outputs)
    dynamodb = aws.client("dynamodb")
    evidence = Evidence(
        plan=plan,
        exchanges=clients.exchanges,
        records=read_table(dynamodb, outputs["RequestTableName"]),
        rows=read_table(dynamodb, outputs["LogTableName"]),
        ledgers={name: read_table(dynamodb, outputs[table]) for name, table in LEDGERS.items()},
        notices=drain(aws, outputs["NoticeQueueUrl"]),
        troubles=[trouble for trouble, _ in faults],
        faults=aws.faults.report(),
    )
    return Report(evidence=evidence, invariants=check(evidence), seconds=seconds)


def _drive(clients: Clients, plan: Plan, progress: Progress) -> None:
    long = [transfer for transfer in plan.transfers if transfer.takes_long]
    short = [transfer for transfer in plan.transfers if not transfer.takes_long]
    # A client that only waits takes no slot.
    waiting = ThreadPoolExecutor(len(long) or 1)
    slots = ThreadPoolExecutor(_SLOTS)
    with waiting, slots, ThreadPoolExecutor((_SLOTS + len(long)) * _COPIES) as pool:

        def one(work: Callable[[], None]) -> None:
            try:
                work()
            except GaveUpError as error:
                if not clients.stopped:
                    say(f"  {error}")
            progress.step()

        futures = [waiting.submit(one, partial(clients.drive, transfer, pool)) for transfer in long]
        futures += [slots.submit(one, partial(clients.drive, transfer, pool)) for transfer in short]
        futures += [slots.submit(one, partial(clients.turn_away, nonsense)) for nonsense in plan.nonsense]
        try:
            for future in futures:
                future.result()
        except BaseException:
            # Ctrl-C above all: what waits is not begun, and who repeats a request gives up.
            slots.shutdown(wait=False, cancel_futures=True)
            clients.stop()
            raise


def _scope_of(aws: LocalAws, user: str) -> str:
    """The scope of a user's requests: from it and a key follows the id that a request will have."""
    return scope_of("transfers", ("iam", aws.account, aws.client("iam").get_user(UserName=user)["User"]["UserId"]))


def _synthesize(folder: str) -> None:
    """Synthesize the example's stack in a process of its own: the CDK's Node process is gone when it is done."""
    command = [sys.executable, "-m", "examples.funds_transfer.demo.synthesize", folder]
    ended = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False, start_new_session=True)
    if ended.returncode:
        sys.exit(f"synthesizing failed:\n{ended.stderr}")


def _step(style: Style, name: str, work: Callable[[], T]) -> T:
    started = time.monotonic()
    result = work()
    say(f"  {style.good(style.tick)} {name} {style.dim(f'{time.monotonic() - started:.1f} s')}")
    return result


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.funds_transfer.demo", description=__doc__)
    parser.add_argument("--transfers", type=int, default=200, help="how many keys (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="the same seed sends the same (default: %(default)s)")
    parser.add_argument("--speed", type=float, default=SPEED, help="of local AWS's time (default: %(default)s)")
    parser.add_argument("--report", type=Path, default=_REPORT, help="where to (default: %(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    # SIGTERM is handled like Ctrl-C: nothing is left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("\n  interrupted; local AWS is gone again")
        sys.exit(130)
