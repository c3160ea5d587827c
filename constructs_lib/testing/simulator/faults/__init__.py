"""Faults: drawn for a run, and decided at each call."""
