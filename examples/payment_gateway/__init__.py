"""A payment gateway to test against: a process of its own, real HTTP, books of its own, and trouble on demand.

Shared by the examples. It is not part of the library and is never deployed: in AWS, a function's environment
holds the address of a real provider instead.
"""

from examples.payment_gateway.books import Books, Charge, ProviderRequest, Refund
from examples.payment_gateway.control import PaymentGateway
from examples.payment_gateway.troubles import Action, Moment, Operation, Trouble, TroubleReport

__all__ = [
    "Action",
    "Books",
    "Charge",
    "Moment",
    "Operation",
    "PaymentGateway",
    "ProviderRequest",
    "Refund",
    "Trouble",
    "TroubleReport",
]
