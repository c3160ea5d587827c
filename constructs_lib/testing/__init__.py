"""Local AWS, deployment to it, and faults: tools for tests of your own sagas.

Needs the extra ``local`` (``pip install 'cdk-sagas[local]'``). Names are imported when they are first used, because
pytest loads this package's plugin in every run, also where the extra is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from saga_runtime.shared.lazy import lazy_exports

if TYPE_CHECKING:
    from constructs_lib.testing.assembly import AssemblyError
    from constructs_lib.testing.deployment import DeploymentError, Outputs
    from constructs_lib.testing.faults import (
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
    from constructs_lib.testing.http import HttpResponse
    from constructs_lib.testing.local_aws import LocalAws
    from constructs_lib.testing.logs import FunctionLog
    from constructs_lib.testing.names import DeployedResource, UnknownNameError
    from constructs_lib.testing.provider_audit import ProviderEffect, audit_provider
    from constructs_lib.testing.providers.books import ProviderRequest
    from constructs_lib.testing.providers.control import ProviderStartError
    from constructs_lib.testing.providers.fake import FakeProvider
    from constructs_lib.testing.providers.plain import ProviderAction, ProviderFault
    from constructs_lib.testing.server import EmulatorStartError
    from constructs_lib.testing.users import ApiUser

__all__ = [
    "ApiUser",
    "AssemblyError",
    "CallRecorder",
    "DeployedResource",
    "DeploymentError",
    "EmulatorStartError",
    "Every",
    "FakeProvider",
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
    "ProviderAction",
    "ProviderEffect",
    "ProviderFault",
    "ProviderRequest",
    "ProviderStartError",
    "RecordedCall",
    "Recording",
    "Share",
    "StopAt",
    "UnknownNameError",
    "audit_provider",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ProviderRequest": ".providers.books",
        "ProviderStartError": ".providers.control",
        "ProviderFault": ".providers.plain",
        "ProviderAction": ".providers.plain",
        "FakeProvider": ".providers.fake",
        "ApiUser": ".users",
        "AssemblyError": ".assembly",
        "CallRecorder": ".faults",
        "DeployedResource": ".names",
        "DeploymentError": ".deployment",
        "EmulatorStartError": ".server",
        "Every": ".faults",
        "Fault": ".faults",
        "FaultControl": ".faults",
        "FaultReport": ".faults",
        "FaultsNotFiredError": ".faults",
        "First": ".faults",
        "FunctionLog": ".logs",
        "HttpResponse": ".http",
        "LocalAws": ".local_aws",
        "Nth": ".faults",
        "Outputs": ".deployment",
        "ProviderEffect": ".provider_audit",
        "RecordedCall": ".faults",
        "Recording": ".faults",
        "Share": ".faults",
        "StopAt": ".faults",
        "UnknownNameError": ".names",
        "audit_provider": ".provider_audit",
    },
)
