"""Watching over hand-written state machines: rows, decisions, sweeps and notices.

Imports ``protocol`` and ``shared`` only.
"""
