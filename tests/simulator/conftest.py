"""Examples, deployed once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from constructs_lib.testing.simulator import Deployment

from .examples import assembly

Deployed = Callable[[str], Deployment]


@pytest.fixture(scope="session")
def deployed() -> Iterator[Deployed]:
    """An example's deployment, by its name."""
    made: dict[str, Deployment] = {}

    def deploy(name: str) -> Deployment:
        if name not in made:
            made[name] = Deployment.of_assembly(assembly(name))
        return made[name]

    yield deploy
    for deployment in made.values():
        deployment.close()
