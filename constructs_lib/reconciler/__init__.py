"""TimeoutReconciler: it recovers sagas by status events and by schedule.

Imports ``callbacks``, ``execution_watch`` and ``saga``.
"""
