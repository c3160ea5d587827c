"""Settings of the library's functions: bundle, arm64, log group, tracing, exact grants."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import jsii
from aws_cdk import Acknowledgment, Duration, RemovalPolicy, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from constructs_lib.functions.bundle import functions_zip, merged_code
from constructs_lib.functions.handlers import find_handler
from constructs_lib.functions.ledger_use import warn_of_ledger
from constructs_lib.shared.arguments import require_between, require_match, require_seconds
from constructs_lib.shared.at_synth import WhenAllIsKnown
from constructs_lib.shared.manifest import Manifest
from constructs_lib.shared.manifest_format import Part
from constructs_lib.shared.service_names import service_of
from constructs_lib.shared.types import checked
from saga_runtime.protocol import PROTOCOL_VERSION, Env

RUNTIME: Final = lambda_.Runtime.PYTHON_3_14
_HANDLER: Final = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$"
_DEFAULT_TIMEOUT: Final = Duration.seconds(15)

_TRACING: Final = Acknowledgment(
    id="AwsSolutions-IAM5[Resource::*]",
    reason="X-Ray's PutTraceSegments and PutTelemetryRecords take no resource; "
    "the role names a resource for every other action.",
)


@jsii.implements(iam.IGrantable)
class RuntimeFunction(Construct):
    """A function that runs ``saga_runtime``: used by the constructs for their own functions, and by ``StepFunction``.

    Args:
        scope: parent construct.
        id: construct id.
        code: an asset with the runtime in it.
        handler: ``module.function``.
        description: what the console shows.
        environment: environment variables.
        timeout: 1 s to 900 s in whole seconds, 15 s by default.
        memory_mib: 128 to 10240.
        architecture: arm64 by default.
        reserved_concurrency: unreserved by default.
        log_retention: three months by default.
        removal_policy: of the log group; retained by default.

    Attributes:
        function: the Lambda function.
        role: its role. It may write its own log group and trace segments, and nothing else until granted.
        log_group: its log group.
        timeout_seconds: its timeout. This and what follows is kept here, so that a saga of many steps need not ask
            the CDK's process for each of them.
        memory_mib: its memory.
        architecture_name: ``arm64`` or ``x86_64``.
        decorator: the function of ``saga_runtime`` that makes its handler, ``atomic_step`` for example; None where it
            is not known.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        code: lambda_.Code,
        handler: str,
        description: str,
        environment: Mapping[str, str] | None = None,
        timeout: Duration = _DEFAULT_TIMEOUT,
        memory_mib: int = 512,
        architecture: lambda_.Architecture | None = None,
        reserved_concurrency: int | None = None,
        log_retention: logs.RetentionDays = logs.RetentionDays.THREE_MONTHS,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        require_match("handler", handler, _HANDLER, 'name a module and a function, e.g. "transfer.handler"')
        self.timeout_seconds = require_seconds("timeout", timeout, at_least=1, at_most=900)
        require_between("memory_mib", memory_mib, at_least=128, at_most=10_240)
        self.memory_mib = memory_mib
        self.decorator: str | None = None
        self.architecture_name = architecture.name if architecture is not None else "arm64"
        variables = dict(environment or {})
        taken = sorted(set(variables) & {Env.PROTOCOL, Env.SERVICE})
        if taken:
            raise ValueError(f"environment must not set {taken}; these are set by the construct")
        self.log_group = logs.LogGroup(self, "Logs", retention=log_retention, removal_policy=removal_policy)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description="Role of one function; every permission is granted by name",
        )
        self.log_group.grant_write(self.role)
        self.function = lambda_.Function(
            self,
            "Function",
            code=code,
            handler=handler,
            description=description,
            runtime=RUNTIME,
            architecture=architecture or lambda_.Architecture.ARM_64,
            role=self.role,
            log_group=self.log_group,
            logging_format=lambda_.LoggingFormat.JSON,
            tracing=lambda_.Tracing.ACTIVE,
            timeout=timeout,
            memory_size=memory_mib,
            reserved_concurrent_executions=reserved_concurrency,
            environment={
                **variables,
                Env.PROTOCOL: str(PROTOCOL_VERSION),
                Env.SERVICE: service_of(self),
            },
        )
        Validations.of(self.role).acknowledge(_TRACING)
        Manifest.of(self).add(Part.FUNCTIONS, name=self.function.function_name)

    def _read_handler(self, name: str, folder: Path, handler: str, environment: Mapping[str, str]) -> None:
        """Find a handler in a user's folder, and warn of a ledger or outbox that it needs and was not given."""
        found = find_handler(name, folder, handler)
        self.decorator = found.decorator
        if found.needs_outbox and Env.OUTBOX_TABLE not in environment:
            Validations.of(self).add_warning(
                "cdk-sagas-outbox-environment",
                f"environment of {self.node.path} must have {Env.OUTBOX_TABLE}, got none: its module calls "
                "Outbox.from_env(); give it environment=outbox.environment, or acknowledge this if the variable is "
                "added otherwise",
            )
        if found.needs_ledger:
            grantees = (self, self.function, self.role)
            self.node.add_validation(WhenAllIsKnown(lambda: warn_of_ledger(self, grantees, environment)))

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """Grantee: the function's role."""
        return self.role.grant_principal


