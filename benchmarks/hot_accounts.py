"""Payments to one merchant, 30 to 300 a second: an account, and collecting accounts of 1 to 64 shards.

The writes are those of the ledger's builder, the conditions are evaluated, the pauses are those of the runtime. What is
simulated is time and DynamoDB: a call takes 6 or 15 ms; a transaction holds its items for half of its call, or for all
of it (AWS's behaviour is not published; it lies in between, or this assumption is wrong); a call that meets a held item
is cancelled with TransactionConflict. Payments arrive as a Poisson process, each from a payer of its own.

    python -m benchmarks.hot_accounts
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, Final

from benchmarks.expressions import holds, updated
from benchmarks.report import write_report
from saga_runtime import Account, Clearing, CollectingAccounts, LedgerBuilder, LedgerTerms, Money, Write
from saga_runtime.errors import SagaError
from saga_runtime.ledger.items import Item, Leg
from saga_runtime.shared.backoff import Backoff

RATES: Final = (30, 60, 100, 300)
LATENCIES: Final = (6, 15)
SHARES: Final = (0.5, 1.0)
WAYS: Final = (0, 1, 4, 16, 32, 64)
"""Shards; 0: no collecting account."""
LOST: Final = (0.1, 1.0, 10.0)
NOW_MS: Final = 1_700_000_000_000
MERCHANT: Final = "merchant:7"
PRICE: Final = Money(100, "JPY")
FEE: Final = Money(3, "JPY")
BACKOFF: Final = Backoff()
Process = Generator[float, None, Any]
"""Yields the milliseconds that it waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Outcome of the payments of one run.

    Attributes:
        shards: shards of the collecting account; 0: none.
        latency_ms: how long a call takes.
        share: share of its call for which a transaction holds its items.
        rate: payments per second.
        payments: how many there were.
        transactions: transactions per payment.
        lost: percent of the payments that used up all tries.
        p50_ms: half of the payments had succeeded, or failed after all tries, after this.
        p99_ms: 99 percent.
        collected: what account and shards hold in the end, in payments.
    """

    shards: int
    latency_ms: int
    share: float
    rate: int
    payments: int
    transactions: float
    lost: float
    p50_ms: float
    p99_ms: float
    collected: int


class Simulation:
    """One run: a table, the items that transactions hold, and everything that waits."""

    def __init__(self, *, shards: int, latency_ms: int, share: float, seed: int = 1) -> None:
        collecting = (CollectingAccounts(prefix="merchant:", unit="JPY", shards=shards),) if shards else ()
        self.builder = LedgerBuilder(table="ledger", terms=LedgerTerms(collecting=collecting))
        self.draw = random.Random(seed)
        self.latency_ms, self.share, self.collects = float(latency_ms), share, shards > 0
        self.now = 0.0
        self.items: dict[str, Item] = {}
        self.held_until: dict[str, float] = defaultdict(float)
        self.sent = self.lost = 0
        self.took: list[float] = []
        opening = self.builder.open_account(account_id=MERCHANT, opening=Money(0, "JPY"), now_ms=NOW_MS)
        for write in opening:
            self._apply(write.action)

    def run(self, *, rate: int, seconds: int) -> int:
        """Let payments come for so long, and end when the last is through; how many there were."""
        waiting: list[tuple[float, int, Process]] = []
        numbers, moment, payments = count(), 0.0, 0
        while (moment := moment + self.draw.expovariate(rate / 1_000)) < seconds * 1_000:
            heapq.heappush(waiting, (moment, next(numbers), self._payment(f"p-{payments}")))
            payments += 1
        while waiting:
            self.now, _, process = heapq.heappop(waiting)
            for wait in process:
                heapq.heappush(waiting, (self.now + wait, next(numbers), process))
                break
        return payments

    @property
    def collected(self) -> int:
        """Sum of account and shards."""
        return sum(int(item["balance"]["N"]) for item in self.items.values() if "balance" in item)

    def _payment(self, entry_id: str) -> Process:
        began = self.now
        for failures in range(1, BACKOFF.attempts + 1):
            accounts = []
            if not self.collects:
                accounts.append((yield from self._read()))
            legs: list[Leg] = [(Clearing("cards"), -PRICE), (MERCHANT, PRICE - FEE), (Clearing("fees"), FEE)]
            writes = self.builder.post(legs=legs, accounts=accounts, entry_id=entry_id, now_ms=NOW_MS)
            if (yield from self._transact(writes)):
                break
            if failures < BACKOFF.attempts:
                yield BACKOFF.delay_ms(failures, self.draw.random())
        else:
            self.lost += 1
        self.took.append(self.now - began)

    def _read(self) -> Generator[float, None, Account]:
        yield self.latency_ms / 2
        found = Account.from_item(MERCHANT, self.items[f"account#{MERCHANT}"])
        yield self.latency_ms / 2
        return found

    def _transact(self, writes: Sequence[Write]) -> Generator[float, None, bool]:
        """A transaction: there, its items held, and back. False: cancelled."""
        self.sent += 1
        held = self.share * self.latency_ms
        way = (self.latency_ms - held) / 2
        yield way
        updates = [write for write in writes if "Update" in write.action]
        keys = [str(write.action["Update"]["Key"]["pk"]["S"]) for write in updates]
        cancelled = any(self.held_until[key] > self.now for key in keys) or any(map(self._refused, updates))
        if not cancelled:
            for key in keys:
                self.held_until[key] = self.now + held
            yield held
            for write in updates:
                self._apply(write.action)
        yield way
        return not cancelled

    def _refused(self, write: Write) -> SagaError | None:
        update = write.action["Update"]
        item = self.items.get(update["Key"]["pk"]["S"])
        names, values = update["ExpressionAttributeNames"], update["ExpressionAttributeValues"]
        if holds(update["ConditionExpression"], item, names, values) or write.refusal is None:
            return None
        return write.refusal(item)

    def _apply(self, action: Mapping[str, Any]) -> None:
        if "Put" in action:
            self.items[action["Put"]["Item"]["pk"]["S"]] = action["Put"]["Item"]
            return
        update = action["Update"]
        key = str(update["Key"]["pk"]["S"])
        names, values = update["ExpressionAttributeNames"], update["ExpressionAttributeValues"]
        self.items[key] = updated(update["UpdateExpression"], self.items.get(key) or update["Key"], names, values)


def measured(*, shards: int, latency_ms: int, share: float, rate: int, seconds: int) -> Result:
    """Run one simulation."""
    simulation = Simulation(shards=shards, latency_ms=latency_ms, share=share)
    payments = simulation.run(rate=rate, seconds=seconds)
    took = sorted(simulation.took)
    return Result(
        shards=shards,
        latency_ms=latency_ms,
        share=share,
        rate=rate,
        payments=payments,
        transactions=round(simulation.sent / payments, 2),
        lost=round(100 * simulation.lost / payments, 2),
        p50_ms=round(took[len(took) // 2]),
        p99_ms=round(took[int(len(took) * 0.99)]),
        collected=simulation.collected // (PRICE - FEE).minor_units,
    )


def runs_out_at(*, latency_ms: int, share: float, lost: float, seconds: int) -> int:
    """First rate at which more than this percentage of the payments to one account use up all tries."""
    rate = 5
    while measured(shards=0, latency_ms=latency_ms, share=share, rate=rate, seconds=seconds).lost < lost:
        rate = int(rate * 1.15) + 1
    return rate


def _line(results: Sequence[Result]) -> str:
    """A row of the table: both shares in each cell."""
    cells = []
    for rate in RATES:
        half, whole = (next(r for r in results if r.rate == rate and r.share == share) for share in SHARES)
        cells.append(f"{half.transactions:.2f} to {whole.transactions:.2f}, {half.lost:g} to {whole.lost:g} %")
    shards = results[0].shards
    way = f"{shards} shard{'s' if shards > 1 else ''}" if shards else "an account"
    return f"| {way} | {results[0].latency_ms} | {' | '.join(cells)} |\n"


def main() -> None:
    """Run everything, and print the table of docs/benchmarks.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="simulated seconds of each run")
    seconds = parser.parse_args().seconds
    results: list[Result] = []
    out = sys.stdout.write
    out("transactions per payment, and payments that used up all tries: half of the call to all of it\n")
    out(f"| credited | ms | {' | '.join(f'{rate}/s' for rate in RATES)} |\n")
    for latency in LATENCIES:
        for shards in WAYS:
            row = [
                measured(shards=shards, latency_ms=latency, share=share, rate=rate, seconds=seconds)
                for share in SHARES
                for rate in RATES
            ]
            results += row
            out(_line(row))
            sys.stdout.flush()
    limits = {
        f"{latency} ms, {share:g} of the call": [
            runs_out_at(latency_ms=latency, share=share, lost=lost, seconds=seconds) for lost in LOST
        ]
        for latency in LATENCIES
        for share in SHARES
    }
    for name, rates in limits.items():
        out(f"one account, {name}: {' / '.join(map(str, rates))} a second until 0.1 / 1 / 10 % use up all tries\n")
    write_report("hot_accounts", {"results": [asdict(result) for result in results], "runs_out_at": limits})


if __name__ == "__main__":
    main()
