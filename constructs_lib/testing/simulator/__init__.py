"""A deterministic simulator: random requests to a stack, everything that goes wrong, in virtual time."""

# ruff: noqa: E402 -- what is imported below needs the extra
from constructs_lib.testing.extra import require_extra

require_extra()

from constructs_lib.testing.simulator.aws.gateway import ConnectionLostError, Response
from constructs_lib.testing.simulator.aws.roles import Grant
from constructs_lib.testing.simulator.deployment.deployment import Deployment
from constructs_lib.testing.simulator.engine.kernel import Future
from constructs_lib.testing.simulator.enumeration import break_each_call
from constructs_lib.testing.simulator.faults.climate import Climate, Event, Outage, Planned, Trouble
from constructs_lib.testing.simulator.grants import unused_grants
from constructs_lib.testing.simulator.outside.providers import Provider, ProviderAnswer, ProviderRequest
from constructs_lib.testing.simulator.outside.simulated import Report, SimulatedProvider
from constructs_lib.testing.simulator.report import PromiseBrokenError, SimulationReport
from constructs_lib.testing.simulator.simulation import simulate
from constructs_lib.testing.simulator.workload import Intent, Result, Workload
from constructs_lib.testing.simulator.world import World

__all__ = [
    "Climate",
    "ConnectionLostError",
    "Deployment",
    "Event",
    "Future",
    "Grant",
    "Intent",
    "Outage",
    "Planned",
    "PromiseBrokenError",
    "Provider",
    "ProviderAnswer",
    "ProviderRequest",
    "Report",
    "Response",
    "Result",
    "SimulatedProvider",
    "SimulationReport",
    "Trouble",
    "Workload",
    "World",
    "break_each_call",
    "simulate",
    "unused_grants",
]
