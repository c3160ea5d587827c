"""Actors outside of AWS: clients, operators, and providers behind HTTP."""
