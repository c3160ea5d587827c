"""The reference app: one stack per example, checked by cdk-nag."""

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from examples.agentic_payout.stack import AgenticPayoutStack, BedrockGrant
from examples.cart_fulfilment.stack import CartFulfilmentStack
from examples.funds_transfer.stack import FundsTransferStack
from examples.order_processing.stack import OrderProcessingStack
from examples.wallet.stack import WalletStack

app = App()
FundsTransferStack(app, "FundsTransfer")
OrderProcessingStack(app, "OrderProcessing", mailer=True)
AgenticPayoutStack(app, "AgenticPayout", bedrock=BedrockGrant.from_context(app.node))
CartFulfilmentStack(app, "CartFulfilment")
WalletStack(app, "Wallet")
Validations.of(app).add_plugins(AwsSolutionsChecks(app))
app.synth()
