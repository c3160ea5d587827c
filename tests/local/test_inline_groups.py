"""Trips whose branches and seats run inline on local AWS: each step counts once, or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pytest

from constructs_lib.testing import ApiUser, Fault, HttpResponse, LocalAws
from constructs_lib.testing.fault_schedules import First
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, PREFER_HEADER, RecordAttribute

from .support import eventually
from .transfer_system import SPEED, is_settled
from .trips.stack import NAME, WAIT_SECONDS, synthesize

ALL: Final = {"Hotel": 1, "Flight": 1, "Transfer": 1, "Seat": 2, "Pay": 1}
STEP: Final = f"{NAME}/Step/Function"
ALL_WELL: Final[Mapping[str, str]] = {}
SEATS: Final = [{"id": "1a"}, {"id": "1b"}]


@dataclass(frozen=True)
class Trips:
    """The deployed stack."""

    aws: LocalAws
    outputs: Mapping[str, str]
    user: ApiUser

    def ask(self, key: str, steps: Mapping[str, str] = ALL_WELL, *, wait: bool = True) -> HttpResponse:
        """Ask for a trip, with steps that refuse or fail."""
        url = f"{self.aws.api_url(self.outputs['ApiId'], self.outputs['ApiStage'])}/trips"
        headers = {IDEMPOTENCY_KEY_HEADER: key, **({PREFER_HEADER: f"wait={WAIT_SECONDS}"} if wait else {})}
        return self.user.request("POST", url, headers=headers, body={"counter": key, "seats": SEATS, **steps})

    def settle(self, key: str, steps: Mapping[str, str] = ALL_WELL) -> HttpResponse:
        """Ask until the trip is settled."""

        def settled() -> HttpResponse | None:
            answer = self.ask(key, steps, wait=False)
            return answer if is_settled(answer) else None

        return eventually(settled)

    def counts(self, key: str) -> dict[str, int]:
        """Counters of a trip's steps, without zeros."""
        items = self.aws.client("dynamodb").scan(TableName=self.outputs["CounterTableName"])["Items"]
        found = {item["id"]["S"]: int(item["n"]["N"]) for item in items}
        return {name.removeprefix(f"{key}/"): n for name, n in found.items() if n and name.startswith(f"{key}/")}

    def ran(self) -> list[str]:
        """Types of the machines that settled the trips."""
        items = self.aws.client("dynamodb").scan(TableName=self.outputs["RequestTableName"])["Items"]
        return sorted(item[RecordAttribute.RAN]["S"] for item in items if RecordAttribute.RAN in item)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trips]:
    assembly = synthesize(tmp_path_factory.mktemp("trips") / "cdk.out")
    with LocalAws(speed=SPEED, concurrency=4) as aws:
        outputs = aws.deploy(assembly)[NAME]
        yield Trips(aws, outputs, aws.create_api_user("trips", api_id=outputs["ApiId"]))


@pytest.fixture
def trips(running: Trips) -> Trips:
    """The same, emptied."""
    running.aws.faults.clear()
    running.aws.reset()
    return running


def test_branches_and_items_are_settled_by_express(trips: Trips) -> None:
    answer = trips.settle("t") if (first := trips.ask("t")).status != 200 else first

    assert (answer.status, answer.json()["result"]) == (200, {"seats": 2})
    assert (trips.counts("t"), trips.ran()) == (ALL, ["EXPRESS"])


@pytest.mark.parametrize("step", ["Hotel", "Transfer", "Seat", "Pay"])
def test_refused_branch_or_item_is_compensated_by_express(trips: Trips, step: str) -> None:
    trips.ask("t", {step: "Declined"})
    answer = trips.settle("t", {step: "Declined"})

    assert (answer.status, answer.json()["error"]) == (422, "Declined")
    assert (trips.counts("t"), trips.ran()) == ({}, ["EXPRESS"])


@pytest.mark.parametrize("on", [First(1), First(5)], ids=str)
def test_steps_that_die_in_branches_count_once(trips: Trips, on: First) -> None:
    """So often that Express leaves the trip to Standard, while siblings of the step run."""
    trips.aws.faults.plan(
        Fault(function=STEP, call="dynamodb:TransactWriteItems", moment="after", action="kill", on=on)
    )

    trips.ask("t")
    answer = trips.settle("t")

    assert answer.status == 200, answer.text
    assert trips.counts("t") == ALL


def test_two_express_executions_count_once(trips: Trips) -> None:
    gatekeeper = f"{NAME}/Api/Gatekeeper/trips/Function"
    trips.aws.faults.plan(
        Fault(function=gatekeeper, call="states:StartExecution", moment="after", action="drop", on=First(1))
    )

    trips.ask("t", wait=False)
    answer = trips.settle("t")

    trips.aws.faults.report().require_all_fired()
    assert answer.status == 200, answer.text
    assert trips.counts("t") == ALL
