"""Expressions evaluate to the same with and without the engine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from constructs_lib.testing.simulator import simulate
from constructs_lib.testing.simulator.aws.states import expressions
from constructs_lib.testing.simulator.aws.states.expressions import ExpressionError, Moment, by_engine, evaluate

from .campaign import DRAWN, RELEASED, Campaign, simulated
from .conftest import Deployed
from .examples import EXAMPLES

MOMENT = Moment(1_767_225_600_123, Random(1))


def _outcome(evaluated: Any, *given: Any) -> str:
    try:
        return json.dumps(evaluated(*given))
    except ExpressionError as error:
        return f"error: {error}"


class _Both:
    """Evaluates each expression of a run in both ways."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ways: Counter[bool] = Counter()
        self.differences: list[str] = []
        self._evaluate = expressions._value
        patch.setattr(expressions, "_value", self._value)

    def _value(self, text: str, *given: Any) -> Any:
        fast, slow = _outcome(self._evaluate, text, *given), _outcome(by_engine, text, *given)
        self.ways[expressions._compiled(text) is not None] += 1
        if fast != slow:
            self.differences.append(f"{text}\n  without the engine {fast}\n  by the engine      {slow}")
        return self._evaluate(text, *given)


@pytest.mark.proof
@pytest.mark.parametrize("name", EXAMPLES)
def test_expressions_of_an_example_evaluate_as_the_engine_evaluates_them(
    name: str, deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = _Both(monkeypatch)
    simulate(deployed(name), EXAMPLES[name].workload(), sagas=20, seed=3)
    assert both.differences == []
    if name != "wallet":  # it has no state machine
        assert both.ways[True] > 5 * both.ways[False]


@pytest.mark.proof
@pytest.mark.parametrize("name", [DRAWN, RELEASED])
def test_expressions_of_drawn_sagas_evaluate_as_the_engine_evaluates_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = _Both(monkeypatch)
    for block in Campaign(wanted={name: 40}, seed=3)._blocks():
        simulated(block)
    assert both.differences == []
    assert both.ways[True] > 5 * both.ways[False]


_VALUES: Mapping[str, Any] = {
    "text": "abc",
    "empty": "",
    "accents": "éa\U0001f600b",
    "whole": 7,
    "zero": 0,
    "real": 1.5,
    "same": 7.0,
    "large": 2**60,
    "yes": True,
    "no": False,
    "nothing": None,
    "list": ["abc", "b"],
    "single": ["abc"],
    "none": [],
    "mixed": ["abc", 7, True],
    "nested": [["abc"], [1]],
    "object": {"text": "abc", "nothing": None, "list": [1]},
    "objects": [{"text": "abc"}, {"text": "d"}],
    "bare": {},
    "json": '{"text": "abc", "real": 1.0}',
}
_TEMPLATES = (
    "$a",
    "$a.text",
    "$a.list",
    "$a.text.text",
    "$a = $b",
    "$a != $b",
    "$a in $b",
    "$a & $b",
    "$a + $b",
    "$a - $b",
    "$a < $b",
    "$a >= $b",
    "$a and $b",
    "$a or $b",
    "$not($a)",
    "$exists($a)",
    "$exists($a.text)",
    "$exists($missing)",
    "$count($a)",
    "$type($a)",
    "$string($a)",
    "$parse($a)",
    "$lookup($a, $b)",
    "$merge([$a, $b])",
    "$merge($a)",
    "$contains($a, $b)",
    "$substring($a, $b)",
    "$substring($a, 1, $b)",
    "$substringBefore($a, $b)",
    "$a ? $b : 1",
    "$a ? $b",
    "[$a, $b]",
    '{"a": $a, "b": $b.text}',
    '$a.{"a": text}',
    "($c := $a; $c = $b)",
    "(($a := $b; $a); $a)",
    "($c := $a; $exists($c) ? $c : $b)",
    "null",
    "true",
    "$states.input",
)


@pytest.mark.parametrize("template", _TEMPLATES)
def test_every_operator_evaluates_as_the_engine_does(template: str) -> None:
    differences = []
    for a, left in _VALUES.items():
        for b, right in _VALUES.items():
            given = {"input": left}, {"a": left, "b": right}, MOMENT
            fast = _outcome(evaluate, f"{{% {template} %}}", *given)
            slow = _outcome(by_engine, template, *given)
            if fast != slow:
                differences.append(f"a={a} b={b}: {fast}, by the engine {slow}")
    assert differences == []


def _chain(operators: int) -> str:
    return " + ".join(["$a"] * (operators + 1))


@pytest.mark.parametrize("operators", [99, 100, 200])
def test_an_expression_nests_as_deep_as_on_aws(operators: int) -> None:
    """Step Functions evaluates a chain of 100 terms, and none of 101: each operator is a level."""
    found = _outcome(evaluate, f"{{% {_chain(operators)} %}}", {}, {"a": 1}, MOMENT)

    assert found == "100" if operators == 99 else found.startswith("error: ")


def test_a_function_that_calls_itself_nests_as_deep_as_on_aws() -> None:
    text = "{% ($f := function($n) { $n = 0 ? 0 : 1 + $f($n - 1) }; $f($a)) %}"

    assert _outcome(evaluate, text, {}, {"a": 20}, MOMENT) == "20"
    assert _outcome(evaluate, text, {}, {"a": 40}, MOMENT).startswith("error: ")


def test_levels_are_counted_from_zero_after_an_error() -> None:
    text = f"{{% ($b := {_chain(90)}; $b > 0 ? $lowercase($c) : 0) %}}"

    for _ in range(3):
        assert _outcome(evaluate, text, {}, {"a": 1, "c": 7}, MOMENT).startswith("error: ")
    assert _outcome(evaluate, text, {}, {"a": 1, "c": "X"}, MOMENT) == '"x"'
