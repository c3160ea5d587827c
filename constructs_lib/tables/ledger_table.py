"""LedgerTable: accounts and immutable entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aws_cdk import RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.functions.function_options import FunctionOptions
from constructs_lib.functions.ledger_use import may_post
from constructs_lib.functions.runtime_function import RuntimeFunction
from constructs_lib.monitoring.alarms import Runbook, SagaAlarm, runtime_metric
from constructs_lib.shared.accepted import AnyKey
from constructs_lib.shared.manifest import Manifest
from constructs_lib.shared.manifest_format import Part
from constructs_lib.shared.service_names import service_of
from constructs_lib.shared.stacks import require_same_place
from constructs_lib.shared.types import checked
from constructs_lib.tables.interfaces import ILedgerTable
from constructs_lib.tables.ledger_sweeper import LedgerSweeper
from constructs_lib.tables.stateful_table import StatefulTable, imported_table, sparse_index
from saga_runtime.errors import Invalid
from saga_runtime.ledger.terms import CollectingAccounts, LedgerTerms
from saga_runtime.money import Unit
from saga_runtime.protocol import DUE_INDEX, Env, LedgerAttribute, Metric

_TERMS_BYTES: Final = 2_048
"""Half of what all environment variables of a function may have."""
_PERIOD_MINUTES: Final = 15


class LedgerTable(StatefulTable):
    """A double-entry ledger: accounts with balances, and an immutable entry for each change of one.

    Creates a DynamoDB table (on demand, encrypted with the AWS managed key, point-in-time recovery, deletion
    protection, retained), and an alarm. Functions read and post with ``saga_runtime.Ledger``. With ``holds`` or
    ``collecting`` it also creates a sparse index of what becomes due, and the sweeper: a function, its schedule and its
    alarm.

    Guaranteed by what the runtime writes: every posting nets to zero in each unit, a balance and its entry change in
    one transaction, no balance falls below zero or below what is held or rises above its cap, one step key posts at
    most once per account, and a hold is captured or released once.
    Not guaranteed: anything about writes that others make to the table; grant it to step functions only.

    Limits: an account takes some 15 to 50 postings per second (simulated): concurrent ones conflict and are tried
    again, 8 times. DynamoDB's capacity of 500 transactional updates per second and item is not reached. Declare
    accounts that are credited more often as ``collecting``.

    Args:
        scope: parent construct.
        id: construct id.
        units: units in addition to the ISO 4217 currencies. An undeclared unit is refused.
        collecting: accounts that many postings credit at once. They have no cap.
        holds: whether amounts may be held; False by default.
        encryption_key: a KMS key of your own instead of the AWS managed one.
        function_options: ``FunctionOptions`` for the functions and log groups of this construct.
        removal_policy: retained by default; anything else also turns deletion protection off.

    Attributes:
        terms: what was declared.
        suspense_alarm: an account could not take a refund, or what was collected for it: it waits in the suspense
            account. A ledger of another app has it there.
        sweeper: releases holds whose time is over, and moves what collecting accounts received in a window that is over
            to the accounts; None without ``holds`` and ``collecting``.

    Raises:
        ValueError: for units, prefixes or shards that contradict each other, or too many to declare.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        units: Sequence[Unit] = (),
        collecting: Sequence[CollectingAccounts] = (),
        holds: bool = False,
        encryption_key: AnyKey | None = None,
        function_options: FunctionOptions | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        self.terms = _terms(units, collecting, holds)
        due = sparse_index(LedgerAttribute.DUE_SHARD, LedgerAttribute.DUE_AT)
        super().__init__(
            scope,
            id,
            partition_key=LedgerAttribute.PK,
            sort_key=LedgerAttribute.SK,
            global_secondary_indexes=[due] if self.terms.need_sweeper else None,
            encryption_key=encryption_key,
            removal_policy=removal_policy,
        )
        if function_options is not None:
            function_options.apply_to(self)
        Manifest.of(self).add(Part.LEDGERS, table=self.table_name)
        self.suspense_alarm = SagaAlarm(
            self,
            "Suspense",
            runbook=Runbook.LEDGER_SUSPENSE,
            text="An account could not take a refund, or what was collected for it: see the suspense account",
            metric=runtime_metric(Metric.SUSPENDED, self.table_name, "Sum", _PERIOD_MINUTES),
        )
        self.sweeper: LedgerSweeper | None = None
        if self.terms.need_sweeper:
            self.sweeper = LedgerSweeper(
                self, "Sweeper", environment=self.environment, index_arn=self._index_arn, removal_policy=removal_policy
            )
            self.grant_post(self.sweeper.function)

    @staticmethod
    @checked
    def from_table_name(
        scope: Construct,
        id: str,
        *,
        table_name: str,
        units: Sequence[Unit] = (),
        collecting: Sequence[CollectingAccounts] = (),
        holds: bool = False,
        encryption_key: AnyKey | None = None,
    ) -> ILedgerTable:
        """Import a ledger that another stack or app creates, to post to it.

        Nothing is created. The sweeper is that of the ledger's own app: declare here what is declared there, since the
        functions of both follow it.

        Args:
            scope: parent construct.
            id: construct id.
            table_name: of the ledger's table, in this account and region.
            units: as there.
            collecting: as there.
            holds: as there.
            encryption_key: the ledger's KMS key, if it has one of its own.

        Raises:
            ValueError: for a blank name, or units, prefixes or shards that contradict each other.
        """
        return _ImportedLedger(scope, id, table_name, _terms(units, collecting, holds), encryption_key)

    @property
    def _index_arn(self) -> str:
        return f"{self.table_arn}/index/{DUE_INDEX}"

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment of a step function for ``Ledger.from_env()``."""
        environment: dict[str, str] = {Env.LEDGER_TABLE: self.table.table_name}
        if self.terms != LedgerTerms():
            environment[Env.LEDGER_TERMS] = self.terms.to_json()
        return environment

    def metric_oldest_unswept(self) -> cloudwatch.Metric:
        """Seconds for which the oldest hold or shard has been due: the maximum of 5 minutes.

        Raises:
            ValueError: if this ledger has no sweeper.
        """
        if self.sweeper is None:
            raise ValueError(
                f"{self.node.path} must have a sweeper for this metric, got none; declare holds or collecting, or take "
                "the metric in the app that creates the ledger"
            )
        return runtime_metric(Metric.OLDEST_UNSWEPT, service_of(self.sweeper.function), "Maximum")

    def metric_suspended(self) -> cloudwatch.Metric:
        """Amounts that an account could not take, posted to the suspense account by any function: the sum of 5 minutes.

        What is planned again after a conflict counts again.
        """
        return runtime_metric(Metric.SUSPENDED, self.table_name, "Sum")

    @checked
    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read accounts and holds: BatchGetItem. No write, no scan, no query."""
        return self._grant(grantee, "dynamodb:BatchGetItem")

    @checked
    def grant_audit(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read the whole ledger, and the stack's outputs: what ``cdk-sagas trial-balance`` needs."""
        Manifest.of(self).grant_read(grantee)
        return self._grant(grantee, "dynamodb:Scan")

    @checked
    def grant_post(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read accounts and holds, and post to them in transactions: BatchGetItem, PutItem, UpdateItem.

        No delete, no scan, no query.
        """
        if isinstance(grantee, RuntimeFunction):
            require_same_place(
                self,
                f"grantee of {self.node.id}.grant_post",
                grantee,
                "move one to the other: a posting is a transaction",
            )
        may_post(grantee, self.table_name, self.node.path)
        if isinstance(grantee, Construct):  # perhaps in another stack, whose doctor compares with this ledger
            Manifest.of(grantee).add(Part.LEDGERS, table=self.table_name)
        return self._grant(grantee, "dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:UpdateItem")


class _ImportedLedger(LedgerTable):
    """A ledger of another stack or app."""

    def __init__(
        self, scope: Construct, id: str, table_name: str, terms: LedgerTerms, encryption_key: AnyKey | None
    ) -> None:
        Construct.__init__(self, scope, id)
        self.terms = terms
        self.encryption_key = encryption_key
        self.table = imported_table(self, table_name, encryption_key)
        self.sweeper = None


def _terms(units: Sequence[Unit], collecting: Sequence[CollectingAccounts], holds: bool) -> LedgerTerms:
    try:
        terms = LedgerTerms(units=tuple(units), collecting=tuple(collecting), holds=holds)
    except Invalid as error:
        raise ValueError(error.message) from None
    size = len(terms.to_json().encode("utf-8"))
    if size > _TERMS_BYTES:
        raise ValueError(
            f"units and collecting of a ledger must have at most {_TERMS_BYTES} bytes together in a function's "
            f"environment, got {size}; give units in the functions' code: Ledger(table, LedgerTerms(units=…))"
        )
    return terms
