"""The shop's table: goods, every movement of them, orders, shipments, mail. Pure: data in, transaction items out.

===================  ====================  =================================================================
``id``               ``entry``             what it is
===================  ====================  =================================================================
``goods#{sku}``      ``item``              price, currency, ``stock`` (free), ``reserved``, ``on_shelf``, ``digital``
``goods#{sku}``      a step key            one movement: what that step did to these goods
``order#{saga id}``  ``order``             what was bought, by whom, and the charge that paid for it
``order#{saga id}``  ``shipment``          what is to be sent
``mail#{customer}``  ``{order}#{status}``  a notice for the customer: the outbox, which ``mailer.py`` fills
===================  ====================  =================================================================

``stock`` and ``reserved`` are the quantities in the books, ``on_shelf`` is the warehouse's count. Goods are promised by
the books; they can be sent only if they are on the shelf.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saga_runtime import PermanentError, StepCall, Write
from saga_runtime.saga_log.write import Refusal

ITEM = "item"
ORDER = "order"
SHIPMENT = "shipment"


class UnknownItem(PermanentError):
    """The shop does not sell this."""


class OutOfStock(PermanentError):
    """Fewer are free than were ordered."""


class NotOnShelf(PermanentError):
    """The books have the goods, and the shelf is empty: breakage, theft, a miscount."""


def goods_key(sku: str) -> dict[str, Any]:
    """Key of goods."""
    return {"id": {"S": f"goods#{sku}"}, "entry": {"S": ITEM}}


@dataclass(frozen=True, slots=True)
class Shop:
    """Builds the writes of a step.

    Attributes:
        table: name of the shop's table.
    """

    table: str

    @classmethod
    def from_env(cls) -> Shop:
        """The shop that the function's environment names."""
        return cls(os.environ["SHOP_TABLE"])

    def reserve(self, call: StepCall, lines: Sequence[Mapping[str, Any]]) -> list[Write]:
        """Free goods become reserved; refused when fewer are free."""
        return self._move(
            call, lines, "reserved", "stock = stock - :n, reserved = reserved + :n", "stock >= :n", _out_of_stock
        )

    def release(self, call: StepCall, lines: Sequence[Mapping[str, Any]]) -> list[Write]:
        """Reserved goods become free again. Never refused: they were reserved by the step that is undone."""
        return self._move(
            call, lines, "released", "stock = stock + :n, reserved = reserved - :n", "attribute_exists(id)", None
        )

    def sell(self, call: StepCall, lines: Sequence[Mapping[str, Any]]) -> list[Write]:
        """Reserved goods leave the shelf; refused when they are not there."""
        condition = "reserved >= :n AND on_shelf >= :n"
        return self._move(
            call, lines, "sold", "reserved = reserved - :n, on_shelf = on_shelf - :n", condition, _not_on_shelf
        )

    def order(self, call: StepCall, *, customer: str, lines: Sequence[Mapping[str, Any]], charge: str) -> Write:
        """The order, under the saga's id: one request is one order."""
        return self._document(
            call, ORDER, {"customer": customer, "lines": json.dumps(lines), "charge": charge, "step_key": call.key}
        )

    def shipment(self, call: StepCall, lines: Sequence[Mapping[str, Any]]) -> Write:
        """Return the write of what is to be sent."""
        return self._document(call, SHIPMENT, {"lines": json.dumps(lines), "step_key": call.key})

    def _move(
        self,
        call: StepCall,
        lines: Sequence[Mapping[str, Any]],
        kind: str,
        change: str,
        condition: str,
        refusal: Any,
    ) -> list[Write]:
        writes: list[Write] = []
        for line in lines:
            number = {"N": str(line["quantity"])}
            update = {
                "TableName": self.table,
                "Key": goods_key(line["sku"]),
                "UpdateExpression": f"SET {change}",
                "ConditionExpression": condition,
                "ExpressionAttributeValues": {":n": number},
            }
            movement = {
                "TableName": self.table,
                "Item": {
                    "id": goods_key(line["sku"])["id"],
                    "entry": {"S": call.key},
                    "kind": {"S": kind},
                    "quantity": number,
                },
            }
            refuse: Refusal | None = refusal(line["sku"]) if refusal else None
            writes += [Write(action={"Update": update}, refusal=refuse), Write(action={"Put": movement})]
        return writes

    def _document(self, call: StepCall, entry: str, texts: Mapping[str, str]) -> Write:
        key = {"id": {"S": f"order#{call.saga_id}"}, "entry": {"S": entry}}
        values = {name: {"S": text} for name, text in texts.items()}
        return Write(action={"Put": {"TableName": self.table, "Item": {**key, **values}}})


def _out_of_stock(sku: str) -> Refusal:
    return lambda _: OutOfStock(f"{sku} is out of stock")


def _not_on_shelf(sku: str) -> Refusal:
    return lambda _: NotOnShelf(f"{sku} is not on its shelf")
