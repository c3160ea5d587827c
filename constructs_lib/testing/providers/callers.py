"""Finds the process at the other end of a connection on this machine, which a crash test kills."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path


def kill_caller(port: int, *, own_port: int, spare: Collection[int]) -> bool:
    """Kill the process that holds a connection to us at once, as a crash would.

    Args:
        port: the caller's port.
        own_port: ours, which the connection leads to.
        spare: processes that are never killed.

    Returns:
        Whether a process was killed.
    """
    killed = False
    for pid in _holders(port, own_port):
        if pid != os.getpid() and pid not in spare:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed = True
    return killed


def _holders(port: int, own_port: int) -> list[int]:
    if Path("/proc/net/tcp").exists():
        sockets = {f"socket:[{inode}]" for inode in _inodes(port, own_port)}
        return [pid for pid in _processes() if sockets & set(_open_files(pid))]
    listed = subprocess.run(
        ["lsof", "-nP", "-t", f"-iTCP:{port}", "-sTCP:ESTABLISHED"], capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in listed.stdout.split()]


def _inodes(port: int, own_port: int) -> Iterator[str]:
    """Inodes of the sockets that lead from one port to the other."""
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        if not table.exists():
            continue
        for line in table.read_text("ascii").splitlines()[1:]:
            columns = line.split()
            local, remote = (int(address.rpartition(":")[2], 16) for address in columns[1:3])
            if (local, remote) == (port, own_port):
                yield columns[9]


def _processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]


def _open_files(pid: int) -> Iterator[str]:
    # A process may end during the check, or its number be used again.
    with contextlib.suppress(OSError):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(file.readlink())
