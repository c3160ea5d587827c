"""What users test their own sagas with: local AWS, deployment, faults.

Needs the extra ``local`` (``pip install 'cdk-sagas[local]'``).
"""

from __future__ import annotations

from .assembly import AssemblyError
from .deployment import DeploymentError, Outputs
from .faults import CallRecorder, FaultControl
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
    "FaultControl",
    "FunctionLog",
    "HttpResponse",
    "LocalAws",
    "Outputs",
    "UnknownNameError",
]
