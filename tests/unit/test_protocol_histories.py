"""Short histories, each of which needs one condition of the protocol."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from saga_runtime import Account, AccountState, InsufficientFunds, LedgerBuilder, Money
from saga_runtime.idempotency import record as records
from saga_runtime.idempotency.record import Met, RequestRecord
from saga_runtime.protocol import RecordStatus
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.memory_dynamodb import MemoryDynamoDB
from tests.unit.support.request_model import Phase, RequestModel, Settle
from tests.unit.support.samples import DAY_MS, DUE_AFTER_MS, REQUEST_ID, reservation_of
from tests.unit.support.settling import park, with_used_placeholders
from tests.unit.support.step_model import StepModel

A, B = '{"amount":1}', '{"amount":2}'


def reserved() -> tuple[RequestModel, str]:
    """A saga that was reserved and started; its id."""
    model = RequestModel()
    model.request(A)
    start = model.starts.pop()
    model.deliver_start(start)
    return model, start.name


def settled() -> tuple[RequestModel, str]:
    """A saga that settled COMPLETED."""
    model, saga_id = reserved()
    model.finish(saga_id)
    model.check()
    return model, saga_id


# The request record


def test_a_duplicate_reserves_nothing() -> None:
    """While a saga is in progress, its key is taken."""
    model, saga_id = reserved()
    model.request(A)
    assert model.record is not None
    assert model.record.saga_id == saga_id


def test_a_settled_key_is_taken_until_its_retention_is_over() -> None:
    """A settled request is answered from its record."""
    model, saga_id = settled()
    model.wait(DAY_MS)
    assert model.request(A) is Met.SETTLED
    assert list(model.bodies) == [saga_id]


def test_another_body_never_gets_this_ones_response() -> None:
    """The same key with another body is refused, running or settled."""
    model, _ = reserved()
    assert model.request(B) is Met.OTHER_BODY
    model, _ = settled()
    assert model.request(B) is Met.OTHER_BODY


def test_a_lost_response_to_ones_own_reservation_leads_to_the_start() -> None:
    """A gatekeeper that finds its own reservation starts the saga."""
    model = RequestModel()
    assert model.request(A, answer_lost=True) is Met.OWN
    assert len(model.starts) == 1


def test_a_start_in_progress_is_left_alone() -> None:
    """Before ``due_at`` another gatekeeper may be starting it."""
    model, _ = reserved()
    assert model.request(A) is Met.RUNNING


def test_a_saga_of_another_machine_is_left_alone() -> None:
    """Its name is free on the machine that replaced its own, and its log is another one."""
    model, _ = reserved()
    model.replace_machine()
    model.now_ms += DUE_AFTER_MS
    model.request(A)
    for start in model.starts:
        model.deliver_start(start)
    model.check()


def test_a_parked_saga_is_left_alone() -> None:
    """An operator decides, not a duplicate."""
    model, saga_id = reserved()
    assert model._update(park(request_id=REQUEST_ID, execution=saga_id, now_ms=model.now_ms))
    model.now_ms += DUE_AFTER_MS
    assert model.request(A) is Met.RUNNING


def test_a_saga_that_was_taken_over_is_left_alone() -> None:
    """The first execution is history once a recovery owns the saga."""
    model, saga_id = reserved()
    model.end(saga_id, ExecutionStatus.FAILED)
    model.look()
    model.act(model.looks.pop())
    model.now_ms += DUE_AFTER_MS
    assert model.request(A) is Met.RUNNING


def test_a_name_that_is_free_again_is_not_started_again() -> None:
    """After 90 days the name of the first execution is free: the saga would run a second time."""
    model, saga_id = reserved()
    model.end(saga_id, ExecutionStatus.FAILED)
    model.wait(91 * DAY_MS)
    model.request(A)
    for start in model.starts:
        model.deliver_start(start)
    model.check()


def test_a_key_is_free_when_its_retention_is_over() -> None:
    """The request starts another saga."""
    model, saga_id = settled()
    model.wait(401 * DAY_MS)
    model.request(A)
    assert model.record is not None
    assert model.record.saga_id != saga_id


def test_a_late_settle_of_an_old_saga_leaves_a_new_one_alone() -> None:
    """A key was reserved a second time; the settle of the old saga is still in flight."""
    model, saga_id = settled()
    model.now_ms += 400 * DAY_MS
    model.request(A)
    model.deliver_settle(Settle(saga_id, RecordStatus.COMPLETED))
    model.check()


def test_a_late_settle_creates_nothing() -> None:
    """TTL deleted the record; a settle that still travels finds nothing to update."""
    model, saga_id = settled()
    model.now_ms += 401 * DAY_MS
    model.expire()
    assert not model.deliver_settle(Settle(saga_id, RecordStatus.COMPLETED))
    assert model.record is None


def test_a_settled_record_is_not_settled_again() -> None:
    """A second settle changes neither the verdict nor the retention."""
    model, saga_id = settled()
    before = model.record
    model.now_ms += DAY_MS
    model.deliver_settle(Settle(saga_id, RecordStatus.FAILED))
    assert model.record == before


def test_a_saga_that_settled_in_between_is_not_taken_over() -> None:
    """The reconciler read a dead owner, whose settle then arrived."""
    model, saga_id = reserved()
    model.step(saga_id)
    model.send_settle(saga_id)
    model.end(saga_id, ExecutionStatus.FAILED)
    model.look()
    model.deliver_settle(model.settles.pop())
    model.act(model.looks.pop())
    model.check()


def test_a_saga_that_was_parked_in_between_is_not_taken_over() -> None:
    """The reconciler read a dead owner; then the saga was parked."""
    model, saga_id = reserved()
    model.end(saga_id, ExecutionStatus.FAILED)
    model.look()
    assert model._update(park(request_id=REQUEST_ID, execution=saga_id, now_ms=model.now_ms))
    model.act(model.looks.pop())
    assert model.record is not None
    assert model.record.owner == saga_id


def test_a_stale_look_takes_nothing_over() -> None:
    """Two saw the same dead owner; the slower one comes when the first recovery is dead, and a second one runs."""
    model, saga_id = reserved()
    model.end(saga_id, ExecutionStatus.FAILED)
    model.look()
    stale = model.looks[0]
    model.act(stale)
    model.deliver_start(model.starts.pop())
    model.end(f"{saga_id}-r1", ExecutionStatus.FAILED)
    model.look()
    model.act(model.looks.pop())
    model.act(stale)
    assert model.record is not None
    assert model.record.owner == f"{saga_id}-r2"


def test_a_parked_saga_is_not_recovered() -> None:
    """The reconciler leaves a parked saga as it is."""
    model, saga_id = reserved()
    model.end(saga_id, ExecutionStatus.FAILED)
    assert model._update(park(request_id=REQUEST_ID, execution=saga_id, now_ms=model.now_ms))
    model.look()
    assert model.looks[0].finding == "PARKED"


def test_a_record_in_progress_is_never_expired() -> None:
    """However old it is."""
    model, saga_id = reserved()
    model.wait(400 * DAY_MS)
    model.expire()
    assert model.request(A) is not None
    assert list(model.bodies) == [saga_id]
    assert model.record is not None
    assert model.record.expiration is None


# The saga log


def test_a_step_is_applied_once() -> None:
    """Two attempts, one effect."""
    model = StepModel()
    for _ in range(2):
        model.arrive(model.send_do(), heard=True)
    model.check()


def test_a_late_attempt_finds_the_tombstone() -> None:
    """A late attempt of a step that was compensated before it ran."""
    model = StepModel()
    zombie = model.send_do()
    sent = model.send_undo()
    assert sent is not None
    model.arrive(sent, heard=True)
    model.arrive(zombie, heard=False)
    model.check()


def test_a_tombstone_does_not_replace_an_effect() -> None:
    """The step commits between the compensation's read and its tombstone."""
    model = StepModel()
    sent = model.send_undo()
    assert sent is not None
    model.arrive(model.send_do(), heard=True)
    model.arrive(sent, heard=True)
    model.check()


