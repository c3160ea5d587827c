"""Intakes whose events begin a saga that runs inline: permissions, environment, and what ends the synth."""

from __future__ import annotations

from pathlib import Path

import pytest
from aws_cdk import Duration, Stack
from aws_cdk.assertions import Annotations, Match

from constructs_lib import (
    EventIntake,
    IdempotencyTable,
    Operation,
    Retry,
    Run,
    SagaStateMachine,
    Step,
    StepFunction,
    TimeoutReconciler,
    TransactionApi,
)
from saga_runtime.http.starting import SagaSettings
from saga_runtime.webhooks.intake import Settings
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.sagas import FUNCTIONS, plain_function


def _begun(stack: Stack, tmp_path: Path, run: Run, *, timeout: Duration | None = None) -> SagaStateMachine:
    fn = plain_function(stack, "Function", timeout=timeout)
    saga = SagaStateMachine(
        stack,
        "Saga",
        requests=IdempotencyTable(stack, "Requests"),
        steps=[Step.atomic("Credit", fn=fn, retry=Retry(in_doubt_attempts=8))],
        run=run,
        definition_file=tmp_path / "saga.json",
    )
    reader = StepFunction(stack, "Begin", code=FUNCTIONS, handler="intake_saga.handler", timeout=Duration.seconds(28))
    EventIntake(stack, "Orders", operation="orders", fn=reader, saga=saga)
    return saga


def _unreconciled(stack: Stack) -> bool:
    found = Annotations.from_stack(stack).find_error("*", Match.string_like_regexp("cdk-sagas-inline-unreconciled"))
    return bool(found)


def _started(cloud: Cloud, role: str) -> dict[str, set[str]]:
    """Actions of Step Functions by resource."""
    return {
        str(resource): {action for action in statement.actions if action.startswith("states:")}
        for statement in cloud.statements(role)
        for resource in statement.resources
        if any(action.startswith("states:") for action in statement.actions)
    }


def test_intake_of_an_inline_saga_may_start_asynchronous_express_executions(stack: Stack, tmp_path: Path) -> None:
    _begun(stack, tmp_path, Run.INLINE)
    cloud = Cloud(stack)

    start = {"states:StartExecution"}
    assert _started(cloud, "Begin/Role") == {"${Saga/StateMachine}": start, "${Saga/Express}": start}
    settings = Settings.from_env(cloud.one("Begin/Function").properties["Environment"]["Variables"])
    assert isinstance(settings.begins, SagaSettings)
    assert settings.begins.express_machine_arn == "${Saga/Express}"


def test_intake_of_a_prepared_saga_starts_standard(stack: Stack, tmp_path: Path) -> None:
    _begun(stack, tmp_path, Run.PREPARED)
    cloud = Cloud(stack)

    assert _started(cloud, "Begin/Role") == {"${Saga/StateMachine}": {"states:StartExecution"}}
    settings = Settings.from_env(cloud.one("Begin/Function").properties["Environment"]["Variables"])
    assert isinstance(settings.begins, SagaSettings)
    assert settings.begins.express_machine_arn is None


@pytest.mark.parametrize("waits", [False, True])
def test_gatekeeper_runs_synchronous_executions_if_clients_may_wait(
    stack: Stack, tmp_path: Path, *, waits: bool
) -> None:
    saga = _begun(stack, tmp_path, Run.INLINE)
    wait = Duration.seconds(5) if waits else None
    TransactionApi(stack, "Api", operations={"credits": Operation(saga=saga, max_wait=wait)})

    allowed = _started(Cloud(stack), "Api/Gatekeeper/credits/Role")["${Saga/Express}"]

    assert allowed == {"states:StartExecution"} | ({"states:StartSyncExecution"} if waits else set())


@pytest.mark.parametrize("run", list(Run))
def test_inline_saga_that_events_begin_needs_a_reconciler(stack: Stack, tmp_path: Path, run: Run) -> None:
    _begun(stack, tmp_path, run)

    assert _unreconciled(stack) is (run is not Run.STANDARD)


def test_reconciler_may_be_declared_after_the_intake(stack: Stack, tmp_path: Path) -> None:
    saga = _begun(stack, tmp_path, Run.INLINE)
    TimeoutReconciler(stack, "Reconciler", sagas=[saga])

    assert not _unreconciled(stack)


def test_inline_saga_that_no_event_begins_needs_none(stack: Stack, tmp_path: Path) -> None:
    fn = plain_function(stack, "Function")
    requests = IdempotencyTable(stack, "Requests")
    steps = [Step.atomic("Credit", fn=fn)]
    SagaStateMachine(
        stack, "Saga", requests=requests, steps=steps, run=Run.INLINE, definition_file=tmp_path / "saga.json"
    )

    assert not _unreconciled(stack)


def test_standard_outlives_what_an_intake_may_still_start(stack: Stack, tmp_path: Path) -> None:
    saga = _begun(stack, tmp_path, Run.INLINE, timeout=Duration.seconds(50))

    cloud = Cloud(stack)
    functions = [cloud.one(path).properties["Timeout"] for path in ("Begin/Function", "Function")]
    assert saga.express_definition is not None
    longest = sum(functions) + saga.express_definition["TimeoutSeconds"]
    assert saga.definition["States"]["Wait for Express to end"]["Seconds"] > longest
