"""Decisions of an external step and its compensation for each row: the whole table, without a database."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from saga_runtime.protocol import LogAttribute, Side, StepStatus
from saga_runtime.saga_log.external_rows import MAX_DETAIL, Entry, Holder, UndoEntry, entry_of, is_over, undo_entry_of
from saga_runtime.saga_log.provider import ProviderSettings
from saga_runtime.saga_log.rows import LogRow
from tests.unit.support.memory_dynamodb import MemoryDynamoDB
from tests.unit.support.samples import NOW_MS, SAGA_ID

GRACE_MS = 30_000
WINDOW_MS = 3_600_000
DEADLINE = NOW_MS + 20_000
S = StepStatus
E = Entry
U = UndoEntry
NEITHER, WINDOW, ASK, BOTH = "neither", "window", "ask", "both"


def provider_of(kind: str) -> ProviderSettings:
    """The provider's capabilities, alike for the step and its compensation."""
    window = WINDOW_MS // 1_000 if kind in (WINDOW, BOTH) else 0
    asks = kind in (ASK, BOTH)
    return ProviderSettings(
        grace=GRACE_MS // 1_000, clock_skew=5, window=window, undo_window=window, verify=asks, verify_undo=asks
    )


def holder(now_ms: int, attempt: str = "mine") -> Holder:
    """An attempt that began now."""
    return Holder(
        table="log",
        saga_id=SAGA_ID,
        row_name="Charge",
        side=Side.PIVOT,
        attempt=attempt,
        deadline=now_ms + 20_000,
        keep_days=400,
    )


def row_of(status: StepStatus, **more: Any) -> LogRow:
    """A row of an attempt that is certainly dead at ``DEADLINE``."""
    return LogRow(
        saga_id=SAGA_ID,
        step="Charge",
        status=status,
        updated_at=NOW_MS,
        attempt="theirs",
        deadline=DEADLINE,
        first_attempt_at=NOW_MS,
        **{"output": None, **more},
    )


ALIVE, DEAD, OVER = DEADLINE - 1, DEADLINE, DEADLINE + GRACE_MS
LAST = NOW_MS + WINDOW_MS - GRACE_MS - 20_000
"""The last moment at which all that this attempt sends arrives within the window."""
FORGOTTEN = LAST + 1


@pytest.mark.parametrize("kind", [NEITHER, WINDOW, ASK, BOTH])
@pytest.mark.parametrize("now_ms", [ALIVE, DEAD, OVER, FORGOTTEN])
@pytest.mark.parametrize(
    ("row", "step", "undo"),
    [
        (None, E.CLAIM, U.BURY),
        (row_of(S.DONE, output="{}"), E.REPLAY, U.UNDO),
        (row_of(S.REFUSED), E.REFUSED, U.NOTHING),
        (row_of(S.TOMBSTONE), E.FENCED, U.NOTHING),
        (row_of(S.TOMBSTONE, output="{}"), E.REPLAY, U.NOTHING),
        (row_of(S.COMPENSATING, output="{}"), E.FENCED, None),
        (row_of(S.COMPENSATED, output="{}"), E.FENCED, U.NOTHING),
        (row_of(S.RECORDED, output="{}"), E.FOREIGN, U.NOTHING),
    ],
    ids=lambda value: value.status + ("+output" if value.output else "") if isinstance(value, LogRow) else None,
)
def test_a_decided_row_decides_at_any_time_for_any_provider(
    row: LogRow | None, step: Entry, undo: UndoEntry | None, now_ms: int, kind: str
) -> None:
    about: Any = {"mine": holder(now_ms), "now_ms": now_ms, "provider": provider_of(kind)}

    assert entry_of(row, **about) is step
    assert undo is None or undo_entry_of(row, **about) is undo


