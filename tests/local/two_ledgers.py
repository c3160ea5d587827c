"""The reference app with both of its ledgers, driven to the end by clients that repeat."""

from __future__ import annotations

import functools
import http.client
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from constructs_lib.testing import HttpResponse, LocalAws
from constructs_lib.testing.invariants import Item, read_table
from saga_runtime import Account, LedgerBuilder, Money, account_key
from saga_runtime.idempotency.identity import request_id_from, request_id_of
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import LedgerAttribute, LogAttribute, RecordAttribute
from saga_runtime.recovery.takeover import Finding, Recoverer
from saga_runtime.saga_log.write import Write
from saga_runtime.shared.arns import execution_of

from .pauses import Pauses
from .reconcilers import prepare_reconciler
from .transfer_system import CURRENCY, PATIENCE_SECONDS, TransferSystem, is_settled, transfer

T = TypeVar("T")

_TRIES: Final = 6

MAIN, PARTNER = "main", "partner"
FORWARD: Final = "FundsTransfer/Transfer/StateMachine"
RECOVERY: Final = "FundsTransfer/Transfer/Recovery"
DEBIT: Final = "FundsTransfer/DebitFunction/Function"
CREDIT: Final = "FundsTransfer/CreditFunction/Function"
REFUND: Final = "FundsTransfer/RefundFunction/Function"
NOTIFIER: Final = "FundsTransfer/Transfer/Notifier/Function"
TRANSACT: Final = "dynamodb:TransactWriteItems"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One transfer to the partner's ledger, between two accounts that no other transfer uses."""

    name: str
    amount: int = 100

    @property
    def source(self) -> str:
        """The account that is debited."""
        return f"from-{self.name}"

    @property
    def target(self) -> str:
        """The account that is credited."""
        return f"to-{self.name}"

    @property
    def body(self) -> dict[str, object]:
        """The request's body."""
        return transfer(self.source, self.target, self.amount, to_ledger=PARTNER)


