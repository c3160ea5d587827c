"""From a synthesized stack to a blueprint: every reference resolved, every resource that a simulation runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from constructs_lib.testing.assembly import StackArtifact, read_assembly
from constructs_lib.testing.names import DeployedResource
from constructs_lib.testing.simulator.aws.events import INERT
from constructs_lib.testing.simulator.aws.functions import function_name
from constructs_lib.testing.simulator.aws.http_api import DEFAULT
from constructs_lib.testing.simulator.deployment.blueprint import (
    ACCOUNT,
    REGION,
    AliasSpec,
    ApiSpec,
    AsyncSpec,
    Blueprint,
    BucketSpec,
    ExpirationSpec,
    FunctionSpec,
    IndexSpec,
    MachineSpec,
    MappingSpec,
    QueueSpec,
    RequestChecks,
    RouteSpec,
    RuleSpec,
    StreamSpec,
    TableSpec,
    TargetSpec,
)
from constructs_lib.testing.simulator.deployment.intrinsics import Resolver
from constructs_lib.testing.simulator.deployment.request_checks import checks_of, keys_of
from constructs_lib.testing.simulator.deployment.schedules import cron_of
from constructs_lib.testing.simulator.errors import NotSimulatedError

_SECONDS: Final = {"minute": 60, "hour": 3_600, "day": 86_400}
_KEPT_BY: Final = ("DeletionPolicy", "UpdateReplacePolicy")
_RATE: Final = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_FUNCTION_IN_URI: Final = re.compile(r"/functions/(?:arn:aws:lambda:[^/]*:function:)?([^/:]+)(?::[^/]*)?/invocations")
_STREAM: Final = ".StreamArn"
_WAITS: Final = re.compile(r":states:::[\w:.-]*\.(?:sync(?::2)?|waitForTaskToken)\b")
_OF_STREAMS: Final = {
    "BisectBatchOnFunctionError": "a batch that fails is not divided",
    "DestinationConfig": "changes that are discarded are sent nowhere",
    "ParallelizationFactor": "one batch of a shard at once",
    "TumblingWindowInSeconds": "no windows",
}
"""Options of a stream's event source that have no effect here."""
_OF_LIFECYCLES: Final = frozenset(
    {
        "AbortIncompleteMultipartUpload",
        "ExpirationInDays",
        "ExpiredObjectDeleteMarker",
        "Id",
        "NoncurrentVersionExpiration",
        "NoncurrentVersionExpirationInDays",
        "Prefix",
        "Status",
    }
)
"""Members of a lifecycle's rule that are simulated, and those of uploads and versions, which no call here makes."""
_ROUTE_KEY: Final = re.compile(r"([A-Z]+) (/\S*)")
_ACTS: Final = frozenset({"lambda", "sqs", "firehose"})
"""Protocols of subscriptions behind which something of the stack acts; others notify a person, or another system."""
_UNSEEN: Final = (
    "AWS::ApiGateway::",
    "AWS::ApiGatewayV2::",
    "AWS::CDK::Metadata",
    "AWS::CloudWatch::",
    "AWS::Cognito::",
    "AWS::IAM::",
    "AWS::KMS::",
    "AWS::Lambda::Alias",
    "AWS::Lambda::LayerVersion",
    "AWS::Lambda::Permission",
    "AWS::Lambda::Version",
    "AWS::Logs::LogGroup",
    "AWS::Logs::MetricFilter",
    "AWS::Logs::QueryDefinition",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::TopicPolicy",
    "AWS::SQS::QueuePolicy",
    "AWS::SSM::Parameter",
    "AWS::WAFv2::",
)
"""Types, or their beginnings, of resources that do nothing on their own; others are listed as not simulated."""


