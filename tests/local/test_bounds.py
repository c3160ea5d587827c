"""Sagas at the bounds of their state machines, on local AWS: they end and report the bound."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from aws_cdk import App

from constructs_lib.testing import LocalAws
from constructs_lib.testing.faults import StopAt
from saga_runtime.protocol import Direction, RecordStatus

from .bounds.stack import ITEMS, BoundsStack
from .kinds.system import SPEED, KindsSystem

_GATEKEEPER_SECONDS: Final = 80
_LONG: Final = 123456789012345678
_EVERY_TYPE: Final = {"long": _LONG, "text": "12", "number": 12, "fraction": 0.5, "yes": True, "list": [[1], []]}


@pytest.fixture(scope="module")
def system() -> Iterator[KindsSystem]:
    with tempfile.TemporaryDirectory(prefix="cdk-sagas-test-") as folder, LocalAws(speed=SPEED, concurrency=3) as aws:
        app = App(outdir=folder)
        BoundsStack(app, "Bounds")
        app.synth()
        outputs = aws.deploy(Path(folder))["Bounds"]
        for operation in ("around", "exact", "texts", "large"):
            name = aws.resolve_function(f"Bounds/Api/Gatekeeper/{operation}/Function")
            aws.client("lambda").update_function_configuration(FunctionName=name, Timeout=_GATEKEEPER_SECONDS)
        yield KindsSystem(aws, outputs, aws.create_api_user("bounds", api_id=outputs["ApiId"]))


def test_a_saga_stopped_after_a_skipped_pivot_goes_forward(system: KindsSystem) -> None:
    system.aws.faults.plan(StopAt(machine="Bounds/Around/StateMachine", state="Settle completed", moment="before"))
    saga_id = system.begin("around", "around", {"fee": False})
    assert system.quiet(saga_id).status is RecordStatus.IN_PROGRESS

    record = system.recover(saga_id)

    assert (record.status, record.direction) == (RecordStatus.COMPLETED, Direction.FORWARD)
    assert system.counts("around") == {"Debit": 1}
    assert {"around"} == {event["detail"]["who"] for event in system.messages(system.outputs["SeenQueueUrl"])}


def test_items_of_any_type_arrive_unchanged(system: KindsSystem) -> None:
    items = [{"key": key, "value": value} for key, value in _EVERY_TYPE.items()]
    assert _shown(system, "exact", items) == {item["key"]: item for item in items}

    texts = ["abc", "12", "true", "007"]
    assert _shown(system, "texts", texts) == {text: text for text in texts}


def _shown(system: KindsSystem, saga: str, items: Sequence[Any]) -> dict[str, Any]:
    """Items by key, as a saga's steps were given them."""
    answer = system.settle(saga, saga, {"items": items})
    assert answer.status == 200, answer.text
    return {key: json.loads(output["item"]) for key, output in answer.json()["result"]["Show"].items()}


def test_a_key_of_more_digits_than_an_expression_reads_is_refused_before_anything_is_recorded(
    system: KindsSystem,
) -> None:
    answer = system.post("exact", "long-key", {"items": [{"key": _LONG}]})

    assert answer.status == 400
    assert "body.items[0].key must have at most 15 significant digits, got 18" in answer.text
    assert system.post("exact", "long-key", {"items": [{"key": "o"}]}).status == 202, "the key was not used"


def test_outputs_of_a_map_that_are_too_large_together_are_compensated(system: KindsSystem) -> None:
    items = [{"sku": f"s{number}"} for number in range(ITEMS)]
    answer = system.settle("large", "large", {"items": items, "pad": 30_000})

    assert answer.json()["status"] == 500, answer.text
    assert system.books("large") == {"Pack": [1] * 2 * ITEMS}, "each charge once, and each refund once"
    assert set(system.rows("Large", answer.json()["saga_id"]).values()) <= {"COMPENSATED", "TOMBSTONE"}
