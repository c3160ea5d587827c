"""Runs lint, types and tests: several jobs at once, the longest first, and reports what failed.

With ``--proofs``, what is marked ``proof`` instead: tests that search, or break everything that was enumerated. With
``--fast N``, the fast tier: neither local AWS nor what takes seconds, and of the rest one file of tests in N, drawn in
each run. Each job may fail, and all run to their end; a job's output is in ``build``, and is shown if it failed.

There are two lanes. Tests on local AWS run many processes and mostly wait; jobs that compute give way to them
(``nice``), so that functions start in time even if the machine is busy with the other lane. A job that computes has a
processor of its own: it asks the CDK's Node for each thing, and on two processors each question wakes the other one,
which costs an eighth of the time. The simulation, with a process for each processor, runs alone, at the end.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOGS: Final = ROOT / "build"
AT_ONCE: Final = 4
"""Jobs on local AWS that run at the same time: each waits for other processes."""
GIVES_WAY: Final = ("nice", "-n", "10")
"""Before the command of a job that computes."""
TELL_SECONDS: Final = 60.0
LAST_LINES: Final = 40
"""Lines of a job that failed without a failed test: it was killed, or its interpreter crashed."""
SIMULATED: Final = 20_000
"""Sagas that are simulated from a fresh seed: under two minutes on two processors."""
DRAWN: Final = ("drawn", "released", "queued", "cart_fulfilment")
"""Names of ``make simulate`` of which a proof simulates more: a saga of theirs takes longest."""
DRAWN_SAGAS: Final = 2_500
TESTS: Final = "not proof"
PROOFS: Final = "proof"
FAST: Final = "not proof and not exhaustive"
SIMULATOR: Final = "tests/simulator"
EACH_CALL: Final = f"{SIMULATOR}/test_each_call.py"
CONSTRUCTS: Final = "tests/constructs"
LOCAL: Final = "tests/local"
UNIT: Final = "tests/unit"
STACKS: Final = (f"{CONSTRUCTS}/stacks", f"{CONSTRUCTS}/observability")
"""Tests of whole stacks: more than half of the time of all tests of constructs."""
SHIPPED: Final = ("tests/docs", "tests/packaging")
"""Tests of pages and packages."""
ON_LOCAL_AWS: Final = {
    "emulator": (
        "test_corrections_api",
        "test_corrections_callbacks",
        "test_corrections_events",
        "test_corrections_lambda",
        "test_corrections_states",
        "test_corrections_versions",
        "test_faults",
        "test_local_aws",
        "test_local_aws_leaves_nothing",
    ),
    "carts": ("test_callbacks", "test_cart_fulfilment", "test_reconciler"),
    "ledgers": (
        "test_agentic_payout",
        "test_doctor",
        "test_http",
        "test_late_attempts",
        "test_order_processing",
        "test_saga",
        "test_saga_conditions",
    ),
    "sagas": (
        "test_bank",
        "test_begun_by_events",
        "test_bounds",
        "test_in_flight",
        "test_operators",
        "test_parked",
        "test_published_versions",
        "test_replaced_saga",
        "test_step_host",
    ),
}
"""Files on local AWS, by job: those of a job share what they deploy. All others there are a job of their own."""
FAULTS: Final = ("test_proven_examples", "test_recovery", "test_redrive", "test_soak")
"""Proofs on local AWS whose faults take long."""
COMPUTING: Final = (
    "test_callback_crash_matrix",
    "test_callback_dispatch_crash_matrix",
    "test_callback_orders",
    "test_doctor_races",
    "test_external_crash_matrix",
    "test_migration_demo",
    "test_migration_histories",
    "test_reconciler_backlog",
    "test_reconciler_concurrency",
    "test_request_crash_matrix",
    "test_running_executions",
    "test_watching_crash_matrix",
)
"""Unit tests that compute for long; none is a scenario of ``tests/unit/every_clause.py``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """Something that is run, and passes or fails.

    Attributes:
        name: what it is called, and its log.
        command: what runs it.
        local: True if it is on local AWS.
        alone: True if it begins when all others have ended, and has all processors.
    """

    name: str
    command: Sequence[str]
    local: bool = False
    alone: bool = False

    @property
    def log(self) -> Path:
        """Its output file."""
        return LOGS / f"checks-{self.name}.log"

    def last_line(self) -> str:
        """The end of its output: of tests, how many passed."""
        lines = self.log.read_text("utf-8", "replace").rstrip().splitlines()
        return lines[-1].strip("= ") if lines else ""

    def progress(self) -> str:
        """Its name, and its progress, as far as its output has it."""
        said = re.findall(r"\[ *(\d+%)\]", self.log.read_text("utf-8", "replace")) if self.log.exists() else []
        return f"{self.name} {said[-1]}" if said else self.name


