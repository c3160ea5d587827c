"""A saga whose provider cannot report the outcome of a call."""
