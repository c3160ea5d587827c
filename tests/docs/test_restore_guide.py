"""The guide to restores: it names every kind of table that must be restored to one moment."""

from __future__ import annotations

from typing import Final

from constructs_lib.execution_watch.execution_watch import _WatchTable
from constructs_lib.reconciler.timeout_reconciler import HoldTable
from constructs_lib.tables.idempotency_table import IdempotencyTable
from constructs_lib.tables.ledger_table import LedgerTable
from constructs_lib.tables.outbox import Outbox
from constructs_lib.tables.saga_log import SagaLog
from constructs_lib.tables.stateful_table import StatefulTable
from constructs_lib.tables.token_table import _Tokens

from .pages import DOCS

_RESTORED: Final = {
    IdempotencyTable: "the request table",
    SagaLog: "the logs of all its sagas",
    _Tokens: "the token tables",
    LedgerTable: "the ledger",
    Outbox: "the outboxes",
}
_LEFT: Final = {HoldTable: "the table `Hold`", _WatchTable: "those of execution watches"}


def _part(word: str) -> str:
    """Return what the guide's first paragraph states of tables: up to a word, or behind it."""
    page = (DOCS / "how-to" / "restore-from-backup.md").read_text("utf-8")
    first = " ".join(page.split("\n\n")[1].split())
    before, found, behind = first.partition("Leave")
    assert found, "the guide must state which tables stay as they are"
    return before if word == "restore" else behind


def test_every_kind_of_table_has_its_place_in_a_restore() -> None:
    ours = {kind for kind in StatefulTable.__subclasses__() if kind.__module__.startswith("constructs_lib.")}

    assert ours == {*_RESTORED, *_LEFT}
    assert [name for name in _RESTORED.values() if name not in _part("restore")] == []
    assert [name for name in _LEFT.values() if name not in _part("leave")] == []
