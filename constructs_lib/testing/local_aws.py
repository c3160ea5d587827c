"""Local AWS: an emulator with our corrections, a synthesized assembly deployed in it, and what a test needs."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, overload
from urllib.parse import urlsplit, urlunsplit

import boto3
from botocore.config import Config

from constructs_lib.testing import server
from constructs_lib.testing.assembly import read_assembly
from constructs_lib.testing.deployment import Outputs, deploy_stacks
from constructs_lib.testing.emulator.admin_paths import PROCESS_PATH, RESET_PATH
from constructs_lib.testing.emulator.clock import EmulatorClock
from constructs_lib.testing.emulator.settings import (
    ACCOUNT,
    LOG_FILE,
    REGION,
    ROOT_ACCESS_KEY_ID,
    ROOT_SECRET_ACCESS_KEY,
    check_options,
)
from constructs_lib.testing.explanation import explain
from constructs_lib.testing.faults import CallRecorder, FaultControl
from constructs_lib.testing.http import HttpClient
from constructs_lib.testing.in_use import IN_USE
from constructs_lib.testing.logs import FunctionLog, read_function_logs
from constructs_lib.testing.names import DeployedResource, UnknownNameError, find
from constructs_lib.testing.users import ApiUser, create_api_user

if TYPE_CHECKING:
    from mypy_boto3_apigateway import APIGatewayClient
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_iam import IAMClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_stepfunctions import SFNClient

_FUNCTION: Final = "AWS::Lambda::Function"
_STATE_MACHINE: Final = "AWS::StepFunctions::StateMachine"
#: A local answer is there in milliseconds; an SDK that waits and repeats would only hide what went wrong.
_CLIENT_CONFIG: Final = Config(
    retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=120, max_pool_connections=64,
    inject_host_prefix=False,
)  # fmt: skip
_CREATING: Final = threading.Lock()
"""Held while a client is created: sessions are not safe for use by many threads."""


class LocalAws:
    """An AWS account on this machine, for as long as the ``with`` block lasts.

    It runs in a process of its own, enforces IAM (each function under its own role), executes the real function
    code, and shares nothing with other instances. At the end no process and no folder is left, also after Ctrl-C or
    when this process is killed.

    Example:
        ```python
        with LocalAws() as aws:
            outputs = aws.deploy("cdk.out")
            alice = aws.create_api_user("alice", api_id=outputs["Shop"]["ApiId"])
            answer = alice.request("POST", aws.api_url(outputs["Shop"]["ApiId"], "prod") + "/orders", body={"n": 1})
        ```

    Args:
        speed: How many times faster than real time everything passes that the emulator waits for or measures.
        concurrency: Execution environments a function has at most; a further call waits for a free one.
        port: Loopback port; any free one by default.
        without: Names of corrections to leave out, to see what the bare emulator does.
    """

    def __init__(
        self,
        *,
        speed: float = 1.0,
        concurrency: int = 4,
        port: int | None = None,
        without: Collection[str] = (),
    ) -> None:
        check_options(speed=speed, concurrency=concurrency, port=0 if port is None else port)
        self._options = {"speed": speed, "concurrency": concurrency, "port": port}
        self._without = frozenset(without)
        self._process: server.EmulatorProcess | None = None
        self._endpoint_url: str | None = None
        self._paths: dict[str, Mapping[str, str]] = {}
        self._resources: list[DeployedResource] | None = None
        self._clients: dict[str, Any] = {}
        self._faults: FaultControl | None = None
        self._clock: EmulatorClock | None = None
        self._http = HttpClient()
        self._reset_at = 0

    @classmethod
    def attach(cls, endpoint_url: str, assembly: str | Path | None = None) -> Self:
        """Return an instance for an emulator that runs already (``cdk-sagas local up``). It is not stopped at the end.

        Args:
            endpoint_url: Its address.
            assembly: The assembly that is deployed in it, so that construct paths are known.
        """
        attached = cls()
        attached._endpoint_url = endpoint_url
        if assembly is not None:
            attached._remember(Path(assembly))
        return attached

    def __enter__(self) -> Self:
        """Start the emulator, unless this instance is attached to one."""
        if self._endpoint_url is None:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the emulator, unless this instance is attached to one."""
        self.stop()

    def start(self) -> None:
        """Start the emulator.

        Raises:
            EmulatorStartError: If it does not start, for example because the port is taken.
            ValueError: If an option is out of range.
        """
        self._process = server.start(without=self._without, **self._options)  # type: ignore[arg-type]
        self._endpoint_url = self._process.endpoint_url
        IN_USE.use(self)

    def stop(self) -> None:
        """End the emulator, everything that runs in it, and its folder. Does nothing the second time."""
        IN_USE.end(self)
        if self._process is not None:
            self._process.stop()
            self._process = None
            self._endpoint_url = None
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        self._faults = None
        self._clock = None

    @property
    def endpoint_url(self) -> str:
        """The address that replaces every AWS endpoint (``AWS_ENDPOINT_URL``)."""
        if self._endpoint_url is None:
            raise RuntimeError("local AWS is not running; use it in a with block, or call start()")
        IN_USE.use(self)
        return self._endpoint_url

    @property
    def account(self) -> str:
        """The account number."""
        return ACCOUNT

    @property
    def region(self) -> str:
        """The region."""
        return REGION

    @property
    def faults(self) -> FaultControl:
        """Plans faults, and reports which of them fired."""
        if self._faults is None:
            self._faults = FaultControl(self.endpoint_url, self.resolve)
        return self._faults

    @property
    def calls(self) -> CallRecorder:
        """Records the AWS calls of functions and state machines."""
        return CallRecorder(self.endpoint_url)

    def deploy(self, assembly: str | Path) -> Outputs:
        """Deploy every stack of a synthesized assembly, each after what it depends on; existing ones are updated.

        Args:
            assembly: The folder, usually ``cdk.out``.

        Returns:
            The outputs of each stack, by stack name.

        Raises:
            AssemblyError: If the folder is not an assembly that can be deployed here.
            DeploymentError: If a stack fails; the message names the resource and its reason.
        """
        folder = Path(assembly)
        stacks = read_assembly(folder, account=self.account, region=self.region)
        try:
            return deploy_stacks(self.client, self.endpoint_url, stacks)
        finally:
            self._remember(folder)

    def session(self) -> boto3.Session:
        """Return a boto3 session of the root user, who may do everything. Give its clients `endpoint_url`."""
        return _session_of_root()

    @overload
    def client(self, service: Literal["apigateway"]) -> APIGatewayClient: ...
    @overload
    def client(self, service: Literal["cloudformation"]) -> CloudFormationClient: ...
    @overload
    def client(self, service: Literal["dynamodb"]) -> DynamoDBClient: ...
    @overload
    def client(self, service: Literal["iam"]) -> IAMClient: ...
    @overload
    def client(self, service: Literal["lambda"]) -> LambdaClient: ...
    @overload
    def client(self, service: Literal["logs"]) -> CloudWatchLogsClient: ...
    @overload
    def client(self, service: Literal["s3"]) -> S3Client: ...
    @overload
    def client(self, service: Literal["secretsmanager"]) -> SecretsManagerClient: ...
    @overload
    def client(self, service: Literal["sqs"]) -> SQSClient: ...
    @overload
    def client(self, service: Literal["stepfunctions"]) -> SFNClient: ...
    @overload
    def client(self, service: str) -> Any: ...
    def client(self, service: str) -> Any:
        """Return a boto3 client of the root user, always the same one per service. Safe for use by many threads.

        Args:
            service: boto3's name of the service.
        """
        endpoint_url = self.endpoint_url
        with _CREATING:
            if service not in self._clients:
                # The stubs know service names as literals only; ours comes from the caller.
                make: Any = _session_of_all().client
                self._clients[service] = make(service, endpoint_url=endpoint_url, config=_CLIENT_CONFIG)
            return self._clients[service]

    def create_api_user(self, name: str, *, api_id: str | Sequence[str] = ()) -> ApiUser:
        """Create an IAM user that may do nothing but invoke the APIs named.

        Args:
            name: User name.
            api_id: Id of the REST API, or several. Without one, the user may do nothing at all.
        """
        return create_api_user(self.client("iam"), name, api_ids=[api_id] if isinstance(api_id, str) else api_id)

    def api_url(self, rest_api_id: str, stage: str) -> str:
        """Return the base URL of a REST API's stage, without a slash at the end.

        Args:
            rest_api_id: Id of the REST API.
            stage: Name of the stage.
        """
        return f"{self.endpoint_url}/restapis/{rest_api_id}/{stage}/_user_request_"

    def local_url(self, url: str) -> str:
        """Return where a URL that a stack made for one of its REST or HTTP APIs is found on this machine.

        CloudFormation returns the URL that an API has on AWS. Convert one that you read from a stack's output, a
        function's environment or a mail with this method before you open it.

        Args:
            url: ``https://{api}.execute-api.{region}.amazonaws.com/{stage}/…``, without a stage for an HTTP API's
                default stage; path and query stay as they are.

        Raises:
            ValueError: If it is not the URL of an API's stage.
        """
        parts = urlsplit(url)
        api_id, _, domain = parts.netloc.partition(".")
        stage, _, path = parts.path.removeprefix("/").partition("/")
        # The emulator names an HTTP API's endpoint by a host of its own.
        if domain.startswith("execute-api.") and domain.partition(":")[0].endswith((".amazonaws.com", ".localhost")):
            stages = self._http_stages(api_id)
            if stages is not None:
                base = f"{self.endpoint_url}/_aws/execute-api/{api_id}"
                place = parts.path if stage in stages else f"/$default{parts.path}"
                return base + urlunsplit(("", "", place, parts.query, parts.fragment))
            if stage:
                return self.api_url(api_id, stage) + urlunsplit(("", "", f"/{path}", parts.query, parts.fragment))
        raise ValueError(
            f"url must be that of a REST API's stage or of an HTTP API, got {url}; "
            "such as https://abc.execute-api.us-east-1.amazonaws.com/prod/"
        )

    def _http_stages(self, api_id: str) -> frozenset[str] | None:
        """Names of an HTTP API's stages; None if it is not one."""
        client = self.client("apigatewayv2")
        try:
            found = client.get_stages(ApiId=api_id)
        except client.exceptions.NotFoundException:
            return None
        return frozenset(str(stage["StageName"]) for stage in found["Items"])

    def now(self) -> datetime:
        """Return the time that functions, state machines and timestamps here have: real time at speed 1."""
        return datetime.fromtimestamp(self._emulator_clock.now(), UTC)

    @property
    def clock(self) -> str:
        """The value of ``CDK_SAGAS_CLOCK`` for a process that must have the same time as this emulator."""
        return f"{self._emulator_clock.base!r}:{self._emulator_clock.speed!r}"

    @property
    def _emulator_clock(self) -> EmulatorClock:
        if self._clock is None:
            process = self._http.send("GET", f"{self.endpoint_url}{PROCESS_PATH}").json()
            self._clock = EmulatorClock(base=process["base"], speed=process["speed"])
        return self._clock

    def functions(self) -> list[DeployedResource]:
        """Return every deployed function."""
        return [resource for resource in self.resources() if resource.type == _FUNCTION]

    def function_logs(self, name: str) -> list[FunctionLog]:
        """Return what a function printed since the last reset: one entry per invocation, oldest first.

        Args:
            name: Physical name, logical id or construct path.

        Raises:
            UnknownNameError: If no function goes by that name.
        """
        function = self.resolve_function(name)
        configuration = self.client("lambda").get_function_configuration(FunctionName=function)
        group = configuration.get("LoggingConfig", {}).get("LogGroup", f"/aws/lambda/{function}")
        return read_function_logs(self.client("logs"), group)

    def resolve_function(self, name: str) -> str:
        """Return the physical name of a function.

        Args:
            name: Physical name, logical id or construct path.

        Raises:
            UnknownNameError: If no function goes by that name, or more than one.
        """
        return find(self.resources(), name, type=_FUNCTION).name

    def resolve_state_machine(self, name: str) -> str:
        """Return the ARN of a state machine.

        Args:
            name: Physical name, ARN, logical id or construct path.

        Raises:
            UnknownNameError: If no state machine goes by that name, or more than one.
        """
        return find(self.resources(), name, type=_STATE_MACHINE).physical_id

    def resolve(self, name: str) -> str:
        """Return the physical name of a function, or the ARN of a state machine.

        Args:
            name: Physical name, ARN, logical id or construct path.

        Raises:
            UnknownNameError: If neither goes by that name.
        """
        try:
            return self.resolve_function(name)
        except UnknownNameError as no_function:
            try:
                return self.resolve_state_machine(name)
            except UnknownNameError as no_machine:
                raise UnknownNameError(f"{no_function}; {no_machine}") from None

    def resources(self) -> list[DeployedResource]:
        """Return every resource of every deployed stack."""
        if self._resources is None:
            self._resources = list(self._list_resources())
        return self._resources

    def reset(self) -> None:
        """Empty tables, queues, logs and buckets, abort executions and clear faults; deployed stacks stay.

        What still runs is stopped, so that one test never writes into the next.
        """
        answer = self._http.send("POST", f"{self.endpoint_url}{RESET_PATH}", body=b"")
        if answer.status != 204:
            raise RuntimeError(f"reset failed with status {answer.status}: {answer.text}")
        self._reset_at = len(self.emulator_log())

    def explain(self, saga_id: str | None = None) -> str:
        """Explain what went wrong since the last reset: what the pytest plugin adds to a test that fails.

        Functions that raised, with the frames of your own code; functions that timed out; executions that did not
        succeed, with state, error and cause; parked sagas, and those in progress with their steps; dead letters;
        planned faults that did not fire.

        Args:
            saga_id: only what belongs to this saga, with its steps; everything by default.

        Returns:
            Lines for a person; empty if nothing went wrong, and nothing is in progress.
        """
        return explain(self, saga_id)

    def emulator_log(self, *, since_reset: bool = False) -> str:
        """Return what the emulator itself printed: where to look when it misbehaves.

        Args:
            since_reset: only what it printed since the last reset.
        """
        if self._process is None:
            return ""
        log = self._process.run_folder / LOG_FILE
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        return text[self._reset_at :] if since_reset else text

    def _remember(self, assembly: Path) -> None:
        for stack in read_assembly(assembly, account=self.account, region=self.region):
            self._paths[stack.name] = stack.paths
        self._resources = None

    def _list_resources(self) -> list[DeployedResource]:
        cloudformation = self.client("cloudformation")
        found: list[DeployedResource] = []
        for page in cloudformation.get_paginator("describe_stacks").paginate():
            for stack in page["Stacks"]:
                paths = self._paths.get(stack["StackName"], {})
                summaries = cloudformation.get_paginator("list_stack_resources")
                for resources in summaries.paginate(StackName=stack["StackName"]):
                    found += [
                        DeployedResource(
                            stack=stack["StackName"],
                            logical_id=summary["LogicalResourceId"],
                            path=paths.get(summary["LogicalResourceId"], ""),
                            type=summary["ResourceType"],
                            physical_id=summary.get("PhysicalResourceId", ""),
                        )
                        for summary in resources["StackResourceSummaries"]
                    ]
        return found


def _session_of_root() -> boto3.Session:
    return boto3.Session(
        aws_access_key_id=ROOT_ACCESS_KEY_ID, aws_secret_access_key=ROOT_SECRET_ACCESS_KEY, region_name=REGION
    )


@functools.cache
def _session_of_all() -> boto3.Session:
    """The session of all instances' clients: one of its own for each would read the SDK's models again."""
    return _session_of_root()


if sys.platform == "win32":  # pragma: no cover
    raise ImportError("local AWS needs process groups and signals; use Linux, macOS or WSL")
