"""Ways back in: webhooks and how they are signed, events, the approval page."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import Duration, SecretValue, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_kms as kms
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk.assertions import Annotations, Match

from constructs_lib import (
    AdyenSignature,
    CallbackIntegration,
    HmacSignature,
    OwnSignature,
    PaddleSignature,
    StandardWebhooks,
    StripeSignature,
)
from saga_runtime.protocol import Env
from saga_runtime.webhooks.signatures import StripeScheme, scheme_of
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.integrations import SIGNING, WarehouseStack, environment, own, secret


def _hmac(**options: Any) -> HmacSignature:
    return HmacSignature(header="X-Signature", **options)


def _generated(**options: Any) -> dict[str, Any]:
    return {"generate_secret_string": secretsmanager.SecretStringGenerator(**options)}


EVENT_DEAD_LETTERS = "${Warehouse/EventDeadLetters.Arn}"


@pytest.fixture(scope="module")
def warehouse(new_app: AppFactory) -> WarehouseStack:
    return WarehouseStack(new_app(), "Shop")


@pytest.fixture(scope="module")
def cloud(warehouse: WarehouseStack) -> Cloud:
    return Cloud(warehouse)


class TestWebhooks:
    STAGE = "Warehouse/Webhook/RestApi/DeploymentStage.v1"

    def test_accept_unauthenticated_posts_since_the_function_checks_signatures(self, cloud: Cloud) -> None:
        methods = [m for m in cloud.of_type("AWS::ApiGateway::Method") if m.path.startswith("Warehouse/Webhook/")]
        assert [method.path.rsplit("/Default/")[-1] for method in methods] == ["events/POST"]
        (method,) = methods
        assert method.properties["AuthorizationType"] == "NONE"
        assert "${FromWarehouse/Function.Arn}" in method.properties["Integration"]["Uri"]

    def test_are_throttled_traced_and_logged_without_the_body(self, cloud: Cloud) -> None:
        stage = cloud.one(self.STAGE).properties
        (setting,) = stage["MethodSettings"]
        assert (setting["ThrottlingRateLimit"], setting["ThrottlingBurstLimit"]) == (100, 200)
        assert (setting["DataTraceEnabled"], setting["LoggingLevel"]) == (False, "ERROR")
        assert stage["TracingEnabled"] is True
        assert stage["AccessLogSetting"]["DestinationArn"].endswith(":log-group:${Warehouse/Webhook/AccessLog}")

    def test_take_bodies_byte_for_byte(self, cloud: Cloud) -> None:
        """Without it, API Gateway makes UTF-8 text of a body, and its signature never fits."""
        assert cloud.one("Warehouse/Webhook/RestApi").properties["BinaryMediaTypes"] == ["*/*"]
        assert "BinaryMediaTypes" not in cloud.one("Warehouse/Review/RestApi").properties

    def test_have_the_providers_signature_scheme(self, cloud: Cloud) -> None:
        scheme = scheme_of(environment(cloud, "FromWarehouse")[Env.WEBHOOK_SCHEME])
        assert scheme == StripeScheme(secrets=(SIGNING,), tolerance=300, header="Stripe-Signature", previous=86_400)

    def test_have_an_address_with_their_path(self, warehouse: WarehouseStack, cloud: Cloud) -> None:
        url = cloud.flat(warehouse.resolve(warehouse.webhook.url))
        assert url.endswith("/${" + self.STAGE + "}/events")

    def test_take_a_web_acl_of_the_users_own(self, stack: Stack) -> None:
        arn = "arn:aws:wafv2:eu-west-1:111111111111:regional/webacl/mine/1"
        CallbackIntegration(stack, "Warehouse").add_webhook(
            "Webhook", fn=own(stack, "From"), scheme=StripeSignature(secrets=[secret(stack)]), web_acl_arn=arn
        )

        (association,) = Cloud(stack).of_type("AWS::WAFv2::WebACLAssociation")
        assert association.properties["WebACLArn"] == arn

    def test_of_two_providers_have_a_function_each(self, stack: Stack) -> None:
        via, received = CallbackIntegration(stack, "Warehouse"), own(stack, "From")
        via.add_webhook("One", fn=received, scheme=StripeSignature(secrets=[secret(stack, "One")]))

        with pytest.raises(ValueError, match=r"^fn of webhook Two must check one scheme, got Test/From/Function"):
            via.add_webhook("Two", fn=received, scheme=StripeSignature(secrets=[secret(stack, "Two")]))

    def test_of_a_function_that_the_gateway_would_not_wait_for_are_refused(self, stack: Stack) -> None:
        slow = own(stack, "From", timeout=Duration.seconds(29))
        with pytest.raises(ValueError, match=r"^the timeout of fn of webhook Webhook must be .* 29 s, got 29 s"):
            CallbackIntegration(stack, "Warehouse").add_webhook(
                "Webhook", fn=slow, scheme=StripeSignature(secrets=[secret(stack)])
            )

    @pytest.mark.parametrize("path", ["/events", "events/", "a//b", "{proxy+}", "", "a\n"])
    def test_refuse_an_invalid_path(self, stack: Stack, path: str) -> None:
        with pytest.raises(ValueError, match=r"^path must match "):
            CallbackIntegration(stack, "Warehouse").add_webhook(
                "Webhook", fn=own(stack, "From"), scheme=StripeSignature(secrets=[secret(stack)]), path=path
            )

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"rate_limit": 0}, "rate_limit must be 1 to 10000, got 0"),
            ({"burst_limit": 5_001}, "burst_limit must be 1 to 5000, got 5001"),
            ({"stage_name": "v-1"}, "stage_name must match .*, got 'v-1'"),
        ],
        ids=str,
    )
    def test_and_approval_pages_refuse_invalid_stage_settings(
        self, stack: Stack, options: dict[str, Any], message: str
    ) -> None:
        made = CallbackIntegration(stack, "Warehouse", fn=own(stack, "HandOver"))
        with pytest.raises(ValueError, match=f"^{message}"):
            made.add_webhook(
                "Webhook", fn=own(stack, "From"), scheme=StripeSignature(secrets=[secret(stack)]), **options
            )
        with pytest.raises(ValueError, match=f"^{message}"):
            made.add_approval_page("Review", **options)


class TestSchemes:
    def test_are_read_by_the_runtime_as_they_were_declared(self, stack: Stack) -> None:
        secrets = [secret(stack, "Old"), secret(stack, "New")]
        arns = tuple(each.secret_arn for each in secrets)
        declared = HmacSignature(
            secrets=secrets,
            header="X-Signature",
            hash="sha512",
            encoding="base64",
            prefix="v0=",
            timestamp_header="X-Time",
            template="v0:{timestamp}:{body}",
            tolerance=Duration.minutes(1),
        )

        read: Any = scheme_of(declared.to_json())
        assert (read.secrets, read.header, read.hash, read.encoding) == (arns, "X-Signature", "sha512", "base64")
        assert (read.prefix, read.timestamp_header, read.tolerance) == ("v0=", "X-Time", 60)
        assert read.template == "v0:{timestamp}:{body}"

    def test_of_standard_webhooks_need_secrets_only(self, stack: Stack) -> None:
        read = scheme_of(StandardWebhooks(secrets=[secret(stack)]).to_json())
        assert (type(read).__name__, read.tolerance) == ("StandardScheme", 300)

    def test_of_svix_paddle_and_adyen_are_declared(self, stack: Stack) -> None:
        svix: Any = scheme_of(StandardWebhooks(secrets=[secret(stack, "A")], header_prefix="svix").to_json())
        assert (type(svix).__name__, svix.header_prefix) == ("StandardScheme", "svix")
        assert type(scheme_of(PaddleSignature(secrets=[secret(stack, "B")]).to_json())).__name__ == "PaddleScheme"
        imported = secretsmanager.Secret.from_secret_name_v2(stack, "C", "adyen")
        declared = HmacSignature(secrets=[imported], header="HmacSignature", encoding="base64", key_encoding="hex")
        adyen: Any = scheme_of(declared.to_json())
        assert (adyen.encoding, adyen.key_encoding, adyen.time_unit) == ("base64", "hex", "s")

    def test_of_key_pairs_adyens_items_and_a_users_own_are_declared(self, stack: Stack) -> None:
        imported = secretsmanager.Secret.from_secret_name_v2(stack, "Key", "key")
        for declared, name in (
            (StandardWebhooks(secrets=[imported], version="v1a"), "KeyPairScheme"),
            (AdyenSignature(secrets=[imported]), "AdyenScheme"),
            (OwnSignature(secrets=[imported], function="checks.verify"), "OwnScheme"),
        ):
            assert type(scheme_of(declared.to_json())).__name__ == name

    def test_of_a_version_that_there_is_not_are_refused(self, stack: Stack) -> None:
        with pytest.raises(ValueError, match=r"^version must be one of v1, v1a, got 'v2'; v1a is for public keys"):
            StandardWebhooks(secrets=[secret(stack)], version="v2")

    @pytest.mark.parametrize("declared", [AdyenSignature, lambda **given: StandardWebhooks(version="v1a", **given)])
    def test_of_keys_in_another_form_take_no_generated_secret(self, stack: Stack, declared: Any) -> None:
        with pytest.raises(ValueError, match=r"got 0; put the provider's key into it, as the provider shows it$"):
            declared(secrets=[secretsmanager.Secret(stack, "Known", **_generated(password_length=32))])

    def test_of_a_users_own_name_a_function_in_its_folder(self, stack: Stack) -> None:
        via, received = CallbackIntegration(stack, "Bank"), own(stack, "From")
        scheme = OwnSignature(secrets=[secret(stack)], function="checks.verify")
        with pytest.raises(ValueError, match=r"^function of the scheme of webhook Hook must name a module in .*checks"):
            via.add_webhook("Hook", fn=received, scheme=scheme)
        with pytest.raises(ValueError, match=r"^function must be module.function, got 'verify'"):
            OwnSignature(secrets=[secret(stack, "Other")], function="verify")

    @pytest.mark.parametrize("kind", [StripeSignature, PaddleSignature, StandardWebhooks, _hmac])
    def test_configure_the_key_field_and_the_validity_of_a_previous_version(self, stack: Stack, kind: Any) -> None:
        read = scheme_of(kind(secrets=[secret(stack)]).to_json())
        assert (read.field, read.previous) == (None, 86_400)

        read = scheme_of(kind(secrets=[secret(stack, "Json")], field="key", previous_for=Duration.hours(1)).to_json())
        assert (read.field, read.previous) == ("key", 3_600)

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"field": " "}, "field must be the name of a JSON object's field, got ' '"),
            ({"previous_for": Duration.days(367)}, "previous_for must be 0 s to 31622400 s"),
        ],
    )
    def test_take_no_field_without_a_name_and_no_previous_version_for_ever(
        self, stack: Stack, wrong: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ValueError, match=f"^{message}"):
            StripeSignature(secrets=[secret(stack)], **wrong)

    @pytest.mark.parametrize(
        ("made", "message"),
        [
            (_generated(generate_string_key="key", secret_string_template="{}"), "field must name the key in secret"),
            (_generated(password_length=15), "the key in secret Test/Known must have 16 bytes or more, got 15"),
            ({"secret_string_value": SecretValue.unsafe_plain_text("short")}, "the key in secret Test/Known must have"),
        ],
    )
    def test_take_no_secret_of_which_is_known_that_it_signs_nothing(
        self, stack: Stack, made: dict[str, Any], message: str
    ) -> None:
        known = secretsmanager.Secret(stack, "Known", **made)

        with pytest.raises(ValueError, match=f"^{message}"):
            StripeSignature(secrets=[known])

    @pytest.mark.parametrize(
        ("made", "field"),
        [
            ({}, None),
            ({}, "key"),
            (_generated(password_length=16), None),
            (_generated(generate_string_key="key", secret_string_template="{}"), "key"),
            ({"secret_string_value": SecretValue.unsafe_plain_text("k" * 16)}, None),
        ],
    )
    def test_take_secrets_that_can_sign(self, stack: Stack, made: dict[str, Any], field: str | None) -> None:
        StripeSignature(secrets=[secretsmanager.Secret(stack, "Known", **made)], field=field)

    def test_of_standard_webhooks_measure_the_decoded_secret(self, stack: Stack) -> None:
        made = secretsmanager.Secret(stack, "Known", **_generated(password_length=16))

        with pytest.raises(ValueError, match="must have 16 bytes or more, got 12"):
            StandardWebhooks(secrets=[made])

    def test_without_a_secret_are_refused(self) -> None:
        for kind in (StripeSignature, StandardWebhooks):
            with pytest.raises(ValueError, match=r"^secrets must be 1 to 8, got 0; name those that may sign"):
                kind(secrets=[])
        with pytest.raises(ValueError, match=r"^secrets must be 1 to 8, got 0"):
            HmacSignature(secrets=[], header="X-Signature")

    def test_with_an_unsigned_time_are_refused(self, stack: Stack) -> None:
        with pytest.raises(ValueError, match=r"^template must have {timestamp} once with a timestamp_header"):
            HmacSignature(secrets=[secret(stack)], header="X-Signature", timestamp_header="X-Time")

    def test_with_a_part_that_nothing_fills_in_are_refused(self, stack: Stack) -> None:
        with pytest.raises(
            ValueError, match=r"^placeholders of template must be {body} or {timestamp}, got {id}; noth"
        ):
            HmacSignature(secrets=[secret(stack)], header="X-Signature", template="{id}.{body}")

    @pytest.mark.parametrize("seconds", [0, 86_401])
    def test_take_a_tolerance_in_range(self, stack: Stack, seconds: int) -> None:
        with pytest.raises(ValueError, match=rf"^tolerance must be 1 s to 86400 s, got {seconds} s"):
            StripeSignature(secrets=[secret(stack)], tolerance=Duration.seconds(seconds))


class TestEvents:
    def test_keep_undeliverable_events_and_raise_an_alarm(self, cloud: Cloud) -> None:
        (target,) = cloud.one("Warehouse/Scans").properties["Targets"]
        assert target["Arn"] == "${FromCarrier/Function.Arn}"
        assert target["DeadLetterConfig"] == {"Arn": EVENT_DEAD_LETTERS}
        assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 86_400, "MaximumRetryAttempts": 185}
        for function in ("FromCarrier", "Warehouse/Direct"):
            invoked = cloud.one(f"{function}/Function/EventInvokeConfig").properties
            assert invoked["DestinationConfig"] == {"OnFailure": {"Destination": EVENT_DEAD_LETTERS}}
            assert invoked["MaximumRetryAttempts"] == 2
        alarm = cloud.one("Warehouse/Alarms/EventDeadLetterQueue").properties
        assert alarm["Dimensions"][0]["Value"] == "${Warehouse/EventDeadLetters.QueueName}"

    def test_of_several_patterns_may_go_to_one_function(self, stack: Stack) -> None:
        via, received, bus = CallbackIntegration(stack, "Carrier"), own(stack, "From"), events.EventBus(stack, "Bus")
        for name in ("One", "Two"):
            via.add_event_rule(name, bus=bus, pattern=events.EventPattern(source=[name]), fn=received)

        cloud = Cloud(stack)
        assert [r.path for r in cloud.of_type("AWS::Lambda::EventInvokeConfig") if r.path.startswith("From/")] == [
            "From/Function/EventInvokeConfig"
        ]
        for name in ("One", "Two"):
            assert cloud.one(f"Carrier/{name}").properties["EventBusName"] == "${Bus}"

    def test_need_no_queue_where_none_are_received(self, stack: Stack) -> None:
        made = CallbackIntegration(stack, "Warehouse")

        assert (made.event_dead_letter_queue, made.event_dead_letter_queue_alarm, len(made.alarms)) == (None, None, 7)
        assert "Warehouse/EventDeadLetters" not in Cloud(stack).resources

    def test_that_are_lost_can_be_kept_under_a_customers_key(self, regional_stack: Stack) -> None:
        key = kms.Key(regional_stack, "Key")
        CallbackIntegration(regional_stack, "Carrier", encryption_key=key).add_event_rule(
            "Scans",
            bus=events.EventBus(regional_stack, "Bus"),
            pattern=events.EventPattern(source=["carrier"]),
            fn=own(regional_stack, "From"),
        )

        cloud = Cloud(regional_stack)
        assert cloud.one("Carrier/EventDeadLetters").properties["KmsMasterKeyId"] == "${Key.Arn}"
        (bus,) = [
            statement
            for statement in cloud.one("Key").properties["KeyPolicy"]["Statement"]
            if statement["Principal"] == {"Service": "events.amazonaws.com"}
        ]
        assert bus["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
        assert bus["Condition"] == {"StringEquals": {"aws:SourceAccount": "111111111111"}}

    def test_that_are_lost_under_an_imported_key_are_warned_of_once(self, regional_stack: Stack) -> None:
        """Its policy is its owner's to change; without it EventBridge could not send to the dead-letter queue."""
        arn = "arn:aws:kms:eu-west-1:111111111111:key/1234abcd-12ab-34cd-56ef-1234567890ab"
        via = CallbackIntegration(
            regional_stack, "Carrier", encryption_key=kms.Key.from_key_arn(regional_stack, "Key", arn)
        )
        via.add_direct_receiver("Direct")
        warnings = Annotations.from_stack(regional_stack)
        assert not warnings.find_warning("*", Match.string_like_regexp("cdk-sagas-imported-key"))
        bus = events.EventBus(regional_stack, "Bus")
        for name in ("Scans", "Returns"):
            pattern = events.EventPattern(source=[name])
            via.add_event_rule(name, bus=bus, pattern=pattern, fn=own(regional_stack, f"From{name}"))

        warnings = Annotations.from_stack(regional_stack)
        (warning,) = warnings.find_warning("*", Match.string_like_regexp("cdk-sagas-imported-key"))
        assert "aws:SourceAccount of this account, or an event that it cannot deliver is lost" in str(
            warning.entry.data
        )


