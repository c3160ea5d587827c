"""Terms of a deployed migration. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saga_runtime.migration.layout import Layout
from saga_runtime.protocol import MigrationField


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Terms of a deployed migration.

    Attributes:
        layout: its layout.
        most_phase: up to which phase the deployment allows to advance.
        segments: of the scan.
        ended_after_seconds: after which time no function of the code, or of the phase, before still runs.
        clean_for_seconds: for how long comparisons must have found no difference.
        kept_for_seconds: for how long old items are kept after everything left them.
        writers: names of the functions that write the table's items.
    """

    layout: Layout
    most_phase: int
    segments: int
    ended_after_seconds: int
    clean_for_seconds: int
    kept_for_seconds: int
    writers: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Value of ``Env.MIGRATION``, as JSON values."""
        f = MigrationField
        return {
            **self.layout.to_json(),
            f.MOST_PHASE: self.most_phase,
            f.SEGMENTS: self.segments,
            f.ENDED_AFTER: self.ended_after_seconds,
            f.CLEAN_FOR: self.clean_for_seconds,
            f.KEPT_FOR: self.kept_for_seconds,
            f.WRITERS: list(self.writers),
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Terms:
        """Read what ``to_json`` wrote."""
        f = MigrationField
        return cls(
            layout=Layout.from_json(told),
            most_phase=told[f.MOST_PHASE],
            segments=told[f.SEGMENTS],
            ended_after_seconds=told[f.ENDED_AFTER],
            clean_for_seconds=told[f.CLEAN_FOR],
            kept_for_seconds=told[f.KEPT_FOR],
            writers=tuple(told[f.WRITERS]),
        )
