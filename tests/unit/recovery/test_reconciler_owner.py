"""Executions that a sweep describes, and those that it starts: both machines of a saga, and changes between two calls.

A recovery that goes forward continues in the forward machine, under its own name. So a name belongs to up to two
executions, and which machine is queried, and in which order, decides whether a running saga is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from saga_runtime.idempotency.record import RequestRecord, reserve_put
from saga_runtime.protocol import Metric, RecordAttribute, RecordStatus
from saga_runtime.recovery.decisions import DENIED_MS, Found, Need, ParkedFor
from saga_runtime.recovery.saga_reconciler import Caretaker, Seen, Served
from saga_runtime.recovery.takeover import Finding, MachineGone, Owner, Recoverer, recovery_name, what_to_do
from saga_runtime.shared import aws
from saga_runtime.shared.arns import execution_of
from tests.unit.support.samples import DAY_MS, MACHINE_ARN, NOW_MS, RECOVERY_MACHINE_ARN, SAGA_ID, reservation_of

A = RecordAttribute
R1 = recovery_name(SAGA_ID, 1)
LATER_MS = NOW_MS + 3_600_000
STOPPED = NOW_MS // 1_000 + 60
"""When executions ended; epoch seconds."""
ITEM: dict[str, Any] = reserve_put(reservation_of())["Item"]
TAKEN_OVER: dict[str, Any] = {**ITEM, A.OWNER: {"S": R1}, A.RECOVERIES: {"N": "1"}}
SAGA = Served(machine="Transfers", requests="requests", shards=16, log="log", days=400, operators="queue")
FIRST = execution_of(MACHINE_ARN, SAGA_ID)
FORWARD, RECOVERY = execution_of(MACHINE_ARN, R1), execution_of(RECOVERY_MACHINE_ARN, R1)


class DoesNotExist(Exception):
    """There is no such execution."""


class AlreadyExists(Exception):
    """The name was used before."""


class Gone(Exception):
    """There is no such state machine."""


class Deleting(Exception):
    """The state machine is being deleted."""


class Refused(Exception):
    """Anything else."""


class Exceptions:
    """The client's exception classes."""

    ExecutionDoesNotExist = DoesNotExist
    ExecutionAlreadyExists = AlreadyExists
    StateMachineDoesNotExist = Gone
    StateMachineDeleting = Deleting


@dataclass
class Cloud:
    """Two state machines, and a record.

    Attributes:
        statuses: of executions, by ARN.
        item: the record; None: it is gone.
        asked: ARNs that were asked after.
        started: machine, name and input of every start.
        answers: what a start raises.
        then: what happens after an execution was asked after, by its ARN; once.
        updates: writes of the record.
        machine: status of every state machine, or what the question raises.
    """

    statuses: dict[str, str] = field(default_factory=dict)
    item: dict[str, Any] | None = None
    asked: list[str] = field(default_factory=list)
    started: list[tuple[str, str, str]] = field(default_factory=list)
    answers: Exception | None = None
    then: dict[str, Callable[[], None]] = field(default_factory=dict)
    updates: int = 0
    machine: str | Exception = "ACTIVE"
    exceptions = Exceptions

    def describe_execution(self, *, executionArn: str) -> Mapping[str, Any]:  # noqa: N803  # AWS's name
        """DescribeExecution."""
        self.asked.append(executionArn)
        status = self.statuses.get(executionArn)
        if status == "DENIED":
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "DescribeExecution")
        self.then.pop(executionArn, lambda: None)()
        if status is None:
            raise DoesNotExist(executionArn)
        ended = {} if status in ("RUNNING", "PENDING_REDRIVE") else {"stopDate": datetime.fromtimestamp(STOPPED, UTC)}
        return {"status": status, **ended}

    def describe_state_machine(self, *, stateMachineArn: str) -> Mapping[str, Any]:  # noqa: N803  # AWS's name
        """DescribeStateMachine."""
        if isinstance(self.machine, Exception):
            raise self.machine
        return {"stateMachineArn": stateMachineArn, "status": self.machine}

    def start_execution(self, *, stateMachineArn: str, name: str, input: str) -> None:  # noqa: N803  # AWS's name
        """StartExecution."""
        self.started.append((stateMachineArn, name, input))
        if self.answers is not None:
            raise self.answers

    def update_item(self, **_: Any) -> None:
        """UpdateItem: every write succeeds."""
        self.updates += 1

    def get_item(self, *, ConsistentRead: bool = False, **_: Any) -> Mapping[str, Any]:  # noqa: N803  # AWS's name
        """GetItem; writes must be based on consistent reads."""
        assert ConsistentRead
        return {} if self.item is None else {"Item": self.item}


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """The AWS calls of a sweep."""
    cloud = Cloud()
    monkeypatch.setattr(aws, "dynamodb", lambda: cloud)
    return cloud


