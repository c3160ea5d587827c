"""Hold goods for the cart, release them, sell them, put them back, and mark the order as shipped."""

from __future__ import annotations

import os
from typing import Any

from saga_runtime import Commit, StepCall, atomic_step, compensation

from .shop import Shop, lines_of

shop = Shop.from_env()


@atomic_step
def reserve(call: StepCall) -> Commit:
    """Hold every item of the cart, or none, for as long as paying and reviewing may take."""
    review = call.outputs["AssessRisk"]["review"]
    seconds = int(os.environ["HOLD_SECONDS_REVIEWED" if review else "HOLD_SECONDS"])
    until_ms = call.now_ms + seconds * 1000
    return Commit(writes=shop.hold(call, lines_of(call), until_ms=until_ms), output={"until": str(until_ms)})


@compensation
def release(call: StepCall, _reserved: dict[str, Any]) -> Commit:
    """Let go what is held."""
    return Commit(writes=shop.let_go(call, lines_of(call)))


@atomic_step
def commit(call: StepCall) -> Commit:
    """Sell what is held, and write the order."""
    lines, payment = lines_of(call), call.outputs["AuthorizePayment"]
    order = shop.order(
        call, lines, customer=call.request["customer"], address=call.request["address"], payment=payment["payment"]
    )
    return Commit(writes=[*shop.sell(call, lines), order], output={"order": call.saga_id})


@compensation
def cancel(call: StepCall, _committed: dict[str, Any]) -> Commit:
    """The order is canceled, and the goods are in stock again."""
    return Commit(writes=[*shop.put_back(call, lines_of(call)), shop.mark(call, "CANCELED")])


@atomic_step
def ship(call: StepCall) -> Commit:
    """The parcel is with the carrier, and the order is on its way: from here on, the saga only goes forward."""
    tracking = call.outputs["ShippingLabel"]["tracking"]
    return Commit(writes=[shop.mark(call, "SHIPPED", tracking=tracking)], output={"tracking": tracking})
