"""Groups of steps, interpreted: what each kind answers, and which way the saga takes when something in it fails."""

from __future__ import annotations

import json
from typing import Any

import pytest

from constructs_lib.saga.asl import SagaPlan, definition_of, phase_definition, recovery_of
from constructs_lib.saga.asl.plan import CompiledGroup
from tests.constructs.support.answers import (
    CONDITION_FAILED,
    answers,
    body,
    by_item,
    called,
    keys_called,
    operators_are_told,
    record,
    refusal,
    row,
    seen_in_the_log,
)
from tests.constructs.support.groups import FORWARD_MACHINE, GROUPED, child, express, external, of_items, parallel, plan
from tests.constructs.support.interpreter import Failure, Run, run
from tests.constructs.support.jsonata import EXECUTION, evaluate
from tests.constructs.support.plans import step

EMPTY: Any = {"Payload": {"output": {}}}
ITEMS = json.dumps({"items": [{"sku": "a"}, {"sku": "b"}], "who": "w"})
BROKEN = {"step": "", "error": "StepFailed", "detail": "the step could not be completed", "status": 500}
KINDS = ["express", "child"]
DISAGREEING = [("Declined", "saga-refused"), ("StepFailed", "saga-failed")]


def _forward(name: str, request: Any = ITEMS, **by_state: Any) -> Run:
    return run(definition_of(GROUPED[name]), answers(by_state), request=request)


def _phase(saga: SagaPlan, name: str, *, outputs: Any = None, **by_state: Any) -> Any:
    """Output of a phase's own machine."""
    (group,) = (node for node in saga.steps if node.name == name)
    assert isinstance(group, CompiledGroup)
    done = run(phase_definition(saga, group), answers(by_state), request=ITEMS, outputs=outputs or {})
    assert done.status == "SUCCEEDED", "a phase never fails, it returns its failure"
    return done.output


def _told(answer: Any, kind: str = "express") -> Any:
    """Result for the parent when a phase's machine returns this."""
    if kind == "express":
        return {"Status": "SUCCEEDED", "Output": json.dumps(answer)}
    return {"Status": "SUCCEEDED", "Output": answer}


def _went_well(*names: str) -> Any:
    return {"ok": True, "outputs": {name: {"of": name} for name in names}}


WELL = {
    "Prepare": _told(_went_well("Reserve", "Hold")),
    "Fulfil": _told(_went_well("Dispatch", "Tell"), "child"),
    "Look": {"ContentLength": 3},
    "Announce": {},
}

# ---- every kind, well -----------------------------------------------------------------------------------------------


def test_a_saga_with_every_kind_of_step_settles_with_every_output() -> None:
    done = _forward("every kind", **WELL)
    assert done.trace[-1] == "Settle completed"
    result = body(done)["result"]
    plain = ("Quote", "Reserve", "Hold", "Left", "Right", "Further", "Pay", "Dispatch", "Tell", "Receipt")
    assert {name: result[name] for name in plain} == {name: {"of": name} for name in plain}
    assert result["Pack"] == {"a": {"of": "Pack"}, "b": {"of": "Pack"}}
    assert result["Label"] == {"a": {"of": "Label"}, "b": {"of": "Label"}}
    assert result["Mark"] == {"key": f"{EXECUTION}#Mark"}
    assert result["Look"] == result["Announce"] == result["Pause"] == {}


def test_every_kind_costs_one_transition_a_group_two() -> None:
    done = _forward("every kind", request="{}", **WELL)
    path = [
        name
        for name in done.trace
        if name not in {"Left", "Right", "Further", "Select step after Right", "Both 2 - succeeded"}
    ]
    assert path == [
        "Quote", "Look", "Prepare", "Prepare - result", "Both", "Both - result", "Select step after Both",
        "Mark", "Pay",
        "Fulfil", "Fulfil - result", "Announce", "Pause", "Receipt", "Settle completed",
    ]  # fmt: skip


