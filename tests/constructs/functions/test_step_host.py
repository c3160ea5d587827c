"""StepHost: what it refuses, how long its hosts live, and what they may do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_lambda as lambda_

from constructs_lib import IdempotencyTable, Provider, Retry, SagaStateMachine, Step, StepHost
from saga_runtime.protocol import CLIENT_SHARE
from tests.constructs.support.cloud import Cloud

ASKED = Provider(verify=True, verify_undo=True, grace=Duration.seconds(60))
KEYS = Provider(
    idempotent_for=Duration.hours(24), compensation_idempotent_for=Duration.hours(24), grace=Duration.seconds(60)
)  # fmt: skip
NAMES = ("apply", "verify", "undo", "verify_undo")


def node(stack: Stack, id: str, *, seconds: int | None = 10) -> lambda_.Function:
    """A Node.js function."""
    return lambda_.Function(
        stack,
        id,
        runtime=lambda_.Runtime.NODEJS_22_X,
        handler="index.handler",
        code=lambda_.Code.from_inline("exports.handler = async () => ({ output: {} });"),
        timeout=Duration.seconds(seconds) if seconds is not None else None,
    )


def functions(stack: Stack, *names: str, seconds: Mapping[str, int] | None = None) -> dict[str, lambda_.Function]:
    """Functions by argument, with a timeout of 10 s by default."""
    timeouts = seconds or {}
    return {name: node(stack, name.title().replace("_", ""), seconds=timeouts.get(name, 10)) for name in names}


def host(stack: Stack, *names: str, provider: Provider = ASKED, seconds: Mapping[str, int] | None = None) -> Cloud:
    """The template of a host with these functions."""
    given: dict[str, Any] = functions(stack, *names, seconds=seconds)
    StepHost(stack, "Host", provider=provider, **given)
    return Cloud(stack)


def lives(cloud: Cloud, name: str) -> int:
    """A host's timeout."""
    return int(cloud.one(f"Host/{name}/Function").properties["Timeout"])


