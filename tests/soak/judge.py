"""True if a machine could have decided about a saga that is parked in front of a person."""

from __future__ import annotations

from saga_runtime.idempotency.identity import provider_key_of, step_key_of
from saga_runtime.protocol import StepStatus

from .wishes import Example
from .world import World

_LABEL = "ShippingLabel"
_IN_DOUBT = frozenset({StepStatus.INTENT.value, StepStatus.UNDOING.value})


def why_decidable(world: World, example: Example, saga_id: str) -> str | None:
    """Why it need not have been parked; None if only a person can decide.

    In these examples a machine can always decide but for one case: a parcel that the driver has taken along, of a saga
    that goes back. Its label cannot be voided any more, and the carrier says so. Everything else is decided by a row,
    or by whoever knows: each provider here tells what became of a key, and ends by itself what nobody works at.
    """
    if example is not Example.CARTS:
        return "its steps are decided by their rows, or by what the provider says of their keys"
    statuses = world.carts.statuses(saga_id)
    key = provider_key_of(step_key_of(saga_id, _LABEL))
    labels = [job for job in world.providers["carrier"].jobs() if job.key == key and job.kind == "label"]
    on_its_way = any(label.status == "in_transit" for label in labels)
    others = {step: status for step, status in statuses.items() if step != _LABEL and status in _IN_DOUBT}
    if on_its_way and statuses.get(_LABEL) not in {None, StepStatus.UNDONE.value} and not others:
        return None
    return f"the providers say what became of {sorted(others) or 'every step'}; its rows are {statuses}"
