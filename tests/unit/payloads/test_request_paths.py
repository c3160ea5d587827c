"""Paths of a request: the numbers that expressions would read with other digits, and the items of a map."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from handlers import gatekeeper
from saga_runtime.errors import Invalid
from saga_runtime.idempotency.identity import parse_json
from saga_runtime.payloads.request_paths import items_at, refuse_inexact
from saga_runtime.protocol import Env
from tests.constructs.support.jsonata import evaluate
from tests.unit.support.client import accepted
from tests.unit.support.samples import post
from tests.unit.support.world import World

LONG = 1234567890123456

REFUSED: list[tuple[Any, list[list[str]], str]] = [
    ({"amount": LONG}, [["amount"]], "body.amount must have at most 15 significant digits, got 16"),
    ({"amount": -LONG}, [["amount"]], "body.amount must have"),
    ({"amount": 0.1234567890123456}, [["amount"]], "body.amount must have at most 15 significant digits, got 16"),
    ({"a": {"b": [1, {"c": LONG}]}}, [["a"]], "body.a.b[1].c must have"),
    ({"a": {"b": [1, {"c": LONG}]}}, [["a", "b", "c"]], "body.a.b[1].c must have"),
    ([{"a": 1}, {"a": LONG}], [["a"]], "body[1].a must have"),
    ([[{"a": [[LONG]]}]], [["a"]], "body[0][0].a[0][0] must have"),
    ({"a": {"b": LONG}}, [[]], "body.a.b must have"),
    (LONG, [[]], "body must have"),
]
TAKEN: list[tuple[Any, list[list[str]]]] = [
    ({"amount": LONG}, []),
    ({"amount": LONG}, [["other"], ["amount", "minor"]]),
    ({"amount": str(LONG)}, [["amount"]]),
    ({"amount": 999999999999999}, [["amount"]]),
    ({"amount": 123456789012345000000}, [["amount"]]),
    ({"amount": 0.000000123456789012345}, [["amount"]]),
    ({"amount": True, "other": None}, [[]]),
    ({"items": [{"sku": "a", "amount": LONG}]}, [["items", "sku"]]),
    ({}, [["a", "b"]]),
]


@pytest.mark.parametrize(("body", "paths", "message"), REFUSED)
def test_a_number_that_an_expression_would_change_is_refused(body: Any, paths: list[list[str]], message: str) -> None:
    with pytest.raises(Invalid) as refused:
        refuse_inexact(parse_json(json.dumps(body)), paths)

    assert refused.value.message.startswith(message)
    assert refused.value.message.endswith("; an expression reads it, so send it as a string")


@pytest.mark.parametrize(("body", "paths"), TAKEN)
def test_any_other_number_is_taken(body: Any, paths: list[list[str]]) -> None:
    refuse_inexact(parse_json(json.dumps(body)), paths)


@pytest.mark.parametrize("number", ["999999999999999", "0.123456789012345", "1e21", "1.5e-9", "123456789012345e30"])
def test_a_number_that_is_taken_keeps_its_digits(number: str) -> None:
    refuse_inexact(parse_json(number), [[]])

    assert parse_json(evaluate("$string($parse($text))", text=number)) == parse_json(number)


def test_gatekeeper_refuses_such_a_request_before_anything_is_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(Env.EXPRESSION_PATHS, '[["fee","minor"]]')
    gatekeeper.settings.cache_clear()

    status, document, _ = world.call(post({"amount": LONG, "fee": {"minor": LONG}}))

    assert (status, document["type"]) == (400, "urn:cdk-sagas:problem:invalid-body")
    assert document["detail"].startswith("body.fee.minor must have at most 15 significant digits, got 16")
    assert (world.items("requests"), world.executions.by_name) == ([], {})


def test_a_request_that_was_recorded_before_an_expression_read_it_is_a_duplicate(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    saga_id = accepted(world, body={"amount": LONG})
    monkeypatch.setenv(Env.EXPRESSION_PATHS, '[["amount"]]')
    gatekeeper.settings.cache_clear()
    world.clock.ms += 1

    status, document, _ = world.call(post({"amount": LONG}))

    assert (status, document["saga_id"]) == (409, saga_id)


# What jsonata 2.0.6 from npm, on Node 20, finds at these paths.
ITEMS: list[tuple[Any, str, list[Any]]] = [
    ({"a": [1, 2]}, "a", [1, 2]),
    ({"a": ["x", "12", "true", None, True, {}, []]}, "a", ["x", "12", "true", None, True, {}, []]),
    ({"a": [[1, 2], [3]]}, "a", [[1, 2], [3]]),
    ({"a": [[1]]}, "a", [[1]]),
    ({"a": {"b": [1]}}, "a b", [1]),
    ({"a": "x"}, "a", ["x"]),
    ({"a": None}, "a", [None]),
    ({"a": []}, "a", []),
    ({}, "a", []),
    ({"a": [{"b": [1, 2]}, {"b": 3}, {"c": 4}]}, "a b", [1, 2, 3]),
    ({"a": [{"b": [[1, 2]]}]}, "a b", [[1, 2]]),
    ({"a": [[{"b": 1}], {"b": [[2]]}]}, "a b", [1, [2]]),
    ([{"a": 1}, {"a": [2, 3]}], "a", [1, 2, 3]),
    ([1, [2]], "", [1, [2]]),
    ({"a": 1}, "", [{"a": 1}]),
]


@pytest.mark.parametrize(("body", "path", "items"), ITEMS)
def test_items_are_those_that_the_state_machine_counts(body: Any, path: str, items: list[Any]) -> None:
    assert items_at(body, path.split()) == items


def _drawn(random: Random, depth: int) -> Any:
    kind = random.randrange(8) if depth else 7
    if kind < 3:
        return {name: _drawn(random, depth - 1) for name in random.sample("abc", k=random.randrange(4))}
    if kind < 6:
        return [_drawn(random, depth - 1) for _ in range(random.randrange(4))]
    return random.choice([1, 2, "x", True, ""])


@pytest.mark.parametrize("seed", range(300))
def test_items_of_any_request_are_those_that_the_state_machine_counts(seed: int) -> None:
    random = Random(seed)
    body, path = _drawn(random, 4), random.choices("abc", k=random.randrange(4))
    expression = f"[($request{''.join(f'.{name}' for name in path)})]"

    assert items_at(body, path) == evaluate(expression, request=body)
