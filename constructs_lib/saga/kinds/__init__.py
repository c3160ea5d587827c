"""One class per kind of step: its look, cost, budget, grants and description. ``kind_named`` imports the module."""
