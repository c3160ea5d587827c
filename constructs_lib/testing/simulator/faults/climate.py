"""Kinds of faults of a run, and their shares, drawn for each run, so that runs differ in kind.

A run in which everything fails now and then finds other things than one in which one thing fails often. So each kind of
fault is left out of about half of the runs, and is rare or frequent in the others (Groce et al., "Swarm Testing",
2012).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Final

from constructs_lib.testing.simulator.engine.kernel import MILLISECOND, SECOND

MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE


class Trouble(StrEnum):
    """Kinds of faults that happen at a call, or to who makes it.

    Attributes:
        KILL_BEFORE: the process dies; the request is never sent.
        KILL_AFTER: the process dies; the request took effect.
        LOSE_REQUEST: the connection breaks before the request arrives.
        LOSE_ANSWER: the connection breaks after the request took effect.
        THROTTLE: the service refuses for now.
        ERROR_BEFORE: the service fails, and did nothing.
        ERROR_AFTER: the service fails, and did it.
        CONFLICT: DynamoDB meets another transaction on the item.
        LATE_REQUEST: the request travels for long; its sender has given it up before it arrives.
        HOLD: the sender is suspended before the call, for long, and then continues.
    """

    KILL_BEFORE = "kill before"
    KILL_AFTER = "kill after"
    LOSE_REQUEST = "lose request"
    LOSE_ANSWER = "lose answer"
    THROTTLE = "throttle"
    ERROR_BEFORE = "error before"
    ERROR_AFTER = "error after"
    CONFLICT = "conflict"
    LATE_REQUEST = "late request"
    HOLD = "hold"


class Event(StrEnum):
    """Kinds of faults that happen to executions, messages and events.

    Attributes:
        STOP: an execution is stopped.
        TIME_OUT: an execution times out.
        REDRIVE: an execution that failed is redriven.
        INVOKE_LOST: the answer of an invocation is lost; the function ran.
        EXPRESS_TWICE: an asynchronous Express execution runs twice.
        EVENT_LOST: an event is not delivered.
        EVENT_LATE: an event is delivered late.
        EVENT_TWICE: an event is delivered twice.
        MESSAGE_TWICE: a message is delivered although it was deleted or is hidden.
        MESSAGE_LATE: a message is delivered late.
        DESCRIBE_BEHIND: an execution is not known yet, or still has the status RUNNING.
        SCHEDULE_LOST: an event of a schedule is not sent.
        ROTATION: a secret gets a new value.
        CLIENT_REPEATS: a client sends a request again although it was answered.
        CLIENT_CHANGES: a client sends another body under the same key.
        CLIENT_GIVES_UP: a client does not wait for the answer.
        PROVIDER_TWICE, PROVIDER_LATE, PROVIDER_EARLY, PROVIDER_NEVER, PROVIDER_CONTRADICTS: how providers report.
    """

    STOP = "stop"
    TIME_OUT = "time out"
    REDRIVE = "redrive"
    INVOKE_LOST = "invoke lost"
    EXPRESS_TWICE = "express twice"
    EVENT_LOST = "event lost"
    EVENT_LATE = "event late"
    EVENT_TWICE = "event twice"
    MESSAGE_TWICE = "message twice"
    MESSAGE_LATE = "message late"
    DESCRIBE_BEHIND = "describe behind"
    SCHEDULE_LOST = "schedule lost"
    ROTATION = "rotation"
    CLIENT_REPEATS = "client repeats"
    CLIENT_CHANGES = "client changes"
    CLIENT_GIVES_UP = "client gives up"
    PROVIDER_TWICE = "provider twice"
    PROVIDER_LATE = "provider late"
    PROVIDER_EARLY = "provider early"
    PROVIDER_NEVER = "provider never"
    PROVIDER_CONTRADICTS = "provider contradicts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A time in which a service, or a function, does not work.

    Attributes:
        what: a service, ``dynamodb``; or a function's name.
        begins, ends: microseconds since the epoch.
        how: what happens to each call.
    """

    what: str
    begins: int
    ends: int
    how: Trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A fault at one call, or the end of an execution at one state.

    Attributes:
        of: name of the function or state machine; of every other actor, its own name.
        what: the call, ``dynamodb:PutItem``, or the state.
        nth: the call or state to begin with, from 1 on, of those of ``of`` in a run.
        times: number of calls in a row.
        how: the fault; of a state, ``Event.STOP`` or ``Event.TIME_OUT``, which end the execution before it.
    """

    of: str
    what: str
    nth: int
    how: Trouble | Event
    times: int = 1

    def __str__(self) -> str:
        return f"{self.of} {self.what}#{self.nth}{f' and {self.times - 1} more' if self.times > 1 else ''}: {self.how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Climate:
    """Faults of one run.

    Attributes:
        troubles: share of calls that each kind of fault hits.
        events: share of its occasions that each kind hits.
        outages: times in which something does not work.
        latency: microseconds that a call usually takes.
        index_lag: microseconds by which an index is behind at most.
        commit_delay: microseconds for which a transaction holds its items at most.
        page: items after which a page of a query or a scan ends; 0: as many as fit.
        secret_lag: microseconds for which a secret is read as it was before a new value was put, at most.
        skew: microseconds by which two clocks differ at most.
        expiry_lag: microseconds after its expiration by which DynamoDB has deleted an item, on average.
        ends: when it is over: afterwards nothing goes wrong.
        unproven: behaviour that AWS has not been seen to have, and has in this run.
        planned: faults at given calls and states; None: calls and states are not counted.
    """

    troubles: dict[Trouble, float] = field(default_factory=dict)
    events: dict[Event, float] = field(default_factory=dict)
    outages: tuple[Outage, ...] = ()
    latency: int = 5 * MILLISECOND
    index_lag: int = 0
    commit_delay: int = 0
    page: int = 0
    secret_lag: int = 0
    skew: int = 0
    expiry_lag: int = 2 * 86_400 * SECOND
    ends: int = 0
    unproven: frozenset[str] = frozenset()
    planned: tuple[Planned, ...] | None = None


CALM: Final = Climate()
"""Nothing goes wrong."""
HEARTBEAT_MATCHED: Final = "a Retry or Catch on States.HeartbeatTimeout matches a lost heartbeat"
LIMIT_MATCHED: Final = "a Retry or Catch on States.ALL matches States.DataLimitExceeded"
"""AWS documents that it does not; in a recording of AWS of 2024-03-21 a Catch matches that of a task's result."""
EXECUTIONS_GO: Final = "executions of a deleted state machine do not exist any more, once it is gone"
_AT_CALLS: Final = (0.002, 0.15)
_ON_OCCASIONS: Final = (0.02, 0.7)
"""Rarest and most frequent share: of calls, and of occasions, which are fewer."""