def blueprint_of(assembly: Path, only: Collection[str] | None = None) -> Blueprint:
    """Read a synthesized assembly (``cdk.out``): stacks by name, or all of them.

    Whatever account and region they are for, they are deployed in the simulated one.

    Raises:
        AssemblyError: if the folder is not an assembly.
        NotSimulatedError: if two stacks have one name, or are for different accounts or regions, or if a reference or a
            policy cannot be understood. Of resources that are not simulated, the
            blueprint has the reasons; what needs one is refused when it is needed.
    """
    blueprint = Blueprint()
    exports: dict[str, Any] = {}
    seen = _Seen()
    stacks = read_assembly(assembly, account=ACCOUNT, region=REGION)
    for stack in _moved_here([stack for stack in stacks if only is None or stack.name in only]):
        _Reader(blueprint, stack, exports, seen).read()
    blueprint.apis |= {api.id: api for api in seen.http_apis()}
    _check_functions(blueprint)
    blueprint.rules = [_checked(rule, blueprint, seen) for rule in blueprint.rules]
    kinds = [f"{kind} ({count})" for kind, count in sorted(blueprint.ignored.items()) if not kind.startswith(_UNSEEN)]
    if kinds:
        blueprint.leave_out(f"resources of the types {', '.join(kinds)}")
    return blueprint


def _moved_here(stacks: Sequence[StackArtifact]) -> list[StackArtifact]:
    """The stacks, for the simulated account and region.

    Raises:
        NotSimulatedError: if two have one name, or are for different accounts or regions.
    """
    names = [stack.name for stack in stacks]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise NotSimulatedError(f"stacks must have different names, got {' and '.join(twice)} twice; give one stage")
    here: dict[str, str] = {}
    for what, simulated in (("account", ACCOUNT), ("region", REGION)):
        wanted = sorted({there for stack in stacks if (there := getattr(stack, what)) is not None})
        if len(wanted) > 1:
            raise NotSimulatedError(
                f"stacks must be for one {what}, got {' and '.join(wanted)}; simulate those of each on their own"
            )
        here |= dict.fromkeys(wanted, simulated)
    if not here:
        return [*stacks]
    pattern = re.compile("|".join(map(re.escape, here)))

    def moved(template: object) -> Any:
        return json.loads(pattern.sub(lambda found: here[found[0]], json.dumps(template)))

    return [replace(stack, template=moved(stack.template)) for stack in stacks]


@dataclass(slots=True)
class _Seen:
    """Parts of resources that several stacks may have.

    Attributes:
        topics: ARNs.
        acting: those to which a function or a queue has subscribed.
        views: images that a change of each table has.
        routes: of HTTP APIs, by the API's id.
        stages: their names, likewise.
        others: ids of APIs of other kinds.
        stacks: names of the stacks that have HTTP APIs, or their routes, by the API's id.
    """

    topics: set[str] = field(default_factory=set)
    acting: set[str] = field(default_factory=set)
    views: dict[str, str] = field(default_factory=dict)
    routes: dict[str, list[RouteSpec]] = field(default_factory=dict)
    stages: dict[str, list[str]] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    stacks: dict[str, str] = field(default_factory=dict)

    def http_apis(self) -> Iterator[ApiSpec]:
        """Every HTTP API that has a route, also one that another app has."""
        for api, routes in self.routes.items():
            if api not in self.others:
                stages = self.stages.get(api, [DEFAULT])
                stage = DEFAULT if DEFAULT in stages else stages[0]
                yield ApiSpec(id=api, stage=stage, routes=tuple(routes), http=True, stack=self.stacks[api])


def _check_functions(blueprint: Blueprint) -> None:
    """Refuse functions that the assembly does not have, and that its resources invoke."""
    invoked = {
        *(mapping.function for mapping in blueprint.mappings),
        *(stream.function for stream in blueprint.streams),
        *(route.function for api in blueprint.apis.values() for route in api.routes if route.refused is None),
        *(function_name(target.arn) for rule in blueprint.rules for target in rule.targets if ":lambda:" in target.arn),
    }
    for name in sorted(invoked - blueprint.functions.keys() - blueprint.refused.keys()):
        blueprint.refused[name] = f"function {name} is not in the assembly"
        blueprint.leave_out(blueprint.refused[name])


