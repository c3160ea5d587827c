"""Sagas on local AWS, end to end: both ways of a transfer, every refusal and its refund, routes, transitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from constructs_lib.testing import Every, Fault, First, HttpResponse, StopAt
from constructs_lib.testing.invariants import assert_all_hold, audit_effects, audit_ledger, together
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER
from saga_runtime.recovery.takeover import Recoverer
from saga_runtime.shared.arns import execution_of

from .transfer_system import POSTING_STEPS, is_settled, problem_of, transfer, until
from .two_ledgers import (
    CREDIT,
    FORWARD,
    MAIN,
    PARTNER,
    REFUND,
    TRANSACT,
    TwoLedgers,
    deployed,
    drain,
    entered_states,
    recover_to_the_end,
)

SPEED = 8.0
FUNCTION_SECONDS = 120
DUE_AFTER_MS = 60_000
"""Time after which a reserved request may be started by any duplicate: the idempotency table's default."""
TRIES = 5

Both = tuple[TwoLedgers, Mapping[str, str]]


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    with deployed(speed=SPEED, seconds=FUNCTION_SECONDS) as systems:
        yield systems


@pytest.fixture
def system(both: Both) -> Iterator[TwoLedgers]:
    """The reference app, emptied; afterwards its ledgers must balance and agree with its log."""
    system, _ = both
    system.aws.reset()
    yield system
    ledgers = system.ledgers()
    entries = [item for ledger in ledgers for item in ledger]
    assert_all_hold(together(*map(audit_ledger, ledgers), audit_effects(system.rows(), entries, steps=POSTING_STEPS)))


def to_partner(source: str, target: str, amount: int = 100, **further: object) -> dict[str, object]:
    return transfer(source, target, amount, **{"to_ledger": PARTNER, **further})


def settled(system: TwoLedgers, key: str, body: object) -> tuple[HttpResponse, str]:
    """The settled answer of a request, and its saga's id."""
    answer = system.drive(key, body)
    return answer, str(answer.json()["saga_id"])


class TestATransferThatHappens:
    def test_within_one_ledger_is_one_transaction_and_a_receipt(self, system: TwoLedgers) -> None:
        system.open("ada", "alan")

        answer, saga_id = settled(system, "k", transfer("ada", "alan", 300))

        assert answer.status == 200
        assert answer.json()["result"] == {"amount": "300", "currency": "EUR"}
        assert system.balances() == {"ada": 700, "alan": 1300}
        assert system.statuses(saga_id) == {"Transfer": "DONE", "Receipt": "DONE"}

    def test_to_the_partner_is_a_debit_a_credit_and_a_receipt(self, system: TwoLedgers) -> None:
        way = system.way("1", amount=300)

        answer, saga_id = settled(system, "k", way.body)

        assert answer.status == 200
        assert answer.json()["result"] == {"amount": "300", "currency": "EUR"}
        assert system.balance(MAIN, way.source) == 700
        assert system.balance(PARTNER, way.target) == 300
        assert system.clearing(MAIN, "partner-clearing") == 300
        assert system.clearing(PARTNER, "main-clearing") == -300
        assert system.statuses(saga_id) == {"Debit": "DONE", "Credit": "DONE", "Receipt": "DONE"}

    def test_is_sent_once_to_the_notifier_of_the_customer(self, system: TwoLedgers) -> None:
        way = system.way("1")

        _, saga_id = settled(system, "k", way.body)

        (message,) = system.messages()
        assert (message["saga_id"], message["step"]) == (saga_id, "Receipt")
        assert message["outputs"]["Credit"] == {"account": way.target, "amount": "100", "currency": "EUR"}

    def test_keeps_an_amount_to_the_last_digit(self, system: TwoLedgers) -> None:
        amount = 123_456_789_012_345_677
        way = system.way("1", balance=amount + 1, amount=amount)

        answer, _ = settled(system, "k", way.body)

        assert answer.json()["result"]["amount"] == str(amount)
        assert system.balance(PARTNER, way.target) == amount


