"""The provider of `FakeProvider`, inside a simulation: the same paths, keys and books, in virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.testing.provider_audit import ProviderEffect
from constructs_lib.testing.providers.books import Answer, problem
from constructs_lib.testing.providers.plain import (
    ActionKeeper,
    PlainOperation,
    ProviderAction,
    action_of,
    effects_of,
    operations_of,
)
from constructs_lib.testing.simulator.aws.gateway import ConnectionLostError
from constructs_lib.testing.simulator.engine.kernel import SECOND, Future
from constructs_lib.testing.simulator.faults.climate import Event
from constructs_lib.testing.simulator.outside.providers import ProviderAnswer, ProviderRequest

if TYPE_CHECKING:
    from constructs_lib.testing.simulator.world import World

_DELAYS: Final = (10, 60, 600, 3_600, 6 * 3_600, 24 * 3_600)
"""Seconds between two deliveries of a report that was not accepted."""
_LATEST: Final = 86_400 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A webhook that a provider sends after it has acted.

    Attributes:
        url: the webhook's, as an output of the stack has it.
        body: its text, the same in every delivery.
        sign: makes its headers of the epoch seconds at which it is sent.
    """

    url: str
    body: str
    sign: Callable[[int], Mapping[str, str]]


class SimulatedProvider:
    """A provider of a simulated stack, as ``FakeProvider`` is one on local AWS.

    It does whatever it is asked for under a new key, sometimes late; what it did is in its books. Requests and answers
    are lost as any others. Reports come after seconds to an hour, in some runs at once, a day late, twice, or never.

    Example:
        ```python
        def providers(self, world: World, random: Random) -> Mapping[str, Provider]:
            self.gateway = SimulatedProvider(world, {"charge": "/charges", "refund": "/refunds"})
            return {"https://gateway.example": self.gateway}
        ```

    Args:
        world: its world.
        operations: by name, the path to which a request is posted.
        idempotent_for: seconds that a key is remembered; 0: it has no keys.
        refuses: whether a request is refused (402), by operation and body; by default every one is accepted.
        reports: makes the report of an action; None: it sends no reports.

    Raises:
        ValueError: if a name or a path is not one.
    """

    def __init__(
        self,
        world: World,
        operations: Mapping[str, str],
        *,
        idempotent_for: float = 86_400.0,
        refuses: Callable[[str, Mapping[str, Any]], bool] | None = None,
        reports: Callable[[ProviderAction], Report | None] | None = None,
    ) -> None:
        self._operations = operations_of(operations)
        self._name = next(iter(operations))
        self._world = world
        self._refuses, self._reports = refuses, reports
        window = int(idempotent_for * 1_000)
        self._keeper = ActionKeeper(Path(":memory:"), window_ms=window, now_ms=lambda: world.kernel.now // 1_000)

    def handle(self, request: ProviderRequest) -> ProviderAnswer | Future[ProviderAnswer]:
        """Act, refuse, or look up."""
        operation = next((one for one in self._operations if one.serves(request.method, request.path)), None)
        if operation is None:
            return _sent(problem(404, "unknown", f"there is no {request.method} {request.path}"))
        if not operation.acts:
            key = request.query.get("key", "")
            return _sent(self._keeper.find(operation.name, key) if key else _invalid("send the key to look for"))
        key, body = request.headers.get("idempotency-key", "").strip(), json.loads(request.body or "{}")
        wrong = operation.wrong(body) if key else "a request that acts needs an Idempotency-Key"
        if wrong:
            return _sent(_invalid(wrong))
        known = self._keeper.claim(f"{operation} {request.path}", key, body)
        if known is not None:
            return _sent(known)
        if not self._world.weather.happens(Event.PROVIDER_LATE, self._name):
            return _sent(self._act(operation, key, request.path, body))
        later: Future[ProviderAnswer] = Future(self._world.kernel)
        self._world.kernel.after(
            self._world.weather.travel(), lambda: later.set(_sent(self._act(operation, key, request.path, body)))
        )
        return later

    def actions(self, operation: str | None = None) -> list[ProviderAction]:
        """Return what it did, in order. None: all operations."""
        return [one for one in self._keeper.actions() if operation in (None, one.operation)]

    def effects(self, amount: Callable[[Mapping[str, Any]], int] | None = None) -> list[ProviderEffect]:
        """Return what it did, for `audit_provider`; ``amount`` as of ``FakeProvider.effects``."""
        return effects_of(self.actions(), amount)

    def _act(self, operation: PlainOperation, key: str, path: str, body: Mapping[str, Any]) -> Answer:
        refuse = self._refuses is not None and self._refuses(operation.name, body)
        answer = self._keeper.act(operation.name, key, path, body, refuse=refuse)
        report = self._reports(action_of(answer.document)) if self._reports is not None and not refuse else None
        if report is not None:
            self._send(report)
        return answer

    def _send(self, report: Report) -> None:
        weather, kernel = self._world.weather, self._world.kernel
        if weather.happens(Event.PROVIDER_NEVER, self._name):
            return
        wait = 0 if weather.happens(Event.PROVIDER_EARLY, self._name) else weather.long()
        if weather.happens(Event.PROVIDER_LATE, self._name):
            wait += int(weather.share() * _LATEST)
        for _ in range(2 if weather.happens(Event.PROVIDER_TWICE, self._name) else 1):
            kernel.after(wait, lambda: self._spawn(report))
            wait += weather.long()

    def _spawn(self, report: Report) -> None:
        self._world.kernel.spawn(self._world.actor(self._name), lambda: self._deliver(report))

    def _deliver(self, report: Report) -> None:
        """Post a report until it is accepted."""
        world = self._world
        api, path = world.gateway.behind(report.url)
        for delay in _DELAYS:
            headers = {"Content-Type": "application/json", **report.sign(world.kernel.now // SECOND)}
            try:
                actor = world.actor(self._name)
                answer = world.gateway.send(actor, "POST", path, headers=headers, body=report.body, api=api)
                if 200 <= answer.status < 300:
                    return
            except ConnectionLostError:
                pass
            world.kernel.sleep(delay * SECOND)


def _invalid(text: str) -> Answer:
    return problem(400, "invalid", text)


def _sent(answer: Answer) -> ProviderAnswer:
    return ProviderAnswer(status=answer.status, document=dict(answer.document))
