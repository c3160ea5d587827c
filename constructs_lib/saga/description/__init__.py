"""A saga as data: what drawings, costs and checks read, also from a cloud assembly.

Imports ``functions``.
"""
