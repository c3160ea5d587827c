"""Watching over hand-written state machines, and the checks of what may be watched.

Imports ``saga`` and ``monitoring``.
"""
