"""The direct operation over serialized DynamoDB: what is written, what is answered, in how many calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError

from saga_runtime import Commit, Conflict, DirectCall, Invalid, NotYet, TransientError, Write, direct_operation
from saga_runtime.errors import PermanentError
from saga_runtime.http import operation
from saga_runtime.http.schema import compile_validator
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import REPLAYED_HEADER, Metric, RecordAttribute, RecordStatus, RefusalPolicy
from saga_runtime.shared.backoff import Backoff
from tests.unit.support.client import accepted, remove_response, settled
from tests.unit.support.samples import BODY, DAY_MS, NOW_MS, REQUEST_ID, SAGA_ID, get, post
from tests.unit.support.settling import REMEMBER_SECONDS, REPLAY_SECONDS
from tests.unit.support.wallet import PLANNED, deploy, moved, planned, send, told
from tests.unit.support.wire import SDK_ATTEMPTS, Action, Fault, Moment
from tests.unit.support.world import Context, World

READ, WRITE = "BatchGetItem", "TransactWriteItems"
OPEN = {"REFUSAL_POLICY": RefusalPolicy.OPEN}
TOO_MUCH = {**BODY, "amount": 501}


@pytest.fixture(autouse=True)
def deployed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operation, and the accounts."""
    deploy(monkeypatch)
    world.open_accounts(alice=500, bob=0)
    world.wire.forget()


def _records(world: World) -> list[RequestRecord]:
    return [RequestRecord.from_item(item) for item in world.items("requests")]


