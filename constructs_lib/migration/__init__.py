"""Migrating a table's items to another model while operations run.

Imports ``functions`` and ``monitoring``.
"""
