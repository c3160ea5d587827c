"""Settings of the library's functions: bundle, arm64, log group, tracing, exact grants."""

from __future__ import annotations

import functools
import sys
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
from constructs_lib.functions.environment_room import require_environment_room
from constructs_lib.functions.function_options import (
    FunctionOptions,
    log_group,
    name_of_architecture,
    options_ahead,
    options_of,
    require_own_code,
)
from constructs_lib.functions.handlers import Handler, find_handler
from constructs_lib.functions.ledger_use import warn_of_ledger
from constructs_lib.functions.log_level import require_metrics
from constructs_lib.functions.properties import check_at_synth
from constructs_lib.packages.lock import Target
from constructs_lib.shared.arguments import require_between, require_match, require_seconds
from constructs_lib.shared.at_synth import WhenAllIsKnown
from constructs_lib.shared.manifest import Manifest
from constructs_lib.shared.manifest_format import Part
from constructs_lib.shared.service_names import service_of
from constructs_lib.shared.types import checked
from saga_runtime.protocol import PROTOCOL_VERSION, Env

PYTHON: Final = sys.version_info[:2]
"""Version of the Python that synthesizes."""
_HANDLER: Final = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$"
_LONGEST_HANDLER: Final = 128
"""https://docs.aws.amazon.com/lambda/latest/api/API_CreateFunction.html"""
_DEFAULT_SECONDS: Final = 15
_LONGEST_SECONDS: Final = 900
_DEFAULT_MEMORY_MIB: Final = 512
_MACHINE_NAMES: Final = {"arm64": "aarch64"}

