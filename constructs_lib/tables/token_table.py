"""TokenTable: who waits for a callback, and what came of it."""

from __future__ import annotations

from typing import Final

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.functions.function_options import FunctionOptions
from constructs_lib.functions.runtime_function import RuntimeFunction, name_role, own_code
from constructs_lib.functions.schedules import run_every
from constructs_lib.monitoring.alarms import runtime_metric
from constructs_lib.shared.accepted import AnyKey
from constructs_lib.shared.manifest import Manifest
from constructs_lib.shared.manifest_format import Part
from constructs_lib.shared.operator_actions import TOKEN_INDEX_ACTIONS, TOKEN_TABLE_ACTIONS
from constructs_lib.shared.service_names import service_of
from constructs_lib.shared.types import checked
from constructs_lib.tables.interfaces import ITokenTable
from constructs_lib.tables.stateful_table import StatefulTable, imported_table, sparse_index
from saga_runtime.protocol import DUE_INDEX, NOTICE_PREFIX, Env, Metric, TokenAttribute

ITEM_ACTIONS: Final = (
    "dynamodb:BatchGetItem",
    "dynamodb:ConditionCheckItem",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:UpdateItem",
)
"""A receipt reads both rows at once. It is one transaction: it writes some rows, and makes sure of others."""
_SWEEPER_SECONDS: Final = 50
"""Shorter than the minute after which the next one starts: two would do no harm, and twice the work."""


