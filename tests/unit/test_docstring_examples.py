"""The examples in the runtime's docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import saga_runtime
from tests.for_each import for_each

MODULES = [module.name for module in pkgutil.walk_packages(saga_runtime.__path__, "saga_runtime.")]
WITH_EXAMPLES = {
    "saga_runtime.steps.atomic",
    "saga_runtime.steps.atomic_compensation",
    "saga_runtime.ledger.builder",
    "saga_runtime.ledger.holds",
    "saga_runtime.money",
}


@for_each(MODULES)
def test_examples_have_the_shown_results(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)

    assert result.failed == 0
    assert result.attempted > 0 or name not in WITH_EXAMPLES
