"""One jsii process for all tests of this folder: the first import costs seconds, each further stack a fraction."""

from __future__ import annotations

import os
import sys
from itertools import count
from pathlib import Path

import pytest

# jsii starts the first `node` on the PATH: the pinned one next to this interpreter, not the one of the shell.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
os.environ.setdefault("JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION", "1")

from aws_cdk import App, Environment, Stack  # after the PATH: importing starts node

from tests.constructs.support.cloud import Cloud  # likewise
from tests.constructs.support.factories import AppFactory, StackFactory, context  # likewise
from tests.constructs.support.shipped import Shipped  # likewise
from tests.local.kinds.stack import KindsStack  # likewise


@pytest.fixture(scope="session")
def new_app(tmp_path_factory: pytest.TempPathFactory) -> AppFactory:
    folder = tmp_path_factory.mktemp("assemblies")
    numbers = count()
    return lambda: App(outdir=str(folder / str(next(numbers))), context=context(), analytics_reporting=False)


@pytest.fixture
def new_stack(new_app: AppFactory) -> StackFactory:
    return lambda: Stack(new_app(), "Test")


@pytest.fixture
def stack(new_stack: StackFactory) -> Stack:
    return new_stack()


@pytest.fixture
def regional_stack(new_app: AppFactory) -> Stack:
    """A stack that knows its region: a table with a customer's key needs one."""
    return Stack(new_app(), "Test", env=Environment(account="111111111111", region="eu-west-1"))


@pytest.fixture(scope="session")
def shipped(new_app: AppFactory) -> Shipped:
    return Shipped(new_app)


@pytest.fixture(scope="session")
def reference_stack(shipped: Shipped) -> Stack:
    return shipped.stack("funds transfer")


@pytest.fixture(scope="session")
def reference(shipped: Shipped) -> Cloud:
    return shipped.cloud("funds transfer")


@pytest.fixture(scope="session")
def kinds_stack(new_app: AppFactory) -> KindsStack:
    """Sagas with every kind of step."""
    return KindsStack(new_app(), "Kinds")


@pytest.fixture(scope="session")
def kinds(kinds_stack: KindsStack) -> Cloud:
    return Cloud(kinds_stack)
