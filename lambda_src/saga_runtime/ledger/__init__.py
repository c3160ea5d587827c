"""Double-entry postings, holds and collecting accounts on a DynamoDB table.

Imports ``money``, ``saga_log`` and ``shared``. Its public names are exported by ``saga_runtime``.
"""
