"""What the reconciler decides and does: recoveries, late effects, parked sagas, money in flight.

Imports ``callbacks``, ``saga_log`` and ``idempotency``.
"""
