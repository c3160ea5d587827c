"""A recovery's reads of the log: whether its definition fits the saga's rows, and the outputs of the steps."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from constructs_lib.saga.asl import CompiledStep, definition_of, recovery_of
from saga_runtime.idempotency.record import OWNED
from tests.constructs.support.answers import (
    CONDITION_FAILED,
    answers,
    keys_called,
    operators_are_told,
    record,
    row,
)
from tests.constructs.support.groups import FORWARD_MACHINE, GROUPED, external, of_items, plan, writes
from tests.constructs.support.interpreter import Run, run
from tests.constructs.support.jsonata import EXECUTION, evaluate
from tests.constructs.support.plans import step

ITEMS = json.dumps({"items": [{"sku": "a"}, {"sku": "b"}]})
SAGA = plan(
    step("Quote", kind="read-only"),
    step("Debit", undo=True),
    of_items("Ship", step("Pack", undo=True)),
    step("Credit", pivot=True),
    step("Book"),
)


def _rows(*found: tuple[str, str, str]) -> dict[str, Any]:
    """Rows by step, side and status."""
    return {"Items": [{"step": {"S": n}, "side": {"S": side}, "status": {"S": status}} for n, side, status in found]}


FITTING = _rows(
    ("Quote", "before", "RECORDED"),
    ("Debit", "before", "DONE"),
    ("Pack[a]", "before", "DONE"),
    ("Pack[b]", "before", "INTENT"),
    ("Credit", "pivot", "COMPENSATING"),
    ("Book", "after", "DONE"),
)


def _recover(saga: Any = SAGA, *, began_as: Any = "old", direction: Any = "compensate", **by_state: Any) -> Run:
    found = record(definition=began_as, direction=direction)
    return run(recovery_of(saga, FORWARD_MACHINE), answers({"Read direction": found, **by_state}), request=ITEMS)


def test_under_the_definition_of_the_last_owner_it_waits_for_nothing() -> None:
    done = _recover(began_as="d", **{"Query log rows": FITTING})
    assert done.trace[:5] == [
        "Read direction", "Select direction", "Query log rows", "Definition compatible?", "Select direction",
    ]  # fmt: skip
    assert done.trace[-1] == "Settle failed"


@pytest.mark.parametrize(
    "rows", [FITTING, {"Items": []}, _rows(("Debit", "before", "DONE"))], ids=["all", "none", "one"]
)
@pytest.mark.parametrize(
    ("direction", "end"), [("compensate", "Settle failed"), ("forward", "Forward execution started")]
)
def test_under_another_definition_that_fits_the_rows_the_saga_continues(rows: Any, direction: str, end: str) -> None:
    done = _recover(direction=direction, **{"Query log rows": rows})
    assert done.trace[:7] == [
        "Read direction", "Select direction", "Wait for earlier functions to end", "Query log rows",
        "Definition compatible?",
        "Note definition", "Select direction",
    ]  # fmt: skip
    assert done.sent["Note definition"]["ExpressionAttributeValues"][":definition"] == {"S": "d"}
    assert done.sent["Note definition"]["ConditionExpression"] == OWNED
    assert done.trace[-1] == end


@pytest.mark.parametrize(("ago", "left"), [(0, 1_260), (1_000, 260), (1_260, 0), (100_000, 0)])
def test_under_another_definition_it_waits_for_the_last_owners_invocations(ago: int, left: int) -> None:
    wait = recovery_of(dataclasses.replace(SAGA, outlived_seconds=1_260), FORWARD_MACHINE)["States"][
        "Wait for earlier functions to end"
    ]
    taken_over = {"updated_at": {"N": f"{evaluate('$millis()') - ago * 1_000}"}}

    assert evaluate(wait["Seconds"], record=taken_over) in {left, left + 1}
    assert (wait["Type"], wait["Next"]) == ("Wait", "Query log rows")


@pytest.mark.parametrize("direction", ["compensate", "forward"])
def test_a_former_owner_changes_nothing_after_its_wait(direction: str) -> None:
    lost = record(owner=f"{EXECUTION}-r9")
    refused = {"Note definition": CONDITION_FAILED, "Read record": lost}
    assert _recover(direction=direction, **refused).trace[-3:] == ["Read record", "Check owner", "End fenced"]


@pytest.mark.parametrize(
    ("began_as", "left"),
    [("0123456789abcdefphases..", 1_260), ("0123456789abcdefothers..", 4_560)],
    ids=["steps in phases have the names that they had", "one of them was renamed"],
)
def test_it_waits_for_phases_with_renamed_steps(began_as: str, left: int) -> None:
    made = dataclasses.replace(
        SAGA, fingerprint="fedcba9876543210phases..", outlived_seconds=1_260, phases_outlived_seconds=4_560
    )
    recovery = recovery_of(made, FORWARD_MACHINE)
    taken_over = {"definition": {"S": began_as}, "updated_at": {"N": f"{evaluate('$millis()')}"}}

    assert evaluate(recovery["States"]["Wait for earlier functions to end"]["Seconds"], record=taken_over) in {
        left,
        left + 1,
    }
    assert recovery["TimeoutSeconds"] == SAGA.timeout_seconds + 4_560


def test_a_recoverys_timeout_is_longer_than_its_wait() -> None:
    made = recovery_of(dataclasses.replace(SAGA, outlived_seconds=1_260), FORWARD_MACHINE)
    assert made["TimeoutSeconds"] == SAGA.timeout_seconds + 1_260


@pytest.mark.parametrize(
    "rows",
    [
        _rows(("Gone", "before", "DONE")),
        _rows(("Gone", "before", "INTENT")),
        _rows(("Debit", "after", "DONE")),
        _rows(("Debit", "pivot", "COMPENSATING")),
        _rows(("Debit[a]", "before", "DONE")),
        _rows(("Pack", "before", "DONE")),
        _rows(("Debit", "before", "DONE"), ("Credit", "before", "DONE")),
        {"Items": [{"step": {"S": "Debit"}, "status": {"S": "DONE"}}]},
    ],
    ids=[
        "a step that is gone", "a doubt that is gone", "another side", "another side, undoing",
        "an item of a plain step", "a plain row of a step of items", "one of two", "no side",
    ],
)  # fmt: skip
@pytest.mark.parametrize("direction", ["compensate", "forward"])
@pytest.mark.parametrize("began_as", ["old", "d"], ids=["of another name", "of the name in the record"])
def test_under_a_definition_that_does_not_fit_the_rows_the_saga_is_parked(
    rows: Any, direction: str, began_as: str
) -> None:
    done = _recover(direction=direction, began_as=began_as, **{"Query log rows": rows})
    assert not [name for name in done.trace if name.startswith(("Set direction", "Fence", "Start", "Compensate"))]
    assert operators_are_told(done)["parked_reason"]["error"] == "IncompatibleDefinition"


@pytest.mark.parametrize("status", ["TOMBSTONE", "COMPENSATED", "REFUSED", "RECORDED"])
def test_a_row_without_an_effect_fits_every_definition(status: str) -> None:
    assert _recover(**{"Query log rows": _rows(("Gone", "before", status))}).trace[-1] == "Settle failed"


def test_a_record_of_another_owner_is_not_even_compared() -> None:
    found = record(definition="old", owner=f"{EXECUTION}-r9")
    done = run(recovery_of(SAGA, FORWARD_MACHINE), answers({"Read direction": found}), request=ITEMS)
    assert done.trace == ["Read direction", "Select direction", "End fenced"]


# ---- outputs --------------------------------------------------------------------------------------------------------

PARCELS = {"Item": {"output": {"S": '{"parcels": [{"id": "x"}, {"id": "y"}]}'}}}
BY_OUTPUT = GROUPED["items from an output, no pivot"]


def test_a_recovery_reads_the_outputs_with_a_maps_items() -> None:
    done = _recover(BY_OUTPUT, began_as="d", **{"Read output of Plan": PARCELS})
    assert done.sent["Read output of Plan"]["Key"]["step"] == {"S": "Plan"}
    assert keys_called(done, "Compensate Load") == keys_called(done, "Compensate Book") == ["x", "y"]
    assert done.trace[-1] == "Settle failed"


def test_without_the_output_with_its_items_a_map_never_began() -> None:
    done = _recover(BY_OUTPUT, began_as="d", **{"Read output of Plan": {}})
    assert "Compensate Load" not in done.trace
    assert done.trace[-1] == "Settle failed"


def test_a_recovery_without_a_direction_reads_them_after_the_fence() -> None:
    made = dataclasses.replace(BY_OUTPUT, steps=(*BY_OUTPUT.steps, step("Pay", pivot=True)))
    done = _recover(made, began_as="d", direction="", **{"Read output of Plan": PARCELS})
    assert done.trace[5:9] == ["Fence Pay", "Set direction to compensate", "Read output of Plan", "Compensate Parcels"]


def _undone_by(text: str) -> CompiledStep:
    """A transaction of the state machine that an expression undoes."""
    mark = writes("Mark")
    assert mark.transaction is not None
    undo = {"Delete": {"Key": {"id": {"S": f"{{% {text} %}}"}}}}
    return dataclasses.replace(mark, transaction=dataclasses.replace(mark.transaction, compensate=(undo,)))


STANDING = {"Compensate Mark": CONDITION_FAILED, "Compensate Mark - read row": row("DONE", "{}")}


def test_outputs_of_items_are_read_by_their_keys_page_by_page() -> None:
    saga = plan(of_items("Ship", step("Pack", undo=True)), _undone_by('$outputs.Pack."a/1".n & $outputs.Pack.b.n'))
    pages: list[dict[str, Any]] = [
        {
            "Items": [{"step": {"S": "Pack[a/1]"}, "output": {"S": '{"n": "1"}'}}],
            "LastEvaluatedKey": {"saga_id": {"S": EXECUTION}, "step": {"S": "Pack[a/1]"}},
        },
        {"Items": [{"step": {"S": "Pack[b]"}, "output": {"S": '{"n": "2"}'}}, {"step": {"S": "Pack[c]"}}]},
    ]
    first = "Read output of Pack"
    done = _recover(saga, began_as="d", **{first: pages[0], f"{first} - more": pages[1]}, **STANDING)

    assert done.sent["Compensate Mark - write"]["TransactItems"][1]["Delete"]["Key"] == {"id": {"S": "12"}}
    assert done.sent[first]["ExpressionAttributeValues"][":items"] == {"S": "Pack["}
    assert done.sent[f"{first} - more"]["ExclusiveStartKey"] == pages[0]["LastEvaluatedKey"]


def test_compensations_without_outputs_read_none() -> None:
    saga = plan(step("Quote", kind="read-only"), external("Charge"), step("Only", pivot=True))
    for machine in (definition_of(saga), recovery_of(saga, FORWARD_MACHINE)):
        assert not [name for name in machine["States"] if name.startswith("Read output")]


def test_writes_that_are_compensated_by_an_output_have_it_read() -> None:
    saga = plan(step("Quote", kind="read-only"), _undone_by("$outputs.Quote.id"), step("Pay", pivot=True))
    log = {"Item": {"output": {"S": '{"id": "q"}'}}}
    done = _recover(saga, began_as="d", **{"Read output of Quote": log}, **STANDING)
    assert done.sent["Compensate Mark - write"]["TransactItems"][1]["Delete"]["Key"] == {"id": {"S": "q"}}


def test_a_pivot_in_doubt_is_verified_with_the_outputs_in_the_log() -> None:
    by_state = {
        "Fence Pay": CONDITION_FAILED,
        "Fence Pay - read row": [row("INTENT"), row("DONE")],
    }
    done = _recover(
        plan(step("Quote", kind="read-only"), external("Pay", pivot=True)), began_as="d", direction="", **by_state
    )
    asked = done.sent["Fence Pay - verify"]["Payload"]
    assert (asked["mode"], asked["outputs"], asked["logged"]["steps"]) == ("verify", {}, ["Quote"])
    assert done.trace[-1] == "Forward execution started"
