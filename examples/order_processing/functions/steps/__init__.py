"""The functions of the order's steps."""
