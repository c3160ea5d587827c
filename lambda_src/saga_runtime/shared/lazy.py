"""Exports of a package that are imported at first use, and listed from the start."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Module functions ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: the package's ``__name__``.
        modules: by public name, the module that defines it, relative to the package if it begins with a dot. A name
            must not be that of its module: the import would put the module into the name's place.
    """

    def getattr_(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    def dir_() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return getattr_, dir_
