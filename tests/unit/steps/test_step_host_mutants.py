"""Each condition of the step host, removed: what it protects against must then happen."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from handlers import step_host
from saga_runtime import PermanentError, StepInDoubt, TransientError
from saga_runtime.protocol import OUTPUT_FIELD
from saga_runtime.shared import aws
from tests.unit.steps.test_step_host import TARGETS, Functions
from tests.unit.support.gateway import GRACE_MS, LIFE_MS, REMAINING_MS, UNDO_ASKED, Shop
from tests.unit.support.mutation import Mutant, mutate
from tests.unit.support.world import Context, World

Hosted = tuple[Shop, Functions]


@pytest.fixture
def hosted(world: World, monkeypatch: pytest.MonkeyPatch) -> Hosted:
    """A saga, and the functions behind the host."""
    functions = Functions()
    monkeypatch.setattr(aws, "functions", functions.client)
    for variable, name in TARGETS.items():
        monkeypatch.setenv(variable, name)
    return Shop(world, **UNDO_ASKED), functions


def run(shop: Shop) -> Any:
    """Invoke the host's step."""
    return step_host.handler(shop.event(), Context(remaining_ms=REMAINING_MS))[OUTPUT_FIELD]


def answers(answer: Any, expected: type[Exception], status: str) -> Callable[[Hosted], None]:
    """A history: the function answers so, the step ends so, and its row says so."""

    def history(hosted: Hosted) -> None:
        shop, functions = hosted
        functions.answers["apply"] = answer
        with pytest.raises(expected):
            run(shop)
        assert shop.status == status

    return history


def what_broke_off_is_not_believed(hosted: Hosted) -> None:
    """Its answer is whatever was left of it."""
    shop, functions = hosted

    def broken(**_: object) -> dict[str, Any]:
        return {"FunctionError": "Unhandled", "Payload": io.BytesIO(b'{"output": {}}')}

    functions.invoke = broken  # type: ignore[method-assign]
    with pytest.raises(StepInDoubt):
        run(shop)


def a_verdict_without_a_word_is_none(hosted: Hosted) -> None:
    """What became of a call that crashed is not guessed."""
    shop, functions = hosted
    functions.answers["apply"] = "crash"
    with pytest.raises(StepInDoubt):
        run(shop)
    shop.passes(LIFE_MS + GRACE_MS)
    functions.answers["verify"] = {"verdict": "perhaps"}
    with pytest.raises(StepInDoubt):
        run(shop)
    assert [name for name, _ in functions.sent] == ["apply", "verify"]


def the_step_is_asked_about_under_its_own_function(hosted: Hosted) -> None:
    """The one that acts must not be taken for the one that asks."""
    shop, functions = hosted
    functions.answers["apply"] = "crash"
    with pytest.raises(StepInDoubt):
        run(shop)
    shop.passes(LIFE_MS + GRACE_MS)
    run(shop)
    assert [name for name, _ in functions.sent] == ["apply", "verify"]


def the_host_gives_up_before_its_own_end(hosted: Hosted) -> None:
    """Else nobody writes down what the function answered."""
    shop, functions = hosted
    run(shop)
    assert max(functions.patience_ms) < REMAINING_MS


def mutant(name: str, target: str, old: str, new: str, kills: Callable[..., None]) -> Mutant:
    """A mutant of the host."""
    return Mutant(name=name, owner=step_host, target=target, old=old, new=new, kills=kills)


MUTANTS = [
    mutant(
        "believe what a function said that broke off",
        "_invoke",
        'if answer.get("FunctionError"):',
        "if False:",
        what_broke_off_is_not_believed,
    ),
    mutant(
        "let a lost answer out as it is",
        "_invoke",
        "except (BotoCoreError, OSError) as error:",
        "except ZeroDivisionError as error:",
        answers(ReadTimeoutError(endpoint_url="x"), StepInDoubt, "INTENT"),
    ),
    mutant(
        "take a throttled function for one that broke off",
        "_invoke",
        "if aws.error_code(error) == _THROTTLED:",
        "if False:",
        answers(ClientError({"Error": {"Code": "TooManyRequestsException"}}, "Invoke"), TransientError, "INTENT"),
    ),
    mutant(
        "wait for longer than there is time",
        "_invoke",
        "call.timeout_seconds * 1_000",
        "call.timeout_seconds * 2_000",
        the_host_gives_up_before_its_own_end,
    ),
    mutant(
        "take an answer that is no object for one",
        "_document",
        "if not isinstance(document, Mapping):",
        "if document is None:",
        answers('"done"', StepInDoubt, "INTENT"),
    ),
    mutant(
        "take silence for an output",
        "_output_of",
        "if not isinstance(output, Mapping):",
        "output = output or {}\n    if not isinstance(output, Mapping):",
        answers({}, StepInDoubt, "INTENT"),
    ),
    mutant(
        "look at the output before the refusal",
        "_output_of",
        'if "error" in answer:',
        'if "error" in answer and "output" not in answer:',
        answers({"output": {}, "error": {"name": "Declined", "message": "no"}}, PermanentError, "FAILED"),
    ),
    mutant(
        "take any verdict for a no",
        "_verdict_of",
        'case "not_applied":',
        "case _ if answer.get('verdict') not in ('applied', 'pending', 'unknown'):",
        a_verdict_without_a_word_is_none,
    ),
    mutant(
        "ask the function that acts",
        "_verify",
        "Env.STEP_HOST_VERIFY",
        "Env.STEP_HOST_APPLY",
        the_step_is_asked_about_under_its_own_function,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_history_ends_well(hosted: Hosted, mutant: Mutant) -> None:
    mutant.kills(hosted)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_noticed(hosted: Hosted, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, mutant)
    if mutant.target == "_verify":
        monkeypatch.setattr(step_host.handler, "verify", vars(step_host)["_verify"])

    with pytest.raises((Exception, pytest.fail.Exception), match=r".") as noticed:
        mutant.kills(hosted)

    assert not isinstance(noticed.value, NameError | SyntaxError), "the mutant is not alive"
