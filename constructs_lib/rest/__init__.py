"""REST APIs: stages, problem documents of the gateway, the web ACL.

Imports ``shared`` only.
"""
