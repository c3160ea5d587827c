"""Stored data keeps its form: keys, items, conditions, TTL."""

from __future__ import annotations

import hashlib

from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import RecordAttribute, RecordStatus, StepStatus
from saga_runtime.saga_log.rows import LogRow
from tests.unit.support import formats
from tests.unit.support.formats import GOLDEN, produced, text_of


def test_every_stored_format_is_the_golden_one() -> None:
    assert text_of(produced()) == GOLDEN.read_text("utf-8"), formats.__doc__


def test_a_stored_record_and_row_read_back() -> None:
    made = produced()
    record = RequestRecord.from_item(made["request record"]["reserve"]["Item"])
    row = LogRow.from_item(made["saga log"]["done"]["Put"]["Item"])

    assert (record.status, record.owner) == (RecordStatus.IN_PROGRESS, record.saga_id)
    assert (row.status, row.output) == (StepStatus.DONE, '{"amount":"200","entry_id":"e"}')


def test_a_reservation_has_no_expiration_and_its_row_one_of_400_days() -> None:
    made = produced()

    assert RecordAttribute.EXPIRATION not in made["request record"]["reserve"]["Item"]
    assert made["saga log"]["done"]["Put"]["Item"]["expiration"] == {"N": str(1_700_000_000 + 400 * 86_400)}


def test_the_scope_is_a_reproducible_length_prefixed_sha_256() -> None:
    parts = ["transfers", "iam", "111122223333", "AIDAALICE"]
    by_hand = b"".join(len(part).to_bytes(4, "big") + part.encode() for part in parts)

    assert produced()["names"]["scope, iam"] == hashlib.sha256(by_hand).hexdigest()


def test_a_stored_key_contains_no_personal_data() -> None:
    made = produced()
    item = made["request record"]["reserve"]["Item"]

    assert not any(person in str(item[key]) for key in ("id", "saga_id", "scope") for person in ("AIDAALICE", "key-1"))
