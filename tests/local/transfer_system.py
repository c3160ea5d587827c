"""The funds transfer, deployed in local AWS, and a second stack with the gatekeeper's other settings."""

from __future__ import annotations

import functools
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from constructs_lib.testing import ApiUser, HttpResponse, LocalAws
from constructs_lib.testing.invariants import (
    Invariant,
    Item,
    audit_effects,
    audit_ledger,
    audit_sagas,
    read_table,
    together,
)
from saga_runtime import LedgerBuilder, Money
from saga_runtime.protocol import (
    IDEMPOTENCY_KEY_HEADER,
    PREFER_HEADER,
    REPLAYED_HEADER,
    LedgerAttribute,
    RecordAttribute,
)

from .documented import require_documented
from .pauses import Pauses
from .reconcilers import prepare_reconciler

POSTING_STEPS: Final = ("Transfer", "Debit", "Credit")
CURRENCY: Final = "EUR"
PATIENCE_SECONDS: Final = 180.0
SPEED: Final = 4.0
"""Of the shared system: as fast as leaves a function time enough on a busy machine."""

T = TypeVar("T")


@dataclass(frozen=True)
class TransferSystem:
    """One deployed stack: its API, its users, its tables."""

    aws: LocalAws
    outputs: Mapping[str, str]
    speed: float
    stack: str = "FundsTransfer"
    api: str = "Api"
    documented: Path | None = None
    """Assembly whose document has the API's answers; None: they are not compared."""
    _users: dict[str, ApiUser] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """URL for transfers."""
        return f"{self.aws.api_url(self.outputs['ApiId'], self.outputs['ApiStage'])}/transfers"

    @property
    def gatekeeper(self) -> str:
        return f"{self.stack}/Api/Gatekeeper/transfers/Function"

    def user(self, name: str = "alice") -> ApiUser:
        """A user who may invoke this API; always the same one by that name."""
        if name not in self._users:
            self._users[name] = self.aws.create_api_user(f"{self.stack}-{name}", api_id=self.outputs["ApiId"])
        return self._users[name]

    def open(self, *accounts: str, balance: int = 1000, ledger: str = "main") -> None:
        """Open accounts."""
        builder = LedgerBuilder(table=self.ledger_table(ledger))
        for account in accounts:
            opening = Money(balance, CURRENCY)
            writes: list[Any] = [w.action for w in builder.open_account(account_id=account, opening=opening, now_ms=1)]
            self.aws.client("dynamodb").transact_write_items(TransactItems=writes)

    def post(self, key: str | None, body: object, *, user: str = "alice", wait: int | None = None) -> HttpResponse:
        """Send a request once, and prefer to wait for its response for so many seconds."""
        headers = {} if key is None else {IDEMPOTENCY_KEY_HEADER: key}
        if wait is not None:
            headers[PREFER_HEADER] = f"wait={wait}"
        answer = self.user(user).request("POST", self.url, headers=headers, body=body)
        self._compare("/transfers", "post", answer)
        return answer

    def look(self, saga_id: str, *, user: str = "alice") -> HttpResponse:
        """Request the status of a saga."""
        answer = self.user(user).request("GET", f"{self.url}/{saga_id}")
        self._compare("/transfers/{saga_id}", "get", answer)
        return answer

    def _compare(self, path: str, method: str, answer: HttpResponse) -> None:
        if self.documented is not None:
            require_documented(self.documented, f"{self.stack}/{self.api}", path, method, answer)

    def settle(self, key: str, body: object, *, user: str = "alice") -> HttpResponse:
        """Send a request until its settled answer comes back, as a client does that was promised nothing."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        answer: HttpResponse | None = None
        pause = 0.05
        while time.monotonic() < deadline:
            try:
                answer = self.post(key, body, user=user)
            except OSError:
                answer = None
            if answer is not None and is_settled(answer):
                return answer
            time.sleep(pause)
            pause = min(pause * 2, 1.0)
        told = None if answer is None else f"{answer.status} {answer.text}"
        raise AssertionError(f"{key} was not settled within {PATIENCE_SECONDS:.0f} s; last answer: {told}")

    def records(self) -> list[Item]:
        """Every request record."""
        return read_table(self.aws.client("dynamodb"), self.outputs["RequestTableName"])

    def rows(self) -> list[Item]:
        """Every saga log row."""
        return read_table(self.aws.client("dynamodb"), self.outputs["LogTableName"])

    def ledgers(self) -> list[list[Item]]:
        """Every item of each ledger."""
        dynamodb = self.aws.client("dynamodb")
        return [read_table(dynamodb, self.outputs[name]) for name in _LEDGERS.values() if name in self.outputs]

    def ledger_table(self, ledger: str) -> str:
        """Name of a ledger's table."""
        return self.outputs[_LEDGERS[ledger]]

    def balances(self, ledger: str = "main") -> dict[str, int]:
        """Balance of every account of a ledger."""
        a = LedgerAttribute
        items = read_table(self.aws.client("dynamodb"), self.ledger_table(ledger))
        return {item[a.PK]["S"].partition("#")[2]: int(item[a.BALANCE]["N"]) for item in items if a.BALANCE in item}

    def scope(self) -> str:
        """The scope of the first record: its user's."""
        return str(self.records()[0][RecordAttribute.SCOPE]["S"])

    def audit(self) -> list[Invariant]:
        """Everything that must hold of the tables once all requests are settled."""
        records, rows, ledgers = self.records(), self.rows(), self.ledgers()
        return together(
            *(audit_ledger(ledger) for ledger in ledgers),
            audit_sagas(records, rows),
            audit_effects(rows, [item for ledger in ledgers for item in ledger], steps=POSTING_STEPS),
        )


