"""Values, customers and operations that are refused before they reach AWS."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from saga_runtime import Commit
from saga_runtime.errors import Invalid
from saga_runtime.migration import CLEAR, Change, Concern, Layout, Store
from saga_runtime.saga_log.transaction import commit_first
from tests.unit.support.migrations import LAST, OLD, POINT, TABLE, Table, marker, open_table
from tests.unit.support.world import World

CUSTOMERS: list[Any] = [
    "",
    " ",
    "\n",
    None,
    7,
    b"anna",
    ["anna"],
    "x" * 2_049,
    "ä" * 1_025,
    "migration#split",
    "migration#x",
    "anna \ud83d",
]
HALF = "half \ud83d"
"""Half of a surrogate pair, as ``json.loads`` reads it: UTF-8 does not have it, so no request has."""
NUMBERS = [Decimal("NaN"), Decimal("Infinity"), Decimal("-Infinity"), 10**38 + 1, Decimal("1e126"), Decimal("1e-131")]


@pytest.fixture
def table(world: World) -> Table:
    return open_table(world)


@pytest.mark.parametrize("customer", CUSTOMERS, ids=lambda value: repr(value)[:20])
def test_customer_that_is_not_a_key_is_refused_before_any_call(table: Table, customer: Any) -> None:
    store = table.store
    calls: list[Callable[[], object]] = [
        lambda: store.writes(customer, {"POINT": Change(add={"balance": 1})}),
        lambda: store.born(customer, {}),
        lambda: store.gone(customer),
        lambda: store.read(customer, "POINT"),
        lambda: store.items(customer, ["POINT"]),
    ]
    table.world.wire.forget()

    for call in calls:
        with pytest.raises(Invalid, match="customer must be"):
            call()
    assert table.world.wire.sent == []


@pytest.mark.parametrize("number", NUMBERS, ids=str)
def test_number_that_dynamodb_refuses_is_refused(table: Table, number: Any) -> None:
    given: Any = {"balance": number}
    for name in ("add", "put", "once", "at_least", "at_most"):
        with pytest.raises(Invalid, match="balance must be a finite number of at most 38 digits"):
            Change(**{name: given})
    with pytest.raises(Invalid, match="balance must be a finite number of at most 38 digits"):
        table.store.born("bert", {"POINT": {"balance": number}})


@pytest.mark.parametrize(
    "number", [0, Decimal("0E-400"), 10**38, 99 * 10**36, Decimal("1e125"), Decimal("-1e-130"), Decimal("0.5")], ids=str
)
def test_number_that_dynamodb_takes_is_taken(number: Any) -> None:
    assert Change(add={"balance": number}, at_least={"balance": number}).counts


@pytest.mark.parametrize(
    "arguments",
    [
        {"add": None},
        {"add": [("balance", 1)]},
        {"add": {1: 1}},
        {"put": {" ": "x"}},
        {"equal": {"name": 1}},
        {"equal": {"name": None}},
        {"refusal": "too few points"},
        {"once": {"since": None}},
        {"once": {"since": CLEAR}},
    ],
    ids=str,
)
def test_change_of_another_type_is_refused(arguments: Any) -> None:
    with pytest.raises(Invalid, match="must be"):
        Change(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [{"table": ""}, {"table": " "}, {"table": None}, {"layout": "split"}, {"layout": None}],
    ids=str,
)
def test_store_of_another_type_is_refused(table: Table, arguments: Any) -> None:
    with pytest.raises(Invalid, match="must be"):
        Store(**{"layout": table.layout, "table": TABLE, **arguments})


@pytest.mark.parametrize("arguments", [{"put": {"name": HALF}}, {"once": {"name": HALF}}, {"equal": {"name": HALF}}])
def test_text_that_utf_8_does_not_have_is_refused(table: Table, arguments: Any) -> None:
    with pytest.raises(Invalid, match="name must be a text of whole characters"):
        Change(**arguments)
    with pytest.raises(Invalid, match="name must be a text of whole characters"):
        table.store.born("bert", {"PROFILE": {"name": HALF}})
    assert Change(put={"name": "\U0001f600"}, once={"mail": ""}).counts


@pytest.mark.parametrize(
    "values", [None, [], ["POINT"], "POINT", {"POINT": None}, {"POINT": [1]}, {"POINT": 7}], ids=str
)
def test_values_of_another_type_are_refused_before_any_call(table: Table, values: Any) -> None:
    table.world.wire.forget()

    with pytest.raises(Invalid, match="values must be a mapping of concerns to mappings of values"):
        table.store.born("bert", values)
    assert table.world.wire.sent == []


@pytest.mark.parametrize("concerns", [None, "POINT", 7, b"POINT"], ids=str)
def test_concerns_of_another_type_are_refused(table: Table, concerns: Any) -> None:
    with pytest.raises(Invalid, match="concerns must be names of concerns"):
        table.store.items("anna", concerns)


@pytest.mark.parametrize("demands", [[], ["POINT"], {"POINT": None}, ""], ids=str)
def test_demands_of_another_type_are_refused(table: Table, demands: Any) -> None:
    with pytest.raises(Invalid, match="must be"):
        table.store.gone("anna", demands)


@pytest.mark.parametrize("change", [Change(at_least={"balance": 1}), Change(at_most={"balance": 9})])
@pytest.mark.parametrize("phase", [1, 9, 12, LAST])
def test_demand_of_a_number_where_a_text_is_stored_names_the_attribute(
    table: Table, phase: int, change: Change
) -> None:
    table.put("bert", point="5")
    table.move_to(phase)
    planned = table.store.writes("bert", {"POINT": change})
    name = "point" if phase == 1 else "balance"

    with pytest.raises(Invalid, match=f"{name} must be a number, got S; correct the item"):
        commit_first(lambda: (marker("bert", "op-1"), planned), remaining_ms=lambda: 60_000)


@pytest.mark.parametrize("changes", [None, [], {"POINT": {"add": {"balance": 1}}}, {"POINT": None}], ids=str)
def test_changes_of_another_type_are_refused(table: Table, changes: Any) -> None:
    with pytest.raises(Invalid, match="must be"):
        table.store.writes("anna", changes)


MANY = Layout(
    name="many",
    old_item=OLD,
    groups=tuple((Concern(name=f"C{n}", item=f"NEW#{n}", attributes={"n": f"n{n}"}),) for n in range(3)),
)


@pytest.mark.parametrize("phase", [0, 1, 3, 9, 15, MANY.last])
def test_operation_that_is_too_large_in_one_phase_is_refused_in_each(world: World, phase: int) -> None:
    table = open_table(world, MANY)
    customers = [f"c{number:02d}" for number in range(33)]
    for customer in customers:
        table.put(customer, n0=1, n1=1, n2=1)
    table.move_to(phase)

    def planned(customers: list[str], concerns: int) -> list[Any]:
        changes = {f"C{n}": Change(add={"n": 1}) for n in range(concerns)}
        return [write for customer in customers for write in table.store.writes(customer, changes)]

    assert len(Commit(writes=planned(customers, 2)).writes) <= 99
    with pytest.raises(Invalid, match=r"at most 99 writes with its log row, got (\d+, and )?132[; ]"):
        Commit(writes=planned(customers, 3))


@pytest.mark.parametrize("phase", range(LAST + 1))
def test_demands_births_and_deletions_have_the_size_of_the_largest_phase(table: Table, phase: int) -> None:
    table.move_to(phase)
    store = table.store

    assert _most(store.writes("anna", {"POINT": Change(at_least={"balance": 1})})) == 1
    assert (
        _most(store.writes("anna", {"POINT": Change(at_least={"balance": 1}), "CASH": Change(add={"balance": 1})})) == 3
    )
    assert _most(store.born("bert", {POINT.name: {"balance": 1}})) == 4
    assert _most(store.gone("anna")) == 4


def _most(writes: list[Any]) -> int:
    return sum(1 + write.more for write in writes)
