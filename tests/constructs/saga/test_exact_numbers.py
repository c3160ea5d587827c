"""Values that expressions read of a request, and the items of a map: as exact as the request, whatever their type."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import Stack

from constructs_lib import IdempotencyTable, SagaStateMachine, Step, TransactionApi
from constructs_lib.saga.asl import SagaPlan, definition_of, recovery_of
from constructs_lib.saga.steps.jsonata import Path, request_path
from constructs_lib.saga.synthesis.expression_scan import request_paths
from saga_runtime.idempotency.identity import parse_json
from saga_runtime.protocol import Env
from saga_runtime.steps.step import StepCall
from tests.constructs.support.answers import answers, called, record
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.groups import FORWARD_MACHINE, of_items, plan
from tests.constructs.support.interpreter import run
from tests.constructs.support.plans import step
from tests.constructs.support.sagas import plain_function

EVERY_TYPE = """[
    {"k": "a", "amount": 123456789012345678, "rate": 0.12345678901234567}, {"k": "b", "nested": [[1, 2], [], null]},
    {"k": "c", "huge": 1e+25, "tiny": 1.5e-9, "text": "12", "no": false}]"""


def _saga(items: str, key: str = "$item.k") -> SagaPlan:
    return plan(of_items("All", step("Pack", undo=True), items=items, key=key, max_items=9), step("End", pivot=True))


def _items(calls: list[Any]) -> list[Any]:
    """Items of these calls, as their functions are given them."""
    return [StepCall.from_event(call["Payload"], attempt="a", now_ms=1).item for call in calls]


@pytest.mark.parametrize("items", ["$request.items", "$request . `items`", "$request.in.items"])
def test_items_of_a_path_have_every_digit_that_the_request_has(items: str) -> None:
    request = f'{{"items": {EVERY_TYPE}, "in": {{"items": {EVERY_TYPE}}}}}'
    done = run(definition_of(_saga(items)), answers(), request=request)

    assert _items(called(done, "Pack")) == parse_json(EVERY_TYPE)
    assert done.trace[-1] == "Settle completed"


def test_compensation_has_the_same_items() -> None:
    found = record(direction="compensate")
    recovery = recovery_of(_saga("$request.items"), FORWARD_MACHINE)
    done = run(recovery, answers({"Read direction": found}), request=f'{{"items": {EVERY_TYPE}}}')

    assert _items(called(done, "Compensate Pack")) == parse_json(EVERY_TYPE)


@pytest.mark.parametrize("items", ["$request.items", "$request.items[true]", "$append($request.items, [])"])
@pytest.mark.parametrize(
    "given",
    ['["abc", "12", "007", "true", "\\"é\\"", ""]', "[12, 13, 0.5]", '[{"a": null}, {"a": [1, [2]]}]', "[true]"],
)
def test_an_item_of_any_source_keeps_its_type(items: str, given: str) -> None:
    key = '$replace($string({"i": $item}), /[^A-Za-z0-9.]/, "-") & "k"'
    done = run(definition_of(_saga(items, key)), answers(), request=f'{{"items": {given}}}')

    taken = _items(called(done, "Pack"))
    assert taken == parse_json(given)
    assert [type(item) for item in taken] == [type(item) for item in parse_json(given)]


@pytest.mark.parametrize(
    ("expression", "path"),
    [
        ("$request.items", ("items",)),
        ("$request", ()),
        (" $request.`order lines`.items ", ("order lines", "items")),
        ("$request.items[0]", None),
        ("$request.items.$count()", None),
        ("[$request.items]", None),
        ("$requests.items", None),
        ("$outputs.Quote.items", None),
        ("$request.items & 1", None),
    ],
)
def test_a_path_of_the_request_is_known_as_one(expression: str, path: Path | None) -> None:
    assert request_path(expression) == path


READS: list[tuple[str, tuple[Path, ...]]] = [
    ("$request.amount > 5", (("amount",),)),
    ("$request.a.b = $request.c", (("a", "b"), ("c",))),
    ("$request.a.b = $request.a", (("a",),)),
    ("$request.lines[qty > 1].sku", (("lines",),)),
    ("$request.lines.$sum(qty)", (("lines",),)),
    ("$sum($request.lines.qty)", (("lines", "qty"),)),
    ("$lookup($request, 'amount')", ((),)),
    ("($r := $request; $r.amount)", ((),)),
    ("$request.*.amount", ((),)),
    ("$request.**.amount", ((),)),
    ("$request.a.b.%.c", ((),)),
    ("$request.a.`b c`.d", (("a", "b c", "d"),)),
    ("$request.größe", (("größe",),)),
    ("$request.a·b", ((),)),
    ("$request.in.a·b", (("in",),)),
    ("$parse($states.context.Execution.Input.request).a", ((),)),
    ("$parse($states.context.Execution.Input.`request`).a", ((),)),
    ("$parse($states.context.*.request).a", ((),)),
    ("$parse($lookup($states.context.Execution.Input, 'request')).a", ((),)),
    ("($c := $states . context; $parse($c.Execution.Input.request).a)", ((),)),
    ("$parse($states.input.request).a", ((),)),
    ("$states.context.Execution.Input.saga_id", ()),
    ("$states.context.Task.Token", ()),
    ("$states.input.a", ()),
    ("$outputs.Quote.total", ()),
]


@pytest.mark.parametrize(("text", "paths"), READS, ids=[text for text, _ in READS])
def test_paths_that_an_expression_reads_are_found(stack: Stack, text: str, paths: tuple[Path, ...]) -> None:
    function = plain_function(stack, "Function")

    assert request_paths([Step.atomic("Move", fn=function, when=text)]) == paths


MAPS: list[tuple[str, str, tuple[Path, ...]]] = [
    ("$request.items", "$item.sku", (("items", "sku"),)),
    ("$request.items", "$item", (("items",),)),
    ("$request.items", "$item.sku & $request.batch", (("batch",), ("items", "sku"))),
    ("$request.items[qty > 0]", "$item.sku", (("items",),)),
    ("$outputs.Quote.items", "$item.sku", ()),
]


@pytest.mark.parametrize(("items", "key", "paths"), MAPS)
def test_of_the_items_of_a_path_only_their_keys_are_read(
    stack: Stack, items: str, key: str, paths: tuple[Path, ...]
) -> None:
    pack = Step.atomic("Pack", fn=plain_function(stack, "Function"))

    assert request_paths([Step.map("All", items=items, key=key, steps=[pack])]) == paths


@pytest.mark.parametrize(("when", "paths"), [("$request.fee.minor > 0", [["fee", "minor"]]), (None, None)])
def test_the_gatekeeper_receives_the_paths_that_expressions_read(stack: Stack, when: str | None, paths: Any) -> None:
    function = plain_function(stack, "Function")
    saga = SagaStateMachine(
        stack,
        "Saga",
        requests=IdempotencyTable(stack, "Requests"),
        steps=[Step.atomic("Debit", fn=function, compensate=function, when=when), Step.atomic("Credit", fn=function)],
    )
    TransactionApi(stack, "Api", operations={"moves": saga})

    gatekeeper = Cloud(stack).one("Api/Gatekeeper/moves/Function").properties
    told = gatekeeper["Environment"]["Variables"].get(Env.EXPRESSION_PATHS)
    assert (json.loads(told) if told else told) == paths
