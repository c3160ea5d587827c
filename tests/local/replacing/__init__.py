"""An operation whose saga, and whose schema, a deployment replaces while requests are in progress."""
