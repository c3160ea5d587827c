"""Reads of an expression, found in its text, and expressions that cannot work."""

from __future__ import annotations

import pytest
from jsonata import Jsonata

from constructs_lib.saga.validation.jsonata_reads import FUNCTIONS, BadExpressionError, Path, reads_of

NAMES: dict[str, Path | None] = {"request": ("request",), "outputs": ("outputs",), "item": ("request", "items")}

READS = {
    "$request.amount > 3": {"amount"},
    "$request.account.id": {"account", "account.id"},
    '$request."a b".c': {"a b", "a b.c"},
    "$request.`a b`": {"a b"},
    "$request.items[qty > 1].sku": {"items", "items.qty", "items.sku"},
    "$request.items[0].sku": {"items", "items.sku"},
    "($request.items)[0].sku": {"items", "items.sku"},
    "$request.items.($.sku)": {"items", "items.sku"},
    '$request.items.{"a": sku}': {"items", "items.sku"},
    "$request.items{sku: $sum(qty)}": {"items", "items.sku", "items.qty"},
    "$request.items^(>price)": {"items", "items.price"},
    "$request.items@$i.lines[$i.id = 1]": {"items", "items.id", "lines"},
    "$request.items#$n[$n = 0].sku": {"items", "items.sku"},
    "($r := $request.account; $r.id = 1)": {"account", "account.id"},
    "$map($request.items, function($v, $i) { $v.sku & $i })": {"items", "items.sku"},
    "$request.items ~> $filter(function($v) { $v.qty > 1 })": {"items", "items.qty"},
    "$filter($request.items, function($v) { $v.qty > 1 })[0].sku": {"items", "items.qty", "items.sku"},
    "$sort($request.items, function($l, $r) { $l.p > $r.q }).sku": {"items", "items.p", "items.q", "items.sku"},
    "$request.a ? $request.b : $request.c": {"a", "b", "c"},
    "$request.account.$uppercase(id)": {"account", "account.id"},
    "-$request.a": {"a"},
    "[$request.a, 1]": {"a"},
    '{"a": $request.a}': {"a"},
    "$item.sku": {"items", "items.sku"},
    "$exists($request.a)": {"a"},
    "($f := function($n) { $n <= 1 ? 1 : $n * $f($n - 1) }; $f($request.n))": {"n"},
    "($g := function($n) { $h($n) }; $h := function($n) { $n }; $g($request.n))": {"n"},
    '$request.a = "${Token[TOKEN.12]}"': {"a"},
    "$request.a = ${Token[TOKEN.12]}": {"a"},
    # What is computed is not known.
    "$request.*.b": set(),
    "$request.**.b": set(),
    '$lookup($request, "a").b': set(),
    "$reduce($request.items, function($sum, $v) { $sum + $v.any })": {"items"},
    "$request.items.%.any": {"items"},
    '| $request | {"a": any} |': set(),
    "$map([1, 2], $string)": set(),
    "$substring(?, 0, 1)": set(),
    "/^a+$/": set(),
}  # fmt: skip


@pytest.mark.parametrize("text", READS)
def test_members_of_the_request_that_an_expression_reads(text: str) -> None:
    paths = reads_of(text, NAMES).paths

    assert {".".join(path[1:]) for path in paths if path[0] == "request"} - {""} == READS[text]


BAD = {
    "": ("which is not JSONata (Unexpected end of expression)", "correct it"),
    "$request.amount = = 3": ("which is not JSONata (The symbol = cannot be used as a unary operator)", "correct it"),
    "1 2": ("which is not JSONata (Syntax error: 2)", "correct it"),
    "/[/": ("which is not JSONata (No terminating / in regular expression)", "correct it"),
    "$requst.amount > 3": (
        "where nothing is known of $requst",
        "write $request; known are $item, $outputs, $request and JSONata's functions",
    ),
    "$exits($request.a)": (
        "where nothing is known of $exits",
        "write $exists; known are $item, $outputs, $request and JSONata's functions",
    ),
    "$zzz": ("where nothing is known of $zzz", "known are $item, $outputs, $request and JSONata's functions"),
    "$eval('1')": ("where nothing is known of $eval", "known are $item, $outputs, $request and JSONata's functions"),
    "($a := 1; $b)": (
        "where nothing is known of $b",
        "known are $a, $item, $outputs, $request and JSONata's functions",
    ),
    "(($a := 1); $a)": ("where nothing is known of $a", "known are $item, $outputs, $request and JSONata's functions"),
    "$total := $total + 1": (
        "where nothing is known of $total",
        "known are $item, $outputs, $request and JSONata's functions",
    ),
    "amount > 3": ("where amount is a member of nothing", "begin with a variable, e.g. $request.amount"),
    "{who: 1}": ("where who is a member of nothing", "begin with a variable, e.g. $request.who"),
    "$map($request.items, function($v) { sku })": (
        "where sku is a member of nothing",
        "begin with a variable, e.g. $request.sku",
    ),
    "$": ("where $ is nothing: Step Functions gives no input document", "begin with a variable"),
    "$$.a": ("where $$ is nothing: Step Functions gives no input document", "begin with a variable"),
}


@pytest.mark.parametrize("text", BAD)
def test_an_expression_that_cannot_work_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(BadExpressionError) as raised:
        reads_of(text, NAMES)

    assert (str(raised.value), raised.value.remedy) == BAD[text]


def test_the_path_that_an_expression_is_the_value_of() -> None:
    assert reads_of("$request.cart.lines[qty > 0]", NAMES).value == ("request", "cart", "lines")
    assert reads_of("[$request.cart]", NAMES).value is None


def test_every_public_function_of_the_engine_except_eval_is_known() -> None:
    engine = set(Jsonata.Frame(None).bindings) | set(Jsonata.static_frame.bindings)

    assert engine - FUNCTIONS == {"eval", "clone"}
    assert FUNCTIONS - engine == {"hash", "parse", "partition", "range", "uuid"}
