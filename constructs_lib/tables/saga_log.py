"""SagaLog: one row per saga and step."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.shared.accepted import AnyKey
from constructs_lib.shared.types import checked
from constructs_lib.tables.stateful_table import StatefulTable
from saga_runtime.protocol import LogAttribute


class SagaLog(StatefulTable):
    """The saga log: one row per saga and step, written in the same transaction as the step's effect."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        encryption_key: AnyKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(
            scope,
            id,
            partition_key=LogAttribute.SAGA_ID,
            sort_key=LogAttribute.STEP,
            time_to_live=LogAttribute.EXPIRATION,
            encryption_key=encryption_key,
            removal_policy=removal_policy,
        )

    @checked
    def grant_commit(self, grantee: iam.IGrantable) -> iam.Grant:
        """Write a step's row in a transaction, and read it."""
        return self._grant(grantee, "dynamodb:PutItem", "dynamodb:GetItem")

    @checked
    def grant_external(self, grantee: iam.IGrantable) -> iam.Grant:
        """Record before a call that there may be one, and its outcome afterwards."""
        return self._grant(grantee, "dynamodb:PutItem", "dynamodb:GetItem", "dynamodb:UpdateItem")

    @checked
    def grant_compensate(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read a step's row, write a tombstone, or mark it undone."""
        return self._grant(grantee, "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem")

    @checked
    def grant_resolve(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read a saga's rows, and write a person's word into one of them."""
        return self._grant(
            grantee,
            "dynamodb:Query",
            "dynamodb:GetItem",
            "dynamodb:PutItem",
            "dynamodb:UpdateItem",
            "dynamodb:DeleteItem",
        )

    @checked
    def grant_query(self, grantee: iam.IGrantable) -> iam.Grant:
        """List a saga's rows."""
        return self._grant(grantee, "dynamodb:Query")
