"""Functions behind an API that start from a snapshot: a version, an alias, and no call that goes past it."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import App, Environment, Size, Stack
from aws_cdk import aws_lambda as lambda_
from cdk_nag import AwsSolutionsChecks

from constructs_lib import (
    CallbackIntegration,
    DirectFunction,
    DirectOperation,
    EventIntake,
    IdempotencyTable,
    Operation,
    StepFunction,
    StripeSignature,
    TransactionApi,
)
from constructs_lib.functions.snap_start import from_snapshot
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory, context
from tests.constructs.support.integrations import own, secret
from tests.constructs.support.sagas import FUNCTIONS, saga

APPLY = {"ApplyOn": "PublishedVersions"}
METHOD, PERMISSION = "AWS::ApiGateway::Method", "AWS::Lambda::Permission"


def _declare(stack: Stack, *, snap_start: bool) -> TransactionApi:
    """Everything that answers requests, and as much that does not."""
    table = IdempotencyTable(stack, "Requests")
    pay = DirectFunction(stack, "Pay", code=FUNCTIONS, handler="direct.handler")
    api = TransactionApi(
        stack,
        "Api",
        operations={
            "payments": DirectOperation(fn=pay, requests=table, previous=None),
            "transfers": Operation(saga=saga(stack)),
        },
        waf=True,
        snap_start=snap_start,
    )
    warehouse = CallbackIntegration(stack, "Warehouse", fn=own(stack, "HandOver"))
    scheme = StripeSignature(secrets=[secret(stack)])
    warehouse.add_webhook("Webhook", fn=own(stack, "FromWarehouse"), scheme=scheme, snap_start=snap_start)
    warehouse.add_approval_page("Review", snap_start=snap_start)
    warehouse.add_direct_receiver("Direct")
    credit = StepFunction(stack, "Credit", code=FUNCTIONS, handler="intake.handler")
    intake = EventIntake(stack, "Stripe", operation="stripe", fn=credit, requests=IdempotencyTable(stack, "Events"))
    intake.add_webhook("Webhook", scheme=scheme, snap_start=snap_start)
    return api


@pytest.fixture(scope="module")
def declared(new_app: AppFactory) -> Stack:
    stack = Stack(new_app(), "Test")
    _declare(stack, snap_start=True)
    return stack


@pytest.fixture(scope="module")
def cloud(declared: Stack) -> Cloud:
    return Cloud(declared)


@pytest.fixture(scope="module")
def without(new_app: AppFactory) -> Stack:
    stack = Stack(new_app(), "Test")
    _declare(stack, snap_start=False)
    return stack


ANSWERING = {"Api/Gatekeeper/transfers", "Credit", "FromWarehouse", "Pay", "Warehouse/Review/Page"}


def test_what_answers_requests_starts_from_a_snapshot_and_nothing_else(cloud: Cloud) -> None:
    functions = cloud.of_type("AWS::Lambda::Function")
    with_snapshot = {f.path for f in functions if f.properties.get("SnapStart") == APPLY}

    assert with_snapshot == {f"{path}/Function" for path in ANSWERING}
    assert not [f.path for f in functions if "SnapStart" in f.properties and f.path not in with_snapshot]


def test_each_has_one_version_and_an_alias_of_it(cloud: Cloud) -> None:
    versions = {v.path: v.properties["FunctionName"] for v in cloud.of_type("AWS::Lambda::Version")}
    aliases = {a.path: a.properties for a in cloud.of_type("AWS::Lambda::Alias")}

    assert versions == {f"{path}/Function/CurrentVersion": f"${{{path}/Function}}" for path in ANSWERING}
    assert set(aliases) == {f"{path}/Function/Live" for path in ANSWERING}
    for path in ANSWERING:
        alias = aliases[f"{path}/Function/Live"]
        assert (alias["Name"], alias["FunctionName"]) == ("live", f"${{{path}/Function}}")
        assert alias["FunctionVersion"] == f"${{{path}/Function/CurrentVersion.Version}}"


def test_no_method_invokes_a_function_past_its_alias(cloud: Cloud) -> None:
    uris = [m.properties["Integration"]["Uri"] for m in cloud.of_type(METHOD) if "Uri" in m.properties["Integration"]]

    invoked = {path for path in ANSWERING for uri in uris if f"${{{path}/Function/Live}}" in uri}
    assert invoked == ANSWERING
    assert all("/Function/Live}" in uri for uri in uris)


def test_the_gateway_may_invoke_aliases_and_no_function(cloud: Cloud) -> None:
    granted = [
        permission.properties["FunctionName"]
        for permission in cloud.of_type(PERMISSION)
        if permission.properties["Principal"] == "apigateway.amazonaws.com"
    ]

    assert set(granted) == {f"${{{path}/Function/Live}}" for path in ANSWERING}


def test_permissions_of_roles_are_the_same(cloud: Cloud, without: Stack) -> None:
    plain = Cloud(without)

    for path in ANSWERING:
        assert cloud.permissions(f"{path}/Role") == plain.permissions(f"{path}/Role")
    assert not plain.of_type("AWS::Lambda::Alias")


def test_no_rule_is_violated_for_it(declared: Stack, without: Stack) -> None:
    with_, plain = (
        sorted(violation.rule_name for violation in AwsSolutionsChecks().validate_scope(stack).violations)
        for stack in (declared, without)
    )

    assert with_ == plain
    assert not [name for name in plain if not name.startswith(("AwsSolutions-IAM4", "AwsSolutions-L1"))], "of a test's"


def test_a_changed_environment_is_another_version(new_app: AppFactory) -> None:
    ids = set()
    for value in ("one", "two", "two"):
        stack = Stack(new_app(), "Test")
        function = own(stack, "Move", environment={"WAREHOUSE": value}).function
        from_snapshot("fn", function)
        (version,) = Cloud(stack).of_type("AWS::Lambda::Version")
        ids.add(version.logical_id)

    assert len(ids) == 2


def test_one_function_of_two_callers_has_one_alias(stack: Stack) -> None:
    function = own(stack, "Move").function

    assert from_snapshot("one", function) is from_snapshot("two", function)


@pytest.mark.parametrize("runtime", [lambda_.Runtime.PYTHON_3_11, lambda_.Runtime.NODEJS_22_X, lambda_.Runtime.JAVA_21])
def test_another_runtime_ends_the_synth(stack: Stack, runtime: lambda_.Runtime) -> None:
    function = _plain(stack, runtime=runtime)

    with pytest.raises(ValueError, match=rf"the runtime of fn must be python3.12 or newer, got {runtime.name}"):
        from_snapshot("fn", function)


@pytest.mark.parametrize("region", ["ap-east-2", "ap-southeast-6", "cn-north-1", "us-gov-west-1"])
def test_a_region_without_snapshots_ends_the_synth(region: str) -> None:
    stack = Stack(App(context=context()), "Test", env=Environment(account="111111111111", region=region))

    with pytest.raises(ValueError, match=f"the region of fn must be one that has SnapStart, got {region}"):
        from_snapshot("fn", _plain(stack))


def test_a_large_disk_ends_the_synth(stack: Stack) -> None:
    function = _plain(stack, ephemeral_storage_size=Size.mebibytes(1_024))

    with pytest.raises(ValueError, match="the ephemeral storage of fn must be 512 MiB with a snapshot, got 1024 MiB"):
        from_snapshot("fn", function)


def test_a_file_system_ends_the_synth(stack: Stack) -> None:
    function = _plain(stack)
    resource: Any = function.node.default_child
    resource.file_system_configs = [
        lambda_.CfnFunction.FileSystemConfigProperty(arn="arn:aws:efs:x", local_mount_path="/mnt/x")
    ]

    with pytest.raises(ValueError, match="fn must have no file system with a snapshot, got one"):
        from_snapshot("fn", function)


def _plain(stack: Stack, **settings: Any) -> lambda_.Function:
    given = {"runtime": lambda_.Runtime.PYTHON_3_13, "handler": "index.handler", **settings}
    return lambda_.Function(stack, "Plain", code=lambda_.Code.from_asset(str(FUNCTIONS)), **given)