class _Tokens(StatefulTable):
    """Metrics and grants of a token table, whether this app creates it or imports it."""

    service: str

    def metric_oldest_overdue(self) -> cloudwatch.Metric:
        """Seconds for which the oldest callback has been overdue: the maximum of 5 minutes."""
        return runtime_metric(Metric.OLDEST_WAITING, self.service, "Maximum")

    def metric_redelivered(self) -> cloudwatch.Metric:
        """Undelivered outcomes that the sweeper delivered: the sum of 5 minutes."""
        return runtime_metric(Metric.CALLBACK_SENT_AGAIN, self.service, "Sum")

    def metric_unanswered(self) -> cloudwatch.Metric:
        """Jobs that their sagas abandoned and that were never reported: the sum of 5 minutes."""
        return runtime_metric(Metric.CALLBACK_UNANSWERED, self.service, "Sum")

    @checked
    def grant_receive(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read and write single rows: register waiting tasks, and store outcomes."""
        return self._grant(grantee, *ITEM_ACTIONS)

    @checked
    def grant_operate(self, grantee: iam.IGrantable) -> iam.Grant:
        """Find rows, read them, tokens included, and record deliveries: for operators only."""
        self._grant_due(grantee)
        return self._grant(grantee, *TOKEN_TABLE_ACTIONS)

    def _grant_due(self, grantee: iam.IGrantable) -> None:
        """Query the index, and nothing else of the table."""
        index = f"{self.table_arn}/index/{DUE_INDEX}"
        iam.Grant.add_to_principal(grantee=grantee, actions=list(TOKEN_INDEX_ACTIONS), resource_arns=[index])


class TokenTable(_Tokens):
    """One row per job that a state machine waits for, one per name that a provider has for it, one per event received.

    Creates a DynamoDB table (on demand, encrypted with the AWS managed key, point-in-time recovery, deletion
    protection, retained) with a sparse index of the rows to check again, and a function that checks them every minute:
    it delivers undelivered outcomes again, sends entries to operators, and measures the age of waits.

    A row of a waiting task holds the *task token*: its holder can end that wait with any outcome. It is stored
    here and in the integration's queue, both encrypted; it is removed from the row when it was used, and is neither
    logged nor given to a provider. Grant reading this table only to principals that may move money.

    Guaranteed: a row with an undelivered outcome never leaves the index; the index holds keys only.
    Not guaranteed: that a row is kept for longer than its saga's log is.

    Several integrations may share one table.

    Example::

        tokens = TokenTable(self, "Tokens")
        warehouse = CallbackIntegration(self, "Warehouse", fn=hand_over, tokens=tokens)
        carrier = CallbackIntegration(self, "Carrier", tokens=tokens)

    Args:
        scope: parent construct.
        id: construct id.
        encryption_key: a KMS key of your own instead of the AWS managed one.
        function_options: ``FunctionOptions`` for the functions and log groups of this construct.
        removal_policy: of the table and the sweeper's log group; retained by default. Anything else also turns deletion
            protection off.

    Attributes:
        sweeper: the function that checks what is due.
        sweeper_role: its role.
        service: the dimension ``service`` of its metrics.
        schedule: the rule that calls it.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        encryption_key: AnyKey | None = None,
        function_options: FunctionOptions | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(
            scope,
            id,
            partition_key=TokenAttribute.ID,
            time_to_live=TokenAttribute.EXPIRATION,
            global_secondary_indexes=[sparse_index(TokenAttribute.DUE_SHARD, TokenAttribute.DUE_AT)],
            encryption_key=encryption_key,
            removal_policy=removal_policy,
        )
        if function_options is not None:
            function_options.apply_to(self)
        self.sweeper = sweeper = RuntimeFunction(
            self,
            "Sweeper",
            code=own_code(),
            handler="handlers.callback_sweeper.handler",
            description="Delivers undelivered outcomes again, and entries for operators; measures the age of waits",
            timeout=Duration.seconds(_SWEEPER_SECONDS),
            longest_timeout=Duration.seconds(_SWEEPER_SECONDS),
            environment={Env.TOKEN_TABLE: self.table_name},
            removal_policy=removal_policy,
        )
        self.sweeper_role: iam.IRole = sweeper.role
        self.service = service_of(sweeper)
        name_role(sweeper, "the sweeper of tokens")
        self._grant_due(sweeper)
        self._grant(sweeper, "dynamodb:GetItem", "dynamodb:UpdateItem")
        iam.Grant.add_to_principal(
            grantee=sweeper,
            actions=["dynamodb:DeleteItem"],
            resource_arns=[self.table_arn],
            conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{NOTICE_PREFIX}*"]}},
        )
        self.schedule = run_every(
            self, "Schedule", sweeper, Duration.minutes(1), description="Checks token rows that are due"
        )
        Manifest.of(self).add(Part.TOKENS, table=self.table_name, function=sweeper.function.function_name)

    @staticmethod
    @checked
    def from_table_name(
        scope: Construct,
        id: str,
        *,
        table_name: str,
        sweeper_role_name: str,
        service: str,
        encryption_key: AnyKey | None = None,
    ) -> ITokenTable:
        """Import a token table that another stack or app creates, for integrations of this one.

        Nothing is created. The sweeper is that of the table's own app: it delivers outcomes to this app's sagas too,
        by a policy that each integration adds to the sweeper's role. So the role must be the one that the sweeper has:
        otherwise an outcome that could not be delivered at once is never delivered, and no entry is sent to operators.

        Guaranteed: what a table of this app guarantees, as long as its own app keeps table and sweeper.
        Not guaranteed: that the other app is not deleted: then undelivered outcomes stay so. The integration's alarm
        ``overdue_callback_alarm`` is on when the sweeper reports nothing.

        Args:
            scope: parent construct.
            id: construct id.
            table_name: of the table, in this account and region: ``tokens.table_name`` there.
            sweeper_role_name: name of the sweeper's role: ``tokens.sweeper_role.role_name`` there.
            service: the dimension ``service`` of the sweeper's metrics: ``tokens.service`` there.
            encryption_key: the table's KMS key, if it has one of its own.

        Raises:
            ValueError: for a blank name.
        """
        for name, value in (("sweeper_role_name", sweeper_role_name), ("service", service)):
            if not value.strip():
                raise ValueError(
                    f"{name} of {id} must be that of the table's own app, got {value!r}; pass the value of "
                    f"tokens.{'sweeper_role.role_name' if name == 'sweeper_role_name' else name} there"
                )
        return _ImportedTokens(scope, id, table_name, sweeper_role_name, service, encryption_key)


class _ImportedTokens(_Tokens):
    """A token table of another stack or app."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        table_name: str,
        sweeper_role_name: str,
        service: str,
        encryption_key: AnyKey | None,
    ) -> None:
        Construct.__init__(self, scope, id)
        self.encryption_key = encryption_key
        self.table = imported_table(self, table_name, encryption_key, (DUE_INDEX,))
        self.sweeper: RuntimeFunction | None = None
        self.sweeper_role = iam.Role.from_role_name(self, "SweeperRole", sweeper_role_name)
        self.service = service
