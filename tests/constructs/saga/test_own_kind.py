"""A kind of step that the package does not have: one class is all that a saga asks of it."""

from __future__ import annotations

import json
from pkgutil import iter_modules

import pytest
from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns

from constructs_lib import Effect, IdempotencyTable, SagaStateMachine, Step, StepGroup
from constructs_lib.saga import kinds
from constructs_lib.saga.asl.flow import Flow
from constructs_lib.saga.asl.plan import SagaPlan, State
from constructs_lib.saga.asl.tasks import Exits, direct_states
from constructs_lib.saga.cost.prices import Meter
from constructs_lib.saga.cost.tally import Purpose, Tally
from constructs_lib.saga.cost.usage import happy_path
from constructs_lib.saga.description.description import SagaDescription, StepDescription
from constructs_lib.saga.description.kind import kind_named, plain_kind
from constructs_lib.saga.graph.looks import Tone, look_of
from constructs_lib.saga.graph.mermaid import to_mermaid
from constructs_lib.saga.kinds import PlainStep
from constructs_lib.saga.steps.direct import DirectCall
from tests.constructs.support.asl import happy_path as path_through
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.sagas import plain_function


class Beep(PlainStep, name="beep"):
    """A message to a topic of SNS."""

    icon = "M2 8h12"
    tone = Tone.OUTGOING
    words = "beep"
    asks_first = True
    sends = True

    def states(self, plan: SagaPlan, flow: Flow, index: int, exits: Exits) -> dict[str, State]:
        """The declared state."""
        return direct_states(plan, flow, index, exits)

    def count_effects(self, tally: Tally, step: StepDescription, times: int) -> None:
        """One message."""
        tally.add(Meter.EVENTS, Purpose.EFFECTS, step.name, times)

    def count(self, tally: Tally, step: StepDescription, times: int) -> None:
        """One message."""
        self.count_effects(tally, step, times)


def beep(name: str, topic: sns.Topic) -> Step:
    """Declare a step of the kind."""
    return Step(
        name=name,
        kind="beep",
        recorded=False,
        direct=DirectCall(
            fields={
                "Type": "Task",
                "Resource": "arn:aws:states:::sns:publish",
                "Arguments": {"TopicArn": topic.topic_arn, "Message": "{% $step_key %}"},
                "TimeoutSeconds": 30,
            },
            effect=Effect.IDEMPOTENT,
            output="{}",
            written={},
            policies=(iam.PolicyStatement(actions=["sns:Publish"], resources=[topic.topic_arn]),),
        ),
    )


@pytest.fixture
def saga(stack: Stack) -> SagaStateMachine:
    """A saga whose last step is of the kind."""
    move = Step.atomic("Move", fn=plain_function(stack, "Function"))
    steps = [move, beep("Beep", sns.Topic(stack, "Topic"))]
    return SagaStateMachine(stack, "Saga", requests=IdempotencyTable(stack, "Requests"), steps=steps)


def test_a_kind_of_your_own_is_compiled(saga: SagaStateMachine) -> None:
    assert path_through(saga.definition) == ["Move", "Beep", "Settle completed"]
    state = saga.definition["States"]["Beep"]
    assert state["Resource"].endswith(":states:::sns:publish")
    assert '$step_key := $states.context.Execution.Input.saga_id & "#" & "Beep"' in state["Arguments"]["Message"]
    assert state["Catch"][0]["ErrorEquals"] == ["SagaFenced"]


def test_a_kind_of_your_own_is_described_and_drawn(saga: SagaStateMachine) -> None:
    described = SagaDescription.from_json(saga.description.to_json()).steps[-1]
    assert (described.kind, described.side, described.recorded) == ("beep", "after", False)
    assert look_of(described).caption == "beep"
    assert "beep" in to_mermaid(saga.description)


@pytest.mark.usefixtures("saga")
def test_a_kind_of_your_own_is_granted_what_it_calls(stack: Stack) -> None:
    assert ("sns:Publish", "${Topic}") in Cloud(stack).permissions("Saga/StateMachine/Role")


def test_a_kind_of_your_own_is_costed(saga: SagaStateMachine) -> None:
    usage = happy_path(saga.description)
    assert usage.total(Meter.EVENTS) == 1
    assert usage.total(Meter.TRANSITIONS) == 3


def test_a_kind_of_your_own_that_sends_is_refused_before_the_pivot(stack: Stack) -> None:
    steps = [beep("Beep", sns.Topic(stack, "Topic")), Step.atomic("Move", fn=plain_function(stack, "Function"))]
    with pytest.raises(ValueError, match="step Beep sends a message before the pivot Move"):
        SagaStateMachine(stack, "Saga", requests=IdempotencyTable(stack, "Requests"), steps=steps)


def test_a_cost_refuses_a_kind_that_nothing_declares() -> None:
    step = StepDescription(name="Hum", kind="hum", side="after")
    unknown = SagaDescription(name="Saga", steps=(step,), timeout=60, fingerprint="")
    with pytest.raises(ValueError, match="must be declared by a PlainKind, got 'hum'; import its module"):
        happy_path(unknown)
    assert look_of(step).caption == "hum"


def test_a_step_of_a_kind_that_nothing_declares_is_refused() -> None:
    with pytest.raises(ValueError, match="kind of a plain step must be declared by a PlainKind, got 'hum'; import"):
        Step(name="Hum", kind="hum")
    with pytest.raises(ValueError, match="kind of a group must be declared by a GroupKind, got 'beep'; import"):
        StepGroup(name="Hum", kind="beep", branches=())


def test_a_kind_is_declared_once() -> None:
    with pytest.raises(ValueError, match=r"name of kind .*Again must be new, got 'beep'"):
        type("Again", (Beep,), {}, name="beep")


def test_a_kind_without_an_icon_is_refused() -> None:
    with pytest.raises(ValueError, match="kind Plain must define icon, got nothing; define it"):
        type("Plain", (PlainStep,), {}, name="plain")


def test_a_kind_that_cannot_be_compiled_is_refused() -> None:
    with pytest.raises(ValueError, match="kind Mute must define states, got nothing; define it"):
        type("Mute", (PlainStep,), {"icon": "M0 0", "tone": Tone.OWN}, name="mute")
    assert kind_named("mute") is None


@pytest.mark.parametrize("name", ["", "..step", "saga.steps", "no such kind", "kind", "os"])
def test_only_a_kind_is_looked_up_by_its_name(name: str) -> None:
    assert kind_named(name) is None


@pytest.mark.parametrize("name", ["parallel", "map", "express", "child"])
def test_a_plain_step_cannot_have_the_kind_of_a_group(name: str) -> None:
    with pytest.raises(ValueError, match=json.dumps(name).replace('"', "'")):
        plain_kind(name)


def test_every_module_of_a_kind_has_its_class() -> None:
    modules = [module.name for module in iter_modules(kinds.__path__)]
    assert len(modules) >= 14
    assert [name for name in modules if kind_named(name.replace("_", "-")) is None] == []
