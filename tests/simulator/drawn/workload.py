"""Requests of drawn sagas, and invariants over their effects."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from random import Random
from typing import Any, Final

from constructs_lib.testing import audit_provider
from constructs_lib.testing.invariants import Invariant, Item
from constructs_lib.testing.simulator import Intent, Provider, Workload, World
from constructs_lib.testing.simulator.aws.dynamodb import Table
from constructs_lib.testing.simulator.aws.dynamodb.tables import Key
from constructs_lib.testing.simulator.promise import is_direct
from saga_runtime.idempotency.identity import is_item_key, provider_key_of, step_key_of
from saga_runtime.protocol import LogAttribute, RecordAttribute, RecordStatus, StepStatus

from .books import books_agree, events_were_consumed, open_accounts
from .messages import KEYS, Messages, shared_key
from .names import DIRECT, OPEN, number_of, operation_of, second_of
from .provider import URL, DrawnProvider
from .releases import RECONDITIONED, RENAMED, DrawnRelease, moved_to, new_name
from .sagas import (
    ITEMS,
    LETTERS,
    MEMBERS,
    PROVIDERS,
    REFERENCED,
    SKIP,
    STOCK,
    DrawnGroup,
    DrawnSaga,
    DrawnStep,
    can_route,
    jobs_outside_of_maps,
    may_refuse,
    needed_jobs,
    needed_waits,
    on_the_way,
    way_of,
)
from .texts import note_of

_DIRECT: Final = 0.12
"""Share of requests to the direct operations."""
_ANYWHERE: Final = ("crash", "busy", "slow")
_AT_PROVIDERS: Final = ("mistake", "unreadable", "late")
AMOUNT: Final = 123_456_789_012_345_678
"""More digits than JSONata keeps."""
_PADDED: Final = 0.08
"""Share of requests that are near a limit of bodies, or above it."""
_PADDING: Final = (32_000, 32_600, 32_768, 60_000, 65_000, 65_536)
"""Bytes that a body has in addition to its members: 32,768 always travel inline, and 65,536 may."""
_REFERENCED: Final = 0.3
"""Share of such requests where bodies may be larger than that."""
_LARGE: Final = (40_000, 65_536, 150_000, 199_000, 200_000)
"""Bytes that these have in addition."""
_NOTE: Final = 4
"""Characters of a request's text that its items have."""
_SKUS: Final = "abcdefghijkl"
_INVALID: Final = 0.05
"""Share of requests with an item whose key another one has, or that no key may be, where a map may refuse them."""
_STOCKS: Final = (3, 10, 1_000)
_LAVISH: Final = 0.05
"""Share of requests with all items, for which every function returns a large output."""
_SKIPPED: Final = 0.3
"""Share of requests to inline sagas, of which each step that has routes takes one."""
_SIZES: Final = (20_000, 32_000, 32_700)
"""Bytes of an output, of which one may have 32,768, and all of a saga 98,304."""
_LARGE_REPORTS: Final = 0.1
"""Share of requests without such outputs in which jobs have one, as far as the provider reports it."""
_MOST_REPORTS: Final = 2
"""So many leave room for other outputs: what a provider reports is not refused for its size together with others."""
_THREE_FIT: Final = 32_000
"""Bytes of each of three outputs that leave room for small ones. A saga that runs out of room behind its pivot stays
parked until a release returns less: no operator who only resumes it ever settles it."""


