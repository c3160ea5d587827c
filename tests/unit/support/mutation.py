"""Removing one condition from the code under test."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from saga_runtime import LedgerBuilder
from saga_runtime.callbacks.receipt import Subject
from saga_runtime.callbacks.saga_writes import LogPlace, SagaRecord
from saga_runtime.callbacks.writes import Waiting
from saga_runtime.saga_log.external_rows import Holder
from saga_runtime.steps.external import ExternalStep, ProviderStep
from saga_runtime.steps.external_compensation import ExternalCompensation

Scenario = Callable[..., None]
_CLASSES = (
    LedgerBuilder,
    Holder,
    ExternalStep,
    ProviderStep,
    ExternalCompensation,
    Subject,
    LogPlace,
    SagaRecord,
    Waiting,
)
"""Classes whose methods are mutated; a method's module is the mutant's owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of a constant's text or of a function's source, and the history that must notice it.

    Attributes:
        owner: the module, or the class, that has the target.
    """

    name: str
    owner: Any
    target: str
    old: str
    new: str
    kills: Scenario


def mutate(monkeypatch: pytest.MonkeyPatch, mutant: Mutant) -> None:
    """Put the mutant in the place of the original, wherever that was imported to."""
    holder = next((found for found in (mutant.owner, *_CLASSES) if mutant.target in vars(found)), mutant.owner)
    original = getattr(holder, mutant.target)
    if isinstance(original, str):
        assert original.count(mutant.old) == 1
        monkeypatch.setattr(holder, mutant.target, original.replace(mutant.old, mutant.new))
        return
    source = textwrap.dedent(inspect.getsource(original))
    assert source.count(mutant.old) == 1, f"{mutant.target} has changed; mend the mutant {mutant.name!r}"
    namespace: dict[str, Any] = {}
    exec(
        compile(source.replace(mutant.old, mutant.new), f"<{mutant.name}>", "exec"),
        _globals_of(mutant.owner),
        namespace,
    )
    for module in [holder, *_users_of(original, mutant.target)]:
        monkeypatch.setattr(module, mutant.target, namespace[mutant.target])


def _globals_of(owner: Any) -> dict[str, Any]:
    """What the code of a module, or of a class, sees."""
    return vars(sys.modules[owner.__module__] if inspect.isclass(owner) else owner)


def _users_of(original: object, name: str) -> list[Any]:
    """Modules that imported it by name."""
    ours = ("saga_runtime", "handlers", "tests.unit.support")
    return [
        module
        for key, module in list(sys.modules.items())
        if key.startswith(ours) and vars(module).get(name) is original
    ]
