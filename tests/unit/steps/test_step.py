"""Inputs and results of a step function."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from saga_runtime.errors import Invalid, ProtocolMismatch
from saga_runtime.protocol import MAX_EXACT_INTEGER, MAX_OUTPUT_BYTES, MAX_TRANSACT_ITEMS, CallField
from saga_runtime.saga_log.write import Write
from saga_runtime.steps.step import Commit, StepCall, decode_output, encode_output
from tests.unit.support.samples import NOW_MS, SAGA_ID, step_event

MISSING = object()


def read(event: Any, *, undo: bool = False) -> StepCall:
    """The call in an event."""
    return StepCall.from_event(event, attempt="attempt-1", now_ms=NOW_MS, undo=undo)


def test_a_call_carries_the_request_exactly() -> None:
    call = read({**step_event(), CallField.REQUEST: '{"amount":9007199254740993,"rate":0.10}'})

    assert call.request == {"amount": 9007199254740993, "rate": Decimal("0.10")}


def test_a_call_has_its_step_key_and_the_providers_form_of_it() -> None:
    call, undo = read(step_event()), read(step_event(), undo=True)

    assert (call.key, undo.key) == (f"{SAGA_ID}#Transfer", f"{SAGA_ID}#Transfer#undo")
    assert len(call.provider_key) == len(undo.provider_key) == 36
    assert call.provider_key != undo.provider_key


def test_outputs_of_earlier_steps_are_available_by_name() -> None:
    assert read(step_event(outputs={"Quote": {"price": "1"}})).outputs == {"Quote": {"price": "1"}}


def test_outputs_may_travel_as_text_which_a_queue_takes() -> None:
    event = {**step_event(), CallField.OUTPUTS: r'{"Quote": {"of": "\uFFFE"}}'}
    assert read(event).outputs == {"Quote": {"of": "\ufffe"}}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (CallField.PROTOCOL, MISSING),
        (CallField.PROTOCOL, 2),
        (CallField.PROTOCOL, "1"),
        (CallField.SAGA_ID, MISSING),
        (CallField.SAGA_ID, ""),
        (CallField.SAGA_ID, f"{SAGA_ID}\n"),
        (CallField.SAGA_ID, f"{SAGA_ID}-r1"),
        (CallField.SAGA_ID, 1),
        (CallField.STEP, MISSING),
        (CallField.STEP, " "),
        (CallField.STEP, "Transfer#undo"),
        (CallField.LOG_TABLE, MISSING),
        (CallField.LOG_TABLE, " "),
        (CallField.LOG_DAYS, MISSING),
        (CallField.LOG_DAYS, 0),
        (CallField.SIDE, MISSING),
        (CallField.SIDE, "between"),
        (CallField.ITEM, "{}"),
        (CallField.ITEM_KEY, "a"),
        (CallField.REQUEST, MISSING),
        (CallField.REQUEST, {"amount": 1}),
        (CallField.OUTPUTS, ["x"]),
        (CallField.OUTPUTS, "x"),
        (CallField.OUTPUTS, '["x"]'),
    ],
)
def test_an_event_that_no_saga_of_this_release_sent_is_refused(field: CallField, value: Any) -> None:
    event = {name: kept for name, kept in {**step_event(), field: value}.items() if kept is not MISSING}

    with pytest.raises(ProtocolMismatch):
        read(event)


def test_a_call_for_an_item_of_a_map_has_the_item_and_names_of_its_own() -> None:
    request = '{"items":[{"amount":1},{"amount":9007199254740993,"rate":0.10}]}'
    place: dict[str, Any] = {CallField.ITEM_PATH: ["items"], CallField.ITEM_INDEX: 1, CallField.ITEM_KEY: "sku-1"}
    event = {**step_event(), CallField.REQUEST: request, **place}

    call, undo = read(event), read(event, undo=True)

    assert (call.item, call.item_key) == ({"amount": 9007199254740993, "rate": Decimal("0.10")}, "sku-1")
    assert (call.key, undo.key) == (f"{SAGA_ID}#Transfer[sku-1]", f"{SAGA_ID}#Transfer[sku-1]#undo")
    assert (call.row_name, undo.row_name) == ("Transfer[sku-1]",) * 2
    assert len(call.provider_key) == 36


def test_outside_a_map_there_is_no_item() -> None:
    call = read(step_event())

    assert (call.item, call.item_key, call.row_name, call.side) == (None, None, "Transfer", "before")


@pytest.mark.parametrize("key", ["", " ", "a b", "a]", "a[0", "a#undo", "ä", "a\n", "x" * 65])
def test_an_item_with_an_invalid_key_refuses_the_request(key: str) -> None:
    with pytest.raises(Invalid, match="an item's key"):
        read({**step_event(), CallField.ITEM: '{"item":{}}', CallField.ITEM_KEY: key})


@pytest.mark.parametrize(
    ("text", "item"),
    [
        ('"abc"', "abc"),
        ('"12"', "12"),
        ('"true"', "true"),
        ("12", 12),
        ("true", True),
        ("null", None),
        ("[[1],[]]", [[1], []]),
        ("1e+21", 10**21),
        ('{"a":[1e+2,0.5]}', {"a": [100, Decimal("0.5")]}),
    ],
)
def test_an_item_of_any_type_is_unchanged(text: str, item: Any) -> None:
    call = read({**step_event(), CallField.ITEM: f'{{"item":{text}}}', CallField.ITEM_KEY: "a"})

    assert (call.item, type(call.item)) == (item, type(item))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({CallField.ITEM: {"a": 1}, CallField.ITEM_KEY: "a"}, "as text or by path and index"),
        ({CallField.ITEM: '{"item":1}', CallField.ITEM_KEY: 0}, "an item's key must be text, got int"),
        ({CallField.ITEM: '{"item":1}'}, "an item's key must be text, got NoneType"),
        ({CallField.ITEM_INDEX: 0}, "an item's key must be text, got NoneType"),
        ({CallField.ITEM_KEY: "a"}, "as text or by path and index"),
        ({CallField.ITEM: "1", CallField.ITEM_KEY: "a"}, "as the member item of an object"),
        ({CallField.ITEM: '{"item":1,"b":2}', CallField.ITEM_KEY: "a"}, "as the member item of an object"),
        ({CallField.ITEM_PATH: "a", CallField.ITEM_INDEX: 0, CallField.ITEM_KEY: "a"}, "by path and index"),
        ({CallField.ITEM_PATH: ["a"], CallField.ITEM_INDEX: -1, CallField.ITEM_KEY: "a"}, "by path and index"),
        ({CallField.ITEM_PATH: ["a"], CallField.ITEM_INDEX: True, CallField.ITEM_KEY: "a"}, "by path and index"),
    ],
)
def test_an_item_that_no_saga_of_this_release_sent_is_refused(fields: dict[CallField, Any], message: str) -> None:
    with pytest.raises(ProtocolMismatch, match=message):
        read({**step_event(), **fields})


def test_a_missing_item_of_the_request_is_refused_when_it_is_read() -> None:
    place = {CallField.ITEM_PATH: ["items"], CallField.ITEM_INDEX: 1, CallField.ITEM_KEY: "a"}
    call = read({**step_event(), CallField.REQUEST: '{"items":[1]}', **place})

    with pytest.raises(ProtocolMismatch, match="must have an item 1 at items, got 1 items"):
        assert call.item


@pytest.mark.parametrize("event", [None, [], "x", 1, {}])
def test_an_invalid_event_is_refused(event: Any) -> None:
    with pytest.raises(ProtocolMismatch):
        read(event)


@pytest.mark.parametrize(
    "output", [{}, {"a": None, "b": [True, "x", {"c": MAX_EXACT_INTEGER}]}, {"\u00e4": "\U0001f600"}]
)
def test_an_output_is_read_back_as_it_was_returned(output: Any) -> None:
    assert decode_output(encode_output(output)) == output


def test_a_row_without_an_output_has_an_empty_one() -> None:
    assert decode_output(None) == {}


class Amount(Decimal):
    """A decimal number of the user's own class."""


