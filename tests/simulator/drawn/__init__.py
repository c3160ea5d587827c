"""Sagas that are drawn: what they are, the stack that holds them, what is asked of them, and how a failure shrinks."""