def make(target: str, *variables: str) -> Job:
    """Return a job for a target of the Makefile that is not a test."""
    return Job(name=target, command=["make", "--no-print-directory", target, *variables])


def simulation(name: str, *variables: str) -> Job:
    """Return a job that simulates sagas."""
    return replace(make("simulate", *variables), name=name, alone=True)


def pytests(name: str, *arguments: str, local: bool = False) -> Job:
    """Tests that run one after the other."""
    options = ("-p", "no:cacheprovider", "--durations=25")
    return Job(name=name, command=[sys.executable, "-m", "pytest", *options, *arguments], local=local)


def fast_jobs(part: str) -> list[Job]:
    """The fast tier.

    Args:
        part: ``n:draw``: of the test files of runtime and constructs, one in ``n`` is run, and those that are changed.
    """
    unit, constructs = (_drawn(folder, part) for folder in (UNIT, CONSTRUCTS))
    return [
        pytests("constructs", "-m", FAST, *constructs),
        make("lint"),
        make("types"),
        pytests("unit", "-m", FAST, *unit),
    ]


def _drawn(folder: str, part: str) -> list[str]:
    one_in, _, draw = part.partition(":")
    files = sorted(found.relative_to(ROOT).as_posix() for found in (ROOT / folder).rglob("test_*.py"))
    drawn = Random(f"{draw}:{folder}").sample(files, -(-len(files) // int(one_in)))
    return sorted({*drawn, *_changed().intersection(files)})


def _changed() -> set[str]:
    """Files that are not as the last commit has them; none where there is no git."""
    try:
        listed = subprocess.run(
            ["git", "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all"],
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return set()
    return {entry[3:] for entry in listed.stdout.split("\0")}


def jobs() -> list[Job]:
    """Lint, types and tests; a file of tests belongs to one job.

    In each lane, what takes longest begins first.
    """
    local = {name: _files(LOCAL, *files) for name, files in ON_LOCAL_AWS.items()}
    named = [path for paths in local.values() for path in paths]
    return [
        make("lint"),
        pytests("other-local", "-m", TESTS, *_without(*named), LOCAL, local=True),
        *(pytests(name, "-m", TESTS, *files, local=True) for name, files in local.items()),
        pytests("constructs-stacks", "-m", TESTS, *STACKS),
        pytests("unit", "-m", TESTS, UNIT),
        pytests("constructs", "-m", TESTS, *_without(*STACKS), CONSTRUCTS),
        pytests("shipped", "-m", TESTS, *SHIPPED),
        pytests("rest", "-m", TESTS, *_without(LOCAL, UNIT, CONSTRUCTS, *SHIPPED), "tests"),
        make("types"),
        simulation("simulate", f"SAGAS={SIMULATED}"),
    ]


def proofs() -> list[Job]:
    """Jobs of tests that search, or break everything that was enumerated; a file of tests belongs to one job."""
    computing, faults = _files(UNIT, *COMPUTING), _files(LOCAL, *FAULTS)
    return [
        pytests("proofs-local", "-m", PROOFS, *_without(*faults), LOCAL, local=True),
        pytests("proofs-faults", "-m", PROOFS, *faults, local=True),
        pytests("proofs-simulator", "-m", PROOFS, *_without(EACH_CALL), SIMULATOR),
        pytests("proofs-rest", "-m", PROOFS, *_without(LOCAL, UNIT, SIMULATOR), "tests"),
        pytests(
            "proofs-clauses", "-p", "tests.unit.every_clause", "-m", "scenario or proof", *_without(*computing), UNIT
        ),
        pytests("proofs-each-call", "-m", PROOFS, EACH_CALL),
        pytests("proofs-computing", "-m", PROOFS, *computing),
        simulation("proofs-drawn", f"SAGAS={DRAWN_SAGAS}", f"EXAMPLES={' '.join(DRAWN)}"),
    ]


def _files(folder: str, *names: str) -> list[str]:
    return [found.relative_to(ROOT).as_posix() for name in names for found in (ROOT / folder).rglob(f"{name}.py")]


def _without(*paths: str) -> list[str]:
    return [f"--ignore={path}" for path in paths]


def _processors() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []


@dataclass(slots=True)
class Run:
    """Jobs that are under way.

    Attributes:
        free: processors on which no job computes; empty where a process cannot be kept on one.
        running: the processes, by job.
        processor_seconds: of the jobs that ended, with all their processes.
    """

    began: float = field(default_factory=time.monotonic)
    free: list[int] = field(default_factory=_processors)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    processor_seconds: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: bool = False

    def run(self, job: Job) -> int | None:
        """Run a job to its end: its exit status, or None if it was not begun any more."""
        with job.log.open("wb") as log:
            with self._lock:
                if self._stopped:
                    return None
                command = job.command if job.local else (*GIVES_WAY, *job.command)
                process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
                self.running[job.name] = process
                kept_on = [] if job.local or job.alone else self.free[:1]
                if kept_on:
                    self.free.remove(*kept_on)
                    os.sched_setaffinity(process.pid, kept_on)
            _, ended, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(ended)
        with self._lock:
            self.free += kept_on
            del self.running[job.name]
            self.processor_seconds[job.name] = used.ru_utime + used.ru_stime
        return process.returncode

    def stop(self) -> None:
        """Begin nothing any more, and end what runs."""
        with self._lock:
            self._stopped = True
            for process in self.running.values():
                process.terminate()

    def time(self) -> str:
        """Its duration so far: minutes and seconds."""
        minutes, seconds = divmod(round(time.monotonic() - self.began), 60)
        return f"{minutes:2}:{seconds:02}"


def run_all(chosen: Sequence[Job]) -> dict[Job, int]:
    """Run jobs, print their progress, and return the exit statuses of those that failed."""
    run, failed = Run(), dict[Job, int]()
    print(f"== {len(chosen)} jobs; {LOGS.name}/checks-*.log: their output", flush=True)
    for alone in (False, True):
        failed |= _run_together(run, [job for job in chosen if job.alone is alone])
    print(f"== {run.time()} {sum(run.processor_seconds.values()):.0f} s of a processor in all", flush=True)
    return failed


def _run_together(run: Run, chosen: Sequence[Job]) -> dict[Job, int]:
    failed = dict[Job, int]()
    with ThreadPoolExecutor(len(run.free) or None) as computing, ThreadPoolExecutor(AT_ONCE) as local:
        waiting: dict[Future[int | None], Job] = {
            (local if job.local else computing).submit(run.run, job): job for job in chosen
        }
        try:
            while waiting:
                ended, _ = wait(waiting, timeout=TELL_SECONDS, return_when=FIRST_COMPLETED)
                for future in ended:
                    job, status = waiting.pop(future), future.result()
                    if status:
                        failed[job] = status
                        print(f"== {run.time()} {job.name} failed\n{job.log.read_text('utf-8', 'replace')}", flush=True)
                    else:
                        used = f"; {run.processor_seconds[job.name]:.0f} s of a processor"
                        print(f"== {run.time()} {job.name}: {job.last_line()}{used}", flush=True)
                if not ended:
                    under_way = [job.progress() for job in waiting.values() if job.name in run.running]
                    print(f"== {run.time()} running: {', '.join(under_way)}", flush=True)
        except BaseException:
            run.stop()
            raise
    return failed


def _part(text: str) -> str:
    """Return the part of the fast tests to run, ``n:draw``; empty: all of them."""
    if text == "all":
        return ""
    if not re.fullmatch(r"[1-9]\d*(:\d+)?", text):
        raise argparse.ArgumentTypeError(f"must be all, N or N:DRAW, got {text!r}")
    return text if ":" in text else f"{text}:{secrets.randbelow(1_000_000)}"


def main() -> int:
    """Runs all jobs and returns the exit status: 0, or 1 if one failed."""
    parser = argparse.ArgumentParser(description="Runs lint, types and tests.")
    tier = parser.add_mutually_exclusive_group()
    tier.add_argument("--fast", metavar="N[:DRAW]", type=_part, help="the fast tier; one file in N, drawn")
    tier.add_argument("--proofs", action="store_true", help="what make prove runs")
    options = parser.parse_args()
    LOGS.mkdir(exist_ok=True)
    if options.fast:
        print(f"== some files of tests: FILES={options.fast} repeats it, and make test runs all", flush=True)
    fast = options.fast is not None
    chosen = fast_jobs(options.fast or "1:0") if fast else proofs() if options.proofs else jobs()
    failed = run_all(chosen)
    for job, status in failed.items():
        lines = job.log.read_text("utf-8", "replace").splitlines()
        named = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
        print(f"== {job.name}: exit status {status}; {'the end of its output' if not named else 'its tests'}:")
        print("\n".join(named or lines[-LAST_LINES:]))
    if failed:
        print(f"error: failed: {', '.join(job.name for job in failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
