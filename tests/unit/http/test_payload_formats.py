"""Events of HTTP APIs, responses that pages of other origins may read, and links to problems' documentation."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urljoin

import pytest

from saga_runtime.http.idempotent_request import BadKey, NoIdentity, caller_of, idempotency_key_of, proxy_event
from saga_runtime.http.response import linked
from saga_runtime.protocol import PROBLEM_TYPES, Env, RecordStatus
from tests.unit.support.client import accepted, settled
from tests.unit.support.samples import ACCOUNT, BODY, get, post
from tests.unit.support.world import World


def _http(event: dict[str, Any], **authorizer: Any) -> dict[str, Any]:
    """The same request as an HTTP API sends it."""
    context = event["requestContext"]
    path = context.get("path") or f"/prod{event['path']}"
    identity = context["identity"]
    iam = {"iam": {"accountId": identity["accountId"], "callerId": identity["caller"], "cognitoIdentity": None}}
    return {
        "version": "2.0",
        "routeKey": f"{event['httpMethod']} /transfers",
        "rawPath": path,
        "headers": {name.lower(): value for name, value in event["headers"].items()},
        "pathParameters": event.get("pathParameters"),
        "body": event.get("body"),
        "isBase64Encoded": False,
        "requestContext": {"http": {"method": event["httpMethod"], "path": path}, "authorizer": authorizer or iam},
    }


def test_a_request_is_the_same_in_both_formats(world: World) -> None:
    saga_id = accepted(world)
    world.clock.ms += 1

    status, document, headers = world.call(_http(post()))

    assert (status, document["saga_id"]) == (409, saga_id)
    assert headers["Location"] == f"/prod/transfers/{saga_id}"


def test_a_status_is_read_in_the_newer_format(world: World) -> None:
    saga_id = accepted(world)

    assert world.call(_http(get(saga_id)))[0] == 200
    assert world.call(_http(get(saga_id, principal="AIDABOB")))[0] == 404


def test_a_new_request_in_the_newer_format_starts_one_saga(world: World) -> None:
    status, document, headers = world.call(_http(post()))

    assert status == 202
    assert headers["Location"] == f"/prod/transfers/{document['saga_id']}"
    assert len(world.executions.by_name) == 1


def _by(domain: str, raw_path: str) -> dict[str, Any]:
    event = _http(post())
    return event | {"rawPath": raw_path, "requestContext": event["requestContext"] | {"domainName": domain}}


@pytest.mark.parametrize(
    ("sent", "raw_path"),
    [
        ("https://pay.example/v1/transfers", "/transfers"),
        ("https://pay.example/v1/transfers", "/prod/transfers"),
        ("https://pay.example/transfers", "/prod/transfers"),
        ("https://pay.example/transfers", "/transfers"),
        ("https://pay.example/v1/transfers/", "/transfers/"),
    ],
)
def test_the_location_of_a_request_to_a_domain_of_ones_own_has_its_base_path(
    world: World, sent: str, raw_path: str
) -> None:
    """The event has neither the base path, nor whether the stage is in the address."""
    status, document, headers = world.call(_by("pay.example", raw_path))

    assert status == 202
    assert urljoin(sent, headers["Location"]) == f"{sent.rstrip('/')}/{document['saga_id']}"


@pytest.mark.parametrize("tail", ["amazonaws.com", "amazonaws.com.cn"])
def test_the_location_of_a_request_to_a_generated_domain_has_the_stage(world: World, tail: str) -> None:
    _, document, headers = world.call(_by(f"a1.execute-api.eu-west-1.{tail}", "/prod/transfers"))

    assert headers["Location"] == f"/prod/transfers/{document['saga_id']}"


@pytest.mark.parametrize(
    ("authorizer", "source", "caller"),
    [
        ({"iam": {"accountId": ACCOUNT, "callerId": "AROA:one"}}, "iam", ("iam", ACCOUNT, "AROA")),
        (
            {"iam": {"accountId": ACCOUNT, "callerId": "AROA:x", "cognitoIdentity": {"identityId": "eu:1"}}},
            "iam",
            ("iam", ACCOUNT, "cognito", "eu:1"),
        ),
        ({"jwt": {"claims": {"iss": "https://i", "sub": "u"}}}, "jwt", ("jwt", "https://i", "u")),
        ({"lambda": {"tenant": "acme"}}, "context:tenant", ("context", "tenant", "acme")),
    ],
)
def test_the_caller_is_that_of_the_gateways_authorizer(
    authorizer: dict[str, Any], source: str, caller: tuple[str, ...]
) -> None:
    assert caller_of(proxy_event(_http(post(), **authorizer)), source) == caller


@pytest.mark.parametrize("name", ["jwt", "claims"])
def test_the_context_of_a_lambda_authorizer_cannot_pass_as_a_token(name: str) -> None:
    claims = {"iss": "https://i", "sub": "u"}
    event = _http(post(), **{"lambda": {name: claims if name == "claims" else {"claims": claims}}})

    with pytest.raises(NoIdentity):
        caller_of(proxy_event(event), "jwt")


@pytest.mark.parametrize("key", ["key-1,key-1", "a, b", '"a","a"'])
def test_two_keys_that_the_gateway_joined_are_refused(key: str) -> None:
    event = proxy_event(_http(post(key=key)))

    with pytest.raises(BadKey):
        idempotency_key_of(event)


def test_a_quoted_key_may_have_a_comma() -> None:
    assert idempotency_key_of(proxy_event(_http(post(key='"a, b"')))) == "a, b"
    assert idempotency_key_of(post(key="a, b")) == "a, b"


def test_an_event_in_the_older_format_stays_as_it_is() -> None:
    event = post()

    assert proxy_event(event) is event


SHOP = "https://shop.example"
DOCS = "https://docs.shop.example/problems#"
REFUSED = json.dumps({"type": f"{PROBLEM_TYPES}saga-refused", "title": "Refused", "detail": '"type":"\u00e4"'})


@pytest.mark.parametrize(
    ("allowed", "origin", "shared", "vary"),
    [
        (SHOP, SHOP, SHOP, "Origin"),
        (f"{SHOP} https://b.example", "https://b.example", "https://b.example", "Origin"),
        (SHOP, "https://evil.example", None, "Origin"),
        (SHOP, "https://shop.example.evil.example", None, "Origin"),
        (SHOP, None, None, "Origin"),
        ("*", "https://any.example", "*", None),
    ],
)
def test_a_response_is_shared_with_allowed_origins_only(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    allowed: str,
    origin: str | None,
    shared: str | None,
    vary: str | None,
) -> None:
    monkeypatch.setenv(Env.ALLOWED_ORIGINS, allowed)
    sent = {"origin": origin} if origin is not None else {}

    for answer in (world.call(post(headers=sent)), world.call(post({**BODY, "amount": "no"}, headers=sent))):
        headers = answer[2]
        assert headers.get("Access-Control-Allow-Origin") == shared
        assert headers.get("Vary") == vary
        exposed = headers["Access-Control-Expose-Headers"].split(", ")
        assert {"Location", "Retry-After", "Idempotent-Replayed", "Preference-Applied"} <= set(exposed)


def test_without_origins_there_is_no_such_header(world: World) -> None:
    assert not [name for name in world.call(post(headers={"Origin": SHOP}))[2] if name.startswith("Access-Control")]


class TestDocumentedProblems:
    def test_an_error_links_to_its_page(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(Env.DOCS_URL, DOCS)

        status, document, headers = world.call(post(key=None))

        assert (status, document["type"]) == (400, f"{DOCS}missing-idempotency-key")
        assert headers["Link"] == f'<{DOCS}missing-idempotency-key>; rel="describedby"'

    def test_without_pages_it_is_a_urn_without_a_link(self, world: World) -> None:
        _, document, headers = world.call(post(key=None))

        assert document["type"] == "urn:cdk-sagas:problem:missing-idempotency-key"
        assert "Link" not in headers

    def test_an_accepted_request_has_no_link(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(Env.DOCS_URL, DOCS)

        assert "Link" not in world.call(post())[2]

    def test_a_stored_refusal_links_wherever_it_is_returned(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(Env.DOCS_URL, DOCS)
        saga_id = accepted(world)
        settled(world, saga_id, RecordStatus.FAILED, REFUSED)

        replayed, again, seen = world.call(post()), world.call(post()), world.call(get(saga_id))

        assert replayed == again
        assert replayed[1] == {**json.loads(REFUSED), "type": f"{DOCS}saga-refused"}
        assert replayed[2]["Link"] == f'<{DOCS}saga-refused>; rel="describedby"'
        assert seen[1]["answer"] == replayed[1]

    def test_a_result_with_a_type_of_its_own_is_left_alone(self) -> None:
        result = {"saga_id": "s", "status": "COMPLETED", "result": {"type": f"{PROBLEM_TYPES}x"}}

        assert linked(result, DOCS) == result
        assert linked({"type": "https://other.example"}, DOCS) == {"type": "https://other.example"}
        assert linked([1], DOCS) == [1]
