"""An operation that changes between a saga and a direct operation: each request still has its effect once.

Releases replace each other while sagas are in progress, and are both alive at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from constructs_lib.testing import ApiUser, Fault, HttpResponse, LocalAws
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, PREFER_HEADER, PREFERENCE_APPLIED_HEADER, REPLAYED_HEADER

from .support import eventually
from .switching.stack import NAME, Release, synthesize

LONG: Final = 3_600
REPLAYED: Final = REPLAYED_HEADER.lower()


@dataclass
class Switching:
    """The stack, in the release that was deployed last."""

    aws: LocalAws
    assemblies: Mapping[Release, Path]
    outputs: dict[str, str] = field(default_factory=dict)
    user: ApiUser | None = None

    def deploy(self, release: Release) -> None:
        """Deploy a release."""
        self.outputs = self.aws.deploy(self.assemblies[release])[NAME]

    def send(self, key: str, kind: Release, *, prefer: str | None = None) -> HttpResponse:
        """Send a request to the API of a kind until it is not answered 5xx."""
        api = self.outputs[f"{kind.capitalize()}ApiId"]
        if self.user is None:
            apis = [value for name, value in self.outputs.items() if name.endswith("ApiId")]
            self.user = self.aws.create_api_user("payer", api_id=apis)
        user, url = self.user, f"{self.aws.api_url(api, 'v1')}/pay"
        headers = {IDEMPOTENCY_KEY_HEADER: key, **({PREFER_HEADER: prefer} if prefer else {})}

        def answered() -> HttpResponse | None:
            answer = user.request("POST", url, headers=headers, body={"counter": key})
            return None if answer.status >= 500 else answer

        return eventually(answered)

    def settle(self, key: str, kind: Release) -> HttpResponse:
        """Send a request until its response is a replay."""

        def settled() -> HttpResponse | None:
            answer = self.send(key, kind)
            return answer if REPLAYED in answer.headers else None

        return eventually(settled)

    def executions(self) -> list[str]:
        """Names of all executions of the forward machine."""
        found = self.aws.client("stepfunctions").list_executions(stateMachineArn=self.outputs["MachineArn"])
        return [execution["name"] for execution in found["executions"]]

    def effects(self) -> dict[str, int]:
        """Count the effects of each key."""
        items = self.aws.client("dynamodb").scan(TableName=self.outputs["CounterTableName"])["Items"]
        return {item["id"]["S"].removesuffix("/Pay"): int(item["n"]["N"]) for item in items}

    def hold_sagas(self) -> None:
        """Keep every saga before its step until faults are cleared."""
        self.aws.faults.plan(
            Fault(function=f"states:{NAME}/Saga/StateMachine", call="lambda:Invoke", action="delay", seconds=LONG)
        )


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Switching]:
    folder = tmp_path_factory.mktemp("switching")
    assemblies = {release: synthesize(folder / release, release) for release in Release}
    with LocalAws(concurrency=3) as aws:
        yield Switching(aws, assemblies)


@pytest.fixture
def switching(running: Switching) -> Iterator[Switching]:
    """The operation as a saga's, emptied."""
    running.user = None
    running.deploy(Release.SAGA)
    running.aws.reset()
    yield running
    running.aws.faults.clear()


def test_key_of_a_running_saga_moves_nothing_at_the_direct_release(switching: Switching) -> None:
    switching.hold_sagas()
    saga_id = switching.send("k", Release.SAGA).json()["saga_id"]

    switching.deploy(Release.DIRECT)
    answer = switching.send("k", Release.DIRECT)

    assert (answer.status, answer.json()["saga_id"]) == (409, saga_id)
    assert switching.effects() == {}
    switching.aws.faults.clear()
    assert switching.settle("k", Release.DIRECT).json()["saga_id"] == saga_id
    assert switching.effects() == {"k": 1}


def test_either_release_replays_what_the_other_recorded(switching: Switching) -> None:
    of_saga = switching.settle("s", Release.SAGA)

    switching.deploy(Release.DIRECT)
    again = switching.send("s", Release.DIRECT)
    of_direct = switching.send("d", Release.DIRECT)
    switching.deploy(Release.SAGA)
    back = switching.send("d", Release.SAGA)

    assert (again.status, again.body) == (200, of_saga.body)
    assert (of_direct.status, REPLAYED in of_direct.headers) == (200, False)
    assert (back.status, back.body, back.headers[REPLAYED]) == (200, of_direct.body, "true")
    assert switching.effects() == {"s": 1, "d": 1}
    assert len(switching.executions()) == 1


def test_both_releases_at_once_have_one_effect_per_key(switching: Switching) -> None:
    switching.deploy(Release.BOTH)
    switching.send("first", Release.SAGA)
    kinds = (Release.SAGA, Release.DIRECT)
    keys = [f"k{number}" for number in range(6)]
    sends = [(key, kind) for key in keys for kind in kinds for _ in range(2)]

    with ThreadPoolExecutor(max_workers=6) as pool:
        answers = list(pool.map(lambda sent: switching.send(*sent), sends))
    assert {answer.status for answer in answers} <= {200, 202, 409}
    finals = {key: {switching.settle(key, kind).body for kind in kinds} for key in keys}

    assert {len(bodies) for bodies in finals.values()} == {1}
    assert {key: switching.effects()[key] for key in keys} == dict.fromkeys(keys, 1)
    given = [(key, answer) for (key, _), answer in zip(sends, answers, strict=True) if answer.status == 200]
    assert all({answer.body} == finals[key] for key, answer in given)


def test_client_that_prefers_to_wait_gets_the_result_of_its_first_request(switching: Switching) -> None:
    def waited() -> HttpResponse | None:
        key = f"w{len(switching.executions())}"
        answer = switching.send(key, Release.SAGA, prefer="wait=20")
        return answer if answer.status == 200 else None

    answer = eventually(waited)

    assert REPLAYED not in answer.headers
    assert answer.headers[PREFERENCE_APPLIED_HEADER.lower()] == "wait=20"
    assert answer.json()["status"] == "COMPLETED"
    assert set(switching.effects().values()) == {1}
