"""What goes wrong: drawn for a run, and decided at each call."""
