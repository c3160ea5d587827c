"""Model: the request record. Reserve, start, settle, take over, expire, reserve again.

Clients send one key any number of times, sometimes with another body. The saga's work is reduced to one atomic step, so
that the model covers the record, its owner and its expiration in detail; the whole saga has a model of its own.

Any request may stay in transit: one whose sender died, or whose response was lost, arrives later, or never.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tests.specification.checker import Move
from tests.specification.conditions import Conditional
from tests.specification.record_conditions import RecordCondition, RecordPromise
from tests.specification.record_world import (
    IDLE,
    RUNNING,
    VERDICT,
    Actor,
    Age,
    At,
    Kind,
    Name,
    Record,
    Row,
    Run,
    Saga,
    Status,
    World,
)
from tests.specification.states import replace

Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecordModel(Conditional):
    """The model.

    Attributes:
        sagas: maximum number of reservations of the key.
        recoveries: maximum number of takeovers of one saga.
        gatekeepers: number of concurrent requests.
        letters: maximum number of requests in transit.
        person: whether an operator runs ``cdk-sagas recover``; without, executions do not die.
        bodies: bodies that clients send under the key.
        machines: state machines that gatekeepers may start; two while an operation's saga is replaced by another one,
            whose executions run on.
        stricter: whether a gatekeeper may have been deployed with limits or a schema that refuse these bodies.
        deletion: whether DynamoDB deletes expired items, which it does some time within days.
        remembered: whether keys are kept for longer than responses are replayed.
    """

    sagas: int = 2
    recoveries: int = 1
    gatekeepers: int = 1
    letters: int = 1
    person: bool = True
    bodies: str = "a"
    machines: str = "M"
    stricter: bool = False
    deletion: bool = True
    remembered: bool = False

    def initial(self) -> World:
        """Nothing was ever asked."""
        return World(None, (), (IDLE,) * self.gatekeepers, IDLE)

    def at_rest(self, world: World) -> bool:
        """True if the request is answered or was never sent, and no component works."""
        record = world.record
        horizon = record is not None and self._at_horizon(world, record)
        idle = world.person == IDLE and all(actor == IDLE for actor in world.gatekeepers)
        return idle and (record is None or record.status is not Status.IN_PROGRESS or horizon)

    def _at_horizon(self, world: World, record: Record) -> bool:
        """The last recovery that fits into the model has died: what comes then is what came before."""
        last = record.owner.recovery == self.recoveries
        return self.person and last and self._run(world, record.owner) is Run.ENDED

    def broken(self, world: World) -> Iterator[str]:
        """Promises that the record breaks."""
        record = world.record
        if record is None or not record.saga:
            return
        row = world.sagas[record.saga - 1].row
        if not record.whole and record.status is Status.IN_PROGRESS:
            yield RecordPromise.REQUEST_REMOVED
        if not record.whole and record.age is Age.FRESH:
            yield RecordPromise.RESPONSE_REMOVED_TOO_EARLY
        if record.status is Status.COMPLETED and row is not Row.DONE:
            yield RecordPromise.COMPLETED_WITHOUT_EFFECT
        if record.status is Status.FAILED and row is Row.DONE:
            yield RecordPromise.FAILED_WITH_EFFECT
        if record.owner.saga != record.saga:
            yield RecordPromise.OWNER_OF_ANOTHER_SAGA

    def moves(self, world: World) -> Moves:
        """Whatever may happen next."""
        for index, actor in enumerate(world.gatekeepers):
            for move in self._gatekeeper(world, actor):
                label = f"gatekeeper {index + 1} {move.label}" if self.gatekeepers > 1 else f"gatekeeper {move.label}"
                yield replace(move, label=label, state=self._with_gatekeeper(world, move.state, index))
        for number, saga in enumerate(world.sagas, 1):
            for recovery, run in enumerate(saga.runs):
                if run in RUNNING:
                    yield from self._execution(world, Name(number, recovery), run)
        for kind, name in sorted(world.letters):
            yield from self._letter(world, kind, name)
        yield from self._time(world)
        if self.remembered:
            yield from self._remover(world)
        if self.person:
            yield from self._person(world)

    # -- gatekeepers. Their moves are written for the first one, and put into their place above. --------------------

    @staticmethod
    def _with_gatekeeper(before: World, after: World, index: int) -> World:
        if index == 0:
            return after
        others = list(before.gatekeepers)
        others[index] = after.gatekeepers[0]
        return replace(after, gatekeepers=tuple(others))

    @staticmethod
    def _become(world: World, actor: Actor = IDLE) -> World:
        return replace(world, gatekeepers=(actor, *world.gatekeepers[1:]))

    def _gatekeeper(self, world: World, actor: Actor) -> Moves:
        if actor.at is At.IDLE:
            for body, machine in product(self.bodies, self.machines):
                of = f", and may start {machine}" if len(self.machines) > 1 else ""
                actor = Actor(At.RESERVE, body, machine=machine)
                yield Move(f"is sent request {body}{of}", self._become(world, actor))
                if self.stricter:
                    refuses = replace(actor, at=At.REFUSE)
                    yield Move(f"is sent request {body}, which it does not accept", self._become(world, refuses))
            return
        yield Move("crashes", self._become(world), fault=True)
        if actor.at is At.RESERVE:
            if not self._free(world.record):
                yield from self._refused(world, actor)
            elif self.holds(RecordCondition.RESERVE):
                yield from self._reserve(world, actor)
            else:
                yield Move("looks: no record", self._become(world, replace(actor, at=At.PUT)))
        elif actor.at is At.PUT:
            yield from self._reserve(world, actor)
        elif actor.at is At.AGAIN:
            yield from self._refused(world, actor)
        elif actor.at is At.REFUSE:
            yield from self._refuse(world, actor)
        elif actor.at is At.START:
            yield from self._start(world, actor)

    def _free(self, record: Record | None) -> bool:
        if record is None:
            return True
        settled = record.status is not Status.IN_PROGRESS or not self.holds(RecordCondition.RESERVE_OR_EXPIRED_SETTLED)
        over = record.age is Age.FORGOTTEN or not self.holds(RecordCondition.RESERVE_OR_EXPIRED_TIME)
        return settled and over

    def _reserve(self, world: World, actor: Actor) -> Moves:
        if len(world.sagas) == self.sagas:
            yield Move("would reserve once more than the model covers", self._become(world))
            return
        opened, breaks = self._open(world, actor)
        if breaks is None and world.record is not None and world.record.age is not Age.FORGOTTEN:
            breaks = RecordPromise.SECOND_SAGA_WITHIN_RETENTION
        name = Name(len(opened.sagas), 0)
        reserved = replace(opened, record=Record(Status.IN_PROGRESS, name.saga, name, actor.body))
        yield Move(f"reserves {name}", self._become(reserved, replace(actor, at=At.START, name=name)), breaks=breaks)
        again = self._become(reserved, replace(actor, at=At.AGAIN, name=name))
        yield Move(f"reserves {name}; the answer is lost", again, fault=True, breaks=breaks)

    def _open(self, world: World, actor: Actor) -> tuple[World, str | None]:
        """A further saga of the same key; a broken promise, if the one before has not ended."""
        still_open = any(not saga.settled for saga in world.sagas)
        saga = Saga((Run.ABSENT,) * (self.recoveries + 1), machine=actor.machine)
        opened = replace(world, sagas=(*world.sagas, saga))
        return opened, RecordPromise.SECOND_SAGA_WHILE_FIRST_IS_OPEN if still_open else None

    def _refused(self, world: World, actor: Actor) -> Moves:
        """The record that a refused put met. With AGAIN, the refusal may come from the gatekeeper's own reservation."""
        record = world.record
        if record is None:
            yield Move("finds nothing in its way any more, and gives up", self._become(world))
        elif record.body != actor.body and self.holds(RecordCondition.MET_OTHER_BODY):
            yield Move("answers: this key was used for another request", self._become(world))
        elif record.status is not Status.IN_PROGRESS and self._is_expired(record):
            yield Move("answers: the response has expired", self._become(world))
        elif record.status is not Status.IN_PROGRESS and not record.whole:
            without = RecordPromise.ANSWERED_WITHOUT_RESPONSE
            yield Move("answers what is stored", self._become(world), breaks=without)
        elif record.status is not Status.IN_PROGRESS:
            wrong = RecordPromise.ANSWER_OF_ANOTHER_REQUEST if record.body != actor.body else None
            yield Move("answers what is stored", self._become(world), breaks=wrong)
        elif record.saga == actor.name.saga and self.holds(RecordCondition.MET_OWN):
            yield Move("meets its own reservation", self._become(world, replace(actor, at=At.START)))
        else:
            wrong = RecordPromise.FIRST_CLIENT_TURNED_AWAY if record.saga == actor.name.saga else None
            yield Move("answers: in progress", self._become(world), breaks=wrong)
            same = world.sagas[record.saga - 1].machine == actor.machine
            may_start = same or not self.holds(RecordCondition.SAME_MACHINE)
            if record.owner.recovery == 0 and may_start and self.holds(RecordCondition.MET_RUNNING_DUE):
                yield from self._start_due(world, record, actor)

    def _is_expired(self, record: Record) -> bool:
        """True if a part is missing. The record's clock is irrelevant: nothing is promised after that."""
        return not record.whole and self.holds(RecordCondition.TOMBSTONE_IS_EXPIRED)

    def _refuse(self, world: World, actor: Actor) -> Moves:
        """A request that a new one's limits refuse. What earlier limits accepted was recorded."""
        record = world.record
        recorded = record is not None and not self._free(record)
        if recorded and self.holds(RecordCondition.REFUSAL_LOOKS_FIRST):
            yield from self._refused(world, actor)
            return
        wrong = recorded and record is not None and record.body == actor.body
        breaks = RecordPromise.REFUSED_ALTHOUGH_RECORDED if wrong else None
        yield Move("answers: not accepted", self._become(world), breaks=breaks)

    def _start_due(self, world: World, record: Record, actor: Actor) -> Moves:
        """``due_at`` may have passed at any moment: the model has no clock."""
        if self.holds(RecordCondition.STORED_START):
            start = replace(actor, at=At.START, name=Name(record.saga, 0))
            yield Move("finds it due", self._become(world, start))
        elif len(world.sagas) < self.sagas:
            opened, breaks = self._open(world, actor)
            own = replace(actor, at=At.START, name=Name(len(opened.sagas), 0))
            yield Move("finds it due, and starts a saga of its own", self._become(opened, own), breaks=breaks)

    def _start(self, world: World, actor: Actor) -> Moves:
        name = actor.name
        if world.sagas[name.saga - 1].machine != actor.machine:
            # Its name is free there, and its log is empty: whatever it did, it does once more.
            second = RecordPromise.SAGA_ON_TWO_MACHINES
            yield Move(f"starts {name} on {actor.machine}", self._become(world), breaks=second)
            return
        yield Move(f"starts {name}", self._become(self._started(world, name)))
        unclear = self._become(self._sent(world, Kind.START, name))
        yield Move(f"gets no answer to the start of {name}", unclear, fault=True)
        if not self.holds(RecordCondition.RESERVATION_STAYS):
            deleted = replace(unclear, record=None)
            yield Move(f"gets no answer to the start of {name}, deletes the reservation", deleted, fault=True)

    # -- executions -------------------------------------------------------------------------------------------------

    @staticmethod
    def _run(world: World, name: Name) -> Run:
        return world.sagas[name.saga - 1].runs[name.recovery]

    @staticmethod
    def _with_run(world: World, name: Name, run: Run, row: Row | None = None) -> World:
        saga = world.sagas[name.saga - 1]
        runs = (*saga.runs[: name.recovery], run, *saga.runs[name.recovery + 1 :])
        changed = replace(saga, runs=runs, row=saga.row if row is None else row)
        return replace(world, sagas=(*world.sagas[: name.saga - 1], changed, *world.sagas[name.saga :]))

    def _started(self, world: World, name: Name) -> World:
        """StartExecution is idempotent by name: what exists already stays."""
        absent = self._run(world, name) is Run.ABSENT
        return self._with_run(world, name, Run.WORKING) if absent else world

    def _execution(self, world: World, name: Name, run: Run) -> Moves:
        if self.person:
            dead = self._with_run(world, name, Run.ENDED)
            yield Move(f"{name} dies, {run}", dead, fault=True)
            late = Kind.STEP if run is Run.WORKING else Kind(f"{VERDICT[run]} from")
            if run is not Run.WORKING or name.recovery == 0:
                yield Move(f"{name} dies, {run}, and what it sent travels", self._sent(dead, late, name), fault=True)
        row = world.sagas[name.saga - 1].row
        if run is not Run.WORKING:
            landed, breaks = self._settle(self._with_run(world, name, Run.ENDED), name, VERDICT[run])
            yield Move(f"{name} is done {run}", landed, breaks=breaks)
        elif row is Row.DONE:
            yield Move(f"{name} finds its step DONE", self._with_run(world, name, Run.SETTLE_COMPLETED))
        elif name.recovery > 0:
            fenced = self._with_run(world, name, Run.SETTLE_FAILED, Row.TOMBSTONE)
            yield Move(f"{name} fences the step", fenced)
        elif row is Row.TOMBSTONE:
            yield Move(f"{name} is fenced", self._with_run(world, name, Run.ENDED))
        else:
            yield Move(f"{name} commits its step", self._with_run(world, name, Run.SETTLE_COMPLETED, Row.DONE))
            refused = self._with_run(world, name, Run.SETTLE_FAILED, Row.TOMBSTONE)
            yield Move(f"{name} is refused, fences its step", refused, fault=True)

    def _owned(self, record: Record | None, name: Name) -> bool:
        """The condition ``OWNED``. A comparison with an attribute that is not there is false."""
        same = record is not None and (
            record.owner == name
            or (not self.holds(RecordCondition.OWNER_NAMES_THE_SAGA) and record.owner.recovery == name.recovery)
        )
        in_progress = record is not None and record.status is Status.IN_PROGRESS
        return (
            (record is not None or not self.holds(RecordCondition.OWNED_EXISTS))
            and (in_progress or not self.holds(RecordCondition.OWNED_IN_PROGRESS))
            and (same or not self.holds(RecordCondition.OWNED_OWNER))
        )

    def _settle(self, world: World, name: Name, verdict: Status) -> tuple[World, str | None]:
        record = world.record
        if not self._owned(record, name):
            return world, None
        if record is None:
            stub = Record(verdict, 0, name, "")
            return replace(world, record=stub), RecordPromise.UPDATE_CREATED_A_RECORD
        breaks = None
        if record.saga != name.saga:
            breaks = RecordPromise.SETTLED_BY_ANOTHER_SAGA
        elif record.status not in {Status.IN_PROGRESS, verdict}:
            breaks = RecordPromise.ANSWER_CHANGED
        sagas = list(world.sagas)
        if record.saga:
            sagas[record.saga - 1] = replace(sagas[record.saga - 1], settled=True)
        settled = replace(record, status=verdict, age=Age.FRESH)
        return replace(world, record=settled, sagas=tuple(sagas)), breaks

    def _sent(self, world: World, kind: Kind, name: Name) -> World:
        """The world with a letter on its way, unless it could change nothing any more, or the model has no room."""
        saga = world.sagas[name.saga - 1]
        idle_start = kind is Kind.START and saga.runs[name.recovery] is not Run.ABSENT
        idle_step = kind is Kind.STEP and saga.row is not Row.NONE
        if idle_start or idle_step or len(world.letters) >= self.letters:
            return world
        return replace(world, letters=world.letters | {(kind, name)})

    def _letter(self, world: World, kind: Kind, name: Name) -> Moves:
        opened = replace(world, letters=world.letters - {(kind, name)})
        yield Move(f"the travelling {kind} {name} is lost", opened, fault=kind is Kind.START)
        label = f"the travelling {kind} {name} arrives"
        if kind is Kind.START:
            yield Move(label, self._started(opened, name))
        elif kind is Kind.STEP:
            run, row = self._run(world, name), world.sagas[name.saga - 1].row
            yield Move(label, self._with_run(opened, name, run, Row.DONE if row is Row.NONE else row))
        else:
            landed, breaks = self._settle(opened, name, Status(kind.split()[0]))
            yield Move(label, landed, breaks=breaks)

    # -- time, and a person who recovers ----------------------------------------------------------------------------

    def _time(self, world: World) -> Moves:
        record = world.record
        if record is None:
            return
        expires = record.status is not Status.IN_PROGRESS or not self.holds(RecordCondition.EXPIRATION_AT_SETTLE)
        if expires and self.remembered and record.age is Age.FRESH:
            refused = replace(record, age=Age.REFUSED)
            yield Move("the response expires", replace(world, record=refused), fault=True)
        elif expires and record.age is not Age.FORGOTTEN:
            forgotten = replace(record, age=Age.FORGOTTEN)
            yield Move("the record's expiration passes", replace(world, record=forgotten), fault=True)
        if record.age is Age.FORGOTTEN and self.deletion:
            yield Move("DynamoDB deletes the expired record", replace(world, record=None), fault=True)

    def _remover(self, world: World) -> Moves:
        """A reconciler reads a key from an index that is behind, and removes what it may by one update."""
        record = world.record
        if not world.remover:
            if record is not None and record.whole and record.age is not Age.FRESH:
                yield Move("reconciler reads the key of an expired response", replace(world, remover=True), fault=True)
            return
        done = replace(world, remover=False)
        if not self.holds(RecordCondition.RESPONSE_OVER):
            if record is None:
                stub = Record(Status.COMPLETED, 0, Name(0, 0), "", whole=False)
                created = RecordPromise.UPDATE_CREATED_A_RECORD
                yield Move("reconciler removes a response", replace(done, record=stub), breaks=created)
            else:
                yield Move("reconciler removes a response", replace(done, record=replace(record, whole=False)))
        elif record is not None and record.status is not Status.IN_PROGRESS and record.age is not Age.FRESH:
            yield Move("reconciler removes the response", replace(done, record=replace(record, whole=False)))
        else:
            yield Move("reconciler finds no expired response", done)

    def _person(self, world: World) -> Moves:
        record, person = world.record, world.person

        def become(world: World, actor: Actor = IDLE) -> World:
            return replace(world, person=actor)

        if person != IDLE:
            yield Move("recover crashes", become(world), fault=True)
        if person.at is At.IDLE and record is not None and record.saga and record.status is Status.IN_PROGRESS:
            look = Actor(At.LOOK, name=record.owner)
            yield Move(f"recover reads the record: owner {record.owner}", become(world, look))
        elif person.at is At.LOOK:
            run = self._run(world, person.name)
            if run is Run.ABSENT:
                start = Actor(At.START, name=person.name)
                yield Move(f"recover finds no {person.name}", become(world, start))
            elif run in RUNNING:
                yield Move(f"recover finds {person.name} running", become(world))
            else:
                yield Move(f"recover finds {person.name} {run}", become(world, Actor(At.TAKE_OVER, name=person.name)))
        elif person.at is At.TAKE_OVER:
            yield self._take_over(world, become(world), person.name)
        elif person.at is At.START:
            yield Move(f"recover starts {person.name}", become(self._started(world, person.name)))
            unclear = become(self._sent(world, Kind.START, person.name))
            yield Move(f"recover gets no answer to the start of {person.name}", unclear, fault=True)

    def _take_over(self, world: World, done: World, owner: Name) -> Move[World]:
        record = world.record
        if record is None or not self._owned(record, owner) or owner.recovery == self.recoveries:
            return Move(f"recover does not take over from {owner}", done)
        taken = Name(owner.saga, owner.recovery + 1)
        changed = replace(world, record=replace(record, owner=taken), person=Actor(At.START, name=taken))
        return Move(f"recover takes over: owner {taken}", changed)
