"""Stacks with what no example has, and what happens to them: in fixed runs, and under drawn faults."""
