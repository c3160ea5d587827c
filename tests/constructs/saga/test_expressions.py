"""Expressions that cannot work end the synth: named are the step, the expression and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from aws_cdk import Duration, Stack, Token
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_sqs as sqs

from constructs_lib import (
    ContinueWith,
    Effect,
    IdempotencyTable,
    Notify,
    Operation,
    SagaStateMachine,
    Step,
    StepGroup,
    TransactionApi,
)
from constructs_lib.testing.simulator.aws.states.expressions import Moment, evaluate
from tests.constructs.support.sagas import plain_function

TYPO = "$requst.amount > 3"
KNOWN_OF_A_STEP = "known are $outputs, $request, $saga_id, $states, $step_key and JSONata's functions"
KNOWN = "known are $outputs, $request, $states and JSONata's functions"


class Shop:
    """Resources of steps."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.fn = plain_function(stack, "Function")
        self.table = dynamodb.TableV2(
            stack, "Table", partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
        )
        self.bus = events.EventBus(stack, "Bus")
        self.fifo = sqs.Queue(stack, "Fifo", fifo=True)
        self.requests = IdempotencyTable(stack, "Requests")
        self.made = 0

    def atomic(self, name: str, **options: Any) -> Step:
        return Step.atomic(name, fn=self.fn, compensate=self.fn, **options)

    def saga(self, *steps: Step | StepGroup, **options: Any) -> SagaStateMachine:
        """These steps between two others, of which the last is the pivot."""
        self.made += 1
        around = [self.atomic("First"), *steps, self.atomic("Last", pivot=True)]
        return SagaStateMachine(
            self.stack, f"Saga{self.made}", **{"requests": self.requests, "steps": around, **options}
        )

    def writes(self, **options: Any) -> Step:
        put = {"Put": {"Item": {"id": {"S": "{% $step_key %}"}}}}
        return Step.dynamodb("Mark", **{"table": self.table, "writes": [put], "compensate": [put], **options})

    def service(self, **options: Any) -> Step:
        call = {"service": "s3", "action": "getObject", "parameters": {}, "effect": Effect.READ, "policies": []}
        return Step.service("Look", **{**call, **options})

    def event(self, **options: Any) -> Step:
        return Step.event("Announce", bus=self.bus, source="shop", detail_type="Paid", **options)

    def behind(self, step: Step, **options: Any) -> SagaStateMachine:
        """A step behind the pivot."""
        self.made += 1
        steps = [self.atomic("First", pivot=True), step]
        return SagaStateMachine(self.stack, f"Saga{self.made}", requests=self.requests, steps=steps, **options)


Make = Callable[[Shop], Any]
NOTE = {"Type": "Pass", "Output": f"{{% {TYPO} %}}"}


@pytest.fixture(scope="module")
def shop(new_app: Callable[[], Any]) -> Shop:
    return Shop(Stack(new_app(), "Test"))


