"""Trace, findings and coverage of a run."""
