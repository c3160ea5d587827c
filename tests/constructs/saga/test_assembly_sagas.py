"""Descriptions of sagas, written at synth and read back from the cloud assembly."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import App, NestedStack, Stack, Stage
from constructs import Construct

from constructs_lib.saga.description.assembly import sagas_of
from constructs_lib.saga.description.description import METADATA_TYPE, SagaDescription, StepDescription


def _described(scope: Construct) -> SagaDescription:
    holder = Construct(scope, "Saga")
    move = StepDescription(name="Move", kind="atomic", side="pivot")
    saga = SagaDescription(name=holder.node.path, steps=(move,), timeout=60, fingerprint="f")
    holder.node.add_metadata(METADATA_TYPE, saga.to_json())
    return saga


def test_sagas_of_stacks_nested_stacks_and_stages_are_found(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path), analytics_reporting=False)
    stack = Stack(app, "Shop")
    written = [_described(stack), _described(NestedStack(stack, "Inner")), _described(Stack(Stage(app, "Prod"), "S"))]

    app.synth()

    assert sagas_of(tmp_path) == sorted(written, key=lambda saga: saga.name)
    assert [saga.name for saga in sagas_of(tmp_path)] == ["Prod/S/Saga", "Shop/Inner/Saga", "Shop/Saga"]