def test_a_step_is_compensated_once() -> None:
    """Two compensations saw the effect."""
    model = StepModel()
    model.arrive(model.send_do(), heard=True)
    first, second = model.send_undo(), model.send_undo()
    assert first is not None
    assert second is not None
    model.arrive(first, heard=True)
    model.arrive(second, heard=False)
    model.check()


def test_a_fenced_step_claims_nothing() -> None:
    """An execution whose step meets a tombstone must not settle COMPLETED."""
    model, saga_id = reserved()
    model.phases[saga_id] = Phase.COMPENSATE
    model.step(saga_id)
    model.phases[saga_id] = Phase.FORWARD
    model.finish(saga_id)
    model.check()


def test_a_failed_saga_leaves_no_effect() -> None:
    """A step was done and the saga gives up: it is undone, or the saga goes forward."""
    model, saga_id = reserved()
    model.step(saga_id)
    model.phases[saga_id] = Phase.COMPENSATE
    model.step(saga_id)
    model.step(saga_id)
    model.finish(saga_id)
    model.check()


# The ledger


def opened(**balances: int) -> MemoryDynamoDB:
    """A ledger with accounts in euros."""
    db = MemoryDynamoDB()
    for account_id, balance in balances.items():
        builder = LedgerBuilder(table="ledger")
        post(db, builder.open_account(account_id=account_id, opening=Money(balance, "EUR"), now_ms=1))
    return db


