"""Each audit passes what is right, and names what is wrong."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import pytest

from constructs_lib.testing.invariants import (
    Invariant,
    InvariantBrokenError,
    assert_all_hold,
    audit_effects,
    audit_ledger,
    audit_sagas,
    together,
)
from saga_runtime import Account, LedgerBuilder, Money
from saga_runtime.idempotency.identity import saga_id_of, step_key_of
from saga_runtime.protocol import LedgerAttribute, LogAttribute, RecordAttribute, RecordStatus, Side, StepStatus

REQUEST: Final = "a" * 26
SAGA: Final = saga_id_of(REQUEST, 1, "requests")
LATER: Final = saga_id_of(REQUEST, 2, "requests")
STEPS: Final = ("Transfer", "Debit")

Items = list[dict[str, Any]]


def _ledger(entry_id: str | None = None) -> Items:
    """Two open accounts and one transfer between them, as the ledger's own builder writes them."""
    builder = LedgerBuilder(table="ledger")
    writes = [
        *builder.open_account(account_id="ada", opening=Money(1000, "EUR"), now_ms=1),
        *builder.open_account(account_id="alan", opening=Money(1000, "EUR"), now_ms=1),
    ]
    ada, alan = (Account(account_id=name, balance=Money(1000, "EUR"), sequence=1) for name in ("ada", "alan"))
    writes += builder.transfer(
        source=ada, target=alan, amount=Money(300, "EUR"), entry_id=entry_id or step_key_of(SAGA, "Transfer"), now_ms=2
    )
    items: Items = []
    a = LedgerAttribute
    for write in writes:
        if "Put" in write.action:
            items.append(copy.deepcopy(write.action["Put"]["Item"]))
            continue
        update = write.action["Update"]
        (account,) = (i for i in items if {a.PK: i[a.PK], a.SK: i[a.SK]} == update["Key"])
        account[a.BALANCE] = update["ExpressionAttributeValues"][":balance"]
        account[a.SEQUENCE] = update["ExpressionAttributeValues"][":sequence"]
    return items


def _broken(audit: list[Invariant]) -> set[str]:
    return {invariant.name for invariant in audit if not invariant.holds}


def _record(status: RecordStatus, saga_id: str = SAGA) -> dict[str, Any]:
    a = RecordAttribute
    return {a.ID: {"S": REQUEST}, a.SAGA_ID: {"S": saga_id}, a.STATUS: {"S": status}}


def _row(status: StepStatus, step: str = "Transfer", saga_id: str = SAGA, side: Side = Side.BEFORE) -> dict[str, Any]:
    a = LogAttribute
    key: dict[str, Any] = {a.SAGA_ID: {"S": saga_id}, a.STEP: {"S": step}}
    return {**key, a.STATUS: {"S": status}, a.SIDE: {"S": side}}


def _lose_an_entry(items: Items) -> None:
    items.remove(next(item for item in items if LedgerAttribute.BALANCE_AFTER in item and "Transfer" in str(item)))


def _lose_both_entries(items: Items) -> None:
    items[:] = [item for item in items if "Transfer" not in str(item)]


def _add_to_a_balance(items: Items) -> None:
    items[0][LedgerAttribute.BALANCE] = {"N": "701"}


def _lose_an_account(items: Items) -> None:
    del items[0]


def _skip_a_number(items: Items) -> None:
    items[0][LedgerAttribute.SEQUENCE] = {"N": "3"}


def _forge_a_balance_after(items: Items) -> None:
    entry = next(item for item in items if LedgerAttribute.BALANCE_AFTER in item)
    entry[LedgerAttribute.BALANCE_AFTER] = {"N": "999"}


class TestTheLedger:
    def test_passes_when_it_is_right(self) -> None:
        audit = audit_ledger(_ledger())

        assert _broken(audit) == set()
        assert all(invariant.checked for invariant in audit)

    @pytest.mark.parametrize(
        ("damage", "broken"),
        [
            (
                _lose_an_entry,
                {
                    "all entries sum to zero",
                    "each posting nets to zero",
                    "balances equal their entries",
                    "entries form unbroken chains",
                },
            ),
            (_lose_both_entries, {"balances equal their entries", "entries form unbroken chains"}),
            (_add_to_a_balance, {"balances equal their entries"}),
            (_lose_an_account, {"balances equal their entries"}),
            (_skip_a_number, {"entries form unbroken chains"}),
            (_forge_a_balance_after, {"entries form unbroken chains"}),
        ],
    )
    def test_names_the_violation(self, damage: Callable[[Items], None], broken: set[str]) -> None:
        items = _ledger()
        damage(items)

        assert _broken(audit_ledger(items)) == broken

    def test_may_not_be_overdrawn(self) -> None:
        items = _ledger()
        account = LedgerAttribute.BALANCE
        items[0][account] = {"N": "-5"}

        violations = next(i for i in audit_ledger(items) if i.name == "balances equal their entries").violations

        assert violations[-1] == "account#ada has a balance of -5"