REFUSALS: dict[str, tuple[Callable[[TwoLedgers], dict[str, object]], int, str, str]] = {}
"""By name: what is asked for, and the answer's status, its error, and the step that refused."""


def refusal(status: int, error: str, step: str) -> Callable[[Any], Any]:
    """Add to the table of refusals."""

    def add(ask: Callable[[TwoLedgers], dict[str, object]]) -> Callable[[TwoLedgers], dict[str, object]]:
        REFUSALS[ask.__name__] = (ask, status, error, step)
        return ask

    return add


@refusal(402, "InsufficientFunds", "Debit")
def more_than_the_account_holds(system: TwoLedgers) -> dict[str, object]:
    return system.way("1", amount=1001).body


@refusal(422, "AccountClosed", "Credit")
def a_closed_target(system: TwoLedgers) -> dict[str, object]:
    return system.way("1", closed=True).body


@refusal(422, "AccountClosed", "Debit")
def a_closed_source(system: TwoLedgers) -> dict[str, object]:
    way = system.way("1", balance=0)
    system.close_account(MAIN, way.source)
    return way.body


@refusal(422, "CapExceeded", "Credit")
def a_target_that_would_be_too_full(system: TwoLedgers) -> dict[str, object]:
    system.add_account(MAIN, "from-1")
    system.add_account(PARTNER, "to-1", 950, cap=1049)
    return to_partner("from-1", "to-1")


@refusal(404, "AccountNotFound", "Credit")
def an_unknown_target(system: TwoLedgers) -> dict[str, object]:
    system.add_account(MAIN, "from-1")
    return to_partner("from-1", "to-1")


@refusal(404, "AccountNotFound", "Debit")
def an_unknown_source(system: TwoLedgers) -> dict[str, object]:
    return to_partner("from-1", "to-1")


@refusal(422, "CurrencyMismatch", "Debit")
def another_currency_than_the_account_is_kept_in(system: TwoLedgers) -> dict[str, object]:
    return {**system.way("1").body, "currency": "USD"}


@refusal(422, "Invalid", "Credit")
def a_target_that_cannot_be_an_account(system: TwoLedgers) -> dict[str, object]:
    system.add_account(MAIN, "from-1")
    return to_partner("from-1", "no account")


@refusal(402, "InsufficientFunds", "Transfer")
def more_than_the_account_holds_within_one_ledger(system: TwoLedgers) -> dict[str, object]:
    system.open("from-1", "to-1")
    return transfer("from-1", "to-1", 1001)


@pytest.mark.parametrize("case", list(REFUSALS))
class TestARefusal:
    def test_is_refunded_notified_and_returned_and_never_retried(self, system: TwoLedgers, case: str) -> None:
        ask, status, error, step = REFUSALS[case]
        body = ask(system)
        before = system.balances(MAIN), system.balances(PARTNER)

        with system.aws.calls.record() as calls:
            answer, saga_id = settled(system, "k", body)
            system.await_end(FORWARD, saga_id)

        # Answered.
        document = problem_of(answer)
        assert answer.status == status, document
        assert (document["status"], document["error"], document["step"]) == (status, error, step)
        assert document["type"] == "urn:cdk-sagas:problem:saga-refused"
        assert document["detail"]
        # Refunded: nothing remains applied.
        assert (system.balances(MAIN), system.balances(PARTNER)) == before
        assert set(system.statuses(saga_id).values()) <= {"TOMBSTONE", "COMPENSATED"}
        assert (system.statuses(saga_id).get("Debit") == "COMPENSATED") is (step == "Credit")
        # One notification.
        (message,) = system.messages()
        assert (message["saga_id"], message["status"]) == (saga_id, "FAILED")
        assert (message["step"], message["error"], message["detail"]) == (step, error, document["detail"])
        # Never retried: every function once.
        invoked = [call.state for call in calls if call.call == "lambda:Invoke" and call.execution == saga_id]
        forward = {"Transfer": ["Transfer"], "Debit": ["Debit"], "Credit": ["Debit", "Credit"]}[step]
        assert invoked == forward + ["Compensate Debit"] * (step != "Transfer")
        # No trace of the code anywhere.
        look = system.look(saga_id)
        record = json.dumps(dict(system.item(saga_id)), default=str)
        for text in (answer.text, look.text, record, json.dumps(message)):
            assert not [word for word in ("Traceback", "stackTrace", "errorType", ".py", "/var/task") if word in text]
        assert look.json()["answer"] == document


