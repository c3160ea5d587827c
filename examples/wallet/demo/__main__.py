"""``python -m examples.wallet.demo``: four faces and Stripe move money, each request once, whatever breaks."""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, Final

from constructs_lib.testing import Fault, LocalAws, Share
from constructs_lib.testing.fault_plan import Action, Moment
from constructs_lib.testing.invariants import Invariant, Item
from examples.funds_transfer.demo.screen import Progress, Style, Table, say
from examples.wallet.audit import audit_wallet
from examples.wallet.functions.wallet.keys import BALANCE, HISTORY

from .system import FUNCTIONS, STACK, WalletClients

CARDS: Final = tuple(f"card-{n}" for n in range(6))
SHOPS: Final = ("shop-1", "shop-2")
_ROOT: Final = Path(__file__).resolve().parents[3]
_SPEED: Final = 6.0
_COPIES: Final = 3
"""A request is sent so often under its key, at once."""
_FUNCTION_SECONDS: Final = 280
"""Emulated: a process starts slowly on a busy machine."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; the exit status is 0 if every invariant holds."""
    parser = argparse.ArgumentParser(prog="python -m examples.wallet.demo", description=__doc__)
    parser.add_argument("--requests", type=int, default=80, help="how many keys (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="repeats a run (default: %(default)s)")
    options = parser.parse_args(arguments)
    style = Style.of(sys.stdout)
    with tempfile.TemporaryDirectory(prefix="cdk-sagas-demo-") as folder:
        say("  synthesizing and deploying to local AWS")
        command = [sys.executable, "-m", "examples.wallet.demo.synthesize", folder]
        ended = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False, start_new_session=True)
        if ended.returncode:
            sys.exit(f"synthesizing failed:\n{ended.stderr}")
        with LocalAws(speed=_SPEED, concurrency=3) as aws:
            outputs = aws.deploy(folder)[STACK]
            for function in (*FUNCTIONS, f"{STACK}/Stripe/Function"):
                name = aws.resolve_function(function)
                aws.client("lambda").update_function_configuration(FunctionName=name, Timeout=_FUNCTION_SECONDS)
            run = Run(aws, WalletClients(aws, outputs), style, requests=options.requests, seed=options.seed)
            run.go()
            say(run.table())
    return 0 if run.holds else 1


