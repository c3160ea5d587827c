"""Clients that resolve their address once: every request is the one that botocore would send."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import BotoCoreError

from saga_runtime.shared import aws
from tests.unit.support.wire import response

KEY = {"Key": {"id": {"S": "1"}}, "TableName": "t"}
ARN = "arn:aws:states:us-east-1:000000000000:stateMachine:s"
OF_STEP_FUNCTIONS: list[tuple[str, Any]] = [
    ("start_execution", {"stateMachineArn": ARN}),
    ("start_sync_execution", {"stateMachineArn": ARN}),
    ("describe_execution", {"executionArn": ARN}),
    ("list_executions", {"stateMachineArn": ARN}),
    ("send_task_success", {"taskToken": "t", "output": "{}"}),
    ("send_task_failure", {"taskToken": "t"}),
    ("send_task_heartbeat", {"taskToken": "t"}),
]
OF_DYNAMODB: list[tuple[str, Any]] = [
    ("put_item", {"TableName": "t", "Item": KEY["Key"]}),
    ("get_item", KEY),
    ("update_item", KEY),
    ("delete_item", KEY),
    ("query", {"TableName": "arn:aws:dynamodb:us-east-1:000000000000:table/t"}),
    ("scan", {"TableName": "t"}),
    ("batch_get_item", {"RequestItems": {"t": {"Keys": [KEY["Key"]]}}}),
    ("transact_write_items", {"TransactItems": [{"Delete": KEY}]}),
    ("transact_get_items", {"TransactItems": [{"Get": KEY}]}),
]


class Sent:
    """A client's requests."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._last: AWSPreparedRequest | None = None
        client.meta.events.register("before-send", self._answer)

    def address(self, call: str, params: Any) -> tuple[str, list[str]]:
        """URL of a call, and the scope of its signature: region and service."""
        getattr(self.client, call)(**params)
        assert self._last is not None
        signed: Any = self._last.headers["Authorization"]
        text = signed.decode() if isinstance(signed, bytes) else signed
        return str(self._last.url), text.partition("Credential=")[2].partition(",")[0].split("/")[2:]

    def tried(self, call: str, params: Any) -> object:
        """The same, or the error of an address that botocore refuses."""
        try:
            return self.address(call, params)
        except BotoCoreError as error:
            return str(error)

    def _answer(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        self._last = request
        return response(request, 200, {})


FIPS, DUAL = {"AWS_USE_FIPS_ENDPOINT": "true"}, {"AWS_USE_DUALSTACK_ENDPOINT": "true"}


@pytest.mark.parametrize(
    "given",
    [{}, {"AWS_ENDPOINT_URL": "http://localhost:4566"}, FIPS, DUAL, FIPS | DUAL],
    ids=["AWS", "local", "FIPS", "dual stack", "both"],
)
@pytest.mark.parametrize("region", ["us-east-1", "eu-central-1", "cn-north-1", "us-gov-west-1", "us-iso-east-1"])
@pytest.mark.parametrize(
    ("service", "make", "calls"),
    [("dynamodb", aws.dynamodb, OF_DYNAMODB), ("stepfunctions", aws.step_functions, OF_STEP_FUNCTIONS)],
    ids=["DynamoDB", "Step Functions"],
)
def test_requests_go_where_botocore_sends_them(
    service: Any, make: Any, calls: Any, region: str, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="s", region_name=region)
    theirs = session.client(service, config=aws.CONFIG)
    with aws.clients_of(session):
        ours = make()
    assert vars(theirs)["_ruleset_resolver"] is not None, "botocore resolves addresses in another way"
    for call, params in calls:
        assert Sent(ours).tried(call, params) == Sent(theirs).tried(call, params)


@pytest.mark.parametrize(
    "make",
    [aws.dynamodb, aws.step_functions, aws.step_functions_once, lambda: aws.step_functions_for(7)],
    ids=["DynamoDB", "Step Functions", "once", "for so long"],
)
def test_in_the_usual_region_the_address_is_resolved_once(make: Any) -> None:
    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="s", region_name="eu-central-1")
    with aws.clients_of(session):
        assert vars(make())["_ruleset_resolver"] is None