class Drawn(Workload):
    """Requests to drawn sagas.

    Args:
        sagas: what is deployed, in order.
        only: numbers of those that requests are sent to; all, and the direct operation, by default.
        releases: the change of each saga in a later release.
    """

    patience = timedelta(days=3)

    def __init__(
        self,
        sagas: Sequence[DrawnSaga],
        only: Sequence[int] | None = None,
        releases: Sequence[DrawnRelease] = (),
    ) -> None:
        self._sagas = sagas
        self._releases = dict(enumerate(releases))
        self._moved = moved_to(self._releases)
        self._only = tuple(only if only is not None else range(len(sagas)))
        self._direct = only is None
        self._sells = any(step.posts == STOCK for saga in sagas for step in saga.steps)
        self._posts = any(step.posts in LETTERS for saga in sagas for step in saga.steps)

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        if self._posts:
            open_accounts(world)
        self._stock = random.choice(_STOCKS) if self._sells else 0
        pieces = {"id": {"S": STOCK}, "pieces": {"N": str(self._stock)}}
        world.call("dynamodb", "PutItem", {"TableName": world.output("EffectsTableName"), "Item": pieces})
        self._messages = messages = Messages(world)
        for number in self._only:
            if self._sagas[number].queued:
                for key in range(random.randint(1, KEYS)):
                    messages.begin(number, self._body(number, random), shared_key(key), random)

    def providers(self, world: World, random: Random) -> Mapping[str, Provider]:
        jobs = [step for _, sagas in self._logs() for saga in sagas for step in saga.steps if step.kind == "job"]
        needed = {
            name for _, sagas in self._logs() for saga in sagas for name in (*needed_jobs(saga), *needed_waits(saga))
        }
        undone = {step.name for step in jobs if step.name not in needed}
        undone -= {step.name for step in jobs if not step.undo}
        self._provider = self.provider_of(world, random, undone, needed)
        for table in world.parts.requests:
            world.db.tables[table].listeners.append(self._foreseen(world))
        return {URL: self._provider}

    def provider_of(
        self, world: World, random: Random, undone: Collection[str], needed: Collection[str]
    ) -> DrawnProvider:
        """Make the provider.

        Args:
            world: where it is.
            random: what it draws from.
            undone: steps whose jobs it may do after it has refused them.
            needed: steps whose jobs, or waits, their sagas cannot continue without.
        """
        return DrawnProvider(world, random, undone, needed)

    def _foreseen(self, world: World) -> Callable[[Table, Key, Item | None], None]:
        """Make what hears of each record, and has the provider know what its saga will wait for."""
        known: set[str] = set()

        def begun(_table: Table, _key: Key, record: Item | None) -> None:
            # The table has operators' decisions, too, which have no execution.
            if record is None or RecordAttribute.EXECUTION_ARN not in record or is_direct(record):
                return
            if record[RecordAttribute.SAGA_ID]["S"] in known:
                return
            saga_id = record[RecordAttribute.SAGA_ID]["S"]
            known.add(saga_id)
            for row, item in self._waits(record):
                self._provider.foresee(step_key_of(saga_id, row, item_key=item))

        return begun

    def _waits(self, record: Item) -> Iterator[tuple[str, str | None]]:
        """Each wait of a saga that its record foretells: its step, and the item."""
        number = number_of(record)
        for node in self._sagas[number].nodes:
            items: list[str | None] = [None]
            if isinstance(node, DrawnGroup) and node.kind == "map":
                known = RecordAttribute.INPUT in record and node.items == ITEMS
                items = [item["sku"] for item in _body_of(record)["items"] if is_item_key(item["sku"])] if known else []
            yield from ((step.name, item) for step in node.steps if step.kind == "wait" for item in items)

    def intent(self, number: int, random: Random) -> Intent:
        if self._direct and random.random() < _DIRECT:
            return direct_intent(random)
        which = random.choice(self._only)
        body = self._body(which, random)
        return Intent(
            operation=operation_of(which),
            body=body,
            user=random.choice(("ann", "bob")),
            other_body={**body, "other": True},
            key=random.choice((None, None, None, shared_key(random.randrange(KEYS)))),
            wait=random.choice((0, 5, 10)) if self._sagas[which].inline else 0,
        )

    def _body(self, which: int, random: Random) -> dict[str, Any]:
        """A request to one of the sagas."""
        body = drawn_body(self._sagas[which], random)
        if not self._releases and _refuses_items(self._sagas[which]) and random.random() < _INVALID:
            body["items"].append({"sku": random.choice(("a", "a b", "")), "amount": AMOUNT})
        release = self._releases.get(which)
        if release is not None and release.kind == "replaced":
            body["behave"] |= drawn_body(release.saga, random)["behave"]
        if which in self._moved:
            there = set(self._sagas[self._moved[which]].steps)
            body["behave"] = {
                step.name: body["behave"][step.name]
                for step in self._sagas[which].steps
                if step.name in body["behave"] and (step in there or body["behave"][step.name] in _ANYWHERE)
            }
        _enlarge(self._sagas[which], body)
        note = note_of(body)
        if note is not None:
            body["note"] = note
            body["items"] = [{**item, "note": note[:_NOTE]} for item in body["items"]]
        return body

    def has_sent(self, world: World) -> bool:
        return not self._provider.unreported and self._messages.all_sent

    def find_out(self, world: World, row: Item) -> bool | None:
        """The provider's word, as soon as nothing is in work there."""
        step, _, item = row[LogAttribute.STEP]["S"].removesuffix("]").partition("[")
        undo = row[LogAttribute.STATUS]["S"] == StepStatus.COMPENSATING
        key = step_key_of(row[LogAttribute.SAGA_ID]["S"], step, item_key=item or None, undo=undo)
        state = self._provider.state_of(provider_key_of(key))
        return None if state == "in work" else state == "done"

    def _conditions_hold(self, world: World) -> Invariant:
        """Check that each condition of a completed saga is true or false."""
        found = list(_requests(world))
        violations = tuple(
            f"{record[RecordAttribute.SAGA_ID]['S']} completed, and {node.name} has the condition {node.when} of {body}"
            for record, number, body in found
            if number not in self._releases
            for node in self._sagas[number].nodes
            if node.when == "$request.c" and "c" not in body
            if record[RecordAttribute.STATUS]["S"] == RecordStatus.COMPLETED
        )
        return Invariant(name="conditions are true or false", checked=len(found), violations=violations)

    def _objects_are_stored(self, world: World) -> Invariant:
        """Check that a completed saga has stored what no condition keeps it from."""
        objects = world.buckets.objects[world.output("ObjectsName")]
        expected = [
            step_key_of(record[RecordAttribute.SAGA_ID]["S"], node.name)
            for record, number, _ in _requests(world)
            if number not in self._releases and record[RecordAttribute.STATUS]["S"] == RecordStatus.COMPLETED
            for node in self._sagas[number].nodes
            if isinstance(node, DrawnStep) and node.kind == "store" and node.when is None
        ]
        violations = tuple(f"{key} completed, and its object is missing" for key in expected if key not in objects)
        return Invariant(name="objects are stored before sagas settle", checked=len(expected), violations=violations)

    def _logs(self) -> Iterator[tuple[str, Sequence[DrawnSaga]]]:
        """Names of logs, with every saga that writes into each."""
        for number, saga in enumerate(self._sagas):
            release = self._releases.get(number)
            if release is None:
                yield str(number), [saga]
            elif release.kind == "replaced":
                yield str(number), [saga]
                yield second_of(number), [release.saga]
            else:
                yield str(number), [saga, release.saga]

    def _not_under_both_names(self, world: World) -> Invariant:
        """Check that no step happened under its name and under the one that a release gives it."""
        done: set[tuple[str, str]] = set()
        for number, release in self._releases.items():
            if release.kind == RENAMED:
                for row in world.table(world.output(f"Log{number}")):
                    if row[LogAttribute.STATUS]["S"] == StepStatus.DONE:
                        done.add((row[LogAttribute.SAGA_ID]["S"], row[LogAttribute.STEP]["S"]))
        violations = tuple(
            f"{name} of {saga_id} is done under both names"
            for saga_id, name in sorted(done)
            if (saga_id, _new(name)) in done
        )
        return Invariant(name="a renamed step happens once", checked=len(done), violations=violations)

    def _by_conditions_of_one_release(self, world: World) -> Invariant:
        """Check that what happened of a saga is what one release's conditions allow, and not some of each."""
        checked, violations = 0, []
        for record, number, body in _requests(world):
            release = self._releases.get(number)
            if release is None or release.kind != RECONDITIONED:
                continue
            saga_id = record[RecordAttribute.SAGA_ID]["S"]
            done = {
                row[LogAttribute.STEP]["S"].partition("[")[0]
                for row in world.table(world.output(f"Log{number}"))
                if row[LogAttribute.SAGA_ID]["S"] == saga_id and row[LogAttribute.STATUS]["S"] == StepStatus.DONE
            }
            checked += 1
            ways = [done - set(on_the_way(saga, body)) for saga in (self._sagas[number], release.saga)]
            if all(ways):
                violations.append(f"{saga_id} did {sorted(done)} of {body}: {sorted(ways[0])}, {sorted(ways[1])}")
        return Invariant(name="a saga goes by one release", checked=checked, violations=tuple(violations))

    def _each_saga_takes_one_way(self, world: World) -> Invariant:
        """Check that a step which is on the way by one route happened by no other one."""
        checked, violations = 0, []
        for log, sagas in self._logs():
            rows = {
                (row[LogAttribute.SAGA_ID]["S"], row[LogAttribute.STEP]["S"]): row
                for row in world.table(world.output(f"Log{log}"))
            }
            ways = {step.name: way for saga in sagas for step in saga.steps if (way := way_of(step)) is not None}
            for (saga_id, name), row in rows.items():
                if name not in ways or row[LogAttribute.STATUS]["S"] != StepStatus.DONE:
                    continue
                step, route = ways[name]
                skipped = rows.get((saga_id, step), {})
                output = json.loads(skipped.get(LogAttribute.OUTPUT, {"S": "{}"})["S"])
                checked += 1
                # A provider's refusal is in the row by its name, which each execution gets again.
                if route not in (output.get("instead"), skipped.get(LogAttribute.ERROR, {}).get("S")):
                    violations.append(f"{name} of {saga_id} is done, and {step} was not skipped by {route}")
        return Invariant(name="each saga takes one way", checked=checked, violations=tuple(violations))

    def _pieces_are_left(self, world: World) -> Invariant:
        """Check that the stock has what was not taken, and what was put back."""
        taken: list[int] = []
        for log, sagas in self._logs():
            names = {step.name for saga in sagas for step in saga.steps if step.posts == STOCK}
            for row in world.table(world.output(f"Log{log}")):
                if row[LogAttribute.STEP]["S"].partition("[")[0] in names:
                    taken += [-1 if key.endswith("#undo") else 1 for key, _ in _expected(row)]
        (pieces,) = (item for item in world.table(world.output("EffectsTableName")) if item["id"]["S"] == STOCK)
        left, wanted = int(pieces["pieces"]["N"]), self._stock - sum(taken)
        wrong = [f"{left} pieces are left, not {wanted}"] if left != wanted or left < 0 else []
        return Invariant(name="what is in stock was not taken", checked=len(taken), violations=tuple(wrong))

    def _books(self, world: World) -> Iterator[Invariant]:
        """Check what was posted and published."""
        rows: dict[str, tuple[str, Item]] = {}
        for name, sagas in self._logs():
            posts = {step.name: step.posts for saga in sagas for step in saga.steps if step.posts in LETTERS}
            for row in world.table(world.output(f"Log{name}")):
                step = row[LogAttribute.STEP]["S"].partition("[")[0]
                if step in posts:
                    rows |= {key: (posts[step], row) for key, _ in _expected(row)}
        if self._posts:
            yield books_agree(world, rows)
        told = {
            step_key_of(record[RecordAttribute.SAGA_ID]["S"], node.name)
            for record, number, _ in _requests(world)
            if number not in self._releases and record[RecordAttribute.STATUS]["S"] == RecordStatus.COMPLETED
            for node in self._sagas[number].nodes
            if isinstance(node, DrawnStep) and node.kind == "event" and node.when is None
        }
        if self._posts or any(step.kind == "event" for saga in self._sagas for step in saga.steps):
            yield events_were_consumed(world, rows.keys(), told)

    def audit(self, world: World) -> Iterable[Invariant]:
        effects = {
            item["id"]["S"]: int(item["times"]["N"])
            for item in world.table(world.output("EffectsTableName"))
            if "times" in item
        }
        at_provider: list[Item] = []
        names: set[str] = set()
        expected: dict[str, str] = {}
        for log, sagas in self._logs():
            kinds = {step.name: step.kind for saga in sagas for step in saga.steps}
            for row in world.table(world.output(f"Log{log}")):
                kind = kinds[row[LogAttribute.STEP]["S"].partition("[")[0]]
                if kind in (*PROVIDERS, "job"):
                    at_provider.append(row)
                    names.add(row[LogAttribute.STEP]["S"].partition("[")[0])
                elif kind in ("atomic", "dynamodb"):
                    expected |= dict(_expected(row))
        expected |= {
            record[RecordAttribute.SAGA_ID]["S"]: "the direct operation completed"
            for table in world.parts.requests
            for record in world.records(table)
            if is_direct(record) and record[RecordAttribute.STATUS]["S"] == RecordStatus.COMPLETED
        }
        orphans = [f"{key} happened without its row" for key in effects.keys() - expected]
        missing = [f"{told}, and {key} did not happen" for key, told in expected.items() if key not in effects]
        twice = [f"{key} happened {times} times" for key, times in effects.items() if times > 1]
        return [
            self._messages.audit(),
            self._conditions_hold(world),
            self._objects_are_stored(world),
            self._not_under_both_names(world),
            self._each_saga_takes_one_way(world),
            self._by_conditions_of_one_release(world),
            Invariant(
                name="rows and effects agree", checked=len(expected), violations=(*sorted(orphans), *missing, *twice)
            ),
            self._pieces_are_left(world),
            *self._books(world),
            *audit_provider(at_provider, self._provider.effects(), steps=names),
        ]


