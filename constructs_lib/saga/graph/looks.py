"""Icon, tone and caption of a step, which its kind knows. A kind that is not known here is drawn plainly."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.description.kind import GroupKind, kind_named
from constructs_lib.saga.graph.timeline import duration

_DOT: Final = "M8 4a4 4 0 1 0 0 8a4 4 0 0 0 0-8z"
UNDO_ICON: Final = "M5.5 3.5L2.5 6.5l3 3M2.5 6.5H10a3.5 3.5 0 0 1 0 7H6.5"
"""Icon of a compensation."""


class Tone(StrEnum):
    """A colour with a meaning."""

    LOCAL = "local"
    """Here, in DynamoDB."""
    OUTSIDE = "outside"
    """At a third party."""
    QUIET = "quiet"
    """Changes nothing."""
    OUTGOING = "outgoing"
    """Notifies others."""
    OWN = "own"
    """The state machine itself."""
    GROUP = "group"
    """Several steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Look of a step.

    Attributes:
        icon: path in a square of 16, stroked.
        tone: its colour.
        caption: words for it, so that no legend is needed.
        sheets: whether it is drawn as several sheets, one for each item.
    """

    icon: str
    tone: Tone
    caption: str
    sheets: bool = False


def look_of(step: StepDescription) -> Look:
    """Return a step's look; a kind that is not known here is drawn plainly, with its name."""
    kind = kind_named(step.kind)
    if kind is None:
        return Look(icon=_DOT, tone=Tone.GROUP if step.branches else Tone.OWN, caption=step.kind)
    sheets = isinstance(kind, GroupKind) and kind.per_item
    return Look(icon=kind.icon, tone=Tone(kind.tone), caption=kind.caption(step), sheets=sheets)


def at_most(what: str, step: StepDescription) -> str:
    """A caption with the longest duration, if there is one."""
    return f"{what}, at most {duration(step.timeout * 1_000)}" if step.timeout else what


def within(what: str, step: StepDescription) -> str:
    """A caption with the duration of a wait."""
    return f"{what}, within {duration(step.timeout * 1_000)}"
