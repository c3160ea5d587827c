"""A saga whose definitions are published as versions, in two releases."""
