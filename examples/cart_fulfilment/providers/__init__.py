"""A payment provider, a warehouse and a carrier to test against: processes of their own that answer by webhook.

Real HTTP, books in SQLite, idempotency keys, signatures, redeliveries, and trouble on demand. Nothing is deployed.
"""

from examples.cart_fulfilment.providers.books import Delivery, Effect, Job, ProviderRequest
from examples.cart_fulfilment.providers.control import Provider, ProviderStartError
from examples.cart_fulfilment.providers.troubles import Action, Moment, Trouble, TroubleReport

__all__ = [
    "Action",
    "Delivery",
    "Effect",
    "Job",
    "Moment",
    "Provider",
    "ProviderRequest",
    "ProviderStartError",
    "Trouble",
    "TroubleReport",
]
