"""Decorators that make Lambda handlers of step functions and of compensations.

Imports ``saga_log`` and ``payloads``.
"""
