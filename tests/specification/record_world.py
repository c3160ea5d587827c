"""Model of the request record: what there is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Row(StrEnum):
    """The log row of the saga's only step."""

    NONE = "no row"
    DONE = "DONE"
    TOMBSTONE = "TOMBSTONE"


class Status(StrEnum):
    """States of the record."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class Run(StrEnum):
    """States of an execution."""

    ABSENT = "absent"
    WORKING = "working"
    SETTLE_COMPLETED = "settling COMPLETED"
    SETTLE_FAILED = "settling FAILED"
    ENDED = "ended"
    """Done, fenced, or dead: every reader sees that it does not run, and nothing else matters."""


RUNNING: Final = (Run.WORKING, Run.SETTLE_COMPLETED, Run.SETTLE_FAILED)
VERDICT: Final = {Run.SETTLE_COMPLETED: Status.COMPLETED, Run.SETTLE_FAILED: Status.FAILED}


@dataclass(frozen=True, slots=True, order=True)
class Name:
    """An execution's name: the saga, and the number of the recovery (0: the first execution)."""

    saga: int
    recovery: int

    def __str__(self) -> str:
        return f"saga{self.saga}" + (f"-r{self.recovery}" if self.recovery else "")


class Age(StrEnum):
    """Expired parts of a settled record."""

    FRESH = "nothing has expired"
    REFUSED = "its response has expired"
    """The key is refused; the response may have been removed."""
    FORGOTTEN = "its key is forgotten"
    """It is treated as absent; DynamoDB deletes it some time within days."""


@dataclass(frozen=True, slots=True)
class Record:
    """The request record; ``whole`` until its request and its response are removed."""

    status: Status
    saga: int
    owner: Name
    body: str
    age: Age = Age.FRESH
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Saga:
    """One saga: its row, its executions by number of recovery, whether it was ever settled, and its state machine."""

    runs: tuple[Run, ...]
    row: Row = Row.NONE
    settled: bool = False
    machine: str = ""


class At(StrEnum):
    """States of a gatekeeper or an operator."""

    IDLE = "idle"
    RESERVE = "about to reserve"
    PUT = "about to put, having looked before"
    AGAIN = "about to reserve again, without an answer"
    REFUSE = "about to refuse"
    START = "about to start"
    LOOK = "about to describe the owner's execution"
    TAKE_OVER = "about to take over"


@dataclass(frozen=True, slots=True)
class Actor:
    """A gatekeeper at work on a request, with the state machine that it may start; or a person who recovers."""

    at: At = At.IDLE
    body: str = ""
    name: Name = Name(0, 0)
    machine: str = ""


IDLE: Final = Actor()


class Kind(StrEnum):
    """Kinds of requests in transit."""

    START = "start of"
    STEP = "step of"
    COMPLETED = "COMPLETED from"
    FAILED = "FAILED from"


Letter = tuple[Kind, Name]


@dataclass(frozen=True, slots=True)
class World:
    """Everything at one moment."""

    record: Record | None
    sagas: tuple[Saga, ...]
    gatekeepers: tuple[Actor, ...]
    person: Actor
    letters: frozenset[Letter] = frozenset()
    remover: bool = False
    """True if a reconciler has read the key from the index of responses, some time ago."""
