"""Deployed stacks: the template as plain data, and the functions' code in one process."""
