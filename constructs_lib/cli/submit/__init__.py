"""``cdk-sagas submit``: a file of requests, each sent under its own key until its outcome is known."""
