"""The sheet that a saga is laid out on: shapes so far, and the compensations next to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.graph.cards import PIVOT_TEXT, badge_width, pill, undo_card
from constructs_lib.saga.graph.drawing import (
    Box,
    Card,
    End,
    Joint,
    Lane,
    Line,
    Panel,
    PivotLine,
    Point,
    Shape,
    Way,
    Word,
)
from saga_runtime.protocol import Side

WIDTH: Final = 900
MARGIN: Final = 24
SPINE: Final = 330
"""Where the way forward runs."""
BACK: Final = 768
"""Horizontal position of the compensations."""
BACK_WIDTH: Final = 216
_UNDO_SPACE: Final = 20


class Sheet:
    """Shapes so far, in layers: panels at the back, then lines, then cards."""

    def __init__(self) -> None:
        self.panels: list[Panel | Lane] = []
        self.lines: list[Line | Joint | Word] = []
        self.cards: list[Shape] = []
        self.pivot_y: float | None = None
        self._undo: list[Card] = []
        self._given_up: list[float] = []
        self._after: list[Box] = []

    def line(self, way: Way, *points: Point, arrow: bool = True) -> None:
        """A line through points."""
        self.lines.append(Line(points=points, way=way, arrow=arrow))

    def word(self, x: float, y: float, text: str, anchor: str = "start") -> None:
        """A word next to a line."""
        self.lines.append(Word(at=(x, y), text=text, anchor=anchor))

    def left_edge(self, since: tuple[int, int]) -> float:
        """The leftmost of the boxes that came since ``mark``."""
        boxes = [shape.box.x for shape in self.panels[since[0] :]]
        boxes += [shape.box.x for shape in self.cards[since[1] :] if isinstance(shape, Card)]
        return min(boxes)

    def mark(self) -> tuple[int, int]:
        """Number of shapes so far."""
        return len(self.panels), len(self.cards)

    def fails(self, step: StepDescription, box: Box) -> None:
        """Line from a failing step to its compensation."""
        if step.side == Side.AFTER:
            self._after.append(box)
        elif step.compensated:
            self._place_undo(undo_card(step, center=BACK, width=BACK_WIDTH), middle=box.middle)
            self.line(Way.FAIL, (box.right, box.middle), (BACK - BACK_WIDTH / 2, box.middle))
        else:
            self.fails_from((box.right, box.middle))

    def fails_from(self, *points: Point) -> None:
        """A line from a point to the compensations, at the height of the last point."""
        y = points[-1][1]
        self.line(Way.FAIL, *points, (BACK, y), arrow=False)
        self.lines.append(Joint(at=(BACK, y), way=Way.UNDO))
        self._given_up.append(y)

    def stack_height(self, steps: Sequence[StepDescription]) -> float:
        """Room that ``stack`` needs."""
        heights = [undo_card(step, center=BACK, width=BACK_WIDTH).box.height for step in _undone(steps)]
        return sum(heights) + _UNDO_SPACE * max(len(heights) - 1, 0)

    def stack(self, steps: Sequence[StepDescription], box: Box) -> None:
        """Compensations of concurrent steps, next to their box: the last one at the bottom is the first."""
        undone = _undone(steps)
        if not undone:
            if any(step.side != Side.AFTER for step in steps):
                self.fails_from((box.right, box.middle))
            return
        y = box.middle - self.stack_height(steps) / 2
        for step in undone:
            card = undo_card(step, center=BACK, width=BACK_WIDTH)
            self._place_undo(card, middle=y + card.box.height / 2)
            y += card.box.height + _UNDO_SPACE
        last = self._undo[-1].box
        self.line(Way.FAIL, (box.right, last.middle), (last.x, last.middle))

    def way_back(self, end: Box) -> None:
        """From the last step that can fail to the end that is called failed."""
        self.cards += self._undo
        stops = sorted(self._undo, key=lambda card: -card.box.y)
        lowest = max([*self._given_up, *(card.box.y for card in stops)], default=end.bottom)
        y = lowest
        for card in stops:
            if card.box.bottom < y:
                self.line(Way.UNDO, (BACK, y), (BACK, card.box.bottom))
            y = card.box.y
        self.line(Way.UNDO, (BACK, y), (BACK, end.bottom))

    def way_to_a_person(self, y: float) -> list[Shape]:
        """The pivot's line, and what can follow below it: what cannot be decided is parked."""
        if self.pivot_y is None:
            return []
        width = badge_width(PIVOT_TEXT)
        label = Box(x=BACK - width / 2, y=self.pivot_y - 14, width=width, height=28)
        parked = pill(End.PARKED, "Parked", "operator needed", center=BACK, y=y, width=BACK_WIDTH)
        self.cards.append(parked)
        for box in self._after:
            self.line(Way.PARK, (box.right, box.middle), (BACK, box.middle), arrow=False)
            self.lines.append(Joint(at=(BACK, box.middle), way=Way.PARK))
        self.line(Way.PARK, (BACK, label.bottom), (BACK, parked.box.y))
        return [PivotLine(y=self.pivot_y, label=label, text=PIVOT_TEXT)]

    def _place_undo(self, card: Card, *, middle: float) -> None:
        box = Box(x=card.box.x, y=middle - card.box.height / 2, width=card.box.width, height=card.box.height)
        self._undo.append(
            Card(box=box, icon=card.icon, tone=card.tone, name=card.name, caption=card.caption, hint=card.hint)
        )


def _undone(steps: Sequence[StepDescription]) -> list[StepDescription]:
    return [step for step in steps if step.compensated and step.side != Side.AFTER]
