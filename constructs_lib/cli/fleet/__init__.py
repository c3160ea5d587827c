"""``cdk-sagas list`` and ``cdk-sagas resume``: many sagas at once."""
