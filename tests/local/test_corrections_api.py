"""API Gateway and CloudFormation behave as on AWS where the bare emulator does not."""

from __future__ import annotations

import base64
import dataclasses
import json
import time
from typing import Any

import pytest
from botocore.exceptions import ClientError

from constructs_lib.testing import ApiUser, HttpResponse, LocalAws
from constructs_lib.testing.http import HttpClient

from .support import Deployed, Emulators, eventually

PROBLEM = "application/problem+json"
#: At which a second takes a quarter of an hour: what may be asked once a second is refused the second time.
SLOW = 0.001


def alice_of(target: Deployed) -> ApiUser:
    """A user that may invoke the target's API."""
    return target.aws.create_api_user("alice", api_id=target.outputs["ApiId"])


def assert_problem(answer: HttpResponse, status: int) -> None:
    """The answer is a problem document that the gateway itself wrote."""
    assert answer.status == status
    assert answer.headers["content-type"] == PROBLEM
    assert answer.json()["type"] == "about:blank"


def test_a_caller_is_known_by_its_own_key(target: Deployed) -> None:
    identities = {}
    for name in ("alice", "bob"):
        user = target.aws.create_api_user(name, api_id=target.outputs["ApiId"])
        identities[name] = user.request("POST", f"{target.api}/echo", body={}).json()["identity"]

    assert identities["alice"]["userArn"] == "arn:aws:iam::000000000000:user/alice"
    assert identities["alice"]["accountId"] == "000000000000"
    assert identities["alice"]["caller"].startswith("AIDA")
    assert identities["alice"]["caller"] != identities["bob"]["caller"]


def test_a_new_key_of_the_same_user_is_the_same_caller(target: Deployed) -> None:
    callers = {
        alice_of(target).request("POST", f"{target.api}/echo", body={}).json()["identity"]["caller"] for _ in range(2)
    }

    assert len(callers) == 1


def test_an_unsigned_request_is_refused_by_the_gateway(target: Deployed) -> None:
    assert_problem(HttpClient().send("POST", f"{target.api}/echo", body=b"{}"), 403)


def test_a_wrong_signature_is_refused(target: Deployed) -> None:
    forged = dataclasses.replace(alice_of(target), secret_access_key="guessed")

    assert_problem(forged.request("POST", f"{target.api}/echo", body={}), 403)


def test_a_body_that_was_changed_after_signing_is_refused(target: Deployed) -> None:
    class Tampering(HttpClient):
        def send(self, method: str, url: str, **options: Any) -> HttpResponse:
            return super().send(method, url, **{**options, "body": b'{"amount": 1000000}'})

    tampered = dataclasses.replace(alice_of(target), _client=Tampering())

    assert_problem(tampered.request("POST", f"{target.api}/echo", body={"amount": 1}), 403)


def test_an_unknown_key_is_refused(target: Deployed) -> None:
    stranger = dataclasses.replace(alice_of(target), access_key_id="AKIA0000000000000000")

    assert stranger.request("POST", f"{target.api}/echo", body={}).status == 403


def test_a_user_without_permission_gets_the_gateways_response(emulators: Emulators) -> None:
    def call(target: Deployed) -> HttpResponse:
        return target.aws.create_api_user("nobody").request("POST", f"{target.api}/echo", body={})

    assert_problem(call(emulators.corrected), 403)
    assert call(emulators.without("denied-by-policy")).headers["content-type"] != PROBLEM


def test_a_user_may_invoke_only_the_api_that_it_was_created_for(target: Deployed) -> None:
    other = target.aws.create_api_user("other", api_id="someother1")

    assert other.request("POST", f"{target.api}/echo", body={}).status == 403


def test_an_api_user_may_do_nothing_else(target: Deployed) -> None:
    client = alice_of(target).session().client("dynamodb", endpoint_url=target.aws.endpoint_url)

    with pytest.raises(ClientError, match="not authorized"):
        client.list_tables()


def test_a_body_above_ten_megabytes_is_refused(emulators: Emulators) -> None:
    def call(target: Deployed) -> HttpResponse:
        return alice_of(target).request("POST", f"{target.api}/echo", body='"' + "x" * (10 * 1024 * 1024) + '"')

    assert_problem(call(emulators.corrected), 413)
    assert call(emulators.without("request-size", "event-size")).status != 413


