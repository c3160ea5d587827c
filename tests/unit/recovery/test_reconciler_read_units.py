"""The benchmark's count of a reconciler's reads agrees with DynamoDB's documentation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.read_units import UNIT, item_size, units
from benchmarks.reconciler import CONSTANT_DUE, cost, reserved, settled
from benchmarks.reconciler_aws import Store


@pytest.mark.parametrize(
    ("sizes", "strong", "expected"),
    [
        ([3_500], True, 1),
        ([8 * 1_024], True, 2),
        ([8 * 1_024], False, 1),
        ([64] * 1_500, True, 24),
        ([4_178] * 10, True, 11),
        ([4_178] * 10, False, 5.5),
        ([], True, 1),
        ([], False, 0.5),
        ([1_042] * 1_009, False, 128.5),
        ([UNIT], True, 1),
        ([UNIT + 1], True, 2),
    ],
)
def test_a_request_costs_the_sum_of_its_reads_rounded_up_once(sizes: list[int], strong: bool, expected: float) -> None:
    assert units(sizes, strong=strong) == expected


def test_an_item_is_as_large_as_its_names_and_values() -> None:
    item = {"MyKeyPart": {"N": "300"}, "MyKeySort": {"N": "9"}, "MyUnstructuredData": {"S": "x" * 1_000}}

    # A digit and the number itself for 300 and for 9: zeros at the end count for nothing.
    assert item_size(item) == len("MyKeyPartMyKeySortMyUnstructuredData") + 2 + 2 + 1_000
    assert item_size({"ä": {"S": "ä"}}) == 4
    with pytest.raises(ValueError, match="got BOOL"):
        item_size({"flag": {"BOOL": True}})


def test_a_sweep_costs_as_much_however_many_records_are_stored(tmp_path: Path) -> None:
    store = Store(tmp_path / "records.sqlite")
    store.put(reserved(-n) for n in range(1, CONSTANT_DUE + 1))
    store.put(settled(range(100)))
    before = cost(store)
    store.put(reserved(-n) for n in range(1, CONSTANT_DUE + 1))
    store.put(settled(range(100, 5_000)))
    after = cost(store)
    store.close()

    assert (before["due"], before["stored"], after["stored"]) == (CONSTANT_DUE, 200, 5_100)
    assert json.dumps(before["read_units"]) == json.dumps(after["read_units"])
    assert before["calls"] == after["calls"]
