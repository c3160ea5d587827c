"""Values, customers and operations that are refused before they reach AWS."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from saga_runtime import Commit
from saga_runtime.errors import Invalid
from saga_runtime.migration import CLEAR, Change, Concern, Layout, Store
from tests.unit.support.migrations import LAST, OLD, POINT, TABLE, Table, open_table
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
]
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
    with pytest.raises(ValueError, match=r"at most 99 writes with its log row, got (\d+, and )?132[; ]"):
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
