"""Corrections of the emulator's errors: one named function per correction, each with its reason.

A correction never makes the emulator more permissive than AWS. Each can be left out by its name
(``--without NAME``, the function's name with dashes), and a test shows for each that the emulator misbehaves then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from types import ModuleType
from typing import Any, Final

from constructs_lib.testing.emulator.clock import EmulatorClock
from constructs_lib.testing.emulator.settings import EmulatorSettings

#: The only release whose private functions the corrections know.
MINISTACK_VERSION: Final = "1.5.33"


class EmulatorChangedError(RuntimeError):
    """The installed emulator is not the one that the corrections were written for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulator:
    """Settings and clock, for a correction that installs itself.

    Attributes:
        settings: The settings of the process.
        clock: The one clock of the emulator.
    """

    settings: EmulatorSettings
    clock: EmulatorClock


Correction = Callable[[Emulator], None]


def name_of(correction: Correction) -> str:
    """Return the name by which a correction is left out."""
    return correction.__name__.replace("_", "-")


def replace(owner: ModuleType | type, attribute: str, make: Callable[[Any], Any]) -> None:
    """Replace a function of the emulator.

    Args:
        owner: The module or class that has it.
        attribute: Its name.
        make: Gets the present one, returns the new one.

    Raises:
        EmulatorChangedError: If there is no such function.
    """
    if not hasattr(owner, attribute):
        raise EmulatorChangedError(
            f"{owner.__name__} has no {attribute}; install ministack=={MINISTACK_VERSION}, got {version('ministack')}"
        )
    setattr(owner, attribute, make(getattr(owner, attribute)))


def replace_text(text: str, old: str, new: str) -> str:
    """Replace the one occurrence of a piece of the emulator's text.

    Raises:
        EmulatorChangedError: If it does not occur exactly once.
    """
    if text.count(old) != 1:
        raise EmulatorChangedError(
            f"expected exactly one {old!r}; install ministack=={MINISTACK_VERSION}, got {version('ministack')}"
        )
    return text.replace(old, new)


def install(emulator: Emulator) -> None:
    """Install every correction that the settings do not leave out.

    Raises:
        EmulatorChangedError: If the installed emulator is not the one that the corrections were written for.
        ValueError: If the settings leave out something that is not a correction.
    """
    if version("ministack") != MINISTACK_VERSION:
        raise EmulatorChangedError(f"install ministack=={MINISTACK_VERSION}, got {version('ministack')}")
    corrections = list(all_corrections())
    unknown = emulator.settings.without - {name_of(correction) for correction in corrections}
    if unknown:
        raise ValueError(f"no correction is called {', '.join(sorted(unknown))}; see constructs_lib.testing.emulator")
    for correction in corrections:
        if name_of(correction) not in emulator.settings.without:
            correction(emulator)


def all_corrections() -> Iterable[Correction]:
    """Return every correction, in the order in which they are installed."""
    # Imported here: these modules import the emulator, which reads its environment as it is imported.
    from constructs_lib.testing.emulator.corrections import (
        apigateway,
        branches,
        callbacks,
        cloudformation,
        dynamodb,
        event_sources,
        jsonata,
        lambda_,
        nodejs,
        nursery,
        queues,
        recorded,
        redrive,
        role,
        sandbox,
        secrets_manager,
        services_time,
        stepfunctions,
        tasks,
        transport,
        versions,
    )

    # The nursery first: the correction of how a sandbox starts wraps it.
    lambda_modules = (lambda_, nodejs, nursery, sandbox, event_sources)
    # Redriving first: the corrections of how an execution ends wrap it.
    states_modules = (redrive, stepfunctions, callbacks, tasks, role, jsonata, branches, recorded, versions)
    other_modules = (apigateway, cloudformation, dynamodb, queues, secrets_manager, services_time, transport)
    modules = (*lambda_modules, *states_modules, *other_modules)
    return [correction for module in modules for correction in module.CORRECTIONS]
