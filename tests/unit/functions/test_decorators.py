"""Every decorator refuses, when it is imported, a function whose call would fail or do nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pytest

from saga_runtime import (
    Commit,
    atomic_step,
    callback_step,
    compensation,
    direct_operation,
    event_operation,
    event_receiver,
    event_saga,
    external_compensation,
    external_step,
    read_only_step,
    webhook,
)

CHARGE = external_step(lambda call: {"charged": call.key})
ONE: dict[str, Callable[[Any], object]] = {
    "atomic_step": atomic_step,
    "callback_step": callback_step,
    "direct_operation": direct_operation,
    "event_operation": event_operation(lambda event: event),
    "event_operation, reader": lambda read: event_operation(read)(lambda _: Commit()),
    "event_receiver": event_receiver,
    "event_saga": event_saga,
    "external_step": external_step,
    "external_step, verify": lambda verify: external_step(verify=verify)(lambda call: {"charged": call.key}),
    "read_only_step": read_only_step,
    "webhook": webhook,
}
TWO: dict[str, Callable[[Any], object]] = {
    "compensation": compensation,
    "external_compensation": external_compensation(of=CHARGE),
    "external_compensation, verify": lambda verify: external_compensation(of=CHARGE, verify_undo=verify)(
        lambda call, output: (call, output)
    ),
}
EACH = pytest.mark.parametrize("decorate", [*ONE.values(), *TWO.values()], ids=[*ONE, *TWO])


async def _awaited(*_: Any) -> None:
    raise AssertionError("it was awaited")


def _iterated(*_: Any) -> Any:
    yield AssertionError("it was iterated")


@EACH
def test_what_does_nothing_when_it_is_called_is_refused(decorate: Callable[[Any], object]) -> None:
    for function in (_awaited, _iterated):
        with pytest.raises(TypeError, match="must do its work when it is called"):
            decorate(function)


def _none() -> None: ...


def _named(call: Any, *, ledger: Any) -> Any: ...


def _three(call: Any, output: Any, third: Any) -> Any: ...


def _more(call: Any, output: Any = None, *rest: Any, log: Any = None) -> Any: ...


@EACH
def test_a_function_of_other_arguments_is_refused(decorate: Callable[[Any], object]) -> None:
    for function in (_none, _named, _three):
        with pytest.raises(TypeError, match=r"must take \((call|event|call, output)\), got a function of other"):
            decorate(function)
    for taken in (_more, lambda *given: given, partial(_three, None), print):
        decorate(taken)


@pytest.mark.parametrize("name", ONE)
def test_a_function_of_two_arguments_is_refused_where_one_is_given(name: str) -> None:
    def both(call: Any, context: Any) -> Any: ...

    with pytest.raises(TypeError, match=r"^both must take \((call|event)\), got .*; write def both\((call|event)\)$"):
        ONE[name](both)


def test_a_decorator_between_them_may_give_more_arguments() -> None:
    def with_ledger(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapper(*given: Any) -> Any:
            return function(*given, "ledger")

        return wrapper

    @atomic_step
    @with_ledger
    def pay(call: Any, ledger: str) -> Any: ...

    assert pay.__name__ == "pay"
