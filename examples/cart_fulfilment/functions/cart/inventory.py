"""Hold goods for the cart, release them, sell them, put them back, and mark the order as shipped."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from saga_runtime import Commit, Outbox, StepCall, Write, atomic_step, compensation

from .shop import ISSUED, USED, Shop, lines_of

shop = Shop.from_env()
outbox = Outbox.from_env()


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
    """Sell what is held, redeem the coupon, write the order, and have its event published."""
    lines, payment = lines_of(call), call.outputs["AuthorizePayment"]
    texts = {name: call.request[name] for name in ("customer", "address", "coupon") if name in call.request}
    order = shop.order(call, lines, payment=payment["payment"], **texts)
    placed = outbox.event(
        call, "OrderPlaced", {"order": call.saga_id, "customer": call.request["customer"], "items": lines}
    )
    writes, output = [*shop.sell(call, lines), order, placed], {"order": call.saga_id}
    if "coupon" in call.request:
        redeemed, version = shop.redeem(call, call.request["coupon"])
        writes += redeemed
        output["coupon_version"] = str(version)
    return Commit(writes=writes, output=output)


@compensation
def cancel(call: StepCall, committed: dict[str, Any]) -> Commit:
    """Cancel the order, put the goods back into stock, give the coupon back, and have the event published."""
    cancelled = outbox.event(call, "OrderCancelled", {"order": call.saga_id, "customer": call.request["customer"]})
    writes = [*shop.put_back(call, lines_of(call)), shop.mark(call, "CANCELED"), cancelled]
    return Commit(writes=[*writes, *_coupon(call, committed, ISSUED)])


@atomic_step
def ship(call: StepCall) -> Commit:
    """The parcel is with the carrier, and the order is on its way: from here on, the saga only goes forward."""
    tracking = call.outputs["ShippingLabel"]["tracking"]
    used = _coupon(call, call.outputs.get("CommitOrder", {}), USED)
    return Commit(writes=[shop.mark(call, "SHIPPED", tracking=tracking), *used], output={"tracking": tracking})


def _coupon(call: StepCall, committed: Mapping[str, Any], state: str) -> list[Write]:
    """End the coupon that the order redeemed, if it has one."""
    if "coupon_version" not in committed:
        return []
    return shop.end_coupon(call, call.request["coupon"], state, int(committed["coupon_version"]))