def _checked(rule: RuleSpec, blueprint: Blueprint, seen: _Seen) -> RuleSpec:
    """The rule, with the reason for which a target is refused. A schedule leaves such a target out."""
    targets = []
    for target in rule.targets:
        reason = target.refused or _refusal(target, blueprint, seen)
        if reason is not None:
            blueprint.leave_out(f"rule {rule.name}: {reason}")
        elif rule.is_scheduled and (unknown := blueprint.refused.get(function_name(target.arn))) is not None:
            blueprint.leave_out(f"rule {rule.name}: its schedule invokes nothing, as {unknown}")
        elif any(service in target.arn for service in INERT):
            blueprint.leave_out(f"rule {rule.name}: {target.arn} receives its events, and nothing follows")
        targets.append(replace(target, refused=reason))
    return replace(rule, targets=tuple(targets))


def _refusal(target: TargetSpec, blueprint: Blueprint, seen: _Seen) -> str | None:
    """Reason for which no event can be sent to a target; None: it can."""
    name = target.arn.rpartition(":")[2]
    if ":lambda:" in target.arn or ":logs:" in target.arn:
        return None
    if ":sqs:" in target.arn:
        return None if name in blueprint.queues else f"the queue {name}, its target, is not in the assembly"
    if target.arn in seen.acting:
        return f"the topic {name}, its target, has subscriptions of functions or queues, which are not simulated"
    if ":sns:" in target.arn:
        return None if target.arn in seen.topics else f"the topic {name}, its target, is not in the assembly"
    return f"its target {target.arn} is not simulated"


