"""The reference app: one stack per example, checked by cdk-nag."""

from aws_cdk import App, Validations
from aws_cdk import aws_kms as kms
from cdk_nag import AwsSolutionsChecks, HIPAASecurityChecks, NIST80053R5Checks, PCIDSS321Checks, ServerlessChecks

from constructs_lib import Compliance
from examples.agentic_payout.stack import AgenticPayoutStack, BedrockGrant
from examples.cart_fulfilment.stack import CartFulfilmentStack
from examples.funds_transfer.stack import FundsTransferStack
from examples.order_processing.stack import OrderProcessingStack
from examples.wallet.stack import WalletStack

app = App()
stacks = (
    FundsTransferStack(app, "FundsTransfer"),
    OrderProcessingStack(app, "OrderProcessing", mailer=True),
    AgenticPayoutStack(app, "AgenticPayout", bedrock=BedrockGrant.from_context(app.node)),
    CartFulfilmentStack(app, "CartFulfilment"),
    WalletStack(app, "Wallet"),
)
Validations.of(app).add_plugins(AwsSolutionsChecks(app))
# The ARN of a key that CloudWatch Logs may use: with it, the packs for regulations check the stacks, too.
log_key = app.node.try_get_context("log-key")
if log_key:
    for stack in stacks:
        Compliance(stack, "Compliance", log_key=kms.Key.from_key_arn(stack, "LogKey", log_key))
    packs = (ServerlessChecks, NIST80053R5Checks, PCIDSS321Checks, HIPAASecurityChecks)
    Validations.of(app).add_plugins(*(pack(app) for pack in packs))
app.synth()
