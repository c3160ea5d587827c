"""AWS, as the doctor sees it: clients that are patient, the time, and looks that may not be allowed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .aws import NO_RIGHTS
from .doctor_findings import Finding, Kind, Severity
from .saga import time_of

if TYPE_CHECKING:
    import boto3
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient

AT_ONCE: Final = 8
"""Looks at the same time: as many as finish thousands in minutes, and few enough to leave quotas to the sagas."""
_KEYS_AT_ONCE: Final = 100

Item = Mapping[str, Mapping[str, Any]]
T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True, kw_only=True)
class Aws:
    """An account and a region, to be looked at.

    Attributes:
        session: whose rights are used.
    """

    session: boto3.Session
    _denied: dict[str, list[str]] = field(default_factory=dict, repr=False)
    _clients: dict[str, Any] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def client(self, service: str) -> Any:
        """A client that waits when it is throttled; one for all."""
        from botocore.config import Config

        with self._lock:
            if service not in self._clients:
                patient = Config(
                    retries={"mode": "standard", "total_max_attempts": 10},
                    max_pool_connections=2 * AT_ONCE,
                    user_agent_extra="cdk-sagas-doctor",
                )
                session: Any = self.session  # its overloads know services by literal names only
                self._clients[service] = session.client(service, config=patient)
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
        """The time, as AWS tells it: a person's computer may be wrong, and would see sagas that are late, or none."""
        return time_of(self.dynamodb.describe_table(TableName=table))

    def allowed(self, what: str, look: Callable[[], T]) -> T | None:
        """What a look finds; None, and later a finding, if it may not be looked at, or is not there any more."""
        from botocore.exceptions import ClientError

        try:
            return look()
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            if code in NO_RIGHTS:
                found = f"not allowed: {error.operation_name}"
            elif "NotFound" in code or "DoesNotExist" in code or "NonExistent" in code:
                found = "is of the stack, and is not there any more"
            else:
                raise
            with self._lock:
                self._denied.setdefault(found, []).append(what)
            return None

    @property
    def denied(self) -> list[Finding]:
        """What could not be looked at: said once for each reason."""
        return [
            Finding(
                kind=Kind.NOT_LOOKED_AT,
                severity=Severity.PERSON,
                id=min(what) if len(what) == 1 else f"{min(what)} and {len(what) - 1} more",
                what=found,
                then="ask for that right, and look again" if found.startswith("not allowed") else "deploy it again",
            )
            for found, what in self._denied.items()
        ]

    def read(self, table: str, key: Mapping[str, Any]) -> Item | None:
        """An item, read strongly."""
        found: Item | None = self.dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
        return found

    def read_all(self, table: str, keys: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> Iterator[Item]:
        """Items, read strongly; those that are not there are left out.

        Args:
            table: where.
            keys: each once.
            names: the attributes that are wanted; all by default.
        """
        wanted: dict[str, Any] = {}
        if names:
            wanted = {
                "ProjectionExpression": ", ".join(f"#{name}" for name in names),
                "ExpressionAttributeNames": {f"#{name}": name for name in names},
            }
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            left: Any = list(keys[start : start + _KEYS_AT_ONCE])
            while left:
                asked: Any = {table: {"Keys": left, "ConsistentRead": True, **wanted}}
                answer: Any = self.dynamodb.batch_get_item(RequestItems=asked)
                yield from answer["Responses"].get(table, [])
                left = answer.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])


def all_of(look: Callable[[T], R], subjects: Iterable[T]) -> list[R]:
    """Look at several at once; what is found, in their order."""
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        return list(pool.map(look, subjects))
