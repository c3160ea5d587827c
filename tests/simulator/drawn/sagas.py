"""Drawn sagas as plain data: any saga that the synth accepts."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

MEMBERS: Final = ("a", "b", "c")
"""Members of a request, true or false, that conditions read. ``c`` may be missing."""
_WAYS: Final = ("$request.a", "$not($request.a)", "$request.b", "$not($request.b)")
_BOTH: Final = ("$request.a and $request.b", "$request.a and $not($request.b)")
SMALL: Final = 32_768
"""Bytes of a request: the default of an operation."""
INLINE: Final = 65_536
"""The most of one that expressions may read."""
REFERENCED: Final = 200_000
"""More than that: such a request travels by reference."""
MUTATING: Final = ("atomic", "asked", "keyed", "both", "dynamodb", "job")
PROVIDERS: Final = ("asked", "keyed", "both")
"""Steps at a provider that can be asked, knows keys, or both."""
PHASES: Final = ("express", "child")
SKIP: Final = "continue"
ROUTES: Final = ("Routed", "Rerouted")
"""Refusals for which a step of the route ``SKIP`` is skipped, each with an output of its own."""
JOB_ROUTES: Final = ("SoldOut",)
"""Refusals for which a job, or a wait, of the route ``SKIP`` is skipped."""
ITEMS: Final = "$request.items"
_MOST_ITEMS: Final = 12
_JOBS_SKIPPED: Final = 0.4
"""Share of jobs and waits that are skipped when they are refused."""
_SKIPPED_BEHIND: Final = 0.2
"""Share of steps behind the pivot that may be skipped."""
_JOBS_BEHIND: Final = 0.5
"""Share of the atomic steps behind the pivot that are jobs instead."""
_WAITS_BEHIND: Final = 0.25
"""Share of the others that are waits."""
_ITEMS_OF_A_STEP: Final = 0.4
"""Share of maps whose items are from the output of a step that may be skipped, or from its substitute output."""
_SOURCE: Final = "I1"
_LARGE_REQUESTS: Final = 0.5
"""Share of sagas that take larger requests than by default."""
_IN_BUCKETS: Final = 0.5
"""Share of these that have a bucket for that."""
_ONE_WAY: Final = 0.5
"""Share of the steps behind a skipped one that only one of its routes reaches."""
_SKIPPED: Final = 0.4
"""Share of inline sagas that begin with a step that is skipped by routes."""
_POSTING_SAGAS: Final = 0.6
"""Share of sagas that post to a ledger."""
_POSTING: Final = 0.8
"""Share of their atomic steps that do."""
_HOLDING: Final = 0.7
"""Share of these sagas that hold what they capture, if they have a step that can."""
_SELLING: Final = 0.5
"""Share of the refusable ``dynamodb`` steps that take from a stock."""
STOCK: Final = "stock"
_HOSTED: Final = 0.2
"""Share of the steps at a provider whose functions a step host calls."""
_TOKENS: Final = 0.4
"""Share of the look-ups, where something may wait, that are states of the user's own which wait for a task token."""
_FEW_ITEMS: Final = 0.4
"""Share of the maps which may refuse their saga that take few items."""
_SHORT: Final = 0.5
"""Share of the phases with a timeout that they may exceed."""
LETTERS: Final = {
    "debit": "D",
    "transfer": "T",
    "pay out": "P",
    "credit": "C",
    "book": "B",
    "hold": "H",
    "hold long": "L",
    "capture": "K",
}
"""First letters of the names of steps that post."""
_BY_ROUTE: Final = re.compile(r'\$outputs\.(?P<step>\w+)\.instead = "(?P<route>\w+)"')
_BY_OUTPUT: Final = re.compile(r"\$outputs\.(?P<step>\w+)\.items")

