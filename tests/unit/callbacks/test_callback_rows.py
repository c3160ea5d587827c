"""Valid callbacks, valid rows, and the decisions about both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from saga_runtime.callbacks.decisions import (
    OF_JOB,
    OF_WAIT,
    Entry,
    LogChange,
    Receipt,
    TokenChange,
    answer_of,
    entry_of,
    notice_of,
    receipt_of,
)
from saga_runtime.callbacks.rows import (
    Callback,
    Failed,
    Heartbeat,
    JobId,
    Marker,
    Outcome,
    Succeeded,
    TokenRow,
    alias_of,
    callback_of,
    order_of,
)
from saga_runtime.errors import Invalid, ProtocolMismatch
from saga_runtime.protocol import MAX_OUTPUT_BYTES, MAX_SAGA_ID, Metric, StepStatus, TokenAttribute, TokenStatus
from saga_runtime.saga_log.rows import LogRow
from tests.unit.support.callback_formats import DONE, FOUND, JOB_ID, REFUSED, TASK, WAITING, callback_formats
from tests.unit.support.samples import NOW_MS, SAGA_ID

S, C = StepStatus, LogChange


def row(status: StepStatus, output: str | None = None, **more: Any) -> LogRow:
    """A log row."""
    under_way = {"attempt": "a", "deadline": 1, "first_attempt_at": 1}
    return LogRow(saga_id=SAGA_ID, step="Pick", status=status, output=output, updated_at=1, **{**under_way, **more})


def token(status: TokenStatus, order: str = "2") -> TokenRow:
    """A token row."""
    return TokenRow(id=JOB_ID, status=status, updated_at=1, token="t", order=order, outcome=DONE)


BAD: dict[str, Callable[[], object]] = {
    "a blank job": lambda: Callback(job_id=" ", event_id="e", outcome=Heartbeat()),
    "no job": lambda: Callback(job_id="", event_id="e", outcome=Heartbeat()),
    "a long job": lambda: Callback(job_id="j" * 256, event_id="e", outcome=Heartbeat()),
    "a job with a line break": lambda: Callback(job_id="job\n", event_id="e", outcome=Heartbeat()),
    "a job id that is not text": lambda: callback_of({"job_id": 7, "event_id": "e", "outcome": {"ok": True}}),
    "a blank event": lambda: Callback(job_id="j", event_id="", outcome=Heartbeat()),
    "a long event": lambda: Callback(job_id="j", event_id="e" * 256, outcome=Heartbeat()),
    "an event of other characters": lambda: Callback(job_id="j", event_id="\u00e9", outcome=Heartbeat()),
    "no outcome": lambda: callback_of({"job_id": "j", "event_id": "e"}),
    "an unknown outcome": lambda: callback_of({"job_id": "j", "event_id": "e", "outcome": {"ok": "yes"}}),
    "an outcome of two shapes": lambda: callback_of(
        {"job_id": "j", "event_id": "e", "outcome": {"ok": True, "error": "E"}}
    ),
    "a heartbeat that is false": lambda: callback_of({"job_id": "j", "outcome": {"heartbeat": False}}),
    "nothing at all": lambda: callback_of([]),
    "a failure without a name": lambda: Failed(""),
    "a failure whose name is a sentence": lambda: Failed("out of stock"),
    "a failure with a long name": lambda: Failed("E" * 129),
    "a failure with a reserved name": lambda: Failed("SagaFenced"),
    "a failure that is a doubt": lambda: Failed("StepInDoubt"),
    "a detail that is half a character": lambda: Failed("Declined", "\ud800"),
    "a detail that is not text": lambda: callback_of(
        {"job_id": "j", "event_id": "e", "outcome": {"ok": False, "error": "E", "detail": 1}}
    ),
    "an output that is not an object": lambda: callback_of(
        {"job_id": "j", "event_id": "e", "outcome": {"ok": True, "output": [1]}}
    ),
    "an output with a float": lambda: Succeeded({"amount": 1.5}),
    "a large output": lambda: Succeeded({"text": "x" * MAX_OUTPUT_BYTES}),
}


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_callback_is_refused(name: str) -> None:
    with pytest.raises(Invalid):
        BAD[name]()


def test_a_callback_has_three_json_shapes() -> None:
    sent = {"job_id": "j", "event_id": "e"}

    assert callback_of({**sent, "outcome": {"ok": True, "output": {"a": 1}}}).outcome == Succeeded({"a": 1})
    assert callback_of({**sent, "outcome": {"ok": False, "error": "OutOfStock"}}).outcome == Failed("OutOfStock")
    assert callback_of({"job_id": "j", "outcome": {"heartbeat": True}}).outcome == Heartbeat()


def test_an_outcome_reads_back() -> None:
    for outcome in (DONE, REFUSED):
        assert Outcome.decode(outcome.encode()) == outcome
    for text in ("", "[]", "{}", '{"ok":true}', '{"ok":false,"error":"E"}'):
        with pytest.raises(ValueError, match="not a stored outcome"):
            Outcome.decode(text)


def test_a_long_detail_is_cut_off() -> None:
    assert len(Outcome.of(Failed("OutOfStock", "x" * 2_000)).detail) == 1_000


def test_a_stored_token_row_reads_back_and_its_token_is_not_printed() -> None:
    item = callback_formats()["waiting"]["Put"]["Item"]
    found = TokenRow.from_item(item)

    assert (found.status, found.token, found.order) == (TokenStatus.WAITING, "token-1", WAITING.order)
    assert found.expected_at == found.waiting_since + 600_000 == found.due_at
    assert "token-1" not in f"{found!r} {found} {WAITING!r} {WAITING}"


@pytest.mark.parametrize(
    ("status", "without", "match"),
    [
        (TokenStatus.WAITING, TokenAttribute.TOKEN, "token and its order"),
        (TokenStatus.DELIVERING, TokenAttribute.ATTEMPT_ORDER, "token and its order"),
        (TokenStatus.EARLY, TokenAttribute.OUTCOME, "needs an outcome"),
        (TokenStatus.ALIAS, TokenAttribute.JOB_ID, "an alias needs its job"),
        (TokenStatus.WAITING, TokenAttribute.STATUS, "not a row of a token table"),
    ],
)
def test_an_undeliverable_row_is_refused(status: str, without: str, match: str) -> None:
    item = {**callback_formats()["waiting"]["Put"]["Item"], "outcome": {"S": DONE.encode()}, "status": {"S": status}}
    item.pop(without, None)

    with pytest.raises(ValueError, match=match):
        TokenRow.from_item(item)


def test_attempts_compare_as_their_age_does() -> None:
    later: list[dict[str, Any]] = [
        {"retried": 13},
        {"entered": "2023-11-14T22:13:21.046Z", "retried": 0},
        {"entered": "2023-11-14T22:13:21.046Z", "retried": 2},
        {"entered": "2023-11-14T22:13:21.046Z", "retried": 10},
        {"redriven": 2, "entered": "2023-11-14T22:13:21.045Z", "retried": 0},
        {"started": "2023-11-14T22:13:20.124Z", "redriven": 0, "retried": 0},
    ]
    tasks = [TASK, *({**TASK, **more} for more in later)]

    for older, newer in pairwise(order_of(task) for task in tasks):
        assert older < newer


def test_an_attempts_order_is_in_milliseconds_in_any_time_zone() -> None:
    assert order_of(TASK) == "001700000000123.000001.001700000001045.000012"


@pytest.mark.parametrize(
    "wrong",
    [
        {"started": "yesterday"},
        {"entered": "2023-11-14T22:13:21"},
        {"entered": None},
        {"retried": "1"},
        {"retried": -1},
        {"redriven": True},
        {"redriven": 1_000_000},
    ],
)
def test_an_order_of_something_else_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProtocolMismatch):
        order_of({**TASK, **wrong})


def test_a_jobs_id_is_taken_apart() -> None:
    assert JobId.parse(JOB_ID) == JobId(saga_id=SAGA_ID, step="Pick", row_name="Pick[sku-1]")
    for text in ("", "their-1", SAGA_ID, f"{SAGA_ID}#", f"{SAGA_ID}#pick", f"{SAGA_ID}#Pick[]", f"{SAGA_ID}#Pick#undo"):
        assert JobId.parse(text) is None, text


def test_rows_of_one_table_do_not_meet() -> None:
    marker = Marker(integration="", event_id="1", job_id=JOB_ID, ok=True)
    markers = [marker, replace(marker, event_id=JOB_ID), replace(marker, reused=True)]
    markers += [replace(marker, reused=True, ok=False), replace(marker, reused=True, job_id="j")]
    ids = {JOB_ID, alias_of("", JOB_ID), alias_of("", "event#1"), *(each.id for each in markers)}
    assert len(ids) == 8
    assert len(alias_of("", "x" * 255)) < 2_048
    assert len(SAGA_ID) <= MAX_SAGA_ID


@pytest.mark.parametrize(
    ("status", "success", "failure", "contradicted_by"),
    [
        (None, C.PUT_DONE, C.PUT_FAILED, None),
        (S.INTENT, C.DONE, C.FAILED, None),
        (S.DONE, C.NONE, C.NONE, REFUSED),
        (S.REFUSED, C.APPLIED_LATE, C.NONE, DONE),
        (S.TOMBSTONE, C.APPLIED_LATE, C.NONE, None),
        (S.COMPENSATING, C.NONE, C.NONE, REFUSED),
        (S.COMPENSATED, C.NONE, C.NONE, None),
        (S.APPLIED_LATE, C.NONE, C.NONE, REFUSED),
    ],
)
def test_decision_about_a_job(
    status: StepStatus | None, success: LogChange, failure: LogChange, contradicted_by: Outcome | None
) -> None:
    log = None if status is None else row(status, "{}" if status in (S.DONE, S.APPLIED_LATE) else None)

    for outcome, change in ((DONE, success), (REFUSED, failure)):
        decided = receipt_of(token(TokenStatus.WAITING), log, outcome, job=True)
        assert decided.log is change
        assert decided.contradicts is (contradicted_by is outcome)
        assert decided.token is TokenChange.SETTLE


@pytest.mark.parametrize(
    ("status", "success", "failure", "contradicted_by"),
    [
        (None, C.PUT_READ, C.PUT_FAILED, None),
        (S.RECORDED, C.NONE, C.NONE, REFUSED),
        (S.REFUSED, C.NONE, C.NONE, DONE),
        (S.TOMBSTONE, C.NONE, C.NONE, None),
        (S.INTENT, C.DONE, C.FAILED, None),
    ],
)
def test_decision_about_a_wait(
    status: StepStatus | None, success: LogChange, failure: LogChange, contradicted_by: Outcome | None
) -> None:
    log = None if status is None else row(status)

    for outcome, change in ((DONE, success), (REFUSED, failure)):
        decided = receipt_of(token(TokenStatus.WAITING), log, outcome, job=False)
        assert decided.log is change
        assert decided.contradicts is (contradicted_by is outcome)


@pytest.mark.parametrize("status", [None, *TokenStatus])
def test_decision_about_a_token_row(status: TokenStatus | None) -> None:
    found = None if status is None else token(status)

    decided = receipt_of(found, row(S.INTENT), DONE, job=True)

    expected = {None: TokenChange.PUT_EARLY, TokenStatus.WAITING: TokenChange.SETTLE}
    assert decided.token is expected.get(status, TokenChange.NONE)


def test_every_report_has_one_transition_for_each_row() -> None:
    every = {(status, ok) for status in (None, *S) for ok in (True, False)}

    assert set(OF_JOB) == set(OF_WAIT) == every
    differ = {found for found in every if OF_JOB[found] != OF_WAIT[found]}
    assert differ == {(None, True), (S.REFUSED, True), (S.TOMBSTONE, True)}


@pytest.mark.parametrize(
    ("status", "outcome", "waits", "receipt", "metrics"),
    [
        (S.INTENT, DONE, True, None, []),
        (S.INTENT, DONE, False, None, []),
        (S.INTENT, DONE, None, Receipt.EARLY, [Metric.CALLBACK_EARLY]),
        (S.DONE, DONE, True, None, []),
        (S.DONE, DONE, False, Receipt.DUPLICATE, [Metric.CALLBACK_DUPLICATE]),
        (S.DONE, REFUSED, None, Receipt.CONFLICT, [Metric.CALLBACK_CONFLICT]),
        (S.TOMBSTONE, DONE, False, Receipt.APPLIED_LATE, [Metric.CALLBACK_APPLIED_LATE]),
        (S.REFUSED, DONE, None, Receipt.APPLIED_LATE, [Metric.CALLBACK_CONFLICT, Metric.CALLBACK_APPLIED_LATE]),
    ],
)
def test_a_report_amounts_to_a_receipt_and_is_counted(
    status: StepStatus, outcome: Outcome, waits: bool | None, receipt: Receipt | None, metrics: list[Metric]
) -> None:
    """``waits``: whether a task waits; None: there is no token row."""
    found = None if waits is None else token(TokenStatus.WAITING if waits else TokenStatus.DELIVERED)

    decided = receipt_of(found, row(status), outcome, job=True)

    assert (decided.receipt, list(decided.metrics)) == (receipt, metrics)


@pytest.mark.parametrize(
    ("status", "outcome", "recorded", "undo", "detail"),
    [
        (S.INTENT, DONE, True, True, None),
        (S.DONE, REFUSED, True, True, "the row stays"),
        (S.TOMBSTONE, DONE, True, True, None),
        (S.TOMBSTONE, DONE, True, False, "nothing undoes this step"),
        (S.TOMBSTONE, DONE, False, True, "it is not compensated automatically"),
        (S.REFUSED, DONE, True, True, "it is undone, unless its saga needs it"),
    ],
)
def test_operators_are_notified_of_what_contradicts_or_stays(
    status: StepStatus, outcome: Outcome, recorded: bool, undo: bool, detail: str | None
) -> None:
    log = row(status)
    decided = receipt_of(token(TokenStatus.WAITING), log, outcome, job=True)

    notice = notice_of(decided, log, outcome, recorded=recorded, undo=undo)

    assert notice is None if detail is None else notice is not None and notice[1].endswith(detail)


FENCED = "SagaFenced"


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (row(S.INTENT), None),
        (row(S.DONE, '{"a":1}'), '{"a":1}'),
        (row(S.RECORDED, '{"a":1}'), '{"a":1}'),
        (row(S.TOMBSTONE, '{"passed":1}'), '{"passed":1}'),
        (row(S.APPLIED_LATE, '{"a":1}', instead='{"passed":1}'), '{"passed":1}'),
        (row(S.COMPENSATED, '{"a":1}', instead='{"passed":1}'), '{"passed":1}'),
        (row(S.REFUSED, error="OutOfStock", detail="none left"), "OutOfStock"),
        (row(S.TOMBSTONE), FENCED),
        (row(S.COMPENSATING, '{"a":1}'), FENCED),
        (row(S.COMPENSATED, '{"a":1}'), FENCED),
        (row(S.APPLIED_LATE, '{"a":1}'), FENCED),
    ],
)
def test_a_waiting_task_receives_the_outcome_of_the_log(log: LogRow, told: str | None) -> None:
    answer = answer_of(log)

    assert (answer.output or answer.error if answer else None) == told


def test_a_late_success_is_not_delivered_as_a_success() -> None:
    decided = receipt_of(token(TokenStatus.WAITING), row(S.TOMBSTONE), DONE, job=True)

    assert not decided.told.ok
    assert decided.told.error == FENCED


@pytest.mark.parametrize(
    ("status", "older", "equal", "newer"),
    [
        (TokenStatus.WAITING, Entry.OLD, Entry.SAME, Entry.REPLACE),
        (TokenStatus.DELIVERING, Entry.OLD, Entry.SEND_AGAIN, Entry.ANSWER),
        (TokenStatus.DELIVERED, Entry.OLD, Entry.TOLD, Entry.ANSWER),
        (TokenStatus.UNDELIVERED, Entry.OLD, Entry.TOLD, Entry.ANSWER),
    ],
)
def test_decision_of_a_registration(status: TokenStatus, older: Entry, equal: Entry, newer: Entry) -> None:
    assert [entry_of(token(status), order) for order in ("1", "2", "3")] == [older, equal, newer]


def test_an_early_outcome_is_for_any_attempt() -> None:
    assert entry_of(token(TokenStatus.EARLY, order=""), "1") is Entry.ANSWER


@pytest.mark.parametrize("missing", [("entry",), ("queue_url",), ("entry", "queue_url")])
def test_a_notice_without_its_entry_or_queue_is_refused(missing: tuple[str, ...]) -> None:
    whole = {
        "id": {"S": "notice#1"},
        "status": {"S": "NOTICE"},
        "updated_at": {"N": "1"},
        "entry": {"S": "{}"},
        "queue_url": {"S": "https://sqs.example/operators"},
    }
    assert TokenRow.from_item(whole).queue_url == "https://sqs.example/operators"

    with pytest.raises(ValueError, match="a notice needs its entry and its queue; neither may be empty"):
        TokenRow.from_item({name: value for name, value in whole.items() if name not in missing})


def test_a_row_with_a_token_keeps_no_heartbeat_of_another_attempt() -> None:
    replaced = callback_formats()["waiting, newer"]["Update"]

    assert "#heartbeat_at" in replaced["UpdateExpression"].partition("REMOVE")[2]
    assert FOUND.expected_at > NOW_MS
