"""The gatekeeper over HTTP on local AWS: every row of its table of responses, and the gateway's own problems."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from constructs_lib.cli.main import main
from constructs_lib.testing import HttpResponse
from constructs_lib.testing.faults import Every, Fault, RecordedCall
from constructs_lib.testing.http import HttpClient
from constructs_lib.testing.invariants import assert_all_hold
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, LedgerAttribute, RecordAttribute

from .transfer_system import TransferSystem, at_once, is_settled, problem_of, transfer, until
from .transfer_variant import BURST, DUE_AFTER_SECONDS

TRIES: Final = 10

T = TypeVar("T")


@pytest.fixture
def system(transfer_systems: dict[str, TransferSystem]) -> TransferSystem:
    """The reference app, emptied, with money in two accounts."""
    return _fresh(transfer_systems["FundsTransfer"])


@pytest.fixture
def variant(transfer_systems: dict[str, TransferSystem]) -> TransferSystem:
    """The gatekeeper with its other settings, emptied, with money in two accounts."""
    return _fresh(transfer_systems["Variant"])


def _fresh(system: TransferSystem) -> TransferSystem:
    system.aws.reset()
    system.open("ada", "alan")
    return system


def _hold_the_step(system: TransferSystem) -> None:
    """Keep sagas in progress until faults are cleared."""
    worker = f"{system.stack}/TransferFunction/Function"
    system.aws.faults.plan(
        Fault(function=worker, call="dynamodb:TransactWriteItems", moment="before", action="delay", on=Every())
    )


def _entries(system: TransferSystem) -> int:
    """Number of entries that transfers have made."""
    a = LedgerAttribute
    items = [item for ledger in system.ledgers() for item in ledger]
    return sum("-" in item[a.ENTRY_ID]["S"] for item in items if a.ENTRY_ID in item)


def _calls(calls: tuple[RecordedCall, ...], system: TransferSystem) -> list[str]:
    gatekeeper = system.aws.resolve_function(system.gatekeeper)
    return [call.call for call in calls if call.caller == gatekeeper]


class TestANewRequest:
    def test_is_accepted_with_its_saga_id_and_where_to_look(self, system: TransferSystem) -> None:
        answer = system.post("k", transfer("ada", "alan"))

        assert answer.status == 202
        document = answer.json()
        assert document["status"] == "IN_PROGRESS"
        assert answer.headers["location"].endswith(f"/transfers/{document['saga_id']}")

    def test_receives_status_steps_and_result_at_its_location(self, system: TransferSystem) -> None:
        saga_id = system.post("k", transfer("ada", "alan", 300)).json()["saga_id"]
        settled = system.settle("k", transfer("ada", "alan", 300))

        seen = system.look(saga_id)

        assert seen.status == 200
        document = seen.json()
        assert document["status"] == "COMPLETED"
        assert document["http_status"] == 200
        assert document["answer"] == settled.json()
        assert {"step": "Transfer", "status": "DONE"}.items() <= document["steps"][0].items()
        assert system.balances() == {"ada": 700, "alan": 1300}

    def test_costs_two_calls(self, system: TransferSystem) -> None:
        with system.aws.calls.record() as calls:
            system.post("k", transfer("ada", "alan"))

        assert _calls(calls.calls, system) == ["dynamodb:PutItem", "states:StartExecution"]


class TestADuplicate:
    def test_of_a_running_request_is_a_conflict_with_saga_and_retry_after(self, system: TransferSystem) -> None:
        _hold_the_step(system)
        saga_id = system.post("k", transfer("ada", "alan")).json()["saga_id"]

        answer = system.post("k", transfer("ada", "alan"))

        assert answer.status == 409
        assert answer.headers["retry-after"].isdigit()
        assert problem_of(answer)["saga_id"] == saga_id

    def test_of_a_running_request_may_get_its_status_instead(self, variant: TransferSystem) -> None:
        _hold_the_step(variant)
        saga_id = variant.post("k", transfer("ada", "alan")).json()["saga_id"]

        answer = variant.post("k", transfer("ada", "alan"))

        assert answer.status == 202
        assert answer.json() == {"saga_id": saga_id, "status": "IN_PROGRESS"}
        assert answer.headers["retry-after"].isdigit()

    def test_of_a_settled_request_gets_the_stored_response_byte_for_byte(self, system: TransferSystem) -> None:
        first = system.settle("k", transfer("ada", "alan"))

        again = system.post("k", transfer("ada", "alan"))

        assert (again.status, again.body) == (first.status, first.body) == (200, first.body)
        assert again.headers["idempotent-replayed"] == "true"
        assert system.balances() == {"ada": 900, "alan": 1100}

    def test_of_a_refused_request_gets_the_stored_problem(self, system: TransferSystem) -> None:
        first = system.settle("k", transfer("ada", "alan", 5000))

        again = system.post("k", transfer("ada", "alan", 5000))

        assert (again.status, again.body) == (402, first.body)
        assert problem_of(again)["error"] == "InsufficientFunds"
        assert system.balances() == {"ada": 1000, "alan": 1000}

    def test_that_spells_the_same_body_differently_is_still_a_duplicate(self, system: TransferSystem) -> None:
        first = system.settle("k", '{"from": "ada", "to": "alan", "amount": 100, "currency": "EUR"}')

        again = system.post("k", '{"currency":"EUR","amount":100,"to":"alan","from":"\\u0061da"}')

        assert (again.status, again.body) == (200, first.body)

    def test_with_another_body_is_refused_while_the_first_runs_and_when_it_is_settled(
        self, system: TransferSystem
    ) -> None:
        _hold_the_step(system)
        system.post("k", transfer("ada", "alan"))

        running = system.post("k", transfer("ada", "alan", 101))
        system.aws.faults.clear()
        system.settle("k", transfer("ada", "alan"))
        settled = system.post("k", transfer("ada", "alan", 101))

        for answer in (running, settled):
            assert answer.status == 422
            assert problem_of(answer)["type"] == "urn:cdk-sagas:problem:idempotency-key-reused"
            assert not is_settled(answer)

    def test_under_a_quoted_key_is_the_same_as_under_the_bare_one(self, system: TransferSystem) -> None:
        first = system.settle("k", transfer("ada", "alan"))

        assert system.post('"k"', transfer("ada", "alan")).body == first.body

    def test_costs_one_call(self, system: TransferSystem) -> None:
        def calls_of_a_duplicate() -> list[str]:
            _hold_the_step(system)
            system.post("k", transfer("ada", "alan"))
            with system.aws.calls.record() as calls:
                system.post("k", transfer("ada", "alan"))
            return _calls(calls.calls, system)

        assert _before_it_is_due(system, calls_of_a_duplicate) == ["dynamodb:PutItem"]

    def test_has_one_effect_among_fifty_at_once(self, system: TransferSystem) -> None:
        answers = at_once([partial(system.post, "k", transfer("ada", "alan"))] * 50)
        system.settle("k", transfer("ada", "alan"))

        assert Counter(answer.status for answer in answers)[202] == 1
        assert {answer.status for answer in answers} <= {200, 202, 409}
        assert len({answer.json()["saga_id"] for answer in answers}) == 1
        assert system.balances() == {"ada": 900, "alan": 1100}
        assert_all_hold(system.audit())


class TestAKey:
    def test_is_required_unless_the_operation_makes_it_optional(self, system: TransferSystem) -> None:
        answer = system.post(None, transfer("ada", "alan"))

        assert answer.status == 400
        assert problem_of(answer)["type"] == "urn:cdk-sagas:problem:missing-idempotency-key"
        assert system.records() == []

    def test_is_made_up_where_it_is_optional_and_counted(self, variant: TransferSystem) -> None:
        answers = [variant.post(None, transfer("ada", "alan")) for _ in range(2)]

        assert [answer.status for answer in answers] == [202, 202]
        assert len({answer.json()["saga_id"] for answer in answers}) == 2
        until(lambda: variant.balances() == {"ada": 800, "alan": 1200}, "two transfers without a key")
        logs = "\n".join(log.text for log in variant.aws.function_logs(variant.gatekeeper))
        assert logs.count('"IdempotencyKeyMissing":[1') == 2

    @pytest.mark.parametrize("key", ["x" * 256, '"', '"unfinished', " ", "sch\u00f6n"])
    def test_that_is_malformed_is_refused_and_nothing_is_written(self, system: TransferSystem, key: str) -> None:
        answer = system.post(key, transfer("ada", "alan"))

        assert answer.status == 400
        assert problem_of(answer)["type"] == "urn:cdk-sagas:problem:invalid-idempotency-key"
        assert system.records() == []


class TestABody:
    @pytest.mark.parametrize(
        ("body", "status"),
        [
            ("not JSON", 400),
            ("", 400),
            ("[]", 400),
            ('{"from":"ada","to":"alan","amount":1.5,"currency":"EUR"}', 400),
            ('{"from":"ada","to":"alan","amount":0,"currency":"EUR"}', 400),
            ('{"from":"ada","to":"alan","amount":"1","currency":"EUR"}', 400),
            ('{"from":"ada","to":"alan","currency":"EUR"}', 400),
            ('{"from":"ada","to":"alan","amount":1,"currency":"EUR","further":1}', 400),
            ('{"from":"ada","to":"alan","amount":1,"amount":2,"currency":"EUR"}', 400),
            ('{"from":"ada","to":"alan","amount":1,"currency":"EUR"}' + " " * 65_536, 413),
            ("x" * (10 * 1024 * 1024 + 1), 413),
        ],
    )
    def test_that_is_wrong_or_too_large_is_refused_and_nothing_is_written(
        self, system: TransferSystem, body: str, status: int
    ) -> None:
        answer = system.post("k", body)

        assert answer.status == status
        problem_of(answer)
        assert system.records() == []
        assert _entries(system) == 0


class TestTwoUsers:
    def test_with_the_same_key_have_two_requests(self, system: TransferSystem) -> None:
        alices = system.settle("k", transfer("ada", "alan"), user="alice")
        bobs = system.settle("k", transfer("ada", "alan"), user="bob")

        assert alices.json()["saga_id"] != bobs.json()["saga_id"]
        assert system.balances() == {"ada": 800, "alan": 1200}

    def test_cannot_distinguish_another_callers_saga_from_an_unknown_one(self, system: TransferSystem) -> None:
        saga_id = system.settle("k", transfer("ada", "alan"), user="alice").json()["saga_id"]

        others = system.look(saga_id, user="bob")
        never = system.look("a" * 26 + saga_id[26:], user="bob")

        assert others.status == never.status == 404
        assert others.body == never.body
        assert system.look(saga_id, user="alice").status == 200

    def test_are_identified_by_principal_and_not_by_access_key(self, system: TransferSystem) -> None:
        first = system.settle("k", transfer("ada", "alan"))
        name = system.user().name

        elsewhere = system.aws.create_api_user(name, api_id=system.outputs["ApiId"])
        system._users["alice"] = elsewhere
        again = system.post("k", transfer("ada", "alan"))

        assert (again.status, again.body) == (200, first.body)


class TestALook:
    @pytest.mark.parametrize("saga_id", ["a" * 26 + "-mwper9as", "nonsense", "a" * 300])
    def test_at_an_unknown_saga_finds_nothing(self, system: TransferSystem, saga_id: str) -> None:
        answer = system.look(saga_id)

        assert answer.status == 404
        problem_of(answer)

    def test_during_an_outage_is_unavailable(self, system: TransferSystem) -> None:
        saga_id = system.post("k", transfer("ada", "alan")).json()["saga_id"]
        system.aws.faults.plan(
            Fault(function=system.gatekeeper, call="dynamodb:GetItem", action="drop", attempts="all")
        )

        answer = system.look(saga_id)

        assert answer.status == 503
        assert answer.headers["retry-after"].isdigit()
        problem_of(answer)


class TestWithoutADatabase:
    @pytest.mark.parametrize("action", ["drop", "throttle", "error"])
    def test_nothing_is_promised_and_the_same_request_works_later(self, system: TransferSystem, action: Any) -> None:
        system.aws.faults.plan(
            Fault(function=system.gatekeeper, call="dynamodb:PutItem", action=action, attempts="all")
        )

        answer = system.post("k", transfer("ada", "alan"))

        assert answer.status == 503
        assert answer.headers["retry-after"].isdigit()
        assert "nothing is promised" in problem_of(answer)["detail"]
        assert system.records() == []
        assert system.settle("k", transfer("ada", "alan")).status == 200
        assert system.balances() == {"ada": 900, "alan": 1100}

    def test_a_reservation_whose_response_was_lost_is_recognized_as_ones_own(self, system: TransferSystem) -> None:
        system.aws.faults.plan(
            Fault(function=system.gatekeeper, call="dynamodb:PutItem", moment="after", action="drop")
        )

        answer = system.post("k", transfer("ada", "alan"))

        assert answer.status == 202
        system.aws.faults.report().require_all_fired()
        assert system.settle("k", transfer("ada", "alan")).json()["saga_id"] == answer.json()["saga_id"]

    def test_a_failed_start_is_not_reported_to_the_client(self, variant: TransferSystem) -> None:
        variant.aws.faults.plan(
            Fault(function=variant.gatekeeper, call="states:StartExecution", action="drop", attempts="all")
        )

        answer = variant.post("k", transfer("ada", "alan"))

        assert answer.status == 202
        assert variant.settle("k", transfer("ada", "alan")).json()["saga_id"] == answer.json()["saga_id"]
        assert variant.balances() == {"ada": 900, "alan": 1100}

    def test_a_reservation_that_was_never_started_is_started_by_a_duplicate_once_it_is_due(
        self, variant: TransferSystem
    ) -> None:
        def calls_of_an_early_duplicate() -> list[str]:
            variant.aws.faults.plan(Fault(function=variant.gatekeeper, call="states:StartExecution", action="kill"))
            variant.post("k", transfer("ada", "alan"))
            with variant.aws.calls.record() as early:
                variant.post("k", transfer("ada", "alan"))
            return _calls(early.calls, variant)

        assert _before_it_is_due(variant, calls_of_an_early_duplicate) == ["dynamodb:PutItem"]
        _wait_until_due(variant)
        with variant.aws.calls.record() as late:
            variant.post("k", transfer("ada", "alan"))

        assert _calls(late.calls, variant) == ["dynamodb:PutItem", "states:StartExecution"]
        assert variant.settle("k", transfer("ada", "alan")).status == 200
        assert variant.balances() == {"ada": 900, "alan": 1100}

    def test_a_gatekeeper_that_dies_is_a_bad_gateway_and_a_retry_continues(self, variant: TransferSystem) -> None:
        variant.aws.faults.plan(
            Fault(function=variant.gatekeeper, call="dynamodb:PutItem", moment="after", action="kill")
        )

        answer = variant.post("k", transfer("ada", "alan"))

        assert answer.status >= 500
        assert b"exited" not in answer.body
        assert b"Runtime" not in answer.body
        problem_of(answer)
        assert variant.settle("k", transfer("ada", "alan")).status == 200
        assert variant.balances() == {"ada": 900, "alan": 1100}


def _before_it_is_due(system: TransferSystem, scene: Callable[[], T]) -> T:
    """Result of a scene that ends before its request is due; on a busy machine, it is repeated until it does."""
    for _ in range(TRIES):
        found = scene()
        (record,) = system.records()
        due_at = int(record[RecordAttribute.CREATED_AT]["N"]) + DUE_AFTER_SECONDS * 1000
        if system.aws.now().timestamp() * 1000 < due_at:
            return found
        _fresh(system)
    raise AssertionError(f"each of {TRIES} requests was due before it had been asked for twice")


def _wait_until_due(system: TransferSystem) -> None:
    record = system.records()[0]
    span = int(record[RecordAttribute.DUE_AT]["N"]) - int(record[RecordAttribute.CREATED_AT]["N"])
    assert span == DUE_AFTER_SECONDS * 1000
    time.sleep(DUE_AFTER_SECONDS / system.speed + 0.1)


class TestTheGatewayItself:
    def test_rejects_an_unsigned_request(self, system: TransferSystem) -> None:
        answer = HttpClient().send("POST", system.url, headers={IDEMPOTENCY_KEY_HEADER: "k"}, body=b"{}")

        assert answer.status == 403
        problem_of(answer)
        assert system.records() == []

    def test_turns_away_a_user_without_permission(self, system: TransferSystem) -> None:
        stranger = system.aws.create_api_user("stranger")

        answer = stranger.request(
            "POST", system.url, headers={IDEMPOTENCY_KEY_HEADER: "k"}, body=transfer("ada", "alan")
        )

        assert answer.status == 403
        problem_of(answer)
        assert system.records() == []

    def test_turns_away_a_wrong_signature(self, system: TransferSystem) -> None:
        forger = replace(system.user(), secret_access_key="guessed")

        answer = forger.request("POST", system.url, headers={IDEMPOTENCY_KEY_HEADER: "k"}, body=transfer("ada", "alan"))

        assert answer.status == 403
        problem_of(answer)
        assert system.records() == []

    def test_turns_away_too_many_requests_at_once(self, variant: TransferSystem) -> None:
        narrow = replace(
            variant, outputs={**variant.outputs, "ApiId": variant.outputs["NarrowApiId"]}, api="Narrow", _users={}
        )
        narrow.user("hasty")

        def throttled_of_many() -> list[HttpResponse]:
            answers = at_once([partial(narrow.post, None, {}, user="hasty")] * (BURST * 4))
            return [answer for answer in answers if answer.status == 429]

        # A busy machine may not manage as many at once as are too many.
        throttled = until(throttled_of_many, "too many requests")
        assert all(answer.headers["retry-after"].isdigit() for answer in throttled)
        problem_of(throttled[0])

    def test_has_no_other_path(self, system: TransferSystem) -> None:
        answer = system.user().request("POST", system.url.replace("/transfers", "/elsewhere"), body={})

        assert answer.status in {403, 404}
        problem_of(answer)


class TestNoAnswer:
    def test_reveals_a_trace_or_anything_internal(self, system: TransferSystem) -> None:
        answers: list[HttpResponse] = [
            system.post("a", transfer("ada", "nobody")),
            system.settle("a", transfer("ada", "nobody")),
            system.settle("b", transfer("ada", "ada")),
            system.post("c", "nonsense"),
            system.settle("d", transfer("ada", "alan", currency="USD")),
        ]

        for answer in answers:
            text = json.dumps(answer.json())
            assert not any(word in text for word in ("Traceback", "stackTrace", ".py", "arn:aws", "Exception", "boto"))


class TestAFileOfRequests:
    def test_is_submitted_once_however_often_it_is_sent(
        self,
        system: TransferSystem,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        user = system.user()
        for name, value in {
            "AWS_ACCESS_KEY_ID": user.access_key_id,
            "AWS_SECRET_ACCESS_KEY": user.secret_access_key,
            "AWS_REGION": user.region,
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
        amounts = [101, 102, 103, 104, 105, 10**9]
        lines = [transfer("ada", "alan", amount) for amount in amounts]
        file = tmp_path / "transfers.jsonl"
        file.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
        api, _, operation = system.url.rpartition("/")
        words = ["submit", str(file), "--api", api, "--operation", operation, "--key", "/amount", "--wait", "120"]

        statuses = [main(words) for _ in range(3)]

        results = [json.loads(text) for text in file.with_name("transfers.jsonl.results").read_text().splitlines()]
        assert statuses == [3, 3, 3]
        assert Counter(one["outcome"] for one in results) == {"replayed": 5, "refused": 1}
        assert system.balances() == {"ada": 1_000 - 515, "alan": 1_000 + 515}
        assert "5 replayed" in capsys.readouterr().out
