"""The public fake provider: its keys, its books, its faults, and wrong arguments."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from constructs_lib.testing import FakeProvider, ProviderEffect, ProviderFault, pytest_plugin
from constructs_lib.testing.faults import FaultsNotFiredError

PATHS = {"charge": "/charges", "refund": "/charges/{id}/refunds"}
BODY = {"amount": 500, "reference": "order-1"}
Response = tuple[int, dict[str, Any]]


@pytest.fixture(scope="module")
def running() -> Iterator[FakeProvider]:
    with FakeProvider(PATHS, idempotent_for=3600, speed=50) as provider:
        yield provider


@pytest.fixture
def provider(running: FakeProvider) -> FakeProvider:
    running.reset()
    return running


def send(
    provider: FakeProvider, path: str = "/charges", *, key: str = "k-1", body: Any = BODY, patience: float = 5.0
) -> Response:
    """One request; raises what the standard library raises when no response comes."""
    connection = HTTPConnection(urlsplit(provider.url).netloc, timeout=patience)
    try:
        connection.request(
            *("GET" if body is None else "POST", path),
            None if body is None else json.dumps(body),
            {"Idempotency-Key": key} if key else {},
        )
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def keys(provider: FakeProvider) -> list[str]:
    return [action.key for action in provider.actions()]


def until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


class TestKeys:
    def test_a_repeated_request_gets_the_first_response(self, provider: FakeProvider) -> None:
        first = send(provider)

        assert first[0] == 201
        assert send(provider) == first
        assert keys(provider) == ["k-1"]

    def test_a_second_key_is_a_second_action(self, provider: FakeProvider) -> None:
        send(provider, key="k-1")
        send(provider, key="k-2")

        assert keys(provider) == ["k-1", "k-2"]

    def test_a_key_with_another_body_is_refused(self, provider: FakeProvider) -> None:
        send(provider)

        assert send(provider, body={"amount": 501})[0] == 422
        assert keys(provider) == ["k-1"]

    def test_a_key_of_another_path_is_refused(self, provider: FakeProvider) -> None:
        send(provider, "/charges/1/refunds", body={})

        assert send(provider, "/charges/2/refunds", body={})[0] == 422
        assert keys(provider) == ["k-1"]

    @pytest.mark.parametrize(("key", "body"), [("", BODY), ("k-1", []), ("k-1", "text"), ("k-1", {"a": float("nan")})])
    def test_a_request_without_key_or_object_does_nothing(self, provider: FakeProvider, key: str, body: Any) -> None:
        assert send(provider, key=key, body=body)[0] == 400
        assert keys(provider) == []

    def test_a_provider_without_keys_acts_each_time(self) -> None:
        with FakeProvider({"charge": "/charges"}, idempotent_for=0) as provider:
            send(provider)
            send(provider)

            assert keys(provider) == ["k-1", "k-1"]

    def test_a_forgotten_key_acts_once_more(self, provider: FakeProvider) -> None:
        send(provider)
        provider.forget("k-1")
        send(provider)

        assert keys(provider) == ["k-1", "k-1"]


class TestBooks:
    def test_have_each_action_with_its_request(self, provider: FakeProvider) -> None:
        send(provider)
        send(provider, "/charges/c-7/refunds", key="k-2", body={"amount": 200})

        (charge,), (refund,) = provider.actions("charge"), provider.actions("refund")
        assert (charge.number, charge.key, charge.path, charge.body) == (1, "k-1", "/charges", BODY)
        assert (refund.number, refund.path) == (2, "/charges/c-7/refunds")
        assert provider.effects() == [ProviderEffect(key="k-1", amount=500), ProviderEffect(key="k-2", amount=200)]

    def test_answer_a_query_by_key(self, provider: FakeProvider) -> None:
        _, charge = send(provider)

        assert send(provider, "/charges?key=k-1", key="", body=None) == (200, {"found": [charge], "in_work": False})
        assert send(provider, "/charges?key=k-2", key="", body=None) == (200, {"found": [], "in_work": False})

    def test_have_every_request(self, provider: FakeProvider) -> None:
        send(provider)
        send(provider)

        assert [(one.operation, one.key, one.outcome) for one in provider.requests("order-1")] == [
            *[("charge", "k-1", "201")] * 2
        ]

    def test_survive_a_stop_and_are_readable_meanwhile(self) -> None:
        with FakeProvider(PATHS) as provider:
            send(provider)
            provider.stop()
            assert keys(provider) == ["k-1"]
            provider.start()
            assert send(provider)[0] == 201
            assert keys(provider) == ["k-1"]

    def test_amount_that_is_not_in_minor_units_is_refused(self, provider: FakeProvider) -> None:
        send(provider, body={"amount": "5.00"})

        with pytest.raises(ValueError, match=r"amount of a body must be an integer of minor units, got '5\.00'"):
            provider.effects()
        assert provider.effects(lambda body: int(body["amount"].replace(".", "")))[0].amount == 500


class TestFaults:
    @pytest.mark.parametrize("action", ["error", "drop", "hang"])
    @pytest.mark.parametrize(("moment", "acted"), [("before", []), ("after", ["k-1"])])
    def test_happen_before_or_after_the_action(
        self, provider: FakeProvider, action: Any, moment: Any, acted: list[str]
    ) -> None:
        provider.plan(ProviderFault(on="charge", action=action, moment=moment))

        if action == "error":
            assert send(provider)[0] == 500
        else:
            with pytest.raises((HTTPException, OSError)):
                send(provider, patience=0.3)
        until(lambda: provider.requests()[0].outcome != "…")
        assert keys(provider) == acted
        assert send(provider)[0] == 201
        assert keys(provider) == ["k-1"]
        provider.require_all_fired()

    def test_refusal_is_final_and_does_nothing(self, provider: FakeProvider) -> None:
        provider.plan(ProviderFault(on="charge", action="refuse"))

        assert send(provider)[0] == 402
        assert send(provider)[0] == 402
        assert keys(provider) == []

    @pytest.mark.exhaustive
    def test_slow_request_is_in_use_until_it_is_done(self, provider: FakeProvider) -> None:
        provider.plan(ProviderFault(on="charge", action="slow", seconds=60))

        with pytest.raises((HTTPException, OSError)):
            send(provider, patience=0.1)
        assert send(provider)[0] == 409
        assert send(provider, "/charges?key=k-1", key="", body=None)[1]["in_work"] is True
        until(lambda: keys(provider) == ["k-1"])

    @pytest.mark.exhaustive
    def test_late_request_arrives_though_its_sender_is_gone(self, provider: FakeProvider) -> None:
        provider.plan(ProviderFault(on="charge", action="late", seconds=30))

        with pytest.raises((HTTPException, OSError)):
            send(provider, patience=0.1)
        assert keys(provider) == []
        until(lambda: keys(provider) == ["k-1"])

    def test_duplicate_is_answered_by_its_key(self, provider: FakeProvider) -> None:
        provider.plan(ProviderFault(on="charge", action="duplicate", seconds=1))

        assert send(provider)[0] == 201
        until(lambda: [one.outcome for one in provider.requests()][1:] == ["201, the duplicate"])
        assert keys(provider) == ["k-1"]

    @pytest.mark.exhaustive
    def test_duplicate_of_a_forgotten_key_acts_once_more(self, provider: FakeProvider) -> None:
        provider.plan(ProviderFault(on="charge", action="duplicate", seconds=60))

        send(provider)
        provider.forget("k-1")
        until(lambda: keys(provider) == ["k-1", "k-1"])

    def test_killed_caller_has_no_response(self, provider: FakeProvider) -> None:
        provider.plan(ProviderFault(on="charge", action="kill", moment="after"))
        program = (
            "import sys, urllib.request as u\n"
            "u.urlopen(u.Request(sys.argv[1], b'{}', {'Idempotency-Key': 'k-1'})); print('alive')"
        )
        ended = subprocess.run(
            [sys.executable, "-c", program, f"{provider.url}/charges"], capture_output=True, text=True, check=False
        )

        assert (ended.returncode, ended.stdout) == (-9, "")
        assert keys(provider) == ["k-1"]

    def test_of_a_query_hits_the_query_alone(self, provider: FakeProvider) -> None:
        provider.plan(ProviderFault(on="find-charge", action="error"))

        assert send(provider)[0] == 201
        assert send(provider, "/charges?key=k-1", key="", body=None)[0] == 500

    def test_that_hit_nothing_before_a_stop_are_reported(self) -> None:
        with FakeProvider(PATHS) as provider:
            provider.plan(ProviderFault(on="charge", action="drop"))
            provider.stop()
            provider.start()

            with pytest.raises(FaultsNotFiredError):
                provider.require_all_fired()

    def test_request_on_its_way_is_dropped_by_a_reset(self, provider: FakeProvider) -> None:
        provider.plan(ProviderFault(on="charge", action="duplicate", seconds=15, containing="k-1"))
        send(provider)
        provider.reset()
        provider.plan(ProviderFault(on="charge", action="duplicate", seconds=30))
        send(provider, key="k-2")

        until(lambda: [one.outcome for one in provider.requests()][1:] == ["201, the duplicate"])
        assert keys(provider) == ["k-2"]

    def test_that_hit_nothing_are_reported(self, provider: FakeProvider) -> None:
        provider.plan(ProviderFault(on="charge", action="drop", containing="order-2"))
        send(provider)

        with pytest.raises(FaultsNotFiredError, match="1 planned faults did not fire"):
            provider.require_all_fired()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"action": "explode"}, "action must be one of refuse, error, .*, got 'explode'"),
        ({"action": 3}, "action must be one of refuse, error, .*, got 3"),
        ({"action": "drop", "moment": "never"}, "moment must be one of before, after, got 'never'"),
        ({"action": "refuse", "moment": "after"}, "moment of refuse must be before, got after"),
        ({"action": "late"}, "seconds belong to slow, late, duplicate, got action=late seconds=None"),
        ({"action": "late", "seconds": "5"}, "seconds must be a number, got '5'"),
        ({"action": "drop", "seconds": 5}, "seconds belong to slow, late, duplicate"),
        ({"action": "drop", "nth": True}, "nth must be an integer, got True"),
        ({"action": "drop", "nth": 0}, "nth and times count from 1"),
        ({"action": "drop", "on": 3}, "on must be a name, got 3"),
        ({"action": "drop", "containing": ""}, "containing must be some text, got ''"),
    ],
)
def test_fault_that_cannot_happen_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProviderFault(**{"on": "charge", **values})


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (ProviderFault(on="chrage", action="drop"), "on must be one of charge, find-charge, .*, got 'chrage'"),
        (ProviderFault(on="find-charge", action="refuse"), "on of refuse must be an operation that acts"),
    ],
)
def test_fault_of_an_unknown_operation_is_refused(fault: ProviderFault, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FakeProvider(PATHS).plan(fault)


@pytest.mark.parametrize(
    ("operations", "options", "message"),
    [
        ({}, {}, "operations must be paths by name, got {}"),
        ("charge", {}, "operations must be paths by name, got 'charge'"),
        ({"": "/charges"}, {}, "name of an operation must be lowercase .*, got ''"),
        ({"find-charge": "/charges"}, {}, "name of an operation .*, got 'find-charge'"),
        ({"charge": "charges"}, {}, "path of 'charge' must be like '/charges' .*, got 'charges'"),
        ({"charge": "/admin/books"}, {}, "path of 'charge' must be like .* outside of /admin, got '/admin/books'"),
        ({"charge": "/c?key=1"}, {}, "path of 'charge' must be like"),
        ({"charge": "/c/{a}", "refund": "/c/{b}"}, {}, "operations must have different paths"),
        (PATHS, {"idempotent_for": -1}, "idempotent_for must be a number of 0 or more, got -1"),
        (PATHS, {"books": "books.sqlite"}, "books must be a Path, got 'books.sqlite'"),
        (PATHS, {"speed": "2"}, "speed must be a number of 0.001 or more, got '2'"),
    ],
)
def test_provider_that_cannot_be_is_refused(operations: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FakeProvider(operations, **options)


def test_literal_path_comes_before_one_with_a_placeholder() -> None:
    with FakeProvider({"any": "/charges/{id}", "latest": "/charges/latest"}) as provider:
        send(provider, "/charges/latest")
        send(provider, "/charges/c-1", key="k-2")

        assert [action.operation for action in provider.actions()] == ["latest", "any"]


def test_books_of_a_provider_that_is_not_running_are_refused() -> None:
    with FakeProvider(PATHS) as provider:
        pass

    for never in (provider, FakeProvider(PATHS)):
        with pytest.raises(RuntimeError, match="provider has no books; read them in the with block"):
            never.actions()


def test_unknown_operation_of_the_books_is_refused(provider: FakeProvider) -> None:
    with pytest.raises(ValueError, match=r"operation must be one of .*, got 'chrage'"):
        provider.actions("chrage")


def test_a_failed_test_shows_faults_that_did_not_fire(provider: FakeProvider) -> None:
    item: Any = SimpleNamespace(funcargs={"provider": provider, "other": 1})
    assert list(pytest_plugin._silent_faults(item)) == []

    provider.plan(ProviderFault(on="charge", action="drop"))

    (told,) = pytest_plugin._silent_faults(item)
    assert "1 planned faults did not fire" in told