def drawn_climate(random: Random, *, start: int, length: int, services: tuple[str, ...]) -> Climate:
    """Draw what goes wrong in a run.

    Args:
        random: what it is drawn from.
        start: when the run begins; microseconds since the epoch.
        length: for how long things go wrong; microseconds.
        services: what may have an outage: services and functions.
    """
    if random.random() < 0.03:
        return Climate(ends=start, latency=random.choice((1, 5, 50)) * MILLISECOND)

    def rate(bounds: tuple[float, float]) -> float:
        rarest, most_frequent = bounds
        return rarest * (most_frequent / rarest) ** random.random() if random.random() < 0.4 else 0.0

    events = {event: found for event in Event if (found := rate(_ON_OCCASIONS))}
    if (Event.STOP in events or Event.TIME_OUT in events) and random.random() < 0.6:
        events[Event.REDRIVE] = random.uniform(0.1, 0.9)  # only what was stopped can be redriven
    outages = tuple(
        _drawn_outage(random, start, length, services)
        for _ in range(random.choice((0, 0, 0, 0, 1, 1, 2)) if services else 0)
    )
    drawn = Climate(
        troubles={trouble: found for trouble in Trouble if (found := rate(_AT_CALLS))},
        events=events,
        outages=outages,
        latency=random.choice((1, 3, 10, 60, 300)) * MILLISECOND,
        index_lag=random.choice((0, 0, 50 * MILLISECOND, SECOND, 20 * SECOND, 5 * MINUTE)),
        commit_delay=random.choice((0, 0, 0, 5 * MILLISECOND, 50 * MILLISECOND, SECOND)),
        skew=random.choice((0, 0, 50 * MILLISECOND, 2 * SECOND)),
        expiry_lag=random.choice((MINUTE, HOUR, 24 * HOUR, 48 * HOUR)),
        ends=start + length,
        unproven=_half(random, HEARTBEAT_MATCHED),
        page=random.choice((0, 0, 1, 2, 5)),
    )
    unproven = drawn.unproven | _half(random, LIMIT_MATCHED) | _half(random, EXECUTIONS_GO)
    return replace(drawn, unproven=unproven, secret_lag=random.choice((0, SECOND, 10 * SECOND, MINUTE)))


def _half(random: Random, claim: str) -> frozenset[str]:
    return frozenset({claim} if random.random() < 0.5 else ())


def _drawn_outage(random: Random, start: int, length: int, services: tuple[str, ...]) -> Outage:
    begins = start + int(random.random() * length)
    return Outage(
        what=random.choice(services),
        begins=begins,
        ends=begins + int(SECOND * 10 ** random.uniform(0, 4)),
        how=random.choice((Trouble.THROTTLE, Trouble.ERROR_BEFORE, Trouble.LOSE_REQUEST, Trouble.LOSE_ANSWER)),
    )