@dataclass(frozen=True)
class TwoLedgers(TransferSystem):
    """The deployed reference app, its two ledgers, its two state machines."""

    # --- Accounts

    def add_account(self, ledger: str, name: str, balance: int = 1000, *, cap: int | None = None) -> None:
        """Open an account."""
        builder = LedgerBuilder(table=self.ledger_table(ledger))
        opening = Money(balance, CURRENCY)
        self._write(builder.open_account(account_id=name, opening=opening, cap=cap, now_ms=self.now_ms()))

    def close_account(self, ledger: str, name: str) -> None:
        """Close an account that holds nothing."""
        self._write(LedgerBuilder(table=self.ledger_table(ledger)).close_account(account=self.account(ledger, name)))

    def account(self, ledger: str, name: str) -> Account:
        """Current state of an account."""
        found = self.aws.client("dynamodb").get_item(
            TableName=self.ledger_table(ledger), Key=account_key(name), ConsistentRead=True
        )
        return Account.from_item(name, found["Item"])

    def balance(self, ledger: str, name: str) -> int:
        """Balance of an account."""
        return self.account(ledger, name).balance.minor_units

    def way(self, name: str, *, balance: int = 1000, amount: int = 100, closed: bool = False) -> Way:
        """Open the two accounts of a transfer; a closed target refuses the credit, so that the debit is refunded."""
        way = Way(name=name, amount=amount)
        self.add_account(MAIN, way.source, balance)
        self.add_account(PARTNER, way.target, 0)
        if closed:
            self.close_account(PARTNER, way.target)
        return way

    def clearing(self, ledger: str, name: str) -> int:
        """Sum of a clearing account's entries."""
        a = LedgerAttribute
        items = read_table(self.aws.client("dynamodb"), self.ledger_table(ledger))
        return sum(int(item[a.AMOUNT]["N"]) for item in items if item[a.PK]["S"].startswith(f"clearing#{name}#"))

    def _write(self, writes: Iterable[Write]) -> None:
        actions: list[Any] = [write.action for write in writes]
        self.aws.client("dynamodb").transact_write_items(TransactItems=actions)

    # --- Requests

    def begin(self, key: str, body: object) -> str:
        """Send a request until it is accepted, and return the saga's id."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            answer = self.try_post(key, body)
            if answer is not None and answer.status < 500:
                return str(answer.json()["saga_id"])
        raise AssertionError(f"{key} was not accepted within {PATIENCE_SECONDS:.0f} s")

    def warm_up(self) -> None:
        """Start the gatekeeper's function: on a busy machine, the gateway would time out first."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.look(f"{'a' * 26}-abc").status != 404:
            assert time.monotonic() < deadline, "the gatekeeper does not respond"

    def try_post(self, key: str, body: object) -> HttpResponse | None:
        """Send a request once; None if no answer came."""
        try:
            return self.post(key, body)
        except (OSError, http.client.HTTPException):
            return None

    def drive(self, key: str, body: object) -> HttpResponse:
        """Repeat a request until its settled answer comes."""
        deadline, pauses = time.monotonic() + PATIENCE_SECONDS, Pauses(next=0.1, most=0.5)
        answer: HttpResponse | None = None
        while time.monotonic() < deadline:
            answer = self.try_post(key, body)
            if answer is not None and is_settled(answer):
                return answer
            pauses.pause()
        told = None if answer is None else f"{answer.status} {answer.text}"
        raise AssertionError(f"{key} was not settled within {PATIENCE_SECONDS:.0f} s; last answer: {told}")

    @functools.cached_property
    def saga_of_scope(self) -> str:
        """A saga that is refused at once, and whose record contains the scope of the user's requests."""
        return self.begin("scope", transfer("nobody", "noone"))

    @functools.cached_property
    def user_scope(self) -> str:
        """The scope of the user's requests."""
        return self.record(self.saga_of_scope).scope

    def reset(self) -> None:
        """Empty what is deployed, and forget what was learnt of it."""
        self.aws.reset()
        vars(self).pop("saga_of_scope", None)

    def request_id(self, key: str) -> str:
        """The request id that a key will lead to: what aims a fault at one of many requests."""
        return request_id_of(self.user_scope, key)

    # --- Contents of the tables

    def item(self, saga_id: str) -> Item:
        """The request record as an item."""
        key: dict[str, dict[str, str]] = {RecordAttribute.ID: {"S": request_id_from(saga_id)}}
        table = self.outputs["RequestTableName"]
        return self.aws.client("dynamodb").get_item(TableName=table, Key=key, ConsistentRead=True)["Item"]

    def record(self, saga_id: str) -> RequestRecord:
        """The request record."""
        return RequestRecord.from_item(self.item(saga_id))

    def statuses(self, saga_id: str) -> dict[str, str]:
        """Status of each of a saga's rows, by step."""
        a = LogAttribute
        rows = self.aws.client("dynamodb").query(
            TableName=self.outputs["LogTableName"],
            ConsistentRead=True,
            KeyConditionExpression="#id = :id",
            ExpressionAttributeNames={"#id": a.SAGA_ID},
            ExpressionAttributeValues={":id": {"S": saga_id}},
        )["Items"]
        return {row[a.STEP]["S"]: row[a.STATUS]["S"] for row in rows}

    def messages(self) -> list[dict[str, Any]]:
        """Take every message out of the queue."""
        return drain(self.aws, self.outputs["NoticeQueueUrl"])

    # --- Executions

    def arn(self, machine: str, name: str) -> str:
        """ARN of an execution."""
        return execution_of(self.aws.resolve_state_machine(machine), name)

    def status_of(self, machine: str, name: str) -> str | None:
        """Status of an execution; None without one."""
        states = self.aws.client("stepfunctions")
        try:
            return str(states.describe_execution(executionArn=self.arn(machine, name))["status"])
        except states.exceptions.ExecutionDoesNotExist:
            return None

    def await_end(self, machine: str, name: str) -> str:
        """Wait for the end of an execution, and return its status."""
        deadline, pauses = time.monotonic() + PATIENCE_SECONDS, Pauses()
        while time.monotonic() < deadline:
            status = self.status_of(machine, name)
            if status not in {None, "RUNNING"}:
                return str(status)
            pauses.pause()
        raise AssertionError(f"{name} did not end within {PATIENCE_SECONDS:.0f} s")

    def states_of(self, machine: str, name: str) -> list[str]:
        """Names of the states that an execution entered, in order."""
        return entered_states(self.aws, self.arn(machine, name))

    # --- Time and recovery

    def now_ms(self) -> int:
        """The emulator's time."""
        return int(self.aws.now().timestamp() * 1000)

    @property
    def recoverer(self) -> Recoverer:
        """The component behind ``cdk-sagas recover``."""
        return Recoverer(
            table=self.outputs["RequestTableName"],
            dynamodb=self.aws.client("dynamodb"),
            step_functions=self.aws.client("stepfunctions"),
        )

    def recover(self, saga_id: str) -> tuple[Finding, str | None]:
        """Recover a saga once."""
        return self.recoverer.recover(self.record(saga_id), self.now_ms())

    def recover_to_the_end(self, saga_id: str, *, limit: int = 5) -> RequestRecord:
        """Recover a saga, and again if that is interrupted, until it is settled or parked."""
        return recover_to_the_end(self.recoverer, saga_id, self.now_ms, limit=limit)

    def recoveries(self) -> Counter[str]:
        """Number of recoveries of each saga that needed any."""
        counted = {record.saga_id: record.recoveries for record in map(RequestRecord.from_item, self.records())}
        return +Counter(counted)

    def await_quiet(self, saga_id: str) -> RequestRecord:
        """Wait until the saga's owner does not run, and return the record."""
        return await_quiet(self.recoverer, saga_id)


