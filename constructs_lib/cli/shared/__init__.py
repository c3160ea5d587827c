"""Shared by subcommands: AWS sessions, reads, manifests, found sagas, output, the terminal."""
