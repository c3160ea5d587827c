"""Environments that Lambda would refuse, and policies that IAM would refuse, end the synth."""

from __future__ import annotations

import pytest
from aws_cdk import Environment, Stack
from aws_cdk import aws_iam as iam
from aws_cdk.assertions import Annotations, Match

from constructs_lib import CollectingAccounts, IdempotencyTable, LedgerTable, StepFunction, StripeSignature, Unit
from constructs_lib.functions.environment_room import MAX_BYTES
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.integrations import integration, job, own, saga_of, secret
from tests.constructs.support.sagas import FUNCTIONS


def _errors(stack: Stack) -> list[str]:
    found = Annotations.from_stack(stack).find_error("*", Match.string_like_regexp("cdk-sagas-|must be at most"))
    return [str(message.entry.data) for message in found]


def test_variables_are_refused_when_there_is_no_room_for_them(stack: Stack) -> None:
    own(stack, "Fits", environment={"CONFIG": "x" * 3_900})
    own(stack, "Long", environment={"CONFIG": "x" * 4_096})

    (error,) = _errors(stack)
    assert f"environment of Test/Long/Function must be at most {MAX_BYTES:,} bytes as JSON, got 4,1" in error
    assert "the most of CONFIG; shorten it, or divide the function's work" in error


def test_quotation_marks_count_twice(stack: Stack) -> None:
    """Lambda measures the variables as one JSON object."""
    own(stack, "Quotes", environment={"CONFIG": '"' * 2_100})

    assert len(_errors(stack)) == 1


def test_what_several_constructs_add_counts_together(new_app: AppFactory) -> None:
    """Each of them keeps its own limit."""
    stack = Stack(new_app(), "Payments", env=Environment(account="111111111111", region="eu-west-1"))
    units = [Unit(f"POINTSOFSHOP{number:02}", 2) for number in range(85)]
    shops = [CollectingAccounts(prefix=f"shop{number:02}", unit="EUR") for number in range(5)]
    ledger = LedgerTable(stack, "Ledger", units=units, collecting=shops)
    via = integration(stack)
    requests = IdempotencyTable(stack, "Requests")
    for number in range(6):
        saga_of(stack, job(via, f"Pick{number}"), id=f"Saga{number}", requests=requests)
    report = StepFunction(stack, "Report", code=FUNCTIONS, handler="plain.handler", environment=ledger.environment)
    via.add_webhook("Events", fn=report, scheme=StripeSignature(secrets=[secret(stack)]))

    (error,) = _errors(stack)
    assert "environment of Payments/Report/Function must be at most" in error


def test_policies_of_an_integrations_function_count_with_its_own(new_app: AppFactory) -> None:
    stack = Stack(new_app(), "Payments", env=Environment(account="111111111111", region="eu-west-1"))
    via = integration(stack)
    requests = IdempotencyTable(stack, "Requests")
    for number in range(6):
        saga_of(stack, job(via, f"Pick{number}"), id=f"Saga{number}", requests=requests)
    assert via.dispatcher.role is not None
    for number in range(4):
        statement = iam.PolicyStatement(actions=["s3:GetObject"], resources=[f"{number}" * 2_300])
        via.dispatcher.role.add_to_principal_policy(statement)

    (error,) = _errors(stack)
    assert "inline policies of Payments/WarehouseHandOver/Role must be at most 10,240 characters" in error
    assert "make another CallbackIntegration for some of the sagas" in error


def test_a_handler_that_lambda_refuses_is_refused(stack: Stack) -> None:
    with pytest.raises(ValueError, match=r"handler must be at most 128 characters, got 208: 'mmm.*; shorten"):
        StepFunction(stack, "Move", code=FUNCTIONS, handler=f"{'m' * 200}.handler")
