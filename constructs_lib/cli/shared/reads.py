"""Reads of many items by patient clients: some may be refused, some are of whole tables, at a limited rate."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from constructs_lib.cli.shared.aws import NO_RIGHTS
from constructs_lib.cli.shared.saga import time_of
from saga_runtime.protocol import DUE_INDEX, LogAttribute, RecordAttribute
from saga_runtime.shared.aws import is_transient

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient

AT_ONCE: Final = 8
"""Concurrent reads: enough to finish thousands in minutes, few enough to leave quotas to the sagas."""

_NAMED: Final = 5
"""Named subjects of one refusal."""

Item = Mapping[str, Mapping[str, Any]]
UNREADABLE: Final = (ArithmeticError, LookupError, TypeError, ValueError)
"""What an item raises that was not written by a saga, whatever is wrong with it."""
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Refusal of a read.

    Attributes:
        found: AWS's message.
        then: the remedy.
        gone: whether the subject does not exist.
    """

    found: str
    then: str
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """Something that could not be read: what, AWS's message, the remedy."""

    id: str
    what: str
    then: str


def refusal_of(error: ClientError) -> Refusal | None:
    """Classify a refusal of one read among many; None: the others would be refused too."""
    detail: Any = error.response.get("Error", {})
    code = str(detail.get("Code"))
    if code in NO_RIGHTS or "accessdenied" in code.lower():  # a key's, too, which every service spells its own way
        return Refusal(found=f"not allowed: {error.operation_name}", then="ask for that right, and check again")
    if "NotFound" in code or "DoesNotExist" in code or "NonExistent" in code:
        return Refusal(found="is of the stack, and is not there any more", then="deploy it again", gone=True)
    message = " ".join(str(detail.get("Message")).split())
    if code.lower().startswith("kms"):
        return Refusal(
            found=f"{error.operation_name} is refused: {code}: {message}", then="see to its key, and check again"
        )
    if code == "ValidationException":
        return Refusal(
            found=f"{error.operation_name} is refused: {message}",
            then="compare it with what was deployed: a key, or the index, is another one",
        )
    if is_transient(error):
        return Refusal(found=f"refused repeatedly: {error.operation_name}, {code}", then="check again later")
    return None


@dataclass(slots=True, kw_only=True)
class Aws:
    """Reads of an account and a region.

    Attributes:
        session: whose rights are used.
    """

    session: boto3.Session
    _refused: dict[Refusal, dict[str, None]] = field(default_factory=dict, repr=False)
    _clients: dict[str, Any] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def client(self, service: str) -> Any:
        """A client that waits when it is throttled; one for all."""
        with self._lock:
            if service not in self._clients:
                session: Any = self.session  # its overloads know services by literal names only
                self._clients[service] = session.client(service, config=_patient())
            return self._clients[service]

    @property
    def dynamodb(self) -> DynamoDBClient:
        """Client of DynamoDB."""
        client: DynamoDBClient = self.client("dynamodb")
        return client

    @property
    def step_functions(self) -> SFNClient:
        """Client of Step Functions."""
        client: SFNClient = self.client("stepfunctions")
        return client

    def now_ms(self, table: str) -> int:
        """AWS's time: an operator's computer may be wrong, and would show false lateness.

        A refusal has the time too; that the table cannot be read is found when it is read.
        """
        try:
            return time_of(self.dynamodb.describe_table(TableName=table))
        except ClientError as error:
            if refusal_of(error) is None:
                raise
            return time_of(error.response)

    def allowed(self, what: str, look: Callable[[], T | None]) -> T | None:
        """Result of a read; None, and later a finding, if it is refused, or its subject is gone."""
        try:
            return look()
        except ClientError as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            with self._lock:
                self._refused.setdefault(refusal, {})[what] = None
            return None

    def gathered(self, what: str, found: Iterable[T]) -> list[T]:
        """Items of a read: those before a refusal are kept."""
        kept: list[T] = []

        def gather() -> None:
            for one in found:
                kept.append(one)  # noqa: PERF402  # what was found before an error stays

        self.allowed(what, gather)
        return kept

    def is_unknown(self, what: str) -> bool:
        """Test whether something exists that could not be read."""
        return any(what in refused and not refusal.gone for refusal, refused in self._refused.items())

    def was_refused(self, what: str) -> bool:
        """Test whether something could not be read, or not to its end."""
        return any(what in refused for refused in self._refused.values())

    @property
    def denied(self) -> list[Denied]:
        """Reads that were refused: one for each reason."""
        return [
            Denied(
                id=min(what) if len(what) == 1 else f"{min(what)} and {len(what) - 1} more",
                what=refusal.found if len(what) == 1 else f"{refusal.found}; {_names(sorted(what))}",
                then=refusal.then,
            )
            for refusal, what in self._refused.items()
        ]

    def read(self, table: str, key: Mapping[str, Any]) -> Item | None:
        """An item, read strongly."""
        found: Item | None = self.dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
        return found

    def due(self, table: str, shards: int) -> Iterator[str]:
        """Ids of the items in a sparse index of what is due, due or not, each once.

        A part of it that may not be read is kept as refused.
        """
        parts = all_of(
            lambda shard: self.gathered(f"table {table}", due_ids(self.dynamodb, table, shard)), range(shards)
        )
        return iter(dict.fromkeys(one for part in parts for one in part))

    def read_ids(self, table: str, ids: Sequence[str], names: Sequence[str] = ()) -> Iterator[Item]:
        """Items of a table whose key is an id, as the function ``read_all`` reads them."""
        return read_all(self.dynamodb, table, [{"id": {"S": one}} for one in ids], names)


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", and others" if len(names) > _NAMED else "")


