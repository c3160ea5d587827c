"""The atomic step over serialized DynamoDB: the effect and its log row, together, once."""

from __future__ import annotations

import copy
from enum import Enum
from typing import Any

import pytest
from botocore.exceptions import ClientError

from saga_runtime import (
    AccountNotFound,
    Commit,
    Conflict,
    InsufficientFunds,
    Invalid,
    NotYet,
    SagaFenced,
    StepCall,
    TransientError,
    Write,
    atomic_step,
)
from saga_runtime.errors import PermanentError, ProtocolMismatch
from saga_runtime.idempotency.identity import saga_id_of
from saga_runtime.protocol import OUTPUT_FIELD, CallField, Env, Metric
from saga_runtime.shared import aws
from tests.unit.support.samples import BODY, NOW_MS, SAGA_ID, step_event
from tests.unit.support.transfers import run, transfer, undo
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import Context, World

STEP_KEY = f"{SAGA_ID}#Transfer"


@pytest.fixture(autouse=True)
def accounts(world: World) -> None:
    """Two accounts, as the sample request wants them."""
    world.open_accounts(alice=500, bob=0)
    world.wire.forget()


def test_a_step_reads_and_commits_in_two_calls(world: World) -> None:
    calls = world.calls_of(run)

    assert calls == ["BatchGetItem", "TransactWriteItems"]
    assert world.balances() == {"alice": 300, "bob": 200}
    assert world.rows() == {STEP_KEY: "DONE"}


def test_an_applied_step_replays_its_output_in_the_same_two_calls(world: World) -> None:
    first = run()

    calls = world.calls_of(lambda: run() == first or pytest.fail("another output"))

    assert calls == ["BatchGetItem", "TransactWriteItems"]
    assert world.balances() == {"alice": 300, "bob": 200}
    assert world.telemetry.counts[Metric.STEP_REPLAYED] == 1


def test_a_step_replays_even_when_its_own_effect_would_now_refuse_it(world: World) -> None:
    first = run(body={**BODY, "amount": 500})

    assert run(body={**BODY, "amount": 500}) == first
    assert world.balances() == {"alice": 0, "bob": 500}


@pytest.mark.parametrize(
    "error",
    [
        KeyError("Item"),
        NotYet("gone"),
        Conflict("gone"),
        TransientError("gone"),
        ClientError({"Error": {"Code": "ThrottlingException"}}, "GetItem"),
    ],
    ids=repr,
)
def test_step_that_was_applied_replays_whatever_its_function_raises_by_now(world: World, error: Exception) -> None:
    first = run()

    def fails(_: StepCall) -> Commit:
        raise error

    assert atomic_step(fails)(step_event(), Context(remaining_ms=5_000))["output"] == first
    with pytest.raises(type(error)):
        atomic_step(fails)(step_event(saga_id=saga_id_of("b" * 26, NOW_MS, "requests")), Context(remaining_ms=5_000))
    undo()
    with pytest.raises(SagaFenced):
        atomic_step(fails)(step_event(), Context(remaining_ms=5_000))


def test_step_that_another_invocation_applies_between_two_plans_replays(world: World) -> None:
    applied: list[Any] = []

    def plans(_: StepCall) -> Commit:
        if not applied:
            applied.append(None)
            world.wire.plan(Fault(operation="PutItem", action=Action.CONFLICT, times=1))
            return Commit()
        applied.append(run())
        raise KeyError("gone")

    assert atomic_step(plans)(step_event(), Context(remaining_ms=5_000))["output"] == applied[-1]


def test_database_that_fails_is_asked_for_no_row(world: World) -> None:
    world.wire.plan(Fault(operation="TransactWriteItems", action=Action.DROP, moment=Moment.BEFORE, times=99))

    with pytest.raises(TransientError):
        run()

    assert "GetItem" not in world.wire.sent


def test_a_step_with_a_lost_response_succeeds_despite_its_own_effect(world: World) -> None:
    world.wire.plan(Fault(operation="TransactWriteItems", action=Action.DROP, moment=Moment.AFTER))

    output = run(body={**BODY, "amount": 500})

    assert output["amount"] == "500"
    assert world.balances() == {"alice": 0, "bob": 500}


def test_a_refused_step_writes_nothing(world: World) -> None:
    with pytest.raises(InsufficientFunds):
        run(body={**BODY, "amount": 501})

    assert world.balances() == {"alice": 500, "bob": 0}
    assert world.rows() == {}


