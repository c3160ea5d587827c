"""Model of the callback step: what there is, and what a receipt makes of it.

A message is named by the attempt whose token it carries; attempts are numbered by their age. A dispatcher's invocation
is a place that the next one takes when nothing of the last is left: no request of it travels, and its deadline and the
grace behind that are over.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.states import replace

NOBODY: Final = -1
LONG_DEAD: Final = -2
"""An attempt of which nothing can arrive any more."""
CHAIN: Final = -3
"""The compensation that runs in the saga's own chain, as the holder of a row."""
LATE_UNDO: Final = -4
"""The execution that compensates late effects, likewise."""


class Log(StrEnum):
    """States of the log row."""

    NONE = "no row"
    INTENT = "INTENT"
    DONE = "DONE"
    FAILED = "FAILED"
    TOMBSTONE = "TOMBSTONE"
    COMPENSATING = "COMPENSATING"
    COMPENSATED = "COMPENSATED"
    APPLIED_LATE = "APPLIED_LATE"


NOTHING_STANDS: Final = frozenset({Log.FAILED, Log.TOMBSTONE, Log.COMPENSATED})


@dataclass(frozen=True, slots=True)
class Row:
    """The log row.

    Attributes:
        status: its state.
        attempt: its holder while it is in doubt.
        accepted: the attempt for which the provider was last known to have the job; 0 for none.
        refused: whether it keeps a refusal, whatever its later states.
    """

    status: Log = Log.NONE
    attempt: int = NOBODY
    accepted: int = 0
    refused: bool = False

    def become(self, status: Log) -> Row:
        """The row in a state without a holder; a kept refusal stays."""
        return Row(status, refused=self.refused or status is Log.FAILED)


class TokenStatus(StrEnum):
    """States of the token row."""

    NONE = "no row"
    WAITING = "WAITING"
    EARLY = "EARLY"
    DELIVERING = "DELIVERING"
    DELIVERED = "DELIVERED"
    UNDELIVERED = "UNDELIVERED"


@dataclass(frozen=True, slots=True)
class Token:
    """The token row.

    Attributes:
        status: its state.
        order: number of the attempt whose token it holds, or held.
        ok: the outcome, where there is one.
    """

    status: TokenStatus = TokenStatus.NONE
    order: int = 0
    ok: bool = False


class Alias(StrEnum):
    """States of the row under the provider's own id."""

    NONE = "no row"
    EARLY_OK = "EARLY, a success"
    EARLY_FAIL = "EARLY, a failure"
    OK_THEN_FAIL = "EARLY, a success, contradicted"
    FAIL_THEN_OK = "EARLY, a failure, contradicted"
    KNOWN = "ALIAS"
    OK_LEFT = "ALIAS, a success is left"
    FAIL_LEFT = "ALIAS, a failure is left"

    @property
    def known(self) -> bool:
        """True if the row determines the job."""
        return self in {Alias.KNOWN, Alias.OK_LEFT, Alias.FAIL_LEFT}

    @property
    def outcomes(self) -> tuple[bool, ...]:
        """Outcomes of the row, in their order: True for a success."""
        return _OUTCOMES[self]


_OUTCOMES: Final = {
    Alias.NONE: (),
    Alias.EARLY_OK: (True,),
    Alias.EARLY_FAIL: (False,),
    Alias.OK_THEN_FAIL: (True, False),
    Alias.FAIL_THEN_OK: (False, True),
    Alias.KNOWN: (),
    Alias.OK_LEFT: (True,),
    Alias.FAIL_LEFT: (False,),
}


class Event(StrEnum):
    """Reports of a provider, each under an event id of its own."""

    OK = "success"
    OK_AGAIN = "success, once more"
    FAIL = "failure"

    @property
    def ok(self) -> bool:
        """True if it reports a success."""
        return self is not Event.FAIL


@dataclass(frozen=True, slots=True)
class Provider:
    """The provider and its books.

    Attributes:
        pending: jobs that it has accepted and not decided.
        failed: whether it ever decided against one.
        applied: number of applied effects; counted to two.
        voided: number of compensated effects; counted to two.
        said: reports that it ever sent.
        travelling: reports in transit, repeated until they are acknowledged.
    """

    pending: int = 0
    failed: bool = False
    applied: int = 0
    voided: int = 0
    said: frozenset[Event] = frozenset()
    travelling: frozenset[Event] = frozenset()

    @property
    def stands(self) -> bool:
        """True if an effect is applied."""
        return self.applied > self.voided

    @property
    def knows(self) -> bool:
        """True if the job's key was ever used."""
        return bool(self.pending or self.applied or self.failed)


