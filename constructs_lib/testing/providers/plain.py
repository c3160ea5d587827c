"""A provider whose operations are paths, and that does whatever it is asked for: its faults, its books, its server.

POST <path>        Idempotency-Key, any object       201, the action; 402 if it is refused
GET  <path>?key=…  actions under a key               200, {"found": […], "in_work": false}
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeAlias

from constructs_lib.testing.fault_plan import MomentName
from constructs_lib.testing.provider_audit import ProviderEffect
from constructs_lib.testing.providers.books import Answer, BookKeeper, Page, problem, reading
from constructs_lib.testing.providers.server import FakeProviderServer, Request
from constructs_lib.testing.providers.troubles import Trouble

FIND: Final = "find-"
"""Begins the name of the query of an operation."""
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")
_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+|/\{[a-z_]+\})+")
_PLACEHOLDER: Final = re.compile(r"\{[a-z_]+\}")
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS actions (
    number INTEGER PRIMARY KEY, operation TEXT, key TEXT, path TEXT, body TEXT, at_ms INTEGER);
CREATE INDEX IF NOT EXISTS actions_by_key ON actions (key);
"""


class _Action(StrEnum):
    REFUSE = "refuse"
    ERROR = "error"
    DROP = "drop"
    HANG = "hang"
    KILL = "kill"
    SLOW = "slow"
    LATE = "late"
    DUPLICATE = "duplicate"


