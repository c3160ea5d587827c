"""Functions of drawn sagas: each does what its request tells it to."""
