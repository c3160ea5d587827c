"""Icon, tone and caption of each kind of step. A new kind is one entry here; until then it is drawn plainly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.graph.timeline import duration

_CYLINDER: Final = (
    "M3 4c0-1.1 2.2-2 5-2s5 .9 5 2-2.2 2-5 2-5-.9-5-2zM3 4v8c0 1.1 2.2 2 5 2s5-.9 5-2V4M3 8c0 1.1 2.2 2 5 2s5-.9 5-2"
)
_GLOBE: Final = (
    "M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 0 0 0-13zM1.5 8h13"
    "M8 1.5c2 1.8 3 4 3 6.5s-1 4.7-3 6.5c-2-1.8-3-4-3-6.5s1-4.7 3-6.5z"
)
_EYE: Final = "M1 8s2.5-4.5 7-4.5S15 8 15 8s-2.5 4.5-7 4.5S1 8 1 8zM8 6a2 2 0 1 0 0 4a2 2 0 0 0 0-4z"
_TABLE: Final = "M2 3h12v10H2zM2 6.5h12M2 9.8h12M6.5 6.5V13"
_CLOUD: Final = "M4.5 13a3.2 3.2 0 0 1-.4-6.4A4.2 4.2 0 0 1 12 6.2a3.4 3.4 0 0 1-.2 6.8z"
_ENVELOPE: Final = "M1.5 3.5h13v9h-13zM1.5 4l6.5 5 6.5-5"
_BROADCAST: Final = (
    "M8 7a1 1 0 1 0 0 2a1 1 0 0 0 0-2zM5.2 10.8a4 4 0 0 1 0-5.6M10.8 5.2a4 4 0 0 1 0 5.6"
    "M3 13a7 7 0 0 1 0-10M13 3a7 7 0 0 1 0 10"
)
_BRACES: Final = (
    "M6 2.5c-2 0-2 1-2 2.5s0 2.5-1.8 3C4 8.5 4 9.5 4 11s0 2.5 2 2.5"
    "M10 2.5c2 0 2 1 2 2.5s0 2.5 1.8 3C12 8.5 12 9.5 12 11s0 2.5-2 2.5"
)
_BOLT: Final = "M9 1.5L3 9h4.5L7 14.5L13 7H8.5z"
_NESTED: Final = "M2 2h12v12H2zM5.5 5.5h5v5h-5z"
_FORK: Final = "M8 1.5v3M3 14.5v-6a4 4 0 0 1 4-4h2a4 4 0 0 1 4 4v6M8 4.5v10"
_STACK: Final = "M5 5h9v9H5zM2 11V2h9"
_RETURN: Final = "M14 3v4a3 3 0 0 1-3 3H3M6.5 6.5L3 10l3.5 3.5"
_HOURGLASS: Final = "M4 1.5h8M4 14.5h8M5 1.5c0 4 6 4.5 6 6.5s-6 2.5-6 6.5M11 1.5c0 4-6 4.5-6 6.5s6 2.5 6 6.5"
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
class KindLook:
    """Look of a kind of step.

    Attributes:
        icon: path in a square of 16, stroked.
        tone: its colour.
        caption: words for it, so that no legend is needed.
    """

    icon: str
    tone: Tone
    caption: Callable[[StepDescription], str]


def _always(text: str) -> Callable[[StepDescription], str]:
    return lambda _: text


def _read_only(step: StepDescription) -> str:
    return "read-only" if step.recorded else "read-only, not recorded"


def _at_most(what: str) -> Callable[[StepDescription], str]:
    return lambda step: f"{what}, at most {duration(step.timeout * 1_000)}" if step.timeout else what


def _within(what: str) -> Callable[[StepDescription], str]:
    return lambda step: f"{what}, within {duration(step.timeout * 1_000)}"


def _branches(step: StepDescription) -> str:
    return f"parallel, {len(step.branches)} branches at once"


def _map(step: StepDescription) -> str:
    return f"map, for each of at most {step.max_items} items" if step.max_items else "map, for each item"


LOOKS: Final = {
    "atomic": KindLook(icon=_CYLINDER, tone=Tone.LOCAL, caption=_always("atomic, in DynamoDB")),
    "external": KindLook(icon=_GLOBE, tone=Tone.OUTSIDE, caption=_always("external, at a provider")),
    "callback": KindLook(icon=_RETURN, tone=Tone.OUTSIDE, caption=_within("callback")),
    "wait": KindLook(icon=_HOURGLASS, tone=Tone.QUIET, caption=_within("waits")),
    "read-only": KindLook(icon=_EYE, tone=Tone.QUIET, caption=_read_only),
    "dynamodb": KindLook(icon=_TABLE, tone=Tone.LOCAL, caption=_always("DynamoDB, no function")),
    "service": KindLook(icon=_CLOUD, tone=Tone.OWN, caption=_always("AWS service, no function")),
    "notify": KindLook(icon=_ENVELOPE, tone=Tone.OUTGOING, caption=_always("notification")),
    "event": KindLook(icon=_BROADCAST, tone=Tone.OUTGOING, caption=_always("event")),
    "custom": KindLook(icon=_BRACES, tone=Tone.OWN, caption=_always("a state of your own")),
    "express": KindLook(icon=_BOLT, tone=Tone.GROUP, caption=_at_most("Express phase")),
    "child": KindLook(icon=_NESTED, tone=Tone.GROUP, caption=_at_most("Standard child")),
    "parallel": KindLook(icon=_FORK, tone=Tone.GROUP, caption=_branches),
    "map": KindLook(icon=_STACK, tone=Tone.GROUP, caption=_map),
}
"""By value of ``StepKind``."""


def look_of(step: StepDescription) -> KindLook:
    """Return a step's look; a kind without an entry is drawn plainly, with the kind's name."""
    known = LOOKS.get(step.kind)
    tone = Tone.GROUP if step.branches else Tone.OWN
    return known or KindLook(icon=_DOT, tone=tone, caption=_always(step.kind))