PLACES: dict[str, tuple[Make, str, str]] = {
    "when": (lambda s: s.saga(s.atomic("Check", when=TYPO)), "when of step Check", KNOWN),
    "when with delimiters": (lambda s: s.saga(s.atomic("Check", when=f"{{% {TYPO} %}}")), "when of step Check", KNOWN),
    "when of a group": (
        lambda s: s.saga(Step.express("Quick", steps=[s.atomic("A")], when=TYPO)), "when of Quick", KNOWN,
    ),
    "when in a group": (
        lambda s: s.saga(Step.child("Slow", timeout=Duration.minutes(5), steps=[s.atomic("A", when=TYPO)])),
        "when of step A",
        KNOWN,
    ),
    "items": (
        lambda s: s.saga(Step.map("Ship", items=TYPO, key="$item.id", steps=[s.atomic("A")])), "items of Ship", KNOWN,
    ),
    "key": (
        lambda s: s.saga(Step.map("Ship", items="$request.i", key=TYPO, steps=[s.atomic("A")])),
        "key of Ship",
        "known are $item, $outputs, $request, $states and JSONata's functions",
    ),
    "result": (lambda s: s.saga(result=TYPO), "result", "known are $outputs, $states and JSONata's functions"),
    "on_failed": (
        lambda s: s.saga(on_failed=Notify(queue=s.fifo, message=TYPO)),
        "message of on_failed",
        "known are $failure, $states and JSONata's functions",
    ),
    "on_error": (
        lambda s: s.saga(s.atomic("Check", on_error={"Invalid": Notify(queue=s.fifo, message=TYPO)})),
        "message of on_error['Invalid'] of step Check",
        "known are $failure, $states and JSONata's functions",
    ),
    "message": (lambda s: s.behind(Step.notify("Tell", queue=s.fifo, message=TYPO)), "message of step Tell", KNOWN),
    "writes": (
        lambda s: s.saga(s.writes(writes=[{"Put": {"Item": {"id": {"S": f"{{% {TYPO} %}}"}}}}])),
        "writes of step Mark",
        KNOWN_OF_A_STEP,
    ),
    "compensate": (
        lambda s: s.saga(s.writes(compensate=[{"Put": {"Item": {"id": {"S": f"{{% {TYPO} %}}"}}}}])),
        "compensate of step Mark",
        "known are $output, $outputs, $request, $saga_id, $states, $step_key and JSONata's functions",
    ),
    "output of writes": (lambda s: s.saga(s.writes(output=TYPO)), "output of step Mark", KNOWN_OF_A_STEP),
    "parameters": (
        lambda s: s.saga(s.service(parameters={"Deep": [{"Key": f"{{% {TYPO} %}}"}]})),
        "parameters of step Look",
        KNOWN_OF_A_STEP,
    ),
    "output of a call": (lambda s: s.saga(s.service(output=TYPO)), "output of step Look", KNOWN_OF_A_STEP),
    "detail": (lambda s: s.behind(s.event(detail=TYPO)), "detail of step Announce", KNOWN_OF_A_STEP),
    "state": (lambda s: s.saga(Step.custom("Mine", state=NOTE)), "state of step Mine", KNOWN_OF_A_STEP),
    "a state inside": (
        lambda s: s.saga(Step.custom("Mine", state={
            "Type": "Parallel",
            "Branches": [{"StartAt": "Note", "States": {"Note": {**NOTE, "End": True}}}],
        })),
        "state of step Mine",
        KNOWN_OF_A_STEP,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PLACES)
def test_a_variable_that_is_not_known_is_refused_wherever_an_expression_is(shop: Shop, case: str) -> None:
    make, where, known = PLACES[case]
    meant = "write $request; " if "$request" in known else ""

    with pytest.raises(ValueError) as raised:  # noqa: PT011 -- the whole message is compared
        make(shop)

    assert str(raised.value) == (
        f"{where} must be a JSONata expression that can work, got {TYPO!r}, where nothing is known of $requst; "
        f"{meant}{known}"
    )


WRONG: dict[str, tuple[Make, str, str, str]] = {
    "no JSONata": (
        lambda s: s.saga(s.atomic("Check", when="$request.amount = = 3")),
        "when of step Check",
        "$request.amount = = 3",
        "which is not JSONata (The symbol = cannot be used as a unary operator); correct it",
    ),
    "no variable": (
        lambda s: s.saga(s.atomic("Check", when="amount > 3")),
        "when of step Check",
        "amount > 3",
        "where amount is a member of nothing; begin with a variable, e.g. $request.amount",
    ),
    "an unknown step": (
        lambda s: s.saga(s.atomic("Check", when="$outputs.Frist.large")),
        "when of step Check",
        "$outputs.Frist.large",
        "where no step is called Frist; name one of the steps before it: First",
    ),
    "an unknown step without a step before": (
        lambda s: SagaStateMachine(
            s.stack, "Alone", requests=s.requests, steps=[s.atomic("Only", pivot=True, when="$outputs.Any.x")]
        ),
        "when of step Only",
        "$outputs.Any.x",
        "where no step is called Any; name one of the steps before it: none",
    ),
    "a later step": (
        lambda s: s.saga(s.atomic("Check", when="$outputs.Last.large")),
        "when of step Check",
        "$outputs.Last.large",
        "where step Last has not run yet; read the output of an earlier step, or move one of the two",
    ),
    "the step itself": (
        lambda s: s.saga(s.atomic("Check", when="$outputs.Check.large")),
        "when of step Check",
        "$outputs.Check.large",
        "where step Check has not run yet; read the output of an earlier step, or move one of the two",
    ),
    "a step of another branch": (
        lambda s: s.saga(Step.parallel("Both", branches=[[s.atomic("A")], [s.atomic("B", when="$outputs.A.x")]])),
        "when of step B",
        "$outputs.A.x",
        "where step A has not run yet; read the output of an earlier step, or move one of the two",
    ),
    "a group, which has no output": (
        lambda s: s.saga(Step.express("Quick", steps=[s.atomic("A")]), s.atomic("Check", when="$outputs.Quick.x")),
        "when of step Check",
        "$outputs.Quick.x",
        "where no step is called Quick; name one of the steps before it: A, First",
    ),
    "a result of nothing": (
        lambda s: s.saga(s.service(parameters={"Key": "{% $states.result.x %}"})),
        "parameters of step Look",
        "$states.result.x",
        "where $states has no result; it has context, input",
    ),
    "a member that no failure has": (
        lambda s: s.saga(on_failed=Notify(queue=s.fifo, message="$failure.reason")),
        "message of on_failed",
        "$failure.reason",
        "where $failure has no reason; it has detail, error, kind, status, step, title",
    ),
    "an item in a condition": (
        lambda s: s.saga(Step.map("Ship", items="$request.i", key="$item.id", steps=[s.atomic("A", when="$item.x")])),
        "when of step A",
        "$item.x",
        f"where nothing is known of $item; {KNOWN}",
    ),
}


IN_EACH_RUN = "another one in each run of the saga"
UNSTEADY: dict[str, tuple[Make, str, str, str]] = {
    "a condition on the time": (
        lambda s: s.saga(s.atomic("Check", when="$now() < '2027'")),
        "when of step Check",
        "$now() < '2027'",
        f"where $now is {IN_EACH_RUN}",
    ),
    "a condition of a group": (
        lambda s: s.saga(Step.express("Quick", steps=[s.atomic("A")], when="$millis() > 1")),
        "when of Quick",
        "$millis() > 1",
        f"where $millis is {IN_EACH_RUN}",
    ),
    "items in any order": (
        lambda s: s.saga(Step.map("Ship", items="$shuffle($request.i)[0]", key="$item.id", steps=[s.atomic("A")])),
        "items of Ship",
        "$shuffle($request.i)[0]",
        f"where $shuffle is {IN_EACH_RUN}",
    ),
    "a key of an item": (
        lambda s: s.saga(Step.map("Ship", items="$request.i", key="($new := $uuid; $new())", steps=[s.atomic("A")])),
        "key of Ship",
        "($new := $uuid; $new())",
        f"where $uuid is {IN_EACH_RUN}",
    ),
    "the name of the execution": (
        lambda s: s.saga(s.atomic("Check", when="$states.context.Execution.Name = 'x'")),
        "when of step Check",
        "$states.context.Execution.Name = 'x'",
        f"where Name is {IN_EACH_RUN}",
    ),
    "the time of a state": (
        lambda s: s.saga(s.atomic("Check", when="$states.context.State.EnteredTime > 'x'")),
        "when of step Check",
        "$states.context.State.EnteredTime > 'x'",
        f"where State is {IN_EACH_RUN}",
    ),
    "what a service answers": (
        lambda s: s.saga(s.service(output="$states.result"), s.atomic("Check", when="$outputs.Look.x = 1")),
        "when of step Check",
        "$outputs.Look.x = 1",
        "where the output of step Look is not recorded",
    ),
    "what is not recorded": (
        lambda s: s.saga(Step.read_only("Ask", fn=s.fn, record=False), s.atomic("Check", when="$outputs.Ask.x = 1")),
        "when of step Check",
        "$outputs.Ask.x = 1",
        "where the output of step Ask is not recorded",
    ),
}


STEADY_STATES = (
    "where $states must be read as $states.context.Execution.Input.request, .request_id or .saga_id, or as "
    "$states.context.Map.Item.Index or .Value"
)
WHOLES = {
    "$lookup($states.context.Execution, 'Name') = 'x'": STEADY_STATES,
    "'x' in $states.context.Execution.*": STEADY_STATES,
    "$contains($string($states.context), 'x')": STEADY_STATES,
    "$states.input.Payload.x = 1": STEADY_STATES,
    "$states.context.Execution.Input.definition = 'x'": STEADY_STATES,
    "$states.context.Execution.Input.saga_id = 'x' and $exists($states)": STEADY_STATES,
    "$lookup($outputs, 'Ask').x = 1": "where $outputs must be read step by step, as $outputs.Step",
    "$outputs.*.x = 1": "where $outputs must be read step by step, as $outputs.Step",
    "$contains($string($outputs), 'x')": "where $outputs must be read step by step, as $outputs.Step",
    "($all := $outputs; $all.First.x = 1)": "where $outputs must be read step by step, as $outputs.Step",
}


@pytest.mark.parametrize("text", WHOLES)
def test_a_deciding_expression_reads_no_object_with_unsteady_members(shop: Shop, text: str) -> None:
    ask = Step.read_only("Ask", fn=shop.fn, record=False)

    with pytest.raises(ValueError) as raised:  # noqa: PT011 -- the whole message is compared
        shop.saga(ask, shop.atomic("Check", when=text))

    assert f"got {text!r}, {WHOLES[text]}; let a Step.read_only answer it" in str(raised.value)


@pytest.mark.parametrize("case", UNSTEADY)
def test_an_unsteady_value_does_not_decide(shop: Shop, case: str) -> None:
    make, where, text, wrong = UNSTEADY[case]

    with pytest.raises(ValueError) as raised:  # noqa: PT011 -- the whole message is compared
        make(shop)

    assert str(raised.value) == (
        f"{where} must be a JSONata expression that can work, got {text!r}, {wrong}; let a Step.read_only answer it, "
        "and read its output, which is recorded"
    )


DECIDING: dict[str, Callable[[Shop, str], object]] = {
    "a condition": lambda s, token: s.saga(s.atomic("Check", when=f'$request.to = "{token}"')),
    "a condition as a whole": lambda s, token: s.saga(s.atomic("Check", when=token)),
    "a condition of a group": lambda s, token: s.saga(Step.express("Quick", steps=[s.atomic("A")], when=token)),
    "items": lambda s, token: s.saga(Step.map("Ship", items=token, key="$item.id", steps=[s.atomic("A")])),
    "a key": lambda s, token: s.saga(
        Step.map("Ship", items="$request.i", key=f"$item.id & '{token}'", steps=[s.atomic("A")])
    ),
}


@pytest.mark.parametrize("case", DECIDING)
def test_a_token_does_not_decide(shop: Shop, case: str) -> None:
    told = (
        r"must be a JSONata expression that can work, got .*, where a token may have another value after each "
        r"deployment; write it, or let a Step\.read_only answer it, and read its output, which is recorded"
    )
    with pytest.raises(ValueError, match=told):
        DECIDING[case](shop, Token.as_string({"Ref": "Limit"}))


def test_the_text_of_a_token_for_a_number_is_refused(shop: Shop) -> None:
    told = r"where -1\.888\d+e\+289 is a token that nothing resolves in a text; use value_as_string"
    with pytest.raises(ValueError, match=rf"output of step Mark must .*, {told}"):
        shop.saga(shop.writes(output=f'{{"limit": {Token.as_number({"Ref": "Limit"})}}}'))


@pytest.mark.parametrize(
    "output",
    [
        lambda: {"limit": Token.as_string({"Ref": "Limit"})},
        lambda: {"limit": Token.as_number({"Ref": "Limit"})},
        lambda: {"limits": [{"of": Token.as_list({"Ref": "Limits"})}]},
        lambda: {Token.as_string({"Ref": "Limit"}): 1},
    ],
)
def test_a_token_in_the_output_of_a_refused_step_is_refused(output: Callable[[], dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="output of ContinueWith must be known at synth, got a token, which may have"):
        ContinueWith(output=output())


@pytest.mark.parametrize("function", ["millis", "now", "random", "shuffle", "uuid"])
def test_the_output_of_a_transaction_is_the_same_in_its_row_and_in_its_saga(shop: Shop, function: str) -> None:
    with pytest.raises(
        ValueError, match=rf"output of step Mark must .* where \${function} has another value each time"
    ):
        shop.saga(shop.writes(output=f'{{"x": ${function}({"[1, 2]" if function == "shuffle" else ""})}}'))


@pytest.mark.parametrize("case", WRONG)
def test_an_expression_that_cannot_work_is_refused(shop: Shop, case: str) -> None:
    make, where, text, wrong = WRONG[case]

    with pytest.raises(ValueError) as raised:  # noqa: PT011 -- the whole message is compared
        make(shop)

    assert str(raised.value) == f"{where} must be a JSONata expression that can work, got {text!r}, {wrong}"


RIGHT: dict[str, Make] = {
    "what every run is started with": lambda s: s.saga(
        s.atomic("Check", when="$states.context.Execution.Input.saga_id = 'x'")
    ),
    "the place of an item": lambda s: s.saga(
        Step.map(
            "Ship", items="$request.i", key="$item.id", steps=[s.atomic("A", when="$states.context.Map.Item.Index = 0")]
        )
    ),
    "the time in a message": lambda s: s.behind(Step.notify("Tell", queue=s.fifo, message='{"at": $now()}')),
    "what is not recorded, in a result": lambda s: s.saga(
        Step.read_only("Ask", fn=s.fn, record=False), result='{"x": $outputs.Ask.x}'
    ),
    "an earlier step": lambda s: s.saga(s.atomic("Check", when="$outputs.First.large = true")),
    "an earlier step of the branch": lambda s: s.saga(
        Step.parallel("Both", branches=[[s.atomic("A"), s.atomic("B", when="$exists($outputs.A.x)")], [s.atomic("C")]])
    ),
    "a step in a group before": lambda s: s.saga(
        Step.express("Quick", steps=[s.atomic("A")]), s.atomic("Check", when="$exists($outputs.A.x)")
    ),
    "its own output, in its compensation": lambda s: s.saga(
        s.writes(compensate=[{"Delete": {"Key": {"id": {"S": "{% $output.id & $outputs.Mark.id %}"}}}}])
    ),
    "the last output, in the result": lambda s: s.saga(result='{"done": $outputs.Last.x}'),
    "the result of a call": lambda s: s.saga(s.service(output="$states.result.Body")),
    "a variable of a state of the user's own": lambda s: s.saga(
        Step.custom("Mine", state={
            "Type": "Parallel",
            "Branches": [{"StartAt": "Set", "States": {
                "Set": {"Type": "Pass", "Assign": {"mine": 1}, "Next": "Use"},
                "Use": {"Type": "Pass", "Output": "{% $mine + $states.input.x %}", "End": True},
            }}],
        })
    ),
    "a text without delimiters": lambda s: s.saga(s.service(parameters={"Key": TYPO})),
    "a token of the CDK": lambda s: s.saga(s.writes(output=f'{{"queue": "{s.fifo.queue_arn}"}}')),
}  # fmt: skip


@pytest.mark.parametrize("case", RIGHT)
def test_an_expression_that_can_work_is_accepted(shop: Shop, case: str) -> None:
    RIGHT[case](shop)


# ---- levels --------------------------------------------------------------------------------------------------------


def _chain(case: str, terms: int) -> str:
    """A text of so many parts; each ``&`` is a level."""
    part = "$failure.title" if case == "message of on_failed" else "$states.context.Execution.Input.saga_id"
    return " & ".join([part] * terms)


DEEP: dict[str, Callable[[Shop, str], SagaStateMachine]] = {
    "when": lambda s, text: s.saga(s.atomic("Check", when=f"{text} = 'x'")),
    "result": lambda s, text: s.saga(result=f'{{"x": {text}}}'),
    "message": lambda s, text: s.behind(Step.notify("Tell", queue=s.fifo, message=f'{{"x": {text}}}')),
    "message of on_failed": lambda s, text: s.saga(on_failed=Notify(queue=s.fifo, message=f'{{"x": {text}}}')),
    "parameters": lambda s, text: s.saga(s.service(parameters={"Key": f"{{% {text} %}}"})),
    "writes": lambda s, text: s.saga(
        s.writes(writes=[{"Put": {"Item": {"id": {"S": "{% $step_key %}"}, "n": {"N": f"{{% $string({text}) %}}"}}}}])
    ),
    "output": lambda s, text: s.saga(s.writes(output=f'{{"x": {text}}}')),
}


@pytest.mark.parametrize("case", DEEP)
def test_an_expression_may_not_nest_deeper_than_aws_evaluates(shop: Shop, case: str) -> None:
    with pytest.raises(ValueError, match=r"which nests 1\d\d levels deep, each operator of a chain being one"):
        DEEP[case](shop, _chain(case, 100))


@pytest.mark.parametrize("case", DEEP)
def test_what_is_generated_around_the_deepest_expression_is_still_evaluated(shop: Shop, case: str) -> None:
    """The engine nests as deep as AWS does, and refuses what is deeper."""
    chain, saga = _deepest(shop, case)
    started = {"request": "{}", "saga_id": "s"}
    states = {"context": {"Execution": {"Input": started, "Name": "s"}, "State": {}}}
    known = {"outputs": {}, "failure": {"title": "t"}}

    found = [text for text in _texts([saga.definition, saga.recovery_definition]) if chain in text]
    assert found
    for text in found:
        evaluate(text, states, known, Moment(0, Random(0)))


def _deepest(shop: Shop, case: str) -> tuple[str, SagaStateMachine]:
    for terms in range(100, 80, -1):
        with suppress(ValueError):
            return _chain(case, terms), DEEP[case](shop, _chain(case, terms))
    pytest.fail("every chain was refused")


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for part in value.values() for text in _texts(part)]
    if isinstance(value, list):
        return [text for part in value for text in _texts(part)]
    return [value] if isinstance(value, str) else []


# ---- the operation's schema -----------------------------------------------------------------------------------------

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "definitions": {"money": {"type": "object", "additionalProperties": False, "properties": {"minor": {}}}},
    "properties": {
        "amount": {"$ref": "#/definitions/money"},
        "open": {"type": "object"},
        "lines": {
            "type": "array",
            "items": {"type": "object", "additionalProperties": False, "properties": {"sku": {"type": "string"}}},
        },
        "tree": {"type": "array", "items": {"$ref": "#/properties/tree"}},
        "either": {"oneOf": [{"type": "string"}, {"$ref": "#/definitions/money"}]},
    },
}


