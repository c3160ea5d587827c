"""The soak: sagas of all four examples at once in one local AWS, while everything fails a little, until all is quiet."""
