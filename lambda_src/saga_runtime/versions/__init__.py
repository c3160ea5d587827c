"""Check-and-set and state transitions: writes to items that carry a version, and operations outside sagas, once.

From here come ``VersionedItem``, ``Transitions`` and ``commit_once``.
"""
