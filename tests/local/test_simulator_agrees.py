"""The simulator and local AWS end small state machines alike; each exception's scenario states the reason."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from constructs_lib.testing import LocalAws
from constructs_lib.testing.http import HttpClient
from tests.simulator.exchanges import (
    EXCHANGES,
    HTTP_ROUTES,
    MACHINES,
    PATTERN,
    ROUTES,
    Exchange,
    Respond,
    Services,
    code_of,
)
from tests.simulator.scenarios import CHILDREN, FUNCTIONS, SCENARIOS, Scenario
from tests.simulator.test_scenarios import ENDS

from .resources import arn_of_queue, create_function, create_queue
from .support import ALLOW_ALL, await_end, create_role, eventually


@pytest.fixture(scope="module")
def names(local_aws_server: LocalAws) -> Iterator[dict[str, str]]:
    """Substitutes for the names in definitions."""
    aws = local_aws_server
    aws.client("dynamodb").create_table(
        TableName="scenarios",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )
    found = {name: create_function(aws, f"scenario-{name}", code) for name, code in FUNCTIONS.items()}
    found |= {"TABLE": "scenarios", "QUEUE": create_queue(aws, "scenarios")}
    for name, child in CHILDREN.items():
        found[name] = _machine(aws, f"scenario-{name}", child, "STANDARD")
        found[f"{name}-express"] = _machine(aws, f"scenario-{name}-express", child, "EXPRESS")
    yield found
    aws.client("dynamodb").delete_table(TableName="scenarios")


def _machine(aws: LocalAws, name: str, definition: Any, kind: Any) -> str:
    return aws.client("stepfunctions").create_state_machine(
        name=name,
        definition=json.dumps({"QueryLanguage": "JSONata", **definition}),
        roleArn=create_role(aws, ALLOW_ALL, name="all"),
        type=kind,
    )["stateMachineArn"]


def _end(aws: LocalAws, scenario: Scenario, names: dict[str, str]) -> Any:
    machine = _machine(aws, f"scenario-{SCENARIOS.index(scenario)}", scenario.definition(**names), "STANDARD")
    started = aws.client("stepfunctions").start_execution(stateMachineArn=machine, input=json.dumps(scenario.given))
    described = aws.client("stepfunctions").describe_execution
    await_end(aws, started["executionArn"])
    ended = described(executionArn=started["executionArn"])
    if ended["status"] == "SUCCEEDED":
        return json.loads(ended["output"])
    return ended["status"], ended.get("error")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_local_aws_ends_a_scenario_as_the_simulator_does(
    scenario: Scenario, names: dict[str, str], local_aws_server: LocalAws
) -> None:
    agrees = _end(local_aws_server, scenario, names) == ENDS[scenario.name]
    assert agrees is (scenario.differs is None), f"local AWS ends otherwise: {_end}" if not agrees else scenario.differs


@pytest.fixture(scope="module")
def services(local_aws_server: LocalAws) -> Iterator[Services]:
    """The same services in local AWS."""
    aws = local_aws_server
    aws.client("dynamodb").create_table(
        TableName="exchanges",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )
    plain, fifo = create_queue(aws, "exchanges"), create_queue(aws, "exchanges.fifo", FifoQueue="true")
    aws.client("s3").create_bucket(Bucket="exchanges")
    secret = aws.client("secretsmanager").create_secret(Name="exchanges", SecretString="first")["ARN"]
    machines = {name: _machine(aws, f"exchange-{name}", make(plain), "STANDARD") for name, make in MACHINES.items()}
    make_client: Any = aws.client
    dead, matched = create_queue(aws, "exchanges-dead"), create_queue(aws, "exchanges-matched")
    redrive = json.dumps({"deadLetterTargetArn": arn_of_queue(aws, dead), "maxReceiveCount": 2})
    twice = create_queue(aws, "exchanges-twice", RedrivePolicy=redrive)
    aws.client("events").put_rule(Name="exchanges", EventPattern=json.dumps(PATTERN))
    aws.client("events").put_targets(Rule="exchanges", Targets=[{"Id": "1", "Arn": arn_of_queue(aws, matched)}])
    rest = _api(aws, create_function(aws, "exchange-proxied", FUNCTIONS["proxied"]))
    http = _http_api(aws, create_function(aws, "exchange-routed", FUNCTIONS["routed"]))

    def requests(base: str) -> Respond:
        def request(method: str, path: str, body: str) -> tuple[int, Mapping[str, str], str]:
            headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
            response = HttpClient().send(method, f"{base}{path}", body=body.encode(), headers=headers)
            return response.status, response.headers, response.text

        return request

    def moved(url: str) -> str:
        messages = eventually(lambda: make_client("sqs").receive_message(QueueUrl=url).get("Messages"))
        make_client("sqs").delete_message(QueueUrl=url, ReceiptHandle=messages[0]["ReceiptHandle"])
        return str(messages[0]["Body"])

    def is_gone(arn: str) -> bool:
        return code_of(aws.client("stepfunctions").describe_state_machine, stateMachineArn=arn) != "none"

    yield Services(
        client=make_client,
        ended=lambda arn: void(await_end(aws, arn)),
        gone=lambda arn: void(eventually(lambda: is_gone(arn))),
        moved=moved,
        plain=plain,
        fifo=fifo,
        table="exchanges",
        bucket="exchanges",
        secret=secret,
        **machines,
        fails=create_function(aws, "exchange-fails", FUNCTIONS["fail"]),
        twice=twice,
        dead=dead,
        matched=matched,
        request=requests(rest),
        http_request=requests(http),
    )
    aws.client("dynamodb").delete_table(TableName="exchanges")


def _api(aws: LocalAws, function: str) -> str:
    """Create a REST API with ``ROUTES``; its base URL."""
    gateway = aws.client("apigateway")
    api = gateway.create_rest_api(name="exchanges")["id"]
    uri = f"arn:aws:apigateway:us-east-1:lambda:path/2015-03-31/functions/{function}/invocations"
    (root,) = gateway.get_resources(restApiId=api)["items"]
    for method, path in ROUTES:
        parent = root["id"]
        for part in path.split("/"):
            parent = gateway.create_resource(restApiId=api, parentId=parent, pathPart=part)["id"]
        gateway.put_method(restApiId=api, resourceId=parent, httpMethod=method, authorizationType="NONE")
        gateway.put_integration(
            restApiId=api,
            resourceId=parent,
            httpMethod=method,
            type="AWS_PROXY",
            integrationHttpMethod="POST",
            uri=uri,
        )
    gateway.create_deployment(restApiId=api, stageName="v1")
    return aws.api_url(api, "v1")


def _http_api(aws: LocalAws, function: str) -> str:
    """Create an HTTP API with ``HTTP_ROUTES``; its base URL."""
    gateway = aws.client("apigatewayv2")
    api = gateway.create_api(Name="exchanges", ProtocolType="HTTP")["ApiId"]
    integration = gateway.create_integration(
        ApiId=api, IntegrationType="AWS_PROXY", IntegrationUri=function, PayloadFormatVersion="2.0"
    )["IntegrationId"]
    authorizer = gateway.create_authorizer(
        ApiId=api,
        Name="tokens",
        AuthorizerType="JWT",
        IdentitySource=["$request.header.Authorization"],
        JwtConfiguration={"Issuer": "https://issuer.example", "Audience": ["exchanges"]},
    )["AuthorizerId"]
    for key, authorization in HTTP_ROUTES.items():
        more: Any = {"AuthorizerId": authorizer} if authorization == "JWT" else {}
        gateway.create_route(
            ApiId=api,
            RouteKey=key,
            Target=f"integrations/{integration}",
            AuthorizationType=cast("Any", authorization),
            **more,
        )
    gateway.create_stage(ApiId=api, StageName="$default", AutoDeploy=True)
    return aws.local_url(f"https://{api}.execute-api.us-east-1.amazonaws.com")


def void(_result: object) -> None:
    """Let a result be."""


@pytest.mark.parametrize("exchange", EXCHANGES, ids=str)
def test_local_aws_responds_as_the_simulator_does(exchange: Exchange, services: Services) -> None:
    agrees = exchange.act(services) == exchange.answers
    assert agrees is (exchange.differs is None), exchange.differs or "local AWS answers otherwise"