class TestTheApprovalPage:
    def test_is_open_to_everyone_with_a_link(self, cloud: Cloud) -> None:
        methods = [m for m in cloud.of_type("AWS::ApiGateway::Method") if m.path.startswith("Warehouse/Review/")]
        assert sorted(m.properties["HttpMethod"] for m in methods) == ["GET", "HEAD", "POST"]
        for method in methods:
            assert method.properties["AuthorizationType"] == "NONE"
            assert "${Warehouse/Review/Page/Function.Arn}" in method.properties["Integration"]["Uri"]

    def test_keeps_links_out_of_traces_and_logs(self, cloud: Cloud) -> None:
        """A link is a credential, and its query is the link: who reads it can decide."""
        stage = cloud.one("Warehouse/Review/RestApi/DeploymentStage.v1").properties
        assert stage["TracingEnabled"] is False
        assert "querystring" not in stage["AccessLogSetting"]["Format"].lower()
        logging = cloud.one("Warehouse/Review/WebAcl/Logging", "AWS::WAFv2::LoggingConfiguration").properties
        assert {"QueryString": {}} in logging["RedactedFields"]

    def test_and_the_dispatcher_share_a_generated_secret(self, cloud: Cloud) -> None:
        generated = cloud.one("Warehouse/Review/Secret", "AWS::SecretsManager::Secret").properties
        assert generated["GenerateSecretString"]["PasswordLength"] >= 32
        for function in ("HandOver", "Warehouse/Review/Page"):
            assert environment(cloud, function)[Env.APPROVAL_SECRET] == "${Warehouse/Review/Secret}"

    def test_has_its_address_where_links_are_made(self, cloud: Cloud) -> None:
        url = environment(cloud, "HandOver")[Env.APPROVAL_URL]
        assert url.endswith("/${Warehouse/Review/RestApi/DeploymentStage.v1}/")

    @pytest.mark.parametrize("url", ["https://approve.shop.example", "https://approve.shop.example:8443/a/b/"])
    def test_has_an_address_of_the_users_own(self, stack: Stack, url: str) -> None:
        made = CallbackIntegration(stack, "Reviews", fn=own(stack, "Send"))

        assert made.add_approval_page("Review", url=url).url == url
        assert environment(Cloud(stack), "Send")[Env.APPROVAL_URL] == url

    @pytest.mark.parametrize(
        "url", ["", "http://a.example", "https://a.example/?x=1", "https://a.example/#x", "a.example"]
    )
    def test_has_no_address_that_no_link_could_have(self, stack: Stack, url: str) -> None:
        made = CallbackIntegration(stack, "Reviews", fn=own(stack, "Send"))

        with pytest.raises(ValueError, match=r"^url must match .*; give an https address without a query"):
            made.add_approval_page("Review", url=url)

    def test_has_the_validity_of_links_of_the_previous_secret(self, stack: Stack) -> None:
        made = CallbackIntegration(stack, "Reviews", fn=own(stack, "Send"))
        made.add_approval_page("Review", previous_for=Duration.days(2))

        assert environment(Cloud(stack), "Reviews/Review/Page")[Env.APPROVAL_PREVIOUS_SECONDS] == "172800"

    def test_takes_no_time_for_links_of_the_secret_before_that_is_out_of_range(self, stack: Stack) -> None:
        made = CallbackIntegration(stack, "Reviews", fn=own(stack, "Send"))

        with pytest.raises(ValueError, match=r"^previous_for must be 0 s to 31622400 s"):
            made.add_approval_page("Review", previous_for=Duration.days(367))

    def test_writes_no_link_into_a_log(self, cloud: Cloud) -> None:
        stage = cloud.one("Warehouse/Review/RestApi/DeploymentStage.v1").properties
        assert "querystring" not in stage["AccessLogSetting"]["Format"].lower()
        assert stage["MethodSettings"][0]["DataTraceEnabled"] is False

    def test_needs_a_function_that_sends_links(self, stack: Stack) -> None:
        with pytest.raises(ValueError, match=r"^Test/Carrier needs fn for its approval page Review, got none"):
            CallbackIntegration(stack, "Carrier").add_approval_page("Review")

    def test_is_there_once(self, stack: Stack) -> None:
        made = CallbackIntegration(stack, "Reviews", fn=own(stack, "Send"))
        made.add_approval_page("Review")
        with pytest.raises(ValueError, match=r"^Test/Reviews must have one approval page, got Other and Review"):
            made.add_approval_page("Other")
