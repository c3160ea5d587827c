"""Transfers on local AWS, in several ways: one emulator, one run, until the client has the result.

The emulator is not AWS: what counts are the ratios, and what was counted.

    python -m benchmarks.transfers
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aws_cdk import App, CfnOutput, Duration, RemovalPolicy, Stack
from constructs import Construct

from benchmarks.article.stack import Way, WithoutSagas
from benchmarks.chart import Bar, write_bars
from benchmarks.report import FOLDER, write_report
from constructs_lib import (
    IdempotencyTable,
    LedgerTable,
    Operation,
    Run,
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
ROUNDS: Final = 5
ACCOUNTS: Final = 24
LOOK_AGAIN_SECONDS: Final = 0.025
INLINE, SAGA, ONE = "inline saga", "saga", "saga of one transaction"
ARTICLE, POWERTOOLS, EXPRESS = "the article", "Powertools per step", "Express alone"


class SagaStack(Stack):
    """Two steps over two ledgers, or one over one; no conditions, no notification."""

    def __init__(self, scope: Construct, id: str, *, one: bool = False, run: Run = Run.STANDARD) -> None:
        super().__init__(scope, id)
        ledger = LedgerTable(self, "Ledger", removal_policy=RemovalPolicy.DESTROY)
        partner = LedgerTable(self, "Partner", removal_policy=RemovalPolicy.DESTROY)
        requests = IdempotencyTable(self, "Requests", removal_policy=RemovalPolicy.DESTROY)
        if one:
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
        # A file for this run only: a benchmark has no earlier deployment.
        remembered = Path(tempfile.mkdtemp()) / "definition.json" if run is Run.INLINE else None
        saga = SagaStateMachine(self, "Saga", requests=requests, steps=steps, run=run, definition_file=remembered)
        operation = Operation(saga=saga, max_wait=Duration.seconds(10) if run is Run.INLINE else None)
        api = TransactionApi(self, "Api", operations={"transfers": operation}, rate_limit=5_000, burst_limit=5_000)
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
        ledger.grant_post(function)
        return function


@dataclass(frozen=True, slots=True)
class Contender:
    """One way, deployed."""

    name: str
    stack: str
    transfer: Callable[[str, dict[str, Any]], float]
    """Sends a request; how long the client waited for its result."""


def main() -> None:
    """Deploy all ways, let them take turns, and write the report."""
    with tempfile.TemporaryDirectory() as folder, LocalAws() as aws:
        app = App(outdir=folder)
        SagaStack(app, "Inline", run=Run.INLINE)
        SagaStack(app, "Standard")
        SagaStack(app, "One", one=True)
        for way in Way:
            WithoutSagas(app, way.title(), way=way)
        app.synth()
        emulator = emulator_process()
        outputs = aws.deploy(folder)
        open_accounts(aws, outputs)
        contenders = [
            contender(aws, name, stack, outputs[stack])
            for name, stack in (
                (INLINE, "Inline"),
                (SAGA, "Standard"),
                (ONE, "One"),
                (ARTICLE, Way.ARTICLE.title()),
                (POWERTOOLS, Way.POWERTOOLS.title()),
                (EXPRESS, Way.EXPRESS.title()),
            )
        ]
        rates: dict[str, list[float]] = {c.name: [] for c in contenders}
        waits: dict[str, list[float]] = {c.name: [] for c in contenders}
        busy: dict[str, list[Busy]] = {c.name: [] for c in contenders}
        for c in contenders:
            run(c, f"warm-up-{c.stack}", CLIENTS * 4)
        for round_ in range(ROUNDS):
            for c in contenders:
                before = Busy.now(emulator)
                seconds, waited = run(c, f"{c.stack}-{round_}", TRANSFERS)
                busy[c.name].append(Busy.now(emulator).since(before))
                rates[c.name].append(TRANSFERS / seconds)
                waits[c.name] += waited
                sys.stderr.write(f"round {round_ + 1}/{ROUNDS}  {c.name:<28}{TRANSFERS / seconds:6.1f}/s\n")
        counts = {c.name: counted(aws, outputs[c.stack]) for c in contenders}
    rate = {name: statistics.median(measured) for name, measured in rates.items()}
    wait = {name: statistics.median(measured) for name, measured in waits.items()}
    report = {
        "transfers": TRANSFERS,
        "clients": CLIENTS,
        "rounds": ROUNDS,
        "settled_per_second": {name: round(value, 1) for name, value in rate.items()},
        "rate_relative_to_the_article": {name: round(value / rate[ARTICLE], 2) for name, value in rate.items()},
        "result_ms_p50": {name: round(value * 1e3, 1) for name, value in wait.items()},
        "result_p50_relative_to_the_article": {name: round(value / wait[ARTICLE], 2) for name, value in wait.items()},
        "processor_ms_per_transfer": {
            name: {
                "functions": round(statistics.median(b.functions for b in measured) / TRANSFERS * 1e3, 1),
                "services": round(statistics.median(b.services for b in measured) / TRANSFERS * 1e3, 1),
            }
            for name, measured in busy.items()
        },
        "states_entered_by_standard": counts,
    }
    write_report("transfers", report)
    write_bars(
        FOLDER / "transfers.svg",
        [
            Bar(
                name=name,
                parts=(
                    statistics.median(b.functions for b in measured) / TRANSFERS * 1e3,
                    statistics.median(b.services for b in measured) / TRANSFERS * 1e3,
                ),
            )
            for name, measured in busy.items()
        ],
        title="Processor time of one transfer on local AWS",
        parts=("functions", "emulator"),
        unit="ms",
    )
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


@dataclass(frozen=True, slots=True)
class Busy:
    """Processor seconds: of the functions' processes, and of the emulator, which is all services."""

    functions: float
    services: float

    @classmethod
    def now(cls, emulator: int) -> Busy:
        """Processor time until now of the emulator's process, and of those in its group."""
        per_second = os.sysconf("SC_CLK_TCK")
        functions = services = 0.0
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended
                pid = int(folder.name)
                user, system = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[11:13]
                seconds = (int(user) + int(system)) / per_second
                services += seconds if pid == emulator else 0
                functions += seconds if pid != emulator and os.getpgid(pid) == emulator else 0
        return cls(functions=functions, services=services)

    def since(self, before: Busy) -> Busy:
        """Difference to an earlier time."""
        return Busy(functions=self.functions - before.functions, services=self.services - before.services)


