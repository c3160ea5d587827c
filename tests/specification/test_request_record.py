"""The request record keeps its promises, and each of its conditions is needed."""

from __future__ import annotations

from tests.specification.conditions import STUCK, Mutant
from tests.specification.record_conditions import RecordCondition as C
from tests.specification.record_conditions import RecordPromise as P
from tests.specification.request_record import RequestRecordModel
from tests.specification.suite import LargeConfigurationTests, RedundantConditionTests, Suite


class TestRequestRecord(RedundantConditionTests, LargeConfigurationTests):
    suite = Suite(
        conditions=C,
        settings={
            "small": RequestRecordModel(),
            "no recovery": RequestRecordModel(person=False, gatekeepers=2, bodies="ab"),
            "not deleted": RequestRecordModel(deletion=False),
            "replaced": RequestRecordModel(machines="MN"),
            "stricter": RequestRecordModel(stricter=True),
            "remembered": RequestRecordModel(remembered=True, letters=0),
        },
        large={
            "two letters, two bodies": RequestRecordModel(letters=2, bodies="ab"),
            "two gatekeepers": RequestRecordModel(gatekeepers=2),
            "two recoveries": RequestRecordModel(recoveries=2),
            "three sagas of one key": RequestRecordModel(sagas=3),
        },
        mutants=(
            Mutant((C.RESERVE,), P.SECOND_SAGA_WHILE_FIRST_IS_OPEN, "no recovery"),
            Mutant((C.RESERVE_OR_EXPIRED_TIME,), P.SECOND_SAGA_WITHIN_RETENTION),
            Mutant((C.EXPIRATION_AT_SETTLE,), P.SECOND_SAGA_WHILE_FIRST_IS_OPEN),
            Mutant((C.RESERVATION_STAYS,), P.SECOND_SAGA_WHILE_FIRST_IS_OPEN),
            Mutant((C.MET_OWN,), P.FIRST_CLIENT_TURNED_AWAY),
            Mutant((C.MET_RUNNING_DUE,), STUCK, "no recovery"),
            Mutant((C.STORED_START,), P.SECOND_SAGA_WHILE_FIRST_IS_OPEN),
            Mutant((C.SAME_MACHINE,), P.SAGA_ON_TWO_MACHINES, "replaced"),
            Mutant((C.RESPONSE_OVER,), P.REQUEST_REMOVED, "remembered"),
            Mutant((C.TOMBSTONE_IS_EXPIRED,), P.ANSWERED_WITHOUT_RESPONSE, "remembered"),
            Mutant((C.REFUSAL_LOOKS_FIRST,), P.REFUSED_ALTHOUGH_RECORDED, "stricter"),
            Mutant((C.MET_OTHER_BODY,), P.ANSWER_OF_ANOTHER_REQUEST, "no recovery"),
            Mutant((C.OWNED_OWNER,), P.SETTLED_BY_ANOTHER_SAGA),
            Mutant((C.OWNER_NAMES_THE_SAGA,), P.SETTLED_BY_ANOTHER_SAGA),
        ),
        redundant=(
            Mutant(
                (C.RESERVE_OR_EXPIRED_SETTLED, C.EXPIRATION_AT_SETTLE), P.SECOND_SAGA_WHILE_FIRST_IS_OPEN, "not deleted"
            ),
            Mutant((C.OWNED_EXISTS, C.OWNED_IN_PROGRESS, C.OWNED_OWNER), P.UPDATE_CREATED_A_RECORD),
            Mutant((C.OWNED_IN_PROGRESS, C.OWNED_EXISTS, C.OWNED_OWNER), P.UPDATE_CREATED_A_RECORD),
        ),
    )
