"""Changes between two systems that sagas in flight, retried keys, callbacks or parked sagas depend on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from constructs_lib.cli.compared.system import NAMED_BY_FUNCTION, DescribedOperation, DescribedSaga, Kind, System
from constructs_lib.cli.compared.templates import UNKNOWN
from constructs_lib.saga.graph.timeline import duration

_PUT_BACK: Final = "put it back"
_OR_WAIT: Final = "put its construct id back, or let sagas end first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A change.

    Attributes:
        what: the change.
        then: who is affected, and how.
        remedy: how to avoid that.
        survives: whether everything that runs survives, and each retried key.
    """

    what: str
    then: str
    remedy: str
    survives: bool = False


_KEPT: Final = {
    Kind.LEDGER: (
        "balances stay in the old table: a saga in flight posts its money to two ledgers, or cannot compensate",
        _OR_WAIT,
    ),
    Kind.TOKENS: (
        "callbacks that wait stay in the old table: an outcome finds no saga, and each waits for its heartbeat's end",
        _OR_WAIT,
    ),
    Kind.JOBS: (
        "jobs in the old queue are not dispatched: their sagas wait until the heartbeat expires",
        "put its construct id back, or let the queue empty first",
    ),
    Kind.PAYLOADS: (
        "payloads stay in the old bucket: a saga in flight or a retried key whose record refers to one cannot read it",
        _OR_WAIT,
    ),
    Kind.EVENTS: (
        "events that are kept or parked in the old queue begin nothing",
        "put its construct id back, or let the queue empty first",
    ),
    Kind.OUTBOX: (
        "events in the old table that are not published yet never are",
        "put its construct id back, or let the outbox empty first",
    ),
    Kind.WATCH: (
        "what it recorded of executions stays in the old table; executions themselves are not affected",
        "put its construct id back, if you need it",
    ),
}


def of_saga(old: DescribedSaga, new: DescribedSaga) -> Iterator[Finding]:
    """Changes of a saga's own resources and times."""
    long = duration(old.remembered * 1_000)
    for what, before, after, then, remedy in (
        (
            "IdempotencyTable",
            old.requests,
            new.requests,
            f"records stay in the old table: sagas in flight cannot settle, and a key retried in {long} is a new one",
            f"put its construct id back; that sagas end does not suffice, keys need it for {long}",
        ),
        (
            "saga log",
            old.log,
            new.log,
            "rows stay in the old table: a recovery does not find what sagas in flight and parked ones have done",
            _OR_WAIT,
        ),
        (
            "operators' queue",
            old.operators,
            new.operators,
            "messages of parked sagas stay in the old queue, which no command reads",
            "put its construct id back, or resolve all parked sagas first",
        ),
        (
            "state machine",
            old.machine,
            new.machine,
            "executions continue in the old one, and a reconciler looks for them in the new one",
            _OR_WAIT,
        ),
        (
            "recovery machine",
            old.recovery,
            new.recovery,
            "recoveries continue in the old one, and a reconciler looks for them in the new one",
            "put its construct id back, or let recoveries end first",
        ),
    ):
        if before != after:
            yield Finding(what=f"{what} {before} -> {after}", then=then, remedy=remedy)
    if old.reconcilers and not new.reconcilers:
        yield Finding(
            what=f"TimeoutReconciler {', '.join(old.reconcilers)} -> none",
            then="sagas in flight that are interrupted are neither recovered nor parked",
            remedy="name the saga in the sagas of a TimeoutReconciler",
        )
    elif old.holds and not {*old.holds} & {*new.holds}:
        yield Finding(
            what=f"hold table {', '.join(old.holds)} -> {', '.join(new.holds)}",
            then="a hold that operators have placed is forgotten: recoveries start",
            remedy="put the id of its TimeoutReconciler back, or deploy while there is no hold (cdk-sagas hold)",
        )
    yield from _times(old, new)
    yield from _called(old, new)
    if new.days < old.days:
        yield Finding(
            what=f"log_retention_days {old.days} -> {new.days}",
            then="rows that are written from now on expire earlier: resolve a parked saga before that",
            remedy=_PUT_BACK,
            survives=True,
        )