def recover_to_the_end(
    recoverer: Recoverer, saga_id: str, now_ms: Callable[[], int], *, limit: int = 5
) -> RequestRecord:
    """Recover a saga, and again if that is interrupted, until it is settled or parked, or the limit is reached."""
    for _ in range(limit):
        record = await_quiet(recoverer, saga_id)
        finding, _started = recoverer.recover(record, now_ms())
        if finding in {Finding.SETTLED, Finding.PARKED}:
            break
    return await_quiet(recoverer, saga_id)


def await_quiet(recoverer: Recoverer, saga_id: str, *, patience: float = PATIENCE_SECONDS) -> RequestRecord:
    """Wait until the saga's owner does not run, and return the record."""
    deadline, pauses = time.monotonic() + patience, Pauses()
    while time.monotonic() < deadline:
        record = recoverer.read(request_id_from(saga_id))
        assert record is not None, f"{saga_id} has no record"
        # Read before, and the same since: what was read is what the owner left behind.
        if recoverer.owner(record).status != "RUNNING" and recoverer.read(record.request_id) == record:
            return record
        pauses.pause()
    raise AssertionError(f"the owner of {saga_id} still runs after {patience:.0f} s")


def entered_states(aws: LocalAws, execution_arn: str) -> list[str]:
    """Names of the states that an execution entered, in order, without retries."""
    pages = aws.client("stepfunctions").get_paginator("get_execution_history").paginate(executionArn=execution_arn)
    events = [event for page in pages for event in page["events"]]
    return [event["stateEnteredEventDetails"]["name"] for event in events if "stateEnteredEventDetails" in event]


def drain(aws: LocalAws, queue_url: str) -> list[dict[str, Any]]:
    """Take every message out of a FIFO queue, and return their bodies."""
    sqs = aws.client("sqs")
    bodies: list[dict[str, Any]] = []
    while messages := sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10).get("Messages"):
        bodies += [json.loads(message["Body"]) for message in messages]
        for message in messages:
            sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
    return bodies


