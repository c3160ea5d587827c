"""SagaMonitoring: alarms of a system, their actions, their pages, and metrics of their own for each deployment."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from aws_cdk import App, Duration, Stack, Stage
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Annotations, Match
from constructs import Construct, IConstruct

from constructs_lib import (
    EventIntake,
    ExecutionWatch,
    HttpTransactionApi,
    IdempotencyTable,
    KeyPolicy,
    LedgerTable,
    Operation,
    Outbox,
    SagaMonitoring,
    SagaStateMachine,
    Step,
    StepFunction,
    TimeoutReconciler,
    TransactionApi,
    WatchedMachine,
)
from constructs_lib.monitoring.alarms import Runbook, SagaAlarm
from constructs_lib.observability.dashboard import DELIVERING
from examples.agentic_payout.stack import AgenticPayoutStack
from examples.cart_fulfilment.stack import CartFulfilmentStack
from examples.funds_transfer.stack import FundsTransferStack
from examples.on_call import TOPIC_CONTEXT
from examples.order_processing.stack import OrderProcessingStack
from examples.wallet.stack import WalletStack
from tests.constructs.migration.test_migration import _migration
from tests.constructs.support.cloud import Cloud, Resource
from tests.constructs.support.factories import AppFactory, context
from tests.constructs.support.integrations import WarehouseStack, own
from tests.constructs.support.sagas import FUNCTIONS, saga
from tests.constructs.support.shipped import Shipped
from tests.docs.pages import ROOT

TOPIC: Final = "arn:aws:sns:eu-west-1:111111111111:OnCall"
EXAMPLES: Final[tuple[Callable[..., Stack], ...]] = (
    FundsTransferStack,
    OrderProcessingStack,
    AgenticPayoutStack,
    CartFulfilmentStack,
    WalletStack,
)
ALARM: Final = "AWS::CloudWatch::Alarm"
PERIODS: Final = {
    60: r"queue is empty",
    300: r"\b(5|five) minutes",
    900: r"\b15 minutes",
    1_800: r"\bhalf an hour",
    3_600: r"\ban hour",
    86_400: r"\ba day",
}


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> list[Cloud]:
    app = App(
        outdir=str(tmp_path_factory.mktemp("app")),
        context={**context(), TOPIC_CONTEXT: TOPIC},
        analytics_reporting=False,
    )
    return [Cloud(stack(Stage(app, f"Stage{n}"), f"Example{n}")) for n, stack in enumerate(EXAMPLES)]


def _everything(app: App) -> Stack:
    """A stack with an alarm of each kind, except those of an inline saga and of webhooks."""
    stack = Stack(app, "Everything")
    made = saga(stack)
    TransactionApi(
        stack, "Api", operations={"orders": Operation(saga=made, key_policy=KeyPolicy.OPTIONAL), "returns": made}
    )
    TimeoutReconciler(stack, "Reconciler", sagas=[made], max_money_in_flight={"EUR": 1})
    intake = StepFunction(stack, "Begin", code=FUNCTIONS, handler="intake.handler")
    EventIntake(stack, "Intake", operation="stripe", fn=intake, requests=IdempotencyTable(stack, "Events"))
    LedgerTable(stack, "Ledger", holds=True)
    Outbox(stack, "Outbox", bus=events.EventBus(stack, "Bus"), source="shop")
    nightly = sfn.StateMachine.from_state_machine_name(stack, "Nightly", "nightly")
    ExecutionWatch(stack, "Watch", machines=[WatchedMachine(machine=nightly, on_timeout=own(stack, "Release"))])
    SagaMonitoring(stack, "Monitoring")
    return stack


def _alarms(stack: IConstruct) -> list[SagaAlarm]:
    return [found for found in stack.node.find_all() if isinstance(found, SagaAlarm)]


@pytest.fixture(scope="module")
def stacks_of_every_alarm(new_app: AppFactory, shipped: Shipped) -> list[Stack]:
    return [
        _everything(new_app()),
        WarehouseStack(new_app(), "Shop"),
        shipped.stack("inline transfer"),
        Stack.of(_migration(Stack(new_app(), "Moves"))),
    ]


def test_every_page_of_the_runbook_is_named_by_an_alarm(stacks_of_every_alarm: list[Stack]) -> None:
    assert {alarm.runbook for stack in stacks_of_every_alarm for alarm in _alarms(stack)} == set(Runbook)


def test_every_page_of_the_runbook_names_the_period_after_which_its_alarm_clears(
    stacks_of_every_alarm: list[Stack],
) -> None:
    """One period below the limit clears an alarm, however many set it off. A queue's depth is measured every minute."""
    wrong: set[tuple[str, int]] = set()
    for stack in stacks_of_every_alarm:
        for alarm in Cloud(stack).of_type(ALARM):
            page = alarm.properties["AlarmDescription"].partition(". Runbook: ")[2]
            if page:
                text = " ".join((ROOT / page).read_text("utf-8").split())
                clears = text.partition("**Clears** ")[2].lower() or "five minutes"
                wrong |= {(page, seconds) for seconds in _periods(alarm) if not re.search(PERIODS[seconds], clears)}

    assert wrong == set()


