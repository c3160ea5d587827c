"""Check-and-set over serialized DynamoDB: one write per version, one effect per operation, and the naive forms."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from saga_runtime import Commit, ItemExists, OperationReused, Outcome, VersionConflict, VersionedItem, commit_once
from saga_runtime.errors import Conflict, Invalid, NotYet, PermanentError, TransientError
from saga_runtime.shared import aws
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import World

ACCOUNT = VersionedItem(table="ledger", key={"pk": {"S": "account"}, "sk": {"S": "limit"}})
WRITE = "TransactWriteItems"


class Attribute(str, Enum):  # noqa: UP042 -- it is what users of earlier Pythons have
    """Names of the user's: the text of a member is not its value."""

    LIMIT = "limit"
    NOTE = "note"


@pytest.fixture(autouse=True)
def created(world: World) -> None:
    """The account, as version 1, with a limit of 100."""
    commit(ACCOUNT.create({"limit": {"N": "100"}}))
    world.wire.forget()


def commit(writes: Any) -> None:
    """Commit writes in a transaction of their own, outside any operation."""
    aws.dynamodb().transact_write_items(TransactItems=[write.action for write in writes])


def read() -> Mapping[str, Any]:
    """The account."""
    key: Any = ACCOUNT.key
    return aws.dynamodb().get_item(TableName="ledger", Key=key, ConsistentRead=True)["Item"]


def version() -> int:
    """Its version."""
    return int(read()["version"]["N"])


def marker(operation: str) -> VersionedItem:
    """An operation's marker."""
    return VersionedItem(table="ledger", key={"pk": {"S": f"op#{operation}"}, "sk": {"S": "marker"}})


def set_limit(operation: str, limit: int, expected_version: int) -> Outcome:
    """Set the limit, on condition of a version that a client has seen."""
    return commit_once(
        lambda: Commit(
            writes=ACCOUNT.update(expected_version=expected_version, values={"limit": {"N": str(limit)}}),
            output={"version": expected_version + 1},
        ),
        marker=marker(operation),
        request={"limit": limit},
    )


def raise_limit(operation: str, by: int) -> Outcome:
    """Raise the limit by an amount, whatever it is."""

    def plan() -> Commit:
        item = read()
        limit = int(item["limit"]["N"]) + by
        found = int(item["version"]["N"])
        values = {"limit": {"N": str(limit)}}
        return Commit(
            writes=ACCOUNT.update(expected_version=found, values=values, read_now=True), output={"limit": limit}
        )

    return commit_once(plan, marker=marker(operation), request={"by": by})