def test_a_step_receives_the_outputs_that_it_may_read() -> None:
    done = _forward("every kind", **WELL)
    pack = called(done, "Pack")[1]["Payload"]
    assert (pack["item_path"], pack["item_index"], pack["item_key"]) == (["items"], 1, "b")
    assert (pack["step"], pack["side"]) == ("Pack", "before")
    assert pack["outputs"]["Left"] == {"of": "Left"}
    label = called(done, "Label")[1]["Payload"]
    assert label["outputs"]["Pack"] == {"of": "Pack"}, "of its own item"
    pay = done.sent["Pay"]["Payload"]
    assert pay["side"] == "pivot"
    assert pay["provider"]["verify"] is True
    assert set(pay["outputs"]) == {
        "Quote",
        "Look",
        "Reserve",
        "Hold",
        "Left",
        "Right",
        "Further",
        "Pack",
        "Label",
        "Mark",
    }


def test_a_branch_does_not_receive_another_branchs_outputs() -> None:
    done = _forward("every kind", **WELL)
    assert "Left" not in done.sent["Right"]["Payload"]["outputs"]
    assert done.sent["Further"]["Payload"]["outputs"]["Right"] == {"of": "Right"}


def test_an_event_carries_the_step_key() -> None:
    (entry,) = _forward("every kind", **WELL).sent["Announce"]["Entries"]
    assert entry["Detail"] == {"who": "w", "event_id": f"{EXECUTION}#Announce"}


def test_a_condition_of_a_step_in_a_branch_may_be_open() -> None:
    done = _forward("every kind", Right={"Payload": {"output": {}}}, **WELL)
    assert "Further" not in done.trace
    assert body(done)["result"]["Right"] == {}
    assert "Further" not in body(done)["result"]


def test_a_child_execution_has_a_valid_unique_name() -> None:
    saga = plan(step("Pay", pivot=True), child("Slow", step("Two")))
    long = f"{'a' * 26}-{'z' * 13}-r99"
    entered = {"EnteredTime": "2026-11-21T10:00:00.000Z", "RetryCount": 7, "Name": "Slow"}
    around = {
        "Execution": {
            "Name": long,
            "Input": {"saga_id": EXECUTION, "request_id": "r", "request": "{}", "definition": "d"},
        },
        "State": entered,
    }
    well = _told(_went_well("Two"), "child")
    sent = run(definition_of(saga), answers(Slow=well), given=around).sent["Slow"]
    assert sent["Name"] == f"{long}-1-1795255200000-7"
    assert len(sent["Name"]) <= 80
    assert sent["Input"]["outputs"] == {"Pay": {"of": "Pay"}}


# ---- phases from inside ---------------------------------------------------------------------------------------------


def test_a_phase_returns_its_own_outputs() -> None:
    answer = _phase(GROUPED["every kind"], "Prepare", outputs={"Quote": {"n": 1}})
    assert answer == {"ok": True, "outputs": {"Reserve": {"of": "Reserve"}, "Hold": {"of": "Hold"}}}


def test_a_step_in_a_phase_receives_earlier_outputs_and_its_phases() -> None:
    (phase,) = (n for n in GROUPED["every kind"].steps if n.name == "Prepare" and isinstance(n, CompiledGroup))
    made = phase_definition(GROUPED["every kind"], phase)
    done = run(made, answers(), request='{"rate": true}', outputs={"Quote": {"n": 1}})
    assert "Rate" in done.trace
    assert done.sent["Hold"]["Payload"]["outputs"] == {
        "Quote": {"n": 1},
        "Reserve": {"of": "Reserve"},
        "Rate": {"of": "Rate"},
    }


def test_a_refusal_in_a_phase_is_returned_with_the_completed_steps() -> None:
    answer = _phase(GROUPED["every kind"], "Prepare", Hold=refusal("InsufficientFunds", "poor"))
    assert answer["ok"] is False
    assert answer["outputs"] == {"Reserve": {"of": "Reserve"}}
    failure = answer["failure"]
    assert (failure["step"], failure["error"], failure["detail"], failure["status"]) == (
        "Hold", "InsufficientFunds", "poor", 402,
    )  # fmt: skip


