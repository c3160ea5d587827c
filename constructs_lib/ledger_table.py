"""LedgerTable: accounts and immutable entries."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib._ledger_use import may_post
from constructs_lib._tables import StatefulTable
from constructs_lib._types import checked
from saga_runtime.protocol import Env, LedgerAttribute


class LedgerTable(StatefulTable):
    """A double-entry ledger: accounts with balances, and an immutable entry for each change of one.

    Creates a DynamoDB table (on demand, encrypted with the AWS managed key, point-in-time recovery, deletion
    protection, retained). Accounts and postings are written by step functions with ``saga_runtime.ledger_store``.

    Guaranteed by what the runtime writes: every posting nets to zero, a balance and its entry change in one
    transaction, no balance falls below zero or rises above its cap, and one step key posts at most once per account.
    Not guaranteed: anything about writes that others make to the table; grant it to step functions only.

    Limits: an account takes some 15 to 50 postings per second (simulated): concurrent ones conflict and are tried
    again, 8 times. DynamoDB's capacity of 500 transactional updates per second and item is not reached.

    Args:
        scope: parent construct.
        id: construct id.
        encryption_key: a KMS key of your own instead of the AWS managed one.
        removal_policy: retained by default; anything else also turns deletion protection off.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        encryption_key: kms.IKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(
            scope,
            id,
            partition_key=LedgerAttribute.PK,
            sort_key=LedgerAttribute.SK,
            encryption_key=encryption_key,
            removal_policy=removal_policy,
        )

    @property
    def environment(self) -> Mapping[str, str]:
        """What a step function's environment needs for ``Ledger.from_env()``."""
        return {Env.LEDGER_TABLE.value: self.table.table_name}

    def grant_transfer(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read accounts, and post to them in transactions. No delete, no scan, no query."""
        may_post(grantee)
        return self._grant(grantee, "dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:UpdateItem")
