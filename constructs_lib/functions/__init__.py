"""Lambda functions: the bundle, step functions, their handlers and schedules.

Imports ``shared`` only.
"""