@pytest.mark.parametrize(
    ("kind", "now_ms", "step", "undo"),
    [
        (ASK, ALIVE, E.WAIT, U.WAIT),
        (ASK, DEAD, E.WAIT, U.WAIT),
        (ASK, OVER - 1, E.WAIT, U.WAIT),
        (ASK, OVER, E.VERIFY, U.VERIFY),
        (ASK, FORGOTTEN, E.VERIFY, U.VERIFY),
        (WINDOW, ALIVE, E.WAIT, U.WAIT),
        (WINDOW, DEAD, E.CALL_AGAIN, U.WAIT),
        (WINDOW, OVER - 1, E.CALL_AGAIN, U.WAIT),
        (WINDOW, OVER, E.CALL_AGAIN, U.REPEAT),
        (WINDOW, LAST, E.CALL_AGAIN, U.REPEAT),
        (WINDOW, FORGOTTEN, E.UNDECIDED, U.UNDECIDED),
        (BOTH, ALIVE, E.WAIT, U.WAIT),
        (BOTH, DEAD, E.CALL_AGAIN, U.WAIT),
        (BOTH, OVER, E.CALL_AGAIN, U.VERIFY),
        (BOTH, FORGOTTEN, E.VERIFY, U.VERIFY),
        (NEITHER, ALIVE, E.WAIT, U.WAIT),
        (NEITHER, OVER, E.UNDECIDED, U.UNDECIDED),
    ],
)
def test_a_step_in_doubt_is_resolved_by_its_providers_capabilities(
    kind: str, now_ms: int, step: Entry, undo: UndoEntry
) -> None:
    about: Any = {"mine": holder(now_ms), "now_ms": now_ms, "provider": provider_of(kind)}

    assert (entry_of(row_of(S.INTENT), **about), undo_entry_of(row_of(S.INTENT), **about)) == (step, undo)


@pytest.mark.parametrize(
    ("kind", "now_ms", "undo"),
    [
        (ASK, ALIVE, U.WAIT),
        (ASK, DEAD, U.VERIFY_UNDO),
        (WINDOW, ALIVE, U.WAIT),
        (WINDOW, DEAD, U.UNDO_AGAIN),
        (WINDOW, LAST, U.UNDO_AGAIN),
        (WINDOW, FORGOTTEN, U.UNDECIDED),
        (BOTH, DEAD, U.UNDO_AGAIN),
        (BOTH, FORGOTTEN, U.VERIFY_UNDO),
        (NEITHER, ALIVE, U.WAIT),
        (NEITHER, DEAD, U.UNDECIDED),
    ],
)
def test_a_compensation_in_doubt_is_resolved_by_the_same_capabilities(kind: str, now_ms: int, undo: UndoEntry) -> None:
    row = row_of(S.COMPENSATING, output="{}")

    assert undo_entry_of(row, mine=holder(now_ms), now_ms=now_ms, provider=provider_of(kind)) is undo


@pytest.mark.parametrize(("now_ms", "over"), [(DEAD, False), (OVER - 1, False), (OVER, True)])
def test_a_no_counts_once_no_request_can_be_on_its_way(now_ms: int, over: bool) -> None:
    assert is_over(row_of(S.INTENT), now_ms, provider_of(ASK)) is over


# The writes, each against a row in each state


class Log:
    """One row in memory."""

    def __init__(self) -> None:
        self.db = MemoryDynamoDB()

    @property
    def row(self) -> LogRow | None:
        """The row."""
        item = self.db.item("log", SAGA_ID, "Charge")
        return None if item is None else LogRow.from_item(item)

    def write(self, entry: Any) -> bool:
        """True if the condition was met."""
        before = self.db.items("log")
        if "Put" in entry:
            arguments, send = entry["Put"], self.db.put_item
        else:
            arguments, send = entry["Update"], self.db.update_item
        try:
            send(**arguments)
        except Exception:  # noqa: BLE001  # the condition was not met: the only error of the memory
            assert self.db.items("log") == before
            return False
        return True


FIRST, SECOND = holder(NOW_MS, "first"), holder(NOW_MS + 20_000, "second")
INTENT = row_of(S.INTENT, output=None)


def log_at(status: StepStatus | None) -> Log:
    """A log whose row is in this state, held by ``FIRST``."""
    log = Log()
    path: dict[StepStatus | None, list[Any]] = {
        None: [],
        S.INTENT: [FIRST.intent(NOW_MS)],
        S.DONE: [FIRST.intent(NOW_MS), FIRST.done("{}", NOW_MS)],
        S.REFUSED: [FIRST.intent(NOW_MS), FIRST.failed("Declined", "no credit", NOW_MS)],
        S.TOMBSTONE: [FIRST.bury(NOW_MS)],
        S.COMPENSATING: [FIRST.intent(NOW_MS), FIRST.done("{}", NOW_MS), FIRST.undoing(NOW_MS)],
        S.COMPENSATED: [FIRST.intent(NOW_MS), FIRST.done("{}", NOW_MS), FIRST.undoing(NOW_MS), FIRST.undone(NOW_MS)],
    }
    for entry in path[status]:
        assert log.write(entry)
    return log


