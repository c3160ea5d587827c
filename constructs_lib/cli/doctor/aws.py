"""AWS, as the doctor sees it: clients that are patient, the time, and looks that may not be allowed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from constructs_lib.cli.doctor.findings import Finding, Kind, Severity
from constructs_lib.cli.shared.aws import NO_RIGHTS
from constructs_lib.cli.shared.batches import KEYS_AT_ONCE, batch_of
from constructs_lib.cli.shared.saga import time_of

if TYPE_CHECKING:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import ClientError
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient

AT_ONCE: Final = 8
"""Concurrent reads: enough to finish thousands in minutes, few enough to leave quotas to the sagas."""

_NAMED: Final = 5
"""Named subjects of one refusal."""

Item = Mapping[str, Mapping[str, Any]]
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


def refusal_of(error: ClientError) -> Refusal | None:
    """Classify a refusal of one read among many; None: the others would be refused too."""
    from saga_runtime.shared.aws import is_transient

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
        from botocore.exceptions import ClientError

        try:
            return time_of(self.dynamodb.describe_table(TableName=table))
        except ClientError as error:
            if refusal_of(error) is None:
                raise
            return time_of(error.response)

    def allowed(self, what: str, look: Callable[[], T]) -> T | None:
        """Result of a read; None, and later a finding, if it is refused, or its subject is gone."""
        from botocore.exceptions import ClientError

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
    def denied(self) -> list[Finding]:
        """Findings about what could not be read: one for each reason."""
        return [
            Finding(
                kind=Kind.NOT_CHECKED,
                severity=Severity.OPERATOR,
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
        for start in range(0, len(keys), KEYS_AT_ONCE):
            batch = {"Keys": list(keys[start : start + KEYS_AT_ONCE]), "ConsistentRead": True, **wanted}
            yield from batch_of(self.dynamodb, table, batch)


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
    from botocore.config import Config

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
