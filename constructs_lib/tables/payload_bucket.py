"""PayloadBucket: where payloads live that are too large to travel."""

from __future__ import annotations

from typing import Final

from aws_cdk import Acknowledgment, Duration, RemovalPolicy, Stack, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from constructs_lib.shared.accepted import AnyKey
from constructs_lib.shared.arguments import require_between
from constructs_lib.shared.types import checked

DEFAULT_KEEP_DAYS: Final = 430
"""Saga logs keep their rows for 400 days by default. DynamoDB may delete them days late; they still name objects."""


class PayloadBucket(Construct):
    """Requests and outputs that are too large to travel: stored once, and referred to by their content.

    Creates an S3 bucket: encrypted (SSE-S3, or a key of your own), closed to the public, TLS only, without versions,
    objects expiring after ``keep_days``, retained.

    Guaranteed: an object's key holds the hash of its bytes, and a reader checks it. Writing the same payload twice
    makes one object, and no reference ever leads to other bytes than those it was made for. An object is written
    before the record or row that names it; where a process dies in between, the object expires unread.
    Not guaranteed: that a payload outlives ``keep_days``, counted from its last write. A saga that is parked for longer
    than that has lost what it referred to.

    Example::

        saga = SagaStateMachine(self, "Transfer", requests=requests, payloads=PayloadBucket(self, "Payloads"), steps=…)

    Args:
        scope: parent construct.
        id: construct id.
        keep_days: days after which an object expires; 30 to 4000, 430 by default. Must not be less than the
            ``log_retention_days`` of the sagas that use the bucket.
        encryption_key: a KMS key of your own instead of S3's.
        access_logs: a bucket that S3 writes its access logs to; none by default.
        removal_policy: retained by default. S3 does not delete a bucket that has objects in it.

    Attributes:
        bucket: the bucket.
        keep_days: as given.
        encryption_key: the customer's key, if one was given.

    Raises:
        ValueError: for an argument out of range, naming it, its value and the remedy.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        keep_days: int = DEFAULT_KEEP_DAYS,
        encryption_key: AnyKey | None = None,
        access_logs: s3.IBucket | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        require_between("keep_days", keep_days, at_least=30, at_most=4_000)
        super().__init__(scope, id)
        self.keep_days = keep_days
        self.encryption_key = encryption_key
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            encryption=s3.BucketEncryption.KMS if encryption_key is not None else s3.BucketEncryption.S3_MANAGED,
            encryption_key=encryption_key,
            bucket_key_enabled=True if encryption_key is not None else None,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            versioned=False,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="expire",
                    expiration=Duration.days(keep_days),
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                )
            ],
            server_access_logs_bucket=access_logs,
            removal_policy=removal_policy,
        )
        if access_logs is None:
            Validations.of(self.bucket).acknowledge(
                Acknowledgment(
                    id="AwsSolutions-S1",
                    reason="Only the saga's own functions may read or write objects, each by an exact grant, and each "
                    "access leads back to a saga by its key; access_logs=… names a log bucket where one is required.",
                )
            )

    @checked
    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read payloads (``s3:GetObject``, and ``kms:Decrypt`` on your key): neither list nor delete."""
        if self.encryption_key is not None:
            self.encryption_key.grant(grantee, "kms:Decrypt")
        return self._grant(grantee, "s3:GetObject")

    @checked
    def grant_write(self, grantee: iam.IGrantable) -> iam.Grant:
        """Write payloads (``s3:PutObject``, and ``kms:GenerateDataKey`` on your key), and nothing else."""
        if self.encryption_key is not None:
            self.encryption_key.grant(grantee, "kms:GenerateDataKey")
        return self._grant(grantee, "s3:PutObject")

    def _grant(self, grantee: iam.IGrantable, action: str) -> iam.Grant:
        grant = iam.Grant.add_to_principal(
            grantee=grantee, actions=[action], resource_arns=[self.bucket.arn_for_objects("*")]
        )
        principal = grantee.grant_principal
        holder = principal if isinstance(principal, Construct) else grantee
        if isinstance(holder, Construct):
            Validations.of(holder).acknowledge(
                Acknowledgment(
                    id=f"AwsSolutions-IAM5[Resource::<{self._logical_id}.Arn>/*]",
                    reason="An object's key is made of a saga's id and a hash, unknown at deploy time; the "
                    "grant is one action on the objects of this one bucket.",
                )
            )
        return grant

    @property
    def _logical_id(self) -> str:
        return str(Stack.of(self).resolve(self.bucket.bucket_name)["Ref"])