class Run:
    """One run.

    Attributes:
        invariants: what was checked.
    """

    def __init__(self, aws: LocalAws, clients: WalletClients, style: Style, *, requests: int, seed: int) -> None:
        self._aws = aws
        self._clients = clients
        self._style = style
        self._random = random.Random(seed)
        self._requests = requests
        self._seconds = 0.0
        self._answers: dict[str, set[tuple[int, bytes | str]]] = {}
        self._operations: Counter[str] = Counter()
        self._fired = 0
        self.invariants: list[Invariant] = []

    @property
    def holds(self) -> bool:
        """True if every invariant holds, and each checked something."""
        return all(one.holds and one.checked for one in self.invariants)

    def go(self) -> None:
        """Open cards, send everything, and audit."""
        for uuid in (*CARDS, *SHOPS):
            self._clients.send("Admin", "cards", {"card": uuid}, key=f"open-{uuid}")
        for card in CARDS:
            self._clients.send("Terminal", "top-ups", {"card": card, "amount": 500}, key=f"first-{card}")
        for seed, (function, action, moment) in enumerate(product(FUNCTIONS, (Action.KILL, Action.DROP), Moment)):
            fault = Fault(
                function=function,
                call="dynamodb:TransactWriteItems",
                action=action,
                moment=moment,
                on=Share(0.02, seed=seed),
            )
            self._aws.faults.plan(fault)
        wishes = [self._wish(number) for number in range(self._requests)]
        progress = Progress(sys.stdout, self._style, len(wishes))
        begun = time.monotonic()
        with ThreadPoolExecutor(4) as slots, ThreadPoolExecutor(4 * _COPIES) as copies:
            for _ in slots.map(lambda wish: self._drive(wish, copies, progress), wishes):
                pass
        self._seconds = time.monotonic() - begun
        self._fired = self._aws.faults.report().fired
        self._aws.faults.clear()
        items = self._clients.items()
        self.invariants = [*audit_wallet(items), self._one_answer_per_key(), self._one_effect_per_key(items)]

    def _wish(self, number: int) -> tuple[str, str, dict[str, Any], str]:
        """Face, operation, body and key of a request."""
        draw, key = self._random, f"op-{number}"
        card, other = draw.sample(CARDS, 2)
        amount = draw.randint(1, 120)
        wishes: list[tuple[str, str, dict[str, Any]]] = [
            ("Terminal", "payments", {"card": card, "merchant": draw.choice(SHOPS), "amount": amount}),
            ("Customer", "payments", {"card": card, "merchant": draw.choice(SHOPS), "amount": amount}),
            ("Customer", "transfers", {"card": card, "to": other, "amount": amount, "unit": "ECOPAY"}),
            ("Terminal", "top-ups", {"card": card, "amount": amount}),
            ("Admin", "issues", {"card": card, "amount": amount, "unit": draw.choice(["POINT", "REGIONAL:kyoto"])}),
            ("Stripe", "payment_intent.succeeded", {"id": f"pi_{number}", "amount": amount, "card": card}),
        ]
        return (*draw.choice(wishes), key)

    def _drive(
        self, wish: tuple[str, str, dict[str, Any], str], copies: ThreadPoolExecutor, progress: Progress
    ) -> None:
        """Send a request several times at once; a payment that was made is refunded in part."""
        face, operation, body, key = wish
        answers = list(copies.map(lambda copy: self._once(face, operation, body, key, copy), range(_COPIES)))
        self._operations[f"{face}: {operation}"] += 1
        self._answers[key] = {(status, text) for status, text, _ in answers}
        result = answers[0][2]
        if operation == "payments" and "payment" in result and body["amount"] > 1:
            refund = {"card": body["card"], "merchant": body["merchant"], "payment": result["payment"], "amount": 1}
            self._clients.send("Merchant", "refunds", refund, key=f"{key}-refund")
        progress.heard(sum(self._clients.statuses.values()))
        progress.step()

    def _once(
        self, face: str, operation: str, body: dict[str, Any], key: str, copy: int
    ) -> tuple[int, bytes | str, dict[str, Any]]:
        if face == "Stripe":
            data = {"id": body["id"], "amount": body["amount"], "metadata": {"wallet_card": body["card"]}}
            return self._clients.event(operation, data, event_id=f"evt_{key}_{copy}"), "", {}
        answer = self._clients.send(face, operation, body, key=key)
        document = answer.json()
        return answer.status, answer.body, document.get("result") or {}

    def _one_answer_per_key(self) -> Invariant:
        several = [key for key, found in self._answers.items() if len(found) > 1]
        violations = tuple(f"{key} got several responses" for key in several)
        name = f"{_COPIES} copies of a request get one response"
        return Invariant(name=name, checked=len(self._answers), violations=violations)

    def _one_effect_per_key(self, items: Sequence[Item]) -> Invariant:
        types = [item["type"]["S"] for item in items]
        moved = {type_.split("#")[2] for type_ in types if type_.startswith(HISTORY)}
        completed = self._clients.completed
        differ = len(moved) != len(completed)
        violations = (f"{len(moved)} operations for {len(completed)} completed requests",) if differ else ()
        return Invariant(name="a completed request is one operation", checked=len(completed), violations=violations)

    def table(self) -> str:
        """The result as a table."""
        clients, style = self._clients, self._style
        table = Table(style)
        verdict = style.good("all hold") if self.holds else style.bad("an invariant is broken")
        table.line(style.bold("Every request moved money once, or not at all"), verdict)
        count = sum(clients.statuses.values())
        table.section("Requests", f"{count:,} in {self._seconds:.1f} s")
        times = sorted(clients.milliseconds)
        latency = f"latency   p50 {statistics.median(times):.0f} ms   max {times[-1]:.0f} ms"
        table.line(latency, f"{clients.replays:,} replays")
        table.line("crashes and lost responses", f"{self._fired} kinds of {len(FUNCTIONS) * 4} struck")
        for status, number in sorted(clients.statuses.items()):
            table.bar(status, number, max(clients.statuses.values()), alarming=status == "none")
        table.section("Operations", "keys")
        for name, number in sorted(self._operations.items()):
            table.bar(name, number, max(self._operations.values()))
        table.section("Balances", "minor units")
        sums: Counter[str] = Counter()
        for item in clients.items():
            type_ = item["type"]["S"]
            if type_.startswith(BALANCE):
                owner = "merchants" if item["uuid"]["S"] in SHOPS else "cards"
                sums[f"{owner}, {type_.removeprefix(BALANCE).replace('#', ':')}"] += int(item["balance"]["N"])
        for name, total in sorted(sums.items()):
            table.line(name, f"{total:,}")
        table.section("Invariants", "checked")
        for one in self.invariants:
            mark = style.good(style.tick) if one.holds and one.checked else style.bad(style.cross)
            table.line(f"{mark} {one.name}", f"{one.checked:,}")
            for violation in one.violations[:5]:
                table.line(f"  {violation}")
        return table.text()


if __name__ == "__main__":
    sys.exit(main())