STATES = [None, S.INTENT, S.DONE, S.REFUSED, S.TOMBSTONE, S.COMPENSATING, S.COMPENSATED]
HELD = dataclasses.replace(INTENT, attempt="first")
COMPENSATING = dataclasses.replace(HELD, status=S.COMPENSATING)
WRITES: dict[str, tuple[Any, StepStatus | None, StepStatus]] = {
    "intent": (SECOND.intent(NOW_MS), None, S.INTENT),
    "bury": (SECOND.bury(NOW_MS), None, S.TOMBSTONE),
    "done by its holder": (FIRST.done("{}", NOW_MS), S.INTENT, S.DONE),
    "done by who asked about its holder": (SECOND.done("{}", NOW_MS, held="first"), S.INTENT, S.DONE),
    "failed by its holder": (FIRST.failed("Declined", "no", NOW_MS), S.INTENT, S.REFUSED),
    "not applied": (SECOND.not_applied(HELD, NOW_MS), S.INTENT, S.TOMBSTONE),
    "step taken over": (SECOND.take_over(HELD, NOW_MS), S.INTENT, S.INTENT),
    "undoing": (SECOND.undoing(NOW_MS), S.DONE, S.COMPENSATING),
    "undo taken over": (SECOND.take_over(COMPENSATING, NOW_MS), S.COMPENSATING, S.COMPENSATING),
    "undone by anybody": (SECOND.undone(NOW_MS), S.COMPENSATING, S.COMPENSATED),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", WRITES)
def test_a_write_succeeds_from_one_state_only_and_leads_to_one(name: str, state: StepStatus | None) -> None:
    entry, wanted, leads_to = WRITES[name]
    log = log_at(state)

    assert log.write(entry) is (state is wanted)

    if state is wanted:
        assert log.row is not None
        assert log.row.status is leads_to


@pytest.mark.parametrize(
    "entry",
    [
        SECOND.done("{}", NOW_MS),
        SECOND.failed("Declined", "no", NOW_MS),
        SECOND.not_applied(INTENT, NOW_MS),
        SECOND.take_over(INTENT, NOW_MS),
    ],
    ids=["done", "failed", "not applied", "taken over"],
)
def test_a_step_that_another_attempt_holds_is_left_to_it(entry: Any) -> None:
    log = log_at(S.INTENT)

    assert not log.write(entry)


def test_deadlines_only_grow() -> None:
    log = log_at(S.INTENT)
    slow = dataclasses.replace(SECOND, deadline=FIRST.deadline)

    assert not log.write(slow.take_over(HELD, NOW_MS))


def test_a_takeover_keeps_the_time_of_the_first_call() -> None:
    log = log_at(S.INTENT)
    log.write(SECOND.take_over(HELD, NOW_MS + 20_000))

    assert log.row is not None
    assert (log.row.first_attempt_at, log.row.attempt, log.row.deadline) == (NOW_MS, "second", SECOND.deadline)


def test_a_compensation_keeps_the_output_and_counts_its_own_time() -> None:
    log = log_at(S.DONE)
    log.write(SECOND.undoing(NOW_MS + 7))

    assert log.row is not None
    assert (log.row.output, log.row.first_attempt_at) == ("{}", NOW_MS + 7)


def test_a_refusals_message_is_kept_up_to_a_length() -> None:
    log = log_at(S.INTENT)
    log.write(FIRST.failed("Declined", "x" * 5_000, NOW_MS))

    assert log.row is not None
    assert (log.row.error, len(log.row.detail)) == ("Declined", MAX_DETAIL)


@pytest.mark.parametrize("missing", [LogAttribute.ATTEMPT_ID, LogAttribute.DEADLINE, LogAttribute.FIRST_ATTEMPT_AT])
def test_a_row_in_doubt_without_a_deadline_is_invalid(missing: LogAttribute) -> None:
    item = log_at(S.INTENT).db.items("log")[0]

    with pytest.raises(ValueError, match="INTENT needs"):
        LogRow.from_item({name: value for name, value in item.items() if name != missing})
