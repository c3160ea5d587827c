"""Rows of the saga log, and the one transaction that commits a row with its effect.

Imports ``idempotency`` and ``shared``.
"""
