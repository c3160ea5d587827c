"""``cdk-sagas once``: of all starts of a job in a period, one runs it, whatever dies or is lost."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from constructs_lib.cli.main import main
from saga_runtime.shared.decisions import Decision
from tests.unit.support.manifests import manifest, saga_entry
from tests.unit.support.sleeps import replace_sleep
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import World

ONCE: Any = import_module("constructs_lib.cli.once")
AWS = import_module("constructs_lib.cli.shared.reads")
DAY_MS = 86_400_000
AGAIN = ("--again", "--reason", "its host is gone")


@pytest.fixture(autouse=True)
def table(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> World:
    """A table of request records; its time is the world's."""
    monkeypatch.setattr(ONCE, "session_of", lambda _: SimpleNamespace(client=boto3_session.client))
    monkeypatch.setattr(AWS.Aws, "now_ms", lambda *_: world.clock.ms)
    world.wire.forget()
    return world


def job(tmp_path: Path, *, fails: int = 0) -> list[str]:
    """A command that adds a line to a file."""
    code = f"import sys; open({str(tmp_path / 'runs')!r}, 'a').write('run\\n'); sys.exit({fails})"
    return [sys.executable, "-c", code]


def runs(tmp_path: Path) -> int:
    """Number of times that the command ran."""
    file = tmp_path / "runs"
    return len(file.read_text().splitlines()) if file.exists() else 0


def once(*options: str, name: str = "close-books", period: str = "1d", command: list[str]) -> int:
    return main(["once", name, period, "--table", "requests", *options, "--", *command])


