"""From declared steps to a plan, permissions, and the queue of parked sagas.

Imports ``steps`` and ``asl``.
"""