class _Reader:
    """Reads one stack into a blueprint."""

    def __init__(self, blueprint: Blueprint, stack: StackArtifact, exports: dict[str, Any], seen: _Seen) -> None:
        self._to = blueprint
        self._seen = seen
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
            "AWS::StepFunctions::StateMachineVersion": self._version,
            "AWS::StepFunctions::StateMachineAlias": self._alias,
            "AWS::Events::Rule": self._rule,
            "AWS::Events::EventBus": self._bus,
            "AWS::S3::Bucket": self._bucket,
            "AWS::SecretsManager::Secret": self._secret,
            "AWS::IAM::Role": self._role,
            "AWS::IAM::Policy": self._policy,
            "AWS::IAM::ManagedPolicy": self._policy,
            "AWS::ApiGateway::RestApi": self._api,
            "AWS::ApiGatewayV2::Api": self._http_api,
            "AWS::ApiGatewayV2::Route": self._http_route,
            "AWS::ApiGatewayV2::Stage": self._http_stage,
            "AWS::SNS::Topic": self._topic,
            "AWS::SNS::Subscription": self._subscription,
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
            if kind == "AWS::ApiGateway::Method" and "Fn::ImportValue" in resource["Properties"]["RestApiId"]:
                self._to.leave_out(f"method {logical_id}: its API is another stack's")
            if kind in readers:
                readers[kind](logical_id, self._resolver.resolve(resource.get("Properties", {})))
            else:
                self._to.ignored[kind] = self._to.ignored.get(kind, 0) + 1
        outputs = self._resolver.outputs()
        self._to.outputs[self._stack.name] = outputs

    def _name(self, logical_id: str) -> str:
        return self._resolver.name(logical_id)

    def _function(self, logical_id: str, given: dict[str, Any]) -> None:
        name = self._name(logical_id)
        try:
            code = self._code(logical_id, given)
        except NotSimulatedError as reason:
            self._to.refused[name] = str(reason)
            self._to.leave_out(str(reason))
            return
        self._to.functions[name] = FunctionSpec(
            name=name,
            code=code,
            handler=given["Handler"],
            environment={key: str(value) for key, value in given.get("Environment", {}).get("Variables", {}).items()},
            timeout=int(given.get("Timeout", 3)),
            role=str(given["Role"]).rpartition("/")[2],
            memory=int(given.get("MemorySize", 128)),
            log_group=given.get("LoggingConfig", {}).get("LogGroup"),
            traced=given.get("TracingConfig", {}).get("Mode") == "Active",
            may_loop=given.get("RecursiveLoop") == "Allow",
        )

    def _code(self, logical_id: str, given: Mapping[str, Any]) -> Path | str:
        """The code of a function that the simulator can run.

        Raises:
            NotSimulatedError: if it cannot.
        """
        code = given["Code"]
        if given.get("PackageType") == "Image":
            raise NotSimulatedError(
                f"function {logical_id} is a container image; the simulator runs Python bundles only"
            )
        if not str(given.get("Runtime", "")).startswith("python"):
            raise NotSimulatedError(
                f"function {logical_id} runs on {given.get('Runtime')}; the simulator runs Python functions only"
            )
        return str(code["ZipFile"]) if "ZipFile" in code else self._asset(logical_id, str(code.get("S3Key")))

    def _asset(self, logical_id: str, key: str) -> Path:
        source = self._assets.get(key)
        if source is None or not source.exists():
            raise NotSimulatedError(
                f"the code of function {logical_id} is not in the assembly; synthesize with asset staging on"
            )
        return source

    def _mapping(self, logical_id: str, given: dict[str, Any]) -> None:
        source = str(given["EventSourceArn"])
        if given.get("Enabled") is False:
            return  # its messages wait
        if source.endswith(_STREAM):
            self._stream(logical_id, source.removesuffix(_STREAM), given)
            return
        if ":sqs:" not in source:
            self._to.leave_out(f"event source {logical_id} is neither an SQS queue nor a table: {source}")
            return
        refused = None
        if given.get("FilterCriteria", {}).get("Filters"):
            refused = f"event source {logical_id} filters messages, which is not simulated"
            self._to.leave_out(refused)
        self._to.mappings.append(
            MappingSpec(
                queue=source.rpartition(":")[2],
                function=str(given["FunctionName"]).rpartition(":")[2],
                batch=int(given.get("BatchSize", 10)),
                partial="ReportBatchItemFailures" in given.get("FunctionResponseTypes", ()),
                concurrency=int(given.get("ScalingConfig", {}).get("MaximumConcurrency", 1_000)),
                refused=refused,
            )
        )

    def _view(self, logical_id: str, given: Mapping[str, Any]) -> None:
        if specification := given.get("StreamSpecification"):
            self._seen.views[self._name(logical_id)] = str(specification["StreamViewType"])

    def _stream(self, logical_id: str, table: str, given: dict[str, Any]) -> None:
        retries, max_age = int(given.get("MaximumRetryAttempts", -1)), int(given.get("MaximumRecordAgeInSeconds", -1))
        for table_id, resource in self._resources.items():
            if resource["Type"] in ("AWS::DynamoDB::GlobalTable", "AWS::DynamoDB::Table"):
                self._view(table_id, resource["Properties"])
        if table not in self._seen.views:
            self._to.leave_out(f"event source {logical_id}: the table {table} is not in the assembly")
            return
        for name, told in _OF_STREAMS.items():
            if (value := given.get(name)) and (name, value) != ("ParallelizationFactor", 1):
                self._to.leave_out(f"event source {logical_id}: {told}")
        self._to.streams.append(
            StreamSpec(
                table=table,
                function=str(given["FunctionName"]).rpartition(":")[2],
                view=self._seen.views[table],
                batch=int(given.get("BatchSize", 100)),
                partial="ReportBatchItemFailures" in given.get("FunctionResponseTypes", ()),
                patterns=tuple(
                    json.loads(each["Pattern"]) for each in given.get("FilterCriteria", {}).get("Filters", ())
                ),
                retries=retries if retries >= 0 else float("inf"),
                max_age=max_age if max_age >= 0 else 86_400,
            )
        )

    def _asynchronous(self, logical_id: str, given: dict[str, Any]) -> None:
        destination = given.get("DestinationConfig", {}).get("OnFailure", {}).get("Destination")
        if "OnSuccess" in given.get("DestinationConfig", {}):
            self._to.leave_out(f"{logical_id}: the destination of invocations that succeed")
        self._to.asynchronous[str(given["FunctionName"]).rpartition(":")[2]] = AsyncSpec(
            retries=int(given.get("MaximumRetryAttempts", 2)),
            max_age=int(given.get("MaximumEventAgeInSeconds", 21_600)),
            on_failure=destination,
        )

    def _table(self, logical_id: str, given: dict[str, Any]) -> None:
        self._view(logical_id, given)
        kinds = {attribute["AttributeName"]: attribute["AttributeType"] for attribute in given["AttributeDefinitions"]}
        keys = _keys(given["KeySchema"])
        indexes = []
        local = given.get("LocalSecondaryIndexes", ())
        for index in (*given.get("GlobalSecondaryIndexes", ()), *local):
            index_keys = _keys(index["KeySchema"])
            projection = index["Projection"]
            held = {*keys, *index_keys, *projection.get("NonKeyAttributes", ())}
            indexes.append(
                IndexSpec(
                    name=index["IndexName"],
                    keys=index_keys,
                    kinds=tuple(kinds[key] for key in index_keys),
                    projected=None if projection["ProjectionType"] == "ALL" else frozenset(held),
                    local=index in local,
                )
            )
            if index in local:
                self._to.leave_out(f"queries of {index['IndexName']} of table {logical_id}, a local secondary index")
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
        resource = self._resources[logical_id]
        definition: Any = given.get("DefinitionString") or given.get("Definition")
        if given.get("StateMachineType") == "EXPRESS" and _WAITS.search(json.dumps(definition)):
            raise NotSimulatedError(f"{logical_id} is Express, and has a task that waits, which Step Functions refuses")
        self._to.machines[name] = MachineSpec(
            name=name,
            definition=json.loads(definition) if isinstance(definition, str) else definition,
            kind=str(given.get("StateMachineType", "STANDARD")),
            role=str(given["RoleArn"]).rpartition("/")[2],
            named="StateMachineName" in given,
            retained=all(str(resource.get(policy)).startswith("Retain") for policy in _KEPT_BY),
            logged=bool(given.get("LoggingConfiguration", {}).get("Destinations")),
            traced=bool(given.get("TracingConfiguration", {}).get("Enabled")),
        )

    def _version(self, logical_id: str, given: dict[str, Any]) -> None:
        number = str(self._resolver.reference(logical_id)).rpartition(":")[2]
        self._to.published[str(given["StateMachineArn"])] = number

    def _alias(self, logical_id: str, given: dict[str, Any]) -> None:
        preference = given.get("DeploymentPreference")
        if preference is None:
            self._to.leave_out(f"alias {logical_id}: it has no DeploymentPreference, by which executions start here")
            return
        machine, _, version = str(preference["StateMachineVersionArn"]).rpartition(":")
        percent, minutes = int(preference.get("Percentage", 100)), int(preference.get("Interval", 0))
        steps = {
            "ALL_AT_ONCE": (),
            "CANARY": (percent,),
            "LINEAR": tuple(range(percent, 100, percent)),
        }[str(preference["Type"])]
        name = str(given.get("Name", logical_id))
        self._to.aliases.append(AliasSpec(machine=machine, name=name, version=version, steps=steps, pause=minutes * 60))

    def _rule(self, logical_id: str, given: dict[str, Any]) -> None:
        if given.get("State") == "DISABLED":
            return
        every = cron = None
        name = self._name(logical_id)
        if (schedule := given.get("ScheduleExpression")) is not None:
            found = _RATE.fullmatch(schedule)
            every = int(found[1]) * _SECONDS[found[2]] if found is not None else None
            cron = cron_of(schedule)
            if every is None and cron is None:
                self._to.leave_out(f"rule {name}: events of its schedule {schedule}")
        self._to.rules.append(
            RuleSpec(
                name=name,
                bus=str(given.get("EventBusName", "default")).rpartition("/")[2],
                pattern=given.get("EventPattern"),
                every=every,
                cron=cron,
                targets=tuple(_target(target) for target in given.get("Targets", ())),
            )
        )

    def _bus(self, logical_id: str, given: dict[str, Any]) -> None:
        self._to.buses.add(str(given.get("Name") or self._name(logical_id)))

    def _bucket(self, logical_id: str, given: dict[str, Any]) -> None:
        name, refused = self._name(logical_id), None
        given_rules = given.get("LifecycleConfiguration", {}).get("Rules", ())
        rules = [rule for rule in given_rules if rule["Status"] == "Enabled"]
        if unknown := sorted({member for rule in rules for member in rule} - _OF_LIFECYCLES):
            refused = f"the lifecycle of bucket {logical_id} has {', '.join(unknown)}, which is not simulated"
            self._to.leave_out(refused)
        self._to.buckets[name] = BucketSpec(
            name=name,
            expirations=tuple(
                ExpirationSpec(days=int(rule["ExpirationInDays"]), prefix=rule.get("Prefix", ""))
                for rule in rules
                if "ExpirationInDays" in rule
            ),
            refused=refused,
        )

    def _secret(self, logical_id: str, _given: dict[str, Any]) -> None:
        self._to.secrets.append(str(self._resolver.reference(logical_id)))

    def _role(self, logical_id: str, given: dict[str, Any]) -> None:
        statements = self._to.roles.setdefault(self._name(logical_id), [])
        for policy in given.get("Policies", ()):
            statements += self._statements(self._name(logical_id), policy["PolicyDocument"])

    def _policy(self, _logical_id: str, given: dict[str, Any]) -> None:
        for role in given.get("Roles", ()):
            statements = self._statements(str(role), given["PolicyDocument"])
            self._to.roles.setdefault(str(role), []).extend(statements)

    def _api(self, logical_id: str, given: dict[str, Any]) -> None:
        routes = []
        api = str(self._resolver.reference(logical_id))
        stages = [str(one["StageName"]) for _, one in self._of_apis("Stage") if one["RestApiId"] == api]
        stage = stages[-1] if stages else "prod"
        keys, source = keys_of(api, stage, self._of_apis), str(given.get("ApiKeySourceType", "HEADER"))
        for method_id, resource in self._resources.items():
            if resource["Type"] != "AWS::ApiGateway::Method":
                continue
            properties = self._resolver.resolve(resource.get("Properties", {}))
            if properties.get("RestApiId") == api and properties["HttpMethod"] != "OPTIONS":
                integration = properties.get("Integration", {})
                found = _FUNCTION_IN_URI.search(str(integration.get("Uri", "")))
                checks: RequestChecks | str = "has no Lambda proxy integration, which alone is simulated"
                if integration.get("Type") == "AWS_PROXY" and found is not None:
                    checks = checks_of(properties, keys, source, self._of_apis)
                refused = f"method {method_id} {checks}" if isinstance(checks, str) else None
                if refused is not None:
                    self._to.leave_out(refused)
                routes.append(
                    RouteSpec(
                        method=properties["HttpMethod"],
                        path=self._path(resource["Properties"]["ResourceId"]),
                        function=found[1] if found is not None else "",
                        authorization=properties.get("AuthorizationType", "NONE"),
                        checks=RequestChecks() if isinstance(checks, str) else checks,
                        refused=refused,
                    )
                )
        self._to.apis[api] = ApiSpec(
            id=api,
            stage=stage,
            binary="*/*" in given.get("BinaryMediaTypes", ()),
            routes=tuple(routes),
            stack=self._stack.name,
        )

    def _of_apis(self, kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Resources of REST APIs of a type, each with its ``Ref`` and its properties."""
        for logical_id, resource in self._resources.items():
            if resource["Type"] == f"AWS::ApiGateway::{kind}":
                yield str(self._resolver.reference(logical_id)), self._resolver.resolve(resource.get("Properties", {}))

    def _statements(self, role: str, document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        found = document["Statement"] if isinstance(document["Statement"], list) else [document["Statement"]]
        if any({"NotAction", "NotResource"} & statement.keys() for statement in found):
            self._to.leave_out(f"calls of role {role}, of which a policy has NotAction or NotResource")
        return list(found)

    def _http_api(self, logical_id: str, given: dict[str, Any]) -> None:
        api = str(self._resolver.reference(logical_id))
        self._seen.stacks[api] = self._stack.name
        if given.get("ProtocolType") != "HTTP" or "Body" in given:
            self._to.leave_out(f"API {logical_id}: neither a REST API nor an HTTP API whose routes are resources")
            self._seen.others.add(api)

    def _http_stage(self, _logical_id: str, given: dict[str, Any]) -> None:
        self._seen.stages.setdefault(str(given["ApiId"]), []).append(str(given["StageName"]))

    def _http_route(self, logical_id: str, given: dict[str, Any]) -> None:
        if given["ApiId"] in self._seen.others:
            return
        integration: Mapping[str, Any] = {}
        target = str(given.get("Target", "")).rpartition("/")[2]
        for integration_id, resource in self._resources.items():
            known = resource["Type"] == "AWS::ApiGatewayV2::Integration"
            if known and self._resolver.reference(integration_id) == target:
                integration = self._resolver.resolve(resource["Properties"])
        self._seen.stacks.setdefault(str(given["ApiId"]), self._stack.name)
        self._seen.routes.setdefault(str(given["ApiId"]), []).append(self._route(logical_id, given, integration))

    def _route(self, logical_id: str, given: Mapping[str, Any], integration: Mapping[str, Any]) -> RouteSpec:
        method, path = "ANY", DEFAULT
        if (found := _ROUTE_KEY.fullmatch(str(given["RouteKey"]))) is not None:
            method, path = found.groups()
        uri = str(integration.get("IntegrationUri", ""))
        matched = _FUNCTION_IN_URI.search(uri)
        function = matched[1] if matched is not None else function_name(uri) if ":function:" in uri else ""
        authorization = str(given.get("AuthorizationType", "NONE"))
        told = None
        if integration.get("IntegrationType") != "AWS_PROXY" or not function:
            told = "has no Lambda proxy integration, which alone is simulated"
        elif integration.get("PayloadFormatVersion") != "2.0":
            told = f"has payload format {integration.get('PayloadFormatVersion')}; 2.0 alone is simulated"
        elif authorization == "CUSTOM":
            told = "has a Lambda authorizer, which is not simulated"
        refused = None if told is None else f"route {logical_id} {told}"
        if refused is not None:
            self._to.leave_out(refused)
        return RouteSpec(
            method=method,
            path=path,
            function=function,
            authorization=authorization,
            scopes=tuple(map(str, given.get("AuthorizationScopes", ()))),
            timeout=int(integration.get("TimeoutInMillis", 30_000)),
            refused=refused,
        )

    def _topic(self, logical_id: str, given: dict[str, Any]) -> None:
        topic = str(self._resolver.reference(logical_id))
        self._seen.topics.add(topic)
        for subscription in given.get("Subscription", ()):
            self._subscription(logical_id, {**subscription, "TopicArn": topic})

    def _subscription(self, _logical_id: str, given: dict[str, Any]) -> None:
        if given["Protocol"] in _ACTS or ".execute-api." in str(given.get("Endpoint", "")):
            self._seen.acting.add(str(given["TopicArn"]))

    def _path(self, resource_id: Any) -> str:
        """Path of an API's resource."""
        if "Ref" not in resource_id:
            return "/"
        given = self._resources[resource_id["Ref"]]["Properties"]
        return f"{self._path(given['ParentId']).rstrip('/')}/{given['PathPart']}"


def _keys(schema: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    by_kind = {part["KeyType"]: part["AttributeName"] for part in schema}
    return (by_kind["HASH"], *([by_kind["RANGE"]] if "RANGE" in by_kind else []))


def _target(given: Mapping[str, Any]) -> TargetSpec:
    policy, transformer = given.get("RetryPolicy", {}), given.get("InputTransformer", {})
    return TargetSpec(
        arn=str(given["Arn"]),
        constant=given.get("Input"),
        paths=dict(transformer.get("InputPathsMap", {})),
        template=transformer.get("InputTemplate"),
        dead_letters=given.get("DeadLetterConfig", {}).get("Arn"),
        max_age=int(policy.get("MaximumEventAgeInSeconds", 86_400)),
        retries=int(policy.get("MaximumRetryAttempts", 185)),
        group=given.get("SqsParameters", {}).get("MessageGroupId"),
        refused=f"its target {given['Arn']} has an InputPath, which is not simulated" if "InputPath" in given else None,
    )
