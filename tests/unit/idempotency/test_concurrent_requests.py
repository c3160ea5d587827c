"""Many at once: duplicates of one key, transfers between the same accounts, a step against its own compensation."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from handlers import gatekeeper
from saga_runtime.idempotency.identity import request_id_of, saga_id_of
from tests.unit.support.samples import NOW_MS, SAGA_ID, SCOPE, post
from tests.unit.support.transfers import run, settle_by, undo
from tests.unit.support.world import World

DUPLICATES = 50
THREADS = 16
TRANSFERS_PER_THREAD = 2
ACCOUNTS = ("a", "b", "c", "d", "e")
OPENING = 100


def at_once(actions: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run all of them, each in its own thread."""
    with ThreadPoolExecutor(max_workers=len(actions)) as pool:
        return [future.result() for future in [pool.submit(action) for action in actions]]


def _status(body: dict[str, Any]) -> int:
    return int(gatekeeper.handler(post(body), None)["statusCode"])


def test_of_fifty_duplicates_of_one_key_exactly_one_reserves_and_starts(world: World) -> None:
    gatekeeper.settings()
    world.clock.tick = 1

    answers = at_once([lambda: gatekeeper.handler(post(), None)["statusCode"]] * DUPLICATES)

    assert Counter(answers) == {202: 1, 409: DUPLICATES - 1}
    assert len(world.items("requests")) == 1
    assert len(world.executions.by_name) == 1
    assert world.wire.sent.count("StartExecution") == 1


def test_duplicates_within_one_millisecond_share_one_saga(world: World) -> None:
    answers = at_once([lambda: gatekeeper.handler(post(), None)["statusCode"]] * 8)

    assert set(answers) == {202}
    assert len(world.items("requests")) == 1
    assert len(world.executions.by_name) == 1


def test_of_two_bodies_under_one_key_at_once_exactly_one_is_taken(world: World) -> None:
    world.clock.tick = 1
    bodies = [{"amount": index % 2} for index in range(20)]

    answers = at_once([partial(_status, body) for body in bodies])

    assert Counter(answers) == {202: 1, 409: 9, 422: 10}


def test_sixteen_threads_of_transfers_among_five_accounts_lose_nothing(world: World) -> None:
    world.open_accounts(**dict.fromkeys(ACCOUNTS, OPENING))
    plans = [_random_transfers(thread) for thread in range(THREADS)]

    def work(plan: list[tuple[str, dict[str, Any]]]) -> int:
        # Each twice: the second is a duplicate delivery. What was refused first may be possible then.
        outcomes = [[settle_by(run, saga_id, body) for _ in range(2)] for saga_id, body in plan]
        return sum(isinstance(second, dict) for _, second in outcomes)

    done = sum(at_once([partial(work, plan) for plan in plans]))

    assert sum(world.balances().values()) == OPENING * len(ACCOUNTS)
    assert min(world.balances().values()) >= 0
    assert list(world.rows().values()) == ["DONE"] * done
    _check_entries(world, transfers=done)


def _random_transfers(thread: int) -> list[tuple[str, dict[str, Any]]]:
    rng = random.Random(thread)
    planned = []
    for number in range(TRANSFERS_PER_THREAD):
        source, target = rng.sample(ACCOUNTS, 2)
        saga_id = saga_id_of(request_id_of(SCOPE, f"{thread}-{number}"), NOW_MS, "requests")
        body = {"from": source, "to": target, "amount": rng.randint(1, 80), "currency": "EUR"}
        planned.append((saga_id, body))
    return planned


def _check_entries(world: World, *, transfers: int) -> None:
    """Entries net to zero per posting, and lead each account without a gap to its balance."""
    by_posting: dict[str, list[int]] = defaultdict(list)
    by_account: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    for entry in world.entries():
        amount = int(entry["amount"]["N"])
        by_posting[entry["entry_id"]["S"]].append(amount)
        if "sequence" in entry:
            account = entry["pk"]["S"].partition("#")[2]
            by_account[account][int(entry["sequence"]["N"])] = amount, int(entry["balance_after"]["N"])
    assert all(len(amounts) == 2 and sum(amounts) == 0 for amounts in by_posting.values())
    assert len(by_posting) == transfers + len(ACCOUNTS)
    for account, entries in by_account.items():
        balance = 0
        assert sorted(entries) == list(range(1, len(entries) + 1))
        for _, (amount, after) in sorted(entries.items()):
            balance += amount
            assert balance == after
        assert world.balances()[account] == balance


@pytest.mark.parametrize("seed", range(6))
def test_a_step_against_its_compensation_ends_with_nothing_moved(world: World, seed: int) -> None:
    world.open_accounts(alice=500, bob=0)
    actions: list[Callable[[], Any]] = [lambda: settle_by(run), lambda: settle_by(undo)] * 3
    random.Random(seed).shuffle(actions)

    at_once(actions)

    assert world.balances() == {"alice": 500, "bob": 0}
    assert world.rows()[f"{SAGA_ID}#Transfer"] in {"TOMBSTONE", "COMPENSATED"}
