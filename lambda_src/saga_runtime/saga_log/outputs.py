"""Outputs of earlier steps, read from the saga log on access.

A compensation, and a step whose outcome is asked for, may run in an execution that has not seen them. Read one by one,
they are not bound to what a state of a state machine may hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from saga_runtime.errors import ProtocolMismatch
from saga_runtime.idempotency.identity import row_name_of
from saga_runtime.protocol import LogAttribute, LoggedField, StepStatus
from saga_runtime.saga_log.rows import log_key
from saga_runtime.shared import aws

_READ: Final = (
    LogAttribute.STEP,
    LogAttribute.STATUS,
    LogAttribute.OUTPUT,
    LogAttribute.SUBSTITUTE,
    LogAttribute.ERROR,
)
_NAMES: Final = {f"#{name}": name for name in _READ}
_PROJECTION: Final = ",".join(_NAMES)
_NAMED: Final = (LoggedField.STEPS, LoggedField.PER_ITEM, LoggedField.OWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedOutputs(Mapping[str, Any]):
    """Outputs by step name, as a step saw them when the saga came to it.

    Attributes:
        table: the saga log.
        saga_id: the saga.
        item_key: key of the item that the step works on; None outside a map.
        steps: steps before it, outside its own item: one row each.
        per_item: steps of maps before it: one row for each item, and their outputs by key.
        own: steps before it in its own item.
        others: outputs that no row keeps, as far as they are known.
        instead: of steps that may be skipped, the substitute output of each refusal.
    """

    table: str
    saga_id: str
    item_key: str | None
    steps: frozenset[str]
    per_item: frozenset[str]
    own: frozenset[str]
    others: Mapping[str, Any]
    instead: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    _known: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, told: Any, *, table: str, saga_id: str, item_key: str | None, others: Mapping[str, Any]
    ) -> LoggedOutputs:
        """Read which outputs a state machine means.

        Raises:
            ProtocolMismatch: if it names no steps.
        """
        if not isinstance(told, Mapping) or not all(isinstance(told.get(name), list) for name in _NAMED):
            raise ProtocolMismatch(f"outputs in the log must be named by {', '.join(_NAMED)}, got {told!r}")
        return cls(
            table=table,
            saga_id=saga_id,
            item_key=item_key,
            steps=frozenset(told[LoggedField.STEPS]),
            per_item=frozenset(told[LoggedField.PER_ITEM]),
            own=frozenset(told[LoggedField.OWN]),
            others=others,
            instead=json.loads(told.get(LoggedField.INSTEAD, "{}")),
        )

    def __getitem__(self, step: str) -> Any:
        if step not in self._known:
            self._known[step] = self._read(step)
        if self._known[step] is None:
            raise KeyError(step)
        return self._known[step]

    def __iter__(self) -> Iterator[str]:
        named = dict.fromkeys((*sorted(self.steps | self.per_item | self.own), *self.others))
        return (step for step in named if step in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _read(self, step: str) -> Any:
        if step in self.own:
            return self._row(step, row_name_of(step, self.item_key))
        if step in self.steps:
            return self._row(step, step)
        if step in self.per_item:
            return self._by_key(step) or None
        return self.others.get(step)

    def _row(self, step: str, name: str) -> Any:
        found = aws.dynamodb().get_item(
            TableName=self.table,
            Key=log_key(self.saga_id, name),
            ProjectionExpression=_PROJECTION,
            ExpressionAttributeNames=_NAMES,
            ConsistentRead=True,
        )
        return self._seen(step, found.get("Item", {}))

    def _by_key(self, step: str) -> dict[str, Any]:
        pages = (
            aws.dynamodb()
            .get_paginator("query")
            .paginate(
                TableName=self.table,
                KeyConditionExpression="#saga_id = :saga_id AND begins_with(#step, :items)",
                ProjectionExpression=_PROJECTION,
                ExpressionAttributeNames={"#saga_id": LogAttribute.SAGA_ID, **_NAMES},
                ExpressionAttributeValues={":saga_id": {"S": self.saga_id}, ":items": {"S": f"{step}["}},
                ConsistentRead=True,
            )
        )
        rows = (row for page in pages for row in page["Items"])
        outputs = ((row[LogAttribute.STEP]["S"][len(step) + 1 : -1], self._seen(step, row)) for row in rows)
        return {key: output for key, output in outputs if output is not None}

    def _seen(self, step: str, row: Mapping[str, Any]) -> Any:
        """Output that later steps saw of a step; None: they saw none.

        A saga that continued without a step saw its substitute, whatever happened to the step afterwards.
        """
        a = LogAttribute
        if a.SUBSTITUTE in row:
            return json.loads(row[a.SUBSTITUTE]["S"])
        if a.ERROR in row and row[a.STATUS]["S"] != StepStatus.DONE:
            return self.instead.get(step, {}).get(row[a.ERROR]["S"])
        return json.loads(row[a.OUTPUT]["S"]) if a.OUTPUT in row else None
