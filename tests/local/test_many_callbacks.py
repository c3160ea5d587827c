"""A hundred and sixty sagas that wait, answered at once: some twice at the same moment, some before they wait."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from constructs_lib.testing.invariants import require_all_hold

from .many_callbacks.audit import audit
from .many_callbacks.crowd import Crowd, Kind, deployed

SAGAS = 160


@pytest.fixture(scope="module")
def crowd() -> Iterator[Crowd]:
    """The system, warm."""
    with deployed() as made:
        yield made


def test_each_of_many_sagas_wakes_once_however_often_and_early_it_is_answered(crowd: Crowd) -> None:
    waiters = crowd.begin("many", SAGAS)
    wave = crowd.answer(waiters)

    assert {waiter.kind for waiter in waiters} == set(Kind)
    assert len(wave.said) > SAGAS
    invariants = audit(crowd)
    assert all(invariant.checked for invariant in invariants), invariants
    require_all_hold(invariants)
