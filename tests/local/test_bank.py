"""A bank under load: sixteen clients, ten accounts, two ledgers, faults in five of a hundred calls, and a reader.

At every read, with sagas in flight, the balances of the accounts plus the amounts in transit between the ledgers equal
the initial total; accounts and clearing entries of each ledger sum to zero. Responses must agree with the ledgers.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from constructs_lib.testing import Fault, FaultReport, HttpResponse, Share, StopAt
from constructs_lib.testing.invariants import Item, assert_all_hold, read_table
from saga_runtime import account_key
from saga_runtime.idempotency.identity import is_saga_id
from saga_runtime.protocol import LedgerAttribute, RecordAttribute

from .transfer_system import is_settled, transfer
from .two_ledgers import FORWARD, MAIN, PARTNER, TwoLedgers, deployed

pytestmark = pytest.mark.proof

SPEED = 4.0
FUNCTION_SECONDS = 60
EMULATED_SECONDS = 60.0
ENDS_WITHIN_SECONDS = 300.0
CLIENTS = 16
ENOUGH = 4 * CLIENTS
"""Minimum number of transfers for a busy minute: a slow machine takes longer for them."""
MOST_RECOVERIES = 5
"""Of one transfer: an execution that goes forward again may be stopped again."""
OPENING = 1000
SEED = int(os.environ.get("BANK_SEED", "20261120"))

ACCOUNTS: Final = {MAIN: [f"m{n}" for n in range(5)], PARTNER: [f"p{n}" for n in range(5)]}
CAPS: Final = {"p4": 1200}
"""One account soon is full: transfers to it are refunded."""

FAULTS: Final = (
    # Of the calls of functions, five in a hundred; of a state machine's own, two.
    *(("*", "kill", moment, 0.003) for moment in ("before", "after")),
    *(("*", "drop", moment, 0.015) for moment in ("before", "after")),
    ("*", "throttle", "before", 0.007),
    ("*", "error", "after", 0.007),
    *(("states:*", "error", moment, 0.01) for moment in ("before", "after")),
)
STOPPED: Final = 0.05
"""Share of the executions that are stopped behind each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One transfer that a client wants."""

    key: str
    source: str
    target: str
    amount: int

    @property
    def crosses(self) -> bool:
        """True if the transfer goes to the partner's ledger."""
        return self.target.startswith("p")

    @property
    def body(self) -> dict[str, object]:
        """The request's body."""
        return transfer(self.source, self.target, self.amount, to_ledger=PARTNER if self.crosses else MAIN)


