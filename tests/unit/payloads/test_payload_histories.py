"""Short histories of payloads: no saga reads another's payloads, and no client names a stored one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from saga_runtime.errors import Invalid
from saga_runtime.http.idempotent_request import body_of
from saga_runtime.idempotency.identity import canonical_json
from saga_runtime.payloads import claim_check as payloads
from saga_runtime.payloads.claim_check import PayloadLost, Payloads, Unsendable
from saga_runtime.payloads.references import is_reference, reference_to
from saga_runtime.protocol import INLINE_OUTPUT_BYTES, MAX_PAYLOAD_BYTES, REFERENCE_FIELD
from saga_runtime.shared import aws
from saga_runtime.steps.step import encode_output
from tests.unit.support.samples import SAGA_ID
from tests.unit.support.world import World

pytestmark = pytest.mark.usefixtures("bucket")

BUCKET = "payloads"
OTHER_SAGA = "b" * 26 + "-abc"


@pytest.fixture
def bucket(world: World) -> Iterator[World]:
    """The world, with a bucket in it."""
    aws.s3.cache_clear()
    aws.s3().create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    yield world
    aws.s3.cache_clear()


def _refused(error: type[Exception], action: Callable[[], object]) -> None:
    """The action must end with this error."""
    try:
        answer = action()
    except error:
        return
    raise AssertionError(f"{answer!r} came back")


def test_a_foreign_payload_is_not_read() -> None:
    """Whatever brought the reference there."""
    foreign = payloads.store(BUCKET, OTHER_SAGA, '"secret"')
    _refused(PayloadLost, lambda: payloads.load(BUCKET, SAGA_ID, foreign))


def test_changed_bytes_are_not_read() -> None:
    """They were written with access to the bucket."""
    reference = payloads.store(BUCKET, SAGA_ID, "1")
    aws.s3().put_object(Bucket=BUCKET, Key=reference[REFERENCE_FIELD], Body=b"2")
    _refused(PayloadLost, lambda: payloads.load(BUCKET, SAGA_ID, reference))


def test_a_client_names_no_payload() -> None:
    """Neither as the whole body nor within it."""
    body = canonical_json({"a": reference_to(SAGA_ID, "x")})
    _refused(Invalid, lambda: body_of({"body": body}, 1_000))


def test_a_step_returns_no_reference() -> None:
    """It may repeat what a client sent."""
    _refused(Invalid, lambda: encode_output({"a": reference_to(SAGA_ID, "x")}))


def test_a_response_is_at_most_as_long_as_a_functions_result() -> None:
    """Two large outputs together."""
    reference = canonical_json(payloads.store(BUCKET, SAGA_ID, '"' + "x" * (MAX_PAYLOAD_BYTES // 2) + '"'))
    _refused(Unsendable, lambda: payloads.put_in_place(f"[{reference},{reference}]", BUCKET, SAGA_ID))


def test_a_reference_is_never_returned() -> None:
    """An expression merged it into another object."""
    merged = canonical_json({**reference_to(SAGA_ID, "x"), "more": 1})
    _refused(Unsendable, lambda: payloads.put_in_place(merged, BUCKET, SAGA_ID))


def what_an_expression_looks_into_travels(_: World) -> None:
    """Otherwise the expression would find nothing, and a step would be skipped."""
    inline = Payloads(saga_id=SAGA_ID, bucket=BUCKET, inline=True)
    text = encode_output({"a": "x" * INLINE_OUTPUT_BYTES}, payloads=inline)
    assert REFERENCE_FIELD not in text


def test_a_key_leads_nowhere_else() -> None:
    """Not to an object that was put there by other means."""
    assert not is_reference({REFERENCE_FIELD: f"{SAGA_ID}/../secret"})


def test_an_output_that_an_expression_reads_travels_inline(bucket: World, monkeypatch: pytest.MonkeyPatch) -> None:
    what_an_expression_looks_into_travels(bucket)

    monkeypatch.setattr(Payloads, "travelling", lambda self, output, **_: canonical_json(reference_to(SAGA_ID, output)))
    with pytest.raises(AssertionError):
        what_an_expression_looks_into_travels(bucket)
