"""Explanations of instances of local AWS that an error closed, for the pytest plugin."""

from __future__ import annotations

from typing import Any, cast

import pytest

from constructs_lib.testing.in_use import InUse


class Instance:
    """As much of local AWS as is explained."""

    def explain(self) -> str:
        return "a parked saga"


def closed_by(error: BaseException, *, watched: bool = True) -> list[str]:
    """Close an instance while an error is handled, and ask for what the error closed."""
    found, instance = InUse(), cast("Any", Instance())
    if watched:
        found.begin_test()
    found.use(instance)
    try:
        raise error
    except BaseException:  # noqa: BLE001 - as a with block does
        found.end(instance)
    assert not found.is_open(instance)
    return found.ended_by(error)


def test_an_error_that_closes_an_instance_explains_it() -> None:
    assert closed_by(ValueError("no")) == ["a parked saga"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()], ids=repr)
def test_the_end_of_a_run_or_of_a_fixture_explains_nothing(error: BaseException) -> None:
    assert closed_by(error) == []


def test_without_a_watched_test_nothing_is_explained() -> None:
    assert closed_by(ValueError("no"), watched=False) == []


def test_an_error_explains_what_its_cause_closed_and_nothing_else() -> None:
    found, instance = InUse(), cast("Any", Instance())
    found.begin_test()
    found.use(instance)
    cause = ValueError("no")
    try:
        raise cause
    except ValueError:
        found.end(instance)
    outer = RuntimeError("so")
    outer.__cause__ = cause

    assert found.ended_by(ExceptionGroup("several", [outer])) == ["a parked saga"]
    assert found.ended_by(RuntimeError("another")) == []