def test_a_body_that_does_not_fit_into_an_invocation_is_refused(emulators: Emulators) -> None:
    def call(target: Deployed) -> HttpResponse:
        return alice_of(target).request("POST", f"{target.api}/echo", body='"' + "x" * (6 * 1024 * 1024) + '"')

    assert_problem(call(emulators.corrected), 413)
    assert call(emulators.without("event-size")).status != 413


def test_a_slow_function_times_out_at_the_gateway_after_29_seconds(emulators: Emulators) -> None:
    """A second and a half at this speed; its own timeout, three quarters of a minute, has no part in this."""

    def call(target: Deployed) -> HttpResponse:
        name = target.function("Target/Front")
        target.aws.client("lambda").update_function_configuration(FunctionName=name, Timeout=900)
        return alice_of(target).request("POST", f"{target.api}/slow", body={"sleep": 1.8})

    assert_problem(call(emulators.fast(20)), 504)
    assert call(emulators.without("integration-timeout", speed=20)).status == 202


@pytest.mark.parametrize("answer", ["raise", "no-status", "object-body", "a-list"])
def test_a_function_that_fails_or_returns_nonsense_is_a_bad_gateway(target: Deployed, answer: str) -> None:
    response = alice_of(target).request("POST", f"{target.api}/echo", body={"answer": answer})

    assert_problem(response, 502)
    assert "Traceback" not in response.text


def test_the_bare_emulator_hands_out_a_functions_error(emulators: Emulators) -> None:
    target = emulators.without("integration-failure")

    response = alice_of(target).request("POST", f"{target.api}/echo", body={"answer": "raise"})

    assert "as requested" in response.text


def test_a_client_cannot_choose_its_source_address(emulators: Emulators) -> None:
    def address(target: Deployed) -> str:
        forged = {"X-Forwarded-For": "203.0.113.9"}
        answer = alice_of(target).request("POST", f"{target.api}/echo", headers=forged, body={})
        return str(answer.json()["identity"]["sourceIp"])

    assert address(emulators.corrected) == "127.0.0.1"
    assert address(emulators.without("source-address")) == "203.0.113.9"


def test_a_function_sees_header_names_as_the_client_wrote_them(emulators: Emulators) -> None:
    """A function that looks for a signature by the wrong case is to fail here, too."""

    def names(target: Deployed) -> set[str]:
        headers = {"Stripe-Signature": "t=1", "webhook-ID": "1"}
        event = HttpClient().send("POST", f"{target.api}/open", headers=headers, body=b"{}").json()
        assert event["headers"].keys() == event["multiValueHeaders"].keys()
        return {name for name in event["headers"] if name.lower() in {"stripe-signature", "webhook-id"}}

    assert names(emulators.corrected) == {"Stripe-Signature", "webhook-ID"}
    assert names(emulators.without("header-names")) == {"stripe-signature", "webhook-id"}


@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded", "text/plain"])
@pytest.mark.parametrize(
    "body", [b'{"a": "\xc3\xa9\\u00e9 ", "n": 1.0}  \r\n\t ', b"decision=approve&note=%20x&c=+\xc3\xa9"]
)
def test_an_open_method_passes_every_byte_of_a_text(target: Deployed, content_type: str, body: bytes) -> None:
    answer = HttpClient().send("POST", f"{target.api}/open", headers={"Content-Type": content_type}, body=body)

    assert answer.json()["isBase64Encoded"] is False
    assert answer.json()["body"].encode() == body
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-frame-options"] == "DENY"


def test_binary_types_of_an_api_are_passed_in_base64(target: Deployed) -> None:
    body = bytes(range(256))

    answer = HttpClient().send("POST", f"{target.api}/open", headers={"Content-Type": "image/png"}, body=body)

    assert answer.json()["isBase64Encoded"] is True
    assert base64.b64decode(answer.json()["body"]) == body


def test_the_url_that_a_stack_made_for_its_api_is_found_here(target: Deployed) -> None:
    made = next(value for name, value in target.outputs.items() if name.startswith("ApiEndpoint"))

    answer = HttpClient().send("POST", target.aws.local_url(f"{made}open?x=%20a&y=1"), body=b"{}")

    assert answer.json()["queryStringParameters"] == {"x": " a", "y": "1"}
    assert target.aws.local_url(made) == f"{target.api}/"