def _refuses_items(saga: DrawnSaga) -> bool:
    """True if the saga has maps, each of which may refuse it."""
    maps = [node for node in saga.nodes if isinstance(node, DrawnGroup) and node.kind == "map"]
    return bool(maps) and all(map(may_refuse, maps))


def _new(row: str) -> str:
    """The name of a row under its step's new name."""
    name, bracket, item = row.partition("[")
    return f"{new_name(name)}{bracket}{item}"


def direct_intent(random: Random) -> Intent:
    word = random.choice((None, None, "refuse", "crash", "slow"))
    body: dict[str, Any] = {"behave": {"Direct": word} if word else {}, "number": random.randrange(3)}
    return Intent(
        operation=random.choice((DIRECT, OPEN)),
        body=body,
        user=random.choice(("ann", "bob")),
        other_body={**body, "number": 3},
        key=random.choice((None, f"direct-{random.randrange(3)}")),
    )


def _requests(world: World) -> Iterator[tuple[Item, int, Mapping[str, Any]]]:
    """Records that keep their request, the number of the saga, and the request."""
    for table in world.parts.requests:
        for record in world.records(table):
            if RecordAttribute.INPUT in record and not is_direct(record):
                yield record, number_of(record), _body_of(record)


def _body_of(record: Item) -> Mapping[str, Any]:
    """The request of a record that keeps it."""
    body: Mapping[str, Any] = json.loads(json.loads(record[RecordAttribute.INPUT]["S"])["request"])
    return body


