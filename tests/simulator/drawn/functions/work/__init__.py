"""Functions of drawn sagas, whose requests determine their behaviour."""
