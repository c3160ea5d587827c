"""Starts and stops the emulator's process, and leaves neither a process nor a folder behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from constructs_lib.testing.emulator.settings import EXIT_PORT_TAKEN, HOST, LOG_FILE, PORT_FILE, EmulatorSettings
from constructs_lib.testing.extra import missing_extra

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 5.0
#: What of the caller's environment the emulator gets: enough to find node and to write its log, no credentials.
_PASSED_ON: Final = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "LOG_LEVEL")
#: Starts the emulator's package without running the ``__init__`` of the packages around it: they import the CDK and
#: boto3, which takes seconds, and a Node process, that the emulator has no use for.
_BOOT: Final = """
import runpy, sys, types
for name, folder in (("constructs_lib", {library!r}), ("constructs_lib.testing", {testing!r})):
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = [folder]
runpy.run_module("constructs_lib.testing.emulator", run_name="__main__", alter_sys=True)
"""


class EmulatorStartError(RuntimeError):
    """The emulator could not be started."""


class EmulatorProcess:
    """One running emulator.

    Attributes:
        port: The loopback port that it listens on.
        pid: Its process id, which is its process group's as well.
        run_folder: Its folder.
    """

    def __init__(self, *, process: subprocess.Popen[bytes], port: int, run_folder: Path) -> None:
        self._process = process
        self.port = port
        self.pid = process.pid
        self.run_folder = run_folder

    @property
    def endpoint_url(self) -> str:
        """The address that replaces every AWS endpoint."""
        return f"http://{HOST}:{self.port}"

    def stop(self) -> None:
        """End the process, what it started, and its folder. Does nothing the second time."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            end_group(self.pid)
            self._process.wait()
            shutil.rmtree(self.run_folder, ignore_errors=True)


def end_group(pid: int) -> None:
    """Kill what is left of an emulator's process group.

    Args:
        pid: Process id of the emulator, which leads the group.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def start(
    *,
    port: int | None = None,
    speed: float = 1.0,
    concurrency: int = 4,
    without: frozenset[str] = frozenset(),
    detached: bool = False,
) -> EmulatorProcess:
    """Start an emulator and wait until it listens.

    Args:
        port: Loopback port; any free one by default.
        speed: How many times faster than real time the emulator's time passes.
        concurrency: Execution environments a function has at most.
        without: Names of corrections to leave out.
        detached: Whether it outlives this process. Otherwise it ends with it, however that ends.

    Raises:
        EmulatorStartError: If it does not start; the message contains the remedy.
    """
    if (remedy := missing_extra()) is not None:
        raise EmulatorStartError(remedy)
    settings = EmulatorSettings(
        run_folder=Path(),
        port=port or 0,
        speed=speed,
        concurrency=concurrency,
        without=without,
        detached=detached,
    )
    run_folder = Path(tempfile.mkdtemp(prefix="cdk-sagas-local-"))
    try:
        return _start(replace(settings, run_folder=run_folder))
    except BaseException:
        shutil.rmtree(run_folder, ignore_errors=True)
        raise


def _start(settings: EmulatorSettings) -> EmulatorProcess:
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    testing = Path(__file__).resolve().parent
    boot = _BOOT.format(library=str(testing.parent), testing=str(testing))
    with (settings.run_folder / LOG_FILE).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", boot, *settings.arguments()],
            # The other end of this pipe is ours alone: when we end, the emulator reads an end of file.
            stdin=subprocess.DEVNULL if settings.detached else subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=settings.run_folder,
            env=environment,
            # Its own group: a Ctrl-C at the terminal reaches us, and we end it.
            start_new_session=True,
        )
    try:
        return EmulatorProcess(process=process, port=_await_port(process, settings), run_folder=settings.run_folder)
    except BaseException:
        end_group(process.pid)
        process.wait()
        raise


def _await_port(process: subprocess.Popen[bytes], settings: EmulatorSettings) -> int:
    port_file = settings.run_folder / PORT_FILE
    deadline = time.monotonic() + _START_SECONDS
    while not port_file.exists():
        status = process.poll()
        if status == EXIT_PORT_TAKEN:
            raise EmulatorStartError(
                f"port {settings.port} on {HOST} is taken; stop what listens there, or choose another port"
            )
        if status is not None:
            raise EmulatorStartError(f"the emulator ended with status {status}: {_last_words(settings.run_folder)}")
        if time.monotonic() > deadline:
            raise EmulatorStartError(
                f"the emulator did not listen within {_START_SECONDS:.0f} s: {_last_words(settings.run_folder)}"
            )
        time.sleep(0.02)
    return int(port_file.read_text(encoding="ascii"))


def _last_words(run_folder: Path) -> str:
    lines = (run_folder / LOG_FILE).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it printed nothing; is ministack installed? (pip install 'cdk-sagas[local]')"
