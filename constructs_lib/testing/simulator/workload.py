"""Workloads of a simulated stack: clients' intents, providers, and invariants."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
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
        stack: name of the stack whose API it is sent to; None: APIs of one stack have the operation.
    """

    operation: str
    body: Mapping[str, Any]
    user: str = "alice"
    other_body: Mapping[str, Any] | None = None
    key: str | None = field(default=None)
    wait: int = 0
    stack: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be sent.

        Raises:
            ValueError: naming the argument and its value.
        """
        for name in ("operation", "user", "key", "stack"):
            value: Any = getattr(self, name)
            if not (value is None and name in ("key", "stack")) and not (isinstance(value, str) and value.strip()):
                raise ValueError(f"{name} of an Intent must be text, got {value!r}")
        for name in ("body", "other_body"):
            value = getattr(self, name)
            if not (value is None and name == "other_body") and not isinstance(value, Mapping):
                raise ValueError(f"{name} of an Intent must be a JSON object, got {value!r}; pass a dict")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of one intent, after everything has ended.

    Attributes:
        intent: what the client wanted.
        key: the idempotency key that it was sent under.
        saga_id: of its saga; None: no saga was begun for it.
        completed: whether it was done; None: no record and no response has it. Then nothing may have been done, unless
            the operation's key is in the body: such a record is found by the response only.
        status: of the settled response that the client received; None: it received none.
        body: of the same response.
        unexplained: error and step of a failure that no step declares, ``StepFailed in Charge``; None: it has none.
    """

    intent: Intent
    key: str
    saga_id: str | None
    completed: bool | None
    status: int | None = None
    body: str | None = None
    unexplained: str | None = None


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
    """Virtual time after the last fault within which everything must have ended; the finding names what has not."""

    unrecorded: Collection[str] = ()
    """Operations of whose requests none is to be recorded: each is refused, in a test of validation, for example.

    Of any other operation, at least one request must be done, or refused by a step, or ``require_kept`` and each proof
    fail: a function that always raises an error that its step does not declare proves nothing.
    """

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
            row: the step's row; ``COMPENSATING``: it is about the step's undo; ``REFUSED``: False has the step called
                again, of a saga that cannot continue without it.

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

    def audit_results(self, world: World, results: Sequence[Result]) -> Iterable[Invariant]:
        """Check what each request must have resulted in, by the request and by whether it was completed.

        Args:
            world: everything that exists.
            results: of every intent, in order. Intents of one user, operation and key are one request.
        """
        del world, results
        return ()


def require_workload(workload: Any) -> None:
    """Refuse anything but a workload, and what it cannot state.

    Raises:
        ValueError: naming what was given.
    """
    if not isinstance(workload, Workload):
        raise ValueError(f"workload must be a Workload, got {workload!r}; derive a class from Workload")
    if getattr(workload.intent, "__func__", None) is Workload.intent:
        raise ValueError(f"workload must have an intent, got {workload!r}; write intent(number, random) in its class")
    names: Any = workload.unrecorded
    if isinstance(names, str) or not isinstance(names, Collection) or not all(isinstance(one, str) for one in names):
        raise ValueError(f"unrecorded must be names of operations, got {names!r}; ('transfers',) is one")


def intent_of(workload: Workload, number: int, random: Random) -> Intent:
    """Ask a workload for an intent.

    Raises:
        ValueError: for another answer.
    """
    given: Any = workload.intent(number, random)
    if not isinstance(given, Intent):
        raise _wrong(workload, "intent", "an Intent", given, "return Intent(operation=…, body=…)")
    return given


def providers_of(workload: Workload, world: World, random: Random) -> Mapping[str, Provider]:
    """Ask a workload for its providers.

    Raises:
        ValueError: for another answer.
    """
    given: Any = workload.providers(world, random)
    if not isinstance(given, Mapping):
        raise _wrong(workload, "providers", "providers by URL", given, "return {'https://bank.example': …}")
    for url, provider in given.items():
        if not isinstance(url, str) or not callable(getattr(provider, "handle", None)):
            what = "the beginning of a URL with a provider"
            raise _wrong(workload, "providers", what, {url: provider}, "a provider has the method handle(request)")
    return given


def audit_of(workload: Workload, world: World) -> list[Invariant]:
    """Let a workload check invariants.

    Raises:
        ValueError: for another answer.
    """
    return _invariants(workload, "audit", workload.audit(world))


def audit_results_of(workload: Workload, world: World, results: Sequence[Result]) -> list[Invariant]:
    """Let a workload check results.

    Raises:
        ValueError: for another answer.
    """
    return _invariants(workload, "audit_results", workload.audit_results(world, results))


def _invariants(workload: Workload, method: str, given: Any) -> list[Invariant]:
    if not isinstance(given, Iterable):
        raise _wrong(workload, method, "invariants", given, "return a list, or yield each of them")
    found = list(given)
    for one in found:
        if not isinstance(one, Invariant):
            raise _wrong(workload, method, "invariants", one, "write Invariant(name=…, checked=…, violations=(…))")
    return found


def _wrong(workload: Workload, method: str, wanted: str, given: Any, remedy: str) -> ValueError:
    if isinstance(given, Coroutine):
        given.close()
        remedy = "write def, not async def"
    return ValueError(f"{method} of {type(workload).__name__} must return {wanted}, got {given!r}; {remedy}")


class Wrapped(Workload):
    """Another workload, of which a subclass changes a part.

    Args:
        workload: answers every question that the subclass does not.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.patience = workload.patience
        self.unrecorded = workload.unrecorded

    def prepare(self, world: World, random: Random) -> None:
        """Prepare as the other workload does."""
        self._workload.prepare(world, random)

    def intent(self, number: int, random: Random) -> Intent:
        """Return the other workload's intent."""
        return intent_of(self._workload, number, random)

    def providers(self, world: World, random: Random) -> Mapping[str, Provider]:
        """Return the other workload's providers."""
        return providers_of(self._workload, world, random)

    def has_sent(self, world: World) -> bool:
        """Ask the other workload."""
        return self._workload.has_sent(world)

    def environment(self, function: str) -> Mapping[str, str]:
        """Return the other workload's changes."""
        return self._workload.environment(function)

    def find_out(self, world: World, row: Item) -> bool | None:
        """Find out as the other workload's operator does."""
        return self._workload.find_out(world, row)

    def audit(self, world: World) -> Iterable[Invariant]:
        """Check the other workload's invariants."""
        return audit_of(self._workload, world)

    def audit_results(self, world: World, results: Sequence[Result]) -> Iterable[Invariant]:
        """Check the other workload's results."""
        return audit_results_of(self._workload, world, results)
