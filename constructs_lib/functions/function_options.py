"""Options of all functions and log groups below a scope: VPC, runtime, memory, environment, retention, key."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import Aws, Duration, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct, IConstruct

from constructs_lib.shared.accepted import AnyKey
from constructs_lib.shared.arguments import require_between, require_match, require_seconds
from constructs_lib.shared.stacks import app_of, asked_once, path_of
from constructs_lib.shared.types import check_fields, require_type
from saga_runtime.protocol import Env

RUNTIMES: Final[Mapping[str, lambda_.Runtime]] = {
    "python3.11": lambda_.Runtime.PYTHON_3_11,
    "python3.12": lambda_.Runtime.PYTHON_3_12,
    "python3.13": lambda_.Runtime.PYTHON_3_13,
    "python3.14": lambda_.Runtime.PYTHON_3_14,
}
"""The runtimes on which the bundle runs, by name: it is written for Python 3.11 and has no compiled code."""
_NEWEST: Final = "python3.14"
_OURS: Final = "CDK_SAGAS_"
_VARIABLE: Final = r"^[A-Za-z][A-Za-z0-9_]+$"
_RESERVED: Final = frozenset(
    {
        "_HANDLER",
        "_X_AMZN_TRACE_ID",
        "AWS_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "AWS_DEFAULT_REGION",
        "AWS_EXECUTION_ENV",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
        "AWS_LAMBDA_FUNCTION_NAME",
        "AWS_LAMBDA_FUNCTION_VERSION",
        "AWS_LAMBDA_INITIALIZATION_TYPE",
        "AWS_LAMBDA_LOG_GROUP_NAME",
        "AWS_LAMBDA_LOG_STREAM_NAME",
        "AWS_LAMBDA_RUNTIME_API",
        "AWS_REGION",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "LAMBDA_RUNTIME_DIR",
        "LAMBDA_TASK_ROOT",
    }
)
"""Names that Lambda refuses: https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html"""
_MOST_LAYERS: Final = 5
_OTHER_CODE: Final = frozenset({"AWS_LAMBDA_EXEC_WRAPPER", "LD_PRELOAD", "PYTHONHOME", "PYTHONPATH"})
"""Names by which another program starts the function, or other modules replace those of the bundle."""
_ARCHITECTURES: Final = ("arm64", "x86_64")
_PLACE: Final = "CdkSagasFunctionOptions"
_NETWORK: Final = ("vpc", "subnets", "security_groups")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionOptions:
    """Options of every function and log group that this library creates below a scope.

    Apply them to an app, a stage or a stack before its constructs are created, or give them to one construct as
    ``function_options``. For each option the nearest scope counts; an argument of a ``StepFunction`` counts before all.
    Environment variables of several scopes are merged. A scope that names a ``vpc`` takes ``subnets`` and
    ``security_groups`` from the same options.

    Example::

        FunctionOptions(vpc=vpc, log_retention=logs.RetentionDays.ONE_YEAR).apply_to(self)

    Attributes:
        vpc: network of the functions. They need a route to the APIs of AWS that they call: NAT or VPC endpoints.
        subnets: where in ``vpc``; private subnets by default.
        security_groups: of the functions; by default each gets one that allows all outbound traffic.
        memory_mib: 128 to 10240; 512 by default.
        timeout: in whole seconds. Functions whose timeout follows from the protocol refuse another one.
        environment: further variables of every function; names of this library and of Lambda are refused, and
            those that make other code run: ``AWS_LAMBDA_EXEC_WRAPPER``, ``LD_PRELOAD``, ``PYTHONHOME``, ``PYTHONPATH``.
        runtime: Python 3.11 to 3.14; 3.14 by default.
        architecture: arm64 by default.
        layers: of every function, at most 5.
        log_retention: of every log group; by default a year for accesses and web ACLs, three months for others.
        log_key: a KMS key of yours for every log group. CloudWatch Logs is allowed to use it; the policy of an imported
            key must do so already.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    vpc: ec2.IVpc | None = None
    subnets: ec2.SubnetSelection | None = None
    security_groups: Sequence[ec2.ISecurityGroup] | None = None
    memory_mib: int | None = None
    timeout: Duration | None = None
    environment: Mapping[str, str] | None = None
    runtime: lambda_.Runtime | None = None
    architecture: lambda_.Architecture | None = None
    layers: Sequence[lambda_.ILayerVersion] | None = None
    log_retention: logs.RetentionDays | None = None
    log_key: AnyKey | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.memory_mib is not None:
            require_between("memory_mib", self.memory_mib, at_least=128, at_most=10_240, later=True)
        if self.timeout is not None:
            require_seconds("timeout", self.timeout, at_least=1, at_most=900)
        if self.runtime is not None and self.runtime.name not in RUNTIMES:
            raise ValueError(
                f"runtime must be one of {', '.join(RUNTIMES)}, got {self.runtime.name}; choose a Python that the "
                "function bundle runs on"
            )
        if self.layers is not None and len(self.layers) > _MOST_LAYERS:
            raise ValueError(
                f"layers must be at most {_MOST_LAYERS}, got {len(self.layers)}; leave some out: Lambda takes no more"
            )
        if self.architecture is not None:
            name_of_architecture(self.architecture)
        require_own_code(self.environment or {})
        for name in self.environment or {}:
            if name not in _RESERVED:
                require_match("a name in environment", name, _VARIABLE, "use letters, digits and underscores")
            if name.startswith(_OURS) or name in set(Env) | _RESERVED:
                raise ValueError(
                    f"environment must not set {name}, which {'Lambda' if name in _RESERVED else 'this library'} sets; "
                    "use another name"
                )

    def apply_to(self, scope: Construct) -> None:
        """Apply the options to what is created below a scope from now on.

        Raises:
            ValueError: if the scope has options, or something below it was created without them.
        """
        require_type("scope", scope, Construct, "FunctionOptions.apply_to")
        _Options.of(scope).add(scope.node.path, self)

    def over(self, outer: FunctionOptions) -> FunctionOptions:
        """These options, and those of an outer scope where these have none."""
        own = {name: value for name, value in _fields(self).items() if value is not None}
        if "vpc" in own:
            own = {**dict.fromkeys(_NETWORK), **own}
        if self.environment is not None:
            own["environment"] = {**(outer.environment or {}), **self.environment}
        return FunctionOptions(**{**_fields(outer), **own})

    @property
    def runtime_name(self) -> str:
        """Name of the runtime: ``python3.14``."""
        return self.runtime.name if self.runtime is not None else _NEWEST

    @property
    def lambda_runtime(self) -> lambda_.Runtime:
        """The runtime."""
        return RUNTIMES[self.runtime_name]


