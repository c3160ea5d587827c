"""DynamoDB tables and the payload bucket, each with its grants.

Imports ``functions`` and ``shared``.
"""
