"""Steps of every kind on local AWS: they complete, they are compensated as a whole, they are recovered.

A refusal and an interruption of each sort. Sagas that the simulator draws (``tests/simulator/drawn``) have all kinds,
are refused at each step and stopped at each state; items are refused in ``tests/constructs/saga/test_asl_groups.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from constructs_lib.testing import HttpResponse
from constructs_lib.testing.faults import StopAt
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import RecordStatus

from .kinds.system import KindsSystem, deployed
from .two_ledgers import edited

ITEMS: Final = [{"sku": "x", "q": 1}, {"sku": "y"}]
EVERYTHING: Final = {"items": ITEMS, "rate": True}
MACHINE: Final = "Kinds/Kinds/StateMachine"
WAY: Final = [
    "Quote", "Look", "Prepare", "Prepare - result", "Both", "Both - result", "Select step after Both",
    "Ship", "Ship - result", "Mark",
    "Pay", "Fulfil", "Fulfil - result", "Announce", "Pause", "Receipt", "Settle completed",
]  # fmt: skip
COUNTED: Final = {
    "Reserve": 1, "Hold": 1, "Left": 1, "Further": 1, "Pack[x]": 1, "Pack[y]": 1, "Mark": 1, "Dispatch": 1,
}  # fmt: skip
REFUSALS: Final[Mapping[str, Mapping[str, object]]] = {
    "express-last": {"Hold": "decline"},
    "branch": {"Left": "decline"},
    "item": {"Pack[y]": "decline"},
    "transaction": {"mark": "Reserve"},
    "pivot": {"Pay": "decline"},
}
STOPS: Final = ("Both", "Mark", "Fulfil")
"""In a group, between two steps, and behind the pivot."""


@pytest.fixture(scope="module")
def system() -> Iterator[KindsSystem]:
    with deployed() as made:
        yield made


class TestASagaWithEveryKindOfStep:
    def test_completes_with_each_effect_once(self, system: KindsSystem) -> None:
        answer = system.settle("kinds", "all", EVERYTHING)

        assert answer.status == 200, answer.text
        result = answer.json()["result"]
        assert system.counts("all") == COUNTED
        assert system.books("all") == {"Right": [1], "Label": [1, 1], "Pay": [1]}
        assert result["Look"] == {"status": "ACTIVE"}
        assert result["Pack"]["x"]["item"] == {"sku": "x", "q": 1}
        assert set(result["Label"]) == {"x", "y"}
        assert result["Mark"] == {"what": "Mark", "key": f"{answer.json()['saga_id']}#Mark"}
        assert result["Pause"] == {"rested": True}
        outer = [name for name in system.states("Kinds", answer.json()["saga_id"]) if name in WAY]
        assert outer == WAY

    def test_notifies_customers_and_downstream_systems(self, system: KindsSystem) -> None:
        answer = system.settle("kinds", "told", {})

        saga_id = answer.json()["saga_id"]
        assert {"done": "told"} in system.messages(system.outputs["NoticeQueueUrl"])
        details = [event["detail"] for event in system.messages(system.outputs["SeenQueueUrl"])]
        assert {"who": "told", "event_id": f"{saga_id}#Announce"} in details

    def test_skips_a_group_whose_condition_is_not_met(self, system: KindsSystem) -> None:
        answer = system.settle("kinds", "none", {})

        assert answer.status == 200
        assert "Ship" not in system.states("Kinds", answer.json()["saga_id"])
        assert not {"Pack", "Label", "Rate"} & set(answer.json()["result"])

    def test_fails_before_a_step_whose_condition_is_neither_true_nor_false(self, system: KindsSystem) -> None:
        answer = system.settle("kinds", "neither", {"rate": "yes"})

        assert answer.status == 500, answer.text
        assert (answer.json()["error"], answer.json()["step"]) == ("ConditionNotBoolean", "Rate")
        assert (system.counts("neither"), system.books("neither")) == ({}, {})
        assert system.rows("Kinds", answer.json()["saga_id"])["Reserve"] == "COMPENSATED"

    def test_may_map_over_no_items_and_over_one(self, system: KindsSystem) -> None:
        answers = system.settle_all("kinds", {"zero": {"items": []}, "one": {"items": ITEMS[:1]}})

        assert {key: answer.status for key, answer in answers.items()} == {"zero": 200, "one": 200}
        assert answers["zero"].json()["result"]["Pack"] == {}
        assert set(answers["one"].json()["result"]["Pack"]) == {"x"}

    def test_refuses_items_that_have_no_keys_of_their_own(self, system: KindsSystem) -> None:
        answer = system.settle("kinds", "bad", {"items": [{"sku": "x"}, {"sku": "x"}]})

        assert (answer.status, answer.json()["error"]) == (422, "InvalidMapItems")
        assert system.counts("bad") == {}
        assert system.books("bad") == {"Right": [1, 1]}, "charged and refunded"


@pytest.fixture(scope="module")
def refused(system: KindsSystem) -> dict[str, HttpResponse]:
    """One saga for each step that refuses, all at once."""
    return system.settle_all("kinds", {key: {**EVERYTHING, **trouble} for key, trouble in REFUSALS.items()})


class TestARefusal:
    @pytest.mark.parametrize("case", REFUSALS)
    def test_of_any_step_leaves_no_effect(
        self, system: KindsSystem, refused: Mapping[str, HttpResponse], case: str
    ) -> None:
        answer = refused[case]

        assert answer.status == 422, answer.text
        assert answer.json()["error"] == ("ConditionFailed" if case == "transaction" else "Declined")
        assert system.counts(case) == {}
        for step, writes in system.books(case).items():
            assert set(writes) == {1}, f"{step} was charged twice under one key: {writes}"
            assert len(writes) % 2 == 0, f"{step} was charged and not refunded: {writes}"

    def test_names_its_step(self, refused: Mapping[str, HttpResponse]) -> None:
        assert refused["express-last"].json()["step"] == "Hold"
        assert refused["branch"].json()["step"] == "Left"
        assert refused["item"].json()["step"] == "Pack"
        assert refused["pivot"].json()["step"] == "Pay"


class TestAFunctionThatLivesOn:
    def test_that_arrives_after_its_branch_failed_does_no_harm(self, system: KindsSystem) -> None:
        def impatient(states: dict[str, Any]) -> None:
            left = states["Both"]["Branches"][0]["States"]["Left"]
            left["TimeoutSeconds"] = 1
            left["Retry"] = []

        with edited(system.aws, MACHINE, impatient):
            answer = system.settle("kinds", "lives-on", {"Left": "slow"})
        time.sleep(0.6)

        assert (answer.status, answer.json()["step"]) == (500, "Left")
        assert system.counts("lives-on") == {}
        assert system.rows("Kinds", answer.json()["saga_id"])["Left"] in {"TOMBSTONE", "COMPENSATED"}


@pytest.fixture(scope="module")
def stopped(system: KindsSystem) -> dict[str, RequestRecord]:
    """Sagas stopped in each state, and recovered."""
    ends: dict[str, RequestRecord] = {}
    for state in STOPS:
        key = f"stop-{state}".replace(" ", "-").replace("?", "")
        system.aws.faults.plan(StopAt(machine=MACHINE, state=state, moment="after"))
        saga_id = system.begin("kinds", key, EVERYTHING)
        ends[state] = system.recover(saga_id)
        system.aws.faults.clear()
    return ends


class TestAStoppedSaga:
    @pytest.mark.parametrize("state", STOPS)
    def test_ends_with_everything_or_with_nothing(
        self, system: KindsSystem, stopped: Mapping[str, RequestRecord], state: str
    ) -> None:
        record, key = stopped[state], f"stop-{state}".replace(" ", "-").replace("?", "")

        passed = state == "Fulfil"
        assert record.status == (RecordStatus.COMPLETED if passed else RecordStatus.FAILED)
        assert system.counts(key) == (COUNTED if passed else {})
        for step, writes in system.books(key).items():
            assert set(writes) == {1}, f"{step} was charged twice under one key: {writes}"
            assert len(writes) % 2 == (0 if not passed or step == "Label" else 1), step


class TestAMapWithoutAPivotOverWhatAStepAnswered:
    def test_completes(self, system: KindsSystem) -> None:
        answer = system.settle("items", "parcels", {"book": True})

        assert answer.status == 200, answer.text
        assert system.counts("parcels") == {"Load[p0]": 1, "Load[p1]": 1}

    def test_is_compensated_by_its_own_execution(self, system: KindsSystem) -> None:
        answer = system.settle("items", "undone", {"book": True, "Load[p1]": "decline"})

        assert answer.status == 422
        assert system.counts("undone") == {}

    def test_is_compensated_by_a_recovery_that_reads_the_items_from_the_log(self, system: KindsSystem) -> None:
        system.aws.faults.plan(StopAt(machine="Kinds/Items/StateMachine", state="Parcels - result", moment="before"))
        saga_id = system.begin("items", "recovered", {"book": True})

        record = system.recover(saga_id)

        assert record.status == RecordStatus.FAILED
        assert system.counts("recovered") == {}
        assert system.rows("Items", saga_id)["Load[p0]"] == "COMPENSATED"


class TestFiveLocalStepsInOneExpressPhase:
    def test_are_three_transitions(self, system: KindsSystem) -> None:
        answer = system.settle("phase", "five", {})

        assert answer.status == 200
        assert system.states("Phase", answer.json()["saga_id"]) == ["All", "All - result", "Settle completed"]

    def test_are_compensated_when_the_pivot_in_it_refuses(self, system: KindsSystem) -> None:
        answer = system.settle("phase", "pivot-refuses", {"Five": "decline"})

        assert (answer.status, answer.json()["step"]) == (422, "Five")
        assert system.counts("pivot-refuses") == {}


class TestASagaUnderAnotherDefinition:
    def test_is_parked_when_its_rows_do_not_fit(self, system: KindsSystem) -> None:
        system.aws.faults.plan(StopAt(machine=MACHINE, state="Mark", moment="after"))
        saga_id = system.begin("kinds", "changed", EVERYTHING)
        record = system.quiet(saga_id)
        dynamodb = system.aws.client("dynamodb")
        dynamodb.update_item(
            TableName=system.outputs["RequestTableName"],
            Key={"id": {"S": record.request_id}},
            UpdateExpression="SET #definition = :other",
            ExpressionAttributeNames={"#definition": "definition"},
            ExpressionAttributeValues={":other": {"S": "another"}},
        )
        dynamodb.update_item(
            TableName=system.outputs["KindsLogTableName"],
            Key={"saga_id": {"S": saga_id}, "step": {"S": "Left"}},
            UpdateExpression="SET side = :after",
            ExpressionAttributeValues={":after": {"S": "after"}},
        )

        record = system.recover(saga_id, days_ago=1)

        assert (record.status, record.parked_by) == (RecordStatus.IN_PROGRESS, f"{saga_id}-r1")
        (entry,) = system.messages(system.outputs["KindsOperatorsUrl"])
        assert (entry["saga_id"], entry["parked_reason"]["error"]) == (saga_id, "IncompatibleDefinition")

    def test_is_recovered_when_they_fit(self, system: KindsSystem) -> None:
        system.aws.faults.plan(StopAt(machine=MACHINE, state="Mark", moment="after"))
        saga_id = system.begin("kinds", "fits", EVERYTHING)
        record = system.quiet(saga_id)
        system.aws.client("dynamodb").update_item(
            TableName=system.outputs["RequestTableName"],
            Key={"id": {"S": record.request_id}},
            UpdateExpression="SET #definition = :other",
            ExpressionAttributeNames={"#definition": "definition"},
            ExpressionAttributeValues={":other": {"S": "another"}},
        )

        record = system.recover(saga_id, days_ago=1)

        assert record.status == RecordStatus.FAILED
        assert system.counts("fits") == {}
