"""The read-only step: what it answered first is what everybody sees, if the saga records it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from saga_runtime import Invalid, PermanentError, StepCall, read_only_step
from saga_runtime.errors import ProtocolMismatch
from saga_runtime.protocol import OUTPUT_FIELD, CallField, Metric
from tests.unit.support.gateway import Shop
from tests.unit.support.samples import SAGA_ID, step_event
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import Context, World

ROW = f"{SAGA_ID}#Quote"


class Model:
    """Answers differently each time, as a language model does."""

    def __init__(self) -> None:
        self.asked = 0
        self.meanwhile: Callable[[], object] = lambda: None

        @read_only_step
        def quote(_: StepCall) -> dict[str, str]:
            self.asked += 1
            answer = {"answer": str(self.asked)}
            once, self.meanwhile = self.meanwhile, lambda: None
            once()
            return answer

        self.handler = quote

    def run(self, *, record: Any = True) -> Any:
        """Invoke the step once; its output."""
        return self.handler({**step_event(step="Quote"), CallField.RECORD: record}, Context())[OUTPUT_FIELD]


def test_an_output_is_recorded_once_and_the_function_not_called_again(world: World) -> None:
    model = Model()

    assert world.calls_of(model.run) == ["GetItem", "PutItem"]
    assert world.calls_of(lambda: model.run() == {"answer": "1"} or pytest.fail("another answer")) == ["GetItem"]
    assert (model.asked, world.rows()) == (1, {ROW: "RECORDED"})
    assert world.telemetry.counts[Metric.STEP_REPLAYED] == 1


def test_an_unrecorded_output_is_read_each_time(world: World) -> None:
    model = Model()

    calls = world.calls_of(lambda: (model.run(record=False), model.run(record=False)))

    assert (calls, model.asked, world.rows()) == ([], 2, {})


def test_of_two_at_a_time_the_first_writer_wins_for_both(world: World) -> None:
    model = Model()
    others: list[Any] = []
    model.meanwhile = lambda: others.append(model.run())

    assert model.run() == others[0] == {"answer": "2"}
    assert model.asked == 2


@pytest.mark.parametrize("action", [Action.KILL, Action.DROP])
@pytest.mark.parametrize("moment", list(Moment))
@pytest.mark.parametrize("operation", ["GetItem", "PutItem"])
def test_an_interrupted_run_leaves_one_output_for_all(
    world: World, operation: str, action: Action, moment: Moment
) -> None:
    model = Model()
    times = 1 if action is Action.KILL else 24
    world.wire.plan(Fault(operation=operation, action=action, moment=moment, times=times))
    with pytest.raises(BaseException, match=r".") as cut_off:
        model.run()
    world.wire.forget()

    first = model.run()

    assert isinstance(cut_off.value, Killed | Exception)
    assert model.run() == first
    assert world.rows() == {ROW: "RECORDED"}


def test_a_refusal_is_not_recorded(world: World) -> None:
    class SoldOut(PermanentError):
        pass

    @read_only_step
    def look(_: StepCall) -> dict[str, str]:
        raise SoldOut("nothing left")

    with pytest.raises(SoldOut):
        look({**step_event(step="Quote"), CallField.RECORD: True}, Context())

    assert world.rows() == {}


def test_a_fenced_step_still_returns(world: World) -> None:
    Shop(world).undo(**{CallField.STEP: "Quote"})
    model = Model()

    assert model.run() == {"answer": "1"}
    assert world.rows() == {ROW: "TOMBSTONE"}


def test_a_step_that_is_fenced_while_it_reads_still_returns(world: World) -> None:
    model = Model()
    model.meanwhile = lambda: Shop(world).undo(**{CallField.STEP: "Quote"})

    assert model.run() == {"answer": "1"}


def test_an_output_that_a_state_machine_would_change_is_refused(world: World) -> None:
    handler = read_only_step(lambda _: {"price": 1.5})

    with pytest.raises(Invalid):
        handler(step_event(step="Quote"), Context())


@pytest.mark.parametrize("record", ["true", 1, None])
def test_record_must_be_a_boolean(world: World, record: Any) -> None:
    with pytest.raises(ProtocolMismatch):
        Model().run(record=record)
