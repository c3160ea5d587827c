"""A ledger with units, holds and collecting accounts, and a function that uses it outside a saga."""
