"""Outputs of a map's items and of branches: together they fit what a state may hold, and the saga always ends.

The machines are interpreted with Step Functions' limit of 262,144 bytes, and the functions are the runtime's own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import pytest

from constructs_lib.saga.asl import CompiledStep, Node, SagaPlan
from constructs_lib.saga.asl.outputs import read_outputs
from constructs_lib.saga.steps.routes import ContinueWith
from saga_runtime import (
    Applied,
    Commit,
    Declined,
    ExternalCall,
    NotApplied,
    StepCall,
    Verdict,
    atomic_step,
    compensation,
    external_compensation,
    external_step,
)
from saga_runtime.protocol import MAX_OUTPUTS_BYTES
from saga_runtime.saga_log.provider import ProviderSettings
from tests.constructs.support.groups import of_items, parallel, plan
from tests.constructs.support.jsonata import EXECUTION, evaluate
from tests.constructs.support.plans import step
from tests.constructs.support.simulation import Handler, Moment, Simulation, Stop

GRACE = ProviderSettings(grace=5, clock_skew=5, window=0, undo_window=0, verify=True, verify_undo=True)


@dataclass
class Provider:
    """A provider that answers at length, also when it is asked."""

    pad: int
    charged: Counter[str] = field(default_factory=Counter)
    refunded: Counter[str] = field(default_factory=Counter)
    seen: list[Mapping[str, Any]] = field(default_factory=list)

    def functions(self, *names: str) -> dict[str, Handler]:
        """Handlers of these steps and of their compensations."""

        def find(call: ExternalCall) -> Verdict:
            return Applied(output=self._output(call)) if self.charged[call.provider_key] else NotApplied()

        @external_step(verify=find)
        def charge(call: ExternalCall) -> Mapping[str, Any]:
            self.charged[call.provider_key] += 1
            return self._output(call)

        def undone(call: ExternalCall, _: Any) -> Verdict:
            return Applied() if self.refunded[call.provider_key] else NotApplied()

        @external_compensation(of=charge, verify_undo=undone)
        def refund(call: ExternalCall, output: Any) -> None:
            assert output == self._output(call), "a compensation is given what its step recorded"
            self.seen.append(dict(call.outputs))
            self.refunded[call.provider_key] += 1

        return {f"arn:{name}": charge for name in names} | {f"arn:Undo{name}": refund for name in names}

    def _output(self, call: StepCall) -> dict[str, str]:
        return {"of": call.item_key or call.step, "pad": "x" * self.pad}

    @property
    def stands(self) -> int:
        """Charges that were not refunded."""
        return sum(self.charged.values()) - sum(self.refunded.values())


def local(pads: Mapping[str, int]) -> dict[str, Handler]:
    """Handlers of atomic steps that answer at such a length, and of their compensations."""

    @atomic_step
    def act(call: StepCall) -> Commit:
        return Commit(output={"pad": "x" * pads[call.step]})

    @compensation
    def undo(call: StepCall, output: Any) -> Commit:
        assert output == {"pad": "x" * pads[call.step]}
        return Commit()

    return {f"arn:{name}": act for name in pads} | {f"arn:Undo{name}": undo for name in pads}


def _request(items: int) -> dict[str, Any]:
    return {"items": [{"sku": f"s{number}"} for number in range(items)]}


def _charges(**options: Any) -> SagaPlan:
    pack = step("Pack", undo=True, provider=GRACE)
    return plan(of_items("All", pack, max_items=12), step("End", pivot=True), **options)


def test_too_large_outputs_of_a_map_are_compensated_and_the_saga_ends() -> None:
    provider = Provider(pad=30_000)
    saga = Simulation(plan=_charges(), request=_request(12), functions=provider.functions("Pack")).run()

    assert saga.settled == "FAILED"
    assert (sum(provider.charged.values()), provider.stands) == (12, 0)


@pytest.mark.parametrize("moment", Moment)
def test_the_same_when_it_is_interrupted_anywhere(moment: Moment) -> None:
    calls = (
        Simulation(plan=_charges(), request=_request(3), functions=Provider(pad=30_000).functions("Pack")).run().calls
    )
    for call in range(1, calls + 1):
        provider = Provider(pad=30_000)
        stops = frozenset({Stop(call=call, moment=moment), Stop(call=call + 4, moment=Moment.AFTER)})
        saga = Simulation(plan=_charges(), request=_request(3), functions=provider.functions("Pack"), stops=stops).run()

        assert (saga.settled, provider.stands) in (("FAILED", 0), ("COMPLETED", 3)), stops


def test_outputs_of_a_map_that_fit_together_are_all_there() -> None:
    share = MAX_OUTPUTS_BYTES // 12
    provider = Provider(pad=share - 60)
    saga = Simulation(plan=_charges(), request=_request(12), functions=provider.functions("Pack")).run()

    assert (saga.settled, provider.stands) == ("COMPLETED", 12)


def test_with_a_payload_bucket_large_outputs_of_a_map_travel_by_reference() -> None:
    provider = Provider(pad=30_000)
    made = _charges(payloads="bucket", result="$outputs")
    saga = Simulation(plan=made, request=_request(12), functions=provider.functions("Pack")).run()

    assert (saga.settled, provider.stands) == ("COMPLETED", 12)


SHAPES: dict[str, tuple[Node, ...]] = {
    "items": (of_items("All", step("One", undo=True), step("Two", undo=True), max_items=3),),
    "branches": (parallel("Both", [step("One", undo=True)], [step("Two", undo=True), step("Three", undo=True)]),),
    "items behind an output": (
        step("Before", undo=True),
        of_items("All", step("One", undo=True), step("Two", undo=True), max_items=3),
    ),
    "two groups": (
        of_items("All", step("One", undo=True), max_items=3),
        parallel("Both", [step("Two", undo=True)], [step("Three", undo=True)]),
    ),
}
PADS = (0, 2_400, 9_000, 15_000, 32_700)
BODY = {"note": '"\\' * 10_000, **_request(3)}
"""A body that is twice as large where it is escaped."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("bucket", [None, "bucket"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_saga_near_the_limit_is_refused_or_completed_and_always_ends(shape: str, bucket: str | None) -> None:
    saga = plan(*SHAPES[shape], step("End", pivot=True), payloads=bucket, result="$outputs")
    names = [leaf.name for leaf in saga.leaves]
    ends: Counter[str | None] = Counter()
    for pads in product(PADS, repeat=2):
        sizes = {name: pads[index % 2] for index, name in enumerate(names)}
        done = Simulation(plan=saga, request=BODY, functions=local(sizes)).run()
        ends[done.settled] += 1
        assert done.settled == ("FAILED" if "Compensate One" in _names(done) else "COMPLETED"), (sizes, done.traces)
        assert list(done.traces) == [EXECUTION], "no recovery was needed"
        assert set(done.rows.values()) <= ({"COMPENSATED", "TOMBSTONE"} if done.settled == "FAILED" else {"DONE"})

    assert ends["COMPLETED"] > 0
    assert (ends["FAILED"] > 0) is (bucket is None)