_QUICK: Final = frozenset(
    {"atomic", "asked", "keyed", "both", "dynamodb", "read", "look up", "store", "notify", "event"}
)
"""Kinds that an Express execution can run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnStep:
    """A step.

    Attributes:
        name: unique in its saga.
        kind: of ``MUTATING``; or ``read``, ``look up``, ``wait``, ``notify``, ``event``, ``store``, ``pause``,
            ``token``.
        undo: whether it has a compensation.
        pivot: whether it is a pivot.
        when: its condition.
        route: route of the refusals ``Routed``, and ``Rerouted`` if it is ``SKIP``: ``notify``, ``SKIP`` or None; of a
            job or a wait, of ``SoldOut``: ``SKIP`` or None.
        refusable: whether its refusal ends the saga, or is skipped, instead of having it parked.
        posts: of ``atomic``, what it posts to the ledger in its transaction, with an event: ``debit``, which its
            compensation refunds, ``transfer``, ``pay out``, ``credit``, ``book``, ``hold``, ``hold long`` or
            ``capture``, of the saga's hold; of ``dynamodb``: ``stock``, which may be sold out; "": nothing.
        hosted: whether a step host calls its functions.
    """

    name: str
    kind: str
    undo: bool = False
    pivot: bool = False
    when: str | None = None
    route: str | None = None
    refusable: bool = True
    posts: str = ""
    hosted: bool = False

    @property
    def is_final(self) -> bool:
        """True if it is a pivot, or cannot be compensated."""
        return self.pivot or not self.undo

    @property
    def steps(self) -> Iterator[DrawnStep]:
        """The step itself."""
        yield self

    def __str__(self) -> str:
        told = [
            self.kind,
            "undone" if self.undo else "",
            "PIVOT" if self.pivot else "",
            f"if {self.when}" if self.when else "",
            f"Routed: {self.route}" if self.route else "",
            f"posts: {self.posts}" if self.posts else "",
            "hosted" if self.hosted else "",
        ]
        return f"{self.name} ({', '.join(filter(None, told))})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnGroup:
    """A group of steps: ``parallel``, ``map``, ``express`` or ``child``.

    Attributes:
        items: of a map, their path, in the request or in the output of an earlier step.
        short: of a phase, whether it has a timeout that it may exceed.
    """

    name: str
    kind: str
    branches: tuple[tuple[DrawnStep, ...], ...]
    when: str | None = None
    max_items: int = _MOST_ITEMS
    items: str = ITEMS
    short: bool = False

    @property
    def steps(self) -> Iterator[DrawnStep]:
        """Every step in it."""
        for branch in self.branches:
            yield from branch

    def __str__(self) -> str:
        branches = " | ".join(", ".join(map(str, branch)) for branch in self.branches)
        of = f" of {self.items}" if self.kind == "map" and self.items != ITEMS else ""
        told = [
            f"{self.kind}{of}",
            f"if {self.when}" if self.when else "",
            f"at most {self.max_items} items" if self.max_items != _MOST_ITEMS else "",
            "with a short timeout" if self.short else "",
        ]
        return f"{self.name} ({', '.join(filter(None, told))}) [{branches}]"


Node = DrawnStep | DrawnGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnSaga:
    """A saga.

    Attributes:
        nodes: its steps and groups.
        announced: whether failures are announced.
        bucket: whether large payloads have a bucket.
        inline: whether it runs inline.
        body: bytes of its largest request.
        queued: whether messages of a queue begin it, too, under the operation of its clients.
    """

    nodes: tuple[Node, ...]
    announced: bool = False
    bucket: bool = False
    inline: bool = False
    body: int = SMALL
    queued: bool = False

    @property
    def steps(self) -> Iterator[DrawnStep]:
        """Every step."""
        for node in self.nodes:
            yield from node.steps

    def __str__(self) -> str:
        told = [*(["failures are announced"] if self.announced else []), *(["with a bucket"] if self.bucket else [])]
        told += ["inline"] if self.inline else []
        told += [f"requests of {self.body:,} bytes"] if self.body != SMALL else []
        told += ["a queue begins it, too"] if self.queued else []
        return "\n".join([*map(str, self.nodes), *told])


def drawn_saga(seed: int) -> DrawnSaga:
    """The saga of a seed. Half of those that an Express execution can run are inline."""
    saga = _skipping_more(_Dice(seed).saga(), Random(f"{seed}:jobs"))
    inline = _fits_express(saga) and Random(f"{seed}:inline").random() < 0.5
    skipped = Random(f"{seed}:skipped")
    if inline and skipped.random() < _SKIPPED:
        saga = _skipping(saga, skipped)
    elif not inline:
        saga = _with_jobs_behind(saga, Random(f"{seed}:jobs behind"))
        saga = _with_waits_behind(saga, Random(f"{seed}:waits behind"))
        saga = _with_hosts_and_tokens(saga, Random(f"{seed}:hosts"))
    saga = _posting(saga, Random(f"{seed}:posts"))
    saga = dataclasses.replace(_by_routes(saga, Random(f"{seed}:routes")), inline=inline)
    # Two executions of an inline saga may see different outputs.
    saga = saga if inline else _of_outputs(saga, Random(f"{seed}:items"))
    saga = _with_bounds(_selling(saga, Random(f"{seed}:stock")), Random(f"{seed}:bounds"))
    bodies = Random(f"{seed}:body")
    if bodies.random() >= _LARGE_REQUESTS:
        return saga
    return _with_large_requests(dataclasses.replace(saga, bucket=saga.bucket or bodies.random() < _IN_BUCKETS))


def _with_large_requests(saga: DrawnSaga) -> DrawnSaga:
    """The saga with the largest requests that the synth takes."""
    return dataclasses.replace(saga, body=REFERENCED if saga.bucket and not reads_request(saga) else INLINE)


def reads_request(saga: DrawnSaga) -> bool:
    """True if an expression of the saga reads the request, which then travels inline."""
    conditions = [*(node.when for node in saga.nodes), *(step.when for step in saga.steps)]
    maps = any(isinstance(node, DrawnGroup) and node.kind == "map" and node.items == ITEMS for node in saga.nodes)
    return maps or any(when is not None and "$request" in when for when in conditions)


def way_of(step: DrawnStep) -> tuple[str, str] | None:
    """The skipped step by whose route a step is on the way, and the route; None: routes do not matter to it."""
    found = _BY_ROUTE.fullmatch(step.when or "")
    return (found["step"], found["route"]) if found is not None else None


def items_of(step: str) -> str:
    """Path of a map's items in the output of an earlier step."""
    return f"$outputs.{step}.items"


