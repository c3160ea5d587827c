"""Refusals at synth: expressions, budgets, retention, steps in a wrong order.

Imports ``steps`` and ``asl``.
"""
