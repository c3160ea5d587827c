"""Runs lint, types and all tests: several jobs at once, the longest first, and reports what failed.

With ``--fast``, the fast tier: neither local AWS nor what enumerates everything. Each job may fail, and all run to
their end; a job's output is in ``build``, and is shown if it failed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOGS: Final = ROOT / "build"
AT_ONCE: Final = 4
"""Jobs that run at the same time, on two cores: those on local AWS mostly wait."""
TELL_SECONDS: Final = 60.0
LAST_LINES: Final = 40
"""Lines of a job that failed without a failed test: it was killed, or its interpreter crashed."""
SIMULATED: Final = 20_000
"""Sagas that are simulated from a fresh seed: some four minutes of a processor."""
SIMULATOR: Final = "tests/simulator"
EACH_CALL: Final = f"{SIMULATOR}/test_each_call.py"
CONSTRUCTS: Final = "tests/constructs"
LOCAL: Final = "tests/local"
UNIT: Final = "tests/unit"
ON_LOCAL_AWS: Final = {
    "orders-and-payouts": (
        "test_agentic_payout",
        "test_order_processing",
        "test_proven_examples",
    ),
    "carts": (
        "test_callbacks",
        "test_cart_fulfilment",
        "test_corrections_callbacks",
        "test_many_callbacks",
        "test_reconciler",
    ),
    "transfers": ("test_recovery", "test_redrive", "test_saga", "test_saga_conditions"),
    "ledgers": ("test_doctor", "test_http", "test_late_attempts"),
    "emulator": (
        "test_corrections_api",
        "test_corrections_lambda",
        "test_corrections_states",
        "test_faults",
        "test_local_aws",
        "test_local_aws_leaves_nothing",
    ),
}
"""Files on local AWS, by job: those of a job share what they deploy. All others there are a job of their own."""
COMPUTING: Final = {
    "enumerations": (
        "test_callback_crash_matrix",
        "test_callback_dispatch_crash_matrix",
        "test_callback_orders",
        "test_request_crash_matrix",
        "test_external_crash_matrix",
    ),
    "reconcilers": (
        "test_doctor",
        "test_doctor_races",
        "test_log_retention",
        "test_reconciler_concurrency",
        "test_reconciler_crash_matrix",
        "test_reconciler_races",
        "test_reconciler_backlog",
        "test_watching_crash_matrix",
    ),
}
"""Unit tests that compute for long, by job."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """Something that is run, and passes or fails.

    Attributes:
        name: what it is called, and its log.
        command: what runs it.
    """

    name: str
    command: Sequence[str]

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


def tests(name: str, *arguments: str) -> Job:
    """Tests that run one after the other."""
    options = ("-p", "no:cacheprovider", "--durations=25")
    return Job(name=name, command=[sys.executable, "-m", "pytest", *options, *arguments])


def fast_jobs() -> list[Job]:
    """The fast tier."""
    return [
        make("lint"),
        tests("unit", "-m", "not exhaustive", UNIT),
        make("types"),
        tests("constructs", "-m", "not exhaustive", CONSTRUCTS),
    ]


def jobs() -> list[Job]:
    """Everything; what takes longest begins first. Each file of tests belongs to exactly one job."""
    local = {name: _files(LOCAL, *files) for name, files in ON_LOCAL_AWS.items()}
    computing = {name: _files(UNIT, *files) for name, files in COMPUTING.items()}
    named_local = [path for paths in local.values() for path in paths]
    named_unit = [path for paths in computing.values() for path in paths]
    return [
        make("lint"),
        tests("other-local", *_without(*named_local), LOCAL),
        make("simulate", f"SAGAS={SIMULATED}"),
        tests("unit", *_without(*named_unit), UNIT),
        tests("constructs", CONSTRUCTS),
        tests("emulator", *local["emulator"]),
        tests("simulator", *_without(EACH_CALL), SIMULATOR),
        tests("orders-and-payouts", *local["orders-and-payouts"]),
        tests("carts", *local["carts"]),
        tests("rest", *_without(LOCAL, UNIT, CONSTRUCTS, SIMULATOR), "tests"),
        tests("each-call", EACH_CALL),
        tests("reconcilers", *computing["reconcilers"]),
        tests("transfers", *local["transfers"]),
        tests("ledgers", *local["ledgers"]),
        make("types"),
        tests("enumerations", *computing["enumerations"]),
    ]


def _files(folder: str, *names: str) -> list[str]:
    return [found.relative_to(ROOT).as_posix() for name in names for found in (ROOT / folder).rglob(f"{name}.py")]


def _without(*paths: str) -> list[str]:
    return [f"--ignore={path}" for path in paths]


@dataclass(slots=True)
class Run:
    """Jobs that are under way.

    Attributes:
        running: the processes, by job.
    """

    began: float = field(default_factory=time.monotonic)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: bool = False

    def run(self, job: Job) -> int | None:
        """Run a job to its end: its exit status, or None if it was not begun any more."""
        with job.log.open("wb") as log:
            with self._lock:
                if self._stopped:
                    return None
                process = subprocess.Popen(job.command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
                self.running[job.name] = process
            status = process.wait()
        with self._lock:
            del self.running[job.name]
        return status

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
    print(f"== {len(chosen)} jobs, {AT_ONCE} at once; their output: {LOGS.name}/checks-*.log", flush=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waiting: dict[Future[int | None], Job] = {pool.submit(run.run, job): job for job in chosen}
        try:
            while waiting:
                ended, _ = wait(waiting, timeout=TELL_SECONDS, return_when=FIRST_COMPLETED)
                for future in ended:
                    job, status = waiting.pop(future), future.result()
                    if status:
                        failed[job] = status
                        print(f"== {run.time()} {job.name} failed\n{job.log.read_text('utf-8', 'replace')}", flush=True)
                    else:
                        print(f"== {run.time()} {job.name}: {job.last_line()}", flush=True)
                if not ended:
                    under_way = [job.progress() for job in waiting.values() if job.name in run.running]
                    print(f"== {run.time()} running: {', '.join(under_way)}", flush=True)
        except BaseException:
            run.stop()
            raise
    return failed


def main() -> int:
    """Runs all jobs and returns the exit status: 0, or 1 if one failed."""
    parser = argparse.ArgumentParser(description="Runs lint, types and tests.")
    parser.add_argument("--fast", action="store_true", help="the fast tier")
    options = parser.parse_args()
    LOGS.mkdir(exist_ok=True)
    failed = run_all(fast_jobs() if options.fast else jobs())
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
