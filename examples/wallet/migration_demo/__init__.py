"""The migration demo: constant load through all phases, forward and back, while everything crashes."""