class TestARefundThatTheAccountCannotTake:
    @staticmethod
    def held_between_debit_and_credit(system: TwoLedgers, balance: int) -> tuple[str, str]:
        """A transfer that is debited and waits before its credit, which will be refused."""
        way = system.way("1", balance=balance, closed=True)
        (fault,) = system.aws.faults.plan(
            Fault(function=CREDIT, call="dynamodb:BatchGetItem", action="delay", moment="before", on=Every())
        )
        saga_id = system.begin("k", way.body)
        until(lambda: system.statuses(saga_id).get("Debit"), "the debit")
        return saga_id, fault

    def test_waits_in_suspense_when_the_account_was_closed_meanwhile(self, system: TwoLedgers) -> None:
        saga_id, fault = self.held_between_debit_and_credit(system, balance=100)
        system.close_account(MAIN, "from-1")
        system.aws.faults.clear(fault)

        answer = system.drive("k", to_partner("from-1", "to-1"))

        assert (answer.status, answer.json()["error"]) == (422, "AccountClosed")
        assert system.statuses(saga_id) == {"Debit": "COMPENSATED", "Credit": "TOMBSTONE"}
        assert system.balance(MAIN, "from-1") == 0
        assert system.clearing(MAIN, "suspense") == 100
        assert system.clearing(MAIN, "partner-clearing") == 0

    def test_waits_in_suspense_when_the_account_is_full_by_now(self, system: TwoLedgers) -> None:
        system.add_account(MAIN, "from-1", 500, cap=500)
        system.add_account(MAIN, "other", 500)
        system.add_account(PARTNER, "to-1", 0)
        system.close_account(PARTNER, "to-1")
        (fault,) = system.aws.faults.plan(
            Fault(function=CREDIT, call="dynamodb:BatchGetItem", action="delay", moment="before", on=Every())
        )
        saga_id = system.begin("k", to_partner("from-1", "to-1"))
        until(lambda: system.statuses(saga_id).get("Debit"), "the debit")
        assert system.drive("fill", transfer("other", "from-1", 100)).status == 200
        system.aws.faults.clear(fault)

        answer = system.drive("k", to_partner("from-1", "to-1"))

        assert (answer.status, answer.json()["error"]) == (422, "AccountClosed")
        assert system.balance(MAIN, "from-1") == 500
        assert system.clearing(MAIN, "suspense") == 100


class TestADuplicate:
    def test_of_a_saga_that_compensates_is_asked_to_wait_and_starts_nothing(self, system: TwoLedgers) -> None:
        way = system.way("1", closed=True)
        (fault,) = system.aws.faults.plan(
            Fault(function=REFUND, call=TRANSACT, action="delay", moment="before", on=Every())
        )
        saga_id = system.begin("k", way.body)
        until(lambda: system.record(saga_id).direction, "the direction")

        duplicate = system.post("k", way.body)
        looked = system.look(saga_id)
        system.aws.faults.clear(fault)
        answer = system.drive("k", way.body)

        assert duplicate.status == 409
        assert problem_of(duplicate)["saga_id"] == saga_id
        assert looked.json()["status"] == "IN_PROGRESS"
        assert answer.status == 422
        machine = system.outputs["StateMachineArn"]
        executions = system.aws.client("stepfunctions").list_executions(stateMachineArn=machine)["executions"]
        assert [execution["name"] for execution in executions] == [saga_id]
        assert system.balance(MAIN, way.source) == 1000

    def test_of_a_refused_request_gets_the_refusal_byte_for_byte(self, system: TwoLedgers) -> None:
        way = system.way("1", closed=True)

        first = system.drive("k", way.body)
        second = system.post("k", way.body)

        assert (second.status, second.body) == (first.status, first.body)
        assert is_settled(second)
        assert second.headers["content-type"].startswith("application/problem+json")


