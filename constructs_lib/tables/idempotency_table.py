"""IdempotencyTable: the request records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.shared.accepted import AnyKey
from constructs_lib.shared.arguments import require_between, require_match, require_seconds
from constructs_lib.shared.types import checked
from constructs_lib.tables.interfaces import IIdempotencyTable
from constructs_lib.tables.stateful_table import StatefulTable, imported_table, sparse_index
from saga_runtime.protocol import (
    DUE_INDEX,
    IN_FLIGHT_ATTRIBUTES,
    LIST_PREFIX,
    ONCE_PREFIX,
    RESPONSE_INDEX,
    RecordAttribute,
)

_POWERTOOLS_PREFIX: Final = r"^[A-Za-z][A-Za-z0-9._-]{0,63}$"
_DAY: Final = 86_400
_YEAR: Final = 366 * _DAY
_TEN_YEARS: Final = 3_650 * _DAY


class IdempotencyTable(StatefulTable):
    """One record per request: reserved atomically, settled once, replayed for a while, and refused for longer.

    Creates a DynamoDB table (on demand, encrypted with the AWS managed key, point-in-time recovery, deletion
    protection, retained) with two sparse indexes: of the records that are not settled (when a reconciler must check
    them, and what adds up to the money in flight), and of the responses that will expire.

    Guaranteed: of any number of concurrent requests under one key exactly one reserves; a record in progress never
    expires and is never deleted; a response is replayed for ``replay_for`` after its request settled; from then until
    ``remember_for`` after it settled the key is refused with 410, and nothing moves, whenever DynamoDB deletes items.
    Not guaranteed: that a key is remembered longer than that: then the same request is a new one. That a response is
    removed on time: a ``TimeoutReconciler`` removes it, with the request, within minutes; without one the whole record
    stays until the key is forgotten.

    The names of the key and of the TTL attribute are those that Powertools uses by default, so its
    ``DynamoDBPersistenceLayer`` works on this table; see ``grant_powertools``.

    Args:
        scope: parent construct.
        id: construct id.
        replay_for: how long the response of a settled request is replayed; 1 minute to 366 days, 7 days by default.
        remember_for: how long its key is remembered, from the same moment on; not shorter than ``replay_for``, up to
            3,650 days, 400 days by default.
        due_after: when a record in progress is checked again; 5 s to 1 day, 1 minute by default. A duplicate that
            comes later starts the saga again by its name, which repairs a lost start.
        due_shards: partitions of the sparse index; 1 to 100, 16 by default. Never lower it: records in the shards
            that go would not be found.
        encryption_key: a KMS key of your own instead of the AWS managed one.
        removal_policy: retained by default; anything else also turns deletion protection off.

    Attributes:
        table: the table.
        replay_seconds, remember_seconds: ``replay_for`` and ``remember_for`` in seconds.

    Raises:
        ValueError: for an argument out of range, naming it, its value and the remedy.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        replay_for: Duration | None = None,
        remember_for: Duration | None = None,
        due_after: Duration | None = None,
        due_shards: int = 16,
        encryption_key: AnyKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        self._remember(replay_for, remember_for, due_after, due_shards)
        super().__init__(
            scope,
            id,
            partition_key=RecordAttribute.ID,
            time_to_live=RecordAttribute.EXPIRATION,
            global_secondary_indexes=[
                sparse_index(RecordAttribute.DUE_SHARD, RecordAttribute.DUE_AT, include=IN_FLIGHT_ATTRIBUTES),
                sparse_index(RecordAttribute.RESPONSE_SHARD, RecordAttribute.RESPONSE_EXPIRES_AT, name=RESPONSE_INDEX),
            ],
            encryption_key=encryption_key,
            removal_policy=removal_policy,
        )

    def _remember(
        self, replay_for: Duration | None, remember_for: Duration | None, due_after: Duration | None, due_shards: int
    ) -> None:
        """Take the table's times, each in its range."""
        self.replay_for = replay_for or Duration.days(7)
        self.remember_for = remember_for or Duration.days(400)
        self.due_after = due_after or Duration.minutes(1)
        self.due_shards = due_shards
        self.replay_seconds = require_seconds("replay_for", self.replay_for, at_least=60, at_most=_YEAR)
        self.remember_seconds = require_seconds("remember_for", self.remember_for, at_least=60, at_most=_TEN_YEARS)
        if self.remember_seconds < self.replay_seconds:
            raise ValueError(
                f"remember_for must not be shorter than replay_for, got remember_for={self.remember_seconds} s "
                f"replay_for={self.replay_seconds} s; raise remember_for or lower replay_for"
            )
        require_seconds("due_after", self.due_after, at_least=5, at_most=86_400)
        require_between("due_shards", due_shards, at_least=1, at_most=100)

    @staticmethod
    @checked
    def from_table_name(
        scope: Construct,
        id: str,
        *,
        table_name: str,
        replay_for: Duration | None = None,
        remember_for: Duration | None = None,
        due_after: Duration | None = None,
        due_shards: int = 16,
        encryption_key: AnyKey | None = None,
    ) -> IIdempotencyTable:
        """Import a request table that another stack or app creates, to begin sagas of this one on it.

        Nothing is created. The functions of both apps follow what is declared: declare here what is declared there.

        Args:
            scope: parent construct.
            id: construct id.
            table_name: of the table, in this account and region. It must be one that an ``IdempotencyTable`` creates.
            replay_for: as there.
            remember_for: as there.
            due_after: as there.
            due_shards: as there, or records of this app in other shards would not be found.
            encryption_key: the table's KMS key, if it has one of its own.

        Raises:
            ValueError: for a blank name, or an argument out of range.
        """
        times = {"replay_for": replay_for, "remember_for": remember_for, "due_after": due_after}
        return _ImportedRequests(scope, id, table_name, times, due_shards, encryption_key)

    @checked
    def grant_reserve(self, grantee: iam.IGrantable) -> iam.Grant:
        """Reserve requests: one conditional ``PutItem``."""
        return self._grant(grantee, "dynamodb:PutItem")

    @checked
    def grant_look(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read single records: ``GetItem``."""
        return self._grant(grantee, "dynamodb:GetItem")

    @checked
    def grant_settle(self, grantee: iam.IGrantable) -> iam.Grant:
        """Update single records (settle, decide the direction, park): ``UpdateItem``, ``GetItem``."""
        return self._grant(grantee, "dynamodb:UpdateItem", "dynamodb:GetItem")

    @checked
    def grant_once(self, grantee: iam.IGrantable) -> iam.Grant:
        """Run jobs once in each period with ``cdk-sagas once --table``: items of jobs, and no record of a request."""
        return self._grant_under(
            grantee, ONCE_PREFIX, "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DescribeTable"
        )

    @checked
    def grant_powertools(self, grantee: iam.IGrantable, *, key_prefix: str) -> iam.Grant:
        """Let a function use this table with Powertools' ``@idempotent``, under its own key prefix only.

        The function must use the same prefix: ``@idempotent(persistence_store=…, key_prefix="<key_prefix>")``.
        Saga records are out of its reach: their keys have no ``#``.

        Powertools suffices for deduplicating requests; for money it does not: its updates and deletes are
        unconditional, and a function that dies runs again when its in-progress window is over.

        Raises:
            ValueError: if the prefix is blank, has a ``#`` or a wildcard in it, or is one of this library's.
        """
        require_match("key_prefix", key_prefix, _POWERTOOLS_PREFIX, "use letters, digits, dots, dashes, underscores")
        if f"{key_prefix}#" in (LIST_PREFIX, ONCE_PREFIX):
            raise ValueError(
                f"key_prefix must be none of this library's, got {key_prefix!r}; use another one: operators' proposals "
                "and runs of jobs have it"
            )
        return self._grant_under(
            grantee,
            f"{key_prefix}#",
            "dynamodb:GetItem",
            "dynamodb:PutItem",
            "dynamodb:UpdateItem",
            "dynamodb:DeleteItem",
        )

    def _grant_under(self, grantee: iam.IGrantable, prefix: str, *actions: str) -> iam.Grant:
        """Exactly these actions on items whose key begins so."""
        if self.encryption_key is not None:
            self.encryption_key.grant_encrypt_decrypt(grantee)
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=list(actions),
            resource_arns=[self.table_arn],
            conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{prefix}*"]}},
        )


class _ImportedRequests(IdempotencyTable):
    """A request table of another stack or app."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        table_name: str,
        times: Mapping[str, Duration | None],
        due_shards: int,
        encryption_key: AnyKey | None,
    ) -> None:
        self._remember(**times, due_shards=due_shards)
        Construct.__init__(self, scope, id)
        self.encryption_key = encryption_key
        self.table = imported_table(self, table_name, encryption_key, (DUE_INDEX, RESPONSE_INDEX))
