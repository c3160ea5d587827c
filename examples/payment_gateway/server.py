"""The gateway's HTTP side.

POST /charges                Idempotency-Key, {"amount", "currency", "card", "reference"}   201, 402
POST /refunds                Idempotency-Key, {"charge", "amount", "reference"}             201, 404
GET  /charges?key=…          what was charged under a key, and whether a request is in work 200
GET  /refunds?key=…          likewise                                                       200
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from constructs_lib.testing.providers.server import FakeProviderServer, Request
from examples.payment_gateway.books import Answer, BookKeeper
from examples.payment_gateway.troubles import Action, Operation, Trouble

_OPERATIONS: Final = {
    ("POST", "/charges"): Operation.CHARGE,
    ("POST", "/refunds"): Operation.REFUND,
    ("GET", "/charges"): Operation.FIND_CHARGE,
    ("GET", "/refunds"): Operation.FIND_REFUND,
}


class GatewayServer(FakeProviderServer[Operation, Trouble, BookKeeper]):
    """The gateway."""

    def __init__(self, port: int, *, keeper: BookKeeper, speed: float, spare: Collection[int] = ()) -> None:
        super().__init__(port, keeper=keeper, trouble=Trouble, speed=speed, spare=spare)

    def operation_of(self, method: str, path: str) -> tuple[Operation, str] | None:
        """The operation of a request."""
        operation = _OPERATIONS.get((method, path))
        return None if operation is None else (operation, "")

    def run(self, request: Request[Operation, Trouble]) -> Answer:
        """Charge, refund, or look up."""
        if not request.operation.acts:
            return self.keeper.find(request.operation, request.key)
        if request.operation is Operation.CHARGE:
            declined = request.trouble is not None and request.trouble.action is Action.DECLINE
            return self.keeper.charge(request.key, request.body, decline=declined)
        return self.keeper.refund(request.key, request.body)
