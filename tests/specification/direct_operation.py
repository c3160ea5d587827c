"""Model: a direct operation under one key. One transaction: the request's record, settled, and the writes.

Invocations of one key come as often as they like, several at once, now and then with another body, and, while a deploy
changes the operation, at the gatekeeper of a saga, too. An invocation may die at any moment; what it sent then travels,
and arrives later or never. Anybody may bring or take the money that decides whether the writes are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

RECORD: Final = "lambda_src/saga_runtime/idempotency/record.py"
DIRECT: Final = "lambda_src/saga_runtime/http/direct_operation.py"
HTTP_OPERATION: Final = "lambda_src/saga_runtime/http/operation.py"
TRANSACTION: Final = "lambda_src/saga_runtime/saga_log/transaction.py"
OPERATION: Final = "constructs_lib/api/direct_operation.py"
MACHINE: Final = "constructs_lib/saga/state_machine.py"


class DirectCondition(Condition):
    """Conditions of direct operations."""

    RECORD_IS_CONDITIONAL = Because(
        "the record is written where there was none before: of one key, one transaction takes effect",
        RECORD,
        "**_where_free(record.now_ms),",
    )
    WRITES_WITH_RECORD = Because(
        "the writes never take effect without the record", DIRECT, 'return {"Put": put}, wanted.writes'
    )
    RECORD_WITH_WRITES = Because(
        "the record never reports what the writes did not do",
        TRANSACTION,
        "return [first, *(write.action for write in planned)]",
    )
    FORGOTTEN_BY_TIME = Because(
        "a settled record answers duplicates until its key is forgotten", RECORD, "#expiration <= :now_seconds"
    )
    REMEMBERED_FOR_LONGER = Because(
        "a key is remembered for longer than any request of it can travel",
        OPERATION,
        "if self.requests.remember_seconds < _LONGEST_SENDER_SECONDS:",
    )
    MET_OTHER_BODY = Because(
        "a key answers only for the request that it was first used for", RECORD, "record.fingerprint != fingerprint"
    )
    REFUSAL_IS_STORED = Because(
        "a final refusal takes the key: nothing moves behind it",
        DIRECT,
        'refused = writes.write({"Put": self._put(keyed, RecordStatus.FAILED, status, body)}, retry=retry)',
    )
    REFUSAL_IS_CONDITIONAL = Because(
        "a refusal that meets a record is answered by it: the record may be of its own success",
        DIRECT,
        "return self.meet(keyed, RequestRecord.from_item(refused.item or {}))",
    )
    REFUSAL_LOOKS = Because(
        "an open refusal reads the record first: an earlier attempt may have taken the money",
        DIRECT,
        "found = read_record(self._config.common.request_table, keyed.request_id)",
    )
    TOKEN_PER_CALL = Because(
        "a token that outlives the record would answer success where nothing was written",
        "lambda_src/saga_runtime/shared/writes.py",
        ".transact_write_items(TransactItems=list(entries))",
    )
    ONE_KEY = Because(
        "saga and direct operation of one name meet under one key, in one table",
        HTTP_OPERATION,
        "request_id=request_id_of(scope, key),",
    )
    IN_PROGRESS_IS_TAKEN = Because(
        "the key of a saga in progress is not free", RECORD, "#status IN (:completed, :failed) AND"
    )
    MACHINE_STAYS = Because(
        "a saga's state machine stays until its last saga has settled",
        MACHINE,
        "removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,",
    )
    RECORD_REFUSAL_FIRST = Because(
        "when both the record and a write refuse, the record decides",
        TRANSACTION,
        "if 0 in refused.items: return None",
    )


class DirectPromise(StrEnum):
    """Promises that must never be broken."""

    MOVED_TWICE = "MOVED_TWICE"
    TOLD_DONE_NOT_MOVED = "TOLD_DONE_NOT_MOVED"
    TWO_ANSWERS = "TWO_ANSWERS"
    REFUSED_BUT_MOVED = "REFUSED_BUT_MOVED"
    REFUSED_ALTHOUGH_MOVED = "REFUSED_ALTHOUGH_MOVED"
    ANSWER_OF_ANOTHER_REQUEST = "ANSWER_OF_ANOTHER_REQUEST"


C, P = DirectCondition, DirectPromise


class Status(StrEnum):
    """The record's."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class At(StrEnum):
    """Place of an invocation in its work."""

    IDLE = "idle"
    GATEKEEPER = "at the saga's gatekeeper"
    PLAN = "about to plan"
    SEND = "about to send its transaction"
    WRITES = "the record is written alone, the writes are not yet"
    RECORD = "the writes are made alone, the record is not yet"
    REFUSE = "about to refuse"


