"""Functions of transfers without this library."""
