"""Checking arguments of constructs: what is wrong, the value, the remedy; as early as it can be known."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from aws_cdk import Duration, Token


def require_seconds(name: str, value: Duration, *, at_least: int, at_most: int) -> int:
    """The duration in whole seconds, if it is in range.

    Raises:
        ValueError: if it is out of range, no whole number of seconds, or known at the deployment only.
    """
    if value.is_unresolved():
        raise ValueError(f"{name} must be known at synth, got a token; choose a duration")
    seconds = value.to_seconds(integral=False)
    if seconds != int(seconds):
        raise ValueError(f"{name} must be a whole number of seconds, got {value.to_human_string()}; round it")
    return require_whole_seconds(name, int(seconds), at_least=at_least, at_most=at_most)


def require_whole_seconds(name: str, seconds: int, *, at_least: int, at_most: int) -> int:
    """The seconds, if they are in range.

    Raises:
        ValueError: if they are not.
    """
    if not at_least <= seconds <= at_most:
        raise ValueError(
            f"{name} must be {at_least} s to {at_most} s, got {seconds} s; choose a duration in that range"
        )
    return seconds


def require_between(name: str, value: float, *, at_least: float, at_most: float, later: bool = False) -> None:
    """Refuse a number that is out of range.

    Args:
        name: of the argument.
        value: what was given.
        at_least: lowest value.
        at_most: highest value.
        later: a token is accepted, because only the template has the number.

    Raises:
        ValueError: if it is.
    """
    if at_least <= value <= at_most:
        return
    if not (math.isfinite(value) and Token.is_unresolved(value)):
        raise ValueError(f"{name} must be {at_least} to {at_most}, got {value}; choose a number in that range")
    if not later:
        raise ValueError(f"{name} must be known at synth, got a token; choose a number")


def require_match(name: str, value: str, pattern: str, remedy: str) -> None:
    """Refuse a text that does not have the form it needs.

    Raises:
        ValueError: if it has not.
    """
    if not re.fullmatch(pattern, value):  # `$` alone would let a newline at the end pass
        raise ValueError(f"{name} must match {pattern}, got {value!r}; {remedy}")


def require_unique(name: str, values: Iterable[str]) -> None:
    """Refuse a name that is given twice.

    Raises:
        ValueError: if one does.
    """
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{name} must be unique, got {value!r} twice; rename one of them")
        seen.add(value)


def require_minutes(name: str, value: Duration) -> int:
    """Require a whole number of minutes, 1 to 60, and return it.

    Raises:
        ValueError: for any other duration.
    """
    seconds = require_seconds(name, value, at_least=60, at_most=3_600)
    if seconds % 60:
        raise ValueError(f"{name} must be whole minutes, got {seconds} s; round it")
    return seconds // 60


def known_to_differ(ours: str, theirs: str) -> bool:
    """Test whether two accounts, or regions, are known at synth and different."""
    return not Token.is_unresolved(ours) and not Token.is_unresolved(theirs) and ours != theirs
