"""Local AWS with a small system deployed, and the same with one correction left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from constructs_lib.testing import LocalAws

from . import order_system
from . import payout_system as payouts
from .logged import LOGGING_EXAMPLES, local_aws_of, unmasked_lines
from .order_system import OrderSystem
from .payout_system import PayoutSystem
from .support import Deployed, Emulators
from .transfer_system import SPEED, TransferSystem, deployed


@pytest.fixture(autouse=True)
def _logs_are_masked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check every line that the examples' functions logged in a test: masking it changes nothing."""
    yield
    if request.path.stem in LOGGING_EXAMPLES:
        systems = local_aws_of(request.node)
        assert systems, "a test of an example has its local AWS in a fixture"
        assert [leak for aws in systems for leak in unmasked_lines(aws)] == []


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The synthesized target system."""
    # Imported here: the CDK takes seconds, and only some tests need it.
    from .target.stack import synthesize

    return synthesize(tmp_path_factory.mktemp("target") / "cdk.out")


@pytest.fixture(scope="session")
def target_server(assembly: Path) -> Iterator[Deployed]:
    """Corrected local AWS with the target system deployed."""
    with LocalAws() as aws:
        yield Deployed(aws, aws.deploy(assembly)["Target"])


@pytest.fixture
def target(target_server: Deployed) -> Deployed:
    """The same, emptied."""
    target_server.aws.reset()
    return target_server


@pytest.fixture
def emulators(target: Deployed, assembly: Path) -> Iterator[Emulators]:
    """Corrected local AWS, and any number without a correction."""
    with ExitStack() as stack:
        yield Emulators(corrected=target, assembly=assembly, stack=stack)


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
