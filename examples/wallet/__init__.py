"""A payment foundation: a wallet of several units, and the operations of four faces."""