def test_an_unexpected_failure_in_a_phase_is_returned_without_internals() -> None:
    answer = _phase(GROUPED["every kind"], "Prepare", Reserve=refusal("KeyError", "host-7"))
    assert "host-7" not in json.dumps(answer)
    assert answer["failure"]["error"] == "StepFailed"
    assert answer["outputs"] == {}


def test_a_fenced_phase_returns_that_it_is_fenced() -> None:
    answer = _phase(GROUPED["every kind"], "Prepare", Hold=refusal("SagaFenced"))
    assert answer == {"ok": False, "fenced": True}


# ---- phases from outside --------------------------------------------------------------------------------------------


def _one_phase(kind: str, **options: Any) -> SagaPlan:
    made = {"express": express, "child": child}[kind]
    return plan(made("Prepare", step("Reserve", undo=True), external("Hold"), **options), step("Pay", pivot=True))


_STATE = {"State": {"EnteredTime": "2026-11-21T10:00:00.000Z", "RetryCount": 0, "Name": "x"}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_phase_that_was_refused_is_compensated_step_by_step(kind: str) -> None:
    failure = {"step": "Hold", "error": "Invalid", "detail": "no", "status": 422, "title": "t", "kind": "saga-refused"}
    told = _told({"ok": False, "outputs": {"Reserve": {"n": 1}}, "failure": failure}, kind)
    done = run(definition_of(_one_phase(kind)), answers(Prepare=told), given=_STATE)
    assert done.trace == [
        "Prepare", "Prepare - result", "Begin compensation at Prepare", "Compensate Hold", "Compensate Reserve",
        "Query saga log", "All compensated?", "Settle failed",
    ]  # fmt: skip
    assert (body(done, "Settle failed")["error"], body(done, "Settle failed")["step"]) == ("Invalid", "Hold")
    assert seen_in_the_log(done, "Compensate Hold") == {"steps": ["Reserve"], "per_item": [], "own": []}


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("express", {"Status": "TIMED_OUT"}),
        ("express", {"Status": "FAILED", "Error": "x", "Cause": "y"}),
        ("express", Failure("States.Timeout")),
        ("child", Failure("States.TaskFailed")),
    ],
)
def test_the_outputs_of_a_lost_phase_are_read_from_the_log(kind: str, answer: Any) -> None:
    """A provider's call in it may have to be repeated, with the same arguments, before it can be compensated."""
    done = run(definition_of(_one_phase(kind)), answers(Prepare=answer), given=_STATE)
    assert done.trace[-1] == "Settle failed"
    assert body(done, "Settle failed")["error"] == "StepFailed"
    assert seen_in_the_log(done, "Compensate Hold") == {"steps": ["Reserve"], "per_item": [], "own": []}


@pytest.mark.parametrize("kind", KINDS)
def test_a_fenced_phase_ends_the_execution_at_once(kind: str) -> None:
    done = run(
        definition_of(_one_phase(kind)), answers(Prepare=_told({"ok": False, "fenced": True}, kind)), given=_STATE
    )
    assert done.trace == ["Prepare", "Prepare - result", "End fenced"]
    assert done.error == "SagaFenced"


def test_a_failed_group_after_the_pivot_is_retried_and_then_parked() -> None:
    by_state = {
        "Prepare": _told({"ok": False, "failure": {**BROKEN, "step": "Hold"}}),
        "Begin compensation at Prepare": CONDITION_FAILED,
        "Check direction": record(direction="forward"),
    }
    done = run(definition_of(_one_phase("express")), answers(by_state))
    assert done.trace.count("Prepare") == 21
    assert not [name for name in done.trace if name.startswith("Compensate ")]
    entry = operators_are_told(done)
    assert entry["parked_reason"]["step"] == "Hold"
    assert entry["failure"]["step"] == "Hold"


# ---- the pivot in a phase -------------------------------------------------------------------------------------------

FAILED_BEHIND = _told({"ok": False, "failure": {**BROKEN, "step": "Book", "title": "t", "kind": "saga-failed"}})