def patient(session: boto3.Session) -> Any:
    """A session for ``saga_runtime.shared.aws``, whose clients give up soon: no function's time runs here."""
    return _Patient(session)


@dataclass(frozen=True, slots=True)
class _Patient:
    session: Any

    def client(self, service: str, config: Config) -> Any:
        """A client of a service."""
        return self.session.client(service, config=config.merge(_patient()))


def _patient() -> Config:
    """Adaptive: Step Functions answers some 15 questions a second after executions, and a thousand may be asked."""
    return Config(
        retries={"mode": "adaptive", "total_max_attempts": 10},
        max_pool_connections=2 * AT_ONCE,
        user_agent_extra="cdk-sagas-doctor",
    )


def all_of(look: Callable[[T], R], subjects: Iterable[T]) -> list[R]:
    """Read several subjects concurrently; results are in their order."""
    subjects = list(subjects)
    if len(subjects) < 2:
        return [look(subject) for subject in subjects]
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        try:
            return list(pool.map(look, subjects))
        except BaseException:  # one interruption ends all: the user does not wait for thousands
            pool.shutdown(wait=False, cancel_futures=True)
            raise


SEGMENTS: Final = 4
RATE: Final = 500
"""Read units a second: a new table serves 12,000."""
_UNIT_BYTES: Final = 4_096
_PAGE: Final = 1_000
"""Items that a call reads at most: a page is paid for before the next one is asked for."""
_SAID_EVERY: Final = 10
"""Per cent."""


