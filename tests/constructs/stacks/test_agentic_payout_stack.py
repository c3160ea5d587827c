"""The agentic payout's template: reviewed as a whole, clean, and with exactly one model that may be asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aws_cdk import App, Stack
from cdk_nag import AwsSolutionsChecks
from syrupy.assertion import SnapshotAssertion

from examples.agentic_payout.functions.payout import bedrock, errors, model
from examples.agentic_payout.stack import CAPS, MODEL_CONTEXT, ROUTES_CONTEXT, AgenticPayoutStack, BedrockGrant
from saga_runtime import PermanentError, SagaError, TransientError
from saga_runtime.protocol import PERMANENT_ERRORS
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory, context
from tests.constructs.support.logical_ids import require_same_ids
from tests.constructs.support.reviewed import ReviewExtension, reviewed
from tests.constructs.support.shipped import Shipped

pytestmark = pytest.mark.exhaustive

LEDGER, CONTROLS, LOG = "${Ledger/Table.Arn}", "${Controls.Arn}", "${Payout/Log/Table.Arn}"
ROW = {("dynamodb:PutItem", LOG), ("dynamodb:GetItem", LOG)}
FUNCTIONS = {
    "Analyze": ROW | {("dynamodb:BatchGetItem", LEDGER), ("dynamodb:GetItem", CONTROLS)},
    "Claim": ROW | {("dynamodb:GetItem", CONTROLS), ("dynamodb:PutItem", CONTROLS), ("dynamodb:UpdateItem", CONTROLS)},
    "Release": ROW | {("dynamodb:UpdateItem", LOG), ("dynamodb:UpdateItem", CONTROLS)},
    "Recommend": ROW | {("dynamodb:PutItem", "${StandInBooks.Arn}")},
    "Act": ROW
    | {(f"dynamodb:{action}", LEDGER) for action in ("BatchGetItem", "PutItem", "UpdateItem")}
    | {("dynamodb:UpdateItem", CONTROLS)},
}
NOVA = "foundation-model/amazon.nova-lite-v1:0"
IN_FRANKFURT, IN_IRELAND = f"arn:aws:bedrock:eu-central-1::{NOVA}", f"arn:aws:bedrock:eu-west-1::{NOVA}"
PROFILE = "arn:aws:bedrock:eu-central-1:111122223333:inference-profile/eu.amazon.nova-lite-v1:0"


@pytest.fixture(scope="module")
def stack(shipped: Shipped) -> Stack:
    return shipped.stack("agentic payout")


@pytest.fixture(scope="module")
def cloud(shipped: Shipped) -> Cloud:
    return shipped.cloud("agentic payout")


def test_the_template_is_the_reviewed_one(cloud: Cloud, snapshot: SnapshotAssertion) -> None:
    """Review the difference, then ``python -m pytest tests/constructs --snapshot-update``."""
    assert reviewed(cloud) == snapshot(extension_class=ReviewExtension, name="agentic_payout")


def test_logical_ids_are_for_ever(cloud: Cloud) -> None:
    """A table under a new id is an EMPTY table: claims gone, everything may be paid again."""
    require_same_ids(cloud, "logical_ids_agentic_payout")


def test_cdk_nag_finds_nothing(stack: Stack) -> None:
    result = AwsSolutionsChecks().validate_scope(stack)

    assert [violation.rule_name for violation in result.violations] == []


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_may_touch_this_and_nothing_else(cloud: Cloud, function: str) -> None:
    found = {pair for pair in cloud.permissions(f"{function}/Role") if pair[0].startswith(("dynamodb:", "bedrock:"))}

    assert found == FUNCTIONS[function]


def test_tables_outlive_the_stack_and_can_be_restored(cloud: Cloud) -> None:
    for table in cloud.of_type("AWS::DynamoDB::GlobalTable"):
        if table.path == "Reconciler/Hold/Table":
            continue  # a switch, which goes with the stack
        (replica,) = table.properties["Replicas"]
        assert replica["DeletionProtectionEnabled"], table.path
        assert replica["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"], table.path
        assert table.raw["DeletionPolicy"] == "Retain", table.path
        assert table.properties["SSESpecification"]["SSEEnabled"], table.path


def test_claims_never_expire_and_days_do(cloud: Cloud) -> None:
    """The attribute is set on what an agent spent, and on no claim."""
    controls = cloud.one("Controls", "AWS::DynamoDB::GlobalTable").properties

    assert controls["TimeToLiveSpecification"] == {"AttributeName": "expiration", "Enabled": True}


def test_the_models_client_times_out_before_its_function(cloud: Cloud) -> None:
    function = cloud.one("Recommend/Function", "AWS::Lambda::Function")

    assert function.properties["Timeout"] >= bedrock.READ_TIMEOUT_SECONDS + 5


def test_every_error_of_the_example_is_declared_where_it_is_raised(cloud: Cloud) -> None:
    """An undeclared name would be in doubt, and be retried."""
    own = {
        e
        for e in vars(errors).values()
        if isinstance(e, type) and issubclass(e, SagaError) and e.__module__ == errors.__name__
    }
    text = json.dumps(cloud.definition("Payout/StateMachine"))

    assert {e.__name__ for e in own if issubclass(e, PermanentError)} == {
        *("AgentUnknown", "IntentTaken", "ModelAnswerRefused", "SpendingCapExceeded")
    }
    assert {e.__name__ for e in own if issubclass(e, TransientError)} == {"ModelUnavailable"}
    assert all(f'"{e.__name__}"' in text for e in own)
    assert not {e.__name__ for e in own} & {str(name) for name in PERMANENT_ERRORS}


def with_bedrock(new_app: AppFactory, grant: BedrockGrant) -> Cloud:
    return Cloud(AgenticPayoutStack(new_app(), "AgenticPayout", bedrock=grant))


class TestBedrock:
    def test_may_be_invoked_for_one_model(self, new_app: AppFactory) -> None:
        cloud = with_bedrock(new_app, BedrockGrant(arn=IN_FRANKFURT))

        assert cloud.permissions("Recommend/Role") >= {("bedrock:InvokeModel", IN_FRANKFURT)}
        granted = [s for s in cloud.statements() if any(action.startswith("bedrock:") for action in s.actions)]
        assert [(s.role, s.actions, s.resources) for s in granted] == [
            ("Recommend/Role", ("bedrock:InvokeModel",), (IN_FRANKFURT,))
        ]
        assert "StandInBooks" not in cloud.resources

    def test_is_invoked_by_its_granted_arn(self, new_app: AppFactory) -> None:
        for grant, called in (
            (BedrockGrant(arn=IN_FRANKFURT), "amazon.nova-lite-v1:0"),
            (BedrockGrant(arn=PROFILE, routes_to=[IN_FRANKFURT]), PROFILE),
        ):
            function = with_bedrock(new_app, grant).one("Recommend/Function", "AWS::Lambda::Function")
            variables = function.properties["Environment"]["Variables"]
            assert (variables[model.BEDROCK_MODEL], model.STAND_IN_BOOKS in variables) == (called, False)

    def test_of_a_profile_may_be_invoked_through_it_only(self, new_app: AppFactory) -> None:
        cloud = with_bedrock(new_app, BedrockGrant(arn=PROFILE, routes_to=[IN_FRANKFURT, IN_IRELAND]))

        granted = {s.resources: s.condition for s in cloud.statements() if "bedrock:InvokeModel" in s.actions}
        assert granted == {
            (PROFILE,): {},
            (IN_FRANKFURT, IN_IRELAND): {"StringEquals": {"bedrock:InferenceProfileArn": PROFILE}},
        }

    @pytest.mark.parametrize(
        "arn", ["amazon.nova-lite-v1:0", "arn:aws:bedrock:*::foundation-model/*", "arn:aws:s3:::models", ""]
    )
    def test_is_refused_without_an_exact_arn(self, arn: str) -> None:
        with pytest.raises(ValueError, match="exact ARN"):
            BedrockGrant(arn=arn)
        with pytest.raises(ValueError, match="exact ARN"):
            BedrockGrant(arn=PROFILE, routes_to=[arn])

    def test_is_clean_too(self, new_app: AppFactory) -> None:
        grant = BedrockGrant(arn=PROFILE, routes_to=[IN_FRANKFURT])
        result = AwsSolutionsChecks().validate_scope(AgenticPayoutStack(new_app(), "AgenticPayout", bedrock=grant))

        assert [violation.rule_name for violation in result.violations] == []

    def test_is_named_by_the_context(self, tmp_path: Path) -> None:
        def of(**given: str) -> BedrockGrant | None:
            return BedrockGrant.from_context(App(outdir=str(tmp_path), context={**context(), **given}).node)

        assert of() is None
        assert of(**{MODEL_CONTEXT: IN_FRANKFURT}) == BedrockGrant(arn=IN_FRANKFURT)
        assert of(**{MODEL_CONTEXT: PROFILE, ROUTES_CONTEXT: f"{IN_FRANKFURT},{IN_IRELAND}"}) == BedrockGrant(
            arn=PROFILE, routes_to=(IN_FRANKFURT, IN_IRELAND)
        )


def test_caps_are_those_of_the_stacks_arguments(cloud: Cloud) -> None:
    for name in ("Analyze", "Act"):
        variables = cloud.one(f"{name}/Function", "AWS::Lambda::Function").properties["Environment"]["Variables"]
        assert json.loads(variables["PAYOUT_CAPS"]) == CAPS