@pytest.mark.parametrize(
    "output",
    [
        None,
        [],
        "x",
        {"a": 1.0},
        {"a": [{"b": 0.5}]},
        {"a": Decimal(1)},
        {"a": Amount("0.1")},
        {"a": MAX_EXACT_INTEGER + 1},
        {"a": (-MAX_EXACT_INTEGER - 1,)},
        {"a": {1: "x"}},
        {"a": b"x"},
        {"a": "\ud800"},
        {"a": {"set"}},
    ],
)
def test_an_output_that_would_change_in_transit_is_invalid(output: Any) -> None:
    with pytest.raises(Invalid):
        encode_output(output)


def test_an_output_has_its_limit_in_bytes_to_the_byte() -> None:
    fits = "\u00e4" * ((MAX_OUTPUT_BYTES - len('{"a":""}')) // 2)

    assert len(encode_output({"a": fits}).encode()) == MAX_OUTPUT_BYTES
    with pytest.raises(Invalid, match="return its key instead"):
        encode_output({"a": fits + "x"})


def test_an_output_that_contains_itself_is_invalid() -> None:
    endless: dict[str, Any] = {}
    endless["again"] = endless

    with pytest.raises(Invalid, match="too deep"):
        encode_output(endless)


@pytest.mark.parametrize("action", [{}, {"Get": {}}, {"Put": {}, "Update": {}}])
def test_a_write_is_exactly_one_action(action: Any) -> None:
    with pytest.raises(ValueError, match="exactly one of"):
        Write(action=action)


def test_a_commit_may_write_under_one_key_in_two_tables() -> None:
    key = {"id": {"S": "a"}}
    writes = [Write(action={"Delete": {"TableName": table, "Key": key}}) for table in ("orders", "stock")]

    assert Commit(writes=writes).writes == writes


def test_a_commit_leaves_room_for_its_log_row() -> None:
    write = Write(action={"Put": {}})

    Commit(writes=[write] * (MAX_TRANSACT_ITEMS - 1))
    with pytest.raises(Invalid, match="split the step"):
        Commit(writes=[write] * MAX_TRANSACT_ITEMS)


def test_all_outputs_of_a_saga_together_have_a_limit() -> None:
    half = {"text": "x" * 30_000}
    earlier = {"First": half, "Second": half, "Third": half}

    with pytest.raises(Invalid, match="all outputs of a saga together may have 98304 bytes, got 1"):
        encode_output(half, beside=earlier)

    assert decode_output(encode_output(half, beside={"First": half})) == half
