"""Find what of the extra ``local`` is not installed: an error of its own names the remedy."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

_MODULES: Final = ("greenlet", "ministack")


def missing_extra() -> str | None:
    """Return what to do if the extra is not installed; None if it is."""
    missing = [module for module in _MODULES if find_spec(module) is None]
    return f"{missing[0]} is not installed; run pip install 'cdk-sagas[local]'" if missing else None


def require_extra() -> None:
    """Refuse an environment without the extra.

    Raises:
        ModuleNotFoundError: naming the module and the remedy.
    """
    if (remedy := missing_extra()) is not None:
        raise ModuleNotFoundError(remedy)
