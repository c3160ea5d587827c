"""Approval links, and the page on which a reviewer decides.

Imports ``callbacks`` and ``http``.
"""
