"""Sagas that events of a bus begin."""
