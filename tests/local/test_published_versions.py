"""An alias is turned back, starts a saga that was never started, goes, and comes again: each saga pays once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from constructs_lib import Versions
from constructs_lib.testing import Every, Fault, LocalAws

from .paying import Paying
from .published.stack import NAME, synthesize
from .reconcilers import reconciling

SPEED: Final = 8.0
FIRST: Final = {"Pay": 1, "Fee": 1}
SECOND: Final = {**FIRST, "Thank": 1}


class Published(Paying):
    """The stack, in the release that was deployed last."""

    stack = NAME

    def paid(self, key: str) -> dict[str, int]:
        """Send a request until it is settled: the number of its effects, by step."""
        assert self.settle(key, {"counter": key}).status == 200
        effects = {tuple(name.split("/")): times for name, times in self.effects().items()}
        return {step: times for (counter, step), times in effects.items() if counter == key}

    def lose_the_start_of(self, key: str) -> None:
        """Reserve a request whose saga is not started."""
        gatekeeper = f"{NAME}/Api/Gatekeeper/pay/Function"
        lost = Fault(function=gatekeeper, call="states:StartExecution", action="drop", on=Every(), attempts="all")
        self.aws.faults.plan(lost)
        self.post(key, {"counter": key})
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
    assert published.paid("before") == FIRST

    published.deploy("second")
    assert published.paid("after") == SECOND

    published.turn_to(1)
    assert published.paid("back") == FIRST
    published.lose_the_start_of("lost")
    with reconciling(published.aws, published.outputs):
        assert published.paid("lost") == FIRST

    published.turn_to(2)
    assert published.paid("again") == SECOND

    published.lose_the_start_of("late")
    published.deploy("without")
    with reconciling(published.aws, published.outputs):
        assert published.paid("late") == SECOND
    assert published.paid("without") == SECOND

    published.deploy("second")  # its versions of before are still there
    assert published.paid("published") == SECOND
