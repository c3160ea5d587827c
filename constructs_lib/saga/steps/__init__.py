"""The vocabulary of steps: kinds, groups, providers, retries, routes and waits.

Imports ``functions`` and ``shared``.
"""
