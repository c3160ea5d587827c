"""Installs the emulator's side of faults: who calls, what is planned for it, and what is done about it.

Installed after the corrections, so that what a fault provokes is reported as the corrected emulator reports it.
"""

from __future__ import annotations

from ministack import app as ministack_app

from constructs_lib.testing.emulator.corrections import Emulator, EmulatorChangedError, replace
from constructs_lib.testing.emulator.faults.callers import Callers
from constructs_lib.testing.emulator.faults.engine import FaultEngine
from constructs_lib.testing.emulator.faults.gate import FaultGate
from constructs_lib.testing.emulator.faults.states import StateMachines


def install(emulator: Emulator) -> FaultEngine:
    """Install faults.

    Args:
        emulator: The settings of the process, and its clock.

    Raises:
        EmulatorChangedError: If IAM is not enforced: only then has each sandbox credentials, which identify it.
    """
    if not ministack_app.AUTH:
        raise EmulatorChangedError("faults identify callers by their credentials; start the emulator with AUTH=true")
    engine = FaultEngine(emulator.clock.now)
    callers = Callers()
    callers.install()
    StateMachines(engine, emulator.clock).install()
    replace(ministack_app, "app", lambda app: FaultGate(app, engine, callers, emulator.clock))
    return engine
