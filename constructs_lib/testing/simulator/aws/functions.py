"""Lambda: invocations of the stack's own functions, their sandboxes, timeouts and errors."""

from __future__ import annotations

import io
import json
from asyncio import CancelledError
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from constructs_lib.testing.simulator.aws.assumed import demands_of_invocation
from constructs_lib.testing.simulator.aws.calls import Calls
from constructs_lib.testing.simulator.aws.roles import Demand
from constructs_lib.testing.simulator.checks.trace import Trace
from constructs_lib.testing.simulator.deployment.blueprint import REGION, AsyncSpec, FunctionSpec
from constructs_lib.testing.simulator.deployment.images import Image, Switch
from constructs_lib.testing.simulator.engine.actors import NO_CHAIN, Actor, ActorKind
from constructs_lib.testing.simulator.engine.kernel import MILLISECOND, SECOND, Future, Kernel
from constructs_lib.testing.simulator.engine.machine import Environment
from constructs_lib.testing.simulator.errors import NotSimulatedError, ServiceError, json_of
from constructs_lib.testing.simulator.faults.climate import Event
from constructs_lib.testing.simulator.faults.weather import Weather
from saga_runtime.http import direct_operation
from saga_runtime.protocol import TRANSIENT_ERRORS, CallField, ErrorName
from saga_runtime.steps import atomic, atomic_compensation
from saga_runtime.webhooks.intake import EventOperation

