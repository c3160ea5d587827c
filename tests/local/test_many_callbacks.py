"""A hundred and sixty sagas that wait, answered at once: some twice at the same moment, some before they wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from constructs_lib.testing.invariants import assert_all_hold

from .many_callbacks.audit import audit
from .many_callbacks.crowd import Crowd, Kind, deployed

SAGAS: Final = 160
PAIRS: Final = 20
TRIES: Final = 5


@pytest.fixture(scope="module")
def crowd() -> Iterator[Crowd]:
    """The system, warm."""
    with deployed() as made:
        yield made


@pytest.mark.proof
def test_each_of_many_sagas_resumes_once_with_early_or_repeated_callbacks(crowd: Crowd) -> None:
    waiters = crowd.begin("many", SAGAS)

    wave = crowd.answer(waiters)

    assert {waiter.kind for waiter in waiters} == set(Kind)
    assert len(wave.said) > SAGAS
    assert_all_hold(audit(crowd))


@pytest.mark.proof
@pytest.mark.parametrize("kind", [Kind.SAME_EVENT, Kind.OTHER_EVENT])
def test_two_receivers_that_run_at_the_same_time_wake_a_saga_once(crowd: Crowd, kind: Kind) -> None:
    def refused_of_pairs(attempt: int) -> int:
        """Number of concurrent callbacks that met, and were refused with a retryable status."""
        waiters = crowd.begin(f"{kind.name.lower()}-{attempt}", PAIRS, kind=kind)
        # Nothing else delays them: each of the two has a process.
        with crowd.aws.calls.record() as calls:
            crowd.answer(waiters, clients=2)
        received = [call for call in calls if call.caller == crowd.outputs["FromWarehouse"]]
        sent = [call for call in received if call.call == "states:SendTaskSuccess" and call.status == 200]
        assert len(sent) == PAIRS
        return sum(call.call == "dynamodb:TransactWriteItems" and call.status == 400 for call in received)

    # On a busy machine, one of two may be through before the other has a turn.
    assert any(map(refused_of_pairs, range(TRIES))), "no two met"
    assert_all_hold(audit(crowd))
