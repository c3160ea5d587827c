"""Actors of a simulation: invocations, executions, clients, operators and providers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from constructs_lib.testing.simulator.engine.kernel import Process


class ActorKind(StrEnum):
    """Kind of an actor, which decides what may go wrong with its calls.

    Attributes:
        FUNCTION: an invocation of a function: it can be killed, held and cut off.
        MACHINE: an execution of a state machine: its calls fail, itself does not die.
        SERVICE: a service that delivers (a rule, an event source mapping, API Gateway).
        OUTSIDE: a client, an operator or a provider.
    """

    FUNCTION = "function"
    MACHINE = "machine"
    SERVICE = "service"
    OUTSIDE = "outside"


@dataclass(frozen=True, slots=True)
class Request:
    """A call of AWS on its way: service, operation and parameters."""

    service: str
    operation: str
    params: Mapping[str, Any]


NO_CHAIN: Final[Mapping[str, int]] = {}
"""Chain of what no invocation has sent."""


class Actor(Process):
    """A process with an identity.

    Attributes:
        kind: what it is.
        of: name of the function or the state machine that it is an instance of; of everything else, its own name.
        role: name of the role that signs its calls; None: it may do everything.
        environment: its environment variables.
        travelling: its request that is on its way, and may still arrive when its sender is dead.
        sent: when its last request was sent.
        scheduled: whether a schedule began it: its writes alone do not speed the schedule up.
        chain: how often each function was invoked in the chain of requests that it continues, itself included.
    """

    __slots__ = ("chain", "environment", "kind", "of", "role", "scheduled", "sent", "travelling")

    def __init__(
        self,
        name: str,
        kind: ActorKind,
        *,
        of: str | None = None,
        role: str | None = None,
        environment: MutableMapping[str, str] | None = None,
        skew: int = 0,
        on_enter: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(name, skew=skew, on_enter=on_enter)
        self.kind = kind
        self.of = of or name
        self.role = role
        self.environment: MutableMapping[str, str] = environment if environment is not None else {}
        self.travelling: Request | None = None
        self.sent: int | None = None
        self.scheduled = False
        self.chain = NO_CHAIN

    @property
    def must_succeed(self) -> bool:
        """True if an exception of it ends the run: that of a client, a provider or an operator does."""
        return self.kind is ActorKind.OUTSIDE
