"""Every transition of an atomic step's row under duplicates, crashes and zombies (Hypothesis)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.support.step_model import StepModel


class StepMachine(RuleBasedStateMachine):
    """Attempts of a step and of its compensation, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.model = StepModel()

    @rule(dies=st.booleans())
    def step_is_invoked(self, dies: bool) -> None:
        sent = self.model.send_do()
        if dies:
            self.model.travelling.append(sent)
        else:
            self.model.arrive(sent, heard=True)

    @rule(dies=st.booleans())
    def compensation_is_invoked(self, dies: bool) -> None:
        sent = self.model.send_undo()
        if sent is not None and dies:
            self.model.travelling.append(sent)
        elif sent is not None:
            self.model.arrive(sent, heard=True)

    @precondition(lambda self: self.model.travelling)
    @rule(data=st.data(), again=st.booleans())
    def a_dead_ones_request_arrives(self, data: st.DataObject, again: bool) -> None:
        sent = data.draw(st.sampled_from(self.model.travelling))
        if not again:
            self.model.travelling.remove(sent)
        self.model.arrive(sent, heard=False)

    @invariant()
    def promise_is_kept(self) -> None:
        self.model.check()

    def teardown(self) -> None:
        """A compensation that is invoked to its end leaves no effect, whatever requests are in transit."""
        for _ in range(3):
            sent = self.model.send_undo()
            if sent is not None:
                self.model.arrive(sent, heard=True)
        for sent in self.model.travelling:
            self.model.arrive(sent, heard=False)
        self.model.check()
        assert self.model.compensated


TestStepMachine = StepMachine.TestCase
TestStepMachine.settings = settings(max_examples=100, stateful_step_count=20)