def _called(old: DescribedSaga, new: DescribedSaga) -> Iterator[Finding]:
    """Resources that only the earlier definition calls: the later role has no right to them, or they are deleted."""
    for name in sorted(old.called - new.called - {old.requests, old.log, old.operators, old.machine, old.recovery}):
        if old.published:
            yield Finding(
                what=f"{name} is not called any more",
                then="sagas that the alias starts in a version of before fail at it, while a deployment moves the "
                "alias and after it is turned back, and so do sagas in flight",
                remedy="put its construct id back, or move the alias at once, and do not turn it back",
            )
        else:
            yield Finding(
                what=f"{name} is not called any more",
                then="sagas in flight that reach it fail at it: they are compensated, or, after the pivot, recovered "
                "or parked",
                remedy=_OR_WAIT,
                survives=True,
            )


def _times(old: DescribedSaga | DescribedOperation, new: DescribedSaga | DescribedOperation) -> Iterator[Finding]:
    """Times and shards of a request table, where they are known on both sides."""
    if new.shards and new.shards < old.shards:
        yield Finding(
            what=f"due_shards {old.shards} -> {new.shards}",
            then=f"records in shards {new.shards} to {old.shards - 1} are not found: sagas in flight that are "
            "interrupted are not recovered",
            remedy=f"{_PUT_BACK}: never lower it",
        )
    if new.remembered and new.remembered < old.remembered:
        before, after = duration(old.remembered * 1_000), duration(new.remembered * 1_000)
        yield Finding(
            what=f"remember_for {before} -> {after}",
            then=f"the key of a request that settles from now on, also of one in flight, is forgotten after {after}: a "
            "retry after that is a new request, which moves money again",
            remedy=f"{_PUT_BACK}, or make sure that no client retries after {after}",
        )
    if new.replayed and new.replayed < old.replayed:
        before, after = duration(old.replayed * 1_000), duration(new.replayed * 1_000)
        yield Finding(
            what=f"replay_for {before} -> {after}",
            then=f"a key whose request settles from now on, retried after {after}, gets 410 instead of its response",
            remedy=f"{_PUT_BACK}, if clients retry later",
            survives=True,
        )


def of_operations(old: System, new: System) -> Iterator[tuple[str, DescribedOperation, Finding]]:
    """Changes after which an operation does not recognize a retried key: the operation's name, itself, the change."""
    for name, operations in old.operations.items():
        for before in operations:
            long = _remembered(old, before)
            named = new.operations.get(name, [])
            # Several APIs may have operations of one name: on this table, or else in this stack.
            candidates = [one for one in named if one.requests == before.requests] or [
                one for one in named if one.stack == before.stack
            ]
            if not candidates:
                yield name, before, _gone(name, _added_on(before.requests, old, new), long)
                continue
            after = max(candidates, key=lambda one: sum(_same(before, one)))
            yield from ((name, before, finding) for finding in (*_keys(before, after, long), *_times(before, after)))


def _added_on(requests: str, old: System, new: System) -> list[str]:
    """Names of operations that are new on a request table."""
    before, after = (
        {name for name, operations in system.operations.items() if any(one.requests == requests for one in operations)}
        for system in (old, new)
    )
    return sorted(after - before)


def _gone(name: str, added: Iterable[str], long: str) -> Finding:
    return Finding(
        what=f"operation {name} -> {' or '.join(added) or 'none'}",
        then=f"a key retried within {long} is refused, and under another operation's name it is a new request, which "
        "moves money again",
        remedy=f"keep {name}, and add the other one next to it",
    )


_SAME_KEYS: Final = {
    "requests": "IdempotencyTable",
    "identity": "identity",
    "key_source": "key_source",
    "issuers": "issuer of callers' tokens",
}
"""Members that decide which record a retried key finds."""


def _same(one: DescribedOperation, other: DescribedOperation) -> Iterator[bool]:
    return (getattr(one, member) == getattr(other, member) for member in (*_SAME_KEYS, "authorizers", "stack"))


