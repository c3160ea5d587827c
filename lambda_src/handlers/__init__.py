"""The constructs' own functions. Thin: decisions are in ``saga_runtime``."""
