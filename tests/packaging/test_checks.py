"""`make test` and `make prove` run every test once, and report the failures."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.for_each import for_each
from tests.packaging.conftest import ROOT
from tools import run_checks
from tools.run_checks import CONSTRUCTS, LOCAL, PROOFS, TESTS, UNIT, Job, fast_jobs, jobs, proofs, run_all

FILES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
ALL, PROVED = jobs(), proofs()


def _runs(job: Job, file: str) -> bool:
    options = [word for word in job.command if word.startswith("--ignore=")]
    paths = [word for word in job.command if word.startswith("tests")]
    ignored = [word.removeprefix("--ignore=") for word in options]
    return any(_holds(path, file) for path in paths) and not any(_holds(path, file) for path in ignored)


def _holds(path: str, file: str) -> bool:
    return file == path or file.startswith(f"{path}/")


@for_each(FILES)
def test_every_test_file_runs_in_one_job(file: str) -> None:
    for chosen in (ALL, PROVED):
        assert len([job.name for job in chosen if _runs(job, file)]) == 1


def test_each_test_is_run_by_make_test_or_make_prove() -> None:
    def expressions(chosen: Sequence[Job]) -> set[str]:
        return {job.command[job.command.index("-m", 2) + 1] for job in chosen if "pytest" in job.command}

    assert expressions(ALL) == {TESTS} == {f"not {PROOFS}"}
    assert expressions(PROVED) == {PROOFS, f"scenario or {PROOFS}"}


@pytest.mark.parametrize("chosen", [ALL, PROVED, fast_jobs("1:0")], ids=["tests", "proofs", "fast"])
def test_jobs_name_existing_paths(chosen: Sequence[Job]) -> None:
    words = [word.removeprefix("--ignore=") for job in chosen for word in job.command]
    paths = [word for word in words if word.partition("/")[0] == "tests"]

    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert len({job.name for job in chosen}) == len(chosen)


def test_lint_and_types_are_part_of_both_tiers_of_tests() -> None:
    for chosen in (ALL, fast_jobs("1:0")):
        assert {"lint", "types"} < {job.name for job in chosen}


def test_the_fast_tier_runs_a_part_of_the_files_and_each_changed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_checks, "_changed", lambda: {FILES[0], "docs/index.md"})

    def files(part: str) -> set[str]:
        return {word for job in fast_jobs(part) for word in job.command if word.endswith(".py")}

    everything = {file for file in FILES if _holds(UNIT, file) or _holds(CONSTRUCTS, file)}
    assert files("1:0") == everything
    for draw in ("1", "2"):
        assert len(everything) / 10 <= len(files(f"10:{draw}")) <= len(everything) / 10 + 3
        assert FILES[0] in files(f"10:{draw}")
        assert files(f"10:{draw}") == files(f"10:{draw}")
    assert files("10:1") != files("10:2")


def _python(name: str, code: str) -> Job:
    return Job(name=name, command=[sys.executable, "-c", code])


def test_a_failed_job_is_shown_and_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_checks, "LOGS", tmp_path)
    fails = _python("fails", "print('here is why'); raise SystemExit(3)")
    passes = _python("passes", "print('not shown'); print('=== 7 passed ===')")

    failed = run_all([fails, passes])

    assert failed == {fails: 3}
    shown = capsys.readouterr().out
    assert "fails failed\nhere is why\n" in shown
    assert "passes: 7 passed; " in shown
    assert "not shown" not in shown


def test_jobs_that_compute_give_way_to_those_on_local_aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_checks, "LOGS", tmp_path)
    says = [sys.executable, "-c", "import os; print('niceness', os.nice(0))"]
    computing, local = Job(name="computing", command=says), Job(name="local", command=says, local=True)
    own = os.nice(0)

    assert run_all([computing, local]) == {}

    assert (local.last_line(), computing.last_line()) == (f"niceness {own}", f"niceness {min(own + 10, 19)}")


def test_a_job_that_computes_has_a_processor_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On systems that cannot keep a process on a processor, it runs on any."""
    monkeypatch.setattr(run_checks, "LOGS", tmp_path)
    everything, anywhere = run_checks._processors(), "anywhere"
    kept = f"print(*sorted(os.sched_getaffinity(0))) if hasattr(os, 'sched_getaffinity') else print({anywhere!r})"
    says = [sys.executable, "-c", f"import os; {kept}"]
    computing = [Job(name=f"computing-{number}", command=says) for number in range(2 * len(everything) + 1)]
    others = [Job(name="local", command=says, local=True), Job(name="alone", command=says, alone=True)]

    assert run_all([*computing, *others]) == {}

    assert {job.last_line() for job in computing} == ({str(processor) for processor in everything} or {anywhere})
    assert [job.last_line() for job in others] == [" ".join(map(str, everything)) or anywhere] * 2


def test_a_job_that_is_alone_begins_when_all_others_have_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_checks, "LOGS", tmp_path)
    ended = tmp_path / "ended"
    alone = replace(_python("alone", f"print(open({str(ended)!r}).read())"), alone=True)
    slow = _python("slow", f"import time; time.sleep(0.3); open({str(ended)!r}, 'w').write('slow has ended')")

    assert run_all([alone, slow, replace(slow, name="local", local=True)]) == {}

    assert alone.last_line() == "slow has ended"


def test_simulations_are_alone() -> None:
    assert [job.name for job in (*ALL, *PROVED) if job.alone] == ["simulate", "proofs-drawn"]


def test_what_is_on_local_aws_is_in_its_lane() -> None:
    for chosen in (ALL, proofs()):
        on_local = [job.name for job in chosen if any(_runs(job, file) for file in FILES if file.startswith(LOCAL))]

        assert [job.name for job in chosen if job.local] == on_local


def test_a_running_job_reports_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_checks, "LOGS", tmp_path)
    job = _python("some", "")
    before = job.progress()
    job.log.write_text("a.py ....  [  9%]\nb.py .... [ 45%]\nc.py ..", "utf-8")

    assert (before, job.progress()) == ("some", "some 45%")


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(3)", 1), ("import os; os.abort()", 1), ("", 0)])
def test_a_failed_or_killed_job_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, status: int
) -> None:
    monkeypatch.setattr(run_checks, "LOGS", tmp_path)
    monkeypatch.setattr(
        run_checks, "jobs", lambda: [_python("one", "print('FAILED a.py')\n" + code), _python("two", "")]
    )
    monkeypatch.setattr(sys, "argv", ["run_checks"])

    assert run_checks.main() == status


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("print('FAILED a.py'); raise SystemExit(1)", "== one: exit status 1; its tests:\nFAILED a.py\n"),
        (
            "print('the last line', flush=True); import os; os.abort()",
            "== one: exit status -6; the end of its output:\nthe last line\n",
        ),
    ],
)
def test_the_end_of_a_run_states_why_a_job_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: str, shown: str
) -> None:
    monkeypatch.setattr(run_checks, "LOGS", tmp_path)
    monkeypatch.setattr(run_checks, "jobs", lambda: [_python("one", code)])
    monkeypatch.setattr(sys, "argv", ["run_checks"])

    run_checks.main()

    assert shown in capsys.readouterr().out
