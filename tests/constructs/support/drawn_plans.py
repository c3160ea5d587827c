"""Any saga: plans, requests and interruptions, drawn out of one number."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from constructs_lib.saga.asl import CompiledStep, Node, SagaPlan
from tests.constructs.support.groups import child, direct, express, of_items, parallel, plan
from tests.constructs.support.plans import QUEUE, step

_WAYS = ("$request.a", "$not($request.a)", "$request.b = true", "$not($request.b = true)", "$request.c")
"""Conditions. One that is neither true nor false, because what it looks for is missing, fails the saga."""


class Drawn:
    """A valid saga, and a request for it.

    Attributes:
        plan: the saga. Its pivots, from none to three, may all lie off the request's path.
        request: the request's body.
        refused: rows of the steps that are refused.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._count = 0
        self.plan = self._plan()
        self.request = self._request()
        names = [leaf.name for leaf in self.plan.leaves]
        self.refused = frozenset(self._random.sample(names, k=self._random.choice((0, 0, 0, 1))))

    def _plan(self) -> SagaPlan:
        pivots = self._random.choice((0, 1, 1, 1, 2, 2, 3))
        nodes: list[Node] = list(self._before())
        for _ in range(pivots):
            nodes += [self._pivot(conditional=pivots > 1 or self._chance(0.7)), *self._before(most=1)]
        # With no pivot nothing is final before the saga settles.
        nodes += self._before(least=1) if not pivots else self._after()
        return plan(*nodes)

    def _request(self) -> dict[str, Any]:
        members = {name: self._random.choice((True, False)) for name in "abc" if self._chance(0.9)}
        return {**members, "items": [{"sku": sku} for sku in self._random.sample("xyz", k=self._random.randrange(4))]}

    def _pivot(self, *, conditional: bool) -> Node:
        when = self._random.choice(_WAYS) if conditional else None
        if self._chance(0.75):
            return step(self._name(), pivot=True, undo=self._chance(0.3), when=when)
        steps = [step(self._name(), undo=True), step(self._name(), pivot=True), step(self._name())]
        return self._random.choice((express, child))(self._name(), *steps[self._random.randrange(2) :], when=when)

    def _before(self, *, least: int = 0, most: int = 2) -> Iterator[Node]:
        """Steps that can be compensated."""
        for _ in range(self._random.randint(least, max(least, most))):
            yield self._node(undo=True)

    def _after(self) -> Iterator[Node]:
        """Steps that cannot be compensated, mostly."""
        for _ in range(self._random.randrange(4)):
            kind = self._random.randrange(4)
            when = self._when()
            if kind == 0:
                yield direct(self._name(), when=when)
            elif kind == 1:
                yield step(self._name(), queue_url=QUEUE, message='{"done": true}', when=when)
            else:
                yield self._node(undo=self._chance(0.3), when=when)

    def _node(self, *, undo: bool, when: str | None = None) -> Node:
        when = when or self._when()
        kind = self._random.randrange(8)

        def one() -> CompiledStep:
            return step(self._name(), undo=undo)

        if kind == 0:
            return parallel(self._name(), [one()], [one(), one()], when=when)
        if kind == 1:
            return of_items(self._name(), one(), when=when)
        if kind == 2:
            return self._random.choice((express, child))(self._name(), one(), one(), when=when)
        return step(self._name(), undo=undo, when=when)

    def _when(self) -> str | None:
        return self._random.choice((None, None, *_WAYS))

    def _chance(self, of: float) -> bool:
        return self._random.random() < of

    def _name(self) -> str:
        self._count += 1
        return f"S{self._count}"
