"""Prepares the checkout for every `make` target: virtual environment, locked packages, Node packages, function bundle.

Standard library only: it runs before anything is installed. Each step is skipped while what it depends on is
unchanged, so that a second run costs a fraction of a second. Two runs at once wait for each other.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMP_NAME = ".cdk-sagas-setup"
LOG = ROOT / "build" / "setup.log"


class SetupError(Exception):
    """Something is missing; the message is one line with the remedy."""


def main() -> None:
    """Runs the steps in order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    parser.add_argument("--pinned-python", action="store_true", help="the interpreter was named by the caller")
    parser.add_argument("--build-only", action="store_true", help="install what `make wheel` needs, and nothing else")
    arguments = parser.parse_args()
    venv = (ROOT / arguments.venv).absolute()
    try:
        with _alone():
            _virtual_environment(venv, pinned=arguments.pinned_python)
            _python_packages(venv, ROOT / "requirements" / ("build.txt" if arguments.build_only else "dev.txt"))
            if arguments.build_only:
                return
            _editable_project(venv)
            _node_packages(venv)
            _function_bundle(venv)
    except SetupError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("error: set-up was interrupted; run the same command again to continue")


def _virtual_environment(venv: Path, *, pinned: bool) -> None:
    python = venv / "bin" / "python"
    if python.exists():
        found = _version_of(python)
        if found and not (pinned and found != _own_version()):
            return
        if found:
            raise SetupError(
                f"{_shown(venv)} was made with Python {found}, and PYTHON is {_own_version()}; "
                f"add VENV=.venv-{_own_version()}, or run `make clean-all` first"
            )
        _say(f"{_shown(venv)} lost its Python; making it again")
        shutil.rmtree(venv)
    _say(f"making {_shown(venv)} with Python {_own_version()}")
    try:
        import ensurepip  # noqa: F401  # some distributions package it apart
        import venv as _  # noqa: F401  # as above
    except ImportError:
        raise SetupError(
            f"{sys.executable} has no venv or pip; install them "
            f"(Debian and Ubuntu: apt install python{_own_version()}-venv) or set PYTHON to another Python"
        ) from None
    remedy = f"see {_shown(LOG)}; check that the disk is not full and the folder is writable"
    try:
        _run([sys.executable, "-m", "venv", str(venv)], f"cannot make {_shown(venv)}; {remedy}")
    except SetupError:
        shutil.rmtree(venv, ignore_errors=True)
        raise


def _python_packages(venv: Path, lock: Path) -> None:
    stamp = _Stamp(venv / f"{STAMP_NAME}-packages", lock)
    if stamp.is_current():
        return
    count = sum("==" in line for line in lock.read_text(encoding="utf-8").splitlines())
    _say(f"installing {count} locked Python packages (a minute or two, once)")
    _run(
        [*_pip(venv), "--require-hashes", "--only-binary", ":all:", "--requirement", str(lock)],
        f"cannot install {_shown(lock)}; see {_shown(LOG)} and check the network and pip's index settings",
    )
    stamp.set()


def _editable_project(venv: Path) -> None:
    stamp = _Stamp(venv / f"{STAMP_NAME}-project", ROOT / "pyproject.toml")
    if stamp.is_current():
        return
    _say("installing cdk-sagas into it, editable")
    _run(
        [*_pip(venv), "--no-deps", "--no-build-isolation", "--editable", str(ROOT)],
        f"cannot install the project; see {_shown(LOG)}",
    )
    stamp.set()


def _node_packages(venv: Path) -> None:
    stamp = _Stamp(ROOT / "node_modules" / STAMP_NAME, ROOT / "package.json", ROOT / "package-lock.json")
    if stamp.is_current():
        return
    _say("installing the pinned CDK command")
    _run(
        [str(venv / "bin" / "npm"), "ci", "--no-audit", "--no-fund"],
        f"cannot install package-lock.json; see {_shown(LOG)} and check the network and npm's registry settings",
        path_first=venv / "bin",
    )
    stamp.set()


def _function_bundle(venv: Path) -> None:
    # Cheap when nothing changed, so it needs no stamp: the bundle knows its own inputs.
    builder = ROOT / "constructs_lib" / "functions" / "bundle_builder.py"
    _run([str(venv / "bin" / "python"), str(builder)], f"cannot build the function bundle; see {_shown(LOG)}")


class _Stamp:
    """A file that holds the hash of what a step depends on, written when the step has succeeded."""

    def __init__(self, path: Path, *inputs: Path) -> None:
        self._path = path
        self._digest = hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()

    def is_current(self) -> bool:
        return self._path.is_file() and self._path.read_text(encoding="utf-8") == self._digest

    def set(self) -> None:
        self._path.write_text(self._digest, encoding="utf-8")


def _run(command: list[str], problem: str, *, path_first: Path | None = None) -> None:
    """Runs a command into the log; on failure shows the end of its output and raises the problem."""
    environment = dict(os.environ)
    if path_first is not None:
        environment["PATH"] = f"{path_first}{os.pathsep}{environment.get('PATH', '')}"
    # A name of the caller's that would send pip's files elsewhere.
    for name in ("PIP_TARGET", "PIP_USER", "PIP_PREFIX", "PYTHONHOME", "PYTHONPATH"):
        environment.pop(name, None)
    with LOG.open("a", encoding="utf-8") as log:
        log.write(f"\n$ {' '.join(command)}\n")
        log.flush()
        start = LOG.stat().st_size
        code = subprocess.run(command, check=False, cwd=ROOT, env=environment, stdout=log, stderr=log).returncode
    if code:
        tail = LOG.read_bytes()[start:].decode(errors="replace").splitlines()[-15:]
        print("\n".join(f"  | {line}" for line in tail), file=sys.stderr)
        raise SetupError(problem)


def _pip(venv: Path) -> list[str]:
    return [
        str(venv / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
        "--quiet",
    ]


def _version_of(python: Path) -> str | None:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        result = subprocess.run([str(python), "-c", code], check=False, capture_output=True, text=True)
    except OSError:
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def _own_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Keeps two set-ups of one checkout from running into each other."""
    LOG.parent.mkdir(exist_ok=True)
    with (LOG.parent / ".setup.lock").open("w") as lock:
        try:
            import fcntl  # not on Windows, where there is no lock
        except ImportError:
            pass
        else:
            fcntl.flock(lock, fcntl.LOCK_EX)
        LOG.write_text("", encoding="utf-8")
        yield


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _say(message: str) -> None:
    print(f"setup: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
