"""TransactionApi: operations with an Idempotency-Key.

Imports ``saga`` and ``rest``.
"""
