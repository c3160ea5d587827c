"""Install DynamoDB Local, by Maven, into the cache; and run it."""

from __future__ import annotations

import hashlib
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
VERSION: Final = "3.1.0"
CHECKSUMS: Final = ROOT / "requirements" / "dynamodb-local.sha256"
"""SHA-256 of every file of that version, as ``sha256sum`` writes them."""
CACHE: Final = ROOT / "build" / "cache" / f"dynamodb-local-{VERSION}"
_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_POM: Final = f"""<project><modelVersion>4.0.0</modelVersion>
<groupId>parity</groupId><artifactId>parity</artifactId><version>1</version>
<dependencies><dependency><groupId>software.amazon.dynamodb</groupId><artifactId>DynamoDBLocal</artifactId>
<version>{VERSION}</version></dependency></dependencies></project>
"""
_MAIN: Final = "software.amazon.dynamodb.services.local.main.ServerRunner"
_JAVA: Final = 17
_SECONDS: Final = 60.0


class MissingError(Exception):
    """Something is missing; the message has the remedy."""


def installed() -> Path:
    """The folder of DynamoDB Local, installed if it is not there, with every checksum compared.

    Raises:
        MissingError: Java or Maven is missing, a file cannot be fetched, or has another checksum.
    """
    _require_java()
    if not CACHE.is_dir():
        if shutil.which("mvn") is None:
            raise MissingError("mvn must be on the PATH, got none; install Maven, which fetches DynamoDB Local")
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE.parent, prefix=".dynamodb-local-") as made:
            (Path(made) / "pom.xml").write_text(_POM, encoding="utf-8")
            command = ["mvn", "-q", "-B", "-f", f"{made}/pom.xml", _PLUGIN, f"-DoutputDirectory={made}/files"]
            fetched = subprocess.run(command, capture_output=True, text=True, check=False)
            if fetched.returncode:
                raise MissingError(f"mvn must fetch DynamoDB Local {VERSION}, got an error: {fetched.stdout[-500:]}")
            _compare(Path(made) / "files")
            (Path(made) / "files").rename(CACHE)
    _compare(CACHE)
    return CACHE


def _require_java() -> None:
    if shutil.which("java") is None:
        raise MissingError(f"java must be on the PATH, got none; install Java {_JAVA} or newer")
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < _JAVA:
        raise MissingError(f"java must be version {_JAVA} or newer, got {said.partition(chr(10))[0]!r}; install it")


def _compare(folder: Path) -> None:
    lines = CHECKSUMS.read_text(encoding="utf-8").split()
    wanted = dict(zip(lines[1::2], lines[::2], strict=True))
    got = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
    if got != wanted:
        other = sorted(name for name in got.keys() | wanted.keys() if got.get(name) != wanted.get(name))
        raise MissingError(f"files of {folder} must have the checksums of {CHECKSUMS.name}, got others of {other}")


@contextmanager
def running() -> Iterator[int]:
    """Run DynamoDB Local in memory, on a free port of this machine, which is the value.

    Raises:
        MissingError: as ``installed``; or it does not answer.
    """
    folder = installed()
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    options = [f"-Djava.library.path={folder}", "-cp", f"{folder}/*", _MAIN]
    options += ["-inMemory", "-disableTelemetry", "-port", str(port)]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(["java", *options], stdout=log, stderr=log)
        try:
            _wait(port, server)
            yield port
        finally:
            server.terminate()
            server.wait()


def _wait(port: int, server: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + _SECONDS
    while time.monotonic() < ends and server.poll() is None:
        with closing(socket.socket()) as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise MissingError(f"DynamoDB Local must answer within {_SECONDS:g} s, got none; run java on a machine with memory")
