"""A ledger with everything that it has, and one function that may use it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import App, CfnOutput, Duration, RemovalPolicy, Stack
from constructs import Construct

from constructs_lib import CollectingAccounts, LedgerTable, StepFunction, Unit

FUNCTIONS: Final = Path(__file__).parent / "functions"


class LedgerStack(Stack):
    """The ledger, its sweeper, and a function that posts."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        ledger = LedgerTable(
            self,
            "Ledger",
            units=[Unit("POINT", 0)],
            collecting=[CollectingAccounts(prefix="merchant:", unit="JPY", shards=4)],
            holds=True,
            removal_policy=RemovalPolicy.DESTROY,
        )
        teller = StepFunction(
            self,
            "Teller",
            code=FUNCTIONS,
            handler="teller.handler",
            environment=ledger.environment,
            timeout=Duration.minutes(2),
        )
        ledger.grant_post(teller)
        CfnOutput(self, "LedgerTableName", value=ledger.table.table_name)


def synthesize(folder: Path) -> Path:
    """The assembly."""
    app = App(outdir=str(folder))
    LedgerStack(app, "Bank")
    app.synth()
    return folder
