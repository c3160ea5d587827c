"""``cdk-sagas callbacks``: waiting callbacks, their rows and their dead letters."""