def _api(shop: Shop, schema: Any, *steps: Step | StepGroup) -> TransactionApi:
    saga = shop.saga(*steps)
    return TransactionApi(
        shop.stack,
        f"Api{shop.made}",
        operations={f"transfers{shop.made}": Operation(saga=saga, schema=schema)},
        cloud_watch_role=False,
    )


@pytest.mark.parametrize(
    ("when", "member"),
    [
        ("$request.amuont.minor > 3", "amuont"),
        ("$request.amount.mirno > 3", "amount.mirno"),
        ("$request.amount.minor.deep", "amount.minor.deep"),
        ("$count($request.lines[skuu = 'x']) > 0", "lines.skuu"),
        ("($r := $request; $r.amuont = 1)", "amuont"),
        ("$request.either.mirno = 1", "either.mirno"),
    ],
)
def test_a_member_that_a_closed_schema_does_not_have_is_refused(shop: Shop, when: str, member: str) -> None:
    schema = {
        **SCHEMA,
        "definitions": {"money": {**SCHEMA["definitions"]["money"], "properties": {"minor": {"type": "integer"}}}},
    }
    with pytest.raises(ValueError) as raised:  # noqa: PT011 -- the whole message is compared
        _api(shop, schema, shop.atomic("Check", when=when))

    assert str(raised.value) == (
        f"when of step Check must read members that the schema of operation transfers{shop.made} has, got "
        f"$request.{member} in {when!r}; correct it, or add the member to the schema"
    )


