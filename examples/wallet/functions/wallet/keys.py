"""Keys of the wallet's single table. Partition key ``uuid``: a card, or a merchant; sort key ``type``: a concern.

These are stored formats: a change orphans stored items. ``tests/unit/examples/test_wallet_keys.py`` has golden vectors.
"""

from __future__ import annotations

from typing import Final

from saga_runtime import Invalid, Unit

CARD: Final = "card"
PROFILE: Final = "PROFILE"
METRICS: Final = "METRICS"
BALANCE: Final = "BALANCE#"
HISTORY: Final = "history#"
STRIPE: Final = "stripe#"
ECOPAY, POINT, JCREDIT = Unit("ECOPAY", 0), Unit("POINT", 0), Unit("JCREDIT", 3)
REGIONAL: Final = "REGIONAL:"
MARKER_SECONDS: Final = 7_776_000
"""90 days."""
_BASE36: Final = 36


def unit_of(code: str) -> Unit:
    """The unit of a code: one of the wallet's three, or a region's own, ``REGIONAL:<key>``.

    Raises:
        Invalid: if the wallet has no such unit.
    """
    for unit in (ECOPAY, POINT, JCREDIT):
        if unit.code == code:
            return unit
    if code.startswith(REGIONAL):
        return Unit(code, 0)
    raise Invalid(f"unit must be ECOPAY, POINT, JCREDIT or {REGIONAL}<key>, got {code!r}; use one of them")


def balance_type(unit: Unit) -> str:
    """Sort key of a balance: ``BALANCE#ECOPAY``, ``BALANCE#REGIONAL#<key>``."""
    return f"{BALANCE}{unit.code.replace(':', '#')}"


def marker_type(operation: str, key: str) -> str:
    """Sort key of an operation's marker."""
    return f"card_op_idem#{operation}#{key}"


def history_type(operation_id: str) -> str:
    """Sort key of the history row of an operation: sorted by time, and unique by the operation's id.

    Args:
        operation_id: ``call.key``: an id, a dash, and the time in milliseconds to base 36.

    Raises:
        Invalid: if it is not such an id.
    """
    _, dash, moment = operation_id.rpartition("-")
    try:
        milliseconds = int(moment, _BASE36) if dash else -1
    except ValueError:
        milliseconds = -1
    if milliseconds < 0:
        raise Invalid(f"an operation's id must end with a dash and its time, got {len(operation_id)} characters")
    return f"{HISTORY}{milliseconds:013d}#{operation_id}"


def stripe_type(payment: str) -> str:
    """Sort key of a top-up that was paid through Stripe."""
    return f"{STRIPE}{payment}"