class TestAnUpdate:
    def test_of_the_expected_version_succeeds_and_raises_it(self) -> None:
        assert set_limit("a", 200, 1) == Outcome(output={"version": 2}, replayed=False)
        assert (version(), read()["limit"]) == (2, {"N": "200"})

    def test_of_another_version_is_a_conflict_that_has_the_current_one(self) -> None:
        set_limit("a", 200, 1)

        with pytest.raises(VersionConflict, match="another version: version 2") as raised:
            set_limit("b", 300, 1)

        assert (raised.value.current_version, raised.value.current_state) == (2, None)
        assert read()["limit"] == {"N": "200"}

    def test_of_an_item_that_does_not_exist_is_a_conflict_without_a_version(self) -> None:
        absent = VersionedItem(table="ledger", key={"pk": {"S": "absent"}, "sk": {"S": "x"}})

        with pytest.raises(VersionConflict, match="does not exist") as raised:
            commit_once(lambda: Commit(writes=absent.update(expected_version=1)), marker=marker("a"), request={})

        assert raised.value.current_version is None

    @pytest.mark.parametrize("item", [{}, {"version": {"S": "1"}}, {"version": {"N": "1.5"}}])
    def test_of_an_item_without_a_version_is_a_conflict_that_names_it(self, item: dict[str, Any]) -> None:
        aws.dynamodb().put_item(TableName="ledger", Item={**ACCOUNT.key, **item})

        with pytest.raises(VersionConflict, match="the item has no version; ") as raised:
            set_limit("a", 200, 1)

        assert raised.value.current_version == 0

    def test_removes_attributes(self) -> None:
        commit(ACCOUNT.update(expected_version=1, remove=["limit"]))

        assert "limit" not in read()
        assert version() == 2

    def test_creates_no_second_item(self) -> None:
        with pytest.raises(ItemExists):
            commit_once(lambda: Commit(writes=ACCOUNT.create()), marker=marker("a"), request={})

    def test_creates_an_item_once_in_a_commit(self) -> None:
        item = marker("a")

        with pytest.raises(Invalid, match="must be of different items, got number 0 and number 1 of one"):
            Commit(writes=[*item.create(), *item.create()])
        Commit(writes=[*item.create(), *replace(item, table="other").create()])

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"expected_version": 0}, "expected_version must be an integer of 1 or more, got 0"),
            ({"expected_version": True}, "expected_version must be an integer of 1 or more, got True"),
            ({"expected_version": 1, "values": {"version": {"N": "9"}}}, "values must leave 'version' to the item"),
            ({"expected_version": 1, "values": {"pk": {"S": "9"}}}, "values must leave 'pk' to the item"),
            ({"expected_version": 1, "remove": ["holder"]}, "values must leave 'holder' to the item"),
            ({"expected_version": 1, "values": {"a b": {"S": "9"}}}, "names of attributes must be ASCII identifiers"),
        ],
    )
    def test_with_a_wrong_argument_is_refused(self, wrong: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            ACCOUNT.update(**wrong)

    @pytest.mark.parametrize(("table", "key"), [(" ", {"pk": {"S": "a"}}), ("t", {}), ("t", {"pk": {}})])
    def test_of_no_item_is_refused(self, table: str, key: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"must (be|have)"):
            VersionedItem(table=table, key=key)


class TestAnOperation:
    def test_that_is_repeated_gets_the_first_output_and_changes_nothing(self) -> None:
        first = set_limit("a", 200, 1)
        set_limit("b", 300, 2)
        set_limit("c", 400, 3)

        again = set_limit("a", 200, 1)

        assert again == Outcome(output=first.output, replayed=True)
        assert (version(), read()["limit"]) == (4, {"N": "400"})

    def test_that_reads_again_under_its_id_has_one_effect(self) -> None:
        raise_limit("a", 10)

        assert raise_limit("a", 10) == Outcome(output={"limit": 110}, replayed=True)
        assert read()["limit"] == {"N": "110"}

    def test_may_try_again_under_its_id_after_a_conflict(self) -> None:
        set_limit("a", 200, 1)
        with pytest.raises(VersionConflict):
            set_limit("b", 300, 1)

        assert set_limit("b", 300, 2).output == {"version": 3}

    def test_with_another_request_under_its_id_is_refused(self) -> None:
        set_limit("a", 200, 1)

        with pytest.raises(OperationReused):
            set_limit("a", 999, 2)

        assert read()["limit"] == {"N": "200"}

    @pytest.mark.parametrize("wrong", [None, [], "done"])
    def test_whose_plan_returns_no_commit_is_refused(self, world: World, wrong: Any) -> None:
        with pytest.raises(
            TypeError, match=f"plan must return a Commit, got {type(wrong).__name__}; return its writes"
        ):
            commit_once(lambda: wrong, marker=marker("a"), request={})
        assert WRITE not in world.wire.sent

    def test_whose_refusal_returns_no_error_is_a_defect_and_not_another_request(self) -> None:
        [write] = ACCOUNT.update(expected_version=7)
        silent: Any = lambda _: None  # noqa: E731

        with pytest.raises(TypeError, match="refusal of a write must return a SagaError, got NoneType; "):
            commit_once(lambda: Commit(writes=[replace(write, refusal=silent)]), marker=marker("a"), request={})

        assert version() == 1

    def test_whose_response_was_lost_gets_its_output(self, world: World) -> None:
        world.wire.plan(Fault(operation=WRITE, action=Action.DROP, moment=Moment.AFTER))

        assert set_limit("a", 200, 1).output == {"version": 2}
        assert version() == 2

    def test_whose_plan_refuses_its_own_effect_gets_its_output(self) -> None:
        def plan() -> Commit:
            if int(read()["limit"]["N"]) != 100:
                raise VersionConflict("the limit was changed", current_version=None, current_state=None)
            return Commit(writes=ACCOUNT.update(expected_version=1, values={"limit": {"N": "150"}}), output={"a": 1})

        first = commit_once(plan, marker=marker("a"), request={})

        assert commit_once(plan, marker=marker("a"), request={}) == Outcome(output=first.output, replayed=True)

    def test_keeps_exact_numbers_in_its_output(self) -> None:
        plan = lambda: Commit(output={"amount": Decimal("0.10"), "n": 2**60})  # noqa: E731

        assert commit_once(plan, marker=marker("a"), request={}).output == {"amount": Decimal("0.1"), "n": 2**60}
        assert commit_once(plan, marker=marker("a"), request={}).output == {"amount": Decimal("0.1"), "n": 2**60}

    @pytest.mark.parametrize("moment", list(Moment))
    def test_that_dies_around_its_commit_has_one_effect_after_a_retry(self, world: World, moment: Moment) -> None:
        world.wire.plan(Fault(operation=WRITE, action=Action.KILL, moment=moment, times=1))
        with pytest.raises(Killed):
            raise_limit("a", 10)

        assert raise_limit("a", 10).output == {"limit": 110}
        assert (version(), read()["limit"]) == (2, {"N": "110"})

    def test_is_planned_again_after_a_stale_read(self, world: World) -> None:
        world.wire.plan(Fault(operation=WRITE, action=Action.CONFLICT, times=1))

        assert raise_limit("a", 10).output == {"limit": 110}
        assert world.wire.sent == ["GetItem", WRITE] * 2

    @pytest.mark.parametrize(("action", "error"), [(Action.CONFLICT, Conflict), (Action.THROTTLE, TransientError)])
    def test_that_is_disturbed_for_too_long_may_be_called_again(
        self, world: World, action: Action, error: type[TransientError]
    ) -> None:
        world.wire.plan(Fault(operation=WRITE, action=action, times=10_000))
        with pytest.raises(error):
            raise_limit("a", 10)
        world.wire.forget()

        assert raise_limit("a", 10) == Outcome(output={"limit": 110}, replayed=False)

    def test_is_kept_for_400_days(self, world: World) -> None:
        raise_limit("a", 10)

        (found,) = (item for item in world.items("ledger") if item["pk"] == {"S": "op#a"})
        assert int(found["expiration"]["N"]) == world.clock.ms // 1_000 + 400 * 86_400

    @pytest.mark.parametrize("seconds", [0, True, 1.5])
    def test_without_a_retention_is_refused(self, seconds: Any) -> None:
        with pytest.raises(ValueError, match="remember_seconds must be an integer of 1 or more"):
            commit_once(Commit, marker=marker("a"), request={}, remember_seconds=seconds)

    @pytest.mark.parametrize("name", ["fingerprint", "result", "writer", "expiration"])
    def test_key_that_the_marker_would_overwrite_is_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"marker must have a key without .*, got {name}"):
            commit_once(Commit, marker=VersionedItem(table="ledger", key={name: {"S": "a"}}), request={})


