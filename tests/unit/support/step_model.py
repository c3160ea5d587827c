"""One atomic step and its compensation, invoked any number of times, with requests that outlive their senders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from saga_runtime.protocol import Side
from saga_runtime.saga_log.rows import (
    LogRow,
    StepEntry,
    UndoEntry,
    done_put,
    entry_of,
    tombstone_put,
    undo_entry_of,
    undone_update,
)
from tests.unit.support.memory_dynamodb import MemoryDynamoDB
from tests.unit.support.samples import NOW_MS, SAGA_ID
from tests.unit.support.settling import with_used_placeholders

STEP = "Transfer"
_ROW: dict[str, Any] = {"table": "log", "saga_id": SAGA_ID, "step": STEP, "now_ms": NOW_MS}


@dataclass(frozen=True, slots=True)
class Sent:
    """A transaction in transit: its origin and its writes."""

    undo: UndoEntry | None
    entry: Any


class StepModel:
    """The row of one step, its effect and its undo, and the requests that travel."""

    def __init__(self) -> None:
        self.db = MemoryDynamoDB()
        self.travelling: list[Sent] = []
        self.applied = 0
        self.undone = 0
        self.attempts = 0
        self.compensated = False
        self.outputs: set[str | None] = set()

    @property
    def row(self) -> LogRow | None:
        """The row, read strongly."""
        item = self.db.item("log", SAGA_ID, STEP)
        return None if item is None else LogRow.from_item(item)

    def send_do(self) -> Sent:
        """An attempt of the step sends its transaction."""
        self.attempts += 1
        attempt = f"attempt-{self.attempts}"
        return Sent(
            None, done_put(**_ROW, side=Side.BEFORE, attempt=attempt, output=f'{{"by":"{attempt}"}}', keep_days=400)
        )

    def send_undo(self) -> Sent | None:
        """An attempt of the compensation reads the row, and sends what follows from it; None: nothing to do."""
        self.attempts += 1
        attempt = f"attempt-{self.attempts}"
        match undo_entry_of(self.row):
            case UndoEntry.NOTHING | UndoEntry.FOREIGN:
                self.compensated = True
                return None
            case UndoEntry.BURY:
                return Sent(UndoEntry.BURY, tombstone_put(**_ROW, side=Side.BEFORE, attempt=attempt, keep_days=400))
            case UndoEntry.UNDO:
                return Sent(UndoEntry.UNDO, undone_update(**_ROW, attempt=attempt))

    def arrive(self, sent: Sent, *, heard: bool) -> None:
        """A transaction arrives; ``heard``: whether its sender still lives to hear the answer."""
        ((kind, arguments),) = sent.entry.items()
        try:
            self.db.transact_write_items(TransactItems=[{kind: with_used_placeholders(arguments)}])
        except ClientError:
            if heard and sent.undo is None and entry_of(self.row) is StepEntry.REPLAY:
                self.outputs.add(self.row.output if self.row else None)
            return
        self.applied += sent.undo is None
        self.undone += sent.undo is UndoEntry.UNDO
        self.compensated |= heard and sent.undo is not None
        if heard and sent.undo is None:
            self.outputs.add(self.row.output if self.row else None)

    def check(self) -> None:
        """The invariants."""
        assert self.applied <= 1, "the effect took place twice"
        assert self.undone <= 1, "the undo took place twice"
        assert self.undone <= self.applied, "undone without an effect"
        if self.compensated:
            assert self.applied == self.undone, "an effect remains after its compensation"
        assert len(self.outputs) <= 1, "two answers of one step"
        done = self.row is not None and self.row.status == "DONE"
        assert done == (self.applied - self.undone == 1), "the row and the effect disagree"
