"""Any saga, stopped anywhere and recovered, keeps what is promised: also on a path on which there is no pivot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from constructs_lib.saga.asl import definition_of
from tests.constructs.support.drawn_plans import Drawn
from tests.constructs.support.jsonata import EXECUTION
from tests.constructs.support.simulation import Moment, Simulation, Stop

pytestmark = pytest.mark.proof

SAGAS = range(40)


def _broken(saga: Simulation, undisturbed: Simulation) -> Iterator[str]:
    """Promises that a saga broke, which was stopped here and there."""
    final = {leaf.name for leaf in saga.plan.leaves if not leaf.compensated} | {leaf.name for leaf in saga.plan.pivots}
    stands = {row for row, number in saga.effects.items() if number > 0} | set(saga.sent)
    beyond = {row for row in stands if row.split("[")[0] in final}
    if not (saga.settled or saga.parked):
        yield "it never ends"
    if saga.settled == "FAILED" and stands:
        yield f"FAILED, but {stands} remain applied"
    if saga.settled == "COMPLETED" and stands != set(+undisturbed.effects) | set(undisturbed.sent):
        yield f"COMPLETED with {stands}"
    if set(saga.effects.values()) - {0, 1}:
        yield f"an effect happened more than once, or was undone twice: {saga.effects}"
    if beyond and "COMPENSATED" in saga.rows.values():
        yield f"undone behind {beyond}, which cannot be undone"


def _disturbed(drawn: Drawn, **options: Any) -> Iterator[tuple[Simulation, frozenset[Stop], list[str]]]:
    """The saga, stopped at each of its calls in turn, and at some call of its recovery, too."""
    # Pages of the log are short, as if its rows were large.
    options |= {"page": 1 + len(drawn.plan.steps) % 3}
    undisturbed = Simulation(plan=drawn.plan, request=drawn.request, refused=drawn.refused, **options).run()
    for call, moment in product(range(1, undisturbed.calls + 1), Moment):
        for again in (frozenset[Stop](), frozenset({Stop(call=call + 2 + call % 4, moment=Moment.AFTER)})):
            stops = again | {Stop(call=call, moment=moment)}
            disturbed = Simulation(
                plan=drawn.plan, request=drawn.request, refused=drawn.refused, stops=stops, **options
            ).run()
            yield disturbed, stops, list(_broken(disturbed, undisturbed))


@pytest.mark.parametrize("seed", SAGAS)
def test_a_drawn_saga_that_is_stopped_anywhere_keeps_its_promises(seed: int) -> None:
    for saga, stops, broken in _disturbed(Drawn(seed)):
        assert not broken, (stops, saga.plan.steps, saga.request, saga.traces)


def _without_the_write(definition: dict[str, Any]) -> dict[str, Any]:
    """The definition, and paths around all pivots lead on without a word in the record."""
    text = json.dumps(definition)
    return dict(json.loads(text.replace('"Next": "Only forward to ', '"Next": "').replace(*_DEFAULTS)))


_DEFAULTS = ('"Default": "Only forward to ', '"Default": "')


def test_some_drawn_sagas_skip_every_pivot() -> None:
    around = 0
    for seed in SAGAS:
        drawn = Drawn(seed)
        trace = Simulation(plan=drawn.plan, request=drawn.request).run().traces[EXECUTION]
        around += any(state.startswith("Only forward to ") for state in trace)
    assert around > len(SAGAS) / 10


def test_without_the_direction_on_a_path_without_a_pivot_promises_are_broken() -> None:
    broken = {
        what.split(",")[0]
        for seed in SAGAS
        if "Only forward to" in json.dumps(definition_of(Drawn(seed).plan))
        for _, _, found in _disturbed(Drawn(seed), change=_without_the_write)
        for what in found
    }

    assert {"FAILED", "undone behind"} <= {what.split(" {")[0] for what in broken}, broken
