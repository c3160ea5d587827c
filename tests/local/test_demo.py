"""The demo, at a smaller size: it succeeds, reports so with its exit status, and detects what is broken."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

from constructs_lib.testing import Fault, LocalAws
from constructs_lib.testing.faults import FaultOutcome, FaultReport
from constructs_lib.testing.invariants import Item, read_table
from examples.funds_transfer.demo import __main__ as demo
from examples.funds_transfer.demo.accounts import MAIN, PARTNER
from examples.funds_transfer.demo.checks import check
from examples.funds_transfer.demo.evidence import Evidence
from examples.funds_transfer.demo.plan import SMALLEST, Plan, make_plan
from examples.funds_transfer.demo.report import Report, render
from examples.funds_transfer.demo.screen import WIDTH, Style
from examples.funds_transfer.demo.trouble import Kind, Trouble
from saga_runtime import account_key
from saga_runtime.idempotency.identity import request_id_of
from saga_runtime.protocol import LedgerAttribute

ROOT: Final = Path(__file__).resolve().parents[2]
SMALL: Final = ("--transfers", "40", "--seed", "3")


def test_succeeds_and_reports_its_results(tmp_path: Path) -> None:
    file = tmp_path / "reports" / "demo.json"
    command = [sys.executable, "-m", "examples.funds_transfer.demo", *SMALL, "--report", str(file)]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=570, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "\x1b" not in ended.stdout  # not a terminal
    report = json.loads(file.read_text("utf-8"))
    assert set(report) == {"requests", "answers", "settled", "refused", "invariants", "faults", "seconds"}
    assert sum(report["answers"].values()) == report["requests"]
    assert report["settled"] + report["refused"] == 40
    assert report["faults"]["fired"] == report["faults"]["planned"] > len(Trouble)
    assert all(found["checked"] > 0 and found["violated"] == 0 for found in report["invariants"].values())
    assert {"200", "202", "400", "402", "404", "422", "500"} <= set(report["answers"])
    assert "/40" not in ended.stdout.splitlines()[-1]
    assert "40 transfers" in ended.stdout
    assert number_of("compensations", ended.stdout) > number_of("refunds", ended.stdout) > 0
    assert number_of("recoveries", ended.stdout) == 10  # nine that were stopped, one of them twice
    assert number_of("notices sent", ended.stdout) >= 40
    assert "1 of them to suspense" in ended.stdout
    assert number_of("settled by Express", ended.stdout) > number_of("settled by Standard", ended.stdout) >= 10
    assert re.search(r"[1-9]\d* in their first response", ended.stdout)


def number_of(name: str, table: str) -> int:
    found = re.search(rf"{name} +(\d+)", table)
    assert found is not None, table
    return int(found.group(1))


@pytest.mark.proof
def test_fails_and_names_the_invariant_when_money_was_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "demo.json"
    monkeypatch.setattr(demo, "make_plan", lambda **_: _one_of_each_that_is_quick())

    status = demo.main(["--report", str(file)], meddle=_make_money)

    invariants = json.loads(file.read_text("utf-8"))["invariants"]
    broken = {name for name, found in invariants.items() if found["violated"] or not found["checked"]}
    assert status == 1
    assert broken == {"no money made or lost", "balances equal their entries"}
    assert "An invariant is broken" in capsys.readouterr().out


@pytest.mark.proof
def test_fails_when_a_notice_is_lost_or_a_ledger_is_tampered_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "demo.json"
    monkeypatch.setattr(demo, "make_plan", lambda **_: _one_of_each_that_is_quick())

    status = demo.main(["--report", str(file)], meddle=_tamper)

    invariants = json.loads(file.read_text("utf-8"))["invariants"]
    broken = {name for name, found in invariants.items() if found["violated"] or not found["checked"]}
    assert status == 1
    assert broken >= {
        "every end was notified, receipts once",
        "clearing accounts mirror each other",
        "every refund matches its debit",
        "the ledgers hold what was asked for",
        "all entries sum to zero",
        "each posting nets to zero",
    }


def _one_of_each_that_is_quick() -> Plan:
    """A plan without crashes, which take long, but with input for every invariant."""
    plan = make_plan(transfers=60, seed=1)
    ordinary = [one for one in plan.transfers if not one.troubles]
    some = [
        next(one for one in ordinary if one.expected == 200 and not one.imposter and not one.to_partner),
        next(one for one in ordinary if one.expected == 402),
        next(one for one in ordinary if one.imposter),
        next(one for one in ordinary if one.expected == 200 and one.to_partner),
        next(one for one in ordinary if one.refunded),
        next(one for one in plan.transfers if one.troubles == (Trouble.WRITE_ANSWER_LOST,)),
    ]
    return replace(plan, transfers=tuple(some), nonsense=plan.nonsense[:2])


def _make_money(aws: LocalAws, outputs: Mapping[str, str]) -> None:
    aws.client("dynamodb").update_item(
        TableName=outputs["LedgerTableName"],
        Key=account_key("ada"),
        UpdateExpression="ADD #balance :one",
        ExpressionAttributeNames={"#balance": LedgerAttribute.BALANCE},
        ExpressionAttributeValues={":one": {"N": "1"}},
    )


def _tamper(aws: LocalAws, outputs: Mapping[str, str]) -> None:
    """Lose every notice, the clearing side of every credit, and a cent of every refund."""
    dynamodb = aws.client("dynamodb")
    aws.client("sqs").purge_queue(QueueUrl=outputs["NoticeQueueUrl"])
    for item in read_table(dynamodb, outputs["PartnerLedgerTableName"]):
        if item["pk"]["S"].startswith("clearing#main-clearing"):
            dynamodb.delete_item(TableName=outputs["PartnerLedgerTableName"], Key=_key_of(item))
    for item in read_table(dynamodb, outputs["LedgerTableName"]):
        if item["pk"]["S"].startswith("account#") and item["sk"]["S"].endswith("#undo"):
            dynamodb.update_item(
                TableName=outputs["LedgerTableName"],
                Key=_key_of(item),
                UpdateExpression="ADD #amount :less",
                ExpressionAttributeNames={"#amount": LedgerAttribute.AMOUNT},
                ExpressionAttributeValues={":less": {"N": "-1"}},
            )


def _key_of(item: Item) -> dict[str, Any]:
    return {name: item[name] for name in ("pk", "sk")}


class TestThePlan:
    def test_is_the_same_for_the_same_seed(self) -> None:
        assert make_plan(transfers=60, seed=1) == make_plan(transfers=60, seed=1)
        assert make_plan(transfers=60, seed=1) != make_plan(transfers=60, seed=2)

    @pytest.mark.parametrize("transfers", [36, 60, 200])
    def test_has_everything_in_it_at_every_size(self, transfers: int) -> None:
        plan = make_plan(transfers=transfers, seed=5)

        assert len(plan.transfers) == transfers
        assert {trouble for one in plan.transfers for trouble in one.troubles} == set(Trouble)
        assert {200, 402, 404, 422, 500} <= {one.expected for one in plan.transfers if one.to_partner}
        assert {200, 402} <= {one.expected for one in plan.transfers if not one.to_partner}
        assert any(one.imposter for one in plan.transfers)
        assert any(one.refunded and one.closed_meanwhile for one in plan.transfers)
        assert any(one.key is None for one in plan.nonsense)
        assert {400, 413} == {one.expected for one in plan.nonsense}
        assert len({one.user for one in plan.transfers if one.key == "shared"}) == 2

    def test_sends_a_third_to_a_half_to_the_partner(self) -> None:
        plan = make_plan(transfers=200, seed=5)

        assert 1 / 3 <= sum(one.to_partner for one in plan.transfers) / 200 <= 1 / 2

    @pytest.mark.parametrize("seed", range(20))
    def test_has_no_transfer_that_fails_because_of_the_order(self, seed: int) -> None:
        plan = make_plan(transfers=300, seed=seed)

        for account in plan.accounts:
            here = account.ledger == MAIN
            takes = [
                t for t in plan.transfers if here and t.source == account.name and (t.expected == 200 or t.refunded)
            ]
            assert sum(t.amount for t in takes) <= account.balance

    def test_aims_each_fault_at_one_transfer(self) -> None:
        plan = make_plan(transfers=200, seed=7)

        faults = [fault for _, fault in plan.faults({"shop": "scope-1", "bank": "scope-2"})]
        aims = {fault.containing for fault in faults}
        read = {
            fault.containing for fault in faults if isinstance(fault, Fault) and fault.call.endswith("BatchGetItem")
        }
        requests = {request_id_of(f"scope-{1 + (t.user == 'bank')}", t.key) for t in plan.transfers if t.troubles}
        assert aims - read <= requests
        for account in read:
            assert sum(account in (t.source, t.target) for t in plan.transfers) == 1

    @pytest.mark.parametrize("kind", [Kind.DEBIT, Kind.CREDIT, Kind.REFUND, Kind.NOTIFIER])
    def test_kills_before_and_after_every_call_of_a_function(self, kind: Kind) -> None:
        plan = make_plan(transfers=SMALLEST, seed=7)

        faults = [f for trouble, f in plan.faults({"shop": "scope-1", "bank": "scope-2"}) if trouble.kind is kind]
        killed = {(f.call.partition(":")[2], str(f.moment)) for f in faults if isinstance(f, Fault)}
        calls = {"BatchGetItem", "GetItem", "TransactWriteItems"}
        if kind is Kind.NOTIFIER:
            calls = {"GetItem", "SendMessage", "PutItem"}
        assert killed == set(product(calls, ("before", "after")))

    def test_is_refused_when_it_is_too_small_to_show_everything(self) -> None:
        with pytest.raises(ValueError, match="got 35"):
            make_plan(transfers=35, seed=1)


class TestTheTable:
    @pytest.mark.parametrize("colour", [True, False])
    @pytest.mark.parametrize("unicode", [True, False])
    def test_is_a_straight_box(self, colour: bool, unicode: bool) -> None:
        text = render(_nothing_happened(), Style(colour=colour, unicode=unicode))

        assert {len(_bare(line)) for line in text.splitlines()} == {WIDTH}
        assert ("\x1b" in text) is colour
        assert text.isascii() is not unicode

    def test_treats_an_invariant_without_input_as_broken(self) -> None:
        report = _nothing_happened()

        assert not report.holds
        assert "An invariant is broken" in render(report, Style(colour=False, unicode=True))

    def test_has_no_colours_where_they_are_not_wanted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Terminal:
            encoding = "utf-8"

            def isatty(self) -> bool:
                return True

        stream: Any = Terminal()
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        assert Style.of(stream).colour
        monkeypatch.setenv("NO_COLOR", "1")
        assert not Style.of(stream).colour


def _nothing_happened() -> Report:
    plan = make_plan(transfers=SMALLEST, seed=1)
    planned = plan.faults({"shop": "scope-1", "bank": "scope-2"})
    outcomes = tuple(
        FaultOutcome(id=str(number), planned=fault, matched=0, fired=0, attempts=0, shadowed=0, firings=())
        for number, (_, fault) in enumerate(planned)
    )
    empty = Evidence(
        plan=plan,
        exchanges=(),
        records=(),
        rows=(),
        ledgers={MAIN: (), PARTNER: ()},
        notices=(),
        troubles=[trouble for trouble, _ in planned],
        faults=FaultReport(outcomes=outcomes),
    )
    return Report(evidence=empty, invariants=check(empty), seconds=0.0)


def _bare(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", line)
