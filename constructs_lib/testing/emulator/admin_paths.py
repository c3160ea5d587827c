"""Paths of the emulator's own HTTP surface: what both sides of it must agree on."""

from __future__ import annotations

from typing import Final

#: Paths under this prefix are ours; AWS has none that begins like this.
PREFIX: Final = "/_cdk_sagas/"
#: ``POST`` empties the emulator; answers 204.
RESET_PATH: Final = f"{PREFIX}reset"
#: ``GET`` identifies the process and its clock: ``{"pid": …, "run_folder": …, "base": …, "speed": …}``.
PROCESS_PATH: Final = f"{PREFIX}process"
#: ``POST`` ends the emulator; answers 204 first.
STOP_PATH: Final = f"{PREFIX}stop"
