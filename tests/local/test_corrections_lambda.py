"""Lambda behaves as on AWS where the bare emulator does not: each test fails without its correction."""

from __future__ import annotations

import io
import json
import os
import signal
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from .resources import Gate, create_held_function
from .support import ALLOW_ALL, Deployed, Emulators, create_role, eventually, run_machine


def test_an_exception_is_reported_under_its_class_name_and_the_sandbox_stays(emulators: Emulators) -> None:
    def fail_and_call_again(target: Deployed) -> tuple[str, bool]:
        before = target.invoke(do="ok")["pid"]
        error = target.invoke(do="fail")
        return error["errorType"], target.invoke(do="ok")["pid"] == before

    assert fail_and_call_again(emulators.corrected) == ("DeclinedError", True)
    assert fail_and_call_again(emulators.without("handler-errors")) == ("Runtime.HandlerError", False)


def test_an_exception_carries_its_message_and_its_trace(target: Deployed) -> None:
    error = target.invoke(do="fail")

    assert error["errorMessage"] == "no funds"
    assert any("worker.py" in line for line in error["stackTrace"])


def test_a_killed_worker_is_reported_and_replaced_for_the_next_call(emulators: Emulators) -> None:
    assert emulators.corrected.invoke(do="die")["errorType"] == "Runtime.ExitError"
    assert emulators.corrected.invoke(do="ok")["did"] == "ok"
    assert emulators.without("exit-error").invoke(do="die")["errorType"] == "Runtime.HandlerError"


def test_a_module_that_is_not_there_is_reported_as_such(emulators: Emulators) -> None:
    def break_import(target: Deployed) -> Any:
        name = target.function()
        target.aws.client("lambda").update_function_configuration(FunctionName=name, Handler="nowhere.handler")
        try:
            return target.invoke(do="ok")["errorType"]
        finally:
            target.aws.client("lambda").update_function_configuration(FunctionName=name, Handler="worker.handler")

    assert break_import(emulators.corrected) == "Runtime.ImportModuleError"
    assert break_import(emulators.without("init-errors")) != "Runtime.ImportModuleError"


def test_a_result_that_is_not_json_fails_the_call(emulators: Emulators) -> None:
    assert emulators.corrected.invoke(do="unserializable")["errorType"] == "Runtime.MarshalError"
    assert emulators.without("json-results").invoke(do="unserializable")["errorType"] == "TypeError"


def test_a_function_has_at_most_so_many_sandboxes(emulators: Emulators, tmp_path: Path) -> None:
    def pids(target: Deployed, name: str, *, at_once: int) -> set[int]:
        """The processes that answer twelve calls, none of which ends before so many are in progress."""
        gate, functions = Gate(tmp_path / name), target.aws.client("lambda")
        create_held_function(target.aws, name)

        def call(_: int) -> int:
            answer = functions.invoke(FunctionName=name, Payload=json.dumps(gate.event))["Payload"].read()
            return int(json.loads(answer)["pid"])

        with ThreadPoolExecutor(12) as pool:
            calls = [pool.submit(call, number) for number in range(12)]
            gate.await_calls(at_once)
            gate.open()
            return {call.result() for call in calls}

    assert len(pids(emulators.corrected, "limited", at_once=4)) == 4
    assert len(pids(emulators.without("sandbox-limit"), "unlimited", at_once=12)) == 12


def test_the_log_of_a_call_is_all_that_it_printed_and_nothing_else(emulators: Emulators) -> None:
    emulators.corrected.invoke(do="stderr")
    emulators.corrected.invoke(do="ok")

    entries = emulators.corrected.aws.function_logs("Target/Worker")

    assert [entry.lines for entry in entries] == [
        ("worker does stderr", "late words"),
        ("worker does ok",),
    ]


def test_a_silent_call_does_not_wait_for_a_log(emulators: Emulators) -> None:
    """The bare emulator waits 50 ms for words that never come: none of its calls is faster, and one of ours is."""

    def seconds(target: Deployed) -> float:
        started = time.perf_counter()
        target.invoke("Target/Silent")
        return time.perf_counter() - started

    bare = emulators.without("whole-logs")
    assert min(seconds(bare) for _ in range(20)) > 0.05
    eventually(lambda: True if seconds(emulators.corrected) < 0.05 else None)