def test_a_saga_continues_after_a_phase_with_the_pivot() -> None:
    done = _forward("pivot in an express phase", Money=_told(_went_well("Debit", "Credit", "Book")))
    assert done.trace == ["Reserve", "Money", "Money - result", "Receipt", "Settle completed"]


def test_a_phase_whose_pivot_was_not_applied_is_compensated() -> None:
    done = _forward("pivot in an express phase", Money=FAILED_BEHIND)
    assert done.trace[3:] == [
        "Fence Credit", "Begin compensation at Money", "Compensate Credit", "Compensate Debit", "Compensate Reserve",
        "Query saga log", "All compensated?", "Settle failed",
    ]  # fmt: skip
    assert done.sent["Fence Credit"]["Item"]["side"] == {"S": "pivot"}


def test_a_phase_with_an_applied_pivot_is_retried_until_it_succeeds() -> None:
    by_state = {
        "Money": [FAILED_BEHIND, _told(_went_well("Debit", "Credit", "Book"))],
        "Fence Credit": CONDITION_FAILED,
        "Fence Credit - read row": row("DONE"),
    }
    done = _forward("pivot in an express phase", **by_state)
    assert done.trace[3:] == [
        "Fence Credit", "Fence Credit - read row", "Fence Credit - applied?", "Continue forward at Credit",
        "Retries left for Money?",
        "Wait before retrying Money", "Money", "Money - result", "Receipt", "Settle completed",
    ]  # fmt: skip
    assert done.sent["Continue forward at Credit"]["ExpressionAttributeValues"][":direction"] == {"S": "forward"}


def test_a_phase_with_an_applied_pivot_that_never_succeeds_is_parked() -> None:
    by_state = {"Money": FAILED_BEHIND, "Fence Credit": CONDITION_FAILED, "Fence Credit - read row": row("DONE")}
    done = _forward("pivot in an express phase", **by_state)
    assert done.trace.count("Money") == 21
    assert operators_are_told(done)["parked_reason"]["step"] == "Book"
    assert not [name for name in done.trace if name.startswith(("Begin compensation", "Compensate"))]


def test_a_pivot_in_doubt_in_a_phase_is_verified_with_outputs_of_the_log() -> None:
    by_state = {
        "Money": {"Status": "TIMED_OUT"},
        "Fence Credit": CONDITION_FAILED,
        "Fence Credit - read row": [row("INTENT"), row("DONE")],
        "Retries left for Money?": {},
    }
    done = _forward("pivot in an express phase", **by_state)
    asked = called(done, "Fence Credit - verify")[0]["Payload"]
    assert asked["mode"] == "verify"
    assert asked["logged"] == {"steps": ["Reserve", "Debit"], "per_item": [], "own": []}
    assert "Continue forward at Credit" in done.trace


def test_a_pivot_in_doubt_that_cannot_be_decided_is_parked_with_its_reason() -> None:
    by_state = {
        "Money": {"Status": "TIMED_OUT"},
        "Fence Credit": CONDITION_FAILED,
        "Fence Credit - read row": row("INTENT"),
        "Fence Credit - verify": refusal("ManualResolutionRequired", "the provider does not know"),
    }
    entry = operators_are_told(_forward("pivot in an express phase", **by_state))
    assert entry["parked_reason"] == {
        "step": "Credit",
        "error": "ManualResolutionRequired",
        "detail": "the provider does not know",
    }


def test_a_plain_pivot_in_doubt_is_verified_with_its_own_inputs() -> None:
    by_state = {
        **WELL,
        "Pay": Failure("States.Timeout"),
        "Fence Pay": CONDITION_FAILED,
        "Fence Pay - read row": [row("INTENT"), row("DONE", '{"receipt": "r"}')],
    }
    done = _forward("every kind", **by_state)
    seen = seen_in_the_log(done, "Fence Pay - verify")
    assert seen["steps"] == ["Quote", "Reserve", "Rate", "Hold", "Left", "Right", "Further", "Mark"]
    assert seen["per_item"] == ["Pack", "Label"]
    assert done.sent["Fence Pay - verify"]["Payload"]["outputs"] == {"Look": {}}, "no row keeps it"
    assert done.trace[-1] == "Settle completed"
    assert body(done)["result"]["Pay"] == {"receipt": "r"}


