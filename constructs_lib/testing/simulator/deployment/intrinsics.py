"""CloudFormation's references: which name, ARN or address each resource of a template has in the simulation."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from constructs_lib.testing.simulator.deployment.blueprint import ACCOUNT, REGION, arn
from constructs_lib.testing.simulator.errors import NotSimulatedError

_PSEUDO: Final = {
    "AWS::AccountId": ACCOUNT,
    "AWS::Partition": "aws",
    "AWS::Region": REGION,
    "AWS::URLSuffix": "amazonaws.com",
    "AWS::NoValue": None,
}
_NAME_OF: Final = {
    "AWS::Lambda::Function": ("FunctionName", 64),
    "AWS::DynamoDB::GlobalTable": ("TableName", 255),
    "AWS::DynamoDB::Table": ("TableName", 255),
    "AWS::SQS::Queue": ("QueueName", 75),
    "AWS::StepFunctions::StateMachine": ("StateMachineName", 80),
    "AWS::Events::Rule": ("Name", 64),
    "AWS::Events::EventBus": ("Name", 64),
    "AWS::IAM::Role": ("RoleName", 64),
    "AWS::S3::Bucket": ("BucketName", 63),
    "AWS::ApiGateway::Stage": ("StageName", 64),
    "AWS::ApiGatewayV2::Stage": ("StageName", 128),
    "AWS::SNS::Topic": ("TopicName", 256),
}
"""Property that sets a resource's name, and how long one that CloudFormation makes may be."""
_ARN_OF: Final[dict[str, Callable[[str], str]]] = {
    "AWS::Lambda::Function": lambda name: arn("lambda", f"function:{name}"),
    "AWS::DynamoDB::GlobalTable": lambda name: arn("dynamodb", f"table/{name}"),
    "AWS::DynamoDB::Table": lambda name: arn("dynamodb", f"table/{name}"),
    "AWS::SQS::Queue": lambda name: arn("sqs", name),
    "AWS::StepFunctions::StateMachine": lambda name: arn("states", f"stateMachine:{name}"),
    "AWS::Events::Rule": lambda name: arn("events", f"rule/{name}"),
    "AWS::Events::EventBus": lambda name: arn("events", f"event-bus/{name}"),
    "AWS::IAM::Role": lambda name: arn("iam", f"role/{name}", region=""),
    "AWS::S3::Bucket": lambda name: arn("s3", name, region="", account=""),
    "AWS::Logs::LogGroup": lambda name: arn("logs", f"log-group:{name}:*"),
    "AWS::SecretsManager::Secret": lambda name: arn("secretsmanager", f"secret:{name}-Simula"),
    "AWS::SNS::Topic": lambda name: arn("sns", name),
    "AWS::KMS::Key": lambda name: arn("kms", f"key/{name}"),
}
_REF_IS_ARN: Final = frozenset({"AWS::StepFunctions::StateMachine", "AWS::SecretsManager::Secret", "AWS::SNS::Topic"})
_API: Final = re.compile(r"AWS::ApiGateway(V2)?::(?!Stage$).*")
"""Types whose ``Ref`` is an id that API Gateway makes."""
_SUBSTITUTED: Final = re.compile(r"\$\{(!?)([^}]+)\}")


