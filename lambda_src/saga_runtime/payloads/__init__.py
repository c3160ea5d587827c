"""Requests and outputs that are too large for a state machine: claim checks in S3.

Imports ``idempotency`` and ``shared``.
"""
