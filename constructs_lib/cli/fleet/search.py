"""Sagas of a stack that fit a filter: from the sparse index of what is open, or from whole tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from constructs_lib.cli.doctor.aws import Aws, Item, all_of
from constructs_lib.cli.doctor.record_findings import UNREADABLE
from constructs_lib.cli.doctor.scan import Scan
from constructs_lib.cli.shared.manifest import Manifest
from constructs_lib.cli.shared.saga import parked_reason_of
from saga_runtime.idempotency.identity import request_id_of
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import DUE_INDEX, RecordAttribute, RecordStatus
from saga_runtime.shared.arns import machine_of

_A: Final = RecordAttribute


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A saga, as its record has it.

    Attributes:
        saga_id: the saga.
        path: of its construct; the name of its state machine if its stack has that no more.
        operation: what the request asked for; empty: not recorded.
        status: of the record.
        created_at, updated_at: epoch milliseconds.
        recoveries: how many there were.
        parked: the execution that parked it; empty: it is not parked.
        step, error: where it was parked, and why; empty: it is not.
        amount, currency: what it moves, in minor units; None and empty: not recorded.
        scope: digest of its operation and its client.
    """

    saga_id: str
    path: str
    operation: str
    status: str
    created_at: int
    updated_at: int
    recoveries: int
    parked: str
    step: str
    error: str
    amount: int | None
    currency: str
    scope: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions, all of which a listed saga fits; None: any.

    Attributes:
        parked: whether it must be parked.
        error: name of the error with which it was parked.
        created_before: epoch milliseconds.
        status: of its record; without one, and without ``key`` and ``text``, sagas in progress.
        operation: name of the operation.
        text: what its request contains, an order's number for example; a response's removal removes that, too.
        key: the client's idempotency key.
    """

    parked: bool = False
    error: str | None = None
    created_before: int | None = None
    status: str | None = None
    operation: str | None = None
    text: str | None = None
    key: str | None = None

    def fits(self, saga: Listed, request: str) -> bool:
        """Test whether a saga fits: all but its key, which is not stored."""
        any_status = self.status is None and (self.text is not None or self.key is not None)
        return (
            (any_status or saga.status == (self.status or RecordStatus.IN_PROGRESS))
            and (saga.parked != "" or not self.parked)
            and self.error in (None, saga.error)
            and self.operation in (None, saga.operation)
            and (self.created_before is None or saga.created_at <= self.created_before)
            and (self.text is None or self.text in request)
        )


@dataclass(slots=True, kw_only=True)
class Search:
    """Searches the request tables of some stacks. What it finds was read strongly; no table hides another one's sagas.

    Attributes:
        unreadable: ids of items with a saga id that are not records.
    """

    aws: Aws
    manifest: Manifest
    scan: Scan | None
    unreadable: list[str]

    def find(self, wanted: Filter) -> list[Listed]:
        """Sagas that fit, the oldest first."""
        found = self._of_each(lambda table: self._fitting(table, wanted))
        return sorted(found, key=lambda saga: (saga.created_at, saga.saga_id))

    def of(self, scope: str, wanted: Filter) -> list[Listed]:
        """The saga of a client's key, by the digest of its operation and its client."""
        ids = [request_id_of(scope, wanted.key or "")]
        return self._of_each(lambda table: [one for one, text in self._read(table, ids) if wanted.fits(one, text)])

    def _of_each(self, look: Callable[[str], list[Listed]]) -> list[Listed]:
        """Sagas of all tables that can be read; ``aws.denied`` has the others."""
        tables = dict.fromkeys(served.requests for served in self.manifest.served)
        read = [self.aws.allowed(f"table {table}", partial(look, table)) for table in tables]
        return [saga for found in read if found is not None for saga in found]

    def _fitting(self, table: str, wanted: Filter) -> list[Listed]:
        ids = list(dict.fromkeys(self._scanned(table) if self.scan is not None else self._open(table)))
        read = list(self._read(table, ids))
        if wanted.key is not None:
            scopes = dict.fromkeys(saga.scope for saga, _ in read)
            asked = dict.fromkeys(request_id_of(scope, wanted.key) for scope in scopes)
            read = list(self._read(table, list(asked)))
        return [saga for saga, request in read if wanted.fits(saga, request)]

    def _scanned(self, table: str) -> Iterator[str]:
        scan = self.scan
        for item in scan.items(table, (_A.ID, _A.SAGA_ID)) if scan is not None else ():
            if _A.SAGA_ID in item:
                yield str(item[_A.ID]["S"])

    def _open(self, table: str) -> list[str]:
        shards = max(served.shards for served in self.manifest.served if served.requests == table)
        return [one for part in all_of(partial(self._shard, table), range(shards)) for one in part]

    def _shard(self, table: str, shard: int) -> list[str]:
        pages: Any = self.aws.client("dynamodb").get_paginator("query")
        found = pages.paginate(
            TableName=table,
            IndexName=DUE_INDEX,
            KeyConditionExpression="#shard = :shard",
            ProjectionExpression="#id",
            ExpressionAttributeNames={"#shard": _A.DUE_SHARD, "#id": _A.ID},
            ExpressionAttributeValues={":shard": {"S": f"{shard:02d}"}},
        )
        return [str(item[_A.ID]["S"]) for page in found for item in page["Items"]]

    def _read(self, table: str, ids: Sequence[str]) -> Iterator[tuple[Listed, str]]:
        """Records with the texts of their requests; other writers' items are left out."""
        keys: list[dict[str, dict[str, str]]] = [{_A.ID: {"S": one}} for one in ids]
        paths = {saga.arn: saga.path for saga in self.manifest.sagas}
        for item in self.aws.read_all(table, keys):
            if _A.SAGA_ID not in item:
                continue
            try:
                record = RequestRecord.from_item(item)
                yield _listed(record, item, paths.get), record.input
            except UNREADABLE:
                self.unreadable.append(str(item[_A.ID]["S"]))


def _listed(record: RequestRecord, item: Item, path: Callable[[str], str | None]) -> Listed:
    machine = machine_of(record.execution_arn)
    stuck = parked_reason_of(record)
    return Listed(
        saga_id=record.saga_id,
        path=path(machine) or machine.rpartition(":")[2],
        operation=str(item.get(_A.OPERATION, {}).get("S", "")),
        status=record.status,
        created_at=record.created_at,
        updated_at=record.updated_at,
        recoveries=record.recoveries,
        parked=record.parked_by or "",
        step=str(stuck.get("step", "")),
        error=str(stuck.get("error", "")),
        amount=int(item[_A.AMOUNT]["N"]) if _A.AMOUNT in item else None,
        currency=str(item.get(_A.CURRENCY, {}).get("S", "")),
        scope=record.scope,
    )
