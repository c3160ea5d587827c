"""The simulator, compared with the real services, and the examples simulated."""
