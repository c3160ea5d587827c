"""Decisions and actions of the reconciler: recoveries, late effects, parked sagas, money in flight.

Imports ``callbacks``, ``saga_log`` and ``idempotency``.
"""
