"""Decisions and actions of reconciler and operators: recoveries, late effects, parked sagas, proposals.

Imports ``callbacks``, ``saga_log`` and ``idempotency``.
"""
