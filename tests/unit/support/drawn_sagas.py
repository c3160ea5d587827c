"""Sagas to draw: descriptions, as synth writes them."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

from constructs_lib.saga.description.description import FunctionDescription, SagaDescription, StepDescription
from saga_runtime.saga_log.provider import ProviderSettings

FUNCTION = FunctionDescription(timeout=15)
TO_PARTNER = '$request.to_ledger = "partner"'


def step(name: str, kind: str = "atomic", side: str = "before", **more: Any) -> StepDescription:
    """A plain step."""
    return StepDescription(name=name, kind=kind, side=side, function=FUNCTION, **more)


def provider_of(**guarantees: Any) -> ProviderSettings:
    """Settings of a provider that guarantees only this."""
    nothing: dict[str, Any] = dict.fromkeys(("grace", "clock_skew", "window", "undo_window"), 0)
    return ProviderSettings(**nothing | {"verify": False, "verify_undo": False} | guarantees)


def group(name: str, kind: str, *branches: list[StepDescription], **more: Any) -> StepDescription:
    """A group of steps."""
    return StepDescription(name=name, kind=kind, side="before", branches=tuple(map(tuple, branches)), **more)


def saga(*steps: StepDescription, name: str = "Shop/Order", told: bool = False) -> SagaDescription:
    """A saga."""
    return SagaDescription(name=name, steps=steps, timeout=7_200, fingerprint="f", tells_of_failure=told)


TRANSFER = saga(
    step("Transfer", side="pivot", when=f"$not({TO_PARTNER})"),
    step("Debit", when=TO_PARTNER, compensated=True),
    step("Credit", side="pivot", when=TO_PARTNER),
    step("Receipt", "notify", "after"),
    name="FundsTransfer/Transfer",
    told=True,
)
"""Two routes, each with a pivot."""

ORDER = saga(
    step("Quote", "read-only"),
    group("Prepare", "express", [step("Reserve", compensated=True), step("Look", "service")], timeout=300),
    step("Charge", "external", compensated=True, routes={"Declined": "notify", "Busy": "continue"}),
    group("Fulfil", "parallel", [step("Pick", "dynamodb", compensated=True)], [step("Book", "external")]),
    group("Ship", "map", [step("Label", compensated=True)], max_items=40, when="$request.physical"),
    step("Commit", side="pivot"),
    step("Announce", "event", "after"),
    step("Own", "custom", "after", when="$outputs.Quote.slow"),
)
"""Every kind of group, a condition before and behind the pivot."""

_CONDITIONS = (
    "$request.a",
    "$not($request.a)",
    "$outputs.A.b",
    TO_PARTNER,
    "$request.items.price > 20 and " * 9,
    "é漢\x1b",
)
_PLAIN = ("atomic", "external", "read-only", "dynamodb", "service", "notify", "event", "custom", "callback")
_LETTERS = "aaeinorstWM1Q"


class _Dice:
    """Any saga, out of one number: building it out of many choices takes Hypothesis longer than drawing it."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._count = 0

    def saga(self) -> SagaDescription:
        before = [self._either("before") for _ in range(self._random.randrange(5))]
        after = [self._either("after") for _ in range(self._random.randrange(3))]
        return saga(*before, self._plain("pivot"), *after, told=self._random.random() < 0.5)

    def _either(self, side: str) -> StepDescription:
        return self._plain(side) if self._random.random() < 0.6 else self._group(side)

    def _name(self) -> str:
        self._count += 1
        length = self._random.choice((0, 5, 12, 34))
        return "A" + "".join(self._random.choices(_LETTERS, k=length)) + f"X{self._count}"

    def _when(self) -> str | None:
        return self._random.choice((None, *_CONDITIONS))

    def _plain(self, side: str) -> StepDescription:
        routes = {self._name(): route for route in ("notify", "continue") if self._random.random() < 0.2}
        return step(
            self._name(),
            self._random.choice(_PLAIN),
            side,
            when=self._when(),
            compensated=self._random.random() < 0.5,
            routes=routes,
        )

    def _group(self, side: str) -> StepDescription:
        kind = self._random.choice(("express", "child", "map", "parallel"))
        count = self._random.randrange(2, 6) if kind == "parallel" else 1
        branches = [[self._plain(side) for _ in range(self._random.randrange(1, 4))] for _ in range(count)]
        return group(self._name(), kind, *branches, when=self._when())


def sagas() -> st.SearchStrategy[SagaDescription]:
    """Any saga, with a pivot somewhere."""
    return st.integers(0, 2**32).map(lambda seed: _Dice(seed).saga())