@pytest.mark.parametrize("url", ["https://example.com/prod/", "https://a.execute-api.us-east-1.amazonaws.com/", "x"])
def test_another_url_has_no_place_here(target: Deployed, url: str) -> None:
    with pytest.raises(ValueError, match="url must be that of a REST API's stage"):
        target.aws.local_url(url)


def test_a_methods_own_rate_applies(emulators: Emulators) -> None:
    def statuses(target: Deployed) -> list[int]:
        alice = alice_of(target)
        return [alice.request("POST", f"{target.api}/limited", body={}).status for _ in range(3)]

    assert statuses(emulators.fast(SLOW)) == [202, 429, 429]
    assert statuses(emulators.without("method-throttling", speed=SLOW)) == [202, 202, 202]


def test_a_throttled_request_gets_a_problem_document(emulators: Emulators) -> None:
    target = emulators.fast(SLOW)
    alice = alice_of(target)

    answers = [alice.request("POST", f"{target.api}/limited", body={}) for _ in range(2)]

    assert_problem(answers[1], 429)


def test_the_methods_validator_applies(emulators: Emulators) -> None:
    def call(target: Deployed, body: object) -> HttpResponse:
        return alice_of(target).request("POST", f"{target.api}/things", body=body)

    assert_problem(call(emulators.corrected, {"id": 7}), 400)
    assert_problem(call(emulators.corrected, "{"), 400)
    assert call(emulators.corrected, {"id": "seven"}).status == 202
    assert call(emulators.without("request-validators"), {"id": 7}).status != 400


def test_a_request_goes_all_the_way_through(target: Deployed) -> None:
    """API → function → table and state machine → function → table."""
    answer = alice_of(target).request("POST", f"{target.api}/things", body={"id": "t1", "do": "ok"})
    assert (answer.status, answer.headers["x-own"]) == (202, "yes")

    def settled() -> dict[str, Any] | None:
        key = {"id": {"S": "t1"}}
        item = target.aws.client("dynamodb").get_item(TableName=target.outputs["TableName"], Key=key).get("Item", {})
        return dict(item) if "status" in item else None

    assert eventually(settled)["status"] == {"S": "settled"}


def test_a_table_has_the_settings_of_its_template(emulators: Emulators) -> None:
    def settings(target: Deployed) -> tuple[str, bool, bool, str]:
        name, client = target.outputs["TableName"], target.aws.client("dynamodb")
        table = client.describe_table(TableName=name)["Table"]
        backups = client.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
        recovery = backups.get("PointInTimeRecoveryDescription", {}).get("PointInTimeRecoveryStatus")
        return (
            client.describe_time_to_live(TableName=name)["TimeToLiveDescription"].get("AttributeName", ""),
            recovery == "ENABLED",
            table.get("DeletionProtectionEnabled", False),
            table.get("SSEDescription", {}).get("SSEType", ""),
        )

    assert settings(emulators.corrected) == ("expiration", True, True, "KMS")
    assert settings(emulators.without("table-settings")) == ("", False, False, "")


@pytest.mark.parametrize("name", ["firewall-association", "inert-types"])
def test_the_bare_emulator_refuses_a_stack_that_aws_would_deploy(emulators: Emulators, name: str) -> None:
    resources = {
        "firewall-association": {"Type": "AWS::WAFv2::WebACLAssociation", "Properties": {}},
        "inert-types": {"Type": "AWS::CloudWatch::CompositeAlarm", "Properties": {"AlarmRule": "TRUE"}},
    }
    template = json.dumps({"Resources": {"One": resources[name]}})
    bare = emulators.without("firewall-association", "inert-types").aws.client("cloudformation")

    with pytest.raises(ClientError, match="Unrecognized resource types"):
        bare.create_stack(StackName="refused", TemplateBody=template)

    emulators.corrected.aws.client("cloudformation").create_stack(StackName=f"accepted-{name}", TemplateBody=template)


