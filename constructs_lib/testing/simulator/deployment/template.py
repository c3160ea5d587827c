"""From a synthesized stack to a blueprint: every reference resolved, every resource that a simulation runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from constructs_lib.testing.assembly import StackArtifact, read_assembly
from constructs_lib.testing.names import DeployedResource
from constructs_lib.testing.simulator.deployment.blueprint import (
    ACCOUNT,
    REGION,
    ApiSpec,
    AsyncSpec,
    Blueprint,
    FunctionSpec,
    IndexSpec,
    MachineSpec,
    MappingSpec,
    QueueSpec,
    RouteSpec,
    RuleSpec,
    StreamSpec,
    TableSpec,
    TargetSpec,
)
from constructs_lib.testing.simulator.deployment.intrinsics import Resolver
from constructs_lib.testing.simulator.errors import NotSimulatedError

_SECONDS: Final = {"minute": 60, "hour": 3_600, "day": 86_400}
_RATE: Final = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_FUNCTION_IN_URI: Final = re.compile(r"/functions/(?:arn:aws:lambda:[^/]*:function:)?([^/:]+)(?::[^/]*)?/invocations")
_STREAM: Final = ".StreamArn"
_FIFTEEN_MINUTES: Final = 900


def blueprint_of(assembly: Path) -> Blueprint:
    """Read a synthesized assembly (``cdk.out``), all of its stacks.

    Raises:
        AssemblyError: if the folder is not an assembly.
        NotSimulatedError: if a stack needs what the simulator does not have.
    """
    blueprint = Blueprint()
    exports: dict[str, Any] = {}
    for stack in read_assembly(assembly, account=ACCOUNT, region=REGION):
        _Reader(blueprint, stack, exports).read()
    return blueprint


class _Reader:
    """Reads one stack into a blueprint."""

    def __init__(self, blueprint: Blueprint, stack: StackArtifact, exports: dict[str, Any]) -> None:
        self._to = blueprint
        self._stack = stack
        self._resources: Mapping[str, Any] = stack.template.get("Resources", {})
        self._resolver = Resolver(stack.name, stack.template, exports)
        self._assets = {asset.key: asset.source for asset in stack.assets}

    def read(self) -> None:
        """Read every resource, then the outputs."""
        readers: dict[str, Callable[[str, dict[str, Any]], None]] = {
            "AWS::Lambda::Function": self._function,
            "AWS::Lambda::EventSourceMapping": self._mapping,
            "AWS::Lambda::EventInvokeConfig": self._asynchronous,
            "AWS::DynamoDB::GlobalTable": self._table,
            "AWS::DynamoDB::Table": self._table,
            "AWS::SQS::Queue": self._queue,
            "AWS::StepFunctions::StateMachine": self._machine,
            "AWS::Events::Rule": self._rule,
            "AWS::Events::EventBus": self._bus,
            "AWS::S3::Bucket": self._bucket,
            "AWS::SecretsManager::Secret": self._secret,
            "AWS::IAM::Role": self._role,
            "AWS::IAM::Policy": self._policy,
            "AWS::IAM::ManagedPolicy": self._policy,
            "AWS::ApiGateway::RestApi": self._api,
        }
        for logical_id, resource in self._resources.items():
            kind = resource["Type"]
            self._to.resources.append(
                DeployedResource(
                    stack=self._stack.name,
                    logical_id=logical_id,
                    path=self._stack.paths.get(logical_id, ""),
                    type=kind,
                    physical_id=str(self._resolver.reference(logical_id)),
                )
            )
            if kind in readers:
                readers[kind](logical_id, self._resolver.resolve(resource.get("Properties", {})))
            else:
                self._to.ignored[kind] = self._to.ignored.get(kind, 0) + 1
        outputs = self._resolver.outputs()
        self._to.outputs[self._stack.name] = outputs

    def _name(self, logical_id: str) -> str:
        return self._resolver.name(logical_id)

    def _function(self, logical_id: str, given: dict[str, Any]) -> None:
        code = given["Code"]
        if given.get("PackageType") == "Image":
            raise NotSimulatedError(
                f"function {logical_id} is a container image; the simulator runs Python bundles only"
            )
        if not str(given.get("Runtime", "")).startswith("python"):
            raise NotSimulatedError(
                f"function {logical_id} runs on {given.get('Runtime')}; the simulator runs Python functions only"
            )
        name = self._name(logical_id)
        self._to.functions[name] = FunctionSpec(
            name=name,
            code=code["ZipFile"] if "ZipFile" in code else self._asset(logical_id, str(code["S3Key"])),
            handler=given["Handler"],
            environment={key: str(value) for key, value in given.get("Environment", {}).get("Variables", {}).items()},
            timeout=int(given.get("Timeout", 3)),
            role=str(given["Role"]).rpartition("/")[2],
            memory=int(given.get("MemorySize", 128)),
        )

    def _asset(self, logical_id: str, key: str) -> Path:
        source = self._assets.get(key)
        if source is None or not source.exists():
            raise NotSimulatedError(
                f"the code of function {logical_id} is not in the assembly; synthesize with asset staging on"
            )
        return source

    def _mapping(self, logical_id: str, given: dict[str, Any]) -> None:
        source = str(given["EventSourceArn"])
        if source.endswith(_STREAM):
            self._stream(source.removesuffix(_STREAM), given)
            return
        if ":sqs:" not in source:
            raise NotSimulatedError(f"event source {logical_id} is neither an SQS queue nor a table: {source}")
        if "FilterCriteria" in given:
            raise NotSimulatedError(f"event source {logical_id} filters; the simulator delivers every message")
        self._to.mappings.append(
            MappingSpec(
                queue=source.rpartition(":")[2],
                function=str(given["FunctionName"]).rpartition(":")[2],
                batch=int(given.get("BatchSize", 10)),
                partial="ReportBatchItemFailures" in given.get("FunctionResponseTypes", ()),
                concurrency=int(given.get("ScalingConfig", {}).get("MaximumConcurrency", 1_000)),
            )
        )

    def _stream(self, table: str, given: dict[str, Any]) -> None:
        retries, max_age = int(given.get("MaximumRetryAttempts", -1)), int(given.get("MaximumRecordAgeInSeconds", -1))
        specification = next(
            found["StreamSpecification"]
            for logical_id, resource in self._resources.items()
            if (found := resource.get("Properties", {})).get("StreamSpecification") and self._name(logical_id) == table
        )
        self._to.streams.append(
            StreamSpec(
                table=table,
                function=str(given["FunctionName"]).rpartition(":")[2],
                view=specification["StreamViewType"],
                batch=int(given.get("BatchSize", 100)),
                partial="ReportBatchItemFailures" in given.get("FunctionResponseTypes", ()),
                patterns=tuple(
                    json.loads(each["Pattern"]) for each in given.get("FilterCriteria", {}).get("Filters", ())
                ),
                retries=retries if retries >= 0 else float("inf"),
                max_age=max_age if max_age >= 0 else 86_400,
            )
        )

    def _asynchronous(self, _logical_id: str, given: dict[str, Any]) -> None:
        destination = given.get("DestinationConfig", {}).get("OnFailure", {}).get("Destination")
        self._to.asynchronous[str(given["FunctionName"]).rpartition(":")[2]] = AsyncSpec(
            retries=int(given.get("MaximumRetryAttempts", 2)),
            max_age=int(given.get("MaximumEventAgeInSeconds", 21_600)),
            on_failure=destination,
        )

    def _table(self, logical_id: str, given: dict[str, Any]) -> None:
        kinds = {attribute["AttributeName"]: attribute["AttributeType"] for attribute in given["AttributeDefinitions"]}
        keys = _keys(given["KeySchema"])
        indexes = []
        for index in given.get("GlobalSecondaryIndexes", ()):
            index_keys = _keys(index["KeySchema"])
            projection = index["Projection"]
            held = {*keys, *index_keys, *projection.get("NonKeyAttributes", ())}
            indexes.append(
                IndexSpec(
                    name=index["IndexName"],
                    keys=index_keys,
                    kinds=tuple(kinds[key] for key in index_keys),
                    projected=None if projection["ProjectionType"] == "ALL" else frozenset(held),
                )
            )
        if given.get("LocalSecondaryIndexes"):
            raise NotSimulatedError(f"table {logical_id} has local secondary indexes; the simulator has none")
        ttl = given.get("TimeToLiveSpecification", {})
        name = self._name(logical_id)
        self._to.tables[name] = TableSpec(
            name=name,
            keys=keys,
            kinds=tuple(kinds[key] for key in keys),
            indexes=tuple(indexes),
            ttl=ttl.get("AttributeName") if ttl.get("Enabled") else None,
        )

    def _queue(self, logical_id: str, given: dict[str, Any]) -> None:
        redrive = given.get("RedrivePolicy", {})
        name = self._name(logical_id)
        self._to.queues[name] = QueueSpec(
            name=name,
            fifo=bool(given.get("FifoQueue")),
            visibility=int(given.get("VisibilityTimeout", 30)),
            retention=int(given.get("MessageRetentionPeriod", 345_600)),
            dead_letters=redrive.get("deadLetterTargetArn"),
            max_receives=int(redrive.get("maxReceiveCount", 0)),
            content_deduplication=bool(given.get("ContentBasedDeduplication")),
        )

    def _machine(self, logical_id: str, given: dict[str, Any]) -> None:
        name = self._name(logical_id)
        definition: Any = given.get("DefinitionString") or given.get("Definition")
        self._to.machines[name] = MachineSpec(
            name=name,
            definition=json.loads(definition) if isinstance(definition, str) else definition,
            kind=str(given.get("StateMachineType", "STANDARD")),
            role=str(given["RoleArn"]).rpartition("/")[2],
        )

    def _rule(self, logical_id: str, given: dict[str, Any]) -> None:
        if given.get("State", "ENABLED") != "ENABLED":
            return
        every = None
        if (schedule := given.get("ScheduleExpression")) is not None:
            found = _RATE.fullmatch(schedule)
            if found is None:
                raise NotSimulatedError(f"rule {logical_id} has the schedule {schedule}; the simulator knows rate(…)")
            every = int(found[1]) * _SECONDS[found[2]]
        self._to.rules.append(
            RuleSpec(
                name=self._name(logical_id),
                bus=str(given.get("EventBusName", "default")).rpartition("/")[2],
                pattern=given.get("EventPattern"),
                every=every,
                targets=tuple(_target(target) for target in given.get("Targets", ())),
            )
        )

    def _bus(self, logical_id: str, given: dict[str, Any]) -> None:
        self._to.buses.add(str(given.get("Name") or self._name(logical_id)))

    def _bucket(self, logical_id: str, given: dict[str, Any]) -> None:
        self._to.buckets.append(str(given.get("BucketName") or self._name(logical_id)))

    def _secret(self, logical_id: str, _given: dict[str, Any]) -> None:
        self._to.secrets[logical_id] = str(self._resolver.reference(logical_id))

    def _role(self, logical_id: str, given: dict[str, Any]) -> None:
        statements = self._to.roles.setdefault(self._name(logical_id), [])
        for policy in given.get("Policies", ()):
            statements += _statements(policy["PolicyDocument"])

    def _policy(self, _logical_id: str, given: dict[str, Any]) -> None:
        for role in given.get("Roles", ()):
            self._to.roles.setdefault(str(role), []).extend(_statements(given["PolicyDocument"]))

    def _api(self, logical_id: str, given: dict[str, Any]) -> None:
        routes = []
        stage = "prod"
        for method_id, resource in self._resources.items():
            if resource["Type"] not in ("AWS::ApiGateway::Stage", "AWS::ApiGateway::Method"):
                continue
            properties = self._resolver.resolve(resource.get("Properties", {}))
            if properties.get("RestApiId") != self._resolver.reference(logical_id):
                continue
            if resource["Type"] == "AWS::ApiGateway::Stage":
                stage = str(properties["StageName"])
            if resource["Type"] == "AWS::ApiGateway::Method" and properties["HttpMethod"] != "OPTIONS":
                integration = properties.get("Integration", {})
                found = _FUNCTION_IN_URI.search(str(integration.get("Uri", "")))
                if integration.get("Type") != "AWS_PROXY" or found is None:
                    raise NotSimulatedError(f"method {method_id} has no Lambda proxy integration")
                routes.append(
                    RouteSpec(
                        method=properties["HttpMethod"],
                        path=self._path(resource["Properties"]["ResourceId"]),
                        function=found[1],
                        authorization=properties.get("AuthorizationType", "NONE"),
                    )
                )
        api = str(self._resolver.reference(logical_id))
        self._to.apis[api] = ApiSpec(
            id=api, stage=stage, binary="*/*" in given.get("BinaryMediaTypes", ()), routes=tuple(routes)
        )

    def _path(self, resource_id: Any) -> str:
        """Path of an API's resource."""
        if "Ref" not in resource_id:
            return "/"
        given = self._resources[resource_id["Ref"]]["Properties"]
        return f"{self._path(given['ParentId']).rstrip('/')}/{given['PathPart']}"


def _keys(schema: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    by_kind = {part["KeyType"]: part["AttributeName"] for part in schema}
    return (by_kind["HASH"], *([by_kind["RANGE"]] if "RANGE" in by_kind else []))


def _statements(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = document["Statement"]
    return list(found) if isinstance(found, list) else [found]


def _target(given: Mapping[str, Any]) -> TargetSpec:
    policy, transformer = given.get("RetryPolicy", {}), given.get("InputTransformer", {})
    if "InputPath" in given:
        raise NotSimulatedError(
            f"target {given['Arn']} has an InputPath; the simulator knows Input and InputTransformer"
        )
    return TargetSpec(
        arn=str(given["Arn"]),
        constant=given.get("Input"),
        paths=dict(transformer.get("InputPathsMap", {})),
        template=transformer.get("InputTemplate"),
        dead_letters=given.get("DeadLetterConfig", {}).get("Arn"),
        max_age=int(policy.get("MaximumEventAgeInSeconds", 86_400)),
        retries=int(policy.get("MaximumRetryAttempts", 185)),
        group=given.get("SqsParameters", {}).get("MessageGroupId"),
    )
