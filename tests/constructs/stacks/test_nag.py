"""cdk-nag on the reference app: clean, for reasons that are written down, each of them needed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aws_cdk import Acknowledgment, App, Duration, Environment, Stack, Validations
from cdk_nag import AwsSolutionsChecks
from constructs import IConstruct

from constructs_lib import IdempotencyTable, Run, SagaStateMachine, Step, TimeoutReconciler
from constructs_lib.api import transaction_api
from constructs_lib.functions import runtime_function
from constructs_lib.rest import rest_api as _rest_api
from constructs_lib.saga.synthesis import machines, permissions
from constructs_lib.saga.synthesis import parking as operators
from examples.funds_transfer.stack import FundsTransferStack
from tests.constructs.support.factories import ROOT, AppFactory
from tests.constructs.support.sagas import step_function
from tests.constructs.support.shipped import Shipped

ACKNOWLEDGING: list[ModuleType] = [runtime_function, transaction_api, _rest_api, machines, permissions, operators]
KEY = "aws:cdk:acknowledged-rules"


def _acknowledged(stack: Stack) -> Iterator[tuple[str, str, str]]:
    """Path, rule and reason of every acknowledgement."""
    for construct in stack.node.find_all():
        for entry in construct.node.metadata:
            if entry.type == KEY:
                for rule, reason in entry.data.items():
                    yield construct.node.path, rule.rsplit("Annotation::", 1)[-1], reason


def test_the_reference_app_is_clean(reference_stack: Stack) -> None:
    result = AwsSolutionsChecks().validate_scope(reference_stack)
    assert not [violation.rule_name for violation in result.violations]
    assert result.success


def test_the_reference_app_is_clean_the_way_the_cdk_command_checks_it(new_app: AppFactory) -> None:
    app = new_app()
    FundsTransferStack(app, "FundsTransfer")
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()
    assert not _violated(app)


def _violated(app: App) -> set[str]:
    """Rules in the report that the plugins leave in the assembly."""
    report: dict[str, Any] = json.loads((Path(app.outdir) / "validation-report.json").read_text("utf-8"))
    return {violation["ruleName"] for plugin in report["pluginReports"] for violation in plugin.get("violations", [])}


class _Forgetful:
    """``Validations`` that forgets to acknowledge one rule."""

    def __init__(self, forgotten: str) -> None:
        self._forgotten = forgotten
        self.forgot = 0

    def of(self, scope: IConstruct) -> _Forgetful:
        self._scope = scope
        return self

    def acknowledge(self, *acknowledgments: Acknowledgment) -> None:
        for acknowledgment in acknowledgments:
            if acknowledgment.id == self._forgotten:
                self.forgot += 1
            else:
                Validations.of(self._scope).acknowledge(acknowledgment)


GATEWAY_LOGS = (
    "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/AmazonAPIGatewayPushToCloudWatchLogs]"
)


DEAD_LETTERS = "AwsSolutions-SQS3"
OTHER_PACK = "Serverless-SQSRedrivePolicy"
"""Of the example's own queue, in a pack that test_compliance.py runs."""


def _phases(app: App, env: Environment | None = None) -> Stack:
    """A saga with a phase of each kind."""
    stack = Stack(app, "Phases", env=env)
    pay, ship, tell = (step_function(stack, name) for name in ("PayFunction", "ShipFunction", "TellFunction"))
    SagaStateMachine(
        stack,
        "Saga",
        requests=IdempotencyTable(stack, "Requests"),
        steps=[
            Step.atomic("Pay", fn=pay, pivot=True),
            Step.child("Fulfil", timeout=Duration.hours(1), steps=[Step.atomic("Ship", fn=ship)]),
            Step.express("Quick", steps=[Step.atomic("Tell", fn=tell)]),
        ],
    )
    return stack


@pytest.fixture(scope="session")
def phases(new_app: AppFactory) -> Stack:
    return _phases(new_app())


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType, str], _Forgetful]:
    def patch(module: ModuleType, rule: str) -> _Forgetful:
        forgetful = _Forgetful(rule)
        monkeypatch.setattr(module, "Validations", forgetful)
        return forgetful

    return patch


@pytest.mark.parametrize(
    ("module", "rule"),
    [
        (runtime_function, "AwsSolutions-IAM5[Resource::*]"),
        (machines, "AwsSolutions-IAM5[Resource::*]"),
        (transaction_api, "AwsSolutions-COG4"),
        (_rest_api, GATEWAY_LOGS),
        (operators, DEAD_LETTERS),
    ],
    ids=["functions", "state machines", "methods", "gateway logs", "operators' queue"],
)
def test_every_acknowledgement_is_needed(
    new_app: AppFactory, forget: Callable[[ModuleType, str], _Forgetful], module: ModuleType, rule: str
) -> None:
    forgetful = forget(module, rule)
    result = AwsSolutionsChecks().validate_scope(FundsTransferStack(new_app(), "FundsTransfer"))
    assert forgetful.forgot > 0
    assert not result.success
    assert {violation.rule_name for violation in result.violations} == {rule}