ProviderFaultName: TypeAlias = Literal["refuse", "error", "drop", "hang", "kill", "slow", "late", "duplicate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFault(Trouble):
    """A planned failure of a `FakeProvider`.

    | action | what happens |
    |---|---|
    | ``refuse`` | the provider refuses, definitely: 402; only before |
    | ``error`` | HTTP 500; after: it hides that the provider acted |
    | ``drop`` | the connection is closed without a response |
    | ``hang`` | no response, until the caller disconnects |
    | ``kill`` | the process of the caller is killed |
    | ``slow`` | the provider works for ``seconds``, while it reports the key as in use; only before |
    | ``late`` | the request reaches the provider after ``seconds``, whether its sender lives or not; only before |
    | ``duplicate`` | the request arrives once more, after ``seconds``; only before |

    Example:
        >>> ProviderFault(on="charge", action="hang", moment="after", containing="order-7").times
        1

    Attributes:
        on: name of the operation; of its query: ``find-<operation>``.
        action: the failure.
        moment: before or after the provider acts.
        containing: only requests with this text in key, path or body; all without it.
        nth: number of the first matching request that fails, counted from 1.
        times: number of matching requests in a row that fail; None for all that follow.
        seconds: duration of ``slow``, ``late`` and ``duplicate``, in the provider's time.

    Raises:
        ValueError: for a failure that cannot happen.
    """

    ACTION: ClassVar[type[StrEnum]] = _Action
    LASTING: ClassVar[tuple[str, ...]] = (_Action.SLOW, _Action.LATE, _Action.DUPLICATE)

    action: ProviderFaultName
    moment: MomentName = "before"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAction:
    """Something that a `FakeProvider` did.

    Attributes:
        number: 1, 2, 3 …
        operation: name of the operation.
        key: the idempotency key.
        path: the path of the request.
        body: the body of the request.
        at_ms: epoch milliseconds, in the provider's time.
    """

    number: int
    operation: str
    key: str
    path: str
    body: Mapping[str, Any]
    at_ms: int


@dataclass(frozen=True, slots=True)
class PlainOperation:
    """An operation of the provider, or its query."""

    name: str
    path: str
    acts: bool

    def __str__(self) -> str:
        return self.name if self.acts else f"{FIND}{self.name}"

    def wrong(self, body: Any) -> str | None:
        """Return the error in a body; None if it is valid."""
        return None if isinstance(body, dict) else "the body must be an object"

    def serves(self, method: str, path: str) -> bool:
        """Test whether a request is for this operation."""
        if method != ("POST" if self.acts else "GET"):
            return False
        return re.fullmatch("[^/]+".join(map(re.escape, _PLACEHOLDER.split(self.path))), path) is not None


def operations_of(paths: Mapping[str, str]) -> list[PlainOperation]:
    """Operations by their names and paths, each with its query.

    Raises:
        ValueError: if a name or a path is not one.
    """
    if not _is_map(paths):
        raise ValueError(f"operations must be paths by name, got {paths!r}; pass {{'charge': '/charges'}}")
    for name, path in paths.items():
        if not _matches(_NAME, name) or name.startswith(FIND):
            raise ValueError(
                f"name of an operation must be lowercase letters, digits and hyphens, and not begin with {FIND!r}, "
                f"got {name!r}; rename it"
            )
        if not _matches(_PATH, path) or path.split("/")[1] == "admin":
            raise ValueError(
                f"path of {name!r} must be like '/charges' or '/charges/{{id}}/refunds', outside of /admin, "
                f"got {path!r}; correct it"
            )
    shapes = [_PLACEHOLDER.sub("{}", path) for path in paths.values()]
    if len(set(shapes)) != len(shapes):
        raise ValueError(f"operations must have different paths, got {dict(paths)!r}; give each its own")
    # "/charges/latest" before "/charges/{id}", which it would match, too.
    literal_first = sorted(paths.items(), key=lambda named: named[1].count("{"))
    return [PlainOperation(name, path, acts) for name, path in literal_first for acts in (True, False)]


def _is_map(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value)


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


class ActionKeeper(BookKeeper[Page]):
    """Keeps the actions. An action and the record of its key are one transaction."""

    def __init__(self, file: Path, *, window_ms: int, now_ms: Callable[[], int]) -> None:
        super().__init__(file, schema=_SCHEMA, page=Page, window_ms=window_ms, now_ms=now_ms)

    def act(self, operation: str, key: str, path: str, body: Mapping[str, Any], *, refuse: bool) -> Answer:
        """Act under a key that was claimed, or refuse."""
        with self.page() as page:
            answer = problem(402, "refused", "the provider refused")
            if not refuse:
                row = page.execute(
                    "INSERT INTO actions (operation, key, path, body, at_ms) VALUES (?, ?, ?, ?, ?)",
                    *(operation, key, path, json.dumps(body), page.now_ms),
                )
                answer = Answer(status=201, document=_document(_read(page, "number = ?", row.lastrowid)[0]))
            page.remember(key, answer)
        return answer

    def find(self, operation: str, key: str) -> Answer:
        """Return every action under a key, and whether a request is in progress; also when the key is forgotten."""
        with self.page() as page:
            found = [_document(one) for one in _read(page, "operation = ? AND key = ?", operation, key)]
            return Answer(status=200, document={"found": found, "in_work": page.in_work(key)})

    def actions(self) -> list[ProviderAction]:
        """Return every action, in order."""
        with self.page() as page:
            return _actions(page.execute("SELECT * FROM actions ORDER BY number").fetchall())


def _document(action: ProviderAction) -> dict[str, Any]:
    return {"id": f"{action.operation}-{action.number}", **asdict(action)}


def action_of(document: Mapping[str, Any]) -> ProviderAction:
    """Return the action that an answer has."""
    return ProviderAction(**{name: value for name, value in document.items() if name != "id"})


def effects_of(
    actions: Iterable[ProviderAction], amount: Callable[[Mapping[str, Any]], int] | None
) -> list[ProviderEffect]:
    """Return what actions did, for `audit_provider`.

    Raises:
        ValueError: if an amount is not an integer.
    """
    read = amount or (lambda body: body.get("amount", 0))
    effects = []
    for one in actions:
        found = read(one.body)
        if type(found) is not int:
            raise ValueError(f"amount of a body must be an integer of minor units, got {found!r}; pass amount=")
        effects.append(ProviderEffect(key=one.key, amount=found))
    return effects


def _read(page: Page, condition: str, *values: Any) -> list[ProviderAction]:
    # The condition is ours, the values are bound.
    rows = page.execute(f"SELECT * FROM actions WHERE {condition} ORDER BY number", *values)  # noqa: S608
    return _actions(rows.fetchall())


def read_actions(file: Path) -> list[ProviderAction]:
    """Read the actions, also when the provider is down."""
    with reading(file) as database:
        return _actions(database.execute("SELECT * FROM actions ORDER BY number").fetchall())


def _actions(rows: Sequence[sqlite3.Row]) -> list[ProviderAction]:
    return [ProviderAction(**{**dict(row), "body": json.loads(row["body"])}) for row in rows]


class PlainServer(FakeProviderServer[PlainOperation, ProviderFault, ActionKeeper]):
    """The provider's HTTP side."""

    def __init__(
        self,
        port: int,
        *,
        operations: Mapping[str, str],
        keeper: ActionKeeper,
        speed: float,
        spare: Collection[int] = (),
    ) -> None:
        super().__init__(port, keeper=keeper, trouble=ProviderFault, speed=speed, spare=spare)
        self._operations = operations_of(operations)

    def operation_of(self, method: str, path: str) -> tuple[PlainOperation, str] | None:
        """The operation of a request, and its path."""
        return next(((one, path) for one in self._operations if one.serves(method, path)), None)

    def run(self, request: Request[PlainOperation, ProviderFault]) -> Answer:
        """Act, refuse, or look up."""
        name = request.operation.name
        if not request.operation.acts:
            return self.keeper.find(name, request.key)
        refuse = request.trouble is not None and request.trouble.action == "refuse"
        return self.keeper.act(name, request.key, request.id, request.body, refuse=refuse)

    def before_answer(self, request: Request[PlainOperation, ProviderFault]) -> None:
        """Let a duplicate arrive later."""
        if request.trouble is not None and request.trouble.action == "duplicate" and request.operation.acts:
            threading.Thread(target=self._arrive_again, args=(request,), daemon=True).start()

    def _arrive_again(self, request: Request[PlainOperation, ProviderFault]) -> None:
        if not self.is_kept_after(request.trouble.seconds if request.trouble is not None else None):
            return
        name = str(request.operation)
        with suppress(sqlite3.ProgrammingError):  # the provider was stopped
            number = self.keeper.note(name, request.key, request.reference)
            known = self.claim(request)
            answer = known or self.keeper.act(
                request.operation.name, request.key, request.id, request.body, refuse=False
            )
            self.keeper.note_outcome(number, f"{answer.status}, the duplicate")
