"""Starts the emulator: ``python -m constructs_lib.testing.emulator --run-folder FOLDER``."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import shutil
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.testing.emulator.clock import EmulatorClock
from constructs_lib.testing.emulator.settings import (
    ACCOUNT,
    EXIT_PORT_TAKEN,
    HOST,
    PORT_FILE,
    REGION,
    ROOT_ACCESS_KEY_ID,
    ROOT_SECRET_ACCESS_KEY,
    EmulatorSettings,
)

if TYPE_CHECKING:
    from hypercorn.config import Config

_SHUTDOWN_SECONDS: Final = 2.0


def main() -> int:
    """Serve until stopped, then end all processes and delete the folder. Returns only if the start failed."""
    settings = EmulatorSettings.parse()
    try:
        listener = _listen(settings.port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        sys.stderr.write(f"port {settings.port} on {HOST} is taken\n")
        return EXIT_PORT_TAKEN
    port = listener.getsockname()[1]
    _prepare_environment(settings, port)
    asyncio.run(_serve(settings, listener, port))
    return 0


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((HOST, port))
    listener.listen(512)
    return listener


def _prepare_environment(settings: EmulatorSettings, port: int) -> None:
    """Set what the emulator reads while it is imported."""
    folder = settings.run_folder
    for name in ("tmp", "s3", "state"):
        (folder / name).mkdir(exist_ok=True)
    os.environ.update(
        GATEWAY_PORT=str(port),
        BIND_HOST=HOST,
        AUTH="true",
        PERSIST_STATE="0",
        MINISTACK_ACCOUNT_ID=ACCOUNT,
        MINISTACK_REGION=REGION,
        TMPDIR=str(folder / "tmp"),
        S3_DATA_DIR=str(folder / "s3"),
        STATE_DIR=str(folder / "state"),
        AWS_ACCESS_KEY_ID=ROOT_ACCESS_KEY_ID,
        AWS_SECRET_ACCESS_KEY=ROOT_SECRET_ACCESS_KEY,
        # Listeners on fixed ports that nothing here needs.
        SFTP_ENABLED="0",
        IOT_MTLS_ENABLED="0",
        # Do not use the host's docker daemon.
        DOCKER_HOST=f"unix://{folder}/no-docker",
        LOG_LEVEL=os.environ.get("LOG_LEVEL", "WARNING"),
    )


async def _serve(settings: EmulatorSettings, listener: socket.socket, port: int) -> None:
    # Imported here: the emulator reads its environment as it is imported.
    from hypercorn.asyncio import serve
    from ministack import app

    from constructs_lib.testing.emulator import admin, corrections, reset
    from constructs_lib.testing.emulator.faults import install as faults

    clock = EmulatorClock(base=time.time(), speed=settings.speed)
    emulator = corrections.Emulator(settings=settings, clock=clock)
    corrections.install(emulator)
    reset.follow_executions()
    reset.follow_event_sources()
    engine = faults.install(emulator)

    def empty() -> None:
        # First what faults hold back, so that nothing waits for it.
        engine.clear(None)
        reset.reset()

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if not settings.detached:
        threading.Thread(target=_watch_parent, args=(loop, stop), daemon=True).start()

    async def _stopped() -> None:
        await stop.wait()
        # The server may wait for a call that sleeps in a sandbox, or for a connection: no longer than this.
        last_resort = threading.Timer(_SHUTDOWN_SECONDS, _end, (settings,))
        last_resort.daemon = True
        last_resort.start()
        _stop_workers()

    # Written last and atomically: a reader of the file may connect.
    temporary = settings.run_folder / f"{PORT_FILE}.new"
    temporary.write_text(f"{port}\n", encoding="ascii")
    temporary.replace(settings.run_folder / PORT_FILE)
    application: Any = admin.with_admin(app.app, reset=empty, stop=stop, run_folder=settings.run_folder, clock=clock)
    try:
        await serve(application, server_config(listener.detach()), shutdown_trigger=_stopped)
    finally:
        _end(settings)


def server_config(listener: int) -> Config:
    """Return the server's configuration.

    Args:
        listener: File descriptor of the socket that it listens on.
    """
    from hypercorn.config import Config

    config = Config()
    config.bind = [f"fd://{listener}"]
    # Only clients close idle connections: a server that does loses the request that is already on its way.
    config.keep_alive_timeout = math.inf
    config.graceful_timeout = 0.2
    # Header names as the client wrote them, for what is proxied to functions; see `admin.with_admin`.
    config.h11_pass_raw_headers = True
    config.loglevel = "WARNING"
    return config


def _end(settings: EmulatorSettings) -> None:
    """End the process here and now.

    Not by returning: the loop would first wait for every thread that sits in a call, for as long as the call takes.
    """
    logging.shutdown()
    # Again if a worker was just being started, and wrote while the folder was being deleted.
    for _ in range(3):
        _stop_workers()
        shutil.rmtree(settings.run_folder, ignore_errors=True)
        if not settings.run_folder.exists():
            break
    os._exit(0)


def _watch_parent(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """End with the parent, the only process that holds the other end of this one's standard input.

    The pipe is closed by the kernel however the parent ends, SIGKILL included.
    """
    while os.read(sys.stdin.fileno(), 4096):
        pass
    loop.call_soon_threadsafe(stop.set)


def _stop_workers() -> None:
    """Kill every worker; they hold nothing that is worth a grace period."""
    runtime = sys.modules.get("ministack.core.lambda_runtime")
    if runtime is None:
        return
    for pool in list(runtime._workers.values()):
        for worker in pool:
            process = worker._proc
            if process is not None:
                process.kill()
                process.wait()


if __name__ == "__main__":
    sys.exit(main())
