"""Errors of a command that are printed in one line."""

from __future__ import annotations


class CommandError(Exception):
    """The command cannot run as requested; the message has the reason and the remedy."""
