"""Price the cart, check the stock, and decide whether it needs an approval. Reads, and changes nothing."""

from __future__ import annotations

import os
from typing import Any

from saga_runtime import Invalid, StepCall, read_only_step
from saga_runtime.shared import clock

from .shop import OutOfStock, Shop, lines_of

shop = Shop.from_env()
REVIEW_FROM = int(os.environ["REVIEW_FROM"])
"""Amount in minor units from which on a cart needs an approval."""


@read_only_step
def price(call: StepCall) -> dict[str, Any]:
    """Price the cart, or refuse it with the reason. Recorded: it is paid for at this price."""
    lines = lines_of(call)
    if len({line["sku"] for line in lines}) != len(lines):
        raise Invalid("list each item once in a cart, with its quantity")
    amount, currencies = 0, set()
    for line in lines:
        goods = shop.read(line["sku"])
        if goods.free(clock.now_ms()) < line["quantity"]:
            raise OutOfStock(f"{line['sku']} is out of stock")
        amount += int(goods.item["price"]["N"]) * line["quantity"]
        currencies.add(goods.item["currency"]["S"])
    if len(currencies) != 1:
        raise Invalid("the items of a cart are sold in one currency")
    currency = currencies.pop()
    if "coupon" in call.request:
        amount -= shop.coupon_off(call.request["coupon"], amount, currency)
    return {"amount": str(amount), "currency": currency}


@read_only_step
def assess(call: StepCall) -> dict[str, Any]:
    """Test whether the cart needs an approval. Recorded: a recovery must not decide otherwise."""
    return {"review": int(call.outputs["PriceCart"]["amount"]) >= REVIEW_FROM}