def test_an_unknown_account_refuses(world: World) -> None:
    with pytest.raises(AccountNotFound, match="carol"):
        run(body={**BODY, "to": "carol"})


def test_a_fenced_step_never_runs(world: World) -> None:
    undo()

    with pytest.raises(SagaFenced):
        run()

    assert world.balances() == {"alice": 500, "bob": 0}
    assert world.telemetry.counts[Metric.STEP_FENCED] == 1


def test_a_step_that_was_compensated_never_runs_again(world: World) -> None:
    run()
    undo()

    with pytest.raises(SagaFenced):
        run()

    assert world.balances() == {"alice": 500, "bob": 0}


def test_a_fenced_step_that_would_be_refused_is_fenced(world: World) -> None:
    undo()

    with pytest.raises(SagaFenced):
        run(body={**BODY, "amount": 501})


@pytest.mark.parametrize("action", [Action.DROP, Action.THROTTLE, Action.CONFLICT])
def test_a_disturbed_commit_is_sent_again_within_the_invocation(world: World, action: Action) -> None:
    world.wire.plan(Fault(operation="TransactWriteItems", action=action))

    run()

    assert world.balances() == {"alice": 300, "bob": 200}


def test_after_a_conflict_the_step_reads_again(world: World) -> None:
    world.wire.plan(Fault(operation="TransactWriteItems", action=Action.CONFLICT, times=1))

    calls = world.calls_of(run)

    assert calls == ["BatchGetItem", "TransactWriteItems"] * 2
    assert world.telemetry.counts[Metric.CONFLICT] == 1


def test_after_a_conflict_the_step_is_planned_on_what_it_was_given(world: World) -> None:
    """Changes that its function makes to its input are not in the next try: a fee would be added twice."""
    seen: list[tuple[Any, Any]] = []

    @atomic_step
    def step(call: StepCall) -> Commit:
        seen.append(copy.deepcopy((call.request, call.outputs["Quote"])))
        call.request["amount"] += 5
        call.outputs["Quote"]["lines"] += ["shipping"]
        call.item["n"] += 1
        return Commit(output={"n": call.item["n"], "amount": call.request["amount"]})

    world.wire.plan(Fault(operation="PutItem", action=Action.CONFLICT, times=2))
    told = {CallField.ITEM_KEY: "a", CallField.ITEM: '{"item":{"n":1}}'}
    outputs: dict[str, Any] = {CallField.OUTPUTS: {"Quote": {"lines": []}}}

    output = step({**step_event(), **told, **outputs}, Context())[OUTPUT_FIELD]

    assert output == {"n": 2, "amount": 205}
    assert seen == [(BODY, {"lines": []})] * 3


@pytest.mark.parametrize(("action", "error"), [(Action.CONFLICT, Conflict), (Action.THROTTLE, TransientError)])
def test_disturbances_that_outlast_the_tries_are_retryable_and_wrote_nothing(
    world: World, action: Action, error: type[TransientError]
) -> None:
    world.wire.plan(Fault(operation="TransactWriteItems", action=action, times=10_000))

    with pytest.raises(error) as raised:
        run()

    assert raised.value.retryable
    assert world.wire.sent.count("BatchGetItem") == 8
    world.wire.forget()
    assert world.rows() == {}


def test_a_commit_waits_longer_from_try_to_try_but_not_after_the_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.5)
    world.wire.plan(Fault(operation="TransactWriteItems", action=Action.CONFLICT, times=10_000))

    with pytest.raises(Conflict):
        run()

    assert world.naps == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5]


def test_a_commit_fails_before_its_invocation_times_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 0.5)
    world.wire.plan(Fault(operation="TransactWriteItems", action=Action.CONFLICT, times=10_000))

    with pytest.raises(Conflict):
        run(remaining_ms=1_050)

    assert world.naps == [0.01, 0.02]


@pytest.mark.parametrize("moment", list(Moment))
def test_a_step_that_dies_around_its_commit_is_applied_once(world: World, moment: Moment) -> None:
    world.wire.plan(Fault(operation="TransactWriteItems", action=Action.KILL, moment=moment, times=1))
    with pytest.raises(Killed):
        run()

    run()

    assert world.balances() == {"alice": 300, "bob": 200}


def step_that(commit: Commit) -> Any:
    """A handler of a step that returns ``commit``."""

    def function(_: StepCall) -> Commit:
        return commit

    return atomic_step(function)


