"""Local AWS leaves no process and no folder behind, however its parent ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from constructs_lib.testing import EmulatorStartError, LocalAws
from saga_runtime.protocol import Env

from .support import eventually

ROOT = Path(__file__).parents[2]
PARENT = """
import json, signal, sys, threading, time
from constructs_lib.testing import LocalAws

signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent process may ignore it, and we would, too

def event(seconds, began):
    body = json.dumps({"sleep": seconds, "began": began})
    return json.dumps({"path": "/", "body": body, "requestContext": {"identity": {}}})

with LocalAws(without=sys.argv[3:]) as aws:
    aws.deploy(sys.argv[1])
    function = aws.resolve_function("Target/Front")
    aws.client("lambda").update_function_configuration(FunctionName=function, Timeout=900)
    call = lambda *given: aws.client("lambda").invoke(FunctionName=function, Payload=event(*given))
    folder = aws._process.run_folder
    call(0, str(folder / "warm"))  # now there is a warm sandbox
    if sys.argv[2] == "busy":
        began = folder / "began"
        threading.Thread(target=call, args=(600, str(began)), daemon=True).start()
        while not began.exists():  # and then it is in the middle of a call
            time.sleep(0.01)
    print(json.dumps({"pid": aws._process.pid, "folder": str(aws._process.run_folder)}), flush=True)
    time.sleep(600)
"""


def environment(temporary: Path) -> dict[str, str]:
    """Environment of a program that uses local AWS: its temporary folders are where the test can read them."""
    return {
        "PATH": os.environ["PATH"],
        "TMPDIR": str(temporary),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "lambda_src")]),
        "HOME": str(temporary),
    }


def alive(group: int) -> list[str]:
    """The processes of a group."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    lines = [line.split(maxsplit=2) for line in listed.splitlines()]
    return [line[2] for line in lines if line[0] == str(group) and not line[1].startswith("Z")]


@contextmanager
def running(
    assembly: Path, temporary: Path, sandbox: str, *without: str
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A program in the middle of its `with LocalAws()`: the program, and the emulator's process group."""
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), str(assembly), sandbox, *without],
        env=environment(temporary),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    group = 0
    try:
        assert program.stdout is not None
        said = json.loads(program.stdout.readline())
        group = said["pid"]
        assert alive(group)
        assert Path(said["folder"]).is_dir()
        yield program, group
    finally:
        if group:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        program.kill()
        program.wait()
        if program.stdout is not None:
            program.stdout.close()


@pytest.mark.proof
@pytest.mark.parametrize("sandbox", ["idle", "busy"])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_parent_ends(
    assembly: Path, tmp_path: Path, how: signal.Signals, sandbox: str
) -> None:
    """Ctrl-C, SIGTERM and SIGKILL; with an idle sandbox, and with one in the middle of a call."""
    with running(assembly, tmp_path, sandbox) as (program, group):
        program.send_signal(how)
        program.wait(180)

        eventually(lambda: None if alive(group) else True)
        eventually(lambda: None if list(tmp_path.iterdir()) else True)


def test_nothing_is_left_when_the_emulator_is_killed(assembly: Path, tmp_path: Path) -> None:
    """Its workers end without a signal, also in the middle of a call; the folder goes with the parent."""
    with running(assembly, tmp_path, "busy") as (program, group):
        os.kill(group, signal.SIGKILL)

        eventually(lambda: None if alive(group) else True)
        program.send_signal(signal.SIGINT)
        program.wait(180)
        assert not list(tmp_path.iterdir())


def test_a_worker_of_the_bare_emulator_outlives_the_killed_emulator(assembly: Path, tmp_path: Path) -> None:
    with running(assembly, tmp_path, "busy", "worker-ends-with-emulator") as (_, group):
        os.kill(group, signal.SIGKILL)
        time.sleep(2)

        assert alive(group)


def test_nothing_is_left_after_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with LocalAws() as aws:
        process = aws._process
        assert process is not None
        assert list(tmp_path.iterdir())

    assert not alive(process.pid)
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_after_an_exception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    aws = LocalAws()

    def work() -> None:
        with aws:
            groups.append(aws._process.pid if aws._process else 0)
            raise ZeroDivisionError

    groups: list[int] = []
    with pytest.raises(ZeroDivisionError):
        work()

    assert not alive(groups[0])
    assert not list(tmp_path.iterdir())


def test_a_taken_port_is_reported_in_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(EmulatorStartError) as caught:
            LocalAws(port=port).start()

    assert str(caught.value) == f"port {port} on 127.0.0.1 is taken; stop what listens there, or choose another port"
    assert not list(tmp_path.iterdir())


def test_the_command_starts_it_in_the_background_and_stops_it(assembly: Path, tmp_path: Path) -> None:
    temporary, home = tmp_path / "tmp", tmp_path / "home"
    temporary.mkdir()
    home.mkdir()

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "constructs_lib.cli", "local", *arguments],
            cwd=home,
            env=environment(temporary),
            capture_output=True,
            text=True,
            check=False,
        )

    assert command("status").returncode == 1
    assert command("env").returncode == 1
    up = command("up", "--assembly", str(assembly), "--speed", "20")
    assert up.returncode == 0, up.stderr
    state = json.loads((home / "build" / "local.json").read_text(encoding="utf-8"))
    try:
        assert state["outputs"]["Target"]["TableName"]
        assert state["users"].keys() == {"alice", "bob"}
        assert state["apis"]["Target/Api"]["urls"]["prod"].startswith(state["endpoint_url"])
        assert "Target/Front" in state["functions"]
        assert command("status").returncode == 0
        again = command("up", "--assembly", str(assembly))
        assert again.returncode == 0, again.stderr
        assert json.loads((home / "build" / "local.json").read_text(encoding="utf-8"))["pid"] == state["pid"]
        exported = command("env").stdout.splitlines()
        assert f"export AWS_ENDPOINT_URL={state['endpoint_url']}" in exported
        assert f"export {Env.CLOCK}={state['clock']}" in exported
        assert state["clock"].endswith(":20.0")
        assert command("reset").returncode == 0
        unknown = command("logs", "Nobody")
        assert (unknown.returncode, unknown.stderr.count("\n")) == (1, 1)
    finally:
        down = command("down")

    assert down.returncode == 0, down.stderr
    # What was killed needs a moment of the processor to be gone.
    eventually(lambda: None if alive(state["pid"]) else True)
    assert not list(temporary.iterdir())
    assert not (home / "build" / "local.json").exists()
    assert command("down").returncode == 0


def test_the_command_leaves_nothing_when_the_deployment_fails(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "constructs_lib.cli", "local", "up", "--assembly", "nowhere"],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "cdk-sagas: nowhere has no manifest.json; synthesize first (cdk synth)" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_fixture_provides_an_emptied_emulator(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        textwrap.dedent(
            """
            def test_one(local_aws):
                local_aws.client("s3").create_bucket(Bucket="bucket")
                local_aws.client("s3").put_object(Bucket="bucket", Key="k", Body=b"v")

            def test_two(local_aws, local_aws_server):
                assert local_aws is local_aws_server
                assert local_aws.client("s3").list_objects_v2(Bucket="bucket")["KeyCount"] == 0
            """
        ),
        encoding="utf-8",
    )
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    done = subprocess.run(
        [*command, "-p", "constructs_lib.testing.pytest_plugin"],
        cwd=tmp_path,
        env={**environment(temporary), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert not [one for one in temporary.iterdir() if "local" in one.name]