@dataclass(slots=True, kw_only=True)
class Told:
    """Final response of a client, and its time."""

    wanted: Wanted
    answer: HttpResponse
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All accounts at one moment: balance and sequence number by account."""

    began: float
    accounts: Mapping[str, tuple[int, int]]


@dataclass(kw_only=True)
class Bank:
    """Records of one run."""

    system: TwoLedgers
    told: list[Told] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    faults: FaultReport | None = None
    recoveries: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    ledgers: dict[str, list[Item]] = field(default_factory=dict)

    def entries(self, ledger: str) -> list[Item]:
        """Every entry of a ledger."""
        return [item for item in self.ledgers[ledger] if LedgerAttribute.AMOUNT in item]


def wishes(client: int) -> Iterator[Wanted]:
    """Transfers that one client requests in sequence; the same in every run of a seed."""
    chance = random.Random(f"{SEED}/{client}")
    for number in range(10_000):
        source = chance.choice(ACCOUNTS[MAIN])
        crosses = chance.random() < 0.6
        targets = ACCOUNTS[PARTNER] if crosses else [name for name in ACCOUNTS[MAIN] if name != source]
        yield Wanted(
            key=f"c{client:02d}-{number:04d}",
            source=source,
            target=chance.choice(targets),
            # Now and then more than an account holds.
            amount=chance.choice((10, 25, 50, 100, 700)),
        )


def snapshot(system: TwoLedgers) -> Snapshot:
    """Read all ten accounts in one transaction."""
    a = LedgerAttribute
    began = time.monotonic()
    names = [(ledger, name) for ledger, names in ACCOUNTS.items() for name in names]
    gets: list[Any] = [
        {"Get": {"TableName": system.ledger_table(ledger), "Key": account_key(name)}} for ledger, name in names
    ]
    found = system.aws.client("dynamodb").transact_get_items(TransactItems=gets)["Responses"]
    items = zip((name for _, name in names), (answer["Item"] for answer in found), strict=True)
    return Snapshot(
        began=began,
        accounts={name: (int(item[a.BALANCE]["N"]), int(item[a.SEQUENCE]["N"])) for name, item in items},
    )


@pytest.fixture(scope="module")
def bank() -> Iterator[Bank]:
    """The bank after its minute."""
    with deployed(speed=SPEED, seconds=FUNCTION_SECONDS, reconciled=True) as (system, _):
        for ledger, names in ACCOUNTS.items():
            for name in names:
                system.add_account(ledger, name, OPENING, cap=CAPS.get(name))
        yield _minute(Bank(system=system))


def _minute(bank: Bank) -> Bank:
    system = bank.system
    system.aws.faults.plan(
        *(
            Fault(function=function, call="*", action=action, moment=moment, on=Share(share, SEED + number))  # type: ignore[arg-type]  # the literals of a table
            for number, (function, action, moment, share) in enumerate(FAULTS)
        )
    )
    # Some executions are interrupted: the reconciler recovers them.
    system.aws.faults.plan(
        *(
            StopAt(machine=FORWARD, state=state, moment="after", on=Share(STOPPED, SEED + number))
            for number, state in enumerate(("Debit", "Credit", "Transfer"))
        )
    )
    started = time.monotonic()
    over, closed = threading.Event(), threading.Event()
    told: list[Told] = []

    def client(number: int) -> None:
        for wanted in wishes(number):
            if over.is_set():
                return
            answer = _ask_until_settled(system, wanted, started + EMULATED_SECONDS / SPEED + ENDS_WITHIN_SECONDS)
            told.append(Told(wanted=wanted, answer=answer, at=time.monotonic()))

    def read() -> None:
        while not closed.is_set():
            bank.snapshots.append(snapshot(system))
            closed.wait(0.1)

    with ThreadPoolExecutor(CLIENTS + 1) as pool:
        clients = [pool.submit(client, number) for number in range(CLIENTS)]
        reading = pool.submit(read)
        over.wait(EMULATED_SECONDS / SPEED)
        while len(told) < ENOUGH and not any(future.done() for future in clients):
            over.wait(0.1)
        over.set()
        try:
            for future in clients:
                future.result()
        finally:
            closed.set()
        reading.result()
    bank.snapshots.append(snapshot(system))
    bank.told = told
    bank.faults = system.aws.faults.report()
    bank.recoveries = system.recoveries()
    bank.seconds = time.monotonic() - started
    bank.ledgers = {name: read_table(system.aws.client("dynamodb"), system.ledger_table(name)) for name in ACCOUNTS}
    return bank


def _ask_until_settled(system: TwoLedgers, wanted: Wanted, deadline: float) -> HttpResponse:
    """Repeat a request under its key, as a client does that was promised nothing."""
    while time.monotonic() < deadline:
        answer = system.try_post(wanted.key, wanted.body)
        if answer is not None and is_settled(answer):
            return answer
        time.sleep(0.2)
    raise AssertionError(f"{wanted} was not settled")


def _seen(bank: Bank, shot: Snapshot) -> dict[str, list[Item]]:
    """The entries that a snapshot's balances are made of: those of its accounts up to their sequence numbers."""
    a = LedgerAttribute
    seen: dict[str, list[Item]] = {}
    for ledger in ACCOUNTS:
        seen[ledger] = []
        for entry in bank.entries(ledger):
            kind, _, account = entry[a.PK]["S"].partition("#")
            if kind == "account" and int(entry[a.SEQUENCE]["N"]) <= shot.accounts[account][1]:
                seen[ledger].append(entry)
    return seen


def _steps(entries: Sequence[Item]) -> dict[str, set[str]]:
    """Postings by saga: `Debit`, `Debit#undo`, `Credit`, `Transfer`."""
    postings: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        saga_id, _, step = entry[LedgerAttribute.ENTRY_ID]["S"].partition("#")
        if is_saga_id(saga_id):
            postings[saga_id].add(step)
    return postings


def _in_flight(bank: Bank, seen: Mapping[str, Sequence[Item]]) -> int:
    """Amount debited by a snapshot's transfers between the ledgers, and neither credited nor compensated."""
    a = LedgerAttribute
    debited: Counter[str] = Counter()
    for entry in seen[MAIN]:
        saga_id, _, step = entry[a.ENTRY_ID]["S"].partition("#")
        if step in {"Debit", "Debit#undo"} and is_saga_id(saga_id):
            debited[saga_id] -= int(entry[a.AMOUNT]["N"])
    credited = {saga_id for saga_id, steps in _steps(seen[PARTNER]).items() if "Credit" in steps}
    return sum(amount for saga_id, amount in debited.items() if saga_id not in credited)