def test_an_alarm_over_a_computation_of_metrics_is_deployed(emulators: Emulators) -> None:
    alarm = {
        "AlarmName": "computed",
        "ComparisonOperator": "GreaterThanThreshold",
        "EvaluationPeriods": 1,
        "Threshold": 0,
        "Metrics": [{"Id": "e1", "Expression": "1 + 1"}],
    }
    template = json.dumps({"Resources": {"One": {"Type": "AWS::CloudWatch::Alarm", "Properties": alarm}}})

    def status(target: Deployed) -> str:
        client = target.aws.client("cloudformation")
        client.create_stack(StackName="computed-alarm", TemplateBody=template, OnFailure="DO_NOTHING")
        while True:
            found = client.describe_stacks(StackName="computed-alarm")["Stacks"][0]["StackStatus"]
            if not found.endswith("IN_PROGRESS"):
                return found

    assert status(emulators.corrected) == "CREATE_COMPLETE"
    assert status(emulators.without("computed-alarms")) == "CREATE_FAILED"


def test_a_web_acl_is_associated_with_its_stage(target: Deployed) -> None:
    arn = f"arn:aws:apigateway:us-east-1::/restapis/{target.outputs['ApiId']}/stages/prod"

    associated = target.aws.client("wafv2").get_web_acl_for_resource(ResourceArn=arn)

    assert associated["WebACL"]["Name"]


def test_a_policy_that_demands_tls_lets_a_client_of_the_emulator_in(emulators: Emulators) -> None:
    """The clients of AWS speak TLS, those of the emulator cannot."""

    def receives(target: Deployed) -> bool:
        aws = target.aws
        url = aws.client("sqs").create_queue(QueueName="tls-only")["QueueUrl"]
        arn = "arn:aws:sqs:us-east-1:000000000000:tls-only"
        deny = {
            "Effect": "Deny",
            "Principal": "*",
            "Action": "sqs:*",
            "Resource": arn,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [deny]})
        aws.client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
        user = aws.create_api_user("reader")
        allow = {"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
        aws.client("iam").put_user_policy(UserName="reader", PolicyName="all", PolicyDocument=document)
        try:
            user.session().client("sqs", endpoint_url=aws.endpoint_url).receive_message(QueueUrl=url)
        except ClientError:
            return False
        return True

    assert receives(emulators.corrected)
    assert not receives(emulators.without("secure-transport"))


def test_visibility_timeouts_follow_the_speed(emulators: Emulators) -> None:
    """A message is visible again after 60 s, which are 0.6 s at speed 100."""

    def returns(target: Deployed) -> bool:
        sqs, url = target.aws.client("sqs"), target.outputs["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="m")
        assert sqs.receive_message(QueueUrl=url, VisibilityTimeout=60)["Messages"]
        time.sleep(0.9)
        return "Messages" in sqs.receive_message(QueueUrl=url)

    assert returns(emulators.fast(100))
    assert not returns(emulators.without("services-time", speed=100))


def test_items_expire_by_the_functions_clock() -> None:
    """An hour by the emulator's clock is over after less than four seconds; the function's clock knows of none."""

    def outlives_an_hour_of_the_emulator(aws: LocalAws) -> bool:
        client: Any = aws.client("dynamodb")
        client.create_table(
            TableName="quotes",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        )
        lives: Any = {"Enabled": True, "AttributeName": "expiration"}
        client.update_time_to_live(TableName="quotes", TimeToLiveSpecification=lives)

        def put(name: str, expiration: float) -> None:
            client.put_item(TableName="quotes", Item={"id": {"S": name}, "expiration": {"N": str(int(expiration))}})

        def there(name: str) -> bool:
            return "Item" in client.get_item(TableName="quotes", Key={"id": {"S": name}}, ConsistentRead=True)

        def await_scan(name: str) -> None:
            """The emulator first scans for expired items a real minute after its start."""
            put(name, hour - 7200)
            eventually(lambda: None if there(name) else True, within=300)

        hour = time.time() + 3600
        put("quote", hour)
        eventually(lambda: True if aws.now().timestamp() > hour else None)
        await_scan("a scan")
        await_scan("a scan that began after the hour")
        return there("quote")

    with LocalAws(speed=1000) as corrected, LocalAws(speed=1000, without=["time-to-live"]) as bare:
        assert outlives_an_hour_of_the_emulator(corrected)
        assert not outlives_an_hour_of_the_emulator(bare)
