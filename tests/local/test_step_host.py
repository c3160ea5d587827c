"""A step in Node.js, run by the step host, at a payment gateway with books of its own: charged once, whatever dies."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from constructs_lib.testing import ApiUser, Fault, LocalAws, ProviderEffect, audit_provider
from constructs_lib.testing.invariants import assert_all_hold, audit_sagas, read_table
from examples.payment_gateway import Action, Books, Moment, Operation, PaymentGateway, Trouble
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, LogAttribute

pytestmark = pytest.mark.proof

SPEED: Final = 12.0
PATIENCE_SECONDS: Final = 200.0
AMOUNT: Final = 1250


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An order, its faults, and its expected end.

    Attributes:
        gateway: fault of a request at the gateway.
        trouble: action of the function after its charge.
        host: the host that dies when its function has returned.
        taken: whether the order exists already, so that the saga compensates.
        card: card to charge.
        status: final status of its row.
        calls: number of charge requests at the gateway.
    """

    gateway: tuple[Operation, Moment] | None = None
    trouble: str = ""
    host: str = ""
    taken: bool = False
    card: str = "card"
    status: str = "DONE"
    calls: int = 1


BEFORE, AFTER = Moment.BEFORE, Moment.AFTER
CASES: Final = {
    "calm": Case(),
    "declined": Case(card="card-declined", status="REFUSED"),
    "killed-behind-its-charge": Case(gateway=(Operation.CHARGE, AFTER)),
    "killed-before-its-charge": Case(gateway=(Operation.CHARGE, BEFORE), calls=2),
    "ends-its-process": Case(trouble="exit"),
    "throws": Case(trouble="throw"),
    "times-out": Case(trouble="dawdle"),
    "talks-nonsense": Case(trouble="nonsense"),
    "host-dies": Case(host="Charge/Step"),
    "taken": Case(taken=True, status="COMPENSATED"),
    "taken-and-refund-killed": Case(taken=True, gateway=(Operation.REFUND, AFTER), status="COMPENSATED"),
    "taken-and-refund-killed-early": Case(taken=True, gateway=(Operation.REFUND, BEFORE), status="COMPENSATED"),
}