def recoverer(cloud: Cloud) -> Recoverer:
    client: Any = cloud
    return Recoverer(table="requests", dynamodb=client, step_functions=client)


def caretaker(cloud: Cloud) -> Caretaker:
    client: Any = cloud

    def nothing(_metric: Metric, _saga_id: str) -> None:
        return None

    return Caretaker(served=[SAGA], limit=3, step_functions=lambda: client, count=nothing)


def found_in(item: Mapping[str, Any]) -> Found:
    found = Found.from_item(item)
    assert found is not None
    return found


def look(cloud: Cloud) -> Seen | None:
    """Check the record that was read."""
    assert cloud.item is not None
    return caretaker(cloud).look(SAGA, found_in(cloud.item), LATER_MS)


# Whom it asks after.


@pytest.mark.parametrize(
    ("item", "statuses", "status"),
    [
        (ITEM, {}, None),
        (ITEM, {FIRST: "TIMED_OUT"}, "TIMED_OUT"),
        (ITEM, {FIRST.replace(":Transfers:", ":TransfersRecovery:"): "RUNNING"}, None),
        (TAKEN_OVER, {FIRST: "RUNNING"}, None),
        (TAKEN_OVER, {RECOVERY: "RUNNING"}, "RUNNING"),
        (TAKEN_OVER, {RECOVERY: "ABORTED"}, "ABORTED"),
        (TAKEN_OVER, {RECOVERY: "SUCCEEDED", FORWARD: "RUNNING"}, "RUNNING"),
        (TAKEN_OVER, {RECOVERY: "SUCCEEDED", FORWARD: "FAILED"}, "FAILED"),
        (TAKEN_OVER, {RECOVERY: "FAILED", FORWARD: "PENDING_REDRIVE"}, "PENDING_REDRIVE"),
    ],
)
def test_the_owner_is_described_in_each_machine_that_may_run_it(
    cloud: Cloud, item: dict[str, Any], statuses: dict[str, str], status: str | None
) -> None:
    cloud.statuses = statuses

    assert recoverer(cloud).owner(RequestRecord.from_item(item)).status == status


def test_the_first_execution_is_described_once(cloud: Cloud) -> None:
    recoverer(cloud).owner(RequestRecord.from_item(ITEM))

    assert cloud.asked == [FIRST]


def test_a_recovery_is_described_before_its_forward_execution(cloud: Cloud) -> None:
    cloud.statuses = {RECOVERY: "SUCCEEDED"}

    recoverer(cloud).owner(RequestRecord.from_item(TAKEN_OVER))

    assert cloud.asked == [RECOVERY, FORWARD]


def test_nothing_else_is_described_for_a_running_recovery(cloud: Cloud) -> None:
    cloud.statuses = {RECOVERY: "RUNNING"}

    recoverer(cloud).owner(RequestRecord.from_item(TAKEN_OVER))

    assert cloud.asked == [RECOVERY]


@pytest.mark.parametrize(("parked", "status"), [(True, RecordStatus.IN_PROGRESS), (False, RecordStatus.COMPLETED)])
def test_the_owner_of_a_settled_or_parked_saga_is_not_described(
    cloud: Cloud, parked: bool, status: RecordStatus
) -> None:
    cloud.item = {**ITEM, A.STATUS: {"S": status}}
    if parked:
        cloud.item[A.PARKED_BY] = {"S": SAGA_ID}

    assert look(cloud) is not None
    assert cloud.asked == []


# What happens between two questions.


def transfer(cloud: Cloud, *, asked: str) -> None:
    """Let the recovery start the forward machine and end, once an execution was asked after."""
    cloud.then[asked] = lambda: cloud.statuses.update({FORWARD: "RUNNING", RECOVERY: "SUCCEEDED"})


@pytest.mark.parametrize("moment", [FORWARD, RECOVERY])
def test_a_recovery_that_transfers_between_two_calls_is_left_alone(cloud: Cloud, moment: str) -> None:
    cloud.item, cloud.statuses = TAKEN_OVER, {RECOVERY: "RUNNING"}
    transfer(cloud, asked=moment)

    seen = look(cloud)

    assert seen is not None
    assert (seen.finding, seen.decision.need, seen.status) == (Finding.RUNNING, Need.LOOK_LATER, "RUNNING")


