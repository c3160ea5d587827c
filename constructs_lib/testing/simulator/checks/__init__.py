"""What a run shows: its trace, its findings, and what it has reached."""
