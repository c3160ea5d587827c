"""Alarms, each with its page of the runbook, and the operators' queues.

Imports ``functions`` and ``shared``.
"""