def _expected(row: Item) -> Iterator[tuple[str, str]]:
    """Keys of the effects of a row."""
    saga_id, name, status = (
        row[attribute]["S"] for attribute in (LogAttribute.SAGA_ID, LogAttribute.STEP, LogAttribute.STATUS)
    )
    step, _, item = name.removesuffix("]").partition("[")
    if status in (StepStatus.DONE, StepStatus.COMPENSATED) and LogAttribute.SUBSTITUTE not in row:
        yield step_key_of(saga_id, step, item_key=item or None), f"{name} is {status}"
        if status == StepStatus.COMPENSATED:
            yield step_key_of(saga_id, step, item_key=item or None, undo=True), f"{name} is {status}"


def drawn_body(saga: DrawnSaga, random: Random) -> dict[str, Any]:
    """A request, which also determines the behaviour of functions."""
    body: dict[str, Any] = {name: random.random() < 0.5 for name in MEMBERS}
    if random.random() < 0.1:
        del body["c"]
    body["amount"] = AMOUNT
    body["items"] = [
        {"sku": sku, "amount": AMOUNT} for sku in random.sample(_SKUS, k=random.choice((0, 1, 2, 3, 3, 12)))
    ]
    share, sizes = (_REFERENCED, _LARGE) if saga.body == REFERENCED else (_PADDED, _PADDING)
    if random.random() < share:
        body["padding"] = "x" * random.choice(sizes)
    if random.random() < _LAVISH:
        body["items"] = [{"sku": sku, "amount": AMOUNT} for sku in _SKUS]
        body["behave"] = {step.name: f"large {_size(saga, random)}" for step in saga.steps if _can_refuse(step)}
        return body
    body["behave"] = {step.name: word for step in saga.steps if (word := _behaviour(saga, step, random))}
    if saga.inline and random.random() < _SKIPPED:
        body["behave"] |= {step.name: "route" for step in saga.steps if step.route == SKIP}
    return body