_EVERYWHERE: Final = "AwsSolutions-IAM5[Resource::*]"
_TRACING: Final = Acknowledgment(
    id=_EVERYWHERE,
    reason="X-Ray's PutTraceSegments and PutTelemetryRecords take no resource; "
    "the role names a resource for every other action.",
)
_TRACING_AND_NETWORK: Final = Acknowledgment(
    id=_EVERYWHERE,
    reason="X-Ray's PutTraceSegments and PutTelemetryRecords take no resource, and Lambda needs actions on all network "
    "interfaces to attach a function to a VPC; the function's own code is denied these. "
    "The role names a resource for every other action.",
)
_NETWORK_ACTIONS: Final = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
)
"""As Lambda demands: https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html"""


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
        longest_timeout: for a function of the library: ``FunctionOptions`` may raise ``timeout`` up to this.
        memory_mib: 128 to 10240, 512 by default.
        architecture: arm64 by default.
        reserved_concurrency: at least 1; unreserved by default.
        log_retention: three months by default.
        function_options: for this function alone. What is not named here or there has the options of the scope.
        removal_policy: of the log group; retained by default.

    Attributes:
        function: the Lambda function.
        role: its role. It may write its own log group and trace segments, and nothing else until granted.
        log_group: its log group.
        timeout_seconds: its timeout. This and what follows is kept here, so that a saga of many steps need not ask
            the CDK's process for each of them.
        memory_mib: its memory.
        runtime_name: ``python3.14``, for example.
        architecture_name: ``arm64`` or ``x86_64``.
        code_folder: folder of the user's with its handler; None where it has none.
        decorator: the function of ``saga_runtime`` that makes its handler, ``atomic_step`` for example; None where it
            is not known.
        handled: what is known of its handler.
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
        timeout: Duration | None = None,
        longest_timeout: Duration | None = None,
        memory_mib: int | None = None,
        architecture: lambda_.Architecture | None = None,
        reserved_concurrency: int | None = None,
        log_retention: logs.RetentionDays | None = None,
        function_options: FunctionOptions | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        require_match("handler", handler, _HANDLER, 'name a module and a function, e.g. "transfer.handler"')
        if len(handler) > _LONGEST_HANDLER:
            raise ValueError(
                f"handler must be at most {_LONGEST_HANDLER} characters, got {len(handler)}: {handler!r}; shorten the "
                "module's name"
            )
        if function_options is not None:
            function_options.apply_to(self)
        options = options_of(self)
        self.timeout_seconds = _timeout_of(self.node.path, options, timeout, longest_timeout)
        self.memory_mib = memory_mib if memory_mib is not None else options.memory_mib or _DEFAULT_MEMORY_MIB
        require_between("memory_mib", self.memory_mib, at_least=128, at_most=10_240, later=True)
        if reserved_concurrency is not None:  # with 0 Lambda refuses every call, and each saga fails or is parked
            require_between("reserved_concurrency", reserved_concurrency, at_least=1, at_most=1_000_000, later=True)
        self.decorator: str | None = None
        self.handled = Handler()
        self.code_folder: Path | None = None
        self.runtime_name = options.runtime_name
        chosen = _architecture(architecture, options)
        self.architecture_name = name_of_architecture(chosen)
        variables = {**(options.environment or {}), **(environment or {})}
        require_own_code(variables)
        taken = sorted(set(variables) & {Env.PROTOCOL, Env.SERVICE})
        if taken:
            raise ValueError(f"environment must not set {taken}; these are set by the construct")
        self.log_group = log_group(
            self,
            "Logs",
            retention=logs.RetentionDays.THREE_MONTHS,
            chosen=log_retention,
            removal_policy=removal_policy,
        )
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description="Role of one function; every permission is granted by name",
        )
        self.log_group.grant_write(self.role)
        if options.vpc is not None:
            self.role.add_to_principal_policy(iam.PolicyStatement(actions=[*_NETWORK_ACTIONS], resources=["*"]))
        self.function = lambda_.Function(
            self,
            "Function",
            code=code,
            handler=handler,
            description=description,
            runtime=options.lambda_runtime,
            architecture=chosen,
            role=self.role,
            log_group=self.log_group,
            logging_format=lambda_.LoggingFormat.JSON,
            tracing=lambda_.Tracing.ACTIVE,
            timeout=Duration.seconds(self.timeout_seconds),
            memory_size=self.memory_mib,
            vpc=options.vpc,
            vpc_subnets=options.subnets,
            security_groups=options.security_groups,
            layers=options.layers,
            reserved_concurrent_executions=reserved_concurrency,
            environment={
                **variables,
                Env.PROTOCOL: str(PROTOCOL_VERSION),
                Env.SERVICE: service_of(self),
            },
        )
        check_at_synth(self.function, require_environment_room, require_metrics)
        if options.vpc is not None:
            self._deny_network_to_code()
        Validations.of(self.role).acknowledge(_TRACING if options.vpc is None else _TRACING_AND_NETWORK)
        Manifest.of(self).add(Part.FUNCTIONS, name=self.function.function_name)

    def _deny_network_to_code(self) -> None:
        """Leave network interfaces to Lambda itself: the function's code has the same role.

        A policy of its own, since it names the function, which waits for the other one.
        """
        own = {"ArnEquals": {"lambda:SourceFunctionArn": self.function.function_arn}}
        deny = iam.PolicyStatement(effect=iam.Effect.DENY, actions=[*_NETWORK_ACTIONS], resources=["*"], conditions=own)
        iam.Policy(self, "NoNetworkInterfaces", statements=[deny]).attach_to_role(self.role)

    def _read_handler(self, name: str, folder: Path, handler: str, environment: Mapping[str, str]) -> None:
        """Find a handler in a user's folder, and warn of a ledger or outbox that it needs and was not given."""
        found = find_handler(name, folder, handler)
        self.decorator = found.decorator
        self.handled = found
        self.code_folder = folder
        if found.unread:
            self._refuse_unread(name, handler, found.unread)
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

    def _refuse_unread(self, name: str, handler: str, why: str) -> None:
        """Refuse a module that is not valid Python; warn where the function's Python may be able to read it."""
        told = f"handler of {name} must name a module of valid Python, got {handler!r} ({why})"
        if tuple(map(int, self.runtime_name.removeprefix("python").split("."))) <= PYTHON:
            raise ValueError(f"{told}; correct it")
        Validations.of(self).add_warning(
            "cdk-sagas-handler-unread",
            f"{told}; correct it, or acknowledge this if its syntax is newer than that of Python "
            f"{'.'.join(map(str, PYTHON))}, which synthesizes",
        )

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """Grantee: the function's role."""
        return self.role


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
        code: folder with the function's Python files, relative to the working directory or absolute.
            ``saga_runtime``, Powertools and boto3 are there already.
        handler: ``module.function`` in that folder, made by a decorator of ``saga_runtime`` that fits its step. Read,
            not imported: one that does not exist, or is made by another decorator, ends the synth.
        requirements: file of further packages, each pinned with hashes, as ``uv pip compile --generate-hashes`` and
            ``pip-compile --generate-hashes`` write it. Their wheels for the function's runtime and architecture are
            installed at synth, once per content. None by default.
        environment: environment variables, e.g. ``ledger.environment``.
        timeout: 1 s to 900 s, 15 s by default. The saga's task waits longer than this.
        memory_mib: 128 to 10240, 512 by default. More memory is more processor, too.
        architecture: arm64 by default.
        reserved_concurrency: at least 1; unreserved by default.
        log_retention: three months by default.
        function_options: ``FunctionOptions`` for this function alone: VPC, layers, runtime version.
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
        requirements: str | Path | None = None,
        environment: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
        memory_mib: int | None = None,
        architecture: lambda_.Architecture | None = None,
        reserved_concurrency: int | None = None,
        log_retention: logs.RetentionDays | None = None,
        function_options: FunctionOptions | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(
            scope,
            id,
            code=user_code(scope, code, requirements, architecture, function_options),
            handler=handler,
            description=f"Saga step function {handler}",
            environment=environment,
            timeout=timeout,
            memory_mib=memory_mib,
            architecture=architecture,
            reserved_concurrency=reserved_concurrency,
            log_retention=log_retention,
            function_options=function_options,
            removal_policy=removal_policy,
        )
        self._read_handler(f"StepFunction {id}", Path(code), handler, environment or {})


