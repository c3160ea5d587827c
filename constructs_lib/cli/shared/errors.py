"""What goes wrong in a command and is told in one line."""

from __future__ import annotations


class CommandError(Exception):
    """The command cannot do what it was asked to; the message says why and what to do."""