# ---- branches -------------------------------------------------------------------------------------------------------


def test_a_refused_branch_is_compensated_after_the_other_has_ended() -> None:
    done = _forward("every kind", Left=refusal(), **WELL)
    assert {"Right", "Further", "Both 1 - failed"} <= set(done.trace)
    undone = [name for name in done.trace if name.startswith("Compensate ")]
    assert undone == [
        "Compensate Further",
        "Compensate Right",
        "Compensate Left",
        "Compensate Hold",
        "Compensate Reserve",
    ]
    assert body(done, "Settle failed")["step"] == "Left"


def test_of_two_failed_branches_the_first_ones_reason_is_reported() -> None:
    done = _forward("branches, no pivot", Left=refusal("Invalid", "one"), Right=refusal("Declined", "two"))
    answer = body(done, "Settle failed")
    assert (answer["step"], answer["error"], answer["detail"]) == ("Left", "Invalid", "one")


def test_a_fenced_branch_fences_the_saga_whatever_the_other_returns() -> None:
    done = _forward("branches, no pivot", Left=refusal(), Right=refusal("SagaFenced"))
    assert done.trace[-1] == "End fenced"


def test_branches_that_could_not_be_run_are_compensated() -> None:
    saga = GROUPED["branches, no pivot"]
    made = definition_of(saga)
    made["States"]["Both"]["Branches"][0] = {"StartAt": "Bad", "States": {"Bad": {"Type": "Fail", "Error": "Odd"}}}
    done = run(made, answers())
    assert [name for name in done.trace if name.startswith("Compensate ")] == ["Compensate Right", "Compensate Left"]
    assert body(done, "Settle failed")["error"] == "StepFailed"


# ---- maps -----------------------------------------------------------------------------------------------------------


def _ship(items: Any, **by_state: Any) -> Run:
    saga = plan(of_items("Ship", step("Pack", undo=True), external("Label")), step("Pay", pivot=True))
    return run(definition_of(saga), answers(by_state), request=json.dumps({"items": items}))


def test_items_are_worked_on_by_their_keys() -> None:
    done = _ship([{"sku": "a"}, {"sku": "b"}])
    assert keys_called(done, "Pack") == ["a", "b"]
    assert body(done)["result"]["Pack"] == {"a": {"of": "Pack"}, "b": {"of": "Pack"}}


def test_one_item_is_an_array_of_one() -> None:
    done = _ship([{"sku": "a"}])
    assert body(done)["result"]["Pack"] == {"a": {"of": "Pack"}}


def test_one_item_that_is_not_an_array_is_one_item() -> None:
    assert keys_called(_ship({"sku": "a"}), "Pack") == ["a"]


@pytest.mark.parametrize("items", [[], None])
def test_no_item_is_nothing_to_do(items: Any) -> None:
    request = "{}" if items is None else json.dumps({"items": items})
    saga = plan(of_items("Ship", step("Pack", undo=True)), step("Pay", pivot=True))
    done = run(definition_of(saga), answers(), request=request)
    assert done.trace == ["Ship", "Ship - result", "Pay", "Settle completed"]
    assert body(done)["result"]["Pack"] == {}


def test_a_key_that_is_a_number_is_its_text() -> None:
    done = _ship([{"sku": 7}, {"sku": 8}])
    assert body(done)["result"]["Pack"] == {"7": {"of": "Pack"}, "8": {"of": "Pack"}}


