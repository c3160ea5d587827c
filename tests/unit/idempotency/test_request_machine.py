"""Every transition of the request record under duplicates, races, lost answers, zombies and time (Hypothesis)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.request_model import Phase, RequestModel
from tests.unit.support.samples import DAY_MS, DUE_AFTER_MS

BODIES = ('{"amount":1}', '{"amount":2}')
SPANS = (1, DUE_AFTER_MS, DAY_MS, 7 * DAY_MS, 89 * DAY_MS, 91 * DAY_MS, 400 * DAY_MS)


class RequestMachine(RuleBasedStateMachine):
    """One key and everybody around it, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.model = RequestModel()

    @initialize(body=st.sampled_from(BODIES), lost=st.booleans())
    def first_request(self, body: str, lost: bool) -> None:
        self.model.request(body, answer_lost=lost)

    @rule(body=st.sampled_from(BODIES), lost=st.booleans())
    def request(self, body: str, lost: bool) -> None:
        self.model.request(body, answer_lost=lost)

    @precondition(lambda self: self.model.starts)
    @rule(data=st.data(), again=st.booleans())
    def start_arrives(self, data: st.DataObject, again: bool) -> None:
        start = data.draw(st.sampled_from(self.model.starts))
        self.model.deliver_start(start)
        if not again:
            self.model.starts.remove(start)

    @precondition(lambda self: self.model.starts)
    @rule(data=st.data())
    def start_is_lost(self, data: st.DataObject) -> None:
        self.model.starts.remove(data.draw(st.sampled_from(self.model.starts)))

    @precondition(lambda self: self.model.running())
    @rule(data=st.data(), gives_up=st.booleans())
    def execution_moves(self, data: st.DataObject, gives_up: bool) -> None:
        self.model.step(data.draw(st.sampled_from(self.model.running())), gives_up=gives_up)

    @precondition(lambda self: self._settling())
    @rule(data=st.data(), ends=st.booleans())
    def execution_settles(self, data: st.DataObject, ends: bool) -> None:
        name = data.draw(st.sampled_from(self._settling()))
        self.model.send_settle(name)
        if ends:
            self.model.deliver_settle(self.model.settles.pop())
            self.model.end(name, ExecutionStatus.SUCCEEDED)

    @precondition(lambda self: self.model.settles)
    @rule(data=st.data())
    def travelling_settle_arrives(self, data: st.DataObject) -> None:
        sent = data.draw(st.sampled_from(self.model.settles))
        self.model.settles.remove(sent)
        self.model.deliver_settle(sent)

    @precondition(lambda self: self.model.running())
    @rule(data=st.data())
    def execution_dies(self, data: st.DataObject) -> None:
        self.model.end(data.draw(st.sampled_from(self.model.running())), ExecutionStatus.FAILED)

    @rule()
    def component_reads_the_record(self) -> None:
        self.model.look()

    @precondition(lambda self: self.model.looks)
    @rule(data=st.data())
    def component_acts_on_its_read(self, data: st.DataObject) -> None:
        self.model.act(data.draw(st.sampled_from(self.model.looks)))

    @rule()
    def operation_gets_another_saga(self) -> None:
        self.model.replace_machine()

    @rule(ms=st.sampled_from(SPANS))
    def time_passes(self, ms: int) -> None:
        self.model.wait(ms)

    @rule()
    def response_is_removed(self) -> None:
        self.model.remove_response()

    @rule()
    def ttl_deletes(self) -> None:
        self.model.expire()

    @invariant()
    def promise_is_kept(self) -> None:
        self.model.check()

    def teardown(self) -> None:
        self.model.drain()
        self.model.check()

    def _settling(self) -> list[str]:
        return [name for name in self.model.running() if self.model.phases[name] in {Phase.COMPLETE, Phase.FAIL}]


TestRequestMachine = pytest.mark.proof(RequestMachine.TestCase)
TestRequestMachine.settings = settings(max_examples=120, stateful_step_count=40)


@pytest.mark.parametrize("age_days", [1, 88])
def test_a_saga_that_was_never_started_ends_when_a_duplicate_comes(age_days: int) -> None:
    model = RequestModel()
    model.request(BODIES[0])
    model.wait(age_days * DAY_MS)

    model.drain()
    model.check()

    assert list(model.verdicts.values()) == ["COMPLETED"]