class TestANewRequest:
    def test_returns_its_result_in_one_call_besides_the_functions_reads(self, world: World) -> None:
        answer = send()

        assert world.wire.sent == [READ, WRITE]
        assert told(answer) == (200, {"saga_id": SAGA_ID, "status": "COMPLETED", "result": {"paid": 200}})
        assert answer["headers"]["Location"] == f"/prod/transfers/{SAGA_ID}"
        assert REPLAYED_HEADER not in answer["headers"]
        assert moved(world) == 200

    def test_is_recorded_as_settled_with_its_response(self, world: World) -> None:
        body = send()["body"]

        (record,) = _records(world)
        assert (record.request_id, record.saga_id, record.status) == (REQUEST_ID, SAGA_ID, RecordStatus.COMPLETED)
        assert (record.http_status, record.body) == (200, body)
        assert record.response_expires_at == NOW_MS // 1_000 + REPLAY_SECONDS
        assert record.expiration == NOW_MS // 1_000 + REMEMBER_SECONDS
        assert record.due_at is None
        assert not record.tombstone

    def test_names_its_entries_after_the_operation(self, world: World) -> None:
        send()

        assert {entry["entry_id"]["S"] for entry in world.entries()} >= {SAGA_ID}

    def test_is_planned_again_after_a_conflict_and_counted(self, world: World) -> None:
        world.wire.plan(Fault(operation=WRITE, action=Action.CONFLICT, times=2))

        assert send()["statusCode"] == 200
        assert [call.key for call in PLANNED] == [SAGA_ID] * 3
        assert world.telemetry.counts[Metric.CONFLICT] == 2
        assert moved(world) == 200

    def test_is_planned_again_on_what_the_client_sent(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """Changes that its function makes to the request are not in the next try."""
        seen: list[int] = []

        @direct_operation
        def pay(call: DirectCall) -> Commit:
            seen.append(call.request["amount"])
            call.request["amount"] += 5
            return planned(call)

        world.wire.plan(Fault(operation=WRITE, action=Action.CONFLICT, times=2))

        assert pay(post(), Context())["statusCode"] == 200
        assert seen == [BODY["amount"]] * 3

    def test_is_planned_again_as_often_as_its_backoff_has_it(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        backoff = Backoff(attempts=4, base_ms=50, cap_ms=200, full=False)
        deploy(monkeypatch, CONFLICT_BACKOFF=backoff.to_json())
        world.wire.plan(Fault(operation=WRITE, action=Action.CONFLICT, times=1_000))

        assert send()["statusCode"] == 503
        assert len(PLANNED) == world.telemetry.counts[Metric.CONFLICT] == 4
        assert [0.05 <= world.naps[0] <= 0.075, 0.1 <= world.naps[1] <= 0.15, 0.2 <= world.naps[2] <= 0.3] == [True] * 3

    def test_that_is_throttled_is_503_and_is_not_planned_again(self, world: World) -> None:
        world.wire.plan(Fault(operation=WRITE, action=Action.THROTTLE, times=1_000))

        assert send()["statusCode"] == 503
        assert (len(PLANNED), world.wire.sent.count(WRITE)) == (1, SDK_ATTEMPTS)

    @pytest.mark.parametrize("action", [Action.CONFLICT, Action.THROTTLE, Action.DROP])
    def test_is_503_with_retry_after_when_the_tries_are_used_up(self, world: World, action: Action) -> None:
        world.wire.plan(Fault(operation=WRITE, action=action, times=1_000))

        answer = send()

        assert answer["statusCode"] == 503
        assert answer["headers"]["Retry-After"]
        assert (moved(world), world.items("requests")) == (0, [])

    @pytest.mark.parametrize("action", [Action.THROTTLE, Action.DROP])
    def test_is_503_when_the_functions_reads_fail(self, world: World, action: Action) -> None:
        world.wire.plan(Fault(operation=READ, action=action, times=1_000))

        assert send()["statusCode"] == 503

    @pytest.mark.parametrize("action", [Action.DENY, Action.INVALID, Action.MISSING])
    def test_that_aws_refuses_for_good_fails_the_invocation_and_stores_nothing(
        self, world: World, action: Action
    ) -> None:
        world.wire.plan(Fault(operation=WRITE, action=action, times=1_000))

        with pytest.raises(Exception, match=action):
            send()
        assert world.items("requests") == []


class TestADuplicate:
    def test_is_replayed_in_one_call_besides_the_functions_reads(self, world: World) -> None:
        first = send()
        world.clock.ms += 1
        world.wire.forget()

        again = send()

        assert world.wire.sent == [READ, WRITE]
        assert (again["statusCode"], again["body"]) == (200, first["body"])
        assert again["headers"][REPLAYED_HEADER] == "true"
        assert again["headers"]["Content-Type"] == first["headers"]["Content-Type"]
        assert world.telemetry.counts[Metric.REPLAYED] == 1
        assert moved(world) == 200

    def test_with_another_body_is_422_and_moves_nothing(self, world: World) -> None:
        send()

        status, document = told(send(post({**BODY, "amount": 1})))

        assert (status, document["type"]) == (422, "urn:cdk-sagas:problem:idempotency-key-reused")
        assert "repeat a request with its own body" in document["detail"]
        assert moved(world) == 200

    def test_that_would_be_refused_by_now_gets_the_first_response(self, world: World) -> None:
        body = {**BODY, "amount": 300}
        first = send(post(body))

        again = send(post(body))

        assert (again["statusCode"], again["body"]) == (200, first["body"])
        assert moved(world) == 300

    @pytest.mark.parametrize(
        "error",
        [
            KeyError("gone"),
            Conflict("paid"),
            NotYet("paid"),
            TransientError("paid"),
            ClientError({"Error": {"Code": "ThrottlingException"}}, "GetItem"),
            ClientError({"Error": {"Code": "ValidationException"}}, "GetItem"),
        ],
        ids=repr,
    )
    def test_whose_plan_fails_by_now_gets_the_first_response(self, world: World, error: Exception) -> None:
        first = send()

        def fails(_: DirectCall) -> Commit:
            raise error

        again = direct_operation(fails)(post(), Context(remaining_ms=20_000))
        assert (again["statusCode"], again["body"]) == (200, first["body"])
        assert again["headers"][REPLAYED_HEADER] == "true"

    def test_whose_plan_and_record_cannot_be_read_is_503(self, world: World) -> None:
        send()
        world.wire.plan(Fault(operation="GetItem", action=Action.THROTTLE, times=20))

        def fails(_: DirectCall) -> Commit:
            raise KeyError("gone")

        assert direct_operation(fails)(post(), Context(remaining_ms=20_000))["statusCode"] == 503

    def test_that_is_forgotten_fails_as_the_function_does(self, world: World) -> None:
        send()
        world.clock.ms += (REMEMBER_SECONDS + 1) * 1_000

        def fails(_: DirectCall) -> Commit:
            raise KeyError("gone")

        with pytest.raises(KeyError):
            direct_operation(fails)(post(), Context(remaining_ms=20_000))

    def test_under_another_key_fails_as_the_function_does(self, world: World) -> None:
        def fails(_: DirectCall) -> Commit:
            raise KeyError("gone")

        with pytest.raises(KeyError):
            direct_operation(fails)(post(), Context(remaining_ms=20_000))

    def test_of_another_caller_is_another_request(self, world: World) -> None:
        send()
        send(post(principal="AIDABOB"))

        assert moved(world) == 400

    def test_is_410_when_the_response_has_expired(self, world: World) -> None:
        send()
        world.clock.ms += REPLAY_SECONDS * 1_000

        status, document = told(send())

        assert (status, document["http_status"]) == (410, 200)
        assert moved(world) == 200

    def test_is_410_when_the_response_was_removed(self, world: World) -> None:
        send()
        world.clock.ms += REPLAY_SECONDS * 1_000
        remove_response(world)

        assert _records(world)[0].tombstone
        assert send()["statusCode"] == 410
        assert moved(world) == 200

    def test_is_a_new_request_when_the_key_has_expired(self, world: World) -> None:
        send()
        world.clock.ms += REMEMBER_SECONDS * 1_000 - 1_000
        assert send()["statusCode"] == 410
        world.clock.ms += 1_000

        assert send()["statusCode"] == 200
        assert moved(world) == 400

    def test_under_a_stricter_schema_gets_the_first_response(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = send()
        check = compile_validator({"type": "object", "properties": {"amount": {"maximum": 1}}})
        monkeypatch.setattr(operation, "load_validator", lambda _: check)
        operation.validator.cache_clear()

        assert send()["body"] == first["body"]
        assert send(post(key="key-2"))["statusCode"] == 400
        assert moved(world) == 200


def test_ten_threads_under_one_key_have_one_effect_and_ten_equal_responses(world: World) -> None:
    with ThreadPoolExecutor(max_workers=10) as pool:
        answers = [future.result() for future in [pool.submit(send) for _ in range(10)]]

    assert {(answer["statusCode"], answer["body"]) for answer in answers} == {(200, answers[0]["body"])}
    assert sum(REPLAYED_HEADER not in answer["headers"] for answer in answers) == 1
    assert moved(world) == 200


class TestAFinalRefusal:
    def test_has_the_errors_own_status_and_its_safe_message(self, world: World) -> None:
        status, document = told(answer := send(post(TOO_MUCH)))

        assert (status, document["status"], document["error"]) == (402, 402, "InsufficientFunds")
        assert document["type"] == "urn:cdk-sagas:problem:saga-refused"
        assert answer["headers"]["Content-Type"] == "application/problem+json"
        assert REPLAYED_HEADER not in answer["headers"]
        assert moved(world) == 0

    def test_is_422_unless_the_operation_declares_another(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        deploy(monkeypatch, FAILURE_STATUS="{}")

        assert send(post(TOO_MUCH))["statusCode"] == 422

    def test_is_kept_under_its_key_after_any_change(self, world: World) -> None:
        first = send(post(TOO_MUCH))
        world.open_accounts(carol=1_000)

        again = send(post(TOO_MUCH))

        assert (again["statusCode"], again["body"]) == (402, first["body"])
        assert again["headers"][REPLAYED_HEADER] == "true"
        assert _records(world)[0].status is RecordStatus.FAILED

    def test_takes_two_calls_besides_the_functions_reads_at_most(self, world: World) -> None:
        send(post(TOO_MUCH))

        assert world.wire.sent == [READ, "PutItem"]

    def test_that_meets_another_transaction_is_stored_after_it(self, world: World) -> None:
        world.wire.plan(Fault(operation="PutItem", action=Action.CONFLICT, times=2))

        assert send(post(TOO_MUCH))["statusCode"] == 402
        assert _records(world)[0].status is RecordStatus.FAILED
        assert world.telemetry.counts[Metric.CONFLICT] == 2

    @pytest.mark.parametrize("action", [Action.CONFLICT, Action.THROTTLE, Action.DROP])
    def test_that_cannot_be_stored_is_503(self, world: World, action: Action) -> None:
        world.wire.plan(Fault(operation="PutItem", action=action, times=1_000))

        answer = send(post(TOO_MUCH))

        assert (answer["statusCode"], answer["headers"]["Retry-After"], _records(world)) == (503, "2", [])

    def test_is_replaced_by_an_earlier_success(self, world: World) -> None:
        """Two requests of one key: the second plans when the first has taken the money."""
        body = {**BODY, "amount": 500}
        first = send(post(body))

        again = send(post(body))

        assert (again["statusCode"], again["body"]) == (200, first["body"])
        assert [record.status for record in _records(world)] == [RecordStatus.COMPLETED]


@pytest.mark.parametrize(
    ("body", "call", "status"), [(BODY, WRITE, 200), (TOO_MUCH, "PutItem", 402)], ids=["success", "refusal"]
)
@pytest.mark.parametrize("times", [1, 3])
def test_an_invocation_that_meets_its_own_record_replays_it(
    world: World, body: dict[str, Any], call: str, status: int, times: int
) -> None:
    """Its answer was lost, and it sent again: the client has had none before."""
    world.wire.plan(Fault(operation=call, action=Action.DROP, moment=Moment.AFTER, times=times))

    answer = send(post(body))

    assert answer["statusCode"] == status
    assert REPLAYED_HEADER not in answer["headers"]
    assert world.telemetry.counts[Metric.REPLAYED] == 0


class TestTwoInvocationsOfOneKey:
    """The second one comes and goes between the plan of the first and its transaction."""

    def _raced(self, second: Callable[[], object], body: dict[str, Any] = BODY) -> dict[str, Any]:
        came = False

        def plan(call: DirectCall) -> Commit:
            nonlocal came
            wanted = planned(call)
            if not came:
                came = True
                second()
            return wanted

        return direct_operation(plan)(post(body), Context())

    def test_a_late_transaction_moves_nothing_after_a_final_refusal(self, world: World) -> None:
        refusals: list[dict[str, Any]] = []

        def refuse() -> None:
            send(post({**BODY, "amount": 500}, key="key-2"))
            refusals.append(send())
            send(post({"from": "bob", "to": "alice", "amount": 500, "currency": "EUR"}, key="key-3"))

        answer = self._raced(refuse)

        assert [refusal["statusCode"] for refusal in refusals] == [402]
        assert (answer["statusCode"], answer["body"]) == (402, refusals[0]["body"])
        assert answer["headers"][REPLAYED_HEADER] == "true"
        assert moved(world) == 0

    def test_a_refusal_after_a_success_becomes_the_success(self, world: World) -> None:
        firsts: list[dict[str, Any]] = []

        def all_of_it(_: DirectCall) -> Commit:
            firsts.append(send(post({**BODY, "amount": 500})))
            raise Invalid("nothing is left")

        answer = direct_operation(all_of_it)(post({**BODY, "amount": 500}), Context())

        assert (answer["statusCode"], answer["body"]) == (200, firsts[0]["body"])
        assert moved(world) == 500

    def test_a_late_transaction_is_applied_after_an_open_refusal(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The documentation of ``OPEN`` warns of it."""
        deploy(monkeypatch, **OPEN)
        refusals: list[int] = []

        def refuse() -> None:
            send(post({**BODY, "amount": 500}, key="key-2"))
            refusals.append(send()["statusCode"])
            send(post({"from": "bob", "to": "alice", "amount": 500, "currency": "EUR"}, key="key-3"))

        assert self._raced(refuse)["statusCode"] == 200
        assert refusals == [402]
        assert moved(world) == 200

    def test_saga_and_direct_at_once_move_nothing_twice(self, world: World) -> None:
        """The other release's gatekeeper reserves between the plan and its transaction."""
        sagas: list[str] = []

        answer = self._raced(lambda: sagas.append(accepted(world)))

        assert (told(answer)[0], told(answer)[1]["saga_id"]) == (409, sagas[0])
        assert moved(world) == 0


class TestAnOpenRefusal:
    def test_stores_nothing_and_the_same_key_may_be_retried(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        deploy(monkeypatch, **OPEN)

        refused = send(post(TOO_MUCH))

        assert refused["statusCode"] == 402
        assert "Location" not in refused["headers"], "a client that reads there would get 404"
        assert world.items("requests") == []
        assert send()["statusCode"] == 200
        assert moved(world) == 200

    def test_reads_first_and_is_replaced_by_a_success(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        deploy(monkeypatch, **OPEN)
        body = {**BODY, "amount": 500}
        first = send(post(body))

        again = send(post(body))

        assert (again["statusCode"], again["body"]) == (200, first["body"])
        assert again["headers"][REPLAYED_HEADER] == "true"

    def test_is_returned_when_the_key_has_expired(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        deploy(monkeypatch, **OPEN)
        send(post({**BODY, "amount": 500}))
        world.clock.ms += REMEMBER_SECONDS * 1_000

        assert send(post({**BODY, "amount": 500}))["statusCode"] == 402


class TestOneOperationAsASagaAndDirect:
    """A deploy changes the one into the other; both releases are alive at once, on one table."""

    def test_a_saga_in_progress_is_never_repeated(self, world: World) -> None:
        saga_id = accepted(world)

        status, document = told(send())

        assert (status, document["saga_id"]) == (409, saga_id)
        assert moved(world) == 0

    def test_a_saga_in_progress_may_be_202_by_choice(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        deploy(monkeypatch, IN_PROGRESS_RESPONSE="ACCEPTED")
        saga_id = accepted(world)

        assert told(send()) == (202, {"saga_id": saga_id, "status": "IN_PROGRESS"})

    def test_a_saga_that_was_never_started_is_not_started_by_a_direct_operation(self, world: World) -> None:
        accepted(world)
        world.clock.ms += DAY_MS
        world.wire.forget()

        assert send()["statusCode"] == 409
        assert "StartExecution" not in world.wire.sent

    @pytest.mark.parametrize("status", [RecordStatus.COMPLETED, RecordStatus.FAILED])
    def test_a_direct_duplicate_replays_a_settled_saga(self, world: World, status: RecordStatus) -> None:
        saga_id = accepted(world)
        settled(world, saga_id, status, '{"result":{"paid":200}}')

        answer = send()

        assert answer["body"] == '{"result":{"paid":200}}'
        assert answer["headers"][REPLAYED_HEADER] == "true"
        assert moved(world) == 0

    @pytest.mark.parametrize("body", [BODY, TOO_MUCH], ids=["done", "refused"])
    def test_a_sagas_duplicate_replays_a_direct_response(self, world: World, body: dict[str, Any]) -> None:
        first = send(post(body))
        world.wire.forget()

        status, document, headers = world.call(post(body))

        assert (status, document) == told(first)
        assert headers[REPLAYED_HEADER] == "true"
        assert world.wire.sent == ["PutItem"]
        assert not world.executions.by_name

    def test_another_body_is_refused_by_either(self, world: World) -> None:
        send()
        assert world.call(post({**BODY, "amount": 1}))[0] == 422

        accepted(world, key="key-2")
        assert send(post({**BODY, "amount": 1}, key="key-2"))["statusCode"] == 422


class TestALook:
    def test_returns_status_and_response(self, world: World) -> None:
        document = told(send())[1]

        assert told(send(get(SAGA_ID))) == (
            200,
            {"saga_id": SAGA_ID, "status": "COMPLETED", "http_status": 200, "answer": document},
        )

    def test_returns_every_digit_of_the_response(self, world: World) -> None:
        """A number of more digits than a float has is another amount as a float."""
        pay = direct_operation(lambda _: Commit(output={"paid": Decimal("1234567890123456.78")}))
        body = pay(post(), Context())["body"]

        looked = pay(get(SAGA_ID), Context())["body"]

        assert "1234567890123456.78" in body
        assert looked.endswith(f',"answer":{body}}}')

    def test_shows_nothing_to_another_caller(self, world: World) -> None:
        send()

        assert send(get(SAGA_ID, principal="AIDABOB"))["statusCode"] == 404


def _operation(made: Callable[[DirectCall], Any]) -> dict[str, Any]:
    return direct_operation(made)(post(), Context())


class TestWhatTheFunctionReturns:
    @pytest.mark.parametrize(
        ("output", "error"),
        [
            ([], "output must be an object, got list"),
            ({"amount": 1.5}, "output must be JSON without floats"),
            ({"text": "x" * 70_000}, "a response must have at most 65536 bytes"),
            ({"cdk_sagas_ref": "x"}, "output must not have a member cdk_sagas_ref"),
        ],
        ids=["no object", "float", "too large", "reserved"],
    )
    def test_is_refused_before_anything_is_written(self, world: World, output: Any, error: str) -> None:
        with pytest.raises((TypeError, ValueError), match=error):
            _operation(lambda _: Commit(output=output))
        assert world.items("requests") == []

    def test_may_write_nothing_and_is_recorded_nevertheless(self, world: World) -> None:
        assert told(_operation(lambda _: Commit(output={"read": 1}))) == (
            200,
            {"saga_id": SAGA_ID, "status": "COMPLETED", "result": {"read": 1}},
        )
        assert len(_records(world)) == 1

    def test_may_have_99_writes_and_more_are_refused(self, world: World) -> None:
        status, document = told(_operation(lambda _: Commit(writes=[Write(action={"Put": {}})] * 100)))

        assert (status, document["error"]) == (422, "Invalid")
        assert "at most 99 writes" in document["detail"]

    def test_fails_the_invocation_if_it_raises_anything_else(self, world: World) -> None:
        def broken(_: DirectCall) -> Commit:
            raise KeyError("amount")

        with pytest.raises(KeyError):
            _operation(broken)
        assert world.items("requests") == []

    def test_refuses_with_an_error_of_the_users_own(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        class CapExceededHere(PermanentError):
            """The user's."""

        def refuse(_: DirectCall) -> Commit:
            raise CapExceededHere("the cap is 1,000")

        deploy(monkeypatch, FAILURE_STATUS=json.dumps({"CapExceededHere": 409}))
        status, document = told(_operation(refuse))

        assert (status, document["error"], document["detail"]) == (409, "CapExceededHere", "the cap is 1,000")

    def test_refuses_with_an_error_whose_init_gives_no_message(self, world: World) -> None:
        class CapExceededHere(PermanentError):
            def __init__(self) -> None:
                self.cap = 1_000

        def refuse(_: DirectCall) -> Commit:
            raise CapExceededHere

        status, document = told(_operation(refuse))

        assert (status, document["error"], document["detail"]) == (422, "CapExceededHere", "CapExceededHere")

    @pytest.mark.parametrize(
        ("message", "shown"),
        [("bad \ud800", "bad ?"), ("x" * 500_000, "x" * 1_000)],
        ids=["half a surrogate pair", "too long"],
    )
    def test_refuses_with_as_much_of_a_message_as_can_be_stored(self, world: World, message: str, shown: str) -> None:
        def refuse(_: DirectCall) -> Commit:
            raise Invalid(message)

        status, document = told(_operation(refuse))

        assert (status, document["detail"]) == (422, shown)
        assert [record.status for record in _records(world)] == [RecordStatus.FAILED]

    @pytest.mark.parametrize("returned", [None, {"paid": 1}], ids=str)
    def test_must_be_a_commit(self, world: World, returned: Any) -> None:
        with pytest.raises(TypeError, match="a direct operation must return a Commit, got"):
            _operation(lambda _: returned)
        assert world.items("requests") == []

    def test_receives_exact_numbers(self) -> None:
        seen: list[Any] = []

        def look(call: DirectCall) -> Commit:
            seen.append(call.request)
            raise Invalid("no")

        direct_operation(look)(post('{"amount": 12345678901234567890.10}'), Context())
        assert str(seen[0]["amount"]) == "12345678901234567890.10"


@pytest.mark.parametrize("policy", ["REQUIRED", "OPTIONAL"])
def test_a_request_without_a_key_is_refused_or_counted(
    world: World, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    deploy(monkeypatch, KEY_POLICY=policy)

    status = send(post(key=None))["statusCode"]

    assert status == (400 if policy == "REQUIRED" else 200)
    assert world.telemetry.counts[Metric.KEY_MISSING] == (policy == "OPTIONAL")


def test_a_large_body_is_413(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(monkeypatch, MAX_BODY_BYTES="10")

    assert send()["statusCode"] == 413
    assert moved(world) == 0


def test_responses_are_removed_early_only_where_keys_are_kept_longer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    send()
    deploy(monkeypatch, REMEMBER_SECONDS=str(REPLAY_SECONDS))
    send(post(key="key-2"))

    listed = {item[RecordAttribute.ID]["S"]: RecordAttribute.RESPONSE_SHARD in item for item in world.items("requests")}
    assert sorted(listed.values()) == [False, True]
    assert listed[REQUEST_ID]


def test_a_function_of_another_protocol_serves_no_request(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(monkeypatch, PROTOCOL="0")

    with pytest.raises(Exception, match="speaks protocol"):
        send()
    assert world.items("requests") == []
