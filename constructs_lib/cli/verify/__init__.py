"""``cdk-sagas verify-definition``: AWS evaluates each state, and the answers are compared with those computed here."""
