"""Resources that the simulator does not have: left out of a stack, and refused when a run needs one."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from constructs_lib.testing.proof import Proof
from constructs_lib.testing.simulator import World, break_each_call, simulate
from constructs_lib.testing.simulator.deployment.blueprint import (
    ApiSpec,
    BucketSpec,
    IndexSpec,
    MappingSpec,
    QueueSpec,
    RequestChecks,
    RouteSpec,
    RuleSpec,
    TableSpec,
    TargetSpec,
)
from constructs_lib.testing.simulator.deployment.schedules import cron_of
from constructs_lib.testing.simulator.deployment.template import blueprint_of
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.errors import NotSimulatedError, ServiceError
from constructs_lib.testing.simulator.run import START

from .examples import assembly_of
from .small_stack import Transfers, add_saga
from .support import add_machine, blueprint, function_arn, invoke, world_of

NOT_THERE: Final = "The simulator has no Node.js."


def _stack(app: Any, *others: str) -> None:
    from aws_cdk import CfnOutput, Duration, Stack
    from aws_cdk import aws_apigateway as apigateway
    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_events as events
    from aws_cdk import aws_events_targets as targets
    from aws_cdk import aws_iam as iam
    from aws_cdk import aws_lambda as lambda_
    from aws_cdk import aws_lambda_event_sources as sources
    from aws_cdk import aws_scheduler as scheduler
    from aws_cdk import aws_scheduler_targets as scheduler_targets
    from aws_cdk import aws_sns as sns
    from aws_cdk import aws_sns_subscriptions as subscriptions
    from aws_cdk import aws_sqs as sqs

    from constructs_lib import TransactionApi

    stack = Stack(app, "Left")
    api = apigateway.RestApi(stack, "Rest", cloud_watch_role=False)
    TransactionApi(stack, "Api", resource=api.root.add_resource("pay"), operations={"transfers": add_saga(stack)})
    if not others:
        return
    api.root.add_resource("health").add_method("GET", apigateway.MockIntegration())
    node = lambda_.Function(
        stack,
        "Node",
        runtime=lambda_.Runtime.NODEJS_22_X,
        handler="index.handler",
        code=lambda_.Code.from_inline("exports.handler = async () => 1"),
    )
    queue = sqs.Queue(stack, "Filtered")
    node.add_event_source(
        sources.SqsEventSource(queue, filters=[lambda_.FilterCriteria.filter({"body": {"a": ["1"]}})])
    )
    table = dynamodb.Table(
        stack,
        "Sorted",
        partition_key=dynamodb.Attribute(name="a", type=dynamodb.AttributeType.STRING),
        sort_key=dynamodb.Attribute(name="b", type=dynamodb.AttributeType.STRING),
    )
    table.add_local_secondary_index(
        index_name="by-c", sort_key=dynamodb.Attribute(name="c", type=dynamodb.AttributeType.STRING)
    )
    heard, told = sns.Topic(stack, "Heard"), sns.Topic(stack, "Told")
    heard.add_subscription(subscriptions.LambdaSubscription(node))
    told.add_subscription(subscriptions.EmailSubscription("on-call@example.com"))
    iam.Role(stack, "Auditor", assumed_by=iam.AccountRootPrincipal()).add_to_policy(
        iam.PolicyStatement(not_actions=["iam:*"], resources=["*"])
    )
    hourly = events.Schedule.rate(Duration.hours(1))
    events.Rule(stack, "Hourly", schedule=hourly, targets=[targets.SnsTopic(heard), targets.LambdaFunction(node)])
    events.Rule(stack, "Fridays", schedule=events.Schedule.expression("cron(0 3 ? * 6L *)"))
    sold = events.EventPattern(source=["shop"])
    events.Rule(stack, "Sold", event_pattern=sold, targets=[targets.SnsTopic(heard)])
    ended = events.EventPattern(source=["aws.states"])
    events.Rule(stack, "Ended", event_pattern=ended, targets=[targets.SnsTopic(told)])
    scheduler.Schedule(
        stack,
        "Later",
        schedule=scheduler.ScheduleExpression.rate(Duration.hours(1)),
        target=scheduler_targets.LambdaInvoke(node),
    )
    for name, value in {
        "QueueUrl": queue.queue_url,
        "TableName": table.table_name,
        "NodeName": node.function_name,
    }.items():
        CfnOutput(stack, name, value=value)


def test_what_no_saga_needs_is_left_out_and_listed() -> None:
    alone, report = (simulate(assembly_of(_stack, *others), Transfers(), sagas=50) for others in ((), ("more",)))

    report.require_kept()
    assert alone.left_out == []
    assert (report.statuses, report.faults) == (alone.statuses, alone.faults)
    told = str(report).partition("not simulated:\n")[2]
    for text in (
        "runs on nodejs22.x; the simulator runs Python functions only",
        "filters messages, which is not simulated",
        "queries of by-c of table Sorted",
        "has no Lambda proxy integration",
        "of which a policy has NotAction",
        "its schedule invokes nothing, as function Node",
        "events of its schedule cron(0 3 ? * 6L *)",
        "its target, has subscriptions of functions or queues",
        "receives its events, and nothing follows",
        "resources of the types AWS::Scheduler::Schedule (1)",
    ):
        assert text in told, text
    assert report.as_json()["left_out"] == report.left_out


def _publish(world: World) -> object:
    return world.events.publish("default", "shop", "Sold", {})


def _send(world: World) -> object:
    return world.call("sqs", "SendMessage", {"QueueUrl": world.output("QueueUrl"), "MessageBody": "{}"})


def _query(world: World) -> object:
    asked = {"TableName": world.output("TableName"), "IndexName": "by-c", "KeyConditionExpression": "a = :a"}
    return world.call("dynamodb", "Query", {**asked, "ExpressionAttributeValues": {":a": {"S": "a"}}})


def _invoke(world: World) -> object:
    return world.call("lambda", "Invoke", {"FunctionName": world.output("NodeName")})


class _Using(Transfers):
    def __init__(self, use: Callable[[World], object]) -> None:
        self._use = use

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        world.kernel.after(SECOND, lambda: void(self._use(world)))


def void(_result: object) -> None:
    """Let a result be."""


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (_publish, "an event matches rule .*Sold.*, and the topic .*Heard.* has subscriptions of functions"),
        (_send, "event source .* filters messages"),
        (_query, "by-c of .*Sorted.* is a local secondary index"),
        (_invoke, "function Node.* runs on nodejs22"),
    ],
)
def test_what_a_run_needs_is_refused(use: Callable[[World], object], reason: str) -> None:
    with pytest.raises(NotSimulatedError, match=reason):
        simulate(assembly_of(_stack, "more"), _Using(use), sagas=1)


def test_reports_of_other_ways_list_it_too(tmp_path: Path) -> None:
    assembly = assembly_of(_stack, "more")
    assert any("nodejs22" in text for text in break_each_call(assembly, Transfers(), part=(0, 50)).left_out)

    with Proof(assembly, Transfers(), report=tmp_path) as proof:
        proof.duplicates_are_one()
    assert any("nodejs22" in text for text in json.loads((tmp_path / "proof.json").read_text())["left_out"])
    assert "Not in the simulator; a case that needs one ends the proof" in (tmp_path / "proof.html").read_text()


# --- Wherever it is met, and whatever a function does about it

SWALLOWS: Final = """
import boto3

