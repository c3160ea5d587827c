"""Services that functions call: the page on VPCs names an endpoint for each, since a missing route fails silently."""

from __future__ import annotations

from typing import Final

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn

from constructs_lib import (
    CallbackIntegration,
    ExecutionWatch,
    LedgerTable,
    OperatorAccess,
    Outbox,
    PayloadBucket,
    StepHost,
    TimeoutReconciler,
    TransactionApi,
    WatchedMachine,
)
from tests.constructs.migration.test_migration import _migration
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import ROOT, AppFactory
from tests.constructs.support.integrations import PROVIDER, WarehouseStack, own
from tests.constructs.support.sagas import plain_function, saga
from tests.constructs.support.shipped import Shipped
from tests.docs.pages import tables_marked

SERVICES: Final = {
    "DynamoDB": "dynamodb",
    "EventBridge": "events",
    "Lambda": "lambda",
    "S3": "s3",
    "SQS": "sqs",
    "STS": "sts",
    "Secrets Manager": "secretsmanager",
    "Step Functions": "states",
    "X-Ray": "xray",
}
"""Name on the page, and prefix of actions."""
WITHOUT_ENDPOINT: Final = {"logs"}
PAYLOADS: Final = "large payloads"
ROWS: Final = {
    "approval_page": "callbacks",
    "callback_direct": "callbacks",
    "callback_dispatcher": "callbacks",
    "callback_sweeper": "callbacks",
    "gatekeeper": "gatekeeper",
    "ledger_sweeper": "every",
    "migration": "every",
    "notifier": "notifier",
    "operators": "operators' function",
    "outbox": "outbox",
    "reconciler": "reconciler",
    "step_host": "host of external steps",
    "watch": "execution watch",
}
"""Module of ``handlers``, and beginning of its row."""
WITHOUT_GRANT: Final = {("operators", "sts")}
"""Called, though no policy grants it: the request of a caller that signed it."""


def _operated(app: App) -> Stack:
    """Operators of a saga with large payloads, and what no example has."""
    stack = Stack(app, "Operated")
    made = saga(stack, payloads=PayloadBucket(stack, "Payloads"))
    TransactionApi(stack, "Api", operations={"orders": made})
    reconciler = TimeoutReconciler(stack, "Reconciler", sagas=[made])
    access = OperatorAccess(stack, "Operators", reconciler=reconciler)
    access.grant_operate(iam.Role.from_role_arn(stack, "Admin", "arn:aws:iam::111111111111:role/Admin"))
    LedgerTable(stack, "Ledger", holds=True)
    Outbox(stack, "Outbox", bus=events.EventBus(stack, "Bus"), source="shop")
    nightly = sfn.StateMachine.from_state_machine_name(stack, "Nightly", "nightly")
    ExecutionWatch(stack, "Watch", machines=[WatchedMachine(machine=nightly, on_timeout=own(stack, "Release"))])
    apply, verify = plain_function(stack, "Apply"), plain_function(stack, "Verify")
    StepHost(stack, "Host", apply=apply, verify=verify, provider=PROVIDER)
    CallbackIntegration(stack, "Scans")
    _migration(stack)
    return stack


@pytest.fixture(scope="module")
def granted(shipped: Shipped, new_app: AppFactory) -> dict[str, set[str]]:
    """By module of ``handlers``: services that its functions' roles may call."""
    clouds = (*shipped.clouds().values(), Cloud(WarehouseStack(new_app(), "Warehouse")), Cloud(_operated(new_app())))
    found: dict[str, set[str]] = {}
    for cloud in clouds:
        for function in cloud.of_type("AWS::Lambda::Function"):
            package, _, module = str(function.properties.get("Handler", "")).rpartition(".")[0].rpartition(".")
            if package == "handlers":
                role = function.properties["Role"].removeprefix("${").removesuffix(".Arn}")
                services = {action.partition(":")[0] for action, _ in cloud.permissions(role)}
                found.setdefault(module, set()).update(services - WITHOUT_ENDPOINT)
    return found


def _documented(row: str) -> set[str]:
    """Services that the page names for functions of a row."""
    (table,) = tables_marked("endpoints")
    (services,) = (cells[1] for cells in table.rows if cells[0].startswith(row))
    return {action for name, action in SERVICES.items() if name in services}


def test_every_function_of_the_library_is_among_them(granted: dict[str, set[str]]) -> None:
    modules = {path.stem for path in (ROOT / "lambda_src" / "handlers").glob("*.py")} - {"__init__"}

    assert set(granted) == set(ROWS) == modules


@pytest.mark.parametrize("module", ROWS)
def test_page_names_every_service_that_a_function_may_call(granted: dict[str, set[str]], module: str) -> None:
    called = granted[module] | {service for name, service in WITHOUT_GRANT if name == module}

    assert called <= _documented("every") | _documented(ROWS[module]) | _documented(PAYLOADS)


@pytest.mark.parametrize("row", sorted({*ROWS.values()} - {"every"}))
def test_page_names_no_service_that_no_function_calls(granted: dict[str, set[str]], row: str) -> None:
    modules = [module for module, of in ROWS.items() if of == row]
    called = {service for module in modules for service in granted[module]}
    called |= {service for name, service in WITHOUT_GRANT if name in modules}

    assert _documented(row) <= called
