"""The ``cdk-sagas`` command: a module per subcommand, imported where it is run, with ``add_options`` and ``run``.

Imports the runtime, ``saga`` and ``testing``; rich draws text; the CDK only where a subcommand needs it.
"""
