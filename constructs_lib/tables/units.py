"""Units as arguments of constructs."""

from __future__ import annotations

from collections.abc import Mapping

from saga_runtime.errors import Invalid
from saga_runtime.money import Unit, unit_of

AmountsByUnit = Mapping[str, int] | Mapping[Unit, int] | Mapping[str | Unit, int]
"""Amounts in smallest parts, by ISO 4217 code or ``Unit``."""


def unit_argument(name: str, value: object) -> Unit:
    """The unit that an argument names: an ISO 4217 code, or a ``Unit``.

    Raises:
        ValueError: naming the argument, its value and the remedy.
    """
    try:
        return unit_of(value)
    except Invalid:
        raise ValueError(
            f'{name} must be an ISO 4217 code or a Unit, got {value!r}; write "EUR", or Unit("POINT", 0)'
        ) from None