class StepFunction(RuntimeFunction):
    """A function of one or more saga steps: a folder of Python, merged with the runtime into one asset.

    Creates a Lambda function (newest Python, arm64, JSON logs, active tracing), a role of its own and a log group. No
    docker, no layer: the folder and the runtime become one zip, byte for byte reproducible.

    Example::

        move = StepFunction(self, "Move", code="functions", handler="move.handler", environment=ledger.environment)
        ledger.grant_post(move)

    Args:
        scope: parent construct.
        id: construct id.
        code: folder with the function's Python files, relative to the working directory or absolute. Further
            packages that it needs must be in it; ``saga_runtime``, Powertools and boto3 are there already.
        handler: ``module.function`` in that folder, made by a decorator of ``saga_runtime`` that fits its step. Read,
            not imported: one that does not exist, or is made by another decorator, ends the synth.
        environment: environment variables, e.g. ``ledger.environment``.
        timeout: 1 s to 900 s, 15 s by default. The saga's task waits longer than this.
        memory_mib: 128 to 10240, 512 by default. More memory is more processor, too.
        architecture: arm64 by default.
        reserved_concurrency: unreserved by default.
        log_retention: three months by default.
        removal_policy: of the log group; retained by default.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
        constructs_lib.functions.bundle.BundleError: if the folder does not exist or would hide a part of the runtime.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        code: str | Path,
        handler: str,
        environment: Mapping[str, str] | None = None,
        timeout: Duration = _DEFAULT_TIMEOUT,
        memory_mib: int = 512,
        architecture: lambda_.Architecture | None = None,
        reserved_concurrency: int | None = None,
        log_retention: logs.RetentionDays = logs.RetentionDays.THREE_MONTHS,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(
            scope,
            id,
            code=lambda_.Code.from_asset(str(merged_code(Path(code)))),
            handler=handler,
            description=f"Saga step function {handler}",
            environment=environment,
            timeout=timeout,
            memory_mib=memory_mib,
            architecture=architecture,
            reserved_concurrency=reserved_concurrency,
            log_retention=log_retention,
            removal_policy=removal_policy,
        )
        self._read_handler(f"StepFunction {id}", Path(code), handler, environment or {})


def name_role(function: RuntimeFunction, role: str) -> None:
    """Give a function the name by which operators know it, ``the reconciler`` for example."""
    Manifest.of(function).add(Part.FUNCTIONS, name=function.function.function_name, role=role)


def own_code(extra_files: Mapping[str, bytes] | None = None) -> lambda_.Code:
    """Code of the constructs' own functions: the bundle as it is, or with files that one construct adds."""
    if not extra_files:
        return lambda_.Code.from_asset(str(functions_zip()))
    return lambda_.Code.from_asset(str(merged_code(None, extra_files, include_handlers=True)))
