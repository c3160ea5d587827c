"""A saga whose provider cannot say what became of a call."""
