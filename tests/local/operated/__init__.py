"""A saga about which two operators decide."""
