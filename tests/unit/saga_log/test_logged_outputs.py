"""Outputs that a compensation reads from the saga log, and the share that a step has of the room for outputs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from saga_runtime.errors import Invalid, ProtocolMismatch
from saga_runtime.protocol import (
    INLINE_OUTPUT_BYTES,
    MAX_OUTPUT_BYTES,
    MAX_OUTPUTS_BYTES,
    CallField,
    LoggedField,
    ShareField,
    Side,
)
from saga_runtime.saga_log.rows import done_put, tombstone_put
from saga_runtime.shared import aws
from saga_runtime.steps.step import StepCall
from tests.unit.support.samples import NOW_MS, SAGA_ID, step_event
from tests.unit.support.world import World

SEEN = {LoggedField.STEPS: ["Quote", "Fee"], LoggedField.PER_ITEM: ["Pick"], LoggedField.OWN: ["Pack"]}
ITEM = {CallField.ITEM: '{"item":1}', CallField.ITEM_KEY: "a"}


def _done(step: str, output: str) -> None:
    row: dict[str, Any] = {
        "table": "log",
        "saga_id": SAGA_ID,
        "step": step,
        "side": Side.BEFORE,
        "attempt": "x",
        "keep_days": 1,
    }
    aws.dynamodb().put_item(**done_put(**row, output=output, now_ms=NOW_MS)["Put"])


def _call(**fields: Any) -> StepCall:
    told = {CallField[name]: value for name, value in fields.items()}
    return StepCall.from_event({**step_event(), **ITEM, **told}, attempt="a", now_ms=NOW_MS)


@pytest.fixture
def rows(world: World) -> World:
    _done("Quote", '{"price":"1"}')
    _done("Pack[a]", '{"box":"a"}')
    _done("Pack[b]", '{"box":"b"}')
    _done("Pick[a]", '{"bin":1}')
    _done("Pick[c]", '{"bin":3}')
    _done("Picker[c]", '{"bin":4}')
    _done("Later", "{}")
    return world


@pytest.mark.usefixtures("rows")
def test_outputs_are_those_that_the_step_saw() -> None:
    assert dict(_call(LOGGED=SEEN).outputs) == {
        "Quote": {"price": "1"},
        "Pack": {"box": "a"},
        "Pick": {"a": {"bin": 1}, "c": {"bin": 3}},
    }


def test_only_used_outputs_are_read(rows: World) -> None:
    call = _call(LOGGED=SEEN)

    assert rows.calls_of(lambda: call.saga_id) == []
    assert rows.calls_of(lambda: call.outputs["Quote"]) == ["GetItem"]
    assert rows.calls_of(lambda: call.outputs["Quote"]) == []
    assert rows.calls_of(lambda: call.outputs["Pick"]) == ["Query"]


@pytest.mark.usefixtures("rows")
def test_a_step_without_a_result_has_no_output() -> None:
    buried: dict[str, Any] = {
        "table": "log",
        "saga_id": SAGA_ID,
        "step": "Fee",
        "side": Side.BEFORE,
        "attempt": "x",
        "keep_days": 1,
    }
    aws.dynamodb().put_item(**tombstone_put(**buried, now_ms=NOW_MS)["Put"])
    outputs = _call(LOGGED=SEEN).outputs

    assert ("Fee" in outputs, outputs.get("Fee"), outputs.get("Later"), len(outputs)) == (False, None, None, 3)
    with pytest.raises(KeyError):
        assert outputs["Fee"]


ROUTES: dict[str, Any] = {LoggedField.INSTEAD: json.dumps({"Fee": {"SoldOut": {"fee": "none"}}})}
LATE = {"output": '{"fee":"late"}'}


@pytest.mark.parametrize(
    ("status", "kept", "seen"),
    [
        ("REFUSED", {"error": "SoldOut"}, {"fee": "none"}),
        ("REFUSED", {"error": "Other"}, None),
        ("TOMBSTONE", {"output": '{"fee":"waived"}'}, {"fee": "waived"}),
        ("APPLIED_LATE", {"error": "SoldOut", **LATE}, {"fee": "none"}),
        ("COMPENSATED", {"error": "SoldOut", **LATE}, {"fee": "none"}),
        ("COMPENSATED", {"substitute": '{"fee":"waived"}', **LATE}, {"fee": "waived"}),
        ("COMPENSATED", LATE, {"fee": "late"}),
        ("DONE", {"error": "SoldOut", **LATE}, {"fee": "late"}),
    ],
)
@pytest.mark.parametrize("item", ["", "[c]"])
@pytest.mark.usefixtures("world")
def test_output_of_a_skipped_step_is_its_substitute_output(
    status: str, kept: dict[str, str], seen: Any, item: str
) -> None:
    row = {"saga_id": SAGA_ID, "step": f"Fee{item}", "status": status, **kept}
    aws.dynamodb().put_item(TableName="log", Item={name: {"S": value} for name, value in row.items()})
    places: dict[str, list[str]] = {LoggedField.STEPS: [], LoggedField.PER_ITEM: [], LoggedField.OWN: []}
    told: dict[str, Any] = {**places, **ROUTES, LoggedField.PER_ITEM if item else LoggedField.STEPS: ["Fee"]}

    found = _call(LOGGED=told).outputs.get("Fee")
    assert found == (seen if not item or seen is None else {"c": seen})


@pytest.mark.usefixtures("rows")
def test_outputs_without_a_row_are_in_the_event() -> None:
    outputs = _call(LOGGED=SEEN, OUTPUTS={"Look": {"n": 1}}).outputs

    assert (outputs["Look"], outputs["Quote"]) == ({"n": 1}, {"price": "1"})
    assert set(outputs) == {"Look", "Quote", "Pack", "Pick"}


@pytest.mark.parametrize("told", [[], {}, {"steps": []}, {"steps": [], "per_item": "Pick", "own": []}])
def test_outputs_of_no_known_steps_are_refused(told: Any) -> None:
    with pytest.raises(ProtocolMismatch, match="outputs in the log must be named by steps, per_item, own"):
        _call(LOGGED=told)


# ---- shares ---------------------------------------------------------------------------------------------------------


def _share(of: int, *own: str, left: int = 1) -> dict[str, Any]:
    return {ShareField.OF: of, ShareField.OWN: list(own), ShareField.LEFT: left}


def _padded(size: int) -> dict[str, str]:
    """An output of so many bytes."""
    return {"p": "x" * (size - len('{"p":""}'))}


def _largest(call: StepCall) -> int:
    """Bytes of the largest output that the step may return."""
    least, most = len('{"p":""}'), MAX_OUTPUT_BYTES + 1
    while most - least > 1:
        size = (least + most) // 2
        try:
            call.encode(_padded(size))
            least = size
        except Invalid:
            most = size
    return least


KEY = len('"a":,')
ROOM = MAX_OUTPUTS_BYTES - len("{}")


def test_an_item_has_an_equal_share_of_the_room_its_key_included() -> None:
    assert _largest(_call(SHARE=_share(12))) == ROOM // 12 - KEY


def test_a_share_is_of_the_remaining_space() -> None:
    before = {"Quote": _padded(30_000)}
    taken = len('{"Quote": {"p": ""}}') + 30_000 - len('{"p":""}')

    assert _largest(_call(SHARE=_share(12), OUTPUTS=before)) == (MAX_OUTPUTS_BYTES - taken) // 12 - KEY


def test_steps_of_one_item_share_its_share() -> None:
    own = {"Pack": _padded(5_000)}
    call = _call(SHARE=_share(12, "Pack"), OUTPUTS=own)

    assert _largest(call) == ROOM // 12 - KEY - (5_000 + 1 + KEY), "a blank is counted, too"


@pytest.mark.parametrize("of", [2, 3, 12, 40, 333])
def test_as_many_items_as_there_may_be_fit_together(of: int) -> None:
    first = _largest(_call(SHARE=_share(of, left=2)))
    second = _largest(_call(SHARE=_share(of, "Pack"), OUTPUTS={"Pack": _padded(first // 2)}))

    assert of * (first // 2 + second + 2 * KEY) <= MAX_OUTPUTS_BYTES


def test_too_large_outputs_are_refused_with_the_remedy() -> None:
    with pytest.raises(Invalid) as refused:
        _call(SHARE=_share(40)).encode(_padded(30_000))

    room = ROOM // 40 - KEY
    assert refused.value.message == (
        f"the output must have at most {room} bytes with those of its item or branch, got 30000; "
        "return less, lower max_items, or give the saga payloads=PayloadBucket(…)"
    )


def test_where_there_is_no_room_nothing_is_taken() -> None:
    with pytest.raises(Invalid, match="must have at most 0 bytes"):
        _call(SHARE=_share(40), OUTPUTS={"Quote": _padded(98_300)}).encode({})


@pytest.fixture
def bucket(world: World) -> Iterator[str]:
    """Name of a payload bucket."""
    assert world is not None
    aws.s3.cache_clear()
    aws.s3().create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    yield "bucket"
    aws.s3.cache_clear()


def test_with_a_bucket_the_inline_limit_is_the_share(bucket: str) -> None:
    call = _call(SHARE=_share(40, left=2), PAYLOADS=bucket)
    room = ROOM // 40 // 2 - KEY

    assert "cdk_sagas_ref" not in call.encode(_padded(room))
    assert "cdk_sagas_ref" in call.encode(_padded(room + 1))
    assert "cdk_sagas_ref" in call.encode(_padded(2_000_000))


def test_with_a_bucket_outputs_that_exceed_the_limit_travel_by_reference(bucket: str) -> None:
    call = _call(PAYLOADS=bucket, OUTPUTS={f"S{n}": _padded(INLINE_OUTPUT_BYTES) for n in range(11)})

    assert "cdk_sagas_ref" in call.encode(_padded(INLINE_OUTPUT_BYTES))


@pytest.mark.parametrize(
    "told", [[], {}, _share(0), _share(2) | {"left": 0}, _share(True), {**_share(2), "own": "Pack"}]
)
def test_a_share_that_no_saga_gave_is_refused(told: Any) -> None:
    with pytest.raises(ProtocolMismatch, match="a share of the room for outputs must have of, own, left"):
        _call(SHARE=told)
