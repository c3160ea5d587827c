"""HTTP to providers: requests travel, get lost, arrive late, and their answers likewise."""

from __future__ import annotations

import http.client
import io
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock
from urllib.parse import parse_qs, urlsplit

from greenlet import getcurrent

from constructs_lib.testing.simulator.checks.trace import Trace
from constructs_lib.testing.simulator.engine.actors import Actor
from constructs_lib.testing.simulator.engine.kernel import SECOND, Elapsed, Future, Kernel, Task
from constructs_lib.testing.simulator.faults.climate import Trouble
from constructs_lib.testing.simulator.faults.weather import Weather
from constructs_lib.testing.simulator.outside.providers import Provider, ProviderAnswer, ProviderRequest

_DEFAULT_TIMEOUT: Final = 60.0
_NO_CERTIFICATES: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
LONGEST_TRAVEL: Final = 8 * SECOND
"""A request that was sent arrives within this time or never; no provider is declared with a shorter grace."""


class Internet:
    """Everything that functions reach over HTTP.

    Attributes:
        providers: by the beginning of their URLs.
    """

    def __init__(self, kernel: Kernel, weather: Weather, trace: Trace) -> None:
        self.providers: dict[str, Provider] = {}
        self._kernel = kernel
        self._weather = weather
        self._trace = trace

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Let ``http.client`` reach the providers instead of the network, until the context ends."""
        internet = self
        real = http.client.HTTPConnection
        real_request, real_response, real_close = real.request, real.getresponse, real.close

        def request(
            connection: Any, method: str, url: str, body: Any = None, headers: Any = None, **options: Any
        ) -> None:
            if not isinstance(getcurrent(), Task):
                real_request(connection, method, url, body, headers or {}, **options)
                return
            secure = isinstance(connection, http.client.HTTPSConnection)
            port = "" if connection.port in (80, 443) else f":{connection.port}"
            address = f"{'https' if secure else 'http'}://{connection.host}{port}{url}"
            connection.simulated_answer = internet.send(
                method, address, body=body, headers=headers or {}, timeout=connection.timeout
            )

        def getresponse(connection: Any) -> Any:
            answer = connection.__dict__.pop("simulated_answer", None)
            return real_response(connection) if answer is None else _Response(answer)

        def close(connection: Any) -> None:
            connection.__dict__.pop("simulated_answer", None)
            real_close(connection)

        with (
            # Certificates that no code checks take longer to load than a whole saga takes.
            mock.patch.object(ssl, "_create_default_https_context", return_value=_NO_CERTIFICATES),
            mock.patch.object(real, "request", request),
            mock.patch.object(real, "getresponse", getresponse),
            mock.patch.object(real, "close", close),
        ):
            yield

    def send(self, method: str, address: str, *, body: Any, headers: Mapping[str, str], timeout: Any) -> ProviderAnswer:
        """Send a request in the present task, and wait for the answer.

        Raises:
            OSError: if no provider has the address.
        """
        task = getcurrent()
        actor = task.process if isinstance(task, Task) else None
        if not isinstance(actor, Actor):
            raise OSError("only an actor can send a request")
        found = next(
            ((prefix, provider) for prefix, provider in self.providers.items() if address.startswith(prefix)), None
        )
        if found is None:
            raise OSError(f"no provider is simulated at {address}; give the workload one")
        prefix, provider = found
        parts = urlsplit(address.removeprefix(prefix))
        text = body.decode() if isinstance(body, bytes) else body or ""
        asked = ProviderRequest(
            method=method,
            path=parts.path or "/",
            query={name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()},
            headers={name.lower(): str(value) for name, value in headers.items()},
            body=text,
        )
        patience = int((timeout if isinstance(timeout, int | float) else _DEFAULT_TIMEOUT) * SECOND)
        return self._exchange(actor, provider, asked, patience)

    def _exchange(self, actor: Actor, provider: Provider, asked: ProviderRequest, patience: int) -> ProviderAnswer:
        weather, kernel = self._weather, self._kernel
        told = f"{asked.method} {asked.path}"
        trouble = weather.trouble(actor, "http", asked.method)
        if trouble is Trouble.HOLD:
            self._trace.note(actor.name, f"{told} is held")
            kernel.sleep(weather.long())
            trouble = None
        if trouble is Trouble.KILL_BEFORE:
            self._trace.note(actor.name, f"dies before {told}")
            actor.kill()
        if trouble in (Trouble.LOSE_REQUEST, Trouble.CONFLICT):
            kernel.sleep(min(patience, weather.latency()))
            self._trace.note(actor.name, f"{told} -> request lost")
            raise ConnectionResetError("the connection was reset")
        if trouble is Trouble.THROTTLE:
            kernel.sleep(min(patience, weather.latency()))
            self._trace.note(actor.name, f"{told} -> 429")
            return ProviderAnswer(status=429, document={"error": {"code": "rate_limited"}})
        if trouble is Trouble.ERROR_BEFORE:
            kernel.sleep(min(patience, weather.latency()))
            self._trace.note(actor.name, f"{told} -> 500")
            return ProviderAnswer(status=500, document={"error": {"code": "internal"}})
        travels = min(weather.latency(), LONGEST_TRAVEL)
        if trouble is Trouble.LATE_REQUEST:
            travels = int(weather.share() * LONGEST_TRAVEL)
        answer: Future[ProviderAnswer] = Future(kernel)
        # The request is on its way: it arrives whether its sender is still there or not.
        kernel.after(travels, lambda: self._handle(actor, provider, asked, answer))
        if trouble is Trouble.LATE_REQUEST:
            patience = int(weather.share() * min(patience, travels))
        try:
            found = answer.wait(patience)
        except Elapsed:
            self._trace.note(actor.name, f"{told} -> no answer in time")
            raise TimeoutError("timed out") from None
        if trouble is Trouble.KILL_AFTER:
            self._trace.note(actor.name, f"dies after {told}")
            actor.kill()
        if trouble in (Trouble.LOSE_ANSWER, Trouble.ERROR_AFTER):
            self._trace.note(actor.name, f"{told} -> answer lost")
            raise ConnectionResetError("the connection was reset")
        return found

    def _handle(self, actor: Actor, provider: Provider, asked: ProviderRequest, answer: Future[ProviderAnswer]) -> None:
        handled = provider.handle(asked)

        def done(found: ProviderAnswer) -> None:
            self._trace.note(actor.name, f"{asked.method} {asked.path} {asked.body[:80]} -> {found.status}")
            answer.set(found)

        if isinstance(handled, Future):
            handled.then(lambda: done(handled.value()))
        else:
            done(handled)


class _Response(io.BytesIO):
    """``http.client.HTTPResponse`` of a provider's answer."""

    def __init__(self, answer: ProviderAnswer) -> None:
        super().__init__(json.dumps(answer.document).encode())
        self.status = self.code = answer.status
        self.reason = ""
        self.url = ""
        self.headers = self.msg = http.client.HTTPMessage()
        self.headers["content-type"] = "application/json"

    def info(self) -> http.client.HTTPMessage:
        """The headers, as ``urllib`` asks for them."""
        return self.headers

    def geturl(self) -> str:
        """The address, which ``urllib`` sets."""
        return self.url

    def getcode(self) -> int:
        """The status."""
        return self.status

    def getheader(self, name: str, default: Any = None) -> Any:
        """A header."""
        return self.headers.get(name, default)

    def getheaders(self) -> list[tuple[str, str]]:
        """Every header."""
        return list(self.headers.items())