def test_a_throttled_function_fails_its_task_with_lambdas_error_name(emulators: Emulators) -> None:
    def error(target: Deployed) -> str:
        name = target.function()
        target.aws.client("lambda").put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
        task = {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "End": True}
        arguments = {"FunctionName": target.worker_arn(), "Payload": {}}
        try:
            return str(run_machine(target.aws, {"Call": {**task, "Arguments": arguments}})["error"])
        finally:
            target.aws.client("lambda").delete_function_concurrency(FunctionName=name)

    assert error(emulators.corrected) == "Lambda.TooManyRequestsException"
    assert error(emulators.without("throttle-name")) != "Lambda.TooManyRequestsException"


def test_a_function_does_not_inherit_the_hosts_environment(
    emulators: Emulators, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = emulators.corrected.invoke(do="ok")["environment"]
    leaked = emulators.without("function-environment").invoke(do="ok")["environment"]

    # The emulator's own settings are in the environment of its process.
    assert not {"GATEWAY_PORT", "AUTH", "MINISTACK_ACCOUNT_ID", "VIRTUAL_ENV", "PYTHONPATH"} & environment.keys()
    assert "GATEWAY_PORT" in leaked
    assert environment["HOME"] != os.environ.get("HOME")
    assert environment["AWS_EXECUTION_ENV"] == "AWS_Lambda_python3.13"


def test_a_dependency_that_was_not_bundled_is_missing(emulators: Emulators) -> None:
    """The package ``hypercorn`` is installed with the emulator, but is not part of Lambda's runtime."""
    assert emulators.corrected.invoke(do="import", module="hypercorn")["errorType"] == "ModuleNotFoundError"
    assert emulators.corrected.invoke(do="import", module="boto3")["did"] == "import"
    assert emulators.without("bare-interpreter").invoke(do="import", module="hypercorn")["did"] == "import"


def test_the_sandboxes_of_a_function_share_its_code(emulators: Emulators) -> None:
    def shared(target: Deployed) -> bool:
        return Path(target.invoke(do="ok")["environment"]["LAMBDA_TASK_ROOT"]).is_symlink()

    assert shared(emulators.corrected)
    assert not shared(emulators.without("shared-code"))


def test_a_sandbox_imports_the_sdk_once(emulators: Emulators) -> None:
    def processor_seconds(target: Deployed) -> float:
        """Minimum time that new sandboxes take until they have a client."""
        taken = []
        for _ in range(3):
            assert target.invoke(do="die")["errorType"] == "Runtime.ExitError"
            taken.append(float(target.invoke(do="ask")["processor"]))
        return min(taken)

    assert processor_seconds(emulators.corrected) < processor_seconds(emulators.without("forked-sandboxes")) / 2


def test_the_process_that_forks_sandboxes_is_replaced_when_it_dies(target: Deployed) -> None:
    def parent_of(pid: int) -> int:
        return int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[1])

    nursery = parent_of(target.invoke(do="ok")["pid"])
    assert "nursery_program" in Path(f"/proc/{nursery}/cmdline").read_text("utf-8")

    os.kill(nursery, signal.SIGKILL)
    target.invoke(do="die")  # so that the next call needs a new sandbox

    replaced = parent_of(target.invoke(do="ok")["pid"])
    assert replaced != nursery
    assert "nursery_program" in Path(f"/proc/{replaced}/cmdline").read_text("utf-8")
    assert target.invoke(do="die")["errorType"] == "Runtime.ExitError"
    assert parent_of(target.invoke(do="ok")["pid"]) == replaced


@pytest.mark.parametrize("module", ["six", "jmespath", "urllib3"])
def test_a_package_that_a_function_brings_is_its_own(emulators: Emulators, module: str) -> None:
    aws = emulators.corrected.aws
    brought = io.BytesIO()
    with zipfile.ZipFile(brought, "w") as archive:
        archive.writestr("index.py", f"import {module}\ndef handler(event, context):\n    return {module}.BROUGHT\n")
        archive.writestr(f"{module}.py", "BROUGHT = True\n")
    functions = aws.client("lambda")
    functions.create_function(
        FunctionName=f"brings-{module}",
        Runtime="python3.13",
        Handler="index.handler",
        Role=create_role(aws, ALLOW_ALL, name=f"brings-{module}"),
        Code={"ZipFile": brought.getvalue()},
    )
    try:
        assert functions.invoke(FunctionName=f"brings-{module}")["Payload"].read() == b"true"
    finally:
        functions.delete_function(FunctionName=f"brings-{module}")


