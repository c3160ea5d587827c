"""Functions of steps: their handlers, the stack that they are in, and the ledger that they post to."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Acknowledgment, Duration, Stack, Validations
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk.assertions import Annotations, Match
from constructs import Construct

from constructs_lib import (
    CallbackIntegration,
    FunctionOptions,
    LedgerTable,
    Provider,
    StandardWebhooks,
    Step,
    StepFunction,
)
from constructs_lib.functions import runtime_function
from tests.constructs.support.integrations import secret

HANDLERS = """
from saga_runtime import (
    atomic_step, callback_step, compensation, event_receiver, external_compensation, external_step, read_only_step,
    webhook,
)

@atomic_step
def atomic(call): ...
@compensation
def undo(call, output): ...
@external_step(verify=find)
def external(call): ...
@external_compensation(of=external)
def external_undo(call, output): ...
@read_only_step
def read(call): ...
@callback_step(verify=None)
def callback(call): ...
@webhook
def hook(event): ...
@event_receiver
def receiver(event): ...
"""
PROVIDER = Provider(verify=True, compensation_idempotent_for=Duration.hours(24))
WAIT: dict[str, Any] = {"provider": PROVIDER, "timeout": Duration.hours(2), "heartbeat": Duration.hours(1)}


class Made:
    """A stack with a function for each handler."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.stack = stack
        self.folder = folder
        self.bus = events.EventBus(stack, "Bus")
        self.via = CallbackIntegration(stack, "Via")
        self.secret = secret(stack)

    def fn(self, handler: str) -> StepFunction:
        return StepFunction(
            self.stack, f"F{len(list(self.stack.node.find_all()))}", code=self.folder, handler=f"steps.{handler}"
        )


