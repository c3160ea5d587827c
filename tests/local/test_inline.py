"""A transfer that runs inline: settled in the first response, without a transition of the Standard machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from saga_runtime.protocol import RecordAttribute

from .inline_system import InlineSystem, deployed_inline
from .transfer_system import SPEED, is_settled, transfer


@pytest.fixture(scope="module")
def deployed_system() -> Iterator[InlineSystem]:
    with deployed_inline(speed=SPEED) as system:
        yield system


@pytest.fixture
def system(deployed_system: InlineSystem) -> InlineSystem:
    deployed_system.aws.reset()
    deployed_system.open("alice", "bob")
    deployed_system.open("carol", ledger="partner")
    return deployed_system


def test_a_transfer_is_settled_in_the_first_response(system: InlineSystem) -> None:
    first = system.ask("in-one", transfer("alice", "bob"))
    partner = system.ask("in-two", transfer("alice", "carol", to_ledger="partner"))

    assert (first.status, partner.status) == (200, 200), (first.text, partner.text)
    assert first.json()["result"] == {"amount": "100", "currency": "EUR"}
    assert first.headers["preference-applied"] == "wait=10"
    assert system.standard_executions() == []
    assert {record[RecordAttribute.RAN]["S"] for record in system.records()} == {"EXPRESS"}
    assert system.balances() | system.balances("partner") == {"alice": 800, "bob": 1100, "carol": 1100}
    again = system.ask("in-one", transfer("alice", "bob"))
    assert is_settled(again)
    assert again.body == first.body
    assert not [invariant for invariant in system.audit() if invariant.violations]
