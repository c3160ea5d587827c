"""Items that an earlier version stored are read by this one: sagas in flight survive an upgrade.

``formats_before.json`` is the golden file of the version before, unchanged. Replace it with ``formats.json`` at each
release, before that changes. Until the first release there is no version before, and both files are alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from saga_runtime.callbacks.rows import TokenRow
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.ledger.items import Account
from saga_runtime.protocol import StartField
from saga_runtime.saga_log.rows import LogRow
from tests.unit.support.formats import GOLDEN

BEFORE: Final = json.loads(Path(GOLDEN).with_name("formats_before.json").read_text("utf-8"))
NOW: Final = json.loads(GOLDEN.read_text("utf-8"))
READERS: Final[dict[str, Callable[[Any], object]]] = {
    "request record": RequestRecord.from_item,
    "saga log": LogRow.from_item,
    "token table": TokenRow.from_item,
}


def items_of(part: Any) -> Iterator[dict[str, Any]]:
    """Items that are put, wherever they are in a part of the file."""
    if isinstance(part, dict):
        if "Item" in part:
            yield part["Item"]
        for value in part.values():
            yield from items_of(value)
    elif isinstance(part, list):
        for value in part:
            yield from items_of(value)


def stored(section: str) -> list[tuple[str, dict[str, Any]]]:
    keys = {"request record": "saga_id", "saga log": "step", "token table": "id"}
    return [
        (name, item)
        for name, part in BEFORE[section].items()
        for item in items_of(part)
        if keys[section] in item and not (section == "token table" and "saga_id" in item)
    ]


CASES = [(section, name, item) for section in READERS for name, item in stored(section)]


def test_there_are_items_of_every_kind() -> None:
    assert {section for section, *_ in CASES} == set(READERS)
    assert len(CASES) >= 10


@pytest.mark.parametrize(("section", "name", "item"), CASES, ids=[f"{one[0]}: {one[1]}" for one in CASES])
def test_stored_item_of_the_version_before_is_read(section: str, name: str, item: dict[str, Any]) -> None:
    read = READERS[section](item)

    again = [one for part in [NOW[section].get(name, {})] for one in items_of(part) if one.keys() >= item.keys()]
    for other in again[:1]:  # this version's item of the same occasion means the same
        same = {key: value for key, value in other.items() if key in item}
        assert read == READERS[section](same) or same != item


def test_derived_names_are_those_of_the_version_before() -> None:
    assert {name: NOW["names"][name] for name in BEFORE["names"]} == BEFORE["names"]


def test_account_of_the_version_before_is_read() -> None:
    (item,) = (one for one in items_of(BEFORE["ledger"]["open an account"]) if "balance" in one)

    assert Account.from_item("alice", item).balance.minor_units == int(item["balance"]["N"])


def test_input_of_an_execution_keeps_the_fields_of_the_version_before() -> None:
    before = json.loads(BEFORE["request record"]["start input"])

    assert before.keys() <= {field.value for field in StartField}
    assert before == json.loads(NOW["request record"]["start input"])
