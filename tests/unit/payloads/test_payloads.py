"""Payloads in a bucket: references, storing, reading, and what is never taken for a reference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_runtime import StepCall
from saga_runtime.errors import Invalid, TransientError
from saga_runtime.idempotency.identity import canonical_json, request_id_from
from saga_runtime.payloads.claim_check import Outputs, PayloadLost, Payloads, Unsendable, load, put_in_place, store
from saga_runtime.payloads.references import has_reserved_member, is_reference, reference_to
from saga_runtime.protocol import (
    INLINE_OUTPUT_BYTES,
    MAX_OUTPUT_BYTES,
    MAX_PAYLOAD_BYTES,
    REFERENCE_FIELD,
    CallField,
)
from saga_runtime.shared import aws
from saga_runtime.steps.step import decode_output, encode_output
from tests.unit.support.samples import NOW_MS, SAGA_ID, step_event
from tests.unit.support.wire import Action, Fault
from tests.unit.support.world import World

BUCKET = "payloads"
OTHER_SAGA = "b" * 26 + "-abc"
KEEPING = Payloads(saga_id=SAGA_ID, bucket=BUCKET)
LARGE = {"text": "ü" * INLINE_OUTPUT_BYTES}
JSON = st.recursive(
    st.none() | st.booleans() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@pytest.fixture
def bucket(world: World) -> Iterator[World]:
    """The world, with a bucket in it."""
    aws.s3.cache_clear()
    aws.s3().create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    world.wire.forget()
    yield world
    aws.s3.cache_clear()


def keys() -> list[str]:
    """Keys of what is stored."""
    return [item["Key"] for item in aws.s3().list_objects_v2(Bucket=BUCKET).get("Contents", [])]


class TestAReference:
    def test_is_known_by_its_form(self) -> None:
        assert is_reference(reference_to(SAGA_ID, "x"))
        assert is_reference(reference_to(request_id_from(SAGA_ID), "x"))

    @pytest.mark.parametrize(
        "value",
        [
            {REFERENCE_FIELD: "elsewhere"},
            {REFERENCE_FIELD: f"{SAGA_ID}/../{'0' * 64}"},
            {REFERENCE_FIELD: f"{SAGA_ID}/{'0' * 64}\n"},
            {**reference_to(SAGA_ID, "x"), "more": 1},
            {REFERENCE_FIELD: 1},
            {},
            "x",
            None,
        ],
    )
    def test_is_nothing_else(self, value: object) -> None:
        assert not is_reference(value)

    @given(JSON)
    def test_is_never_seen_in_json_that_has_no_such_member(self, value: object) -> None:
        text = canonical_json({"a": value, "b": f'{{"{REFERENCE_FIELD}":"x"}}', "c": REFERENCE_FIELD})

        assert not has_reserved_member(text)
        assert put_in_place(text, None, SAGA_ID) == text

    @given(JSON)
    def test_is_found_at_any_place(self, value: object) -> None:
        assert has_reserved_member(canonical_json([{"a": {REFERENCE_FIELD: value}}]))


class TestStoring:
    def test_returns_the_stored_value(self, bucket: World) -> None:
        reference = store(BUCKET, SAGA_ID, '{"a":"ü"}')

        assert load(BUCKET, SAGA_ID, reference) == '{"a":"ü"}'

    def test_the_same_twice_makes_one_object(self, bucket: World) -> None:
        assert store(BUCKET, SAGA_ID, "x") == store(BUCKET, SAGA_ID, "x")
        assert len(keys()) == 1

    def test_without_a_response_is_transient(self, bucket: World) -> None:
        bucket.wire.plan(Fault(operation="PutObject", action=Action.DROP))

        with pytest.raises(TransientError):
            store(BUCKET, SAGA_ID, "x")


class TestReading:
    def test_without_a_response_is_transient(self, bucket: World) -> None:
        reference = store(BUCKET, SAGA_ID, "x")
        bucket.wire.plan(Fault(operation="GetObject", action=Action.DROP))

        with pytest.raises(TransientError):
            load(BUCKET, SAGA_ID, reference)

    def test_notices_other_bytes(self, bucket: World) -> None:
        reference = store(BUCKET, SAGA_ID, "x")
        aws.s3().put_object(Bucket=BUCKET, Key=reference[REFERENCE_FIELD], Body=b"y")

        with pytest.raises(PayloadLost, match="not what was stored"):
            load(BUCKET, SAGA_ID, reference)

    def test_names_the_payload_that_was_lost(self, bucket: World) -> None:
        with pytest.raises(PayloadLost, match="NoSuchKey"):
            load(BUCKET, SAGA_ID, reference_to(SAGA_ID, "x"))

    def test_reports_that_the_saga_has_no_bucket_any_more(self) -> None:
        with pytest.raises(PayloadLost, match=r"payloads=PayloadBucket"):
            load(None, SAGA_ID, reference_to(SAGA_ID, "x"))

    def test_does_not_follow_another_sagas_reference(self, bucket: World) -> None:
        foreign = store(BUCKET, OTHER_SAGA, "secret")

        with pytest.raises(PayloadLost, match="no payload of saga"):
            load(BUCKET, SAGA_ID, foreign)
        assert bucket.wire.sent == ["PutObject"]

    def test_follows_the_requests_reference(self, bucket: World) -> None:
        assert load(BUCKET, SAGA_ID, store(BUCKET, request_id_from(SAGA_ID), "x")) == "x"


class TestAnOutput:
    def test_that_is_small_travels_itself(self, bucket: World) -> None:
        assert encode_output({"a": 1}, payloads=KEEPING) == '{"a":1}'
        assert bucket.wire.sent == []

    def test_that_is_just_small_enough_travels_itself(self, bucket: World) -> None:
        exactly = {"a": "x" * (INLINE_OUTPUT_BYTES - len('{"a":""}'))}

        assert not is_reference(decode_output(encode_output(exactly, payloads=KEEPING)))
        assert is_reference(decode_output(encode_output({"a": exactly["a"] + "x"}, payloads=KEEPING)))

    def test_that_is_large_travels_by_reference_and_is_read_back(self, bucket: World) -> None:
        text = encode_output(LARGE, payloads=KEEPING)

        assert is_reference(decode_output(text))
        assert KEEPING.read(decode_output(text)) == LARGE

    def test_that_an_expression_reads_travels_inline(self, bucket: World) -> None:
        inline = Payloads(saga_id=SAGA_ID, bucket=BUCKET, inline=True)

        assert decode_output(encode_output(LARGE, payloads=inline)) == LARGE
        with pytest.raises(Invalid, match="reads it"):
            encode_output({"a": "x" * MAX_OUTPUT_BYTES}, payloads=inline)

    def test_that_is_too_large_without_a_bucket_names_the_remedy(self) -> None:
        with pytest.raises(Invalid, match=r"payloads=PayloadBucket\(…\)"):
            encode_output({"a": "x" * MAX_OUTPUT_BYTES})

    def test_that_is_too_large_for_the_bucket_is_refused_before_it_is_stored(self, bucket: World) -> None:
        with pytest.raises(Invalid, match=str(MAX_PAYLOAD_BYTES)):
            encode_output({"a": "x" * MAX_PAYLOAD_BYTES}, payloads=KEEPING)
        assert bucket.wire.sent == []

    @pytest.mark.parametrize("payloads", [KEEPING, None])
    def test_must_not_look_like_a_reference_anywhere(self, payloads: Payloads | None) -> None:
        with pytest.raises(Invalid, match=REFERENCE_FIELD):
            encode_output({"deep": [reference_to(OTHER_SAGA, "x")]}, payloads=payloads)

    def test_is_added_to_others_by_its_travelling_size(self, bucket: World) -> None:
        beside = Outputs({f"S{n}": reference_to(SAGA_ID, "x") for n in range(20)}, KEEPING)

        assert encode_output({"a": 1}, beside=beside, payloads=KEEPING)
        assert bucket.wire.sent == []


class TestACall:
    def test_reads_a_large_request_on_first_use_and_once(self, bucket: World) -> None:
        reference = store(BUCKET, request_id_from(SAGA_ID), '{"amount":12345678901234567890}')
        bucket.wire.forget()

        call = self._call(request=reference)

        assert bucket.wire.sent == []
        assert call.request == {"amount": 12345678901234567890}
        assert call.request["amount"] + 1
        assert bucket.wire.sent == ["GetObject"]

    def test_reads_a_large_output_on_first_use_and_once(self, bucket: World) -> None:
        reference = json.loads(encode_output(LARGE, payloads=KEEPING))
        bucket.wire.forget()

        call = self._call(outputs={"Large": reference, "Small": {"a": 1}})

        assert (len(call.outputs), "Large" in call.outputs, call.outputs["Small"]) == (2, True, {"a": 1})
        assert bucket.wire.sent == []
        assert dict(call.outputs) == {"Large": LARGE, "Small": {"a": 1}} == call.outputs
        assert bucket.wire.sent == ["GetObject"]

    def test_reads_large_outputs_of_a_map_by_their_item_keys(self, bucket: World) -> None:
        reference = json.loads(encode_output(LARGE, payloads=KEEPING))
        bucket.wire.forget()

        call = self._call(outputs={"Pack": {"a": reference, "b": {"box": 1}}})

        assert call.outputs["Pack"] == {"a": LARGE, "b": {"box": 1}} == call.anew().outputs["Pack"]
        assert bucket.wire.sent == ["GetObject"]

    def test_passes_the_steps_output_to_its_compensation(self, bucket: World) -> None:
        call = self._call()

        assert call.decode(call.encode(LARGE)) == LARGE
        assert call.decode(None) == {}

    def test_cannot_be_changed(self, bucket: World) -> None:
        call: Any = self._call(request=store(BUCKET, SAGA_ID, "{}"))

        with pytest.raises(AttributeError):
            call.request = {}

    @staticmethod
    def _call(*, request: dict[str, str] | None = None, outputs: dict[str, Any] | None = None) -> StepCall:
        event = step_event(body=request or {"a": 1}, outputs=outputs) | {CallField.PAYLOADS: BUCKET}
        return StepCall.from_event(event, attempt="a", now_ms=NOW_MS)


class TestASettledAnswer:
    def test_is_put_together_byte_for_byte(self, bucket: World) -> None:
        first, second = (canonical_json(reference_to(SAGA_ID, text)) for text in ('{"a":1.50}', "[]"))
        store(BUCKET, SAGA_ID, '{"a":1.50}')
        store(BUCKET, SAGA_ID, "[]")
        bucket.wire.forget()

        whole = put_in_place(f'{{"x":{first},"y":[{second},{first}],"n":0.10}}', BUCKET, SAGA_ID)

        assert whole == '{"x":{"a":1.50},"y":[[],{"a":1.50}],"n":0.10}'
        assert bucket.wire.sent == ["GetObject", "GetObject"]

    def test_that_is_too_large_together_cannot_be_sent(self, bucket: World) -> None:
        text = json.dumps("x" * (MAX_PAYLOAD_BYTES // 2))
        reference = canonical_json(store(BUCKET, SAGA_ID, text))

        assert len(put_in_place(reference, BUCKET, SAGA_ID)) == len(text)
        with pytest.raises(Unsendable, match=str(MAX_PAYLOAD_BYTES)):
            put_in_place(f"[{reference},{reference}]", BUCKET, SAGA_ID)

    def test_that_refers_to_a_lost_payload_cannot_be_sent(self, bucket: World) -> None:
        with pytest.raises(Unsendable, match="cannot be read"):
            put_in_place(canonical_json(reference_to(SAGA_ID, "x")), BUCKET, SAGA_ID)

    def test_that_holds_a_part_of_a_reference_cannot_be_sent(self, bucket: World) -> None:
        merged = canonical_json({**store(BUCKET, SAGA_ID, "{}"), "more": 1})

        with pytest.raises(Unsendable, match="a part of a reference"):
            put_in_place(merged, BUCKET, SAGA_ID)