class TestARequestThatWasReservedAndNotStarted:
    def test_is_started_by_the_first_duplicate_after_due_at(self, system: TwoLedgers) -> None:
        system.aws.faults.plan(
            Fault(function=system.gatekeeper, call="states:StartExecution", action="kill", on=First(TRIES))
        )
        # On a busy machine the first duplicate may come when it is due already: that is another order.
        for key in map(str, range(TRIES)):
            way = system.way(key)
            assert system.post(key, way.body).status == 502
            saga_id = system.post(key, way.body).json()["saga_id"]
            if system.now_ms() < system.record(saga_id).created_at + DUE_AFTER_MS:
                break
        else:
            raise AssertionError(f"each of {TRIES} requests was due before it had been asked for twice")
        assert system.status_of(FORWARD, saga_id) is None
        system.aws.faults.clear()

        answer = system.drive(key, way.body)

        assert (answer.status, answer.json()["saga_id"]) == (200, saga_id)
        assert system.record(saga_id).recoveries == 0


class Counting:
    """The counting sagas."""

    def __init__(self, system: TwoLedgers, outputs: Mapping[str, str]) -> None:
        self.aws = system.aws
        self.outputs = outputs
        self._now_ms = system.now_ms
        self._user = system.aws.create_api_user("counter", api_id=outputs["ApiId"])

    def post(self, saga: str, key: str, **body: object) -> HttpResponse:
        """Ask once."""
        url = f"{self.aws.api_url(self.outputs['ApiId'], self.outputs['ApiStage'])}/{saga}"
        headers = {IDEMPOTENCY_KEY_HEADER: key}
        return self._user.request("POST", url, headers=headers, body={"counter": key, **body})

    def settle(self, saga: str, key: str, **body: object) -> HttpResponse:
        """Ask until the answer is settled."""

        def ask() -> HttpResponse | None:
            answer = self.post(saga, key, **body)
            return answer if is_settled(answer) else None

        return until(ask, key)

    def begin(self, saga: str, key: str, **body: object) -> str:
        """Ask once, and return the saga's id."""
        answer = self.post(saga, key, **body)
        assert answer.status == 202
        return str(answer.json()["saga_id"])

    def recover_to_the_end(self, saga_id: str) -> RequestRecord:
        """Recover a saga until it is settled, parked, or has been tried five times."""
        recoverer = Recoverer(
            table=self.outputs["RequestTableName"],
            dynamodb=self.aws.client("dynamodb"),
            step_functions=self.aws.client("stepfunctions"),
        )
        return recover_to_the_end(recoverer, saga_id, self._now_ms)

    def counts(self, key: str) -> dict[str, int]:
        """Counters of each step."""
        items = self.aws.client("dynamodb").scan(TableName=self.outputs["CounterTableName"])["Items"]
        named = {item["id"]["S"]: int(item["n"]["N"]) for item in items}
        return {name.removeprefix(f"{key}/"): n for name, n in named.items() if name.startswith(f"{key}/")}

    def states(self, machine: str, answer: HttpResponse) -> list[str]:
        """The states that the request's execution entered."""
        arn = execution_of(self.outputs[machine], answer.json()["saga_id"])
        states = self.aws.client("stepfunctions")
        until(lambda: states.describe_execution(executionArn=arn)["status"] != "RUNNING" or None, "the end")
        return entered_states(self.aws, arn)


@pytest.fixture
def counting(both: Both) -> Counting:
    """The counting sagas, emptied."""
    system, outputs = both
    system.aws.reset()
    return Counting(system, outputs)


