"""Subcommands about one saga: inspect, recover, resolve, adopt."""
