"""Instances of local AWS that are open, and what the pytest plugin explains of them.

Imports none of its package: pytest loads the plugin in every run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

if TYPE_CHECKING:
    from constructs_lib.testing.local_aws import LocalAws


class InUse:
    """Instances that are open, those that the running test used, and those that its error closed."""

    def __init__(self) -> None:
        self._watched = False
        self._open: WeakSet[LocalAws] = WeakSet()
        self._used: WeakSet[LocalAws] = WeakSet()
        self._ended: list[tuple[BaseException, str]] = []

    def begin_test(self) -> None:
        """Forget what the test before used. From now on, instances that an error closes are explained."""
        self._watched = True
        self._used.clear()
        self._ended.clear()

    def use(self, aws: LocalAws) -> None:
        """Register an instance as open, and used by the running test."""
        self._open.add(aws)
        self._used.add(aws)

    def end(self, aws: LocalAws) -> None:
        """Explain an instance if an error closes it, as long as it can be asked; it is no longer open."""
        error = sys.exc_info()[1]
        if self._watched and aws in self._open and error is not None and not _is_an_end(error):
            self._ended.append((error, explanation_of(aws)))
        self._open.discard(aws)
        self._used.discard(aws)

    def is_open(self, aws: LocalAws) -> bool:
        """Test whether an instance can be asked."""
        return aws in self._open

    def used(self) -> list[LocalAws]:
        """Open instances that the running test used."""
        return list(self._used)

    def ended_by(self, error: BaseException) -> list[str]:
        """Explanations of instances that this error closed, or one from which it was raised."""
        chain = {id(one) for one in _chain(error)}
        return [text for one, text in self._ended if id(one) in chain]


def explanation_of(aws: LocalAws) -> str:
    """Explain an instance, or state why it cannot be explained: the test's own failure is what matters."""
    try:
        return aws.explain()
    except Exception as error:  # noqa: BLE001
        return f"it cannot be explained: {type(error).__name__}: {error}"


def _is_an_end(error: BaseException) -> bool:
    """Test whether an error ends the run, or a generator: nothing failed."""
    return isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, its causes, and those of a group."""
    rest, seen = [error], set[int]()
    while rest:
        one = rest.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            rest += [each for each in (one.__cause__, one.__context__) if each is not None]
            rest += one.exceptions if isinstance(one, BaseExceptionGroup) else ()


IN_USE: Final = InUse()
