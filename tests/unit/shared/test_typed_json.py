"""Transactions are sent and refused as botocore's own serializer and parser would have them."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ClientError

from saga_runtime.shared import aws, typed_json
from tests.unit.support.wire import body_of, error_response, response

ITEM = {"id": {"S": "ü"}, "n": {"N": "1.10"}, "l": {"L": [{"BOOL": True}, {"NULL": True}]}, "s": {"SS": ["a"]}}
BINARY = {"id": {"S": "b"}, "b": {"B": b"\x00\xff"}, "set": {"BS": [b"1", bytearray(b"2")]}}
REASONS = [{"Code": "ConditionalCheckFailed", "Message": "no", "Item": ITEM}, {"Code": "None"}]


class Sent:
    """A client's requests, each answered alike."""

    def __init__(self, *, typed: bool, reasons: Any = None) -> None:
        session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="s", region_name="us-east-1")
        self.client: Any = session.client("dynamodb", config=aws.CONFIG)
        if typed:
            typed_json.register(self.client.meta.events)
        self.requests: list[AWSPreparedRequest] = []
        self._reasons = reasons
        answer: Any = self._answer
        self.client.meta.events.register("before-send", answer)

    def _answer(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        self.requests.append(request)
        if self._reasons is None:
            return response(request, 200, {})
        return error_response(request, "TransactionCanceledException", CancellationReasons=self._reasons)

    def document(self, **params: Any) -> Any:
        """The document that a call sends."""
        self.client.transact_write_items(**params)
        return body_of(self.requests[-1])

    def refusal(self) -> Any:
        """The error of a call."""
        with pytest.raises(ClientError) as raised:
            self.client.transact_write_items(TransactItems=[{"Put": {"TableName": "t", "Item": ITEM}}])
        return raised.value.response


@pytest.fixture(params=[ITEM, BINARY], ids=["plain", "binary"])
def item(request: pytest.FixtureRequest) -> Any:
    """An item, with and without binary values."""
    return request.param


def test_a_transaction_is_sent_as_botocore_would(item: Any) -> None:
    entries = ({"Put": {"TableName": "t", "Item": item}}, {"Delete": {"TableName": "t", "Key": {"id": {"S": "1"}}}})
    params: Any = {"TransactItems": entries, "ClientRequestToken": "token"}

    assert Sent(typed=True).document(**params) == Sent(typed=False).document(**params)


def test_each_call_has_a_token_of_its_own() -> None:
    sent = Sent(typed=True)

    tokens = {sent.document(TransactItems=[])["ClientRequestToken"] for _ in range(3)}

    assert len(tokens) == 3
    assert all(tokens)


def test_a_call_does_not_change_its_arguments() -> None:
    entries = [{"Put": {"TableName": "t", "Item": ITEM}}]
    before = json.dumps(entries)

    Sent(typed=True).document(TransactItems=entries)

    assert json.dumps(entries) == before


@pytest.mark.parametrize("reasons", [REASONS, [{"Code": "ConditionalCheckFailed", "Item": {"b": {"B": "AP8="}}}]])
def test_a_refusal_is_read_as_botocore_would(reasons: Any) -> None:
    typed, theirs = (Sent(typed=typed, reasons=reasons).refusal() for typed in (True, False))

    assert typed["CancellationReasons"] == theirs["CancellationReasons"]
    assert typed["Error"] == theirs["Error"]
    assert typed["ResponseMetadata"]["HTTPStatusCode"] == theirs["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_a_client_that_is_registered_twice_sends_its_entries() -> None:
    sent = Sent(typed=True)
    typed_json.register(sent.client.meta.events)

    assert sent.document(TransactItems=[{"Put": {"TableName": "t", "Item": ITEM}}])["TransactItems"]
