"""Approvals: a link's contents, its signature, the effect of opening it, and that a job is decided once."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable as Function
from dataclasses import dataclass
from datetime import timedelta
from html.parser import HTMLParser
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers import approval_page
from saga_runtime import Callback, Failed, Invalid, Succeeded, approval_link
from saga_runtime.approvals import html as approval_html
from saga_runtime.approvals import links as approvals
from saga_runtime.approvals import store as approval_store
from saga_runtime.approvals.links import Claims, claims_of, token_of
from saga_runtime.callbacks import receive
from saga_runtime.callbacks.decisions import Receipt
from saga_runtime.errors import ProtocolMismatch, TransientError
from saga_runtime.idempotency.identity import step_key_of
from saga_runtime.protocol import APPROVAL_PREFIX, Env, Metric, StepStatus, TokenAttribute, TokenStatus
from saga_runtime.shared import aws
from tests.unit.support.receiving import TOKEN, WAIT_ID, Reception, open_reception
from tests.unit.support.samples import NOW_MS, REQUEST_ID, SAGA_ID
from tests.unit.support.wire import Action, Fault, Killed, Moment, before
from tests.unit.support.world import World

html = import_module("saga_runtime.approvals.html")

ADDRESS = "https://review.example/prod/review"
KEY = "an unguessable key"
NEXT_KEY = "the next key, of sixteen bytes"
TWO_DAYS = timedelta(hours=48)
SOON = NOW_MS // 1_000 + 600
OTHER_ID = step_key_of(SAGA_ID, "Review", item_key="b")
DETAILS = {"Order": "A-17", "Amount": "EUR 120.00"}


@dataclass(frozen=True)
class Call:
    """As much of a callback step's call as a link needs."""

    job_id: str = WAIT_ID
    now_ms: int = NOW_MS


@pytest.fixture
def reception(world: World, monkeypatch: pytest.MonkeyPatch) -> Reception:
    """A saga that waits for a review."""
    made = open_reception(world, monkeypatch)
    monkeypatch.setenv(Env.APPROVAL_URL, ADDRESS)
    monkeypatch.setenv(Env.APPROVAL_SECRET, made.put_secret("approvals", KEY))
    made.wait(WAIT_ID)
    return made


def link(reviewer: str = "alice", *, expires: timedelta = TWO_DAYS, job_id: str = WAIT_ID, **more: Any) -> str:
    """A link to a review."""
    return approval_link(Call(job_id), reviewer=reviewer, expires=expires, **more)


def set_record(**values: str) -> None:
    """Change attributes of the saga's record."""
    key = {"id": {"S": REQUEST_ID}}
    for name, value in values.items():
        aws.dynamodb().update_item(
            TableName="requests",
            Key=key,
            UpdateExpression="SET #n = :v",
            ExpressionAttributeNames={"#n": name},
            ExpressionAttributeValues={":v": {"S": value}},
        )


def visit(address: str, method: str = "GET", *, body: str = "", base64_encoded: bool = False) -> dict[str, Any]:
    """The response to a browser."""
    raw = base64.b64encode(body.encode()).decode() if base64_encoded else body
    query = {name: values[-1] for name, values in parse_qs(urlsplit(address).query).items()}
    event = {
        "httpMethod": method,
        "headers": {"Content-Type": "application/x-www-form-urlencoded"},
        "queryStringParameters": query or None,
        "body": raw or None,
        "isBase64Encoded": base64_encoded,
    }
    return approval_page.handler(event, None)


def press(address: str, decision: str = "approve", note: str = "") -> dict[str, Any]:
    """Press a button."""
    return visit(address, "POST", body=urlencode({"note": note, "decision": decision}))


def text_of(answer: dict[str, Any]) -> str:
    """The visible text of a page."""
    return re.sub(
        r"<[^>]+>", " ", re.sub(r"<style>.*?</style>|<title>.*?</title>|</?bdi>", "", answer["body"], flags=re.DOTALL)
    )