def in_time(scene: Callable[[str, float], T | None], *, seconds: float) -> T:
    """Result of a scene that completes before a call that it holds is released.

    On a busy machine it may not; then the scene is repeated, with the call held for twice as long.

    Args:
        scene: receives a new name and the time to hold, in the emulator's time; returns None if that was too short.
        seconds: initial time.
    """
    for attempt in range(_TRIES):
        found = scene(f"k{attempt}", seconds * 2**attempt)
        if found is not None:
            return found
    raise AssertionError(f"a call that was held for {seconds * 2 ** (_TRIES - 1):.0f} s continued too early")


@contextmanager
def edited(aws: LocalAws, machine: str, change: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """Change a state machine's states for a while."""
    before = edit(aws, machine, change)
    try:
        yield
    finally:
        arn = aws.resolve_state_machine(machine)
        aws.client("stepfunctions").update_state_machine(stateMachineArn=arn, definition=before)


def give_time(system: TwoLedgers, seconds: int) -> None:
    """Set the timeout of functions and of the tasks that wait for them: a busy machine must not cause a timeout.

    Emulated time passes fast, and a process that starts does not.
    """
    functions = system.aws.client("lambda")
    for path in (system.gatekeeper, DEBIT, CREDIT, REFUND, NOTIFIER):
        functions.update_function_configuration(FunctionName=system.aws.resolve_function(path), Timeout=seconds)

    def patient(states: dict[str, Any]) -> None:
        for state in states.values():
            if state.get("Resource", "").endswith("lambda:invoke"):
                state["TimeoutSeconds"] = seconds + 10

    for machine in (FORWARD, RECOVERY):
        edit(system.aws, machine, patient)


def edit(aws: LocalAws, machine: str, change: Callable[[dict[str, Any]], None]) -> str:
    """Change a state machine's states, and return the definition that it had."""
    states, arn = aws.client("stepfunctions"), aws.resolve_state_machine(machine)
    before = states.describe_state_machine(stateMachineArn=arn)["definition"]
    changed = json.loads(before)
    change(changed["States"])
    assert changed != json.loads(before), f"nothing was changed in {machine}"
    states.update_state_machine(stateMachineArn=arn, definition=json.dumps(changed))
    return before


@contextmanager
def deployed(
    *, speed: float, concurrency: int = 4, seconds: int | None = None, reconciled: bool = False
) -> Iterator[tuple[TwoLedgers, Mapping[str, str]]]:
    """Local AWS with the reference app, and the counting sagas' outputs.

    Args:
        speed: how fast time passes.
        concurrency: maximum number of processes for each function.
        seconds: timeout of functions; None: as deployed.
        reconciled: whether the reconciler runs on its schedule.
    """
    with LocalAws(speed=speed, concurrency=concurrency) as aws:
        outputs = aws.deploy(Path(_synthesized().name))
        prepare_reconciler(aws, outputs["FundsTransfer"], seconds=seconds, reconciled=reconciled)
        system = TwoLedgers(aws, outputs["FundsTransfer"], speed)
        system.user()  # once: many threads will ask for it
        if seconds is not None:
            give_time(system, seconds)
        yield system, outputs["Counting"]


@functools.cache
def _synthesized() -> tempfile.TemporaryDirectory[str]:
    # Imported here: the CDK takes seconds, and only some tests need it.
    from aws_cdk import App

    from examples.funds_transfer.stack import FundsTransferStack

    from .counting.stack import CountingStack

    folder = tempfile.TemporaryDirectory(prefix="cdk-sagas-test-")
    app = App(outdir=folder.name)
    FundsTransferStack(app, "FundsTransfer")
    CountingStack(app, "Counting")
    app.synth()
    return folder