def _periods(alarm: Resource) -> set[int]:
    """Seconds of the periods of an alarm's metrics."""
    several = [part["MetricStat"]["Period"] for part in alarm.properties.get("Metrics", []) if "MetricStat" in part]
    return set(several) or {alarm.properties["Period"]}


def test_every_alarm_of_an_example_names_its_page_in_its_description(examples: list[Cloud]) -> None:
    pages = {page.path for page in Runbook}
    own_alarms = 0
    for cloud in examples:
        for alarm in cloud.of_type(ALARM):
            text, _, page = alarm.properties["AlarmDescription"].partition(". Runbook: ")
            own_alarms += not page
            assert text
            assert len(alarm.properties["AlarmDescription"]) <= 1_024
            assert not page or page in pages, alarm.path

    assert own_alarms == 2, "the cart's investigation has two of its own"


def test_every_alarm_of_an_example_has_the_action(examples: list[Cloud]) -> None:
    for cloud in examples:
        assert {(alarm.path, str(alarm.properties.get("AlarmActions"))) for alarm in cloud.of_type(ALARM)} == {
            (alarm.path, str([TOPIC])) for alarm in cloud.of_type(ALARM)
        }


def _metrics(alarm: Resource) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Namespace, name and dimensions of the metrics of an alarm."""
    singles = [alarm.properties] if "MetricName" in alarm.properties else []
    several = [part["MetricStat"]["Metric"] for part in alarm.properties.get("Metrics", []) if "MetricStat" in part]
    for metric in (*singles, *several):
        dimensions = {each["Name"]: each["Value"] for each in metric.get("Dimensions", [])}
        yield metric["Namespace"], metric["MetricName"], dimensions


def _identities(stack: Stack) -> set[str]:
    """Everything by which the stack's metrics differ from others': dimensions of alarms, and functions' services."""
    cloud = Cloud(stack)
    found = {
        json.dumps(metric, sort_keys=True)
        for alarm in cloud.of_type(ALARM)
        for metric in _metrics(alarm)
        # A reference is to a resource of this deployment.
        if not any("${" in str(value) for value in metric[2].values())
    }
    for function in cloud.of_type("AWS::Lambda::Function"):
        service = function.properties.get("Environment", {}).get("Variables", {}).get("POWERTOOLS_SERVICE_NAME")
        found |= {f"service {service}"} if service else set()
    found |= {f"api {api.properties['Name']}" for api in cloud.of_type("AWS::ApiGateway::RestApi")}
    for acl in cloud.of_type("AWS::WAFv2::WebACL"):
        shown = [acl.properties["VisibilityConfig"], *(rule["VisibilityConfig"] for rule in acl.properties["Rules"])]
        found |= {f"web ACL {each['MetricName']}" for each in shown}
    return found


@pytest.mark.proof
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.__name__)
def test_two_deployments_of_an_app_share_no_metric(new_app: AppFactory, example: Callable[..., Stack]) -> None:
    class Named(example):  # type: ignore[misc, valid-type]  # the class is a parameter
        @property
        def stack_name(self) -> str:
            return name

    name = "shop-test"
    first = _identities(Named(new_app(), "Shop"))
    name = "shop-production"
    second = _identities(Named(new_app(), "Shop"))

    assert first
    assert first & second == set()