@dataclass(frozen=True)
class Hosted:
    """The saga, deployed, and everything that came of the cases."""

    aws: LocalAws
    outputs: dict[str, str]
    gateway: PaymentGateway
    user: ApiUser
    sagas: dict[str, str] = field(default_factory=dict)

    def drive(self, name: str, case: Case) -> tuple[int, dict[str, Any]]:
        """Ask for an order until it is settled: status and document of the answer."""
        url = f"{self.aws.api_url(self.outputs['ApiId'], self.outputs['ApiStage'])}/orders"
        body = {"order": name, "amount": amount_of(name), "currency": "EUR", "card": case.card, "trouble": case.trouble}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            answer = self.user.request("POST", url, headers={IDEMPOTENCY_KEY_HEADER: name}, body=body)
            document: dict[str, Any] = json.loads(answer.text)
            if "saga_id" in document:
                self.sagas[name] = document["saga_id"]
            if answer.status not in (202, 409, 503, 504):
                return answer.status, document
            assert time.monotonic() < deadline, f"{name}: {answer.text}"
            # A client that repeats all the time would keep a small machine busier than the orders do.
            time.sleep(2)

    def row(self, name: str) -> dict[str, Any]:
        """The row of an order's charge."""
        a = LogAttribute
        key: dict[str, dict[str, str]] = {a.SAGA_ID: {"S": self.sagas[name]}, a.STEP: {"S": "Charge"}}
        found = self.aws.client("dynamodb").get_item(
            TableName=self.outputs["LogTableName"], Key=key, ConsistentRead=True
        )
        return {name: next(iter(value.values())) for name, value in found.get("Item", {}).items()}

    def books(self, name: str) -> Books:
        """The gateway's books for an order."""
        return self.gateway.books().of(self.sagas[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """Every case, played at once."""

    hosted: Hosted
    answers: dict[str, tuple[int, dict[str, Any]]]


def amount_of(name: str) -> int:
    """Amount of an order, unique: a refund has no other reference to the request."""
    return AMOUNT + list(CASES).index(name)


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    """All of it, at once."""
    from .hosted.stack import synthesize

    with PaymentGateway(speed=SPEED) as gateway, LocalAws(speed=SPEED) as aws:
        outputs = dict(aws.deploy(synthesize(gateway.url, Path(tmp_path_factory.mktemp("hosted"))))["Hosted"])
        hosted = Hosted(aws, outputs, gateway, aws.create_api_user("alice", api_id=outputs["ApiId"]))
        for name, case in CASES.items():
            _plan(hosted, name, case)
        with ThreadPoolExecutor(len(CASES)) as pool:
            asked = {name: pool.submit(hosted.drive, name, case) for name, case in CASES.items()}
            answers = {name: answer.result() for name, answer in asked.items()}
        yield Day(hosted=hosted, answers=answers)


def _plan(hosted: Hosted, name: str, case: Case) -> None:
    if case.gateway is not None:
        operation, moment = case.gateway
        containing = f'"amount": {amount_of(name)}'
        hosted.gateway.plan(Trouble(on=operation, action=Action.KILL, moment=moment, containing=containing))
    if case.host:
        hosted.aws.faults.plan(
            Fault(
                function=f"Hosted/{case.host}/Function",
                call="lambda:Invoke",
                action="kill",
                moment="after",
                containing=f'"order":"{name}"',
            )
        )
    if case.taken:
        hosted.aws.client("dynamodb").put_item(
            TableName=hosted.outputs["OrderTableName"], Item={"id": {"S": name}, "charge": {"S": "another"}}
        )


def test_every_trouble_fired(day: Day) -> None:
    gateway, faults = day.hosted.gateway.report(), day.hosted.aws.faults.report()

    assert [report.trouble for report in gateway if not report.fired] == []
    assert faults.not_fired == ()
    assert len(gateway) + faults.planned == sum(bool(case.gateway) + bool(case.host) for case in CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_a_card_is_charged_once_despite_any_crash(day: Day, name: str) -> None:
    books, case = day.hosted.books(name), CASES[name]

    assert sum(charge.succeeded for charge in books.charges) == (case.status != "REFUSED")
    assert len(books.refunds) == (case.status == "COMPENSATED")
    assert day.hosted.row(name)["status"] == case.status


@pytest.mark.parametrize("name", CASES)
def test_the_gateway_gets_the_minimum_of_charge_requests(day: Day, name: str) -> None:
    received = day.hosted.gateway.requests()
    charges = [r for r in received if r.operation == Operation.CHARGE and r.reference == day.hosted.sagas[name]]

    assert len(charges) == CASES[name].calls


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.status == "DONE"])
def test_an_order_completes_with_the_functions_result(day: Day, name: str) -> None:
    status, document = day.answers[name]
    (charge,) = day.hosted.books(name).charges

    assert (status, document["status"]) == (200, "COMPLETED")
    assert document["result"]["Charge"] == {"charge": charge.id, "amount": str(amount_of(name))}


def test_a_refusal_has_the_name_that_the_function_gave_it(day: Day) -> None:
    status, document = day.answers["declined"]

    assert (status, document["error"], document["detail"]) == (402, "CardDeclined", "the card was declined")


def test_a_refusal_is_recorded_under_that_name(day: Day) -> None:
    row = day.hosted.row("declined")

    assert (row["error"], row["detail"]) == ("CardDeclined", "the card was declined")


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.taken])
def test_a_compensated_order_is_settled_as_refused(day: Day, name: str) -> None:
    status, document = day.answers[name]

    assert (status, document["error"], document["step"]) == (422, "ConditionFailed", "Commit")


def test_a_function_that_timed_out_was_ended(day: Day) -> None:
    """Else it would still act for a step that may be compensated by now."""
    logs = [entry.text for entry in day.hosted.aws.function_logs("Hosted/Apply")]

    assert sum("Task timed out after 100.00 seconds" in text for text in logs) == 1


def test_at_the_end_records_rows_and_books_agree(day: Day) -> None:
    dynamodb, outputs = day.hosted.aws.client("dynamodb"), day.hosted.outputs
    records, rows = read_table(dynamodb, outputs["RequestTableName"]), read_table(dynamodb, outputs["LogTableName"])
    books = day.hosted.gateway.books()
    effects = [
        *(ProviderEffect(key=charge.key, amount=charge.amount) for charge in books.charges if charge.succeeded),
        *(ProviderEffect(key=refund.key, amount=refund.amount) for refund in books.refunds),
    ]

    audits = [*audit_sagas(records, rows), *audit_provider(rows, effects, steps=["Charge"])]

    assert_all_hold(audits)
    assert all(audit.checked for audit in audits), audits