@pytest.mark.parametrize(
    "items",
    [
        [{"sku": "a"}, {"sku": "a"}],
        [{"sku": "a"}, {}],
        [{"sku": ""}],
        [{"sku": " "}],
        [{"sku": "a b"}],
        [{"sku": "a]"}],
        [{"sku": "a#undo"}],
        [{"sku": "a\n"}],
        [{"sku": "ä"}],
        [{"sku": "k" * 65}],
        [{"sku": "a"}, {"sku": "b"}, {"sku": "c"}, {"sku": "d"}],
        ["no object"],
    ],
    ids=[
        "twice", "none", "empty", "blank", "space", "bracket", "hash", "newline", "umlaut", "long", "too many", "text",
    ],
)  # fmt: skip
def test_invalid_items_refuse_the_saga_before_any_effect(items: Any) -> None:
    done = _ship(items)
    assert "Pack" not in done.trace
    answer = body(done, "Settle failed")
    assert (answer["error"], answer["step"], answer["status"]) == ("InvalidMapItems", "Ship", 422)
    assert "Compensate Pack" not in done.trace, "without items there is nothing to compensate"


@pytest.mark.parametrize(
    ("items", "key", "sent"),
    [
        ("$request.items", "$lowercase($item.sku)", {"items": [{"sku": "a"}, {"sku": 7}]}),
        ("$request.items[count > 0]", "$item.sku", {"items": [{"sku": "a", "count": "many"}]}),
    ],
    ids=["key", "items"],
)
@pytest.mark.parametrize("way", ["forward", "recovery"])
def test_items_that_cannot_be_evaluated_refuse_the_saga_and_park_nothing(
    items: str, key: str, sent: dict[str, Any], way: str
) -> None:
    saga = plan(of_items("Ship", step("Pack", undo=True), items=items, key=key), step("Pay", pivot=True))
    made = definition_of(saga) if way == "forward" else recovery_of(saga, FORWARD_MACHINE)

    done = run(made, answers({"Read direction": record(direction="compensate")}), request=json.dumps(sent))

    assert done.trace[-5:] == [
        "Compensate Ship", "Compensate Ship - items", "Query saga log", "All compensated?", "Settle failed",
    ]  # fmt: skip
    assert not {"Pack", "Compensate Pack"} & set(done.trace)


def test_items_that_can_be_evaluated_are_compensated_behind_the_test() -> None:
    saga = plan(
        of_items("Ship", step("Pack", undo=True), key="$lowercase($item.sku)"), step("Pay", pivot=True), operators=None
    )
    request = json.dumps({"items": [{"sku": "A"}, {"sku": "B"}]})

    done = run(definition_of(saga), answers({"Pay": refusal("Declined")}), request=request)

    assert keys_called(done, "Compensate Pack") == ["a", "b"]
    assert done.trace[-1] == "Settle failed"


@pytest.mark.parametrize(("standard", "first"), [(None, "Declined"), ("arn:standard", "StepFailed")])
def test_express_joins_branches_to_a_failure_in_doubt_standard_to_the_first(standard: str | None, first: str) -> None:
    saga = plan(
        parallel("Both", [step("Left", undo=True)], [step("Right", undo=True)]),
        step("Pay", pivot=True),
        standard_arn=standard,
    )
    state = definition_of(saga)["States"]["Both"]
    results = [{"ok": False, "failure": {"error": error, "kind": kind}} for error, kind in DISAGREEING]

    phase = evaluate(state["Assign"]["phase"], states={"result": results})

    assert (phase["ok"], phase["failure"]["error"]) == (False, first)


@pytest.mark.parametrize("key", ["k" * 64, "aZ09._:/@+=,-"])
def test_every_key_that_a_row_may_have_is_taken(key: str) -> None:
    assert keys_called(_ship([{"sku": key}]), "Pack") == [key]


@pytest.mark.parametrize("items", ['[{"sku": "a"}, {"sku": "b"}]', '($request.none; [{"sku": "a"}, {"sku": "b"}])'])
def test_items_may_be_written_out(items: str) -> None:
    saga = plan(of_items("Ship", step("Pack", undo=True), items=items), step("Pay", pivot=True))
    assert keys_called(run(definition_of(saga), answers()), "Pack") == ["a", "b"]


