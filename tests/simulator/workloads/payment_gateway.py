"""The examples' payment gateway inside a simulation: its own books and rules, and trouble drawn from the seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from constructs_lib.testing import ProviderEffect
from constructs_lib.testing.simulator import Event, Future, ProviderAnswer, ProviderRequest, World
from examples.payment_gateway.books import Answer, BookKeeper, Charge, Refund
from examples.payment_gateway.troubles import Operation

_WINDOW_MS: Final = 24 * 3_600_000
_OPERATIONS: Final = {
    ("POST", "/charges"): Operation.CHARGE,
    ("POST", "/refunds"): Operation.REFUND,
    ("GET", "/charges"): Operation.FIND_CHARGE,
    ("GET", "/refunds"): Operation.FIND_REFUND,
}


class SimulatedGateway:
    """A payment gateway.

    Args:
        world: whose time and trouble it has.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._keeper = BookKeeper(Path(":memory:"), window_ms=_WINDOW_MS, now_ms=lambda: world.kernel.now // 1_000)

    def handle(self, request: ProviderRequest) -> ProviderAnswer | Future[ProviderAnswer]:
        """Charge, refund, or look up."""
        operation = _OPERATIONS[request.method, request.path]
        if not operation.acts:
            return _sent(self._keeper.find(operation, request.query["key"]))
        key, body = request.headers["idempotency-key"], request.json()
        known = self._keeper.claim(operation, key, body)
        if known is not None:
            return _sent(known)
        if not self._world.weather.happens(Event.PROVIDER_LATE, "payments"):
            return _sent(self._move(operation, key, body))
        # It takes its time: a query meanwhile returns that it is in progress.
        later: Future[ProviderAnswer] = Future(self._world.kernel)
        self._world.kernel.after(
            self._world.weather.travel(), lambda: later.set(_sent(self._move(operation, key, body)))
        )
        return later

    def effects(self) -> list[ProviderEffect]:
        """Everything that moved money."""
        charges, refunds = self._rows("charges", Charge), self._rows("refunds", Refund)
        return [
            *(ProviderEffect(key=charge.key, amount=charge.amount) for charge in charges if charge.succeeded),
            *(ProviderEffect(key=refund.key, amount=refund.amount) for refund in refunds),
        ]

    def _move(self, operation: Operation, key: str, body: Any) -> Answer:
        if operation is Operation.CHARGE:
            return self._keeper.charge(key, body, decline=False)
        return self._keeper.refund(key, body)

    def _rows(self, table: str, kind: Any) -> list[Any]:
        rows = self._keeper._database.execute(f"SELECT * FROM {table} ORDER BY rowid")
        return [kind(**row) for row in rows]


def _sent(answer: Answer) -> ProviderAnswer:
    return ProviderAnswer(status=answer.status, document=dict(answer.document))