class TestSagas:
    @pytest.mark.parametrize(
        ("status", "rows"),
        [
            (RecordStatus.COMPLETED, [StepStatus.DONE]),
            (RecordStatus.COMPLETED, [StepStatus.DONE, StepStatus.TOMBSTONE]),
            (RecordStatus.FAILED, []),
            (RecordStatus.FAILED, [StepStatus.TOMBSTONE, StepStatus.COMPENSATED, StepStatus.REFUSED]),
        ],
    )
    def test_pass_when_record_and_log_agree(self, status: RecordStatus, rows: list[StepStatus]) -> None:
        log = [_row(row, f"Step{number}") for number, row in enumerate(rows)]

        assert _broken(audit_sagas([_record(status)], log)) == set()

    @pytest.mark.parametrize(
        ("status", "rows"),
        [
            (RecordStatus.COMPLETED, []),
            (RecordStatus.COMPLETED, [StepStatus.TOMBSTONE]),
            (RecordStatus.COMPLETED, [StepStatus.DONE, StepStatus.COMPENSATED]),
            (RecordStatus.FAILED, [StepStatus.DONE]),
            (RecordStatus.FAILED, [StepStatus.COMPENSATED, StepStatus.DONE]),
        ],
    )
    def test_are_reported_when_record_and_log_disagree(self, status: RecordStatus, rows: list[StepStatus]) -> None:
        log = [_row(row, f"Step{number}") for number, row in enumerate(rows)]

        assert _broken(audit_sagas([_record(status)], log)) == {"records and log agree"}

    def test_may_not_be_left_in_progress(self) -> None:
        assert _broken(audit_sagas([_record(RecordStatus.IN_PROGRESS)], [])) == {"no request is left in progress"}

    @pytest.mark.parametrize("kept", [{LogAttribute.SUBSTITUTE: {"S": "{}"}}, {LogAttribute.ERROR: {"S": "SoldOut"}}])
    def test_are_consistent_with_a_skipped_step_that_was_compensated_since(self, kept: dict[str, Any]) -> None:
        def passed_over(status: StepStatus) -> dict[str, Any]:
            return {**_row(status, "Gift"), **kept}

        done, completed = _row(StepStatus.DONE), [_record(RecordStatus.COMPLETED)]

        assert _broken(audit_sagas(completed, [done, passed_over(StepStatus.COMPENSATED)])) == set()
        late = audit_sagas(completed, [done, passed_over(StepStatus.APPLIED_LATE)])
        assert _broken(late) == {"records and log agree"}

    def test_are_consistent_with_the_refusal_of_a_skipped_step(self) -> None:
        done, completed = _row(StepStatus.DONE, side=Side.PIVOT), [_record(RecordStatus.COMPLETED)]

        assert _broken(audit_sagas(completed, [done, _row(StepStatus.REFUSED, "Gift")])) == set()
        pivot = _row(StepStatus.REFUSED, "Other", side=Side.PIVOT)
        assert _broken(audit_sagas(completed, [done, pivot])) == {"records and log agree"}

    def test_may_not_leave_a_late_effect(self) -> None:
        late = audit_sagas([_record(RecordStatus.FAILED)], [_row(StepStatus.APPLIED_LATE)])

        assert _broken(late) == {"records and log agree"}

    def test_may_not_lose_their_record(self) -> None:
        assert _broken(audit_sagas([], [_row(StepStatus.DONE)])) == {"every logged saga has a record"}


class TestEffects:
    def test_pass_when_log_and_ledger_agree(self) -> None:
        audit = audit_effects([_row(StepStatus.DONE), _row(StepStatus.DONE, "Receipt")], _ledger(), steps=STEPS)

        assert _broken(audit) == set()

    def test_are_missed_where_the_log_has_them(self) -> None:
        rows = [_row(StepStatus.DONE), _row(StepStatus.DONE, "Debit")]

        assert _broken(audit_effects(rows, _ledger(), steps=STEPS)) == {"log and ledger agree"}

    @pytest.mark.parametrize("rows", [[], [_row(StepStatus.TOMBSTONE)]])
    def test_are_reported_where_the_log_does_not_have_them(self, rows: Items) -> None:
        assert _broken(audit_effects(rows, _ledger(), steps=STEPS)) == {"log and ledger agree"}

    def test_of_a_compensated_step_are_next_to_those_of_its_compensation(self) -> None:
        rows = [_row(StepStatus.COMPENSATED)]
        undone = _ledger() + _ledger(step_key_of(SAGA, "Transfer", undo=True))

        assert _broken(audit_effects(rows, undone, steps=STEPS)) == set()
        assert _broken(audit_effects(rows, _ledger(), steps=STEPS)) == {"log and ledger agree"}

    def test_of_two_sagas_of_one_request_are_reported(self) -> None:
        rows = [_row(StepStatus.DONE), _row(StepStatus.DONE, saga_id=LATER)]
        twice = _ledger() + _ledger(step_key_of(LATER, "Transfer"))

        assert _broken(audit_effects(rows, twice, steps=STEPS)) == {"one saga per request took effect"}


class TestAllTogether:
    def test_invariants_of_one_name_are_added_up(self) -> None:
        first = Invariant(name="a", checked=2, violations=("x",))
        second = Invariant(name="a", checked=3, violations=("y",))

        assert together([first], [second]) == [Invariant(name="a", checked=5, violations=("x", "y"))]

    def test_a_broken_one_raises_an_error_with_its_violations(self) -> None:
        with pytest.raises(InvariantBrokenError, match="1 invariants are broken:\n  a: x"):
            assert_all_hold([Invariant(name="a", checked=1, violations=("x",)), Invariant(name="b", checked=1)])

    def test_unbroken_ones_raise_no_error(self) -> None:
        assert_all_hold([Invariant(name="a", checked=1)])