class TestTheBank:
    def test_was_busy_and_in_trouble(self, bank: Bank, capsys: pytest.CaptureFixture[str]) -> None:
        assert bank.faults is not None
        statuses = Counter(told.answer.status for told in bank.told)
        with capsys.disabled():
            print(f"\nseed {SEED} (BANK_SEED): {len(bank.told)} transfers {dict(sorted(statuses.items()))}", end="")
            print(f", {bank.faults.firings} faults, {bank.recoveries.total()} recoveries", end="")
            print(f", {len(bank.snapshots)} reads, {bank.seconds:.0f} s ", end="")

        assert len(bank.told) >= ENOUGH
        assert max(bank.recoveries.values(), default=0) <= MOST_RECOVERIES
        assert {200, 402} <= statuses.keys()
        assert bank.faults.firings > CLIENTS
        assert len(bank.snapshots) > CLIENTS

    def test_holds_the_same_at_every_read(self, bank: Bank) -> None:
        total = OPENING * sum(map(len, ACCOUNTS.values()))
        held = []
        for shot in bank.snapshots:
            flying = _in_flight(bank, _seen(bank, shot))
            assert flying >= 0
            held.append(sum(balance for balance, _ in shot.accounts.values()) + flying)

        assert set(held) == {total}

    def test_has_ledgers_that_sum_to_zero_at_every_read(self, bank: Bank) -> None:
        """Accounts and clearing: an entry of clearing belongs to a read if its account's entry does."""
        a = LedgerAttribute
        counterparts = {
            ledger: {
                entry[a.ENTRY_ID]["S"]: int(entry[a.AMOUNT]["N"])
                for entry in bank.entries(ledger)
                if entry[a.PK]["S"].startswith("clearing#")
            }
            for ledger in ACCOUNTS
        }
        for shot in bank.snapshots:
            for ledger, entries in _seen(bank, shot).items():
                ids = {entry[a.ENTRY_ID]["S"] for entry in entries}
                accounts = sum(shot.accounts[name][0] for name in ACCOUNTS[ledger])
                assert accounts + sum(counterparts[ledger].get(id_, 0) for id_ in ids) == 0

    def test_never_reads_a_negative_or_overfull_account(self, bank: Bank) -> None:
        for shot in bank.snapshots:
            assert all(0 <= balance <= CAPS.get(name, 10**9) for name, (balance, _) in shot.accounts.items())

    def test_applied_what_each_client_was_answered_and_nothing_else(self, bank: Bank) -> None:
        a = LedgerAttribute
        postings = _steps([entry for ledger in ACCOUNTS for entry in bank.entries(ledger)])
        amounts = {
            (entry[a.PK]["S"].partition("#")[2], entry[a.ENTRY_ID]["S"]): int(entry[a.AMOUNT]["N"])
            for ledger in ACCOUNTS
            for entry in bank.entries(ledger)
            if entry[a.PK]["S"].startswith("account#")
        }
        for told in bank.told:
            wanted, saga_id = told.wanted, told.answer.json()["saga_id"]
            steps = postings.pop(saga_id, set())
            if told.answer.status != 200:
                assert steps in (set(), {"Debit", "Debit#undo"}), (wanted, told.answer.text)
                continue
            out, into = ("Debit", "Credit") if wanted.crosses else ("Transfer", "Transfer")
            assert steps == {out, into}, (wanted, told.answer.text)
            assert amounts[wanted.source, f"{saga_id}#{out}"] == -wanted.amount
            assert amounts[wanted.target, f"{saga_id}#{into}"] == wanted.amount

        assert not postings, "money moved without a response"

    def test_shows_the_responses_effects_to_later_readers(self, bank: Bank) -> None:
        done = sorted((t for t in bank.told if t.answer.status == 200), key=lambda told: told.at)
        for shot in bank.snapshots:
            postings = _steps([entry for entries in _seen(bank, shot).values() for entry in entries])
            for told in done:
                if told.at >= shot.began:
                    break
                assert postings[told.answer.json()["saga_id"]] >= (
                    {"Debit", "Credit"} if told.wanted.crosses else {"Transfer"}
                )

    def test_refuses_only_for_a_reason(self, bank: Bank) -> None:
        reasons = Counter((t.answer.status, t.answer.json()["error"]) for t in bank.told if t.answer.status != 200)

        # The last two: steps that broke five times, and sagas that were interrupted before they knew why.
        allowed = {(402, "InsufficientFunds"), (422, "CapExceeded"), (500, "StepFailed"), (500, "SagaInterrupted")}
        assert set(reasons) <= allowed

    def test_leaves_nothing_in_progress(self, bank: Bank) -> None:
        records = bank.system.records()

        assert len(records) == len(bank.told)
        assert not [record for record in records if RecordAttribute.DUE_AT in record]
        assert_all_hold(bank.system.audit())

    def test_has_the_mirrored_clearing_balance_of_its_partner(self, bank: Bank) -> None:
        crossed = sum(t.wanted.amount for t in bank.told if t.answer.status == 200 and t.wanted.crosses)

        assert bank.system.clearing(MAIN, "partner-clearing") == crossed
        assert bank.system.clearing(PARTNER, "main-clearing") == -crossed
