"""A saga that waits for a warehouse and for an approval, and a test that plays both."""
