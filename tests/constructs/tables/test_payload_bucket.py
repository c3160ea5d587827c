"""The payload bucket: what it is made of, who may do what to it, and what travels in spite of it."""

from __future__ import annotations

import pytest
from aws_cdk import Acknowledgment, Duration, RemovalPolicy, Stack, Validations
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from cdk_nag import AwsSolutionsChecks
from constructs import IConstruct

from constructs_lib import (
    IdempotencyTable,
    Operation,
    PayloadBucket,
    SagaStateMachine,
    Step,
    StepFunction,
    TransactionApi,
)
from constructs_lib.saga.synthesis.expression_scan import (
    looks_into_request,
    outputs_looked_into,
    request_paths,
    texts_of,
)
from constructs_lib.tables import payload_bucket
from saga_runtime.protocol import INLINE_BODY_BYTES, MAX_BODY_BYTES, MAX_PAYLOAD_BYTES, Env
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.sagas import FUNCTIONS, plain_function

BUCKET = "Payloads/Bucket"
GATEKEEPER = "Api/Gatekeeper/moves/Function"
POLICY = "AWS::S3::BucketPolicy"


def saga(stack: Stack, payloads: PayloadBucket | None, *, when: str | None = None) -> SagaStateMachine:
    """A saga of two steps, the first of which can be undone."""
    return SagaStateMachine(
        stack,
        "Saga",
        requests=IdempotencyTable(stack, "Requests"),
        payloads=payloads,
        steps=[
            Step.atomic("Make", fn=own(stack, "Make"), compensate=own(stack, "Undo"), when=when),
            Step.atomic("Move", fn=own(stack, "Move")),
        ],
    )


def own(stack: Stack, id: str) -> StepFunction:
    """A step function of ours."""
    return StepFunction(stack, id, code=FUNCTIONS, handler="plain.handler")


def api(stack: Stack, machine: SagaStateMachine, max_body_bytes: int = 1_000_000) -> TransactionApi:
    """An API with one operation."""
    return TransactionApi(stack, "Api", operations={"moves": Operation(saga=machine, max_body_bytes=max_body_bytes)})


