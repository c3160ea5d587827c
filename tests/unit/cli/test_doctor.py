"""``cdk-sagas doctor`` finds stuck sagas, writes nothing without ``--repair``, and repairs each finding once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from saga_runtime.protocol import RecordAttribute, RecordStatus, StepStatus
from saga_runtime.shared.decisions import Decision
from tests.unit.support.checked_stack import (
    LIMIT,
    READS,
    CheckedStack,
)
from tests.unit.support.client import remove_response
from tests.unit.support.doctor_scenes import (
    L1,
    R1,
    SCENES,
    late,
    record_lost,
    row_open,
    send,
    undelivered,
    words_of,
)
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.job_saga import JOB_ID
from tests.unit.support.operated_saga import WHY
from tests.unit.support.samples import (
    DAY_MS,
    MACHINE_ARN,
    SAGA_ID,
)
from tests.unit.support.settling import REMEMBER_SECONDS

REFUSED = "start refused"
"""It is repaired by nothing, but each try is an operator's decision."""
KEPT = {
    "interrupted": "taken over",
    "succeeded and did not settle": "parked",
    "not started": f"started {SAGA_ID}",
    "start refused no more": f"started {SAGA_ID}",
    "settled and still due": "not due any more",
    "recoveries exhausted": "parked",
    "name expired": "parked",
    "saga log expired": "parked",
    "never due": "made due",
    "in no shard": "made due",
    "late": f"started {L1}",
    "late, and its token gone": f"started {L1}",
    "undelivered": f"job {JOB_ID}: outcome delivered",
    "orphaned wait, and is due": f"job {JOB_ID}: swept",
}
"""What a repair decides; the others decide nothing."""


@pytest.mark.parametrize("deep", [(), ("--full-scan",)])
def test_a_healthy_stack_has_no_findings(stack: CheckedStack, deep: tuple[str, ...]) -> None:
    stack.job_saga.register()
    stack.put_row("Debit", StepStatus.DONE)

    status, told, _ = stack.run(*deep)

    assert (status, told.splitlines()[-1]) == (0, "nothing found")
    assert "in flight: 1 saga, 0 parked" in told


@pytest.mark.parametrize("scene", SCENES)
def test_a_problem_is_found_without_a_write(stack: CheckedStack, scene: str) -> None:
    SCENES[scene].happens(stack)
    stack.world.wire.forget()
    stored = stack.stored
    stack.world.wire.forget()

    found = stack.finds(*words_of(SCENES[scene]))

    assert set(stack.world.wire.sent) <= READS
    assert tuple((one["kind"], one["severity"]) for one in found) == SCENES[scene].found
    assert all(one["what"] and one["then"] and not one["repaired"] for one in found)
    assert stack.stored == stored


@pytest.mark.parametrize("scene", [name for name, scene in SCENES.items() if scene.deep])
def test_only_a_scan_finds_what_no_index_holds(stack: CheckedStack, scene: str) -> None:
    SCENES[scene].happens(stack)
    stack.world.wire.forget()

    assert stack.kinds() == []
    assert "Scan" not in stack.world.wire.sent


@pytest.mark.parametrize("scene", [name for name, scene in SCENES.items() if not scene.deep])
def test_a_scan_finds_once_what_an_index_holds_too(stack: CheckedStack, scene: str) -> None:
    SCENES[scene].happens(stack)

    found = [kind for kind in stack.kinds("--full-scan") if kind[0] not in ("row in doubt", "record lost")]

    assert tuple(found) == SCENES[scene].found


@pytest.mark.parametrize("scene", [name for name in SCENES if name != REFUSED])
def test_a_problem_is_repaired_once(stack: CheckedStack, scene: str) -> None:
    this, words = SCENES[scene], words_of(SCENES[scene])
    this.happens(stack)
    untouched = stack.stored

    first = stack.finds("--repair", *words)
    after = stack.stored
    left = this.found if this.left is None else this.left
    again = tuple(stack.kinds(*words))
    stack.finds("--repair", *words)

    assert [one["repaired"] for one in first if one["repaired"]] == ([this.repaired] if this.repaired else [])
    assert again == left
    assert stack.stored == after
    assert (after == untouched) == (not this.repaired)


