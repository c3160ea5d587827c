"""Hooks and settings of schemathesis for an API whose callers IAM authorizes."""