def _can_refuse(step: DrawnStep) -> bool:
    """True if the step's function may refuse, or return more than the library accepts."""
    return step.refusable and step.kind in ("atomic", "read", *PROVIDERS)


def _size(saga: DrawnSaga, random: Random) -> int:
    size = random.choice(_SIZES)
    return size if sum(map(_can_refuse, saga.steps)) < 3 else min(size, _THREE_FIT)


def _enlarge(saga: DrawnSaga, body: dict[str, Any]) -> None:
    """Let the provider report large outputs of some jobs, as drawn from the request itself."""
    random, jobs = Random(f"reports {json.dumps(body)}"), list(jobs_outside_of_maps(saga))
    if random.random() >= _LARGE_REPORTS or any(word.startswith("large") for word in body["behave"].values()):
        return
    for step in random.sample(jobs, min(len(jobs), _MOST_REPORTS)):
        body["behave"][step.name] = f"large {random.choice(_SIZES)}"


def _behaviour(saga: DrawnSaga, step: DrawnStep, random: Random) -> str | None:
    if random.random() < 0.65:
        return None
    words = [*_ANYWHERE]
    if step.kind in (*PROVIDERS, "job"):
        words += _AT_PROVIDERS
    if step.kind == "job" and step.refusable:
        words += ["refuse", "decline"]
    if _can_refuse(step):
        words += ["refuse", f"large {_size(saga, random)}"]
        words += ["decline"] if step.kind in PROVIDERS else []
    if step.route and can_route(step):
        words += ["route"]
    return random.choice(words)
