"""Compares the gatekeeper with a minimal handler with Powertools' ``@idempotent``: imports, warm calls, AWS calls.

Everything in one run, both sides alternating, so that a noisy machine disturbs both. AWS is a stub inside botocore:
what is measured is the functions' own time, serialization and signatures included.

    python -m benchmarks.gatekeeper
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.aws_stub import AwsStub
from benchmarks.report import write_report

ROOT: Final = Path(__file__).parent.parent
IMPORT_RUNS: Final = 15
ROUNDS: Final = 60
CALLS_PER_ROUND: Final = 40
OURS: Final = "gatekeeper"
THEIRS: Final = "@idempotent"
_FIRST_REQUEST: Final = """\
import time
begun = time.process_time()
import {module} as function
until_then = time.process_time() - begun
import botocore.endpoint
from benchmarks.aws_stub import AwsStub
from benchmarks.gatekeeper import FakeContext, event_of
stub, event = AwsStub(), event_of("first")
botocore.endpoint.Endpoint._send = lambda endpoint, request: stub.answer(request)
begun = time.process_time()
assert function.handler(event, FakeContext())["statusCode"] == 202
print(until_then + time.process_time() - begun)
"""
Warm = tuple[dict[str, dict[str, list[float]]], dict[str, dict[str, Counter[str]]], dict[str, dict[str, int]]]


class FakeContext:
    """The attributes of a Lambda context that Powertools reads."""

    aws_request_id = "request"
    function_name = "bench"
    invoked_function_arn = "arn:aws:lambda:us-east-1:000000000000:function:bench"
    memory_limit_in_mb = 512

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        """Plenty."""
        return 10_000


def main() -> None:
    """Measure, and write the report."""
    modules = {OURS: "handlers.gatekeeper", THEIRS: "benchmarks.powertools_handler"}
    cold = {"first_request_ratio": ratio(cold_times(modules))}
    write("gatekeeper", imports=import_times(modules), warm=warm_times(), more=cold)


def write(name: str, *, imports: dict[str, list[float]], warm: Warm, more: dict[str, Any] | None = None) -> None:
    """Write the report of a comparison, and print it. Each side comes first, then the other."""
    times, calls, interpreted = warm
    report: dict[str, Any] = {
        **(more or {}),
        "import_ms": {name: round(min(times) * 1e3, 1) for name, times in imports.items()},
        "import_ratio": ratio(imports),
        "warm_call_us": {
            case: {name: round(statistics.median(times) * 1e6) for name, times in sides.items()}
            for case, sides in times.items()
        },
        "warm_ratio": {case: ratio(sides) for case, sides in times.items()},
        "python_calls_per_warm_call": interpreted,
        "python_calls_ratio": {
            case: round(ours / theirs, 2) for case, (ours, theirs) in ((c, s.values()) for c, s in interpreted.items())
        },
        "aws_calls": calls,
    }
    write_report(name, report)
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


def ratio(sides: dict[str, list[float]]) -> dict[str, float]:
    """Ours divided by theirs: of the fastest runs, and of the medians."""
    ours, theirs = sides.values()
    return {
        "fastest": round(min(ours) / min(theirs), 2),
        "median": round(statistics.median(ours) / statistics.median(theirs), 2),
    }


def import_times(modules: dict[str, str]) -> dict[str, list[float]]:
    """Seconds of processor time to import each handler's module in a fresh interpreter."""
    code = "import time; t = time.process_time(); import {module}; print(time.process_time() - t)"
    return fresh_times(modules, code)


def cold_times(modules: dict[str, str]) -> dict[str, list[float]]:
    """Seconds of processor time until a fresh interpreter has answered its first request, clients included."""
    return fresh_times(modules, _FIRST_REQUEST)


def fresh_times(modules: dict[str, str], code: str) -> dict[str, list[float]]:
    """Seconds that a program prints, of each module in turn."""
    times: dict[str, list[float]] = {name: [] for name in modules}
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'lambda_src'}", **environment_of_functions()}
    for _ in range(IMPORT_RUNS):
        for name, module in modules.items():
            command = [sys.executable, "-c", code.format(module=module)]
            done = subprocess.run(command, env=environment, capture_output=True, check=True)
            times[name].append(float(done.stdout.split()[-1]))
    return times