def _names(saga: Simulation) -> set[str]:
    return {name for trace in saga.traces.values() for name in trace}


def _calls(saga: SagaPlan, provider: Provider, state: str, **options: Any) -> list[Mapping[str, Any]]:
    """Outputs that each refund of a state saw."""
    Simulation(plan=saga, request=_request(2), functions=provider.functions("Pack", "Label"), **options).run()
    return provider.seen


@pytest.mark.parametrize("recovered", [False, True])
def test_a_compensation_of_an_item_sees_the_outputs_that_its_step_saw(recovered: bool) -> None:
    steps = [step(name, undo=True, provider=GRACE) for name in ("Pack", "Label")]
    saga = plan(step("Quote", kind="read-only"), of_items("All", *steps), step("End", pivot=True))
    stops = frozenset({Stop(call=6, moment=Moment.BEFORE)}) if recovered else frozenset[Stop]()
    refused = frozenset[str]() if recovered else frozenset({"End"})
    provider = Provider(pad=1)
    seen = _calls(saga, provider, "Compensate Label", stops=stops, refused=refused)

    assert provider.stands == 0
    assert {"Quote": {"of": "Quote"}} in seen, "of Pack"
    assert {"Quote": {"of": "Quote"}, "Pack": {"of": "s0", "pad": "x"}} in seen, "of Label"


def test_an_output_without_a_row_is_in_the_event() -> None:
    look = CompiledStep(name="Look", kind="read-only", function_arn="arn:Look", recorded=False)
    steps = [replace(look, name="Rate", function_arn="arn:Rate"), step("Label", undo=True, provider=GRACE)]
    saga = plan(look, of_items("All", *steps), step("End", pivot=True))
    provider = Provider(pad=1)
    seen = _calls(saga, provider, "Compensate Label", refused=frozenset({"End"}))

    assert seen[0] == {"Look": {"of": "Look"}, "Rate": {"of": f"Rate[{'s0'}]"}}
    assert json.dumps(seen[1]["Rate"]) == json.dumps({"of": "Rate[s1]"})


# ---- steps that were skipped ----------------------------------------------------------------------------------------