def test_a_link_shows_its_question(reception: Reception) -> None:
    answer = visit(link(title="Release order A-17?", details=DETAILS))

    assert answer["statusCode"] == 200
    shown = text_of(answer)
    for words in ("Release order A-17?", "alice", "Order", "EUR 120.00", "16 November 2023, 22:13 UTC"):
        assert words in shown


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_opening_a_link_decides_nothing(reception: Reception, method: str) -> None:
    """Mail programs open links before their reader does."""
    for _ in range(3):
        assert visit(link(), method)["statusCode"] == 200
    assert reception.written() == []
    assert reception.outcome is None


def test_an_approval_is_the_steps_output(reception: Reception) -> None:
    answer = press(link(), note="  called the customer\r\nall fine\x00 ")

    assert answer["statusCode"] == 200
    assert "Approved" in text_of(answer)
    assert reception.outcome == {
        "decision": "approved",
        "reviewer": "alice",
        "note": "called the customer\nall fine",
        "at": "2023-11-14T22:13:20Z",
    }
    assert reception.world.rows() == {WAIT_ID: StepStatus.RECORDED}


def test_a_rejection_is_the_steps_refusal(reception: Reception) -> None:
    answer = press(link(), "reject", note="stolen card")

    assert answer["statusCode"] == 200
    assert "Rejected" in text_of(answer)
    assert reception.outcome == "Rejected"
    assert reception.world.rows() == {WAIT_ID: StepStatus.REFUSED}


def test_a_reviewers_note_is_not_revealed_to_the_requester(reception: Reception) -> None:
    press(link(), "reject", note="stolen card")

    (log,) = reception.world.items("log")
    told = reception.world.tasks.woken[TOKEN]
    assert not [word for word in ("stolen card", "alice") if word in json.dumps([log, told])]
    row = reception.world.items("tokens")
    assert "stolen card" in json.dumps(row)


def test_a_job_is_decided_once(reception: Reception) -> None:
    press(link(), note="fine")
    written = reception.written()

    for decision in ("approve", "reject"):
        answer = press(link(), decision)
        assert answer["statusCode"] == 409
        assert "Already decided: approved by alice" in text_of(answer)
        assert "fine" in text_of(answer)
    assert visit(link())["statusCode"] == 409
    assert reception.written() == written


def test_another_reviewers_link_names_the_deciding_reviewer(reception: Reception) -> None:
    bobs = link("bob")
    press(link("alice"), "reject")

    answer = press(bobs, "approve")
    assert (answer["statusCode"], reception.outcome) == (409, "Rejected")
    assert "Already decided: rejected by alice" in text_of(answer)


