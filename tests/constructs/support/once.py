"""Results that are computed once for the same objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

_MANY = 500
Result = TypeVar("Result")


def once(make: Callable[..., Result]) -> Callable[..., Result]:
    """Compute a result once for the same arguments, by identity; neither they nor the result may be changed."""
    made: dict[tuple[int, ...], tuple[tuple[Any, ...], Result]] = {}

    @wraps(make)
    def remembered(*arguments: Any) -> Result:
        key = tuple(map(id, arguments))
        if key not in made:
            if len(made) >= _MANY:
                made.clear()
            made[key] = arguments, make(*arguments)
        return made[key][1]

    return remembered
