"""Requests with an Idempotency-Key, responses, problem documents and JSON schemas.

Imports ``idempotency`` and ``payloads``.
"""