def handler(event, context):
    try:
        boto3.client("dynamodb").query(TableName="t", IndexName="local", KeyConditionExpression="a = :a",
                                       ExpressionAttributeValues={":a": {"S": "a"}})
    except Exception:
        pass
    return "well"
"""


def _table() -> TableSpec:
    index = IndexSpec(name="local", keys=("a", "c"), kinds=("S", "S"), projected=None, local=True)
    return TableSpec(name="t", keys=("a", "b"), kinds=("S", "S"), indexes=(index,))


def test_function_that_handles_every_exception_does_not_hide_a_refusal() -> None:
    made = blueprint(swallows=SWALLOWS)
    made.tables["t"] = _table()
    with world_of(made) as world:
        outcome = world.functions.invoke("swallows", "{}")
        with pytest.raises(NotSimulatedError, match="local secondary index"):
            world.kernel.run(until=START + 60 * SECOND)
        assert outcome.done is False or outcome.value().error is None


def test_local_index_refuses_what_it_cannot_hold() -> None:
    made = blueprint()
    made.tables["t"] = _table()
    with world_of(made) as world:
        item = {"a": {"S": "1"}, "b": {"S": "1"}, "c": {"N": "1"}}
        with pytest.raises(ServiceError, match="Type mismatch for Index Key c"):
            world.call("dynamodb", "PutItem", {"TableName": "t", "Item": item})
        world.call("dynamodb", "PutItem", {"TableName": "t", "Item": {**item, "c": {"S": "1"}}})


def test_state_machine_that_invokes_it_ends_the_run() -> None:
    made = blueprint()
    made.refused["node"] = NOT_THERE
    machine = add_machine(
        made,
        "run",
        {"StartAt": "A", "States": {"A": invoke("node", Catch=[{"ErrorEquals": ["States.ALL"], "Next": "B"}],
                                                Retry=[{"ErrorEquals": ["States.ALL"]}]),
                                    "B": {"Type": "Succeed"}}},
    )  # fmt: skip
    with world_of(made) as world:
        world.machines.start(machine, "one", "{}")
        with pytest.raises(NotSimulatedError, match=NOT_THERE):
            world.kernel.run(until=START + 60 * SECOND)


def test_message_that_fails_too_often_is_refused_where_it_would_be_filtered() -> None:
    made = blueprint(fails="def handler(event, context):\n    raise RuntimeError\n", filters="")
    dead = QueueSpec(name="dead")
    made.queues |= {"dead": dead, "in": QueueSpec(name="in", visibility=1, dead_letters=dead.arn, max_receives=1)}
    made.mappings.append(MappingSpec(queue="in", function="fails", batch=1, partial=False))
    made.mappings.append(MappingSpec(queue="dead", function="filters", batch=1, partial=False, refused=NOT_THERE))
    with world_of(made) as world:
        world.call("sqs", "SendMessage", {"QueueUrl": world.queues.queue("in").spec.url, "MessageBody": "m"})
        with pytest.raises(NotSimulatedError, match=NOT_THERE):
            world.kernel.run(until=START + 600 * SECOND)


def test_role_with_an_inverted_policy_ends_the_run() -> None:
    made = blueprint(echo="def handler(event, context):\n    return event\n")
    made.roles["role"].append({"Effect": "Deny", "NotAction": "sqs:*", "Resource": "*"})
    with world_of(made) as world, pytest.raises(NotSimulatedError, match="a policy of role role has NotAction"):
        world.functions.invoke("echo", "{}")


def test_request_to_such_a_route_ends_the_run() -> None:
    made = blueprint()
    route = RouteSpec(method="GET", path="/x", function="", authorization="NONE", refused=NOT_THERE)
    made.apis["api"] = ApiSpec(id="api", stage="prod", routes=(route,))
    with world_of(made) as world:
        actor = world.actor("client")
        world.kernel.spawn(actor, lambda: void(world.gateway.send(actor, "GET", "/x")))
        with pytest.raises(NotSimulatedError, match="a request is sent to GET /x, and"):
            world.kernel.run(until=START + 60 * SECOND)


def test_object_in_a_bucket_with_such_a_lifecycle_is_refused() -> None:
    made = blueprint()
    made.buckets["b"] = BucketSpec(name="b", refused=NOT_THERE)
    with world_of(made) as world:
        assert "Contents" not in world.call("s3", "ListObjectsV2", {"Bucket": "b"})
        with pytest.raises(NotSimulatedError, match=NOT_THERE):
            world.call("s3", "PutObject", {"Bucket": "b", "Key": "k", "Body": b""})


# --- What a REST API checks


def _checked(app: Any, *more: str) -> None:
    from aws_cdk import CfnOutput, Stack
    from aws_cdk import aws_apigateway as apigateway

    from constructs_lib import TransactionApi

    stack = Stack(app, "Checked")
    api = TransactionApi(stack, "Api", operations={"transfers": add_saga(stack)}, api_key_required=True).api
    if "source" in more:
        source: Any = api.node.default_child
        source.add_property_override("ApiKeySourceType", "AUTHORIZER")
    CfnOutput(stack, "ApiId", value=api.rest_api_id)
    other = apigateway.RestApi(stack, "Other", cloud_watch_role=False)
    other.root.add_method("GET", apigateway.MockIntegration())
    for name, stage in (("plan", api.deployment_stage), ("elsewhere", other.deployment_stage)):
        if name in more:
            plan = stack_plan(api, name, stage)
            plan.add_api_key(api.add_api_key(f"{name}-on", value="k" * 20 + name))
            plan.add_api_key(apigateway.ApiKey(stack, f"{name}-off", enabled=False, value="k" * 20 + "off"))


def stack_plan(api: Any, name: str, stage: Any) -> Any:
    """A usage plan of a stage."""
    plan = api.add_usage_plan(name)
    plan.add_api_stage(api=stage.rest_api, stage=stage)
    return plan


def _routes(*more: str) -> tuple[Any, list[RouteSpec]]:
    made = blueprint_of(assembly_of(_checked, *more))
    (outputs,) = made.outputs.values()
    return made, list(made.apis[outputs["ApiId"]].routes)


def test_clients_of_a_run_have_an_api_key_of_the_stage() -> None:
    _, routes = _routes("plan", "elsewhere")
    assert [route.checks.keys for route in routes] == [frozenset({"k" * 20 + "plan"})] * 2
    simulate(assembly_of(_checked, "plan", "elsewhere"), Transfers(), sagas=20).require_kept()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["elsewhere"], "needs an API key, and no usage plan of its stack has one"),
        (["plan", "source"], "has its API key from an authorizer"),
    ],
)
def test_api_key_that_is_not_known_is_refused(more: list[str], told: str) -> None:
    made, routes = _routes(*more)
    assert all(told in str(route.refused) for route in routes)
    assert len([text for text in made.left_out if told in text]) == 2
    with pytest.raises(NotSimulatedError, match=told):
        simulate(assembly_of(_checked, *more), Transfers(), sagas=1)


def test_methods_of_an_operation_check_bodies_and_parameters() -> None:
    _, routes = _routes("plan")
    checks = {route.method: (route.checks.json, route.checks.parameters) for route in routes}
    assert checks == {"POST": (frozenset({"application/json"}), ()), "GET": (frozenset(), ("path.saga_id",))}


_PROXY: Final = {
    "Type": "AWS_PROXY",
    "Uri": "arn:aws:apigateway:us-east-1:lambda:path/2015-03-31/functions/f/invocations",
}


def _method(app: Any, given: str, *planned: str) -> None:
    from aws_cdk import CfnResource, Stack

    stack = Stack(app, "Method")

    def add(name: str, kind: str, **properties: Any) -> Any:
        of = {"RestApiId": {"Ref": "Api"}, **properties} if kind != "RestApi" else properties
        return CfnResource(stack, name, type=f"AWS::ApiGateway::{kind}", properties=of)

    add("Api", "RestApi", ApiKeySourceType="AUTHORIZER")
    add("Body", "RequestValidator", ValidateRequestBody=True)
    add("Parameters", "RequestValidator", ValidateRequestParameters=True)
    add("Any", "Model", Name="Any", Schema={"title": "Any"})
    add("Thing", "Model", Name="Thing", Schema={"type": "object"})
    add("Elsewhere", "Model", RestApiId="elsewhere", Name="Elsewhere", Schema={})
    if planned:
        add("Key", "ApiKey", Enabled=True)
        add("Plan", "UsagePlan", ApiStages=[{"ApiId": {"Ref": "Api"}, "Stage": "prod"}])
        add("Planned", "UsagePlanKey", KeyId={"Ref": "Key"}, KeyType="API_KEY", UsagePlanId={"Ref": "Plan"})
    add("Method", "Method", HttpMethod="POST", ResourceId="root", Integration=_PROXY, **json.loads(given))


_ASKED: Final = {"RequestModels": {"Text/JSON": "Any"}, "RequestParameters": {"method.request.header.X": True}}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (_ASKED, RequestChecks()),
        ({**_ASKED, "RequestValidatorId": {"Ref": "Body"}}, RequestChecks(json=frozenset({"text/json"}))),
        ({**_ASKED, "RequestValidatorId": {"Ref": "Parameters"}}, RequestChecks(parameters=("header.X",))),
        ({"RequestValidatorId": "elsewhere"}, "has a request validator that is not in its stack"),
        *(
            ({"RequestValidatorId": {"Ref": "Body"}, "RequestModels": {"a/b": model}}, f"has the request model {model}")
            for model in ("Thing", "Elsewhere", "Empty")
        ),
    ],
)
def test_checks_of_a_method_are_read_or_refused(given: dict[str, Any], found: RequestChecks | str) -> None:
    made = blueprint_of(assembly_of(_method, json.dumps(given)))
    ((route,),) = (api.routes for api in made.apis.values())
    if isinstance(found, RequestChecks):
        assert (route.checks, route.refused) == (found, None)
    else:
        assert found in str(route.refused)
        assert route.refused in made.left_out


def test_method_without_a_key_takes_every_request_of_a_stage_with_keys() -> None:
    ((route,),) = (api.routes for api in blueprint_of(assembly_of(_method, "{}", "planned")).apis.values())
    assert route.checks == RequestChecks()


# --- cron(…)


@pytest.mark.parametrize(
    ("expression", "following"),
    [
        ("cron(0 3 * * ? *)", ["2026-01-01T03:00", "2026-01-02T03:00"]),
        ("cron(0/20 8-9 ? * MON-FRI *)", ["2026-01-01T08:00", "2026-01-01T08:20"]),
        ("cron(15,45 12 ? JAN SUN 2026)", ["2026-01-04T12:15", "2026-01-04T12:45"]),
        ("cron(0 0 1,15 */2 ? *)", ["2026-01-15T00:00", "2026-03-01T00:00"]),
        ("cron(30 23 29 2 ? *)", ["2028-02-29T23:30", "2032-02-29T23:30"]),
        ("cron(0 0 ? * 7 *)", ["2026-01-03T00:00", "2026-01-10T00:00"]),
    ],
)
def test_moments_of_a_schedule(expression: str, following: list[str]) -> None:
    cron, moment, found = cron_of(expression), START // SECOND, []
    assert cron is not None
    for _ in following:
        moment = cron.following(moment) or 0
        found.append(datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M"))
    assert found == following


def test_schedule_that_is_over_has_no_moment() -> None:
    cron = cron_of("cron(0 3 * * ? 2020-2025)")
    assert cron is not None
    assert cron.following(START // SECOND) is None


@pytest.mark.parametrize(
    "expression",
    [
        "cron(0 3 ? * 6L *)",
        "cron(0 3 ? * 6#3 *)",
        "cron(0 3 3W * ? *)",
        "cron(0 3 * * * *)",
        "cron(0 3 ? * ? *)",
        "cron(0 3 * * ?)",
        "cron(60 3 * * ? *)",
        "cron(0/0 3 * * ? *)",
        "at(2026-01-01T00:00:00)",
    ],
)
def test_schedule_that_is_not_known(expression: str) -> None:
    assert cron_of(expression) is None


def test_function_runs_at_the_moments_of_its_schedule() -> None:
    made = blueprint(tick="def handler(event, context):\n    return None\n")
    made.refused["node"] = NOT_THERE
    targets = tuple(TargetSpec(arn=function_arn(name)) for name in ("tick", "node"))
    cron = cron_of("cron(0 3,4,5 * * ? *)")
    made.rules.append(RuleSpec(name="rule", bus="default", pattern=None, every=None, cron=cron, targets=targets))
    with world_of(made) as world:
        seen: list[float] = []
        invoke_later = world.functions.invoke_later

        def invoked(*given: Any, **more: Any) -> None:
            seen.append((world.kernel.now - START) / SECOND / 3_600)
            invoke_later(*given, **more)

        world.functions.invoke_later = invoked  # type: ignore[method-assign]
        world.kernel.run(until=START + 24 * 3_600 * SECOND)
    assert [int(hour) for hour in seen] == [3, 4, 5]
    assert all(hour % 1 < 1 / 60 for hour in seen)
