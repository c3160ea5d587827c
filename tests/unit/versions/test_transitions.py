"""Transitions: what a declaration must be, and what a write refuses."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any

import pytest

from saga_runtime import (
    Applied,
    Commit,
    HeldByAnother,
    InvalidTransition,
    NotApplied,
    Outcome,
    Pending,
    Transitions,
    Unknown,
    VersionConflict,
    VersionedItem,
    commit_once,
)
from saga_runtime.shared import aws
from tests.unit.support.world import World

TABLE: dict[str, list[str]] = {
    "pending": ["processing", "cancelled"],
    "processing": ["completed", "failed"],
    "failed": ["pending"],
    "completed": [],
    "cancelled": [],
}
PAYMENTS = Transitions(
    table=TABLE,
    initial="pending",
    held=["processing"],
    supervised=[("processing", "failed")],
    in_doubt=["failed"],
)
ORDERS = Transitions(table={"PAID": ["SHIPPED", "CANCELED"], "SHIPPED": [], "CANCELED": []}, initial="PAID")
PAYMENT = VersionedItem(table="ledger", key={"pk": {"S": "payment"}, "sk": {"S": "1"}})


class Name(str, Enum):  # noqa: UP042 -- it is what users of earlier Pythons have
    """Names of the user's: the text of a member is not its value."""

    SAGA = "saga-1"
    PROCESSING = "processing"
    RECEIPT = "receipt"


def read() -> Mapping[str, Any]:
    """The payment."""
    key: Any = PAYMENT.key
    return aws.dynamodb().get_item(TableName="ledger", Key=key, ConsistentRead=True)["Item"]


def move(operation: str, source: str, target: str, version: int | None, **settings: Any) -> Outcome:
    """Move the payment, under an operation's id."""
    rules = settings.pop("rules", PAYMENTS)
    marker = VersionedItem(table="ledger", key={"pk": {"S": f"op#{operation}"}, "sk": {"S": "marker"}})
    return commit_once(
        lambda: Commit(
            writes=rules.move(PAYMENT, source, target, expected_version=version, **settings), output={"state": target}
        ),
        marker=marker,
        request={"to": target},
    )


@pytest.fixture
def created(world: World) -> World:
    """A pending payment."""
    [write] = PAYMENTS.create(PAYMENT, {"amount": {"N": "5"}})
    entries: Any = [write.action]
    aws.dynamodb().transact_write_items(TransactItems=entries)
    world.wire.forget()
    return world