@pytest.mark.parametrize("moment", [FORWARD, RECOVERY])
def test_a_recovery_that_transfers_during_its_recovery_is_left_alone(cloud: Cloud, moment: str) -> None:
    cloud.item, cloud.statuses = TAKEN_OVER, {RECOVERY: "RUNNING"}
    transfer(cloud, asked=moment)

    found = recoverer(cloud).recover(RequestRecord.from_item(TAKEN_OVER), LATER_MS)

    assert found == (Finding.RUNNING, None)
    assert (cloud.updates, cloud.started) == (0, [])


def test_an_owner_that_settles_while_it_is_recovered_is_done_with(cloud: Cloud) -> None:
    cloud.item, cloud.statuses = ITEM, {FIRST: "SUCCEEDED"}
    cloud.then[FIRST] = lambda: setattr(cloud, "item", {**ITEM, A.STATUS: {"S": "COMPLETED"}})

    assert recoverer(cloud).recover(RequestRecord.from_item(ITEM), LATER_MS) == (Finding.SETTLED, None)


@pytest.mark.parametrize("item", [None, TAKEN_OVER])
def test_a_record_that_is_anothers_while_it_is_recovered_is_left_alone(
    cloud: Cloud, item: dict[str, Any] | None
) -> None:
    cloud.item, cloud.statuses = ITEM, {FIRST: "SUCCEEDED"}
    cloud.then[FIRST] = lambda: setattr(cloud, "item", item)

    recoverer(cloud).recover(RequestRecord.from_item(ITEM), LATER_MS)

    assert (cloud.updates, cloud.started) == (0, [])


@pytest.mark.parametrize(
    ("item", "statuses"), [(ITEM, {FIRST: "SUCCEEDED"}), (TAKEN_OVER, {RECOVERY: "SUCCEEDED", FORWARD: "SUCCEEDED"})]
)
def test_a_saga_with_a_succeeded_owner_is_never_recovered(
    cloud: Cloud, item: dict[str, Any], statuses: dict[str, str]
) -> None:
    cloud.item, cloud.statuses = item, statuses

    assert recoverer(cloud).recover(RequestRecord.from_item(item), LATER_MS) == (Finding.OWNER_SUCCEEDED, None)
    assert (cloud.updates, cloud.started) == (0, [])


def test_an_owner_that_settles_between_two_questions_is_done_with(cloud: Cloud) -> None:
    cloud.item, cloud.statuses = ITEM, {FIRST: "SUCCEEDED"}
    seen: Seen | None
    cloud.then[FIRST] = lambda: setattr(cloud, "item", {**ITEM, A.STATUS: {"S": "COMPLETED"}})

    seen = look(cloud)

    assert seen is not None
    assert (seen.finding, seen.found.record.status) == (Finding.SETTLED, RecordStatus.COMPLETED)


def test_a_saga_taken_over_between_two_calls_is_checked_again(cloud: Cloud) -> None:
    cloud.item, cloud.statuses = ITEM, {FIRST: "SUCCEEDED", RECOVERY: "RUNNING"}
    cloud.then[FIRST] = lambda: setattr(cloud, "item", TAKEN_OVER)

    seen = look(cloud)

    assert seen is not None
    assert (seen.finding, seen.found.record.owner) == (Finding.RUNNING, R1)


def test_a_record_that_is_gone_between_two_questions_is_nobodys(cloud: Cloud) -> None:
    cloud.item, cloud.statuses = ITEM, {FIRST: "SUCCEEDED"}
    cloud.then[FIRST] = lambda: setattr(cloud, "item", None)

    assert look(cloud) is None


# Whom it starts.


@pytest.mark.parametrize(
    ("item", "machine", "name"), [(ITEM, MACHINE_ARN, SAGA_ID), (TAKEN_OVER, RECOVERY_MACHINE_ARN, R1)]
)
def test_an_unstarted_execution_is_started_with_its_machine_and_input(
    cloud: Cloud, item: dict[str, Any], machine: str, name: str
) -> None:
    cloud.item = item
    seen = look(cloud)

    assert seen is not None
    assert caretaker(cloud).carry_out(seen) is True
    assert cloud.started == [(machine, name, ITEM[A.INPUT]["S"])]