def test_metric_names_of_a_web_acl_are_short_enough_and_differ(new_app: AppFactory) -> None:
    stack = Stack(new_app(), "S" * 120)
    TransactionApi(stack, "Api", operations={"orders": saga(stack)}, waf=True)
    (acl,) = Cloud(stack).of_type("AWS::WAFv2::WebACL")
    shown = [acl.properties["VisibilityConfig"], *(rule["VisibilityConfig"] for rule in acl.properties["Rules"])]
    names = {each["MetricName"] for each in shown}

    assert len(names) == len(shown)
    assert all(len(name) <= 128 for name in names)


def test_own_alarms_watch_what_they_are_named_by(examples: list[Cloud]) -> None:
    cart = examples[3]
    watched = {
        alarm.path.removeprefix("Monitoring/"): list(_metrics(alarm))
        for alarm in cart.of_type(ALARM)
        if alarm.path.startswith("Monitoring/")
    }

    assert [name for _, name, _ in watched["Api/Errors"]] == ["5XXError"]
    assert [name for _, name, _ in watched["Api/carts/Throttled"]] == ["Throttles"]
    assert {d["StateMachineArn"] for _, _, d in watched["Cart/TimedOut"]} == {
        "${Cart/StateMachine}",
        "${Cart/Recovery}",
    }
    assert {d["TableName"] for _, _, d in watched["Requests/SystemErrors"]} == {"${Requests/Table}"}
    assert {d["service"].rpartition("-")[2] for _, _, d in watched["Cart/Conflicts"]} == {
        "ReserveFunction",
        "ReleaseFunction",
        "CommitFunction",
        "CancelFunction",
        "ShipFunction",
    }
    assert all(len(metrics) <= 10 for metrics in watched.values())