@pytest.mark.parametrize(
    "key", ["$request.id", '"one"', "$outputs.First.id", "$string($states.context.Map.Item.Index)"]
)
def test_a_key_that_all_items_share_is_refused(shop: Shop, key: str) -> None:
    """Every request of two items or more would be refused."""
    steps = [shop.atomic("A")]

    with pytest.raises(ValueError, match=r"^key of Ship must be a JSONata expression that reads \$item, got .*; read"):
        shop.saga(Step.map("Ship", items="$request.i", key=key, steps=steps))
    shop.saga(Step.map("Ship", items="$request.i", key=key, steps=steps, max_items=1))


def test_a_key_reads_the_items_that_the_schema_has(shop: Shop) -> None:
    ship = Step.map("Ship", items="$request.lines", key="$item.skuu", steps=[shop.atomic("A")])

    with pytest.raises(ValueError, match=r"^key of Ship must read members .* got \$request\.lines\.skuu in "):
        _api(shop, SCHEMA, ship)


@pytest.mark.parametrize(
    "when",
    [
        "$request.amount.minor > 3",
        "$request.open.any.thing = 1",
        "$exists($request.lines.sku)",
        "$request.lines[0].sku = 'x'",
        "$request.either.minor = 1",
        "$exists($request)",
        "$exists($request.tree.any)",
    ],
)
def test_a_member_that_the_schema_has_or_allows_is_accepted(shop: Shop, when: str) -> None:
    _api(shop, SCHEMA, shop.atomic("Check", when=when))


def test_without_a_schema_any_member_may_be_there(shop: Shop) -> None:
    _api(shop, None, shop.atomic("Check", when="$request.amuont > 3"))
