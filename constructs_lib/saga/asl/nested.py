"""States inside states: those of branches, and of items of a map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def states_of(flow: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every state of a flow with its name, those of branches and items included."""
    for name, state in flow["States"].items():
        yield name, state
        for inner in (*state.get("Branches", ()), *([state["ItemProcessor"]] if "ItemProcessor" in state else ())):
            yield from states_of(inner)