def test_phases_are_clean(phases: Stack) -> None:
    result = AwsSolutionsChecks().validate_scope(phases)
    assert not [violation.rule_name for violation in result.violations]


def test_a_stack_with_an_environment_of_its_own_is_as_clean(new_app: AppFactory) -> None:
    stack = _phases(new_app(), Environment(account="111111111111", region="eu-west-1"))
    (saga,) = (found for found in stack.node.find_all() if isinstance(found, SagaStateMachine))
    TimeoutReconciler(stack, "Reconciler", sagas=[saga])

    result = AwsSolutionsChecks().validate_scope(stack)

    assert not [violation.rule_name for violation in result.violations]


def test_the_needs_of_a_standard_child_are_acknowledged_for_it_alone(
    new_app: AppFactory, phases: Stack, forget: Callable[[ModuleType, str], _Forgetful]
) -> None:
    rules = {rule for _, rule, _ in _acknowledged(phases)}
    (rule,) = rules - {"AwsSolutions-IAM5[Resource::*]", DEAD_LETTERS}
    assert rule.startswith("AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:states:")
    assert rule.endswith(".Name>:*]")
    forgetful = forget(permissions, rule)
    result = AwsSolutionsChecks().validate_scope(_phases(new_app()))
    assert forgetful.forgot == 1
    assert {violation.rule_name for violation in result.violations} == {rule}


def test_inline_saga_is_clean_and_needs_its_acknowledgement(
    new_app: AppFactory, shipped: Shipped, forget: Callable[[ModuleType, str], _Forgetful]
) -> None:
    inline = AwsSolutionsChecks().validate_scope(shipped.stack("inline transfer"))
    assert not [violation.rule_name for violation in inline.violations]
    forgetful = forget(machines, "AwsSolutions-SF1")
    result = AwsSolutionsChecks().validate_scope(FundsTransferStack(new_app(), "FundsTransfer", run=Run.INLINE))
    assert forgetful.forgot == 1
    assert {violation.rule_name for violation in result.violations} == {"AwsSolutions-SF1"}


def test_a_missing_acknowledgement_fails_the_synth(
    new_app: AppFactory, forget: Callable[[ModuleType, str], _Forgetful]
) -> None:
    forget(transaction_api, "AwsSolutions-COG4")
    app = new_app()
    FundsTransferStack(app, "FundsTransfer")
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    with pytest.raises(RuntimeError, match=r"[Vv]alidation"):
        app.synth()
    assert _violated(app) == {"AwsSolutions-COG4"}


def test_every_acknowledgement_in_the_code_is_tried_here(reference_stack: Stack) -> None:
    # The reconciler's own are tried too: each names the executions of one state machine.
    rules = {rule for path, rule, _ in _acknowledged(reference_stack) if "/Reconciler/" not in path}
    assert rules == {"AwsSolutions-IAM5[Resource::*]", "AwsSolutions-COG4", GATEWAY_LOGS, DEAD_LETTERS, OTHER_PACK}


def test_every_acknowledging_construct_is_tried_here() -> None:
    sources = (ROOT / "constructs_lib").rglob("*.py")
    found = {source.stem for source in sources if ".acknowledge(" in source.read_text("utf-8")}
    tried = {module.__name__.rpartition(".")[2] for module in ACKNOWLEDGING}
    elsewhere = {
        "compliance": "test_compliance.py",
        "payload_bucket": "test_payload_bucket.py",
        "grants": "test_timeout_reconciler.py",
        "manifest": "test_operator_access.py",
        "execution_watch": "test_watched_machines.py",
        **dict.fromkeys(("approval_page", "callback_integration", "receivers"), "test_callback_stack.py"),
    }
    assert found == {*tried, *elsewhere}, f"others are tried in {sorted(set(elsewhere.values()))}"


def test_every_acknowledgement_has_a_reason(reference_stack: Stack) -> None:
    found = list(_acknowledged(reference_stack))
    assert found
    for path, rule, reason in found:
        assert len(reason.split()) >= 10, f"{path}: {rule}: {reason}"
        assert not reason.endswith(" ")


def test_acknowledgements_are_granular_and_near_their_resource(reference_stack: Stack) -> None:
    for path, rule, _ in _acknowledged(reference_stack):
        assert rule not in {"*", "AwsSolutions-*", "AwsSolutions-IAM4", "AwsSolutions-IAM5"}, path
        assert path.count("/") >= 2, f"{path} is too high in the tree: it would hide findings of others"
