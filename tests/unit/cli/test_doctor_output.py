"""The table and the document of ``cdk-sagas doctor``."""

from __future__ import annotations

import json
import re

import pytest

from constructs_lib.cli.doctor.command import Report, text_of
from constructs_lib.cli.doctor.findings import Finding, Kind, Severity
from constructs_lib.cli.shared.terminal import Screen
from tests.unit.support.checked_stack import (
    CheckedStack,
)
from tests.unit.support.doctor_scenes import ROOT, interrupted, parked, row_open, send, undelivered
from tests.unit.support.job_saga import JOB_ID
from tests.unit.support.samples import (
    NOW_MS,
    SAGA_ID,
)


def test_the_table_is_aligned_fits_and_has_the_worst_and_the_oldest_first(stack: CheckedStack) -> None:
    parked(stack)
    stack.rules["Schedule"]["State"] = "DISABLED"
    stack.update(amount={"N": "12345"}, currency={"S": "EUR"})
    undelivered(stack)

    status, told, errors = stack.run()

    assert (status, errors) == (1, "")
    assert (
        told
        == f"""\
stack Shop, 2023-11-14 22:14:20 UTC
checked: 1 saga, 1 record, 1 token table
in flight: 1 saga, 1 parked, the oldest for 1 m
money in flight, in minor units: EUR 12,345

needs an operator (2)
  rule disabled          Schedule
      the schedule by which the reconciler should look is disabled
      -> enable it
         aws events enable-rule --name Schedule
  parked                 {SAGA_ID}       2023-11-14 22:13:20  1 m
      its record has no reason
      it moves EUR 12,345, in minor units
      -> determine the outcome, then record it: cdk-sagas resolve
         cdk-sagas inspect {SAGA_ID} --stack Shop

repaired soon (1)
  outcome not delivered  {JOB_ID}  2023-11-14 22:13:20  1 m
      done, and it is not delivered
      it moves EUR 12,345, in minor units
      -> the sweeper of tokens delivers it

needs an operator: 2; repaired soon: 1; 2 left to do
"""
    )


@pytest.mark.parametrize("width", ["60", "80", "100", "200"])
def test_no_line_but_a_command_is_wider_than_the_terminal(
    stack: CheckedStack, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    for happens in (interrupted, undelivered, row_open, lambda stack: send(stack, "events-dead")):
        happens(stack)
    monkeypatch.setattr(Screen, "of", lambda _: Screen(width=int(width)))

    lines = stack.run("--full-scan")[1].splitlines()

    assert max(len(line) for line in lines if not line.startswith("         ")) <= int(width)
    assert {JOB_ID, SAGA_ID} <= {word for line in lines for word in line.split()}


def test_colours_are_for_terminals_only() -> None:
    finding = Finding(Kind.PARKED, Severity.OPERATOR, "y", "z", 0, id="x\x1b[31m")
    report = Report(system="stack Shop", now_ms=0, sagas=[], records=0, findings=[finding])

    plain, painted = text_of(report, Screen()), text_of(report, Screen(colour=True))

    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain != painted


def test_the_document_has_everything(stack: CheckedStack) -> None:
    stack.dies()
    stack.update(amount={"N": "12345"}, currency={"S": "EUR"})

    document = json.loads(stack.run("--json")[1])

    (finding,) = document.pop("findings")
    assert document == {
        "system": "stack Shop",
        "now": NOW_MS,
        "sagas": ["Transfers"],
        "records": 1,
        "token_tables": ["tokens"],
        "deep": False,
        "repair": False,
        "in_flight": {"sagas": 1, "parked": 0, "oldest": NOW_MS, "money": {"EUR": 12345}, "complete": True},
        "totals": {"operator": 0, "repair": 0, "soon": 1, "ok": 0},
    }
    assert finding == {
        "kind": "interrupted",
        "severity": "soon",
        "id": SAGA_ID,
        "what": "its first execution FAILED, and did not settle it",
        "then": "the reconciler hands it to -r1",
        "since": NOW_MS,
        "command": "",
        "saga_id": SAGA_ID,
        "table": "",
        "amount": 12345,
        "currency": "EUR",
        "repaired": "",
        "machine": "Transfers",
        "request_table": "requests",
        "age_ms": 0,
        "open": False,
    }


def test_each_field_of_a_finding_is_in_the_reference(stack: CheckedStack) -> None:
    stack.dies()
    reference = (ROOT / "docs/reference/command.md").read_text("utf-8")
    table = reference.partition("<!-- document: finding -->")[2].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]

    (finding,) = stack.finds()

    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == finding.keys()