@pytest.mark.usefixtures("created")
class TestAMove:
    def test_changes_state_version_and_holder(self) -> None:
        assert read()["state"] == {"S": "pending"}

        assert move("start", "pending", "processing", 1, holder="saga-1").output == {"state": "processing"}
        assert (read()["state"], read()["version"], read()["holder"]) == (
            {"S": "processing"},
            {"N": "2"},
            {"S": "saga-1"},
        )

        move("end", "processing", "completed", 2, holder="saga-1", values={"receipt": {"S": "r"}})
        assert (read()["state"], read()["receipt"]) == ({"S": "completed"}, {"S": "r"})
        assert "holder" not in read()

    def test_of_members_of_an_enumeration_is_of_their_values(self) -> None:
        move("start", "pending", Name.PROCESSING, 1, holder=Name.SAGA)
        assert (read()["state"], read()["holder"]) == ({"S": "processing"}, {"S": "saga-1"})

        move("end", Name.PROCESSING, "completed", 2, holder="saga-1", values={Name.RECEIPT: {"S": "r"}})
        assert (read()["state"], read()["receipt"]) == ({"S": "completed"}, {"S": "r"})

    def test_that_is_not_declared_is_refused_before_anything_is_sent(self, created: World) -> None:
        with pytest.raises(InvalidTransition, match="pending cannot become completed"):
            PAYMENTS.move(PAYMENT, "pending", "completed", expected_version=1)
        with pytest.raises(InvalidTransition, match="refunded cannot become pending"):
            PAYMENTS.move(PAYMENT, "refunded", "pending", expected_version=1)

        assert created.wire.sent == []

    def test_from_another_state_is_a_conflict_that_has_it(self) -> None:
        move("cancel", "pending", "cancelled", 1)

        with pytest.raises(VersionConflict, match="version 2, state cancelled") as raised:
            move("start", "pending", "processing", 1, holder="saga-1")

        assert (raised.value.current_state, raised.value.current_version) == ("cancelled", 2)

    def test_from_another_state_is_a_conflict_also_with_its_version(self) -> None:
        move("cancel", "pending", "cancelled", 1)

        with pytest.raises(VersionConflict, match="version 2, state cancelled"):
            move("start", "pending", "processing", 2, holder="saga-1")

    def test_of_an_earlier_visit_of_its_state_is_a_conflict(self) -> None:
        move("start", "pending", "processing", 1, holder="saga-1")
        move("fail", "processing", "failed", 2)
        move("again", "failed", "pending", 3, verdict=NotApplied())

        with pytest.raises(VersionConflict, match="version 4, state pending"):
            move("cancel", "pending", "cancelled", 1)

        move("start again", "pending", "processing", 4, holder="saga-1")
        with pytest.raises(VersionConflict, match="version 5, state processing"):
            move("end", "processing", "completed", 2, holder="saga-1")

    def test_of_one_held_state_leaves_another_one_of_the_same_holder(self) -> None:
        rules = Transitions(
            table={"pending": ["packing"], "packing": ["sending", "lost"], "sending": ["lost"], "lost": []},
            initial="pending",
            held=["packing", "sending"],
        )
        move("pack", "pending", "packing", 1, holder="saga-1", rules=rules)
        move("send", "packing", "sending", 2, holder="saga-1", rules=rules)

        with pytest.raises(VersionConflict, match="version 3, state sending"):
            move("lose", "packing", "lost", 3, holder="saga-1", rules=rules)

    @pytest.mark.parametrize("read_now", [False, True])
    def test_by_another_holder_is_refused_with_who_holds_it(self, created: World, read_now: bool) -> None:
        move("start", "pending", "processing", 1, holder="saga-1")
        created.wire.forget()

        with pytest.raises(HeldByAnother, match="held by 'saga-1', not by 'saga-2'") as raised:
            move("end", "processing", "completed", 2, holder="saga-2", read_now=read_now)

        assert raised.value.current_holder == "saga-1"
        assert created.wire.sent.count("TransactWriteItems") == 1, "no other read changes who holds it"

    def test_by_another_holder_at_another_version_is_a_conflict(self) -> None:
        move("start", "pending", "processing", 1, holder="saga-1")

        with pytest.raises(VersionConflict, match="another version: version 2, state processing"):
            move("end", "processing", "completed", 1, holder="saga-2")

    def test_with_another_condition_that_is_not_met_is_a_conflict(self) -> None:
        with pytest.raises(VersionConflict, match="version 1, state pending"):
            move("cancel", "pending", "cancelled", 1, conditions={"amount": {"N": "6"}})

        move("cancel", "pending", "cancelled", 1, conditions={"amount": {"N": "5"}}, values={"amount": {"N": "0"}})
        assert (read()["state"], read()["amount"]) == ({"S": "cancelled"}, {"N": "0"})

    @pytest.mark.parametrize(
        "changed", [{"state": {"S": "processing"}}, {"version": {"N": "2"}}], ids=["state", "version"]
    )
    def test_with_another_condition_asks_for_state_and_version_too(self, changed: Any) -> None:
        item: Any = {**read(), **changed}
        aws.dynamodb().put_item(TableName="ledger", Item=item)

        with pytest.raises(VersionConflict):
            move("cancel", "pending", "cancelled", 1, conditions={"amount": {"N": "5"}})

    @pytest.mark.parametrize("name", ["state", "version", "holder", "pk"])
    def test_with_a_condition_on_the_items_own_attributes_is_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"values must leave '{name}' to the item"):
            move("cancel", "pending", "cancelled", 1, conditions={name: {"S": "x"}})

    def test_that_is_repeated_gets_its_first_result(self) -> None:
        move("start", "pending", "processing", 1, holder="saga-1")
        move("end", "processing", "completed", 2, holder="saga-1")

        assert move("start", "pending", "processing", 1, holder="saga-1") == Outcome(
            output={"state": "processing"}, replayed=True
        )

    def test_of_a_held_state_belongs_to_its_holder(self) -> None:
        move("start", "pending", "processing", 1, holder="saga-1")

        with pytest.raises(HeldByAnother):
            move("end", "processing", "completed", 2, holder="saga-2")
        with pytest.raises(ValueError, match="holder must name who holds the item for processing to completed"):
            move("end", "processing", "completed", 2)

        assert read()["state"] == {"S": "processing"}

    def test_of_a_supervisor_needs_no_holder(self) -> None:
        move("start", "pending", "processing", 1, holder="saga-1")

        move("late", "processing", "failed", 2)

        assert read()["state"] == {"S": "failed"}
        with pytest.raises(VersionConflict):
            move("end", "processing", "completed", 2, holder="saga-1")

    @pytest.mark.parametrize("verdict", [None, Applied(), Pending(), Unknown()])
    def test_out_of_doubt_needs_the_verdict_that_nothing_was_applied(self, verdict: Any) -> None:
        move("start", "pending", "processing", 1, holder="saga-1")
        move("fail", "processing", "failed", 2)

        with pytest.raises(InvalidTransition, match="while the action may be applied"):
            move("again", "failed", "pending", 3, verdict=verdict)

        assert move("again", "failed", "pending", 3, verdict=NotApplied()).output == {"state": "pending"}

    def test_on_a_cycle_needs_the_version_that_was_read(self) -> None:
        """A copy of the first start that still travels must not start the second attempt."""
        with pytest.raises(ValueError, match="expected_version must be given to leave pending, which comes back"):
            move("start", "pending", "processing", None, holder="saga-1")
        travelling = PAYMENTS.move(PAYMENT, "pending", "processing", expected_version=1, holder="saga-1")
        move("start", "pending", "processing", 1, holder="saga-1")
        move("fail", "processing", "failed", 2)
        move("again", "failed", "pending", 3, verdict=NotApplied())

        entries: Any = [write.action for write in travelling]
        with pytest.raises(aws.dynamodb().exceptions.TransactionCanceledException):
            aws.dynamodb().transact_write_items(TransactItems=entries)

    def test_of_a_state_that_is_never_entered_again_needs_no_version(self) -> None:
        rules = Transitions(table={"pending": ["done", "dropped"], "done": [], "dropped": []}, initial="pending")

        move("a", "pending", "done", None, rules=rules)

        with pytest.raises(VersionConflict):
            move("b", "pending", "dropped", None, rules=rules)

    def test_with_a_holder_that_nothing_needs_is_refused(self) -> None:
        with pytest.raises(ValueError, match="holder must be left out for pending to cancelled"):
            move("cancel", "pending", "cancelled", 1, holder="saga-1")
        with pytest.raises(ValueError, match="holder must name who holds the item"):
            move("start", "pending", "processing", 1, holder=" ")

    @pytest.mark.parametrize("name", ["state", "version", "holder", "pk"])
    def test_leaves_the_items_own_attributes_to_it(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"values must leave '{name}' to the item"):
            move("start", "pending", "cancelled", 1, values={name: {"S": "x"}})


