"""Usage of work that steps of several kinds have in common."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.cost.prices import Meter
from constructs_lib.saga.cost.tally import Purpose, Tally
from constructs_lib.saga.description.description import StepDescription

TOKEN_UNITS: Final = 3
"""A token has up to 2,048 characters, and its row the rest."""
INDEX_UNITS: Final = 1
MOVED_INDEX_UNITS: Final = 2
"""An entry of an index whose key changes is deleted and put."""
_QUEUE_CALLS: Final = 3
_RECEIPT_READS: Final = 2


def write_items(tally: Tally, step: StepDescription, times: int, by: str | None = None) -> None:
    """A step's items, as plain writes would cost them."""
    units = tally.inputs.items_written_by(step) * tally.inputs.item_units
    tally.write(Purpose.EFFECTS, by or step.name, units * times)


def write_transaction(tally: Tally, step: StepDescription, times: int, by: str | None = None) -> None:
    """One TransactWriteItems with the log row in it: every unit counts twice.

    An item's first unit is the effect's, as a plain write would cost it; the second one is the log's.
    """
    name = by or step.name
    tally.write(Purpose.LOG, name, 2 * tally.inputs.row_units * times)
    units = tally.inputs.items_written_by(step) * tally.inputs.item_units
    tally.write(Purpose.LOG, f"{name}, in a transaction", units * times)
    write_items(tally, step, times, name)


def wait_for_answer(tally: Tally, step: StepDescription, times: int) -> None:
    """Sent, received and deleted; registered; one transaction of event, token and row; delivered."""
    name, row = step.name, tally.inputs.row_units
    tally.add(Meter.QUEUE_REQUESTS, Purpose.ORCHESTRATION, name, _QUEUE_CALLS * times)
    tally.add(Meter.REST_REQUESTS, Purpose.ORCHESTRATION, f"{name}, answer", times)
    tally.call(f"{name}, answer", None, tally.inputs.gatekeeper_ms, times)
    tally.write(Purpose.LOG, f"{name}, token", (TOKEN_UNITS + INDEX_UNITS) * times)
    tally.read(Purpose.LOG, f"{name}, answer", _RECEIPT_READS * times)
    tally.write(Purpose.LOG, f"{name}, answer", 2 * (1 + TOKEN_UNITS + row) * times)
    tally.write(Purpose.LOG, f"{name}, delivered", (TOKEN_UNITS + INDEX_UNITS) * times)
    tally.write(Purpose.LOG, f"{name}, answer, index", MOVED_INDEX_UNITS * times)
