"""The reference app: one stack per example, checked by cdk-nag."""

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from examples.funds_transfer.stack import FundsTransferStack

app = App()
FundsTransferStack(app, "FundsTransfer")
Validations.of(app).add_plugins(AwsSolutionsChecks(app))
app.synth()
