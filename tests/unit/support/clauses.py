"""Clauses of the conditions that reach a database: which there are, which decide, and what happens without one.

A fake database passes each write through ``passing`` before it does anything. Nothing happens there unless a run
watches: ``WATCH.seen`` then learns of each clause, and ``WATCH.dropped`` is removed from every write that has it.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

from constructs_lib.testing.simulator.aws.dynamodb.parsing import condition_of
from constructs_lib.testing.simulator.aws.dynamodb.trees import Always, Condition, clauses_of, without
from tests.unit.support.wire import meanwhile

Entry = Mapping[str, Any]
"""A member of a transaction, or a single write in the same form: ``{"Put": request}``."""

Find = Callable[[str, Entry], Mapping[str, Any] | None]
"""The item that a request (``Put``, ``Update``, …) is about; None: no item."""

_BETWEEN = (
    *(
        "boto",
        "concurrent.",
        "moto.",
        "tests.unit.conftest",
        "tests.unit.support.clauses",
        "tests.unit.support.checked_stack",
    ),
    *("tests.unit.support.asked_function", "tests.unit.support.operated_saga"),
    *("tests.unit.support.dynamodb", "tests.unit.support.memory_dynamodb"),
    *("tests.unit.support.quick_moto", "tests.unit.support.watched", "tests.unit.support.wire"),
)
"""Modules between the one that sends and a database."""
_STATE_MACHINES = ("tests.unit.support.request_model", "tests.unit.support.step_model")
"""Modules that send what a state machine sends."""
TABLES = ("requests", "log", "ledger", "tokens", "watch", "hold", "customers")
_SENDERS = ("saga_runtime.shared.", "saga_runtime.saga_log.transaction", "saga_runtime.saga_log.row_write")
_PLACEHOLDER = re.compile(r"[#:]\w+")
_NAME = re.compile(r"#\w+")


@dataclass(frozen=True, slots=True, order=True)
class Clause:
    """One clause of a condition, or a member of a transaction as a whole.

    Attributes:
        room: the room that sends.
        write: the table, and the kind of write.
        condition: the whole condition, with the names of attributes.
        left_out: the clause; empty: the whole member is left out.
        position: which one of the condition's clauses it is.
    """

    room: str
    write: str
    condition: str
    left_out: str
    position: int

    def __str__(self) -> str:
        what = f"without `{self.left_out}`" if self.left_out else "left out of its transaction"
        return f"{self.room}: {self.write} if `{self.condition}`: {what}"


@dataclass(slots=True)
class Watch:
    """State of a run that records writes, or leaves a clause out.

    Attributes:
        sent: clauses that the code under test sent.
        decides: by clause, tests in which a write ends otherwise without it, and the room that sent the write.
        test: the one that runs.
        dropped: the clause that is removed; None: nothing is.
        on: whether anything is to be learned.
    """

    sent: set[Clause] = field(default_factory=set)
    decides: defaultdict[Clause, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))
    test: str = ""
    dropped: Clause | None = None
    on: bool = False

    def learn(self, entries: Sequence[Entry], find: Find) -> None:
        """Learn of each clause of some writes, and whether it decides."""
        writes = [_read(kind, request) for entry in entries for kind, request in entry.items()]
        items = [find(kind, request) or {} for entry in entries for kind, request in entry.items()]
        met = [write.holds(item) for write, item in zip(writes, items, strict=True)]
        for write, item, holds in zip(writes, items, met, strict=True):
            found = [
                (clause, (rest is None or rest.holds(item, write.names, write.values)) is not holds)
                for clause, rest in write.variants()
            ]
            if len(entries) > 1:
                found.append((write.member, (not holds) if write.kind == "ConditionCheck" else all(met)))
            for clause, decides in found:
                if write.room and write.request["TableName"] in TABLES:
                    self.sent.add(clause)
                if decides:
                    self.decides[_without_room(clause)].append((self.test, write.room))

    def tests_of(self, clause: Clause) -> list[str]:
        """Tests in which a clause decides: of its room, or of a write that a test sends itself."""
        return list(
            dict.fromkeys(test for test, room in self.decides[_without_room(clause)] if room in ("", clause.room))
        )


def _without_room(clause: Clause) -> Clause:
    return replace(clause, room="")


WATCH = Watch()


@dataclass(frozen=True, slots=True)
class _Write:
    room: str
    kind: str
    request: Mapping[str, Any]
    names: Mapping[str, str]
    values: Mapping[str, Any]
    tree: Condition | None

    def holds(self, item: Mapping[str, Any]) -> bool:
        return self.tree is None or self.tree.holds(item, self.names, self.values)

    def said(self, tree: Condition | None) -> str:
        """A condition with the names of attributes."""
        return "" if tree is None else _NAME.sub(lambda found: self.names[found[0]], str(tree))

    @property
    def what(self) -> str:
        return f"{self.request['TableName']} {self.kind}"

    @property
    def member(self) -> Clause:
        return Clause(self.room, self.what, self.said(self.tree), "", -1)

    def variants(self) -> Iterator[tuple[Clause, Condition | None]]:
        """Each clause, and the condition without it; None: nothing is left."""
        if self.tree is None:
            return
        whole = self.said(self.tree)
        for position, clause in enumerate(clauses_of(self.tree)):
            rest = without(self.tree, clause)
            yield (
                Clause(self.room, self.what, whole, self.said(clause), position),
                None if isinstance(rest, Always) else rest,
            )


def passing(entries: Sequence[Entry], find: Find) -> Sequence[Entry]:
    """Writes on their way to a database: as they are, or without what a run wants to be left out."""
    if WATCH.on:
        WATCH.learn(entries, find)
    if WATCH.dropped is None:
        return entries
    return [_changed(kind, request, alone=len(entries) == 1) for entry in entries for kind, request in entry.items()]


def _changed(kind: str, request: Mapping[str, Any], *, alone: bool) -> Entry:
    write = _read(kind, request)
    if _is_dropped(write.member) and not alone:
        # A check that always holds keeps the place of the member among the reasons of a refusal.
        key = request["Key"] if "Key" in request else _key_of(request)
        table = request["TableName"]
        always = "attribute_exists(#any) OR attribute_not_exists(#any)"
        names = {"#any": next(iter(key))}
        check = {"TableName": table, "Key": key, "ConditionExpression": always, "ExpressionAttributeNames": names}
        return {"ConditionCheck": check}
    for clause, rest in write.variants():
        if _is_dropped(clause):
            return {kind: _with_condition(kind, request, rest)}
    return {kind: request}


def _with_condition(kind: str, request: Mapping[str, Any], rest: Condition | None) -> dict[str, Any]:
    """A request with another condition, without the placeholders that nothing uses any more."""
    left_out = ("ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues")
    changed = {name: value for name, value in request.items() if name not in left_out}
    names, values = request.get("ExpressionAttributeNames", {}), request.get("ExpressionAttributeValues", {})
    if rest is not None:
        changed["ConditionExpression"] = str(rest)
    elif kind == "ConditionCheck":
        any_name = next(iter(names))
        changed["ConditionExpression"] = f"attribute_exists({any_name}) OR attribute_not_exists({any_name})"
    used = set(_PLACEHOLDER.findall(f"{changed.get('ConditionExpression', '')} {changed.get('UpdateExpression', '')}"))
    for member, given in (("ExpressionAttributeNames", names), ("ExpressionAttributeValues", values)):
        if kept := {name: value for name, value in given.items() if name in used}:
            changed[member] = kept
    return changed


def _read(kind: str, request: Mapping[str, Any]) -> _Write:
    names = request.get("ExpressionAttributeNames", {})
    values = request.get("ExpressionAttributeValues", {})
    text = request.get("ConditionExpression")
    tree = None if text is None else condition_of(text).tree
    return _Write(_room(), kind, request, names, values, tree)


def _is_dropped(clause: Clause) -> bool:
    dropped = WATCH.dropped
    return dropped is not None and clause.room in ("", dropped.room) and _without_room(clause) == _without_room(dropped)


def _key_of(put: Mapping[str, Any]) -> dict[str, Any]:
    """The key of an item that is put, in any table of the tests."""
    item = put["Item"]
    keys = {"saga_id", "step"} if put["TableName"] == "log" else {"pk", "sk"} if "pk" in item else {"id"}
    return {name: item[name] for name in sorted(keys)}


def _room() -> str:
    """The room of the code under test that sends, apart from senders for other rooms; empty: a test sends."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if frame.f_code is meanwhile.__code__:
            return ""
        frame = frame.f_back
        if module.startswith(_BETWEEN):
            continue
        if module in _STATE_MACHINES:
            return "state machine"
        if module.startswith("tests."):
            return ""
        if module.startswith("saga_runtime.") and not module.startswith(_SENDERS):
            return module.split(".")[1]
        if module.startswith("constructs_lib.cli."):
            return "cli"
        if module.startswith("handlers."):
            return "handlers"
    return ""
