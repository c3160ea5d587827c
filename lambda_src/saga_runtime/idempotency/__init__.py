"""Request ids, scopes, step keys, and the decisions of the request record.

Pure: data in, data out. Imports ``protocol``, ``errors`` and ``money``.
"""