def emulator_process() -> int:
    """Number of the emulator's process, which leads a group."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
            if parent == os.getpid() and "--run-folder" in (folder / "cmdline").read_text("utf-8", "replace"):
                return int(folder.name)
    raise RuntimeError("there is no emulator below this process")


def open_accounts(aws: LocalAws, outputs: dict[str, dict[str, str]]) -> None:
    """Give every account plenty."""
    client = aws.client("dynamodb")
    for own in outputs.values():
        for n in range(ACCOUNTS):
            if "AccountTableName" in own:
                item = {"id": {"S": f"a{n}"}, "balance": {"N": str(10**9)}}
                client.put_item(TableName=own["AccountTableName"], Item=item)
                continue
            for table in (own["LedgerTableName"], own["PartnerTableName"]):
                writes = LedgerBuilder(table=table).open_account(
                    account_id=f"a{n}", opening=Money(10**9, "EUR"), now_ms=1
                )
                items: Any = [write.action for write in writes]
                client.transact_write_items(TransactItems=items)


def contender(aws: LocalAws, name: str, stack: str, outputs: dict[str, str]) -> Contender:
    """One way, ready to be sent to."""
    user = aws.create_api_user(f"bench-{outputs['ApiId']}", api_id=outputs["ApiId"])
    url = f"{aws.api_url(outputs['ApiId'], outputs['ApiStage'])}/transfers"
    client = aws.client("dynamodb")

    def transfer(key: str, body: dict[str, Any]) -> float:
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        if name == INLINE:
            headers["Prefer"] = "wait=10"
        begun = time.perf_counter()
        response = user.request("POST", url, headers=headers, body=body)
        if response.status == 202:
            told = response.json()
            wait_for(told["saga_id"][:26] if "saga_id" in told else told["key"])
        elif response.status != 200:
            raise RuntimeError(f"{name} answered {response.status}: {response.text}")
        return time.perf_counter() - begun

    def wait_for(id: str) -> None:
        """Read the item of a request until it is settled, alike for all ways."""
        request: Any = {
            "TableName": outputs["RequestTableName"],
            "Key": {"id": {"S": id}},
            "ProjectionExpression": "#s",
            "ExpressionAttributeNames": {"#s": "status"},
        }
        deadline = time.perf_counter() + 120
        while client.get_item(**request).get("Item", {}).get("status", {}).get("S") != "COMPLETED":
            if time.perf_counter() > deadline:
                raise RuntimeError(f"{name} did not settle {id}")
            time.sleep(LOOK_AGAIN_SECONDS)

    return Contender(name, stack, transfer)


def run(c: Contender, prefix: str, transfers: int) -> tuple[float, list[float]]:
    """Send transfers, each client one after the other: seconds, and how long each waited for its result."""

    def one(n: int) -> float:
        body = {"from": f"a{n % ACCOUNTS}", "to": f"a{(n + 1) % ACCOUNTS}", "amount": 1, "currency": "EUR"}
        return c.transfer(f"{prefix}-{n}", body)

    begun = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        waited = list(pool.map(one, range(transfers)))
    return time.perf_counter() - begun, waited


def counted(aws: LocalAws, outputs: dict[str, str]) -> int:
    """States that one Standard execution entered: what it is billed by, retries apart; 0 without one."""
    client = aws.client("stepfunctions")
    arn = outputs["StateMachineArn"]
    if client.describe_state_machine(stateMachineArn=arn)["type"] == "EXPRESS":
        return 0
    found = client.list_executions(stateMachineArn=arn, maxResults=1)["executions"]
    if not found:
        return 0
    events = client.get_execution_history(executionArn=found[0]["executionArn"], maxResults=1000)["events"]
    return sum(event["type"].endswith("StateEntered") for event in events)


if __name__ == "__main__":
    main()
