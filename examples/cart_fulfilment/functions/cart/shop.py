"""The shop's table: goods, their holds and movements, orders. Reads, and transaction items.

====================  =====================  ===================================================================
``id``                ``entry``              what it is
====================  =====================  ===================================================================
``goods#{sku}``       ``item``               ``price``, ``currency``, ``stock``: what is not sold; ``version``
``goods#{sku}``       ``hold#{step key}``    ``quantity`` that a cart holds, ``until`` when (epoch milliseconds)
``goods#{sku}``       a step key             one movement: what that step took from the stock, or put back
``order#{saga id}``   ``order``              what was bought, by whom; ``state``: PAID, then SHIPPED or CANCELED
``order#{saga id}``   ``finding#{step}``     ``finding``: what an investigation of an unanswered job found (JSON)
``coupon#{code}``     ``coupon``             ``off``, ``currency``; ``state``: ISSUED, REDEEMED by a saga, USED
====================  =====================  ===================================================================

A hold is a lock that expires: free is the stock, less the holds that have not expired. The hold of a cart whose saga is
gone needs no release; DynamoDB deletes the row later, and until then it has no effect. A function that takes goods
reads them, and writes on the condition that no other has taken any since: the version.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from saga_runtime import Invalid, PermanentError, StepCall, Transitions, VersionedItem, Write
from saga_runtime.idempotency.identity import step_key_of
from saga_runtime.shared import aws

ITEM: Final = "item"
ORDER: Final = "order"
PAID: Final = "PAID"
ISSUED, REDEEMED, USED = "ISSUED", "REDEEMED", "USED"
COUPONS: Final = Transitions(
    table={ISSUED: [REDEEMED], REDEEMED: [ISSUED, USED], USED: []}, initial=ISSUED, held=[REDEEMED]
)
"""A coupon is redeemed by one order, given back if that is canceled, and used up when it is shipped."""
ORDERS: Final = Transitions(table={PAID: ["SHIPPED", "CANCELED"], "SHIPPED": [], "CANCELED": []}, initial=PAID)
HOLD_PREFIX: Final = "hold#"
HOLDING_STEP: Final = "ReserveInventory"
_DAY_MS: Final = 86_400_000

Line = Mapping[str, Any]


class UnknownItem(PermanentError):
    """The shop does not sell this."""


class OutOfStock(PermanentError):
    """Fewer are free than were ordered."""


class ReservationLost(PermanentError):
    """The hold had expired, and another cart has taken the goods since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goods:
    """Goods as they were read.

    Attributes:
        sku: which.
        item: the item, as DynamoDB has it.
        holds: who holds how many until when, by the entry of the row.
    """

    sku: str
    item: Mapping[str, Any]
    holds: Mapping[str, tuple[int, int]]

    @property
    def stock(self) -> int:
        """Quantity that is not sold."""
        return int(self.item["stock"]["N"])

    def free(self, now_ms: int, *, but: str = "") -> int:
        """Quantity that no cart, or no cart but one, holds."""
        held = sum(n for entry, (n, until) in self.holds.items() if until > now_ms and entry != but)
        return self.stock - held


