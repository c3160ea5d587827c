"""Every memory held against who may still ask for it: one day or second inside is nothing to speak of, outside is."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from aws_cdk import Acknowledgment, App, Duration, Stack, Validations
from aws_cdk.assertions import Annotations, Match

from constructs_lib import IdempotencyTable, Provider, SagaStateMachine, Step, TimeoutReconciler
from constructs_lib.saga.description.description import (
    FunctionDescription,
    SagaDescription,
    StepDescription,
    Wait,
)
from constructs_lib.saga.description.retry import Retry
from constructs_lib.saga.validation.budget import Finding, Severity, tried, undo_tried, worst_case
from constructs_lib.saga.validation.retention import (
    DAY,
    HISTORY_DAYS,
    REDRIVE_DAYS,
    kept_after_the_end,
    recovery_findings,
    retention_findings,
)
from saga_runtime.approvals import store as approval_store
from saga_runtime.callbacks.saga_writes import LATE_DAYS
from saga_runtime.callbacks.writes import MARKER_DAYS
from saga_runtime.protocol import EXECUTION_NAME_DAYS
from tests.constructs.support.factories import ROOT
from tests.constructs.support.integrations import integration, job, own, saga_of
from tests.constructs.support.sagas import plain_function
from tests.local.kinds.stack import KindsStack
from tests.unit.support.drawn_sagas import provider_of

HOUR = 3_600
DEFAULT_DAYS = 400
MESSAGES = 18 * DAY
OUTLIVED = 300 + 900 + 60
"""An Express phase, a function that it called last, and a margin."""
LOOK = 900
"""Minimum interval, a quarter of an hour, in which a saga in progress is checked once."""


def step(name: str = "Pay", **options: Any) -> StepDescription:
    """A step with a function of five seconds."""
    declared: dict[str, Any] = {
        "kind": "atomic",
        "side": "before",
        "function": FunctionDescription(timeout=5),
        "compensation": FunctionDescription(timeout=5),
        "compensated": True,
        "retry": Retry(
            transient_attempts=2,
            transient_interval=1,
            transient_cap=30,
            in_doubt_attempts=3,
            in_doubt_interval=10,
            in_doubt_cap=30,
        ),
    }
    return StepDescription(name=name, **declared | options)


def saga(*steps: StepDescription, **options: Any) -> SagaDescription:
    """A saga of these steps, by default one, and with what the constructs have by default."""
    declared: dict[str, Any] = {
        "timeout": 2 * HOUR,
        "replayed": 7 * DAY,
        "remembered": DEFAULT_DAYS * DAY,
        "due_after": 60,
        "log_days": DEFAULT_DAYS,
    }
    return SagaDescription(name="Saga", steps=steps or (step(),), fingerprint="f", **declared | options)


def pick(**guarantees: Any) -> StepDescription:
    """A job."""
    wait = Wait(heartbeat=600, timeout=HOUR, messages=MESSAGES)
    provider = provider_of(verify=True, **guarantees)
    return step("Pick", kind="callback", timeout=HOUR, wait=wait, provider=provider)


def at_provider(**guarantees: Any) -> StepDescription:
    """An external step whose provider guarantees only this."""
    return step("Charge", kind="external", provider=provider_of(**guarantees))


def found(made: SagaDescription) -> dict[str, Finding]:
    """Findings when a saga is declared."""
    return {finding.id: finding for finding in retention_findings(made)}


def found_later(made: SagaDescription, *, every: int | None = 60) -> dict[str, Finding]:
    """Findings when its reconciler is known."""
    return {finding.id: finding for finding in recovery_findings(made, looked_at_every=every)}


def remedy_of(finding: Finding) -> int:
    """The days to which a message asks to raise ``log_retention_days``."""
    return int(finding.message.partition("log_retention_days to ")[2].partition(",")[0])


# ---- what has it, and what is just inside --------------------------------------------------------------------------


@pytest.mark.parametrize("every", [None, 60, HOUR])
def test_the_constructs_defaults_cause_no_finding(every: int | None) -> None:
    made = saga(step(), pick(undo_window=DAY), at_provider(window=DAY, undo_window=DAY))

    assert (found(made), found_later(made, every=every)) == ({}, {})


def test_unknown_values_cause_no_finding() -> None:
    made = saga(pick(), replayed=0, remembered=0, log_days=0, timeout=300 * DAY)

    assert (found(made), found_later(made, every=None)) == ({}, {})


@pytest.mark.parametrize(("log_days", "days"), [(30, 15), (31, 15), (400, 200), (3_650, 1_825)])
def test_half_of_the_rows_retention_is_for_the_time_after_the_end(log_days: int, days: int) -> None:
    assert kept_after_the_end(log_days) == days * DAY


def test_a_key_that_expires_before_the_worst_case_is_a_warning() -> None:
    worst = int(worst_case(saga()).seconds)

    assert found(saga(remembered=worst)) == {}
    finding = found(saga(remembered=worst - 1))["cdk-sagas-retention"]
    assert finding.severity is Severity.WARNING
    assert f"remembered for {worst - 1} s" in finding.message
    assert "raise remember_for of the IdempotencyTable" in finding.message


def test_rows_must_outlast_an_execution_that_is_redriven_on_the_last_day_and_runs_to_its_timeout() -> None:
    # Half of 400 days: 14 to redrive it, 186 for its timeout and for what a recovery outlives.
    longest = 186 * DAY - OUTLIVED
    assert found(saga(timeout=longest - 1)).keys() <= {"cdk-sagas-retention-execution-names"}
    assert "cdk-sagas-retention-redrive" not in found(saga(timeout=longest))
    finding = found(saga(timeout=longest + 1))["cdk-sagas-retention-redrive"]
    assert finding.severity is Severity.ERROR
    assert "redriven for 14 days" in finding.message
    assert f"timeout of {longest + 1} s again, and for {OUTLIVED} s" in finding.message
    assert "log_retention_days=400 rows are kept for 200 days" in finding.message
    assert finding.message.endswith("raise log_retention_days to 402, or lower the timeout")


def test_rows_must_outlast_the_last_message_of_a_job() -> None:
    longest = 168 * DAY - OUTLIVED
    assert "cdk-sagas-retention-messages-Pick" not in found(saga(pick(), timeout=longest))
    finding = found(saga(pick(), timeout=longest + 1))["cdk-sagas-retention-messages-Pick"]
    assert finding.severity is Severity.ERROR
    assert f"message of step Pick can be delivered for {MESSAGES} s" in finding.message
    assert "log_retention_days=400 rows are kept for 200 days" in finding.message
    assert found(saga(step(), timeout=longest + 1)).keys() == {"cdk-sagas-retention-execution-names"}


def test_rows_must_outlast_the_record_for_late_compensation() -> None:
    assert found(saga(pick(), replayed=193 * DAY)) == {}
    finding = found(saga(pick(), replayed=193 * DAY + 1))["cdk-sagas-retention-late-Pick"]
    assert finding.severity is Severity.ERROR
    assert f"{193 * DAY + 1} s, and 7 days" in finding.message
    assert finding.message.endswith("raise log_retention_days to 402, or lower replay_for of the IdempotencyTable")
    assert found(saga(step(), replayed=366 * DAY)) == {}


@pytest.mark.parametrize("days", [30, 31, 47, 63, 64, 65, 100, 399])
def test_the_days_that_a_message_names_are_enough_and_no_more_than_needed(days: int) -> None:
    made = saga(pick(), timeout=366 * DAY, replayed=366 * DAY, log_days=days)
    errors = [finding for finding in found(made).values() if finding.severity is Severity.ERROR]
    enough = max(remedy_of(finding) for finding in errors)

    def is_enough(log_days: int) -> bool:
        after = found(dataclasses.replace(made, log_days=log_days))
        return not any(finding.severity is Severity.ERROR for finding in after.values())

    assert (is_enough(enough), is_enough(enough - 1)) == (True, False)
    assert enough <= 3_650


def test_names_of_executions_can_be_trusted_for_89_days() -> None:
    assert EXECUTION_NAME_DAYS == 90
    assert found(saga(timeout=89 * DAY)) == {}
    finding = found(saga(timeout=89 * DAY + 1))["cdk-sagas-retention-execution-names"]
    assert finding.severity is Severity.WARNING
    assert "for 89 days" in finding.message


def test_a_compensation_key_that_expires_before_a_retry_is_an_error() -> None:
    # Twice 5 s for the function and 5 s for the clocks, and 30 s of grace.
    def charge(window: int, **guarantees: Any) -> StepDescription:
        return at_provider(verify=True, undo_window=window, grace=30, clock_skew=5, **guarantees)

    name = "cdk-sagas-retention-compensation-Charge"
    assert found(saga(charge(50)))[name].severity is Severity.WARNING
    finding = found(saga(charge(49)))[name]
    assert finding.severity is Severity.ERROR
    assert "two calls that undo step Charge take 50 s" in finding.message
    assert "knows the key for 49 s" in finding.message
    assert found(saga(charge(49, verify_undo=True))) == {}
    assert found(saga(dataclasses.replace(charge(49), compensation=None, compensated=False))) == {}


def test_a_compensation_retried_for_longer_than_its_key_is_a_warning() -> None:
    trying = int(undo_tried(step()))

    assert found(saga(at_provider(verify=True, undo_window=trying))) == {}
    finding = found(saga(at_provider(verify=True, undo_window=trying - 1)))
    assert finding["cdk-sagas-retention-compensation-Charge"].severity is Severity.WARNING
    assert f"may be tried for {trying} s" in finding["cdk-sagas-retention-compensation-Charge"].message


# ---- findings that depend on the saga's reconciler ------------------------------------------------------------------


def test_without_a_reconciler_rows_must_outlast_recovery_by_hand() -> None:
    # 90 days, and twice five, of which one is longer by what a recovery outlives.
    five = 5 * DAY - OUTLIVED // 2
    assert found_later(saga(log_days=100, timeout=five), every=None) == {}
    assert found_later(saga(log_days=30, timeout=five), every=60) == {}
    assert found_later(saga(log_days=100, timeout=five + 1), every=None).keys() == {"cdk-sagas-retention-recovery"}
    finding = found_later(saga(log_days=99, timeout=five), every=None)["cdk-sagas-retention-recovery"]
    assert finding.severity is Severity.ERROR
    assert f"for 90 days after it ended, runs for {five} s" in finding.message
    assert "log_retention_days is 99" in finding.message
    assert "raise it to 100, or give the saga to a TimeoutReconciler" in finding.message


@pytest.mark.parametrize(("due_after", "every", "pause"), [(60, 60, LOOK + 60), (DAY, HOUR, DAY + HOUR)])
def test_a_providers_key_must_outlast_the_recoverys_query(due_after: int, every: int, pause: int) -> None:
    def charge(window: float, **guarantees: Any) -> SagaDescription:
        return saga(at_provider(window=int(window), **guarantees), due_after=due_after)

    asked = tried(step()) + pause
    assert found_later(charge(asked), every=every) == {}
    assert found_later(charge(asked - 1, verify=True), every=every) == {}
    # That the step itself is tried for longer is another finding.
    assert found_later(charge(tried(step()) - 1), every=every) == {}
    finding = found_later(charge(asked - 1), every=every)["cdk-sagas-retention-idempotency-window-Charge"]
    assert finding.severity is Severity.WARNING
    assert f"{asked:g} s after its first call" in finding.message
    assert f"knows a key for {asked - 1:g} s" in finding.message


def test_a_step_in_doubt_is_verified_when_its_branches_have_ended() -> None:
    def both(window: float) -> SagaDescription:
        slow = step("Slow", function=FunctionDescription(timeout=900))
        charge = at_provider(window=int(window))
        return saga(StepDescription(name="Both", kind="parallel", side="before", branches=((charge,), (slow,))))

    asked = tried(step("Slow", function=FunctionDescription(timeout=900))) + LOOK + 60
    assert found_later(both(asked)) == {}
    assert found_later(both(asked - 1)).keys() == {"cdk-sagas-retention-idempotency-window-Charge"}


def test_a_compensations_key_must_outlast_the_recoverys_retry() -> None:
    def charge(window: float, **guarantees: Any) -> SagaDescription:
        return saga(at_provider(verify=True, undo_window=int(window), **guarantees))

    repeated = undo_tried(step()) + LOOK + 60
    assert found_later(charge(repeated)) == {}
    assert found_later(charge(repeated - 1, verify_undo=True)) == {}
    # That the undo itself is tried for longer is found before.
    assert found_later(charge(undo_tried(step()) - 1)) == {}
    finding = found_later(charge(repeated - 1))["cdk-sagas-retention-compensation-Charge"]
    assert finding.severity is Severity.WARNING
    assert f"{repeated:g} s after its first call" in finding.message


# ---- through the constructs ----------------------------------------------------------------------------------------


def told(stack: Stack) -> tuple[list[str], list[str]]:
    """Ids of retention findings: errors, and warnings."""
    annotations = Annotations.from_stack(stack)
    every = Match.string_like_regexp("cdk-sagas-retention")
    errors, warnings = (
        sorted(str(message.entry.data).rpartition("Annotation::")[2].rstrip(")]") for message in find("*", every))
        for find in (annotations.find_error, annotations.find_warning)
    )
    return errors, warnings


def plain(stack: Stack, **options: Any) -> SagaStateMachine:
    """A saga of one step."""
    steps = [Step.atomic("Move", fn=plain_function(stack, "Function"))]
    return SagaStateMachine(stack, "Saga", requests=IdempotencyTable(stack, "Requests"), steps=steps, **options)


def test_a_saga_with_short_rows_needs_a_reconciler(stack: Stack) -> None:
    plain(stack, log_retention_days=60)

    assert told(stack) == (["cdk-sagas-retention-recovery"], [])


def test_a_reconciler_that_is_declared_after_the_saga_keeps_them(stack: Stack) -> None:
    TimeoutReconciler(stack, "Reconciler", sagas=[plain(stack, log_retention_days=60)])

    assert told(stack) == ([], [])


def test_late_findings_are_reported_once_in_any_number_of_synths(stack: Stack) -> None:
    plain(stack, log_retention_days=60)
    app = stack.node.root
    assert isinstance(app, App)
    app.synth()
    app.synth(force=True)

    assert told(stack) == (["cdk-sagas-retention-recovery"], [])


def test_a_saga_that_may_run_for_longer_than_its_rows_are_kept_ends_the_synth(stack: Stack) -> None:
    TimeoutReconciler(stack, "Reconciler", sagas=[plain(stack, timeout=Duration.days(187))])

    assert told(stack) == (["cdk-sagas-retention-redrive"], ["cdk-sagas-retention-execution-names"])


def test_a_job_has_the_retention_of_its_queues_and_of_its_providers_keys(stack: Stack) -> None:
    via = integration(stack)
    made = saga_of(stack, job(via, compensate=own(stack, "Cancel")))

    (leaf,) = made.description.leaves
    assert leaf.wait is not None
    assert via.message_seconds == leaf.wait.messages == MESSAGES
    kept = leaf.provider
    assert kept is not None
    assert (kept.undo_window, kept.verify_undo, kept.clock_skew, kept.grace) == (DAY, False, 5, 30)
    assert (made.description.log_days, made.description.due_after) == (400, 60)


def test_a_job_with_too_short_a_retention_ends_the_synth(stack: Stack) -> None:
    made = saga_of(
        stack,
        job(integration(stack), compensate=own(stack, "Cancel")),
        log_retention_days=64,
        requests=IdempotencyTable(stack, "Requests", replay_for=Duration.days(26)),
    )
    TimeoutReconciler(stack, "Reconciler", sagas=[made])

    assert told(stack) == (["cdk-sagas-retention-late-Pick", "cdk-sagas-retention-messages-Pick"], [])


def _charging(
    stack: Stack, *, due_after: Duration | None = None, check_interval: Duration | None = None
) -> SagaStateMachine:
    provider = Provider(idempotent_for=Duration.hours(1), verify_undo=True)
    function = plain_function(stack, "Function")
    charge = Step.external("Charge", fn=function, provider=provider)
    requests = IdempotencyTable(stack, "Requests", due_after=due_after)
    made = SagaStateMachine(stack, "Saga", requests=requests, steps=[charge])
    TimeoutReconciler(stack, "Reconciler", sagas=[made], check_interval=check_interval)
    return made


def test_how_often_a_reconciler_looks_is_held_against_a_providers_window(stack: Stack) -> None:
    _charging(stack, check_interval=Duration.hours(1))

    assert told(stack) == ([], ["cdk-sagas-retention-idempotency-window-Charge"])


def test_so_is_when_a_record_is_due(stack: Stack) -> None:
    _charging(stack, due_after=Duration.hours(1))

    assert told(stack) == ([], ["cdk-sagas-retention-idempotency-window-Charge"])


def test_a_sweep_every_minute_is_often_enough(stack: Stack) -> None:
    _charging(stack)

    assert told(stack) == ([], [])


def test_a_warning_that_is_found_when_all_is_known_can_be_acknowledged_before(stack: Stack) -> None:
    made = _charging(stack, check_interval=Duration.hours(1))
    Validations.of(made).acknowledge(
        Acknowledgment(id="cdk-sagas-retention-idempotency-window-Charge", reason="a person asks")
    )

    assert told(stack) == ([], [])


def test_sagas_with_every_kind_of_step_are_retained_long_enough(kinds_stack: KindsStack) -> None:
    assert told(kinds_stack) == ([], [])


def test_the_page_has_the_same_numbers() -> None:
    page = " ".join((ROOT / "docs" / "explanation" / "retention.md").read_text("utf-8").split())
    numbers = (
        f"{REDRIVE_DAYS} days + `timeout` + what a recovery outlives ≤",
        f"what a recovery outlives + {MESSAGES // DAY} days ≤",
        f"`replay_for` + {LATE_DAYS} days ≤",
    )
    for text in (
        *numbers,
        f"twice the `timeout` + what a recovery outlives + {HISTORY_DAYS} days ≤",
        f"received | token table | {MARKER_DAYS} days",
    ):
        assert text in page
    assert f"decided | token table | {approval_store.KEEP_DAYS} days" in page


def test_an_events_marker_is_kept_as_long_as_a_decision_that_it_explains() -> None:
    assert MARKER_DAYS > approval_store.KEEP_DAYS
