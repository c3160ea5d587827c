"""Funds transfers that run inline, begun by messages of a queue and of a FIFO queue."""
