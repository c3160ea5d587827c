"""Declared properties of the provider of an external step, as its functions receive them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from saga_runtime.errors import ProtocolMismatch
from saga_runtime.protocol import CallField

_SECOND_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """A provider's guarantees. Times are seconds; fields are named as in the call of a step (``CallField.PROVIDER``).

    Attributes:
        grace: how long a request can still travel when its sender is dead.
        clock_skew: how far clocks may be apart.
        verify: whether it can be queried for the outcome of a call.
        verify_undo: whether it can be queried for the outcome of a compensation.
        window: how long the provider knows a step's key; 0: it is not idempotent.
        undo_window: likewise for the key of its undo.
        refusals: error names with which it refuses, in addition to ``Declined``.
    """

    grace: int
    clock_skew: int
    verify: bool
    verify_undo: bool
    window: int
    undo_window: int
    refusals: tuple[str, ...] = ()

    @property
    def grace_ms(self) -> int:
        """``grace`` in milliseconds."""
        return self.grace * _SECOND_MS

    @property
    def margin_ms(self) -> int:
        """``clock_skew`` in milliseconds."""
        return self.clock_skew * _SECOND_MS

    @property
    def window_ms(self) -> int:
        """``window`` in milliseconds."""
        return self.window * _SECOND_MS

    @property
    def undo_window_ms(self) -> int:
        """``undo_window`` in milliseconds."""
        return self.undo_window * _SECOND_MS

    def to_event(self) -> dict[str, Any]:
        """Member of a step's call from which ``from_event`` reads the settings."""
        fields = dataclasses.asdict(self)
        refusals = list(fields.pop("refusals"))
        return fields | ({"refusals": refusals} if refusals else {})

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> ProviderSettings:
        """Read what the state machine sent.

        Raises:
            ProtocolMismatch: if the event does not declare a provider, or one whose outcome could never be known.
        """
        found = event.get(CallField.PROVIDER)
        if not isinstance(found, Mapping):
            raise ProtocolMismatch(
                f"an external step needs its provider's settings, got {found!r}; declare the step with Step.external"
            )
        settings = cls(
            grace=_seconds(found, "grace"),
            clock_skew=_seconds(found, "clock_skew"),
            window=_seconds(found, "window"),
            undo_window=_seconds(found, "undo_window"),
            verify=_flag(found, "verify"),
            verify_undo=_flag(found, "verify_undo"),
            refusals=_names(found, "refusals"),
        )
        if not settings.verify and not settings.window:
            raise ProtocolMismatch(
                "a provider that is neither idempotent nor can be asked leaves an interrupted call undecided for ever; "
                "declare Provider(verify=True) or Provider(idempotent_for=...)"
            )
        return settings


def _seconds(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name)
    if type(value) is not int or value < 0:
        raise ProtocolMismatch(f"a provider's {name} is a number of whole seconds, 0 or more, got {value!r}")
    return value


def _flag(found: Mapping[str, Any], name: str) -> bool:
    value = found.get(name)
    if type(value) is not bool:
        raise ProtocolMismatch(f"a provider's {name} is true or false, got {value!r}")
    return value


def _names(found: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = found.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ProtocolMismatch(f"a provider's {name} must be a list of error names, got {value!r}")
    return tuple(value)