class TestTransitions:
    def test_of_two_plain_steps_are_three(self, counting: Counting) -> None:
        answer = counting.settle("plain", "k")

        assert answer.json()["result"] == {"First": {"seen": []}, "Second": {"seen": ["First"]}}
        assert counting.counts("k") == {"First": 1, "Second": 1}
        assert counting.states("PlainMachineArn", answer) == ["First", "Second", "Settle completed"]

    def test_of_a_transfer_to_the_partner_are_debit_credit_settle_and_a_choice_and_a_receipt(
        self, system: TwoLedgers
    ) -> None:
        _, saga_id = settled(system, "k", system.way("1").body)

        assert system.await_end(FORWARD, saga_id) == "SUCCEEDED"
        assert system.states_of(FORWARD, saga_id) == [
            "Select first step", "Debit", "Credit", "Receipt", "Settle completed",
        ]  # fmt: skip


class TestAStepThatBreaks:
    def test_is_retried_then_compensated_and_its_message_is_not_revealed(self, counting: Counting) -> None:
        with counting.aws.calls.record() as calls:
            answer = counting.settle("plain", "k", Second="secret of the house")
            states = counting.states("PlainMachineArn", answer)

        document = problem_of(answer)
        assert (answer.status, document["error"], document["step"]) == (500, "StepFailed", "Second")
        assert "secret" not in answer.text
        assert counting.counts("k") == {"First": 0}
        assert [call.state for call in calls if call.call == "lambda:Invoke"].count("Second") == 5
        assert states[-4:] == ["Compensate First", "Query saga log", "All compensated?", "Settle failed"]


class TestACallThatAwsRefuses:
    def test_is_not_retried_and_fails_the_saga_under_its_name(self, counting: Counting) -> None:
        with counting.aws.calls.record() as calls:
            answer = counting.settle("plain", "k", Second="not granted")
            counting.states("PlainMachineArn", answer)

        document = problem_of(answer)
        assert (answer.status, document["error"], document["step"]) == (500, "AWS.AccessDeniedException", "Second")
        assert "elsewhere" not in answer.text
        assert counting.counts("k") == {"First": 0}
        assert [call.state for call in calls if call.call == "lambda:Invoke"].count("Second") == 1


class TestANamedRefusal:
    def test_that_allows_the_saga_to_continue_fences_and_skips_the_step(self, counting: Counting) -> None:
        answer = counting.settle("routed", "k", First="SoldOut")

        assert answer.status == 200
        assert answer.json()["result"]["First"] == {"instead": "nothing"}
        assert counting.counts("k") == {"Second": 1}
        saga_id = answer.json()["saga_id"]
        (row,) = [row for row in self.rows(counting) if row["step"]["S"] == "First"]
        assert (row["saga_id"]["S"], row["status"]["S"]) == (saga_id, "TOMBSTONE")

    def test_without_a_route_ends_the_saga(self, counting: Counting) -> None:
        answer = counting.settle("routed", "k", Second="SoldOut")

        assert (answer.status, answer.json()["error"]) == (422, "SoldOut")
        assert counting.counts("k") == {"First": 0}
        assert drain(counting.aws, counting.outputs["AlarmQueueUrl"]) == []

    def test_is_sent_to_its_notice(self, counting: Counting) -> None:
        answer = counting.settle("routed", "k", Second="Declined")

        assert (answer.status, answer.json()["error"]) == (422, "Declined")
        assert counting.counts("k") == {"First": 0}
        assert drain(counting.aws, counting.outputs["AlarmQueueUrl"]) == [{"declined": "Second"}]
        assert "Notify Declined" in counting.states("RoutedMachineArn", answer)

    def test_continues_in_the_recovery_of_a_saga_that_was_stopped_after_it(self, counting: Counting) -> None:
        counting.aws.faults.plan(StopAt(machine="Counting/Routed/StateMachine", state="Second", moment="after"))
        saga_id = counting.begin("routed", "k", First="SoldOut")

        record = counting.recover_to_the_end(saga_id)

        assert (record.status, record.http_status) == ("COMPLETED", 200)
        assert counting.counts("k") == {"Second": 1}

    @staticmethod
    def rows(counting: Counting) -> list[Mapping[str, Any]]:
        """The saga log."""
        return list(counting.aws.client("dynamodb").scan(TableName=counting.outputs["RoutedLogTableName"])["Items"])
