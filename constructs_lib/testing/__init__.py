"""What users test their own sagas with: local AWS, deployment, faults.

Needs the extra ``local`` (``pip install 'cdk-sagas[local]'``). Names are imported when they are first used, because
pytest loads this package's plugin in every run, also where the extra is not installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .assembly import AssemblyError
    from .deployment import DeploymentError, Outputs
    from .faults import (
        CallRecorder,
        Every,
        Fault,
        FaultControl,
        FaultReport,
        FaultsNotFiredError,
        First,
        Nth,
        RecordedCall,
        Recording,
        Share,
        StopAt,
    )
    from .http import HttpResponse
    from .local_aws import LocalAws
    from .logs import FunctionLog
    from .names import DeployedResource, UnknownNameError
    from .server import EmulatorStartError
    from .users import ApiUser

__all__ = [
    "ApiUser",
    "AssemblyError",
    "CallRecorder",
    "DeployedResource",
    "DeploymentError",
    "EmulatorStartError",
    "Every",
    "Fault",
    "FaultControl",
    "FaultReport",
    "FaultsNotFiredError",
    "First",
    "FunctionLog",
    "HttpResponse",
    "LocalAws",
    "Nth",
    "Outputs",
    "RecordedCall",
    "Recording",
    "Share",
    "StopAt",
    "UnknownNameError",
    "assembly",
    "deployment",
    "faults",
    "http",
    "local_aws",
    "logs",
    "names",
    "server",
    "users",
]
