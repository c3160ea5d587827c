"""What is deployed: a stack's template as plain data, and its functions' code in one process."""
