"""Members that constructs need of a table, whether this app creates it or imports it.

Protocols: a construct need not name its interface as a base, which a class of jsii could not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from aws_cdk import Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import IConstruct

from constructs_lib.functions.runtime_function import RuntimeFunction
from constructs_lib.shared.accepted import AnyKey
from saga_runtime.ledger.terms import LedgerTerms


class _ITable(IConstruct, Protocol):
    """A table of the library's."""

    @property
    def table(self) -> dynamodb.ITableV2 | dynamodb.TableV2:
        """The table."""
        ...

    @property
    def table_arn(self) -> str:
        """Its ARN."""
        ...

    @property
    def table_name(self) -> str:
        """Its name."""
        ...

    @property
    def encryption_key(self) -> AnyKey | None:
        """Its KMS key, if it has one of yours."""
        ...


class IIdempotencyTable(_ITable, Protocol):
    """A request table of this app (``IdempotencyTable``), or of another one (``IdempotencyTable.from_table_name``)."""

    @property
    def replay_for(self) -> Duration:
        """Time for which a settled response is replayed."""
        ...

    @property
    def remember_for(self) -> Duration:
        """Time for which a key is remembered."""
        ...

    @property
    def due_after(self) -> Duration:
        """When a record in progress is checked again."""
        ...

    @property
    def due_shards(self) -> int:
        """Partitions of the index of what is due."""
        ...

    @property
    def replay_seconds(self) -> int:
        """``replay_for`` in seconds."""
        ...

    @property
    def remember_seconds(self) -> int:
        """``remember_for`` in seconds."""
        ...

    def grant_reserve(self, grantee: iam.IGrantable) -> iam.Grant:
        """Reserve requests."""
        ...

    def grant_look(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read single records."""
        ...

    def grant_settle(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read and update single records."""
        ...

    def grant_powertools(self, grantee: iam.IGrantable, *, key_prefix: str) -> iam.Grant:
        """Use the table with Powertools' ``@idempotent``, under a key prefix."""
        ...


class ILedgerTable(_ITable, Protocol):
    """A ledger of this app (``LedgerTable``), or of another one (``LedgerTable.from_table_name``)."""

    @property
    def terms(self) -> LedgerTerms:
        """Terms that were declared."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment of a function, for ``Ledger.from_env()``."""
        ...

    def grant_post(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read accounts and holds, and post to them."""
        ...

    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read accounts and holds."""
        ...


class ITokenTable(_ITable, Protocol):
    """A token table of this app (``TokenTable``), or of another one (``TokenTable.from_table_name``)."""

    @property
    def sweeper(self) -> RuntimeFunction | None:
        """The function that delivers outcomes again; None: another app has it."""
        ...

    @property
    def sweeper_role(self) -> iam.IRole:
        """The sweeper's role."""
        ...

    @property
    def service(self) -> str:
        """The dimension ``service`` of the sweeper's metrics."""
        ...

    def grant_receive(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read and write single rows."""
        ...

    def grant_operate(self, grantee: iam.IGrantable) -> iam.Grant:
        """Find rows, read them, tokens included, and record deliveries: for operators only."""
        ...
