"""A step that is one call of an AWS service, straight from the state machine."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.graph.looks import Tone
from constructs_lib.saga.kinds import DirectStep

_CLOUD: Final = "M4.5 13a3.2 3.2 0 0 1-.4-6.4A4.2 4.2 0 0 1 12 6.2a3.4 3.4 0 0 1-.2 6.8z"


class Service(DirectStep, name="service"):
    """A call of an AWS service, straight from the state machine."""

    icon = _CLOUD
    words = "AWS service, no function"
    tone = Tone.OWN
    asks_first = True
