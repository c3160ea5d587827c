"""Positions of everything in the picture of a saga.

The forward path runs down, compensations run up next to it, and the pivot's line crosses both: above it a failure
compensates, below it the saga goes forward or is parked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from constructs_lib.saga.description.description import SagaDescription, StepDescription
from constructs_lib.saga.graph.cards import chip, panel, panel_head, pill, step_card, undo_card
from constructs_lib.saga.graph.drawing import Box, Drawing, End, Joint, Lane, Way
from constructs_lib.saga.graph.looks import look_of
from constructs_lib.saga.graph.sheet import BACK, BACK_WIDTH, SPINE, WIDTH, Sheet
from constructs_lib.saga.graph.structure import Guarded, Part, Routes, flat, last_pivot, parts_of
from constructs_lib.saga.graph.words import described, heading, subtitle
from saga_runtime.protocol import Side

_MAIN: Final = 540
_CARD: Final = 320
_PANEL: Final = 384
_PANEL_SIDE: Final = 32
_PANEL_BOTTOM: Final = 20
_LANE_SPACE: Final = 12
_LANE_SIDE: Final = 10
_MOST_LANES: Final = 3
_ROUTE_SPACE: Final = 24
_TOP: Final = 88
_GAP: Final = 30
_PIVOT_GAP: Final = 76
_FORK: Final = 20
_JOIN: Final = 24
_GUTTER: Final = 16
_NO_WORD: Final = 30
_OVERHANG: Final = 12
_CHIP: Final = 300
_LEGEND: Final = 66


def lay_out(saga: SagaDescription) -> Drawing:
    """The picture of a saga. The same description gives the same picture."""
    return _Layout(saga).drawing()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    center: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exit:
    """Point at which the forward path leaves a part, and how far down the part reaches."""

    anchor: float
    bottom: float


class _Layout:
    def __init__(self, saga: SagaDescription) -> None:
        self._saga = saga
        self._sheet = Sheet()
        self._line_below = _line_below(saga)
        self._fails: Callable[[StepDescription, Box], None] = self._sheet.fails

    def drawing(self) -> Drawing:
        sheet = self._sheet
        start = pill(End.START, "Request", "under one key", center=SPINE, y=_TOP, width=BACK_WIDTH)
        told = "compensated, notified" if self._saga.tells_of_failure else "all compensated"
        failed = pill(End.FAILED, "Failed", told, center=BACK, y=_TOP, width=BACK_WIDTH)
        sheet.cards += [start, failed]
        column = _Column(center=SPINE, width=_MAIN)
        end = self._flow(parts_of(self._saga.steps), column, start.box.bottom + _GAP, enter=start.box.bottom)
        bottom = end.bottom + _GAP
        sheet.line(Way.FORWARD, (SPINE, end.anchor), (SPINE, bottom))
        completed = pill(End.COMPLETED, "Completed", "every effect applied", center=SPINE, y=bottom, width=BACK_WIDTH)
        sheet.cards.append(completed)
        sheet.way_back(failed.box)
        line = sheet.way_to_a_person(bottom)
        return Drawing(
            width=WIDTH,
            height=round(completed.box.bottom) + _LEGEND,
            title=heading(self._saga),
            subtitle=subtitle(self._saga),
            description=described(self._saga),
            shapes=(*sheet.panels, *line, *sheet.lines, *sheet.cards),
        )

    def _flow(self, parts: Sequence[Part], column: _Column, top: float, *, enter: float | None) -> _Exit:
        """Parts, one below the other. ``enter``: from where the way forward comes."""
        anchor, y, bottom = enter, top, top
        for part in parts:
            if anchor is not None:
                self._sheet.line(Way.FORWARD, (column.center, anchor), (column.center, y))
            left = self._part(part, column, y)
            anchor, bottom = left.anchor, left.bottom
            y = bottom + _GAP
        if enter is None and not isinstance(parts[-1], StepDescription):
            self._sheet.lines.append(Joint(at=(column.center, bottom), way=Way.FORWARD))
        return _Exit(anchor=top if anchor is None else anchor, bottom=bottom)

    def _part(self, part: Part, column: _Column, y: float) -> _Exit:
        if isinstance(part, Guarded):
            return self._guarded(part, column, y)
        if isinstance(part, Routes):
            return self._routes(part, column, y)
        if len(part.branches) > 1:
            bottom = self._parallel(part, column, y)
        elif part.branches:
            bottom = self._phase(part, column, y)
        else:
            bottom = self._step(part, column, y)
        if part.name not in self._line_below:
            return _Exit(anchor=bottom, bottom=bottom)
        self._sheet.pivot_y = max(self._sheet.pivot_y or 0, bottom + _PIVOT_GAP / 2)
        return _Exit(anchor=bottom, bottom=bottom + _PIVOT_GAP - _GAP)

    def _step(self, step: StepDescription, column: _Column, y: float) -> float:
        # A compensation's card is narrower, so it may be higher: it must not reach those above and below it.
        beside = step.compensated and self._fails == self._sheet.fails
        least = undo_card(step, center=BACK, width=BACK_WIDTH).box.height - _OVERHANG if beside else 0
        card = step_card(step, center=column.center, y=y, width=min(column.width, _CARD), least=least)
        self._sheet.cards.append(card)
        self._fails(step, card.box)
        return card.box.bottom

    def _phase(self, group: StepDescription, column: _Column, y: float) -> float:
        """A group of steps in one row, on a panel."""
        width = min(column.width, _PANEL)
        *_, head = panel_head(group, width=width)
        inner = _Column(center=column.center, width=width - 2 * _PANEL_SIDE)
        bottom = self._flow(parts_of(group.branches[0]), inner, y + head, enter=None).bottom + _PANEL_BOTTOM
        box = Box(x=column.center - width / 2, y=y, width=width, height=bottom - y)
        self._sheet.panels.append(panel(group, box))
        return bottom

    def _parallel(self, group: StepDescription, column: _Column, y: float) -> float:
        """Concurrent branches, in rows of three at most, on one panel."""
        width = column.width
        *_, head = panel_head(group, width=width)
        count = len(group.branches)
        across = _lanes_across(group)
        lane_width = (width - _LANE_SPACE * (across + 1)) / across
        left = column.center - width / 2 + _LANE_SPACE
        at = len(self._sheet.panels)
        lanes: list[Lane] = []
        fails, self._fails = self._fails, lambda _step, _box: None
        top = y + head
        for first in range(0, count, across):
            bottoms = []
            for index, branch in enumerate(group.branches[first : first + across]):
                x = left + index * (lane_width + _LANE_SPACE)
                inner = _Column(center=x + lane_width / 2, width=lane_width - 2 * _LANE_SIDE)
                bottoms.append(self._flow(parts_of(branch), inner, top + _LANE_SIDE, enter=None).bottom + _LANE_SIDE)
            for index in range(len(bottoms)):
                x = left + index * (lane_width + _LANE_SPACE)
                lanes.append(Lane(box=Box(x=x, y=top, width=lane_width, height=max(bottoms) - top)))
            top = max(bottoms) + _LANE_SPACE
        self._fails = fails
        leaves = list(group.leaves)
        bottom = max(top, y + self._sheet.stack_height(leaves))
        box = Box(x=column.center - width / 2, y=y, width=width, height=bottom - y)
        self._sheet.panels[at:at] = [panel(group, box), *lanes]
        if self._fails == self._sheet.fails:  # else the routes around it put them next to all of theirs
            self._sheet.stack(leaves, box)
        return bottom

    def _guarded(self, part: Guarded, column: _Column, y: float) -> _Exit:
        """Steps under a condition, and a way around them."""
        sheet = self._sheet
        condition = chip(part.when, center=column.center, y=y, width=min(column.width - 2 * _NO_WORD, _CHIP))
        before = sheet.mark()
        room = column.width if column.width >= _CARD else column.width - 2 * _GUTTER
        inner = self._flow(
            parts_of([_unconditional(step) for step in part.steps]),
            _Column(center=column.center, width=room),
            condition.box.bottom + _GAP,
            enter=condition.box.bottom,
        )
        box = condition.box
        gutter = min(sheet.left_edge(before) - _GUTTER, box.x - _NO_WORD)
        sheet.cards.append(condition)
        join = inner.bottom + _JOIN
        sheet.line(Way.FORWARD, (column.center, inner.anchor), (column.center, join), arrow=False)
        sheet.line(
            Way.SKIP, (box.x, box.middle), (gutter, box.middle), (gutter, join), (column.center, join), arrow=False
        )
        sheet.word(column.center + 8, box.bottom + 17, "yes")
        sheet.word(box.x - 6, box.middle - 6, "no", "end")
        return _Exit(anchor=join, bottom=join)

    def _routes(self, part: Routes, column: _Column, y: float) -> _Exit:
        """Two routes side by side; the one with compensations is the right one."""
        sheet = self._sheet
        condition = chip(part.when, center=column.center, y=y, width=min(column.width, _CARD))
        sheet.cards.append(condition)
        sides = [("no", part.no), ("yes", part.yes)]
        undone = [any(leaf.compensated for step in steps for leaf in step.leaves) for _, steps in sides]
        if undone == [True, False]:
            sides.reverse()
        stacked = all(undone)
        fork = condition.box.bottom + _FORK
        top = fork + _FORK + 8
        width = (column.width - _ROUTE_SPACE) / 2
        offset = (width + _ROUTE_SPACE) / 2
        lanes = [_Column(center=column.center + side * offset, width=width) for side in (-1, 1)]
        ways = [parts_of([_unconditional(step) for step in steps]) for _, steps in sides]
        pivots = [self._height_to_pivot(way, lane) for way, lane in zip(ways, lanes, strict=True)]
        fails, exits, left_boxes = self._fails, [], []
        for index, (way, lane) in enumerate(zip(ways, lanes, strict=True)):
            if stacked or fails != sheet.fails:
                self._fails = lambda _step, _box: None
            elif index == 0:
                self._fails = lambda step, box: left_boxes.append((step, box))
            else:
                self._fails = fails
            begin = top + max(pivots) - pivots[index]
            sheet.line(
                Way.FORWARD,
                (column.center, condition.box.bottom),
                (column.center, fork),
                (lane.center, fork),
                (lane.center, begin),
            )
            exits.append(self._flow(way, lane, begin, enter=None))
            outer = -6 if index == 0 else 6
            sheet.word(lane.center + outer, fork + 18, sides[index][0], "end" if index == 0 else "start")
        self._fails = fails
        join = max(left.bottom for left in exits) + _JOIN
        leaves = [leaf for step in part.steps for leaf in step.leaves]
        if stacked and fails == sheet.fails:
            join = max(join, y + sheet.stack_height(leaves))
            sheet.stack(leaves, Box(x=column.center, y=y, width=column.width / 2, height=join - y))
        for step, box in left_boxes:
            if step.side != Side.AFTER:
                below = box.bottom + _JOIN / 2
                sheet.fails_from((box.center + box.width / 4, box.bottom), (box.center + box.width / 4, below))
        for left, lane in zip(exits, lanes, strict=True):
            sheet.line(Way.FORWARD, (lane.center, left.anchor), (lane.center, join), (column.center, join), arrow=False)
        return _Exit(anchor=join, bottom=join)

    def _height_to_pivot(self, parts: Sequence[Part], column: _Column) -> float:
        """Distance from the top of a route to the end of its pivot; 0 for a route without one."""
        names = [step.name for step in flat(parts)]
        last = max((index for index, name in enumerate(names) if name in self._line_below), default=None)
        if last is None or any(not isinstance(part, StepDescription) for part in parts):
            return 0
        trial = _Layout(self._saga)
        return trial._flow(parts[: last + 1], column, 0, enter=None).anchor


def _unconditional(step: StepDescription) -> StepDescription:
    return dataclasses.replace(step, when=None)


def _lanes_across(group: StepDescription) -> int:
    """Branches in one row: a condition needs room for the way around it."""
    count = len(group.branches)
    conditions = any(step.when is not None for branch in group.branches for step in branch)
    return 2 if conditions or count in {2, 4} else _MOST_LANES


def _line_below(saga: SagaDescription) -> frozenset[str]:
    """Names of the steps and groups below which the pivot's line runs: more than one where routes have one each."""
    pivot = last_pivot(saga)
    if pivot is None:
        return frozenset()
    return frozenset(_holders(parts_of(saga.steps), pivot.name))


def _holders(parts: Sequence[Part], pivot: str) -> Iterable[str]:
    for part in parts:
        names = {leaf.name for step in flat([part]) for leaf in step.leaves}
        if pivot not in names:
            continue
        if isinstance(part, Routes):
            for steps in (part.yes, part.no):
                own = [leaf.name for step in steps for leaf in step.leaves if leaf.side == Side.PIVOT]
                if own:
                    yield from _holders(parts_of([_unconditional(step) for step in steps]), own[-1])
        elif isinstance(part, Guarded):
            yield from _holders(parts_of([_unconditional(step) for step in part.steps]), pivot)
        elif not part.branches or len(part.branches) > 1 or look_of(part).sheets:
            yield part.name
        else:
            yield from _holders(parts_of(part.branches[0]), pivot)