@pytest.fixture(scope="module")
def made(new_app: Callable[[], Any], tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("functions")
    (folder / "steps.py").write_text(HANDLERS)
    return Made(Stack(new_app(), "Test"), folder)


USES: dict[str, tuple[Callable[[Made, StepFunction], Any], str, str]] = {
    "fn of step Pay, atomic": (lambda _, f: Step.atomic("Pay", fn=f), "atomic", "atomic_step"),
    "compensate of step Pay, atomic": (
        lambda m, f: Step.atomic("Pay", fn=m.fn("atomic"), compensate=f), "undo", "compensation",
    ),
    "fn of step Pay, external": (
        lambda _, f: Step.external("Pay", fn=f, provider=PROVIDER), "external", "external_step",
    ),
    "compensate of step Pay, external": (
        lambda m, f: Step.external("Pay", fn=m.fn("external"), compensate=f, provider=PROVIDER),
        "external_undo",
        "external_compensation",
    ),
    "compensate of step Pay, callback": (
        lambda m, f: Step.callback("Pay", via=m.via, compensate=f, **WAIT), "external_undo", "external_compensation",
    ),
    "fn of step Pay, read-only": (lambda _, f: Step.read_only("Pay", fn=f), "read", "read_only_step"),
    "fn of CallbackIntegration I": (
        lambda m, f: CallbackIntegration(Construct(m.stack, f"In{f.node.id}"), "I", fn=f),
        "callback",
        "callback_step",
    ),
    "fn of webhook W": (
        lambda m, f: m.via.add_webhook("W", fn=f, scheme=StandardWebhooks(secrets=[m.secret])), "hook", "webhook",
    ),
    "fn of event rule R": (
        lambda m, f: m.via.add_event_rule("R", bus=m.bus, pattern=events.EventPattern(source=["a"]), fn=f),
        "receiver",
        "event_receiver",
    ),
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_a_handler_is_made_by_the_decorator_of_its_use(made: Made, use: str) -> None:
    give, right, decorator = USES[use]
    wrong = "read" if right == "atomic" else "atomic"
    got = {"read": "read_only_step", "atomic": "atomic_step"}[wrong]
    instead = {"read": "Step.read_only(fn=…)", "atomic": "Step.atomic(fn=…)"}[wrong]

    with pytest.raises(ValueError) as raised:  # noqa: PT011 -- the whole message is compared
        give(made, made.fn(wrong))

    name = use.partition(",")[0]
    assert str(raised.value) == (
        f"{name} must be decorated with {decorator}, got {got}; decorate it so, or give it to {instead}"
    )
    give(made, made.fn(right))


OTHER_STEPS = """
from saga_runtime import callback_step, external_compensation, external_step

@external_step(verify=find)
def pay(call): ...
@external_step(verify=find_other)
def fee(call): ...
@callback_step(verify=find)
def job(call): ...
@external_compensation(of=pay)
def undo_pay(call, output): ...
@external_compensation(of=fee)
def undo_fee(call, output): ...
@external_compensation(of=job)
def undo_job(call, output): ...
"""


def test_a_compensation_of_another_step_is_refused(stack: Stack, tmp_path: Path) -> None:
    for folder in ("functions", "others"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "steps.py").write_text(OTHER_STEPS)

    def fn(handler: str, folder: str = "functions") -> StepFunction:
        name = f"F{len(list(stack.node.find_all()))}"
        return StepFunction(stack, name, code=tmp_path / folder, handler=f"steps.{handler}")

    refused = "compensate of step Pay must undo steps.{0}, the step's function, got of=steps.fee; decorate it with "
    pay, undo_fee = fn("pay"), fn("undo_fee")
    with pytest.raises(ValueError, match=re.escape(refused.format("pay") + "external_compensation(of=pay)") + "$"):
        Step.external("Pay", fn=pay, compensate=undo_fee, provider=PROVIDER)
    via = CallbackIntegration(stack, "Jobs", fn=fn("job"))
    with pytest.raises(ValueError, match=re.escape(refused.format("job") + "external_compensation(of=job)") + "$"):
        Step.callback("Pay", via=via, compensate=undo_fee, **WAIT)
    Step.callback("Pay", via=via, compensate=fn("undo_job"), **WAIT)
    # Of these it is not certain: another folder may have the same module, and nothing is known of other functions.
    Step.external("Pay", fn=fn("pay", "others"), compensate=undo_fee, provider=PROVIDER)
    Step.external("Pay", fn=pay.function, compensate=undo_fee, provider=PROVIDER)
    for step in ("First", "Second"):
        Step.external(step, fn=pay, compensate=fn("undo_pay"), provider=PROVIDER)


FLAWED = """
from saga_runtime import compensation, external_compensation, external_step

@external_step
def act(call): ...
@external_compensation(of=act)
def undo(call, output): ...
def plain(event, context):
    return {"output": {}}
"""
KEYED = Provider(idempotent_for=Duration.hours(24), compensation_idempotent_for=Duration.hours(24))
ASKED = Provider(idempotent_for=Duration.hours(24), verify_undo=True)
UNDECORATED = "fn of step Pay must be decorated with {}, got a plain function; decorate it so"
WITHOUT = "{0} must have {1}, as its provider does, got {2} without it; write {2}({1}=…), or declare the provider"
FLAWS: dict[str, tuple[Callable[[Callable[[str], StepFunction], Any], Any], str]] = {
    "a plain atomic step": (lambda fn, _: Step.atomic("Pay", fn=fn("plain")), UNDECORATED.format("atomic_step")),
    "a plain external step": (
        lambda fn, _: Step.external("Pay", fn=fn("plain"), provider=KEYED), UNDECORATED.format("external_step"),
    ),
    "a step without verify": (
        lambda fn, _: Step.external("Pay", fn=fn("act"), provider=Provider(verify=True)),
        WITHOUT.format("fn of step Pay", "verify", "external_step"),
    ),
    "a compensation without verify_undo": (
        lambda fn, _: Step.external("Pay", fn=fn("act"), compensate=fn("undo"), provider=ASKED),
        WITHOUT.format("compensate of step Pay", "verify_undo", "external_compensation"),
    ),
    "a job's compensation without verify_undo": (
        lambda fn, via: Step.callback(
            "Pay", via=via, compensate=fn("undo"), **WAIT | {"provider": Provider(verify=True, verify_undo=True)}
        ),
        WITHOUT.format("compensate of step Pay", "verify_undo", "external_compensation"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_function_that_cannot_keep_its_steps_promise_is_refused(stack: Stack, tmp_path: Path, flaw: str) -> None:
    (tmp_path / "steps.py").write_text(FLAWED)
    give, told = FLAWS[flaw]

    def fn(handler: str) -> StepFunction:
        return StepFunction(stack, handler, code=tmp_path, handler=f"steps.{handler}")

    with pytest.raises(ValueError, match=re.escape(told)):
        give(fn, CallbackIntegration(stack, "Jobs"))


def test_a_function_of_which_nothing_is_wrong_or_known_is_accepted(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(FLAWED)
    act, undo, plain = (
        StepFunction(stack, name, code=tmp_path, handler=f"steps.{name}") for name in ("act", "undo", "plain")
    )

    Step.external("Pay", fn=act, compensate=undo, provider=KEYED)
    Step.external("Pay", fn=plain.function, provider=Provider(verify=True))


NO_PYTHON = "handler of StepFunction F must name a module of valid Python, got 'steps.act' (steps.py, line 2: expected"


@pytest.mark.parametrize(("python", "runtime"), [((3, 11), "PYTHON_3_11"), ((3, 14), "PYTHON_3_13")])
def test_a_module_that_is_not_valid_python_is_refused(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: tuple[int, int], runtime: str
) -> None:
    monkeypatch.setattr(runtime_function, "PYTHON", python)
    (tmp_path / "steps.py").write_text("@atomic_step\ndef act(call)\n    ...")
    options = FunctionOptions(runtime=getattr(lambda_.Runtime, runtime))

    with pytest.raises(ValueError, match=re.escape(NO_PYTHON)):
        StepFunction(stack, "F", code=tmp_path, handler="steps.act", function_options=options)


def test_a_module_that_may_be_newer_python_is_a_warning(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_function, "PYTHON", (3, 9))
    (tmp_path / "steps.py").write_text("@atomic_step\ndef act(call)\n    ...")

    StepFunction(stack, "F", code=tmp_path, handler="steps.act")

    (warning,) = Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("valid Python"))
    assert NO_PYTHON in str(warning.entry.data)
    assert "acknowledge this if its syntax is newer than that of Python 3.9" in str(warning.entry.data)


def test_a_handler_that_does_not_exist_ends_the_synth(made: Made) -> None:
    with pytest.raises(
        ValueError, match=r"^handler of StepFunction F\d+ must name a function in steps.py, got 'steps.redo'"
    ):
        made.fn("redo")


# ---- the ledger -----------------------------------------------------------------------------------------------------

POSTS = """
from saga_runtime import Ledger, atomic_step

ledger = Ledger.from_env()

@atomic_step
def handler(call): ...
"""


@pytest.fixture
def posting(tmp_path: Path) -> Path:
    folder = tmp_path / "functions"
    folder.mkdir()
    (folder / "post.py").write_text(POSTS)
    return folder


def _warnings(stack: Stack) -> list[str]:
    found = Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("ledger"))
    return [str(message.entry.data) for message in found]


def test_a_function_without_the_ledger_of_its_module_is_a_warning(stack: Stack, posting: Path) -> None:
    ledger = LedgerTable(stack, "Ledger")
    ledger.grant_post(StepFunction(stack, "Post", code=posting, handler="post.handler"))

    (warning,) = _warnings(stack)
    assert warning.startswith(
        "environment of Test/Post must have CDK_SAGAS_LEDGER_TABLE, got none: its module calls Ledger.from_env(); "
        "give it environment=ledger.environment, or"
    )


@pytest.mark.parametrize("grantee", ["function", "its Lambda function", "its role"])
def test_a_function_with_its_ledger_is_accepted(stack: Stack, posting: Path, grantee: str) -> None:
    ledger = LedgerTable(stack, "Ledger")
    post = StepFunction(stack, "Post", code=posting, handler="post.handler", environment=ledger.environment)
    grantees: dict[str, Any] = {"function": post, "its Lambda function": post.function, "its role": post.role}
    ledger.grant_post(grantees[grantee])

    assert _warnings(stack) == []


def test_a_grant_of_another_ledger_than_the_environments_is_a_warning(stack: Stack, posting: Path) -> None:
    ledger, other = LedgerTable(stack, "Ledger"), LedgerTable(stack, "Other")
    post = StepFunction(stack, "Post", code=posting, handler="post.handler", environment=ledger.environment)
    other.grant_post(post)

    (warning,) = _warnings(stack)
    assert warning.startswith(
        "Test/Post must be granted the ledger of its environment, got a grant of Test/Other; call grant_post(…) of the "
        "ledger whose environment it has, or acknowledge this"
    )


def test_a_function_that_is_granted_its_ledger_and_another_one_is_accepted(stack: Stack, posting: Path) -> None:
    ledger, other = LedgerTable(stack, "Ledger"), LedgerTable(stack, "Other")
    post = StepFunction(stack, "Post", code=posting, handler="post.handler", environment=ledger.environment)
    other.grant_post(post)
    ledger.grant_post(post.role)

    assert _warnings(stack) == []


def test_a_missing_grant_is_a_warning_that_can_be_acknowledged(stack: Stack, posting: Path) -> None:
    ledger = LedgerTable(stack, "Ledger")
    post = StepFunction(stack, "Post", code=posting, handler="post.handler", environment=ledger.environment)
    other = StepFunction(stack, "Other", code=posting, handler="post.handler", environment=ledger.environment)
    Validations.of(other).acknowledge(Acknowledgment(id="cdk-sagas-ledger-grant", reason="a policy of the account's"))

    (warning,) = _warnings(stack)
    assert warning.startswith(
        f"{post.node.path} must be granted the ledger that it posts to, got no grant; call ledger.grant_post(…)"
    )