MOST_PAYLOAD_BYTES: Final = 6_291_456
_MOST_LATER_BYTES: Final = 1_048_576
"""Of an asynchronous invocation."""
_SURROGATE: Final = r"\ud"
_ATOMIC: Final = frozenset({atomic.__name__, atomic_compensation.__name__})
"""Modules that make the handlers of atomic steps and their compensations."""
_DIRECT: Final = frozenset({direct_operation.__name__, EventOperation.__name__})
"""Of direct operations: the module that makes the handlers of requests, and the class of those of events."""
_COLD: Final = 300 * MILLISECOND
_MEANWHILE: Final = frozenset({*TRANSIENT_ERRORS, ErrorName.FENCED, ErrorName.IN_DOUBT})
"""Errors by which a function is called again, or ends for another one's sake."""
_LONGEST: Final = 300
_MOST_IN_A_CHAIN: Final = 16
"""Invocations of a function that continue one chain of requests: AWS documents that it stops the next one."""
_RECURSIVE: Final = "RecursiveInvocationException"
_RETRY_SECONDS: Final = (60, 120)
"""Before an asynchronous invocation that failed is tried again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """End of an invocation.

    Attributes:
        payload: what it returned, or the error's document, as JSON text.
        error: the error's type; None: it returned.
    """

    payload: str
    error: str | None = None


class Context:
    """Context object of a handler."""

    def __init__(self, spec: FunctionSpec, request_id: str, deadline: int, kernel: Kernel) -> None:
        self.function_name = spec.name
        self.function_version = "$LATEST"
        self.invoked_function_arn = spec.arn
        self.memory_limit_in_mb = spec.memory
        self.aws_request_id = request_id
        self.log_group_name = f"/aws/lambda/{spec.name}"
        self.log_stream_name = "simulated"
        self.identity = None
        self.client_context = None
        self._deadline = deadline
        self._kernel = kernel

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the invocation is ended."""
        return max(0, (self._deadline - self._kernel.now) // MILLISECOND)


class Functions:
    """Every function of a run.

    Args:
        kernel: keeps the time.
        images: their modules.
        switch: puts an image's modules in place.
        environment: ``os.environ``.
        calls: hears of requests that outlive their sender.
        weather: what goes wrong.
        trace: hears of invocations.

    Attributes:
        asynchronous: what happens to asynchronous invocations, by function.
        refused: functions that cannot be invoked, by name, with the reason.
        changes: environment variables of a function that differ from those of the stack.
        running: invocations that have not ended.
        left: invocations that have ended, and left threads behind.
        raised: the first exception in each step, by the ids of sagas; none that every function may raise meanwhile.
    """

    def __init__(
        self,
        kernel: Kernel,
        images: Mapping[str, Image],
        switch: Switch,
        environment: Environment,
        calls: Calls,
        weather: Weather,
        trace: Trace,
    ) -> None:
        self.asynchronous: dict[str, AsyncSpec] = {}
        self.refused: dict[str, str] = {}
        self.changes: Callable[[str], Mapping[str, str]] = lambda _name: {}
        self.running: dict[str, Actor] = {}
        self.left: list[Actor] = []
        self.raised: dict[str, dict[str, str]] = {}
        self._kernel = kernel
        self._images = dict(images)
        self._switch = switch
        self._environment = environment
        self._calls = calls
        self._weather = weather
        self._trace = trace
        self._numbers: dict[str, int] = {}
        self._observed: set[str] = set()
        self._idle: dict[str, int] = {}
        self._environments: dict[str, dict[str, str]] = {}

    def is_atomic(self, name: str) -> bool:
        """True if a function that was loaded is an atomic step or its compensation."""
        return self._module_of(name) in _ATOMIC

    def is_direct(self, name: str) -> bool:
        """True if a function that was loaded is a direct operation, of requests or of events."""
        return self._module_of(name) in _DIRECT

    def _module_of(self, name: str) -> str | None:
        """Name of the module that made the handler of a function that was loaded."""
        handler = self._images[name].handler if name in self._images else None
        module = getattr(handler, "__globals__", {}).get("__name__")
        # An intake's handler is an object, and has the name of the function's module.
        return module or (type(handler).__name__ if handler is not None else None)

    def spec(self, name: str) -> FunctionSpec:
        """A function, by name or ARN.

        Raises:
            ServiceError: ResourceNotFoundException.
            NotSimulatedError: if the simulator cannot run it.
        """
        if (reason := self.refused.get(function_name(name))) is not None:
            raise NotSimulatedError(reason)
        found = self._images.get(function_name(name))
        if found is None:
            raise ServiceError("ResourceNotFoundException", f"Function not found: {name}", status=404)
        return found.spec

    def update(self, image: Image) -> None:
        """Deploy a function: the next invocation is the first one of a new sandbox."""
        name = image.spec.name
        self._images[name] = image
        self._idle.pop(name, None)
        self._environments.pop(name, None)

    def invoke(
        self, name: str, payload: str, *, scheduled: bool = False, chain: Mapping[str, int] = NO_CHAIN
    ) -> Future[Outcome]:
        """Invoke a function, and have its outcome later; it runs when the present task waits.

        Args:
            name: its name or ARN.
            payload: JSON text.
            scheduled: whether a schedule invokes it.
            chain: how often each function was invoked in the chain of requests that this invocation continues.
        """
        spec = self.spec(name)
        outcome: Future[Outcome] = Future(self._kernel)
        if self.is_loop(spec, chain):
            self._trace.note(spec.name, "is not invoked: it is in a loop")
            outcome.set(_failed(_RECURSIVE, "Lambda has detected a recursive loop, and stopped this invocation."))
            return outcome
        number = self._numbers[spec.name] = self._numbers.get(spec.name, 0) + 1
        image = self._images[spec.name]
        if spec.name not in self._observed:
            self._observed.add(spec.name)
            self._calls.uses(spec.role, demands_of_invocation(spec))
        actor = self._actor(spec, number, outcome)
        actor.scheduled = scheduled
        actor.chain = _continued(chain, spec.name)
        idle = self._idle.get(spec.name, 0)
        if idle:
            self._idle[spec.name] = idle - 1
        begins = self._kernel.now + (self._weather.latency() if idle else _COLD)
        deadline = begins + spec.timeout * SECOND
        request_id = f"{number:08x}-0000-4000-8000-{self._kernel.entropy.getrandbits(48):012x}"
        context = Context(spec, request_id, deadline, self._kernel)
        self.running[actor.name] = actor
        timer = self._kernel.at(deadline, lambda: self._time_out(actor, spec, outcome))

        def work() -> None:
            if not idle:
                self._kernel.sleep(_COLD)
            handled = self._handle(image, payload, context)
            timer.cancel()
            if actor.alive:
                outcome.set(handled)
                actor.on_death = None
                if self._images[spec.name] is image:
                    self._idle[spec.name] = self._idle.get(spec.name, 0) + 1
                self.running.pop(actor.name, None)
                if actor.has_others() and self._weather.share() < 0.5:
                    self._leave(actor)
                else:
                    actor.kill()

        self._kernel.at(begins if idle else self._kernel.now, lambda: self._begin(actor, work))
        return outcome

    @staticmethod
    def is_loop(spec: FunctionSpec, chain: Mapping[str, int]) -> bool:
        """Test whether Lambda stops a chain of requests before it invokes a function."""
        return chain.get(spec.name, 0) >= _MOST_IN_A_CHAIN and not spec.may_loop

    def invoke_later(
        self,
        name: str,
        payload: str,
        *,
        attempt: int = 0,
        since: int | None = None,
        scheduled: bool = False,
        chain: Mapping[str, int] = NO_CHAIN,
    ) -> None:
        """Invoke a function asynchronously: what fails is tried again, then given to where failures go."""
        spec = self.spec(name)
        asynchronous = self.asynchronous.get(spec.name, AsyncSpec())
        began = self._kernel.now if since is None else since
        outcome = self.invoke(name, payload, scheduled=scheduled, chain=chain)

        def look() -> None:
            if outcome.value().error is None:
                return
            delay = _RETRY_SECONDS[min(attempt, 1)] * SECOND
            too_old = self._kernel.now + delay - began > asynchronous.max_age * SECOND
            if attempt < asynchronous.retries and not too_old:
                again = attempt + 1
                self._kernel.after(
                    delay, lambda: self.invoke_later(name, payload, attempt=again, since=began, chain=chain)
                )
            elif asynchronous.on_failure is not None:
                document = {
                    "requestPayload": json.loads(payload),
                    "responsePayload": json.loads(outcome.value().payload),
                }
                queue = asynchronous.on_failure
                if ":sqs:" not in queue:
                    raise NotSimulatedError(f"the destination {queue} of failed invocations is not simulated")
                if self._calls.needs(spec.name, spec.role, Demand("sqs:SendMessage", queue)):
                    sender = Actor(spec.name, ActorKind.SERVICE)
                    sender.chain = _continued(chain, spec.name)
                    sent = {"QueueUrl": queue, "MessageBody": json.dumps(document)}
                    self._calls.direct("sqs", "SendMessage", sent, sender)

        outcome.then(look)
        if attempt == 0 and since is None and self._weather.happens(Event.EVENT_TWICE, spec.name):
            self._kernel.after(
                self._weather.long(),
                lambda: self.invoke_later(name, payload, since=self._kernel.now, chain=chain),
            )

    def call(self, operation: str, params: Mapping[str, Any], actor: Actor | None) -> Any:
        """The API: ``Invoke``."""
        if operation != "Invoke":
            raise NotSimulatedError(f"lambda:{operation} is not simulated")
        payload = params.get("Payload", b"{}")
        text = payload.decode() if isinstance(payload, bytes | bytearray) else str(payload)
        most = _MOST_LATER_BYTES if params.get("InvocationType") == "Event" else MOST_PAYLOAD_BYTES
        if len(text.encode()) > most:
            raise ServiceError("RequestTooLargeException", f"Request must be smaller than {most} bytes", status=413)
        try:
            json_of(text)
        except ValueError:
            raise ServiceError("InvalidRequestContentException", "Could not parse request body into json") from None
        name, chain = str(params["FunctionName"]), NO_CHAIN if actor is None else actor.chain
        if params.get("InvocationType") == "Event":
            self.invoke_later(name, text, chain=chain)
            return {"StatusCode": 202, "Payload": io.BytesIO(b"")}
        if self.is_loop(self.spec(name), chain):
            raise ServiceError(_RECURSIVE, "Lambda has detected a recursive loop, and stopped this invocation.")
        outcome = self.invoke(name, text, chain=chain)
        answer: Future[dict[str, Any]] = Future(self._kernel)
        outcome.then(lambda: answer.set(_invoked(outcome.value())))
        return answer

    def _actor(self, spec: FunctionSpec, number: int, outcome: Future[Outcome]) -> Actor:
        environment = self._environments.get(spec.name)
        if environment is None:
            environment = self._environments[spec.name] = {**_environment_of(spec), **self.changes(spec.name)}
        image = self._images[spec.name]
        actor = Actor(
            f"{_short(spec.name)}#{number}",
            ActorKind.FUNCTION,
            of=spec.name,
            role=spec.role,
            environment=environment,
            skew=self._weather.skew(),
        )

        def enter() -> None:
            self._switch.to(image)
            self._environment.current = environment

        def died() -> None:
            self.running.pop(actor.name, None)
            self._calls.abandon(actor)
            outcome.set(_failed("Runtime.ExitError", "RequestId: 0 Error: Runtime exited with error: signal: killed"))

        actor.on_enter, actor.on_death = enter, died
        return actor

    def _leave(self, actor: Actor) -> None:
        """Let threads of an ended invocation continue, as they do when the next one thaws their sandbox."""
        self._trace.note(actor.name, "ended; its threads continue")
        self.left.append(actor)
        self._kernel.after(self._weather.long(), actor.kill)

    def _begin(self, actor: Actor, work: Any) -> None:
        if actor.alive:
            self._kernel.spawn(actor, work)

    def _time_out(self, actor: Actor, spec: FunctionSpec, outcome: Future[Outcome]) -> None:
        self._trace.note(actor.name, f"timed out after {spec.timeout} s")
        outcome.set(_failed("Sandbox.Timedout", f"RequestId: 0 Error: Task timed out after {spec.timeout}.00 seconds"))
        actor.kill()

    def _handle(self, image: Image, payload: str, context: Context) -> Outcome:
        try:
            handler = image.start()
            result = handler(json.loads(payload), context)
        except SystemExit as error:
            return _exited(error.code)
        except (KeyboardInterrupt, GeneratorExit, CancelledError, BaseExceptionGroup):
            return _exited(1)
        except NotSimulatedError:
            raise
        except Exception as error:  # noqa: BLE001 - it is the invocation's outcome
            self._note(image.spec, payload, error)
            return _failed(type(error).__name__, str(error)) if _is_text(str(error)) else _exited(1)
        try:
            text = json.dumps(result)
        except (TypeError, ValueError) as error:
            return _failed("Runtime.MarshalError", f"Unable to marshal response: {error}")
        if _SURROGATE in text and not _is_text(json.dumps(result, ensure_ascii=False)):
            return _exited(1)  # the runtime spells it in UTF-8, which does not have half of a pair
        if len(text) > MOST_PAYLOAD_BYTES:
            return _failed(
                "Function.ResponseSizeTooLarge", "Response payload size exceeded maximum allowed payload size"
            )
        return Outcome(text)

    def _note(self, spec: FunctionSpec, payload: str, error: Exception) -> None:
        name, call = type(error).__name__, json.loads(payload)
        if name in _MEANWHILE or not isinstance(call, Mapping) or CallField.SAGA_ID not in call:
            return
        told = " ".join(f"{_short(spec.name)} raised {name}: {error}".split())[:_LONGEST]
        self.raised.setdefault(str(call[CallField.SAGA_ID]), {}).setdefault(str(call.get(CallField.STEP)), told)


def _continued(chain: Mapping[str, int], name: str) -> Mapping[str, int]:
    """The chain of requests that an invocation of a function sends."""
    return {**chain, name: chain.get(name, 0) + 1}


def function_name(name: str) -> str:
    """Name of a function, of its ARN, or of that of its version or alias."""
    return name.partition(":function:")[2].partition(":")[0] or name


def _exited(code: object) -> Outcome:
    return _failed("Runtime.ExitError", f"RequestId: 0 Error: Runtime exited with error: exit status {code}")


def _is_text(message: str) -> bool:
    """True if UTF-8 has a message: the runtime exits when it reports half of a surrogate pair."""
    try:
        message.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _failed(error: str, message: str) -> Outcome:
    document = {"errorMessage": message, "errorType": error, "requestId": "0", "stackTrace": []}
    return Outcome(json.dumps(document), error)


def _invoked(outcome: Outcome) -> dict[str, Any]:
    answer: dict[str, Any] = {"StatusCode": 200, "Payload": io.BytesIO(outcome.payload.encode())}
    return answer if outcome.error is None else {**answer, "FunctionError": "Unhandled"}


def _environment_of(spec: FunctionSpec) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": "simulated",
        "AWS_SECRET_ACCESS_KEY": "simulated",
        "AWS_SESSION_TOKEN": "simulated",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_LAMBDA_FUNCTION_NAME": spec.name,
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(spec.memory),
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "LAMBDA_TASK_ROOT": "/var/task",
        "POWERTOOLS_LOG_LEVEL": "CRITICAL",
        "POWERTOOLS_METRICS_DISABLED": "true",
        "POWERTOOLS_TRACE_DISABLED": "true",
        "TZ": ":UTC",
        "_HANDLER": spec.handler,
        **spec.environment,
    }


@lru_cache(maxsize=4096)
def _short(name: str) -> str:
    """A function's name as a person reads it: without its stack, and what makes its logical id unique."""
    bare = name.partition("-")[2] or name
    return bare[:-8] if len(bare) > 8 and all(letter in "0123456789ABCDEF" for letter in bare[-8:]) else bare
