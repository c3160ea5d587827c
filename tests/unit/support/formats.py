"""Everything that is stored, or derived and compared later, for fixed inputs. Golden: ``golden/formats.json``.

A change of one of these changes existing data. When it is intended, raise ``PROTOCOL_VERSION`` if an older reader could
misread it, mention it in the changelog, and regenerate the file::

    PYTHONPATH=.:lambda_src python -m tests.unit.support.formats
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from saga_runtime import Account, Clearing, CollectingAccounts, Hold, LedgerBuilder, LedgerTerms, Money, Unit, Write
from saga_runtime.idempotency.amounts import MoneyPath
from saga_runtime.idempotency.identity import (
    canonical_json,
    due_shard_of,
    fingerprint_of,
    parse_json,
    provider_key_of,
    request_id_of,
    row_name_of,
    saga_id_of,
    scope_of,
    step_key_of,
)
from saga_runtime.idempotency.record import (
    AttributeMap,
    DirectRecord,
    RequestRecord,
    direct_put,
    remove_response_update,
    reserve_put,
)
from saga_runtime.ledger.collecting import sweep_shard
from saga_runtime.ledger.holds import HoldBuilder
from saga_runtime.ledger.items import Leg, Shard
from saga_runtime.protocol import (
    IN_FLIGHT_ATTRIBUTES,
    Direction,
    RecordAttribute,
    RecordStatus,
    Side,
    StepStatus,
)
from saga_runtime.recovery.takeover import take_over_update
from saga_runtime.saga_log.external_rows import Holder
from saga_runtime.saga_log.rows import LogRow, done_put, tombstone_put, undone_update
from saga_runtime.steps.step import encode_output
from tests.unit.support.callback_formats import callback_formats
from tests.unit.support.memory_dynamodb import MemoryDynamoDB
from tests.unit.support.reconciler_formats import reconciler_formats
from tests.unit.support.samples import ALICE, NOW_MS, OPERATION, REQUEST_ID, SAGA_ID, SCOPE, reservation_of
from tests.unit.support.settling import direct, park, settle
from tests.unit.support.watch_formats import watch_formats

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "formats.json"
BODY = '{"from": "alice", "to": "bob", "amount": 200, "rate": 1.50, "note": "\u00e4\\u0041"}'
POINT = Unit("POINT", 0)
TERMS = LedgerTerms(
    units=(POINT,), collecting=(CollectingAccounts(prefix="merchant:", unit="JPY", shards=4),), holds=True
)
MONEY = MoneyPath.from_json('{"amount":"/amount","code":"EUR"}')
_WHO: dict[str, Any] = {"request_id": REQUEST_ID, "execution": SAGA_ID, "now_ms": NOW_MS + 5}
_ROW: dict[str, Any] = {"table": "log", "saga_id": SAGA_ID, "step": "Transfer", "attempt": "attempt-1"}


def produced() -> dict[str, Any]:
    """All formats, as the code makes them now."""
    return {
        "names": _names(),
        "request record": _record(),
        "saga log": _log(),
        "ledger": _ledger(),
        "token table": callback_formats(),
        "watched machines": watch_formats(),
        "reconciler": reconciler_formats(_reserved()),
    }


def _names() -> dict[str, Any]:
    step_key = step_key_of(SAGA_ID, "Transfer")
    return {
        "scope, iam": scope_of(OPERATION, ALICE),
        "scope, jwt": scope_of(OPERATION, ("jwt", "https://issuer.example", "subject-1")),
        "scope, authorizer context": scope_of(OPERATION, ("context", "tenant", "acme")),
        "request id": request_id_of(SCOPE, "key-1"),
        "saga id": saga_id_of(REQUEST_ID, NOW_MS, "requests"),
        "step key": step_key,
        "step key of the compensation": step_key_of(SAGA_ID, "Transfer", undo=True),
        "step key of an item": step_key_of(SAGA_ID, "Charge", item_key="sku-1"),
        "provider key": provider_key_of(step_key),
        "canonical JSON": canonical_json(parse_json(BODY)),
        "fingerprint": fingerprint_of(OPERATION, canonical_json(parse_json(BODY))),
        "due shard": due_shard_of(REQUEST_ID, 16),
    }


def _record() -> dict[str, Any]:
    reservation = reservation_of(body=BODY)
    return {
        "start input": reservation.start_input,
        "reserve": reserve_put(reservation),
        "reserve, of what it moves": {
            name: value
            for name, value in reserve_put(replace(reservation, money=MONEY.read(parse_json(BODY))))["Item"].items()
            if name in {RecordAttribute.AMOUNT, RecordAttribute.CURRENCY}
        },
        "direct operation": direct_put(
            DirectRecord(
                request_id=REQUEST_ID,
                saga_id=SAGA_ID,
                scope=SCOPE,
                operation=OPERATION,
                fingerprint=reservation.fingerprint,
                owner="attempt-1",
                status=RecordStatus.COMPLETED,
                http_status=200,
                body='{"paid":200}',
                now_ms=NOW_MS,
                replay_seconds=604_800,
                remember_seconds=34_560_000,
                due_shards=16,
            )
        ),
        "index of what is not settled": list(IN_FLIGHT_ATTRIBUTES),
        "remove the response": remove_response_update(REQUEST_ID, NOW_MS),
        "settle": settle(**_WHO, status=RecordStatus.COMPLETED, body='{"paid":"2.00"}'),
        "park": park(**_WHO),
        "direct": direct(**_WHO, direction=Direction.COMPENSATE),
        "take over": take_over_update(RequestRecord.from_item(_reserved()), NOW_MS + 5, 60_000),
    }


def _reserved() -> AttributeMap:
    db = MemoryDynamoDB()
    db.put_item(TableName="requests", **reserve_put(reservation_of(body=BODY)))
    item = db.item("requests", REQUEST_ID)
    assert item is not None
    return item


def _log() -> dict[str, Any]:
    output = encode_output({"entry_id": "e", "amount": "200"})
    return {
        "done": done_put(**_ROW, side=Side.PIVOT, output=output, now_ms=NOW_MS, keep_days=400),
        "tombstone": tombstone_put(**_ROW, side=Side.BEFORE, now_ms=NOW_MS, keep_days=400),
        "undone": undone_update(**_ROW, now_ms=NOW_MS),
        **_external(output),
    }


def _external(output: str) -> dict[str, Any]:
    holder = Holder(
        table="log",
        saga_id=SAGA_ID,
        row_name=row_name_of("Charge", "sku-1"),
        side=Side.AFTER,
        attempt="attempt-1",
        deadline=NOW_MS + 20_000,
        keep_days=400,
    )
    found = LogRow(
        saga_id=SAGA_ID,
        step=holder.row_name,
        status=StepStatus.INTENT,
        output=None,
        updated_at=NOW_MS,
        attempt="attempt-0",
        deadline=NOW_MS,
        first_attempt_at=NOW_MS,
    )
    return {
        "external: intent": holder.intent(NOW_MS),
        "external: taken over": holder.take_over(found, NOW_MS),
        "external: done": holder.done(output, NOW_MS),
        "external: done, as verified": holder.done(output, NOW_MS, held=found.attempt),
        "external: failed": holder.failed("Declined", "no credit", NOW_MS),
        "external: not applied": holder.not_applied(found, NOW_MS),
        "external: undoing": holder.undoing(NOW_MS),
        "external: undone": holder.undone(NOW_MS),
    }


def _ledger() -> dict[str, Any]:
    builder = LedgerBuilder(table="ledger")
    alice = Account(account_id="alice", balance=Money(500, "EUR"), cap=1_000, sequence=1)
    bob = Account(account_id="bob", balance=Money(0, "EUR"))
    ten: dict[str, Any] = {"amount": Money(10, "EUR"), "entry_id": step_key_of(SAGA_ID, "Transfer"), "now_ms": NOW_MS}
    refund: dict[str, Any] = {"account_id": "alice", "clearing": "fx", "suspense": "suspense"}
    made = {
        "open an account": builder.open_account(
            account_id="alice", opening=Money(500, "EUR"), cap=1_000, now_ms=NOW_MS
        ),
        "open an empty account": builder.open_account(account_id="bob", opening=Money(0, "EUR"), now_ms=NOW_MS),
        "transfer": builder.transfer(source=alice, target=bob, **ten),
        "debit": builder.debit(account=alice, clearing="fx", **ten),
        "credit": builder.credit(account=alice, clearing="fx", **ten),
        "refund to an account that is gone": builder.refund(account=None, **refund, **ten),
        "close an account": builder.close_account(account=bob),
        **_holds(),
        **_collecting(),
    }
    return {
        "terms": TERMS.to_json(),
        **{name: [dict(write.action) for write in writes] for name, writes in made.items()},
    }


def _holds() -> dict[str, list[Write]]:
    builder = HoldBuilder(ledger=LedgerBuilder(table="ledger", terms=TERMS))
    alice = Account(account_id="alice", balance=Money(500, "EUR"), sequence=1)
    bob, fees = Account(account_id="bob", balance=Money(0, "EUR")), Account(account_id="fees", balance=Money(0, "EUR"))
    hold = Hold(account_id="alice", hold_id="h-1", amount=Money(100, "EUR"), expires_at=NOW_MS + 60_000)
    holding = replace(alice, held=100)
    legs: list[Leg] = [("bob", Money(87, "EUR")), ("fees", Money(3, "EUR"))]
    now: dict[str, Any] = {"now_ms": NOW_MS}
    return {
        "authorize": builder.authorize(account=alice, hold=hold, found=None, **now),
        "capture, in part": builder.capture(hold=hold, legs=legs, accounts=[holding, bob, fees], entry_id="c-1", **now),
        "void": builder.void(hold=hold, entry_id="v-1", **now),
        "expire": builder.expire(hold=replace(hold, expires_at=NOW_MS), **now),
    }


def _collecting() -> dict[str, list[Write]]:
    """A payment of 100: a customer, a merchant, a fee, and a point from where points come from."""
    builder = LedgerBuilder(table="ledger", terms=TERMS)
    alice = Account(account_id="alice", balance=Money(500, "JPY"), sequence=1)
    points = Account(account_id="alice.points", balance=Money(0, POINT))
    legs: list[Leg] = [
        ("alice", Money(-97, "JPY")),
        ("alice", Money(-3, "JPY")),
        ("merchant:7", Money(97, "JPY")),
        (Clearing("fees"), Money(3, "JPY")),
        ("alice.points", Money(1, POINT)),
        (Clearing("issuance"), Money(-1, POINT)),
    ]
    shard = Shard(account_id="merchant:7", window="2023-11-14", number=3, balance=Money(97, "JPY"), sequence=1)
    merchant = Account(account_id="merchant:7", balance=Money(0, "JPY"))
    swept: dict[str, Any] = {"suspense": "suspense"}
    return {
        "post": builder.post(legs=legs, accounts=[alice, points], entry_id="p-1", now_ms=NOW_MS),
        "sweep by need": sweep_shard(builder, shard=shard, account=merchant, now_ms=NOW_MS, **swept)[0],
        "sweep, window over": sweep_shard(builder, shard=shard, account=merchant, now_ms=shard.due_at, **swept)[0],
        "sweep, account gone": sweep_shard(builder, shard=shard, account=None, now_ms=shard.due_at, **swept)[0],
    }


def text_of(formats: dict[str, Any]) -> str:
    """The golden file's text, an attribute's value in one line."""
    text = json.dumps(formats, indent=2, ensure_ascii=False)
    return re.sub(r'\{\s+("[SN]": "(?:[^"\\]|\\.)*")\s+\}', r"{\1}", text) + "\n"


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(text_of(produced()), "utf-8")
