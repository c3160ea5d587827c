"""The soak: sagas of all examples at once in one local AWS, while everything fails a little, until all is quiet."""
