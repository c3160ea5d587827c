"""The budget's findings in the CDK: a warning can be acknowledged where it arises, an error cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aws_cdk import Acknowledgment, Duration, Stack, Validations
from aws_cdk.assertions import Annotations, Match

from constructs_lib import IdempotencyTable, SagaStateMachine, Step, TimeoutReconciler
from constructs_lib.saga.validation.definition_file import WRITE_VARIABLE
from tests.constructs.support.sagas import plain_function

REASON = "interrupted sagas are recovered"


def saga(stack: Stack, *, seconds: int, definition_file: Path | None = None, name: str = "Move") -> SagaStateMachine:
    """A saga of one step, with a reconciler."""
    made = SagaStateMachine(
        stack,
        "Saga",
        requests=IdempotencyTable(stack, "Requests"),
        steps=[Step.atomic(name, fn=plain_function(stack, "Function", timeout=Duration.seconds(25)))],
        timeout=Duration.seconds(seconds),
        definition_file=definition_file,
    )
    TimeoutReconciler(stack, "Reconciler", sagas=[made])
    return made


def warnings(stack: Stack) -> list[str]:
    """Everything that the synth warns of in the saga."""
    found = Annotations.from_stack(stack).find_warning("/Test/Saga", Match.string_like_regexp(".*"))
    return [str(message.entry.data) for message in found]


def errors(stack: Stack) -> list[str]:
    """Everything that ends the synth."""
    found = Annotations.from_stack(stack).find_error("*", Match.string_like_regexp(".*"))
    return [str(message.entry.data) for message in found]


def test_a_warning_names_itself(stack: Stack) -> None:
    saga(stack, seconds=61)

    (warning,) = warnings(stack)
    assert "the saga may take" in warning
    assert "[ack: Annotation::cdk-sagas-timeout]" in warning


@pytest.mark.parametrize("id", ["Annotation::cdk-sagas-timeout", "cdk-sagas-timeout"])
def test_a_warning_is_acknowledged_by_its_id_with_or_without_the_prefix(stack: Stack, id: str) -> None:
    made = saga(stack, seconds=61)

    Validations.of(made).acknowledge(Acknowledgment(id=id, reason=REASON))

    assert warnings(stack) == []


def test_an_acknowledgement_of_another_finding_changes_nothing(stack: Stack) -> None:
    made = saga(stack, seconds=61)

    Validations.of(made).acknowledge(Acknowledgment(id="Annotation::cdk-sagas-history-warning", reason=REASON))

    assert len(warnings(stack)) == 1


def test_without_a_timeout_of_your_own_there_is_nothing_to_acknowledge(stack: Stack) -> None:
    made = SagaStateMachine(
        stack,
        "Saga",
        requests=IdempotencyTable(stack, "Requests"),
        steps=[Step.atomic("Move", fn=plain_function(stack, "Function"))],
    )
    TimeoutReconciler(stack, "Reconciler", sagas=[made])

    assert warnings(stack) == []


class TestADefinitionFile:
    def test_that_is_missing_is_a_warning_with_the_command_that_writes_it(self, stack: Stack, tmp_path: Path) -> None:
        saga(stack, seconds=86_400, definition_file=tmp_path / "saga.json")

        (warning,) = warnings(stack)
        assert "definition_file saga.json does not exist" in warning
        assert f"{WRITE_VARIABLE}=1" in warning

    def test_is_written_by_a_synth_that_is_asked_to(
        self, stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "sagas" / "saga.json"
        monkeypatch.setenv(WRITE_VARIABLE, "1")

        saga(stack, seconds=86_400, definition_file=file)

        assert (warnings(stack), errors(stack)) == ([], [])
        assert json.loads(file.read_text("utf-8"))["steps"] == [
            {"name": "Move", "kind": "atomic", "side": "pivot", "compensated": False, "per_item": False, "phase": ""}
        ]

    def test_whose_step_is_gone_ends_the_synth_and_cannot_be_acknowledged(self, stack: Stack, tmp_path: Path) -> None:
        file = tmp_path / "saga.json"
        file.write_text(
            '{"steps": [{"name": "Gone", "kind": "atomic", "side": "pivot", "compensated": false, "per_item": false}], '
            '"ways": {}}',
            encoding="utf-8",
        )
        made = saga(stack, seconds=86_400, definition_file=file)

        Validations.of(made).acknowledge(Acknowledgment(id="Annotation::cdk-sagas-definition-Gone", reason=REASON))

        (error,) = errors(stack)
        assert "step Gone was removed or renamed" in error