def source_of(group: DrawnGroup) -> str | None:
    """The earlier step from whose output a map's items are; None: they are from the request."""
    found = _BY_OUTPUT.fullmatch(group.items)
    return found["step"] if found is not None else None


def on_the_way(saga: DrawnSaga, body: Mapping[str, object]) -> Iterator[str]:
    """Names of the steps that are on the way of a request, as far as it decides."""
    for node in saga.nodes:
        if _holds(node.when, body):
            yield from (step.name for step in node.steps if step is node or _holds(step.when, body))


def _holds(when: str | None, body: Mapping[str, object]) -> bool:
    a, b = body.get("a") is True, body.get("b") is True
    known = {
        "$request.a": a,
        "$not($request.a)": not a,
        "$request.b": b,
        "$not($request.b)": not b,
        "$request.a and $request.b": a and b,
        "$request.a and $not($request.b)": a and not b,
    }
    return known.get(when, True) if when is not None else True


def way_by(step: str, route: str) -> str:
    """The condition of a step that is on the way only if another one was skipped by one of its routes."""
    return f'$outputs.{step}.instead = "{route}"'


def _skipping(saga: DrawnSaga, random: Random) -> DrawnSaga:
    """The saga behind a step that is skipped by routes, each of which other steps follow.

    Express and Standard must take the same route.
    """
    skipped, kinds = "R1", ("atomic", *PROVIDERS)
    first = DrawnStep(name=skipped, kind=random.choice(kinds), undo=True, route=SKIP)
    before = [
        DrawnStep(name=f"R{number}", kind=random.choice(kinds), undo=True, when=way_by(skipped, route))
        for number, route in enumerate(ROUTES, start=2)
    ]
    after = [
        DrawnStep(name=f"R{number}", kind=random.choice(kinds), refusable=False, when=way_by(skipped, route))
        for number, route in enumerate(ROUTES, start=4)
    ]
    pivots = any(step.pivot for step in saga.steps)
    found = (*random.sample(before, random.randint(0, 2)), *saga.nodes)
    last = random.sample(after, random.randint(0, 2)) if pivots else []
    return dataclasses.replace(saga, nodes=(first, *found, *last))