def environment_of_functions() -> dict[str, str]:
    """Environment variables of both functions."""
    return {
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_DEFAULT_REGION": "us-east-1",
        "CDK_SAGAS_DEFINITION": "bench",
        "CDK_SAGAS_DUE_AFTER_SECONDS": "60",
        "CDK_SAGAS_DUE_SHARDS": "16",
        "CDK_SAGAS_IDENTITY": "iam",
        "CDK_SAGAS_IN_PROGRESS_RESPONSE": "CONFLICT",
        "CDK_SAGAS_KEY_POLICY": "REQUIRED",
        "CDK_SAGAS_LOG_TABLE": "log",
        "CDK_SAGAS_MAX_BODY_BYTES": "65536",
        "CDK_SAGAS_OPERATION": "transfers",
        "CDK_SAGAS_RECOVERY_MACHINE_ARN": "arn:aws:states:us-east-1:000000000000:stateMachine:recovery",
        "CDK_SAGAS_REQUEST_TABLE": "table",
        "CDK_SAGAS_FAILURE_STATUS": "{}",
        "CDK_SAGAS_REFUSAL_POLICY": "FINAL",
        "CDK_SAGAS_REMEMBER_SECONDS": "34560000",
        "CDK_SAGAS_REPLAY_SECONDS": "604800",
        "CDK_SAGAS_STATE_MACHINE_ARN": "arn:aws:states:us-east-1:000000000000:stateMachine:saga",
        "POWERTOOLS_SERVICE_NAME": "bench",
    }


def warm_times() -> Warm:
    """Seconds per warm call, and the AWS and Python calls of one, for new requests and for settled duplicates."""
    os.environ.update(environment_of_functions())
    sys.path[:0] = [str(ROOT / "lambda_src")]
    from benchmarks import powertools_handler
    from handlers import gatekeeper
    from saga_runtime.shared import aws

    stub = AwsStub()
    stub.put_before(aws.dynamodb(), aws.step_functions(), powertools_handler.persistence.client)

    return compare({OURS: gatekeeper.handler, THEIRS: powertools_handler.handler}, stub)


def compare(sides: dict[str, Callable[[Any, Any], Any]], stub: AwsStub) -> Warm:
    """Call both sides in turn, for new requests and for settled duplicates."""
    times: dict[str, dict[str, list[float]]] = {}
    calls: dict[str, dict[str, Counter[str]]] = {}
    interpreted: dict[str, dict[str, int]] = {}
    sink = io.StringIO()  # metrics go to standard output, as in Lambda
    for case, known in (("new request", False), ("settled duplicate", True)):
        stub.known = known
        times[case] = {name: [] for name in sides}
        calls[case] = {}
        interpreted[case] = {}
        with contextlib.redirect_stdout(sink):
            for name, handler in sides.items():
                handler(event_of("warm up"), FakeContext())
                stub.calls.clear()
                handler(event_of("count"), FakeContext())
                calls[case][name] = Counter(stub.calls)
                interpreted[case][name] = python_calls(handler, event_of("count Python"))
            for round_ in range(ROUNDS):
                for name, handler in sides.items():
                    events = [event_of(f"{case} {round_} {n}") for n in range(CALLS_PER_ROUND)]
                    begun = time.perf_counter()
                    for event in events:
                        handler(event, FakeContext())
                    times[case][name].append((time.perf_counter() - begun) / CALLS_PER_ROUND)
    return times, calls, interpreted


def python_calls(handler: Callable[[Any, Any], Any], event: dict[str, Any]) -> int:
    """Function calls that the interpreter makes for one request: the same on every machine."""
    count = 0

    def count_calls(_frame: object, what: str, _argument: object) -> None:
        nonlocal count
        count += what in {"call", "c_call"}

    sys.setprofile(count_calls)
    try:
        handler(event, FakeContext())
    finally:
        sys.setprofile(None)
    return count


def event_of(key: str) -> dict[str, Any]:
    """An API Gateway event."""
    return {
        "httpMethod": "POST",
        "headers": {"Idempotency-Key": key, "Content-Type": "application/json"},
        "multiValueHeaders": {"Idempotency-Key": [key]},
        "body": '{"from": "alice", "to": "bob", "amount": 100, "currency": "EUR"}',
        "isBase64Encoded": False,
        "requestContext": {
            "path": "/v1/transfers",
            "identity": {"accountId": "000000000000", "caller": "AIDAEXAMPLE"},
        },
    }


if __name__ == "__main__":
    main()
