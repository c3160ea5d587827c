"""One test of many subjects, which lists everything that is wrong with any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def for_each(subjects: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Decorate a check of one subject, which becomes one test of all subjects.

    Args:
        subjects: what is checked; a tuple has the check's arguments.
    """
    checked = list(subjects)

    def decorated(check: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            failures = []
            for subject in checked:
                try:
                    check(*subject) if type(subject) is tuple else check(subject)
                except AssertionError as error:
                    failures.append(f"{subject}: {error}")
            assert not failures, "\n".join(failures)
            assert checked

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        return test

    return decorated
