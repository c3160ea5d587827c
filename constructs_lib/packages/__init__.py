"""Packages that step functions need, installed for Lambda and for this machine; needs no CDK.

Imports nothing of this library.
"""