def _skipping_more(saga: DrawnSaga, random: Random) -> DrawnSaga:
    """The saga, in which some jobs and waits are skipped when they are refused, and may be done after all.

    So are some steps of which no other refusal is drawn, most of them behind the pivot.
    """

    def changed(step: DrawnStep) -> DrawnStep:
        if step.pivot:
            return step
        waits = step.kind in ("job", "wait") and step.refusable
        share = _JOBS_SKIPPED if waits else _SKIPPED_BEHIND if can_route(step) and not step.refusable else 0
        return dataclasses.replace(step, route=SKIP) if random.random() < share else step

    found = with_each_step(saga, changed)
    return found if _always_acts(found) else saga


def _with_jobs_behind(saga: DrawnSaga, random: Random) -> DrawnSaga:
    """The saga, in which some steps that may not be refused are jobs, of names that no other step has."""

    def changed(step: DrawnStep) -> DrawnStep:
        if step.kind != "atomic" or step.refusable or random.random() >= _JOBS_BEHIND:
            return step
        return dataclasses.replace(step, name=step.name.replace("S", "J"), kind="job")

    return _outside_of_express(saga, changed)


def _with_waits_behind(saga: DrawnSaga, random: Random) -> DrawnSaga:
    """The saga, in which some steps that may not be refused are waits, of names that no other step has.

    Half of them are skipped if nothing happens in time; without the others the saga cannot continue.
    """

    def changed(step: DrawnStep) -> DrawnStep:
        if step.kind != "atomic" or step.refusable or random.random() >= _WAITS_BEHIND:
            return step
        route = random.choice((SKIP, None))
        return dataclasses.replace(step, name=step.name.replace("S", "W"), kind="wait", undo=False, route=route)

    found = _outside_of_express(saga, changed)
    return found if _always_acts(found) else saga


def _outside_of_express(saga: DrawnSaga, change: Callable[[DrawnStep], DrawnStep]) -> DrawnSaga:
    """The saga with each step changed that is in no Express phase, where nothing waits."""
    nodes = (
        node if isinstance(node, DrawnGroup) and node.kind == "express" else _each_step_of(node, change)
        for node in saga.nodes
    )
    return dataclasses.replace(saga, nodes=tuple(nodes))


def _posting(saga: DrawnSaga, random: Random) -> DrawnSaga:
    """The saga, in which some atomic steps post to a ledger; perhaps the first one holds what another one captures."""
    if random.random() >= _POSTING_SAGAS:
        return saga

    def changed(step: DrawnStep) -> DrawnStep:
        if step.kind != "atomic" or step.route == SKIP or random.random() >= _POSTING:
            return step
        if step.undo:
            return _posts(step, "debit" if step.refusable else "book")
        return _posts(step, random.choice(("transfer", "pay out")) if step.refusable else "credit")

    found = with_each_step(saga, changed)
    last = [step for step in found.nodes if isinstance(step, DrawnStep) and step.posts and step.is_final]
    if not last or random.random() >= _HOLDING:
        return found
    captures = random.choice(last)
    hold = DrawnStep(name="S0", kind="atomic", undo=True)
    nodes = (_posts(node, "capture") if node is captures else node for node in found.nodes)
    return dataclasses.replace(found, nodes=(_posts(hold, "hold" if captures.refusable else "hold long"), *nodes))


