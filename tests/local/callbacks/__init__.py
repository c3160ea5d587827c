"""A saga that waits for a warehouse and for somebody to say go, and a test that plays both."""
