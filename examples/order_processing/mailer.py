"""The reader of the queue of notices."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from aws_cdk.aws_lambda_event_sources import SqsEventSource
from constructs import Construct

from constructs_lib import StepFunction

FUNCTIONS: Final = Path(__file__).parent / "functions"
TIMEOUT: Final = Duration.seconds(5)
"""A sixth of a queue's default visibility timeout of 30 s, as AWS recommends."""


class Mailer(Construct):
    """Puts each notice into its customer's outbox, once. It sends nothing: the sender reads the outbox.

    Args:
        scope: parent construct.
        id: construct id.
        notices: the FIFO queue of notices. It should have a dead-letter queue, for messages that are not notices.
        shop: table with the outbox: rows ``mail#{customer}``, which the function may put, and nothing else.

    Attributes:
        function: the function. It is not a step, but made like one: of the same folder, with the same runtime.
    """

    def __init__(self, scope: Construct, id: str, *, notices: sqs.IQueue, shop: dynamodb.ITableV2) -> None:
        super().__init__(scope, id)
        self.function = StepFunction(
            self,
            "Function",
            code=FUNCTIONS,
            handler="steps.mailer.handler",
            environment={"SHOP_TABLE": shop.table_name},
            timeout=TIMEOUT,
        )
        iam.Grant.add_to_principal(
            grantee=self.function,
            actions=["dynamodb:PutItem"],
            resource_arns=[shop.table_arn],
            conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["mail#*"]}},
        )
        self.function.function.add_event_source(SqsEventSource(notices, batch_size=10, report_batch_item_failures=True))