def _posts(step: DrawnStep, what: str) -> DrawnStep:
    """The step that posts, whose function knows what by the first letter of its name."""
    return dataclasses.replace(step, name=f"{LETTERS[what]}{step.name[1:]}", posts=what)


def _selling(saga: DrawnSaga, random: Random) -> DrawnSaga:
    """The saga, in which some steps without a function take from a stock, or are refused."""

    def changed(step: DrawnStep) -> DrawnStep:
        sells = step.kind == "dynamodb" and step.refusable and random.random() < _SELLING
        return dataclasses.replace(step, posts=STOCK) if sells else step

    return with_each_step(saga, changed)


def _with_bounds(saga: DrawnSaga, random: Random) -> DrawnSaga:
    """The saga, in which some maps take few items, and some phases have short timeouts."""

    def bounded(node: Node) -> Node:
        if not isinstance(node, DrawnGroup):
            return node
        few = node.kind == "map" and may_refuse(node) and random.random() < _FEW_ITEMS
        short = node.kind in PHASES and random.random() < _SHORT
        return dataclasses.replace(node, short=short, max_items=random.randint(1, 3) if few else node.max_items)

    return dataclasses.replace(saga, nodes=tuple(map(bounded, saga.nodes)))


def may_refuse(group: DrawnGroup) -> bool:
    """True if the group is before every pivot, and may refuse its saga."""
    return all(step.refusable for step in group.steps)


def without_lost_captures(saga: DrawnSaga) -> DrawnSaga:
    """The saga without captures of what no step holds."""
    if any(step.posts.startswith("hold") for step in saga.steps):
        return saga
    return with_each_step(saga, lambda step: dataclasses.replace(step, posts="") if step.posts == "capture" else step)


def _with_hosts_and_tokens(saga: DrawnSaga, random: Random) -> DrawnSaga:
    """The saga, in which a step host calls functions of some steps, and some look-ups wait for a task token."""

    def changed(step: DrawnStep) -> DrawnStep:
        if step.kind == "look up" and random.random() < _TOKENS:
            return dataclasses.replace(step, kind="token")
        return dataclasses.replace(step, hosted=step.kind in PROVIDERS and random.random() < _HOSTED)

    nodes = (
        node if isinstance(node, DrawnGroup) and node.kind == "express" else _each_step_of(node, changed)
        for node in saga.nodes
    )
    return dataclasses.replace(saga, nodes=tuple(nodes))


def needed_jobs(saga: DrawnSaga) -> Iterator[str]:
    """Names of the jobs without which the saga cannot continue behind its pivot: their refusal has it parked."""
    yield from (step.name for step in saga.steps if step.kind == "job" and not step.refusable and step.route != SKIP)


def needed_waits(saga: DrawnSaga) -> Iterator[str]:
    """Names of the waits without which the saga cannot continue behind its pivot."""
    yield from (step.name for step in saga.steps if step.kind == "wait" and not step.refusable and step.route != SKIP)


def jobs_outside_of_maps(saga: DrawnSaga) -> Iterator[DrawnStep]:
    """Jobs that a saga has once."""
    for node in saga.nodes:
        if not (isinstance(node, DrawnGroup) and node.kind == "map"):
            yield from (step for step in node.steps if step.kind == "job")


def with_each_step(saga: DrawnSaga, change: Callable[[DrawnStep], DrawnStep]) -> DrawnSaga:
    """The saga with each step changed."""

    return dataclasses.replace(saga, nodes=tuple(_each_step_of(node, change) for node in saga.nodes))


def _each_step_of(node: Node, change: Callable[[DrawnStep], DrawnStep]) -> Node:
    if isinstance(node, DrawnStep):
        return change(node)
    return dataclasses.replace(node, branches=tuple(tuple(map(change, branch)) for branch in node.branches))


