"""Local AWS with a small system deployed, and the same with one correction left out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from constructs_lib.testing import LocalAws

from . import order_system
from . import payout_system as payouts
from .logged import LOGGING_EXAMPLES, OF_ONE_RUN, local_aws_of, unmasked_lines
from .order_system import OrderSystem
from .payout_system import PayoutSystem
from .support import Deployed, Emulators
from .transfer_system import SPEED, TransferSystem, deployed

_IS_LAST: Final = pytest.StashKey[bool]()
"""Whether a test is the last one of its file."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Note which test is the last one of its file."""
    item.stash[_IS_LAST] = nextitem is None or nextitem.path != item.path


@pytest.fixture(autouse=True)
def _logs_are_masked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check every line that the examples' functions logged in a test: masking it changes nothing."""
    yield
    file = request.path.stem
    if file in LOGGING_EXAMPLES and (file not in OF_ONE_RUN or request.node.stash[_IS_LAST]):
        systems = local_aws_of(request.node)
        assert systems, "a test of an example has its local AWS in a fixture"
        assert [leak for aws in systems for leak in unmasked_lines(aws)] == []


@pytest.fixture(scope="session")
def synthesized(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Returns the target system, synthesized when it is first asked for."""

    @functools.cache
    def assembly() -> Path:
        # Imported here: the CDK takes seconds, and only some tests need it.
        from .target.stack import synthesize

        return synthesize(tmp_path_factory.mktemp("target") / "cdk.out")

    return assembly


@pytest.fixture(scope="session")
def assembly(synthesized: Callable[[], Path]) -> Path:
    """The synthesized target system."""
    return synthesized()


@pytest.fixture(scope="session")
def every_emulator(synthesized: Callable[[], Path]) -> Iterator[Emulators]:
    """Corrected local AWS, and any number without some corrections, for the target system."""
    with ExitStack() as stack:
        corrected = Deployed(stack.enter_context(LocalAws()), synthesized)
        yield Emulators(corrected=corrected, assembly=synthesized, stack=stack)


@pytest.fixture
def emulators(every_emulator: Emulators) -> Emulators:
    """The same, emptied."""
    every_emulator.begin_test()
    every_emulator.corrected.aws.reset()
    return every_emulator


@pytest.fixture
def target(emulators: Emulators) -> Deployed:
    """Corrected local AWS with the target system deployed, emptied."""
    assert emulators.corrected.outputs
    return emulators.corrected


@pytest.fixture(scope="session")
def transfer_systems() -> Iterator[dict[str, TransferSystem]]:
    """The funds transfer and its variant, by stack name. Tests empty them first."""
    with deployed(speed=SPEED) as both:
        yield both


@pytest.fixture(scope="session")
def order_systems() -> Iterator[dict[str, OrderSystem]]:
    """The orders and their variant, by stack name. Tests empty them first."""
    with order_system.deployed() as both:
        yield both


@pytest.fixture(scope="session")
def payout_system() -> Iterator[PayoutSystem]:
    """The agentic payout. Tests empty it first."""
    with payouts.deployed() as system:
        yield system
