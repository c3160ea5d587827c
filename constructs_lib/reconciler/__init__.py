"""TimeoutReconciler, which recovers sagas by status events and by schedule; OperatorAccess, which acts for operators.

Imports ``callbacks``, ``execution_watch`` and ``saga``.
"""