def _of_outputs(saga: DrawnSaga, random: Random) -> DrawnSaga:
    """The saga, in which items of some maps are from the output of a step before that may be skipped.

    Before a pivot such a step is added, unless the saga has one.
    """
    nodes: list[Node] = []
    skipped: list[str] = []
    for node in saga.nodes:
        if isinstance(node, DrawnGroup) and node.kind == "map" and random.random() < _ITEMS_OF_A_STEP:
            if not skipped and not any(step.pivot for found in nodes for step in found.steps):
                nodes.append(DrawnStep(name=_SOURCE, kind=random.choice(PROVIDERS), undo=True, route=SKIP))
                skipped.append(_SOURCE)
            source = random.choice(skipped) if skipped else None
            nodes.append(node if source is None else dataclasses.replace(node, items=items_of(source)))
            continue
        if isinstance(node, DrawnStep) and _is_source(node):
            skipped.append(node.name)
        nodes.append(node)
    return dataclasses.replace(saga, nodes=tuple(nodes))


def _is_source(step: DrawnStep) -> bool:
    """True if a step has an output in each run, its own or another one."""
    return step.route == SKIP and step.when is None and can_route(step)


def can_route(step: DrawnStep) -> bool:
    """True if the step's function may raise a refusal that has a route."""
    return step.kind in ("atomic", *PROVIDERS)


def _by_routes(saga: DrawnSaga, random: Random) -> DrawnSaga:
    """The saga, in which some steps are on the way only by one of an earlier step's routes."""
    nodes: list[Node] = []
    skipped: list[DrawnStep] = []
    for drawn in saga.nodes:
        node = drawn
        free = isinstance(drawn, DrawnStep) and drawn.when is None and not drawn.pivot
        if skipped and free and random.random() < _ONE_WAY:
            step = random.choice(skipped)
            routes = JOB_ROUTES if step.kind == "job" else ROUTES
            node = dataclasses.replace(drawn, when=way_by(step.name, random.choice(routes)))
        nodes.append(node)
        if isinstance(node, DrawnStep) and node.route == SKIP and node.kind != "wait":
            skipped.append(node)
    changed = dataclasses.replace(saga, nodes=tuple(nodes))
    return changed if _always_acts(changed) else saga


def drawn_queued(seed: int) -> DrawnSaga:
    """The saga of a seed, which messages begin, too."""
    return dataclasses.replace(drawn_saga(seed), queued=True)


def drawn_inline(seed: int) -> DrawnSaga:
    """The first inline saga from a thousand times a seed on."""
    number = 1_000 * seed
    while not (saga := drawn_saga(number)).inline:
        number += 1
    return saga


def _fits_express(saga: DrawnSaga) -> bool:
    """True if nothing of the saga waits, has a state machine of its own, or is read without a record."""
    groups = [node for node in saga.nodes if isinstance(node, DrawnGroup)]
    last = saga.nodes[-1]
    # Later steps would see what no row keeps.
    looked_up = any(step.kind == "look up" and step is not last for step in saga.steps)
    phases = any(group.kind in PHASES for group in groups)
    return not looked_up and not phases and all(step.kind in _QUICK for step in saga.steps)


