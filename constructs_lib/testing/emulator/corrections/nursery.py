"""Lambda: how a Python sandbox comes to life. Most of a cold start is importing the SDK, each time the same."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, Final

from ministack.core import lambda_runtime as runtime

from constructs_lib.testing.emulator.corrections import Correction, Emulator

PROGRAM: Final = Path(__file__).parent.parent / "nursery_program.py"
_LARGEST_MESSAGE: Final = 262_144
_PATIENCE_SECONDS: Final = 60.0


class Sandbox:
    """A process that was forked for us, as `subprocess.Popen` would show it; it is another process's child.

    Attributes:
        stdin: What it reads.
        stdout: What it writes.
        stderr: What it logs.
        pid: Its number. Signals are sent by a handle that no later process of that number answers to.
        returncode: None while it runs; 0, or the signal that was sent to it last, negative.
    """

    def __init__(self, pid: int, handle: int, stdin: IO[str], stdout: IO[str], stderr: IO[str]) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._handle = handle
        self._sent = 0
        weakref.finalize(self, os.close, handle)

    def poll(self) -> int | None:
        """Return whether it has ended, and how."""
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: If it runs on.
        """
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            self._sent = number
            try:
                signal.pidfd_send_signal(self._handle, number)
            except ProcessLookupError:
                return

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def _ended_within(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            waiting = select.poll()
            waiting.register(self._handle, select.POLLIN)
            if waiting.poll(None if seconds is None else max(0, round(seconds * 1000))):
                self.returncode = -self._sent
        return self.returncode


class Nursery:
    """One process that has imported the SDK, and forks a sandbox whenever one is asked for.

    If it dies, or does not answer in time, the next one takes its place.

    Args:
        packages: The folder with what Lambda's Python runtimes carry.
    """

    def __init__(self, packages: Path) -> None:
        self._packages = packages
        self._turn = threading.Lock()
        self._ours: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def spawn(self, script: str, *, folder: str, environment: dict[str, str]) -> Sandbox:
        """Start a sandbox that runs a script.

        Raises:
            OSError: If two of these processes in turn are gone, or do not answer.
        """
        asked = json.dumps({"script": script, "folder": folder, "environment": environment}).encode()
        try:
            return self._spawn(asked)
        except OSError:
            # What a dead one may have forked has streams of its own, which end here.
            return self._spawn(asked)

    def _spawn(self, asked: bytes) -> Sandbox:
        their_in, stdin = os.pipe()
        stdout, their_out = os.pipe()
        stderr, their_err = os.pipe()
        given = (their_in, their_out, their_err)
        try:
            with self._turn:
                pid, handle = self._fork(asked, given)
        except BaseException:
            for descriptor in (stdin, stdout, stderr):
                os.close(descriptor)
            raise
        finally:
            for descriptor in given:
                os.close(descriptor)
        return Sandbox(
            pid,
            handle,
            os.fdopen(stdin, "w", buffering=1),
            os.fdopen(stdout, buffering=1),
            os.fdopen(stderr, buffering=1),
        )

    def _fork(self, asked: bytes, given: tuple[int, ...]) -> tuple[int, int]:
        """Return the new process's number, and a handle of it. After a failure the connection is not reused."""
        ours = self._ours or self._start()
        try:
            socket.send_fds(ours, [asked], given)
            answer, handles, _flags, _address = socket.recv_fds(ours, 64, 1)
            if not answer or not handles:
                raise OSError("the process that forks sandboxes is gone")
        except OSError:
            self._end()
            raise
        return int(answer), handles[0]

    def _end(self) -> None:
        if self._ours is not None:
            self._ours.close()
            self._ours = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(_PATIENCE_SECONDS)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST_MESSAGE)
        # As a sandbox is started: see `bare_interpreter` and `function_environment`.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(PROGRAM), str(theirs.fileno()), str(self._packages)],
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "en_US.UTF-8", "TZ": ":UTC"},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        theirs.close()
        self._ours = ours
        return ours


def forked_sandboxes(emulator: Emulator) -> None:
    """A Python sandbox is forked from a process that has imported what Lambda's runtime carries.

    The emulator starts an interpreter for each, in which importing the SDK and reading its models is nine tenths of
    the work: every test that kills a sandbox waits for it. A function still sees none of it but what it imports, and
    one that brings packages of its own by the same names gets these.
    """
    if not (hasattr(os, "pidfd_open") and sys.platform == "linux"):
        return
    nursery = Nursery(emulator.settings.run_folder / "lambda-runtime")
    inner: Callable[..., Any] = runtime.subprocess.Popen

    def popen(command: list[str], **options: Any) -> Any:
        if command[:3] == [sys.executable, "-I", "-S"]:
            return nursery.spawn(command[3], folder=options["cwd"], environment=options["env"])
        return inner(command, **options)

    known = {name: getattr(subprocess, name) for name in ("PIPE", "STDOUT", "TimeoutExpired", "run")}
    runtime.subprocess = SimpleNamespace(**known, Popen=popen)


CORRECTIONS: Final[tuple[Correction, ...]] = (forked_sandboxes,)