def test_a_used_name_means_that_the_execution_was_started(cloud: Cloud) -> None:
    cloud.answers = AlreadyExists()

    recoverer(cloud).start(MACHINE_ARN, SAGA_ID, "{}")

    assert len(cloud.started) == 1


def test_a_start_with_another_error_has_not_happened(cloud: Cloud) -> None:
    cloud.answers = Refused()

    with pytest.raises(Refused):
        recoverer(cloud).start(MACHINE_ARN, SAGA_ID, "{}")


# An execution that may not be described.


def test_a_recovery_on_a_machine_of_another_is_parked_once_it_has_been_due_for_long(cloud: Cloud) -> None:
    cloud.item, cloud.statuses = TAKEN_OVER, {RECOVERY: "DENIED"}

    seen = look(cloud)

    assert seen is not None
    assert (seen.finding, seen.decision.need, seen.decision.reason) == (
        Finding.OWNER_UNKNOWN,
        Need.PARK,
        ParkedFor.OWNER_UNKNOWN,
    )


def test_a_recovery_that_may_not_be_described_for_a_moment_is_an_error(cloud: Cloud) -> None:
    cloud.item = {**TAKEN_OVER, A.DUE_AT: {"N": str(LATER_MS - DENIED_MS + 1)}}
    cloud.statuses = {RECOVERY: "DENIED"}

    with pytest.raises(ClientError, match="AccessDenied"):
        look(cloud)


@pytest.mark.parametrize(
    ("item", "statuses"),
    [(ITEM, {FIRST: "DENIED"}), (TAKEN_OVER, {RECOVERY: "DENIED", FORWARD: "DENIED"})],
    ids=["first execution", "rights are missing"],
)
def test_rights_that_are_missing_are_an_error(cloud: Cloud, item: dict[str, Any], statuses: dict[str, str]) -> None:
    cloud.item, cloud.statuses = item, statuses

    with pytest.raises(ClientError, match="AccessDenied"):
        look(cloud)


# A state machine that is gone.


@pytest.mark.parametrize("machine", [Gone(), "DELETING"])
def test_a_saga_is_not_taken_over_for_a_machine_that_is_gone(cloud: Cloud, machine: str | Exception) -> None:
    cloud.item, cloud.statuses, cloud.machine = ITEM, {FIRST: "ABORTED"}, machine

    with pytest.raises(MachineGone, match=f"state machine {RECOVERY_MACHINE_ARN} must exist.*cdk-sagas adopt"):
        recoverer(cloud).recover(RequestRecord.from_item(ITEM), LATER_MS)

    assert (cloud.updates, cloud.started) == (0, [])


@pytest.mark.parametrize("answer", [Gone(), Deleting()])
def test_a_start_on_a_machine_that_is_gone_names_it(cloud: Cloud, answer: Exception) -> None:
    cloud.answers = answer

    with pytest.raises(MachineGone, match=MACHINE_ARN):
        recoverer(cloud).start(MACHINE_ARN, SAGA_ID, "{}")


# Rows that are kept for less time than names.


@pytest.mark.parametrize(
    ("owner", "status", "days", "finding"),
    [
        (SAGA_ID, None, 29, Finding.NOT_STARTED),
        (SAGA_ID, None, 31, Finding.ROWS_EXPIRED),  # it may have run: some accounts forget executions after 30 days
        (SAGA_ID, None, 89, Finding.ROWS_EXPIRED),
        (SAGA_ID, "FAILED", 29, Finding.DEAD),
        (SAGA_ID, "FAILED", 31, Finding.ROWS_EXPIRED),
        (SAGA_ID, "SUCCEEDED", 31, Finding.OWNER_SUCCEEDED),
        (SAGA_ID, "RUNNING", 31, Finding.RUNNING),
        (R1, None, 29, Finding.NOT_STARTED),
        (R1, None, 31, Finding.ROWS_EXPIRED),
        (R1, "RUNNING", 31, Finding.RUNNING),
    ],
)
def test_a_saga_with_a_possibly_expired_log_is_left_to_an_operator(
    owner: str, status: str | None, days: int, finding: Finding
) -> None:
    record = replace(RequestRecord.from_item(ITEM), owner=owner)

    found = Owner(status, NOW_MS if status in ("FAILED", "SUCCEEDED") else None)

    assert what_to_do(record, found, NOW_MS + days * DAY_MS, log_days=30) is finding