@pytest.mark.parametrize("scene", [name for name, scene in SCENES.items() if scene.repaired])
def test_a_repair_is_kept_with_what_it_decides_about(stack: CheckedStack, scene: str) -> None:
    this, words = SCENES[scene], words_of(SCENES[scene])
    this.happens(stack)

    stack.finds("--repair", *words)
    stack.finds("--repair", *words)

    kept = [one for item in stack.world.items("requests") for one in Decision.all_of(item)]
    assert [(one.what, one.why) for one in kept] == [(what, WHY) for what in [KEPT.get(scene)] if what]


def test_repair_names_the_code_of_a_refused_start(stack: CheckedStack) -> None:
    SCENES[REFUSED].happens(stack)

    (found,) = [one for one in stack.finds("--repair") if one["kind"] == "start refused"]

    assert f"NOT repaired: state machine {MACHINE_ARN} must exist" in found["then"]
    assert (found["severity"], found["repaired"]) == ("operator", "")


@pytest.mark.parametrize("scene", [name for name, scene in SCENES.items() if scene.repaired])
def test_two_concurrent_doctors_do_the_work_of_one(stack: CheckedStack, scene: str) -> None:
    """The other one comes before the first call that writes."""
    this, words = SCENES[scene], words_of(SCENES[scene])
    this.happens(stack)
    others: list[list[dict[str, Any]]] = []
    send = stack.world.wire.send

    def disturbed(event_name: str, request: Any, deliver: Any) -> Any:
        if event_name.rpartition(".")[2] not in {*READS, "GetCallerIdentity"} and not others:
            others.append([])
            others[0] += stack.finds("--repair", *words)
        return send(event_name, request, deliver)

    setattr(stack.world.wire, "send", disturbed)  # noqa: B010  # mypy knows it as a method
    mine = stack.finds("--repair", *words)

    assert [one["repaired"] for one in others[0] if one["repaired"]] == [this.repaired]
    (said,) = [one["repaired"] for one in mine if one["repaired"]]
    assert said in (this.repaired, "done by another process", "not due any more")
    assert stack.kinds(*words) == list(this.left or ())
    assert stack.item.get(RecordAttribute.RECOVERIES, "0") in ("0", "1", str(LIMIT))
    assert set(stack.world.executions.by_name) <= {SAGA_ID, R1, L1}


@pytest.mark.parametrize("happens", [late, row_open])
def test_a_record_that_cannot_be_read_keeps_no_other_from_being_found(
    stack: CheckedStack, happens: Callable[[CheckedStack], None]
) -> None:
    happens(stack)
    stack.remove("execution_arn")
    send(stack, "jobs-dead")

    assert set(stack.kinds("--full-scan")) == {("dead letters", "operator"), ("unreadable", "operator")}


def test_rows_that_are_kept_longer_than_records_are_not_a_finding(stack: CheckedStack) -> None:
    record_lost(stack)
    stack.pass_time(REMEMBER_SECONDS * 1_000)

    assert stack.kinds("--full-scan") == []


def test_a_tombstone_is_not_a_finding(stack: CheckedStack) -> None:
    stack.settle(RecordStatus.COMPLETED)
    stack.dies(status=ExecutionStatus.SUCCEEDED)
    stack.put_row("Debit", StepStatus.DONE)
    stack.pass_time(8 * DAY_MS)
    remove_response(stack.world)

    assert stack.kinds("--full-scan") == []


def test_a_repair_delivers_an_undelivered_outcome(stack: CheckedStack) -> None:
    undelivered(stack)
    stack.run("--repair")

    assert stack.job_saga.outcome() is not None


def test_an_unknown_job_has_the_command_that_forgets_it(stack: CheckedStack) -> None:
    SCENES["unknown job"].happens(stack)

    (found,) = stack.finds()

    assert found["command"].startswith("cdk-sagas callbacks --forget provider-7 ")
