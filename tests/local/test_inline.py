"""A transfer that runs inline: settled in the first response, without a transition of the Standard machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from constructs_lib.testing import Fault
from constructs_lib.testing.fault_schedules import First
from constructs_lib.testing.faults import Recording

from .inline_system import InlineSystem, deployed_inline
from .transfer_system import is_settled, transfer, until
from .two_ledgers import CREDIT

SPEED = 1.0
"""A response waits for a saga for ten seconds, which a busy machine may need."""


@pytest.fixture(scope="module")
def deployed_system() -> Iterator[InlineSystem]:
    with deployed_inline(speed=SPEED) as system:
        # Functions start cold once, which may take a busy machine longer than a response waits.
        _open(system)
        system.settle_waiting("cold", transfer("alice", "bob"))
        system.settle_waiting("cold-partner", transfer("alice", "carol", to_ledger="partner"))
        yield system


@pytest.fixture
def system(deployed_system: InlineSystem) -> InlineSystem:
    deployed_system.aws.reset()
    _open(deployed_system)
    return deployed_system


def _open(system: InlineSystem) -> None:
    system.open("alice", "bob")
    system.open("carol", ledger="partner")


def test_a_transfer_is_settled_in_the_first_response(system: InlineSystem) -> None:
    first = system.ask("in-one", transfer("alice", "bob"))
    partner = system.ask("in-two", transfer("alice", "carol", to_ledger="partner"))

    assert (first.status, partner.status) == (200, 200), (first.text, partner.text)
    assert first.json()["result"] == {"amount": "100", "currency": "EUR"}
    assert first.headers["preference-applied"] == "wait=10"
    assert system.standard_executions() == []
    assert system.ran() == ["EXPRESS", "EXPRESS"]
    assert system.balances() | system.balances("partner") == {"alice": 800, "bob": 1100, "carol": 1100}
    again = system.ask("in-one", transfer("alice", "bob"))
    assert is_settled(again)
    assert again.body == first.body
    assert not [invariant for invariant in system.audit() if invariant.violations]


def test_a_refusal_is_in_the_first_response(system: InlineSystem) -> None:
    refused = system.ask("too-much", transfer("alice", "bob", amount=5_000))
    back = system.ask("nobody", transfer("alice", "dora", to_ledger="partner"))

    assert (refused.status, refused.json()["error"]) == (402, "InsufficientFunds")
    assert (back.status, back.json()["error"]) == (404, "AccountNotFound")
    assert system.standard_executions() == []
    assert system.balances()["alice"] == 1_000
    assert system.ask("nobody", transfer("alice", "dora", to_ledger="partner")).body == back.body


def test_a_client_that_does_not_wait_is_answered_at_once(system: InlineSystem) -> None:
    first = system.ask("later", transfer("alice", "carol", to_ledger="partner"), wait=False)

    assert first.status == 202
    assert system.settle("later", transfer("alice", "carol", to_ledger="partner")).status == 200
    assert system.standard_executions() == []
    assert system.ran() == ["EXPRESS"]


def test_an_asynchronous_execution_that_starts_twice_moves_nothing_twice(system: InlineSystem) -> None:
    """A start whose response was lost is sent again; Express knows no names."""
    system.aws.faults.plan(
        Fault(function=system.gatekeeper, call="states:StartExecution", moment="after", action="drop", on=First(1))
    )
    body = transfer("alice", "carol", to_ledger="partner")

    with system.aws.calls.record() as calls:
        first = system.ask("twice", body, wait=False)
        settled = system.settle("twice", body)
        until(lambda: _settles(calls) > 1, "the settles of both executions")

    system.aws.faults.report().require_all_fired()
    assert (first.status, settled.status) == (202, 200)
    assert system.balances()["alice"] == 900
    assert system.balances("partner")["carol"] == 1_100
    assert system.standard_executions() == []
    assert not [invariant for invariant in system.audit() if invariant.violations]


def _settles(calls: Recording) -> int:
    """Count the records' updates by Express executions."""
    return sum(
        one.caller.startswith("states:") and "TransferExpress" in one.caller and one.call == "dynamodb:UpdateItem"
        for one in calls
    )


def test_what_express_cannot_decide_standard_decides(system: InlineSystem) -> None:
    system.aws.faults.plan(
        Fault(function=CREDIT, call="dynamodb:TransactWriteItems", moment="before", action="kill", on=First(3))
    )

    first = system.ask("in-doubt", transfer("alice", "carol", to_ledger="partner"))
    settled = system.settle("in-doubt", transfer("alice", "carol", to_ledger="partner"))

    system.aws.faults.report().require_all_fired()
    assert first.status in (200, 202), first.text
    assert settled.status == 200, settled.text
    assert len(system.standard_executions()) == 1
    assert system.ran() == ["STANDARD"]
    assert system.balances()["alice"] == 900


def test_standard_is_started_where_express_is_refused_and_answers_alike(system: InlineSystem) -> None:
    by_express = system.ask("begun", transfer("alice", "bob"))
    system.aws.faults.plan(
        Fault(
            function=system.gatekeeper,
            call="states:StartSyncExecution",
            moment="before",
            action="throttle",
            on=First(1),
        )
    )

    by_standard = system.settle_waiting("throttled", transfer("alice", "bob"))

    system.aws.faults.report().require_all_fired()
    assert by_express.status == by_standard.status == 200, by_standard.text
    assert {**by_express.json(), "saga_id": ""} == {**by_standard.json(), "saga_id": ""}
    assert system.ran() == ["EXPRESS", "STANDARD"]


def test_a_lost_response_of_express_moves_nothing_twice(system: InlineSystem) -> None:
    system.aws.faults.plan(
        Fault(function=system.gatekeeper, call="states:StartSyncExecution", moment="after", action="drop", on=First(1))
    )

    first = system.ask("lost", transfer("alice", "bob"))

    system.aws.faults.report().require_all_fired()
    assert first.status == 200, first.text
    assert system.balances()["alice"] == 900
    assert system.standard_executions() == []


def test_a_gatekeeper_that_dies_before_express_leaves_the_saga_to_standard(system: InlineSystem) -> None:
    system.aws.faults.plan(
        Fault(function=system.gatekeeper, call="states:StartSyncExecution", moment="before", action="kill", on=First(1))
    )

    system.ask("died", transfer("alice", "bob"))
    answer = system.settle("died", transfer("alice", "bob"))

    assert answer.status == 200
    assert system.ran() == ["STANDARD"]
