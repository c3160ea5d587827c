"""The demo, at a smaller size: it ends well, says so in its report and its exit status, and notices what is broken."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from constructs_lib.testing import LocalAws
from constructs_lib.testing.faults import FaultOutcome, FaultReport
from examples.funds_transfer.demo import __main__ as demo
from examples.funds_transfer.demo.checks import Evidence, check
from examples.funds_transfer.demo.plan import Plan, Trouble, make_plan
from examples.funds_transfer.demo.report import Report, render
from examples.funds_transfer.demo.screen import WIDTH, Style
from saga_runtime.ledger import account_key
from saga_runtime.protocol import LedgerAttribute

ROOT: Final = Path(__file__).resolve().parents[2]
SMALL: Final = ("--transfers", "24", "--seed", "3")


def test_ends_well_and_reports_what_happened(tmp_path: Path) -> None:
    file = tmp_path / "reports" / "demo.json"
    command = [sys.executable, "-m", "examples.funds_transfer.demo", *SMALL, "--report", str(file)]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "\x1b" not in ended.stdout  # it is no terminal
    report = json.loads(file.read_text("utf-8"))
    assert set(report) == {"requests", "answers", "settled", "refused", "invariants", "faults", "seconds"}
    assert sum(report["answers"].values()) == report["requests"]
    assert report["settled"] + report["refused"] == 24
    assert report["faults"] == {"planned": len(Trouble), "fired": len(Trouble)}
    assert all(found["checked"] > 0 and found["violated"] == 0 for found in report["invariants"].values())
    assert {"200", "202", "400", "402", "422"} <= set(report["answers"])
    assert "/24" not in ended.stdout.splitlines()[-1]
    assert "24 transfers" in ended.stdout


def test_fails_when_money_was_made_from_nothing_and_says_what_is_broken(
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


def _one_of_each_that_is_quick() -> Plan:
    """A plan without crashes, which take long, but with something for every invariant to look at."""
    plan = make_plan(transfers=60, seed=1)
    ordinary = [one for one in plan.transfers if one.trouble is None]
    some = [
        next(one for one in ordinary if one.expected == 200 and not one.imposter),
        next(one for one in ordinary if one.expected == 402),
        next(one for one in ordinary if one.imposter),
        next(one for one in plan.transfers if one.trouble is Trouble.WRITE_ANSWER_LOST),
    ]
    return replace(plan, transfers=tuple(some), nonsense=plan.nonsense[:2])


def _make_money(aws: LocalAws, outputs: Mapping[str, str]) -> None:
    aws.client("dynamodb").update_item(
        TableName=outputs["LedgerTableName"],
        Key=account_key("ada"),
        UpdateExpression="ADD #balance :one",
        ExpressionAttributeNames={"#balance": LedgerAttribute.BALANCE.value},
        ExpressionAttributeValues={":one": {"N": "1"}},
    )


class TestThePlan:
    def test_is_the_same_for_the_same_seed(self) -> None:
        assert make_plan(transfers=60, seed=1) == make_plan(transfers=60, seed=1)
        assert make_plan(transfers=60, seed=1) != make_plan(transfers=60, seed=2)

    @pytest.mark.parametrize("transfers", [24, 60, 200])
    def test_has_everything_in_it_at_every_size(self, transfers: int) -> None:
        plan = make_plan(transfers=transfers, seed=5)

        assert len(plan.transfers) == transfers
        assert {one.trouble for one in plan.transfers} == {None, *Trouble}
        assert {200, 402} <= {one.expected for one in plan.transfers}
        assert any(one.imposter for one in plan.transfers)
        assert any(one.key is None for one in plan.nonsense)
        assert {400, 413} == {one.expected for one in plan.nonsense}
        assert len({one.user for one in plan.transfers if one.key == "shared"}) == 2

    @pytest.mark.parametrize("seed", range(20))
    def test_lets_no_transfer_fail_by_the_order_in_which_they_happen(self, seed: int) -> None:
        plan = make_plan(transfers=300, seed=seed)

        for account, opening in plan.opening.items():
            going_out = sum(t.amount for t in plan.transfers if t.source == account and t.expected == 200)
            assert going_out <= opening

    def test_aims_each_fault_at_one_transfer(self) -> None:
        plan = make_plan(transfers=200, seed=7)

        amounts = [transfer.amount for transfer in plan.transfers]
        assert all(amounts.count(t.amount) == 1 for t in plan.transfers if t.trouble is not None)

    def test_is_refused_when_it_is_too_small_to_show_everything(self) -> None:
        with pytest.raises(ValueError, match="got 19"):
            make_plan(transfers=19, seed=1)


class TestTheTable:
    @pytest.mark.parametrize("colour", [True, False])
    @pytest.mark.parametrize("unicode", [True, False])
    def test_is_a_straight_box(self, colour: bool, unicode: bool) -> None:
        text = render(_nothing_happened(), Style(colour=colour, unicode=unicode))

        assert {len(_bare(line)) for line in text.splitlines()} == {WIDTH}
        assert ("\x1b" in text) is colour
        assert text.isascii() is not unicode

    def test_calls_an_invariant_that_looked_at_nothing_broken(self) -> None:
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
    plan = make_plan(transfers=20, seed=1)
    outcomes = tuple(
        FaultOutcome(id=str(number), planned=fault, matched=0, fired=0, attempts=0, shadowed=0, firings=())
        for number, (_, fault) in enumerate(plan.faults)
    )
    report = FaultReport(outcomes=outcomes)
    empty = Evidence(plan=plan, exchanges=(), records=(), rows=(), ledger=(), faults=report)
    return Report(evidence=empty, invariants=check(empty), seconds=0.0)


def _bare(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", line)
