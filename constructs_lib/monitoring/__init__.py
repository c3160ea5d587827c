"""Alarms of callbacks and of the reconciler, and the operators' queues.

Imports ``functions``, ``tables`` and ``shared``.
"""
