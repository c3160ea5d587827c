"""Transfers on local AWS, three ways, one emulator, one run: our saga, our one transaction, and functions in a row.

The emulator is not AWS: what counts are the ratios, and what was counted.

    python -m benchmarks.transfers
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import App, CfnOutput, RemovalPolicy, Stack
from constructs import Construct

from benchmarks.article.stack import ArticleStack
from benchmarks.report import write_report
from constructs_lib import (
    IdempotencyTable,
    LedgerTable,
    SagaStateMachine,
    Step,
    StepFunction,
    TransactionApi,
)
from constructs_lib.testing import LocalAws
from examples.funds_transfer.stack import FUNCTIONS
from saga_runtime import LedgerBuilder, Money

TRANSFERS: Final = 120
CLIENTS: Final = 8
ROUNDS: Final = 3
ACCOUNTS: Final = 24
SAGA, TRANSACTION, ARTICLE = (
    "saga: debit, credit",
    "one transaction: transfer",
    "functions in a row: debit, credit, complete",
)


class SagaStack(Stack):
    """Two steps over two ledgers, no conditions, no notification."""

    def __init__(self, scope: Construct, id: str, *, one_transaction: bool) -> None:
        super().__init__(scope, id)
        ledger = LedgerTable(self, "Ledger", removal_policy=RemovalPolicy.DESTROY)
        partner = LedgerTable(self, "Partner", removal_policy=RemovalPolicy.DESTROY)
        requests = IdempotencyTable(self, "Requests", removal_policy=RemovalPolicy.DESTROY)
        if one_transaction:
            steps = [Step.atomic("Transfer", fn=self._function("Transfer", "transfer.handler", ledger))]
        else:
            steps = [
                Step.atomic(
                    "Debit",
                    fn=self._function("Debit", "debit.handler", ledger),
                    compensate=self._function("Refund", "debit.refund", ledger),
                ),
                Step.atomic("Credit", fn=self._function("Credit", "credit.handler", partner)),
            ]
        saga = SagaStateMachine(self, "Saga", requests=requests, steps=steps)
        api = TransactionApi(self, "Api", operations={"transfers": saga}, rate_limit=5_000, burst_limit=5_000)
        for name, value in (
            ("ApiId", api.api.rest_api_id),
            ("ApiStage", api.api.deployment_stage.stage_name),
            ("RequestTableName", requests.table.table_name),
            ("LedgerTableName", ledger.table.table_name),
            ("PartnerTableName", partner.table.table_name),
            ("StateMachineArn", saga.state_machine.state_machine_arn),
        ):
            CfnOutput(self, name, value=value)

    def _function(self, id: str, handler: str, ledger: LedgerTable) -> StepFunction:
        function = StepFunction(self, id, code=FUNCTIONS, handler=handler, environment=ledger.environment)
        ledger.grant_transfer(function)
        return function


@dataclass(frozen=True, slots=True)
class Contender:
    """One way, deployed."""

    name: str
    send: Callable[[str, dict[str, Any]], int]
    settled: Callable[[], int]
    machine: str


def main() -> None:
    """Deploy all three, let them take turns, and write the report."""
    with tempfile.TemporaryDirectory() as folder, LocalAws() as aws:
        app = App(outdir=folder)
        SagaStack(app, "TwoSteps", one_transaction=False)
        SagaStack(app, "OneTransaction", one_transaction=True)
        ArticleStack(app, "Article")
        app.synth()
        outputs = aws.deploy(folder)
        open_accounts(aws, outputs)
        contenders = [
            contender(aws, SAGA, outputs["TwoSteps"]),
            contender(aws, TRANSACTION, outputs["OneTransaction"]),
            contender(aws, ARTICLE, outputs["Article"]),
        ]
        rates: dict[str, list[float]] = {c.name: [] for c in contenders}
        latencies: dict[str, list[float]] = {c.name: [] for c in contenders}
        for c in contenders:
            run(c, f"warm up {c.name}", 16)
        for round_ in range(ROUNDS):
            for c in contenders:
                seconds, answers = run(c, f"{c.name} {round_}", TRANSFERS)
                rates[c.name].append(TRANSFERS / seconds)
                latencies[c.name] += answers
                sys.stderr.write(f"round {round_ + 1}/{ROUNDS}  {c.name:<40}{TRANSFERS / seconds:6.1f}/s\n")
        states = {c.name: states_of_one(aws, c) for c in contenders}
    report = {
        "transfers": TRANSFERS,
        "clients": CLIENTS,
        "rounds": ROUNDS,
        "settled_per_second": {name: round(statistics.median(rate), 1) for name, rate in rates.items()},
        "rate_beside_functions_in_a_row": {
            name: round(statistics.median(rate) / statistics.median(rates[ARTICLE]), 2) for name, rate in rates.items()
        },
        "answer_ms_p50": {name: round(statistics.median(times) * 1e3, 1) for name, times in latencies.items()},
        "answer_p50_beside_functions_in_a_row": {
            name: round(statistics.median(times) / statistics.median(latencies[ARTICLE]), 2)
            for name, times in latencies.items()
        },
        "states_entered_per_transfer": states,
    }
    write_report("transfers", report)
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


def open_accounts(aws: LocalAws, outputs: dict[str, dict[str, str]]) -> None:
    """Give everybody plenty."""
    client = aws.client("dynamodb")
    for stack in ("TwoSteps", "OneTransaction"):
        for output in ("LedgerTableName", "PartnerTableName"):
            builder = LedgerBuilder(table=outputs[stack][output])
            for n in range(ACCOUNTS):
                writes = builder.open_account(account_id=f"a{n}", opening=Money(10**9, "EUR"), now_ms=1)
                items: Any = [write.action for write in writes]
                client.transact_write_items(TransactItems=items)
    for n in range(ACCOUNTS):
        item = {"id": {"S": f"a{n}"}, "balance": {"N": str(10**9)}}
        client.put_item(TableName=outputs["Article"]["AccountTableName"], Item=item)


def contender(aws: LocalAws, name: str, outputs: dict[str, str]) -> Contender:
    """One way, ready to be sent to."""
    user = aws.create_api_user(f"bench-{outputs['ApiId']}", api_id=outputs["ApiId"])
    url = f"{aws.api_url(outputs['ApiId'], outputs['ApiStage'])}/transfers"

    def send(key: str, body: dict[str, Any]) -> int:
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        return user.request("POST", url, headers=headers, body=body).status

    def settled() -> int:
        pages = (
            aws.client("dynamodb")
            .get_paginator("scan")
            .paginate(
                TableName=outputs["RequestTableName"],
                Select="COUNT",
                FilterExpression="#s = :done",
                ExpressionAttributeNames={"#s": "status"},
                ExpressionAttributeValues={":done": {"S": "COMPLETED"}},
            )
        )
        return sum(page["Count"] for page in pages)

    return Contender(name, send, settled, outputs["StateMachineArn"])


def run(c: Contender, prefix: str, transfers: int) -> tuple[float, list[float]]:
    """Send transfers, and wait until all are settled: seconds, and how long each answer took."""
    before = c.settled()

    def one(n: int) -> float:
        body = {"from": f"a{n % ACCOUNTS}", "to": f"a{(n + 1) % ACCOUNTS}", "amount": 1, "currency": "EUR"}
        begun = time.perf_counter()
        status = c.send(f"{prefix} {n}", body)
        if status != 202:
            raise RuntimeError(f"{c.name} answered {status}")
        return time.perf_counter() - begun

    begun = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(one, range(transfers)))
    deadline = time.perf_counter() + 120
    while c.settled() - before < transfers:
        if time.perf_counter() > deadline:
            raise RuntimeError(f"{c.name} settled {c.settled() - before} of {transfers}")
        time.sleep(0.02)
    return time.perf_counter() - begun, answers


def states_of_one(aws: LocalAws, c: Contender) -> int:
    """States that one execution entered: what Standard state machines are billed by, retries apart."""
    client = aws.client("stepfunctions")
    arn = client.list_executions(stateMachineArn=c.machine, maxResults=1)["executions"][0]["executionArn"]
    events = client.get_execution_history(executionArn=arn, maxResults=1000)["events"]
    return Counter(event["type"].endswith("StateEntered") for event in events)[True]


if __name__ == "__main__":
    main()
