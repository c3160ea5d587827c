"""A ``datetime`` module whose ``now`` is virtual time: what C code reads cannot be replaced in the module itself."""

from __future__ import annotations

import datetime as dt
import sys
import time
from types import ModuleType
from typing import Any, Final


class _Meta(type):
    """Dates and times of the real classes are instances, too: libraries make those."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.__mro__[1])

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.__mro__[1])


class _VirtualDatetime(dt.datetime, metaclass=_Meta):
    """``datetime.datetime`` by the clock of the caller."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        return cls.fromtimestamp(time.time(), dt.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        return cls.now()


class _VirtualDate(dt.date, metaclass=_Meta):
    """``datetime.date`` by the clock of the caller."""

    @classmethod
    def today(cls) -> Any:
        return cls.fromtimestamp(time.time())


def virtual_datetime() -> ModuleType:
    """A module as ``datetime`` is, in which what is now comes from ``time.time()``."""
    module = ModuleType("datetime")
    module.__dict__.update({name: value for name, value in vars(dt).items() if not name.startswith("__")})
    module.__dict__.update(datetime=_VirtualDatetime, date=_VirtualDate)
    return module


def virtualize_dates(library: str) -> None:
    """Let a library that is shared with the simulating process ask ``time.time`` for the date, for good.

    Outside of a simulation that is the real one.
    """
    for name in [name for name in sys.modules if name.startswith(library)]:
        if name not in _virtualized:
            _virtualized.add(name)
            members = vars(sys.modules[name])
            for member, value in list(members.items()):
                if value is dt:
                    members[member] = _MODULE
                elif value is dt.datetime:
                    members[member] = _VirtualDatetime


_MODULE: Final = virtual_datetime()
_virtualized: Final[set[str]] = set()