@pytest.mark.usefixtures("created")
def test_of_ten_threads_that_cancel_one_succeeds() -> None:
    """By the state alone each of them would take itself for the one: "it is cancelled, so I had done that"."""

    def cancel(n: int) -> str:
        try:
            return "replayed" if move(f"c-{n}", "pending", "cancelled", 1).replayed else "done"
        except VersionConflict as conflict:
            return str(conflict.current_state)

    with ThreadPoolExecutor(max_workers=10) as pool:
        outcomes = list(pool.map(cancel, range(10)))

    assert sorted(outcomes) == ["cancelled"] * 9 + ["done"]


LOCKS = Transitions(table={"held": ["free"], "free": ["held", "gone"], "gone": []}, initial="held", held=["held"])


@pytest.mark.parametrize("holder", ["saga-1", Name.SAGA])
def test_item_may_begin_held_by_who_creates_it(world: World, holder: str) -> None:
    lock = VersionedItem(table="ledger", key={"pk": {"S": "lock"}, "sk": {"S": "1"}})
    entries: Any = [write.action for write in LOCKS.create(lock, holder=holder)]
    aws.dynamodb().transact_write_items(TransactItems=entries)

    (found,) = (item for item in world.items("ledger") if item["pk"] == {"S": "lock"})
    assert (found["state"], found["holder"], found["version"]) == ({"S": "held"}, {"S": "saga-1"}, {"N": "1"})
    with pytest.raises(HeldByAnother):
        commit_once(
            lambda: Commit(writes=LOCKS.move(lock, "held", "free", expected_version=1, holder="saga-2")),
            marker=VersionedItem(table="ledger", key={"pk": {"S": "op"}, "sk": {"S": "marker"}}),
            request={},
        )


@pytest.mark.parametrize(
    ("rules", "holder", "message"),
    [
        (LOCKS, None, "holder must name who holds the item for initial held, got None"),
        (LOCKS, " ", "holder must name who holds the item for initial held, got ' '"),
        (PAYMENTS, "saga-1", "holder must be left out for initial pending, got 'saga-1'"),
    ],
)
def test_creation_with_a_wrong_holder_is_refused(rules: Transitions, holder: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rules.create(PAYMENT, holder=holder)


class TestADeclaration:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"table": {"a": ["b"]}, "initial": "a"}, r"states must be declared in table, got \['b'\]"),
            ({"initial": "new"}, r"states must be declared in table, got \['new'\]"),
            ({"held": ["lost"]}, r"states must be declared in table, got \['lost'\]"),
            ({"table": {**TABLE, "refunded": []}}, r"states must be reachable from pending, got \['refunded'\]"),
            (
                {"table": {"a": ["b", "c"], "b": ["b"], "c": []}, "initial": "a"},
                r"a terminal state must be reachable from every state, got \['b'\]",
            ),
            ({"supervised": [("pending", "cancelled")]}, "supervised must name transitions out of held states"),
            ({"supervised": [("processing", "pending")]}, "supervised must name transitions out of held states"),
            ({"held": ["completed"]}, r"must not name terminal states, got \['completed'\]"),
            ({"in_doubt": ["cancelled"]}, r"must not name terminal states, got \['cancelled'\]"),
            ({"held": "processing"}, "held must be a collection, got 'processing'"),
            ({"table": {"a": "b", "b": []}, "initial": "a"}, "states after a must be a collection, got 'b'"),
        ],
    )
    def test_that_is_wrong_is_refused(self, changes: dict[str, Any], message: str) -> None:
        plain: dict[str, Any] = {"table": TABLE, "initial": "pending"}

        with pytest.raises(ValueError, match=message):
            Transitions(**{**plain, **changes})

    def test_knows_its_terminal_states(self) -> None:
        assert [state for state in TABLE if PAYMENTS.terminal(state)] == ["completed", "cancelled"]
        assert ORDERS.terminal("SHIPPED")
