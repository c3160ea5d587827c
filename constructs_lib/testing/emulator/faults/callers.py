"""The process that makes a call, and its invocation.

Every sandbox gets an access key of its own, for the same role and with the same rights as the function's other
sandboxes. Each request that any SDK in any language sends is signed with it, so the signature identifies the process,
and nothing is added to the function's code, environment or requests.
"""

from __future__ import annotations

import contextvars
import secrets
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ministack.core import lambda_runtime as runtime
from ministack.services import lambda_svc, sts

from constructs_lib.testing.emulator.corrections import replace

_KEY_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """The Step Functions execution that a thread works for.

    Attributes:
        machine: Name of its state machine.
        name: Its own name.
        state: The state that it is in, once it is in one.
    """

    machine: str
    name: str
    state: str | None = None


#: Set while the emulator runs an execution, and while it runs a function for one.
current_execution: Final[contextvars.ContextVar[Execution | None]] = contextvars.ContextVar(
    "current_execution", default=None
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One invocation of a function, in one sandbox.

    Attributes:
        request_id: The invocation's id.
        execution: Name of the execution that made it, if one did.
        over: Set when it has ended, in whatever way.
    """

    request_id: str
    execution: str | None
    over: threading.Event = field(default_factory=threading.Event)


class Sandbox:
    """One process that runs a function.

    Attributes:
        function: Physical name of the function.
        invocation: What it runs at present, or ran last.
    """

    def __init__(self, worker: Any) -> None:
        self.function: str = worker.func_name
        self.invocation: Invocation | None = None
        self._worker = weakref.ref(worker)

    @property
    def is_gone(self) -> bool:
        """True if the emulator has forgotten the worker."""
        return self._worker() is None

    def kill(self) -> None:
        """End the process at once, as a crash of the machine would."""
        worker = self._worker()
        process = getattr(worker, "_proc", None)
        if process is not None:
            process.kill()


class Callers:
    """The sandboxes by their access keys."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[str, Sandbox] = {}
        self._by_worker: weakref.WeakKeyDictionary[Any, Sandbox] = weakref.WeakKeyDictionary()
        self._spawning = threading.local()

    def sandbox(self, access_key_id: str) -> Sandbox | None:
        """Return the sandbox that signs with this key; None for everybody else."""
        return self._by_key.get(access_key_id)

    def install(self) -> None:
        """Give every sandbox its own access key, and follow what it runs."""
        replace(runtime, "execution_credentials", self._make_credentials)
        replace(lambda_svc, "execution_credentials", lambda _: runtime.execution_credentials)
        for worker_class in (runtime.Worker, runtime.ProvidedWorker):
            replace(worker_class, "_spawn", self._make_spawn)
            replace(worker_class, "invoke", self._make_invoke)

    def _make_spawn(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def spawn(worker: Any, *args: Any, **kwargs: Any) -> Any:
            self._spawning.sandbox = self._of(worker)
            try:
                return original(worker, *args, **kwargs)
            finally:
                self._spawning.sandbox = None

        return spawn

    def _make_invoke(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def invoke(worker: Any, event: Any, request_id: str, *args: Any, **kwargs: Any) -> Any:
            execution = current_execution.get()
            invocation = Invocation(request_id=request_id, execution=None if execution is None else execution.name)
            self._of(worker).invocation = invocation
            try:
                return original(worker, event, request_id, *args, **kwargs)
            finally:
                invocation.over.set()

        return invoke

    def _make_credentials(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def credentials(config: dict[str, Any]) -> dict[str, str]:
            given: dict[str, str] = original(config)
            sandbox: Sandbox | None = getattr(self._spawning, "sandbox", None)
            session = sts._sessions.get(given["AWS_ACCESS_KEY_ID"])
            if sandbox is None or session is None:
                return given
            key = "ASIA" + "".join(secrets.choice(_KEY_ALPHABET) for _ in range(16))
            sts.register_session(key, dict(session))
            self._remember(key, sandbox)
            return {**given, "AWS_ACCESS_KEY_ID": key}

        return credentials

    def _of(self, worker: Any) -> Sandbox:
        with self._lock:
            sandbox = self._by_worker.get(worker)
            if sandbox is None:
                sandbox = self._by_worker[worker] = Sandbox(worker)
            return sandbox

    def _remember(self, key: str, sandbox: Sandbox) -> None:
        with self._lock:
            # A worker that starts a new process gets a new key; one that the emulator has dropped needs none.
            for old, known in list(self._by_key.items()):
                if known is sandbox or known.is_gone:
                    del self._by_key[old]
                    sts._sessions.pop(old, None)
            self._by_key[key] = sandbox
