"""A table of customers, one function that writes it, and a migration."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from constructs_lib import Migration, StepFunction

from .layout import LAYOUT

_FUNCTIONS: Final = Path(__file__).parent / "functions"


class MigratingStack(Stack):
    """Every phase is allowed, and gates ask for the shortest times."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        text = dynamodb.AttributeType.STRING
        table = dynamodb.TableV2(
            self,
            "Customers",
            partition_key=dynamodb.Attribute(name="pk", type=text),
            sort_key=dynamodb.Attribute(name="sk", type=text),
        )
        writer = StepFunction(self, "Writer", code=_FUNCTIONS, handler="customers.handler")
        migration = Migration(
            self,
            "Split",
            table=table,
            layout=LAYOUT,
            phase=LAYOUT.last,
            writers=[writer],
            segments=2,
            ended_after=Duration.minutes(15),
            clean_for=Duration.seconds(0),
            kept_for=Duration.seconds(0),
        )
        migration.grant_delete(writer)
        CfnOutput(self, "TableName", value=table.table_name)
