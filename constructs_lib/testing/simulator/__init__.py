"""A deterministic simulator: random requests to a stack, everything that goes wrong, in virtual time."""

from .aws.gateway import ConnectionLostError, Response
from .deployment.deployment import Deployment
from .engine.kernel import Future
from .faults.climate import Climate, Event, Outage, Trouble
from .outside.providers import Provider, ProviderAnswer, ProviderRequest
from .report import PromiseBrokenError, SimulationReport
from .simulation import simulate
from .workload import Intent, Workload
from .world import World

__all__ = [
    "Climate",
    "ConnectionLostError",
    "Deployment",
    "Event",
    "Future",
    "Intent",
    "Outage",
    "PromiseBrokenError",
    "Provider",
    "ProviderAnswer",
    "ProviderRequest",
    "Response",
    "SimulationReport",
    "Trouble",
    "Workload",
    "World",
    "simulate",
]
