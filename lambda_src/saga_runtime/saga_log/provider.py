"""Declared properties of the provider of an external step, as its functions receive them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from saga_runtime.errors import ProtocolMismatch
from saga_runtime.protocol import CallField, ProviderField

_SECOND_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """A provider's guarantees.

    Attributes:
        grace_ms: how long a request can still travel when its sender is dead.
        margin_ms: how far clocks may be apart.
        window_ms: how long the provider knows a step's key; 0: it is not idempotent.
        undo_window_ms: likewise for the key of its undo.
        verify: whether it can be queried for the outcome of a call.
        verify_undo: whether it can be queried for the outcome of a compensation.
        refusals: error names with which it refuses, in addition to ``Declined``.
    """

    grace_ms: int
    margin_ms: int
    window_ms: int
    undo_window_ms: int
    verify: bool
    verify_undo: bool
    refusals: frozenset[str] = frozenset()

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
        f = ProviderField
        settings = cls(
            grace_ms=_milliseconds(found, f.GRACE),
            margin_ms=_milliseconds(found, f.CLOCK_SKEW),
            window_ms=_milliseconds(found, f.WINDOW),
            undo_window_ms=_milliseconds(found, f.UNDO_WINDOW),
            verify=_flag(found, f.VERIFY),
            verify_undo=_flag(found, f.VERIFY_UNDO),
            refusals=_names(found, f.REFUSALS),
        )
        if not settings.verify and not settings.window_ms:
            raise ProtocolMismatch(
                "a provider that is neither idempotent nor can be asked leaves an interrupted call undecided for ever; "
                "declare Provider(verify=True) or Provider(idempotent_for=...)"
            )
        return settings


def _milliseconds(found: Mapping[str, Any], name: ProviderField) -> int:
    value = found.get(name)
    if type(value) is not int or value < 0:
        raise ProtocolMismatch(f"a provider's {name} is a number of whole seconds, 0 or more, got {value!r}")
    return value * _SECOND_MS


def _flag(found: Mapping[str, Any], name: ProviderField) -> bool:
    value = found.get(name)
    if type(value) is not bool:
        raise ProtocolMismatch(f"a provider's {name} is true or false, got {value!r}")
    return value


def _names(found: Mapping[str, Any], name: ProviderField) -> frozenset[str]:
    value = found.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ProtocolMismatch(f"a provider's {name} must be a list of error names, got {value!r}")
    return frozenset(value)