@asked_once
def name_of_architecture(architecture: lambda_.Architecture) -> str:
    """The name of an architecture.

    Raises:
        ValueError: if it is not one of Lambda's.
    """
    if (name := architecture.name) not in _ARCHITECTURES:
        raise ValueError(f"architecture must be one of {', '.join(_ARCHITECTURES)}, got {name}; choose one of Lambda's")
    return name


def require_own_code(environment: Iterable[str]) -> None:
    """Refuse variables that make other code run than the function's.

    Args:
        environment: names of variables.

    Raises:
        ValueError: naming one.
    """
    taken = sorted(_OTHER_CODE.intersection(environment))
    if taken:
        raise ValueError(
            f"environment must not set {taken[0]}, which makes other code run than the function's; remove it"
        )


def options_of(scope: Construct) -> FunctionOptions:
    """Options of what is created in a scope; from now on the scope takes no others.

    Raises:
        ValueError: for subnets or security groups without a VPC.
    """
    path, options = path_of(scope), _Options.of(scope)
    options.read.append(path)
    found = options.at(path)
    if found.vpc is None and (found.subnets is not None or found.security_groups is not None):
        raise ValueError(
            f"vpc of FunctionOptions for {path} must be set with subnets or security_groups, got none; name the VPC"
        )
    return found


def options_ahead(scope: Construct, own: FunctionOptions | None) -> FunctionOptions:
    """Options of a function that does not exist yet, by the scope that will be its parent."""
    return (own or FunctionOptions()).over(_Options.of(scope).at(path_of(scope)))


def log_group(
    scope: Construct,
    id: str,
    *,
    retention: logs.RetentionDays,
    removal_policy: RemovalPolicy,
    chosen: logs.RetentionDays | None = None,
    name: str | None = None,
) -> logs.LogGroup:
    """A log group, with retention and key of the options of its scope.

    Args:
        scope: parent construct.
        id: construct id.
        retention: where neither options nor an argument name one.
        removal_policy: of the group.
        chosen: an argument, which counts before all options.
        name: of the group, if AWS fixes it.
    """
    options = options_of(scope)
    if options.log_key is not None:
        let_logs_use(options.log_key)
    return logs.LogGroup(
        scope,
        id,
        log_group_name=name,
        retention=chosen or options.log_retention or retention,
        encryption_key=options.log_key,
        removal_policy=removal_policy,
    )


def let_logs_use(key: AnyKey) -> None:
    """Let CloudWatch Logs of this account and region use a key.

    As AWS demands: https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/encrypt-log-data-kms.html. Equal statements
    of a policy are one.
    """
    groups = f"arn:{Aws.PARTITION}:logs:{Aws.REGION}:{Aws.ACCOUNT_ID}:log-group:*"
    key.add_to_resource_policy(
        iam.PolicyStatement(
            actions=["kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:Describe*"],
            # Of CloudWatch Logs, other than of most services, the name is another one in other partitions.
            principals=[iam.ServicePrincipal(f"logs.{Aws.REGION}.{Aws.URL_SUFFIX}")],
            resources=["*"],
            conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
        ),
        True,
    )


class _Options(Construct):
    """The options of an app, by the path of the scope that they were applied to."""

    def __init__(self, root: Construct) -> None:
        super().__init__(root, _PLACE)
        self._by_path: dict[str, FunctionOptions] = {}
        self.read: list[str] = []

    @staticmethod
    def of(scope: IConstruct) -> _Options:
        return _options_of_app(app_of(scope))

    def add(self, path: str, options: FunctionOptions) -> None:
        if path in self._by_path:
            raise ValueError(
                f"FunctionOptions of {path or 'the app'} must be applied once, got a second time; "
                "put all options into one"
            )
        late = next((read for read in self.read if _is_in(read, path)), None)
        if late is not None:
            raise ValueError(
                f"FunctionOptions of {path or 'the app'} must be applied before anything below it is created, got them "
                f"after {late}; apply them first"
            )
        self._by_path[path] = options

    def at(self, path: str) -> FunctionOptions:
        found = FunctionOptions()
        for scope in sorted((scope for scope in self._by_path if _is_in(path, scope)), key=len):
            found = self._by_path[scope].over(found)
        return found


@asked_once
def _options_of_app(root: IConstruct) -> _Options:
    found = root.node.try_find_child(_PLACE)
    if isinstance(found, _Options):
        return found
    assert isinstance(root, Construct)  # noqa: S101  # every root is one
    return _Options(root)


def _is_in(path: str, scope: str) -> bool:
    return not scope or path == scope or path.startswith(f"{scope}/")


def _fields(options: FunctionOptions) -> dict[str, Any]:
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
