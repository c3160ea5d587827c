"""The runtime's DynamoDB client resolves its address once: every request is the one that botocore would send."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse

from saga_runtime.shared import aws
from tests.unit.support.wire import response

KEY = {"Key": {"id": {"S": "1"}}, "TableName": "t"}
CALLS: list[tuple[str, Any]] = [
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

    def _answer(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        self._last = request
        return response(request, 200, {})


@pytest.mark.parametrize("given", [None, "http://localhost:4566"], ids=["AWS", "local"])
@pytest.mark.parametrize("region", ["us-east-1", "eu-central-1", "cn-north-1", "us-gov-west-1"])
def test_requests_go_where_botocore_sends_them(region: str, given: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if given is not None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", given)
    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="s", region_name=region)
    theirs = session.client("dynamodb", config=aws.CONFIG)
    with aws.clients_of(session):
        ours = aws.dynamodb()
    assert vars(theirs)["_ruleset_resolver"] is not None, "botocore resolves addresses in another way"
    for call, params in CALLS:
        assert Sent(ours).address(call, params) == Sent(theirs).address(call, params)