def test_conflicts_are_watched_where_the_decorator_is_not_in_the_text(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(
        "from saga_runtime import *\n\n\n@atomic_step\ndef move(call):\n    return Commit(output={})\n", "utf-8"
    )
    move = StepFunction(stack, "Move", code=tmp_path, handler="steps.move")
    requests = IdempotencyTable(stack, "Requests")
    SagaStateMachine(stack, "Transfer", requests=requests, steps=[Step.atomic("Move", fn=move)])
    SagaMonitoring(stack, "Monitoring")

    assert move.decorator is None
    assert [alarm.node.path for alarm in _alarms(stack) if alarm.node.id == "Conflicts"]


def test_reconcilers_hold_table_has_no_alarm_of_its_own(examples: list[Cloud]) -> None:
    assert not [alarm.path for cloud in examples for alarm in cloud.of_type(ALARM) if "Hold/" in alarm.path]


def test_key_alarm_is_created_for_optional_keys_only(new_app: AppFactory) -> None:
    cloud = Cloud(_everything(new_app()))

    (alarm,) = [each for each in cloud.of_type(ALARM) if each.path.endswith("KeyMissing")]
    assert alarm.path == "Monitoring/Api/orders/KeyMissing"
    ((namespace, name, dimensions),) = _metrics(alarm)
    assert (namespace, name) == ("CdkSagas", "IdempotencyKeyMissing")
    assert dimensions == {"service": "Everything-Api-Gatekeeper-orders"}
    assert alarm.properties["Period"] == 86_400


def test_slow_responses_are_slower_than_what_clients_may_wait_for(stack: Stack) -> None:
    made = saga(stack)
    operations = {"fast": Operation(saga=made), "slow": Operation(saga=made, max_wait=Duration.seconds(20))}
    TransactionApi(stack, "Api", operations=operations)
    SagaMonitoring(stack, "Monitoring", slow_after=Duration.seconds(2))
    cloud = Cloud(stack)

    assert cloud.one("Monitoring/Api/fast/Slow").properties["Threshold"] == 2_000
    assert cloud.one("Monitoring/Api/slow/Slow").properties["Threshold"] == 22_000
    assert cloud.one("Monitoring/Api/Slow").properties["Threshold"] == 22_000


def _metric_of(alarm: Resource) -> tuple[str, str, Mapping[str, str], str]:
    ((namespace, name, dimensions),) = _metrics(alarm)
    return namespace, name, dimensions, alarm.properties.get("Statistic") or alarm.properties["ExtendedStatistic"]


def test_http_api_has_alarms_of_its_errors_and_its_latency(stack: Stack) -> None:
    """Names and dimensions of HTTP APIs' metrics: not those of REST APIs'."""
    slow = Operation(saga=saga(stack), max_wait=Duration.seconds(20))
    HttpTransactionApi(stack, "Api", api=apigatewayv2.HttpApi(stack, "Http"), operations={"slow": slow})
    SagaMonitoring(stack, "Monitoring")
    cloud = Cloud(stack)
    of_api = {"ApiId": "${Http}"}

    errors = cloud.one("Monitoring/Api/Errors")
    assert _metric_of(errors) == ("AWS/ApiGateway", "5xx", of_api, "Sum")
    assert (errors.properties["Threshold"], errors.properties["Period"]) == (5, 300)
    latency = cloud.one("Monitoring/Api/Slow")
    assert _metric_of(latency) == ("AWS/ApiGateway", "Latency", of_api, "p99")
    assert (latency.properties["Threshold"], latency.properties["EvaluationPeriods"]) == (23_000, 3)


def test_imported_http_api_has_the_alarms_too(stack: Stack) -> None:
    theirs = apigatewayv2.HttpApi.from_http_api_attributes(stack, "Theirs", http_api_id="abc")
    HttpTransactionApi(stack, "Api", api=theirs, operations={"orders": saga(stack)})
    SagaMonitoring(stack, "Monitoring")

    assert _metric_of(Cloud(stack).one("Monitoring/Api/Errors"))[2] == {"ApiId": "abc"}


def test_operations_of_one_http_api_share_its_alarms(stack: Stack) -> None:
    """A response of the second construct that waits is not slow for the first one."""
    made, http = saga(stack), apigatewayv2.HttpApi(stack, "Http")
    HttpTransactionApi(stack, "One", api=http, operations={"fast": made})
    HttpTransactionApi(stack, "Two", api=http, operations={"slow": Operation(saga=made, max_wait=Duration.seconds(20))})
    SagaMonitoring(stack, "Monitoring", dashboard=False)

    alarms = {alarm.path: alarm for alarm in Cloud(stack).of_type(ALARM)}
    of_api = [path for path in alarms if re.fullmatch("Monitoring/(One|Two)/[^/]+", path)]
    assert sorted(of_api) == ["Monitoring/One/Errors", "Monitoring/One/Slow"]
    assert alarms["Monitoring/One/Slow"].properties["Threshold"] == 23_000


def test_dashboard_shows_requests_and_throttles_of_an_http_api(stack: Stack) -> None:
    HttpTransactionApi(stack, "Api", api=apigatewayv2.HttpApi(stack, "Http"), operations={"orders": saga(stack)})
    SagaMonitoring(stack, "Monitoring")
    shown = _widgets(Cloud(stack))

    requests = shown["Requests by answer"]["properties"]["metrics"]
    assert ["CdkSagas", "RequestReserved", "service", "Test-Api-Gatekeeper-orders"] in [each[:4] for each in requests]
    throttled = [each[:4] for each in shown["Throttles"]["properties"]["metrics"]]
    assert ["AWS/Lambda", "Throttles", "FunctionName", "${Api/Gatekeeper/orders/Function}"] in throttled


def test_actions_are_added_to_alarms_of_users_too(stack: Stack) -> None:
    made = saga(stack)
    metric = made.state_machine.metric_started()
    mine = metric.create_alarm(stack, "Mine", threshold=1, evaluation_periods=1)
    topic = sns.Topic(stack, "OnCall")
    monitoring = SagaMonitoring(
        stack, "Monitoring", alarm_actions=[actions.SnsAction(topic)], ok_actions=[actions.SnsAction(topic)]
    )

    assert mine.node.path in {alarm.node.path for alarm in monitoring.alarms}
    for alarm in Cloud(stack).of_type(ALARM):
        assert alarm.properties["AlarmActions"] == alarm.properties["OKActions"] == ["${OnCall}"], alarm.path


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("https://docs.example/runbook/", "https://docs.example/runbook/{}"),
        ("http://wiki.example:8080/view?page=", "http://wiki.example:8080/view?page={}"),
        ("https://docs.example/runbook#", "https://docs.example/runbook#{}"),
        ("https://git.example/sagas/v1/docs/runbook/{page}.md", "https://git.example/sagas/v1/docs/runbook/{}.md"),
        ("https://docs.example/{page}/", "https://docs.example/{}/"),
    ],
)
def test_descriptions_have_the_addresses_of_pages(stack: Stack, given: str, address: str) -> None:
    made = saga(stack)
    metric = made.state_machine.metric_started()
    metric.create_alarm(stack, "Mine", threshold=1, evaluation_periods=1, alarm_description="Mine. Runbook: mine")
    monitoring = SagaMonitoring(stack, "Monitoring", runbook_url=given)
    cloud = Cloud(stack)

    pages = {alarm.node.path: alarm.runbook for alarm in monitoring.alarms if isinstance(alarm, SagaAlarm)}
    found = {f"Test/{a.path}": a.properties["AlarmDescription"].partition(". Runbook: ") for a in cloud.of_type(ALARM)}
    assert {path: page for path, (_, _, page) in found.items()} == {
        "Test/Mine": "mine",
        **{path: address.format(page) for path, page in pages.items()},
    }
    assert found[made.parked_alarm.node.path][0].startswith("A saga is parked")
    assert "Each alarm's description has the address" in _widgets(cloud)["text"]["properties"]["markdown"]


