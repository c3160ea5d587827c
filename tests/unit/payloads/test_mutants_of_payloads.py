"""Each condition that protects payloads, removed: what it protects against must then happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

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
from tests.unit.support.mutation import Mutant, mutate
from tests.unit.support.samples import SAGA_ID
from tests.unit.support.world import World

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


def a_foreign_payload_is_not_read(_: World) -> None:
    """Whatever brought the reference there."""
    foreign = payloads.store(BUCKET, OTHER_SAGA, '"secret"')
    _refused(PayloadLost, lambda: payloads.load(BUCKET, SAGA_ID, foreign))


def changed_bytes_are_not_read(_: World) -> None:
    """Somebody with access to the bucket wrote them."""
    reference = payloads.store(BUCKET, SAGA_ID, "1")
    aws.s3().put_object(Bucket=BUCKET, Key=reference[REFERENCE_FIELD], Body=b"2")
    _refused(PayloadLost, lambda: payloads.load(BUCKET, SAGA_ID, reference))


def a_client_names_no_payload(_: World) -> None:
    """Neither as the whole body nor within it."""
    body = canonical_json({"a": reference_to(SAGA_ID, "x")})
    _refused(Invalid, lambda: body_of({"body": body}, 1_000))


def a_step_returns_no_reference(_: World) -> None:
    """It may repeat what a client sent."""
    _refused(Invalid, lambda: encode_output({"a": reference_to(SAGA_ID, "x")}))


def an_answer_is_not_longer_than_a_function_may_answer(_: World) -> None:
    """Two large outputs together."""
    reference = canonical_json(payloads.store(BUCKET, SAGA_ID, '"' + "x" * (MAX_PAYLOAD_BYTES // 2) + '"'))
    _refused(Unsendable, lambda: payloads.put_in_place(f"[{reference},{reference}]", BUCKET, SAGA_ID))


def a_reference_is_never_answered(_: World) -> None:
    """An expression merged it into another object."""
    merged = canonical_json({**reference_to(SAGA_ID, "x"), "more": 1})
    _refused(Unsendable, lambda: payloads.put_in_place(merged, BUCKET, SAGA_ID))


def what_an_expression_looks_into_travels(_: World) -> None:
    """Or the expression would find nothing, and a step would be passed over."""
    inline = Payloads(saga_id=SAGA_ID, bucket=BUCKET, inline=True)
    text = encode_output({"a": "x" * INLINE_OUTPUT_BYTES}, payloads=inline)
    assert REFERENCE_FIELD not in text


def a_key_leads_nowhere_else(_: World) -> None:
    """Not to an object that was put there by other means."""
    assert not is_reference({REFERENCE_FIELD: f"{SAGA_ID}/../secret"})


_STEP = import_module("saga_runtime.steps.step")
_REFERENCES = import_module("saga_runtime.payloads.references")
_FRONT_DOOR = import_module("saga_runtime.http.idempotent_request")

MUTANTS = [
    Mutant(
        name="a reference is followed whoever its owner is",
        owner=payloads,
        target="load",
        old=" or owner not in (saga_id, request_id_from(saga_id))",
        new="",
        kills=a_foreign_payload_is_not_read,
    ),
    Mutant(
        name="the hash is not checked",
        owner=payloads,
        target="load",
        old="if hashlib.sha256(body).hexdigest() != digest:",
        new="if False:",
        kills=changed_bytes_are_not_read,
    ),
    Mutant(
        name="a body may hold references",
        owner=_FRONT_DOOR,
        target="body_of",
        old="if has_reserved_member(canonical):",
        new="if False:",
        kills=a_client_names_no_payload,
    ),
    Mutant(
        name="an output may hold references",
        owner=_STEP,
        target="encode_output",
        old="if has_reserved_member(text):",
        new="if False:",
        kills=a_step_returns_no_reference,
    ),
    Mutant(
        name="an answer may have any size",
        owner=payloads,
        target="put_in_place",
        old="if size > MAX_PAYLOAD_BYTES:",
        new="if False:",
        kills=an_answer_is_not_longer_than_a_function_may_answer,
    ),
    Mutant(
        name="what is left of a reference is answered",
        owner=payloads,
        target="put_in_place",
        old="if has_reserved_member(whole):",
        new="if False:",
        kills=a_reference_is_never_answered,
    ),
    Mutant(
        name="a key may have any form",
        owner=_REFERENCES,
        target="is_reference",
        old="and _KEY.fullmatch(key) is not None",
        new="and True",
        kills=a_key_leads_nowhere_else,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_condition_is_needed(bucket: World, monkeypatch: pytest.MonkeyPatch, mutant: Mutant) -> None:
    mutate(monkeypatch, mutant)
    globals_of_this_test(monkeypatch, mutant)
    with pytest.raises(AssertionError):
        mutant.kills(bucket)


def globals_of_this_test(monkeypatch: pytest.MonkeyPatch, mutant: Mutant) -> None:
    """This module imported some of the targets by name."""
    if mutant.target in globals():
        monkeypatch.setitem(globals(), mutant.target, getattr(mutant.owner, mutant.target))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_original_has_it(bucket: World, mutant: Mutant) -> None:
    mutant.kills(bucket)


def test_an_output_that_is_looked_into_travels_itself(bucket: World, monkeypatch: pytest.MonkeyPatch) -> None:
    what_an_expression_looks_into_travels(bucket)

    monkeypatch.setattr(Payloads, "travelling", lambda self, output, **_: canonical_json(reference_to(SAGA_ID, output)))
    with pytest.raises(AssertionError):
        what_an_expression_looks_into_travels(bucket)