def test_it_runs_once_in_a_period_and_again_in_the_next(
    table: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [once(command=job(tmp_path)) for _ in range(3)] == [0, 0, 0]
    assert runs(tmp_path) == 1
    assert "was done at" in capsys.readouterr().out

    table.clock.ms += DAY_MS
    once(command=job(tmp_path))
    once(name="another-job", command=job(tmp_path))
    once(period="7d", command=job(tmp_path))
    assert runs(tmp_path) == 4


def test_a_period_is_the_same_however_it_is_written(tmp_path: Path) -> None:
    assert [once(period=period, command=job(tmp_path)) for period in ("1d", "24h", "1440m")] == [0, 0, 0]
    assert runs(tmp_path) == 1


def test_of_ten_starts_at_once_one_runs(tmp_path: Path) -> None:
    with ThreadPoolExecutor(10) as pool:
        statuses = list(pool.map(lambda _: once(command=job(tmp_path)), range(10)))

    assert set(statuses) <= {0, 75}
    assert runs(tmp_path) == 1


def test_who_runs_it_again_and_why_is_kept_with_the_run(
    table: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    once(command=job(tmp_path, fails=7))
    once(*AGAIN, command=job(tmp_path, fails=8))
    once(*AGAIN, command=job(tmp_path))
    capsys.readouterr()

    assert once(command=job(tmp_path)) == 0

    (item,) = table.items("requests")
    kept = Decision.all_of(item)
    assert {(one.what.partition(" since")[0], one.why) for one in kept} == {("run again, FAILED", AGAIN[-1])}
    assert (len(kept), kept[0].who) == (2, "arn:aws:sts::123456789012:user/moto")
    assert capsys.readouterr().out.count(f"; why: {AGAIN[-1]}\n") == 2


@pytest.mark.parametrize(
    "options",
    [("--again",), AGAIN[1:], ("--again", "--reason", " "), ("--done", 32 * "a"), ("--done", "x", *AGAIN[1:])],
)
def test_it_is_run_again_with_a_reason_only(tmp_path: Path, options: tuple[str, ...]) -> None:
    once(command=job(tmp_path, fails=7))

    assert once(*options, command=job(tmp_path)) == 1
    assert runs(tmp_path) == 1


def test_a_run_that_failed_is_run_again_by_request_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert once(command=job(tmp_path, fails=7)) == 7
    assert once(command=job(tmp_path)) == 7
    assert "failed with 7; --again runs it again" in capsys.readouterr().out
    assert runs(tmp_path) == 1

    assert once(*AGAIN, command=job(tmp_path)) == 0
    assert once(*AGAIN, command=job(tmp_path)) == 0
    assert runs(tmp_path) == 2


def test_a_command_that_cannot_be_run_failed(tmp_path: Path) -> None:
    assert once(command=[str(tmp_path / "missing")]) == 127


@pytest.mark.parametrize(
    ("call", "action", "moment", "ran", "then"),
    [
        ("PutItem", Action.KILL, Moment.BEFORE, 0, 0),
        ("PutItem", Action.KILL, Moment.AFTER, 0, 75),
        ("PutItem", Action.DROP, Moment.BEFORE, 1, 0),
        ("PutItem", Action.DROP, Moment.AFTER, 1, 0),
        ("UpdateItem", Action.KILL, Moment.BEFORE, 1, 75),
        ("UpdateItem", Action.KILL, Moment.AFTER, 1, 0),
        ("UpdateItem", Action.DROP, Moment.BEFORE, 1, 0),
        ("UpdateItem", Action.DROP, Moment.AFTER, 1, 0),
    ],
)
def test_a_process_that_dies_or_loses_a_response_runs_it_at_most_once(
    table: World, tmp_path: Path, call: str, action: Action, moment: Moment, ran: int, then: int
) -> None:
    times = 1 if action is Action.KILL else 3
    table.wire.plan(Fault(operation=call, action=action, moment=moment, times=times))
    with contextlib.suppress(Killed):
        once(command=job(tmp_path))
    assert table.wire.fired
    assert runs(tmp_path) == ran

    assert once(command=job(tmp_path)) == then
    assert runs(tmp_path) == max(ran, 1 if then == 0 else 0)
    assert once(*AGAIN, command=job(tmp_path)) == 0


UNNOTED = Fault(operation="UpdateItem", action=Action.DROP, times=10_000)


@pytest.fixture
def unnoted(table: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The error of a run that succeeded, and whose end was not noted."""
    replace_sleep(monkeypatch, lambda _: None)
    table.wire.plan(UNNOTED)
    assert once(command=job(tmp_path)) == 1
    table.wire.forget()
    return capsys.readouterr().err


def test_an_end_that_is_not_noted_is_one_line_that_records_it(
    unnoted: str, table: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert unnoted.startswith("cdk-sagas: close-books ended with 0, which was not noted: the database did not answer;")
    assert unnoted.count("\n") == 1
    (item,) = table.items("requests")
    words = shlex.split(unnoted.partition("which runs nothing: ")[2])
    assert words[-8:] == ["--done", item["owner"]["S"], "--reason", "WHY", "--", *job(tmp_path)]
    assert once(command=job(tmp_path)) == 75
    assert f"--done {item['owner']['S']}" in capsys.readouterr().out

    words[words.index("WHY")] = "its file is there"
    assert [main(words[1:]) for _ in range(2)] == [0, 0]

    (item,) = table.items("requests")
    (kept,) = Decision.all_of(item)
    assert (kept.what, kept.why) == ("recorded as done", "its file is there")
    assert [once(command=job(tmp_path)), once(*AGAIN, command=job(tmp_path))] == [0, 0]
    assert runs(tmp_path) == 1


def test_a_failure_that_is_not_noted_names_its_status(
    table: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_sleep(monkeypatch, lambda _: None)
    table.wire.plan(UNNOTED)

    assert once(command=job(tmp_path, fails=7)) == 1

    said = capsys.readouterr().err
    assert "close-books ended with 7, which was not noted" in said
    assert "--again runs it again" in said
    assert "--done" not in said


@pytest.mark.usefixtures("unnoted")
def test_only_a_run_of_the_period_without_a_result_is_recorded(
    table: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (item,) = table.items("requests")
    run = item["owner"]["S"]
    done = ("--done", run, *AGAIN[1:])
    assert once("--done", 32 * "a", *AGAIN[1:], command=job(tmp_path)) == 1
    assert f"got {run}, RUNNING" in capsys.readouterr().err

    table.clock.ms += DAY_MS
    assert once(*done, command=job(tmp_path)) == 1
    assert "got none" in capsys.readouterr().err
    table.clock.ms -= DAY_MS

    once(*AGAIN, command=job(tmp_path, fails=7))
    assert once(*done, command=job(tmp_path)) == 1
    failed = table.items("requests")[0]["owner"]["S"]
    assert once("--done", failed, *AGAIN[1:], command=job(tmp_path)) == 1
    assert f"got {failed}, FAILED" in capsys.readouterr().err
    assert runs(tmp_path) == 2


def test_the_result_of_a_run_that_was_taken_over_is_not_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    execute = ONCE._execute

    def slow(_: list[str]) -> int:
        monkeypatch.setattr(ONCE, "_execute", execute)
        assert once(*AGAIN, command=job(tmp_path)) == 0
        return 1

    monkeypatch.setattr(ONCE, "_execute", slow)
    assert once(command=["slow"]) == 1
    assert once(command=job(tmp_path)) == 0
    assert runs(tmp_path) == 1


@pytest.mark.parametrize(
    ("name", "period", "message"),
    [
        ("", "1d", "NAME must be 1 to 100"),
        (" ", "1d", "NAME must be 1 to 100"),
        ("a#b", "1d", "NAME must be 1 to 100"),
        ("job", "0d", "PERIOD must be a number of minutes, hours or days"),
        ("job", "1w", "got '1w'"),
        ("job", "", "PERIOD must be"),
    ],
)
def test_a_wrong_name_or_period_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, period: str, message: str
) -> None:
    assert once(name=name, period=period, command=job(tmp_path)) == 1
    assert message in capsys.readouterr().err
    assert runs(tmp_path) == 0


def test_the_command_behind_the_dashes_is_run_as_it_was_typed(tmp_path: Path) -> None:
    code = f"import sys; open({str(tmp_path / 'words')!r}, 'w').write(' '.join(sys.argv[1:]))"
    words = ["once", "--table", "requests", "job", "1d", "--", sys.executable, "-c", code, "a", "--", "-x"]

    assert main(words) == 0
    assert (tmp_path / "words").read_text() == "a -- -x"


def test_a_start_without_a_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["once", "job", "1d", "--table", "requests"])
    assert "COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sagas", "says"),
    [
        ([saga_entry()], ""),
        ([saga_entry(), saga_entry(path="Shop/Refunds", machine="Refunds")], ""),
        ([], "must have one request table, got none; choose one with --table"),
        ([saga_entry(), saga_entry(requests="others")], "must have one request table, got requests, others; choose"),
    ],
)
def test_the_stack_names_its_request_table(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], sagas: list[dict[str, Any]], says: str
) -> None:
    monkeypatch.setattr("constructs_lib.cli.shared.manifest._output", lambda *_: json.dumps(manifest(sagas=sagas)))

    status = main(["once", "job", "1d", "--stack", "Shop", "--", sys.executable, "-c", "print('it ran')"])

    said = capfd.readouterr()
    assert (status, "it ran" in said.out) == ((1, False) if says else (0, True))
    assert says in said.err
