"""Reserve goods, release them, and take them off the shelf when they are paid for."""

from __future__ import annotations

from typing import Any

from saga_runtime import Commit, StepCall, atomic_step, compensation

from .shop import Shop

shop = Shop.from_env()


def _lines(call: StepCall) -> list[dict[str, Any]]:
    return [{"sku": line["sku"], "quantity": line["quantity"]} for line in call.request["items"]]


@atomic_step
def reserve(call: StepCall) -> Commit:
    """Reserve every item of the order, or none. Between two orders for the last one, this decides."""
    lines = _lines(call)
    return Commit(writes=shop.reserve(call, lines), output={"lines": lines})


@compensation
def release(call: StepCall, reserved: dict[str, Any]) -> Commit:
    """Make free again what was reserved."""
    return Commit(writes=shop.release(call, reserved["lines"]))


@atomic_step
def update(call: StepCall) -> Commit:
    """Take the goods off the shelf, and write the order. From here on, the saga only goes forward."""
    lines = _lines(call)
    charge = call.outputs["ProcessPayment"]["charge"]
    order = shop.order(call, customer=call.request["customer"], lines=lines, charge=charge)
    return Commit(writes=[*shop.sell(call, lines), order], output={"order": call.saga_id})
