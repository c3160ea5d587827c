"""What the ``cdk-sagas`` command can do, one module per subject."""
