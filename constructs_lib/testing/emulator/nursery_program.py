"""Program of its own, in a bare interpreter: imports what Lambda's Python runtime has, then forks a sandbox on demand.

Each message on the socket is a JSON object with the script, the folder and the environment, and comes with the three
standard streams. The answer is the new process's number, with a handle of it. It ends with the socket, and what it
forked notices that.
"""

from __future__ import annotations

import gc
import json
import os
import select
import socket
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any, Final

_LARGEST_MESSAGE: Final = 262_144
_REAP_SECONDS: Final = 0.5
_SERVICES: Final = ("dynamodb", "stepfunctions", "sqs", "events", "secretsmanager")
"""Services whose models are read in advance: those that functions of sagas ask."""


def main() -> None:
    """Serve until the other end is gone; in a sandbox, run its script."""
    bare = list(sys.path)
    sys.path.append(sys.argv[2])
    before = set(sys.modules)
    _import_sdk()
    imported = {name for name in set(sys.modules) - before if _is_of(sys.modules[name], sys.argv[2])}
    sys.path[:] = bare
    gc.collect()
    gc.freeze()
    asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        _run(asked, imported)


def _import_sdk() -> None:
    """Import the SDK, and have it read what every client reads: the same files, in each process again."""
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.loaders import JSONFileLoader
    from botocore.session import Session

    del boto3
    read, kept = JSONFileLoader.load_file, dict[str, Any]()

    def load_file(loader: Any, path: str) -> Any:
        if path not in kept:
            found = read(loader, path)
            if found is None:
                return None
            kept[path] = found
        return kept[path]

    setattr(JSONFileLoader, "load_file", load_file)  # noqa: B010 - a method of theirs
    session = Session()
    for service in _SERVICES:
        session.create_client(service, region_name="us-east-1", config=Config(signature_version=UNSIGNED))


def _is_of(module: ModuleType, packages: str) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and file.startswith(packages)


def _serve(ours: socket.socket) -> dict[str, Any] | None:
    """Fork a sandbox for each request. Returns in each sandbox its request, and None when the socket is closed."""
    waiting = select.poll()
    waiting.register(ours, select.POLLIN)
    while True:
        ready = waiting.poll(_REAP_SECONDS * 1000)
        _reap()
        if not ready:
            continue
        message, streams, _flags, _address = socket.recv_fds(ours, _LARGEST_MESSAGE, 3)
        if not message:
            return None
        pid = os.fork()
        if pid == 0:
            ours.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            asked: dict[str, Any] = json.loads(message)
            return asked
        handle = os.pidfd_open(pid)
        socket.send_fds(ours, [str(pid).encode()], [handle])
        for descriptor in (handle, *streams):
            os.close(descriptor)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return


def _run(asked: dict[str, Any], imported: set[str]) -> None:
    """Become the sandbox: its environment, its folder, its modules, its script."""
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    os.chdir(asked["folder"])
    _forget_what_is_brought(Path(asked["folder"]), asked["environment"], imported)
    script = asked["script"]
    sys.argv = [script]
    own = ModuleType("__main__")
    own.__file__ = script
    sys.modules["__main__"] = own
    code = compile(Path(script).read_text("utf-8"), script, "exec")
    exec(code, own.__dict__)  # noqa: S102 - it is what an interpreter does with a script


def _forget_what_is_brought(folder: Path, environment: dict[str, str], imported: set[str]) -> None:
    """A function, or a layer of it, that has a package of the runtime's in it, is to import its own."""
    layers = [Path(layer) / "python" for layer in environment.get("_LAMBDA_LAYERS_DIRS", "").split(os.pathsep) if layer]
    tops = {name.partition(".")[0] for name in imported}
    brought = {top for top in tops for place in (folder, *layers) if _has(place, top)}
    if not brought:
        return
    # The SDK's own parts must have one source; a library that it uses may be another copy than the function's.
    gone = tops if brought - {"jmespath", "six", "dateutil"} else brought
    for name in imported:
        if name.partition(".")[0] in gone:
            sys.modules.pop(name, None)


def _has(place: Path, top: str) -> bool:
    return (place / top).exists() or (place / f"{top}.py").exists()


if __name__ == "__main__":
    main()
