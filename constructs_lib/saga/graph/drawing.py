"""A picture as plain data: shapes with positions, in pixels. What draws them knows nothing of sagas."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from constructs_lib.saga.graph.looks import Tone

Point = tuple[float, float]


class Way(StrEnum):
    """Meaning of a line."""

    FORWARD = "forward"
    """The saga continues."""
    SKIP = "skip"
    """Steps are skipped."""
    FAIL = "fail"
    """A step fails."""
    UNDO = "undo"
    """From one compensation to the next."""
    PARK = "park"
    """Operator action is required."""


class End(StrEnum):
    """Ends of a saga's path."""

    START = "start"
    COMPLETED = "completed"
    FAILED = "failed"
    PARKED = "parked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.y + self.height

    @property
    def center(self) -> float:
        """Its middle, from left to right."""
        return self.x + self.width / 2

    @property
    def middle(self) -> float:
        """Its middle, from top to bottom."""
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A line of small print, in the colour of its way."""

    text: str
    way: Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A step, or a compensation.

    Attributes:
        box: where it is.
        icon: path in a square of 16.
        tone: its colour; of a compensation, None.
        name: its name, on lines.
        caption: what it is, on lines.
        notes: routes of named errors.
        hint: everything about it, shown on hover.
        pivot: whether it is a pivot.
        compact: whether its icon is above its name.
    """

    box: Box
    icon: str
    tone: Tone | None
    name: tuple[str, ...]
    caption: tuple[str, ...]
    notes: tuple[Note, ...] = ()
    hint: str
    pivot: bool = False
    compact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A group of steps, on which their cards are placed. ``sheets``: it represents many of its kind."""

    box: Box
    icon: str
    name: tuple[str, ...]
    caption: str
    hint: str
    sheets: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One branch on a panel."""

    box: Box


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A condition."""

    box: Box
    lines: tuple[str, ...]
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pill:
    """A beginning or an end."""

    box: Box
    end: End
    title: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A way through points, with rounded corners."""

    points: tuple[Point, ...]
    way: Way
    arrow: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """Meeting point of two lines."""

    at: Point
    way: Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A word next to a line. ``anchor`` is SVG's: start, middle, end."""

    at: Point
    text: str
    anchor: str = "start"
    way: Way = Way.SKIP


@dataclass(frozen=True, slots=True, kw_only=True)
class PivotLine:
    """From here only forward."""

    y: float
    label: Box
    text: str


Shape = Card | Panel | Lane | Chip | Pill | Line | Joint | Word | PivotLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A picture of a saga.

    Attributes:
        width: in pixels.
        height: in pixels.
        title: its heading.
        subtitle: the line below the heading.
        description: the picture in words, for screen readers.
        shapes: back to front.
    """

    width: int
    height: int
    title: str
    subtitle: str
    description: str
    shapes: tuple[Shape, ...]