class At(StrEnum):
    """States of an invocation of the dispatcher, a receiver or a sender."""

    IDLE = "idle"
    REGISTER = "about to register its token"
    APPLY = "about to write down that it happened"
    TAKE_OVER = "about to take over"
    CALL = "about to hand the job over"
    REFUSE = "about to write down the refusal"
    ALIAS = "about to write the provider's id"
    HAND_OVER = "about to adopt an outcome under the provider's id"
    ACCEPT = "about to write that it is accepted"
    OVER = "over"
    """It has answered, or died; something that it sent may be on its way."""
    WRITE = "about to write what follows from what it read"
    ROWS_LEFT = "marker written, rows not yet"
    DUE_LEFT = "rows written, not yet due"
    SEND = "about to send"
    SENT = "about to write SETTLED"
    REFUSED = "about to write that no task waited"
    LATE_LEFT = "record read, the undelivered outcome not written yet"


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """One invocation of the dispatcher.

    Attributes:
        at: its state.
        message: the attempt whose message it handles.
        read: the attempt that it found in the row.
        decisive: whether a refusal of its request is final.
        called: whether it has dispatched the job.
        sent: whether its request is in transit, and it does not wait for the response any more.
        tells: the attempt to which it delivers by the token row; 0: its own message's, by the log row.
        parked: whether it read that the saga is parked, where its write does not check that.
        found: what it read under the provider's own id, likewise.
    """

    at: At = At.IDLE
    message: int = 0
    read: int = NOBODY
    decisive: bool = False
    called: bool = False
    sent: bool = False
    tells: int = 0
    parked: bool = False
    found: Alias = Alias.NONE


@dataclass(frozen=True, slots=True, order=True)
class Receiver:
    """One invocation of a receiver, or of the sweeper.

    Attributes:
        at: its state.
        event: the report that it handles; empty for the sweeper.
        order: number of the attempt to which it delivers.
        read: what it read before, where its write does not check that.
        parked: whether it read that the saga is parked, likewise.
    """

    at: At = At.IDLE
    event: Event | str = ""
    order: int = 0
    read: tuple[str, ...] = ()
    parked: bool = False


class SagaAt(StrEnum):
    """States of the saga."""

    WAIT = "waiting"
    REFUSED = "received the failure"
    ONWARD = "behind the step"
    UNDO = "about to undo the step"
    VOID = "holding the row, about to ask for the undo"
    VOIDED = "undone at the provider, row not yet"
    ASK = "about to ask the log"
    SETTLE = "about to settle FAILED"
    PARKING = "about to park"
    PARKED = "parked"
    STANDS = "about to park because of the log"
    PARKED_OVER_LOG = "parked because of the log"
    DUE = "not parked, to be recovered"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    GAVE_UP = "ended without an interruption, neither settled nor parked"


@dataclass(frozen=True, slots=True)
class Saga:
    """The saga's execution: one at a time, whatever its owner.

    Attributes:
        at: its state.
        attempt: number of its last wait.
        back: whether it was decided that it compensates.
        passed: whether the step was skipped.
        answered: whether the record has an undelivered outcome.
    """

    at: SagaAt = SagaAt.WAIT
    attempt: int = 1
    back: bool = False
    passed: bool = False
    answered: bool = False

    def waits_for(self, attempt: int) -> bool:
        """True if a task of this number waits."""
        return self.at is SagaAt.WAIT and self.attempt == attempt


@dataclass(frozen=True, slots=True)
class World:
    """The whole state.

    Attributes:
        saga: the saga.
        row: the step's log row.
        token: the token row.
        provider: the provider.
        queue: attempts whose messages are in the queue.
        due: whether the token row has a late effect.
        alias: the row under the provider's own id.
        markers: reports that were received.
        dispatchers: invocations of the dispatcher.
        receivers: invocations of receivers and of the sweeper.
        late: state of the execution that compensates late effects; idle without one.
    """

    saga: Saga
    row: Row
    token: Token
    provider: Provider
    queue: frozenset[int]
    dispatchers: tuple[Dispatcher, ...]
    receivers: tuple[Receiver, ...]
    due: bool = False
    alias: Alias = Alias.NONE
    markers: frozenset[Event] = frozenset()
    late: SagaAt | None = None

    def with_dispatcher(self, index: int, then: Dispatcher) -> World:
        """The world with one invocation of the dispatcher changed."""
        return replace(self, dispatchers=(*self.dispatchers[:index], then, *self.dispatchers[index + 1 :]))

    def with_receiver(self, index: int, then: Receiver) -> World:
        """The world with one receiver changed. They are alike, so they are kept in order."""
        others = (*self.receivers[:index], *self.receivers[index + 1 :])
        return replace(self, receivers=tuple(sorted((*others, then), key=_place)))


def _place(receiver: Receiver) -> tuple[str, str, int, tuple[str, ...], bool]:
    return receiver.at, receiver.event, receiver.order, receiver.read, receiver.parked


_USES_WHAT_IT_READ: Final = frozenset({At.REGISTER, At.TAKE_OVER, At.ALIAS, At.HAND_OVER, At.ACCEPT})


def tidy(world: World) -> World:
    """Free the places of invocations of which nothing is left; a row that names one names a dead attempt."""
    free = [n for n, each in enumerate(world.dispatchers) if each.at is At.OVER and not each.sent]
    stale = [n for n, each in enumerate(world.dispatchers) if each.read != NOBODY and each.at not in _USES_WHAT_IT_READ]
    if not free and not stale:
        return world
    places = [
        Dispatcher() if n in free else replace(each, read=NOBODY) if n in stale else each
        for n, each in enumerate(world.dispatchers)
    ]
    row = world.row
    if row.attempt in free:
        # A reader of an earlier, dead attempt must not take this one for it.
        places = [replace(p, read=NOBODY) if p.read == LONG_DEAD else p for p in places]
        row = replace(row, attempt=LONG_DEAD)
    places = [
        replace(p, read=LONG_DEAD if world.row.attempt == p.read else NOBODY) if p.read in free else p for p in places
    ]
    return replace(world, dispatchers=tuple(places), row=row)
