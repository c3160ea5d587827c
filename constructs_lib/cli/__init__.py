"""The ``cdk-sagas`` command, one module or folder per subcommand.

Imports the runtime, ``saga`` and ``testing``; the CDK and boto3 only where a subcommand needs them.
"""
