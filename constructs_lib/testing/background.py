"""Local AWS that outlives the process which started it: ``cdk-sagas local up`` … ``cdk-sagas local down``."""

from __future__ import annotations

import http.client
import shutil
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from constructs_lib.testing import server
from constructs_lib.testing.emulator.admin_paths import PROCESS_PATH, STOP_PATH
from constructs_lib.testing.http import HttpClient

_STOP_SECONDS: Final = 5.0
#: One that is there answers at once, on a machine with little to do; one that is not refuses at once.
_ANSWER_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """Address, process and folder of an emulator in the background.

    Attributes:
        endpoint_url: Its address.
        pid: Its process id.
        run_folder: Its folder, which it deletes when it ends.
    """

    endpoint_url: str
    pid: int
    run_folder: str

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Self:
        """Read it from what was noted."""
        return cls(endpoint_url=state["endpoint_url"], pid=state["pid"], run_folder=state["run_folder"])

    def as_json(self) -> dict[str, Any]:
        """Return what to note."""
        return asdict(self)

    def answers(self) -> bool:
        """Return whether this very emulator is there: another may have got its port or its process id."""
        try:
            answer = HttpClient(timeout=_ANSWER_SECONDS).send("GET", f"{self.endpoint_url}{PROCESS_PATH}")
        except (OSError, http.client.HTTPException):
            return False
        return answer.status == 200 and bool(answer.json()["run_folder"] == self.run_folder)


def start(*, port: int | None, speed: float, concurrency: int) -> Background:
    """Start an emulator in the background.

    Args:
        port: Loopback port; any free one by default.
        speed: How many times faster than real time it passes.
        concurrency: Execution environments a function has at most.

    Raises:
        EmulatorStartError: If it does not start.
        ValueError: If an option is out of range.
    """
    process = server.start(port=port, speed=speed, concurrency=concurrency, detached=True)
    return Background(endpoint_url=process.endpoint_url, pid=process.pid, run_folder=str(process.run_folder))


def stop(background: Background) -> None:
    """Stop an emulator, if it still runs, with all that it started, and delete its folder."""
    folder = Path(background.run_folder)
    if background.answers():
        HttpClient(timeout=_ANSWER_SECONDS).send("POST", f"{background.endpoint_url}{STOP_PATH}", body=b"")
        deadline = time.monotonic() + _STOP_SECONDS
        while folder.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
    # A process id is reused in the end: only one whose command line names the folder is ours to kill.
    if _command_line(background.pid).find(background.run_folder) >= 0:
        server.end_group(background.pid)
    shutil.rmtree(folder, ignore_errors=True)


def _command_line(pid: int) -> str:
    try:
        return subprocess.run(
            ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout
    except FileNotFoundError:  # a container without procps: an emulator that does not answer is left alone
        return ""