def give_time(target: Deployed, seconds: int) -> None:
    """Change the worker's timeout, in an emulator whose other tests do not depend on it."""
    name = target.function()
    target.aws.client("lambda").update_function_configuration(FunctionName=name, Timeout=seconds)


def test_a_function_timeout_is_reported_as_such(emulators: Emulators) -> None:
    target = emulators.fast(20)
    give_time(target, 3)
    error = target.invoke(do="sleep", seconds=30)

    assert error["errorType"] == "Sandbox.Timedout"
    assert "Task timed out after 3" in error["errorMessage"]


def test_function_timeouts_and_the_remaining_time_follow_the_speed(emulators: Emulators) -> None:
    """The longest timeout is 900 s: 0.9 s of real time at speed 1,000, and 225 s at speed 4."""

    def times_out(target: Deployed, *, real_seconds: float) -> bool:
        give_time(target, 900)
        return "errorType" in target.invoke(do="sleep", seconds=real_seconds)

    assert times_out(emulators.fast(1000), real_seconds=600)
    assert not times_out(emulators.without("function-time", speed=1000), real_seconds=1.5)

    slow = emulators.fast(4)
    give_time(slow, 900)
    # Neither 225 s are left at the beginning, nor do 900 real ones.
    began = time.monotonic()
    remaining = [slow.invoke(do="ok")["remaining"] / 1000, slow.invoke(do="sleep", seconds=1)["remaining"] / 1000]
    took = time.monotonic() - began
    assert 900 - 4 * took <= remaining[0] <= 900
    assert 900 - 4 * took <= remaining[1] <= 900 - 4 * 1


def test_the_clock_is_in_the_environment_only_where_time_is_not_real(emulators: Emulators) -> None:
    assert "CDK_SAGAS_CLOCK" not in emulators.corrected.invoke(do="ok")["environment"]

    base, _, speed = emulators.fast(10).invoke(do="ok")["environment"]["CDK_SAGAS_CLOCK"].partition(":")

    assert float(speed) == 10
    assert abs(float(base) - time.time()) < 600


def test_a_call_runs_under_the_functions_own_role(target: Deployed) -> None:
    """IAM is enforced: a user that may do nothing cannot invoke, and a grant makes the difference."""
    user = target.aws.create_api_user("nobody")
    client = user.session().client("lambda", endpoint_url=target.aws.endpoint_url)
    name = target.function()

    with pytest.raises(client.exceptions.ClientError, match="not authorized"):
        client.invoke(FunctionName=name)


def test_a_state_machines_role_is_checked_before_each_call(emulators: Emulators) -> None:
    def run(target: Deployed, *statements: dict[str, Any]) -> dict[str, Any]:
        role = create_role(target.aws, *statements, name=f"role{len(statements)}")
        arguments = {"FunctionName": target.worker_arn(), "Payload": {"do": "ok"}}
        task = {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Arguments": arguments, "End": True}
        return run_machine(target.aws, {"Call": task}, role=role)

    denied = run(emulators.corrected)

    assert denied["status"] == "FAILED"
    assert "not authorized to perform: lambda:InvokeFunction" in denied["cause"]
    assert run(emulators.corrected, ALLOW_ALL)["status"] == "SUCCEEDED"
    assert run(emulators.without("state-machine-role"))["status"] == "SUCCEEDED"


def test_each_item_of_a_state_machines_transaction_needs_its_permission(target: Deployed) -> None:
    table = target.outputs["TableName"]
    put = {"Effect": "Allow", "Action": "dynamodb:PutItem", "Resource": "*"}
    role = create_role(target.aws, put, name="puts")
    items = [
        {"Put": {"TableName": table, "Item": {"id": {"S": "a"}}}},
        {"Delete": {"TableName": table, "Key": {"id": {"S": "b"}}}},
    ]
    task = {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:dynamodb:transactWriteItems", "End": True}

    allowed = run_machine(target.aws, {"T": {**task, "Arguments": {"TransactItems": items[:1]}}}, role=role)
    denied = run_machine(target.aws, {"T": {**task, "Arguments": {"TransactItems": items}}}, role=role)

    assert allowed["status"] == "SUCCEEDED"
    assert denied["status"] == "FAILED"
    assert "dynamodb:DeleteItem" in denied["cause"]