class _Dice:
    def __init__(self, seed: int) -> None:
        self._random = Random(f"{seed}:saga")
        self._count = 0

    def saga(self) -> DrawnSaga:
        pivots = self._random.choice((0, 1, 1, 1, 2, 2))
        ways: tuple[str | None, ...] = (None,)
        if pivots == 1 and self._chance(0.5):
            ways = (self._random.choice(_WAYS),)
        elif pivots == 2:
            ways = self._random.choice((_WAYS[:2], _WAYS[2:], _BOTH))
        nodes: list[Node] = [self._before() for _ in range(self._random.randint(0, 2))]
        for number in range(pivots):
            nodes.append(self._pivot(ways[number], alone=pivots == 1))
            if number < pivots - 1 and self._chance(0.4):
                nodes.append(self._before(refusable=False))
        if pivots:
            nodes += [self._after() for _ in range(self._random.randrange(3))]
        else:
            # Without a pivot nothing is final until the saga settles: the last mutating step runs in parallel.
            nodes.append(self._beside(undo=True, refusable=True))
        if not _always_acts(DrawnSaga(nodes=tuple(nodes))):
            nodes.insert(0, DrawnStep(name=self._name(), kind=self._random.choice(MUTATING), undo=True))
        return DrawnSaga(nodes=tuple(nodes), announced=self._chance(0.5), bucket=self._chance(0.3))

    def _before(self, *, refusable: bool = True) -> Node:
        """Steps that can be compensated."""
        shape = self._random.randrange(8)
        if shape == 0:
            return self._beside(undo=True, refusable=refusable)
        if shape == 1:
            return self._phase(undo=True, refusable=refusable)
        return self._step(undo=True, refusable=refusable)

    def _after(self) -> Node:
        """Steps that cannot be compensated, mostly."""
        shape = self._random.randrange(8)
        if shape < 2:
            return DrawnStep(
                name=self._name(), kind=self._random.choice(("notify", "event", "store", "pause")), when=self._when()
            )
        undo = self._chance(0.3)
        if shape == 2:
            return self._beside(undo=undo, refusable=False)
        if shape == 3:
            return self._phase(undo=undo, refusable=False)
        return self._step(undo=undo, refusable=False)

    def _pivot(self, when: str | None, *, alone: bool) -> Node:
        if not alone or self._chance(0.7):
            kind = self._random.choice(MUTATING)
            return DrawnStep(name=self._name(), kind=kind, undo=self._chance(0.3), pivot=True, when=when)
        phase = self._random.choice(PHASES)
        first = [self._leaf(phase, undo=True, refusable=True)] if self._chance(0.5) else []
        pivot = DrawnStep(name=self._name(), kind=self._random.choice(MUTATING[:5]), pivot=True)
        last = [self._leaf(phase, undo=False, refusable=False)] if phase == "child" and self._chance(0.5) else []
        return DrawnGroup(name=self._name(), kind=phase, branches=((*first, pivot, *last),), when=when)

    def _beside(self, *, undo: bool, refusable: bool) -> Node:
        kind = self._random.choice(("parallel", "map"))
        branches = [
            tuple(self._leaf(kind, undo=undo, refusable=refusable) for _ in range(self._random.choice((1, 1, 2))))
            for _ in range(self._random.randint(2, 3) if kind == "parallel" else 1)
        ]
        if undo and not any(step.kind in MUTATING for branch in branches for step in branch):
            branches[0] = (DrawnStep(name=self._name(), kind="atomic", undo=True, refusable=refusable), *branches[0])
        return DrawnGroup(name=self._name(), kind=kind, branches=tuple(branches), when=self._when())

    def _phase(self, *, undo: bool, refusable: bool) -> Node:
        kind = self._random.choice(PHASES)
        steps = tuple(self._leaf(kind, undo=undo, refusable=refusable) for _ in range(self._random.randint(1, 2)))
        return DrawnGroup(name=self._name(), kind=kind, branches=(steps,), when=self._when())

    def _leaf(self, within: str, *, undo: bool, refusable: bool) -> DrawnStep:
        """A step in a group: nothing is waited for in an Express phase."""
        step = self._step(undo=undo, refusable=refusable)
        if within == "express" and step.kind in ("job", "wait"):
            return dataclasses.replace(step, kind="atomic", undo=undo)
        return step

    def _step(self, *, undo: bool, refusable: bool) -> DrawnStep:
        kinds = (*MUTATING, "atomic", "both", "read", "look up", *(("wait",) if refusable else ()))
        kind = self._random.choice(kinds)
        if kind == "job" and not refusable:
            kind = "atomic"  # of which some become jobs
        routes = ("notify", SKIP) if refusable and kind in ("atomic", *PROVIDERS) else ()
        return DrawnStep(
            name=self._name(),
            kind=kind,
            undo=undo and kind in MUTATING,
            when=self._when(missing=refusable),
            route=self._random.choice(routes) if routes and self._chance(0.4) else None,
            refusable=refusable,
        )

    def _when(self, *, missing: bool = False) -> str | None:
        if self._chance(0.6):
            return None
        return self._random.choice((*_WAYS, "$request.c") if missing else _WAYS)

    def _chance(self, of: float) -> bool:
        return self._random.random() < of

    def _name(self) -> str:
        self._count += 1
        return f"S{self._count}"