def account(db: MemoryDynamoDB, account_id: str) -> Account:
    """An account, as it is now."""
    item = db.item("ledger", f"account#{account_id}", "account")
    assert item is not None
    return Account.from_item(account_id, item)


def post(db: MemoryDynamoDB, writes: Any) -> bool:
    """Commit writes; whether their conditions were met."""
    entries = [{kind: with_used_placeholders(dict(of)) for kind, of in write.action.items()} for write in writes]
    try:
        db.transact_write_items(TransactItems=entries)
    except ClientError:
        return False
    return True


def move(source: Account, target: Account, minor_units: int, entry_id: str) -> Any:
    """The writes of a transfer."""
    return LedgerBuilder(table="ledger").transfer(
        source=source, target=target, amount=Money(minor_units, "EUR"), entry_id=entry_id, now_ms=2
    )


def audit(db: MemoryDynamoDB) -> None:
    """Entries lead each account without a gap to its balance, and all of them net to zero."""
    items = db.items("ledger")
    entries = [item for item in items if item["kind"]["S"] == "entry"]
    assert sum(int(entry["amount"]["N"]) for entry in entries) == 0, "money came from nowhere"
    for item in items:
        if item["kind"]["S"] == "account":
            own = sorted(
                (int(entry["sequence"]["N"]), int(entry["amount"]["N"]), int(entry["balance_after"]["N"]))
                for entry in entries
                if entry["pk"] == item["pk"]
            )
            assert [sequence for sequence, _, _ in own] == list(range(1, int(item["sequence"]["N"]) + 1)), "a gap"
            assert sum(amount for _, amount, _ in own) == int(item["balance"]["N"]), "the balance has no history"


def test_two_transfers_from_one_read_are_not_both_applied() -> None:
    """Both saw the same balances."""
    db = opened(a=100, b=0, c=0)
    a, b, c = (account(db, name) for name in "abc")
    post(db, move(a, b, 60, "one"))
    post(db, move(a, c, 60, "two"))
    audit(db)


def test_a_posting_notices_an_account_that_came_back_to_its_balance() -> None:
    """The balance is as it was read, the account is not."""
    db = opened(a=100, b=100)
    a, b = account(db, "a"), account(db, "b")
    post(db, move(a, b, 10, "one"))
    post(db, move(account(db, "b"), account(db, "a"), 10, "two"))
    post(db, move(a, b, 10, "three"))
    audit(db)


def test_a_closed_account_takes_no_posting() -> None:
    """It was open when it was read."""
    db = opened(a=100, b=0)
    a, b = account(db, "a"), account(db, "b")
    post(db, LedgerBuilder(table="ledger").close_account(account=b))
    post(db, move(a, b, 10, "one"))
    assert account(db, "b").state is AccountState.CLOSED
    assert account(db, "b").balance.minor_units == 0


def test_an_account_that_was_paid_in_between_is_not_closed() -> None:
    """It was empty when it was read."""
    db = opened(a=100, b=0)
    close = LedgerBuilder(table="ledger").close_account(account=account(db, "b"))
    post(db, move(account(db, "a"), account(db, "b"), 10, "one"))
    post(db, close)
    assert account(db, "b").state is AccountState.OPEN


def test_an_entry_is_never_written_twice() -> None:
    """The same entry id, from fresh reads."""
    db = opened(a=100, b=0)
    for _ in range(2):
        post(db, move(account(db, "a"), account(db, "b"), 10, "one"))
    assert account(db, "b").balance.minor_units == 10
    audit(db)


def test_an_account_is_never_opened_over_another() -> None:
    """Its money would be forgotten."""
    db = opened(a=100)
    post(db, LedgerBuilder(table="ledger").open_account(account_id="a", opening=Money(0, "EUR"), now_ms=2))
    assert account(db, "a").balance.minor_units == 100


def test_an_account_is_never_overdrawn() -> None:
    """Refused before anything is written."""
    db = opened(a=100, b=0)
    try:
        post(db, move(account(db, "a"), account(db, "b"), 101, "one"))
    except InsufficientFunds:
        return
    raise AssertionError(f"overdrawn to {account(db, 'a').balance}")


def test_a_record_reads_back_as_it_was_reserved() -> None:
    """A duplicate is compared with what was stored."""
    model, saga_id = reserved()
    found = model.record
    assert found is not None
    reservation = reservation_of(body=A, now_ms=model.now_ms)
    assert (found.saga_id, found.input, found.owner) == (saga_id, reservation.start_input, saga_id)
    assert isinstance(found, RequestRecord)
    assert found.fingerprint == reservation.fingerprint
    assert records.what_was_met(found, reservation) is Met.OWN
