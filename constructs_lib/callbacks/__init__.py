"""CallbackIntegration, its receivers, webhooks and approval pages.

Imports ``saga`` and ``rest``.
"""
