"""Clauses of the conditions that reach a database: which there are, which decide, and what happens without one.

A fake database passes each write through ``passing`` before it does anything. Nothing happens there unless a run
watches: ``WATCH.seen`` then learns of each clause, and ``WATCH.dropped`` is removed from every write that has it.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from constructs_lib.testing.simulator.aws.dynamodb.parsing import condition_of
from constructs_lib.testing.simulator.aws.dynamodb.trees import Always, Condition, clauses_of, without

Entry = Mapping[str, Any]
"""A member of a transaction, or a single write in the same form: ``{"Put": request}``."""
Find = Callable[[str, Entry], Mapping[str, Any] | None]
"""The item that a request (``Put``, ``Update``, …) is about; None: there is none."""

_SENDERS = ("saga_runtime.shared.", "saga_runtime.saga_log.transaction", "saga_runtime.saga_log.row_write")
_PLACEHOLDER = re.compile(r"[#:]\w+")
_WORD = re.compile(r"[A-Z][A-Z_]*")


@dataclass(frozen=True, slots=True, order=True)
class Clause:
    """One clause of a condition, or a member of a transaction as a whole.

    Attributes:
        write: the table, the kind of write, and what it writes.
        condition: the whole condition, with the names of attributes.
        left_out: the clause; empty: the whole member is left out.
        position: which one of the condition's clauses it is.
    """

    write: str
    condition: str
    left_out: str
    position: int

    def __str__(self) -> str:
        what = f"without `{self.left_out}`" if self.left_out else "left out of its transaction"
        return f"{self.write} if `{self.condition}`: {what}"


@dataclass(slots=True)
class Watch:
    """What a run wants to know of the writes that pass.

    Attributes:
        seen: modules of the code under test that sent a clause.
        decides: tests in which a write ends otherwise without the clause.
        test: the one that runs.
        dropped: the clause that is removed; None: nothing is.
        on: whether anything is to be learned.
    """

    seen: defaultdict[Clause, set[str]] = field(default_factory=lambda: defaultdict(set))
    decides: defaultdict[Clause, set[str]] = field(default_factory=lambda: defaultdict(set))
    test: str = ""
    dropped: Clause | None = None
    on: bool = False

    def learn(self, entries: Sequence[Entry], find: Find) -> None:
        """Learn of each clause of some writes, and whether it decides."""
        writes = [_read(kind, request) for entry in entries for kind, request in entry.items()]
        items = [find(kind, request) or {} for entry in entries for kind, request in entry.items()]
        met = [write.holds(item) for write, item in zip(writes, items, strict=True)]
        sender = _sender()
        for write, item, holds in zip(writes, items, met, strict=True):
            for clause, rest in write.variants():
                if sender:
                    self.seen[clause].add(sender)
                if (rest is None or rest.holds(item, write.names, write.values)) is not holds:
                    self.decides[clause].add(self.test)
            if len(entries) > 1:
                if sender:
                    self.seen[write.member].add(sender)
                if (not holds) if write.kind == "ConditionCheck" else all(met):
                    self.decides[write.member].add(self.test)


WATCH = Watch()


@dataclass(frozen=True, slots=True)
class _Write:
    kind: str
    request: Mapping[str, Any]
    names: Mapping[str, str]
    values: Mapping[str, Any]
    tree: Condition | None
    what: str

    def holds(self, item: Mapping[str, Any]) -> bool:
        return self.tree is None or self.tree.holds(item, self.names, self.values)

    def said(self, tree: Condition | None) -> str:
        """A condition with the names of attributes, and with values that are words."""
        return "" if tree is None else _PLACEHOLDER.sub(lambda found: self._meaning(found[0]), str(tree))

    def _meaning(self, placeholder: str) -> str:
        if placeholder in self.names:
            return self.names[placeholder]
        word = self.values.get(placeholder, {}).get("S", "")
        return word if isinstance(word, str) and _WORD.fullmatch(word) else placeholder

    @property
    def member(self) -> Clause:
        return Clause(self.what, self.said(self.tree), "", -1)

    def variants(self) -> Iterator[tuple[Clause, Condition | None]]:
        """Each clause, and the condition without it; None: nothing is left."""
        if self.tree is None:
            return
        whole = self.said(self.tree)
        for position, clause in enumerate(clauses_of(self.tree)):
            rest = without(self.tree, clause)
            yield (
                Clause(self.what, whole, self.said(clause), position),
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
    if write.member == WATCH.dropped and not alone:
        # A check that always holds keeps the place of the member among the reasons of a refusal.
        key = request["Key"] if "Key" in request else _key_of(request)
        table = request["TableName"]
        always = "attribute_exists(#any) OR attribute_not_exists(#any)"
        names = {"#any": next(iter(key))}
        check = {"TableName": table, "Key": key, "ConditionExpression": always, "ExpressionAttributeNames": names}
        return {"ConditionCheck": check}
    for clause, rest in write.variants():
        if clause == WATCH.dropped:
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
    write = _Write(kind, request, names, values, tree, "")
    return _Write(kind, request, names, values, tree, f"{request['TableName']} {kind}{_written(write)}")


def _written(write: _Write) -> str:
    """What a write writes: names of attributes, and the status or the kind if it sets one."""
    if write.kind == "Put":
        item = write.request["Item"]
        said = [item[name]["S"] for name in ("kind", "status") if name in item]
        return f" {' '.join(said)}" if said else ""
    update = write.request.get("UpdateExpression")
    if update is None:
        return ""
    status = re.search(r"(#\w+) = (:\w+)", " ".join(part for part in update.split(",") if "status" in part))
    if status and write.names.get(status[1]) == "status":
        return f" {write.values[status[2]].get('S', '')}"
    attributes = {write.names.get(name, name) for name in re.findall(r"#\w+", update)}
    return f" of {', '.join(sorted(attributes))}"


def _key_of(put: Mapping[str, Any]) -> dict[str, Any]:
    """The key of an item that is put, in any table of the tests."""
    item = put["Item"]
    keys = {"saga_id", "step"} if put["TableName"] == "log" else {"pk", "sk"} if "pk" in item else {"id"}
    return {name: item[name] for name in sorted(keys)}


def _sender() -> str:
    """The module of the code under test that sends, apart from those that send for others; empty: a test."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(("saga_runtime.", "constructs_lib.cli.", "handlers.")) and not module.startswith(_SENDERS):
            return module
        frame = frame.f_back
    return ""
