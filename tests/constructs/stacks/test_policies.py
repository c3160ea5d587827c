"""Permissions of the reference app, to the letter. Of its reconciler: ``test_timeout_reconciler.py``."""

from __future__ import annotations

import pytest

from tests.constructs.support.cloud import Cloud

WITHOUT_RESOURCE = {
    "logs:CreateLogDelivery",
    "logs:GetLogDelivery",
    "logs:UpdateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:DescribeResourcePolicies",
    "logs:DescribeLogGroups",
    "xray:PutTraceSegments",
    "xray:PutTelemetryRecords",
    "xray:GetSamplingRules",
    "xray:GetSamplingTargets",
}
"""Actions that IAM offers no resource for: each is in the acknowledged reason of its role."""

TRACES = {("xray:PutTraceSegments", "*"), ("xray:PutTelemetryRecords", "*")}

LOG = "${Transfer/Log/Table.Arn}"
COMMIT = {("dynamodb:PutItem", LOG), ("dynamodb:GetItem", LOG)}


def _post(ledger: str) -> set[tuple[str, str]]:
    """Read accounts and post to them."""
    return {(f"dynamodb:{action}", f"${{{ledger}/Table.Arn}}") for action in ("BatchGetItem", "PutItem", "UpdateItem")}


def _base(function: str) -> set[tuple[str, str]]:
    """Permissions of every function of ours."""
    logs = f"${{{function}/Logs.Arn}}"
    return {*TRACES, ("logs:CreateLogStream", logs), ("logs:PutLogEvents", logs)}


FUNCTIONS: dict[str, set[tuple[str, str]]] = {
    "TransferFunction": COMMIT | _post("Ledger"),
    "DebitFunction": COMMIT | _post("Ledger"),
    "RefundFunction": COMMIT | {("dynamodb:UpdateItem", LOG)} | _post("Ledger"),
    "CreditFunction": COMMIT | _post("PartnerLedger"),
    "Transfer/Notifier": COMMIT | {("sqs:SendMessage", "${Notices.Arn}")},
    "Api/Gatekeeper/transfers": {
        ("dynamodb:PutItem", "${Requests/Table.Arn}"),
        ("dynamodb:GetItem", "${Requests/Table.Arn}"),
        ("dynamodb:Query", LOG),
        ("states:StartExecution", "${Transfer/StateMachine}"),
    },
}
"""Permissions of each function except logging. The state machines' roles are checked against their definitions."""
RECONCILER = "Reconciler/Function"


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_may_do_this_and_nothing_else(reference: Cloud, function: str) -> None:
    assert reference.permissions(f"{function}/Role") == FUNCTIONS[function] | _base(function)


def test_every_function_has_a_role_of_its_own(reference: Cloud) -> None:
    roles = [function.properties["Role"] for function in reference.of_type("AWS::Lambda::Function")]
    assert sorted(roles) == sorted(f"${{{function}/Role.Arn}}" for function in (*FUNCTIONS, RECONCILER))


def test_every_statement_allows_and_names_its_actions(reference: Cloud) -> None:
    for statement in reference.statements():
        assert statement.effect == "Allow"
        assert not [action for action in statement.actions if "*" in action], statement


def test_a_wildcard_resource_is_used_only_where_iam_has_no_other(reference: Cloud) -> None:
    for statement in reference.statements():
        if statement.actions == ("states:DescribeExecution",):
            # A reconciler describes executions whose names are made later: of these two machines only.
            machines = {resource.split(":execution:")[1] for resource in statement.resources}
            assert machines == {"${Transfer/StateMachine.Name}:*", "${Transfer/Recovery.Name}:*"}
            continue
        if statement.actions == ("states:StopExecution",):
            # It stops a cancelled saga's first execution.
            (stopped,) = statement.resources
            assert stopped.split(":execution:")[1] == "${Transfer/StateMachine.Name}:*"
            continue
        if any(resource == "*" or resource.endswith(("/*", ":*")) for resource in statement.resources):
            assert statement.resources == ("*",), statement
            assert set(statement.actions) <= WITHOUT_RESOURCE, statement


def test_roles_are_assumed_by_one_service_each(reference: Cloud) -> None:
    services = {}
    for role in reference.of_type("AWS::IAM::Role"):
        (statement,) = role.properties["AssumeRolePolicyDocument"]["Statement"]
        assert statement["Action"] == "sts:AssumeRole"
        services[role.path] = statement["Principal"]["Service"]
    assert services == {
        **{f"{function}/Role": "lambda.amazonaws.com" for function in (*FUNCTIONS, RECONCILER)},
        "Transfer/StateMachine/Role": "states.amazonaws.com",
        "Transfer/Recovery/Role": "states.amazonaws.com",
        "CdkSagasApiLogging/Role": "apigateway.amazonaws.com",
    }


@pytest.mark.parametrize("machine", ["Transfer/StateMachine", "Transfer/Recovery"])
def test_a_state_machines_role_cannot_be_borrowed_from_another_account(reference: Cloud, machine: str) -> None:
    role = reference.one(f"{machine}/Role").properties
    (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Condition"]["StringEquals"] == {"aws:SourceAccount": "${AWS::AccountId}"}


def test_managed_policies_are_attached_to_the_gateways_log_role_only(reference: Cloud) -> None:
    holders = {
        role.path: role.properties["ManagedPolicyArns"]
        for role in reference.of_type("AWS::IAM::Role")
        if role.properties.get("ManagedPolicyArns")
    }
    assert list(holders) == ["CdkSagasApiLogging/Role"]
    (arn,) = holders["CdkSagasApiLogging/Role"]
    assert arn.endswith("service-role/AmazonAPIGatewayPushToCloudWatchLogs")


def test_only_the_gateway_may_invoke_the_gatekeeper_and_only_by_its_methods(reference: Cloud) -> None:
    sources = set()
    permissions = [permission.properties for permission in reference.of_type("AWS::Lambda::Permission")]
    assert {p["FunctionName"] for p in permissions} == {
        "${Api/Gatekeeper/transfers/Function.Arn}",
        f"${{{RECONCILER}/Function.Arn}}",
    }
    for permission in permissions:
        if permission["FunctionName"] != "${Api/Gatekeeper/transfers/Function.Arn}":
            assert permission["Principal"] == "events.amazonaws.com"
            continue
        assert permission["Principal"] == "apigateway.amazonaws.com"
        sources.add(permission["SourceArn"].split("${Api/RestApi}/", 1)[1])
    stage = "${Api/RestApi/DeploymentStage.v1}"
    assert sources == {f"{stage}/POST/transfers", f"{stage}/GET/transfers/*"}