_LEDGERS: Final = {"main": "LedgerTableName", "partner": "PartnerLedgerTableName"}


def is_settled(answer: HttpResponse) -> bool:
    """True if a response is a settled request's stored one."""
    return answer.headers.get(REPLAYED_HEADER.lower()) == "true"


def transfer(source: str, target: str, amount: int = 100, **further: object) -> dict[str, object]:
    """A request's body."""
    return {"from": source, "to": target, "amount": amount, "currency": CURRENCY, **further}


def at_once(work: Sequence[Callable[[], T]]) -> list[T]:
    """Do everything at the same moment, each in a thread of its own, and return the results in order."""
    start = threading.Barrier(len(work))
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(number: int, one: Callable[[], T]) -> None:
        try:
            start.wait()
            results[number] = one()
        except BaseException as error:  # noqa: BLE001 - raised by the waiting thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in enumerate(work)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(work))]


def until(condition: Callable[[], T | None], what: str) -> T:
    """Wait until something is there, and return it."""
    deadline, pauses = time.monotonic() + PATIENCE_SECONDS, Pauses()
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        pauses.pause()
    raise AssertionError(f"{what} did not happen within {PATIENCE_SECONDS:.0f} s")


@contextmanager
def deployed(*, speed: float, concurrency: int = 4, reconciled: bool = False) -> Iterator[dict[str, TransferSystem]]:
    """Local AWS with both stacks, by name; the first one's reconciler runs on schedule if requested."""
    with LocalAws(speed=speed, concurrency=concurrency) as aws:
        outputs = aws.deploy(assembly())
        prepare_reconciler(aws, outputs["FundsTransfer"], seconds=None, reconciled=reconciled)
        yield {name: TransferSystem(aws, outputs[name], speed, name, documented=assembly()) for name in outputs}


def assembly() -> Path:
    """Both stacks, synthesized once per run of the tests."""
    return Path(_synthesized().name)


@functools.cache
def _synthesized() -> tempfile.TemporaryDirectory[str]:
    # Imported here: the CDK takes seconds, and only some tests need it.
    from aws_cdk import App, Duration

    from examples.funds_transfer.stack import FundsTransferStack

    from .transfer_variant import DUE_AFTER_SECONDS, TransferVariantStack

    folder = tempfile.TemporaryDirectory(prefix="cdk-sagas-test-")
    app = App(outdir=folder.name)
    FundsTransferStack(app, "FundsTransfer", due_after=Duration.seconds(DUE_AFTER_SECONDS))
    TransferVariantStack(app, "Variant")
    app.synth()
    return folder


def problem_of(answer: HttpResponse) -> dict[str, Any]:
    """Problem document of a response; fails without one."""
    assert answer.headers["content-type"].startswith("application/problem+json"), answer.headers
    document: dict[str, Any] = json.loads(answer.body)
    assert {"type", "title"} <= document.keys(), document
    return document