@pytest.mark.parametrize(
    "given",
    [
        "",
        " ",
        "docs/runbook/",
        "ftp://docs.example/",
        "https://",
        "https:///runbook/",
        "https://docs.example/runbook",
        "https://docs.example/run book/",
        "https://docs.example/{page}/{page}",
        "https://docs.example/{name}/",
        "https://docs.example/runbook/\n",
        f"https://docs.example/{'a' * 500}/",
    ],
)
def test_wrong_runbook_url_is_refused(stack: Stack, given: str) -> None:
    saga(stack)

    with pytest.raises(ValueError, match=r"^runbook_url must match .*, got .*; write an address that ends with /, #"):
        SagaMonitoring(stack, "Monitoring", runbook_url=given)


def test_alarms_of_other_stacks_are_left_alone(new_app: AppFactory) -> None:
    app = new_app()
    outer = Stack(app, "Outer")
    saga(outer)
    saga(Stack(outer, "Inner"))
    monitoring = SagaMonitoring(outer, "Monitoring")

    assert all(Stack.of(alarm) is outer for alarm in monitoring.alarms)


def test_construct_that_is_declared_later_is_warned_of(stack: Stack) -> None:
    saga(stack)
    SagaMonitoring(stack, "Monitoring")
    LedgerTable(stack, "Ledger")

    (warning,) = Annotations.from_stack(stack).find_warning("/Test/Monitoring", Match.any_value())
    assert "must be declared after what it monitors, got Test/Ledger, Test/Ledger/Suspense later" in str(
        warning.entry.data
    )


def test_nothing_to_monitor_is_refused(stack: Stack) -> None:
    with pytest.raises(ValueError, match="must be declared after what it monitors, got nothing in Test; declare it"):
        SagaMonitoring(stack, "Monitoring")


@pytest.mark.parametrize("seconds", [0, 29])
def test_slow_after_that_no_response_takes_is_refused(stack: Stack, seconds: int) -> None:
    saga(stack)
    with pytest.raises(ValueError, match="slow_after"):
        SagaMonitoring(stack, "Monitoring", slow_after=Duration.seconds(seconds))


@pytest.mark.parametrize(
    ("slow", "wait", "of"),
    [
        (20, None, "20 s for Test/Api/Gatekeeper/orders: it ends after 20 s"),
        (8, 20, "28 s for Test/Api/Gatekeeper/orders: it ends after 28 s"),
        (9, 20, "29 s for Test/Api: API Gateway waits for 29 s"),
    ],
)
def test_slow_after_that_no_response_takes_with_max_wait_is_refused(
    stack: Stack, slow: int, wait: int | None, of: str
) -> None:
    max_wait = None if wait is None else Duration.seconds(wait)
    TransactionApi(stack, "Api", operations={"orders": Operation(saga=saga(stack), max_wait=max_wait)})

    with pytest.raises(ValueError, match=f"must be shorter than any response can take, got {of}; shorten slow_after"):
        SagaMonitoring(stack, "Monitoring", slow_after=Duration.seconds(slow))


def test_constructs_of_any_id_have_alarms_of_their_own(stack: Stack) -> None:
    for id_ in ("A-B", "A~B", "Dashboard"):
        IdempotencyTable(stack, id_)
    IdempotencyTable(Construct(stack, "A"), "B")
    SagaMonitoring(stack, "Monitoring")

    paths = [alarm.path for alarm in Cloud(stack).of_type(ALARM)]
    assert sorted(path.split("/")[1] for path in paths if path.endswith("/Throttled")) == [
        "A-B",
        "A~0B",
        "A~1B",
        "~Dashboard",
    ]


