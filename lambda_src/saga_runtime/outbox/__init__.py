"""Events that are published because a transaction committed: their rows, and what publishes them.

Imports ``saga_log`` and ``shared``. From here comes ``Outbox``.
"""
