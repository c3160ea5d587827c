"""Signed webhooks: their signatures, and the handlers that receive them.

Imports ``callbacks`` and ``http``.
"""