def test_table_that_is_monitored_by_its_own_child_has_alarms(stack: Stack) -> None:
    table = IdempotencyTable(stack, "Requests")

    assert len(SagaMonitoring(table, "Monitoring", dashboard=False).alarms) == 2


def test_construct_with_the_id_of_the_manifest_is_refused(stack: Stack) -> None:
    Construct(stack, "CdkSagas")

    with pytest.raises(ValueError, match="id of Test/CdkSagas must not be CdkSagas, the id of the stack's manifest"):
        saga(stack)


def test_actions_are_added_to_composite_alarms(stack: Stack) -> None:
    made = saga(stack)
    rule = cloudwatch.AlarmRule.from_alarm(made.parked_alarm, cloudwatch.AlarmState.ALARM)
    mine = cloudwatch.CompositeAlarm(stack, "Mine", alarm_rule=rule)
    topic = sns.Topic(stack, "OnCall")
    monitoring = SagaMonitoring(
        stack, "Monitoring", alarm_actions=[actions.SnsAction(topic)], ok_actions=[actions.SnsAction(topic)]
    )

    assert mine.node.path in {alarm.node.path for alarm in monitoring.alarms}
    found = Cloud(stack).one("Mine").properties
    assert found["AlarmActions"] == found["OKActions"] == ["${OnCall}"]


def test_alarm_of_a_runbook_is_an_alarm_of_the_cdk(stack: Stack) -> None:
    made = saga(stack)

    assert isinstance(made.parked_alarm, cloudwatch.Alarm)
    assert made.parked_alarm.runbook is Runbook.SAGA_PARKED


def test_context_without_a_topic_leaves_alarms_without_actions(reference: Cloud) -> None:
    values: list[Any] = [alarm.properties.get("AlarmActions") for alarm in reference.of_type(ALARM)]

    assert set(map(str, values)) == {"None"}


def _widgets(cloud: Cloud) -> dict[str, dict[str, Any]]:
    body = json.loads(cloud.one("Monitoring/Dashboard").properties["DashboardBody"])
    return {widget["properties"].get("title", widget["type"]): widget for widget in body["widgets"]}


def test_dashboard_shows_every_part_of_a_system(examples: list[Cloud]) -> None:
    cart = _widgets(examples[3])

    assert set(cart) == {
        "text",
        "Requests by answer",
        "Sagas started, executions that failed",
        "Sagas completed, compensated, parked",
        "Sagas in flight",
        "Age of the oldest, seconds",
        "Money in flight, minor units by currency",
        "Conflicts and repeated steps",
        "Recoveries",
        "Throttles",
        "Callbacks",
        "Longest overdue job, seconds",
        "Alarms",
    }
    assert re.search(r"1,000 completed sagas cost .*: Cart \d\.\d\d USD", cart["text"]["properties"]["markdown"])
    assert len(cart["Alarms"]["properties"]["alarms"]) == len(examples[3].of_type(ALARM))


def test_dashboard_of_a_system_without_sagas_has_its_requests(examples: list[Cloud]) -> None:
    assert set(_widgets(examples[4])) == {"text", "Requests by answer", "Throttles", "Alarms"}


def test_states_in_which_sagas_end_are_those_of_the_definitions(examples: list[Cloud]) -> None:
    states = examples[0].definition("Transfer/StateMachine")["States"]

    assert set(DELIVERING) <= set(states)
    query = _widgets(examples[0])["Sagas completed, compensated, parked"]["properties"]["query"]
    assert all(f'"{name}"' in query for name in DELIVERING)


def test_dashboard_shows_sagas_that_settle_inline(shipped: Shipped) -> None:
    shown = _widgets(shipped.cloud("inline transfer"))

    ((namespace, name, dimension, machine, *_),) = shown["Sagas settled inline"]["properties"]["metrics"]
    assert (namespace, name, dimension) == ("AWS/States", "ExecutionsSucceeded", "StateMachineArn")
    assert "Express" in machine


def test_dashboard_can_be_left_out(stack: Stack) -> None:
    saga(stack)

    assert SagaMonitoring(stack, "Monitoring", dashboard=False).dashboard is None
    assert not Cloud(stack).of_type("AWS::CloudWatch::Dashboard")
