"""AWS clients, the clock, telemetry, secrets, backoff, ARNs and lazy exports.

Imports ``protocol`` and ``errors`` only. Every room may import it.
"""
