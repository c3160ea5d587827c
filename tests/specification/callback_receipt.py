"""Model of the callback step: receiving a provider's reports, and delivering them to waiting tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.specification.callback_conditions import CallbackCondition as C
from tests.specification.callback_world import (
    Alias,
    At,
    Event,
    Log,
    Receiver,
    Row,
    SagaAt,
    Token,
    TokenStatus,
    World,
)
from tests.specification.checker import Move
from tests.specification.conditions import Conditional
from tests.specification.states import replace

Moves = Iterator[Move[World]]

_ENDED = frozenset({SagaAt.COMPLETED, SagaAt.FAILED, SagaAt.GAVE_UP})


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipts(Conditional):
    """Receivers of every kind, and the sweeper.

    Attributes:
        own_ids: whether the provider reports under an id of its own.
        one_id: whether the provider uses one event id for all that it reports.
    """

    own_ids: bool = False
    one_id: bool = False

    # -- what a receipt writes --------------------------------------------------------------------------------------

    def token_after(self, token: Token, *, ok: bool) -> Token:
        """The token row when there is an outcome to deliver."""
        if token.status is TokenStatus.WAITING:
            return Token(TokenStatus.DELIVERING, token.order, ok)
        if token.status is TokenStatus.NONE and self.holds(C.EARLY_IS_KEPT):
            return Token(TokenStatus.EARLY, 0, ok)
        return token

    def row_after(self, row: Row, *, ok: bool) -> Row:
        """The log row after an outcome."""
        status = row.status
        if not ok:
            fails = status in {Log.NONE, Log.INTENT} or (status is Log.DONE and not self.holds(C.DONE_STAYS))
            return row.become(Log.FAILED) if fails else row
        if status in {Log.NONE, Log.INTENT}:
            return row.become(Log.DONE)
        late = (
            (status is Log.TOMBSTONE and self.holds(C.LATE_ON_TOMBSTONE))
            or (status is Log.FAILED and self.holds(C.LATE_ON_FAILED))
            or (status is Log.COMPENSATED and not self.holds(C.UNDONE_STAYS))
        )
        return row.become(Log.APPLIED_LATE) if late else row

    def received(self, world: World, *, ok: bool, token: Token | None = None, row: Row | None = None) -> World:
        """The transaction: both rows, and that something is due. Of what was read, where that is not checked."""
        token_read, row_read = token or world.token, row or world.row
        row_then = self.row_after(row_read, ok=ok)
        told = row_then.status is Log.DONE if self.holds(C.TOLD_BY_THE_ROW) else ok
        token_then = self.token_after(token_read, ok=told)
        token_now = world.token if token_then == token_read else token_then
        row_now = world.row if row_then == row_read else row_then
        after = replace(world, token=token_now, row=row_now)
        if (
            row_now.status is Log.APPLIED_LATE
            and world.row.status is not Log.APPLIED_LATE
            and self.holds(C.DUE_WITH_IT)
        ):
            return replace(after, due=True)
        return after

    # -- delivery ---------------------------------------------------------------------------------------------------

    def tell(self, world: World, order: int, *, ok: bool) -> tuple[World, bool]:
        """``SendTaskSuccess`` or ``SendTaskFailure``: the world after it, and whether anybody waited."""
        if not world.saga.waits_for(order):
            return world, False
        at = SagaAt.ONWARD if ok else SagaAt.REFUSED
        return replace(world, saga=replace(world.saga, at=at)), True

    def write_told(self, world: World, order: int) -> World:
        """DELIVERING becomes SETTLED."""
        token = world.token
        held = token.order == order or not self.holds(C.SETTLED_HELD)
        if token.status is TokenStatus.DELIVERING and held:
            return replace(world, token=replace(token, status=TokenStatus.DELIVERED))
        return world

    def write_late(self, world: World, order: int, *, parked: bool | None = None) -> tuple[World, int]:
        """DELIVERING becomes LATE; or else the number of the newer token that must receive the outcome; 0 for none.

        `parked` is the record's state as read, where the write does not check it.
        """
        token = world.token
        if token.status is not TokenStatus.DELIVERING:
            return world, 0
        if token.order == order or not self.holds(C.LATE_HELD):
            late = replace(world, token=replace(token, status=TokenStatus.UNDELIVERED))
            return self.nobody_waited(late, parked=parked), 0
        return world, token.order if self.holds(C.NEWER_IS_TOLD) else 0

    def nobody_waited(self, world: World, *, parked: bool | None = None) -> World:
        """The record after an undelivered outcome: the saga is due, and must not be parked before it continued."""
        saga = world.saga
        if saga.at in _ENDED:
            return world
        unparks = saga.at is SagaAt.PARKED and parked is not False and self.holds(C.ANSWER_UNPARKS)
        return replace(world, saga=replace(saga, answered=True, at=SagaAt.DUE if unparks else saga.at))

    # -- receivers --------------------------------------------------------------------------------------------------

    def moves(self, world: World) -> Moves:
        """Moves of receivers and the sweeper."""
        seen: set[Receiver] = set()
        for index, receiver in enumerate(world.receivers):
            if receiver in seen:
                continue
            seen.add(receiver)
            if receiver.at is At.IDLE:
                yield from self._begins(world, index)
                continue
            yield Move("a receiver dies", world.with_receiver(index, Receiver()), fault=True)
            yield from self._goes_on(world, index, receiver)

    def _begins(self, world: World, index: int) -> Moves:
        for event in sorted(world.provider.travelling):
            if any(other.event == event for other in world.receivers):
                continue
            yield from self._receives(world, index, event)
        token = world.token
        if token.status is TokenStatus.DELIVERING and self.holds(C.SWEEPER_SENDS):
            sends = Receiver(At.SEND, "", token.order)
            yield Move("the sweeper finds DELIVERING", world.with_receiver(index, sends))

    def _receives(self, world: World, index: int, event: Event) -> Moves:
        known = not self.own_ids or world.alias.known
        marker = self._marker(event)
        if marker in world.markers:
            yield self._again(world, index, event, known=known)
        elif not known:
            yield Move(f"{event} comes under an unknown id", self._stored(world, event))
        elif not self.holds(C.ONE_RECEIPT):
            marked = replace(world, markers=world.markers | {marker})
            yield Move(f"the marker of {event}", marked.with_receiver(index, Receiver(At.ROWS_LEFT, event)))
        elif not self.holds(C.AS_READ):
            read = (world.token.status, str(world.token.order), str(world.token.ok), world.row.status)
            yield Move(f"{event}: reads both rows", world.with_receiver(index, Receiver(At.WRITE, event, 0, read)))
        else:
            marked = replace(self.received(world, ok=event.ok), markers=world.markers | {marker})
            yield self._written(world, marked, index, event)

    def _marker(self, event: Event) -> Event:
        """Common part of two reports, by which the second one is recognized as a duplicate."""
        if not self.one_id:
            return event
        return Event.FAIL if not event.ok and self.holds(C.MARKER_OF_OUTCOME) else Event.OK

    def _written(self, before: World, after: World, index: int, event: Event) -> Move[World]:
        label = f"{event} is received: {_changes(before, after)}"
        if after.row.status is Log.APPLIED_LATE and before.row.status is not Log.APPLIED_LATE and not after.due:
            return Move(label, after.with_receiver(index, Receiver(At.DUE_LEFT, event)))
        return Move(label, self._then(after, index, event))

    def _then(self, world: World, index: int, event: Event | str) -> World:
        """Next state after a receipt: delivery, or an acknowledgement at once."""
        if world.token.status is TokenStatus.DELIVERING:
            return world.with_receiver(index, Receiver(At.SEND, event, world.token.order))
        return _acknowledged(world, event).with_receiver(index, Receiver())

    def _again(self, world: World, index: int, event: Event, *, known: bool) -> Move[World]:
        if known and self.holds(C.DUPLICATE_SENDS):
            return Move(f"{event} comes again", self._then(world, index, event))
        return Move(f"{event} comes again", _acknowledged(world, event))

    def _stored(self, world: World, event: Event) -> World:
        """A report under an unknown id: one that conflicts with an earlier one is kept in addition."""
        alias = world.alias
        if alias is Alias.NONE:
            alias = Alias.EARLY_OK if event.ok else Alias.EARLY_FAIL
        elif alias is Alias.EARLY_OK and not event.ok and self.holds(C.ALIAS_KEEPS_BOTH):
            alias = Alias.OK_THEN_FAIL
        elif alias is Alias.EARLY_FAIL and event.ok and self.holds(C.ALIAS_KEEPS_BOTH):
            alias = Alias.FAIL_THEN_OK
        return replace(_acknowledged(world, event), alias=alias, markers=world.markers | {self._marker(event)})

    def _goes_on(self, world: World, index: int, receiver: Receiver) -> Moves:
        event = receiver.event
        if receiver.at is At.SEND:
            after, told = self.tell(world, receiver.order, ok=world.token.ok)
            then = replace(receiver, at=At.SENT if told else At.REFUSED)
            word = "receives it" if told else "does not wait any more"
            yield Move(f"attempt {receiver.order} {word}", after.with_receiver(index, then))
        elif receiver.at is At.SENT:
            after = _acknowledged(self.write_told(world, receiver.order), event)
            yield Move("a receiver writes SETTLED", after.with_receiver(index, Receiver()))
        elif receiver.at is At.REFUSED:
            if not self.holds(C.LATE_AS_READ):
                read = replace(receiver, at=At.LATE_LEFT, parked=world.saga.at is SagaAt.PARKED)
                yield Move("a receiver reads the record", world.with_receiver(index, read))
                return
            yield self._writes_late(world, index, receiver)
        elif receiver.at is At.LATE_LEFT:
            yield self._writes_late(world, index, receiver, parked=receiver.parked)
        elif isinstance(event, Event):
            yield self._writes(world, index, receiver, event)

    def _writes_late(self, world: World, index: int, receiver: Receiver, *, parked: bool | None = None) -> Move[World]:
        after, newer = self.write_late(world, receiver.order, parked=parked)
        if newer:
            again = Receiver(At.SEND, receiver.event, newer)
            return Move(f"a receiver finds the token of attempt {newer}", after.with_receiver(index, again))
        acknowledged = _acknowledged(after, receiver.event)
        return Move("a receiver writes LATE", acknowledged.with_receiver(index, Receiver()))

    def _writes(self, world: World, index: int, receiver: Receiver, event: Event) -> Move[World]:
        """The second half of a receipt that is not one."""
        if receiver.at is At.ROWS_LEFT:
            return self._written(world, self.received(world, ok=event.ok), index, event)
        if receiver.at is At.DUE_LEFT:
            due = replace(world, due=True)
            return Move("a receiver writes that it is due", self._then(due, index, event))
        status, order, ok, log = receiver.read
        token = Token(TokenStatus(status), int(order), ok == "True")
        after = self.received(world, ok=event.ok, token=token, row=replace(world.row, status=Log(log)))
        return self._written(world, replace(after, markers=world.markers | {self._marker(event)}), index, event)


def _acknowledged(world: World, event: Event | str) -> World:
    provider = world.provider
    return replace(world, provider=replace(provider, travelling=provider.travelling - {event}))


def _changes(before: World, after: World) -> str:
    changes = []
    if before.token != after.token:
        changes.append(f"token {after.token.status}")
    if before.row != after.row:
        changes.append(f"log {after.row.status}")
    return ", ".join(changes) or "nothing changes"
