"""An alias is turned back, a saga that was never started is started by it, and an alias goes: each pays once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from constructs_lib import Versions
from constructs_lib.testing import ApiUser, Every, Fault, HttpResponse, LocalAws
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, REPLAYED_HEADER

from .published.stack import FUNCTION_SECONDS, NAME, synthesize
from .reconcilers import prepare_reconciler, reconciling
from .support import eventually

SPEED: Final = 8.0
FIRST: Final = {"Pay": 1, "Fee": 1}
SECOND: Final = {**FIRST, "Thank": 1}


@dataclass
class Published:
    """The stack, in the release that was deployed last."""

    aws: LocalAws
    assemblies: Mapping[str, Path]
    outputs: dict[str, str] = field(default_factory=dict)
    user: ApiUser | None = None

    def deploy(self, release: str) -> None:
        """Deploy a release of the stack without a running reconciler."""
        self.outputs = self.aws.deploy(self.assemblies[release])[NAME]
        gatekeeper = self.aws.resolve_function(f"{NAME}/Api/Gatekeeper/pay/Function")
        self.aws.client("lambda").update_function_configuration(FunctionName=gatekeeper, Timeout=FUNCTION_SECONDS)
        prepare_reconciler(self.aws, self.outputs, seconds=FUNCTION_SECONDS, reconciled=False)

    def post(self, key: str) -> HttpResponse:
        """Send a request until the gateway does not give up on it."""
        if self.user is None:
            self.user = self.aws.create_api_user("payer", api_id=self.outputs["ApiId"])
        user, url = self.user, f"{self.aws.api_url(self.outputs['ApiId'], self.outputs['ApiStage'])}/pay"

        def answered() -> HttpResponse | None:
            answer = user.request("POST", url, headers={IDEMPOTENCY_KEY_HEADER: key}, body={"counter": key})
            return None if answer.status >= 500 else answer

        return eventually(answered)

    def settle(self, key: str) -> dict[str, int]:
        """Send a request until it is settled: the number of its effects."""

        def settled() -> HttpResponse | None:
            answer = self.post(key)
            return answer if REPLAYED_HEADER.lower() in answer.headers else None

        assert eventually(settled).status == 200
        items = self.aws.client("dynamodb").scan(TableName=self.outputs["CounterTableName"])["Items"]
        effects = {tuple(item["id"]["S"].split("/")): int(item["n"]["N"]) for item in items}
        return {step: times for (counter, step), times in effects.items() if counter == key}

    def lose_the_start_of(self, key: str) -> None:
        """Reserve a request whose saga is not started."""
        gatekeeper = f"{NAME}/Api/Gatekeeper/pay/Function"
        lost = Fault(function=gatekeeper, call="states:StartExecution", action="drop", on=Every(), attempts="all")
        self.aws.faults.plan(lost)
        self.post(key)
        self.aws.faults.clear()

    def turn_to(self, number: int) -> None:
        """Turn the alias to a version."""
        machine = self.outputs["MachineArn"]
        route: Any = {"stateMachineVersionArn": f"{machine}:{number}", "weight": 100}
        self.aws.client("stepfunctions").update_state_machine_alias(
            stateMachineAliasArn=f"{machine}:live", routingConfiguration=[route]
        )


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    folder = tmp_path_factory.mktemp("published")
    assemblies = {
        "first": synthesize(folder / "first", release=1, versions=Versions()),
        "second": synthesize(folder / "second", release=2, versions=Versions()),
        "without": synthesize(folder / "without", release=2, versions=None),
    }
    with LocalAws(speed=SPEED, concurrency=3) as aws:
        yield Published(aws, assemblies)


def test_sagas_run_the_version_that_the_alias_points_to(published: Published) -> None:
    published.deploy("first")
    assert published.settle("before") == FIRST

    published.deploy("second")
    assert published.settle("after") == SECOND

    published.turn_to(1)
    assert published.settle("back") == FIRST
    published.lose_the_start_of("lost")
    with reconciling(published.aws, published.outputs):
        assert published.settle("lost") == FIRST

    published.turn_to(2)
    assert published.settle("again") == SECOND

    published.lose_the_start_of("late")
    published.deploy("without")
    with reconciling(published.aws, published.outputs):
        assert published.settle("late") == SECOND
    assert published.settle("without") == SECOND
