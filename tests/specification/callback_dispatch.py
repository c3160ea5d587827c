"""Model of the callback step: the dispatcher. What it does about the rows that it finds, and about the provider."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.specification.callback_conditions import CallbackCondition as C
from tests.specification.callback_conditions import CallbackPromise
from tests.specification.callback_receipt import Receipts
from tests.specification.callback_world import (
    LONG_DEAD,
    Alias,
    At,
    Dispatcher,
    Log,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatchers(Conditional):
    """Invocations of the dispatcher.

    Attributes:
        receipts: writes and deliveries of outcomes.
        repeats: whether a job may be dispatched again, because the provider knows its key. Else it is queried first.
        declines: whether the provider may decline a job.
        blunt: whether the provider, when queried, denies an undecided job.
        doubled: whether the queue may deliver a message to two at once.
    """

    receipts: Receipts
    repeats: bool = False
    declines: bool = True
    blunt: bool = False
    doubled: bool = False

    def moves(self, world: World) -> Moves:
        """Next moves of invocations."""
        begun = False
        for index, each in enumerate(world.dispatchers):
            if each.at is At.IDLE:
                if not begun:
                    begun = True
                    yield from self._begins(world, index)
                continue
            if each.sent:
                yield from self._arrives_late(world, index, each)
            if each.at is not At.OVER:
                yield Move(f"{_who(index)} dies, {each.at}", world.with_dispatcher(index, _over(each)), fault=True)
                yield from self._goes_on(world, index, each)

    def _begins(self, world: World, index: int) -> Moves:
        for message in sorted(world.queue):
            handled = any(each.message == message and each.at not in {At.IDLE, At.OVER} for each in world.dispatchers)
            if not handled or self.doubled:
                for move in self._looks(world, index, Dispatcher(message=message)):
                    yield replace(move, fault=True) if handled else move

    def _become(self, world: World, index: int, label: str, then: Dispatcher) -> Move[World]:
        return Move(f"{_who(index)} {label}", world.with_dispatcher(index, then))

    def _deletes(self, world: World, index: int, label: str, each: Dispatcher) -> Moves:
        """The last thing that it does: its message goes; or it stays, and comes again."""
        stays = self._become(world, index, f"{label}, and dies", _over(each))
        yield replace(stays, fault=True)
        gone = replace(world, queue=world.queue - {each.message})
        yield self._become(gone, index, f"{label}, and is done", _over(each))

    def _settles(self, world: World, index: int, label: str, each: Dispatcher) -> Moves:
        """Moves after a receipt."""
        if world.token.status is TokenStatus.DELIVERING:
            yield self._become(world, index, label, Dispatcher(At.SEND, each.message, tells=world.token.order))
        else:
            yield from self._deletes(world, index, label, each)

    def _goes_on(self, world: World, index: int, each: Dispatcher) -> Moves:
        match each.at:
            case At.REGISTER:
                yield from self._registers(world, index, each)
            case At.APPLY:
                after = self.receipts.received(world, ok=True)
                yield from self._settles(after, index, "writes that it happened", each)
            case At.TAKE_OVER:
                yield from self._takes_over(world, index, each)
            case At.CALL:
                yield from self._calls(world, index, each)
            case At.REFUSE:
                after = self.receipts.received(world, ok=False)
                yield from self._settles(after, index, "writes that it was refused", each)
            case At.ALIAS:
                yield self._writes_alias(world, index, each)
            case At.HAND_OVER:
                yield from self._hands_over(world, index, each)
            case At.ACCEPT:
                yield from self._accepted(world, index, each)
            case At.SEND | At.SENT | At.REFUSED | At.LATE_LEFT:
                yield from self._tells(world, index, each)

    # -- the rows ---------------------------------------------------------------------------------------------------

    def _looks(self, world: World, index: int, each: Dispatcher) -> Moves:
        """The log row: INTENT if no row exists; an existing row decides."""
        status, which = world.row.status, f"takes message {each.message}"
        mine = replace(each, at=At.REGISTER, read=index, decisive=True)
        if status is Log.NONE:
            after = replace(world, row=Row(Log.INTENT, index)) if self.holds(C.INTENT_FIRST) else world
            first = mine if self.holds(C.REGISTER_FIRST) else replace(mine, at=At.CALL)
            yield self._become(after, index, f"{which}, and writes INTENT", first)
        elif status is Log.INTENT or (status in {Log.DONE, Log.FAILED} and not self.holds(C.ANSWERS_FROM_THE_ROW)):
            yield self._become(world, index, f"{which}, and finds {status}", replace(each, at=At.REGISTER))
        else:
            yield from self._answers(world, index, which, each)

    def _answers(self, world: World, index: int, label: str, each: Dispatcher) -> Moves:
        """The log row has decided: the outcome is delivered at once; that no task waits is written down."""
        row, order = world.row, each.message
        label = f"{label}, and answers from {row.status}"
        if not world.saga.waits_for(order):
            if self.holds(C.DIRECT_ANSWER_UNPARKS):
                gone = replace(each, at=At.REFUSED)
                yield self._become(world, index, f"{label}: attempt {order} is gone", gone)
            else:
                yield from self._deletes(world, index, f"{label}: attempt {order} is gone", each)
        elif row.status is Log.DONE or self._refused(row):
            after, _ = self.receipts.tell(world, order, ok=row.status is Log.DONE)
            yield from self._deletes(after, index, label, each)
        else:
            after = replace(world, saga=replace(world.saga, at=SagaAt.GAVE_UP))
            for move in self._deletes(after, index, f"{label}: fenced", each):
                yield replace(move, breaks=CallbackPromise.OWNER_GAVE_UP)

    def _registers(self, world: World, index: int, each: Dispatcher) -> Moves:
        """The token row: the newest task is recorded, whatever the row's state."""
        token, mine = world.token, each.message
        waiting = replace(world, token=Token(TokenStatus.WAITING, mine))
        newer = mine > token.order
        if token.status is TokenStatus.NONE:
            yield from self._registered(waiting, index, "registers its token", each)
        elif token.status is TokenStatus.WAITING:
            replaces = newer and self.holds(C.NEWER_REPLACES)
            if replaces or (mine < token.order and not self.holds(C.OLDER_CHANGES_NOTHING)):
                yield from self._registered(waiting, index, f"replaces token {token.order}", each)
            elif mine == token.order:
                yield from self._registered(world, index, f"keeps token {token.order}", each)
            else:
                yield from self._deletes(world, index, f"keeps token {token.order}", each)
        elif not newer:
            yield from self._deletes(world, index, f"finds {token.status} of no older token", each)
        elif self.holds(C.EARLY_ANSWERS if token.status is TokenStatus.EARLY else C.OUTCOME_ANSWERS):
            yield self._answered_before(world, index, each)
        else:
            yield from self._registered(waiting, index, f"covers {token.status}", each)

    def _answered_before(self, world: World, index: int, each: Dispatcher) -> Move[World]:
        """The outcome is known: the newer token receives the current outcome of the log row."""
        row, mine = world.row, each.message
        settling = replace(world, token=Token(TokenStatus.DELIVERING, mine, row.status is Log.DONE))
        label = f"finds {world.token.status}, and takes the answer"
        move = self._become(settling, index, label, Dispatcher(At.SEND, mine, tells=mine))
        fenced = row.status is not Log.DONE and not self._refused(row)
        return replace(move, breaks=CallbackPromise.OWNER_GAVE_UP) if fenced and world.saga.waits_for(mine) else move

    def _refused(self, row: Row) -> bool:
        return row.status is Log.FAILED or (row.refused and self.holds(C.REFUSAL_STAYS))

    def _registered(self, world: World, index: int, label: str, each: Dispatcher) -> Moves:
        if each.called:
            yield from self._deletes(world, index, label, each)
        elif each.read == index:
            yield self._become(world, index, label, replace(each, at=At.CALL))
        else:
            yield from self._decides(world, index, label, each)

    def _tells(self, world: World, index: int, each: Dispatcher) -> Moves:
        if each.at is At.SEND:
            after, told = self.receipts.tell(world, each.tells, ok=world.token.ok)
            then = replace(each, at=At.SENT if told else At.REFUSED)
            label = f"delivers to attempt {each.tells}" if told else f"finds attempt {each.tells} gone"
            yield self._become(after, index, label, then)
        elif each.at is At.SENT:
            yield from self._deletes(self.receipts.write_told(world, each.tells), index, "writes SETTLED", each)
        elif each.at is At.REFUSED and not self.holds(C.LATE_AS_READ):
            read = replace(each, at=At.LATE_LEFT, parked=world.saga.at is SagaAt.PARKED)
            yield self._become(world, index, "reads the record", read)
        else:
            parked = each.parked if each.at is At.LATE_LEFT else None
            if not each.tells:
                after = self.receipts.nobody_waited(world, parked=parked)
                yield from self._deletes(after, index, "writes that no task waited", each)
                return
            after, newer = self.receipts.write_late(world, each.tells, parked=parked)
            if newer:
                again = replace(each, at=At.SEND, tells=newer, parked=False)
                yield self._become(after, index, f"finds the token of attempt {newer}", again)
            else:
                yield from self._deletes(after, index, "writes LATE", each)

    # -- the provider -----------------------------------------------------------------------------------------------

    def _decides(self, world: World, index: int, label: str, each: Dispatcher) -> Moves:
        """INTENT of another attempt: wait for it, query the job, or dispatch it again."""
        row = world.row
        if row.status is not Log.INTENT:
            yield self._become(world, index, f"{label}, and leaves the rest to another try", _over(each))
            return
        found = replace(each, at=At.TAKE_OVER, read=row.attempt, decisive=True)
        if row.accepted and self.holds(C.ACCEPTED_IS_NOT_CALLED):
            if row.accepted == world.token.order:
                yield from self._deletes(world, index, f"{label}, and finds it accepted", each)
            else:
                yield from self._asks(world, index, label, found)
            return
        holder = world.dispatchers[row.attempt] if row.attempt != LONG_DEAD else Dispatcher()
        alive = row.attempt != LONG_DEAD and holder.at is not At.OVER
        too_early = holder.sent and not self.repeats and self.holds(C.GRACE_WAITS)
        if (alive and self.holds(C.ALIVE_WAITS)) or too_early:
            yield self._become(world, index, f"{label}, and leaves the job to who has it", _over(each))
        elif self.repeats:
            again = replace(found, decisive=not holder.sent)
            yield self._become(world, index, f"{label}, and goes to dispatch it again", again)
        else:
            yield from self._asks(world, index, label, found)

    def _asks(self, world: World, index: int, label: str, found: Dispatcher) -> Moves:
        """The provider's response is of that time; the write comes later."""
        provider = world.provider
        if provider.applied:
            applies = replace(found, at=At.APPLY)
            yield self._become(world, index, f"{label}, and hears that it happened", applies)
        elif provider.pending and not self.blunt and self.holds(C.PENDING_WAITS):
            if self.receipts.own_ids and self.holds(C.PENDING_TELLS_ID):
                hears = replace(found, at=At.ALIAS, decisive=False)
                yield self._become(world, index, f"{label}, and hears that it is at work, under which id", hears)
                return
            accepted = replace(world, row=replace(world.row, accepted=world.token.order))
            yield from self._deletes(accepted, index, f"{label}, and hears that it is at work", found)
        else:
            yield self._become(world, index, f"{label}, and hears that it did not happen", found)

    def _takes_over(self, world: World, index: int, each: Dispatcher) -> Moves:
        row = world.row
        if row.status is Log.INTENT and (row.attempt == each.read or not self.holds(C.TAKE_OVER_HELD)):
            taken = replace(world, row=Row(Log.INTENT, index, refused=row.refused))
            yield self._become(taken, index, "takes over", replace(each, at=At.CALL))
        else:
            yield self._become(world, index, "is too late to take over", _over(each))

    def _knows(self, world: World) -> bool:
        return self.repeats and world.provider.knows

    def _arrived(self, world: World) -> World:
        if self._knows(world):
            return world
        return replace(world, provider=replace(world.provider, pending=min(world.provider.pending + 1, 2)))

    def _arrives_late(self, world: World, index: int, each: Dispatcher) -> Moves:
        over = replace(each, sent=False)
        yield self._become(self._arrived(world), index, "is dead, and its request arrives", over)
        yield replace(self._become(world, index, "is dead, and its request is lost", over), fault=True)

    def _calls(self, world: World, index: int, each: Dispatcher) -> Moves:
        called = replace(each, called=True, read=index)
        at = At.ALIAS if self.receipts.own_ids else At.ACCEPT
        yield self._become(self._arrived(world), index, "hands the job over", replace(called, at=at))
        no_answer = Dispatcher(At.OVER, sent=True)
        yield replace(self._become(world, index, "hands the job over, and dies", no_answer), fault=True)
        # A function that raises an error of its own has died, to the rows.
        if each.decisive and not self.holds(C.DECLARED_REFUSAL):
            taken = self._become(self._arrived(world), index, "hands the job over, and its function raises", called)
            yield replace(taken, state=taken.state.with_dispatcher(index, replace(called, at=At.REFUSE)), fault=True)
        if self.declines and not self._knows(world):
            counts = each.decisive or not self.holds(C.REFUSAL_DECISIVE)
            refused = replace(called, at=At.REFUSE) if counts else _over(each)
            yield replace(self._become(world, index, "hands the job over, and is refused", refused), fault=True)

    def _accepted(self, world: World, index: int, each: Dispatcher) -> Moves:
        own = world.row.status is Log.INTENT and world.row.attempt == each.read
        after = replace(world, row=replace(world.row, accepted=world.token.order or each.message)) if own else world
        if self.holds(C.REGISTER_FIRST):
            yield from self._deletes(after, index, "writes that it is accepted", each)
        else:
            yield self._become(after, index, "writes that it is accepted", replace(each, at=At.REGISTER))

    # -- the provider's own id --------------------------------------------------------------------------------------

    def _writes_alias(self, world: World, index: int, each: Dispatcher) -> Move[World]:
        if world.alias.outcomes and self.holds(C.ALIAS_ABSENT):
            at = At.HAND_OVER if self.holds(C.ALIAS_HANDS_OVER) else At.ACCEPT
            found = Alias.NONE if self.holds(C.ADOPTED_AS_READ) or at is At.ACCEPT else world.alias
            return self._become(world, index, "finds what came before", replace(each, at=at, found=found))
        return self._become(replace(world, alias=Alias.KNOWN), index, "writes the alias", replace(each, at=At.ACCEPT))

    def _hands_over(self, world: World, index: int, each: Dispatcher) -> Moves:
        """The success, and with it what contradicts it, which changes no row."""
        outcomes = world.alias.outcomes if self.holds(C.ADOPTED_AS_READ) else each.found.outcomes
        first, *second = sorted(outcomes, reverse=True) if self.holds(C.SUCCESS_FIRST) else outcomes
        left = Alias.KNOWN
        if second and not self.holds(C.ADOPTED_TOGETHER):
            left = Alias.OK_LEFT if second[0] else Alias.FAIL_LEFT
        after = self.receipts.received(world, ok=first)
        if left is Alias.KNOWN:
            turned = replace(after, alias=left)
            yield from self._settles(turned, index, "adopts it, and writes the alias", each)
        else:
            yield self._become(replace(after, alias=left), index, "adopts the first one", each)


def _who(index: int) -> str:
    return f"dispatcher {'ABCDEF'[index]}"


def _over(each: Dispatcher) -> Dispatcher:
    return Dispatcher(At.OVER, sent=each.sent)
