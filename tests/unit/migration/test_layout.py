"""Layouts that are refused, changes that are refused, and rows of a history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from saga_runtime.errors import Invalid
from saga_runtime.migration import Change, Concern, History, Layout, Target
from tests.unit.support.migrations import CASH, LAST, LAYOUT, OLD, POINT, PROFILE


def concern(**changes: Any) -> Concern:
    return Concern(**{"name": "POINT", "item": "BALANCE#POINT", "attributes": {"balance": "point"}, **changes})


def layout(**changes: Any) -> Layout:
    return Layout(**{"name": "split", "old_item": OLD, "groups": ((POINT,),), **changes})


def history(**changes: Any) -> History:
    return History(**{"old_prefix": "tx#", "new_prefix": "history#", "id_attribute": "op", **changes})


@pytest.mark.parametrize(
    "make",
    [
        lambda: concern(name=""),
        lambda: concern(name="a b"),
        lambda: concern(name=1),
        lambda: concern(item=" "),
        lambda: concern(item="x" * 1_025),
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
        lambda: layout(pilots=("migration#split",)),
        lambda: layout(histories=[history()]),
        lambda: layout(histories=("tx#",)),
        lambda: layout(histories=(history(), history())),
        lambda: layout(histories=(history(old_prefix=OLD),)),
        lambda: layout(histories=(history(new_prefix="BALANCE#"),)),
        lambda: layout(histories=(history(new_prefix="tx#new#"),)),
        lambda: layout(histories=tuple(history(old_prefix=f"t{n}#", new_prefix=f"h{n}#") for n in range(6))),
        lambda: history(old_prefix=" "),
        lambda: history(new_prefix=None),
        lambda: history(id_attribute=""),
        lambda: history(order_attribute=1),
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
    with_rows = layout(histories=(history(order_attribute="ms"),))
    assert Layout.from_json(with_rows.to_json()) == with_rows
    assert with_rows.fingerprint != layout().fingerprint


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
