"""The ledger on local AWS: postings of several units, holds and collecting accounts, with permissions enforced."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pytest

from constructs_lib.cli.trial_balance import add_up
from constructs_lib.testing import LocalAws
from constructs_lib.testing.invariants import assert_all_hold, audit_ledger, read_table

_PATIENCE_SECONDS: Final = 180.0
_TWO_DAYS_MS: Final = 2 * 86_400_000


@dataclass(frozen=True)
class Bank:
    """The deployed ledger."""

    aws: LocalAws
    table: str

    def ask(self, do: str, key: str, account: str = "alice", amount: int = 1, **rest: Any) -> Any:
        """Invoke the ledger function: what it wrote, or the name of its error."""
        event = {"do": do, "key": key, "account": account, "amount": amount, **rest}
        answer = self._invoke("Teller/Function", event)
        return answer.get("written", answer.get("errorType"))

    def sweep(self) -> int:
        """Invoke the sweeper, as its schedule does."""
        return int(self._invoke("Ledger/Sweeper/Function/Function", {})["swept"])

    def _invoke(self, function: str, event: dict[str, Any]) -> dict[str, Any]:
        name = self.aws.resolve_function(f"Bank/{function}")
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            answer = self.aws.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event))
            document: dict[str, Any] = json.loads(answer["Payload"].read())
            # On a busy machine the first process does not start in time, or transactions meet for too long.
            if document.get("errorType") not in {"Conflict", "TransientError", "Sandbox.Timedout", "Lambda.Unknown"}:
                return document
            assert time.monotonic() < deadline, document

    def items(self) -> list[Any]:
        """Everything in the table, once it is sound."""
        items = read_table(self.aws.client("dynamodb"), self.table)
        assert_all_hold(audit_ledger(items))
        assert add_up(items).wrong == []
        return items

    def balance(self, account: str) -> tuple[int, int]:
        """Balance, and what of it is held."""
        (item,) = (i for i in self.items() if (i["pk"]["S"], i["sk"]["S"]) == (f"account#{account}", "account"))
        return int(item["balance"]["N"]), int(item["held"]["N"])


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    """The stack, deployed, with its accounts opened."""
    from .ledger.stack import synthesize

    assembly = synthesize(tmp_path_factory.mktemp("ledger") / "cdk.out")
    with LocalAws() as aws:
        bank = Bank(aws, aws.deploy(assembly)["Bank"]["LedgerTableName"])
        assert bank.ask("open", "o-1", "alice", 10_000)
        assert bank.ask("open", "o-2", "alice.points", 0, points=True)
        assert bank.ask("open", "o-3", "merchant:7", 0)
        yield bank


def test_payments_at_once_collect_and_are_paid_out(bank: Bank) -> None:
    keys = [f"pay-{number}" for number in range(12)]
    with ThreadPoolExecutor(max_workers=4) as pool:
        paid = list(pool.map(lambda key: bank.ask("pay", key, amount=100), [*keys, *keys]))

    # The second of two is a duplicate; or both were one, and its answer was lost.
    assert set(paid) <= {True, "DuplicatePosting"}
    assert bank.balance("alice")[0] == 10_000 - 1_200
    assert bank.balance("alice.points")[0] == 12
    shards = [item for item in bank.items() if item["kind"]["S"] == "shard"]
    assert sum(int(shard["balance"]["N"]) for shard in shards) == 1_200
    assert bank.ask("pay out", "out-1", "merchant:7", 1_000)
    assert bank.ask("pay out", "out-2", "merchant:7", 201) == "InsufficientFunds"
    assert bank.balance("merchant:7")[0] == 200


def test_the_sweeper_closes_windows_and_releases_holds(bank: Bank) -> None:
    past = round(bank.aws.now().timestamp() * 1_000) - _TWO_DAYS_MS
    before = bank.balance("merchant:7")[0]
    assert bank.ask("pay", "old-1", amount=50, now_ms=past)
    assert bank.ask("hold", "hold-old", amount=70, seconds=60, now_ms=past)
    assert bank.balance("alice")[1] == 70

    assert bank.sweep() == 2

    assert bank.sweep() == 0
    assert bank.balance("alice")[1] == 0
    assert bank.balance("merchant:7")[0] == before + 50
    closed = [i for i in bank.items() if i["kind"]["S"] == "shard" and i["state"]["S"] == "CLOSED"]
    assert [shard["balance"]["N"] for shard in closed] == ["0"]
    assert bank.ask("capture", "late", amount=70, hold="hold-old") == "HoldClosed"


def test_a_hold_is_captured_in_part_or_voided(bank: Bank) -> None:
    before = bank.balance("alice")[0]
    assert bank.ask("hold", "h-1", amount=500, seconds=3_600)
    assert bank.ask("hold", "h-2", amount=before, seconds=3_600) == "InsufficientFunds"
    assert bank.ask("capture", "c-1", amount=501, hold="h-1") == "HoldExceeded"
    assert bank.ask("capture", "c-1", amount=300, hold="h-1")
    assert bank.ask("capture", "c-1", amount=300, hold="h-1") is False
    assert bank.ask("hold", "h-3", amount=500, seconds=3_600)
    assert bank.ask("void", "v-1", hold="h-3")

    assert bank.balance("alice") == (before - 300, 0)
