"""Workloads of a simulated stack: clients' intents, providers, and invariants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from constructs_lib.testing.invariants import Invariant, Item

if TYPE_CHECKING:
    from constructs_lib.testing.simulator.outside.providers import Provider
    from constructs_lib.testing.simulator.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One thing that a client wants, once.

    Attributes:
        operation: the operation's name.
        body: the request's body.
        user: who wants it.
        other_body: what the client may send under the same key by mistake; None: it does not.
        key: its idempotency key; made for it if it has none.
        wait: seconds for which the client prefers to wait for the response; 0: it does not send ``Prefer``.
    """

    operation: str
    body: Mapping[str, Any]
    user: str = "alice"
    other_body: Mapping[str, Any] | None = None
    key: str | None = field(default=None)
    wait: int = 0


class Workload:
    """Workload of a stack. Derive from it; ``intent`` is all that has to be there.

    Example:
        ```python
        class Transfers(Workload):
            def intent(self, number: int, random: Random) -> Intent:
                return Intent(operation="transfers", body={"from": "a", "to": "b", "amount": 1, "currency": "EUR"})
        ```
    """

    def prepare(self, world: World, random: Random) -> None:
        """Put into the tables what has to be there first."""

    def intent(self, number: int, random: Random) -> Intent:
        """Return what the next client wants.

        Args:
            number: of the intent in its run, from 0 on.
            random: what it may be drawn from.
        """
        raise NotImplementedError

    def providers(self, world: World, random: Random) -> Mapping[str, Provider]:
        """Providers that functions call, by the beginning of their URLs."""
        del world, random
        return {}

    patience: timedelta = timedelta(days=2)
    """Virtual time after the last fault, and the last client, within which every saga must have ended."""

    def has_sent(self, world: World) -> bool:
        """True if nothing but clients, which ``intent`` draws, will send anything to the stack."""
        del world
        return True

    def environment(self, function: str) -> Mapping[str, str]:
        """Environment variables of a function that differ from those of the stack, such as a provider's address."""
        del function
        return {}

    def find_out(self, world: World, row: Item) -> bool | None:
        """Find out as an operator about a step that a saga is parked over.

        Args:
            world: where the saga is.
            row: the step's row; ``UNDOING``: it is about the step's undo.

        Returns:
            Whether the step, or its undo, was applied, by the provider or by the operator's own hand; None: that
            cannot be found out yet.
        """
        del world, row
        return None

    def audit(self, world: World) -> Iterable[Invariant]:
        """Check invariants of the ended sagas, in addition to the promise."""
        del world
        return ()
