"""The wallet: keys, pure builders, operations, and the handlers of each face."""
