"""Model: one callback step. A saga waits, a dispatcher submits the job to a provider, and the provider reports.

It reports at any time: before a task waits, twice, after the wait timed out, after the saga has ended. Two rows decide:
the token row about the waiting task and its outcome, the log row about the effect. No component knows of another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tests.specification.callback_conditions import CallbackPromise
from tests.specification.callback_dispatch import Dispatchers
from tests.specification.callback_receipt import Receipts
from tests.specification.callback_saga import Sagas
from tests.specification.callback_world import (
    Dispatcher,
    Event,
    Log,
    Provider,
    Receiver,
    Row,
    Saga,
    SagaAt,
    Token,
    TokenStatus,
    World,
    tidy,
)
from tests.specification.checker import Move
from tests.specification.conditions import Conditional
from tests.specification.states import replace

Moves = Iterator[Move[World]]


@dataclass(frozen=True, kw_only=True)
class CallbackStepModel(Conditional):
    """The model.

    Attributes:
        attempts: maximum number of waits for the step.
        dispatchers: number of concurrent invocations of the dispatcher.
        receivers: number of receivers, the sweeper included.
        repeats: whether the provider acts once per key, and the job may be dispatched again.
        own_ids: whether it reports under ids of its own.
        declines: whether it may decide against a job.
        one_id: whether it uses one event id for all its reports.
        twice: whether it reports a success twice, under two event ids.
        relents: whether it may do a job that it had refused.
        stale: whether it may report the refusal of a job that it did.
        blunt: whether it denies an undecided job, when queried.
        doubled: whether the queue delivers messages to two at once.
        passes: whether the saga skips a refused step.
        only_forward: whether the step is after the pivot.
        goes_back: whether a later step may make the saga compensate.
    """

    attempts: int = 2
    dispatchers: int = 2
    receivers: int = 1
    repeats: bool = False
    own_ids: bool = False
    one_id: bool = False
    declines: bool = True
    twice: bool = False
    relents: bool = False
    stale: bool = False
    blunt: bool = False
    doubled: bool = False
    passes: bool = False
    only_forward: bool = False
    goes_back: bool = False

    def initial(self) -> World:
        """The saga waits, and its message is in the queue."""
        return World(
            Saga(),
            Row(),
            Token(),
            Provider(),
            frozenset({1}),
            (Dispatcher(),) * self.dispatchers,
            (Receiver(),) * self.receivers,
        )

    def at_rest(self, world: World) -> bool:
        """Everybody has heard everything, and the saga is settled, or waits for a person with reason."""
        provider, row = world.provider, world.row
        quiet = (
            not provider.travelling
            and not provider.pending
            and world.late is None
            and world.token.status is not TokenStatus.DELIVERING
            and not any(each.sent for each in world.dispatchers)
            and not (world.alias.known and world.alias.outcomes)
        )
        if not quiet or row.status in {Log.APPLIED_LATE, Log.COMPENSATING}:
            return False
        match world.saga.at:
            case SagaAt.COMPLETED:
                return provider.stands is not world.saga.passed
            case SagaAt.FAILED:
                return not provider.stands
            case SagaAt.PARKED:
                return row.status is Log.INTENT or row.refused
            case _:
                return False

    def broken(self, world: World) -> Iterator[str]:
        """Promises that the provider's books break."""
        provider = world.provider
        if provider.applied > 1:
            yield CallbackPromise.EFFECT_TWICE
        if provider.voided > 1:
            yield CallbackPromise.UNDONE_TWICE
        if provider.voided > provider.applied:
            yield CallbackPromise.UNDONE_WITHOUT_EFFECT
        if world.saga.at is SagaAt.COMPLETED and not world.saga.passed and not provider.stands:
            yield CallbackPromise.WENT_ON_WITHOUT_EFFECT

    def moves(self, world: World) -> Moves:
        """Whatever may happen next."""
        for move in self._moves(world):
            state = tidy(move.state)
            yield move if state is move.state else replace(move, state=state)

    def _moves(self, world: World) -> Moves:
        yield from self._sagas.moves(world)
        yield from self._dispatchers.moves(world)
        yield from self._receipts.moves(world)
        yield from self._provider(world)

    @cached_property
    def _receipts(self) -> Receipts:
        return Receipts(off=self.off, own_ids=self.own_ids, one_id=self.one_id)

    @cached_property
    def _dispatchers(self) -> Dispatchers:
        return Dispatchers(
            off=self.off,
            receipts=self._receipts,
            repeats=self.repeats,
            declines=self.declines,
            blunt=self.blunt,
            doubled=self.doubled,
        )

    @cached_property
    def _sagas(self) -> Sagas:
        return Sagas(
            off=self.off,
            attempts=self.attempts,
            passes=self.passes,
            only_forward=self.only_forward,
            blunt=self.blunt,
            goes_back=self.goes_back,
        )

    def _provider(self, world: World) -> Moves:
        provider = world.provider
        if provider.pending:
            left = replace(provider, pending=provider.pending - 1)
            yield _reports(world, _applies(left), "does the job")
            if self.declines:
                yield _reports(world, (replace(left, failed=True), Event.FAIL), "decides against the job")
        if self.twice and provider.said == {Event.OK}:
            yield _reports(world, (provider, Event.OK_AGAIN), "reports once more", fault=True)
        if self.relents and provider.said == {Event.FAIL} and not provider.pending:
            yield _reports(world, _applies(provider), "does the job after all", fault=True)
        if self.stale and provider.said == {Event.OK} and not provider.pending:
            yield _reports(world, (provider, Event.FAIL), "reports a refusal that is long over", fault=True)


def _applies(provider: Provider) -> tuple[Provider, Event]:
    event = Event.OK_AGAIN if Event.OK in provider.said else Event.OK
    return replace(provider, applied=min(provider.applied + 1, 2)), event


def _reports(world: World, done: tuple[Provider, Event], label: str, *, fault: bool = False) -> Move[World]:
    provider, event = done
    said = replace(provider, said=provider.said | {event}, travelling=provider.travelling | {event})
    return Move(f"the provider {label}: {event}", replace(world, provider=said), fault=fault)