class Saga(StrEnum):
    """The saga behind a record in progress."""

    NONE = "none"
    RUNS = "runs"
    DONE = "its step is done"
    REFUSED = "its step was refused"


@dataclass(frozen=True, slots=True)
class Record:
    """A record: whose body, and whether the time for which its key is remembered is over."""

    status: Status
    body: str
    over: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """An invocation."""

    at: At = At.IDLE
    body: str = ""
    travels: bool = False


IDLE: Final = Place()


@dataclass(frozen=True, slots=True)
class World:
    """Everything.

    Attributes:
        records: under the key of the saga, and under that of the direct operation: the same one, unless a condition is
            left out.
        moved: how often money moved since the key was last free; more than twice is twice.
        funds: whether the writes would go through.
        done: whether a client was answered with success, since the key was last free.
        refused: likewise, with a refusal.
        machine: whether the saga's state machine is there.
        token: whether DynamoDB remembers a token of the key.
    """

    records: tuple[Record | None, Record | None]
    places: tuple[Place, ...]
    moved: int = 0
    funds: bool = True
    done: bool = False
    refused: bool = False
    saga: Saga = Saga.NONE
    machine: bool = True
    token: bool = False


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectModel(Conditional):
    """The model.

    Attributes:
        final: whether refusals are final, or leave the key open.
        places: how many invocations there are at once.
        bodies: what clients send under the key.
        saga: whether the operation is a saga's, too, before, during or after a deploy.
    """

    final: bool = True
    places: int = 2
    bodies: str = "a"
    saga: bool = False

    def initial(self) -> World:
        """Nothing was ever asked."""
        return World((None, None), (IDLE,) * self.places)

    def at_rest(self, world: World) -> bool:
        """No invocation is at work, and every saga is settled."""
        in_progress = any(record and record.status is Status.IN_PROGRESS for record in world.records)
        return all(place == IDLE for place in world.places) and not in_progress

    def broken(self, world: World) -> Iterator[str]:
        """Answers to clients must be true, of the body that is watched."""
        if world.moved > 1:
            yield P.MOVED_TWICE
        if world.done and not world.moved:
            yield P.TOLD_DONE_NOT_MOVED
        if self.final and world.done and world.refused:
            yield P.TWO_ANSWERS
        if self.final and world.refused and world.moved:
            yield P.REFUSED_BUT_MOVED

    def moves(self, world: World) -> Moves:
        """Whatever may happen next."""
        yield Move("the money comes" if not world.funds else "the money goes", replace(world, funds=not world.funds))
        for index, place in enumerate(world.places):
            if place.at is not At.IDLE:
                yield from self._invocation(world, index, place)
            elif place not in world.places[:index]:
                for body in self.bodies:
                    yield Move(f"{index} is sent {body}", _at(world, index, Place(At.PLAN, body)))
                    if self.saga:
                        gate = Place(At.GATEKEEPER, body)
                        yield Move(f"{index} is sent {body}, at the saga's gatekeeper", _at(world, index, gate))
        yield from self._saga_moves(world)
        yield from self._time(world)

    # -- the key ---------------------------------------------------------------------------------------------------

    @property
    def _mine(self) -> int:
        """Index of the direct operation's record."""
        return 0 if self.holds(C.ONE_KEY) else 1

    def _free(self, record: Record | None) -> bool:
        if record is None:
            return True
        if record.status is Status.IN_PROGRESS:
            return not self.holds(C.IN_PROGRESS_IS_TAKEN)
        return record.over or not self.holds(C.FORGOTTEN_BY_TIME)

    @staticmethod
    def _written(world: World, place: int, record: Record) -> World:
        """With this record; where it replaces one whose key is forgotten, promises begin again."""
        before = world.records[place]
        if before is not None and before.over:
            world = replace(world, moved=0, done=False, refused=False)
        saga, direct = world.records
        return replace(world, records=(record, direct) if place == 0 else (saga, record))

    # -- invocations -----------------------------------------------------------------------------------------------

    def _invocation(self, world: World, index: int, place: Place) -> Moves:
        if place.travels:
            yield Move(f"what {index} sent is lost", _at(world, index))
        else:
            yield Move(f"{index} dies", _at(world, index), fault=True)
            if place.at in {At.SEND, At.REFUSE} and (self.final or place.at is At.SEND):
                travels = _at(world, index, replace(place, travels=True))
                yield Move(f"{index} dies, and what it sent travels", travels, fault=True)
        match place.at:
            case At.GATEKEEPER:
                yield from self._gatekeeper(world, index, place)
            case At.PLAN:
                then = At.SEND if world.funds else At.REFUSE
                yield Move(f"{index} plans: {then}", _at(world, index, replace(place, at=then)))
            case At.SEND:
                yield from self._send(world, index, place)
            case At.WRITES:
                moved = _moved(world) if world.funds else world
                yield Move(f"{index} writes", self._told(moved, index, Status.COMPLETED))
            case At.RECORD:
                written = self._written(world, self._mine, Record(Status.COMPLETED, place.body))
                yield Move(f"{index} writes its record", self._told(written, index, Status.COMPLETED))
            case At.REFUSE:
                yield from self._refuse(world, index, place)

    def _gatekeeper(self, world: World, index: int, place: Place) -> Moves:
        record = world.records[0]
        if record is not None and not self._free(record):
            yield self._met(world, index, place, record)
        elif world.saga is Saga.NONE:
            reserved = self._written(world, 0, Record(Status.IN_PROGRESS, place.body))
            yield Move(f"{index} reserves, and a saga runs", replace(_at(reserved, index), saga=Saga.RUNS))

    def _send(self, world: World, index: int, place: Place) -> Moves:
        if not self.holds(C.TOKEN_PER_CALL) and world.token:
            yield from self._answered(world, index, place, Status.COMPLETED, "sends a token that is known")
            return
        if not place.travels:
            yield Move(f"{index} meets a conflict", _at(world, index, replace(place, at=At.PLAN)), fault=True)
        record = world.records[self._mine]
        if record is not None and not self._free(record) and self.holds(C.RECORD_IS_CONDITIONAL):
            yield self._met(world, index, place, record)
            if not self.holds(C.RECORD_REFUSAL_FIRST) and not world.funds and not place.travels:
                yield Move(f"{index} heeds its writes first", _at(world, index, replace(place, at=At.REFUSE)))
        elif not world.funds:
            after = IDLE if place.travels else replace(place, at=At.REFUSE)
            yield Move(f"{index}'s writes are refused", _at(world, index, after))
        elif not self.holds(C.RECORD_WITH_WRITES) and not place.travels:
            written = self._written(world, self._mine, Record(Status.COMPLETED, place.body))
            yield Move(f"{index} writes its record alone", _at(written, index, replace(place, at=At.WRITES)))
        elif not self.holds(C.WRITES_WITH_RECORD) and not place.travels:
            yield Move(f"{index} writes alone", _at(_moved(world), index, replace(place, at=At.RECORD)))
        else:
            written = self._written(world, self._mine, Record(Status.COMPLETED, place.body))
            committed = replace(_moved(written), token=not self.holds(C.TOKEN_PER_CALL))
            yield from self._answered(committed, index, place, Status.COMPLETED, "commits")

    def _refuse(self, world: World, index: int, place: Place) -> Moves:
        record = world.records[self._mine]
        taken = record is not None and not self._free(record)
        if not self.final:
            if record is not None and taken and self.holds(C.REFUSAL_LOOKS):
                yield self._met(world, index, place, record)
            else:
                wrong = P.REFUSED_ALTHOUGH_MOVED if world.moved else None
                yield Move(f"{index} refuses", self._told(world, index, Status.FAILED), breaks=wrong)
        elif not self.holds(C.REFUSAL_IS_STORED):
            refused = _at(world, index) if place.travels else self._told(world, index, Status.FAILED)
            yield Move(f"{index} refuses", refused)
        elif record is not None and taken and self.holds(C.REFUSAL_IS_CONDITIONAL):
            yield self._met(world, index, place, record)
        else:
            stored = self._written(world, self._mine, Record(Status.FAILED, place.body))
            yield from self._answered(stored, index, place, Status.FAILED, "stores its refusal")

    def _met(self, world: World, index: int, place: Place, record: Record) -> Move[World]:
        """The record that refused a write decides, in the same call."""
        if place.travels:
            return Move(f"what {index} sent is refused by the record", _at(world, index))
        if record.body != place.body and self.holds(C.MET_OTHER_BODY):
            return Move(f"{index} answers: another request has this key", _at(world, index))
        if record.status is Status.IN_PROGRESS:
            return Move(f"{index} answers: in progress", _at(world, index))
        wrong = P.ANSWER_OF_ANOTHER_REQUEST if record.body != place.body else None
        return Move(f"{index} replays {record.status}", self._told(world, index, record.status), breaks=wrong)

    def _answered(self, world: World, index: int, place: Place, status: Status, what: str) -> Moves:
        if place.travels:
            yield Move(f"what {index} sent arrives: {what}", _at(world, index))
            return
        yield Move(f"{index} {what}", self._told(world, index, status))
        again = _at(world, index, replace(place, at=At.PLAN))
        yield Move(f"{index} {what}; the answer is lost, it tries again", again, fault=True)

    def _told(self, world: World, index: int, status: Status) -> World:
        """The client has its answer. Promises are watched of the first body only."""
        watched = world.places[index].body == self.bodies[0]
        world = _at(world, index)
        if not watched:
            return world
        done = status is Status.COMPLETED
        return replace(world, done=world.done or done, refused=world.refused or not done)

    # -- the saga, and time ----------------------------------------------------------------------------------------

    def _saga_moves(self, world: World) -> Moves:
        if world.saga is Saga.NONE or not world.machine:
            return
        if world.saga is Saga.RUNS:
            if world.funds:
                yield Move("the saga's step commits", replace(_moved(world), saga=Saga.DONE))
            else:
                yield Move("the saga's step is refused", replace(world, saga=Saga.REFUSED))
            if not self.holds(C.MACHINE_STAYS):
                yield Move("a deploy removes the state machine", replace(world, machine=False), fault=True)
            return
        record, direct = world.records
        if record is not None and record.status is Status.IN_PROGRESS:
            status = Status.COMPLETED if world.saga is Saga.DONE else Status.FAILED
            record = Record(status, record.body)
        yield Move("the saga settles", replace(world, records=(record, direct), saga=Saga.NONE))

    def _time(self, world: World) -> Moves:
        if world.token:
            yield Move("DynamoDB forgets the token", replace(world, token=False))
        quiet = all(place == IDLE for place in world.places)
        for index, record in enumerate(world.records):
            if record is None or record.status is Status.IN_PROGRESS:
                continue
            if record.over:
                yield Move("DynamoDB deletes the record", _with(world, index, None), fault=True)
            elif quiet or not self.holds(C.REMEMBERED_FOR_LONGER):
                after = _with(world, index, replace(record, over=True))
                if self.holds(C.REMEMBERED_FOR_LONGER):
                    after = replace(after, moved=0, done=False, refused=False)
                yield Move("the key is forgotten", after, fault=True)


def _at(world: World, index: int, place: Place = IDLE) -> World:
    places = list(world.places)
    places[index] = place
    return replace(world, places=tuple(places))


def _with(world: World, index: int, record: Record | None) -> World:
    saga, direct = world.records
    return replace(world, records=(record, direct) if index == 0 else (saga, record))


def _moved(world: World) -> World:
    """The writes take effect, and take the money."""
    return replace(world, moved=min(2, world.moved + 1), funds=False)
