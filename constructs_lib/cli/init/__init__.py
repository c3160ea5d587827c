"""``cdk-sagas init``: a small CDK app with one saga, whose tests pass at once.

``app`` is the app, file by file: the tutorial shows them, and the command copies them.
"""
