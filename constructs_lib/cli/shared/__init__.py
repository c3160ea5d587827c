"""Shared by subcommands: AWS sessions, output, moments, errors and found sagas."""
