"""The examples' test gateway applies its planned troubles, and its books are correct."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

import pytest

from examples.payment_gateway import Action, Moment, Operation, PaymentGateway, Trouble

pytestmark = pytest.mark.proof

CHARGE = {"amount": 1250, "currency": "EUR", "card": "card-1", "reference": "order-1"}
CHARGES = "/charges"
Answer = tuple[int, dict[str, Any]]


@pytest.fixture(scope="module")
def running() -> Iterator[PaymentGateway]:
    with PaymentGateway(idempotent_for=3600, speed=20) as gateway:
        yield gateway


@pytest.fixture
def gateway(running: PaymentGateway) -> PaymentGateway:
    running.reset()
    return running


def ask(
    gateway: PaymentGateway, method: str, path: str, *, key: str = "", body: Any = None, patience: float = 5.0
) -> Answer:
    """One request; raises what the standard library raises when no answer comes."""
    connection = HTTPConnection(urlsplit(gateway.url).netloc, timeout=patience)
    try:
        headers = {"Idempotency-Key": key} if key else {}
        connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def charge(gateway: PaymentGateway, key: str = "k-1", *, patience: float = 5.0, **changes: Any) -> Answer:
    return ask(gateway, "POST", CHARGES, key=key, body={**CHARGE, **changes}, patience=patience)


def refund(gateway: PaymentGateway, charged: Mapping[str, Any], key: str = "k-1-undo") -> Answer:
    body = {"charge": charged["id"], "amount": charged["amount"], "reference": charged["reference"]}
    return ask(gateway, "POST", "/refunds", key=key, body=body)


def found(gateway: PaymentGateway, key: str = "k-1", kind: str = "charges") -> dict[str, Any]:
    return ask(gateway, "GET", f"/{kind}?key={key}")[1]


def code(answer: Answer) -> tuple[int, str]:
    return answer[0], str(answer[1]["error"]["code"])


class TestTheBooks:
    def test_a_charge_is_in_them_and_so_is_its_refund(self, gateway: PaymentGateway) -> None:
        _, charged = charge(gateway)
        status, given_back = refund(gateway, charged)

        assert status == 201
        books = gateway.books().of("order-1")
        assert [c.id for c in books.charges] == [charged["id"]]
        assert [(r.id, r.charge, r.amount) for r in books.refunds] == [(given_back["id"], charged["id"], 1250)]
        assert books.taken == 0

    def test_a_declined_charge_takes_nothing(self, gateway: PaymentGateway) -> None:
        assert code(charge(gateway, card="card-declined")) == (402, "card_declined")
        assert [c.status for c in gateway.books().charges] == ["declined"]
        assert gateway.books().taken == 0

    def test_two_keys_are_two_charges_and_two_refunds(self, gateway: PaymentGateway) -> None:
        _, charged = charge(gateway, "k-1")
        charge(gateway, "k-2")
        refund(gateway, charged, "k-3")
        refund(gateway, charged, "k-4")

        assert (len(gateway.books().charges), len(gateway.books().refunds)) == (2, 2)

    def test_an_unknown_charge_is_not_refunded(self, gateway: PaymentGateway) -> None:
        unknown = {"id": "ch_none", "amount": 1, "reference": "order-1"}

        assert code(refund(gateway, unknown)) == (404, "charge_unknown")

    def test_they_survive_the_gateway(self) -> None:
        with PaymentGateway() as gateway:
            _, charged = charge(gateway)
            url = gateway.url
            gateway.stop()
            assert [c.id for c in gateway.books().charges] == [charged["id"]]
            gateway.start()

            assert gateway.url == url
            assert charge(gateway) == (201, charged)

    @pytest.mark.parametrize(
        "changes", [{"amount": 0}, {"amount": 1.5}, {"currency": "euro"}, {"card": ""}, {"tip": 1}], ids=str
    )
    def test_an_invalid_request_is_not_in_them(self, gateway: PaymentGateway, changes: dict[str, Any]) -> None:
        assert code(charge(gateway, **changes)) == (400, "invalid")
        assert gateway.books().charges == ()

    def test_a_request_without_a_key_is_refused(self, gateway: PaymentGateway) -> None:
        assert code(charge(gateway, "")) == (400, "invalid")


class TestKeys:
    def test_a_reused_key_gets_the_first_response(self, gateway: PaymentGateway) -> None:
        first, again = charge(gateway), charge(gateway)

        assert first == again
        assert len(gateway.books().charges) == 1

    def test_a_declined_key_stays_declined(self, gateway: PaymentGateway) -> None:
        gateway.plan(Trouble(on=Operation.CHARGE, action=Action.DECLINE))

        assert [charge(gateway)[0], charge(gateway)[0]] == [402, 402]

    def test_a_key_used_with_other_parameters_is_refused(self, gateway: PaymentGateway) -> None:
        charge(gateway)

        assert code(charge(gateway, amount=1)) == (422, "idempotency_key_reused")
        assert len(gateway.books().charges) == 1

    def test_a_key_expires_with_its_window_and_then_charges_again(self) -> None:
        with PaymentGateway(idempotent_for=60, speed=1000) as gateway:
            charge(gateway)
            time.sleep(0.1)
            charge(gateway)

            assert len(gateway.books().charges) == 2
            assert len(found(gateway)["found"]) == 2

    def test_a_key_can_be_expired(self, gateway: PaymentGateway) -> None:
        charge(gateway)
        gateway.forget("k-1")
        charge(gateway)

        assert len(found(gateway)["found"]) == 2

    def test_a_key_in_use_is_distinguished(self, gateway: PaymentGateway) -> None:
        gateway.plan(Trouble(on=Operation.CHARGE, action=Action.SLOW, seconds=60))
        slow = threading.Thread(target=lambda: charge(gateway))
        slow.start()
        wait_for(gateway, lambda: bool(found(gateway)["in_work"]))

        assert code(charge(gateway)) == (409, "idempotency_key_in_use")
        slow.join()
        assert found(gateway)["in_work"] is False
        assert len(gateway.books().charges) == 1


def wait_for(gateway: PaymentGateway, condition: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class TestTrouble:
    @pytest.mark.parametrize("action", [Action.DROP, Action.ERROR, Action.HANG])
    @pytest.mark.parametrize("moment", Moment)
    def test_happens_before_or_after_the_charge(self, gateway: PaymentGateway, action: Action, moment: Moment) -> None:
        gateway.plan(Trouble(on=Operation.CHARGE, action=action, moment=moment))

        if action is Action.ERROR:
            assert charge(gateway)[0] == 500
        else:
            with pytest.raises((OSError, HTTPException)):
                charge(gateway, patience=1.0)
        taken = len(gateway.books().charges)
        assert charge(gateway)[0] == 201
        assert (taken, len(gateway.books().charges)) == (1 if moment is Moment.AFTER else 0, 1)

    def test_a_late_request_charges_though_its_sender_is_gone(self, gateway: PaymentGateway) -> None:
        gateway.plan(Trouble(on=Operation.CHARGE, action=Action.LATE, seconds=100))

        with pytest.raises(OSError, match="timed out"):
            charge(gateway, patience=0.3)
        assert found(gateway) == {"found": [], "in_work": False}
        wait_for(gateway, lambda: len(found(gateway)["found"]) == 1)

    @pytest.mark.parametrize("moment", Moment)
    def test_kills_the_process_that_called(self, gateway: PaymentGateway, moment: Moment) -> None:
        gateway.plan(Trouble(on=Operation.CHARGE, action=Action.KILL, moment=moment))
        program = (
            "import http.client, json, sys\n"
            "connection = http.client.HTTPConnection(sys.argv[1])\n"
            "connection.request('POST', '/charges', sys.argv[2], {'Idempotency-Key': 'k-1'})\n"
            "connection.getresponse()"
        )
        address = urlsplit(gateway.url).netloc

        ended = subprocess.run([sys.executable, "-c", program, address, json.dumps(CHARGE)], check=False, timeout=120)

        assert ended.returncode == -9
        assert len(gateway.books().charges) == (1 if moment is Moment.AFTER else 0)

    def test_spares_the_process_that_started_it(self, gateway: PaymentGateway) -> None:
        gateway.plan(Trouble(on=Operation.CHARGE, action=Action.KILL))

        with pytest.raises((OSError, HTTPException)):
            charge(gateway)

    def test_hits_the_request_that_it_names_and_is_reported(self, gateway: PaymentGateway) -> None:
        trouble = Trouble(on=Operation.CHARGE, action=Action.ERROR, containing="order-2", nth=2, times=2)
        gateway.plan(trouble)

        statuses = [charge(gateway, f"k-{n}", reference="order-2")[0] for n in range(5)]
        statuses.append(charge(gateway, reference="order-1")[0])

        assert statuses == [201, 500, 500, 201, 201, 201]
        (report,) = gateway.report()
        assert (report.trouble, report.matched, report.fired) == (trouble, 5, 2)

    def test_of_two_that_match_the_first_planned_fires(self, gateway: PaymentGateway) -> None:
        gateway.plan(
            Trouble(on=Operation.CHARGE, action=Action.DECLINE), Trouble(on=Operation.CHARGE, action=Action.ERROR)
        )

        assert charge(gateway)[0] == 402
        assert [report.fired for report in gateway.report()] == [1, 0]

    def test_is_in_the_journal(self, gateway: PaymentGateway) -> None:
        gateway.plan(Trouble(on=Operation.CHARGE, action=Action.ERROR, moment=Moment.AFTER))
        charge(gateway)
        found(gateway)

        assert [(r.operation, r.key, r.outcome) for r in gateway.requests()] == [
            ("charge", "k-1", "201, error after"),
            ("find-charge", "k-1", "200"),
        ]

    @pytest.mark.parametrize(
        ("values", "told"),
        [
            ({"action": Action.DECLINE, "moment": Moment.AFTER}, "must be before"),
            ({"action": Action.DECLINE, "on": Operation.REFUND}, "only a charge"),
            ({"action": Action.SLOW}, "seconds belong"),
            ({"action": Action.DROP, "seconds": 1.0}, "seconds belong"),
            ({"action": Action.LATE, "seconds": 0.0}, "above 0"),
            ({"action": Action.DROP, "nth": 0}, "count from 1"),
            ({"action": Action.DROP, "containing": ""}, "some text"),
        ],
    )
    def test_that_is_impossible_is_refused(self, values: dict[str, Any], told: str) -> None:
        with pytest.raises(ValueError, match=told):
            Trouble(**{"on": Operation.CHARGE, **values})


def test_nothing_is_left_when_it_is_stopped() -> None:
    with PaymentGateway() as gateway:
        process = gateway._process
        assert process is not None

    assert process.returncode == 0
    with pytest.raises(sqlite3.OperationalError):
        gateway.books()