@pytest.mark.parametrize("name", ["verify", "verify_undo"])
def test_a_function_that_is_never_called_is_refused(stack: Stack, name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be given exactly if .* got {name}=a function .*{name}=False"):
        host(stack, "apply", "undo", name, provider=KEYS)


@pytest.mark.parametrize("name", ["verify", "verify_undo"])
def test_a_function_that_is_missing_is_refused(stack: Stack, name: str) -> None:
    given = [other for other in NAMES if other != name]
    with pytest.raises(ValueError, match=rf"^{name} must be given exactly if .* got {name}=None .*{name}=True"):
        host(stack, *given)


def test_verify_undo_without_undo_is_refused(stack: Stack) -> None:
    with pytest.raises(ValueError, match=r"^verify_undo needs undo, got none"):
        host(stack, "apply", "verify", "verify_undo")


def test_a_function_whose_timeout_is_unknown_is_refused(stack: Stack) -> None:
    with pytest.raises(ValueError, match=r"^the timeout of Test/Apply cannot be known"):
        StepHost(stack, "Host", apply=node(stack, "Apply", seconds=None), provider=KEYS)


def test_an_imported_function_is_refused_since_its_timeout_is_unknown(stack: Stack) -> None:
    arn = "arn:aws:lambda:eu-west-1:111111111111:function:charge"
    imported = lambda_.Function.from_function_arn(stack, "Imported", arn)
    with pytest.raises(ValueError, match=r"^the timeout of Test/Imported cannot be known"):
        StepHost(stack, "Host", apply=imported, provider=KEYS)


@pytest.mark.parametrize("name", NAMES)
def test_a_grace_that_a_function_may_outlive_is_refused(stack: Stack, name: str) -> None:
    with pytest.raises(ValueError, match=r"^grace of the provider must be at least the longest .* got 60 s for 61 s"):
        host(stack, *NAMES, seconds={name: 61})


def test_a_grace_as_long_as_the_longest_function_will_do(stack: Stack) -> None:
    assert lives(host(stack, *NAMES, seconds={"apply": 60}), "Step") > 60


@pytest.mark.parametrize("first", ["verify", "apply"])
def test_functions_that_no_host_could_wait_for_are_refused(stack: Stack, first: str) -> None:
    patient = Provider(verify=True, verify_undo=True, grace=Duration.seconds(900))
    with pytest.raises(ValueError, match=r"^the timeouts of the functions must leave a host at most 900 s, got \d+ s"):
        host(stack, *NAMES, provider=patient, seconds={first: 800})


@pytest.mark.parametrize(("verify", "apply"), [(10, 10), (60, 1), (1, 60), (33, 47)])
def test_a_host_waits_for_the_question_and_then_for_the_call_to_their_ends(
    stack: Stack, verify: int, apply: int
) -> None:
    life = lives(host(stack, *NAMES, seconds={"verify": verify, "apply": apply}), "Step")

    assert life * CLIENT_SHARE >= verify
    assert (life - verify) * CLIENT_SHARE >= apply
    assert life <= (verify + apply) * 1.4 + 10


@pytest.mark.parametrize("longest", ["verify", "verify_undo"])
def test_the_hosts_of_a_compensation_wait_for_its_verification(stack: Stack, longest: str) -> None:
    life = lives(host(stack, *NAMES, seconds={"undo": 20, longest: 60}), "Compensation")

    assert (life - 60) * CLIENT_SHARE >= 20


def test_a_compensation_does_not_wait_for_a_step_that_it_never_calls(stack: Stack) -> None:
    assert lives(host(stack, *NAMES, seconds={"apply": 60}), "Compensation") < 60


def test_a_compensation_calls_the_step_again_only_if_the_provider_cannot_be_asked(stack: Stack) -> None:
    cloud = host(stack, "apply", "undo", provider=KEYS, seconds={"undo": 20, "apply": 50})

    assert ("lambda:InvokeFunction", "${Apply.Arn}") in cloud.permissions("Host/Compensation/Role")
    assert (lives(cloud, "Compensation") - 50) * CLIENT_SHARE >= 20


def test_the_step_is_not_slowed_down_by_its_compensation(stack: Stack) -> None:
    assert lives(host(stack, *NAMES, seconds={"undo": 60, "verify_undo": 60}), "Step") < 60


def test_a_host_may_invoke_its_functions_and_nothing_else(stack: Stack) -> None:
    cloud = host(stack, *NAMES)
    invoked = {
        role: {
            resource for action, resource in cloud.permissions(f"Host/{role}/Role") if action == "lambda:InvokeFunction"
        }
        for role in ("Step", "Compensation")
    }

    assert invoked["Step"] == {"${Apply.Arn}", "${Verify.Arn}"}
    assert invoked["Compensation"] == {"${Verify.Arn}", "${Undo.Arn}", "${VerifyUndo.Arn}"}
    for role in ("Step", "Compensation"):
        others = {action for action, _ in cloud.permissions(f"Host/{role}/Role")} - {"lambda:InvokeFunction"}
        assert all(action.startswith(("logs:", "xray:")) for action in others), others


def test_a_host_has_the_names_of_its_functions(stack: Stack) -> None:
    cloud = host(stack, *NAMES)
    step, compensation = (
        cloud.one(f"Host/{name}/Function").properties["Environment"]["Variables"] for name in ("Step", "Compensation")
    )
    verify = {"CDK_SAGAS_HOST_VERIFY": "${Verify.Arn}"}
    undo = {"CDK_SAGAS_HOST_UNDO": "${Undo.Arn}", "CDK_SAGAS_HOST_VERIFY_UNDO": "${VerifyUndo.Arn}"}

    assert {name: value for name, value in step.items() if "_HOST_" in name} == {
        "CDK_SAGAS_HOST_APPLY": "${Apply.Arn}",
        **verify,
    }
    assert {name: value for name, value in compensation.items() if "_HOST_" in name} == {**verify, **undo}


def test_without_an_undo_there_is_no_compensation(stack: Stack) -> None:
    given: dict[str, Any] = functions(stack, "apply")
    made = StepHost(stack, "Host", provider=KEYS, **given)

    assert made.compensation is None
    assert [path for path in Cloud(stack).resources if path.startswith("Host/Compensation")] == []


def test_log_groups_are_removed_on_request(stack: Stack) -> None:
    given: dict[str, Any] = functions(stack, *NAMES)
    StepHost(stack, "Host", provider=ASKED, removal_policy=RemovalPolicy.DESTROY, **given)
    cloud = Cloud(stack)

    for name in ("Step", "Compensation"):
        assert cloud.one(f"Host/{name}/Logs").raw["DeletionPolicy"] == "Delete"


def test_a_saga_takes_the_hosts_and_lets_only_them_write_its_log(stack: Stack) -> None:
    given: dict[str, Any] = functions(stack, *NAMES)
    made = StepHost(stack, "Host", provider=ASKED, **given)
    assert made.compensation is not None
    SagaStateMachine(
        stack,
        "Saga",
        requests=IdempotencyTable(stack, "Requests"),
        steps=[
            Step.external(
                "Charge",
                fn=made.step,
                compensate=made.compensation,
                provider=ASKED,
                retry=Retry(in_doubt_attempts=4, in_doubt_interval=60, in_doubt_cap=60),
            )
        ],
    )
    cloud = Cloud(stack)

    for name in ("Step", "Compensation"):
        tables = {r for action, r in cloud.permissions(f"Host/{name}/Role") if action.startswith("dynamodb:")}
        assert tables == {"${Saga/Log/Table.Arn}"}
    for name in ("Apply", "Verify", "Undo", "VerifyUndo"):
        assert not cloud.permissions(f"{name}/ServiceRole")
