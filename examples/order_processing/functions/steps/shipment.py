"""Have the goods sent."""

from __future__ import annotations

from saga_runtime import Commit, StepCall, atomic_step

from .shop import Shop

shop = Shop.from_env()


@atomic_step
def create(call: StepCall) -> Commit:
    """Write down what is to be sent: the warehouse reads it."""
    lines = [{"sku": line["sku"], "quantity": line["quantity"]} for line in call.request["items"]]
    return Commit(writes=[shop.shipment(call, lines)], output={"shipment": call.provider_key})
