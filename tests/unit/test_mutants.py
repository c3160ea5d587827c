"""Each important condition, removed: the history that needs it must then end badly.

A test that cannot fail is worse than none. Every history passes as it is; without its condition its assertions fail.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest

from saga_runtime import LedgerBuilder
from saga_runtime.idempotency import record
from saga_runtime.ledger import writes as ledger_writes
from saga_runtime.recovery import takeover as recovery
from saga_runtime.saga_log import rows as saga_log
from tests.unit.support import scenarios
from tests.unit.support.mutation import Mutant, Scenario, mutate


def _condition(name: str, owner: Any, target: str, kills: Scenario, *, drop: str | None = None) -> Mutant:
    """A condition expression without a part of it, or that always holds."""
    text = getattr(owner, target)
    key = text.partition("(#")[2].partition(")")[0] if "(#" in text else "status"
    always = f"attribute_exists(#{key}) OR attribute_not_exists(#{key})"
    return Mutant(name=name, owner=owner, target=target, old=drop or text, new="" if drop else always, kills=kills)


def _code(name: str, owner: Any, target: str, kills: Scenario, *, old: str, new: str) -> Mutant:
    """A function with a part of its source changed."""
    return Mutant(name=name, owner=owner, target=target, old=old, new=new, kills=kills)


s = scenarios
MUTANTS = [
    _condition("reserve without its condition", record, "RESERVE", s.a_duplicate_reserves_nothing),
    _condition(
        "reserve though the retention is not over",
        record,
        "RESERVE",
        s.a_settled_key_is_taken_until_its_retention_is_over,
        drop=" AND #expiration <= :now_seconds",
    ),
    _condition(
        "settle, whoever owns the record",
        record,
        "OWNED",
        s.a_late_settle_of_an_old_saga_leaves_a_new_one_alone,
        drop=" AND #owner = :owner",
    ),
    _condition(
        "settle, whatever the status",
        record,
        "OWNED",
        s.a_settled_record_is_not_settled_again,
        drop=" AND #status = :in_progress",
    ),
    _condition("settle without a condition", record, "OWNED", s.a_late_settle_creates_nothing),
    _condition(
        "take over, whatever the status",
        recovery,
        "OWNED",
        s.a_saga_that_settled_in_between_is_not_taken_over,
        drop=" AND #status = :in_progress",
    ),
    _condition(
        "take over, whoever owns the record",
        recovery,
        "OWNED",
        s.a_stale_look_takes_nothing_over,
        drop=" AND #owner = :owner",
    ),
    _code(
        "take over though parked",
        recovery,
        "take_over_update",
        s.a_saga_that_was_parked_in_between_is_not_taken_over,
        old=" AND attribute_not_exists(#parked)",
        new="",
    ),
    _code(
        "recover though parked",
        recovery,
        "what_to_do",
        s.a_parked_saga_is_not_recovered,
        old="record.parked is not None",
        new="False",
    ),
    _code(
        "answer without looking at the fingerprint",
        record,
        "final_met",
        s.another_body_gets_no_answer_to_this_one,
        old="record.fingerprint != fingerprint",
        new="False",
    ),
    _code(
        "take one's own reservation for a duplicate",
        record,
        "what_was_met",
        s.a_lost_answer_to_ones_own_reservation_leads_to_the_start,
        old="record.execution_arn == reservation.execution_arn",
        new="False",
    ),
    _code(
        "restart before it is due",
        record,
        "_may_start",
        s.a_start_under_way_is_left_alone,
        old=" and due and ",
        new=" and ",
    ),
    _code(
        "restart on another state machine",
        record,
        "_may_start",
        s.a_saga_of_another_machine_is_left_alone,
        old="return same_machine and ",
        new="return ",
    ),
    _code(
        "restart what is parked",
        record,
        "_may_start",
        s.a_parked_saga_is_left_alone,
        old=" and record.parked is None",
        new="",
    ),
    _code(
        "restart what was taken over",
        record,
        "_may_start",
        s.a_saga_that_was_taken_over_is_left_alone,
        old=" and record.owner == record.saga_id",
        new="",
    ),
    _code(
        "restart by a name that is free again",
        record,
        "_may_start",
        s.a_name_that_is_free_again_is_not_started_again,
        old=" and name_is_taken",
        new="",
    ),
    _code(
        "let a record in progress expire",
        record,
        "reserve_put",
        s.a_record_in_progress_never_counts_as_expired,
        old='a.CREATED_AT.value: {"N": now},',
        new='a.CREATED_AT.value: {"N": now}, a.EXPIRATION.value: {"N": now[:-3]},',
    ),
    _condition("do without the row's condition", saga_log, "NO_ROW", s.a_step_takes_effect_once),
    _condition("do over a tombstone", saga_log, "NO_ROW", s.a_zombie_finds_the_tombstone),
    _condition("bury an effect", saga_log, "NO_ROW", s.a_tombstone_does_not_bury_an_effect),
    _condition("undo without the row's condition", saga_log, "STILL_DONE", s.a_step_is_undone_once),
    _code(
        "write no tombstone",
        saga_log,
        "undo_entry_of",
        s.a_zombie_finds_the_tombstone,
        old="return UndoEntry.BURY",
        new="return UndoEntry.NOTHING",
    ),
    _code(
        "replay a tombstone",
        saga_log,
        "entry_of",
        s.a_fenced_step_claims_nothing,
        old="row.answer is not None",
        new="True",
    ),
    _code(
        "undo nothing",
        saga_log,
        "undo_entry_of",
        s.a_failed_saga_leaves_nothing_standing,
        old="UndoEntry.UNDO if",
        new="UndoEntry.NOTHING if",
    ),
    _code(
        "post on a stale read",
        ledger_writes,
        "_AS_READ",
        s.two_transfers_from_one_read_do_not_both_happen,
        old="#sequence = :read AND #balance = :before AND ",
        new="",
    ),
    _code(
        "post on a balance alone",
        ledger_writes,
        "_AS_READ",
        s.a_posting_notices_an_account_that_came_back_to_its_balance,
        old="#sequence = :read AND ",
        new="",
    ),
    _code(
        "post to a closed account",
        ledger_writes,
        "_AS_READ",
        s.a_closed_account_takes_no_posting,
        old=" AND #state = :open",
        new="",
    ),
    _code(
        "close what was paid in between",
        LedgerBuilder,
        "close_account",
        s.an_account_that_was_paid_in_between_is_not_closed,
        old="#sequence = :read AND #balance = :zero",
        new="attribute_exists(#state)",
    ),
    _code(
        "write an entry twice",
        ledger_writes,
        "put_new",
        s.an_entry_is_never_written_twice,
        old="attribute_not_exists(#pk)",
        new="attribute_not_exists(#pk) OR attribute_exists(#pk)",
    ),
    _code(
        "open an account over another",
        ledger_writes,
        "put_new",
        s.an_account_is_never_opened_over_another,
        old="attribute_not_exists(#pk)",
        new="attribute_not_exists(#pk) OR attribute_exists(#pk)",
    ),
    _code(
        "overdraw",
        ledger_writes,
        "check_allows",
        s.an_account_is_never_overdrawn,
        old="if net < 0 and after < account.held - released:",
        new="if False:",
    ),
]
SCENARIOS = {
    name: found
    for name, found in vars(scenarios).items()
    if isinstance(found, FunctionType)
    and found.__module__ == scenarios.__name__
    and name.startswith(("a_", "an_", "another_", "two_"))
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_history_ends_well(name: str) -> None:
    SCENARIOS[name]()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, mutant)

    with pytest.raises(AssertionError):
        mutant.kills()