def _skipping(provider: Provider) -> dict[str, Handler]:
    """A card is declined; what follows is charged, and refunded, by its substitute output."""

    @external_step(verify=lambda _: NotApplied())
    def declined(_: ExternalCall) -> Mapping[str, Any]:
        raise Declined("no")

    card: dict[str, Handler] = {
        "arn:Card": declined,
        "arn:UndoCard": external_compensation(of=declined)(lambda *_: None),
    }
    return card | provider.functions("Pack")


def _card(routes: Mapping[str, ContinueWith]) -> CompiledStep:
    return step("Card", undo=True, provider=replace(GRACE, verify_undo=False), going_on=routes)


@pytest.mark.parametrize("moment", Moment)
def test_a_compensation_sees_the_substitute_output_of_a_refused_step(moment: Moment) -> None:
    pack = step("Pack", undo=True, provider=GRACE)
    by_bank = {"Declined": ContinueWith(output={"by": "bank"})}
    saga = plan(_card(by_bank), pack, step("End", pivot=True))
    seen = []
    for call in range(20):
        provider = Provider(pad=1)
        stops = frozenset({Stop(call=call, moment=moment)}) if call else frozenset[Stop]()
        functions = _skipping(provider)
        done = Simulation(plan=saga, request={}, functions=functions, stops=stops, refused=frozenset({"End"})).run()
        assert (done.settled, provider.stands) == ("FAILED", 0), (call, done.traces)
        seen += provider.seen

    assert [outputs for outputs in seen if outputs != {"Card": {"by": "bank"}}] == []


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("of_a_map", [False, True])
def test_items_of_a_substitute_output_are_compensated(of_a_map: bool, moment: Moment) -> None:
    lines = {"Declined": ContinueWith(output={"lines": [{"sku": "s0"}, {"sku": "s1"}]})}
    card, source = _card(lines), "$outputs.Card.s0.lines" if of_a_map else "$outputs.Card.lines"
    pack = of_items("Parcels", step("Pack", undo=True, provider=GRACE), items=source)
    saga = plan(of_items("Cards", card) if of_a_map else card, pack, step("End", pivot=True))
    for call in range(0, 30, 2):
        provider = Provider(pad=1)
        stops = frozenset({Stop(call=call, moment=moment)}) if call else frozenset[Stop]()
        done = Simulation(
            plan=saga,
            request=_request(1),
            functions=_skipping(provider),
            stops=stops,
            refused=frozenset({"End"}),
        ).run()

        assert (done.settled, provider.stands) == ("FAILED", 0), (call, done.traces)


LATE_OUTPUT = {"output": '{"by":"card"}'}
ROWS: dict[str, tuple[dict[str, str], Any]] = {
    "refused": ({"status": "REFUSED", "error": "Declined"}, {"by": "bank"}),
    "refused otherwise": ({"status": "REFUSED", "error": "Closed"}, None),
    "fenced": ({"status": "TOMBSTONE", "output": '{"by":"cash"}'}, {"by": "cash"}),
    "refused, and done late": ({"status": "APPLIED_LATE", "error": "Declined", **LATE_OUTPUT}, {"by": "bank"}),
    "fenced, and done late": ({"status": "COMPENSATED", "substitute": '{"by":"cash"}', **LATE_OUTPUT}, {"by": "cash"}),
    "undone": ({"status": "COMPENSATED", **LATE_OUTPUT}, {"by": "card"}),
    "stated to be done": ({"status": "DONE", "error": "Declined", **LATE_OUTPUT}, {"by": "card"}),
    "in doubt": ({"status": "INTENT"}, None),
}


@pytest.mark.parametrize("of_a_map", [False, True])
@pytest.mark.parametrize(("row", "seen"), ROWS.values(), ids=ROWS)
def test_a_recovery_reads_what_later_steps_saw_of_a_step_that_may_be_skipped(
    row: dict[str, str], seen: Any, of_a_map: bool
) -> None:
    card = _card({"Declined": ContinueWith(output={"by": "bank"})})
    saga = plan(of_items("Cards", card) if of_a_map else card, step("End", pivot=True))
    first, states = read_outputs(saga, ["Card"], "Next")
    item = {name: {"S": value} for name, value in {"step": "Card[s0]" if of_a_map else "Card", **row}.items()}
    result = {"Items": [item]} if of_a_map else {"Item": item}

    found = evaluate(states[first]["Assign"]["outputs"], states={"result": result}, outputs={"Other": 1})

    there = {} if seen is None else {"s0": seen}
    expected = {"Other": 1, **({"Card": there} if of_a_map else {} if seen is None else {"Card": seen})}
    assert found == expected
