"""A step that is a state of the user's own."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.graph.looks import Tone
from constructs_lib.saga.kinds import DirectStep

_BRACES: Final = (
    "M6 2.5c-2 0-2 1-2 2.5s0 2.5-1.8 3C4 8.5 4 9.5 4 11s0 2.5 2 2.5"
    "M10 2.5c2 0 2 1 2 2.5s0 2.5 1.8 3C12 8.5 12 9.5 12 11s0 2.5-2 2.5"
)


class Custom(DirectStep, name="custom"):
    """A state of the user's own."""

    icon = _BRACES
    words = "a state of your own"
    tone = Tone.OWN
    asks_first = True
    runs_task = False
    own_state = True