def _timeout_of(path: str, options: FunctionOptions, given: Duration | None, longest: Duration | None) -> int:
    """Timeout of a function, in seconds: the argument counts before the options, except in the library's own."""
    if longest is None or given is None:
        chosen = given or options.timeout
        if chosen is None:
            return _DEFAULT_SECONDS
        return require_seconds("timeout", chosen, at_least=1, at_most=_LONGEST_SECONDS)
    least, most = int(given.to_seconds()), int(longest.to_seconds())
    seconds = int((options.timeout or given).to_seconds())
    if not least <= seconds <= most:
        allowed = f"{least} s" if least == most else f"{least} s to {most} s"
        raise ValueError(
            f"timeout of FunctionOptions for {path} must be {allowed}, got {seconds} s; apply the options to step "
            "functions only, or give this construct function_options of its own"
        )
    return seconds


def user_code(
    scope: Construct,
    code: str | Path,
    requirements: str | Path | None,
    architecture: lambda_.Architecture | None,
    function_options: FunctionOptions | None,
    extra_files: Mapping[str, bytes] | None = None,
) -> lambda_.Code:
    """Code of a user's function, for the runtime and architecture that it will have.

    Raises:
        ValueError: for a blank path, which would be the working directory, with all that is in it.
        BundleError: if the folder does not exist or would hide a part of the runtime.
    """
    if not str(code).strip():
        raise ValueError(f"code must be the path of a folder, got {code!r}; name the folder with your functions")
    options = options_ahead(scope, function_options)
    machine = name_of_architecture(_architecture(architecture, options))
    target = Target(python=options.runtime_name.removeprefix("python"), machine=_MACHINE_NAMES.get(machine, machine))
    lock = Path(requirements) if requirements is not None else None
    return lambda_.Code.from_asset(str(merged_code(Path(code), extra_files, requirements=lock, target=target)))


def name_role(function: RuntimeFunction, role: str) -> None:
    """Give a function the name by which operators know it, ``the reconciler`` for example."""
    Manifest.of(function).add(Part.FUNCTIONS, name=function.function.function_name, role=role)


def own_code(extra_files: Mapping[str, bytes] | None = None) -> lambda_.Code:
    """Code of the constructs' own functions: the bundle as it is, or with files that one construct adds."""
    if not extra_files:
        return lambda_.Code.from_asset(str(functions_zip()))
    return lambda_.Code.from_asset(str(merged_code(None, extra_files, include_handlers=True)))


def _architecture(given: lambda_.Architecture | None, options: FunctionOptions) -> lambda_.Architecture:
    return given or options.architecture or _arm64()


@functools.cache
def _arm64() -> lambda_.Architecture:
    return lambda_.Architecture.ARM_64