@dataclass(frozen=True, slots=True)
class Shop:
    """The shop's table.

    Attributes:
        table: its name.
    """

    table: str

    @classmethod
    def from_env(cls) -> Shop:
        """The shop that the function's environment names."""
        return cls(os.environ["SHOP_TABLE"])

    def read(self, sku: str) -> Goods:
        """Read goods and their holds.

        Raises:
            UnknownItem: if they are not sold here.
        """
        pages = (
            aws.dynamodb()
            .get_paginator("query")
            .paginate(
                TableName=self.table,
                KeyConditionExpression="id = :id AND begins_with(entry, :hold)",
                ExpressionAttributeValues={":id": {"S": f"goods#{sku}"}, ":hold": {"S": HOLD_PREFIX}},
                ConsistentRead=True,
            )
        )
        # The version first: a hold that is put after it was read changes it.
        item = aws.dynamodb().get_item(TableName=self.table, Key=_goods(sku, ITEM), ConsistentRead=True).get("Item")
        if item is None:
            raise UnknownItem(f"{sku} is not sold here")
        rows = [row for page in pages for row in page["Items"]]
        holds = {row["entry"]["S"]: (int(row["quantity"]["N"]), int(row["until"]["N"])) for row in rows}
        return Goods(sku=sku, item=item, holds=holds)

    def hold(self, call: StepCall, lines: Sequence[Line], *, until_ms: int) -> list[Write]:
        """Hold every line for a while, or none.

        Raises:
            OutOfStock: if fewer are free than are asked for.
            UnknownItem: if something is not sold here.
        """
        writes: list[Write] = []
        for line in lines:
            goods = self.read(line["sku"])
            if goods.free(call.now_ms) < line["quantity"]:
                raise OutOfStock(f"{line['sku']} is out of stock")
            row = {
                **_goods(line["sku"], _hold_of(call)),
                "quantity": {"N": str(line["quantity"])},
                "until": {"N": str(until_ms)},
                # Long after it is over: a later search for what happened still finds it.
                "expiration": {"N": str((until_ms + _DAY_MS) // 1000)},
            }
            writes += [self._taken(goods, 0), Write(action={"Put": {"TableName": self.table, "Item": row}})]
        return writes

    def let_go(self, call: StepCall, lines: Sequence[Line]) -> list[Write]:
        """Hold nothing any more. Never refused: a hold that is gone is let go, too."""
        return [self._delete(_goods(line["sku"], _hold_of(call))) for line in lines]

    def sell(self, call: StepCall, lines: Sequence[Line]) -> list[Write]:
        """Sell the held goods. An expired hold suffices, if no other cart has taken the goods since.

        Raises:
            ReservationLost: if another cart has.
        """
        writes: list[Write] = []
        for line in lines:
            goods, hold = self.read(line["sku"]), _hold_of(call)
            if goods.free(call.now_ms, but=hold) < line["quantity"]:
                raise ReservationLost(f"{line['sku']} was held for too long, and is out of stock")
            writes += [
                self._taken(goods, line["quantity"]),
                self._delete(_goods(line["sku"], hold)),
                self._movement(call, line, "sold"),
            ]
        return writes

    def put_back(self, call: StepCall, lines: Sequence[Line]) -> list[Write]:
        """Put what was sold back into stock."""
        writes: list[Write] = []
        for line in lines:
            update = {
                "TableName": self.table,
                "Key": _goods(line["sku"], ITEM),
                "UpdateExpression": "ADD stock :n, version :one",
                "ExpressionAttributeValues": {":n": {"N": str(line["quantity"])}, ":one": {"N": "1"}},
            }
            writes += [Write(action={"Update": update}), self._movement(call, line, "put back")]
        return writes

    def order(self, call: StepCall, lines: Sequence[Line], **texts: str) -> Write:
        """The order, under the saga's id: one request is one order."""
        [write] = ORDERS.create(self._order(call), _typed(lines=json.dumps(lines), step_key=call.key, **texts))
        return write

    def coupon_off(self, code: str, amount: int, currency: str) -> int:
        """Read what a coupon takes off an amount.

        Raises:
            Invalid: if there is no such coupon, or it leaves nothing to pay.
            PermanentError: if it was redeemed.
        """
        coupon = self._read_coupon(code)
        off = int(coupon["off"]["N"])
        if coupon["currency"]["S"] != currency or off >= amount:
            raise Invalid("the coupon must take less than the amount, in its currency; leave it out")
        return off

    def redeem(self, call: StepCall, code: str) -> tuple[list[Write], int]:
        """Redeem a coupon for this saga; the version that it has then.

        Raises:
            PermanentError: if another order redeemed it since the cart was priced.
        """
        version = int(self._read_coupon(code)["version"]["N"])
        writes = COUPONS.move(
            self._coupon(code), ISSUED, REDEEMED, expected_version=version, holder=call.saga_id, read_now=True
        )
        return writes, version + 1

    def end_coupon(self, call: StepCall, code: str, state: str, version: int) -> list[Write]:
        """Give back, or use up, the coupon that this saga redeemed."""
        return COUPONS.move(self._coupon(code), REDEEMED, state, expected_version=version, holder=call.saga_id)

    def _read_coupon(self, code: str) -> Mapping[str, Any]:
        key: Any = self._coupon(code).key
        coupon = aws.dynamodb().get_item(TableName=self.table, Key=key, ConsistentRead=True).get("Item")
        if coupon is None:
            raise Invalid(f"there is no coupon {code}; leave it out")
        if coupon["state"]["S"] != ISSUED:
            raise PermanentError(f"coupon {code} was redeemed")
        return coupon

    def _coupon(self, code: str) -> VersionedItem:
        return VersionedItem(table=self.table, key={"id": {"S": f"coupon#{code}"}, "entry": {"S": "coupon"}})

    def mark(self, call: StepCall, state: str, **texts: str) -> Write:
        """Set the state of a paid order: a canceled one is not shipped, and a shipped one not canceled."""
        [write] = ORDERS.move(self._order(call), PAID, state, values=_typed(**texts))
        return replace(write, refusal=lambda order: _not_paid(call, order))

    def order_state(self, saga_id: str) -> str | None:
        """Read the state of an order; None without one."""
        key: Any = {"id": {"S": f"order#{saga_id}"}, "entry": {"S": ORDER}}
        order = aws.dynamodb().get_item(TableName=self.table, Key=key, ConsistentRead=True).get("Item")
        return None if order is None else str(order["state"]["S"])

    def finding(self, call: StepCall, finding: Mapping[str, Any]) -> Write:
        """The finding of an investigation, with the order that its job was for."""
        key = {"id": {"S": f"order#{call.request['order']}"}, "entry": {"S": f"finding#{call.request['step']}"}}
        item = {**key, **_typed(finding=json.dumps(finding), step_key=call.key)}
        return Write(action={"Put": {"TableName": self.table, "Item": item}})

    def _order(self, call: StepCall) -> VersionedItem:
        key = {"id": {"S": f"order#{call.saga_id}"}, "entry": {"S": ORDER}}
        return VersionedItem(table=self.table, key=key)

    def _taken(self, goods: Goods, quantity: int) -> Write:
        """Write on the condition that none were taken since they were read; else the runtime has them read again."""
        update = {
            "TableName": self.table,
            "Key": _goods(goods.sku, ITEM),
            "UpdateExpression": "SET stock = stock - :n, version = version + :one",
            "ConditionExpression": "version = :seen AND stock >= :n",
            "ExpressionAttributeValues": {
                ":n": {"N": str(quantity)}, ":one": {"N": "1"}, ":seen": goods.item["version"],
            },
        }  # fmt: skip
        return Write(action={"Update": update})

    def _movement(self, call: StepCall, line: Line, kind: str) -> Write:
        item = {**_goods(line["sku"], call.key), "kind": {"S": kind}, "quantity": {"N": str(line["quantity"])}}
        return Write(action={"Put": {"TableName": self.table, "Item": item}})

    def _delete(self, key: dict[str, Any]) -> Write:
        return Write(action={"Delete": {"TableName": self.table, "Key": key}})


def lines_of(call: StepCall) -> list[dict[str, Any]]:
    """Return the lines of the order."""
    return [{"sku": line["sku"], "quantity": line["quantity"]} for line in call.request["items"]]


def _not_paid(call: StepCall, order: Mapping[str, Any] | None) -> PermanentError:
    state = order["state"]["S"] if order else "unknown"
    return PermanentError(f"order {call.saga_id} must be PAID, got {state}")


def _hold_of(call: StepCall) -> str:
    return HOLD_PREFIX + step_key_of(call.saga_id, HOLDING_STEP)


def _goods(sku: str, entry: str) -> dict[str, Any]:
    return {"id": {"S": f"goods#{sku}"}, "entry": {"S": entry}}


def _typed(**texts: str) -> dict[str, dict[str, str]]:
    return {name: {"S": text} for name, text in texts.items()}