class TestTheBucket:
    def test_is_encrypted_closed_and_expires(self, stack: Stack) -> None:
        PayloadBucket(stack, "Payloads", keep_days=500)

        bucket = Cloud(stack).one(BUCKET).properties
        (rule,) = bucket["LifecycleConfiguration"]["Rules"]
        (encryption,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert encryption["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
        assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
        assert bucket["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
        assert (rule["Status"], rule["ExpirationInDays"]) == ("Enabled", 500)
        assert "VersioningConfiguration" not in bucket

    def test_refuses_requests_without_tls(self, stack: Stack) -> None:
        PayloadBucket(stack, "Payloads")

        (policy,) = Cloud(stack).of_type(POLICY)
        (statement,) = policy.properties["PolicyDocument"]["Statement"]
        assert (statement["Effect"], statement["Action"]) == ("Deny", "s3:*")
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}

    @pytest.mark.parametrize(
        ("policy", "kept"), [(RemovalPolicy.RETAIN, "Retain"), (RemovalPolicy.DESTROY, "Delete")], ids=str
    )
    def test_follows_its_removal_policy(self, stack: Stack, policy: RemovalPolicy, kept: str) -> None:
        PayloadBucket(stack, "Payloads", removal_policy=policy)

        assert Cloud(stack).one(BUCKET).raw["DeletionPolicy"] == kept

    def test_takes_a_key_and_a_bucket_for_access_logs(self, stack: Stack) -> None:
        key, access = kms.Key(stack, "Key"), s3.Bucket(stack, "Access")
        PayloadBucket(stack, "Payloads", encryption_key=key, access_logs=access)

        bucket = Cloud(stack).one(BUCKET).properties
        (encryption,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert encryption["ServerSideEncryptionByDefault"]["KMSMasterKeyID"] == "${Key.Arn}"
        assert encryption["BucketKeyEnabled"] is True
        assert bucket["LoggingConfiguration"]["DestinationBucketName"] == "${Access}"

    @pytest.mark.parametrize("days", [29, 4_001])
    def test_keeps_for_a_time_in_range(self, stack: Stack, days: int) -> None:
        with pytest.raises(ValueError, match=f"keep_days must be 30 to 4000, got {days}"):
            PayloadBucket(stack, "Payloads", keep_days=days)

    def test_outlasts_the_log_by_default(self, stack: Stack) -> None:
        saga(stack, PayloadBucket(stack, "Payloads"))

    def test_must_outlast_the_log(self, stack: Stack) -> None:
        payloads = PayloadBucket(stack, "Payloads", keep_days=399)

        with pytest.raises(ValueError, match="keep_days of payloads must outlast log_retention_days, got 399 for 400"):
            saga(stack, payloads)


class TestGrants:
    OBJECTS = "${Payloads/Bucket.Arn}/*"

    def test_are_one_action_each(self, stack: Stack) -> None:
        payloads, reader, writer = PayloadBucket(stack, "Payloads"), own(stack, "Reader"), own(stack, "Writer")
        payloads.grant_read(reader)
        payloads.grant_write(writer)

        assert self._permissions(Cloud(stack), "Reader") == {("s3:GetObject", self.OBJECTS)}
        assert self._permissions(Cloud(stack), "Writer") == {("s3:PutObject", self.OBJECTS)}

    def test_include_the_key(self, stack: Stack) -> None:
        payloads = PayloadBucket(stack, "Payloads", encryption_key=kms.Key(stack, "Key"))
        reader, writer = own(stack, "Reader"), own(stack, "Writer")
        payloads.grant_read(reader)
        payloads.grant_write(writer)

        assert ("kms:Decrypt", "${Key.Arn}") in self._permissions(Cloud(stack), "Reader")
        assert ("kms:GenerateDataKey", "${Key.Arn}") in self._permissions(Cloud(stack), "Writer")

    def test_are_for_the_gatekeeper_and_the_steps_and_not_the_state_machine(self, stack: Stack) -> None:
        api(stack, saga(stack, PayloadBucket(stack, "Payloads")))

        cloud = Cloud(stack)
        both = {("s3:GetObject", self.OBJECTS), ("s3:PutObject", self.OBJECTS)}
        for role in ("Make", "Undo", "Move", "Api/Gatekeeper/moves"):
            assert both <= self._permissions(cloud, role), role
        for role in ("Saga/StateMachine", "Saga/Recovery"):
            assert not [action for action, _ in self._permissions(cloud, role) if action.startswith("s3:")], role

    @staticmethod
    def _permissions(cloud: Cloud, role: str) -> set[tuple[str, str]]:
        found = {p for s in cloud.statements() if s.role == f"{role}/Role" for p in s.permissions}
        return {(action, resource) for action, resource in found if action.startswith(("s3:", "kms:"))}


class TestFindings:
    def test_do_not_arise_with_a_bucket(self, stack: Stack) -> None:
        saga(stack, PayloadBucket(stack, "Payloads"))

        assert not self._found(stack)

    @pytest.mark.parametrize("rule", ["AwsSolutions-S1", "AwsSolutions-IAM5["])
    def test_every_acknowledgement_is_needed(self, stack: Stack, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
        class Forgetful:
            @staticmethod
            def of(scope: IConstruct) -> Forgetful:
                made = Forgetful()
                made.scope = scope
                return made

            scope: IConstruct

            def acknowledge(self, *acknowledgments: Acknowledgment) -> None:
                Validations.of(self.scope).acknowledge(*[a for a in acknowledgments if not a.id.startswith(rule)])

        monkeypatch.setattr(payload_bucket, "Validations", Forgetful)
        saga(stack, PayloadBucket(stack, "Payloads"))

        found = self._found(stack)
        assert found
        assert all(name.startswith(rule) for name in found)

    @staticmethod
    def _found(stack: Stack) -> set[str]:
        return {violation.rule_name for violation in AwsSolutionsChecks().validate_scope(stack).violations}


class TestTheFrontDoor:
    def test_has_the_bucket_in_its_environment(self, stack: Stack) -> None:
        api(stack, saga(stack, PayloadBucket(stack, "Payloads")))

        variables = Cloud(stack).one(GATEKEEPER).properties["Environment"]["Variables"]
        assert variables[Env.PAYLOADS] == f"${{{BUCKET}}}"
        assert variables[Env.INLINE_BODY_BYTES] == str(INLINE_BODY_BYTES)
        assert variables[Env.MAX_BODY_BYTES] == "1000000"

    def test_has_no_bucket_by_default(self, stack: Stack) -> None:
        api(stack, saga(stack, None), 1_000)

        variables = Cloud(stack).one(GATEKEEPER).properties["Environment"]["Variables"]
        assert not {Env.PAYLOADS, Env.INLINE_BODY_BYTES} & set(variables)

    def test_takes_no_larger_body_without_a_bucket(self, stack: Stack) -> None:
        with pytest.raises(ValueError, match=r"max_body_bytes .* got 65537; .*payloads=PayloadBucket"):
            Operation(saga=saga(stack, None), max_body_bytes=MAX_BODY_BYTES + 1)

    def test_accepts_up_to_the_payload_limit_of_a_function(self, stack: Stack) -> None:
        machine = saga(stack, PayloadBucket(stack, "Payloads"))

        Operation(saga=machine, max_body_bytes=MAX_PAYLOAD_BYTES)
        with pytest.raises(ValueError, match=f"1 to {MAX_PAYLOAD_BYTES}, got {MAX_PAYLOAD_BYTES + 1}"):
            Operation(saga=machine, max_body_bytes=MAX_PAYLOAD_BYTES + 1)

    def test_refuses_a_body_limit_that_expressions_could_not_read(self, stack: Stack) -> None:
        machine = saga(stack, PayloadBucket(stack, "Payloads"), when="$request.large")

        with pytest.raises(ValueError, match=r"read the request, got 65537 with \['Make'\]"):
            Operation(saga=machine, max_body_bytes=MAX_BODY_BYTES + 1)

    def test_keeps_every_body_inline_that_expressions_read(self, stack: Stack) -> None:
        api(stack, saga(stack, PayloadBucket(stack, "Payloads"), when="$request.large"), MAX_BODY_BYTES)

        variables = Cloud(stack).one(GATEKEEPER).properties["Environment"]["Variables"]
        assert variables[Env.INLINE_BODY_BYTES] == str(MAX_BODY_BYTES)


class TestWhatExpressionsLookInto:
    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("$outputs", set()),
            ("{% $outputs %}", set()),
            ('{"all": $outputs, "quote": $outputs.Quote}', set()),
            ("$exists($outputs.Quote)", set()),
            ("{% $outputs.Quote %}", set()),
            ("$outputs.Quote.total", {"Quote"}),
            ("$outputs.Quote[0]", {"Quote"}),
            ('{"total": $outputs.Quote.total, "pay": $outputs.Pay}', {"Quote"}),
            ('$lookup($outputs.Quote, "total")', {"Quote"}),
            ('$lookup($outputs, "Quote").total', {"Quote", "Pay"}),
            ("$merge([$outputs.Quote, $outputs.Pay])", {"Quote", "Pay"}),
            ("$outputs.*.total", {"Quote", "Pay"}),
            ("$outputs.Unknown.total", {"Quote", "Pay"}),
            ("$request.total", set()),
        ],
    )
    def test_in_outputs_is_found(self, text: str, found: set[str]) -> None:
        assert outputs_looked_into([text], ["Quote", "Pay"]) == found

    @pytest.mark.parametrize(
        ("text", "looks"),
        [
            ("$request.a", True),
            ("$parse($states.context.Execution.Input.request).a", True),
            ("$parse($states.context.Execution.Input.`request`).a", True),
            ("$parse($states.input.request).a", True),
            ("$states.context.Execution.Input.saga_id", False),
            ("$requests.a", False),
            ("$outputs.A", False),
            ("", False),
        ],
    )
    def test_in_the_request_is_found(self, text: str, looks: bool) -> None:
        assert looks_into_request([text]) is looks

    def test_is_sought_in_everything_that_a_step_declares(self, stack: Stack) -> None:
        function = plain_function(stack, "Function", timeout=Duration.seconds(3))
        branches = [[Step.atomic("Deep", fn=function, when="$request.deep")], [Step.atomic("Flat", fn=function)]]
        wrapped = Step.parallel("Both", branches=branches)

        assert "$request.deep" in set(texts_of([wrapped]))
        assert looks_into_request(texts_of([wrapped]))
        assert request_paths([wrapped]) == (("deep",),)
