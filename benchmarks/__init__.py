"""Benchmarks: scripts, not timed tests. Each writes its results to build/benchmarks."""