def test_a_refused_item_is_compensated_after_the_others_have_ended() -> None:
    done = _ship([{"sku": "a"}, {"sku": "b"}, {"sku": "c"}], Pack=by_item(refusal("Declined"), others=EMPTY))
    assert keys_called(done, "Label") == ["a", "c"]
    assert keys_called(done, "Compensate Label") == keys_called(done, "Compensate Pack") == ["a", "b", "c"]
    assert body(done, "Settle failed")["error"] == "Declined"


def test_of_two_refused_items_the_first_ones_reason_is_reported() -> None:
    done = _ship([{"sku": "a"}, {"sku": "b"}], Pack=refusal("Declined", "sold out"))
    assert body(done, "Settle failed")["detail"] == "sold out"


def test_a_fenced_item_fences_the_saga() -> None:
    assert (
        _ship([{"sku": "a"}, {"sku": "b"}], Label=by_item(refusal("SagaFenced"), others=EMPTY)).trace[-1]
        == "End fenced"
    )


def test_an_item_with_a_stuck_compensation_parks_the_saga_after_the_others() -> None:
    undo = by_item(refusal("ManualResolutionRequired", "who knows"), others=EMPTY)
    done = _ship([{"sku": "a"}, {"sku": "b"}, {"sku": "c"}], Pay=refusal(), **{"Compensate Label": undo})
    assert keys_called(done, "Compensate Pack") == ["a", "c"]
    entry = operators_are_told(done)
    assert entry["parked_reason"] == {"step": "Label[b]", "error": "ManualResolutionRequired", "detail": "who knows"}
    assert entry["failure"]["step"] == "Pay"


def test_an_item_whose_compensation_is_fenced_fences_the_saga() -> None:
    done = _ship([{"sku": "a"}], Pay=refusal(), **{"Compensate Label": refusal("SagaFenced")})
    assert done.trace[-1] == "End fenced"


def test_items_of_an_output_are_compensated_without_a_pivot() -> None:
    parcels = {"Payload": {"output": {"parcels": [{"id": "x"}, {"id": "y"}]}}}
    done = _forward("items from an output, no pivot", Plan=parcels, Load=refusal())
    assert keys_called(done, "Compensate Load") == ["x", "y"]
    assert done.trace[-1] == "Settle failed"


# ---- groups behind the pivot ----------------------------------------------------------------------------------------

BEHIND = {"Quick": _told(_went_well("One")), "Slow": _told(_went_well("Two"), "child")}


def _behind(**by_state: Any) -> Run:
    made = definition_of(GROUPED["groups behind the pivot"])
    return run(made, answers({**BEHIND, **by_state}), request=ITEMS, given=None)


@pytest.mark.parametrize(
    ("failing", "answer", "group"),
    [
        ("Quick", {"Status": "FAILED"}, "Quick"),
        ("Slow", Failure("States.TaskFailed"), "Slow"),
        ("Left", refusal(), "Both"),
        ("Pack", refusal("Odd"), "Ship"),
    ],
)
def test_a_group_after_the_pivot_is_retried_and_then_parked(failing: str, answer: Any, group: str) -> None:
    done = _behind(**{failing: answer})
    assert done.trace.count(group) == 21
    assert not [name for name in done.trace if name.startswith(("Begin compensation", "Compensate", "Fence"))]
    entry = operators_are_told(done)
    # A phase that did not answer names itself; a branch, the step that failed in it.
    assert (entry["parked_reason"]["step"], entry["parked_reason"]["error"]) == (failing, "StepFailed")


def test_a_saga_continues_after_a_group_after_the_pivot() -> None:
    done = _behind(Quick=[{"Status": "FAILED"}, BEHIND["Quick"]])
    assert done.trace[:7] == [
        "Reserve",
        "Pay",
        "Quick",
        "Quick - result",
        "Retries left for Quick?",
        "Wait before retrying Quick",
        "Quick",
    ]
    assert done.trace[-1] == "Settle completed"


def test_each_group_has_tries_of_its_own() -> None:
    quick = [{"Status": "FAILED"}] * 15 + [BEHIND["Quick"]]
    slow = [Failure("States.TaskFailed")] * 15 + [BEHIND["Slow"]]
    assert _behind(Quick=quick, Slow=slow).trace[-1] == "Settle completed"


