"""Check-and-set keeps its promises, each of its conditions is needed, and each naive form breaks one."""

from __future__ import annotations

import pytest

from tests.specification.check_and_set import Form, VersionModel
from tests.specification.check_and_set import VersionCondition as C
from tests.specification.check_and_set import VersionPromise as P
from tests.specification.checker import check
from tests.specification.conditions import Mutant, found
from tests.specification.suite import SpecificationTests, Suite


class TestCheckAndSet(SpecificationTests):
    suite = Suite(
        conditions=C,
        settings={"small": VersionModel(versions=4), "never reads again": VersionModel(rereads=False)},
        mutants=(
            Mutant((C.MARKER_ABSENT,), P.UPDATED_TWICE),
            Mutant((C.SAME_TRANSACTION,), P.UPDATED_TWICE),
            Mutant((C.MARKER_BEFORE_VERSION,), P.CONFLICT_BUT_UPDATED),
            Mutant((C.VERSIONS_GROW,), P.CONFLICT_BUT_UPDATED),
        ),
    )


@pytest.mark.parametrize(
    ("form", "harm"),
    [
        (Form.NEXT_VERSION, P.DONE_BY_ANOTHER),
        (Form.NEXT_VERSION, P.CONFLICT_BUT_UPDATED),
        (Form.NEXT_VERSION, P.UPDATED_TWICE),
        (Form.LAST_ID, P.CONFLICT_BUT_UPDATED),
        (Form.LAST_ID, P.UPDATED_TWICE),
        (Form.LAST_TWO_IDS, P.CONFLICT_BUT_UPDATED),
    ],
    ids=str,
)
def test_a_naive_form_breaks_a_promise(form: Form, harm: P) -> None:
    verdict = check(VersionModel(form=form, rereads=harm is P.UPDATED_TWICE), until=harm)

    print(verdict)
    assert harm in found(verdict)