def put_if_absent(refusal: Any = None, *, key: str = "taken") -> Write:
    """A write that the item ``taken`` refuses."""
    put = {
        "TableName": "ledger",
        "Item": {"pk": {"S": key}, "sk": {"S": "x"}},
        "ConditionExpression": "attribute_not_exists(pk)",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    return Write(action={"Put": put}, refusal=refusal)


def test_a_refusal_receives_the_item_that_failed_its_condition(world: World) -> None:
    class Taken(PermanentError):
        code = "TAKEN"

    aws.dynamodb().put_item(TableName="ledger", Item={"pk": {"S": "taken"}, "sk": {"S": "x"}, "by": {"S": "bob"}})
    handler = step_that(Commit(writes=[put_if_absent(lambda item: Taken(f"taken by {item['by']['S']}"))]))

    with pytest.raises(Taken, match="taken by bob"):
        handler(step_event(), Context())


def test_a_failed_condition_without_a_refusal_is_a_conflict(world: World) -> None:
    aws.dynamodb().put_item(TableName="ledger", Item={"pk": {"S": "taken"}, "sk": {"S": "x"}})

    with pytest.raises(Conflict):
        step_that(Commit(writes=[put_if_absent()]))(step_event(), Context())


def test_a_step_without_writes_is_still_logged_once(world: World) -> None:
    handler = step_that(Commit(output={"seen": True}))

    assert handler(step_event(), Context()) == handler(step_event(), Context())
    assert world.rows() == {STEP_KEY: "DONE"}


@pytest.mark.parametrize("output", [{"amount": 1.5}, {"amount": 10**15}, {"a": "x" * 32_768}])
def test_an_output_that_a_state_machine_would_change_refuses_the_step(world: World, output: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        step_that(Commit(output=output))(step_event(), Context())

    assert world.rows() == {}


def test_a_member_of_an_enumeration_in_an_output_is_its_value() -> None:
    class Level(int, Enum):
        LOW = 1

    handler = step_that(Commit(output={"level": Level.LOW}))

    assert [handler(step_event(), Context()) for _ in range(2)] == [{"output": {"level": 1}}] * 2


def test_a_row_is_kept_for_the_retention_of_its_event(world: World) -> None:
    run()

    assert world.items("log")[0]["expiration"]["N"] == str(world.clock.ms // 1000 + 400 * 86_400)


@pytest.mark.parametrize("days", [None, 0, -1, True, "400", 1.5])
def test_a_row_that_would_expire_at_once_is_never_written(world: World, days: Any) -> None:
    with pytest.raises(ProtocolMismatch):
        transfer({**step_event(), CallField.LOG_DAYS: days}, Context())


def test_a_function_of_another_protocol_does_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Env.PROTOCOL, "99")

    with pytest.raises(ProtocolMismatch):
        run()


loose_commit: Any = Commit
loose_write: Any = Write
loose_refusal: Any = Invalid
"""As code without a type checker sees them."""
WRONG: dict[str, tuple[Any, str]] = {
    "nothing": (lambda call: None, "an atomic step must return a Commit, got NoneType; return one, from a plain def"),
    "a dict": (lambda call: {"ticket": "1"}, "an atomic step must return a Commit, got dict; return one, .*"),
    "writes": (
        lambda call: loose_commit(writes=[{"Put": {}}]),
        r"writes of a Commit must be a list of Write, got \{'Put': \{\}\}; write Write\(action=…\)",
    ),
    "one write": (
        lambda call: loose_commit(writes={"Put": {}}),
        r"writes of a Commit must be a list of Write, got 'Put'; write Write\(action=…\)",
    ),
    "an error for a refusal": (
        lambda call: Commit(writes=[loose_write(action={"Put": {}}, refusal=Invalid("x"))]),
        r"refusal of a Write must be a function, got Invalid\('x'\); write lambda item: …",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_a_function_must_not_return_is_named_and_writes_nothing(world: World, wrong: str) -> None:
    function, message = WRONG[wrong]

    with pytest.raises(TypeError, match=f"^{message}$"):
        atomic_step(function)(step_event(), Context())

    assert world.rows() == {}


def test_an_error_class_given_as_a_refusal_is_named(world: World) -> None:
    aws.dynamodb().put_item(TableName="ledger", Item={"pk": {"S": "taken"}, "sk": {"S": "x"}})

    with pytest.raises(TypeError, match=r"^an error's message must be text, got \{.*; write Invalid\(\"…\"\)$"):
        step_that(Commit(writes=[put_if_absent(loose_refusal)]))(step_event(), Context())
