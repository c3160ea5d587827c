"""Judgement of parked sagas: whether they could have been decided automatically."""

from __future__ import annotations

from saga_runtime.idempotency.identity import provider_key_of, step_key_of
from saga_runtime.protocol import StepStatus

from .wishes import Example
from .world import World

_LABEL = "ShippingLabel"
_IN_DOUBT = frozenset({StepStatus.INTENT, StepStatus.COMPENSATING})


def why_decidable(world: World, example: Example, saga_id: str) -> str | None:
    """Reason why a saga need not have been parked; None if it needs an operator.

    In these examples every outcome can be determined automatically, with one exception: a parcel that the driver has
    taken along, of a saga that compensates. Its label cannot be voided any more, and the carrier reports so. Everything
    else is decided by a row, or by its provider: each provider here reports the outcome of a key, and ends idle jobs.
    """
    if example is not Example.CARTS:
        return "its steps are decided by their rows, or by the provider's outcomes of their keys"
    statuses = world.carts.statuses(saga_id)
    key = provider_key_of(step_key_of(saga_id, _LABEL))
    labels = [job for job in world.providers["carrier"].jobs() if job.key == key and job.kind == "label"]
    on_its_way = any(label.status == "in_transit" for label in labels)
    others = {step: status for step, status in statuses.items() if step != _LABEL and status in _IN_DOUBT}
    if on_its_way and statuses.get(_LABEL) not in {None, StepStatus.COMPENSATED} and not others:
        return None
    return f"the providers know the outcome of {sorted(others) or 'every step'}; its rows are {statuses}"
