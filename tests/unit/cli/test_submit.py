"""``cdk-sagas submit``: each line of a file is sent until its outcome is known, and no line is sent unchecked."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import ClientError, TokenRetrievalError
from botocore.httpsession import URLLib3Session

from constructs_lib.cli.main import main
from constructs_lib.cli.shared.process import CommandError
from constructs_lib.cli.submit import (
    Answer,
    Line,
    Outcome,
    Patience,
    Result,
    SignedPost,
    Unsigned,
    deliver,
    outcome_of,
    read_lines,
    submit,
)
from tests.unit.support.samples import SAGA_ID

SUBMIT = import_module("constructs_lib.cli.submit")
LINE: Final = Line(number=1, key="p-1", body='{"id":"p-1"}')
REPLAYED: Final = {"idempotent-replayed": "true"}
RECORDED: Final = json.dumps({"saga_id": SAGA_ID, "status": "IN_PROGRESS"})


def answer(status: int, problem: str = "", *, replayed: bool = False, retry_after: int | None = None) -> Answer:
    """An answer of an operation, with a problem document if there is a problem."""
    text = json.dumps({"type": f"urn:cdk-sagas:problem:{problem}"}) if problem else "{}" if status >= 300 else RECORDED
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    return Answer(status=status, headers=headers | (REPLAYED if replayed else {}), text=text)


ACCEPTED: Final = answer(202)
RUNNING: Final = answer(409, "request-in-progress")
DONE: Final = answer(200, replayed=True)
FAILED: Final = answer(422, "saga-refused", replayed=True)
BUSY: Final = answer(503, "unavailable")
FAST: Final = answer(429)
BAD: Final = answer(400, "invalid-body")


@pytest.mark.parametrize("docs_url", ["https://docs.example/problems#", "http://a/b?code=", "https://docs.example/p/"])
def test_a_problem_is_recognized_by_the_address_of_its_page(docs_url: str) -> None:
    text = json.dumps({"type": f"{docs_url}idempotency-key-reused"})

    assert outcome_of(Answer(status=422, headers={}, text=text)) is Outcome.OTHER_BODY


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('{"result":{"paid":1234567890123456.78}}', '{"result":{"paid":1234567890123456.78}}'),
        ('{\n"paid": 1}', '{"paid": 1}'),
        ('{\r"paid": 1}', '{"paid": 1}'),
        ("<html>\n</html>", '"<html>\\n</html>"'),
        ("<html>", '"<html>"'),
    ],
    ids=["JSON", "JSON of two lines", "JSON of two lines of a Mac", "a page", "a page of one line"],
)
def test_a_result_has_the_answer_with_every_digit_in_one_line(text: str, written: str) -> None:
    result = Result(line=LINE, outcome=Outcome.NEW, answer=Answer(status=200, headers={}, text=text))

    assert result.written.endswith(f', "http_status": 200, "answer": {written}}}')
    assert json.loads(result.written)["outcome"] == "new"


class Clock:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        """Move on."""
        self.now += seconds

    def patience(self, *, unclear: float = 60.0, settle: float = 0.0) -> Patience:
        """Patience by this clock."""
        return Patience(unclear_seconds=unclear, settle_seconds=settle, clock=lambda: self.now, sleep=self.sleep)


def sending(*answers: Answer | None) -> tuple[Callable[[Line], Answer | None], list[Line]]:
    """Answers in turn, the last one for ever, and what was sent."""
    sent: list[Line] = []

    def post(line: Line) -> Answer | None:
        sent.append(line)
        return answers[min(len(sent), len(answers)) - 1]

    return post, sent


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (ACCEPTED, Outcome.NEW),
        (answer(200), Outcome.NEW),
        (DONE, Outcome.REPLAYED),
        (RUNNING, Outcome.IN_PROGRESS),
        (answer(409, "saga-refused"), Outcome.REFUSED),
        (answer(409), Outcome.NOT_ACCEPTED),
        (FAILED, Outcome.REFUSED),
        (answer(500, "saga-failed", replayed=True), Outcome.REFUSED),
        (answer(422, "saga-refused"), Outcome.REFUSED),
        (answer(410, "idempotency-key-expired"), Outcome.EXPIRED),
        (answer(507, "response-unavailable"), Outcome.EXPIRED),
        (answer(422, "idempotency-key-reused"), Outcome.OTHER_BODY),
        (BAD, Outcome.NOT_ACCEPTED),
        (answer(403), Outcome.NOT_ACCEPTED),
        (answer(404, "not-found"), Outcome.NOT_ACCEPTED),
        (answer(301), Outcome.NOT_ACCEPTED),
        (FAST, None),
        (BUSY, None),
        (answer(500), None),
        (answer(504), None),
    ],
)
def test_a_response_to_a_first_attempt_means(given: Answer, outcome: Outcome | None) -> None:
    assert outcome_of(given) is outcome


NO_OPERATIONS: Final = [
    "",
    "<html>welcome</html>",
    "null",
    "[]",
    "{}",
    '{"saga_id": 1, "status": "COMPLETED"}',
    '{"saga_id": "ch_1", "status": "COMPLETED"}',
    json.dumps({"saga_id": SAGA_ID}),
]
"""Bodies that no operation sends with a 2xx."""


@pytest.mark.parametrize("text", NO_OPERATIONS)
@pytest.mark.parametrize("status", [200, 201, 202, 204])
@pytest.mark.parametrize("headers", [{}, REPLAYED], ids=["first", "replayed"])
def test_a_success_that_is_not_an_operations_is_unknown_at_once(
    status: int, headers: dict[str, str], text: str
) -> None:
    post, sent = sending(Answer(status=status, headers=headers, text=text))

    assert deliver(LINE, post, Clock().patience()).outcome is Outcome.UNKNOWN
    assert len(sent) == 1


def test_a_page_before_the_operation_undoes_no_acceptance() -> None:
    page = Answer(status=202, headers={}, text="<html>challenge</html>")

    assert deliver(LINE, sending(ACCEPTED, page, DONE)[0], Clock().patience(settle=60)).outcome is Outcome.NEW
    assert deliver(LINE, sending(ACCEPTED, page)[0], Clock().patience(settle=60)).outcome is Outcome.NEW


@pytest.mark.parametrize(
    ("answers", "settle", "outcome", "attempts"),
    [
        ([None, None, ACCEPTED], 0, Outcome.NEW, 3),
        ([BUSY, DONE], 0, Outcome.REPLAYED, 2),
        ([FAST, BAD], 0, Outcome.NOT_ACCEPTED, 2),
        ([ACCEPTED, RUNNING, DONE], 60, Outcome.NEW, 3),
        ([RUNNING, DONE], 60, Outcome.IN_PROGRESS, 2),
        ([ACCEPTED, RUNNING, FAILED], 60, Outcome.REFUSED, 3),
        ([ACCEPTED, None, BUSY, DONE], 60, Outcome.NEW, 4),
    ],
)
def test_a_line_is_sent_until_its_outcome_is_known(
    answers: Sequence[Answer | None], settle: float, outcome: Outcome, attempts: int
) -> None:
    post, sent = sending(*answers)

    result = deliver(LINE, post, Clock().patience(settle=settle))

    assert (result.outcome, len(sent)) == (outcome, attempts)
    assert {line.key for line in sent} == {"p-1"}


@pytest.mark.parametrize("later", [BAD, answer(403), answer(413), answer(409, "saga-refused")])
@pytest.mark.parametrize("first", [None, BUSY, answer(504)])
def test_a_later_refusal_states_nothing_about_an_unclear_attempt(first: Answer | None, later: Answer) -> None:
    post, _ = sending(first, later)

    assert deliver(LINE, post, Clock().patience()).outcome is Outcome.UNKNOWN


def test_a_line_without_a_clear_response_ends_as_unknown() -> None:
    clock = Clock()
    post, sent = sending(None)

    assert deliver(LINE, post, clock.patience(unclear=60)).outcome is Outcome.UNKNOWN
    assert 30 < clock.now <= 60
    assert len(sent) < 12


def test_a_line_that_does_not_settle_in_time_stays_accepted() -> None:
    post, _ = sending(ACCEPTED, RUNNING)

    assert deliver(LINE, post, Clock().patience(settle=20)).outcome is Outcome.NEW


def test_retry_after_is_waited_for() -> None:
    clock = Clock()
    post, _ = sending(answer(503, "unavailable", retry_after=17), DONE)

    deliver(LINE, post, clock.patience())

    assert clock.now >= 17


def _written(path: Path, *texts: str) -> Path:
    path.write_text("\n".join(texts), encoding="utf-8")
    return path


def test_lines_have_their_keys_and_their_text(tmp_path: Path) -> None:
    texts = ['{"id": "a", "amount": 1.10}', "", '{"id": 7, "text": "\u2028"}', '{"amount": 1.1, "id": "a"}']
    file = _written(tmp_path / "requests.jsonl", *texts)

    lines = read_lines(file, "/id")

    assert [(line.number, line.key, line.body) for line in lines] == [
        (1, "a", texts[0]),
        (3, "7", texts[2]),
        (4, "a", texts[3]),
    ]
    assert read_lines(_written(tmp_path / "deep.jsonl", '{"a": {"b/c": "k"}}'), "/a/b~1c")[0].key == "k"


@pytest.mark.parametrize(
    ("texts", "pointer", "message"),
    [
        (["{"], "/id", r"line 1 of .* must be a JSON object"),
        (['{"id": "a"}', "[1]"], "/id", r"line 2 of .* must be a JSON object, got list"),
        (['{"id": "a", "id": "b"}'], "/id", r"line 1 of .*"),
        (['{"name": "a"}'], "/id", r"must have text or an integer at /id, got NoneType"),
        (['{"id": true}'], "/id", r"must have text or an integer at /id, got bool"),
        (['{"id": 1.5}'], "/id", r"must have text or an integer at /id, got Decimal"),
        (['{"id": " "}'], "/id", r"must have 1 to 255 printable ASCII characters at /id, got ' '"),
        (['{"id": "ä"}'], "/id", r"printable ASCII"),
        (['{"id": "' + "x" * 256 + '"}'], "/id", r"must have 1 to 255"),
        (['{"id": "a", "n": 1}', '{"id": "a", "n": 2}'], "/id", r"lines 1 and 2 must be equal under key a"),
        (['{"id": "a"}'], "id", r"--key must be a JSON Pointer"),
        (['{"id": "a"}'], "/", r"--key must be a JSON Pointer"),
    ],
)
def test_a_file_that_is_wrong_anywhere_is_refused_whole(
    tmp_path: Path, texts: list[str], pointer: str, message: str
) -> None:
    with pytest.raises(CommandError, match=message):
        read_lines(_written(tmp_path / "requests.jsonl", *texts), pointer)


def test_each_result_is_written_and_counted() -> None:
    lines = [Line(number=n, key=f"k-{n}", body="{}") for n in range(1, 31)]
    answers = {n: (ACCEPTED, DONE, FAILED, RUNNING, BAD)[n % 5] for n in range(1, 31)}
    file = io.StringIO()

    counts = submit(lines, lambda line: answers[line.number], Clock().patience(), file, at_once=8)

    written = [json.loads(text) for text in file.getvalue().splitlines()]
    assert sorted(one["line"] for one in written) == list(range(1, 31))
    assert set(counts.values()) == {6}
    assert {one["outcome"] for one in written} == set(counts)
    assert {one["http_status"] for one in written} == {202, 200, 422, 409, 400}


OPTIONS: Final[dict[str, Any]] = {
    "--api": "https://a/v1",
    "--operation": "pay",
    "--key": "/id",
    "--region": "eu-west-1",
}


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--api", "a/v1", "--api must be an https address"),
        ("--operation", " ", "--operation must be the operation's path, got a blank"),
        ("--at-once", "0", "--at-once must be 1 to 64, got 0"),
        ("--wait", "-1", "--wait must be 0 to 86400 seconds, got -1"),
        ("--header", "x", "--header must be NAME:VALUE, got 'x'"),
    ],
)
def test_a_wrong_option_is_refused_before_the_file_is_read(
    capsys: pytest.CaptureFixture[str], option: str, value: str, message: str
) -> None:
    words = [f"{name}={text}" for name, text in {**OPTIONS, option: value}.items()]

    assert main(["submit", "missing.jsonl", *words]) == 1
    assert message in capsys.readouterr().err


def expired(_: object) -> Answer:
    raise Unsigned("expired")


def test_a_line_that_nothing_signs_any_more_ends_as_unknown_at_once() -> None:
    clock = Clock()

    result = deliver(LINE, expired, clock.patience())

    assert (result.outcome, result.answer, clock.now) == (Outcome.UNKNOWN, None, 0)


def test_an_accepted_line_that_nothing_signs_any_more_stays_accepted() -> None:
    answers = iter([ACCEPTED])

    result = deliver(LINE, lambda line: next(answers, None) or expired(line), Clock().patience(settle=60))

    assert (result.outcome, result.answer) == (Outcome.NEW, ACCEPTED)


class Expiring:
    """Credentials that sign so many requests, and then cannot be renewed."""

    def __init__(self, signs: int, error: Exception) -> None:
        self._left, self._error = signs, error

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        self._left -= 1
        if self._left < 0:
            raise self._error
        return ReadOnlyCredentials("key", "secret", None)


EXPIRED: Final = [
    RuntimeError("Credentials were refreshed, but the refreshed credentials are still expired."),
    TokenRetrievalError(provider="sso", error_msg="Token has expired\nand refresh failed"),
    ClientError({"Error": {"Code": "ExpiredToken", "Message": "it is expired"}}, "AssumeRole"),
]


@pytest.mark.parametrize("error", EXPIRED, ids=lambda error: type(error).__name__)
def test_credentials_that_expire_leave_lines_unknown_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    file = tmp_path / "payouts.jsonl"
    file.write_text("".join(f'{{"id":"p-{number}"}}\n' for number in range(4)))
    words = ["submit", str(file), "--api", "https://a/v1", "--operation", "payouts", "--key", "/id", "--at-once", "1"]
    credentials = Expiring(3, error)  # one of them before anything is sent
    session = SimpleNamespace(get_credentials=lambda: credentials, region_name="eu-central-1")
    monkeypatch.setattr(SUBMIT, "session_of", lambda _: session)
    sent = SimpleNamespace(status_code=202, headers={}, text=RECORDED)
    monkeypatch.setattr(URLLib3Session, "send", lambda *_: sent)

    assert main(words) == 3

    results = [json.loads(line) for line in (tmp_path / "payouts.jsonl.results").read_text().splitlines()]
    outcomes = {one["line"]: one["outcome"] for one in results}
    assert outcomes == {1: "new", 2: "new", 3: "unknown", 4: "unknown"}
    said = capsys.readouterr().err
    assert said.startswith("not every request could be signed: ")
    assert said.endswith("; renew your credentials, and submit the file again\n")
    assert said.count("\n") == 1

    (tmp_path / "payouts.jsonl.results").unlink()
    assert main(words) == 1
    assert "requests cannot be signed: " in capsys.readouterr().err
    assert not (tmp_path / "payouts.jsonl.results").exists()


@pytest.mark.parametrize("api", ["http://127.0.0.1:9/v1", "https://127.0.0.1:9/v1"])
def test_an_address_that_refuses_connections_does_not_answer(api: str) -> None:
    assert SignedPost(None, f"{api}/pay", {"Authorization": "x"})(LINE) is None


def test_results_may_not_replace_the_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _written(tmp_path / "requests.jsonl", '{"id": "a"}')
    words = [f"{name}={text}" for name, text in OPTIONS.items()]

    assert main(["submit", str(file), *words, "--header", "Authorization:x", "--results", str(file)]) == 1
    assert "--results must be another file" in capsys.readouterr().err
    assert file.read_text() == '{"id": "a"}'