def test_of_two_at_once_the_first_one_counts(reception: Reception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have read that nothing was decided."""
    before = approval_store.read_standing(WAIT_ID)
    press(link("alice"), "reject")
    monkeypatch.setattr(approval_page, "read_standing", lambda _: before)

    answer = press(link("bob"), "approve")
    assert (answer["statusCode"], reception.outcome) == (409, "Rejected")
    assert "rejected by alice" in text_of(answer)
    assert reception.world.telemetry.counts[Metric.CALLBACK_CONFLICT] == 0


def test_an_expired_link_decides_nothing(reception: Reception) -> None:
    address = link(expires=timedelta(minutes=5))
    reception.world.clock.ms += 299_999
    assert visit(address)["statusCode"] == 200

    reception.world.clock.ms += 1
    for answer in (visit(address), press(address)):
        assert answer["statusCode"] == 410
        assert "This link has expired" in text_of(answer)
    assert reception.written() == []


def test_an_expired_link_shows_nothing_but_that_it_expired(reception: Reception) -> None:
    """Links are kept in mail boxes for years, and not only in the reviewer's."""
    alices = link("alice", expires=timedelta(minutes=5), title="Release order A-17?", details=DETAILS)
    bobs = link("bob", expires=timedelta(minutes=5), title="Release order A-17?", details=DETAILS)
    press(alices, "reject", note="stolen card")
    reception.world.clock.ms += 300_000

    for address in (alices, bobs):
        for answer in (visit(address), press(address)):
            assert answer["statusCode"] == 410
            assert "This link has expired" in answer["body"]
            shown = ("A-17", "EUR 120.00", "alice", "bob", "rejected", "stolen card", WAIT_ID)
            assert not [word for word in shown if word in answer["body"]]


def test_a_lost_decision_is_delivered_by_an_expired_link_too(reception: Reception) -> None:
    address = link(expires=timedelta(minutes=5))
    reception.world.wire.plan(Fault(operation="TransactWriteItems", action=Action.KILL))
    with pytest.raises(Killed):
        press(address)
    reception.world.wire.forget()
    reception.world.clock.ms += 300_000

    assert visit(address)["statusCode"] == 410

    assert reception.outcome["decision"] == "approved"


def test_a_note_is_shown_to_its_own_reviewer_only(reception: Reception) -> None:
    bobs = link("bob")
    press(link("alice"), "reject", note="stolen card")

    assert "stolen card" in text_of(visit(link("alice")))
    assert "stolen card" not in visit(bobs)["body"] + press(bobs)["body"]


def test_a_link_is_valid_only_while_the_step_waits(reception: Reception) -> None:
    """All attempts of the step share one time limit: a reminder begins a new attempt, but not a new limit."""
    reception.wait(OTHER_ID, token="token-1", timeout_seconds=600)
    reception.world.clock.ms += 400_000
    reception.wait(OTHER_ID, attempt=2, token="token-2", timeout_seconds=600)
    address = link(job_id=OTHER_ID)
    assert "Open until 14 November 2023, 22:23 UTC" in text_of(visit(address))
    reception.world.clock.ms += 199_999
    assert visit(address)["statusCode"] == 200

    reception.world.clock.ms += 1
    for answer in (visit(address), press(address)):
        assert (answer["statusCode"], "<form" in answer["body"]) == (410, False)
        assert "the time to decide is over" in text_of(answer)
    assert reception.written() == []
    assert reception.world.telemetry.counts == {}


@pytest.mark.parametrize("status", ["FAILED", "COMPLETED"])
def test_a_link_decides_nothing_for_a_saga_that_is_settled(reception: Reception, status: str) -> None:
    set_record(status=status)

    for answer in (visit(link()), press(link())):
        assert (answer["statusCode"], "<form" in answer["body"]) == (410, False)
    assert [item["id"]["S"] for item in reception.world.items("tokens")] == [WAIT_ID]


def test_a_link_to_an_ended_job_is_reported(reception: Reception) -> None:
    address = link(job_id=OTHER_ID)

    for answer in (visit(address), press(address)):
        assert answer["statusCode"] == 404
        assert "Nothing waits for this decision" in text_of(answer)
        assert "Thank you" not in text_of(answer)
    assert reception.written() == []


def test_words_of_a_link_cannot_turn_other_words_around(reception: Reception) -> None:
    """A right-to-left override in a title or a name stays in its element; a tab's title has none."""
    turned = "\u202eevorppA"
    page = visit(link(turned, title=turned, details={turned: turned}))["body"]

    assert f"<title>{turned[1:]}</title>" in page
    assert f"<h1><bdi>{turned}</bdi></h1>" in page
    assert f"Asked of <bdi>{turned}</bdi>." in page
    assert f"<dt><bdi>{turned}</bdi></dt><dd>{turned}</dd>" in page
    assert "unicode-bidi:isolate" in page


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_link_that_was_cut_or_changed_is_not_valid(reception: Reception, cut: int) -> None:
    address = link()
    at = len(address) - cut * 11
    other = "A" if address[at] != "A" else "B"

    for changed in (address[:-cut], address[:at] + other + address[at + 1 :]):
        for answer in (visit(changed), press(changed)):
            assert answer["statusCode"] == 403
            assert not [word for word in ("alice", WAIT_ID) if word in answer["body"]]
    assert reception.written() == []
    assert reception.world.telemetry.counts == {Metric.UNSIGNED: 4}


@pytest.mark.parametrize("token", ["", ".", "a.b", "é.é", "AAAA", "AAAA.AAAA", "=.=", "e30.e30", "x" * 9_000])
def test_an_invalid_link_is_refused(reception: Reception, token: str) -> None:
    assert press(f"{ADDRESS}?{urlencode({'t': token})}")["statusCode"] == 403
    assert reception.written() == []


def test_without_a_token_nothing_is_shown(reception: Reception) -> None:
    assert visit(ADDRESS)["statusCode"] == 403


def test_another_key_makes_no_link(reception: Reception) -> None:
    claims = Claims(job_id=WAIT_ID, reviewer="mallory", expires=SOON)

    assert press(f"{ADDRESS}?t={token_of(claims, b'guessed')}")["statusCode"] == 403


def test_a_signature_of_other_data_with_the_same_key_is_invalid() -> None:
    import hmac

    said = Claims(job_id=WAIT_ID, reviewer="mallory", expires=SOON).encode()
    plain = base64.urlsafe_b64encode(hmac.digest(KEY.encode(), said, "sha256")).rstrip(b"=").decode()
    token = f"{base64.urlsafe_b64encode(said).rstrip(b'=').decode()}.{plain}"

    assert claims_of(token, [KEY.encode()]) is None


def test_links_live_through_one_rotation_of_the_key(reception: Reception, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    before = link()
    arn = os.environ[Env.APPROVAL_SECRET]
    reception.rotate(arn, NEXT_KEY)
    assert visit(before)["statusCode"] == 200

    from saga_runtime.shared.secrets import secrets

    secrets.cache_clear()
    after = link()
    assert claims_of(parse_qs(urlsplit(after).query)["t"][0], [NEXT_KEY.encode()]) is not None
    assert [visit(address)["statusCode"] for address in (before, after)] == [200, 200]

    reception.rotate(arn, "and the next, of sixteen bytes")
    reception.world.clock.ms += 300_000
    assert [visit(address)["statusCode"] for address in (before, after)] == [403, 200]


def test_a_link_of_a_key_that_was_just_rotated_in_is_valid_at_once(reception: Reception) -> None:
    import os

    visit(link())
    reception.rotate(os.environ[Env.APPROVAL_SECRET], NEXT_KEY)
    claims = Claims(job_id=WAIT_ID, reviewer="alice", expires=SOON)

    assert visit(f"{ADDRESS}?t={token_of(claims, NEXT_KEY.encode())}")["statusCode"] == 200


@pytest.mark.parametrize("form", ["", "decision=", "decision=maybe", "note=x", "decision=approve&decision=reject"])
def test_a_form_without_a_choice_is_shown_again(reception: Reception, form: str) -> None:
    answer = visit(link(), "POST", body=form)

    assert answer["statusCode"] == 400
    assert "Press Approve or Reject." in text_of(answer)
    assert reception.written() == []


@pytest.mark.parametrize("form", ["&".join(f"f{n}=1" for n in range(99)), "%ff%fe", "decision=%00"])
def test_a_form_that_no_browser_sends_decides_nothing(reception: Reception, form: str) -> None:
    assert visit(link(), "POST", body=form)["statusCode"] == 400
    assert reception.written() == []


def test_a_form_may_be_in_base64(reception: Reception) -> None:
    assert visit(link(), "POST", body="decision=approve&note=", base64_encoded=True)["statusCode"] == 200
    assert reception.outcome["decision"] == "approved"


def test_a_form_that_is_too_large_is_refused(reception: Reception) -> None:
    assert press(link(), note="x" * approval_page.MAX_FORM_BYTES)["statusCode"] == 413
    assert reception.written() == []


def has_room(most: int) -> None:
    """Let the saga's other outputs leave so many bytes."""
    aws.dynamodb().update_item(
        TableName="tokens",
        Key={TokenAttribute.ID: {"S": WAIT_ID}},
        UpdateExpression="SET max_output = :most",
        ExpressionAttributeValues={":most": {"N": str(most)}},
    )


def test_a_note_that_the_saga_has_no_room_for_is_not_decided_with(reception: Reception) -> None:
    has_room(300)
    rows = reception.world.items("tokens")

    refused = press(link(), note="x" * 300)

    assert refused["statusCode"] == 400
    assert "Shorten the note" in text_of(refused)
    assert reception.world.items("tokens") == rows
    assert press(link(), decision="reject", note="x" * 300)["statusCode"] == 200


def test_a_decision_that_the_saga_has_no_room_for_any_more_is_reported(reception: Reception) -> None:
    """Another attempt began to wait, with less room, while the decision was written."""
    before(reception.world.wire, "PutItem", lambda: has_room(20))
    assert press(link())["statusCode"] == 503

    has_room(300)
    visit(link())

    assert reception.outcome["decision"] == "approved"


def test_a_note_is_kept_up_to_its_limit(reception: Reception) -> None:
    press(link(), note="\U0001f600" * 600)

    assert reception.outcome["note"] == "\U0001f600" * approvals.MAX_NOTE


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", ""])
def test_other_methods_are_refused(reception: Reception, method: str) -> None:
    answer = visit(link(), method)

    assert (answer["statusCode"], answer["headers"]["Allow"]) == (405, "GET, HEAD, POST")


@pytest.mark.parametrize("event", [None, [], {"httpMethod": "GET", "isBase64Encoded": True, "body": "%"}])
def test_an_invalid_request_is_refused(reception: Reception, event: Any) -> None:
    assert approval_page.handler(event, None)["statusCode"] == 400


def test_a_job_that_was_settled_in_another_way_cannot_be_decided(reception: Reception) -> None:
    receive(Callback(job_id=WAIT_ID, event_id="by-hand", outcome=Succeeded({"decision": "approved"})))
    written = reception.written()

    for answer in (visit(link()), press(link(), "reject")):
        assert answer["statusCode"] == 409
        assert "settled in another way" in text_of(answer)
    assert reception.written() == written


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_a_decision_between_two_attempts_is_not_called_late(reception: Reception, decision: str) -> None:
    """The heartbeat has expired, and the next attempt's message waits in the queue: the saga continues with it."""
    reception.world.tasks.time_out(TOKEN)

    first = press(link(), decision)
    seen = [first, visit(link()), press(link(), decision)]
    reception.wait(WAIT_ID, attempt=2, token="second-token")

    assert reception.world.tasks.woken["second-token"]
    assert [answer["statusCode"] for answer in seen] == [200, 409, 409]
    for answer in seen:
        assert "recorded. Nothing waits for it now" in text_of(answer)
        assert "too late" not in text_of(answer)
    assert "Already decided" in text_of(visit(link()))


def test_a_decision_that_another_outcome_precedes_is_reported_as_late(
    reception: Reception, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = approval_store.read_standing(WAIT_ID)
    receive(Callback(job_id=WAIT_ID, event_id="by-hand", outcome=Failed("Rejected", "")))
    monkeypatch.setattr(approval_page, "read_standing", lambda _: before)

    answer = press(link())
    assert answer["statusCode"] == 200
    assert "came too late" in text_of(answer)


def _decide_without_a_receipt(reception: Reception) -> None:
    reception.world.wire.plan(Fault(operation="TransactWriteItems", action=Action.DROP, times=60))
    assert press(link())["statusCode"] == 503
    reception.world.wire.forget()


def test_a_decision_whose_receipt_failed_until_the_wait_was_over_is_reported_as_unheard(reception: Reception) -> None:
    _decide_without_a_receipt(reception)
    reception.world.tasks.time_out(TOKEN)
    set_record(status="FAILED")

    for _ in range(2):
        answer = visit(link())
        assert answer["statusCode"] == 409
        assert "recorded. Nothing waits for it now" in text_of(answer)


def test_a_decision_that_another_outcome_preceded_is_reported_so(reception: Reception) -> None:
    _decide_without_a_receipt(reception)
    receive(Callback(job_id=WAIT_ID, event_id="by-hand", outcome=Failed("Rejected", "")))

    answer = visit(link())
    assert answer["statusCode"] == 409
    assert "settled in another way" in text_of(answer)


@pytest.mark.parametrize("operation", ["GetItem", "PutItem", "TransactWriteItems"])
@pytest.mark.parametrize("action", [Action.THROTTLE, Action.DROP])
def test_an_outage_is_reported_and_a_retry_decides(reception: Reception, operation: str, action: Action) -> None:
    address = link()
    reception.world.wire.plan(Fault(operation=operation, action=action, times=60))
    answer = press(address)
    assert (answer["statusCode"], answer["headers"]["Retry-After"]) == (503, "2")
    assert reception.world.tasks.woken == {}

    reception.world.wire.forget()
    press(address)
    assert reception.outcome["decision"] == "approved"


def test_without_the_key_nothing_is_shown(reception: Reception) -> None:
    address = link()
    from saga_runtime.shared.secrets import secrets

    secrets.cache_clear()
    reception.world.wire.plan(Fault(operation="GetSecretValue", action=Action.THROTTLE, times=60))
    assert visit(address)["statusCode"] == 503


DEATHS = [
    Fault(operation=operation, action=Action.KILL, moment=moment)
    for operation in ("PutItem", "TransactWriteItems", "SendTaskSuccess", "UpdateItem")
    for moment in Moment
]


@pytest.mark.parametrize("fault", DEATHS[1:], ids=str)
@pytest.mark.parametrize("again", ["GET", "approve", "reject"])
def test_an_interrupted_decision_is_delivered_as_it_was_made(reception: Reception, fault: Fault, again: str) -> None:
    address = link()
    reception.world.wire.plan(fault)
    with pytest.raises(Killed):
        press(address)
    reception.world.wire.forget()

    answer = visit(address) if again == "GET" else press(address, again)
    assert answer["statusCode"] == 409
    assert "approved by alice" in text_of(answer)
    row = reception.row(WAIT_ID)
    assert row is not None
    assert row.outcome is not None
    assert row.outcome.ok


def test_a_decision_that_died_before_it_was_written_was_not_made(reception: Reception) -> None:
    address = link()
    reception.world.wire.plan(DEATHS[0])
    with pytest.raises(Killed):
        press(address)
    reception.world.wire.forget()

    assert press(address, "reject")["statusCode"] == 200
    assert reception.outcome == "Rejected"


def test_a_lost_response_of_the_database_is_not_an_earlier_decision(reception: Reception) -> None:
    fault = Fault(operation="PutItem", action=Action.DROP, moment=Moment.AFTER, times=1)
    address = link()
    reception.world.wire.plan(fault)

    answer = press(address)
    assert answer["statusCode"] == 200
    assert "Approved" in text_of(answer)


def taken_back(reception: Reception) -> None:
    """A decision that an operator removed, for a state that waits again."""
    for table, row_id in (("log", None), ("tokens", WAIT_ID)):
        for item in reception.world.items(table):
            if row_id is None or item["id"]["S"] == row_id:
                key = {name: item[name] for name in (("saga_id", "step") if row_id is None else ("id",))}
                aws.dynamodb().delete_item(TableName=table, Key=key)
    reception.wait(WAIT_ID, attempt=2, token="second-token")


def test_a_removed_decision_can_be_made_again(reception: Reception) -> None:
    address = link()
    press(address, "reject")
    taken_back(reception)

    assert visit(address)["statusCode"] == 200
    assert press(address)["statusCode"] == 200
    assert reception.world.tasks.woken["second-token"]["output"]
    assert "Already decided: approved" in text_of(press(address, "reject"))


def test_a_decision_that_is_taken_back_months_later_does_not_take_effect_again(reception: Reception) -> None:
    address = link(expires=timedelta(days=365))
    press(address)
    reception.world.clock.ms += 364 * 86_400_000
    for item in reception.world.items("tokens"):
        if int(item["expiration"]["N"]) * 1_000 <= reception.world.clock.ms:
            aws.dynamodb().delete_item(TableName="tokens", Key={"id": item["id"]})
    taken_back(reception)

    assert "Already decided" not in text_of(visit(address))

    assert "second-token" not in reception.world.tasks.woken


def test_a_new_decision_replaces_only_the_removed_one(reception: Reception, monkeypatch: pytest.MonkeyPatch) -> None:
    press(link(), "reject")
    taken_back(reception)
    before = approval_store.read_standing(WAIT_ID)
    press(link("bob"))
    monkeypatch.setattr(approval_page, "read_standing", lambda _: before)

    answer = press(link("carol"), "reject")
    assert (answer["statusCode"], "approved by bob" in text_of(answer)) == (409, True)


def test_a_decision_is_a_row_of_its_own_with_an_end(reception: Reception) -> None:
    press(link())

    (row,) = [item for item in reception.world.items("tokens") if item["id"]["S"].startswith(APPROVAL_PREFIX)]
    assert row[TokenAttribute.STATUS]["S"] == TokenStatus.DECIDED
    assert row[TokenAttribute.JOB_ID]["S"] == WAIT_ID
    assert int(row[TokenAttribute.EXPIRATION]["N"]) == NOW_MS // 1_000 + approval_store.KEEP_DAYS * 86_400


def test_no_person_and_no_note_is_logged(reception: Reception) -> None:
    press(link(), note="stolen card")
    press(link("bob"))
    visit(ADDRESS)

    logged = repr(reception.world.telemetry.events)
    assert not [word for word in ("alice", "bob", "stolen", "token", KEY) if word in logged]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: link(reviewer=""), "reviewer"),
        (lambda: link(reviewer=" "), "reviewer"),
        (lambda: link(reviewer="x" * 101), "reviewer"),
        (lambda: link(expires=timedelta(0)), "expires"),
        (lambda: link(expires=timedelta(days=366)), "expires"),
        (lambda: link(title="x" * 1_200), "shorten"),
        (lambda: link(details={"a": "\u00e9" * 600}), "shorten"),
        (lambda: link(details={"a": "\ud800"}), "surrogate"),
        (lambda: approval_link(Call(job_id="a b"), reviewer="alice", expires=TWO_DAYS), "job"),
    ],
)
def test_a_link_out_of_its_bounds_is_not_made(reception: Reception, make: Function[[], str], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        make()


def test_the_longest_link_fits_into_a_mail(reception: Reception) -> None:
    claims = Claims(job_id="x" * 255, reviewer="r" * 100, expires=SOON)
    room = approvals.MAX_CLAIMS_BYTES - len(claims.encode())
    longest = Claims(job_id="x" * 255, reviewer="r" * 100, expires=SOON, title="t" * room)

    assert len(token_of(longest, KEY.encode())) + 250 < 2_000


@pytest.mark.parametrize("name", [Env.APPROVAL_URL, Env.APPROVAL_SECRET])
def test_without_a_page_there_is_no_link(reception: Reception, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv(name)

    with pytest.raises(ProtocolMismatch, match="add_approval_page"):
        link()


def test_a_link_needs_secrets_manager(reception: Reception) -> None:
    reception.world.wire.plan(Fault(operation="GetSecretValue", action=Action.DROP, times=60))

    with pytest.raises(TransientError):
        link()


def test_the_same_call_makes_the_same_link(reception: Reception) -> None:
    assert link(details=DETAILS) == link(details=DETAILS)
    assert link("alice") != link("bob")


def test_links_and_decisions_keep_their_format() -> None:
    """Links are opened, and decisions read, by later releases."""
    claims = Claims(
        job_id="a" * 26 + "-loyw3v28#Review[i-1]",
        reviewer="alice",
        expires=1_700_000_600,
        title="Gr\u00f6\u00dfe?",
        details=(("Order", "A-17"),),
    )
    decision = approvals.decide(claims, approved=False, note="n", attempt="000.1", now_ms=1_700_000_000_999)

    assert token_of(claims, b"key") == (
        "eyJkZXRhaWxzIjpbWyJPcmRlciIsIkEtMTciXV0sImV4cGlyZXMiOjE3MDAwMDA2MDAsImpvYiI6ImFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh"
        "LWxveXczdjI4I1Jldmlld1tpLTFdIiwicmV2aWV3ZXIiOiJhbGljZSIsInRpdGxlIjoiR3LDtsOfZT8ifQ"
        ".FCEYi-Hx-JvpURCGQwE3K7ffd0uCz_X6dn2F5SKSmpg"
    )
    assert decision.encode() == (
        '{"at":"2023-11-14T22:13:20Z","decision":"rejected","event_id":"approval-f92f895141c11c2af539d28e8b36e27d",'
        '"note":"n","reviewer":"alice"}'
    )
    assert approvals.Decision.decode(decision.encode()) == decision


texts = st.text(max_size=80)


@given(texts.filter(str.strip), texts, st.lists(st.tuples(texts, texts), max_size=3), st.integers(0, 2**33 - 1))
def test_a_link_contains_its_claims(reviewer: str, title: str, details: list[tuple[str, str]], expires: int) -> None:
    claims = Claims(job_id=WAIT_ID, reviewer=reviewer, expires=expires, title=title, details=tuple(details))
    try:
        token = token_of(claims, KEY.encode())
    except Invalid:
        return

    assert claims_of(token, [b"other", KEY.encode()]) == claims
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", token)


@given(st.binary(max_size=200) | texts.map(lambda text: json.dumps(text).encode()))
def test_signed_nonsense_is_refused(said: bytes) -> None:
    """Only we sign; still, the error reveals nothing."""
    token = f"{approvals._to_text(said)}.{approvals._to_text(approvals._sign(said, KEY.encode()))}"

    assert claims_of(token, [KEY.encode()]) is None


class _Page(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


EVIL = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'&lt;"
NOTED = approvals.Decision(approved=True, reviewer=EVIL, note=EVIL, at="2023-11-14T22:13:20Z", event_id="e")
ASKED = Claims(job_id=WAIT_ID, reviewer=EVIL, expires=NOW_MS // 1_000, title=EVIL, details=((EVIL, EVIL),))
PAGES = {
    "ask": approval_html.ask_page(ASKED, closes_at=NOW_MS),
    "complaint": approval_html.ask_page(ASKED, closes_at=NOW_MS, status=400, complaint=EVIL),
    "decided": approval_html.decided_page(ASKED, NOTED, Receipt.DELIVERED),
    "unheard": approval_html.decided_page(ASKED, NOTED, Receipt.UNDELIVERED),
    "late": approval_html.decided_page(ASKED, NOTED, Receipt.CONFLICT),
    "used": approval_html.used_page(ASKED, NOTED),
    "settled": approval_html.settled_page(ASKED),
    "closed": approval_html.closed_page(ASKED),
    "unknown": approval_html.unknown_page(ASKED),
    "expired": approval_html.expired_page(),
    "forged": approval_html.forged_page(),
    "refused": approval_html.refused_page(400, EVIL, EVIL),
}


@pytest.mark.parametrize("name", PAGES)
def test_nothing_that_was_written_into_a_link_becomes_markup(name: str) -> None:
    page = _Page()
    page.feed(PAGES[name].body)

    assert not {"script", "img"} & set(page.tags)
    assert not [attribute for attribute, _ in page.attributes if attribute.startswith("on")]
    assert name in ("forged", "expired") or "&lt;script&gt;" in PAGES[name].body


@pytest.mark.parametrize("name", PAGES)
def test_every_page_forbids_storage_and_loads_nothing(name: str) -> None:
    headers = PAGES[name].to_proxy()["headers"]

    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["form-action"] == "'self'"
    assert set(policy) == {"default-src", "style-src", "form-action", "base-uri", "frame-ancestors"}


@pytest.mark.parametrize("name", PAGES)
def test_the_policy_allows_the_pages_own_style_and_no_other(name: str) -> None:
    import hashlib

    (style,) = re.findall(r"<style>(.*?)</style>", PAGES[name].body, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()

    assert f"style-src 'sha256-{digest}';" in PAGES[name].headers["Content-Security-Policy"]
    assert 'style="' not in PAGES[name].body


@pytest.mark.parametrize("name", PAGES)
def test_every_page_has_a_language_a_heading_and_a_width_for_phones(name: str) -> None:
    page = _Page()
    page.feed(PAGES[name].body)

    assert page.tags.count("h1") == page.tags.count("main") == page.tags.count("title") == 1
    assert ("lang", "en") in page.attributes
    assert ("content", "width=device-width, initial-scale=1") in page.attributes


def test_the_note_has_a_label_and_the_buttons_have_words() -> None:
    body = PAGES["ask"].body

    assert '<label for="note">' in body
    assert 'id="note"' in body
    assert re.findall(r"<button[^>]*>(\w+)</button>", body) == ["Approve", "Reject"]


@pytest.mark.usefixtures("reception")
def test_forged_decides_nothing() -> None:
    claims = Claims(job_id=WAIT_ID, reviewer="mallory", expires=SOON)
    assert visit(f"{ADDRESS}?t={token_of(claims, b'guessed')}")["statusCode"] == 403


@pytest.mark.usefixtures("reception")
def test_the_first_decision_stays() -> None:
    alice, bob, carol = (
        approvals.decide(
            Claims(job_id=WAIT_ID, reviewer=name, expires=SOON), approved=True, note="", attempt="1", now_ms=NOW_MS
        )
        for name in ("alice", "bob", "carol")
    )
    approval_store.write_decision(WAIT_ID, alice, instead_of=None)
    assert approval_store.write_decision(WAIT_ID, bob, instead_of=carol) == alice


def test_a_decision_taken_back_is_open(reception: Reception) -> None:
    press(link(), "reject")
    taken_back(reception)
    assert press(link())["statusCode"] == 200
