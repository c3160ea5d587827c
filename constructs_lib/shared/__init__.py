"""Checks of arguments and types, names of services, acknowledgements of cdk-nag.

Imports the runtime's ``protocol`` only. Every room may import it.
"""
