"""AWS calls, bytes and units of a recovery, compared with the page."""

from __future__ import annotations

from tests.unit.support.metering import metered
from tests.unit.support.reconciled import Watch, interrupted
from tests.unit.support.samples import SAGA_ID
from tests.unit.test_calls_of_paths import RECOVERY, documented


def test_page_has_the_calls_and_units_of_a_recovery(watch: Watch) -> None:
    interrupted(watch)
    watch.world.wire.forget()

    spent = metered(watch.world, lambda: watch.ended(SAGA_ID))

    assert documented().get(RECOVERY) == spent.row, f"| {RECOVERY} | {' | '.join(spent.row)} |"
