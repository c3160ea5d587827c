"""The emulator's JSONata answers what the reference implementation does: every number is a double.

The expected values are those of jsonata 2.0.6 from npm, on Node 20, with ``$parse`` as ``JSON.parse``.
"""

from __future__ import annotations

import json

import pytest

from tests.constructs.support.jsonata import compiled, evaluate

TEXTS = {
    "t": '{"big":123456789012345678,"frac":0.12345678901234567,"small":1.5,"zero":0.0}',
    "d": "[123456789012345678, 123456789012345679]",
}
REFERENCE = [
    ("$parse($t)", '{"big":123456789012345680,"frac":0.12345678901234566,"small":1.5,"zero":0}'),
    (
        "$string($parse($t))",
        '"{\\"big\\":123456789012346000,\\"frac\\":0.123456789012346,\\"small\\":1.5,\\"zero\\":0}"',
    ),
    ("$parse($t).big + 1", "123456789012345680"),
    ("$string($parse($t).big)", '"123456789012346000"'),
    ("$parse($t).big & ''", '"123456789012346000"'),
    ("$string($parse($t).big * 10)", '"1234567890123460000"'),
    ("$string(9007199254740993)", '"9007199254740990"'),
    ("$string(9999999999999999)", '"10000000000000000"'),
    ("$string(999999999999999)", '"999999999999999"'),
    ("$string(0.1 + 0.2)", '"0.3"'),
    ("4.35 * 100", "434.99999999999994"),
    ("$string(4.35 * 100)", '"435"'),
    ("$string(1/3)", '"0.333333333333333"'),
    ("$string(1.0)", '"1"'),
    ("$string(1e20)", '"100000000000000000000"'),
    ("$string(1e21)", '"1e+21"'),
    ("$string(5e-7)", '"5e-7"'),
    ("$string(0.000001)", '"0.000001"'),
    ("$string(123456789012345678901)", '"123456789012346000000"'),
    ("$string($parse('[1.0,1e2,1e21,1E-7,-0]'))", '"[1,100,1e+21,1e-7,0]"'),
    ("$string({'a':'é','b':[1,{}],'c':[]})", '"{\\"a\\":\\"é\\",\\"b\\":[1,{}],\\"c\\":[]}"'),
    ("$string({'a':[1,{'b':[]}]}, true)", '"{\\n  \\"a\\": [\\n    1,\\n    {\\n      \\"b\\": []\\n    }\\n  ]\\n}"'),
    ("$sum([9007199254740993, 1])", "9007199254740992"),
    ("$power(2, 60)", "1152921504606847000"),
    ("7.5 % 2", "1.5"),
    ("$parse($d)[0] = $parse($d)[1]", "true"),
    ("$count($distinct($parse($d)))", "1"),
    ("$parse($t).big in [123456789012345677]", "true"),
    ("$lookup($parse($t), 'big')", "123456789012345680"),
    ("$number('12345678901234567890')", "12345678901234567000"),
    ("[$not($parse($t).missing)]", "[]"),
    ("$exists($not($parse($t).missing))", "false"),
    ("$boolean([($parse($t).missing)])", "false"),
    ("$boolean([($not($parse($t).missing))])", "false"),
]


@pytest.mark.parametrize(("expression", "expected"), REFERENCE, ids=[text for text, _ in REFERENCE])
def test_an_expression_has_the_value_of_the_reference(expression: str, expected: str) -> None:
    result = evaluate(expression, states={}, **TEXTS)

    assert json.dumps(result, separators=(",", ":"), ensure_ascii=False) == expected


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 400])
def test_a_number_beyond_a_double_is_refused(number: str) -> None:
    with pytest.raises(ValueError, match="Number out of range"):
        evaluate("$parse($text) + 1", text=number)


def test_a_program_that_is_used_twice_drops_the_first_variables() -> None:
    assert compiled("$exists($a)") is compiled("$exists($a)")
    assert [evaluate("$exists($a)", a=1), evaluate("$exists($a)")] == [True, False]
