"""The request record keeps its promises, and each of its conditions is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.specification.checker import check
from tests.specification.conditions import STUCK, Mutant, found
from tests.specification.record_conditions import RecordCondition as C
from tests.specification.record_conditions import RecordPromise as P
from tests.specification.request_record import RequestRecordModel

SETTINGS = {
    "small": RequestRecordModel(),
    "nobody recovers": RequestRecordModel(person=False, gatekeepers=2, bodies="ab"),
    "not deleted": RequestRecordModel(deletion=False),
}
LARGE = {
    "two letters, two bodies": RequestRecordModel(letters=2, bodies="ab"),
    "two gatekeepers": RequestRecordModel(gatekeepers=2),
    "two recoveries": RequestRecordModel(recoveries=2),
    "three sagas of one key": RequestRecordModel(sagas=3),
}
MUTANTS = (
    Mutant((C.RESERVE,), P.SECOND_SAGA_WHILE_FIRST_IS_OPEN, "nobody recovers"),
    Mutant((C.RESERVE_OR_EXPIRED_TIME,), P.SECOND_SAGA_WITHIN_RETENTION),
    Mutant((C.EXPIRATION_AT_SETTLE,), P.SECOND_SAGA_WHILE_FIRST_IS_OPEN),
    Mutant((C.RESERVATION_STAYS,), P.SECOND_SAGA_WHILE_FIRST_IS_OPEN),
    Mutant((C.MET_OWN,), P.FIRST_CLIENT_TURNED_AWAY),
    Mutant((C.MET_RUNNING_DUE,), STUCK, "nobody recovers"),
    Mutant((C.STORED_START,), P.SECOND_SAGA_WHILE_FIRST_IS_OPEN),
    Mutant((C.MET_OTHER_BODY,), P.ANSWER_OF_ANOTHER_REQUEST, "nobody recovers"),
    Mutant((C.OWNED_OWNER,), P.SETTLED_BY_ANOTHER_SAGA),
    Mutant((C.OWNER_NAMES_THE_SAGA,), P.SETTLED_BY_ANOTHER_SAGA),
)
REDUNDANT = (
    Mutant((C.RESERVE_OR_EXPIRED_SETTLED, C.EXPIRATION_AT_SETTLE), P.SECOND_SAGA_WHILE_FIRST_IS_OPEN, "not deleted"),
    Mutant((C.OWNED_EXISTS, C.OWNED_IN_PROGRESS, C.OWNED_OWNER), P.UPDATE_CREATED_A_RECORD),
    Mutant((C.OWNED_IN_PROGRESS, C.OWNED_EXISTS, C.OWNED_OWNER), P.UPDATE_CREATED_A_RECORD),
)


@pytest.mark.parametrize("setting", SETTINGS)
def test_under_all_conditions_no_promise_is_broken_and_nothing_gets_stuck(setting: str) -> None:
    verdict = check(SETTINGS[setting])

    assert verdict.clean, verdict


@pytest.mark.usefixtures("large_configurations")
@pytest.mark.parametrize("setting", LARGE)
def test_the_same_holds_in_larger_configurations(setting: str) -> None:
    verdict = check(LARGE[setting])

    assert verdict.clean, verdict


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_without_a_condition_a_promise_is_broken(mutant: Mutant) -> None:
    verdict = check(replace(SETTINGS[mutant.setting], off=frozenset(mutant.off)), until=mutant.harm)

    print(verdict)
    assert mutant.harm in found(verdict)


@pytest.mark.parametrize("mutant", REDUNDANT, ids=str)
def test_a_condition_that_is_redundant_alone_matters_when_its_companions_are_gone(mutant: Mutant) -> None:
    spare, *companions = mutant.off
    model = SETTINGS[mutant.setting]

    assert check(replace(model, off=frozenset({spare}))).clean
    assert mutant.harm not in found(check(replace(model, off=frozenset(companions))))
    assert mutant.harm in found(check(replace(model, off=frozenset(mutant.off)), until=mutant.harm))


def test_every_condition_has_its_mutant() -> None:
    assert {mutant.off[0] for mutant in (*MUTANTS, *REDUNDANT)} == set(C)
