"""Imports of a new environment of each kind of function, compared with ``import boto3``.

Lambda imports the bundle from a read-only folder, without bytecode: each new environment compiles it. So each kind is
imported twice: with bytecode, and as Lambda does. Fresh interpreters, all kinds in turn; processor time.

    python -m benchmarks.cold_start
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

from benchmarks.gatekeeper import ROOT, environment_of_functions
from benchmarks.report import write_report
from constructs_lib.functions.bundle import functions_zip

RUNS: Final = 9
BESIDE: Final = "import boto3"
KINDS: Final = {
    "gatekeeper": "import handlers.gatekeeper",
    "direct operation": "from saga_runtime import direct_operation",
    "atomic step": "from saga_runtime import atomic_step",
    "read-only step": "from saga_runtime import read_only_step",
    "external step": "from saga_runtime import external_step",
    "external step in another language": "import handlers.step_host",
    "compensation": "from saga_runtime import compensation",
    "notifier": "import handlers.notifier",
    "dispatcher": "from saga_runtime import callback_step",
    "webhook": "from saga_runtime import webhook",
    "event receiver": "from saga_runtime import event_receiver",
    "direct receiver": "import handlers.callback_direct",
    "approval page": "import handlers.approval_page",
    "event intake": "from saga_runtime import event_operation",
    "sweeper of callbacks": "import handlers.callback_sweeper",
    "reconciler": "import handlers.reconciler",
    "outbox": "import handlers.outbox",
    "ledger sweeper": "import handlers.ledger_sweeper",
    "migration worker": "import handlers.migration",
    "watch": "import handlers.watch",
}
"""What the code of each kind of function imports of the bundle."""
_COUNT: Final = """\
import json, os, sys
import botocore.session, aws_lambda_powertools
found = {}
for kind, code in json.loads(sys.argv[1]).items():
    out, into = os.pipe()
    if not os.fork():
        exec(code, {})
        os.write(into, json.dumps(sorted(sys.modules)).encode() + b"\\n")
        os._exit(0)
    with os.fdopen(out) as lines:
        os.close(into)
        found[kind] = json.loads(lines.readline())
    os.wait()
print(json.dumps(found))
"""
_TIME: Final = """\
import sys, time
begun = time.process_time()
exec(sys.argv[1], {})
print(time.process_time() - begun)
"""


def imported() -> dict[str, list[str]]:
    """Names of the modules that each kind of function imports, those of botocore and Powertools included."""
    return dict(json.loads(_run(ROOT / "lambda_src", _COUNT, json.dumps(KINDS))))


def own(modules: list[str]) -> int:
    """Count the library's own modules."""
    return sum(name.partition(".")[0] in {"handlers", "saga_runtime"} for name in modules)


def main() -> None:
    """Measure, and write the report."""
    modules = imported()
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(functions_zip()) as archive:
        archive.extractall(folder)
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        compiled = _times(Path(folder), cached=False)
        subprocess.run([sys.executable, "-m", "compileall", "-q", folder], check=True)
        ready = _times(Path(folder), cached=True)
    beside = statistics.median(ready[BESIDE])
    report = {
        "import_boto3_ms": round(beside * 1_000, 1),
        "bundle_bytes": functions_zip().stat().st_size,
        "kinds": {
            kind: {
                "own_modules": own(names),
                "kilobytes_of_bundle": round(sum(sizes.get(file, 0) for n in names for file in _files(n)) / 1_000),
                "with_bytecode": round(statistics.median(ready[code]) / beside, 2),
                "without": round(statistics.median(compiled[code]) / beside, 2),
            }
            for (kind, code), names in zip(KINDS.items(), modules.values(), strict=True)
        },
    }
    write_report("cold_start", report)
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


def _files(module: str) -> tuple[str, str]:
    path = module.replace(".", "/")
    return f"{path}.py", f"{path}/__init__.py"


def _times(folder: Path, *, cached: bool) -> dict[str, list[float]]:
    """Seconds of processor time of each import, of the code in a folder."""
    codes = [BESIDE, *KINDS.values()]
    times: dict[str, list[float]] = {code: [] for code in codes}
    for run in range(RUNS + cached):
        for code in codes:
            seconds = float(_run(folder, _TIME, code))
            if run >= cached:  # the first one reads bytecode from the disk
                times[code].append(seconds)
    return times


def _run(folder: Path, program: str, argument: str) -> str:
    given: dict[str, Any] = {**os.environ, **environment_of_functions(), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", program, argument]
    done = subprocess.run(
        command, env={**given, "PYTHONPATH": str(folder)}, cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    main()
