"""Declared waiting steps: refusals, budgets, and the configuration of their integrations."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import Duration, Stack

from constructs_lib import CallbackIntegration, ContinueWith, IdempotencyTable, Provider, SagaStateMachine, Step
from constructs_lib.saga.validation.budget import findings_of, happy_path, worst_case
from tests.constructs.support.sagas import plain_function

ASKED = Provider(verify=True, compensation_idempotent_for=Duration.hours(24))
MINUTE, HOUR = Duration.minutes(1), Duration.hours(1)


class Shop:
    """Resources of steps."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.fn = plain_function(stack, "Function")
        self.via = CallbackIntegration(stack, "Warehouse", fn=plain_function(stack, "HandOver"))

    def job(self, name: str = "Pick", **options: Any) -> Step:
        usual = {"via": self.via, "provider": ASKED, "timeout": HOUR, "compensate": self.fn}
        expected = {} if {"heartbeat", "expected_duration"} & set(options) else {"expected_duration": MINUTE}
        return Step.callback(name, **{**usual, **expected, **options})

    def wait(self, name: str = "Review", **options: Any) -> Step:
        usual = {"via": self.via, "timeout": HOUR, "expected_duration": MINUTE}
        return Step.wait_for(name, **{**usual, **options})

    def saga(self, *steps: Any, **options: Any) -> SagaStateMachine:
        pivot = Step.atomic("Commit", fn=self.fn, pivot=True)
        requests = IdempotencyTable(self.stack, "Requests")
        return SagaStateMachine(self.stack, "Saga", requests=requests, steps=[*steps, pivot], **options)


@pytest.fixture
def shop(stack: Stack) -> Shop:
    return Shop(stack)


def test_the_heartbeat_is_twice_the_expected_duration(shop: Shop) -> None:
    wait = shop.job().wait
    assert wait is not None
    assert (wait.heartbeat, wait.timeout, wait.attempts) == (120, 3_600, 30)


def test_the_heartbeat_can_be_declared(shop: Shop) -> None:
    wait = shop.job(heartbeat=Duration.seconds(7)).wait
    assert wait is not None
    assert (wait.heartbeat, wait.attempts) == (7, 515)


@pytest.mark.parametrize("kind", ["job", "wait"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"expected_duration": None}, "needs expected_duration or heartbeat, got neither"),
        ({"heartbeat": MINUTE, "expected_duration": MINUTE}, "needs expected_duration or heartbeat, got both"),
        ({"expected_duration": Duration.minutes(30)}, "must be shorter than its timeout, got 3600 s for 3600 s"),
        ({"expected_duration": None, "heartbeat": HOUR}, "must be shorter than its timeout, got 3600 s for 3600 s"),
        ({"timeout": Duration.seconds(1)}, "timeout of step .* got 1"),
        ({"timeout": Duration.days(400)}, "timeout of step"),
        ({"expected_duration": Duration.seconds(0)}, "expected_duration of step .* got 0"),
        ({"name": " "}, "a step's name"),
        ({"when": "  "}, "when of step"),
        ({"refusals": ["StepInDoubt"]}, "refusals of step"),
    ],
)
def test_steps_that_wait_refuse(shop: Shop, kind: str, options: dict[str, Any], said: str) -> None:
    make = shop.job if kind == "job" else shop.wait
    with pytest.raises(ValueError, match=said):
        make(**options)


def test_a_job_needs_a_provider_with_status_queries(shop: Shop) -> None:
    with pytest.raises(ValueError, match=r"must be able to report .* verify=False.*Provider\(verify=True\)"):
        shop.job(provider=Provider(idempotent_for=HOUR))


def test_a_jobs_compensation_must_be_decidable(shop: Shop) -> None:
    with pytest.raises(ValueError, match="could never be decided when it is cut off"):
        shop.job(provider=Provider(verify=True))


def test_a_wait_cannot_be_a_pivot_and_a_saga_of_waits_alone_is_refused(shop: Shop) -> None:
    with pytest.raises(ValueError, match="a saga needs a step that mutates"):
        SagaStateMachine(shop.stack, "Idle", requests=IdempotencyTable(shop.stack, "R"), steps=[shop.wait()])


def test_a_job_before_the_pivot_needs_a_compensation(shop: Shop) -> None:
    with pytest.raises(ValueError, match="step Pick mutates before the pivot Commit and has no compensation"):
        shop.saga(shop.job(compensate=None))


def test_a_wait_that_times_out_may_be_skipped(shop: Shop) -> None:
    step = shop.wait(on_error={"WaitTimedOut": ContinueWith(output={"review": "none"})})
    assert "WaitTimedOut" in step.refusals


@pytest.mark.parametrize("kind", ["job", "wait"])
def test_an_express_phase_cannot_wait(shop: Shop, kind: str) -> None:
    step = shop.job() if kind == "job" else shop.wait()
    with pytest.raises(ValueError, match="waits for an answer, which an Express phase cannot"):
        shop.saga(Step.express("Quick", steps=[step]))


def test_a_phase_lasts_longer_than_its_waits(shop: Shop) -> None:
    with pytest.raises(ValueError, match="may wait for 3600 s, and its phase Fulfil takes 3600 s"):
        shop.saga(Step.child("Fulfil", steps=[shop.job()], timeout=HOUR))


def test_the_saga_waits_as_long_as_its_steps_may(shop: Shop) -> None:
    saga = shop.saga(shop.job(timeout=Duration.days(2), expected_duration=HOUR))
    assert saga.definition["TimeoutSeconds"] >= 4 * 86_400


def test_waiting_is_part_of_the_budget(shop: Shop) -> None:
    described = shop.saga(shop.job()).description

    assert happy_path(described).seconds >= 3_600
    assert worst_case(described).seconds >= 2 * 3_600
    assert worst_case(described).events >= 30 * 4


def test_an_outcome_that_may_be_lost_too_often_for_one_history_is_reported(shop: Shop) -> None:
    described = shop.saga(shop.job(heartbeat=Duration.seconds(1), timeout=Duration.hours(3))).description

    assert "cdk-sagas-history-warning" in [finding.id for finding in findings_of(described)]


def test_a_saga_shorter_than_its_wait_does_not_synthesize(shop: Shop) -> None:
    described = shop.saga(shop.job(), timeout=Duration.minutes(30)).description

    assert "cdk-sagas-step-outlasts-saga" in [finding.id for finding in findings_of(described)]


def test_a_provider_with_requests_slower_than_its_queue_is_reported(shop: Shop) -> None:
    slow = Provider(verify=True, compensation_idempotent_for=Duration.hours(24), grace=Duration.minutes(2))
    found = {finding.id: finding.message for finding in findings_of(shop.saga(shop.job(provider=slow)).description)}

    assert "may be on its way for 140 s" in found["cdk-sagas-redelivery-Pick"]
    assert "delivers the job again after 90 s" in found["cdk-sagas-redelivery-Pick"]


def test_the_usual_grace_fits_the_usual_queue(shop: Shop) -> None:
    found = [finding.id for finding in findings_of(shop.saga(shop.job(), shop.wait()).description)]

    assert not [name for name in found if name.startswith("cdk-sagas-redelivery")]
