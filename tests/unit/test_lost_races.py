"""Each conditional write is refused when what it was decided from has changed before it arrives.

For each write: the item as it was read, the write, and each change of the item that must refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from constructs_lib.testing.simulator.errors import ServiceError
from saga_runtime import Account, CollectingAccounts, LedgerBuilder, Money
from saga_runtime.callbacks import decisions as callback_decisions
from saga_runtime.callbacks import writes as tokens
from saga_runtime.callbacks.rows import JobId, Outcome, TokenRow
from saga_runtime.callbacks.saga_writes import LogPlace, SagaRecord
from saga_runtime.idempotency.record import RequestRecord, reserve_put
from saga_runtime.ledger import collecting, holds
from saga_runtime.ledger.items import Hold, Shard
from saga_runtime.money import MAX_MINOR_UNITS
from saga_runtime.protocol import FailedStatus, Side, StepStatus, TokenStatus, WatchStatus
from saga_runtime.recovery import decisions as recovery
from saga_runtime.recovery import resolution, takeover
from saga_runtime.recovery.adoption import Target, adopt_update
from saga_runtime.recovery.audit import decision_update, list_as_read
from saga_runtime.recovery.cancel import cancel_update
from saga_runtime.recovery.lists import ListProposal, SeenSaga, list_key
from saga_runtime.recovery.repairs import make_due_update
from saga_runtime.saga_log.external_rows import Holder
from saga_runtime.saga_log.rows import LogRow, kept_update, undone_update
from saga_runtime.shared.decisions import Decision, decided, stored
from saga_runtime.watch import rows as watch
from tests.unit.support.checked_stack import create_watch_table
from tests.unit.support.operated_saga import AUDIT
from tests.unit.support.samples import MACHINE_ARN, NOW_MS, RECOVERY_MACHINE_ARN, SAGA_ID, reservation_of
from tests.unit.support.world import World

Item = dict[str, Any]
GONE: Mapping[str, Any] = {}
"""The item is not there any more."""


def s(text: str) -> dict[str, str]:
    return {"S": str(text)}


def n(number: int) -> dict[str, str]:
    return {"N": str(number)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """A write, and what refuses it.

    Attributes:
        table: its table.
        item: as it was read; None: there was none.
        write: makes the entry of a transaction.
        lost: by name, attributes of the item that changed; None: the attribute was removed. ``GONE``: the item was.
    """

    table: str
    item: Item | None
    write: Callable[[Item], Any]
    lost: Mapping[str, Mapping[str, Any]]


# Token rows

TOKEN: Item = {"id": s("job"), "status": s("WAITING"), "updated_at": n(1), "token": s("t"), "attempt_order": s("1")}
EARLY: Item = {
    "id": s("job"),
    "status": s("EARLY"),
    "updated_at": n(1),
    "outcome": s(Outcome(ok=True, output="{}").encode()),
}
LATE = {"applied_late_at": n(5)}
ENDS = {"expiration": n(5)}
KEPT_BY_ANOTHER: dict[str, Mapping[str, Any]] = {"kept by another": {"expiration": n(6)}}
OF_A_TOKEN: dict[str, Mapping[str, Any]] = {
    "another state": {"status": s("DELIVERED")},
    "another attempt": {"attempt_order": s("2")},
    "late effect": {"applied_late_at": n(7)},
    "gone": GONE,
}


def told(item: Item) -> Any:
    return tokens.told_update("tokens", TokenRow.from_item(item), TokenStatus.UNDELIVERED, NOW_MS)


def token_is_kept(item: Item) -> Any:
    return tokens.keep_update("tokens", TokenRow.from_item(item), NOW_MS)


def changed_and_kept(item: Item) -> Any:
    row = TokenRow.from_item(item)
    return tokens.token_update("tokens", row, row.status, NOW_MS, tokens.kept_change(row, NOW_MS, 1))


def token_is_checked(item: Item) -> Any:
    return tokens.token_check("tokens", "job", TokenRow.from_item(item))


LIST = stored([Decision(at_ms=1, who="w", what="w", why="w", parked_reason=None)])


def forgotten(item: Item) -> Any:
    return tokens.forgotten_update("tokens", TokenRow.from_item(item), LIST, NOW_MS)


def adopted(item: Item) -> Any:
    return tokens.adopted_update("tokens", TokenRow.from_item(item), "job", NOW_MS)


def of_tokens() -> dict[str, Race]:
    found = {}
    for write in (told, token_is_checked):
        for name, item in (("waiting", TOKEN), ("early", EARLY)):
            found[f"{write.__name__}, {name}"] = Race(table="tokens", item=item, write=write, lost=OF_A_TOKEN)
            lost = {**OF_A_TOKEN, "not late any more": {"applied_late_at": None}}
            found[f"{write.__name__}, {name}, late"] = Race(
                table="tokens", item={**item, **LATE}, write=write, lost=lost
            )
    for name, item in (("waiting", TOKEN), ("early", EARLY)):
        found[f"kept, {name}"] = Race(
            table="tokens", item={**item, **ENDS}, write=token_is_kept, lost={**KEPT_BY_ANOTHER, "gone": GONE}
        )
        lost = {**OF_A_TOKEN, **KEPT_BY_ANOTHER}
        found[f"changed and kept, {name}"] = Race(
            table="tokens", item={**item, **ENDS}, write=changed_and_kept, lost=lost
        )
        found[f"changed and kept, {name}, late"] = Race(
            table="tokens",
            item={**item, **ENDS, **LATE},
            write=changed_and_kept,
            lost={**lost, "not late any more": {"applied_late_at": None}},
        )
    said = s(Outcome(ok=False, error="E", detail="").encode())
    forgets: dict[str, tuple[Item, Mapping[str, Any]]] = {
        "forgotten": (EARLY, {"conflict": said, "decisions": LIST}),
        "forgotten, both": ({**EARLY, "conflict": said}, {"conflict": EARLY["outcome"], "decisions": LIST}),
        "forgotten again, both": (
            {**EARLY, "conflict": said, "decisions": LIST},
            {"conflict": EARLY["outcome"], "decisions": {"L": LIST["L"] * 2}},
        ),
        "forgotten again": ({**EARLY, "decisions": LIST}, {"conflict": said, "decisions": {"L": LIST["L"] * 2}}),
    }
    for name, (item, changes) in forgets.items():
        lost = {
            "its job is known": {"status": s("ALIAS")},
            "gone": GONE,
            **{f"another {attribute}": {attribute: value} for attribute, value in changes.items()},
        }
        found[name] = Race(table="tokens", item=item, write=forgotten, lost=lost)
    adopts: dict[str, tuple[Item, Any]] = {
        "adopted": (EARLY, said),
        "adopted, both": ({**EARLY, "conflict": said}, EARLY["outcome"]),
    }
    for name, (item, other) in adopts.items():
        lost = {"its job is known": {"status": s("ALIAS")}, "another outcome": {"conflict": other}, "gone": GONE}
        found[name] = Race(table="tokens", item=item, write=adopted, lost=lost)
    absent: Mapping[str, Mapping[str, Any]] = {"there": TOKEN}
    found["token is absent"] = Race(
        table="tokens", item=None, write=lambda _: tokens.token_check("tokens", "job", None), lost=absent
    )
    return found


# Records, as callbacks change them

RECORD: Item = {**reserve_put(reservation_of())["Item"], "due_at": n(NOW_MS + 1)}
PARKED: Item = {**RECORD, "parked_by": s(SAGA_ID)}
STUCK: Item = {**PARKED, "parked_reason": s('{"step":"Pick"}')}
SETTLED: Item = {
    **RECORD,
    "status": s("FAILED"),
    "expiration": n(NOW_MS // 1_000 + 60),
    "response_expires_at": n(NOW_MS // 1_000 + 60),
}
OF_A_RECORD: dict[str, Mapping[str, Any]] = {
    "another saga": {"saga_id": s("another")},
    "another status": {"status": s("COMPLETED")},
    "gone": GONE,
}


def record_of(item: Item) -> SagaRecord:
    found = SagaRecord.from_item(item)
    assert found is not None
    return found


def due(item: Item) -> Any:
    return record_of(item).due("requests", NOW_MS)


def kept(item: Item) -> Any:
    return record_of(item).kept("requests", NOW_MS)


def of_records() -> dict[str, Race]:
    parked: dict[str, Mapping[str, Any]] = {
        "parked by another": {"parked_by": s("another")},
        "resumed": {"parked_by": None},
    }
    return {
        "due": Race(table="requests", item=RECORD, write=due, lost={**OF_A_RECORD, "parked": {"parked_by": s("x")}}),
        "due, parked": Race(table="requests", item=PARKED, write=due, lost={**OF_A_RECORD, **parked}),
        "due, stuck": Race(
            table="requests",
            item=STUCK,
            write=due,
            lost={**OF_A_RECORD, **parked, "stuck elsewhere": {"parked_reason": s("{}")}},
        ),
        "kept": Race(
            table="requests",
            item=SETTLED,
            write=kept,
            lost={**OF_A_RECORD, "kept by another": {"response_expires_at": n(9)}, "response gone": {"input": None}},
        ),
    }


# Records, as the reconciler and operators change them

OWNED: dict[str, Mapping[str, Any]] = {
    "settled": {"status": s("COMPLETED")},
    "another owner": {"owner": s("another")},
    "gone": GONE,
}
MADE = decided(AUDIT, "resumed", NOW_MS)
IS_PARKED = {"parked": {"parked_by": s("x")}}


def update(table: str, arguments: Mapping[str, Any]) -> Any:
    return {"Update": {"TableName": table, **arguments}}


def of_recoveries() -> dict[str, Race]:
    def race(item: Item, build: Callable[[RequestRecord], Any], **lost: Mapping[str, Any]) -> Race:
        return Race(
            table="requests",
            item=item,
            write=lambda item: update("requests", build(RequestRecord.from_item(item))),
            lost={**OWNED, **{name.replace("_", " "): change for name, change in lost.items()}},
        )

    target = Target(forward=f"{MACHINE_ARN}New", recovery=f"{RECOVERY_MACHINE_ARN}New", log="log", log_days=400)
    machines: Any = {
        "another saga": {"saga_id": s("another")},
        "moved": {"execution_arn": s("another")},
        "recovered elsewhere": {"recovery_machine_arn": s("another")},
    }
    spent, succeeded = recovery.ParkedFor.RECOVERIES_EXHAUSTED, recovery.ParkedFor.OWNER_SUCCEEDED
    bare = {name: value for name, value in RECORD.items() if name not in ("due_at", "due_shard")}
    return {
        "take over": race(RECORD, lambda record: takeover.take_over_update(record, NOW_MS, 1), **IS_PARKED),
        "cancel": race(
            RECORD,
            lambda record: cancel_update(record, AUDIT, NOW_MS),
            directed={"direction": s("forward")},
            failed={"failure": s("{}")},
            **IS_PARKED,
        ),
        "look later": race(RECORD, lambda record: recovery.look_later_update(record, NOW_MS, 1), due={"due_at": n(1)}),
        "park": race(RECORD, lambda record: recovery.park_update(record, succeeded, NOW_MS), **IS_PARKED),
        "park, spent": race(
            RECORD,
            lambda record: recovery.park_update(record, spent, NOW_MS),
            answered={"late_outcome_at": n(1)},
            **IS_PARKED,
        ),
        "resume, of a list": race(
            {**PARKED, "parked_at": n(5)},
            lambda record: resolution.unpark_update(record, NOW_MS, 1, parked_at=5),
            resumed={"parked_by": None},
            parked_again={"parked_at": n(6)},
        ),
        "keep a decision": race(
            RECORD,
            lambda record: decision_update(AUDIT, "started", record, NOW_MS, list_as_read(record)),
            another_saga=machines["another saga"],
            decided={"decisions": {"L": [MADE.entry]}},
        ),
        "keep one more": race(
            {**RECORD, "decisions": {"L": [MADE.entry]}},
            lambda record: decision_update(AUDIT, "started", record, NOW_MS, list_as_read(record)),
            another_saga=machines["another saga"],
            decided={"decisions": {"L": [MADE.entry] * 2}},
        ),
        "resume": race(PARKED, lambda record: resolution.unpark_update(record, NOW_MS, 1), resumed={"parked_by": None}),
        "an answer is noted": Race(
            table="requests",
            item=SETTLED,
            write=lambda item: update(
                "requests", decision_update(AUDIT, "Charge: applied", RequestRecord.from_item(item), NOW_MS)
            ),
            lost={"another saga": machines["another saga"], "gone": GONE},
        ),
        "rows kept": Race(
            table="requests",
            item=RECORD,
            write=lambda item: update("requests", recovery.rows_kept_update(RequestRecord.from_item(item), 9)),
            lost={**OF_A_RECORD},
        ),
        "clear": Race(
            table="requests",
            item={**SETTLED, "due_at": n(5)},
            write=lambda item: update("requests", recovery.clear_update(RequestRecord.from_item(item))),
            lost={**OF_A_RECORD, "due again": {"due_at": n(6)}},
        ),
        "adopt": race(RECORD, lambda record: adopt_update(record, target, 1, NOW_MS, 1), **machines, **IS_PARKED),
        "adopt, parked": race(
            PARKED, lambda record: adopt_update(record, target, 1, NOW_MS, 1), **machines, resumed={"parked_by": None}
        ),
        "make due": race(
            RECORD,
            lambda record: make_due_update(record, RECORD, "0", NOW_MS),
            due={"due_at": n(1)},
            shard={"due_shard": s("another")},
        ),
        "make due, never due": race(
            bare,
            lambda record: make_due_update(record, bare, "0", NOW_MS),
            due={"due_at": n(1)},
            shard={"due_shard": s("another")},
        ),
    }


# Proposed lists

PROPOSED = ListProposal(
    at_ms=NOW_MS, who="ann", user_id="A", why="y", expires_at=NOW_MS + 9, sagas=(SeenSaga(SAGA_ID, SAGA_ID, 5),)
)
LISTED: Item = {
    **list_key(PROPOSED.id),
    "at": n(NOW_MS),
    "who": s("ann"),
    "user_id": s("A"),
    "why": s("y"),
    "expires_at": n(NOW_MS + 9),
    "sagas": s(f'[["{SAGA_ID}","{SAGA_ID}",5]]'),
}


def of_lists() -> dict[str, Race]:
    confirmed = {"confirmed": {"confirmed_by": s("eve"), "confirmed_why": s("y")}}
    return {
        "confirm": Race(
            table="requests",
            item=LISTED,
            write=lambda item: update("requests", ListProposal.from_item(item).confirm_update(AUDIT, NOW_MS)),
            lost={**confirmed, "proposed again": {"at": n(9)}, "expired": {"expires_at": n(NOW_MS)}, "gone": GONE},
        ),
        "propose, expired": Race(
            table="requests",
            item=LISTED,
            write=lambda item: update("requests", ListProposal.from_item(item).propose_update(NOW_MS + 9)),
            lost={**confirmed, "proposed again": {"expires_at": n(NOW_MS + 10)}},
        ),
        "propose": Race(
            table="requests",
            item=None,
            write=lambda _: update("requests", PROPOSED.propose_update(NOW_MS)),
            lost={"proposed": LISTED},
        ),
    }


# Rows of the saga log

ROW: Item = {
    "saga_id": s(SAGA_ID),
    "step": s("Pick"),
    "status": s("INTENT"),
    "side": s("before"),
    "attempt_id": s("a"),
    "updated_at": n(1),
    "deadline": n(NOW_MS - 1),
    "first_attempt_at": n(1),
    "expiration": n(5),
}
HOLDER = Holder(
    table="log",
    saga_id=SAGA_ID,
    row_name="Pick",
    side=Side.BEFORE,
    attempt="b",
    deadline=NOW_MS,
    keep_days=1,
)
OF_A_ROW: dict[str, Mapping[str, Any]] = {"another status": {"status": s("RECORDED")}, "gone": GONE}
OF_AN_ATTEMPT: dict[str, Mapping[str, Any]] = {**OF_A_ROW, "another attempt": {"attempt_id": s("c")}}
EXISTS: Mapping[str, Mapping[str, Any]] = {"there": ROW}


def row_in(status: StepStatus) -> Item:
    return {**ROW, "status": s(status)}


def of_rows() -> dict[str, Race]:
    def race(status: StepStatus, write: Callable[[LogRow], Any], lost: Mapping[str, Mapping[str, Any]]) -> Race:
        return Race(table="log", item=row_in(status), write=lambda item: write(LogRow.from_item(item)), lost=lost)

    mine = replace(HOLDER, attempt="a")
    place = LogPlace(
        table="log",
        job=JobId(saga_id=SAGA_ID, step="Pick", row_name="Pick"),
        side=Side.BEFORE,
        attempt="b",
        keep_days=1,
    )
    change = callback_decisions.LogChange
    outcome = Outcome(ok=True, output="{}")
    failure = Outcome(ok=False, error="Declined", detail="no")
    longer = {**OF_AN_ATTEMPT, "a later deadline": {"deadline": n(NOW_MS)}}
    i, u, late = StepStatus.INTENT, StepStatus.COMPENSATING, StepStatus.APPLIED_LATE
    undone: Any = {"table": "log", "saga_id": SAGA_ID, "step": "Pick", "attempt": "b", "now_ms": NOW_MS}

    def resolved(to: StepStatus | None) -> Callable[[LogRow], Any]:
        def write(row: LogRow) -> Any:
            subject = resolution.Subject(name="Pick", row=row, side=Side.BEFORE, declared=None, direction=None)
            decided = resolution.Change(to=to, written=True)
            return resolution.row_write(subject, decided, table="log", saga_id=SAGA_ID, attempt="b", now_ms=NOW_MS)

        return write

    return {
        "take over": race(i, lambda row: HOLDER.take_over(row, NOW_MS), longer),
        "take an undo over": race(u, lambda row: HOLDER.take_over(row, NOW_MS), longer),
        "done": race(i, lambda _: mine.done("{}", NOW_MS), OF_AN_ATTEMPT),
        "refused": race(i, lambda _: mine.failed("Declined", "no", NOW_MS), OF_AN_ATTEMPT),
        "not applied": race(i, lambda row: HOLDER.not_applied(row, NOW_MS), OF_AN_ATTEMPT),
        "accepted": race(i, lambda _: mine.accepted(NOW_MS), OF_AN_ATTEMPT),
        "undoing": race(StepStatus.DONE, lambda _: HOLDER.undoing(NOW_MS), OF_A_ROW),
        "undoing what is late": race(late, lambda _: HOLDER.undoing(NOW_MS, found=late), OF_A_ROW),
        "undone": race(u, lambda _: HOLDER.undone(NOW_MS), OF_A_ROW),
        "undone at once": race(StepStatus.DONE, lambda _: undone_update(**undone), OF_A_ROW),
        "received": race(i, lambda row: place.entry(change.DONE, row, outcome, NOW_MS), OF_A_ROW),
        "refused by callback": race(i, lambda row: place.entry(change.FAILED, row, failure, NOW_MS), OF_A_ROW),
        "late by callback": race(
            StepStatus.TOMBSTONE,
            lambda row: place.entry(change.APPLIED_LATE, row, outcome, NOW_MS),
            {**OF_A_ROW, **KEPT_BY_ANOTHER},
        ),
        "row is checked": race(i, lambda row: place.entry(change.NONE, row, outcome, NOW_MS), OF_A_ROW),
        "resolved": race(u, resolved(StepStatus.COMPENSATED), OF_AN_ATTEMPT),
        "taken away": race(i, resolved(None), OF_AN_ATTEMPT),
        "kept": race(i, lambda _: kept_update("log", SAGA_ID, "Pick", 5, 9), {**KEPT_BY_ANOTHER, "gone": GONE}),
        "first intent": Race(table="log", item=None, write=lambda _: HOLDER.intent(NOW_MS), lost=EXISTS),
        "first tombstone": Race(table="log", item=None, write=lambda _: HOLDER.bury(NOW_MS), lost=EXISTS),
        "first refusal": Race(
            table="log", item=None, write=lambda _: place.entry(change.PUT_FAILED, None, failure, NOW_MS), lost=EXISTS
        ),
    }


# The ledger

ACCOUNT: Item = {
    "pk": s("account#alice"),
    "sk": s("account"),
    "kind": s("account"),
    "state": s("OPEN"),
    "balance": n(0),
    "held": n(0),
    "sequence": n(3),
    "currency": s("EUR"),
    "places": n(2),
}
OF_AN_ACCOUNT: dict[str, Mapping[str, Any]] = {
    "moved": {"sequence": n(4)},
    "another balance": {"balance": n(5)},
    "gone": GONE,
}
EURO = Money(5, "EUR")


def of_accounts() -> dict[str, Race]:
    builder = LedgerBuilder(table="ledger")

    def posted(item: Item) -> Any:
        account = Account.from_item("alice", item)
        common: Any = {"entry_id": "e", "now_ms": NOW_MS}
        other = Account.from_item("bob", {**ACCOUNT, "pk": s("account#bob")})
        return builder.transfer(source=account, target=other, amount=EURO, **common)[0].action

    rich = {**ACCOUNT, "balance": n(100)}
    shard = Shard(account_id="shop:1", window="2026-11-21", number=0, balance=EURO, sequence=2)
    shard_item: Item = {
        **shard.key,
        "kind": s("shard"),
        "state": s("OPEN"),
        "balance": n(5),
        "sequence": n(2),
        "currency": s("EUR"),
        "places": n(2),
    }
    terms = CollectingAccounts(prefix="shop:", unit="EUR", shards=1)
    hold = Hold(account_id="alice", hold_id="h", amount=EURO, expires_at=NOW_MS - 1)
    authorized = holds.HoldBuilder(ledger=LedgerBuilder(table="ledger"))
    close, release = (write.action for write in authorized.expire(hold=hold, now_ms=NOW_MS))
    closed = {"closed": {"state": s("CLOSED")}, "gone": GONE}
    credited = collecting.credit_shard(
        "ledger", terms, "shop:1", [EURO], counterparty="clearing", entry_id="e", now_ms=NOW_MS
    )[0].action
    return {
        "post": Race(
            table="ledger",
            item=rich,
            write=posted,
            lost={
                **OF_AN_ACCOUNT,
                "held": {"held": n(1)},
                "closed": {"state": s("CLOSED")},
                "another currency": {"currency": s("USD")},
            },
        ),
        "close": Race(
            table="ledger",
            item=ACCOUNT,
            write=lambda item: builder.close_account(account=Account.from_item("alice", item))[0].action,
            lost=OF_AN_ACCOUNT,
        ),
        "take out of a shard": Race(
            table="ledger",
            item=shard_item,
            write=lambda _: collecting._take("ledger", shard, closes=True).action,
            lost={**closed, "credited": {"sequence": n(3)}, "another balance": {"balance": n(6)}},
        ),
        "credit a shard": Race(
            table="ledger",
            item={**shard_item, **credited["Update"]["Key"]},
            write=lambda _: credited,
            lost={
                "closed": {"state": s("CLOSED")},
                "another currency": {"currency": s("USD")},
                "other places": {"places": n(3)},
                "full": {"balance": n(MAX_MINOR_UNITS)},
            },
        ),
        "close a hold": Race(
            table="ledger",
            item={**close["Update"]["Key"], "state": s("OPEN"), "kind": s("hold")},
            write=lambda _: close,
            lost={"captured": {"state": s("CAPTURED")}, "gone": GONE},
        ),
        "release a hold": Race(
            table="ledger",
            item={**ACCOUNT, "held": n(5)},
            write=lambda _: release,
            lost={"less is held": {"held": n(4)}, "gone": GONE},
        ),
    }


# Watched machines

END: Item = {
    "id": s("arn:a:b#0"),
    "status": s("PENDING"),
    "execution_status": s("TIMED_OUT"),
    "stopped_at": n(5),
    "not_before": n(9),
    "due_at": n(9),
    "due_shard": s("00"),
}


def of_ends() -> dict[str, Race]:
    def race(write: Callable[[watch.EndRow], Any], lost: Mapping[str, Mapping[str, Any]], **more: Any) -> Race:
        item = {**END, **more}
        return Race(
            table="watch", item=item, write=lambda item: update("watch", write(watch.EndRow.from_item(item))), lost=lost
        )

    moved = {"touched": {"not_before": n(10)}, "gone": GONE}
    first, second = (
        watch.ListRow(id="list#a", listed_until=1, verified_until=1, due_at=1, version=version) for version in (1, 2)
    )
    listed: Item = watch.list_put(first)["Item"]
    found = watch.found_put(
        id="arn:a:b#0", end=FailedStatus.TIMED_OUT, started_at=4, stopped_at=6, not_before=9, now_ms=9
    )
    return {
        "lease": race(lambda row: watch.lease_update(row, 9, 20), moved),
        "failed": race(lambda row: watch.failed_update(row, 9, 20, "Broken"), moved),
        "later": race(lambda row: watch.later_update(row, 9, 20, redriven=True), moved),
        "told": race(lambda row: watch.told_update(row, 9), moved),
        "over": race(lambda row: watch.over_update(row, 9), moved),
        "parked_reason": race(lambda row: watch.dead_lettered_update(row, 9), moved),
        "queued": race(lambda row: watch.queued_update(row.id, 9, 20), {"due again": {"due_at": n(10)}, "gone": GONE}),
        "again": race(
            lambda row: watch.again_update(row.id, 9),
            {"told": {"status": s(WatchStatus.NOTIFIED)}},
            status=s("DEAD_LETTERED"),
        ),
        "found": Race(
            table="watch", item=None, write=lambda _: {"Put": {"TableName": "watch", **found}}, lost={"known": END}
        ),
        "first of a list": Race(
            table="watch",
            item=None,
            write=lambda _: {"Put": {"TableName": "watch", **watch.list_put(second)}},
            lost={"known": listed},
        ),
        "list": Race(
            table="watch",
            item=listed,
            write=lambda _: update("watch", watch.list_update(first, second)),
            lost={"read on": {"version": n(5)}, "gone": GONE},
        ),
    }


RACES: dict[str, Race] = {
    f"{of}: {name}": race
    for of, races in {
        "tokens": of_tokens(),
        "records": of_records(),
        "recoveries": of_recoveries(),
        "lists": of_lists(),
        "rows": of_rows(),
        "accounts": of_accounts(),
        "ends": of_ends(),
    }.items()
    for name, race in races.items()
}
LOST = [(name, change) for name, race in RACES.items() for change in race.lost]


@pytest.fixture
def tables(world: World) -> World:
    create_watch_table()
    return world


def is_written(world: World, race: Race, there: Item | None) -> bool:
    """Send a write that was decided from the item as it was read; return whether it was accepted."""
    if there is not None:
        world.database.dynamodb.put(race.table, there)
    ((kind, request),) = race.write(race.item or {}).items()
    member = {kind: request}
    beside = {"Put": {"TableName": "requests", "Item": {"id": s("beside")}}}
    try:
        world.database.call("TransactWriteItems", {"TransactItems": [member, beside]})
    except ServiceError as error:
        if error.code != "TransactionCanceledException":
            raise
        return False
    return True


@pytest.mark.parametrize("name", RACES)
def test_a_write_of_an_unchanged_item_is_applied(tables: World, name: str) -> None:
    assert is_written(tables, RACES[name], RACES[name].item)


@pytest.mark.parametrize(("name", "change"), LOST)
def test_a_write_of_a_changed_item_is_refused(tables: World, name: str, change: str) -> None:
    race = RACES[name]
    lost = race.lost[change]
    there = None if lost is GONE else {**(race.item or {}), **lost}
    if there is not None:
        there = {attribute: value for attribute, value in there.items() if value is not None}

    assert not is_written(tables, race, there)