def units_of(size_bytes: int) -> int:
    """Read units that it takes to read so much, eventually consistent: half of what a strong read takes.

    >>> units_of(1_000_000)
    123
    """
    return -(-size_bytes // (2 * _UNIT_BYTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Scans tables.

    A scan is not consistent: what it finds is read again strongly before it is reported.

    Attributes:
        rate: read units a second.
    """

    aws: Aws
    rate: int = RATE

    def announce(self, tables: Sequence[str]) -> None:
        """Print the estimated reads, by the sizes that DynamoDB reports: those of some hours ago."""
        for table in tables:
            said = self._said(table)
            if not said:
                sys.stderr.write(f"reads table {table} whole: its size is unknown\n")
                continue
            items, units = said.get("ItemCount", 0), units_of(said.get("TableSizeBytes", 0))
            sys.stderr.write(
                f"reads table {table} whole: about {items:,} items, {units:,} read units, "
                f"{-(-units // self.rate):,} s\n"
            )

    def items(self, table: str, names: Sequence[str]) -> Iterator[Item]:
        """Every item, with these attributes of it, in any order.

        Raises:
            ClientError, BotoCoreError: the table could not be read to its end.
        """
        about = self._said(table).get("ItemCount", 0)
        read = said = 0
        ahead: dict[int, Mapping[str, Any]] = {segment: {} for segment in range(SEGMENTS)}
        with ThreadPoolExecutor(max_workers=SEGMENTS) as pool:
            while ahead:
                began = time.monotonic()
                pages = list(pool.map(lambda part: self._page(table, names, *part), ahead.items()))
                ahead = {
                    number: page["LastEvaluatedKey"]
                    for number, page in zip(ahead, pages, strict=True)
                    if "LastEvaluatedKey" in page
                }
                for page in pages:
                    read += len(page["Items"])
                    yield from page["Items"]
                done = min(100 * read // about, 100) if about else 100
                if about > _PAGE and done - said >= _SAID_EVERY:
                    said = done
                    sys.stderr.write(f"table {table}: {done} %, {read:,} items\n")
                if ahead:
                    self._pay(pages, time.monotonic() - began)

    def _said(self, table: str) -> Any:
        """DynamoDB's description of a table; empty if that is refused: it may be read nevertheless."""
        try:
            return self.aws.dynamodb.describe_table(TableName=table)["Table"]
        except ClientError as error:
            if refusal_of(error) is None:
                raise
            return {}

    def _page(self, table: str, names: Sequence[str], segment: int, start: Mapping[str, Any]) -> Any:
        asked: dict[str, Any] = {
            "TableName": table,
            "Segment": segment,
            "TotalSegments": SEGMENTS,
            "Limit": _PAGE,
            "ReturnConsumedCapacity": "TOTAL",
            **projection(names),
            **({"ExclusiveStartKey": start} if start else {}),
        }
        return self.aws.dynamodb.scan(**asked)

    def _pay(self, pages: Sequence[Any], took_seconds: float) -> None:
        """Wait for as long as what was read takes at the rate."""
        units = sum(float(page.get("ConsumedCapacity", {}).get("CapacityUnits", 0)) for page in pages)
        time.sleep(max(units / self.rate - took_seconds, 0))


KEYS_AT_ONCE: Final = 100
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 10.0


def due_ids(dynamodb: DynamoDBClient, table: str, shard: int) -> Iterator[str]:
    """Ids of the items in a part of a sparse index of what is due; of every table that has one."""
    a = RecordAttribute
    pages: Any = dynamodb.get_paginator("query")
    found = pages.paginate(
        TableName=table,
        IndexName=DUE_INDEX,
        KeyConditionExpression="#shard = :shard",
        ProjectionExpression="#id",
        ExpressionAttributeNames={"#shard": a.DUE_SHARD, "#id": a.ID},
        ExpressionAttributeValues={":shard": {"S": f"{shard:02d}"}},
    )
    return (str(item[a.ID]["S"]) for page in found for item in page["Items"])


def rows_of(dynamodb: DynamoDBClient, log: str, saga_id: str, names: Sequence[str] = ()) -> Iterator[Item]:
    """Rows of a saga in its log, read strongly.

    Args:
        dynamodb: the client.
        log: the saga log.
        saga_id: the saga.
        names: the attributes that are wanted; all by default.
    """
    a = LogAttribute
    asked = {"ProjectionExpression": ", ".join(f"#{name}" for name in names)} if names else {}
    pages: Any = dynamodb.get_paginator("query")
    found = pages.paginate(
        TableName=log,
        ConsistentRead=True,
        KeyConditionExpression="#saga_id = :saga_id",
        ExpressionAttributeNames={f"#{name}": name for name in (a.SAGA_ID, *names)},
        ExpressionAttributeValues={":saga_id": {"S": saga_id}},
        **asked,
    )
    return (item for page in found for item in page["Items"])


def projection(names: Sequence[str]) -> dict[str, Any]:
    """Arguments of a read of these attributes; of all, without any."""
    if not names:
        return {}
    return {
        "ProjectionExpression": ", ".join(f"#{name}" for name in names),
        "ExpressionAttributeNames": {f"#{name}": name for name in names},
    }


def batches(things: Iterable[T], size: int = KEYS_AT_ONCE) -> Iterator[list[T]]:
    """Things in lists of this size, the last one perhaps shorter."""
    ahead = iter(things)
    while batch := list(islice(ahead, size)):
        yield batch


def read_all(
    dynamodb: DynamoDBClient, table: str, keys: Iterable[Mapping[str, Any]], names: Sequence[str] = ()
) -> Iterator[Item]:
    """Items of a table, read strongly, in any order; those that are not there are left out.

    A table that is throttled answers with some of them, or with none: it is asked for the others until it has answered
    for all, after a random time up to a pause that doubles, and is short again once it answers.

    Args:
        dynamodb: the client.
        table: where.
        keys: each once.
        names: the attributes that are wanted; all by default.
    """
    for batch in batches(keys):
        left, pause = batch, FIRST_PAUSE_SECONDS
        while left:
            request: Any = {table: {"Keys": left, "ConsistentRead": True, **projection(names)}}
            answer: Any = dynamodb.batch_get_item(RequestItems=request)
            found = answer["Responses"].get(table, [])
            yield from found
            left = answer.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])
            if left:
                pause = FIRST_PAUSE_SECONDS if found else min(2 * pause, LONGEST_PAUSE_SECONDS)
                time.sleep(pause * random.random())