def _keys(before: DescribedOperation, after: DescribedOperation, long: str) -> Iterator[Finding]:
    for member, called in _SAME_KEYS.items():
        old, new = getattr(before, member), getattr(after, member)
        if old == new or (member == "issuers" and before.identity != after.identity):
            continue
        yield Finding(
            what=f"{called} {old or 'none'} -> {new or 'none'}",
            then=f"a key retried within {long} is a new request, which moves money again",
            remedy=f"{_PUT_BACK}, or add another operation next to this one, and keep this one for that long",
        )
    if before.identity == after.identity and before.authorizers != after.authorizers:
        yield Finding(
            what=f"authorizer {before.authorizers or 'none'} -> {after.authorizers or 'none'}",
            then=f"retried keys are recognized only if it names each caller as before ({after.identity})",
            remedy="check that it does",
            survives=True,
        )


def _remembered(system: System, operation: DescribedOperation) -> str:
    """Time for which a settled request's key is remembered: by the table of sagas, or the operation's own."""
    seconds = operation.remembered or max(
        (saga.remembered for saga in system.sagas.values() if saga.requests == operation.requests), default=0
    )
    return duration(seconds * 1_000) if seconds else "remember_for"


def of_stacks(old: System, new: System) -> Iterator[tuple[str, Finding]]:
    """Changes of what sagas share: the stack's name, and the change."""
    for stack, environment in old.stacks.items():
        yield from ((stack, finding) for finding in _of_environment(environment, new.stacks.get(stack)))
    for kind, before in old.kept.items():
        after = new.kept[kind]
        added = after.keys() - before.keys()
        for name in sorted(before.keys() - after.keys()):
            here = [one for one in added if after[one] == before[name]]
            yield before[name], _replaced(kind, name, sorted(here or added))
    for (function, variable), name in old.used.items():
        used, kind = new.used.get((function, variable), name), NAMED_BY_FUNCTION[variable]
        # A function that no longer posts, for instance, loses nothing; one that reads records needs their payloads.
        if used != name and name in new.kept[kind] and (used or kind is Kind.PAYLOADS):
            then, remedy = _KEPT[kind]
            finding = Finding(what=f"{kind} of {function} {name} -> {used or 'none'}", then=then, remedy=remedy)
            yield old.kept[kind][name], finding
    for bucket, days in old.expiry.items():
        if (fewer := new.expiry.get(bucket, days)) < days:
            finding = Finding(
                what=f"keep_days of {bucket} {days} -> {fewer}",
                then=f"payloads older than {fewer} d are deleted at once: records, and rows of parked sagas, may "
                "refer to them",
                remedy=_PUT_BACK,
            )
            yield old.kept[Kind.PAYLOADS][bucket], finding
    for table, indexes in old.indexes.items():
        for index in sorted(indexes - new.indexes.get(table, indexes)):
            finding = Finding(
                what=f"index {index} of {Kind.LEDGER} {table} -> none",
                then="open holds are not found when their time is over, nor money in shards of collecting accounts: it "
                "stays where it is",
                remedy="put holds or collecting back, or let all holds close and all shards empty first",
            )
            yield old.kept[Kind.LEDGER][table], finding


def _of_environment(before: str, after: str | None) -> Iterator[Finding]:
    if after is None:
        yield Finding(
            what="stack -> none",
            then="a stack of another name has new, empty tables, and nothing in it recovers sagas of this one",
            remedy="put its name back, or let its sagas end, and wait until its keys are forgotten",
        )
    elif before != after and UNKNOWN not in before + after:
        yield Finding(
            what=f"environment {before} -> {after}",
            then="the stack there has new, empty tables; sagas and keys stay where they are",
            remedy="deploy it where it was, too",
        )


def _replaced(kind: Kind, name: str, added: Iterable[str]) -> Finding:
    then, remedy = _KEPT[kind]
    successor = " or ".join(added) or "none"
    return Finding(what=f"{kind} {name} -> {successor}", then=then, remedy=remedy, survives=kind is Kind.WATCH)
