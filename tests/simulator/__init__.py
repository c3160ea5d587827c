"""The simulator, held against what it stands for, and the examples simulated."""
