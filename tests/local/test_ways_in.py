"""Operations below a resource of a REST API, for pages too, and as routes of an HTTP API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import pytest

from constructs_lib.testing import ApiUser, LocalAws
from constructs_lib.testing.http import HttpClient
from constructs_lib.testing.proof import Proof
from constructs_lib.testing.simulator import Intent, Workload
from tests.sampling import DRAW

from .ways_in.stack import NAME, SHOP, synthesize

BODY = {"amount": 5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Both APIs, and a client that may call them."""

    aws: LocalAws
    rest: str
    http: str
    user: ApiUser
    stranger: ApiUser


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    with LocalAws() as aws:
        outputs = aws.deploy(synthesize(tmp_path_factory.mktemp("ways")))[NAME]
        yield Ways(
            aws=aws,
            rest=f"{aws.local_url(outputs['RestUrl']).rstrip('/')}/pay/moves",
            http=f"{aws.local_url(outputs['HttpUrl']).rstrip('/')}/transfers",
            user=aws.create_api_user("client", api_id=[outputs["RestId"], outputs["HttpId"]]),
            stranger=aws.create_api_user("stranger"),
        )


@pytest.mark.parametrize("way", ["rest", "http"])
def test_a_request_is_answered_replayed_and_found(ways: Ways, way: str) -> None:
    url = getattr(ways, way)

    first, second, other = (
        ways.user.request("POST", url, headers={"Idempotency-Key": f"{way}-1"}, body=body)
        for body in (BODY, BODY, {"amount": 6})
    )

    assert (first.status, first.json()["result"]) == (200, {"asked": BODY})
    assert (second.status, second.body, second.headers["idempotent-replayed"]) == (200, first.body, "true")
    assert other.status == 422
    found = ways.user.request("GET", f"{url}/{first.json()['saga_id']}")
    assert (found.status, found.json()["answer"]) == (200, first.json())
    assert first.headers["location"].endswith(f"{url.rsplit('/', 1)[-1]}/{first.json()['saga_id']}")


@pytest.mark.parametrize("way", ["rest", "http"])
def test_a_client_without_permission_is_refused(ways: Ways, way: str) -> None:
    refused = ways.stranger.request("POST", getattr(ways, way), headers={"Idempotency-Key": "x"}, body=BODY)

    assert refused.status == 403


def test_two_keys_that_the_http_api_joined_are_refused(ways: Ways) -> None:
    joined = ways.user.request("POST", ways.http, headers={"Idempotency-Key": "a,a"}, body=BODY)

    assert (joined.status, joined.json()["type"]) == (400, "urn:cdk-sagas:problem:invalid-idempotency-key")


def test_a_page_of_an_allowed_origin_may_ask_and_read(ways: Ways) -> None:
    asked = {
        "Origin": SHOP,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type,idempotency-key",
    }
    preflight = HttpClient().send("OPTIONS", ways.rest, headers=asked)
    answer = ways.user.request("POST", ways.rest, headers={"Idempotency-Key": "page", "Origin": SHOP}, body=BODY)
    other = ways.user.request(
        "POST", ways.rest, headers={"Idempotency-Key": "page", "Origin": "https://evil.example"}, body=BODY
    )

    assert preflight.status == 204
    assert preflight.headers["access-control-allow-origin"] == SHOP
    assert "Idempotency-Key" in preflight.headers["access-control-allow-headers"]
    assert answer.headers["access-control-allow-origin"] == SHOP
    assert "Location" in answer.headers["access-control-expose-headers"]
    assert "access-control-allow-origin" not in other.headers


class Move(Workload):
    """One request."""

    def __init__(self, operation: str) -> None:
        self.operation = operation

    def intent(self, number: int, random: Random) -> Intent:
        return Intent(operation=self.operation, body=BODY)


@pytest.mark.parametrize("operation", ["moves", "transfers"])
def test_an_operation_below_a_resource_and_one_of_an_http_api_are_proven(ways: Ways, operation: str) -> None:
    with Proof(ways.aws, Move(operation)) as proof:
        check = proof.survives_crashes(at_most=4, draw=DRAW)

    assert [case.status for case in check.cases] == [200] * 5


def test_an_operation_whose_clients_have_tokens_is_not_proven(ways: Ways) -> None:
    message = r"operation must be one of a deployed API that authorizes by IAM, got payouts; there are \['moves',"
    with Proof(ways.aws, Move("payouts")) as proof, pytest.raises(ValueError, match=message):
        proof.survives_crashes(at_most=1, draw=DRAW)
