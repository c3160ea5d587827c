"""The simulator and local AWS end small state machines alike; each exception's scenario states the reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from constructs_lib.testing import LocalAws
from tests.simulator.exchanges import EXCHANGES, MACHINES, Exchange, Services
from tests.simulator.scenarios import CHILDREN, FUNCTIONS, SCENARIOS, Scenario
from tests.simulator.test_scenarios import ENDS

from .resources import create_function, create_queue
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

    def moved(url: str) -> str:
        messages = eventually(lambda: make_client("sqs").receive_message(QueueUrl=url).get("Messages"))
        make_client("sqs").delete_message(QueueUrl=url, ReceiptHandle=messages[0]["ReceiptHandle"])
        return str(messages[0]["Body"])

    yield Services(
        client=make_client,
        ended=lambda arn: void(await_end(aws, arn)),
        moved=moved,
        plain=plain,
        fifo=fifo,
        table="exchanges",
        bucket="exchanges",
        secret=secret,
        done=machines["done"],
        waits=machines["waits"],
        fails=create_function(aws, "exchange-fails", FUNCTIONS["fail"]),
    )
    aws.client("dynamodb").delete_table(TableName="exchanges")


def void(_result: object) -> None:
    """Let a result be."""


@pytest.mark.parametrize("exchange", EXCHANGES, ids=str)
def test_local_aws_responds_as_the_simulator_does(exchange: Exchange, services: Services) -> None:
    assert exchange.act(services) == exchange.answers