class Resolver:
    """Resolves the references of one template.

    Args:
        stack: the stack's name.
        template: its template.
        exports: what other stacks export; this one's exports are added to it.
    """

    def __init__(self, stack: str, template: Mapping[str, Any], exports: dict[str, Any]) -> None:
        self._stack = stack
        self._resources: Mapping[str, Any] = template.get("Resources", {})
        self._parameters: Mapping[str, Any] = template.get("Parameters", {})
        self._mappings: Mapping[str, Any] = template.get("Mappings", {})
        self._conditions: Mapping[str, Any] = template.get("Conditions", {})
        self._outputs: Mapping[str, Any] = template.get("Outputs", {})
        self._exports = exports

    def name(self, logical_id: str) -> str:
        """Physical name of a resource: its own, or one made of the stack's name and its logical id."""
        resource = self._resources[logical_id]
        kind = resource["Type"]
        given, most = _NAME_OF.get(kind, (None, 128))
        properties = resource.get("Properties", {})
        if given is not None and given in properties:
            return str(self.resolve(properties[given]))
        made = f"{self._stack}-{logical_id}"
        if kind == "AWS::S3::Bucket":
            made = made.lower()
        fifo = ".fifo" if kind == "AWS::SQS::Queue" and properties.get("FifoQueue") else ""
        if len(made) + len(fifo) > most:
            digest = hashlib.sha256(made.encode()).hexdigest()[:8]
            made = f"{made[: most - len(fifo) - 9]}-{digest}"
        return made + fifo

    def reference(self, logical_id: str) -> Any:
        """Value of ``Ref``."""
        if logical_id in _PSEUDO:
            return _PSEUDO[logical_id]
        if logical_id == "AWS::StackName":
            return self._stack
        if logical_id == "AWS::StackId":
            digest = hashlib.sha256(self._stack.encode()).hexdigest()
            return arn("cloudformation", f"stack/{self._stack}/{digest[:8]}-0000-4000-8000-{digest[8:20]}")
        if logical_id in self._parameters:
            return self._parameters[logical_id].get("Default", "")
        kind = self._resources[logical_id]["Type"]
        name = self.name(logical_id)
        if kind in _REF_IS_ARN:
            return _ARN_OF[kind](name)
        if kind == "AWS::Lambda::Alias":
            given = self.resolve(self._resources[logical_id]["Properties"])
            return f"{_ARN_OF['AWS::Lambda::Function'](given['FunctionName'])}:{given['Name']}"
        if kind == "AWS::StepFunctions::StateMachineVersion":
            return self._version(self._resources[logical_id]["Properties"])
        if kind == "AWS::StepFunctions::StateMachineAlias":
            given = self._resources[logical_id]["Properties"]
            version = str(self.resolve(given["DeploymentPreference"]["StateMachineVersionArn"]))
            return f"{version.rpartition(':')[0]}:{self.resolve(given['Name'])}"
        if kind == "AWS::SQS::Queue":
            return f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{name}"
        if _API.fullmatch(kind):
            return hashlib.sha256(name.encode()).hexdigest()[:10]
        return name

    def _version(self, given: Mapping[str, Any]) -> str:
        """ARN of the version that is published of a state machine.

        On AWS versions are numbered as they are published. Here the definition makes the number, so that the same one
        has it in each release.
        """
        machine = given["StateMachineArn"]
        definition = next(
            resource["Properties"].get("DefinitionString") or resource["Properties"].get("Definition")
            for logical_id, resource in self._resources.items()
            if machine in ({"Ref": logical_id}, {"Fn::GetAtt": [logical_id, "Arn"]})
        )
        text = json.dumps(self.resolve(definition), sort_keys=True)
        return f"{self.resolve(machine)}:{int(hashlib.sha256(text.encode()).hexdigest()[:7], 16) + 1}"

    def attribute(self, logical_id: str, attribute: str) -> Any:
        """Value of ``Fn::GetAtt``."""
        kind = self._resources[logical_id]["Type"]
        name = self.name(logical_id)
        if attribute == "Arn":
            return _ARN_OF[kind](name) if kind in _ARN_OF else arn(kind.split("::")[1].lower(), name)
        if attribute in ("Name", "QueueName", "FunctionName", "TableName"):
            return name
        if attribute in ("QueueUrl", "TopicArn", "ApiId", "IntegrationId", "AuthorizerId"):
            return self.reference(logical_id)
        if attribute == "ApiEndpoint":
            return f"https://{self.reference(logical_id)}.execute-api.{REGION}.amazonaws.com"
        return f"{name}.{attribute}"

    def resolve(self, value: Any) -> Any:
        """A value with everything in it resolved.

        Raises:
            NotSimulatedError: for a function of CloudFormation that is not known here.
        """
        if isinstance(value, list):
            return [found for found in map(self.resolve, value) if found is not None]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((name, argument),) = value.items()
            if name == "Ref":
                return self.reference(argument)
            if name.startswith("Fn::"):
                return self._function(name, argument)
        resolved = {name: self.resolve(part) for name, part in value.items()}
        return {name: part for name, part in resolved.items() if part is not None or value[name] is None}

    def outputs(self) -> dict[str, str]:
        """The stack's outputs; what it exports is known to stacks that are read later."""
        found = {}
        for name, output in self._outputs.items():
            value = self.resolve(output["Value"])
            found[name] = str(value)
            if "Export" in output:
                self._exports[str(self.resolve(output["Export"]["Name"]))] = value
        return found

    def _function(self, name: str, argument: Any) -> Any:
        match name:
            case "Fn::GetAtt":
                parts = argument if isinstance(argument, list) else argument.split(".", 1)
                return self.attribute(parts[0], parts[1])
            case "Fn::Join":
                return str(argument[0]).join(str(part) for part in self.resolve(argument[1]))
            case "Fn::Sub":
                return self._substituted(argument)
            case "Fn::Select":
                return self.resolve(argument[1])[int(argument[0])]
            case "Fn::Split":
                return str(self.resolve(argument[1])).split(argument[0])
            case "Fn::ImportValue":
                return self._imported(str(self.resolve(argument)))
            case "Fn::If":
                return self.resolve(argument[1] if self._is(argument[0]) else argument[2])
            case "Fn::FindInMap":
                first, second, third = self.resolve(argument[:3])
                return self.resolve(self._mappings[first][second][third])
            case "Fn::GetAZs":
                return [f"{REGION}{letter}" for letter in "abc"]
        raise NotSimulatedError(f"{name} is not simulated")

    def _imported(self, name: str) -> Any:
        """The value that a stack, read before this one, exports under a name."""
        if name not in self._exports:
            raise NotSimulatedError(
                f"stack {self._stack} imports {name}, which no stack before it exports; give an app that has both"
            )
        return self._exports[name]

    def _substituted(self, argument: Any) -> str:
        text, given = argument if isinstance(argument, list) else (argument, {})

        def found(match: re.Match[str]) -> str:
            literal, name = match.groups()
            if literal:
                return f"${{{name}}}"
            if name in given:
                return str(self.resolve(given[name]))
            logical_id, _, attribute = name.partition(".")
            return str(self.attribute(logical_id, attribute) if attribute else self.reference(name))

        return _SUBSTITUTED.sub(found, text)

    def _is(self, condition: str) -> bool:
        """Test whether a condition of the template is true."""
        return bool(self._holds(self._conditions[condition]))

    def _holds(self, value: Any) -> bool:
        ((name, argument),) = value.items()
        match name:
            case "Fn::Equals":
                return bool(self.resolve(argument[0]) == self.resolve(argument[1]))
            case "Fn::Not":
                return not self._holds(argument[0])
            case "Fn::And":
                return all(map(self._holds, argument))
            case "Fn::Or":
                return any(map(self._holds, argument))
            case "Condition":
                return self._is(argument)
        raise NotSimulatedError(f"{name} in a condition is not simulated")