def _always_acts(saga: DrawnSaga) -> bool:
    """True if every run of the saga has an effect: the audit rejects a completed saga without a row."""
    certain = [node for node in saga.nodes if isinstance(node, DrawnStep) and node.kind in MUTATING and not node.when]
    return any(step.route != SKIP for step in certain)


def smaller(saga: DrawnSaga) -> Iterator[DrawnSaga]:
    """Sagas with fewer nodes, and with one thing less each, the smallest first.

    The synth does not take each of them.
    """
    less = itertools.chain(_with_fewer_nodes(saga), _of_requests(saga), _with_less(saga))
    return filter(_always_acts, map(without_lost_captures, less))


def only(saga: DrawnSaga, names: Collection[str]) -> Iterator[DrawnSaga]:
    """The saga with the nodes alone that have steps of these names, if it is a smaller one."""
    nodes = tuple(node for node in saga.nodes if any(step.name in names for step in node.steps))
    if 0 < len(nodes) < len(saga.nodes):
        yield from filter(_always_acts, [without_lost_captures(dataclasses.replace(saga, nodes=nodes))])


def _with_fewer_nodes(saga: DrawnSaga) -> Iterator[DrawnSaga]:
    """Without half of the nodes, a quarter of them, and so on, down to two."""
    size = len(saga.nodes) // 2
    while size > 1:
        for first in range(0, len(saga.nodes), size):
            yield dataclasses.replace(saga, nodes=(*saga.nodes[:first], *saga.nodes[first + size :]))
        size //= 2


def _of_requests(saga: DrawnSaga) -> Iterator[DrawnSaga]:
    """With the items of each map from the request."""
    for index, node in enumerate(saga.nodes):
        if isinstance(node, DrawnGroup) and node.items != ITEMS:
            plain = dataclasses.replace(node, items=ITEMS)
            yield dataclasses.replace(saga, nodes=(*saga.nodes[:index], plain, *saga.nodes[index + 1 :]))


def _with_less(saga: DrawnSaga) -> Iterator[DrawnSaga]:
    replace = dataclasses.replace
    for index, node in enumerate(saga.nodes):
        around = saga.nodes[:index], saga.nodes[index + 1 :]
        if len(saga.nodes) > 1:
            yield replace(saga, nodes=(*around[0], *around[1]))
        if isinstance(node, DrawnGroup):
            for step in node.steps:
                yield replace(saga, nodes=(*around[0], step, *around[1]))
            for place, branch in enumerate(node.branches):
                without = [branch[:n] + branch[n + 1 :] for n in range(len(branch))]
                for left in without:
                    others = (*node.branches[:place], *((left,) if left else ()), *node.branches[place + 1 :])
                    if others:
                        yield replace(saga, nodes=(*around[0], replace(node, branches=others), *around[1]))
        for plainer in _plainer(node):
            yield replace(saga, nodes=(*around[0], plainer, *around[1]))
    for name in ("announced", "bucket", "inline", "queued"):
        if getattr(saga, name):
            yield replace(saga, **{name: False})
    if saga.body != SMALL:
        yield replace(saga, body=SMALL)


def _plainer(node: Node) -> Iterator[Node]:
    """The node without its condition, its routes, its bounds, its host, or what it posts."""
    if node.when is not None:
        yield dataclasses.replace(node, when=None)
    if isinstance(node, DrawnStep) and node.route is not None:
        yield dataclasses.replace(node, route=None)
    if isinstance(node, DrawnStep) and (node.posts or node.hosted):
        yield dataclasses.replace(node, posts="", hosted=False)
    if isinstance(node, DrawnGroup) and (node.short or node.max_items != _MOST_ITEMS):
        yield dataclasses.replace(node, short=False, max_items=_MOST_ITEMS)