def test_ten_threads_of_ten_operations_lose_no_update() -> None:
    with ThreadPoolExecutor(max_workers=10) as pool:
        outcomes = list(pool.map(lambda n: raise_limit(f"op-{n % 5}", 1), range(10)))

    assert sum(not outcome.replayed for outcome in outcomes) == 5
    assert (version(), read()["limit"]) == (6, {"N": "105"})


class TestNaiveForms:
    """Forms that articles have: the version alone decides. Each trace is the model's."""

    def test_the_next_version_is_taken_for_ones_own_update(self) -> None:
        """Two clients read version 1, the other one updates it: "version 2, so it was me", and the update is lost."""
        set_limit("other", 500, 1)

        def naive(limit: int, expected: int) -> str:
            try:
                commit_once(
                    lambda: Commit(
                        writes=ACCOUNT.update(expected_version=expected, values={"limit": {"N": str(limit)}})
                    ),
                    marker=marker("naive"),
                    request={},
                )
            except VersionConflict as conflict:
                return "already processed" if conflict.current_version == expected + 1 else "conflict"
            return "success"

        assert naive(200, 1) == "already processed"
        assert read()["limit"] == {"N": "500"}, "and this update was not written"
        with pytest.raises(VersionConflict):
            set_limit("mine", 200, 1)

    def test_a_repetition_after_two_others_is_taken_for_a_conflict(self) -> None:
        """The answer was lost, two others updated: "version 4 is not 2, so a conflict", though it was done."""
        mine = set_limit("mine", 200, 1)
        set_limit("b", 300, 2)
        set_limit("c", 400, 3)

        assert version() not in {1, 2}, "by the version this is a conflict"
        assert set_limit("mine", 200, 1) == Outcome(output=mine.output, replayed=True)


