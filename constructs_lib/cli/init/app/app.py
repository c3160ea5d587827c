"""The CDK app: ``cdk synth`` and ``cdk deploy`` run it."""

from aws_cdk import App
from stack import FirstSagaStack

app = App()
FirstSagaStack(app, "FirstSaga")
app.synth()
