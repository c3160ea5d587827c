"""HTTP APIs in the simulator: sagas behind one, events in payload format 2.0, and responses of the API itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import Intent, Response, simulate
from constructs_lib.testing.simulator.aws.gateway import callers_of
from constructs_lib.testing.simulator.deployment.blueprint import ApiSpec, Blueprint, RouteSpec
from constructs_lib.testing.simulator.deployment.template import blueprint_of
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.errors import NotSimulatedError
from constructs_lib.testing.simulator.run import START
from constructs_lib.testing.simulator.world import World
from saga_runtime.idempotency.identity import scope_of
from saga_runtime.protocol import RecordAttribute, StartField

from .examples import assembly_of
from .small_stack import Transfers, add_saga
from .support import blueprint, world_of

pytestmark = pytest.mark.proof

ECHO = "import json\ndef handler(event, context):\n    return {'statusCode': 200, 'body': json.dumps(event)}\n"


def _http(app: Any, identity: str) -> None:
    from aws_cdk import Stack
    from aws_cdk import aws_apigatewayv2 as apigatewayv2
    from aws_cdk import aws_apigatewayv2_authorizers as authorizers
    from aws_cdk import aws_cognito as cognito
    from aws_cdk import aws_lambda as lambda_

    from constructs_lib import HttpTransactionApi, Operation

    stack = Stack(app, "Http")
    code = lambda_.Code.from_inline("def handler(event, context):\n    return {'isAuthorized': True}\n")
    decides = lambda_.Function(
        stack, "Decides", runtime=lambda_.Runtime.PYTHON_3_13, handler="index.handler", code=code
    )
    authorizer = {
        "iam": None,
        "jwt": authorizers.HttpUserPoolAuthorizer("Users", cognito.UserPool(stack, "Pool")),
        "context:tenant": authorizers.HttpLambdaAuthorizer(
            "Decider", decides, response_types=[authorizers.HttpLambdaResponseType.SIMPLE]
        ),
    }[identity]
    # With IAM, the API is another stack's.
    api = apigatewayv2.HttpApi(Stack(app, "Shared") if identity == "iam" else stack, "Api")
    transfers = Operation(saga=add_saga(stack), caller_member="customer")
    HttpTransactionApi(
        stack, "Transfers", api=api, operations={"transfers": transfers}, authorizer=authorizer, identity=identity
    )


class _OfCallers(Transfers):
    """Transfers of two users; each request has its own caller."""

    def intent(self, number: int, random: Random) -> Intent:
        return replace(super().intent(number, random), user=random.choice(("alice", "bob")))

    def audit(self, world: World) -> Iterable[Invariant]:
        owners = {scope_of("transfers", who): who[-1] for user in ("alice", "bob") for who in callers_of(user)}
        records = [record for table in world.parts.requests for record in world.records(table)]
        begun = [record for record in records if RecordAttribute.INPUT in record]
        wrong = tuple(
            f"{_asked_by(record)} is the caller of {record[RecordAttribute.ID]['S']}"
            for record in begun
            if _asked_by(record) != owners[record[RecordAttribute.SCOPE]["S"]]
        )
        yield Invariant(name="each saga receives its own caller", checked=len(begun), violations=wrong)


def _asked_by(record: Mapping[str, Any]) -> str:
    return str(json.loads(json.loads(record[RecordAttribute.INPUT]["S"])[StartField.REQUEST])["customer"])


@pytest.mark.parametrize("identity", ["iam", "jwt"])
def test_sagas_behind_an_http_api_keep_their_promise(identity: str) -> None:
    report = simulate(assembly_of(_http, identity), _OfCallers(), sagas=200, seed=7)

    report.require_kept()
    assert set(report.statuses) == {"COMPLETED", "FAILED"}
    assert sum(report.statuses.values()) >= 190  # clients that stop may never have arrived
    assert report.faults > report.sagas
    assert len(report.coverage.states) >= 0.4 * len(report.coverage.known_states)


def test_lambda_authorizer_is_refused_when_a_request_comes() -> None:
    with pytest.raises(NotSimulatedError, match=r"a request is sent to POST /transfers, .* Lambda authorizer"):
        simulate(assembly_of(_http, "context:tenant"), Transfers(), sagas=1)


def test_template_is_read() -> None:
    (api,) = blueprint_of(assembly_of(_http, "jwt")).apis.values()

    assert (api.http, api.stage) == (True, "$default")
    assert {(route.key, route.authorization, route.timeout) for route in api.routes} == {
        ("POST /transfers", "JWT", 30_000),
        ("GET /transfers/{saga_id}", "JWT", 30_000),
    }


class _Misspelt(Transfers):
    def intent(self, number: int, random: Random) -> Intent:
        return Intent(operation="transfer", body={})


def test_operation_that_no_api_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got 'transfer'; there are .*'POST /transfers'"):
        simulate(assembly_of(_http, "iam"), _Misspelt(), sagas=1)


def _made(*routes: RouteSpec, stage: str = "$default", **functions: str) -> Blueprint:
    made = blueprint(**(functions or {"echo": ECHO}))
    made.apis["http"] = ApiSpec(id="http", stage=stage, routes=routes, http=True)
    return made


def _route(path: str = "/things", authorization: str = "NONE", **more: Any) -> RouteSpec:
    values: dict[str, Any] = {"method": "POST", "function": "echo", **more}
    return RouteSpec(path=path, authorization=authorization, **values)


def _send(world: World, method: str, path: str, **more: Any) -> Response:
    sent: list[Response] = []
    actor = world.actor("client")
    world.kernel.spawn(actor, lambda: sent.append(world.gateway.send(actor, method, path, **more)))
    world.kernel.run(until=world.kernel.now + 60 * SECOND)
    return sent[0]


def test_stage_with_a_name_is_part_of_the_path() -> None:
    with world_of(_made(_route(), stage="v1")) as world:
        event = _send(world, "POST", "/things").json()
        assert event["rawPath"] == event["requestContext"]["http"]["path"] == "/v1/things"
        assert world.gateway.behind("https://http.execute-api.us-east-1.amazonaws.com/v1/a/b") == ("http", "/a/b")


def test_default_stage_is_not_in_a_url() -> None:
    with world_of(_made(_route())) as world:
        assert world.gateway.behind("https://http.execute-api.us-east-1.amazonaws.com/a/b") == ("http", "/a/b")


@pytest.mark.parametrize(
    ("authorization", "found"),
    [
        ("AWS_IAM", {"iam": {"accountId": "123456789012", "callerId": "AIDAalice"}}),
        ("JWT", {"jwt": {"claims": {"iss": "https://issuer.simulated", "sub": "alice"}, "scopes": ["pay"]}}),
    ],
)
def test_event_has_the_identity_of_the_authorizer(authorization: str, found: dict[str, Any]) -> None:
    with world_of(_made(_route(authorization=authorization, scopes=("pay",)))) as world:
        authorizer = _send(world, "POST", "/things", user="alice").json()["requestContext"]["authorizer"]

    ((kind, wanted),) = found.items()
    assert list(authorizer) == [kind]
    assert {name: authorizer[kind][name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("content_type", "body", "encoded"),
    [
        ("application/json; charset=utf-8", "{}", False),
        ("text/plain", "{}", False),
        ("application/problem+json", "e30=", True),
        ("", "e30=", True),
    ],
)
def test_body_of_another_type_is_in_base64(content_type: str, body: str, encoded: bool) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    with world_of(_made(_route())) as world:
        event = _send(world, "POST", "/things", headers=headers, body="{}").json()

    assert (event["body"], event["isBase64Encoded"]) == (body, encoded)


def test_values_of_one_header_are_joined() -> None:
    with world_of(_made(_route())) as world:
        event = _send(world, "POST", "/things", headers={"Idempotency-Key": "a", "idempotency-key": "b"}).json()

    assert event["headers"] == {"idempotency-key": "a,b"}
    assert not {"body", "queryStringParameters", "pathParameters", "cookies"} & event.keys()


def test_function_that_takes_too_long_is_a_503() -> None:
    slow = "import time\ndef handler(event, context):\n    time.sleep(10)\n    return {'statusCode': 200}\n"
    with world_of(_made(_route(function="slow", timeout=2_000), slow=slow)) as world:
        response = _send(world, "POST", "/things")

    assert (response.status, response.json()) == (503, {"message": "Service Unavailable"})


def test_what_no_route_has_goes_to_the_default_route_of_the_api() -> None:
    with world_of(_made(_route("/things"), _route("$default", method="ANY"))) as world:
        assert _send(world, "PUT", "/else").json()["routeKey"] == "$default"
        assert _send(world, "POST", "/things").json()["routeKey"] == "POST /things"

    with world_of(_made(_route("/things"))) as world:
        assert (_send(world, "PUT", "/else").status, world.kernel.now > START) == (404, True)


def test_operation_below_a_resource_is_found() -> None:
    made = blueprint(echo=ECHO)
    made.apis["rest"] = ApiSpec(id="rest", stage="prod", routes=(_route("/pay/moves"),))
    with world_of(made) as world:
        assert world.gateway.path_of("moves") == "/pay/moves"
        assert json.loads(_send(world, "POST", "/pay/moves").body)["path"] == "/pay/moves"