class TestARefusalAfterATryWithoutAnswer:
    """The first transaction travels on, unanswered; the second is refused; then the first arrives."""

    def test_is_not_the_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        send: Any = aws.dynamodb().transact_write_items
        travelling: list[Any] = []

        def lost_once(**request: Any) -> Any:
            if travelling:
                return send(**request)
            travelling.append(request)
            raise ReadTimeoutError(endpoint_url="https://dynamodb")

        monkeypatch.setattr(aws.dynamodb(), "transact_write_items", lost_once)

        with pytest.raises(TransientError, match="the database did not answer"):
            set_limit("a", 200, expected_version=2)

        commit(ACCOUNT.update(expected_version=1))
        send(**travelling[0])
        assert set_limit("a", 200, expected_version=2) == Outcome(output={"version": 3}, replayed=True)

    def test_and_so_is_a_plan_that_refuses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def lost(**_: Any) -> Any:
            raise ReadTimeoutError(endpoint_url="https://dynamodb")

        monkeypatch.setattr(aws.dynamodb(), "put_item", lost)
        answers = iter([Commit()])

        def plan() -> Commit:
            found = next(answers, None)
            if found is None:
                raise PermanentError("there is too little by now")
            return found

        with pytest.raises(TransientError, match="the database did not answer"):
            commit_once(plan, marker=marker("a"), request={})

    def test_and_so_is_one_of_a_call_that_the_sdk_sent_again(self, world: World) -> None:
        world.wire.plan(Fault(operation=WRITE, action=Action.DROP, times=1))

        with pytest.raises(TransientError, match="the database did not answer"):
            set_limit("a", 200, expected_version=2)
        with pytest.raises(VersionConflict):
            set_limit("a", 200, expected_version=2)


class TestARefusalThatIsTheEnd:
    """Every try was answered, and wrote nothing."""

    def test_may_have_a_cause_of_the_plans(self) -> None:
        def plan() -> Commit:
            raise PermanentError("there is too little") from TransientError("the cache is stale")

        with pytest.raises(PermanentError, match="there is too little"):
            commit_once(plan, marker=marker("a"), request={})

    def test_may_be_an_error_that_an_unclear_call_raised(self, world: World) -> None:
        refusal, answers = PermanentError("there is too little"), iter([Commit()])

        def plan() -> Commit:
            found = next(answers, None)
            if found is None:
                raise refusal
            return found

        world.wire.plan(Fault(operation="PutItem", action=Action.DROP))
        with pytest.raises(TransientError, match="the database did not answer"):
            commit_once(plan, marker=marker("a"), request={})
        with pytest.raises(PermanentError, match="there is too little"):
            commit_once(plan, marker=marker("a"), request={})

    def test_may_come_after_a_write_that_was_refused_for_now(self) -> None:
        stale = replace(ACCOUNT.update(expected_version=2)[0], refusal=lambda _: TransientError("stale"))
        answers = iter([Commit(writes=[stale])])

        def plan() -> Commit:
            found = next(answers, None)
            if found is None:
                raise PermanentError("there is too little")
            return found

        with pytest.raises(PermanentError, match="there is too little"):
            commit_once(plan, marker=marker("a"), request={})


@pytest.mark.parametrize(
    "error", [KeyError("job"), TypeError("job"), NotYet("later"), Conflict("met"), PermanentError("no")]
)
def test_a_plan_that_fails_after_its_effect_is_answered_by_the_marker(error: Exception) -> None:
    first = set_limit("a", 200, expected_version=1)

    def plan() -> Commit:
        raise error

    assert commit_once(plan, marker=marker("a"), request={"limit": 200}) == replace(first, replayed=True)
    with pytest.raises(type(error)):
        commit_once(plan, marker=marker("b"), request={"limit": 200})


@pytest.mark.parametrize("given", [{"table": None}, {"key": ["pk"]}, {"key": None}])
def test_an_item_of_another_type_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="table and key must be a name and a mapping"):
        VersionedItem(**{"table": "ledger", "key": ACCOUNT.key, **given})


@pytest.mark.parametrize(
    ("values", "remove"), [({"a": {"N": "1"}}, ["a"]), ({}, ["a", "a"])], ids=["set and removed", "removed twice"]
)
def test_an_attribute_is_changed_once(values: Any, remove: list[str]) -> None:
    with pytest.raises(ValueError, match="each attribute must be set or removed once"):
        ACCOUNT.update(expected_version=1, values=values, remove=remove)


def test_an_attribute_that_a_member_of_an_enumeration_names_has_its_value(world: World) -> None:
    other = replace(ACCOUNT, key={"pk": {"S": "other"}, "sk": {"S": "limit"}})
    entries: Any = [write.action for write in other.create({Attribute.LIMIT: {"N": "5"}, "note": {"S": "x"}})]
    aws.dynamodb().transact_write_items(TransactItems=entries)

    [write] = other.update(expected_version=1, values={Attribute.LIMIT: {"N": "6"}}, remove=[Attribute.NOTE])
    aws.dynamodb().update_item(**write.action["Update"])

    (found,) = (item for item in world.items("ledger") if item["pk"] == {"S": "other"})
    assert (found["limit"], found["version"], "note" in found) == ({"N": "6"}, {"N": "2"}, False)


def test_a_name_that_no_placeholder_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="names of attributes must be ASCII identifiers, got 'größe'"):
        ACCOUNT.update(expected_version=1, values={"größe": {"N": "1"}})