def test_invalid_items_after_the_pivot_wait_for_an_operator() -> None:
    twice = json.dumps({"items": [{"sku": "a"}, {"sku": "a"}]})
    done = run(definition_of(GROUPED["groups behind the pivot"]), answers(BEHIND), request=twice)
    assert operators_are_told(done)["failure"]["error"] == "InvalidMapItems"


# ---- refusals that do not end the saga ------------------------------------------------------------------------------

NO_CODE = refusal("Invalid", "no code")
SKIP_ASK = "Skip Ask (Invalid)"


def test_a_step_in_a_phase_is_skipped_and_recorded_as_done() -> None:
    answer = _phase(GROUPED["skips in groups"], "Quick", Ask=NO_CODE)
    assert answer == {"ok": True, "outputs": {"Ask": {"percent": "0"}, "Take": {"of": "Take"}}}


@pytest.mark.parametrize("status", ["REFUSED", "COMPENSATED"])
def test_a_step_in_a_phase_whose_row_has_no_effect_is_skipped(status: str) -> None:
    by_state = {
        "Ask": NO_CODE,
        SKIP_ASK: CONDITION_FAILED,
        f"{SKIP_ASK} - read row": row(status),
    }
    answer = _phase(GROUPED["skips in groups"], "Quick", **by_state)
    assert answer["outputs"]["Ask"] == {"percent": "0"}


def test_a_step_in_a_phase_that_was_applied_keeps_its_output() -> None:
    by_state = {
        "Ask": NO_CODE,
        SKIP_ASK: CONDITION_FAILED,
        f"{SKIP_ASK} - read row": row("DONE", '{"percent": "5"}'),
    }
    answer = _phase(GROUPED["skips in groups"], "Quick", **by_state)
    assert answer["outputs"]["Ask"] == {"percent": "5"}


def test_a_step_in_a_phase_continues_with_the_output_of_the_tombstone_that_it_finds() -> None:
    by_state = {
        "Ask": NO_CODE,
        SKIP_ASK: CONDITION_FAILED,
        f"{SKIP_ASK} - read row": row("TOMBSTONE", '{"percent": "7"}'),
    }
    answer = _phase(GROUPED["skips in groups"], "Quick", **by_state)
    assert answer["outputs"]["Ask"] == {"percent": "7"}


def test_a_step_in_a_phase_that_finds_a_tombstone_without_an_output_is_skipped() -> None:
    by_state = {
        "Ask": NO_CODE,
        SKIP_ASK: CONDITION_FAILED,
        f"{SKIP_ASK} - read row": {"Item": {"status": {"S": "TOMBSTONE"}}},
    }
    answer = _phase(GROUPED["skips in groups"], "Quick", **by_state)
    assert answer["outputs"]["Ask"] == {"percent": "0"}


def test_a_step_in_a_phase_with_an_unknown_outcome_stops_the_phase() -> None:
    by_state = {
        "Ask": NO_CODE,
        SKIP_ASK: CONDITION_FAILED,
        f"{SKIP_ASK} - read row": row("INTENT"),
        f"{SKIP_ASK} - verify": refusal("ManualResolutionRequired"),
    }
    answer = _phase(GROUPED["skips in groups"], "Quick", **by_state)
    assert answer["ok"] is False
    assert answer["failure"]["step"] == "Ask"


def test_steps_in_branches_and_items_are_skipped() -> None:
    well: Any = {"Payload": {"output": {"label": "l"}}}
    by_state = {
        "Quick": _told(_went_well("Ask", "Take")),
        "Left": NO_CODE,
        "Right": NO_CODE,
        "Label": by_item(NO_CODE, others=well),
    }
    done = _forward("skips in groups", **by_state)
    result = body(done)["result"]
    assert result["Left"] == result["Right"] == {"percent": "0"}
    assert result["Label"] == {"a": {"label": "l"}, "b": {"percent": "0"}}
    assert done.sent["Skip Label (Invalid)"]["Item"]["step"] == {"S": "Label[b]"}
