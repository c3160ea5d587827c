"""Layouts that are refused, changes that are refused, and rows of a history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from saga_runtime.errors import Invalid
from saga_runtime.migration import Change, Concern, Layout, Target, copy_row, merged, row_id
from tests.unit.support.migrations import CASH, LAST, LAYOUT, OLD, POINT, PROFILE

NAMES: dict[str, str] = {"id_attribute": "op", "partition_key": "pk", "sort_key": "sk"}


def concern(**changes: Any) -> Concern:
    return Concern(**{"name": "POINT", "item": "BALANCE#POINT", "attributes": {"balance": "point"}, **changes})


def layout(**changes: Any) -> Layout:
    return Layout(**{"name": "split", "old_item": OLD, "groups": ((POINT,),), **changes})


@pytest.mark.parametrize(
    "make",
    [
        lambda: concern(name=""),
        lambda: concern(name="a b"),
        lambda: concern(name=1),
        lambda: concern(item=" "),
        lambda: concern(attributes={}),
        lambda: concern(attributes="balance"),
        lambda: concern(attributes={"balance": ""}),
        lambda: concern(attributes={"a": "point", "b": "point"}),
        lambda: concern(attributes={"at": "point"}),
        lambda: layout(name=""),
        lambda: layout(old_item=" "),
        lambda: layout(partition_key=3),
        lambda: layout(sort_key="pk"),
        lambda: layout(partition_key="at"),
        lambda: layout(sort_key="phase"),
        lambda: layout(sort_key="version"),
        lambda: layout(groups=()),
        lambda: layout(groups=((),)),
        lambda: layout(groups=[(POINT,)]),
        lambda: layout(groups=(("POINT",),)),
        lambda: layout(groups=((POINT,), (POINT,))),
        lambda: layout(groups=((POINT, concern(name="OTHER")),)),
        lambda: layout(groups=((POINT, concern(name="OTHER", item="OTHER")),)),
        lambda: layout(groups=((concern(item=OLD),),)),
        lambda: layout(groups=((concern(attributes={"balance": "pk"}),),)),
        lambda: layout(groups=((concern(attributes={"balance": "at_POINT"}),),)),
        lambda: layout(groups=((concern(attributes={"sk": "point"}),),)),
        lambda: layout(pilots="anna"),
        lambda: layout(pilots=("",)),
        lambda: layout(pilots=tuple(map(str, range(21)))),
        lambda: Change(add={"balance": 1.5}),  # type: ignore[dict-item]
        lambda: Change(add={"balance": True}),
        lambda: Change(put={"name": b"x"}),  # type: ignore[dict-item]
        lambda: Change(add={"balance": 1}, put={"balance": 2}),
    ],
)
def test_wrong_argument_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(Invalid):
        make()


def test_layout_survives_its_stored_form() -> None:
    assert Layout.from_json(LAYOUT.to_json()) == LAYOUT


def test_there_are_fifteen_phases_of_two_groups() -> None:
    targets = [
        tuple(LAYOUT.target(phase, one, "anna")[0] for one in (PROFILE, POINT, CASH)) for phase in range(LAST + 1)
    ]

    assert ["".join(one) for one in targets] == [
        *("OOO", "OOO"),
        *("OOO", "DOO", "DOO", "DOO", "NOO", "COO"),
        *("COO", "CDD", "CDD", "CDD", "CNN", "CCC"),
        "RRR",
    ]
    assert LAYOUT.target(2, PROFILE, "pilot") is Target.DUAL
    assert LAYOUT.target(5, PROFILE, "pilot") is Target.NEW
    assert len({LAYOUT.describe(phase) for phase in range(LAST + 1)}) == LAST + 1


def row(sort_key: str, **attributes: str) -> dict[str, Any]:
    return {"pk": {"S": "anna"}, "sk": {"S": sort_key}, **{name: {"S": value} for name, value in attributes.items()}}


def test_two_equal_purchases_of_one_second_stay_two() -> None:
    rows = [row("t0#purchase#1", at="t0", type="purchase"), row("t0#purchase#2", at="t0", type="purchase")]
    copies = [
        write.action["Put"]["Item"]
        for one in rows
        for write in copy_row(one, table="t", to={"sk": {"S": f"history#{row_id(one, **NAMES)}"}}, **NAMES)
    ]

    assert len(merged([*rows, *copies, *copies], **NAMES)) == 2
    articles = {(one["pk"]["S"], one["at"]["S"], one["type"]["S"]) for one in (*rows, *copies)}
    assert len(articles) == 1  # by key of the customer, time and type they are one


def test_copy_keeps_the_id_of_its_row() -> None:
    one, other = row("a", op="op-1"), row("b")

    assert row_id(one, **NAMES) == "op-1"
    assert row_id(other, **NAMES) == row_id(dict(other), **NAMES) != row_id(row("c"), **NAMES)
