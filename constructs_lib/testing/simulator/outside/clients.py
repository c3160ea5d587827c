"""Clients: they send a request under a key until they have its settled answer; some do not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from constructs_lib.testing.simulator.aws.gateway import KEY_HEADER, ConnectionLostError, Response
from constructs_lib.testing.simulator.checks.requests import FINAL
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.faults.climate import Event
from constructs_lib.testing.simulator.workload import Intent
from constructs_lib.testing.simulator.world import World
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, PREFER_HEADER, REPLAYED_HEADER, RecordStatus

_FIRST_PAUSE: Final = SECOND
_LONGEST_PAUSE: Final = 1_800 * SECOND
_PATIENCE: Final = 400
"""Requests that a client sends at most."""


@dataclass(slots=True, kw_only=True)
class Fate:
    """Fate of an intent, as its client knows it.

    Attributes:
        intent: what the client wants.
        key: the key that it was sent under.
        settled: every settled answer, as status and body.
        refused: statuses of answers after which nothing is recorded.
        refused_again: those of answers after one that named a saga.
        accepted: ids of sagas that answers named.
        misused: statuses of the answers to another body under the same key.
        seen: documents of its saga's status.
        taken_back: settled answers, each with one to a later request that states that its saga is in progress.
        last: status and body of the last response to its request; None: it received none.
        done: whether the client sends nothing any more.
        gave_up: whether it has no settled answer.
    """

    intent: Intent
    key: str
    settled: list[tuple[int, str]] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    refused_again: list[int] = field(default_factory=list)
    accepted: set[str] = field(default_factory=set)
    misused: list[int] = field(default_factory=list)
    seen: list[Mapping[str, Any]] = field(default_factory=list)
    taken_back: list[tuple[tuple[int, str], Response]] = field(default_factory=list)
    last: tuple[int, str] | None = None
    done: bool = False
    gave_up: bool = False


class Client:
    """One client with one intent.

    Args:
        world: where it sends its requests.
        name: for traces.
        fate: what it learns.
    """

    def __init__(self, world: World, name: str, fate: Fate) -> None:
        self._world = world
        self._actor = world.actor(name)
        self._fate = fate
        self._share = world.weather.share

    def begin(self, after: int) -> None:
        """Send the first request after some microseconds."""
        self._world.kernel.after(after, lambda: self._spawn(self._insist))

    def _spawn(self, work: Any) -> None:
        self._world.kernel.spawn(self._actor, work)

    def _insist(self) -> None:
        """Send the request until it is answered."""
        fate, weather = self._fate, self._world.weather
        pause = _FIRST_PAUSE
        gives_up_after = _PATIENCE
        if weather.happens(Event.CLIENT_GIVES_UP, "client"):
            gives_up_after = 1 + int(self._share() * 3)
        if weather.happens(Event.CLIENT_REPEATS, "client"):
            self._spawn(self._repeat)
        for number in range(gives_up_after):
            if number and fate.intent.other_body is not None and weather.happens(Event.CLIENT_CHANGES, "client"):
                self._misuse(fate.intent.other_body)
            if self._is_over(self._post(fate.intent.body)):
                break
            self._world.kernel.sleep(int(pause * (0.5 + self._share())))
            pause = min(pause * 2, _LONGEST_PAUSE)
            if fate.accepted and self._share() < 0.2:
                self._look()
        else:
            fate.gave_up = True
        fate.done = True
        if fate.settled and self._share() < 0.3:
            self._world.kernel.sleep(int(self._share() * 60 * SECOND))
            self._post(fate.intent.body)

    def _repeat(self) -> None:
        """Send the same request at the same time as the one that insists."""
        for _ in range(1 + int(self._share() * 4)):
            self._world.kernel.sleep(int(self._share() ** 3 * 120 * SECOND))
            self._post(self._fate.intent.body)

    def _misuse(self, body: Mapping[str, Any]) -> None:
        response = self._send("POST", self._path, body)
        if response is not None:
            self._fate.misused.append(response.status)

    def _post(self, body: Mapping[str, Any]) -> Response | None:
        fate = self._fate
        settled = fate.settled[-1] if fate.settled else None
        response = self._send("POST", self._path, body)
        if response is None:
            return None
        fate.last = response.status, response.body
        replayed = response.headers.get(REPLAYED_HEADER.lower()) == "true"
        if replayed or is_first_of_direct(response.status, response.body):
            fate.settled.append((response.status, response.body))
        elif response.status in (400, 403, 404, 413, 422):
            fate.refused.append(response.status)
            fate.refused_again += [response.status] if fate.accepted else []
        elif response.status in (202, 409):
            saga_id = response.json().get("saga_id")
            if saga_id is not None:
                fate.accepted.add(saga_id)
                fate.taken_back += [(settled, response)] if settled is not None else []
        return response

    def _look(self) -> None:
        """Query the saga, as a client may between its requests."""
        response = self._send("GET", f"{self._path}/{min(self._fate.accepted)}", None)
        if response is not None and response.status == 200:
            self._fate.seen.append(response.json())

    @property
    def _path(self) -> str:
        return self._world.gateway.path_of(self._fate.intent.operation, self._fate.intent.stack)

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> Response | None:
        fate = self._fate
        headers = {"content-type": "application/json"}
        if (api_key := self._world.gateway.key_of(fate.intent.operation, fate.intent.stack)) is not None:
            headers[KEY_HEADER] = api_key
        if body is not None:
            headers[IDEMPOTENCY_KEY_HEADER] = fate.key
            if fate.intent.wait:
                headers[PREFER_HEADER] = f"wait={fate.intent.wait}"
        try:
            return self._world.gateway.send(
                self._actor,
                method,
                path,
                headers=headers,
                body="" if body is None else json.dumps(body),
                user=fate.intent.user,
                stack=fate.intent.stack,
            )
        except ConnectionLostError:
            return None

    def _is_over(self, response: Response | None) -> bool:
        """Test whether an answer leaves nothing to ask."""
        if response is None:
            return False
        if response.headers.get(REPLAYED_HEADER.lower()) == "true":
            return True
        return response.status in FINAL


def is_first_of_direct(status: int, body: str) -> bool:
    """True of the first response of a direct operation: final, though it is not replayed."""
    if status == 200:
        return bool(json.loads(body).get("status") == RecordStatus.COMPLETED)
    if not 400 <= status < 500 or not body:
        return False
    return bool(json.loads(body).get("type") == "urn:cdk-sagas:problem:saga-refused")
