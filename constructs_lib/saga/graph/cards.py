"""Single shapes, as large as their texts need them."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.graph.drawing import Box, Card, Chip, End, Note, Panel, Pill, Way
from constructs_lib.saga.graph.looks import UNDO_ICON, Tone, look_of
from constructs_lib.saga.graph.text import code_width, text_width, wrap_code, wrap_name, wrap_text
from constructs_lib.saga.graph.words import GO_ON, hint, route_note
from saga_runtime.protocol import Side

NAME_SIZE: Final = 14
CAPTION_SIZE: Final = 11.5
CODE_SIZE: Final = 11
NAME_LINE: Final = 18
CAPTION_LINE: Final = 15
CODE_LINE: Final = 15
PADDING: Final = 12
ICON: Final = 30
COMPACT_WIDTH: Final = 200
"""A narrower card has its icon above its name."""
BADGE: Final = 54
"""What the word "pivot" takes at a card's right."""
PIVOT_WORD: Final = "pivot"
PIVOT_TEXT: Final = "from here only forward"

_PADDING_Y: Final = 10
_CHIP_PADDING: Final = 18
_MOST_CODE: Final = 4
_UNDO_PLACES: Final = {Tone.LOCAL: "in DynamoDB", Tone.OUTSIDE: "at the provider"}


def step_card(step: StepDescription, *, center: float, y: float, width: float, least: float = 0) -> Card:
    """A step's card, from ``y`` down, ``least`` high or higher."""
    look = look_of(step)
    pivot = step.side == Side.PIVOT
    compact = width < COMPACT_WIDTH
    room = width - 2 * PADDING - (0 if compact else ICON + PADDING)
    name = wrap_name(step.name, room - (BADGE if pivot and not compact else 0), NAME_SIZE)
    caption = wrap_text(look.caption, room, CAPTION_SIZE)
    notes = tuple(
        Note(text=line.strip(), way=Way.FORWARD if route == GO_ON else Way.UNDO)
        for error, route in sorted(step.routes.items())
        for line in wrap_name(route_note(error, route), room, CAPTION_SIZE)
    )
    height = 2 * _PADDING_Y + len(name) * NAME_LINE + (len(caption) + len(notes)) * CAPTION_LINE
    height += (ICON if compact else 0) + (6 if notes else 0)
    return Card(
        box=Box(x=center - width / 2, y=y, width=width, height=max(height, least)),
        icon=look.icon,
        tone=look.tone,
        name=name,
        caption=caption,
        notes=notes,
        hint=hint(step),
        pivot=pivot,
        compact=compact,
    )


def undo_card(step: StepDescription, *, center: float, width: float) -> Card:
    """The card of a step's compensation; it is placed later."""
    room = width - 2 * PADDING - ICON - PADDING
    name = wrap_name(f"Compensate {step.name}", room, NAME_SIZE)
    place = _UNDO_PLACES.get(look_of(step).tone, "")
    height = 2 * _PADDING_Y + len(name) * NAME_LINE + (CAPTION_LINE if place else 0)
    return Card(
        box=Box(x=center - width / 2, y=0, width=width, height=height),
        icon=UNDO_ICON,
        tone=None,
        name=name,
        caption=(place,) if place else (),
        hint=f"the compensation of {step.name}",
    )


def panel_head(step: StepDescription, *, width: float) -> tuple[tuple[str, ...], str, float]:
    """Name and caption of a group, and how high its head is."""
    room = width - 3 * PADDING - ICON
    name = wrap_name(step.name, room, NAME_SIZE)
    return name, look_of(step).caption, 2 * _PADDING_Y + len(name) * NAME_LINE + CAPTION_LINE


def panel(step: StepDescription, box: Box) -> Panel:
    """A group's panel."""
    name, caption, _ = panel_head(step, width=box.width)
    look = look_of(step)
    return Panel(box=box, icon=look.icon, name=name, caption=caption, hint=hint(step), sheets=look.sheets)


def chip(when: str, *, center: float, y: float, width: float) -> Chip:
    """A condition, as wide as its text, and not wider than ``width``."""
    lines = wrap_code(when, width - 2 * _CHIP_PADDING, CODE_SIZE, most=_MOST_CODE)
    own = max(code_width(line, CODE_SIZE) for line in lines) + 2 * _CHIP_PADDING
    box = Box(x=round(center - own / 2), y=y, width=round(own), height=len(lines) * CODE_LINE + 13)
    return Chip(box=box, lines=lines, hint=f"when {when}")


def pill(end: End, title: str, note: str, *, center: float, y: float, width: float) -> Pill:
    """A beginning or an end."""
    return Pill(box=Box(x=center - width / 2, y=y, width=width, height=46), end=end, title=title, note=note)


def badge_width(text: str) -> float:
    """Pixels that a word on a badge takes."""
    return text_width(text, CAPTION_SIZE, bold=True) + 20
